/* The client of plumb-llm/openai: what code written for OpenAI's package talks to.  Models are loaded where they are
 * first named, and one is kept. */
import { argumentError, PlumbError } from '../base/errors.js';
import * as known from '../base/options.js';
import { Completions } from './completions.js';

/** @typedef {import('../loader/load-options.js').LoadOptions} LoadOptions */
/** @typedef {object} ClientOptions
 * @property {Record<string, import('../loader/source.js').Source>} [models]  what `model` of a call may name, and where
 *   it comes from.  Any other name is a URL (in Node: or a path)
 * @property {LoadOptions} [load]  options of Plumb.load, for each of them */

/** OpenAI's options that have no meaning where no server is asked. */
const OF_SERVERS = [
  'apiKey', 'adminAPIKey', 'organization', 'project', 'webhookSecret', 'baseURL', 'timeout', 'fetchOptions', 'fetch',
  'maxRetries', 'defaultHeaders', 'defaultQuery', 'dangerouslyAllowBrowser', 'logLevel', 'logger', 'workloadIdentity',
  'provider',
];

/** @typedef {import('../template/messages.js').ChatModel
 *   & {rewind: () => Promise<void>, close: () => Promise<void>}} Model */

export class Client {
  #plumb;
  #models;
  #load;
  /** The model that is loaded. @type {{name: string, model: Model} | undefined} */
  #current;
  /** Answers that are not yet in the model's line. */
  #entering = 0;
  #idle = () => {};
  /** Of those that wait for a model. @type {Set<AbortController>} */
  #waiting = new Set();
  /** The last that asked for a model. @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** @param {{load: (source: import('../loader/source.js').Source, options?: LoadOptions) => Promise<Model>}} plumb
   * @param {ClientOptions} [options] */
  constructor(plumb, options = {}) {
    const server = OF_SERVERS.find(name => name in Object(options));
    if (server) {
      throw argumentError(`new OpenAI: leave out ${server}: models run on this machine, no server is asked; known are `
        + Object.keys(known.CLIENT).join(', '));
    }
    known.checkOptions('new OpenAI', options, known.CLIENT);
    const { models = {}, load = {} } = options;
    known.checkOptions('new OpenAI: load', load, known.LOAD);
    this.#plumb = plumb;
    this.#models = models;
    this.#load = load;
    /** `chat.completions.create({model, messages, ...})`: the model is loaded at its first use and kept; another one
     * takes its place once it has answered. */
    this.chat = { completions: new Completions((name, signal) => this.#open(name, signal)) };
  }

  /** Frees the model that is loaded; loads and answers under way end.  The next call loads again. */
  async close() {
    const closed = new PlumbError('PLUMB_ERROR_STATE', 'the client was closed');
    for (const abort of this.#waiting) abort.abort(closed);
    await Promise.all([this.#current?.model.close(), this.#inTurn(() => this.#unload())]);
  }

  /** @param {string} [name] @param {AbortSignal} [signal]  ends the load, too: who waits for the same model begins anew
   * @returns {Promise<{model: Model, entered: () => void}>} */
  async #open(name, signal) {
    if (name === undefined) throw argumentError('chat.completions.create: model is missing');
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
    const lives = await this.#current?.model.info().catch(() => {});   // closed, its worker dead, its engine broken
    if (!lives || this.#current?.name !== name) {
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
    const models = this.#models, named = Object.hasOwn(models, name);
    try {
      return await this.#plumb.load(named ? models[name] : name, { ...this.#load, signal });
    } catch (error) {
      if (named || !(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_IO') throw error;
      const names = Object.keys(models).map(one => JSON.stringify(one)).join(', ') || 'there are none';
      throw new PlumbError(error.code, `${error.message}; model ${JSON.stringify(name)} is none of those of `
        + `new OpenAI({ models }) (${names}), so it was taken for a URL or a path`, error.details);
    }
  }

  /** Once the model has answered: what is not read yet is on this side by then. */
  async #unload() {
    if (this.#entering > 0) await new Promise(resolve => { this.#idle = () => resolve(undefined); });
    const model = this.#current?.model;
    this.#current = undefined;
    await model?.rewind().catch(() => {});   // comes behind the answers
    await model?.close();
  }

  /** Calls one after the other. @template T @param {() => Promise<T>} call @returns {Promise<T>} */
  #inTurn(call) {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }
}
