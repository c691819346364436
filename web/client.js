/* The client of plumb/openai: what code written for OpenAI's package talks to.  Models are loaded where they are first
 * named, and one is kept. */
import { Completions } from './completions.js';
import { argumentError } from './errors.js';
import * as known from './options.js';

/** @typedef {object} ClientOptions
 * @property {Record<string, import('./loader/source.js').Source>} [models]  what `model` of a call may name, and where
 *   it comes from.  Any other name is a URL (in Node: or a path)
 * @property {import('./plumb.js').LoadOptions} [load]  options of Plumb.load, for each of them */

/** OpenAI's options that have no meaning where no server is asked. */
const OF_SERVERS = [
  'apiKey', 'adminAPIKey', 'organization', 'project', 'webhookSecret', 'baseURL', 'timeout', 'fetchOptions', 'fetch',
  'maxRetries', 'defaultHeaders', 'defaultQuery', 'dangerouslyAllowBrowser', 'logLevel', 'logger', 'workloadIdentity',
  'provider',
];

/** @typedef {import('./plumb.js').Model} Model */

export class Client {
  #plumb;
  #models;
  #load;
  /** The model that is loaded. @type {{name: string, model: Model} | undefined} */
  #current;
  #answers = 0;
  #idle = () => {};
  /** The last that asked for a model. @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** @param {{load: (source: import('./loader/source.js').Source, options?: import('./plumb.js').LoadOptions) =>
   *   Promise<Model>}} plumb
   * @param {ClientOptions} [options] */
  constructor(plumb, options = {}) {
    const server = OF_SERVERS.find(name => name in Object(options));
    if (server) {
      throw argumentError(`new OpenAI: leave out ${server}: models run on this machine, no server is asked; known are `
        + Object.keys(known.CLIENT).join(', '));
    }
    known.checkOptions('new OpenAI', options, known.CLIENT);
    const { models = {}, load = {} } = options;
    this.#plumb = plumb;
    this.#models = models;
    this.#load = load;
    /** `chat.completions.create({model, messages, ...})`: the model is loaded at its first use and kept; another one
     * takes its place once no answer runs. */
    this.chat = { completions: new Completions(name => this.#open(name)) };
  }

  /** Frees the model that is loaded, once no answer runs; the next call loads again. */
  async close() {
    await this.#inTurn(() => this.#unload());
  }

  /** @param {string} [name] */
  async #open(name) {
    if (name === undefined) throw argumentError('chat.completions.create: model is missing');
    return this.#inTurn(async () => {
      if (this.#current?.name !== name) {
        await this.#unload();
        const source = Object.hasOwn(this.#models, name) ? this.#models[name] : name;
        this.#current = { name, model: await this.#plumb.load(source, this.#load) };
      }
      this.#answers++;
      const release = () => {
        if (--this.#answers === 0) this.#idle();
      };
      return { model: /** @type {{model: Model}} */ (this.#current).model, release };
    });
  }

  async #unload() {
    if (this.#answers > 0) await new Promise(resolve => { this.#idle = () => resolve(undefined); });
    const model = this.#current?.model;
    this.#current = undefined;
    await model?.close();
  }

  /** Calls one after the other. @template T @param {() => Promise<T>} call @returns {Promise<T>} */
  #inTurn(call) {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }
}
