/* Models by name.  Each is loaded when somebody first asks for it, and stays while there is memory for it.  If another
 * one needs that memory, the one that was not used for longest is closed, after its answers have ended. */
import { onAbort, unlessAborted } from '../base/async.js';
import { argumentError, PlumbError } from '../base/errors.js';
import * as known from '../base/options.js';

/** @typedef {import('../loader/load-options.js').LoadOptions} LoadOptions
 * @typedef {import('../loader/source.js').Source} Source
 * @typedef {import('../api/plumb.js').Model} Model */
/** @typedef {object} ModelsOptions
 * @property {Record<string, Source>} [models]  the names that a call may use, and the source of each
 * @property {boolean} [otherModels]  whether any other name is a URL, or in Node a path.  By default it is only if
 *   there are no `models`: where there are, the name in a call may come from somebody else
 * @property {LoadOptions} [load]  options of Plumb.load for every model; `reserve` is false by default
 * @property {number} [memory]  how many bytes all models that are loaded may take together; default: 4 GiB.  One model
 *   may take more
 * @property {boolean} [pull]  whether a request may download a model of the hub to this machine, by Ollama's /api/pull;
 *   default false
 * @property {number} [idle]  seconds after which a model that nobody uses is closed; default: never */
/** @typedef {Pick<import('../api/plumb.js').Library, 'load' | 'preflight' | 'pull'>} Loader */
/** @typedef {object} Entry
 * @property {string} name
 * @property {Promise<Model>} loaded
 * @property {Model} [model]  once it is loaded
 * @property {number} users  how many use it or wait for it
 * @property {AbortController} abort  of the load
 * @property {number} used  when it was last used, in milliseconds since 1970
 * @property {number} idle  seconds after which it is closed if nobody uses it; Infinity: never
 * @property {any} [timer]
 * @typedef {import('../engine/preflight.js').Preflight} Preflight */

const MEMORY = 4 * 2 ** 30;
/** The longest time that a timer can wait, in seconds. */
const LONGEST = 2 ** 31 / 1000 - 1;

export class Models {
  #plumb;
  #where;
  #sources;
  #otherModels;
  #load;
  #memory;
  #idle;
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  /** What the headers of the files say. @type {Map<string, Preflight>} */
  #plans = new Map();
  /** The load that was asked for last, which never rejects. @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** Resolves when the load that waits for memory has found it. @type {Promise<void> | undefined} */
  #room;
  /** Called when somebody has left a model. */
  #left = () => {};

  /** Does not load anything yet. @param {string} where  who creates it, for messages @param {Loader} plumb
   * @param {ModelsOptions} [options] */
  constructor(where, plumb, options = {}) {
    const { models, otherModels = models === undefined, load = {}, memory = MEMORY } = options;
    known.checkOptions(`${where}: load`, load, known.LOAD);
    this.#where = where;
    this.#plumb = plumb;
    this.#sources = { ...models };
    this.#otherModels = otherModels;
    this.#load = load;
    this.#memory = memory;
    this.#idle = options.idle ?? Infinity;
    /** Whether a request may download a model. */
    this.mayPull = options.pull ?? false;
  }

  /** Downloads a model, which has this name from then on.
   * @param {string} name  of the hub, or a short one
   * @param {{signal: AbortSignal, onProgress: LoadOptions['onProgress']}} options */
  async pull(name, options) {
    const { headers, credentials, fetch } = this.#load;
    await this.#plumb.pull(name, { headers, credentials, fetch, ...options });
    this.#sources[name] = name;
  }

  /** All names, those of other models that are loaded included, each with its model if it is loaded.
   * @returns {{name: string, model?: Model, users: number, used?: number, idle?: number}[]} */
  list() {
    const names = new Set([...Object.keys(this.#sources), ...this.#entries.keys()]);
    return [...names].map(name => ({ name, users: 0, ...this.#entries.get(name) }));
  }

  /** Loads a model, unless it is loaded, and keeps it until it is freed.  If nobody waits for it any more, the load
   * ends.
   * @param {string} where  who asks, for messages @param {string} [name]  default: the only one that there is
   * @param {AbortSignal} [signal] @returns {Promise<{model: Model, free: () => void}>} */
  async hold(where, name, signal) {
    const wanted = this.#nameOf(where, name);
    for (;;) {
      while (this.#room && this.#entries.get(wanted)?.model) await unlessAborted(this.#room, signal);
      const entry = this.#entries.get(wanted) ?? this.#begin(wanted);
      entry.users++;
      clearTimeout(entry.timer);
      /** @type {(() => void) | undefined} */
      let free = () => {
        free = undefined;
        this.#leave(entry);
      };
      try {
        const model = await unlessAborted(entry.loaded, signal);
        if (await isAlive(model)) return { model, free: () => free?.() };
        if (this.#entries.get(wanted) === entry) this.#entries.delete(wanted);
        free?.();
        model.close().catch(() => {});
      } catch (error) {
        free?.();
        throw error;
      }
    }
  }

  /** Closes a model from now on when nobody has used it for so many seconds, until it is closed.
   * @param {string} name  of a model that is loaded @param {number} idle  Infinity: never */
  keep(name, idle) {
    const entry = this.#entries.get(name);
    if (!entry) return;
    entry.idle = idle;
    this.#startTimer(entry);
  }

  /** What the header of a model's file says.  It is read once.
   * @param {string} where  who asks, for messages @param {string} [name]  as in hold @param {AbortSignal} [signal]
   * @returns {Promise<Preflight>} */
  async about(where, name, signal) {
    const wanted = this.#nameOf(where, name);
    const plan = this.#plans.get(wanted) ?? await this.#preflight(this.#sourceOf(wanted), signal);
    this.#plans.set(wanted, plan);
    return plan;
  }

  /** Closes a model, after its answers have ended.  Returns false if it is not loaded.
   * @param {string} name @returns {Promise<boolean>} */
  async unload(name) {
    const entry = this.#entries.get(name);
    if (!entry?.model) return false;
    clearTimeout(entry.timer);
    this.#entries.delete(name);
    while (entry.users > 0) await new Promise(resolve => { this.#onLeft(() => resolve(undefined)); });
    await entry.model.close();
    return true;
  }

  /** Ends all loads and answers, and closes all models.  The next call loads again. */
  async close() {
    const entries = [...this.#entries.values()], closed = new PlumbError('PLUMB_ERROR_STATE', 'the client was closed');
    this.#entries.clear();
    for (const { abort, timer } of entries) {
      clearTimeout(timer);
      abort.abort(closed);
    }
    await Promise.all(entries.map(async ({ loaded }) => {
      const model = await loaded.catch(() => undefined);
      await model?.close();
    }));
  }

  /** The name of a model that a call may use. @param {string} where @param {string} [name] */
  #nameOf(where, name) {
    const names = Object.keys(this.#sources);
    const wanted = name ?? (names.length === 1 && !this.#otherModels ? names[0] : undefined);
    if (wanted === undefined) throw argumentError(`${where}: model is missing`);
    if (!this.#otherModels && !Object.hasOwn(this.#sources, wanted)) {
      throw argumentError(`${where}: ${this.#unknown(wanted)}; otherModels: true allows URLs and paths`,
        { model: wanted, models: names });
    }
    return wanted;
  }

  /** @param {string} name @returns {Entry} */
  #begin(name) {
    const abort = new AbortController();
    /** @type {Entry} */
    const entry = {
      name, loaded: this.#inTurn(() => this.#open(entry)), users: 0, abort, used: Date.now(), idle: this.#idle,
    };
    this.#entries.set(name, entry);
    entry.loaded.catch(() => {
      if (this.#entries.get(name) === entry) this.#entries.delete(name);
    });
    return entry;
  }

  /** @param {Entry} entry */
  #leave(entry) {
    entry.used = Date.now();
    if (--entry.users === 0 && !entry.model) {
      if (this.#entries.get(entry.name) === entry) this.#entries.delete(entry.name);
      entry.abort.abort();
    }
    this.#startTimer(entry);
    const left = this.#left;
    this.#left = () => {};
    left();
  }

  /** @param {Entry} entry */
  #startTimer(entry) {
    clearTimeout(entry.timer);
    const isListed = this.#entries.get(entry.name) === entry;
    if (!isListed || entry.users > 0 || !entry.model || entry.idle === Infinity) return;
    entry.timer = setTimeout(() => this.unload(entry.name), 1000 * Math.min(entry.idle, LONGEST));
    entry.timer.unref?.();
  }

  /** @param {() => void} call  when somebody next leaves a model */
  #onLeft(call) {
    const before = this.#left;
    this.#left = () => { before(); call(); };
  }

  /** @param {Entry} entry @returns {Promise<Model>} */
  async #open(entry) {
    const { name, abort: { signal } } = entry;
    signal.throwIfAborted();
    const isNamed = Object.hasOwn(this.#sources, name), source = this.#sourceOf(name);
    const options = { reserve: false, ...this.#load };
    const unfollow = onAbort(options.signal, reason => entry.abort.abort(reason));
    try {
      await this.#makeRoom(source, signal);
      entry.model = await this.#plumb.load(source, { ...options, signal });
      return entry.model;
    } catch (error) {
      if (isNamed || !(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_IO') throw error;
      throw new PlumbError(error.code, `${error.message}; ${this.#unknown(name)}, so it was treated as a URL or a path`,
        error.details);
    } finally {
      unfollow();
    }
  }

  /** Closes models that nobody uses until there is memory for another one, or no model is loaded.
   * @param {Source} source @param {AbortSignal} signal */
  async #makeRoom(source, signal) {
    const open = () => [...this.#entries.values()].filter(({ model }) => model);
    if (open().length === 0) return;
    const plan = await this.#preflight(source, signal).catch(() => undefined);   // the load reports what is wrong
    const needed = plan?.memory?.total ?? 0;
    let wake = () => {};
    try {
      for (let all = open(); all.length > 0; all = open()) {
        signal.throwIfAborted();
        const sizes = await Promise.all(all.map(({ model }) => bytesOf(/** @type {Model} */ (model))));
        if (sizes.reduce((sum, size) => sum + size, needed) <= this.#memory) return;
        const [oldest] = all.filter(({ users }) => users === 0).sort((a, b) => a.used - b.used);
        if (oldest) await this.unload(oldest.name);
        else {
          // Calls for the models that are loaded wait meanwhile, or they could keep all of them in use for ever.
          this.#room ??= new Promise(resolve => { wake = resolve; });
          await unlessAborted(new Promise(resolve => { this.#onLeft(() => resolve(undefined)); }), signal);
        }
      }
    } finally {
      this.#room = undefined;
      wake();
    }
  }

  /** @param {Source} source @param {AbortSignal} [signal] */
  #preflight(source, signal) {
    const { contextLength, kvType, snapshots, precision, threads, worker, workerUrl } = this.#load;
    return this.#plumb.preflight(source, {
      contextLength, kvType, snapshots, precision, threads, worker, workerUrl, measure: false, signal,
    });
  }

  /** @param {string} name @returns {Source} */
  #sourceOf(name) { return Object.hasOwn(this.#sources, name) ? this.#sources[name] : name; }

  /** @param {string} name */
  #unknown(name) {
    const names = Object.keys(this.#sources).map(one => JSON.stringify(one)).join(', ') || 'there are none';
    return `model ${JSON.stringify(name)} is not in the models of ${this.#where}({ models }) (${names})`;
  }

  /** Runs calls one after the other. @template T @param {() => Promise<T>} call @returns {Promise<T>} */
  #inTurn(call) {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }
}

/** Info fails if the model is closed, its worker is dead or its engine is broken. @param {Model} model */
const isAlive = model => model.info().then(() => true, () => false);

/** How much memory a model takes; 0 if it is broken. @param {Model} model */
const bytesOf = model => model.info().then(({ memoryBytes }) => memoryBytes, () => 0);
