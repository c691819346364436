/* The sessions that answer requests which bring their whole prompts, as those of chat.completions do: several at the
 * same time, and each goes on from what an earlier one has computed. */
import { onAbort } from '../base/async.js';

/** @typedef {import('./session.js').Session} Session
 * @typedef {Session | undefined} Taken  undefined: it is to be opened */

/** The most sessions of a pool: so many answers at the same time, and so many conversations that are kept. */
export const MOST_SESSIONS = 16;

export class SessionPool {
  #open;
  /** Those that answer nothing, with their last prompts, the least recently used first.
   * @type {{session: Session, prompt: Int32Array}[]} */
  #idle = [];
  /** How many there are, those included that are being opened. */
  #opened = 0;
  /** Those who wait for n sessions, in their order.
   * @type {{n: number, prompt: Int32Array, resolve: (taken: Taken[]) => void}[]} */
  #waiting = [];

  /** @param {() => Promise<Session>} open */
  constructor(open) { this.#open = open; }

  /** Takes sessions for answers to a prompt, as soon as so many are free.  Each must be given back.
   * @param {Int32Array} prompt @param {number} [n]  1 to MOST_SESSIONS @param {AbortSignal} [signal]
   * @returns {Promise<Session[]>} */
  async take(prompt, n = 1, signal) {
    let unfollow = () => {};
    const taken = await new Promise((/** @type {(taken: Taken[]) => void} */ resolve, reject) => {
      const waiting = { n, prompt, resolve };
      this.#waiting.push(waiting);
      unfollow = onAbort(signal, reason => {
        this.#waiting = this.#waiting.filter(one => one !== waiting);
        reject(reason);
        this.#serve();
      });
      this.#serve();
    }).finally(() => unfollow());
    const results = await Promise.allSettled(taken.map(session => session ?? this.#open()));
    const sessions = results.flatMap(result => result.status === 'fulfilled' ? [result.value] : []);
    if (sessions.length === n) return sessions;
    this.#opened -= n - sessions.length;
    for (const session of sessions) this.give(session, prompt);
    throw results.flatMap(result => result.status === 'rejected' ? [result.reason] : [])[0];
  }

  /** Gives a session back. @param {Session} session @param {Int32Array} prompt  that it answered */
  give(session, prompt) {
    this.#idle.push({ session, prompt });
    this.#serve();
  }

  #serve() {
    for (let [next] = this.#waiting; next; [next] = this.#waiting) {
      const { n, prompt, resolve } = next;
      if (MOST_SESSIONS - this.#opened + this.#idle.length < n) return;
      this.#waiting.shift();
      resolve(Array.from({ length: n }, () => this.#choose(prompt)));
    }
  }

  /** The session whose last prompt is the longest beginning of this one, or else a new one, which takes over what it
   * shares with others, or else the one that was not used for longest. @param {Int32Array} prompt @returns {Taken} */
  #choose(prompt) {
    const lengths = this.#idle.map(one => one.prompt.every((id, i) => id === prompt[i]) ? one.prompt.length : -1);
    const longest = Math.max(-1, ...lengths);
    if (longest < 0 && this.#opened < MOST_SESSIONS) {
      this.#opened++;
      return undefined;
    }
    return this.#idle.splice(longest < 0 ? 0 : lengths.lastIndexOf(longest), 1)[0].session;
  }
}
