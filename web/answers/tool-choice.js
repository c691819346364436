/* Which tools a model is told about. */
import { argumentError } from '../base/errors.js';

/** @typedef {import('./messages.js').Tool} Tool */
/** @typedef {'auto' | 'none' | 'required' | {type: 'function', function: {name: string}}} ToolChoice  none: the model
 *   is not told about the tools; required: the answer is calls; a tool by its name: calls of this tool */

/** The tools that the model is told about, and whether it must call them or one of them.
 * @param {string} where  the function's name, for the message
 * @param {Tool[]} [tools] @param {ToolChoice} [choice] @param {string} [name]  of the option
 * @returns {{tools?: Tool[], required?: boolean, only?: string}} */
export function chosenTools(where, tools, choice = 'auto', name = 'tool_choice') {
  if (choice === 'none' || choice === 'auto') return choice === 'none' || !tools?.length ? {} : { tools };
  const only = choice === 'required' ? undefined : choice.function.name;
  if (!tools?.length || only !== undefined && !tools.some(tool => tool.function.name === only)) {
    throw argumentError(`${where}: ${name} asks for ${only === undefined ? 'a call, but there are no tools'
      : `the tool "${only}", which is not in tools`}`);
  }
  return { tools, required: true, only };
}
