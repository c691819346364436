/* OpenAI's chat completions with a model on this machine: the parameters, results and chunks of
 * https://platform.openai.com/docs/api-reference/chat that make sense here.  An unknown parameter is an error; it is
 * never ignored. */
import { argumentError, PlumbError } from '../base/errors.js';
import { randomHex } from '../base/hex.js';
import { onAbort } from '../base/async.js';
import * as known from '../base/options.js';
import { PARAMETERS } from '../base/parameters.js';
import { checkStrict, jsonSchemaOf, plainTools } from '../answers/constraint.js';
import { beginAnswer } from '../answers/generate.js';
import { chosenTools } from '../answers/tool-choice.js';

/** The same version as in package.json. */
export const VERSION = '0.1.0';

/** @typedef {import('../answers/messages.js').ChatModel} ChatModel
 * @typedef {import('../answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../answers/messages.js').Tool} Tool
 * @typedef {import('../answers/messages.js').ToolCall} ToolCall
 * @typedef {import('../engine/engine.js').GeneratedToken} GeneratedToken */
/** @typedef {string | {type: 'text', text: string}[] | null} MessageContent  parts are joined with newlines; null: no
 *   content, beside tool_calls
 * @typedef {{role: 'system' | 'developer' | 'user' | 'assistant' | 'tool', content?: MessageContent,
 *   tool_calls?: ToolCall[], [more: string]: any}} CompletionMessage  developer: the same as system; tool: the result
 *   of a tool, with tool_call_id */
/** @typedef {object} OwnParameters
 * @property {string} [model]  with the client of plumb-llm/openai, one of its models, a URL or a path; otherwise any
 *   name, which the result repeats
 * @property {CompletionMessage[]} messages
 * @property {boolean | null} [stream]  return a Stream of chunks
 * @property {{include_usage?: boolean} | null} [stream_options]  include_usage: add a last chunk with usage and without
 *   choices
 * @property {number | null} [max_completion_tokens]  default: generate until the context is full
 * @property {number | null} [max_tokens]  the old name of max_completion_tokens
 * @property {Record<string, number> | null} [logit_bias]  -100 to 100 for each token id
 * @property {string | string[] | null} [stop]  any number of texts; the answer ends before the first of them
 * @property {number | null} [seed]  any integer, taken modulo 2^64; the same seed gives the same answer; default: a
 *   random one
 * @property {boolean | null} [logprobs]  return the log-probability of every token
 * @property {number | null} [top_logprobs]  0 to 20: also return this many of the likeliest tokens; only with logprobs
 * @property {Tool[] | null} [tools]  tools that are described to the model: by its chat template, or by a system
 *   message if the template does not support tools
 * @property {import('../answers/tool-choice.js').ToolChoice | null} [tool_choice]  none: the model is not told about
 *   the tools; required: the answer is calls, after reasoning; a tool by its name: calls of it; default auto.  Calls
 *   fit the tools' schemas
 * @property {boolean | null} [parallel_tool_calls]  false: the answer ends with its first call; default true
 * @property {'none' | 'minimal' | 'low' | 'medium' | 'high' | null} [reasoning_effort]  a variable of templates that
 *   have it; none: enable_thinking is false
 * @property {number | null} [reasoning_budget]  how many tokens of reasoning there may be, before the tag that ends it
 *   is fed; default: any number
 * @property {import('../answers/messages.js').TemplateOptions | null} [chat_template_kwargs]  variables of the
 *   template, such as {enable_thinking: false}
 * @property {ResponseFormat | null} [response_format]  json_object: the answer is a JSON object; json_schema: a
 *   value of the schema.  A keyword that cannot be kept is an error
 * @property {1 | null} [n]
 * @typedef {OwnParameters & import('../base/parameters.js').CompletionSampling} CompletionParameters  null is the same
 *   as absent; the defaults are those of model.generate */
/** @typedef {{type: 'text'} | {type: 'json_object'} | {type: 'json_schema', json_schema: {name: string,
 *   schema: Record<string, unknown>, strict?: boolean | null, description?: string}}} ResponseFormat  strict: true asks
 *   as OpenAI's service does that every object has additionalProperties: false and requires all properties */
/** @typedef {{token: string, bytes: number[], logprob: number}} TopLogprob
 * @typedef {TopLogprob & {top_logprobs: TopLogprob[]}} TokenLogprob
 * @typedef {{content: TokenLogprob[], refusal: null}} Logprobs  content: one for each of usage.completion_tokens
 * @typedef {'stop' | 'length' | 'tool_calls'} FinishReason
 * @typedef {{prompt_tokens: number, completion_tokens: number, total_tokens: number,
 *   prompt_tokens_details: {cached_tokens: number}}} Usage  cached_tokens: prompt tokens that were still in the session
 * @typedef {{role: 'assistant', content: string | null, refusal: null, reasoning_content?: string,
 *   tool_calls?: ToolCall[]}} AnswerMessage  reasoning_content: what the model thought before it answered */
/** @typedef {object} ChatCompletion
 * @property {string} id
 * @property {'chat.completion'} object
 * @property {number} created  seconds since 1970
 * @property {string} model
 * @property {string} system_fingerprint  the engine's version and module
 * @property {{index: number, message: AnswerMessage, logprobs: Logprobs | null, finish_reason: FinishReason}[]} choices
 * @property {Usage} usage */
/** @typedef {{index: number, id?: string, type?: 'function', function: {name?: string, arguments: string}}}
 *   ToolCallDelta
 *   the first of a call has its id, type and name; the arguments come in pieces
 * @typedef {{role?: 'assistant', content?: string, refusal?: null, reasoning_content?: string,
 *   tool_calls?: ToolCallDelta[]}} Delta */
/** @typedef {object} ChatCompletionChunk  the first has the role, the last the finish_reason
 * @property {string} id
 * @property {'chat.completion.chunk'} object
 * @property {number} created
 * @property {string} model
 * @property {string} system_fingerprint
 * @property {{index: number, delta: Delta, logprobs: Logprobs | null, finish_reason: FinishReason | null}[]} choices
 * @property {Usage | null} [usage]  with include_usage: null in all chunks but the last */

/** plumb's names of the parameters that are passed on unchanged. */
const OPTIONS = {
  ...Object.fromEntries(PARAMETERS.map(({ field, name }) => [field, name])),
  logit_bias: 'logitBias', stop: 'stop', max_tokens: 'maxTokens', max_completion_tokens: 'maxTokens',
  reasoning_budget: 'reasoningBudget',
};
const utf8 = new TextEncoder();

/** The chunks of an answer, which can be read once.  Leaving the loop ends the answer.  So does controller.abort(),
 * without an error.
 * @implements {AsyncIterable<ChatCompletionChunk>} */
export class Stream {
  #chunks;

  /** @param {ChatCompletionChunk} first @param {AsyncGenerator<ChatCompletionChunk, void, void>} rest
   * @param {AbortController} controller */
  constructor(first, rest, controller) {
    /** Its abort() ends the answer. */
    this.controller = controller;
    controller.signal.addEventListener('abort', () => rest.return());
    this.#chunks = (async function* () {
      try {
        yield first;
        yield* rest;
      } finally {
        controller.abort();
      }
    })();
  }

  [Symbol.asyncIterator]() { return this.#chunks; }
}

/** `model.chat.completions`, and `chat.completions` of the client of plumb-llm/openai. */
export class Completions {
  #open;

  /** @param {(name?: string, signal?: AbortSignal) => Promise<{model: ChatModel, entered: () => void}>} open  returns
   *   the model to ask; entered is to be called when all requests of the answer are queued there, or when one failed */
  constructor(open) {
    this.#open = open;
  }

  /** @overload
   * @param {CompletionParameters & {stream: true}} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Stream>} */
  /** @overload
   * @param {CompletionParameters & {stream?: false | null}} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<ChatCompletion>} */
  /** @overload
   * @param {CompletionParameters} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<ChatCompletion | Stream>} */
  /** Answers a chat.
   * @param {CompletionParameters} params
   * @param {{signal?: AbortSignal}} [options]  signal: makes the call reject with its reason, or ends the stream
   * @returns {Promise<ChatCompletion | Stream>}  a Stream whose first chunk is ready, if `stream` is true.  Rejects
   *   with a PlumbError: PLUMB_ERROR_ARGUMENT for wrong parameters, PLUMB_ERROR_CONTEXT, PLUMB_ERROR_TEMPLATE */
  async create(params, options = {}) {
    known.checkOptions('chat.completions.create', options, known.FEED);
    const request = checked(params);
    const { signal } = options;
    signal?.throwIfAborted();
    const { model, entered } = await this.#open(request.model, signal);
    const controller = new AbortController();
    const unfollow = onAbort(signal, reason => controller.abort(reason));   // perhaps while the model was loading
    try {
      const begun = await begin(model, request, controller.signal).finally(entered);
      if (!request.stream) return await wholeOf(begun, request, signal).finally(unfollow);
      const chunks = chunksOf(begun, request, unfollow), { value } = await chunks.next();
      return new Stream(/** @type {ChatCompletionChunk} */ (value), chunks, controller);
    } catch (error) {
      unfollow();
      throw error;
    }
  }
}

/** Checks the parameters of create and converts them to plumb's options. @param {CompletionParameters} params */
function checked(params) {
  const where = 'chat.completions.create';
  if (typeof params !== 'object' || params === null) throw argumentError(`${where}: expected {messages, ...}`);
  const given = /** @type {{[K in keyof CompletionParameters]: NonNullable<CompletionParameters[K]>}} */ (
    Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null && value !== undefined)));
  known.checkOptions(where, given, known.COMPLETION);
  const { model, messages, stream = false, stream_options, logprobs = false, top_logprobs, tools, tool_choice } = given;
  const { reasoning_effort: effort, chat_template_kwargs: kwargs } = given;
  if (stream_options && !stream) throw argumentError(`${where}: stream_options is only allowed with stream: true`);
  if (top_logprobs !== undefined && !logprobs) {
    throw argumentError(`${where}: top_logprobs is only allowed with logprobs: true`);
  }
  if (given.max_tokens !== undefined && given.max_completion_tokens !== undefined) {
    throw argumentError(`${where}: give either max_tokens or max_completion_tokens, not both`);
  }
  if (!messages?.length) throw argumentError(`${where}: messages is ${messages ? 'empty' : 'missing'}`);
  const options = Object.entries(OPTIONS).filter(([name]) => name in given)
    .map(([name, ownName]) => [ownName, given[/** @type {keyof CompletionParameters} */ (name)]]);
  const seed = given.seed === undefined ? {} : { seed: BigInt.asUintN(64, BigInt(given.seed)) };
  return {
    model, stream, logprobs: logprobs ? { logprobs: top_logprobs ?? 0 } : undefined,
    usage: stream_options?.include_usage ?? !stream,
    messages: messages.map((message, i) => plain(message, `${where}: messages[${i}]`)),
    about: {
      ...chosenTools(where, tools && plainTools(where, tools), tool_choice),
      parallel: given.parallel_tool_calls ?? true,
    },
    variables: {
      ...effort === 'none' ? { enable_thinking: false } : effort && { reasoning_effort: effort }, ...kwargs,
    },
    options: /** @type {GenerateOptions} */ ({
      ...Object.fromEntries(options), ...seed, ...constraintFor(where, given.response_format),
    }),
  };
}

/** The options of an answer in a format. @param {string} where @param {ResponseFormat} [format]
 * @returns {import('../answers/constraint.js').Constraint} */
function constraintFor(where, format) {
  if (format?.type === 'json_object') return { json: true };
  if (format?.type !== 'json_schema') return {};
  const { schema: given, strict } = format.json_schema;
  const place = `${where}: response_format.json_schema.schema`, schema = jsonSchemaOf(place, given);
  if (strict) checkStrict(place, schema);
  return { schema: /** @type {object} */ (schema) };
}

/** Converts a message's content to a string, if it is text. @param {CompletionMessage} message @param {string} where */
function plain(message, where) {
  known.checkRole(where, message?.role);
  const role = message.role === 'developer' ? 'system' : message.role;
  const content = message.content ?? '';
  if (typeof content === 'string') return { ...message, role, content };
  if (!Array.isArray(content)) throw argumentError(`${where}.content is neither a string nor an array of parts`);
  if (content.every(known.isTextPart)) {
    return { ...message, role, content: content.map(({ text }) => /** @type {string} */ (text)).join('\n') };
  }
  // The model refuses parts that its template does not know.
  for (const [i, part] of content.entries()) known.checkPart(`${where}.content[${i}]`, part, `'${Object(part).type}'`);
  return { ...message, role, content };
}

/** Asks the model, and waits for the first part of the answer.
 * @param {ChatModel} model @param {ReturnType<typeof checked>} request @param {AbortSignal} signal */
async function begin(model, { about, logprobs, variables, messages, options, model: name }, signal) {
  const ids = await model.tokenizeChat(messages, { ...variables, ...about.tools && { tools: about.tools } });
  const head = {
    id: `chatcmpl-${randomHex(12)}`, object: /** @type {const} */ ('chat.completion'),
    created: Math.floor(Date.now() / 1000), model: name ?? String(model.metadata['general.name'] ?? 'plumb'),
    system_fingerprint: `plumb-${VERSION}-${(await model.info()).module}`,
  };
  const queue = new TokenQueue();
  const { reader, deltas } = await beginAnswer(model, ids, about, {
    ...options, signal, ...logprobs && { ...logprobs, onToken: token => queue.push(token) },
  });
  return { head, queue, reader, deltas, first: await deltas.next() };
}

/** @param {import('../engine/generation.js').Stats} stats @param {import('../answers/answer.js').Answer} message */
const reasonFor = ({ finishReason }, { tool_calls: calls }) => /** @type {FinishReason} */ (
  calls && finishReason === 'stop' ? 'tool_calls' : finishReason);

/** Yields the chunks of an answer.  There is no finish_reason if the signal or closing the model ended the answer.
 * @param {Awaited<ReturnType<typeof begin>>} begun @param {ReturnType<typeof checked>} request
 * @param {() => void} ended
 * @returns {AsyncGenerator<ChatCompletionChunk, void, void>} */
async function* chunksOf({ head, queue, reader, deltas, first }, { usage: hasUsage, logprobs: wanted }, ended) {
  const about = { ...head, object: /** @type {const} */ ('chat.completion.chunk') };
  const usage = hasUsage ? { usage: null } : {};
  /** @param {Delta} delta @param {FinishReason | null} [finish_reason] @param {Logprobs | null} [logprobs]
   * @returns {ChatCompletionChunk} */
  const chunk = (delta, finish_reason = null, logprobs = null) =>
    ({ ...about, choices: [{ index: 0, delta, logprobs, finish_reason }], ...usage });
  try {
    yield chunk({ role: 'assistant', content: '', refusal: null });
    let step = first;
    for (; !step.done; step = await deltas.next()) {
      const { content, reasoning, call } = step.value;
      if (content !== undefined) yield chunk({ content }, null, wanted && queue.within(content));
      else if (reasoning !== undefined) yield chunk({ reasoning_content: reasoning });
      else if (call) yield chunk({ tool_calls: [toolCallDelta(call)] });
    }
    const stats = step.value;
    if (stats.finishReason === 'abort') return;
    yield chunk({}, reasonFor(stats, reader.message), wanted && queue.upTo(stats.tokens));
    if (hasUsage) yield { ...about, choices: [], usage: usageOf(stats) };
  } finally {
    await deltas.return(/** @type {any} */ (undefined));
    ended();
  }
}

/** The whole answer.  Throws if the signal or closing the model ended it.
 * @param {Awaited<ReturnType<typeof begin>>} begun @param {ReturnType<typeof checked>} request
 * @param {AbortSignal} [signal] @returns {Promise<ChatCompletion>} */
async function wholeOf({ head, queue, reader, deltas, first: step }, { logprobs: wanted }, signal) {
  while (!step.done) step = await deltas.next();
  const stats = step.value, { content, ...others } = reader.message;
  if (stats.finishReason === 'abort') {
    throw signal?.reason ?? new PlumbError('PLUMB_ERROR_STATE', 'the model was closed');
  }
  /** @type {AnswerMessage} */
  const message = {
    role: 'assistant', content: content === '' && others.tool_calls ? null : content, refusal: null, ...others,
  };
  const logprobs = wanted ? { content: queue.upTo(stats.tokens)?.content ?? [], refusal: null } : null;
  const choices = [{ index: 0, message, logprobs, finish_reason: reasonFor(stats, reader.message) }];
  return { ...head, choices, usage: usageOf(stats) };
}

/** @param {NonNullable<import('../answers/answer.js').AnswerDelta['call']>} call @returns {ToolCallDelta} */
const toolCallDelta = ({ index, id, name, arguments: args }) => id === undefined
  ? { index, function: { arguments: args } } : { index, id, type: 'function', function: { name, arguments: args } };

/** Tokens that wait for the chunk that holds their text. */
class TokenQueue {
  /** @type {GeneratedToken[]} */
  #tokens = [];
  #returned = 0;
  /** Bytes of text that was yielded, less the bytes of the tokens that were returned. */
  #ahead = 0;

  /** @param {GeneratedToken} token */
  push(token) { this.#tokens.push(token); }

  /** Returns the tokens whose text is complete with this content.  U+FFFD, which replaces an incomplete character,
   * counts as one byte, which is at most what it replaces.  So no token comes too early, in particular not the one that
   * ended the turn.
   * @param {string} content @returns {Logprobs | null} */
  within(content) {
    this.#ahead += utf8.encode(content.replaceAll('\uFFFD', '?')).length;
    let n = this.#returned;
    for (; n < this.#tokens.length && this.#tokens[n].bytes.length <= this.#ahead; n++) {
      this.#ahead -= this.#tokens[n].bytes.length;
    }
    return this.upTo(n);
  }

  /** Returns the first n tokens, without those returned before. @param {number} n @returns {Logprobs | null} */
  upTo(n) {
    const content = this.#tokens.slice(this.#returned, n).map(({ top, ...token }) =>
      ({ ...named(token), top_logprobs: top.map(named) }));
    this.#returned = n;
    return content.length > 0 ? { content, refusal: null } : null;
  }
}

/** @param {{piece: string, bytes: number[], logprob: number}} token @returns {TopLogprob} */
const named = ({ piece, bytes, logprob }) => ({ token: piece, bytes, logprob });

/** @param {import('../engine/generation.js').Stats} stats @returns {Usage} */
const usageOf = ({ promptTokens, reusedTokens, tokens }) => ({
  prompt_tokens: promptTokens, completion_tokens: tokens, total_tokens: promptTokens + tokens,
  prompt_tokens_details: { cached_tokens: reusedTokens },
});
