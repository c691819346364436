/* OpenAI's Responses API with models on this machine: https://platform.openai.com/docs/api-reference/responses.  An
 * answer is one of chat.completions, in another shape.  Responses are kept in memory, so that a request can go on from
 * one of them. */
import { argumentError, PlumbError, reasonOf } from '../base/errors.js';
import { randomHex } from '../base/hex.js';
import { jsonPieces } from '../base/json.js';
import * as known from '../base/options.js';
import { firstThatFits } from '../answers/fitting.js';
import { closedError, givenOf } from './answering.js';
import { Completions, FITS } from './completions.js';
import { messagesOf } from './items.js';
import { eventsOf } from './response-events.js';
import { chatParameters, fromQuestion, instructed, questionsOf } from './response-input.js';

/** @typedef {import('./response-events.js').Response} Response
 * @typedef {import('./response-events.js').ResponseEvent} ResponseEvent
 * @typedef {import('./completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('./items.js').Item} Item */
/** @typedef {object} OwnParameters
 * @property {string} [model]  as in chat.completions.create
 * @property {string | Item[]} input  a question, or the items of a conversation: messages, calls and their results,
 *   reasoning
 * @property {string | null} [instructions]  a system message, of this response only
 * @property {import('./response-input.js').FlatTool[] | null} [tools]
 * @property {import('./response-input.js').FlatToolChoice | null} [tool_choice]
 * @property {boolean | null} [parallel_tool_calls]
 * @property {{format?: import('./response-input.js').TextFormat | null, verbosity?: 'medium' | null} | null} [text]
 * @property {number | null} [max_output_tokens]  default: generate until the context is full
 * @property {{effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | null, summary?: string | null} | null}
 *   [reasoning]
 * @property {string | null} [previous_response_id]  the conversation of that response comes before the input
 * @property {boolean | null} [store]  whether the response is kept, for previous_response_id; default true
 * @property {boolean | null} [stream]
 * @property {string[] | null} [include]  'message.output_text.logprobs': log-probabilities; others have no effect
 * @property {'disabled' | 'auto' | null} [truncation]  auto: the oldest turns are left out if they do not fit
 * @property {{[more: string]: any}} [more]  sampling, stop, seed, logit_bias, top_logprobs, reasoning_budget and
 *   chat_template_kwargs of chat.completions.create, and the fields of a service that have no effect
 * @typedef {OwnParameters & import('../base/parameters.js').CompletionSampling} ResponseParameters  null is the same as
 *   absent */

const WHERE = 'responses.create';
/** The most characters of all responses that are kept, each with its conversation. */
const MOST_KEPT = 2 ** 26;
/** What a response repeats of its request, and what it says if the request does not say it. */
const REPEATED = {
  instructions: null, tools: [], tool_choice: 'auto', parallel_tool_calls: true, text: { format: { type: 'text' } },
  max_output_tokens: null, temperature: null, top_p: null, top_logprobs: 0, reasoning: { effort: null, summary: null },
  previous_response_id: null, truncation: 'disabled', store: true, metadata: {}, user: undefined, background: false,
  safety_identifier: undefined, prompt_cache_key: undefined, service_tier: 'default',
};

export class Responses {
  #completions;
  /** Responses by their ids, each with its whole conversation, the least recently used first.
   * @type {Map<string, {response: Response, items: Item[], length: number}>} */
  #kept = new Map();
  #length = 0;
  #most;

  /** @param {import('./answering.js').Hold} hold  as for Completions
   * @param {number} [most]  characters of the responses that are kept */
  constructor(hold, most = MOST_KEPT) {
    this.#completions = new Completions(hold);
    this.#most = most;
  }

  /** Answers.
   * @param {ResponseParameters} params
   * @param {{signal?: AbortSignal}} [options]  signal: makes the call reject with its reason, or ends the stream
   * @returns {Promise<Response | AsyncGenerator<ResponseEvent, void, void>>}  the events, if `stream` is true.  Their
   *   loop must be entered, and ends the answer when it is left */
  async create(params, options = {}) {
    known.checkOptions(WHERE, options, known.FEED);
    const given = givenOf(WHERE, params, known.RESPONSE, '{input, ...}');
    const { input, previous_response_id: previous, instructions, store = true, stream = false, truncation } = given;
    if (input === undefined) throw argumentError(`${WHERE}: input is missing`);
    const question = typeof input === 'string' ? [{ role: 'user', content: input }]
      : input.map((item, i) => item?.type === 'item_reference' ? this.#item(item, i) : item);
    const items = [...previous === undefined ? [] : this.#conversation(previous), ...question];
    const messages = instructed(instructions, messagesOf(WHERE, items));
    const chunks = await this.#begin({ ...chatParameters(given), messages }, options.signal, truncation === 'auto');
    const { value: first } = await chunks.next();
    const head = /** @type {import('./completions.js').ChatCompletionChunk} */ (first);
    const repeated = Object.fromEntries(Object.entries(REPEATED).map(([name, standard]) =>
      [name, /** @type {Record<string, unknown>} */ (given)[name] ?? standard]));
    /** @type {Response} */
    const response = {
      id: `resp_${randomHex(24)}`, object: 'response', created_at: head.created, status: 'in_progress', error: null,
      incomplete_details: null, model: head.model, output: [], usage: null, ...repeated,
    };
    const ended = async (/** @type {Response} */ whole) => {
      if (store) await this.#keep(whole, [...items, ...whole.output]);
    };
    if (stream) return streamOf(chunks, response, ended, options.signal);
    let last = response;
    for await (const event of eventsOf(chunks, response)) last = event.response ?? last;
    if (last.status === 'in_progress') throw options.signal?.reason ?? closedError();
    await ended(last);
    return last;
  }

  /** A response that was kept. @param {string} id @returns {Response | undefined} */
  retrieve(id) { return this.#kept.get(id)?.response; }

  /** Forgets a response. @param {string} id  @returns {boolean}  false if there is none */
  delete(id) {
    this.#length -= this.#kept.get(id)?.length ?? 0;
    return this.#kept.delete(id);
  }

  /** @param {Response} response @param {Item[]} items */
  async #keep(response, items) {
    let length = 0;
    for await (const piece of jsonPieces([response, items])) length += piece.length;
    this.#kept.set(response.id, { response, items, length });
    this.#length += length;
    for (const id of this.#kept.keys()) {
      if (this.#length <= this.#most) return;
      this.delete(id);
    }
  }

  /** @param {string} id @returns {Item[]} */
  #conversation(id) {
    const kept = this.#kept.get(id);
    if (!kept) {
      throw argumentError(`${WHERE}: previous_response_id: there is no response ${JSON.stringify(id)}: it has store: `
        + 'false, or was forgotten, because responses are kept in memory only; send its items in input');
    }
    this.#kept.delete(id);
    this.#kept.set(id, kept);   // as the most recently used
    return kept.items;
  }

  /** The item of a response that an input refers to. @param {Item} reference @param {number} i */
  #item({ id }, i) {
    for (const { response: { output } } of this.#kept.values()) {
      const found = output.find(item => item.id === id);
      if (found) return found;
    }
    throw argumentError(`${WHERE}: input[${i}]: no response that is kept has an item ${JSON.stringify(id)}`);
  }

  /** Begins the answer, whose chunks must be read to their end, or ended by return().
   * @param {import('./completions.js').CompletionParameters} params @param {AbortSignal | undefined} signal
   * @param {boolean} truncates  leave out the oldest turns if they do not fit */
  async #begin(params, signal, truncates) {
    const given = { ...params, stream: /** @type {const} */ (true), stream_options: { include_usage: true } };
    const begin = async (/** @type {CompletionMessage[]} */ messages) =>
      (await this.#completions.create({ ...given, messages }, { signal }))[Symbol.asyncIterator]();
    const { messages } = params, [, ...later] = questionsOf(messages);
    try {
      return await begin(messages);
    } catch (error) {
      const isLong = error instanceof PlumbError && error.code === 'PLUMB_ERROR_CONTEXT';
      if (!truncates || !isLong || later.length === 0) throw error;
    }
    const question = await firstThatFits(later, one =>
      this.#completions[FITS]({ ...given, messages: fromQuestion(messages, one) }, signal), signal);
    signal?.throwIfAborted();
    return begin(fromQuestion(messages, /** @type {number} */ (question)));
  }
}

/** Events, of which the last one says what went wrong, if something did.
 * @param {AsyncIterable<import('./completions.js').ChatCompletionChunk>} chunks @param {Response} response
 * @param {(whole: Response) => Promise<void>} ended @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<ResponseEvent, void, void>} */
async function* streamOf(chunks, response, ended, signal) {
  let events = 0, status = response.status;
  /** @type {unknown} */
  let failure;
  try {
    for await (const event of eventsOf(chunks, response)) {
      events++;
      status = event.response?.status ?? status;
      if (status !== 'in_progress') await ended(event.response);
      yield event;
    }
    if (status === 'in_progress') failure = closedError();
  } catch (error) {
    failure = error;
  } finally {   // the first events come before the first chunk is read
    await chunks[Symbol.asyncIterator]().return?.();
  }
  if (failure === undefined || signal?.aborted) return;
  const message = reasonOf(failure);
  yield { type: 'response.failed', sequence_number: events,
    response: { ...response, status: 'failed', error: { code: 'server_error', message } } };
}
