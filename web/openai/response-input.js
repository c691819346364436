/* What a request of OpenAI's Responses API asks, as a request of chat.completions: its items become messages, and its
 * parameters have other names there. */
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { PARAMETERS } from '../base/parameters.js';

/** @typedef {import('./completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('./completions.js').CompletionParameters} CompletionParameters */
/** @typedef {{type?: string, id?: string, [more: string]: any}} Item  of an input or an output */
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

/** The messages of items.  The items of one turn of the assistant (its reasoning, its text, its calls) are one message.
 * @param {string} where  who asks, for messages @param {Item[]} items
 * @returns {CompletionMessage[]} */
export function messagesOf(where, items) {
  /** @type {CompletionMessage[]} */
  const messages = [];
  /** The assistant's message that goes on. @type {CompletionMessage | undefined} */
  let turn;
  const assistant = (/** @type {boolean} */ begins) => {
    if (!turn || begins && (turn.content || turn.tool_calls)) messages.push(turn = { role: 'assistant', content: '' });
    return turn;
  };
  for (const [i, item] of items.entries()) {
    const place = `${where}: input[${i}]`;
    const { type = 'message' } = Object(item);
    if (type === 'reasoning') {
      assistant(true).reasoning_content = textOf(`${place}.content`, item.content ?? item.summary ?? []);
    } else if (type === 'function_call') {
      const [id, name, args] = ['call_id', 'name', 'arguments'].map(key => stringOf(place, item, key));
      (assistant(false).tool_calls ??= []).push({ id, type: 'function', function: { name, arguments: args } });
    } else if (type === 'message' && item?.role === 'assistant') {
      assistant(true).content = textOf(`${place}.content`, item.content);
    } else {
      turn = undefined;
      if (type === 'function_call_output') {
        const content = textOf(`${place}.output`, item.output);
        messages.push({ role: 'tool', tool_call_id: stringOf(place, item, 'call_id'), content });
      } else if (type === 'message') {
        known.checkRole(place, item?.role);
        messages.push({ role: item.role, content: textOf(`${place}.content`, item.content) });
      } else {
        throw argumentError(`${place} has type ${JSON.stringify(type)}, expected "message", "function_call", `
          + '"function_call_output", "reasoning" or "item_reference"');
      }
    }
  }
  return messages;
}

/** @param {string} place @param {Item} item @param {string} key @returns {string} */
function stringOf(place, item, key) {
  if (typeof item[key] === 'string') return item[key];
  throw argumentError(`${place}.${key} is ${JSON.stringify(item[key])}, expected a string`);
}

/** @param {string} place @param {unknown} content  a string or parts @returns {string} */
function textOf(place, content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw argumentError(`${place} is neither a string nor an array of parts`);
  return content.map((part, i) => {
    const { text, refusal = text, type } = Object(part);
    if (typeof refusal === 'string') return refusal;
    throw argumentError(`${place}[${i}] has type ${JSON.stringify(type)} and no text; models read text only`);
  }).join('\n');
}

/** Begins messages with instructions.  Many templates allow one system message only, so they join one that is there.
 * @param {string | undefined} instructions @param {CompletionMessage[]} messages @returns {CompletionMessage[]} */
export function instructed(instructions, messages) {
  if (!instructions) return messages;
  const [first, ...rest] = messages;
  const isSystem = first?.role === 'system' || first?.role === 'developer';
  return isSystem ? [{ role: 'system', content: `${instructions}\n\n${first.content}` }, ...rest]
    : [{ role: 'system', content: instructions }, ...messages];
}

/** The messages without the oldest turn: from the first question to the second one.  undefined if there is only one.
 * @param {CompletionMessage[]} messages */
export function withoutOldest(messages) {
  const questions = messages.flatMap(({ role }, i) => role === 'user' ? [i] : []);
  return questions.length < 2 ? undefined : messages.toSpliced(questions[0], questions[1] - questions[0]);
}
