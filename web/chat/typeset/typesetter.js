/* Puts typeset formulas and highlighted code into the page when they are ready.  The libraries run in a worker
 * (worker.js), which is started when the first text needs it and ended if it takes too long; that text then stays as it
 * was written.  What comes from the worker is not trusted: it goes through DOMPurify, which allows only the elements of
 * formulas and spans with a class, and no style, address or script. */
import DOMPurify from '../../dist/vendor/dompurify/purify.es.mjs';
import { complete } from './mathml.js';

/** @typedef {'formula' | 'code'} Kind */
/** @typedef {object} Wanted
 * @property {string} key
 * @property {Kind} kind
 * @property {string} text
 * @property {string} name  as in worker.js
 * @property {Set<HTMLElement>} places  that show the text as it was written
 * @property {(change: () => void) => void} follow  makes a change of the page, and keeps the end in view */

/** Milliseconds that one text may take, once the libraries are there. */
const LONGEST = 2000;
/** Milliseconds in which results are collected, because each change costs a layout. */
const COLLECTED = 16;
/** How many characters of results are kept, so that a block that grows is not typeset again and again. */
const MOST_KEPT = 2e6;

const purify = DOMPurify();
const CLEAN = {
  ALLOWED_TAGS: ['math', 'semantics', 'mrow', 'mi', 'mo', 'mn', 'ms', 'mtext', 'mspace', 'mfrac', 'msqrt', 'mroot',
    'msub', 'msup', 'msubsup', 'munder', 'mover', 'munderover', 'mmultiscripts', 'mprescripts', 'mtable', 'mtr', 'mtd',
    'mlabeledtr', 'mstyle', 'mpadded', 'mphantom', 'menclose', 'span', '#text'],
  ALLOWED_ATTR: ['display', 'mathvariant', 'displaystyle', 'scriptlevel', 'stretchy', 'fence', 'separator', 'form',
    'lspace', 'rspace', 'width', 'height', 'depth', 'voffset', 'linethickness', 'columnalign', 'rowspacing',
    'columnspacing', 'columnlines', 'rowlines', 'accent', 'accentunder', 'minsize', 'maxsize', 'movablelimits',
    'largeop', 'symmetric', 'notation', 'class'],
  FORBID_CONTENTS: ['annotation'],   // which has the text as it was written
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

/** @type {Worker | undefined} */
let worker;
/** What is wanted, in the order in which it is typeset; the worker has the first. @type {Map<string, Wanted>} */
const wanted = new Map();
/** Results by what they show; '' is a text that cannot be typeset. @type {Map<string, string>} */
const results = new Map();
let kept = 0;
/** @type {(() => void)[]} */
let changes = [];
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** Typesets the text of an element, at once if it was done before.
 * @param {HTMLElement} place  shows the text as it was written @param {Kind} kind @param {string} text
 * @param {string} name @param {Wanted['follow']} follow */
export function typeset(place, kind, text, name, follow) {
  const key = `${kind} ${name} ${text}`, html = results.get(key);
  if (html !== undefined) return show(place, kind, html);
  const known = wanted.get(key);
  if (known) return void known.places.add(place);
  wanted.set(key, { key, kind, text, name, places: new Set([place]), follow });
  if (wanted.size === 1) setTimeout(next);   // the place is not in the page yet
}

/** @param {HTMLElement} place @param {Kind} kind @param {string} html */
function show(place, kind, html) {
  if (html === '') return;
  const clean = /** @type {DocumentFragment} */ (/** @type {unknown} */ (purify.sanitize(html, CLEAN)));
  if (kind === 'code' && clean.textContent !== place.textContent) return;
  if (kind === 'formula') {
    const math = clean.querySelector('math');
    if (!math) return;
    complete(math);
    clean.replaceChildren(math);
    place.classList.add('typeset');
  }
  place.replaceChildren(clean);
}

/** Sends the next text to the worker, without those that no place shows any more. */
function next() {
  for (const [key, { places }] of wanted) {
    if ([...places].some(place => place.isConnected)) break;
    wanted.delete(key);
  }
  const [first] = wanted.values();
  if (!first) return;
  const { key, kind, text, name } = first;
  if (!worker) {
    worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
    worker.addEventListener('error', end);
    worker.addEventListener('message', ({ data }) => {
      const [current] = wanted.values();
      if (current?.key !== data.id) return;
      if (data.hasBegun) timer = setTimeout(end, LONGEST);
      else take(current, String(data.html));
    });
  }
  worker.postMessage({ id: key, kind, text, name });
}

/** Ends the worker, whose current text stays as it was written. */
function end() {
  worker?.terminate();
  worker = undefined;
  const [current] = wanted.values();
  if (current) take(current, '');
}

/** @param {Wanted} current @param {string} html */
function take({ key, kind, places, follow }, html) {
  clearTimeout(timer);
  wanted.delete(key);
  results.set(key, html);
  kept += key.length + html.length;
  for (const [oldest, { length }] of results) {
    if (kept <= MOST_KEPT) break;
    results.delete(oldest);
    kept -= oldest.length + length;
  }
  if (html !== '') {
    if (changes.length === 0) {
      setTimeout(() => {
        const all = changes;
        changes = [];
        follow(() => all.forEach(change => change()));
      }, COLLECTED);
    }
    for (const place of places) changes.push(() => show(place, kind, html));
  }
  next();
}
