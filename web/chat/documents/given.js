/* What the model is given of documents: short ones as a whole, of long ones the passages that were found.  The text of
 * a document is data for the model, between bounds that do not occur in it. */

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('./stored.js').Place} Place */

const WHOLE = 'Answer from the documents, and quote the words that you rely on.';
// Small models answer with nothing but a number if they are asked for numbers first.
const PASSAGES = 'Answer the question in full sentences, with words of these passages. Then name the passage that says '
  + 'it, such as (passage [1]). If they do not contain the answer, say so.';
/** For a model that can only quote, because a grammar binds it. */
export const QUOTE = 'Answer from these passages only. Quote their words, and name the number of each passage that you '
  + 'use, such as [1]. If they do not contain the answer, say so.';
/** How many words an answer has in common with a passage, one after the other, if it quotes it without marks; and how
 * many of an answer are compared. */
const QUOTED = 6, MOST_COMPARED = 2000;

/** A message with what belongs to it of the documents.
 * @param {{content: string, documents?: Document[], places?: Place[]}} message
 * @param {string} [how]  how the model is to answer from passages */
export function withDocuments({ content, documents = [], places = [] }, how = PASSAGES) {
  const whole = documents.filter(({ whole, text }) => whole && text !== undefined);
  const parts = [
    ...whole.map(({ name, text = '' }) => `Document ${quoted(name)}:\n${bounded(text)}`),
    ...places.map(({ whole, name, page, text }, i) => whole ? ''
      : `Passage [${i + 1}] of ${quoted(name)}${page ? `, page ${page}` : ''}:\n${bounded(text)}`),
  ].filter(Boolean);
  if (parts.length === 0) return content;
  return [...parts, places.some(({ whole }) => !whole) ? how : WHOLE, content].join('\n\n');
}

/** @param {string} name */
const quoted = name => `“${name.replace(/[“”"]/g, '')}”`;

/** A text between two lines that it does not contain. @param {string} text
 * @param {'"' | '`'} [mark]  of which the lines are made; by backticks Markdown knows a block of code */
export function bounded(text, mark = '"') {
  const runs = text.match(mark === '"' ? /"+/g : /`+/g) ?? [];
  const fence = mark.repeat(runs.reduce((longest, { length }) => Math.max(longest, length), 2) + 1);
  return `${fence}\n${text.trim()}\n${fence}`;
}

/** The numbers of the passages that an answer names, such as 1 for "[1]", or quotes.
 * @param {string} answer @param {Place[]} places @returns {Set<number>} */
export function usedIn(answer, places) {
  const used = new Set([...answer.matchAll(/\[(\d{1,2})\]/g)].map(([, n]) => Number(n)).filter(n => places[n - 1]));
  const plain = (/** @type {string} */ text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, ' ').trim();
  const texts = places.map(({ text }) => ` ${plain(text)} `), words = plain(answer).split(' ').slice(0, MOST_COMPARED);
  for (let i = 0; i + QUOTED <= words.length; i++) {
    const some = ` ${words.slice(i, i + QUOTED).join(' ')} `;
    texts.forEach((text, n) => text.includes(some) && used.add(n + 1));
  }
  for (const [, quote] of answer.matchAll(/[“"]([^“”"]{12,2000})[”"]/g)) {
    const wanted = plain(quote);
    texts.forEach((text, n) => text.includes(wanted) && used.add(n + 1));
  }
  return used;
}
