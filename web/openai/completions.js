/* OpenAI's chat completions with a model on this machine: the parameters, results and chunks of
 * https://platform.openai.com/docs/api-reference/chat that make sense here.  An unknown parameter is an error; it is
 * never ignored. */
import { merged, onAbort } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import { randomHex } from '../base/hex.js';
import * as known from '../base/options.js';
import { checkStrict, jsonSchemaOf, plainTools } from '../answers/constraint.js';
import { beginAnswer } from '../answers/generate.js';
import { chosenTools } from '../answers/tool-choice.js';
import {
  beginChoices, checkEnded, givenOf, headOf, optionsOf, statsOf, Stream, TokenQueue, usageOf,
} from './answering.js';

/** @typedef {import('../answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../answers/messages.js').Tool} Tool
 * @typedef {import('../answers/messages.js').ToolCall} ToolCall
 * @typedef {import('../answers/answer.js').AnswerDelta} AnswerDelta
 * @typedef {import('../engine/engine.js').GeneratedToken} GeneratedToken
 * @typedef {import('./answering.js').AnsweringModel} AnsweringModel
 * @typedef {import('./answering.js').Usage} Usage */
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
 * @property {boolean | 'content' | 'reasoning_content' | null} [continue_final_message]  the answer goes on with the
 *   last message, which is the assistant's: with its content, or with its reasoning if it has no content; the result
 *   has only what is new.  It is the default if that message has no calls; false: a new message
 * @property {boolean | null} [add_generation_prompt]  whether the prompt opens the assistant's message; default: unless
 *   the last message is continued
 * @property {ResponseFormat | null} [response_format]  json_object: the answer is a JSON object; json_schema: a
 *   value of the schema.  A keyword that cannot be kept is an error
 * @property {number | null} [n]  how many answers, 1 to 8; default 1.  With a seed, that of each is one more
 * @property {string | null} [user]  has no effect here, nor have metadata, store and the other fields of a service
 * @typedef {OwnParameters & import('../base/parameters.js').CompletionSampling} CompletionParameters  null is the same
 *   as absent; the defaults are those of model.generate */
/** @typedef {{type: 'text'} | {type: 'json_object'} | {type: 'json_schema', json_schema: {name: string,
 *   schema: Record<string, unknown>, strict?: boolean | null, description?: string}}} ResponseFormat  strict: true asks
 *   as OpenAI's service does that every object has additionalProperties: false and requires all properties */
/** @typedef {{token: string, bytes: number[], logprob: number}} TopLogprob
 * @typedef {TopLogprob & {top_logprobs: TopLogprob[]}} TokenLogprob
 * @typedef {{content: TokenLogprob[], refusal: null}} Logprobs  content: one for each of usage.completion_tokens
 * @typedef {'stop' | 'length' | 'tool_calls'} FinishReason
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

/** A method of Completions for responses. */
export const FITS = Symbol('fits');
/** Who asks, for messages. */
const WHERE = 'chat.completions.create';

/** `model.chat.completions`, and `chat.completions` of the client of plumb-llm/openai. */
export class Completions {
  #hold;

  /** @param {import('./answering.js').Hold} hold */
  constructor(hold) {
    this.#hold = hold;
  }

  /** @overload
   * @param {CompletionParameters & {stream: true}} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Stream<ChatCompletionChunk>>} */
  /** @overload
   * @param {CompletionParameters & {stream?: false | null}} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<ChatCompletion>} */
  /** @overload
   * @param {CompletionParameters} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<ChatCompletion | Stream<ChatCompletionChunk>>} */
  /** Answers a chat.
   * @param {CompletionParameters} params
   * @param {{signal?: AbortSignal}} [options]  signal: makes the call reject with its reason, or ends the stream
   * @returns {Promise<ChatCompletion | Stream<ChatCompletionChunk>>}  a Stream whose first chunk is ready, if `stream`
   *   is true.  Rejects with a PlumbError: PLUMB_ERROR_ARGUMENT for wrong parameters, PLUMB_ERROR_CONTEXT,
   *   PLUMB_ERROR_TEMPLATE */
  async create(params, options = {}) {
    known.checkOptions(WHERE, options, known.FEED);
    const request = checked(params);
    const { signal } = options;
    signal?.throwIfAborted();
    const { model, free } = await this.#hold(WHERE, request.model, signal);
    const controller = new AbortController();
    const unfollow = onAbort(signal, reason => controller.abort(reason));   // perhaps while the model was loading
    const ended = (/** @type {import('./answering.js').Choice<any>[]} */ choices) => {
      unfollow();
      free(statsOf(choices));
    };
    try {
      const begun = await begin(model, request, controller.signal);
      if (!request.stream) return await wholeOf(begun, request, signal).finally(() => ended(begun.choices));
      const chunks = chunksOf(begun, request, ended), { value } = await chunks.next();
      return new Stream(/** @type {ChatCompletionChunk} */ (value), chunks, controller);
    } catch (error) {
      ended([]);
      throw error;
    }
  }

  /** Whether the prompt of a request fits into the context. @param {CompletionParameters} params
   * @param {AbortSignal} [signal] */
  async [FITS](params, signal) {
    const request = checked(params), { model, free } = await this.#hold(WHERE, request.model, signal);
    try {
      const [ids, { contextLength }] = await Promise.all([promptOf(model, request), model.info()]);
      return ids.length <= contextLength;
    } finally {
      free();
    }
  }
}

/** Checks the parameters of create and converts them to plumb's options. @param {CompletionParameters} params */
function checked(params) {
  const where = WHERE, given = givenOf(where, params, known.COMPLETION, '{messages, ...}');
  const { model, messages, stream = false, stream_options, logprobs = false, top_logprobs, tools, tool_choice } = given;
  const { reasoning_effort: effort, chat_template_kwargs: kwargs, continue_final_message: continued } = given;
  const { add_generation_prompt: opens } = given;
  if (stream_options && !stream) throw argumentError(`${where}: stream_options is only allowed with stream: true`);
  if (top_logprobs !== undefined && !logprobs) {
    throw argumentError(`${where}: top_logprobs is only allowed with logprobs: true`);
  }
  if (given.max_tokens !== undefined && given.max_completion_tokens !== undefined) {
    throw argumentError(`${where}: give either max_tokens or max_completion_tokens, not both`);
  }
  if (!messages?.length) throw argumentError(`${where}: messages is ${messages ? 'empty' : 'missing'}`);
  return {
    model, stream, n: given.n ?? 1, logprobs: logprobs ? { logprobs: top_logprobs ?? 0 } : undefined,
    usage: stream_options?.include_usage ?? !stream,
    messages: messages.map((message, i) => plain(message, `${where}: messages[${i}]`)),
    about: {
      ...chosenTools(where, tools && plainTools(where, tools), tool_choice),
      parallel: given.parallel_tool_calls ?? true,
    },
    variables: {
      ...continued !== undefined && { continueFinalMessage: continued },
      ...opens !== undefined && { addGenerationPrompt: opens },
      ...effort === 'none' ? { enable_thinking: false } : effort && { reasoning_effort: effort }, ...kwargs,
    },
    options: { ...optionsOf(given), ...constraintFor(where, given.response_format) },
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

/** The tokens of the messages. @param {AnsweringModel} model @param {ReturnType<typeof checked>} request */
const promptOf = (model, { messages, variables, about: { tools } }) =>
  model.tokenizeChat(messages, { ...variables, ...tools && { tools } });

/** Asks the model, and waits for the first part of the first answer.
 * @param {AnsweringModel} model @param {ReturnType<typeof checked>} request @param {AbortSignal} signal */
async function begin(model, request, signal) {
  const { about, logprobs, model: name } = request;
  const head = await headOf(model, `chatcmpl-${randomHex(12)}`, /** @type {const} */ ('chat.completion'), name);
  const ids = await promptOf(model, request);
  /** The texts of the answers, and their tokens.
   * @type {{reader: import('../answers/answer.js').AnswerReader, queue: TokenQueue}[]} */
  const texts = [];
  const choices = await beginChoices(model, ids, request, signal, async (session, options, index) => {
    const queue = new TokenQueue();
    const { reader, deltas } = await beginAnswer(session, ids, about, {
      ...options, ...logprobs && { ...logprobs, onToken: (/** @type {GeneratedToken} */ token) => queue.push(token) },
    });
    texts[index] = { reader, queue };
    return { parts: deltas };
  });
  return { head, choices, texts };
}

/** @param {import('../engine/generation.js').Stats} stats @param {import('../answers/answer.js').Answer} message */
const reasonFor = ({ finishReason }, { tool_calls: calls }) => /** @type {FinishReason} */ (
  calls && finishReason === 'stop' ? 'tool_calls' : finishReason);

/** Yields the chunks of the answers.  An answer has no finish_reason if the signal or closing the model ended it.
 * @param {Awaited<ReturnType<typeof begin>>} begun @param {ReturnType<typeof checked>} request
 * @param {(choices: import('./answering.js').Choice<any>[]) => void} ended
 * @returns {AsyncGenerator<ChatCompletionChunk, void, void>} */
async function* chunksOf({ head, choices, texts }, { usage: hasUsage, logprobs: wanted }, ended) {
  const about = { ...head, object: /** @type {const} */ ('chat.completion.chunk') };
  const usage = hasUsage ? { usage: null } : {};
  /** @param {number} index @param {Delta} delta @param {Logprobs | null | false} [logprobs]
   * @param {FinishReason | null} [finish_reason] @returns {ChatCompletionChunk} */
  const chunk = (index, delta, logprobs, finish_reason = null) =>
    ({ ...about, choices: [{ index, delta, logprobs: logprobs || null, finish_reason }], ...usage });
  try {
    for (const { index } of choices) yield chunk(index, { role: 'assistant', content: '', refusal: null });
    for await (const [index, delta] of merged(choices.map(choice => choice.parts()))) {
      const { reader, queue } = texts[index], { stats } = choices[index];
      const logprobsOf = (/** @type {GeneratedToken[]} */ tokens) =>
        wanted && tokens.length > 0 && logprobsOfAll(tokens);
      if (!delta) {
        if (!stats || stats.finishReason === 'abort') return;
        yield chunk(index, {}, logprobsOf(queue.upTo(stats.tokens)), reasonFor(stats, reader.message));
      } else if (delta.content !== undefined) {
        yield chunk(index, { content: delta.content }, logprobsOf(queue.within(delta.content)));
      } else if (delta.reasoning !== undefined) yield chunk(index, { reasoning_content: delta.reasoning });
      else if (delta.call) yield chunk(index, { tool_calls: [toolCallDelta(delta.call)] });
    }
    if (hasUsage) yield { ...about, choices: [], usage: usageOf(choices) };
  } finally {
    await Promise.all(choices.map(choice => choice.end()));
    ended(choices);
  }
}

/** The whole answers.  Throws if the signal or closing the model ended one.
 * @param {Awaited<ReturnType<typeof begin>>} begun @param {ReturnType<typeof checked>} request
 * @param {AbortSignal} [signal] @returns {Promise<ChatCompletion>} */
async function wholeOf({ head, choices, texts }, { logprobs: wanted }, signal) {
  try {
    for await (const _ of merged(choices.map(choice => choice.parts())));
  } finally {
    await Promise.all(choices.map(choice => choice.end()));
  }
  checkEnded(choices, signal);
  const all = choices.map(({ stats: ended }, index) => {
    const stats = /** @type {import('../engine/generation.js').Stats} */ (ended);
    const { reader, queue } = texts[index], { content, ...others } = reader.message;
    /** @type {AnswerMessage} */
    const message = {
      role: 'assistant', content: content === '' && others.tool_calls ? null : content, refusal: null, ...others,
    };
    return {
      index, message, logprobs: wanted ? logprobsOfAll(queue.upTo(stats.tokens)) : null,
      finish_reason: reasonFor(stats, reader.message),
    };
  });
  return { ...head, choices: all, usage: usageOf(choices) };
}

/** @param {NonNullable<import('../answers/answer.js').AnswerDelta['call']>} call @returns {ToolCallDelta} */
const toolCallDelta = ({ index, id, name, arguments: args }) => id === undefined
  ? { index, function: { arguments: args } } : { index, id, type: 'function', function: { name, arguments: args } };

/** @param {{piece: string, bytes: number[], logprob: number}} token @returns {TopLogprob} */
const named = ({ piece, bytes, logprob }) => ({ token: piece, bytes, logprob });

/** @param {GeneratedToken[]} tokens @returns {Logprobs} */
const logprobsOfAll = tokens => ({
  content: tokens.map(({ top, ...token }) => ({ ...named(token), top_logprobs: top.map(named) })), refusal: null,
});
