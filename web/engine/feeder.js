/* Feeds the sessions of an engine.  What several sessions wait for at the same time is computed together, with one
 * product for each matrix, and a long prompt in pieces between the tokens of answers, so that no answer stalls.  The
 * bits of a session are those that it computes alone. */
import { yieldToEventLoop } from '../base/async.js';
import { PlumbError } from '../base/errors.js';

/** @typedef {import('./engine.js').Engine} Engine
 * @typedef {import('./session.js').Session} Session */
/** @typedef {object} Waiting  tokens that a session waits for
 * @property {Session} session
 * @property {Int32Array} ids
 * @property {number} at  how many of them were fed
 * @property {boolean} isPrompt  no text waits for them, however few they are
 * @property {() => boolean} isStopped
 * @property {(fed: number) => void} [onFed]  is called after each batch
 * @property {(fed: number) => void} resolve
 * @property {(error: unknown) => void} reject */

/** With at most STEP tokens left, a session is considered to answer.  PIECE: how many tokens of prompts are computed
 * between the steps of answers. */
const STEP = 8, PIECE = 32;

export class Feeder {
  #engine;
  #makeRoom;
  /** In the order in which they came. @type {Waiting[]} */
  #waiting = [];
  #isRunning = false;

  /** @param {() => Engine} engine
   * @param {() => boolean} makeRoom  frees memory of a session that waits for nothing; false: there is none */
  constructor(engine, makeRoom) {
    this.#engine = engine;
    this.#makeRoom = makeRoom;
  }

  /** Feeds ids to a session, in batches.  Returns how many were fed, which is fewer than all if isStopped ended it.
   * @param {Session} session @param {Int32Array} ids @param {() => boolean} isStopped
   * @param {{isPrompt?: boolean, onFed?: Waiting['onFed']}} [how]  as in Waiting @returns {Promise<number>} */
  feed(session, ids, isStopped, { isPrompt = false, onFed } = {}) {
    if (ids.length === 0) return Promise.resolve(0);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ session, ids, at: 0, isPrompt, isStopped, onFed, resolve, reject });
      if (!this.#isRunning) this.#run();
    });
  }

  async #run() {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      await yieldToEventLoop();
      for (const one of this.#waiting.filter(({ isStopped }) => isStopped())) this.#end(one, () => one.resolve(one.at));
      try {
        if (this.#waiting.length > 0) this.#step();
      } catch (error) {
        if (error instanceof PlumbError && error.code === 'PLUMB_ERROR_MEMORY' && this.#makeRoom()) continue;
        // The engine has crashed, or was freed, or there is no memory for a list of tokens.
        for (const one of [...this.#waiting]) this.#end(one, () => one.reject(error));
      }
    }
    this.#isRunning = false;
  }

  /** @param {Waiting} one @param {() => void} settle */
  #end(one, settle) {
    this.#waiting.splice(this.#waiting.indexOf(one), 1);
    settle();
  }

  /** How many tokens of each session are next.  Sessions whose tokens were computed ahead go first, as they take no
   * time, so that they join the others again when they need a step too.  A session that cannot be fed together with the
   * one that has waited for longest waits for the next step. */
  #next() {
    const [{ session: first }] = this.#waiting, together = this.#waiting.filter(({ session }) => session.joins(first));
    const left = (/** @type {Waiting} */ { ids, at }) => ids.length - at;
    const isAnswer = (/** @type {Waiting} */ one) => !one.isPrompt && left(one) <= STEP;
    const ahead = together.filter(one => left(one) <= STEP && one.session.isAhead(one.ids.subarray(one.at)));
    if (ahead.length > 0) return ahead.map(one => ({ one, n: left(one) }));
    const answers = together.filter(isAnswer), prompts = together.filter(one => !isAnswer(one));
    let free = Math.min(...together.map(({ session }) => session.batch));
    /** @type {{one: Waiting, n: number}[]} */
    const next = [];
    const take = (/** @type {Waiting[]} */ some) => {
      for (const one of some) {
        const n = Math.min(left(one), free);
        if (n > 0) next.push({ one, n });
        free -= n;
      }
    };
    take(answers);
    if (next.length > 0) free = Math.min(free, PIECE);
    take(prompts);
    return next;
  }

  /** Computes one batch.  Those that have more tokens go to the end of the line. */
  #step() {
    const engine = this.#engine(), next = this.#next();
    const { done, failed } = engine.feedTogether(next.map(({ one: { session, ids, at }, n }) =>
      ({ session, ids: ids.subarray(at, at + n), wantsLogits: at + n === ids.length })));
    for (const [i, { one }] of next.entries()) {
      one.at += done[i];
      if (done[i] > 0) one.onFed?.(one.at);
      if (done[i] > 0) this.#end(one, () => one.at === one.ids.length ? one.resolve(one.at) : this.#waiting.push(one));
    }
    if (!failed || failed.error.code === 'PLUMB_ERROR_MEMORY' && this.#makeRoom()) return;
    const one = this.#waiting.find(({ session }) => session === failed.session);
    if (one) this.#end(one, () => one.reject(failed.error));
  }
}
