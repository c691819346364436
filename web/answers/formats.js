/* How models write reasoning and calls of tools.  src/answers/template/families.h says what the fields of a pattern
 * mean, and families.c has one row for each family of models. */

/** @typedef {import('../engine/templates.js').Format} Format */

/** The key of the method of a model that gives its format. */
export const FORMAT = Symbol('how the model writes its answers');
/** The key of the method of a model that says which text of its last message a prompt ends with, so that the answer
 * goes on with it. */
export const CONTINUED = Symbol('the text that an answer goes on with');
/** The key of a model's Pool. */
export const POOL = Symbol('the sessions that answer prompts');
/** @typedef {'content' | 'reasoning_content' | undefined} Continued  undefined: none
 * @typedef {Record<typeof CONTINUED, (ids: Int32Array) => Continued>} Continuing */

/** How messages with headers are written: what begins one, comes before its text, says that it is JSON, and ends it. */
export const CHANNEL = { start: '<|start|>assistant', message: '<|message|>', constrain: '<|constrain|>',
  ends: ['<|end|>', '<|eom|>', '<|eot|>', '<|call|>', '<|return|>'] };
/** What each tag of nested arguments begins with. */
export const MINIMAX = ']<]minimax[>[';

/** The fields of a pattern. */
export const PLACEHOLDER = /\{(name|function|id:[^}]*|json|call|python|gemma|nested|args|key|value|type)\}/;

/** How many tokens of a prompt's end show what it begins of the answer. */
const PROMPT_END = 24;

/** The end of a prompt, as text. @param {import('./gbnf.js').Vocabulary} model @param {Int32Array} ids */
export const promptEnd = (model, ids) => model.detokenize(ids.slice(-PROMPT_END), { special: true });

/** What readers of an answer see of its prompt: how it ends, or what begins the text that the answer goes on with.
 * @param {import('./gbnf.js').Vocabulary & Continuing} model @param {Int32Array} ids
 * @param {Format} format */
export async function promptOf(model, ids, format) {
  const continued = model[CONTINUED](ids);
  return { continued, prompt: !continued ? await promptEnd(model, ids)
    : continued === 'content' ? '' : format.think?.start ?? '' };
}

/** Whether a prompt ends with a text, and perhaps white space. @param {string} prompt @param {string} text */
export const endsWith = (prompt, text) => prompt.trimEnd().endsWith(text.trimEnd());

/** The texts with which a call may begin. @param {Format} format */
export const opensOf = ({ opens, section, call = '' }) =>
  (opens ?? [section?.[0] ?? call.split('{')[0]]).filter(text => text !== '');

/** The text with which a prompt begins the answer: think.start, or one of prompts; undefined if with none.
 * @param {Format} format @param {string} prompt  its end */
export const begunIn = ({ think, prompts = [] }, prompt) =>
  [think?.start ?? '', ...prompts].find(text => text !== '' && endsWith(prompt, text));

/** The texts of a format that may be control tokens, which an answer must show. @param {Format} format */
export const textsOf = ({ think, section = ['', ''], call = '', arg = '', marks = [], opens = [], prompts = [],
  channels }) =>
  [think?.start, ...think?.ends ?? [], ...section, ...marks, ...opens, ...prompts,
    ...channels ? ['<|channel|>', '<|message|>', '<|start|>', '<|end|>'] : [],
    ...[call, arg].flatMap(pattern => pattern.split(/\{(?:id:)?|\}/)), '<|"|>']
    .flatMap(text => text || []);
