/* Progress of a load: at most 10 reports a second, the rate over the last few seconds. */

/** @typedef {object} Progress
 * @property {'load' | 'prepare' | 'ready'} phase  bytes arrive; the model is put together; it can be used
 * @property {number} bytes  so far, over all parts
 * @property {number} [total]  undefined while a size is not known
 * @property {number} rate  bytes per second over the last seconds
 * @property {number} [secondsLeft] */

const INTERVAL = 100, WINDOW = 5000;

export class Meter {
  #bytes = 0;
  #reported = -Infinity;
  #samples = [{ at: performance.now(), bytes: 0 }];

  /** @param {(progress: Progress) => void} report @param {(number | undefined)[]} sizes  of the parts, if known */
  constructor(report, sizes) {
    this.report = report;
    this.sizes = sizes;
  }

  /** Bytes of a part and all that follow, once all are known. @param {number} first @returns {number | undefined} */
  totalFrom(first) {
    let sum = 0;
    for (const size of this.sizes.slice(first)) {
      if (size === undefined) return undefined;
      sum += size;
    }
    return sum;
  }

  /** Bytes to come, once all sizes are known. */
  get left() {
    const total = this.totalFrom(0);
    return total === undefined ? undefined : total - this.#bytes;
  }

  /** @param {number} n  more bytes */
  add(n) {
    this.#bytes += n;
    if (performance.now() - this.#reported >= INTERVAL) this.say('load');
  }

  /** @param {Progress['phase']} phase */
  say(phase) {
    const at = this.#reported = performance.now();
    while (this.#samples.length > 1 && at - this.#samples[0].at > WINDOW) this.#samples.shift();
    const [oldest] = this.#samples;
    this.#samples.push({ at, bytes: this.#bytes });
    const rate = (this.#bytes - oldest.bytes) * 1000 / Math.max(1, at - oldest.at);
    const total = this.totalFrom(0);
    const secondsLeft = total === undefined || rate === 0 ? undefined : Math.max(0, total - this.#bytes) / rate;
    this.report({ phase, bytes: this.#bytes, total, rate, secondsLeft });
  }
}
