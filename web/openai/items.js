/* The items of OpenAI's Responses and Decisions as messages of chat.completions. */
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';

/** @typedef {import('./completions.js').CompletionMessage} CompletionMessage */
/** @typedef {{type?: string, id?: string, [more: string]: any}} Item  of an input or an output: a message, reasoning, a
 *   call, or its output */

/** The messages of items.  The items of one turn of the assistant (its reasoning, its text, its calls) are one message.
 * @param {string} where  who asks, for messages @param {Item[]} items @returns {CompletionMessage[]} */
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
    } else if (type === 'function_call' || type === 'custom_tool_call') {
      const [id, name] = ['call_id', 'name'].map(key => stringOf(place, item, key));
      const args = type === 'function_call' ? stringOf(place, item, 'arguments')
        : JSON.stringify({ input: stringOf(place, item, 'input') });
      (assistant(false).tool_calls ??= []).push({ id, type: 'function', function: { name, arguments: args } });
    } else if (type === 'message' && item?.role === 'assistant') {
      assistant(true).content = textOf(`${place}.content`, item.content);
    } else {
      turn = undefined;
      if (type === 'function_call_output' || type === 'custom_tool_call_output') {
        const content = textOf(`${place}.output`, item.output);
        messages.push({ role: 'tool', tool_call_id: stringOf(place, item, 'call_id'), content });
      } else if (type === 'message') {
        known.checkRole(place, item?.role);
        messages.push({ role: item.role, content: textOf(`${place}.content`, item.content) });
      } else {
        throw argumentError(`${place} has type ${JSON.stringify(type)}, expected "message", "reasoning", a call of `
          + 'a function or a custom tool, or its output');
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

/** The text of a content. @param {string} place @param {unknown} content  a string or parts @returns {string} */
export function textOf(place, content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) {
    throw argumentError(`${place} is ${typeof content}, expected a string or an array of parts`);
  }
  return content.map((part, i) => {
    const { type, text, refusal = text, data } = Object(part);
    if (typeof refusal === 'string') return refusal;
    if (type === 'input_json' && typeof data === 'object') return JSON.stringify(data, null, 2);
    throw argumentError(`${place}[${i}] has type ${JSON.stringify(type)}, expected {type: 'input_text', text} `
      + "or {type: 'input_json', data}; models read text only");
  }).join('\n');
}
