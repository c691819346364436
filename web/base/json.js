/* JSON of any size without a long task: a large text is read, and a large value is written, in pieces of about PIECE
 * characters, between which the event loop turns. */
import { yieldToEventLoop } from './async.js';

/** Characters that are read or written at once. */
const PIECE = 1 << 16;
/** How deep arrays and objects that are larger than a piece may nest. */
const MAX_DEPTH = 64;
/** The most arrays and objects in a text that is larger than a piece, together with the members of objects that are:
 * the memory of more of them takes long to manage. */
const MAX_VALUES = 1 << 16;
/** How many numbers, and how many characters of a part of a value, are written at once. */
const RUN = 1 << 10, PART = 1 << 12;

/** What a text of JSON says, as JSON.parse.  Throws a SyntaxError, also if what is larger than a piece is nested too
 * deep or has too many parts. @param {string} text @returns {Promise<any>} */
export const parseJson = async text => text.length <= PIECE ? JSON.parse(text) : new Reader(text).whole();

class Reader {
  #text;
  #at = 0;
  /** How many arrays and objects there are so far, and members of objects that are larger than a piece. */
  #values = 0;

  /** @param {string} text */
  constructor(text) { this.#text = text; }

  async whole() {
    const value = await this.#value(0);
    await this.#skipSpace();
    if (this.#at < this.#text.length) throw this.#unexpected();
    return value;
  }

  /** @param {number} depth @returns {Promise<any>} */
  async #value(depth) {
    await this.#skipSpace();
    const first = this.#text[this.#at];
    if (first === '"') return this.#string();
    if (first === '[' || first === '{') return this.#members(first === '[', depth + 1);
    const start = this.#at;
    while (this.#at < start + PIECE && /[-+.\w]/.test(this.#text[this.#at] ?? '')) this.#at++;
    if (this.#at === start) throw this.#unexpected();
    return JSON.parse(this.#text.slice(start, this.#at));
  }

  /** An array or an object. @param {boolean} isArray @param {number} depth */
  async #members(isArray, depth) {
    if (depth > MAX_DEPTH) throw new SyntaxError(`large values are nested more than ${MAX_DEPTH} levels deep`);
    const text = this.#text, whole = isArray ? [] : {}, [opens, closes] = isArray ? '[]' : '{}';
    this.#at++;
    this.#count(1);
    for (let isFirst = true; ; isFirst = false) {
      await yieldToEventLoop();
      const end = this.#endOfMembers(), run = text.slice(this.#at, end);
      if (run !== '') {
        if (!isFirst && run.trim() === '') throw this.#unexpected(end);
        const members = parsed(opens + run + closes, this.#at);
        if (!isArray) this.#count(Object.keys(members).length);
        add(whole, members);
        this.#at = end;
      } else {   // the next member is larger than a piece
        await this.#skipSpace();
        if (isFirst && text[this.#at] === closes) {
          this.#at++;
          return whole;
        }
        const key = isArray ? 0 : await this.#key(), value = await this.#value(depth);
        add(whole, isArray ? [value] : Object.fromEntries([[key, value]]));
        await this.#skipSpace();
      }
      const next = text[this.#at];
      if (next !== ',' && next !== closes) throw this.#unexpected();
      this.#at++;
      if (next === closes) return whole;
    }
  }

  /** @param {number} values */
  #count(values) {
    this.#values += values;
    if (this.#values > MAX_VALUES) throw new SyntaxError(`it has more than ${MAX_VALUES} arrays, objects and members`);
  }

  /** The end of the members that begin here and lie within a piece: the comma behind the last one, or the bracket that
   * closes their array or object.  It is the start if the first member is larger. */
  #endOfMembers() {
    const text = this.#text, start = this.#at;
    let depth = 0, end = start, isString = false, begun = 0, within = 0;
    for (let at = start; at < text.length && at < start + PIECE; at++) {
      const char = text[at];
      if (isString && char === '\\') at++;
      else if (char === '"') isString = !isString;
      else if (isString) continue;
      else if (char === '[' || char === '{') {
        depth++;
        begun++;
      } else if (depth === 0 && (char === ',' || char === ']' || char === '}')) {
        end = at;
        within = begun;
        if (char !== ',') break;
      } else if (char === ']' || char === '}') depth--;
    }
    this.#count(within);
    return end;
  }

  /** The name of a member of an object, and the colon behind it. */
  async #key() {
    if (this.#text[this.#at] !== '"') throw this.#unexpected();
    const key = await this.#string();
    await this.#skipSpace();
    if (this.#text[this.#at] !== ':') throw this.#unexpected();
    this.#at++;
    return key;
  }

  async #string() {
    const text = this.#text, start = this.#at++, parts = [];
    for (let isEnd = false; !isEnd; this.#at += Number(isEnd)) {
      const limit = this.#at + PIECE;
      let end = this.#at;
      for (; end < limit && text[end] !== '"'; end++) {
        if (text[end] === '\\') end += text[end + 1] === 'u' ? 5 : 1;   // a part does not end within an escape
        if (end >= text.length) throw new SyntaxError(`the string at character ${start} does not end`);
      }
      isEnd = text[end] === '"';
      parts.push(parsed(`"${text.slice(this.#at, end)}"`, this.#at));
      this.#at = end;
      await yieldToEventLoop();
    }
    return parts.join('');
  }

  async #skipSpace() {
    for (const start = this.#at; ' \n\r\t'.includes(this.#text[this.#at] ?? '.'); this.#at++) {
      if (this.#at % PIECE === 0 && this.#at > start) await yieldToEventLoop();
    }
  }

  #unexpected(at = this.#at) {
    return new SyntaxError(at < this.#text.length ? `unexpected ${JSON.stringify(this.#text[at])} at character ${at}`
      : 'the text ends too early');
  }
}

/** @param {string} piece @param {number} at  where it begins */
function parsed(piece, at) {
  try {
    return JSON.parse(piece);
  } catch (error) {
    throw new SyntaxError(`${/** @type {Error} */ (error).message} (in a piece that begins at character ${at})`);
  }
}

/** Adds members to an array or an object. @param {any} whole @param {any} members */
function add(whole, members) {
  if (Array.isArray(whole)) {
    for (const value of members) whole.push(value);
    return;
  }
  for (const [key, value] of Object.entries(members)) {
    Object.defineProperty(whole, key, { value, configurable: true, enumerable: true, writable: true });
  }
}

/** The JSON of a value, with texts before and behind it, in pieces.  Unlike JSON.stringify, it writes typed arrays as
 * arrays, and does not call toJSON.
 * @param {unknown} value @param {string} [before] @param {string} [behind]
 * @returns {AsyncGenerator<string, void, void>} */
export async function* jsonPieces(value, before = '', behind = '') {
  let text = before;
  for (const part of partsOf(value)) {
    text += part;
    if (text.length < PIECE) continue;
    yield text;
    text = '';
    await yieldToEventLoop();
  }
  yield text + behind;
}

/** @param {any} value @returns {Generator<string, void, void>} */
function* partsOf(value) {
  if (roomLeft(value, PART) >= 0) yield JSON.stringify(value) ?? 'null';
  else if (typeof value === 'string') {
    yield '"';
    for (let at = 0, end = 0; at < value.length; at = end) {
      end = at + PART;
      if (/[\ud800-\udbff]/.test(value[end - 1] ?? '')) end++;   // a pair of surrogates stays together
      yield JSON.stringify(value.slice(at, end)).slice(1, -1);
    }
    yield '"';
  } else if (Array.isArray(value) || ArrayBuffer.isView(value)) yield* elementsOf(/** @type {any} */ (value));
  else {
    let separator = '{';
    for (const [key, one] of Object.entries(value)) {
      if (one === undefined) continue;
      yield `${separator}${JSON.stringify(key)}:`;
      yield* partsOf(one);
      separator = ',';
    }
    yield '}';
  }
}

/** How many characters are left of so many if a value is written; negative if it is larger, or has a typed array.
 * @param {any} value @param {number} left @returns {number} */
function roomLeft(value, left) {
  if (typeof value === 'string') return left - value.length;
  if (typeof value !== 'object' || value === null) return left - 1;
  if (ArrayBuffer.isView(value)) return -1;
  left -= 1;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length && left >= 0; i++) left = roomLeft(value[i], left);
    return left;
  }
  for (const [key, one] of Object.entries(value)) {
    left = roomLeft(one, left - key.length);
    if (left < 0) break;
  }
  return left;
}

/** @param {any[]} array  or a typed array */
function* elementsOf(array) {
  yield '[';
  for (let at = 0, end = 0; at < array.length; at = end) {
    if (at > 0) yield ',';
    while (end < array.length && end < at + RUN && typeof array[end] === 'number') end++;
    if (end > at) yield JSON.stringify([...array.slice(at, end)]).slice(1, -1);
    else yield* partsOf(array[end++]);
  }
  yield ']';
}
