/* Chats to token ids, by the GGUF's own chat template.
 *
 * Text of special tokens inside a message ("<|im_end|>") must stay text: nobody may end his turn and speak as the
 * system by typing it.  So such texts get a mark before the template runs, and where a mark comes out, that stretch
 * between two special tokens is tokenized as plain text, without the mark.  Everything else is tokenized as one text,
 * as llama.cpp does. */
import { argumentError, PlumbError, reasonOf } from '../base/errors.js';
import { Remote } from '../base/protocol.js';

/** @typedef {object} Vocabulary
 * @property {(text: string, options: {addSpecial?: boolean, parseSpecial?: boolean}) => Promise<Int32Array>} tokenize
 * @property {(ids: Int32Array) => Promise<[number, string][]>} controls  the control tokens among ids, with their texts
 * @property {number} bos  -1: none */

/** A noncharacter: the standard keeps it free for uses like this one. */
const MARK = '\uFDD0';

/** Of messages, tools and variables of a template. */
const MAX_NESTING = 100;

/** Milliseconds that a render has, from where it begins, and that a worker has to begin. */
const DEADLINE = 2000, PATIENCE = 10000;

/** Renders chat templates in a worker of its own, one after the other, so that a template can be ended and takes no
 * time of the caller's thread or of the engine's.  Where no worker starts, the caller's thread renders: the bounds of
 * jinja.js hold there, too. */
export class Renderer {
  #start;
  #deadline;
  /** @type {Remote | undefined} */
  #worker;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** Models that may need it, and renders that are not done. */
  #holders = 0;

  /** @param {() => import('../base/protocol.js').WorkerLike} [start]  a worker that answers with `rendering` of
   *   jinja.js
   * @param {{deadline?: number}} [options] */
  constructor(start, { deadline = DEADLINE } = {}) {
    this.#start = start;
    this.#deadline = deadline;
  }

  /** Starts the worker before it is needed.  It is kept until release was called as often as this. */
  hold() {
    this.#holders++;
    this.#prepare();
    return true;
  }

  /** Ends the worker if nothing needs it any more. */
  release() {
    this.#holders--;
    if (this.#holders > 0) return;
    this.#worker?.terminate();
    this.#worker = undefined;
  }

  #prepare() {
    if (this.#worker || !this.#start) return;
    try {
      const worker = this.#start();
      this.#worker = new Remote(worker);
      worker.unref?.();   // at last: in Node a listener for messages undoes it
    } catch {
      this.#start = undefined;   // a browser may refuse at once
    }
  }

  /** @param {string | undefined} source  tokenizer.chat_template
   * @param {Record<string, any>} variables  messages, add_generation_prompt, tools...
   * @param {import('./jinja.js').Limits} [most]  for tests
   * @returns {Promise<string>} */
  async render(source, variables, most) {
    if (typeof source !== 'string') {
      throw new PlumbError('PLUMB_ERROR_TEMPLATE', 'the file has no tokenizer.chat_template: give a string prompt',
        { missing: 'tokenizer.chat_template' });
    }
    this.#holders++;   // a model may be closed meanwhile
    const result = this.#last.then(() => this.#render(source, variables, most)).finally(() => this.release());
    this.#last = result.catch(() => {});
    return result;
  }

  /** @param {string} source @param {Record<string, any>} variables @param {import('./jinja.js').Limits} [most] */
  async #render(source, variables, most) {
    this.#prepare();
    const worker = this.#worker;
    if (!worker) return renderHere(source, variables, most);
    let begun = false;
    /** @type {any} */
    let timer;
    /** @type {() => void} */
    let late = () => {};
    const tooLate = new Promise((_, reject) => { late = () => reject(stopped); });
    const stopped = new Error('late');
    const start = (/** @type {number} */ ms) => {
      clearTimeout(timer);
      timer = setTimeout(late, ms);
    };
    start(PATIENCE);
    const rendered = worker.call('render', { source, variables, most }, {
      onEvent: () => {
        begun = true;
        start(this.#deadline);
      },
    });
    try {
      return await Promise.race([rendered, tooLate]);
    } catch (error) {
      if (error instanceof PlumbError && error.code === 'PLUMB_ERROR_TEMPLATE') throw error;
      const isPosted = error instanceof PlumbError || error === stopped;
      if (!isPosted) return renderHere(source, variables, most);   // a variable, such as a function, has no clone
      rendered.catch(() => {});
      worker.terminate();
      this.#worker = undefined;
      if (!begun) {
        this.#start = undefined;
        return renderHere(source, variables, most);
      }
      const why = error === stopped ? `it takes more than ${this.#deadline} ms`
        : `it takes too much memory: ${reasonOf(error)}`;
      throw new PlumbError('PLUMB_ERROR_TEMPLATE', `tokenizer.chat_template: ${why}`);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** @param {string} source @param {Record<string, any>} variables @param {import('./jinja.js').Limits} [most] */
async function renderHere(source, variables, most) {
  const { renderBounded } = await import('./jinja.js');
  return renderBounded(source, variables, most);
}

/** Token ids of a chat.
 * @param {string | undefined} source  tokenizer.chat_template
 * @param {Record<string, any>} said  messages, tools...: what others wrote
 * @param {Record<string, any>} variables  the rest of what the template sees
 * @param {Vocabulary} vocabulary @param {Renderer} renderer @returns {Promise<Int32Array>} */
export async function chatTokens(source, said, variables, vocabulary, renderer) {
  const changes = await markedTexts(said, vocabulary);
  const marked = changes.size === 0 ? said : mapStrings(said, value => changes.get(value) ?? value);
  const text = await renderer.render(source, { ...variables, ...marked });
  let ids = await vocabulary.tokenize(text, { parseSpecial: true });
  if (changes.size > 0) ids = await plainWhereMarked(text, ids, vocabulary);
  // The first token of every text, unless the template wrote it itself.  Nothing is added behind a chat: it goes on.
  const [first] = await vocabulary.tokenize('', { addSpecial: true });
  return first === vocabulary.bos && ids[0] !== first ? joined([Int32Array.of(first), ids]) : ids;
}

/** The strings of what was said that hold texts of control tokens, and the same with marks around and in those texts.
 * @param {any} said @param {Vocabulary} vocabulary @returns {Promise<Map<string, string>>} */
async function markedTexts(said, vocabulary) {
  /** @type {Set<string>} */
  const strings = new Set();
  mapStrings(said, value => (strings.add(value), value));
  /** @type {Map<string, string>} */
  const changes = new Map();
  for (const value of strings) {
    const ids = await vocabulary.tokenize(value, { parseSpecial: true });
    const controls = new Map(await vocabulary.controls(ids));
    if (controls.size === 0) continue;
    let text = '', at = 0;
    for (const id of ids) {
      const special = controls.get(id);
      if (special === undefined) continue;
      const begin = value.indexOf(special, at);
      text += value.slice(at, begin) + MARK + [...special].join(MARK) + MARK;
      at = begin + special.length;
    }
    changes.set(value, text + value.slice(at));
  }
  return changes;
}

/** @param {Int32Array[]} parts */
function joined(parts) {
  const all = new Int32Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The ids again, but every stretch between two control tokens that holds a mark as plain text without it.
 * @param {string} text @param {Int32Array} ids  of text @param {Vocabulary} vocabulary */
async function plainWhereMarked(text, ids, vocabulary) {
  const controls = new Map(await vocabulary.controls(ids));
  /** @type {Int32Array[]} */
  const all = [];
  /** @param {string} stretch @param {Int32Array} tokens  of stretch */
  const add = async (stretch, tokens) => {
    if (stretch.includes(MARK)) tokens = await vocabulary.tokenize(stretch.replaceAll(MARK, ''), {});
    all.push(tokens);
  };
  let at = 0, first = 0;
  for (const [i, id] of ids.entries()) {
    const special = controls.get(id);
    if (special === undefined) continue;
    const end = text.indexOf(special, at);
    await add(text.slice(at, end), ids.subarray(first, i));
    all.push(ids.subarray(i, i + 1));
    at = end + special.length;
    first = i + 1;
  }
  await add(text.slice(at), ids.subarray(first));
  return joined(all);
}

/** Refuses what is nested so deep that no function could go through it, and what contains itself.
 * @param {string} where  the function's name, for the message
 * @param {unknown} value  messages, tools, variables of a template */
export function checkNesting(where, value) {
  let level = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_NESTING) throw argumentError(`${where}: what is given is nested more than ${MAX_NESTING} deep`);
    level = level.flatMap(one => typeof one === 'object' && one !== null ? Object.values(one) : []);
  }
}

/** A copy of value in which every string, however deep, went through change, names of properties too: those of a tool's
 * arguments are anybody's.  But what is a word is what templates look for, and no special token.
 * @param {any} value @param {(text: string) => string} change @returns {any} */
function mapStrings(value, change) {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map(item => mapStrings(item, change));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) =>
    [/^\w+$/.test(key) ? key : change(key), mapStrings(item, change)]));
}
