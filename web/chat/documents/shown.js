/* The documents of a message, and the places that were found for it, as the conversation shows them. */
import { dotted, make } from '../dom.js';
import { figuresOf } from './attachments.js';
import { usedIn } from './given.js';

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('./stored.js').Place} Place
 * @typedef {(digest: string, place?: Place) => void} Open  shows a document, at a place */

/** The documents of a message. @param {Document[] | undefined} documents @param {Open} open @returns {Node[]} */
export function chipsOf(documents = [], open) {
  if (documents.length === 0) return [];
  return [make('ul', { className: 'chips', 'aria-label': 'Attached documents' }, ...documents.map(document =>
    make('li', {}, make('button', { type: 'button', title: 'Show the document', onclick: () => open(document.digest) },
      make('bdi', {}, document.name), figuresOf(document)))))];
}

/** The places for an answer: those that it uses first. @param {Place[] | undefined} places @param {string} answer
 * @param {Open} open @param {string} [where]  what the places are in @returns {Node[]} */
export function placesOf(places = [], answer, open, where = 'documents') {
  if (places.length === 0) return [];
  const used = usedIn(answer, places), order = places.map((place, i) => ({ place, number: i + 1 }))
    .sort((a, b) => Number(used.has(b.number)) - Number(used.has(a.number)) || a.number - b.number);
  return [make('section', { className: 'places', 'aria-label': `Places in the ${where}` },
    make('p', { className: 'figures' }, used.size > 0 ? `The answer uses places in the ${where}`
      : `The nearest places in the ${where}`),
    make('ol', {}, ...order.map(({ place, number }) => make('li', { className: used.has(number) ? 'used' : '' },
      make('button', { type: 'button', title: 'Show the place',
        onclick: () => open(place.digest, place) },
      make('span', { className: 'figures' }, `[${number}]`), make('bdi', {}, place.name),
      make('span', { className: 'figures' }, placeName(place))),
      make('blockquote', {}, ...quoteOf(place))))))];
}

/** @param {Place} place */
const placeName = ({ page, line }) => dotted([page ? `page ${page}` : `line ${line}`]);

/** Characters that are shown before and after the nearest sentence. */
const AROUND = 80;

/** The nearest sentence of a passage, marked, with some words around it. @param {Place} place */
function quoteOf({ text, sentence: [from, to] }) {
  const mark = make('mark', {}, text.slice(from, Math.min(to, from + 600)));
  const before = text.slice(Math.max(0, from - AROUND), from), after = text.slice(to, to + AROUND);
  return [from > AROUND ? `… ${before.replace(/^\S*\s+/, '')}` : before, mark,
    to + AROUND < text.length ? `${after.replace(/\s+\S*$/, '')} …` : after];
}
