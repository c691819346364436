/* The calls of a run: executes tools, and makes the messages that the model sees of their results. */
import { unlessAborted } from '../base/async.js';
import { reasonOf } from '../base/errors.js';
import { jsonSchemaOf, plainTools } from '../answers/constraint.js';
import { problemOf, standardCheck } from '../answers/schema.js';

/** @typedef {import('../answers/messages.js').ToolCall} ToolCall
 * @typedef {import('../answers/messages.js').Message} Message */
/** @template S @typedef {import('./infer.js').FromSchema<S>} FromSchema */
/** @template [S=any]
 * @typedef {object} Callable  a tool that a run can execute
 * @property {string} [description]
 * @property {S} [parameters]  a schema of the arguments: a JSON Schema, or one of Zod or another library that gives its
 *   JSON Schema; default: there are no arguments
 * @property {S} [schema]  another name of parameters
 * @property {(args: unknown extends FromSchema<S> ? any : FromSchema<S>,
 *   call: {id: string, signal?: AbortSignal}) => unknown} execute  gets the arguments, as the library's own check makes
 *   them, and returns the result, or a promise of it: a text, or a value that the
 *   model sees as JSON.  What it throws, the model sees as an error.  TypeScript knows the arguments by a library's
 *   schema, and by a JSON Schema that is declared `as const` */
/** Tools by name.
 * @template [T=Record<string, any>]
 * @typedef {{[K in keyof T]: Callable<T[K]>}} Callables */
/** @typedef {{id: string, name: string, content: string, failed: boolean}} CallResult  content: what the model sees */
/** @typedef {object} RunEvent  one of the properties is there
 * @property {string} [content]  a piece of the model's text
 * @property {string} [reasoning]  a piece of its reasoning
 * @property {{index: number, id?: string, name?: string, arguments: string}} [call]  a piece of a call, as in an
 *   AnswerDelta
 * @property {CallResult} [result]  of a call
 * @property {{reason: 'stop' | 'length' | 'abort' | 'maxSteps', steps: number, content: string}} [finish]  the last
 *   event.
 *   maxSteps: the last step was still one with calls, whose results are in the chat; content: the text of the last step
 * */

/** @param {Callable} tool @returns {any} */
const schemaOf = tool => tool.parameters ?? tool.schema;

/** Tools as the model is told about them. @param {Callables} callables
 * @returns {import('../answers/messages.js').Tool[]} */
export const toolsOf = callables => plainTools('chat.run', Object.entries(callables).map(([name, tool]) => ({
  type: 'function',
  function: {
    name, ...tool.description !== undefined && { description: tool.description },
    parameters: schemaOf(tool) ?? { type: 'object', properties: {} },
  },
})));

/** Executes a call.  Whatever goes wrong is a result that the model sees.
 * @param {ToolCall} call @param {Callables} callables @param {AbortSignal} [signal] @returns {Promise<CallResult>} */
export async function execute({ id, function: { name, arguments: given } }, callables, signal) {
  const failed = (/** @type {string} */ why) => ({ id, name, content: `Error: ${why}`, failed: true });
  if (!Object.hasOwn(callables, name)) {
    return failed(`there is no tool "${name}"; the tools are ${Object.keys(callables).join(', ')}`);
  }
  const tool = callables[name];
  let args;
  try {
    args = JSON.parse(given);
  } catch (error) {
    return failed(`the arguments are not JSON: ${reasonOf(error)}`);
  }
  try {
    const schema = schemaOf(tool), checked = await standardCheck(schema, args)
      ?? { value: args, problem: schema && problemOf(jsonSchemaOf('chat.run', schema), args) };
    if (checked.problem !== undefined) {
      return failed(`the arguments do not fit the schema of "${name}": ${checked.problem}`);
    }
    const result = await unlessAborted(tool.execute(checked.value, { id, signal }), signal);
    return { id, name, content: typeof result === 'string' ? result : JSON.stringify(result) ?? '', failed: false };
  } catch (error) {
    return failed(signal?.aborted ? 'the call was aborted' : reasonOf(error));
  }
}
