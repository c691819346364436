/* What a chat template gets of tools and of past calls.  The public form of a call is OpenAI's: {id, type: 'function',
 * function: {name, arguments}}, with the arguments as JSON text.  answer.js reads the calls in an answer. */
import { argumentError } from '../base/errors.js';
import { exampleOf, formatOf, supportsTools } from './formats.js';
import { withSystemText } from './system-text.js';

/** @typedef {import('./messages.js').Tool} Tool
 * @typedef {import('./messages.js').Message} Message */
/** @typedef {'auto' | 'none' | 'required' | {type: 'function', function: {name: string}}} ToolChoice  none: the model
 *   is not told about the tools; required: the answer is calls; a tool by its name: calls of this tool */

/** Converts messages with calls to the form that a template expects.  The arguments of calls become objects if it takes
 * objects.  Ids become nine letters and digits if the template refuses others (Mistral).  If the template
 * has its own roles for calls and results (Granite 3.0), or does not support calls at all, a call becomes a message in
 * the model's own format.
 * @param {string | undefined} source  of the template
 * @param {Record<string, any>[]} messages
 * @param {{objects: boolean}} can  the template's capabilities @returns {Record<string, any>[]} */
export function messagesFor(source = '', messages, { objects } = { objects: true }) {
  const has = (/** @type {string} */ role) => source.includes(`'${role}'`) || source.includes(`"${role}"`);
  const wantsNine = /\blength\s*!=\s*9\b/.test(source);
  const nine = (/** @type {unknown} */ id) => String(id).replace(/[^a-z0-9]/gi, '').slice(-9).padStart(9, '0');
  return messages.map(message => {
    if (message.role === 'tool' && has('assistant_tool_call')) return { ...message, role: 'tool_response' };
    if (message.role === 'tool' && wantsNine) return { ...message, tool_call_id: nine(message.tool_call_id) };
    if (!Array.isArray(message.tool_calls)) return message;
    const { tool_calls: given, ...rest } = message;
    const content = message.content ?? '';
    if (given.length === 0) return { ...rest, content };
    const calls = given.map(call => call?.function ? {   // the template may refuse any other call
      ...call, ...wantsNine && { id: nine(call.id) },
      function: { ...call.function, arguments: objects ? parsed(call.function.arguments) : call.function.arguments },
    } : call);
    const written = calls.map(call => ({ name: call?.function?.name, arguments: parsed(call?.function?.arguments) }));
    if (has('assistant_tool_call')) {
      return { ...rest, role: 'assistant_tool_call', content: JSON.stringify(written) };
    }
    const { write } = formatOf(source);
    return !write || !supportsTools(source) || source.includes('tool_calls') ? { ...rest, content, tool_calls: calls }
      : { ...rest, content: content + write(written) };
  });
}

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

/** Messages for a template that does not describe tools: a system message describes them as the models of Hermes and
 * Qwen are told about them, with the model's own way to write calls, or else theirs.  Earlier calls become text, and
 * the results of calls become messages of the user.
 * @param {string} source  of the template @param {Message[]} messages @param {Tool[]} tools @returns {Message[]} */
export function withToolsDescribed(source, messages, tools) {
  const { write } = formatOf(source), isWritten = write && !source.includes('tool_calls');
  const list = tools.map(tool => JSON.stringify(tool)).join('\n');
  const text = '# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with '
    + `function signatures within <tools></tools> XML tags:\n<tools>\n${list}\n`
    + `</tools>\n\nFor each function call, answer with:\n${exampleOf(source)}`;
  const [head, ...others] = withSystemText(messages, text);
  return [head, ...others.map(message => {
    if (message.role === 'tool') {
      return { role: /** @type {const} */ ('user'), content: `<tool_response>\n${message.content}\n</tool_response>` };
    }
    if (!isWritten || !Array.isArray(message.tool_calls)) return message;
    const { tool_calls: calls, ...said } = message;
    const written = calls.map(call => ({ name: call?.function?.name, arguments: parsed(call?.function?.arguments) }));
    return { ...said, content: [message.content, write(written)].filter(Boolean).join('\n') };
  })];
}

/** @param {unknown} text  JSON @returns {unknown}  its value, or text itself if it is not JSON */
function parsed(text) {
  try {
    return typeof text === 'string' ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}
