/* Documents and places as conversations store them.  Stored data is not trusted: another version of this page, an
 * extension or an imported file may have written it.  What is not a document or a place is left out. */
import { tidy } from '../dom.js';
import { MAX_PAGES } from './text.js';

/** A document as the page knows it, and as conversations store it.
 * @typedef {object} Document
 * @property {string} digest  the sha256 of the file in hex digits
 * @property {string} name @property {number} size  in bytes
 * @property {number} [total]  of a PDF: how many pages it has
 * @property {number[]} [pages]  of a PDF: where each page that was read starts in the text
 * @property {string} [text]  undefined: it was too long to be stored
 * @property {boolean} [whole]  whether the model is given the whole text instead of passages */
/** A passage that was found for a question, with what is around it, so that it can be shown without the document.
 * @typedef {object} Place
 * @property {string} digest @property {string} name  of the document
 * @property {string} text
 * @property {number} start  in the text of the document
 * @property {[number, number]} sentence  the nearest sentence: where it starts and ends in text
 * @property {number} [page]  of a PDF, from 1 @property {number} line  from 1
 * @property {boolean} [whole]  whether the model is given the whole document, not this passage */

/** Characters of the text of one document that a conversation stores, and those of a passage; documents of a message,
 * and places. */
export const MAX_STORED = 2e5;
const MAX_PASSAGE = 4000, MAX_DOCUMENTS = 20, MAX_PLACES = 20;

/** @param {unknown} value @param {number} [most] */
const isCount = (value, most = Number.MAX_SAFE_INTEGER) =>
  Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0 && /** @type {number} */ (value) <= most;

/** The documents and places of a stored message. @param {any} value
 * @returns {{documents?: Document[], places?: Place[]}} */
export function documentsOf({ documents, places }) {
  const all = listOf(documents, MAX_DOCUMENTS, documentOf), found = listOf(places, MAX_PLACES, placeOf);
  return { ...all.length > 0 && { documents: all }, ...all.length + found.length > 0 && Array.isArray(places)
    && { places: found } };
}

/** @template T @param {unknown} values @param {number} most @param {(value: any) => T | undefined} read
 * @returns {T[]} */
const listOf = (values, most, read) =>
  Array.isArray(values) ? values.slice(0, most).flatMap(value => read(value) ?? []) : [];

/** @param {any} value @returns {Document | undefined} */
function documentOf(value) {
  const { digest, name, size, total, pages, text, whole } = value ?? {};
  if (!isDigest(digest) || typeof name !== 'string' || !isCount(size)) return undefined;
  const hasText = typeof text === 'string' && text.length <= MAX_STORED;
  const hasPages = Array.isArray(pages) && pages.length <= MAX_PAGES && pages.every(at => isCount(at));
  return { digest, name: nameOf(name), size, ...isCount(total) && hasPages && { total, pages },
    ...hasText && { text }, ...hasText && whole === true && { whole } };
}

/** @param {any} value @returns {Place | undefined} */
function placeOf(value) {
  const { digest, name, text, start, sentence, page, line, whole } = value ?? {};
  if (!isDigest(digest) || typeof name !== 'string' || typeof text !== 'string' || text.length > MAX_PASSAGE) {
    return undefined;
  }
  const [from, to] = Array.isArray(sentence) ? sentence : [];
  if (!isCount(start) || !isCount(line) || !isCount(to, text.length) || !isCount(from, to)) return undefined;
  return { digest, name: nameOf(name), text, start, line, sentence: [from, to], ...isCount(page) && { page },
    ...whole === true && { whole } };
}

/** The name of a document as the page shows it. @param {string} name */
export const nameOf = name => tidy(name) || 'Document';

/** @param {unknown} value */
const isDigest = value => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);

/** A document without a text that is too long to be stored. @param {Document} document @returns {Document} */
export function storable(document) {
  const { text, ...rest } = document;
  return text !== undefined && text.length > MAX_STORED ? rest : document;
}
