/* Chooses one of the modules for this host: plumb, plumb-mt, plumb-relaxed or plumb-mt-relaxed.  mt: with threads and a
 * shared memory; relaxed: with kernels that use relaxed SIMD, which are faster and give the same results.  A model that
 * does not fit into their 4 GiB gets plumb-64 or plumb-mt-64, which have 64-bit addresses and relaxed SIMD.  They give
 * the same results, too, but take longer, since each access of the memory has more to check. */

import { reasonOf } from '../base/errors.js';
import { hasAddresses64 } from './addresses.js';
import { MAX_MEMORY, MAX_MEMORY64 } from './threads.js';

/** @typedef {object} Machine  what the choice depends on
 * @property {(name: string) => Promise<WebAssembly.Module>} compile  compiles dist/NAME.wasm
 * @property {number} [processors]
 * @property {(worker: boolean) => string | undefined} [singleThreadReason]  why there can be only one thread;
 *   undefined if there can be more
 * @property {() => import('../base/protocol.js').WorkerLike} [startThread] */
/** @typedef {object} Variant
 * @property {WebAssembly.Module} module
 * @property {string} name  the name of its file, without .wasm
 * @property {number} threads  1 if the module is one without threads
 * @property {string} [note]  why there is one thread although more were requested
 * @property {string} [slower]  why the module without relaxed SIMD runs although this host has relaxed SIMD */

/** The most threads for 'auto'.  More do not make models of a size that fits into a browser faster, and leave no
 * processor to other programs. */
const AUTO_THREADS = 8;

/** @param {Machine} machine @param {number | 'auto'} requested  threads
 * @param {boolean} worker  whether the engine runs in a worker of its own
 * @returns {Promise<Variant>} */
export async function choose(machine, requested, worker) {
  const { compile } = machine, how = threadsFor(machine, requested, worker);
  const name = how.threads > 1 ? 'plumb-mt' : 'plumb';
  if (!hasRelaxedDot()) return { module: await compile(name), name, ...how };
  const relaxed = `${name}-relaxed`;
  try {
    return { module: await compile(relaxed), name: relaxed, ...how };
  } catch (error) {
    const module = await compile(name);
    return { module, name, ...how, slower: `${name} runs instead of ${relaxed}: ${reasonOf(error)}` };
  }
}

/** As choose, for a model that does not fit into 4 GiB.  undefined: this host has no such memories.
 * @param {Machine} machine @param {number | 'auto'} requested @param {boolean} worker
 * @returns {Promise<Variant | undefined>} */
export async function chooseWide(machine, requested, worker) {
  if (!hasWide()) return undefined;
  const how = threadsFor(machine, requested, worker), name = how.threads > 1 ? 'plumb-mt-64' : 'plumb-64';
  return { module: await machine.compile(name), name, ...how };
}

/** Whether this host has what the modules with 64-bit addresses need. */
export const hasWide = () => hasAddresses64() && hasRelaxedDot();

/** The most bytes that the memory of a module can have on this host. */
export const memoryLimit = () => hasWide() ? MAX_MEMORY64 : MAX_MEMORY;

/** @param {Machine} machine @param {number | 'auto'} requested @param {boolean} worker */
function threadsFor({ processors = 1, singleThreadReason, startThread }, requested, worker) {
  const wanted = requested === 'auto' ? Math.min(processors, AUTO_THREADS) : requested;
  const reason = singleThreadReason?.(worker), threads = reason || !startThread ? 1 : wanted;
  return { threads, note: wanted > threads ? reason : undefined };
}

/** Whether this host has relaxed SIMD whose dot product is correct; the baseline compiler in Node 20 computes a wrong
 * one.  Compiles the function below, which adds up four equal products of signed bytes, so that f(a, b) is 4 * a * b.
 * (func (export "f") (param i32 i32) (result i32)
 *   (i32x4.extract_lane 0 (i32x4.relaxed_dot_i8x16_i7x16_add_s
 *     (i8x16.splat (local.get 0)) (i8x16.splat (local.get 1)) (i32x4.splat (i32.const 0))))) */
export function hasRelaxedDot() {
  const bytes = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0,
    7, 5, 1, 1, 102, 0, 0, 10, 22, 1, 20, 0, 32, 0, 253, 15, 32, 1, 253, 15, 65, 0, 253, 17, 253, 147, 2,
    253, 27, 0, 11);
  if (!WebAssembly.validate(bytes)) return false;
  try {
    const { f } = /** @type {any} */ (new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports);
    return f(-1, 1) === -4 && f(-128, 127) === 4 * -128 * 127;
  } catch {
    return false;   // the Content-Security-Policy lacks 'wasm-unsafe-eval': compile() reports it
  }
}
