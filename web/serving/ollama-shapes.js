/* What is other in Ollama's API than in OpenAI's: messages, options, times, the parts of answers, lists of models. */
import { hex } from '../base/hex.js';
import * as known from '../base/options.js';
import { closedError } from '../openai/answering.js';

/** @typedef {import('../openai/completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('../openai/answering.js').Usage} Usage */
/** @typedef {{content?: string, thinking?: string, calls?: {function: {name: string, arguments: object}}[],
 *   logprobs?: object[], reason?: string, usage?: Usage}} Part  of an answer; the last one has usage
 * @typedef {{where: string, given: Record<string, any>, model: string, signal: AbortSignal}} Request  what a call
 *   asks: its parameters, and the name by which the models know the model */

const NANOSECONDS = 1e6;   // in a millisecond
const UNITS = { ns: 1e-9, us: 1e-6, ms: 0.001, s: 1, m: 60, h: 3600 };

/** A model as Ollama lists it.  Its digest is that of its name, because the file would take long to read.
 * @param {string} name @param {string} modified_at @param {import('../engine/preflight.js').Preflight} [about] */
export async function modelOf(name, modified_at, about) {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(name)));
  const { architecture = '', parameters, types: [type] = [], fileBytes: size = 0 } = about ?? {};
  return {
    name, model: name, modified_at, size, digest: hex(digest),
    details: {
      parent_model: '', format: 'gguf', family: architecture, families: [architecture],
      parameter_size: parameters === undefined ? '' : parameters < 1e9 ? `${(parameters / 1e6).toFixed(0)}M`
        : `${(parameters / 1e9).toFixed(1)}B`,
      quantization_level: type?.type.toUpperCase() ?? '',
    },
  };
}

/** @param {Request} request */
export const headOf = ({ given }) => ({ model: given.model, created_at: new Date().toISOString() });

/** @param {Record<string, number>} milliseconds */
export const durations = milliseconds => Object.fromEntries(Object.entries(milliseconds)
  .map(([name, value]) => [name, Math.round(value * NANOSECONDS)]));

/** How long a model stays loaded, in seconds. @param {number | string} keep  which was checked */
export function secondsOf(keep) {
  const text = String(keep);
  if (text.startsWith('-')) return Infinity;
  return [...text.matchAll(/([\d.]+(?:e[-+]?\d+)?)([a-z]*)/g)].reduce((sum, [, number, unit]) =>
    sum + Number(number) * UNITS[/** @type {keyof typeof UNITS} */ (unit || 's')], 0);
}

/** OpenAI's parameters for Ollama's options. @param {Record<string, any>} [options] @returns {Record<string, any>} */
export function samplingOf(options = {}) {
  const { num_predict: most = 0, repeat_last_n: last, stop, ...rest } = options;
  const same = Object.entries(rest).filter(([name]) => Object.hasOwn(known.COMPLETION, name));
  return {
    ...Object.fromEntries(same), ...stop?.length > 0 && { stop }, ...most > 0 && { max_tokens: most },
    ...last !== undefined && { penalty_last_n: last < 0 ? 2 ** 24 : last },
  };
}

/** Messages in OpenAI's shape: calls have ids there, and their arguments are texts.
 * @param {any[]} messages @returns {CompletionMessage[]} */
export function messagesOf(messages) {
  let calls = 0;
  /** The calls that have no result yet. @type {{id: string, name: string}[]} */
  let open = [];
  return messages.map(({ role, content, thinking, tool_calls, tool_name, tool_call_id }) => {
    if (role === 'tool') {
      const named = open.find(({ name }) => name === tool_name), id = tool_call_id ?? (named ?? open[0])?.id ?? '';
      open = open.filter(one => one.id !== id);
      return { role, content: content ?? '', tool_call_id: id, ...tool_name && { name: tool_name } };
    }
    const made = (tool_calls ?? []).map((/** @type {any} */ call) => {
      const { name = '', arguments: args = {} } = Object(call?.function), id = call?.id ?? `call_${calls++}`;
      open.push({ id, name });
      const text = typeof args === 'string' ? args : JSON.stringify(args);
      return { id, type: 'function', function: { name, arguments: text } };
    });
    return {
      role, content: content ?? '', ...thinking && { reasoning_content: thinking },
      ...made.length > 0 && { tool_calls: made },
    };
  });
}

/** The parts of an answer.  Throws if the answer was ended before its end.
 * @param {AsyncIterable<Part>} parts @param {AbortSignal} signal @returns {AsyncGenerator<Part, void, void>} */
export async function* complete(parts, signal) {
  for await (const part of parts) {
    yield part;
    if (part.usage) return;
  }
  throw signal.reason ?? closedError();
}

/** All parts as one. @param {AsyncIterable<Part>} parts @returns {Promise<Part>} */
export async function joined(parts) {
  /** @type {Part} */
  const whole = {};
  for await (const { content, thinking, calls, logprobs, ...rest } of parts) {
    if (content) whole.content = (whole.content ?? '') + content;
    if (thinking) whole.thinking = (whole.thinking ?? '') + thinking;
    if (calls) whole.calls = [...whole.calls ?? [], ...calls];
    if (logprobs) whole.logprobs = [...whole.logprobs ?? [], ...logprobs];
    Object.assign(whole, rest);
  }
  return whole;
}
