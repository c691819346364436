/* The events of an answer in OpenAI's Responses API:
 * https://platform.openai.com/docs/api-reference/responses-streaming.
 * An answer is a list of items (reasoning, texts, calls), each of which comes in events of its own. */
import { randomHex } from '../base/hex.js';

/** @typedef {import('./completions.js').ChatCompletionChunk} ChatCompletionChunk
 * @typedef {import('./completions.js').TokenLogprob} TokenLogprob
 * @typedef {import('./items.js').Item} Item */
/** @typedef {{kind: keyof typeof KINDS, id: string, fields: object, text: string, logprobs: TokenLogprob[]}} Open  an
 *   item that grows */
/** @typedef {{type: string, sequence_number: number, [more: string]: any}} ResponseEvent */
/** @typedef {object} ResponseUsage
 * @property {number} input_tokens
 * @property {{cached_tokens: number}} input_tokens_details  prompt tokens that a session still held
 * @property {number} output_tokens
 * @property {{reasoning_tokens: number}} output_tokens_details  the pieces in which the reasoning came, about as many
 *   as its tokens
 * @property {number} total_tokens */
/** @typedef {object} Response
 * @property {string} id
 * @property {'response'} object
 * @property {number} created_at  seconds since 1970
 * @property {'in_progress' | 'completed' | 'incomplete' | 'failed'} status
 * @property {string} model
 * @property {Item[]} output
 * @property {{code: 'server_error', message: string} | null} error
 * @property {{reason: 'max_output_tokens'} | null} incomplete_details
 * @property {ResponseUsage | null} usage
 * @property {unknown} [parameter]  and the parameters of the request */

/** What differs between the items: their own fields, the part with their text, and the name of the events. */
const KINDS = {
  reasoning: {
    prefix: 'rs', event: 'reasoning_text', field: 'text', fields: { summary: [] }, part: { type: 'reasoning_text' },
  },
  message: {
    prefix: 'msg', event: 'output_text', field: 'text', fields: { role: 'assistant' },
    part: { type: 'output_text', annotations: [] },
  },
  function_call: { prefix: 'fc', event: 'function_call_arguments', field: 'arguments', fields: {}, part: undefined },
};

/** The items of an answer, which come one after the other. */
class Items {
  /** Those that are complete. @type {Item[]} */
  output = [];
  /** The one that grows. @type {Open | undefined} */
  #open;
  #events = 0;

  get isEmpty() { return !this.#open && this.output.length === 0; }

  /** @param {string} type @param {object} fields @returns {ResponseEvent} */
  event(type, fields) { return { type: `response.${type}`, sequence_number: this.#events++, ...fields }; }

  /** Begins an item, unless it is a text of the kind that grows already.
   * @param {keyof typeof KINDS} kind @param {object} [call]  call_id and name of a call */
  *begin(kind, call) {
    if (this.#open?.kind === kind && !call) return;
    yield* this.end();
    const { prefix, fields } = KINDS[kind];
    this.#open = { kind, id: `${prefix}_${randomHex(12)}`, fields: { ...fields, ...call }, text: '', logprobs: [] };
    yield this.event('output_item.added', { output_index: this.output.length, item: this.#item('in_progress', true) });
    if (KINDS[kind].part) yield this.event('content_part.added', { ...this.#place(), part: this.#part() });
  }

  /** Adds text to the item that grows. @param {string} delta @param {TokenLogprob[]} logprobs */
  *add(delta, logprobs) {
    const open = /** @type {Open} */ (this.#open);
    open.text += delta;
    open.logprobs.push(...logprobs);
    const more = open.kind === 'message' ? { logprobs } : {};
    yield this.event(`${KINDS[open.kind].event}.delta`, { ...this.#place(), delta, ...more });
  }

  /** Ends the item that grows, if there is one. @param {'completed' | 'incomplete'} [status] */
  *end(status = 'completed') {
    if (!this.#open) return;
    const { kind, text, logprobs } = this.#open, { event, field, part } = KINDS[kind];
    const more = kind === 'message' ? { logprobs } : kind === 'function_call' ? this.#open.fields : {};
    yield this.event(`${event}.done`, { ...this.#place(), [field]: text, ...more });
    if (part) yield this.event('content_part.done', { ...this.#place(), part: this.#part() });
    const item = this.#item(status), output_index = this.output.length;
    this.output.push(item);
    this.#open = undefined;
    yield this.event('output_item.done', { output_index, item });
  }

  /** Log-probabilities of tokens without text, such as the one that ends the turn. @param {TokenLogprob[]} logprobs */
  addLogprobs(logprobs) { this.#open?.logprobs.push(...logprobs); }

  #place() {
    const { id, kind } = /** @type {Open} */ (this.#open);
    return {
      item_id: id, output_index: this.output.length, ...kind !== 'function_call' && { content_index: 0 },
    };
  }

  #part() {
    const { kind, text, logprobs } = /** @type {Open} */ (this.#open);
    return { ...KINDS[kind].part, text, ...kind === 'message' && { logprobs: [...logprobs] } };
  }

  /** @param {string} status @param {boolean} [isNew]  without its part */
  #item(status, isNew = false) {
    const { id, kind, fields, text } = /** @type {Open} */ (this.#open);
    const content = KINDS[kind].part ? { content: isNew ? [] : [this.#part()] } : { arguments: text };
    return { id, type: kind, status, ...fields, ...content };
  }
}

/** The events of an answer.  The last of them has the whole response; there is none if the answer was ended before.
 * @param {AsyncIterable<ChatCompletionChunk>} chunks  with usage @param {Response} response  in progress
 * @returns {AsyncGenerator<ResponseEvent, void, void>} */
export async function* eventsOf(chunks, response) {
  const items = new Items();
  /** @type {import('./completions.js').FinishReason | null | undefined} */
  let finish;
  let reasoningPieces = 0;
  yield items.event('created', { response });
  yield items.event('in_progress', { response });
  for await (const { choices: [choice], usage } of chunks) {
    if (usage) {
      const isWhole = finish !== 'length';
      yield items.event(isWhole ? 'completed' : 'incomplete', { response: {
        ...response, status: isWhole ? 'completed' : 'incomplete', output: items.output,
        incomplete_details: isWhole ? null : { reason: 'max_output_tokens' }, usage: usageOf(usage, reasoningPieces),
      } });
    }
    if (!choice) continue;
    const { delta: { content, reasoning_content: reasoning, tool_calls: calls }, logprobs } = choice;
    const tokens = logprobs?.content ?? [];
    if (reasoning) {
      reasoningPieces++;
      yield* items.begin('reasoning');
      yield* items.add(reasoning, []);
    }
    if (content) {
      yield* items.begin('message');
      yield* items.add(content, tokens);
    }
    for (const { id, function: { name, arguments: text } } of calls ?? []) {
      if (id !== undefined) yield* items.begin('function_call', { call_id: id, name });
      if (text) yield* items.add(text, []);
    }
    finish = choice.finish_reason;
    if (!finish) continue;
    if (items.isEmpty) yield* items.begin('message');
    items.addLogprobs(content ? [] : tokens);
    yield* items.end(finish === 'length' ? 'incomplete' : 'completed');
  }
}

/** @param {import('./answering.js').Usage} usage @param {number} reasoning @returns {ResponseUsage} */
const usageOf = ({ prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details }, reasoning) => ({
  input_tokens: prompt_tokens, input_tokens_details: prompt_tokens_details, output_tokens: completion_tokens,
  output_tokens_details: { reasoning_tokens: reasoning }, total_tokens,
});
