/* Generates the text of an answer: feeds the prompt, then samples tokens and feeds them back. */
import { PlumbError } from '../base/errors.js';
import { ReasoningMeter } from './budget.js';
import { StopFilter } from './stop.js';

/** @typedef {import('./engine.js').Engine} Engine
 * @typedef {import('./session.js').Session} Session */
/** @typedef {object} Stats
 * @property {number} promptTokens
 * @property {number} reusedTokens  those of promptTokens that were still in the session, or in another one of the model
 * @property {number} recomputedTokens  those of promptTokens that the session had computed before, but had to compute
 *   again: a window or the state of a recurrent layer was lost
 * @property {number} tokens  how many were generated
 * @property {number} forcedTokens  those of tokens that were not sampled, because a grammar left no choice
 * @property {number} draftedTokens  how many tokens were computed ahead (speculate)
 * @property {number} acceptedTokens  those of draftedTokens that became tokens of the text
 * @property {number} prefillSeconds
 * @property {number} decodeSeconds
 * @property {number} prefillRate  tokens per second over the prompt tokens that were computed, which are fewer than
 *   promptTokens - reusedTokens if the prompt was stopped
 * @property {number} decodeRate  single-token steps per second (the first token comes out of the prefill)
 * @property {'stop' | 'length' | 'abort'} finishReason  'stop': the model or a stop string ended the text; 'length':
 *   maxTokens is reached or the context is full; 'abort': the signal ended it, the caller left the loop or closed the
 *   model
 * @property {number} [droppedTokens]  with sinks: how many tokens the session has dropped since it was empty
 * @property {number | bigint} seed
 * @property {string[]} [warnings]  what is not kept of a schema with strict: false, each with its JSON pointer */
/** @typedef {object} PromptProgress
 * @property {number} promptTokens
 * @property {number} reusedTokens  those of promptTokens that need not be computed, as in Stats
 * @property {number} computedTokens  how many were computed; at the end promptTokens - reusedTokens
 * @property {number} rate  computed tokens per second so far; 0 at the start */
/** @typedef {{maxTokens?: number, sinks?: number, stop?: string | string[], logprobs?: number, special?: string[],
 *   speculate?: import('./session.js').Speculation, budget?: import('./budget.js').Budget}
 *   & import('./engine.js').Sampling & {grammar?: import('./engine.js').Grammar}} GenerateOptions
 * @typedef {{emit: (text: string) => void, onToken?: (token: import('./engine.js').GeneratedToken) => void,
 *   onPrompt?: (progress: PromptProgress) => void, aborted: () => boolean,
 *   feed: (ids: Int32Array, onFed?: (fed: number) => void) => Promise<number>, withRoom: <T>(use: () => T) => T}} Run
 *   withRoom: calls use again if other sessions can leave the memory that it has not found */

/** As the text of control tokens is turned into them. */
const SPECIAL = { parseSpecial: true };

/** Feeds the prompt, then samples tokens and feeds them back, one at a time.  A token is fed only if the next one is to
 * be sampled.  So if the text ends because the model ends the turn, the session holds the prompt and all tokens of the
 * text; if it ends for another reason, the last of these tokens is missing, and forced tokens before it.  The token
 * that ends the turn is not part of the text: it is neither fed nor counted.  If the model has an encoder, that reads
 * the prompt, and the session holds only the decoder's first token and what it writes.
 * @param {Engine} engine @param {Session} session  of the engine @param {Int32Array} ids  the prompt
 * @param {GenerateOptions} options @param {Run} run
 * @returns {Promise<Stats>} */
export async function generate(engine, session, ids, options, run) {
  if (ids.length === 0) throw new PlumbError('PLUMB_ERROR_ARGUMENT', 'the prompt is empty');
  session.setShift(options.sinks ?? 0);
  if (ids.length > session.contextLength && !options.sinks) {
    throw new PlumbError('PLUMB_ERROR_CONTEXT', `the prompt has ${ids.length} tokens, but the context holds `
      + `${session.contextLength}; shorten it or load the model with a larger contextLength`,
    { promptTokens: ids.length, contextLength: session.contextLength });
  }
  const generation = new Generation(engine, session, ids, options, run);
  try {
    session.speculate(options.speculate ?? 'lookup');
    await generation.prefill();
    await generation.decode();
  } finally {
    if (engine.c) {   // the engine may have crashed meanwhile
      generation.sampler.free();
      session.speculate(false);
      if (session.dropped === 0) session.setShift(0);   // whatever comes next has not asked for it
    }
  }
  return generation.stats();
}

class Generation {
  #seed;
  #stops;
  /** The control tokens that are shown. */
  #shown;
  #meter;
  /** Tokens that come next, whatever the model would say. @type {number[]} */
  #forced = [];
  /** Tokens of the text that are not fed yet.  Forced tokens are fed together with the token before them, because
   * nobody needs the logits between them, unless they are to be described. @type {number[]} */
  #unfed = [];
  /** When feeding the prompt began and ended. */
  #start = 0;
  #prefillEnd = 0;
  #reused = 0;
  #recomputed = 0;
  #dropped = 0;
  /** What the session had computed ahead before. */
  #drafts;
  /** How many tokens of the prompt were computed, of the text were chosen, and were forced; steps: how often the text
   * was fed. */
  #computed = 0;
  #tokens = 0;
  #forcedTokens = 0;
  #steps = 0;
  /** Why the text ended. @type {Stats['finishReason'] | undefined} */
  #reason;

  /** @param {Engine} engine @param {Session} session @param {Int32Array} ids @param {GenerateOptions} options
   * @param {Run} run */
  constructor(engine, session, ids, options, run) {
    this.engine = engine;
    this.session = session;
    this.ids = ids;
    this.options = options;
    this.run = run;
    this.#drafts = session.drafts;
    this.#seed = options.seed ?? crypto.getRandomValues(new Uint32Array(1))[0];
    this.sampler = engine.createSampler(session, { ...options, seed: this.#seed }, run.onToken !== undefined);
    this.#stops = new StopFilter([options.stop ?? []].flat());
    this.#shown = new Set((options.special ?? []).flatMap(text => [...engine.tokenize(text, SPECIAL)])
      .filter(id => engine.piece(id, false) === ''));
    this.#meter = options.budget && new ReasoningMeter(options.budget);
  }

  /** Feeds the prompt. */
  async prefill() {
    const { engine, session, ids, run, sampler, options } = this;
    this.#start = performance.now();
    if (run.aborted()) this.#reason = 'abort';
    else {
      const { hasEncoder, decoderStart } = engine.modelInfo();
      if (hasEncoder) await this.#encode(decoderStart);
      else {
        const common = Math.min(session.common(ids), ids.length - 1);
        this.#reused = options.sinks ? session.reuse(ids) : session.reuseAny(ids);
        if (!options.sinks) this.#recomputed = Math.max(common - this.#reused, 0);
        this.#tellProgress(0);
        this.#computed = await run.feed(ids.subarray(this.#reused), fed => this.#tellProgress(fed));
        if (this.#computed < ids.length - this.#reused) this.#reason = 'abort';
      }
    }
    this.#prefillEnd = performance.now();
    ids.forEach(sampler.accept);
    session.beginText();
    this.#force();
  }

  /** @param {number} computedTokens */
  #tellProgress(computedTokens) {
    const seconds = (performance.now() - this.#start) / 1000;
    this.run.onPrompt?.({ promptTokens: this.ids.length, reusedTokens: this.#reused, computedTokens,
      rate: computedTokens > 0 ? computedTokens / seconds : 0 });
  }

  /** Lets the encoder read the prompt, unless it did before. @param {number} start  the decoder's first token */
  async #encode(start) {
    const { session, ids, run } = this, text = Int32Array.of(start);
    if (start < 0) {
      throw new PlumbError('PLUMB_ERROR_METADATA', 'the file does not say with which token the text of the decoder '
        + 'begins (decoder_start_token_id)');
    }
    run.withRoom(() => session.encode(ids));
    if (session.position > 0) this.#reused = ids.length;   // the decoder wrote about the same text
    else this.#computed = ids.length;
    session.reuse(text);
    if (await run.feed(text) < 1) this.#reason = 'abort';
  }

  /** Adds the tokens that must follow by the grammar. */
  #force() {
    const ids = this.sampler.forced();
    this.#forced.push(...ids);
    this.#forcedTokens += ids.length;
  }

  /** Generates the text. */
  async decode() {
    const { engine, session, run, sampler } = this, stops = this.#stops;
    while (!this.#reason) {
      const id = this.#next();
      if (id >= 0) run.onToken?.(session.describeToken(id, this.options.logprobs ?? 0, sampler.nextSet()));
      if (id < 0 || engine.endsTurn(id)) this.#reason = 'stop';   // -1: the vocabulary has no token that ends a turn
      else await this.#add(id);
    }
    this.#dropped = session.dropped;
    if (stops.stopped) return;
    if (this.#reason === 'stop') run.emit(stops.push(session.flushText()));   // otherwise a character was cut off
    run.emit(stops.flush());
  }

  /** The next token; -1 if there is none because what the grammar describes is complete. */
  #next() {
    const { engine, session, sampler } = this, forced = this.#forced;
    if (this.#meter?.isSpent && forced.length === 0) {
      forced.push(...engine.tokenize(this.#meter.end, SPECIAL));
      sampler.follow(forced);
    }
    const id = forced.shift() ?? sampler.sample();
    if (id >= 0 || sampler.isComplete()) return id;
    throw session.logits().some(logit => logit > -Infinity)
      ? new PlumbError('PLUMB_ERROR_ARGUMENT', `no token can be sampled: ${this.options.grammar
        ? 'the grammar and logitBias forbid' : 'logitBias forbids'} all of them; allow at least one`)
      : new PlumbError('PLUMB_ERROR_TENSOR', 'no token can be sampled: all logits are NaN or -infinity, '
        + 'so the weights are damaged; run plumb selfcheck to find where');
  }

  /** Adds a token to the text, and feeds it if the next one is to be sampled. @param {number} id */
  async #add(id) {
    const { engine, session, run, sampler, options: { sinks } } = this;
    const { maxTokens = sinks ? session.contextLength : Infinity } = this.options;
    const stops = this.#stops, isFull = session.position + this.#unfed.length + 1 > session.contextLength;
    sampler.accept(id);
    this.#tokens++;
    this.#meter?.push(engine.piece(id, true));
    run.emit(stops.push(session.pushToken(id, this.#shown.has(id))));
    this.#unfed.push(id);
    if (this.#forced.length === 0) this.#force();
    if (stops.stopped) this.#reason = 'stop';
    else if (this.#tokens >= maxTokens || isFull && !sinks) this.#reason = 'length';
    else if (run.aborted()) this.#reason = 'abort';
    else if (this.#forced.length === 0 || run.onToken) {
      const unfed = Int32Array.from(this.#unfed);
      if (await run.feed(unfed) < unfed.length) this.#reason = 'abort';
      this.#unfed = [];
      this.#steps++;
    }
  }

  /** @returns {Stats} */
  stats() {
    const prefill = (this.#prefillEnd - this.#start) / 1000, decode = (performance.now() - this.#prefillEnd) / 1000;
    const { warnings } = this.sampler, { drafted, accepted } = this.session.drafts;
    return {
      promptTokens: this.ids.length, reusedTokens: this.#reused,
      recomputedTokens: this.#recomputed, tokens: this.#tokens,
      forcedTokens: this.#forcedTokens - this.#forced.length,
      draftedTokens: drafted - this.#drafts.drafted, acceptedTokens: accepted - this.#drafts.accepted,
      prefillSeconds: prefill, decodeSeconds: decode,
      prefillRate: prefill > 0 ? this.#computed / prefill : 0, decodeRate: decode > 0 ? this.#steps / decode : 0,
      finishReason: /** @type {Stats['finishReason']} */ (this.#reason), seed: this.#seed,
      ...this.options.sinks && { droppedTokens: this.#dropped },
      ...warnings.length > 0 && { warnings },
    };
  }
}
