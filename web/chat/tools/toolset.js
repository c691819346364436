/* The tools that a conversation has on, as a run can execute them.  Before a call sends anything, the reader is
 * asked. */
import { reasonOf } from '../../base/errors.js';
import { ExplainedError } from '../explain.js';
import { BUILTIN } from './builtin.js';
import { mayCall } from './question.js';
import { clientOf, knownServers } from './servers.js';

/** @typedef {import('./builtin.js').Tool & {at?: string}} Tool  at: the address of its server
 * @typedef {import('./kept.js').Chosen} Chosen */
/** What a run needs to know, and to tell.
 * @typedef {object} Hooks
 * @property {number} contextLength  of the model
 * @property {() => boolean} isRepeated  whether the calls that are to be executed only repeat those before
 * @property {(id: string, state: import('./steps.js').State) => void} setState  something happens to a call */
/** @typedef {object} Runnable
 * @property {import('../../index.js').Callables} tools
 * @property {number} most  how many answers the model may give
 * @property {(name: string) => string | undefined} placeOf  the address to which calls of a tool go, if it has a
 *   server */

/** The share of the context that one result may take, characters of a token, and characters of a result in any case. */
const SHARE = 0.25, PER_TOKEN = 3, LEAST = 500, MOST = 20000;

/** @param {Chosen} chosen @returns {Tool[]} */
function toolsOf({ on, servers }) {
  /** @type {Tool[]} */
  const tools = BUILTIN.filter(({ name }) => on.includes(name));
  for (const known of knownServers().filter(({ address }) => servers.includes(address))) {
    for (const described of known.tools.filter(({ problem }) => problem === undefined)) {
      let { name } = described;
      for (let n = 2; tools.some(one => one.name === name); n++) name = `${described.name.slice(0, 60)}_${n}`;
      tools.push({ name, label: described.name, description: described.description, at: known.address,
        parameters: unchecked(described.parameters), ...callsOf(known, described) });
    }
  }
  return tools;
}

/** How a tool of a server is called. @param {import('./mcp.js').Known} known
 * @param {import('./mcp-tools.js').Described} described @returns {Pick<Tool, 'request' | 'run'>} */
function callsOf(known, described) {
  /** What would be sent, by what the reader is shown of it. @type {WeakMap<object, import('./mcp.js').Call>} */
  const calls = new WeakMap();
  return {
    request(args) {
      const call = clientOf(known).prepare(described, args), { body, headers } = call;
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
      const request = { address: known.address, sent: [body, '', ...lines].join('\n'),
        bytes: new TextEncoder().encode(body).length };
      calls.set(request, call);
      return request;
    },
    run: (_, signal, request) =>
      clientOf(known).call(/** @type {any} */ (calls.get(/** @type {any} */ (request))), signal),
  };
}

/** A schema that binds what the model writes, but by which nothing is checked here: checking a value by a schema that
 * an attacker wrote can take forever, and its server checks the value anyway.
 * @param {Record<string, any>} schema @returns {any} */
const unchecked = schema => ({ '~standard': { version: 1, vendor: 'plumb', jsonSchema: { input: () => schema },
  validate: (/** @type {unknown} */ value) => ({ value }) } });

/** The tools that a conversation has on, as a model is told about them. @param {Chosen} chosen */
export const toldTools = chosen => toolsOf(chosen).map(({ name, description, parameters }) => ({
  type: /** @type {const} */ ('function'),
  function: { name, description, parameters: parameters['~standard']?.jsonSchema.input() ?? parameters } }));

/** @param {Chosen} chosen @param {Hooks} hooks @returns {Runnable | undefined}  undefined: none is on */
export function runnable(chosen, { contextLength, isRepeated, setState }) {
  const tools = toolsOf(chosen);
  if (tools.length === 0) return undefined;
  const most = Math.min(MOST, Math.max(LEAST, Math.floor(SHARE * PER_TOKEN * contextLength)));
  const places = new Map(tools.map(({ name, at }) => [name, at]));
  return { most: chosen.steps, placeOf: name => places.get(name), tools: Object.fromEntries(tools.map(tool => {
    const { name, description, parameters } = tool;
    return [name, { ...description && { description }, parameters,
      async execute(/** @type {any} */ args, /** @type {{id: string, signal?: AbortSignal}} */ { id, signal }) {
        if (isRepeated()) return '';   // the step is taken away again
        try {
          return shortened(await called(tool, args, signal, to => setState(id, to)), most);
        } catch (error) {
          throw new Error(shortened(reasonOf(error), most));
        }
      } }];
  })) };
}

/** @param {Tool} tool @param {any} args @param {AbortSignal | undefined} signal
 * @param {(state: import('./steps.js').State) => void} setState */
async function called(tool, args, signal, setState) {
  try {
    const request = await tool.request?.(args);
    if (request) {
      setState('asks');
      if (!await mayCall(tool, request, signal)) throw new Error('the reader refused the call');
    }
    setState('runs');
    return await tool.run(args, signal, request);
  } catch (error) {
    if (!(error instanceof ExplainedError)) throw error;
    throw new Error([error.explanation.title, error.message].filter(Boolean).join(': '));
  }
}

/** @param {string} text @param {number} most  characters */
const shortened = (text, most) => text.length <= most ? text
  : `${text.slice(0, most)}\n(These are the first ${most} of ${text.length} characters.)`;
