/* Traces, in an instance of plumb-trace.wasm: what the steps of a pass computed -> the records of a trace. */
import { PlumbError } from '../base/errors.js';
import { decode, importsOf, Instance } from './instance.js';

/** In the parameters of a trace: all layers or all values. */
const ALL = 2 ** 32 - 1;

/** @typedef {[name: number, layer: number, pos: number, tokens: number, heads: number, n: number, data: number]} RawTap
 *   the arguments of plumb_on_tap (wasm/exports.c) */
/** @typedef {object} Tap  what a step computed for some tokens, as plumb_tap; data is valid until the next step
 * @property {string} name @property {number} layer @property {number} pos  index of the first token in the prompt
 * @property {number} tokens @property {number} heads @property {number} n
 * @property {Float32Array} data  (tokens, heads, n) */
/** @typedef {{kernels: string, precision: string, layers: number, vocabulary: number, order: number,
 *   hasOutputNorms: boolean, bos: number}} Run  as struct trace_run of src/truth/trace */
/** @typedef {{taps?: string, layers?: [number, number], values?: number}} TraceOptions  checked by the caller */

/** @typedef {object} TapRecord  one step at one token; docs/trace.md of the repository explains it
 * @property {string} name  such as "l_out-3"
 * @property {number} token  index in the prompt
 * @property {number[]} shape
 * @property {number} mean
 * @property {number} rms
 * @property {number} min
 * @property {number} max
 * @property {number} nan  how many of the values are NaN
 * @property {number} inf  how many are infinite
 * @property {number[]} [entropy]  for kq_soft_max: the entropy of each head's attention, in nats
 * @property {(number | string)[]} [values]  the first values; NaN and infinities are strings: "NaN", "Infinity" and
 *   "-Infinity"
 * @property {number[]} [places]  for result_output: the indices of the values, if they are not 0, 1, 2...
 * @property {number} [n_top]  for result_output: how many of the values are the largest of all
 * @typedef {object} TraceDocument
 * @property {string} program
 * @property {number[]} tokens
 * @property {string[]} pieces
 * @property {[number, string][]} [texts]  texts of the likeliest tokens, each with its id
 * @property {TapRecord[]} taps */

export class Traces extends Instance {
  /** @param {WebAssembly.Module} module
   * @param {(id: number) => Uint8Array | undefined} piece  the text of a token, also of a control token; undefined:
   *   there is no such token */
  static async create(module, piece) {
    /** @type {Traces | undefined} */
    let created;
    const imports = importsOf(module, undefined, {
      plumb_piece: (/** @type {number} */ id, /** @type {number} */ buf, /** @type {number} */ cap) =>
        /** @type {Traces} */ (created).#piece(piece, id, buf >>> 0, cap >>> 0),
    });
    created = new Traces(await WebAssembly.instantiate(module, imports));
    return created;
  }

  /** What the texts of tokens threw in the present call. @type {unknown[]} */
  #thrown = [];

  /** Writes the text of a token, and returns its length; -1: there is none.
   * @param {(id: number) => Uint8Array | undefined} piece @param {number} id @param {number} buf @param {number} cap */
  #piece(piece, id, buf, cap) {
    try {
      const bytes = piece(id);
      if (!bytes) return -1;
      this.u8.set(bytes.subarray(0, cap), buf);
      return bytes.length;
    } catch (error) {   // which may not pass through the module
      this.#thrown.push(error);
      return -1;
    }
  }

  /** The records of what `feed` passes to its argument. @param {Run} run @param {Int32Array} ids  the whole prompt
   * @param {TraceOptions} options @param {(onTap: (tap: Tap) => void) => void} feed @returns {TraceDocument} */
  record(run, ids, options, feed) {
    const { c } = this, trace = c.plumb_trace_create();
    if (!trace) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for a trace');
    this.#thrown = [];
    const check = (/** @type {number} */ failed) => {
      if (this.#thrown.length > 0) throw this.#thrown[0];
      if (failed) throw this.error(failed, this.string(c.plumb_trace_error(trace)));
    };
    try {
      check(this.#begin(trace, run, ids, options));
      feed(tap => check(this.#add(trace, tap)));
      check(c.plumb_wasm_trace_json(trace, this.out));
      return this.#json();
    } finally {
      c.plumb_trace_free(trace);
    }
  }

  /** @param {number} trace @param {Run} run @param {Int32Array} ids @param {TraceOptions} options */
  #begin(trace, run, ids, { taps = '*', layers: [first, last] = [0, ALL], values = 8 }) {
    return this.withText(run.kernels, kernels => this.withText(run.precision, precision =>
      this.withText(taps, glob => this.withIds(ids, (ptr, n) => this.c.plumb_wasm_trace_begin(trace, kernels, precision,
        run.layers, run.vocabulary, run.order, run.hasOutputNorms, run.bos, ptr, n, glob, first, Math.min(last, ALL),
        Math.min(values, ALL))))));
  }

  /** @param {number} trace @param {Tap} tap */
  #add(trace, { name, layer, pos, tokens, heads, n, data }) {
    return this.withText(name, text => {
      const copy = this.buffer(data.byteLength);
      new Float32Array(this.memory.buffer, copy, data.length).set(data);
      return this.c.plumb_wasm_trace_add(trace, text, layer, pos, tokens, heads, n, copy);
    });
  }

  /** The document that plumb_wasm_trace_json has left in out. */
  #json() {
    const [bytes, length] = [this.result(0), this.result(1)];
    if (!bytes) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for the trace as JSON');
    try {
      return JSON.parse(decode(this.u8.slice(bytes, bytes + length)));
    } finally {
      this.c.free(bytes);
    }
  }
}
