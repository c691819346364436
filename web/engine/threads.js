/* The engine's threads: workers that instantiate its module once more, on the same memory, and serve its pool
 * (src/threads/pool.h).  If one of them does not start, none is used: the engine computes alone, and says why. */
import { reasonOf } from '../base/errors.js';
import { importsOf, INITIAL, PAGE } from './engine.js';

/** @typedef {{module: WebAssembly.Module, memory: WebAssembly.Memory, stack: number, thread: number}} Seat
 *   what one thread needs; stack: the upper end of its stack */

/** MAX_MEMORY of wasm/toolchain.mk, in pages. */
const MAXIMUM = 65535;
/** The most bytes that a module's own memory may have. */
export const MOST_MEMORY = MAXIMUM * PAGE;
/** Milliseconds that a worker may take to start on a busy machine. */
const PATIENCE = 20000;

/** @typedef {{memory: WebAssembly.Memory, most: number}} SharedMemory  most: the bytes that it may grow to */

/** The memories of engines that were freed in this thread; the next engines reuse them.  V8 does not count shared
 * memory when it decides whether to collect garbage: without this list, 30 models that were loaded and closed left 30
 * memories behind.  The references are weak, so that a memory that is not reused can still be collected.
 * @type {{reference: WeakRef<WebAssembly.Memory>, most: number, used: number}[]} */
let idle = [];

/** The memory that the instances of a module with threads share: one that was returned, after zeroing it, or a new one.
 * @returns {SharedMemory} */
export function takeMemory() {
  for (let maximum = MAXIMUM; ; maximum >>= 1) {
    const most = maximum * PAGE, memory = takeIdle(most);
    if (memory) return { memory, most };
    try {
      return { memory: new WebAssembly.Memory({ initial: INITIAL, maximum, shared: true }), most };
    } catch (error) {
      if (maximum < 2 * INITIAL) throw error;   // some devices cannot reserve so many addresses
    }
  }
}

/** @param {number} most @returns {WebAssembly.Memory | undefined} */
function takeIdle(most) {
  for (let at; (at = idle.findLastIndex(one => one.most === most)) >= 0;) {
    const [{ reference, used }] = idle.splice(at, 1), memory = reference.deref();
    if (!memory) continue;
    // It zeroes 8 bytes at a time; single bytes take 8 times as long.
    new Float64Array(memory.buffer, 0, Math.ceil(Math.max(used, INITIAL * PAGE) / 8)).fill(0);
    return memory;
  }
  return undefined;
}

/** Takes back the memory of an engine.  Its threads must have ended, because one that still runs could write to it.
 * @param {SharedMemory} shared @param {number} used  the bytes at its start that may not be zero */
export function returnMemory({ memory, most }, used) {
  idle = idle.filter(({ reference }) => reference.deref());
  idle.push({ reference: new WeakRef(memory), most, used });
}

export class Threads {
  /** @type {import('../base/protocol.js').WorkerLike[]} */
  #workers = [];
  /** @type {unknown[]} */
  #ends = [];

  /** @param {() => import('../base/protocol.js').WorkerLike} startThread @param {Seat[]} seats */
  constructor(startThread, seats) {
    let timer = /** @type {any} */ (undefined);
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`a worker did not start in ${PATIENCE / 1000} s`)), PATIENCE);
    });
    const started = seats.map(seat => new Promise((resolve, reject) => {
      const worker = startThread();
      this.#workers.push(worker);
      worker.onMessage(({ failed }) => failed ? reject(new Error(failed)) : resolve(worker.unref?.()));
      worker.onDeath(reason => reject(new Error(`a worker stopped: ${reason}`)));
      worker.post({ seat });
    }));
    /** Resolves to undefined once all are ready to serve, or to the reason why none is used.
     * @type {Promise<string | undefined>} */
    this.failure = Promise.race([late, Promise.all(started)]).then(() => undefined, error => {
      this.terminate();
      return reasonOf(error);
    }).finally(() => clearTimeout(timer));
    late.catch(() => {});
  }

  /** Lets the threads enter the module, where they wait for work. */
  serve() {
    for (const worker of this.#workers) worker.post({ serve: true });
  }

  /** @returns {Promise<boolean>}  whether all are known to have ended; a browser does not tell */
  async terminate() {
    this.#ends.push(...this.#workers.splice(0).map(worker => worker.terminate()));
    const tell = this.#ends.every(end => end instanceof Promise);
    return (await Promise.allSettled(this.#ends)).every(({ status }) => status === 'fulfilled') && tell;
  }
}

/** The worker's side: returns the handler of its messages. @param {(message: {failed?: string}) => void} post */
export function createThread(post) {
  let c = /** @type {any} */ (undefined), thread = 0;
  return async (/** @type {{seat?: Seat, serve?: boolean}} */ { seat, serve }) => {
    if (seat) {
      try {
        c = (await WebAssembly.instantiate(seat.module, importsOf(seat.module, seat.memory))).exports;
        c.__stack_pointer.value = seat.stack;
        thread = seat.thread;
        post({});
      } catch (error) {
        post({ failed: reasonOf(error) });
      }
    }
    if (!serve) return;
    try {
      c.plumb_threads_serve(thread);
    } catch (error) {
      c.plumb_threads_broken();   // or else the caller would wait for this thread for ever
      throw error;
    }
  };
}
