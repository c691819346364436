/* What conversations keep of tools: the calls of an answer, and which tools are on.  Stored data is not trusted:
 * another version of this page, an extension or an imported file may have written it.  What is not of this form is left
 * out. */

import { recall } from '../dom.js';

/** A call of a tool.
 * @typedef {object} Call
 * @property {string} id @property {string} name
 * @property {string} arguments  JSON
 * @property {string} [at]  the address to which it is sent
 * @property {string} [result]  what the model sees of it; undefined: there is none yet
 * @property {true} [failed] */
/** A part of an answer that ends with calls.
 * @typedef {{reasoning?: string, content?: string, calls: Call[]}} Step */
/** The tools that a conversation has on.
 * @typedef {object} Chosen
 * @property {string[]} on  names of tools of the page
 * @property {string[]} servers  addresses
 * @property {number} steps  how many answers the model may give to one question */

/** Steps, and calls, of an answer; characters of arguments and of a result; names and addresses; and how many answers
 * the model may give to one question. */
const MAX_STEPS = 200, MAX_CALLS = 500, MAX_ARGUMENTS = 20000, MAX_RESULT = 1e5, MAX_CHOSEN = 50;
export const MOST_STEPS = 50;
/** How many answers it may give unless the reader says otherwise. */
export const STEPS = 8;
/** How deep arguments may nest: templates write them into the prompt. */
const MAX_NESTING = 50;

/** @param {unknown} value @param {number} most @returns {value is string} */
export const isText = (value, most) => typeof value === 'string' && value.length <= most;

/** The steps of a stored answer. @param {any} value  the answer @returns {{steps?: Step[]}} */
export function stepsOf({ steps }) {
  if (!Array.isArray(steps)) return {};
  let left = MAX_CALLS;
  const all = steps.slice(0, MAX_STEPS).flatMap(step => {
    const { reasoning, content, calls } = step ?? {};
    const own = Array.isArray(calls) ? calls.slice(0, left).flatMap(call => callOf(call) ?? []) : [];
    left -= own.length;
    return own.length === 0 ? [] : [{ ...isText(reasoning, MAX_RESULT) && { reasoning },
      ...isText(content, MAX_RESULT) && { content }, calls: own }];
  });
  return all.length > 0 ? { steps: all } : {};
}

/** @param {any} value @returns {Call | undefined} */
function callOf(value) {
  const { id, name, arguments: given, at, result, failed } = value ?? {};
  if (!isText(id, 100) || !isText(name, 100) || !isText(given, MAX_ARGUMENTS) || !isObject(given)) return undefined;
  return { id, name, arguments: given, ...isText(at, 2000) && { at }, ...isText(result, MAX_RESULT) && { result },
    ...failed === true && { failed } };
}

/** Whether a text is JSON of an object that is not too deep. @param {string} text */
function isObject(text) {
  try {
    return text.trimStart().startsWith('{') && isSmall(JSON.parse(text), MAX_NESTING, MAX_ARGUMENTS);
  } catch {
    return false;
  }
}

/** Whether a value is neither deep nor has many others in it. @param {unknown} value
 * @param {number} deepest  levels @param {number} most  values */
export function isSmall(value, deepest, most) {
  /** @type {[unknown, number][]} */
  const open = [[value, 0]];
  for (let n = 0, next; (next = open.pop()); n++) {
    const [one, depth] = next;
    if (n > most || depth > deepest || open.length > most) return false;
    for (const each of one instanceof Object ? Object.values(one) : []) open.push([each, depth + 1]);
  }
  return true;
}

/** The tools that a stored conversation has on. @param {any} value @returns {{tools?: Chosen}} */
export function chosenOf(value) {
  const { on, servers, steps } = value?.tools ?? {};
  const texts = (/** @type {unknown} */ list, /** @type {number} */ most) =>
    Array.isArray(list) ? list.slice(0, MAX_CHOSEN).filter(one => isText(one, most)) : [];
  const isRight = Number.isInteger(steps) && steps >= 1 && steps <= MOST_STEPS;
  const chosen = { on: texts(on, 100), servers: texts(servers, 2000), steps: isRight ? steps : STEPS };
  return chosen.on.length + chosen.servers.length > 0 || isRight && steps !== STEPS ? { tools: chosen } : {};
}

/** The name under which the servers that the reader has added are kept (servers.js). */
export const SERVERS = 'tool-servers';

/** How many of the page's tools and of the reader's servers a conversation has on.  Servers that the reader has removed
 * in another conversation do not count. @param {Chosen | undefined} chosen */
export function countChosen(chosen) {
  if (!chosen) return 0;
  const added = chosen.servers.length > 0 ? [recall(SERVERS)].flat().map(one => one?.address) : [];
  return chosen.on.length + chosen.servers.filter(address => added.includes(address)).length;
}

/** The result of a call that was left. */
export const ABORTED = 'Error: the call was aborted';

/** What the model is given of the steps of an answer. @param {{steps?: Step[]}} message
 * @returns {import('../../api/plumb.js').Message[]} */
export const messagesOf = ({ steps = [] }) => steps.flatMap(({ reasoning, content = '', calls }) => [
  { role: /** @type {const} */ ('assistant'), content, ...reasoning && { reasoning_content: reasoning },
    tool_calls: calls.map(({ id, name, arguments: given }) =>
      ({ id, type: /** @type {const} */ ('function'), function: { name, arguments: given } })) },
  ...calls.map(({ id, result = ABORTED }) =>
    ({ role: /** @type {const} */ ('tool'), content: result, tool_call_id: id })),
]);
