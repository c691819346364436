/* How many requests compute at the same time.  Others wait, and too many are refused. */
import { onAbort } from '../base/async.js';
import { HttpError } from './answers.js';

export class Turns {
  #running = 0;
  /** @type {(() => void)[]} */
  #waiting = [];

  /** @param {number} most  that run @param {number} queue  that wait */
  constructor(most, queue) {
    this.most = most;
    this.queue = queue;
  }

  get running() { return this.#running; }
  get waiting() { return this.#waiting.length; }

  /** Waits for a turn.  The caller must call what it returns, once, when its turn ends.
   * @param {AbortSignal} signal @returns {Promise<() => void>} */
  async take(signal) {
    signal.throwIfAborted();
    if (this.#running < this.most) this.#running++;
    else if (this.#waiting.length >= this.queue) {
      throw new HttpError(429, `${this.#running} requests are being answered and ${this.queue} wait; try again later`,
        'rate_limit_exceeded', { 'Retry-After': '1' });
    } else {
      await new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => {
        const start = () => {
          unfollow();
          resolve();
        };
        this.#waiting.push(start);
        const unfollow = onAbort(signal, reason => {
          this.#waiting = this.#waiting.filter(one => one !== start);
          reject(reason);
        });
      });
    }
    let end = () => {
      end = () => {};
      const next = this.#waiting.shift();
      if (next) next();   // its turn is this one
      else this.#running--;
    };
    return () => end();
  }
}
