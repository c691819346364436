/* OpenAI's completions of plain texts: https://platform.openai.com/docs/api-reference/completions.  Editors use them to
 * complete code. */
import { merged, onAbort } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import { randomHex } from '../base/hex.js';
import * as known from '../base/options.js';
import {
  beginChoices, checkEnded, givenOf, headOf, optionsOf, statsOf, Stream, TokenQueue, usageOf,
} from './answering.js';

/** @typedef {object} OwnParameters
 * @property {string} [model]  as in chat.completions.create
 * @property {string | string[] | number[] | number[][]} prompt  one text or several, as strings or as token ids
 * @property {number | null} [n]  how many answers to each prompt; at most 8 in all
 * @property {number | null} [max_tokens]  default 16
 * @property {boolean | null} [echo]  begin the text with the prompt
 * @property {number | null} [logprobs]  0 to 20: return the log-probability of each token of the answer, and this many
 *   of the likeliest ones
 * @property {Record<string, number> | null} [logit_bias]
 * @property {string | string[] | null} [stop]
 * @property {number | null} [seed]
 * @property {boolean | null} [stream]
 * @property {{include_usage?: boolean} | null} [stream_options]
 * @typedef {OwnParameters & import('../base/parameters.js').CompletionSampling} TextCompletionParameters  null is the
 *   same as absent */
/** @typedef {{tokens: string[], token_logprobs: number[], top_logprobs: Record<string, number>[],
 *   text_offset: number[]}} TextLogprobs */
/** @typedef {{index: number, text: string, logprobs: TextLogprobs | null,
 *   finish_reason: 'stop' | 'length' | null}} TextChoice */
/** @typedef {object} TextCompletion
 * @property {string} id
 * @property {'text_completion'} object
 * @property {number} created
 * @property {string} model
 * @property {string} system_fingerprint
 * @property {TextChoice[]} choices
 * @property {import('./answering.js').Usage | null} [usage] */

const WHERE = 'completions.create';
/** How many answers one call may have. */
const MOST_CHOICES = 8;

export class TextCompletions {
  #hold;

  /** @param {import('./answering.js').Hold} hold */
  constructor(hold) { this.#hold = hold; }

  /** Continues texts.
   * @param {TextCompletionParameters} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<TextCompletion | Stream<TextCompletion>>}  a Stream, if `stream` is true */
  async create(params, options = {}) {
    known.checkOptions(WHERE, options, known.FEED);
    const { stream = false, stream_options, n = 1, ...given } =
      givenOf(WHERE, params, known.TEXT_COMPLETION, '{prompt, ...}');
    if (given.prompt === undefined) throw argumentError(`${WHERE}: prompt is missing`);
    if (stream_options && !stream) throw argumentError(`${WHERE}: stream_options is only allowed with stream: true`);
    const isOne = typeof given.prompt === 'string' || typeof given.prompt[0] === 'number';
    const prompts = /** @type {(string | number[])[]} */ (isOne ? [given.prompt] : given.prompt);
    if (prompts.length === 0 || prompts.length * n > MOST_CHOICES) {
      throw argumentError(`${WHERE}: ${prompts.length} prompts with n = ${n}, expected 1 to ${MOST_CHOICES} answers`);
    }
    options.signal?.throwIfAborted();
    const { model, free } = await this.#hold(WHERE, given.model, options.signal);
    const controller = new AbortController();
    const unfollow = onAbort(options.signal, reason => controller.abort(reason));
    const request = { n, logprobs: given.logprobs, echo: given.echo ?? false,
      options: { maxTokens: 16, ...optionsOf(given) } };
    const kind = /** @type {const} */ ('text_completion');
    const head = await headOf(model, `cmpl-${randomHex(12)}`, kind, given.model).catch(error => {
      unfollow();
      free();
      throw error;
    });
    /** @type {import('./answering.js').Usage[]} */
    const usages = [];
    /** @type {import('../engine/generation.js').Stats[]} */
    const stats = [];
    const all = (async function* () {
      try {
        for (const [i, prompt] of prompts.entries()) {
          const choices = yield* choicesOf(model, prompt, i * n, request, controller.signal);
          stats.push(...statsOf(choices));
          const isEnded = choices.every(({ stats }) => stats && stats.finishReason !== 'abort');
          if (stream && !isEnded) return;
          checkEnded(choices, options.signal);
          usages.push(usageOf(choices));
        }
      } finally {
        unfollow();
        free(stats);
      }
    })();
    if (!stream) return { ...head, choices: await joined(all), usage: sum(usages) };
    const usage = () => usages.length === prompts.length ? sum(usages) : undefined;   // unless it was ended
    const rest = chunksOf(head, all, stream_options?.include_usage ? usage : undefined);
    const { value } = await rest.next();
    return new Stream(/** @type {TextCompletion} */ (value), rest, controller);
  }
}

/** Yields the parts of the answers to one prompt.
 * @param {import('./answering.js').AnsweringModel} model @param {string | number[]} prompt
 * @param {number} first  the index of its first answer
 * @param {{n: number, logprobs?: number, echo: boolean,
 *   options: import('../answers/messages.js').GenerateOptions}} request
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<TextChoice, import('./answering.js').Choice<string>[], void>} */
async function* choicesOf(model, prompt, first, { logprobs, echo, ...request }, signal) {
  const ids = typeof prompt === 'string' ? await model.tokenize(prompt, { parseSpecial: true })
    : new Int32Array(prompt);
  const queues = Array.from({ length: request.n }, () => new TokenQueue()), lengths = queues.map(() => 0);
  const choices = await beginChoices(model, ids, request, signal, async (session, options, index) => ({
    parts: session.generate(ids, {
      ...options, ...logprobs !== undefined && { logprobs, onToken: token => queues[index].push(token) },
    }),
  }));
  /** @param {number} index @param {string} text @param {import('../engine/engine.js').GeneratedToken[]} tokens
   * @param {TextChoice['finish_reason']} [finish_reason] @returns {TextChoice} */
  const part = (index, text, tokens, finish_reason = null) => {
    const offset = lengths[index];
    lengths[index] += text.length;
    return { index: first + index, text, finish_reason,
      logprobs: logprobs === undefined ? null : logprobsOf(tokens, offset) };
  };
  try {
    if (echo) {
      const text = typeof prompt === 'string' ? prompt : await model.detokenize(ids, { special: true });
      for (const { index } of choices) yield part(index, text, []);
    }
    for await (const [index, piece] of merged(choices.map(choice => choice.parts()))) {
      const { stats } = choices[index], queue = queues[index];
      if (piece !== undefined) yield part(index, piece, queue.within(piece));
      else if (stats && stats.finishReason !== 'abort') {
        yield part(index, '', queue.upTo(stats.tokens), stats.finishReason);
      }
    }
    return choices;
  } finally {
    await Promise.all(choices.map(choice => choice.end()));
  }
}

/** @param {import('../engine/engine.js').GeneratedToken[]} tokens @param {number} offset  of the first in the text
 * @returns {TextLogprobs} */
function logprobsOf(tokens, offset) {
  const offsets = tokens.map((_, i) =>
    offset + tokens.slice(0, i).reduce((length, { piece }) => length + piece.length, 0));
  return {
    tokens: tokens.map(({ piece }) => piece), token_logprobs: tokens.map(({ logprob }) => logprob),
    top_logprobs: tokens.map(({ top }) => Object.fromEntries(top.map(({ piece, logprob }) => [piece, logprob]))),
    text_offset: offsets,
  };
}

/** Joins the parts of each answer. @param {AsyncIterable<TextChoice>} parts @returns {Promise<TextChoice[]>} */
async function joined(parts) {
  /** @type {TextChoice[]} */
  const all = [];
  for await (const { index, text, logprobs, finish_reason } of parts) {
    const one = all[index] ??= { index, text: '', logprobs: logprobs && logprobsOf([], 0), finish_reason: null };
    one.text += text;
    one.finish_reason = finish_reason;
    for (const name of /** @type {(keyof TextLogprobs)[]} */ (Object.keys(logprobs ?? {}))) {
      /** @type {any[]} */ (one.logprobs?.[name]).push(...logprobs?.[name] ?? []);
    }
  }
  return all;
}

/** @param {Omit<TextCompletion, 'choices'>} head @param {AsyncIterable<TextChoice>} parts
 * @param {() => import('./answering.js').Usage | undefined} [usage]  once they have ended
 * @returns {AsyncGenerator<TextCompletion, void, void>} */
async function* chunksOf(head, parts, usage) {
  for await (const choice of parts) yield { ...head, choices: [choice], ...usage && { usage: null } };
  const whole = usage?.();
  if (whole) yield { ...head, choices: [], usage: whole };
}

/** @param {import('./answering.js').Usage[]} usages @returns {import('./answering.js').Usage} */
const sum = usages => usages.reduce((all, one) => ({
  prompt_tokens: all.prompt_tokens + one.prompt_tokens,
  completion_tokens: all.completion_tokens + one.completion_tokens,
  total_tokens: all.total_tokens + one.total_tokens,
  prompt_tokens_details: {
    cached_tokens: all.prompt_tokens_details.cached_tokens + one.prompt_tokens_details.cached_tokens,
  },
}));
