/* The calls between the user's side (api/plumb.js) and the engine's side (engine/host.js).  The engine's side runs in a
 * worker (Remote) or in the caller's thread (Local).  The worker of command/ uses the same protocol.
 *
 * A request can pull: it asks the user's side for something that only that side can get.  This is the next chunk of a
 * part, which is one of the sources that make up a model (loader/source.js), or a compiled module (for
 * 'module' a Variant of engine/variant.js), or what a function in the place of fetch answers (loader/request.js).
 *
 * These are the messages to and from a worker.  Those without an id belong to relay.js.
 *
 *   user's side -> worker    { id, method, args }       starts a request; ids count up from 1.  With abort: true the
 *                                                       method begins with a signal that is already aborted
 *                            { id, abort: true }        aborts the request
 *                            { id, pull, answer }       answers the pull with this number: the next chunk of the
 *                                                       part, null if there is no more, or a module
 *                            { id, pull, failed }       answers a pull whose source failed
 *   worker -> user's side    { id, event, data }        'progress', 'text', 'token' or 'taps' of a running request;
 *                                                       or 'pull', whose data is {part, pull}.  part: the number of
 *                                                       a part, 'module', which asks for a Variant, the name of
 *                                                       another module of dist, or a FetchPull; pull: its number
 *                            { id, result }             ends the request
 *                            { id, error }              ends the request; the error is {name, code, message, details},
 *                                                       as encode() makes it
 *
 * The buffer of a result or a chunk that is a typed array is transferred, not cloned.  So a method must return an array
 * whose buffer nothing else uses: never a view of the engine's memory. */
import { onAbort } from './async.js';
import { PlumbError, reasonOf } from './errors.js';

/** @typedef {number | 'module' | 'wide module' | 'plumb-grammar' | 'plumb-template' | 'plumb-trace' | FetchPull} Part
 *   what can be pulled; 'wide module': one with 64-bit addresses, undefined if this host cannot run it
 * @typedef {{fetch: number, url: string, init: RequestInit} | {read: number} | {cancel: number}} FetchPull  asks for a
 *   response, for the next chunk of its body, or to close it; the engine's side numbers the responses */
/** @typedef {object} Call  what a method gets besides its arguments
 * @property {AbortSignal} signal
 * @property {(event: string, data: any) => void} emit
 * @property {(part: Part) => Promise<any>} pull  gets the next chunk of a pull part, or null
 *   at its end; for 'module', the Variant; otherwise that module
 * @typedef {Record<string, (args: any, call: Call) => any>} Methods */
/** @typedef {object} CallOptions
 * @property {AbortSignal} [signal]
 * @property {(event: string, data: any) => void} [onEvent]
 * @property {(part: Part) => Promise<any>} [onPull] */
/** @typedef {object} Transport
 * @property {(method: string, args?: object, options?: CallOptions) => Promise<any>} call
 * @property {() => unknown} terminate  ends everything at once and rejects pending calls.  If it returns a promise, it
 *   resolves when the worker has ended */
/** @typedef {object} WorkerLike  a browser's Worker or a Node Worker
 * @property {(message: any, transfer?: any[]) => void} post
 * @property {(handler: (message: any) => void) => void} onMessage
 * @property {(handler: (reason: string) => void) => void} onDeath
 * @property {() => unknown} terminate
 * @property {() => void} [ref]  makes the worker keep the process alive
 * @property {() => void} [unref]  lets the process exit while the worker runs */

const stateError = (/** @type {string} */ message) => new PlumbError('PLUMB_ERROR_STATE', message);

/** Runs a call.  If the caller's onEvent throws, that is not a failure of the engine: the call is aborted and rejects
 * with what was thrown.  The reason of an abort is not sent to the engine's side, because it may be any value; so an
 * AbortError from there is replaced by the reason of the caller's signal.
 * @template T
 * @param {CallOptions} options
 * @param {(options: CallOptions & Required<Pick<CallOptions, 'onEvent'>>, abort: AbortController) => Promise<T>} run
 * @returns {Promise<T>} */
async function guarded({ signal, onEvent, onPull }, run) {
  const abort = new AbortController();
  /** @type {{error: unknown} | undefined} */
  let thrown;
  const forward = (/** @type {string} */ event, /** @type {any} */ data) => {
    if (thrown) return;
    try {
      onEvent?.(event, data);
    } catch (error) {
      thrown = { error };
      abort.abort();
    }
  };
  const unfollow = onAbort(signal, () => abort.abort());
  try {
    const result = await run({ onEvent: forward, onPull }, abort);
    if (!thrown) return result;
  } catch (error) {
    const isAbort = error instanceof DOMException && error.name === 'AbortError';
    if (!thrown) throw signal?.aborted && isAbort ? signal.reason : error;
  } finally {
    unfollow();
  }
  throw thrown.error;
}

/** The engine in the caller's own thread. @implements {Transport} */
export class Local {
  #running = new Set();

  /** @param {Methods} methods */
  constructor(methods) {
    this.methods = methods;
  }

  /** @type {Transport['call']} */
  call(method, args = {}, options = {}) {
    return guarded(options, async ({ onEvent, onPull = async () => null }, abort) => {
      this.#running.add(abort);
      try {
        return await this.methods[method](args, { signal: abort.signal, emit: onEvent, pull: onPull });
      } finally {
        this.#running.delete(abort);
      }
    });
  }

  terminate() {
    for (const abort of this.#running) abort.abort(stateError('the model was closed'));
    const { signal } = new AbortController();
    return this.methods.close({}, { signal, emit: () => {}, pull: async () => null }).catch(() => {});
  }
}

/** The engine in a worker.  The worker keeps the process alive only while a call runs. @implements {Transport} */
export class Remote {
  /** @type {Map<number, {resolve: (result: any) => void, reject: (error: unknown) => void} & CallOptions>} */
  #pending = new Map();
  #lastId = 0;
  /** Once the worker has stopped or was terminated: what every later call rejects with.
   * @type {PlumbError | undefined} */
  #dead;
  /** What terminating the worker returned: in Node a promise, in a browser nothing. @type {unknown} */
  #ended;

  /** @param {WorkerLike} worker */
  constructor(worker) {
    this.worker = worker;
    worker.unref?.();
    worker.onMessage(message => this.#receive(message));
    worker.onDeath(reason => this.#end(`the worker stopped: ${reason}`));
  }

  /** @type {Transport['call']} */
  call(method, args = {}, options = {}) {
    return guarded(options, (callbacks, { signal }) => {
      if (this.#dead) return Promise.reject(this.#dead);
      const id = ++this.#lastId;
      const abort = () => this.worker.post({ id, abort: true });
      return new Promise((resolve, reject) => {
        // This is first because it throws if an argument cannot be cloned.  The answer arrives in a later task.
        this.worker.post({ id, method, args, ...signal.aborted && { abort: true } });
        if (this.#pending.size === 0) this.worker.ref?.();
        this.#pending.set(id, { resolve, reject, ...callbacks });
        signal.addEventListener('abort', abort);
      }).finally(() => signal.removeEventListener('abort', abort));
    });
  }

  terminate() {
    this.#end('the model was closed');
    return this.#ended;
  }

  /** @param {string} reason */
  #end(reason) {
    if (this.#dead) return;
    this.#dead = stateError(reason);
    this.#ended = this.worker.terminate();
    for (const { reject } of this.#pending.values()) reject(this.#dead);
    this.#pending.clear();
  }

  /** @param {any} message */
  #receive(message) {
    const { id } = message;
    const call = this.#pending.get(id);
    if (!call) return;
    if (message.event === 'pull') {
      const { part, pull } = message.data;
      this.#answer({ id, pull }, call.onPull?.(part) ?? Promise.resolve(null));
    } else if (message.event) call.onEvent?.(message.event, message.data);
    else {
      this.#pending.delete(id);
      if (this.#pending.size === 0) this.worker.unref?.();
      if (message.error) call.reject(decode(message.error));
      else call.resolve(message.result);
    }
  }

  /** @param {{id: number, pull: number}} to @param {Promise<any>} pulled */
  async #answer(to, pulled) {
    try {
      let answer = await pulled;
      const isChunk = answer instanceof Uint8Array;
      if (isChunk) answer = new Uint8Array(answer);   // a copy, so that the user's array or Buffer stays whole
      if (!this.#dead) this.worker.post({ ...to, answer }, isChunk ? [answer.buffer] : []);
    } catch (error) {
      if (!this.#dead) this.worker.post({ ...to, failed: encode(error) });
    }
  }
}

/** The worker's side: answers requests by calling methods.
 * @param {{post: WorkerLike['post'], onMessage: WorkerLike['onMessage']}} port
 * @param {Methods} methods */
export function serve(port, methods) {
  /** @typedef {{resolve: (answer: any) => void, reject: (error: unknown) => void}} Pull  waits for its answer */
  /** @type {Map<number, {abort: AbortController, pulls: Map<number, Pull>}>} */
  const running = new Map();
  port.onMessage(async message => {
    const { id } = message;
    const request = running.get(id);
    if (!message.method) {
      if (message.abort) return void request?.abort.abort();
      const pull = request?.pulls.get(message.pull);
      request?.pulls.delete(message.pull);
      if (message.failed) pull?.reject(decode(message.failed));
      else pull?.resolve(message.answer);
      return;
    }
    const abort = new AbortController();
    /** @type {Map<number, Pull>} */
    const pulls = new Map();
    let lastPull = 0;
    running.set(id, { abort, pulls });
    if (message.abort) abort.abort();
    abort.signal.addEventListener('abort', () => pulls.forEach(({ reject }) => reject(abort.signal.reason)));
    const emit = (/** @type {string} */ event, /** @type {any} */ data) => port.post({ id, event, data });
    const pull = (/** @type {Part} */ part) => new Promise((resolve, reject) => {
      pulls.set(++lastPull, { resolve, reject });
      emit('pull', { part, pull: lastPull });
    });
    try {
      const result = await methods[message.method](message.args, { signal: abort.signal, emit, pull });
      port.post({ id, result }, ArrayBuffer.isView(result) ? [result.buffer] : []);
    } catch (error) {
      port.post({ id, error: encode(error) });
    } finally {
      running.delete(id);
    }
  });
}

/** An error as a message can carry it.  The class and the cause of an error do not survive being cloned.
 * @param {unknown} error */
function encode(error) {
  if (error instanceof PlumbError) {
    const { name, code, message, details } = error;
    return { name, code, message, details };
  }
  return { name: error instanceof Error ? error.name : 'Error', message: reasonOf(error) };
}

/** The error that encode() was given.  Any error that is neither a PlumbError nor an abort is unexpected, and becomes
 * PLUMB_ERROR. @param {any} error */
function decode({ name, code, message, details }) {
  if (code) return new PlumbError(code, message, details);
  return name === 'AbortError' ? new DOMException(message, name) : new PlumbError('PLUMB_ERROR', `${name}: ${message}`);
}
