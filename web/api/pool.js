/* The sessions that answer prompts which are whole, as those of chats and of chat.completions are: several at the same
 * time, and each goes on from what an earlier one has computed. */
import { onAbort } from '../base/async.js';

/** @typedef {import('./session.js').Session} Session
 * @typedef {Session | undefined} Taken  undefined: it is to be opened */

/** The most sessions of a pool: so many answers at the same time, and so many conversations that are kept. */
export const MOST_SESSIONS = 16;

export class SessionPool {
  #contextOf;
  /** How many tokens a session can hold. */
  #context = 0;
  /** Those that answer nothing, with their last prompts, the least recently used first.
   * @type {{session: Session, prompt: Int32Array}[]} */
  #idle = [];
  /** How many there are, those included that are being opened. */
  #opened = 0;
  /** Those who wait for n sessions, in their order.
   * @type {{n: number, prompt: Int32Array, resolve: (taken: Taken[]) => void}[]} */
  #waiting = [];

  /** @param {() => Promise<Session>} open @param {() => Promise<number>} context  how many tokens a session can hold */
  constructor(open, context) {
    /** Opens a session that is no part of the pool. */
    this.open = open;
    this.#contextOf = context;
  }

  /** Takes sessions for answers to a prompt, as soon as so many are free.  Each must be given back.
   * @param {Int32Array} prompt @param {number} [n]  1 to MOST_SESSIONS @param {AbortSignal} [signal]
   * @returns {Promise<Session[]>} */
  async take(prompt, n = 1, signal) {
    this.#context ||= await this.#contextOf();
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
    const results = await Promise.allSettled(taken.map(session => session ?? this.open()));
    const sessions = results.flatMap(result => result.status === 'fulfilled' ? [result.value] : []);
    if (sessions.length === n) return sessions;
    this.#opened -= n - sessions.length;
    this.#serve();
    for (const session of sessions) this.give(session, prompt);
    throw results.flatMap(result => result.status === 'rejected' ? [result.reason] : [])[0];
  }

  /** The session that answered this prompt last, if it holds it still. @param {Int32Array} prompt
   * @returns {Session | undefined} */
  find(prompt) {
    return this.#idle.find(one => one.prompt.length === prompt.length && begins(one.prompt, prompt))?.session;
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
   * shares with others, or else the one that was not used for longest.  There is a new one only while the prompts of
   * all that are idle fit into one context, so that they take about as much memory as one session can.
   * @param {Int32Array} prompt @returns {Taken} */
  #choose(prompt) {
    const lengths = this.#idle.map(one => begins(one.prompt, prompt) ? one.prompt.length : -1);
    const longest = Math.max(-1, ...lengths), held = this.#idle.reduce((sum, one) => sum + one.prompt.length, 0);
    const isFull = this.#idle.length > 0 && held + prompt.length > this.#context;
    if (longest < 0 && this.#opened < MOST_SESSIONS && !isFull) {
      this.#opened++;
      return undefined;
    }
    return this.#idle.splice(longest < 0 ? 0 : lengths.lastIndexOf(longest), 1)[0].session;
  }
}

/** Whether a prompt begins with another one. @param {Int32Array} first @param {Int32Array} prompt */
const begins = (first, prompt) => first.length <= prompt.length && first.every((id, i) => id === prompt[i]);
