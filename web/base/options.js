/* Checks the name, type and range of every option of every call before any of them reaches the engine.  An unknown name
 * is an error, so that a misspelt option is not ignored. */
import { argumentError } from './errors.js';
import {
  JSON_SPACES, KV_TYPES, MAX_CTX, MAX_DRAFT, MAX_SNAPSHOTS, MAX_THREADS, PARAMETERS, PRECISIONS,
} from './parameters.js';

/** @typedef {(value: any) => string | false | undefined} Check  returns false or undefined if the value is valid,
 *   and otherwise what is expected: "a ...".  So `!unsigned32(value)` means that the value is valid */

/** The largest number of tokens that the engine can count, and the largest token id: the largest int32. */
const MAX_TOKENS = 2 ** 31 - 1;

/** @type {Check} */
const count = value => (!Number.isSafeInteger(value) || value < 1) && 'a positive integer';
/** @param {any} value @param {number} low @param {number} high */
const isWithin = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;
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
/** @type {(low: number, high: number) => Check} */
const integerFrom = (low, high) => value => !isWithin(value, low, high) && `an integer from ${low} to ${high}`;
const maximum = integerFrom(0, MAX_TOKENS);
/** @type {Check} */
const seed = value => !(Number.isSafeInteger(value) && value >= 0)
  && !(typeof value === 'bigint' && value >= 0n && value < 1n << 64n)
  && 'an integer from 0 to 2^53 - 1, or a BigInt from 0 to 2^64 - 1';
/** @type {Check} */
const integer = value => !Number.isInteger(value) && typeof value !== 'bigint' && 'an integer';
const contextLength = integerFrom(1, MAX_CTX);
const snapshots = integerFrom(2, MAX_SNAPSHOTS);
/** @type {Check} */
const threads = value => value !== 'auto' && !isWithin(value, 1, MAX_THREADS)
  && `an integer from 1 to ${MAX_THREADS}, or 'auto'`;
/** How answers compute ahead. @type {Check} */
const speculate = value => value !== false && value !== 'lookup' && (object(value)
  || !Object.entries(value).every(([name, n]) =>
    (name === 'least' || name === 'most') && isWithin(n, name === 'most' ? 1 : 0, MAX_DRAFT))
  || (value.least ?? 0) > (value.most ?? MAX_DRAFT))
  && `'lookup', false, or an object of least, from 0, and most, from 1, integers up to ${MAX_DRAFT}, least not above `
    + 'most';
/** @type {Check} */
const text = value => (typeof value !== 'string' || value === '') && 'a non-empty string';
/** @type {Check} */
const string = value => typeof value !== 'string' && 'a string';
/** How many values of each row a trace records. @type {Check} */
const values = value => unsigned32(value) && value !== Infinity && 'an integer from 0 to 2^32 - 1, or Infinity';
/** @type {Check} */
const layers = value => !(Array.isArray(value) && value.length === 2 && !unsigned32(value[0]) && !values(value[1])
  && value[0] <= value[1])
  && 'a pair of layers [first, last] with first <= last, integers from 0 to 2^32 - 1 (last may be Infinity)';
/** @type {Check} */
const stop = value => ![value].flat().every(one => typeof one === 'string' && one.length > 0)
  && 'a non-empty string or an array of non-empty strings';
const logprobs = integerFrom(0, 20);
/** @type {Check} */
const logitBias = value => (object(value) || ![...biasEntries(value)].every(([token, bias]) =>
  /^\d+$/.test(String(token)) && Number(token) <= MAX_TOKENS && typeof bias === 'number' && bias < Infinity))
  && 'an object or Map that maps token ids to numbers (-Infinity forbids a token)';

/** @type {Check} */
const array = value => !Array.isArray(value) && 'an array';
/** @type {Check} */
const tools = value => !(Array.isArray(value) && value.every(tool => tool?.type === 'function'
  && typeof tool.function?.name === 'string')) && "an array of {type: 'function', function: {name, ...}}";
/** @type {Check} */
const toolChoice = value => !['auto', 'none', 'required'].includes(value)
  && !(value?.type === 'function' && typeof value.function?.name === 'string')
  && "'auto', 'none', 'required' or {type: 'function', function: {name}}";
/** The tools of a run. @type {Check} */
const callables = value => (object(value) || Array.isArray(value) || !Object.values(value).every(tool =>
  typeof tool?.execute === 'function' && /object|function/.test(typeof (tool.parameters ?? tool.schema ?? {}))))
  && 'an object of tools by name, {description, parameters, execute}';
/** @type {Check} */
const texts = value => !(Array.isArray(value) && value.every(one => typeof one === 'string'))
  && 'an array of strings';
/** @type {Check} */
const files = value => (object(value) || !Object.values(value).every(file => typeof file === 'string'
  || file instanceof Blob || file instanceof Uint8Array))
  && 'an object that maps names to Blobs, Uint8Arrays or strings';

/** Checks the options of a chat template.  Names other than these are variables of the template and may have any value,
 * except enable_thinking: a text such as 'false' would be true.  null counts as absent.
 * @type {Check} */
const template = value => object(value)
  || (value.addGenerationPrompt ?? true) !== Boolean(value.addGenerationPrompt ?? true)
    && 'an object in which addGenerationPrompt is true or false'
  || ![true, false, 'content', 'reasoning_content'].includes(value.continueFinalMessage ?? true)
    && "an object in which continueFinalMessage is true, false, 'content' or 'reasoning_content'"
  || (value.tools ?? null) !== null && array(value.tools) && 'an object in which tools is an array'
  || (value.enable_thinking ?? null) !== null && boolean(value.enable_thinking)
    && `an object in which enable_thinking is true or false, not ${shown(value.enable_thinking)}`;

/** @type {(low: number, high: number) => Check} */
const within = (low, high) => value => !(typeof value === 'number' && value >= low && value <= high)
  && `a number from ${low} to ${high}`;
/** @type {(...values: unknown[]) => Check} */
const oneOf = (...values) => value => !values.includes(value) && values.map(shown).join(' or ');
/** @type {Check} */
const openaiBias = value => logitBias(value) || (![...biasEntries(value)].every(([, bias]) => !within(-100, 100)(bias))
  && 'an object that maps token ids to numbers from -100 to 100');
/** @type {Check} */
const streamOptions = value => !(Object.entries(Object(value)).every(([name, one]) => name === 'include_usage'
  && typeof one === 'boolean') && typeof value === 'object')
  && 'an object whose only property is include_usage, true or false';
/** A JSON Schema, or a function or object that has one, as Zod's. @type {Check} */
const schema = value => object(value) && typeof value !== 'boolean' && typeof value !== 'function'
  && 'a JSON Schema or a Standard Schema';
/** @type {Check} */
const schemaOptions = value => (object(value) || !Object.entries(value).every(([name, one]) =>
  Object.hasOwn(SCHEMA_OPTIONS, name)
    && (one === undefined || !(/** @type {Record<string, Check>} */ (SCHEMA_OPTIONS)[name](one)))))
  && "an object of strict (true or false), whitespace ('compact', 'pretty' or 'free') and order ('schema' or 'any')";
/** @type {Check} */
const responseFormat = value => {
  const isPlain = (value?.type === 'text' || value?.type === 'json_object') && Object.keys(value).length === 1;
  const { name, schema: given, strict = false, description = '', ...more } = Object(value?.json_schema);
  const isSchema = value?.type === 'json_schema' && Object.keys(value).length === 2 && !text(name) && !schema(given)
    && !boolean(strict ?? false) && !string(description) && Object.keys(more).length === 0;
  return !isPlain && !isSchema && "{type: 'text'}, {type: 'json_object'} or {type: 'json_schema', json_schema: "
    + '{name, schema, strict?, description?}}';
};

/** @type {Check} */
const tokens = value => !(Array.isArray(value) && value.length > 0 && value.every(id => isWithin(id, 0, MAX_TOKENS)))
  && 'an array of token ids';
/** @type {Check} */
const embeddingInput = value => typeof value !== 'string' && tokens(value)
  && !(Array.isArray(value) && value.every(one => typeof one === 'string' || !tokens(one)))
  && 'a string, an array of token ids, or an array of them';

/** @param {any} value @returns {Iterable<[unknown, unknown]>} */
const biasEntries = value => value instanceof Map ? value : Object.entries(Object(value));

/** @type {(names: readonly string[]) => Check} */
const named = names => value => !names.includes(value)
  && names.map(name => `'${name}'`).join(', ').replace(/, ('[^']*')$/, ' or $1');

/** What a chat can do when its context is full. */
export const CONTEXT_ENDS = /** @type {const} */ (['error', 'trim', 'shift']);

/** @type {Check} */
const address = value => typeof value !== 'string' && !(value instanceof URL) && 'a string or a URL';
/** @type {Check} */
const sha256 = value => ![value].flat().every(one => typeof one === 'string' && /^[0-9a-f]{64}$/i.test(one))
  && 'a string of 64 hex digits, or an array of them';

/** Anything; describe checks it. @type {Check} */
const present = () => false;
/** How much an adapter changes. @type {Check} */
const scale = value => !Number.isFinite(value) && 'a finite number';
/** The layers that a control vector changes; there is none of layer 0. @type {Check} */
const changed = value => (layers(value) || value[1] < 1)
  && 'a pair of layers [first, last] with first <= last and last >= 1';
/** Adapters to load with a model. @type {Check} */
const adapters = value => !Array.isArray(value) && 'an array of {source, scale, layers}';

/** What fetch takes as headers. @type {Check} */
const headers = value => {
  try {
    new Headers(value);
  } catch {
    return 'an object of valid headers, or a Headers';
  }
};
/** What a load adds to its requests. @type {Record<string, Check>} */
const REQUEST = {
  headers: value => object(value) || headers(value), credentials: named(['omit', 'same-origin', 'include']),
  fetch: callback, cacheKey: text,
};

/** Anything else, such as the name of a file, would be the whole prompt of every chat. @type {Check} */
const jinja = value => !(typeof value === 'string' && (value === 'chatml' || /\{[{%]/.test(value)))
  && "the text of a chat template, in which {{ or {% is, or 'chatml'";
const SESSION = {
  threads, precision: named(PRECISIONS), contextLength, kvType: named(KV_TYPES), snapshots, memory64: boolean,
};
export const LOAD = {
  ...SESSION, speculate, draft: present, signal, onProgress: callback, worker: boolean, workerUrl: address,
  cache: named(['default', 'no-cache', 'reload', 'no-store']), persist: boolean, sha256, adapters, reserve: boolean,
  shared: boolean, chatTemplate: jinja, ...REQUEST,
};
export const ADAPTER = { signal: LOAD.signal, onProgress: callback, cache: LOAD.cache, sha256, ...REQUEST };
/** An element of the option adapters of a load, and one of model.setAdapters. */
export const LOADED_ADAPTER = { source: present, sha256, scale, layers: changed };
export const USED_ADAPTER = { adapter: object, scale, layers: changed };
export const PREFLIGHT = {
  ...SESSION, signal, worker: boolean, workerUrl: address, measure: boolean, ...REQUEST,
};
/** The options of Plumb.pull. */
export const PULL = {
  ...ADAPTER, cache: named(['default', 'no-cache', 'reload']), worker: boolean, workerUrl: address,
};
/** @param {'name' | 'field'} key  who calls it @param {(one: typeof PARAMETERS[number]) => number[]} rangeOf
 * @returns {Record<string, Check>} */
const parameters = (key, rangeOf) => Object.fromEntries(PARAMETERS.map(one => {
  const [low, high] = rangeOf(one);
  return [one[key], one.isInteger ? integerFrom(low, high) : within(low, high)];
}));
export const SAMPLING = { ...parameters('name', ({ low, high }) => [low, high]), logitBias, seed };
export const GENERATE = {
  ...SAMPLING, maxTokens: count, sinks: count, stop, signal, logprobs, onToken: callback, onPromptProgress: callback,
  parseSpecial: boolean, template, reasoningBudget: maximum, special: texts, grammar: string, regex: text, schema,
  json: oneOf(true), schemaOptions, triggers: texts, begun: string, speculate,
};
/** The options of schemaOptions. */
const SCHEMA_OPTIONS = {
  strict: boolean, whitespace: oneOf(...JSON_SPACES), order: oneOf('schema', 'any'),
};
/* The options of generate that a chat takes as defaults for its answers.  A signal belongs to one answer, parseSpecial
 * to a prompt that is a string, begun to one prompt, and sinks to the whole chat. */
const { sinks, ...ONE } = GENERATE, { parseSpecial: _, begun: __, ...STEP } = ONE, { signal: ___, ...ANSWER } = STEP;
const OF_CHAT = { toolChoice, parallelToolCalls: boolean, onDelta: callback, showSchema: boolean };
export const CHAT = {
  system: text, tools, messages: array, contextEnd: named(CONTEXT_ENDS), sinks, ...OF_CHAT, ...ANSWER,
};
/** The options of one answer of a chat, and of a run. */
export const SEND = { ...ONE, ...OF_CHAT };
export const RUN = { ...STEP, ...OF_CHAT, tools: callables, maxSteps: count };
/** What a service wants to know, and clients send.  It changes no answer. */
const HARMLESS = {
  user: string, metadata: object, store: boolean, service_tier: string, safety_identifier: string,
  prompt_cache_key: string, prompt_cache_retention: string, cache_prompt: boolean,
};
/** The parameters of chat.completions.create, with OpenAI's ranges. */
export const COMPLETION = {
  model: text, messages: array, stream: boolean, stream_options: streamOptions, max_completion_tokens: count,
  max_tokens: count, ...parameters('field', ({ openai }) => openai), logit_bias: openaiBias, stop, seed: integer,
  logprobs: boolean, top_logprobs: logprobs, tools, tool_choice: toolChoice, parallel_tool_calls: boolean,
  response_format: responseFormat, n: integerFrom(1, 8), ...HARMLESS,
  reasoning_budget: maximum, reasoning_effort: oneOf('none', 'minimal', 'low', 'medium', 'high'),
  chat_template_kwargs: template, continue_final_message: oneOf(true, false, 'content', 'reasoning_content'),
  add_generation_prompt: boolean,
};
/** The tools of a response, which have no level of their own for the function. @type {Check} */
const flatTools = value => !(Array.isArray(value)
  && value.every(tool => tool?.type === 'function' && typeof tool.name === 'string'))
  && "an array of {type: 'function', name, parameters, ...}; there are no other tools here";
/** @type {Check} */
const flatToolChoice = value => !['auto', 'none', 'required'].includes(value)
  && !(value?.type === 'function' && typeof value.name === 'string')
  && !(value?.type === 'allowed_tools' && ['auto', 'required'].includes(value.mode) && !flatTools(value.tools))
  && "'auto', 'none', 'required', {type: 'function', name} or {type: 'allowed_tools', mode, tools}";
/** @type {Check} */
const textConfig = value => {
  const { format, verbosity, ...more } = Object(value), { type, ...rest } = Object(format);
  const isKnown = !object(value) && Object.keys(more).length === 0 && (verbosity ?? 'medium') === 'medium';
  const deep = type === 'json_schema' ? { type, json_schema: rest } : format;
  return !(isKnown && !responseFormat(deep ?? { type: 'text' }))
    && "{format}, where format is {type: 'text'}, {type: 'json_object'} or {type: 'json_schema', name, schema, "
    + 'strict?, description?}';
};
/** @type {Check} */
const reasoning = value => (object(value) || !Object.entries(value).every(([name, one]) => one === null
  || name === 'effort' && !COMPLETION.reasoning_effort(one) || /^(generate_)?summary$/.test(name) && !string(one)))
  && `{effort, summary}, where effort is ${COMPLETION.reasoning_effort(undefined)}`;
/** @type {Check} */
const obfuscation = value => !(Object.entries(Object(value)).every(([name, one]) => name === 'include_obfuscation'
  && typeof one === 'boolean') && typeof value === 'object')
  && 'an object whose only property is include_obfuscation, true or false';
/** @type {Check} */
const responseInput = value => string(value) && array(value) && 'a string or an array of items';
/** The parameters of responses.create, with OpenAI's ranges. */
export const RESPONSE = {
  model: text, input: responseInput, instructions: string, tools: flatTools, tool_choice: flatToolChoice,
  parallel_tool_calls: boolean, text: textConfig,
  max_output_tokens: count, ...parameters('field', ({ openai }) => openai), logit_bias: openaiBias, stop, seed: integer,
  top_logprobs: logprobs, reasoning, reasoning_budget: maximum, chat_template_kwargs: template,
  previous_response_id: text, stream: boolean, stream_options: obfuscation, include: texts,
  truncation: oneOf('disabled', 'auto'), background: oneOf(false), max_tool_calls: count, ...HARMLESS,
};
/** The parameters of completions.create, with OpenAI's ranges. */
export const TEXT_COMPLETION = {
  model: text, prompt: embeddingInput, n: integerFrom(1, 8), max_tokens: count, echo: boolean, logprobs,
  ...parameters('field', ({ openai }) => openai), logit_bias: openaiBias, stop, seed: integer, stream: boolean,
  stream_options: streamOptions, best_of: oneOf(1), ...HARMLESS,
};
/** The parameters of embeddings.create. */
export const EMBEDDING = {
  model: text, input: embeddingInput, dimensions: count, encoding_format: oneOf('float', 'base64'), user: string,
  pooling: oneOf('mean', 'cls', 'last'), truncate: boolean,
};
/** How many questions a decision has at most, and how many labels a question. */
const MAX_QUESTIONS = 400, MAX_LABELS = 255;
/** @type {Check} */
const safe = value => !Number.isSafeInteger(value) && 'an integer';
/** The choices or levels of a question. @type {Check} */
const labels = value => {
  const isLabel = (/** @type {any} */ one) => !text(one) || !object(one) && !text(one.value)
    && (one.description === undefined || !text(one.description))
    && Object.keys(one).every(key => key === 'value' || key === 'description');
  return !(Array.isArray(value) && value.length >= 2 && value.length <= MAX_LABELS && value.every(isLabel)
    && new Set(value.map(one => one.value ?? one)).size === value.length)
    && `an array of 2 to ${MAX_LABELS} different labels, each a non-empty string or {value, description?}`;
};
/** The options of decide, its questions by their type, and the calibration of a question. */
export const DECIDE = { prompt: named(['chat', 'text', 'none']), template, contentFree: boolean, signal };
const QUESTION = { type: named(['boolean', 'choice', 'score']), instructions: text, calibration: object };
const QUESTIONS = {
  boolean: { ...QUESTION, criteria: object }, choice: { ...QUESTION, choices: labels },
  score: { ...QUESTION, levels: labels, min: safe, max: safe },
};
const CRITERIA = { true: text, false: text };
const CALIBRATION = { temperature: within(1e-6, 1e6), bias: object };
/** The parameters of decisions.create and decisions.systemOne. */
const input = (/** @type {any} */ value) => typeof value !== 'string' && !(Array.isArray(value) && value.length > 0)
  && 'a string or a non-empty array of messages, calls and outputs';
export const DECISION = {
  model: text, input, questions: array, safety_identifier: string, prompt_cache_key: string,
  prompt_cache_options: object, content_free: boolean,
};
export const SYSTEM_ONE = { model: text, state: present, questions: object, content_free: boolean };
/** The options of fitCalibration. */
export const FIT = { bias: boolean };
/** @param {Check} check @returns {Check} */
const emptyOr = check => value => !(Array.isArray(value) && value.length === 0) && check(value);
/** What Ollama's API has and models here do not. @param {string} expected @returns {Check} */
const none = expected => emptyOr(value => value !== '' && expected);
/** A time: seconds, or numbers with their units as Go writes them; negative: for ever. @type {Check} */
const duration = value => !Number.isFinite(value) && !/^-?((\d+(\.\d*)?(ns|us|ms|s|m|h))+|\d+)$/.test(String(value))
  && "a number of seconds, or a text such as '5m' or '1h30m'";
/** @type {Check} */
const ollamaFormat = value => value !== '' && value !== 'json' && object(value) && "'json' or a JSON Schema";
/** @param {any} message */
const isOllamaMessage = ({ content, thinking, tool_name, tool_call_id, tool_calls: calls, images }) =>
  [content, thinking, tool_name, tool_call_id].every(one => !string(one ?? '')) && !none('none')(images ?? [])
    && !array(calls ?? []) && (calls ?? []).every((/** @type {any} */ call) => !string(call?.function?.name));
/** Their roles are checked with those of chats. @type {Check} */
const ollamaMessages = value => !(Array.isArray(value) && value.every(one => !object(one) && isOllamaMessage(one)))
  && 'an array of {role, content, tool_calls?}, without images, because models read text only';
/** Options of Ollama that say how it should compute, which is not for a request to say here. */
const HARDWARE = Object.fromEntries(['num_ctx', 'num_keep', 'num_batch', 'num_gpu', 'main_gpu', 'low_vram', 'f16_kv',
  'vocab_only', 'use_mmap', 'use_mlock', 'num_thread', 'numa', 'penalize_newline', 'logits_all', 'embedding_only']
  .map(name => [name, () => false]));
/** The `options` of Ollama's requests. */
export const OLLAMA_OPTIONS = {
  ...parameters('field', ({ openai }) => openai), repeat_last_n: integerFrom(-1, 16777216),
  num_predict: integerFrom(-2, MAX_TOKENS), seed: integer, stop: emptyOr(stop),
  mirostat: oneOf(0), mirostat_tau: within(0, 100), mirostat_eta: within(0, 1), tfs_z: oneOf(1), ...HARDWARE,
};
const OLLAMA_ANY = { model: text, options: object, keep_alive: duration, stream: boolean };
const OLLAMA_ANSWER = {
  ...OLLAMA_ANY, format: ollamaFormat, think: oneOf(true, false, 'low', 'medium', 'high'),
  logprobs: boolean, top_logprobs: logprobs, truncate: boolean, shift: boolean,
};
export const OLLAMA_CHAT = { ...OLLAMA_ANSWER, messages: ollamaMessages, tools };
export const OLLAMA_GENERATE = {
  ...OLLAMA_ANSWER, prompt: string, system: string, raw: boolean,
  suffix: none('no suffix: models here only continue a text'), images: none('no images: models read text only'),
  template: none('no template: the one of the model is used'),
  context: none('no context: send the messages to /api/chat'),
};
export const OLLAMA_EMBED = {
  ...OLLAMA_ANY, input: embeddingInput, truncate: boolean, dimensions: count,
};
export const OLLAMA_EMBEDDINGS = { ...OLLAMA_ANY, prompt: string };
export const OLLAMA_PULL = { model: text, name: text, stream: boolean, insecure: oneOf(false) };
export const OLLAMA_SHOW = {
  model: text, name: text, verbose: boolean, system: string, template: string, options: object,
};
/** Texts of a request, as they are or as {text}. @type {Check} */
const documents = value => !(Array.isArray(value) && value.every(one => typeof (one?.text ?? one) === 'string'))
  && 'an array of strings, or of {text}';
export const RERANK = {
  model: text, query: string, documents, top_n: count, return_documents: boolean, user: string,
};
export const CLIENT = { models: object, otherModels: boolean, load: object, memory: count };
export const HANDLER = {
  ...CLIENT, idle: within(0, Infinity), pull: boolean, parallel: integerFrom(1, 16), queue: maximum, maxBody: count,
  stalled: within(0, 86400), only: oneOf('embeddings'),
};
/** The bodies of requests for tokens and for their text. */
export const TOKENIZE_REQUEST = {
  model: text, content: string, prompt: string, messages: array, add_special: boolean, parse_special: boolean,
  with_pieces: boolean,
};
export const DETOKENIZE_REQUEST = { model: text, tokens };
export const TOKENIZE = { addSpecial: boolean, parseSpecial: boolean };
export const DETOKENIZE = { special: boolean };
export const EMBED = {
  pooling: oneOf('mean', 'cls', 'last', 'none'), dimensions: count, normalize: boolean, prefix: string,
  truncate: boolean, parseSpecial: boolean, signal, onProgress: callback,
};
const { normalize: ____, ...INPUT } = EMBED;
export const RANK = { ...INPUT, pooling: EMBEDDING.pooling, queryPrefix: string };
/** The options of feed and rewind. */
export const FEED = { signal };
export const OPEN = { contextLength };
/** The options of applyChatTemplate and tokenizeChat. */
export const TEMPLATE = { template };
/** The argument of model.rewind. */
export const POSITION = { position: maximum };
export const COMMAND = { files, signal, onError: callback, onProgress: callback, workerUrl: address };
export const TRACE = { taps: text, layers, values, onTap: callback, signal, parseSpecial: boolean, template };

/** Throws unless every option is known and valid.  An option that is undefined counts as absent.
 * @param {string} where  the function's name, for the message
 * @param {unknown} options
 * @param {Record<string, Check>} table */
export function checkOptions(where, options, table) {
  if (options === undefined) return;
  if (object(options)) throw argumentError(`${where}: the options are ${shown(options)}, expected an object`);
  for (const [name, value] of Object.entries(/** @type {object} */ (options))) {
    if (!Object.hasOwn(table, name)) {
      throw argumentError(`${where}: unknown option "${name}"; the known options are ${Object.keys(table).join(', ')}`);
    }
    const expected = value !== undefined && table[name](value);
    if (expected) throw argumentError(`${where}: ${name} is ${shown(value)}, expected ${expected}`);
  }
}

/** The roles that a message of a chat may have.  'developer' is another name for 'system'. */
export const ROLES = /** @type {const} */ (['system', 'developer', 'user', 'assistant', 'tool']);

/** Parts that no model of plumb takes, even if its template has a place for them. */
const MEDIA = /image|audio|video|file/i;

/** Whether a part of a content is a text. @param {any} part */
export const isTextPart = part => part?.type === 'text' && typeof part.text === 'string';

/** Throws unless a part of a content is a text, or of another type that the template knows, such as 'thinking'.
 * @param {string} where @param {any} part @param {string} template  its source */
export function checkPart(where, part, template) {
  const { type } = Object(part);
  const isKnown = typeof type === 'string' && type !== 'text' && !MEDIA.test(type)
    && [`'${type}'`, `"${type}"`].some(text => template.includes(text));
  if (isTextPart(part) || isKnown) return;
  throw argumentError(type === 'text' ? `${where}.text is ${shown(part.text)}, expected a string`
    : `${where} has type ${shown(type)}, expected "text"; models read text only`);
}

/** Throws unless `messages` is an array of chat messages that a template can read.
 * @param {string} where  the function's name, for the message @param {any} messages
 * @param {unknown} template  its source, if there is one */
export function checkMessages(where, messages, template) {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw argumentError(`${where}: expected messages, a non-empty array of {role, content}`);
  }
  for (const [i, message] of messages.entries()) {
    const place = `${where}: messages[${i}]`;
    if (object(message)) throw argumentError(`${place} is ${shown(message)}, expected {role, content}`);
    checkRole(place, message.role);
    const { content, tool_calls: calls } = message;
    const isReadable = typeof content === 'string' || Array.isArray(content) || (content ?? null) === null
      && Array.isArray(calls);
    if (!isReadable) {
      throw argumentError(`${place}.content is ${shown(content)}, expected a string, an array of parts, or null `
        + 'in a message with tool_calls');
    }
    if (!Array.isArray(content)) continue;
    for (const [k, part] of content.entries()) checkPart(`${place}.content[${k}]`, part, String(template ?? ''));
  }
}

/** How deep messages, tools and variables of a template may nest. */
const MAX_NESTING = 60;

/** Refuses values that are nested too deep for recursive functions, and values that contain themselves.
 * @param {string} where  the function's name, for the message
 * @param {unknown} value  messages, tools, variables of a template */
export function checkNesting(where, value) {
  let level = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_NESTING) {
      throw argumentError(`${where}: an argument is nested more than ${MAX_NESTING} levels deep`);
    }
    level = level.flatMap(one => typeof one === 'object' && one !== null ? Object.values(one) : []);
  }
}

/** Throws unless `questions` is an object of questions that can be decided.
 * @param {string} where  the function's name, for the message @param {any} questions */
export function checkQuestions(where, questions) {
  const all = object(questions) || Array.isArray(questions) ? [] : Object.entries(questions);
  if (all.length === 0 || all.length > MAX_QUESTIONS) {
    throw argumentError(`${where}: the questions are ${all.length ? `${all.length} questions` : shown(questions)}, `
      + `expected an object of 1 to ${MAX_QUESTIONS} questions by their names`);
  }
  for (const [name, question] of all) checkQuestion(`${where}: question ${JSON.stringify(name)}`, question);
}

/** @param {string} where @param {any} question */
export function checkQuestion(where, question) {
  const type = QUESTION.type(Object(question).type);
  if (type) throw argumentError(`${where}: type is ${shown(Object(question).type)}, expected ${type}`);
  checkOptions(where, question, QUESTIONS[/** @type {keyof typeof QUESTIONS} */ (question.type)]);
  const { choices, levels, min, max, criteria, calibration } = question;
  if (question.type === 'choice' && choices === undefined) throw argumentError(`${where}: choices are missing`);
  if (question.type === 'score' && (levels === undefined) === (min === undefined || max === undefined)) {
    throw argumentError(`${where}: expected either levels, or min and max`);
  }
  if (levels !== undefined && (min ?? max) !== undefined) {
    throw argumentError(`${where}: levels and ${min === undefined ? 'max' : 'min'} exclude each other`);
  }
  if (min !== undefined && !(max > min && max - min < MAX_LABELS)) {
    throw argumentError(`${where}: from ${min} to ${max} there are not 2 to ${MAX_LABELS} integers`);
  }
  checkOptions(`${where}: criteria`, criteria, CRITERIA);
  checkCalibration(`${where}: calibration`, calibration);
}

/** @param {string} where @param {any} calibration */
function checkCalibration(where, calibration) {
  checkOptions(where, calibration, CALIBRATION);
  for (const [label, bias] of Object.entries(calibration?.bias ?? {})) {
    if (!Number.isFinite(bias)) {
      throw argumentError(`${where}: the bias of ${JSON.stringify(label)} is ${shown(bias)}, expected a finite number`);
    }
  }
}

/** @param {string} where @param {any} role */
export function checkRole(where, role) {
  if (ROLES.includes(role)) return;
  throw argumentError(`${where}.role is ${shown(role)}, expected one of ${ROLES.map(shown).join(', ')}`);
}

/** The [token, bias] pairs of a logitBias option that was checked before.
 * @param {any} value @returns {[number, number][]} */
export const biasPairs = value => [...biasEntries(value ?? {})].map(([token, bias]) => [Number(token), Number(bias)]);

/** A value as messages show it. @param {unknown} value */
function shown(value) {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object';
  return typeof value === 'function' ? 'a function' : String(value);
}

/** @param {string} where @param {ArrayLike<number>} ids @returns {Int32Array} */
export function tokenIds(where, ids) {
  const numbers = Array.isArray(ids) || ArrayBuffer.isView(ids) ? ids : Array.from(ids ?? []);
  for (let i = 0; i < numbers.length; i++) {
    if (Number.isInteger(numbers[i]) && numbers[i] >= 0 && numbers[i] < 2 ** 31) continue;
    throw argumentError(`${where}: token ${i} is ${numbers[i]}, expected an integer from 0 to 2^31 - 1`);
  }
  return new Int32Array(numbers);
}
