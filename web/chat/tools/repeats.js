/* Whether a model calls tools to no purpose, as small ones do instead of answering. */

/** @typedef {import('./kept.js').Step} Step */

/** Whether the last step has the same calls as the one before.  Calls of servers do not count: they may well be
 * repeated, such as one for the next part of a list. @param {Step[] | undefined} steps */
export function isRepeated(steps = []) {
  const [last, before] = steps.slice(-2).map(({ calls }) => calls).reverse();
  return before !== undefined && last.length === before.length && last.every(({ name, arguments: given, at }, i) =>
    at === undefined && name === before[i].name && given === before[i].arguments);
}

/** Whether the last step, which has its results, is repeated, or each of its calls hands a tool of the page a result of
 * the step before and gets the same back, as in 6 * 7 = 42 and then 42 = 42. @param {Step[]} steps */
export function isNothingNew(steps) {
  const [last, before] = steps.slice(-2).map(({ calls }) => calls).reverse();
  return isRepeated(steps) || before !== undefined && last.every(({ arguments: given, at, result, failed }) =>
    at === undefined && !failed && before.some(one => one.result === result) && hasOnly(given, result));
}

/** Whether a value is all that is in the arguments of a call.
 * @param {string} given  JSON @param {string | undefined} value */
function hasOnly(given, value) {
  try {
    const all = Object.values(JSON.parse(given));
    return all.length === 1 && String(all[0]) === value;
  } catch {
    return false;
  }
}
