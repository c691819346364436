/* How much a chat template may do.  The limits grow with the conversation: templates look for the last message of a
 * user, for the results of a call and the like in a loop over all messages, so that their work grows with the square of
 * the number of messages.  template.js bounds the time. */

/** @typedef {{steps: number, work: number}} Limits */

/** What a template may do without messages.  One turn of a chat takes about 50 steps, and work of about ten times its
 * length. @type {Limits} */
export const LIMITS = { steps: 3e5, work: 1 << 26 };
/** What it may do more for each pair of messages: about twice what the template of Gemma 4 takes, which takes the most
 * of 70 templates. @type {Limits} */
const OF_PAIR = { steps: 5, work: 512 };
/** The limits do not grow beyond this number of messages. */
const MOST = 4096;

/** @param {Record<string, any>} variables  of the template @returns {Limits} */
export function limitsFor({ messages }) {
  const n = Math.min(Array.isArray(messages) ? messages.length : 0, MOST);
  return { steps: LIMITS.steps + OF_PAIR.steps * n * n, work: LIMITS.work + OF_PAIR.work * n * n };
}
