/* Chats to token ids, by the GGUF's own chat template.
 *
 * Text of special tokens inside a message ("<|im_end|>") must stay text: nobody may end his turn and speak as the
 * system by typing it.  So such texts get a mark before the template runs, and where a mark comes out, that stretch
 * between two special tokens is tokenized as plain text, without the mark.  Everything else is tokenized as one text,
 * as llama.cpp does. */
import { PlumbError, reasonOf } from './errors.js';

/** @typedef {{role: string, content: any, [more: string]: any}} Message */
/** @typedef {object} Vocabulary
 * @property {(text: string, options: {addSpecial?: boolean, parseSpecial?: boolean}) => Promise<Int32Array>} tokenize
 * @property {(ids: Int32Array) => Promise<[number, string][]>} controls  the control tokens among ids, with their texts
 * @property {number} bos  -1: none */

/** A noncharacter: the standard keeps it free for uses like this one. */
const MARK = '\uFDD0';

/** What a file's template may take, for it is a program of whoever made the file: steps of its interpreter (a turn of a
 * chat takes some 50), characters of a text, numbers of a range. */
const MAX_STEPS = 3e5, MAX_TEXT = 1 << 26, MAX_RANGE = 1e4;

/** @type {Map<string, import('./dist/vendor/jinja/index.js').Template>} */
const parsed = new Map();
let steps = 0;

/** @type {Promise<typeof import('./dist/vendor/jinja/index.js')> | undefined} */
let library;

/** Has the library keep to those limits. @param {typeof import('./dist/vendor/jinja/index.js')} library */
function limit(library) {
  const interpreter = /** @type {any} */ (library.Interpreter.prototype), { evaluate } = interpreter;
  interpreter.evaluate = function (/** @type {any[]} */ ...args) {
    if (++steps > MAX_STEPS) throw new Error(`it takes more than ${MAX_STEPS} steps`);
    const result = evaluate.apply(this, args);
    if (result?.value?.length > MAX_TEXT) throw new Error(`it makes more than ${MAX_TEXT} characters`);
    return result;
  };
  const environment = /** @type {any} */ (library.Environment.prototype), { set } = environment;
  environment.set = function (/** @type {string} */ name, /** @type {any} */ value) {
    return set.call(this, name, name !== 'range' || typeof value !== 'function' ? value
      : (/** @type {any[]} */ ...args) => {
        const [start, stop] = args.length > 1 ? args : [0, args[0]];
        const n = Math.abs((stop - start) / (args[2] ?? 1));
        if (n > MAX_RANGE) throw new Error(`a range above ${MAX_RANGE} numbers`);
        return value(...args);
      });
  };
  return library;
}

/** @param {string | undefined} source  tokenizer.chat_template
 * @param {Record<string, any>} variables  messages, add_generation_prompt, tools...
 * @returns {Promise<string>} */
export async function render(source, variables) {
  if (typeof source !== 'string') {
    throw new PlumbError('PLUMB_ERROR_TEMPLATE', 'the file has no tokenizer.chat_template: give a string prompt');
  }
  try {
    let template = parsed.get(source);
    library ??= import('./dist/vendor/jinja/index.js').then(limit);
    if (!template) parsed.set(source, template = new (await library).Template(source));
    steps = 0;
    return template.render(variables);
  } catch (error) {
    throw new PlumbError('PLUMB_ERROR_TEMPLATE', `tokenizer.chat_template: ${reasonOf(error)}`);
  }
}

/** Token ids of a chat.
 * @param {string | undefined} source  tokenizer.chat_template
 * @param {Record<string, any>} said  messages, tools...: what others wrote
 * @param {Record<string, any>} variables  the rest of what the template sees
 * @param {Vocabulary} vocabulary @returns {Promise<Int32Array>} */
export async function chatTokens(source, said, variables, vocabulary) {
  const texts = await specialTexts(said, vocabulary);
  const text = await render(source, { ...variables, ...mapStrings(said, value => texts.reduce(marked, value)) });
  let ids = await vocabulary.tokenize(text, { parseSpecial: true });
  if (texts.length > 0) ids = await plainWhereMarked(text, ids, vocabulary);
  // The first token of every text, unless the template wrote it itself.  Nothing is added behind a chat: it goes on.
  const [first] = await vocabulary.tokenize('', { addSpecial: true });
  return first === vocabulary.bos && ids[0] !== first ? Int32Array.of(first, ...ids) : ids;
}

/** Texts of the control tokens that occur in what was said, longest first.
 * @param {any} said @param {Vocabulary} vocabulary */
async function specialTexts(said, vocabulary) {
  /** @type {Set<string>} */
  const found = new Set();
  /** @type {string[]} */
  const strings = [];
  mapStrings(said, value => (strings.push(value), value));
  for (const value of strings) {
    const ids = await vocabulary.tokenize(value, { parseSpecial: true });
    for (const [, text] of await vocabulary.controls(ids)) found.add(text);
  }
  return [...found].sort((a, b) => b.length - a.length);
}

/** @param {string} value @param {string} text  of a special token */
const marked = (value, text) => value.replaceAll(text, [...text].join(MARK) + MARK);

/** The ids again, but every stretch between two control tokens that holds a mark as plain text without it.
 * @param {string} text @param {Int32Array} ids  of text @param {Vocabulary} vocabulary */
async function plainWhereMarked(text, ids, vocabulary) {
  const controls = new Map(await vocabulary.controls(ids));
  /** @type {number[]} */
  const all = [];
  /** @param {string} stretch @param {Int32Array} tokens  of stretch */
  const add = async (stretch, tokens) => {
    if (stretch.includes(MARK)) tokens = await vocabulary.tokenize(stretch.replaceAll(MARK, ''), {});
    all.push(...tokens);
  };
  let at = 0, first = 0;
  for (const [i, id] of ids.entries()) {
    const special = controls.get(id);
    if (special === undefined) continue;
    const end = text.indexOf(special, at);
    await add(text.slice(at, end), ids.subarray(first, i));
    all.push(id);
    at = end + special.length;
    first = i + 1;
  }
  await add(text.slice(at), ids.subarray(first));
  return Int32Array.from(all);
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
