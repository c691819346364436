/* What chat.completions and completions have in common: their parameters, their answers, several at once, and the
 * streams of them. */
import { argumentError, PlumbError } from '../base/errors.js';
import * as known from '../base/options.js';
import { PARAMETERS } from '../base/parameters.js';
import { POOL } from '../answers/formats.js';

/** The same version as in package.json. */
export const VERSION = '0.1.0';

/** @typedef {import('../answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../engine/engine.js').GeneratedToken} GeneratedToken
 * @typedef {import('../engine/generation.js').Stats} Stats
 * @typedef {import('../answers/messages.js').ChatModel} AnsweringModel  the model that answers
 * @typedef {import('../answers/messages.js').ChatSession} Session */
/** @typedef {(where: string, name?: string, signal?: AbortSignal) =>
 *   Promise<{model: AnsweringModel, free: (stats?: Stats[]) => void}>} Hold  the model with a name, which stays loaded
 *   until it is freed; where: who asks, for messages; stats: of the answers that have ended */
/** @typedef {{prompt_tokens: number, completion_tokens: number, total_tokens: number,
 *   prompt_tokens_details: {cached_tokens: number}}} Usage  cached_tokens: prompt tokens that a session still held */

/** plumb's names of the parameters that are passed on unchanged. */
const OPTIONS = {
  ...Object.fromEntries(PARAMETERS.map(({ field, name }) => [field, name])),
  logit_bias: 'logitBias', stop: 'stop', max_tokens: 'maxTokens', max_completion_tokens: 'maxTokens',
  reasoning_budget: 'reasoningBudget',
};

/** The parameters that are given: null is the same as absent.  Throws unless all are known and valid.
 * @template {object} P @param {string} where @param {P} params @param {Parameters<typeof known.checkOptions>[2]} table
 * @param {string} expected  what the parameters are
 * @returns {{[K in keyof P]: NonNullable<P[K]>}} */
export function givenOf(where, params, table, expected) {
  if (typeof params !== 'object' || params === null) throw argumentError(`${where}: expected ${expected}`);
  const given = Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));
  known.checkOptions(where, given, table);
  return /** @type {any} */ (given);
}

/** The options of generate that parameters give. @param {Record<string, any>} given @returns {GenerateOptions} */
export const optionsOf = given => /** @type {GenerateOptions} */ ({
  ...Object.fromEntries(Object.entries(OPTIONS).filter(([name]) => name in given)
    .map(([name, ownName]) => [ownName, given[name]])),
  ...given.seed !== undefined && { seed: seedOf(given.seed) },
});

/** @param {number | bigint} seed */
const seedOf = seed => BigInt.asUintN(64, BigInt(seed));

/** One of several answers to a prompt, whose parts are computed as they are read. @template P */
export class Choice {
  #parts;
  #give;
  /** The first part, once it was computed. @type {IteratorResult<P, Stats> | undefined} */
  #first;
  /** Statistics of the answer, once it has ended. @type {Stats | undefined} */
  stats;

  /** @param {number} index @param {AsyncIterator<P, Stats, void>} parts @param {() => void} give  when it has ended */
  constructor(index, parts, give) {
    this.index = index;
    this.#parts = parts;
    this.#give = give;
  }

  /** Computes the first part. */
  async begin() { this.#first = await this.#parts.next(); }

  /** @returns {AsyncGenerator<P, void, void>} */
  async *parts() {
    try {
      let step = this.#first ?? await this.#parts.next();
      for (; !step.done; step = await this.#parts.next()) yield step.value;
      this.stats = step.value;
    } finally {
      await this.end();
    }
  }

  /** Ends the answer, also one that was never begun. */
  async end() {
    await this.#parts.return?.().catch(() => {});
    this.#give();
    this.#give = () => {};
  }
}

/** Begins n answers to a prompt, each in a session of its own.  When the first part of the first one is there, the
 * prompt is computed, and the others take it over.
 * @template P
 * @param {AnsweringModel} model @param {Int32Array} prompt @param {{n: number, options: GenerateOptions}} request
 * @param {AbortSignal} signal
 * @param {(session: Session, options: GenerateOptions, index: number) =>
 *   Promise<{parts: AsyncIterator<P, Stats, void>}>} start
 * @returns {Promise<Choice<P>[]>} */
export async function beginChoices(model, prompt, { n, options }, signal, start) {
  const sessions = await model[POOL].take(prompt, n, signal);
  /** @type {Choice<P>[]} */
  const choices = [];
  try {
    for (const [index, session] of sessions.entries()) {
      const seed = options.seed === undefined ? {} : { seed: seedOf(BigInt(options.seed) + BigInt(index)) };
      const { parts } = await start(session, { ...options, ...seed, signal }, index);
      choices.push(new Choice(index, parts, () => model[POOL].give(session, prompt)));
    }
    await choices[0].begin();
    return choices;
  } catch (error) {
    await Promise.all(choices.map(choice => choice.end()));
    for (const session of sessions.slice(choices.length)) model[POOL].give(session, prompt);
    throw error;
  }
}

/** Why an answer has ended without a reason of its own. */
export const closedError = () => new PlumbError('PLUMB_ERROR_STATE', 'the model was closed');

/** Throws if one of the answers was ended by the signal, or by closing the model.
 * @param {Choice<any>[]} choices @param {AbortSignal} [signal] */
export function checkEnded(choices, signal) {
  if (!choices.some(({ stats }) => stats?.finishReason === 'abort')) return;
  throw signal?.reason ?? closedError();
}

/** The statistics of those that have ended. @param {Choice<any>[]} choices */
export const statsOf = choices => choices.flatMap(({ stats }) => stats ?? []);

/** @param {Choice<any>[]} choices  that have ended @returns {Usage} */
export function usageOf(choices) {
  const all = statsOf(choices), [{ promptTokens, reusedTokens }] = all;
  const tokens = all.reduce((sum, stats) => sum + stats.tokens, 0);
  return {
    prompt_tokens: promptTokens, completion_tokens: tokens, total_tokens: promptTokens + tokens,
    prompt_tokens_details: { cached_tokens: reusedTokens },
  };
}

/** The name of a model in a result.
 * @param {Pick<AnsweringModel, 'metadata'>} model @param {string} [name]  that was asked for */
export const nameOf = (model, name) => name ?? String(model.metadata['general.name'] ?? 'plumb');

/** What each result of a model begins with. @template {string} O @param {AnsweringModel} model @param {string} id
 * @param {O} object @param {string} [name] */
export const headOf = async (model, id, object, name) => ({
  id, object, created: Math.floor(Date.now() / 1000), model: nameOf(model, name),
  system_fingerprint: `plumb-${VERSION}-${(await model.info()).module}`,
});

/** The chunks of an answer, which can be read once.  Leaving the loop ends the answer.  So does controller.abort(),
 * without an error.
 * @template C @implements {AsyncIterable<C>} */
export class Stream {
  #chunks;

  /** @param {C} first @param {AsyncGenerator<C, void, void>} rest @param {AbortController} controller */
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

const utf8 = new TextEncoder();

/** Tokens that wait for the chunk that holds their text. */
export class TokenQueue {
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
   * @param {string} content @returns {GeneratedToken[]} */
  within(content) {
    this.#ahead += utf8.encode(content.replaceAll('\uFFFD', '?')).length;
    let n = this.#returned;
    for (; n < this.#tokens.length && this.#tokens[n].bytes.length <= this.#ahead; n++) {
      this.#ahead -= this.#tokens[n].bytes.length;
    }
    return this.upTo(n);
  }

  /** Returns the first n tokens, without those returned before. @param {number} n @returns {GeneratedToken[]} */
  upTo(n) {
    const tokens = this.#tokens.slice(this.#returned, n);
    this.#returned = n;
    return tokens;
  }
}
