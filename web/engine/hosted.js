/* The engine of a host, with its threads and their memory: creates them, and frees them together. */
import { PlumbError } from '../base/errors.js';
import { Engine } from './engine.js';
import { MAX_MEMORY, Threads, returnMemory, takeMemory } from './threads.js';

export class HostedEngine {
  #platform;
  /** @type {Engine | undefined} */
  #engine;
  /** @type {Threads | undefined} */
  #threads;
  /** The memory of an engine with threads. @type {import('./threads.js').SharedMemory | undefined} */
  #shared;
  /** The variant that runs. */
  module = '';
  /** How many bytes the engine's memory can have. */
  limit = MAX_MEMORY;

  /** @param {import('../loader/source.js').Platform} platform */
  constructor(platform) { this.#platform = platform; }

  get engine() {
    if (!this.#engine) throw new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
    return this.#engine;
  }

  /** Creates an engine without a model.  Its threads start while the model arrives.
   * @param {import('./variant.js').Variant} variant @param {AbortSignal} signal @returns {Promise<Engine>} */
  async create({ module, name, threads }, signal) {
    signal.throwIfAborted();
    this.module = name;
    this.#shared = threads > 1 ? takeMemory() : undefined;
    const { startThread } = this.#platform, memory = this.#shared?.memory;
    this.limit = this.#shared?.limit ?? MAX_MEMORY;
    const created = this.#engine = await Engine.create(module, memory);
    if (memory && startThread) {
      const setups = Array.from({ length: threads - 1 }, (_, i) =>
        ({ module, memory, stack: created.createStack(), thread: i + 1 }));
      this.#threads = new Threads(startThread, setups);
    }
    return created;
  }

  /** Lets the threads serve.  Must be called before a session is opened, because a session keeps the number of threads
   * that there are when it is opened.  Returns why there is only one thread although more were requested, otherwise
   * undefined.
   * @param {import('./variant.js').Variant} variant @returns {Promise<string | undefined>} */
  async enableThreads({ threads, note }) {
    if (!this.#threads) return note;
    const failure = await this.#threads.failure;
    if (!failure) {
      this.#threads.serve();
      this.engine.setThreads(threads);
    }
    return failure;
  }

  /** Frees the engine at once.  When the promise resolves, its threads have ended, if this platform reports that. */
  async free() {
    const used = this.#engine?.free(), ended = this.#threads?.terminate(), memory = this.#shared;
    this.#engine = this.#threads = this.#shared = undefined;
    if ((await ended ?? true) && memory && used !== undefined) returnMemory(memory, used);
  }

  /** Turns a RangeError of a load or a preflight into PLUMB_ERROR_MEMORY: JavaScript has failed to allocate memory, and
   * the engine has not crashed.  Returns any other error as it is, including the RangeError of a stack overflow.
   * @param {unknown} error @param {number} [total]  bytes of the model */
  asMemoryError(error, total) {
    if (!(error instanceof RangeError) || /call stack/i.test(error.message)) return error;
    const held = this.#engine?.bytes ?? 0, of = total === undefined ? '' : ` of ${total} bytes`;
    return new PlumbError('PLUMB_ERROR_MEMORY', `no memory for the model${of}; the engine holds ${held} bytes: `
      + error.message, { held, ...total !== undefined && { total } });
  }
}
