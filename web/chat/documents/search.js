/* Searches documents for passages that may answer a question.  It has no part of a page: it runs in a worker, and in
 * Node for tests/bench/documents.mjs.  Vectors are made by the caller, who has the model.
 *
 * A question is answered in two steps: `candidates` are the passages that the words find, `find` orders them by words
 * and meaning together.  So a document of ten thousand passages costs no more vectors than a short one. */
import { passagesOf } from './passages.js';
import { cosine, fused, isNear, ranked, Words, wordsOf } from './ranking.js';

/** @typedef {object} Passage
 * @property {string} document  its key
 * @property {number} start  in the text of the document, as is end
 * @property {number} end
 * @property {Float32Array} [vector]  undefined: it is not made */
/** What is stored of the passages of a document.
 * @typedef {object} Index
 * @property {Uint32Array} bounds  where each passage starts and ends in the text, two numbers each
 * @property {Float32Array} vectors  those of the passages one after the other, each of length 1 */
/** @typedef {object} Found
 * @property {string} document
 * @property {number} start
 * @property {number} end
 * @property {string} text
 * @property {[number, number]} sentence  where the sentence that is nearest to the question starts and ends in text
 * @property {number} line  of that sentence in the document, from 1
 * @property {number | undefined} cosine @property {number} coverage  see ranking.js
 * @property {boolean} near */

/** Passages that get a vector for one question, and passages that are found. */
const MOST_VECTORS = 48, MOST_FOUND = 4;
/** What the order by meaning weighs beside that by words.  tests/bench/documents.mjs finds 36 of 40 places with 1, and
 * 37 with this. */
const MEANING = 1.5;
/** Passages of a document at most: they would take too much memory and time. */
const MAX_PASSAGES = 50000;
/** Characters from which on a passage begins a new one, so that short paragraphs are found with what is around them. */
const ENOUGH = 300;

export class Search {
  /** The texts by their keys. @type {Map<string, string>} */
  #texts = new Map();
  /** @type {Passage[]} */
  #passages = [];
  #words = new Words();

  /** Adds a document, and returns how many passages it has. @param {string} key @param {string} text
   * @param {Index} [index]  of the document, if it has one */
  add(key, text, index) {
    if (this.#texts.has(key)) return this.#passages.filter(({ document }) => document === key).length;
    this.#texts.set(key, text);
    const passages = index ? passagesIn(index) : together(passagesOf(text)).slice(0, MAX_PASSAGES);
    for (const passage of passages) {
      this.#passages.push({ document: key, ...passage });
      this.#words.add(text.slice(passage.start, passage.end));
    }
    return passages.length;
  }

  /** The number of passages. */
  get size() { return this.#passages.length; }

  /** @param {number} i */
  textOf(i) {
    const { document, start, end } = this.#passages[i];
    return this.#texts.get(document)?.slice(start, end) ?? '';
  }

  /** The passages that should have a vector to answer a question, and those of them that have none yet.
   * @param {string} question @param {string[]} keys  of the documents to search @param {number} [most] */
  candidates(question, keys, most = MOST_VECTORS) {
    const wanted = new Set(keys), order = this.#byWords(question, wanted).slice(0, most);
    const known = new Set(order);
    for (let i = 0; i < this.#passages.length && order.length < most; i++) {   // words may find too few
      if (wanted.has(this.#passages[i].document) && !known.has(i)) order.push(i);
    }
    return order.filter(i => !this.#passages[i].vector).map(i => ({ i, text: this.textOf(i) }));
  }

  /** @param {number} i @param {Float32Array} vector  of length 1 */
  setVector(i, vector) { this.#passages[i].vector = vector; }

  /** @param {string} question @param {Set<string>} keys */
  #byWords(question, keys) {
    return ranked(this.#words.scores(wordsOf(question))).filter(i => keys.has(this.#passages[i].document));
  }

  /** The best passages for a question, the best first.
   * @param {string} question @param {string[]} keys  of the documents to search
   * @param {{vector?: Float32Array, most?: number, by?: 'words' | 'meaning' | 'both'}} [how]  vector: of the question;
   *   undefined: only words count
   * @returns {Found[]} */
  find(question, keys, { vector, most = MOST_FOUND, by = vector ? 'both' : 'words' } = {}) {
    const wanted = new Set(keys), words = wordsOf(question);
    /** @type {Map<number, number>} */
    const cosines = new Map();
    if (vector) {
      for (const [i, passage] of this.#passages.entries()) {
        if (passage.vector && wanted.has(passage.document)) cosines.set(i, cosine(vector, passage.vector));
      }
    }
    const byWords = this.#byWords(question, wanted), byMeaning = ranked(cosines);
    const order = by === 'words' ? byWords : by === 'meaning' ? byMeaning
      : fused([{ order: byWords, weight: 1 }, { order: byMeaning, weight: MEANING }]);
    return order.slice(0, most).map(i => {
      const { document, start, end } = this.#passages[i], text = this.textOf(i);
      const measured = { cosine: cosines.get(i), coverage: this.#words.coverage(words, text) };
      const sentence = this.#sentenceOf(text, words), all = this.#texts.get(document) ?? '';
      return { document, start, end, text, sentence, line: lineOf(all, start + sentence[0]), ...measured,
        near: isNear(measured) };
    });
  }

  /** Where the sentence of a text is that has most of some words. @param {string} text @param {string[]} words
   * @returns {[number, number]} */
  #sentenceOf(text, words) {
    let best = 0;
    /** @type {[number, number]} */
    let place = [0, text.length];
    for (const [start, end] of sentencesIn(text)) {
      const covered = this.#words.coverage(words, text.slice(start, end));
      if (covered > best) [best, place] = [covered, [start, end]];
    }
    return place;
  }
}

/** Where the sentences, headings and entries of lists of a text start and end. @param {string} text
 * @returns {[number, number][]} */
export function sentencesIn(text) {
  const cuts = [...text.matchAll(/(?<=[.!?…])\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*|#]|\d+[.)]))/g)]
    .map(({ 0: gap, index }) => [index, index + gap.length]);
  return [...cuts, [text.length]].map(([end], i) => [cuts[i - 1]?.[1] ?? 0, end]);
}

/** The number of the line at a position. @param {string} text @param {number} end */
function lineOf(text, end) {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < end; at = text.indexOf('\n', at + 1)) line++;
  return line;
}

/** The passages of an index with their vectors. @param {Index} index */
export function passagesIn({ bounds, vectors }) {
  const n = bounds.length / 2, size = vectors.length / n;
  return Array.from({ length: n }, (_, i) => ({ start: bounds[2 * i], end: bounds[2 * i + 1],
    vector: vectors.subarray(i * size, (i + 1) * size) }));
}

/** Joins short passages that follow each other. @param {import('./passages.js').Passage[]} passages */
function together(passages) {
  /** @type {import('./passages.js').Passage[]} */
  const joined = [];
  for (const passage of passages) {
    const last = joined.at(-1);
    if (last && last.end - last.start < ENOUGH && passage.end - last.start <= 3 * ENOUGH) last.end = passage.end;
    else joined.push({ ...passage });
  }
  return joined;
}
