/* Continues an answer that was cut off: makes the tokens of the conversation with the open answer at its end. */
import { firstThatFits, mostOfPrompt } from '../../answers/fitting.js';
import { PlumbError } from '../../index.js';
import { FORMAT, promptEnd } from '../../answers/formats.js';

/** @typedef {import('../../api/plumb.js').Message} Message */

/** The prompt from which the model continues an answer.  If it does not fit, the oldest turns are left out, as for a
 * new answer.
 * @param {import('../../api/plumb.js').Model} model
 * @param {Message[]} messages  the messages up to and including the question, or the results of the answer's calls
 * @param {{content: string, reasoning?: string}} answer  the part that was given
 * @param {{tools?: import('../../answers/messages.js').Tool[]}} told  what the template tells the model
 * @param {number} [maxTokens]
 * @returns {Promise<{ids: Int32Array, trimmed: number, end: string}>}  trimmed: how many messages were left out; end:
 *   of the reasoning, if that is continued */
export async function continuation(model, messages, answer, told, maxTokens) {
  const { contextLength } = await model.info();
  const limit = mostOfPrompt(contextLength, maxTokens);
  const { start, ends: [end] } = (await model[FORMAT]()).think
    ?? { start: '', ends: [''] };
  const isThinking = answer.content === '' && start !== '';
  const isOpened = async (/** @type {Int32Array} */ ids) => start !== ''
    && (await promptEnd(model, ids)).trimEnd().endsWith(start);
  /** The answer's tokens, with the reasoning before it. @param {Int32Array} ids  of the question */
  const answerTokens = async ids => {
    const close = isThinking ? '' : `\n${end}\n\n`;
    const thought = await isOpened(ids) ? `${answer.reasoning ?? ''}${close}`
      : answer.reasoning ? `${start}\n${answer.reasoning}${close}` : '';
    const [before, said] = await Promise.all([model.tokenize(thought, { addSpecial: false, parseSpecial: true }),
      model.tokenize(answer.content, { addSpecial: false })]);
    return Int32Array.of(...before, ...said);
  };
  const answerIds = await answerTokens(await model.tokenizeChat(messages, told));
  const head = messages[0]?.role === 'system' ? 1 : 0;
  const turns = messages.flatMap(({ role }, i) => role === 'user' ? [i] : []);
  const tokensFrom = async (/** @type {number} */ start) =>
    model.tokenizeChat([...messages.slice(0, head), ...messages.slice(start)], told);
  // Without a signal the result is undefined only if there are no turns.
  const first = await firstThatFits(turns, async turn =>
    (await tokensFrom(turn)).length + answerIds.length <= limit) ?? head;
  const ids = Int32Array.of(...await tokensFrom(first), ...answerIds);
  if (ids.length >= contextLength) {
    throw new PlumbError('PLUMB_ERROR_CONTEXT', `the question and its answer take ${ids.length} tokens, but the `
      + `context holds ${contextLength}`);
  }
  return { ids, trimmed: first - head, end: isThinking ? end : '' };
}

/** Separates reasoning that goes on from the answer after it.
 * @param {AsyncIterable<string>} pieces @param {string} end  of the reasoning; '': there is none
 * @param {(reasoning: string) => void} think @returns {AsyncGenerator<string, void, void>}  the answer */
export async function* afterReasoning(pieces, end, think) {
  let held = '', isThinking = end !== '', isFirst = isThinking;
  for await (const piece of pieces) {
    held += piece;
    if (isThinking) {
      const at = held.indexOf(end), shown = at < 0 ? heldFrom(held, end) : at;
      if (shown > 0) think(held.slice(0, shown));
      held = held.slice(at < 0 ? shown : at + end.length);
      isThinking = at < 0;
      if (isThinking) continue;
    }
    if (isFirst) held = held.trimStart();
    if (held === '') continue;
    isFirst = false;
    yield held;
    held = '';
  }
  if (isThinking && held) think(held);
}

/** Where a text begins that may become `end`. @param {string} text @param {string} end */
function heldFrom(text, end) {
  for (let n = Math.min(end.length - 1, text.length); n > 0; n--) {
    if (end.startsWith(text.slice(-n))) return text.length - n;
  }
  return text.length;
}
