/* The engine's threads: workers that instantiate its module again, on the same memory, and do part of the work of its
 * pool (src/engine/threads/pool.h).  If one of them does not start, none is used: the engine computes alone, and says
 * why.  The engine itself is thread 0; the workers are threads 1, 2 and so on. */
import { reasonOf } from '../base/errors.js';
import { addressesOf } from './addresses.js';
import { importsOf, INITIAL, PAGE } from './instance.js';

/** @typedef {{module: WebAssembly.Module, memory: WebAssembly.Memory, stack: number, thread: number}} ThreadSetup
 *   what one thread needs; stack: the upper end of its stack */

/** MAX_MEMORY and MAX_MEMORY64 of wasm/toolchain.mk, in pages. */
const MAX_PAGES = 65535, MAX_PAGES64 = 262144;
/** The most bytes that the memory of a module can have, and of one with 64-bit addresses. */
export const MAX_MEMORY = MAX_PAGES * PAGE, MAX_MEMORY64 = MAX_PAGES64 * PAGE;
/** Milliseconds that a worker may take to start on a busy machine. */
const START_TIMEOUT = 20000;

/** @typedef {{memory: WebAssembly.Memory, limit: number, wide: boolean}} SharedMemory  limit: the bytes that it may
 *   grow to; wide: whether its addresses have 64 bits */

/** The memories of engines that ran in this thread and were freed; the next engines here reuse them.  V8 does not count
 * shared memory when it decides whether to collect garbage: without this list, 30 models that were loaded and closed
 * left 30 memories behind.  The references are weak, so that a memory that is not reused can still be collected.  The
 * list stays empty in browsers, which do not report when a thread has ended.
 * @type {{reference: WeakRef<WebAssembly.Memory>, limit: number, wide: boolean, used: number}[]} */
let idle = [];

/** A memory for the instances of a module with threads: an idle one that is zeroed (takeIdle), or else a new one.
 * @param {boolean} [wide]  whether its addresses have 64 bits @returns {SharedMemory} */
export function takeMemory(wide = false) {
  // The maximum is halved until the system can reserve so many addresses.
  for (let maximum = wide ? MAX_PAGES64 : MAX_PAGES; ; maximum >>= 1) {
    const limit = maximum * PAGE, memory = takeIdle(limit, wide);
    if (memory) return { memory, limit, wide };
    const sizes = { initial: INITIAL, maximum, shared: true };
    try {
      // TypeScript does not know the memories with 64-bit addresses, whose sizes are BigInts.
      const described = !wide ? sizes : /** @type {any} */ (
        { ...sizes, initial: BigInt(INITIAL), maximum: BigInt(maximum), address: 'i64' });
      return { memory: new WebAssembly.Memory(described), limit, wide };
    } catch (error) {
      if (maximum < 2 * INITIAL) throw error;   // half of it would be less than the initial size
    }
  }
}

/** An idle memory with exactly this limit.  The `used` bytes at its start are zeroed, and at least its first INITIAL
 * pages.  These contain the static data, which an instance initializes only if a flag in it is 0.  (The flag also keeps
 * the instances of the threads from initializing the data again.)
 * @param {number} limit @param {boolean} wide @returns {WebAssembly.Memory | undefined} */
function takeIdle(limit, wide) {
  for (let at; (at = idle.findLastIndex(one => one.limit === limit && one.wide === wide)) >= 0;) {
    const [{ reference, used }] = idle.splice(at, 1), memory = reference.deref();
    if (!memory) continue;
    // This zeroes 8 bytes at a time; single bytes take 8 times as long.
    new Float64Array(memory.buffer, 0, Math.ceil(Math.max(used, INITIAL * PAGE) / 8)).fill(0);
    return memory;
  }
  return undefined;
}

/** Takes back the memory of an engine.  Its threads must have ended, because one that still runs could write to it.
 * @param {SharedMemory} shared @param {number} used  how many bytes at its start must be zeroed, as Engine.free says */
export function returnMemory({ memory, limit, wide }, used) {
  idle = idle.filter(({ reference }) => reference.deref());
  idle.push({ reference: new WeakRef(memory), limit, wide, used });
}

export class Threads {
  /** The workers that were not terminated. @type {import('../base/protocol.js').WorkerLike[]} */
  #workers = [];
  /** What the calls that terminated the others returned: promises in Node, undefined in a browser. @type {unknown[]} */
  #ends = [];

  /** @param {() => import('../base/protocol.js').WorkerLike} startThread @param {ThreadSetup[]} setups */
  constructor(startThread, setups) {
    let timer = /** @type {any} */ (undefined);
    const timeout = new Promise((_, reject) => {
      const error = new Error(`a worker did not start within ${START_TIMEOUT / 1000} s`);
      timer = setTimeout(() => reject(error), START_TIMEOUT);
    });
    const started = setups.map(setup => new Promise((resolve, reject) => {
      const worker = startThread();
      this.#workers.push(worker);
      // unref: a thread that has started does not keep the process alive.
      worker.onMessage(({ failed }) => failed ? reject(new Error(failed)) : resolve(worker.unref?.()));
      worker.onDeath(reason => reject(new Error(`a worker stopped: ${reason}`)));
      worker.post({ setup });
    }));
    /** Resolves to undefined once all workers are ready to serve, or to the reason why none of them is used.
     * @type {Promise<string | undefined>} */
    this.failure = Promise.race([timeout, Promise.all(started)]).then(() => undefined, error => {
      this.terminate();
      return reasonOf(error);
    }).finally(() => clearTimeout(timer));
    timeout.catch(() => {});
  }

  /** Lets the threads enter the module, where they wait for work. */
  serve() {
    for (const worker of this.#workers) worker.post({ serve: true });
  }

  /** Ends the workers.
   * @returns {Promise<boolean>}  whether all are known to have ended; a browser does not report it */
  async terminate() {
    this.#ends.push(...this.#workers.splice(0).map(worker => worker.terminate()));
    const isReported = this.#ends.every(end => end instanceof Promise);
    return (await Promise.allSettled(this.#ends)).every(({ status }) => status === 'fulfilled') && isReported;
  }
}

/** The worker's side: returns the handler of its messages.  {setup} creates the instance, and is answered by {} or
 * {failed}.  {serve} comes after that answer; its handler returns only when the engine dismisses its threads.
 * @param {(message: {failed?: string}) => void} post */
export function createThread(post) {
  let c = /** @type {any} */ (undefined), thread = 0;
  return async (/** @type {{setup?: ThreadSetup, serve?: boolean}} */ { setup, serve }) => {
    if (setup) {
      try {
        c = (await WebAssembly.instantiate(setup.module, importsOf(setup.module, setup.memory))).exports;
        c.__stack_pointer.value = addressesOf(setup.module) ? BigInt(setup.stack) : setup.stack;
        thread = setup.thread;
        post({});
      } catch (error) {
        post({ failed: reasonOf(error) });
      }
    }
    if (!serve) return;
    try {
      c.plumb_threads_serve(thread);
    } catch (error) {
      c.plumb_threads_broken();   // otherwise the engine would wait for this thread forever
      throw error;
    }
  };
}
