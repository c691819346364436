/* How many bytes of weights this machine reads in a second when it computes a token.  An answer, or a look at a model,
 * has shown it, and the speed of other models is expected from it. */
import { recall, remember } from '../dom.js';

/** @param {number} tokensPerSecond @param {number} bytes  of the model's weights */
export const keepRate = (tokensPerSecond, bytes) => remember('rate', Math.round(tokensPerSecond * bytes));

/** @returns {number | undefined} */
export function keptRate() {
  const kept = recall('rate');
  return Number.isFinite(kept) && kept > 0 ? kept : undefined;
}
