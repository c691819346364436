/* Options are checked by name and type where the user's call is; ranges of the sampling parameters are the engine's.
 * An unknown name is an error: a misspelt option must not be ignored. */
import { argumentError } from './errors.js';

/** @typedef {(value: any) => string | false | undefined} Check  false or undefined: fine; else "a ..." expected */

/** @type {Check} */
const number = value => typeof value !== 'number' && 'a number';
/** @type {Check} */
const count = value => (!Number.isSafeInteger(value) || value < 1) && 'an integer from 1 on';
/** @type {Check} */
const boolean = value => typeof value !== 'boolean' && 'true or false';
/** @type {Check} */
const callback = value => typeof value !== 'function' && 'a function';
/** @type {Check} */
const object = value => (typeof value !== 'object' || value === null) && 'an object';
/** @type {Check} */
const signal = value => !(value instanceof AbortSignal) && 'an AbortSignal';
/** @type {Check} */
const unsigned32 = value => !(Number.isInteger(value) && value >= 0 && value < 2 ** 32)
  && 'an integer from 0 to 2^32 - 1';
/** @type {Check} */
const seed = value => !(Number.isSafeInteger(value) && value >= 0)
  && !(typeof value === 'bigint' && value >= 0n && value < 1n << 64n)
  && 'an integer from 0 on (a BigInt up to 2^64 - 1)';
/** @type {Check} */
const integer = value => !Number.isInteger(value) && typeof value !== 'bigint' && 'an integer';
/** @type {Check} */
const threads = value => value !== 'auto' && count(value) && "an integer from 1 on, or 'auto'";
/** @type {Check} */
const text = value => (typeof value !== 'string' || value === '') && 'a string that is not empty';
/** @type {Check} */
const values = value => !(Number.isInteger(value) && value >= 0) && value !== Infinity
  && 'an integer from 0 on, or Infinity';
/** @type {Check} */
const layers = value => !(Array.isArray(value) && value.length === 2 && value.every(n => !values(n))
  && value[0] <= value[1] && value[0] < 2 ** 32) && 'a pair of layers [first, last]';
/** @type {Check} */
const stop = value => ![value].flat().every(one => typeof one === 'string' && one.length > 0)
  && 'a string or an array of strings, none empty';
/** @type {Check} */
const logprobs = value => !(Number.isInteger(value) && value >= 0 && value <= 20) && 'an integer from 0 to 20';
/** @type {Check} */
const logitBias = value => ![...biasEntries(value)].every(([token, bias]) => /^\d+$/.test(String(token))
  && Number(token) < 2 ** 31 && typeof bias === 'number' && bias < Infinity)
  && 'an object or Map from token ids to numbers (-Infinity forbids a token)';

/** @type {Check} */
const array = value => !Array.isArray(value) && 'an array';
/** @type {Check} */
const tools = value => !(Array.isArray(value) && value.every(tool => tool?.type === 'function'
  && typeof tool.function?.name === 'string')) && "an array of {type: 'function', function: {name, ...}}";
/** @type {Check} */
const files = value => (object(value) || !Object.values(value).every(file => typeof file === 'string'
  || file instanceof Blob || file instanceof Uint8Array))
  && 'an object from names to Blobs, Uint8Arrays or strings';

/** @type {(low: number, high: number) => Check} */
const within = (low, high) => value => !(typeof value === 'number' && value >= low && value <= high)
  && `a number from ${low} to ${high}`;
/** @type {(...values: unknown[]) => Check} */
const oneOf = (...values) => value => !values.includes(value) && values.map(shown).join(' or ');
/** @type {Check} */
const openaiBias = value => logitBias(value) || (![...biasEntries(value)].every(([, bias]) => !within(-100, 100)(bias))
  && 'an object from token ids to numbers from -100 to 100');
/** @type {Check} */
const streamOptions = value => !(Object.entries(Object(value)).every(([name, one]) => name === 'include_usage'
  && typeof one === 'boolean') && typeof value === 'object') && 'an object with include_usage, true or false';
/** @type {Check} */
const responseFormat = value => !(value?.type === 'text' && Object.keys(value).length === 1) && "{type: 'text'}";

/** @param {any} value @returns {Iterable<[unknown, unknown]>} */
const biasEntries = value => value instanceof Map ? value : Object.entries(Object(value));

/** plumb_precision of include/plumb.h, in its order. */
export const PRECISIONS = /** @type {const} */ (['auto', 'exact16', 'fast8']);
/** @type {Check} */
const precision = value => !PRECISIONS.includes(value) && "'auto', 'exact16' or 'fast8'";

/** plumb_kv_type of include/plumb.h, in its order. */
export const KV_TYPES = /** @type {const} */ (['i16', 'q8', 'f32']);
/** @type {Check} */
const kvType = value => !KV_TYPES.includes(value) && "'i16', 'q8' or 'f32'";

/** What a chat does at the end of its context. */
export const CONTEXT_ENDS = /** @type {const} */ (['error', 'trim']);
/** @type {Check} */
const contextEnd = value => !CONTEXT_ENDS.includes(value) && "'error' or 'trim'";

/** @type {Check} */
const cache = value => !['default', 'no-cache', 'reload', 'no-store'].includes(value)
  && "'default', 'no-cache', 'reload' or 'no-store'";
/** @type {Check} */
const sha256 = value => ![value].flat().every(one => typeof one === 'string' && /^[0-9a-f]{64}$/i.test(one))
  && 'a string of 64 hex digits, or an array of them';

export const LOAD = {
  threads, precision, contextLength: count, kvType, signal, onProgress: callback, worker: boolean, cache, sha256,
};
export const PREFLIGHT = {
  contextLength: count, kvType, precision, threads, signal, worker: boolean, measure: boolean,
};
export const SAMPLING = {
  temperature: number, topK: unsigned32, topP: number, minP: number, typicalP: number, repeatPenalty: number,
  presencePenalty: number, frequencyPenalty: number, penaltyLastN: unsigned32, logitBias, seed,
};
export const GENERATE = {
  ...SAMPLING, maxTokens: count, stop, signal, logprobs, onToken: callback, parseSpecial: boolean, template: object,
};
const { signal: _, parseSpecial: __, ...ANSWER } = GENERATE;
export const CHAT = { system: text, tools, messages: array, contextEnd, ...ANSWER };
/** Parameters of chat.completions.create, with OpenAI's ranges. */
export const COMPLETION = {
  model: text, messages: array, stream: boolean, stream_options: streamOptions, max_completion_tokens: count,
  max_tokens: count, temperature: within(0, 2), top_p: within(0, 1), top_k: unsigned32, min_p: number,
  typical_p: number, repeat_penalty: number, presence_penalty: within(-2, 2), frequency_penalty: within(-2, 2),
  logit_bias: openaiBias, stop, seed: integer, logprobs: boolean, top_logprobs: logprobs, tools,
  tool_choice: oneOf('auto', 'none'), response_format: responseFormat, n: oneOf(1),
};
export const CLIENT = { models: object, load: object };
export const TOKENIZE = { addSpecial: boolean, parseSpecial: boolean };
export const DETOKENIZE = { special: boolean };
export const FEED = { signal };
export const COMMAND = { files, signal, onError: callback };
export const TRACE = { taps: text, layers, values, onTap: callback, signal, parseSpecial: boolean, template: object };

/** Throws unless every option is known and well-typed; undefined counts as absent.
 * @param {string} where  the function's name, for the message
 * @param {unknown} options
 * @param {Record<string, Check>} table */
export function checkOptions(where, options, table) {
  if (options === undefined) return;
  if (object(options)) throw argumentError(`${where}: the options are ${shown(options)}, expected an object`);
  for (const [name, value] of Object.entries(/** @type {object} */ (options))) {
    if (!Object.hasOwn(table, name)) {
      throw argumentError(`${where}: unknown option "${name}"; known are ${Object.keys(table).join(', ')}`);
    }
    const expected = value !== undefined && table[name](value);
    if (expected) throw argumentError(`${where}: ${name} is ${shown(value)}, expected ${expected}`);
  }
}

/** Pairs [token, bias] of a checked logitBias option.
 * @param {any} value @returns {[number, number][]} */
export const biasPairs = value => [...biasEntries(value ?? {})].map(([token, bias]) => [Number(token), Number(bias)]);

/** @param {unknown} value */
function shown(value) {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object';
  return typeof value === 'function' ? 'a function' : String(value);
}
