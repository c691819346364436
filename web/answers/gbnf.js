/* Pieces of grammars in GBNF.  Control tokens are matched by their ids, everything else by its text. */

/** @typedef {ReadonlyMap<string, number>} Controls  the ids of control tokens, by their texts */

/** A regular expression for a text. @param {string} text */
export const escaped = text => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/** A literal. @param {string} text */
export const quoted = text => `"${text.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n').replace(/\r/g, '\\r')
  .replace(/\t/g, '\\t').replace(/\0/g, '\\x00')}"`;

/** One of some expressions. @param {string[]} options */
export const either = options => options.length === 1 ? options[0] : `(${options.join(' | ')})`;

/** Splits a text at control tokens, which have odd indexes. @param {string} text @param {Controls} controls */
function split(text, controls) {
  if (controls.size === 0) return [text];
  const longest = [...controls.keys()].sort((a, b) => b.length - a.length);
  return text.split(new RegExp(`(${longest.map(escaped).join('|')})`));
}

/** A text of which control tokens may be part. @param {string} text @param {Controls} controls */
export const literal = (text, controls) => split(text, controls)
  .map((part, i) => i % 2 === 1 ? `<[${controls.get(part)}]>` : part && quoted(part)).filter(Boolean).join(' ') || '""';

/** Whether a text has no control tokens. @param {string} text @param {Controls} controls */
export const isPlain = (text, controls) => split(text, controls).length === 1;

/** A regular expression for the texts without any of some marks.  Control tokens are never part of a text.
 * @param {string[]} marks @param {Controls} controls @param {string} [more]  lookaheads */
export function without(marks, controls, more = '') {
  const plain = marks.filter(mark => mark !== '' && isPlain(mark, controls)).map(escaped);
  return `${plain.length > 0 ? `(?![^]*(?:${plain.join('|')}))` : ''}${more}[^]*`;
}

/** @typedef {object} Vocabulary
 * @property {(text: string, options?: {addSpecial?: boolean, parseSpecial?: boolean}) => Promise<Int32Array>} tokenize
 * @property {(ids: ArrayLike<number>, options?: {special?: boolean}) => Promise<string>} detokenize */
/** What was found for a vocabulary, by the texts.
 * @type {WeakMap<Vocabulary, Map<string, Promise<[string, number][]>>>} */
const known = new WeakMap();

/** The control tokens in some texts. @param {Vocabulary} model @param {string[]} texts @returns {Promise<Controls>} */
export async function controlTokens(model, texts) {
  const found = known.get(model) ?? new Map();
  known.set(model, found);
  for (const text of texts) if (!found.has(text)) found.set(text, controlsIn(model, text));
  return new Map((await Promise.all(texts.map(text => found.get(text)))).flat());
}

/** @param {Vocabulary} model @param {string} text @returns {Promise<[string, number][]>} */
async function controlsIn(model, text) {
  const ids = await model.tokenize(text, { addSpecial: false, parseSpecial: true });
  const shown = await Promise.all([...ids].map(async id => /** @type {[string, number]} */ (
    [await model.detokenize([id]) === '' ? await model.detokenize([id], { special: true }) : '', id])));
  return shown.filter(([name]) => name !== '');
}
