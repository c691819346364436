/* Ranks the passages of documents for a question: by words (BM25), by meaning (the cosine of vectors, where they are
 * known), and by both (reciprocal rank fusion).  It also finds the sentence of a passage that is nearest to the
 * question, and says whether anything is near enough to be an answer.
 *
 *   BM25:   Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009
 *   fusion: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet, SIGIR 2009 */

/** The usual constants of BM25 and of the fusion. */
const K1 = 1.2, B = 0.75, FUSION = 60;
/** Words of questions that say nothing about their subject. */
const COMMON = new Set((
  'a about an and any are as at be been but by can could did do does for from had has have how i if in into '
  + 'is it its me my no not of on or our shall should so such than that the their them then there these they '
  + 'this those to under was we were what when where which who whom whose why will with would you your').split(' '));

/** The words of a text as they are compared: in lower case, without common endings; the parts of names in code, too;
 * pairs of characters where a script has no spaces. @param {string} text @returns {string[]} */
function termsOf(text) {
  const terms = [];
  for (const [word] of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
    if (/[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}]/u.test(word)) {
      const all = [...word];
      for (let i = 0; i < all.length; i++) terms.push(all[i] + (all[i + 1] ?? ''));
      continue;
    }
    const parts = /_|\p{Ll}\p{Lu}/u.test(word) ? word.split(/_+|(?<=\p{Ll})(?=\p{Lu})/u).filter(Boolean) : [];
    if (parts.length !== 1) terms.push(stem(word.toLowerCase()));
    for (const part of parts) terms.push(stem(part.toLowerCase()));
  }
  return terms;
}

/** A word without its ending, so that "licensed" and "licenses" are the same. @param {string} word */
function stem(word) {
  if (word.length < 4 || !/^[a-z]+$/.test(word)) return word;
  const short = word.replace(/(?:ies|ied)$/, 'y').replace(/(?<=..)(?:sses)$/, 'ss').replace(/(?<=[^s])s$/, '')
    .replace(/(?<=...)(?:ing|ed|ly|er|or|ation|ment|ion)$/, '');
  return short.replace(/(?<=...)e$/, '').replace(/([b-df-hj-np-tv-z])\1$/, '$1');
}

/** The words of a question that matter; all of them if it has no other. @param {string} question */
export function wordsOf(question) {
  const words = question.split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
  const wanted = words.filter(word => !COMMON.has(word.toLowerCase()));
  return [...new Set((wanted.length > 0 ? wanted : words).flatMap(termsOf))];
}

/** Which passages have which words. */
export class Words {
  /** For each word the passages that have it, and how often: two numbers each. @type {Map<string, number[]>} */
  #postings = new Map();
  /** @type {number[]} */
  #lengths = [];
  #total = 0;

  /** Adds the next passage. @param {string} text */
  add(text) {
    const passage = this.#lengths.length, terms = termsOf(text);
    for (const term of terms) {
      const known = this.#postings.get(term);
      if (!known) this.#postings.set(term, [passage, 1]);
      else if (known[known.length - 2] === passage) known[known.length - 1]++;
      else known.push(passage, 1);
    }
    this.#lengths.push(terms.length);
    this.#total += terms.length;
  }

  /** How much a word tells: more if fewer passages have it. @param {string} term */
  weight(term) {
    const n = this.#lengths.length, found = (this.#postings.get(term)?.length ?? 0) / 2;
    return Math.log(1 + (n - found + 0.5) / (found + 0.5));
  }

  /** The passages that have a word of the question, with their scores. @param {string[]} words  of wordsOf
   * @returns {Map<number, number>} */
  scores(words) {
    const scores = new Map(), mean = this.#total / Math.max(1, this.#lengths.length);
    for (const word of words) {
      const postings = this.#postings.get(word) ?? [], weight = this.weight(word);
      for (let i = 0; i < postings.length; i += 2) {
        const passage = postings[i], times = postings[i + 1];
        const long = 1 - B + B * this.#lengths[passage] / mean;
        scores.set(passage, (scores.get(passage) ?? 0) + weight * times * (K1 + 1) / (times + K1 * long));
      }
    }
    return scores;
  }

  /** The share of the question that a text has, by the weights of the words: 0 to 1.
   * @param {string[]} words @param {string} text */
  coverage(words, text) {
    const terms = new Set(termsOf(text)), sum = (/** @type {string[]} */ some) =>
      some.reduce((total, word) => total + this.weight(word), 0);
    return sum(words.filter(word => terms.has(word))) / (sum(words) || 1);
  }
}

/** The keys of scores, the highest score first. @param {Map<number, number>} scores */
export const ranked = scores => [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([key]) => key);

/** One order of several: what is early in many is first.
 * @param {{order: number[], weight: number}[]} orders @returns {number[]} */
export function fused(orders) {
  const scores = new Map();
  for (const { order, weight } of orders) {
    for (const [i, key] of order.entries()) scores.set(key, (scores.get(key) ?? 0) + weight / (FUSION + i + 1));
  }
  return ranked(scores);
}

/** The cosine of two vectors of length 1. @param {Float32Array} one @param {Float32Array} other @param {number} [at]
 *   where the other begins */
export function cosine(one, other, at = 0) {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += one[i] * other[at + i];
  return sum;
}

/** What may be an answer: passages whose vector is at least NEAR to that of the question, or half as near if they have
 * a share SOME of its words.  Without vectors it is a share MANY of the words.  tests/bench/documents.mjs measures
 * this. */
const NEAR = 0.3, SOME = 0.3, MANY = 0.35;

/** Whether a passage may have an answer. @param {{cosine?: number, coverage: number}} found
 *   cosine: undefined if no vector of it is known */
export const isNear = ({ cosine: near, coverage }) => near === undefined ? coverage >= MANY
  : near >= NEAR || near >= NEAR / 2 && coverage >= SOME;
