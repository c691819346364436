/* The engine's threads: workers that instantiate its module once more, on the same memory, and serve its pool
 * (src/base/pool.h).  All or none: if one does not start, the engine computes alone and says why. */
import { importsOf } from './engine.js';
import { reasonOf } from './errors.js';

/** @typedef {{module: WebAssembly.Module, memory: WebAssembly.Memory, stack: number, thread: number}} Seat
 *   stack: its upper end */

/** INITIAL_MEMORY and MAX_MEMORY of wasm/toolchain.mk, in pages. */
const INITIAL = 256, MAXIMUM = 65535, PAGE = 1 << 16;
/** Bytes that a module's own memory may have. */
export const MOST_MEMORY = MAXIMUM * PAGE;
/** Milliseconds that a worker may take to start, on a machine that has much to do. */
const PATIENCE = 20000;

/** The memory that instances of a module with threads share, and the bytes that it may have. */
export function sharedMemory() {
  for (let maximum = MAXIMUM; ; maximum >>= 1) {
    try {
      return { memory: new WebAssembly.Memory({ initial: INITIAL, maximum, shared: true }), most: maximum * PAGE };
    } catch (error) {
      if (maximum < 2 * INITIAL) throw error;   // some devices cannot set so many addresses aside
    }
  }
}

export class Threads {
  /** @type {import('./protocol.js').WorkerLike[]} */
  #workers = [];

  /** @param {() => import('./protocol.js').WorkerLike} startThread @param {Seat[]} seats */
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
    /** Undefined once all are ready to serve, else why none is. @type {Promise<string | undefined>} */
    this.failure = Promise.race([late, Promise.all(started)]).then(() => undefined, error => {
      this.terminate();
      return reasonOf(error);
    }).finally(() => clearTimeout(timer));
    late.catch(() => {});
  }

  /** From now on they wait in the module. */
  serve() {
    for (const worker of this.#workers) worker.post({ serve: true });
  }

  terminate() {
    for (const worker of this.#workers) worker.terminate();
    this.#workers = [];
  }
}

/** The worker's side: the handler of its messages. @param {(message: {failed?: string}) => void} post */
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
      c.plumb_threads_broken();   // whoever waits for its part would wait for ever
      throw error;
    }
  };
}
