/* The client of plumb-llm/openai, for code written for OpenAI's package.  It loads a model when a call first names it,
 * and keeps one model at a time. */
import { argumentError, PlumbError } from '../base/errors.js';
import * as known from '../base/options.js';
import { Completions } from './completions.js';
import { Embeddings } from './embeddings.js';

/** @typedef {import('../loader/load-options.js').LoadOptions} LoadOptions */
/** @typedef {object} ClientOptions
 * @property {Record<string, import('../loader/source.js').Source>} [models]  the names that `model` of a call may use,
 *   and the source of each
 * @property {boolean} [otherModels]  whether any other name is a URL, or in Node a path.  By default it is only if
 *   there are no `models`: where there are, the name in a call may come from somebody else
 * @property {LoadOptions} [load]  options of Plumb.load for every model */

/** OpenAI's options that have no meaning without a server. */
const SERVER_OPTIONS = [
  'apiKey', 'adminAPIKey', 'organization', 'project', 'webhookSecret', 'baseURL', 'timeout', 'fetchOptions', 'fetch',
  'maxRetries', 'defaultHeaders', 'defaultQuery', 'dangerouslyAllowBrowser', 'logLevel', 'logger', 'workloadIdentity',
  'provider',
];

/** @typedef {import('../answers/messages.js').ChatModel
 *   & import('./embeddings.js').EmbeddingModel & {rewind: () => Promise<void>, close: () => Promise<void>}} Model */

export class Client {
  #plumb;
  #models;
  #otherModels;
  #load;
  /** The model that is loaded. @type {{name: string, model: Model} | undefined} */
  #current;
  /** How many answers have a model but have not queued all of their requests there yet. */
  #entering = 0;
  #idle = () => {};
  /** One controller for each call that waits for a model. @type {Set<AbortController>} */
  #waiting = new Set();
  /** The latest request for a model. @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** @param {{load: (source: import('../loader/source.js').Source, options?: LoadOptions) => Promise<Model>}} plumb
   * @param {ClientOptions} [options] */
  constructor(plumb, options = {}) {
    const server = SERVER_OPTIONS.find(name => name in Object(options));
    if (server) {
      throw argumentError(`new OpenAI: remove the option ${server}: models run on this machine, and no server is `
        + `involved; the known options are ${Object.keys(known.CLIENT).join(', ')}`);
    }
    known.checkOptions('new OpenAI', options, known.CLIENT);
    const { models, otherModels = models === undefined, load = {} } = options;
    known.checkOptions('new OpenAI: load', load, known.LOAD);
    this.#plumb = plumb;
    this.#models = models ?? {};
    this.#otherModels = otherModels;
    this.#load = load;
    /** `chat.completions.create({model, messages, ...})`.  A model is loaded when it is first used, and kept.  A call
     * with another model replaces it after it has answered. */
    this.chat = { completions: new Completions((name, signal) => this.#open('chat.completions', name, signal)) };
    /** `embeddings.create({model, input, ...})`, with the same models. */
    this.embeddings = new Embeddings((name, signal) => this.#open('embeddings', name, signal));
  }

  /** Frees the model that is loaded, and ends loads and answers that are running.  The next call loads again. */
  async close() {
    const closed = new PlumbError('PLUMB_ERROR_STATE', 'the client was closed');
    for (const abort of this.#waiting) abort.abort(closed);
    await Promise.all([this.#current?.model.close(), this.#inTurn(() => this.#unload())]);
  }

  /** @param {string} where  the caller's name, for the message
   * @param {string} [name] @param {AbortSignal} [signal]  also ends the load: calls that wait for the same model then
   *   load it again
   * @returns {Promise<{model: Model, entered: () => void}>} */
  async #open(where, name, signal) {
    if (name === undefined) throw argumentError(`${where}.create: model is missing`);
    if (!this.#otherModels && !Object.hasOwn(this.#models, name)) {
      throw argumentError(`${where}.create: ${this.#unknown(name)}; otherModels: true allows URLs and paths`);
    }
    const abort = new AbortController(), signals = [signal, this.#load.signal];
    const follow = (/** @type {Event} */ { target }) => abort.abort(/** @type {AbortSignal} */ (target).reason);
    const aborted = new Promise((_, reject) => {
      abort.signal.addEventListener('abort', () => reject(abort.signal.reason));
    });
    for (const one of signals) one?.addEventListener('abort', follow);
    this.#waiting.add(abort);
    const opened = this.#inTurn(() => this.#enter(name, abort.signal));
    try {
      return await Promise.race([aborted, opened]);
    } catch (error) {
      opened.then(({ entered }) => entered(), () => {});
      throw error;
    } finally {
      this.#waiting.delete(abort);
      for (const one of signals) one?.removeEventListener('abort', follow);
    }
  }

  /** @param {string} name @param {AbortSignal} signal */
  async #enter(name, signal) {
    signal.throwIfAborted();
    // info fails if the model is closed, its worker is dead or its engine is broken.
    const isAlive = await this.#current?.model.info().catch(() => {});
    if (!isAlive || this.#current?.name !== name) {
      await this.#unload();
      signal.throwIfAborted();
      this.#load.signal?.throwIfAborted();
      this.#current = { name, model: await this.#loaded(name, signal) };
    }
    this.#entering++;
    const entered = () => {
      if (--this.#entering === 0) this.#idle();
    };
    return { model: /** @type {{model: Model}} */ (this.#current).model, entered };
  }

  /** @param {string} name @param {AbortSignal} signal */
  async #loaded(name, signal) {
    const named = Object.hasOwn(this.#models, name);
    try {
      return await this.#plumb.load(named ? this.#models[name] : name, { ...this.#load, signal });
    } catch (error) {
      if (named || !(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_IO') throw error;
      throw new PlumbError(error.code, `${error.message}; ${this.#unknown(name)}, so it was treated as a URL or a path`,
        error.details);
    }
  }

  /** @param {string} name */
  #unknown(name) {
    const names = Object.keys(this.#models).map(one => JSON.stringify(one)).join(', ') || 'there are none';
    return `model ${JSON.stringify(name)} is not in the models of new OpenAI({ models }) (${names})`;
  }

  /** Waits until the model has answered, and closes it.  Pieces that are not read yet have arrived by then. */
  async #unload() {
    if (this.#entering > 0) await new Promise(resolve => { this.#idle = () => resolve(undefined); });
    const model = this.#current?.model;
    this.#current = undefined;
    await model?.rewind().catch(() => {});   // runs after the answers
    await model?.close();
  }

  /** Runs calls one after the other. @template T @param {() => Promise<T>} call @returns {Promise<T>} */
  #inTurn(call) {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }
}
