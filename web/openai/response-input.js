/* What a request of OpenAI's Responses API asks, as a request of chat.completions: its parameters have other names
 * there. */
import { PARAMETERS } from '../base/parameters.js';

/** @typedef {import('./completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('./completions.js').CompletionParameters} CompletionParameters */
/** @typedef {{type: 'function', name: string, description?: string | null, parameters?: object | null,
 *   strict?: boolean | null}} FlatTool
 * @typedef {'auto' | 'none' | 'required' | {type: 'function', name: string}
 *   | {type: 'allowed_tools', mode: 'auto' | 'required', tools: {type: 'function', name: string}[]}} FlatToolChoice
 * @typedef {{type: 'text'} | {type: 'json_object'} | {type: 'json_schema', name: string,
 *   schema: Record<string, unknown>, strict?: boolean | null, description?: string}} TextFormat */

/** The parameters that have the same name and meaning in chat.completions. */
const SAME = ['model', 'logit_bias', 'stop', 'seed', 'parallel_tool_calls', 'top_logprobs', 'reasoning_budget',
  'chat_template_kwargs', ...PARAMETERS.map(({ field }) => field)];
/** The value of `include` that asks for log-probabilities. */
const LOGPROBS = 'message.output_text.logprobs';

/** The parameters of chat.completions.create, without messages. @param {Record<string, any>} given  which were checked
 * @returns {Omit<CompletionParameters, 'messages'>} */
export function chatParameters(given) {
  const { reasoning, text, include, max_output_tokens, top_logprobs } = given;
  const same = Object.fromEntries(SAME.filter(name => name in given).map(name => [name, given[name]]));
  return {
    ...same, ...toolsOf(given.tools, given.tool_choice),
    max_completion_tokens: max_output_tokens, response_format: formatOf(text?.format),
    reasoning_effort: reasoning?.effort, logprobs: include?.includes(LOGPROBS) || top_logprobs !== undefined,
  };
}

/** @param {FlatTool[]} [tools] @param {FlatToolChoice} [choice] @returns {Partial<CompletionParameters>} */
function toolsOf(tools, choice) {
  /** @param {FlatTool} tool @returns {import('../answers/messages.js').Tool} */
  const deep = ({ type, ...about }) =>
    ({ type, function: /** @type {any} */ (withoutNull(about)) });
  if (typeof choice === 'object' && choice.type === 'allowed_tools') {
    const names = choice.tools.map(({ name }) => name);
    return { tools: tools?.filter(({ name }) => names.includes(name)).map(deep), tool_choice: choice.mode };
  }
  return {
    tools: tools?.map(deep),
    tool_choice: typeof choice === 'object' ? { type: 'function', function: { name: choice.name } } : choice,
  };
}

/** @param {TextFormat | null} [format] @returns {CompletionParameters['response_format']} */
function formatOf(format) {
  if (format?.type !== 'json_schema') return format;
  const { type, ...schema } = format;
  return { type, json_schema: /** @type {any} */ (withoutNull(schema)) };
}

/** @param {object} value */
const withoutNull = value => Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null));

/** Begins messages with instructions.  Many templates allow one system message only, so they join one that is there.
 * @param {string | undefined} instructions @param {CompletionMessage[]} messages @returns {CompletionMessage[]} */
export function instructed(instructions, messages) {
  if (!instructions) return messages;
  const [first, ...rest] = messages;
  const isSystem = first?.role === 'system' || first?.role === 'developer';
  return isSystem ? [{ role: 'system', content: `${instructions}\n\n${first.content}` }, ...rest]
    : [{ role: 'system', content: instructions }, ...messages];
}

/** The messages from a question on, and the system's before them.
 * @param {CompletionMessage[]} messages @param {number} question  where it is */
export const fromQuestion = (messages, question) => [
  ...messages.slice(0, questionsOf(messages)[0] ?? 0), ...messages.slice(question),
];

/** Where the questions are. @param {CompletionMessage[]} messages */
export const questionsOf = messages => messages.flatMap(({ role }, i) => role === 'user' ? [i] : []);
