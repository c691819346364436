/* What the model is given of documents: short ones as a whole, of long ones the passages that were found.  The text of
 * a document is data for the model, between bounds that do not occur in it. */

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('./stored.js').Place} Place */

const WHOLE = 'Answer from the documents, and quote the words that you rely on.';
const PASSAGES = 'Answer from these passages only. Quote their words, and name the number of each passage that you '
  + 'use, such as [1]. If they do not contain the answer, say so.';

/** A message with what belongs to it of the documents.
 * @param {{content: string, documents?: Document[], places?: Place[]}} message */
export function withDocuments({ content, documents = [], places = [] }) {
  const whole = documents.filter(({ whole, text }) => whole && text !== undefined);
  const parts = [
    ...whole.map(({ name, text = '' }) => `Document ${quoted(name)}:\n${bounded(text)}`),
    ...places.map(({ whole, name, page, text }, i) => whole ? ''
      : `Passage [${i + 1}] of ${quoted(name)}${page ? `, page ${page}` : ''}:\n${bounded(text)}`),
  ].filter(Boolean);
  if (parts.length === 0) return content;
  return [...parts, places.some(({ whole }) => !whole) ? PASSAGES : WHOLE, content].join('\n\n');
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
  for (const [, quote] of answer.matchAll(/[“"]([^“”"]{12,2000})[”"]/g)) {
    const wanted = plain(quote);
    places.forEach(({ text }, i) => plain(text).includes(wanted) && used.add(i + 1));
  }
  return used;
}
