/* Generates an answer to a prompt and separates its reasoning, its text and its calls. */
import { mapped } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import { AnswerReader } from './answer.js';
import { headOf, withHead } from './bound.js';
import { callGrammar } from './call-grammar.js';
import { WHOLE, CONSTRAINTS, withGrammar } from './constraint.js';
import { FORMAT, promptOf, textsOf } from './formats.js';
import { controlTokens } from './gbnf.js';

/** @typedef {import('../engine/generation.js').Stats} Stats
 * @typedef {import('./answer.js').AnswerDelta} AnswerDelta */
/** @typedef {object} AnswerOptions
 * @property {import('./messages.js').Tool[]} [tools]  the tools that the model was told about
 * @property {boolean} [required]  the answer is calls
 * @property {string} [only]  the name of the only tool that may be called
 * @property {boolean} [anyName]  calls may name tools that do not exist, if nothing binds them to the tools
 * @property {boolean} [parallel]  several calls; default true.  Without it, the answer ends with its first call */

/** Calls are bound to the tools' schemas by a grammar, unless the caller binds the answer to another one.  Reasoning
 * may come before what is bound.
 * @param {import('./messages.js').ChatModel} model @param {Int32Array} ids  the prompt
 * @param {AnswerOptions} about @param {import('./messages.js').GenerateOptions} options
 * @returns {Promise<{reader: AnswerReader, deltas: AsyncGenerator<AnswerDelta, Stats, void>}>}
 *   the reader has the message; if the loop over the deltas was left, its end() completes it */
export async function beginAnswer(model, ids, about, options) {
  const { tools: told = [], required = false, only, anyName = false, parallel = true } = about;
  const format = await model[FORMAT]();
  const tools = only === undefined ? told : told.filter(tool => tool.function.name === only);
  const { prompt, continued } = await promptOf(model, ids, format);
  const constraint = CONSTRAINTS.find(name => options[name] !== undefined);
  if (required && constraint) {
    throw argumentError(`a required call and ${constraint} exclude each other: the answer is a call of a tool`);
  }
  const reader = new AnswerReader(format, tools, {
    prompt, continued, anyName, parallel, isBound: constraint !== undefined && tools.length === 0,
  });
  const special = textsOf(format);
  const controls = constraint || tools.length > 0 ? await controlTokens(model, special) : new Map();
  /** @type {ReturnType<typeof callGrammar> | undefined} */
  let bound;
  if (constraint) {
    const head = headOf(format, prompt, continued);
    const { grammar, ...rest } = await withGrammar('generate', model, options);
    if (grammar?.begun && continued !== 'content') {
      throw argumentError('begun: the prompt does not end with it; give continueFinalMessage in template, too');
    }
    options = head.think ? rest : { ...rest, reasoningBudget: undefined };
    if (grammar) bound = { grammar: withHead(format, head, grammar, controls), warnings: [] };
  } else if (tools.length > 0) bound = callGrammar(format, tools, { required, parallel, prompt, controls });
  const cut = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, cut.signal]) : cut.signal;
  // Behind what is bound, and behind calls that are required, there is no more reasoning.
  const isFirst = constraint !== undefined || required && !format.channels;
  const whole = bound && { [WHOLE]: { grammar: bound.grammar, isFirst } };
  const pieces = model.generate(ids, { ...options, ...whole, signal, special });
  return { reader, deltas: deltasOf(pieces, reader, cut, options.signal, bound?.warnings) };
}

/** @param {AsyncIterator<string, Stats, void>} pieces @param {AnswerReader} reader
 * @param {AbortController} cut  ends the answer @param {AbortSignal} [signal]  of the caller
 * @param {string[]} [more]  warnings
 * @returns {AsyncGenerator<AnswerDelta, Stats, void>} */
async function* deltasOf(pieces, reader, cut, signal, more = []) {
  const stats = yield* mapped(pieces, function* (piece) {
    yield* reader.push(piece);
    if (reader.isComplete) cut.abort();
  });
  const isComplete = cut.signal.aborted && !signal?.aborted;
  yield* reader.end({ cut: stats.finishReason !== 'stop' && !isComplete });
  const ended = isComplete ? { ...stats, finishReason: /** @type {const} */ ('stop') } : stats;
  return more.length > 0 ? { ...ended, warnings: [...more, ...ended.warnings ?? []] } : ended;
}
