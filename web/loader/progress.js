/* Reports the progress of a load, with the rate over the last seconds of the present phase.  New bytes are reported at
 * most 10 times a second, other events at once. */

/** @typedef {object} Progress
 * @property {'read' | 'download' | 'wait' | 'prepare' | 'ready'} phase  'read': bytes come from this machine (a copy, a
 *   file, the caller); 'download': bytes come from a server; 'wait': a request has failed, and is repeated soon;
 *   'prepare': the model is put together; 'ready': the model can be used
 * @property {number} bytes  bytes so far, of all parts together.  Falls to 0 if the load starts over because a file has
 *   changed on its server or a copy is damaged
 * @property {number} [total]  bytes of all parts together; undefined while the size of a part is unknown
 * @property {number} rate  bytes per second over the last seconds of the present phase; for 'prepare' and 'ready', of
 *   the phase before
 * @property {number} [secondsLeft]  the time left at that rate; undefined if it is unknown, such as while the first
 *   bytes of a file are read from a copy and the rest is still to be downloaded
 * @property {number} [attempt]  for 'wait': the number of the next retry, from 1 */

/** Milliseconds.  INTERVAL: the least time between two reports of new bytes.  WINDOW: how far back the rate looks. */
const INTERVAL = 100, WINDOW = 5000;

export class Meter {
  #bytes = 0;
  /** When the last report was made. */
  #reported = -Infinity;
  /** @type {Progress['phase'] | undefined} */
  #phase;
  /** The start of the phase and the reports since then, without those older than WINDOW, but at least one.  The rate is
   * measured from the first of them. */
  #samples = [{ at: performance.now(), bytes: 0 }];
  /** Whether bytes from a server follow those that are read on this machine.  If so, the rate at which these are read
   * says nothing about the time left. */
  partial = false;

  /** @param {(progress: Progress) => void} report @param {(number | undefined)[]} sizes  sizes of the parts, as far as
   *   known */
  constructor(report, sizes) {
    this.report = report;
    this.sizes = sizes;
  }

  get total() { return sum(this.sizes); }

  /** The total, as far as it can be guessed: parts of unknown size count as those of known size do on average. */
  get estimate() {
    const known = this.sizes.filter(size => size !== undefined);
    return known.length === 0 ? 0 : known.reduce((all, size) => all + size, 0) * this.sizes.length / known.length;
  }

  /** Bytes still to come, or undefined while a size is unknown. */
  get left() { return this.total === undefined ? undefined : this.total - this.#bytes; }

  /** Counts new bytes, and reports them if the last report is old enough.
   * @param {number} n @param {'read' | 'download'} phase */
  add(n, phase) {
    this.#enter(phase);
    this.#bytes += n;
    if (performance.now() - this.#reported >= INTERVAL) this.emit(phase);
  }

  /** Reports at once. @param {Progress['phase']} phase @param {number} [attempt] */
  emit(phase, attempt) {
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

  /** Starts over with no bytes. */
  reset() {
    this.#bytes = 0;
    this.#phase = undefined;
    this.#samples = [{ at: performance.now(), bytes: 0 }];
  }

  /** @param {Progress['phase']} phase */
  #enter(phase) {
    if (phase === this.#phase) return;
    const isIdle = phase === 'prepare' || phase === 'ready';   // no bytes arrive in these
    if (!isIdle && this.#phase) this.#samples = [{ at: performance.now(), bytes: this.#bytes }];
    this.#phase = phase;
  }
}

/** The sum of sizes, or undefined if one of them is undefined. @param {(number | undefined)[]} sizes */
export function sum(sizes) {
  return sizes.reduce((all, size) => all === undefined || size === undefined ? undefined : all + size, 0);
}
