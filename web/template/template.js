/* Converts chats to token ids, with the GGUF's own chat template.
 *
 * The text of a special token inside a message ("<|im_end|>") must stay text: otherwise a user could type it to end
 * their turn and speak as the system.  So marks are put into such texts before the template runs, and at the ends of
 * texts that are a part of a special token which the template made of several texts.  In its output, a stretch between
 * two control tokens that holds a mark is tokenized as plain text, without the marks.  Everything else is tokenized as
 * one text, as llama.cpp does. */
import { argumentError, PlumbError, reasonOf } from '../base/errors.js';
import { Remote } from '../base/protocol.js';
import { patched } from './inputs.js';
import { LIMITS, limitsFor } from './limits.js';

/** @typedef {object} Vocabulary
 * @property {(text: string, options: {addSpecial?: boolean, parseSpecial?: boolean}) => Promise<Int32Array>} tokenize
 * @property {(ids: Int32Array) => Promise<[number, string][]>} controls  the control tokens among ids, with their texts
 * @property {number} bos  -1: the vocabulary has none */

/** A noncharacter.  Unicode reserves it for internal uses like this one. */
const MARK = '\uFDD0';

/** How deep messages, tools and variables of a template may nest. */
const MAX_NESTING = 100;

/** In milliseconds: DEADLINE bounds a render from its start, and grows with the limits of limits.js up to
 * LAST_DEADLINE; START_TIMEOUT bounds how long a worker takes to start it. */
const DEADLINE = 2000, LAST_DEADLINE = 30000, START_TIMEOUT = 10000;

/** How many templates' capabilities are kept. */
const MAX_KNOWN = 4;

/** Renders chat templates one after the other in a separate worker.  So a template that runs too long can be
 * terminated, and rendering does not block the caller's thread or the engine's.  If no worker starts, the template is
 * rendered in the caller's thread, where the bounds of jinja.js still hold. */
export class Renderer {
  #start;
  #deadline;
  #lastDeadline;
  /** @type {Remote | undefined} */
  #worker;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** Capabilities by template.  A model has one template. @type {Map<string, Promise<any>>} */
  #known = new Map();
  /** How many models may need the worker, plus how many renders are not done. */
  #holders = 0;

  /** @param {() => import('../base/protocol.js').WorkerLike} [start]  starts a worker that serves `rendering` of
   *   rendering.js
   * @param {{deadline?: number, lastDeadline?: number}} [options] */
  constructor(start, { deadline = DEADLINE, lastDeadline = LAST_DEADLINE } = {}) {
    this.#start = start;
    this.#deadline = deadline;
    this.#lastDeadline = lastDeadline;
  }

  /** Starts the worker before it is needed, and keeps it until release has been called as often as hold. */
  hold() {
    this.#holders++;
    this.#prepare();
    return true;
  }

  /** Ends the worker when nothing needs it any more. */
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
      worker.unref?.();   // comes last: in Node, adding a message listener undoes it
    } catch {
      this.#start = undefined;   // a browser may refuse to start it
    }
  }

  /** @param {string | undefined} source  tokenizer.chat_template
   * @param {Record<string, any>} variables  messages, add_generation_prompt, tools...
   * @param {import('./jinja.js').Limits} [limits]  for tests
   * @returns {Promise<string>} */
  async render(source, variables, limits) {
    return this.#queue('render', { source: patched(templateOf(source)), variables, limits });
  }

  /** Renders a conversation: the text that llama.cpp's server gives to the model.
   * @param {string | undefined} source  tokenizer.chat_template
   * @param {import('./inputs.js').Prepared} prepared
   * @returns {Promise<string>} */
  async renderChat(source, { input, variables, finish }) {
    return finish(await this.render(source, { ...variables, ...input }));
  }

  /** What a template can do.
   * @param {string | undefined} source  tokenizer.chat_template
   * @returns {Promise<import('./inputs.js').Capabilities>} */
  async capabilities(source) {
    const template = patched(templateOf(source));
    let found = this.#known.get(template);
    if (!found) {
      found = this.#queue('capabilities', { source: template });
      this.#known.set(template, found);
      found.catch(() => this.#known.delete(template));
      for (const oldest of this.#known.keys()) if (this.#known.size > MAX_KNOWN) this.#known.delete(oldest);
    }
    return found;
  }

  /** @param {'render' | 'capabilities'} method @param {any} params  a clone of it may be sent to the worker */
  #queue(method, params) {
    this.#holders++;   // the model may be closed during the render
    const result = this.#last.then(() => this.#run(method, params)).finally(() => this.release());
    this.#last = result.catch(() => {});
    return result;
  }

  /** @param {'render' | 'capabilities'} method @param {any} params */
  async #run(method, params) {
    this.#prepare();
    const worker = this.#worker;
    if (!worker) return runHere(method, params);
    const grown = this.#deadline * limitsFor(params.variables ?? {}).steps / LIMITS.steps;
    const deadline = Math.round(Math.min(grown, this.#lastDeadline));
    let hasStarted = false;
    /** @type {any} */
    let timer;
    /** @type {() => void} */
    let onTimeout = () => {};
    const timeout = new Promise((_, reject) => { onTimeout = () => reject(timeoutError); });
    const timeoutError = new Error('timeout');
    const startTimer = (/** @type {number} */ ms) => {
      clearTimeout(timer);
      timer = setTimeout(onTimeout, ms);
    };
    startTimer(START_TIMEOUT);
    const rendered = worker.call(method, params, {
      onEvent: () => {
        hasStarted = true;
        startTimer(deadline);
      },
    });
    try {
      return await Promise.race([rendered, timeout]);
    } catch (error) {
      if (error instanceof PlumbError && error.code === 'PLUMB_ERROR_TEMPLATE') throw error;
      const isPosted = error instanceof PlumbError || error === timeoutError;
      if (!isPosted) return runHere(method, params);   // a variable, such as a function, cannot be cloned
      rendered.catch(() => {});
      worker.terminate();
      this.#worker = undefined;
      if (!hasStarted) {
        this.#start = undefined;
        return runHere(method, params);
      }
      const why = error === timeoutError ? `it takes more than ${deadline} ms`
        : `it takes too much memory: ${reasonOf(error)}`;
      throw new PlumbError('PLUMB_ERROR_TEMPLATE', `tokenizer.chat_template: ${why}`);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** @param {'render' | 'capabilities'} method @param {any} params */
async function runHere(method, params) {
  const { rendering } = await import('./rendering.js').catch(error => {   // a service worker may not import it
    throw new PlumbError('PLUMB_ERROR_UNSUPPORTED', 'tokenizer.chat_template: the code that renders it does not load '
      + `here: ${reasonOf(error)}; use a string or token ids as the prompt`);
  });
  return rendering[method](params, /** @type {any} */ ({ emit() {} }));
}

/** @param {unknown} source  tokenizer.chat_template */
function templateOf(source) {
  if (typeof source === 'string') return source;
  throw new PlumbError('PLUMB_ERROR_TEMPLATE', 'the file has no tokenizer.chat_template; use a string prompt instead',
    { missing: 'tokenizer.chat_template' });
}

/** Converts a chat to token ids.
 * @param {string | undefined} source  tokenizer.chat_template
 * @param {import('./inputs.js').Prepared} prepared
 * @param {Vocabulary} vocabulary @param {Renderer} renderer @returns {Promise<Int32Array>} */
export async function chatTokens(source, prepared, vocabulary, renderer) {
  const { input } = prepared, strings = stringsOf(input), changes = await markedTexts(strings, vocabulary);
  /** @type {Int32Array} */
  let ids = new Int32Array();
  let text = '';
  for (let hasNew = true; hasNew;) {
    const marked = changes.size === 0 ? input : mapStrings(input, value => changes.get(value) ?? value);
    text = await renderer.renderChat(source, { ...prepared, input: marked });
    ids = await vocabulary.tokenize(text, { parseSpecial: true });
    hasNew = markEnds(strings, (await vocabulary.controls(ids)).map(([, control]) => control), changes);
  }
  if (changes.size > 0) ids = await plainWhereMarked(text, ids, vocabulary);
  // A first token is added unless the template wrote it itself.  No last token is added, because the chat goes on.
  const [first] = await vocabulary.tokenize('', { addSpecial: true });
  return first === vocabulary.bos && ids[0] !== first ? joined([Int32Array.of(first), ids]) : ids;
}

/** @param {any} input @returns {Set<string>} */
function stringsOf(input) {
  /** @type {Set<string>} */
  const strings = new Set();
  mapStrings(input, value => (strings.add(value), value));
  return strings;
}

/** Puts a mark behind each string that ends as a control token begins, and before each that begins as one ends: a
 * template may have joined it with another string to that token.
 * @param {Set<string>} strings @param {string[]} controls  the texts of the control tokens in the prompt
 * @param {Map<string, string>} changes  string -> its copy with marks
 * @returns {boolean}  whether there are new marks */
function markEnds(strings, controls, changes) {
  let hasNew = false;
  const begins = controls.flatMap(text => Array.from(text, (_, i) => text.slice(0, i)).filter(Boolean));
  const ends = controls.flatMap(text => Array.from(text, (_, i) => text.slice(i)).filter(part => part !== text));
  for (const string of strings) {
    const old = changes.get(string) ?? string;
    const before = !old.startsWith(MARK) && ends.some(part => string.startsWith(part));
    const behind = !old.endsWith(MARK) && begins.some(part => string.endsWith(part));
    if (!before && !behind) continue;
    changes.set(string, `${before ? MARK : ''}${old}${behind ? MARK : ''}`);
    hasNew = true;
  }
  return hasNew;
}

/** Finds the strings that hold the text of a control token.  Maps each to its copy with marks in those texts.
 * @param {Set<string>} strings @param {Vocabulary} vocabulary @returns {Promise<Map<string, string>>} */
async function markedTexts(strings, vocabulary) {
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

/** Tokenizes again, as plain text without marks, every stretch between two control tokens that holds a mark.
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

/** Refuses values that are nested too deep for recursive functions, and values that contain themselves.
 * @param {string} where  the function's name, for the message
 * @param {unknown} value  messages, tools, variables of a template */
export function checkNesting(where, value) {
  let level = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_NESTING) {
      throw argumentError(`${where}: an argument is nested more than ${MAX_NESTING} levels deep`);
    }
    level = level.flatMap(one => typeof one === 'object' && one !== null ? Object.values(one) : []);
  }
}

/** Copies value and applies change to every string in it, at any depth.  This includes the names of properties, because
 * a tool's arguments may have any names.  A name that is a single word is kept: templates look it up, and it is not the
 * text of a special token.
 * @param {any} value @param {(text: string) => string} change @returns {any} */
function mapStrings(value, change) {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map(item => mapStrings(item, change));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) =>
    [/^\w+$/.test(key) ? key : change(key), mapStrings(item, change)]));
}
