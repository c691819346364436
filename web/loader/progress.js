/* Progress of a load: at most 10 reports a second, the rate over the last few seconds of one phase. */

/** @typedef {object} Progress
 * @property {'read' | 'download' | 'wait' | 'prepare' | 'ready'} phase  bytes come from this machine (a copy, a file,
 *   the caller); bytes come from a server; the connection broke and is tried again soon; the model is put together; it
 *   can be used
 * @property {number} bytes  so far, over all parts.  Falls to 0 where a file has changed on its server meanwhile
 * @property {number} [total]  undefined while a size is not known
 * @property {number} rate  bytes per second over the last seconds of the present phase; of 'prepare' and 'ready', of
 *   the phase before
 * @property {number} [secondsLeft]  by that rate; not while a copy is read whose rest is to be downloaded
 * @property {number} [attempt]  of 'wait': the try that comes next, from 1 on */

const INTERVAL = 100, WINDOW = 5000;

export class Meter {
  #bytes = 0;
  #reported = -Infinity;
  /** @type {Progress['phase'] | undefined} */
  #phase;
  #samples = [{ at: performance.now(), bytes: 0 }];
  /** Whether bytes of a server come behind those that are read here. */
  partial = false;

  /** @param {(progress: Progress) => void} report @param {(number | undefined)[]} sizes  of the parts, if known */
  constructor(report, sizes) {
    this.report = report;
    this.sizes = sizes;
  }

  get total() { return sum(this.sizes); }

  /** Bytes to come, once all sizes are known. */
  get left() { return this.total === undefined ? undefined : this.total - this.#bytes; }

  /** @param {number} n  more bytes @param {'read' | 'download'} phase */
  add(n, phase) {
    this.#enter(phase);
    this.#bytes += n;
    if (performance.now() - this.#reported >= INTERVAL) this.say(phase);
  }

  /** @param {Progress['phase']} phase @param {number} [attempt] */
  say(phase, attempt) {
    this.#enter(phase);
    const at = this.#reported = performance.now();
    while (this.#samples.length > 1 && at - this.#samples[0].at > WINDOW) this.#samples.shift();
    const [oldest] = this.#samples;
    this.#samples.push({ at, bytes: this.#bytes });
    const rate = (this.#bytes - oldest.bytes) * 1000 / Math.max(1, at - oldest.at);
    const { total, left } = this;
    const unclear = left === undefined || left > 0 && (rate === 0 || phase === 'read' && this.partial);
    const secondsLeft = unclear ? undefined : left <= 0 ? 0 : left / rate;
    this.report({ phase, bytes: this.#bytes, total, rate, secondsLeft, ...attempt !== undefined && { attempt } });
  }

  /** All anew. */
  reset() {
    this.#bytes = 0;
    this.#phase = undefined;
    this.#samples = [{ at: performance.now(), bytes: 0 }];
  }

  /** @param {Progress['phase']} phase */
  #enter(phase) {
    if (phase === this.#phase) return;
    const last = phase === 'prepare' || phase === 'ready';   // they bring no bytes
    if (!last && this.#phase) this.#samples = [{ at: performance.now(), bytes: this.#bytes }];
    this.#phase = phase;
  }
}

/** Undefined if one of them is. @param {(number | undefined)[]} sizes */
export function sum(sizes) {
  return sizes.reduce((all, size) => all === undefined || size === undefined ? undefined : all + size, 0);
}
