/* How much of a conversation fits into the context: an answer needs room, and the oldest turns are left out. */

/** The upper bound on the tokens of a prompt that leaves room for the answer, which needs maxTokens, or a quarter of
 * the context if that is less. @param {number} contextLength @param {number} [maxTokens] */
export const mostOfPrompt = (contextLength, maxTokens = Infinity) =>
  contextLength - Math.min(maxTokens, Math.floor(contextLength / 4));

/** Finds the first turn from which the chat fits, or else the last turn.  It bisects, because tokenizing a long chat
 * takes long.
 * @param {number[]} turns  indexes of the messages at which turns begin; at least one
 * @param {(turn: number) => Promise<boolean>} fits
 * @param {AbortSignal} [signal] @returns {Promise<number | undefined>}  undefined if it was aborted */
export async function firstThatFits(turns, fits, signal) {
  let low = 0, high = turns.length - 1;
  while (low < high) {
    if (signal?.aborted) return undefined;
    const middle = (low + high) >> 1;
    if (await fits(turns[middle])) high = middle;
    else low = middle + 1;
  }
  return turns[low];
}
