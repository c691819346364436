/* Continues an answer that was cut off: makes the tokens of the conversation with the open answer at its end. */
import { firstThatFits, mostOfPrompt } from '../api/chat.js';
import { PlumbError } from '../index.js';

/** @typedef {import('../api/plumb.js').Message} Message */

/** The prompt from which the model continues an answer.  If it does not fit, the oldest turns are left out, as for a
 * new answer.
 * @param {import('../api/plumb.js').Model} model @param {Message[]} said  the messages up to and including the question
 * @param {string} answer  the part that was given @param {number} [maxTokens]
 * @returns {Promise<{ids: Int32Array, trimmed: number}>}  trimmed: how many messages were left out */
export async function continuation(model, said, answer, maxTokens) {
  const { contextLength } = await model.info();
  const most = mostOfPrompt(contextLength, maxTokens);
  const open = await model.tokenize(answer, { addSpecial: false });
  const head = said[0]?.role === 'system' ? 1 : 0;
  const turns = said.flatMap(({ role }, i) => role === 'user' ? [i] : []);
  const asked = async (/** @type {number} */ start) =>
    model.tokenizeChat([...said.slice(0, head), ...said.slice(start)]);
  // Without a signal the result is undefined only if there are no turns.
  const first = await firstThatFits(turns, async turn => (await asked(turn)).length + open.length <= most) ?? head;
  const ids = Int32Array.of(...await asked(first), ...open);
  if (ids.length >= contextLength) {
    throw new PlumbError('PLUMB_ERROR_CONTEXT', `the question and its answer take ${ids.length} tokens, but the `
      + `context holds ${contextLength}`);
  }
  return { ids, trimmed: first - head };
}
