/* Generates an answer to a prompt and separates its reasoning, its text and its calls. */
import { AnswerReader } from './answer.js';
import { CONSTRAINTS } from './constraint.js';
import { formatOf, PROMPT_END, textsOf } from './formats.js';

/** @typedef {import('../engine/host.js').Stats} Stats
 * @typedef {import('./answer.js').AnswerDelta} AnswerDelta */
/** @typedef {object} AnswerOptions
 * @property {import('./messages.js').Tool[]} [tools]  the tools that the model was told about
 * @property {boolean} [anyName]  calls may name tools that do not exist
 * @property {boolean} [parallel]  several calls; default true.  Without it, the answer ends with its first call */

/** An answer that is bound to a grammar from its first token: all of it is text, whatever tags are in it. */
class PlainReader {
  /** @type {import('./answer.js').Answer} */
  message = { content: '' };
  isComplete = false;

  /** @param {string} piece @returns {AnswerDelta[]} */
  push(piece) {
    this.message.content += piece;
    return [{ content: piece }];
  }

  /** @returns {AnswerDelta[]} */
  end() { return []; }
}

/** @param {import('./messages.js').ChatModel} model @param {Int32Array} ids  the prompt
 * @param {AnswerOptions} about @param {import('./messages.js').GenerateOptions} options
 * @returns {Promise<{reader: AnswerReader | PlainReader, deltas: AsyncGenerator<AnswerDelta, Stats, void>}>}
 *   the reader has the message; if the loop over the deltas was left, its end() completes it */
export async function beginAnswer(model, ids, { tools = [], anyName = false, parallel = true }, options) {
  const source = model.metadata['tokenizer.chat_template'];
  const prompt = await model.detokenize(ids.slice(-PROMPT_END), { special: true });
  const isPlain = tools.length === 0 && CONSTRAINTS.some(name => options[name] !== undefined);
  const reader = isPlain ? new PlainReader() : new AnswerReader(source, tools, { prompt, anyName, parallel });
  const cut = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, cut.signal]) : cut.signal;
  const pieces = model.generate(ids, { ...options, signal, special: textsOf(formatOf(String(source ?? ''))) });
  return { reader, deltas: deltasOf(pieces, reader, cut, options.signal) };
}

/** @param {AsyncGenerator<string, Stats, void>} pieces @param {AnswerReader | PlainReader} reader
 * @param {AbortController} cut  ends the answer @param {AbortSignal} [signal]  of the caller
 * @returns {AsyncGenerator<AnswerDelta, Stats, void>} */
async function* deltasOf(pieces, reader, cut, signal) {
  try {
    let step = await pieces.next();
    for (; !step.done; step = await pieces.next()) {
      yield* reader.push(step.value);
      if (reader.isComplete) cut.abort();
    }
    yield* reader.end();
    const isCut = cut.signal.aborted && !signal?.aborted;
    return isCut ? { ...step.value, finishReason: 'stop' } : step.value;
  } finally {
    await pieces.return(/** @type {any} */ (undefined));
  }
}
