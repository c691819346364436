/* The client of plumb-llm/openai, for code written for OpenAI's package: the functions of its endpoints, on models that
 * are loaded when a call first names them. */
import { ASYNC_DISPOSE } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { Models } from './models.js';
import { Completions } from '../openai/completions.js';
import { Decisions } from '../openai/decisions.js';
import { Embeddings } from '../openai/embeddings.js';

/** @typedef {Omit<import('./models.js').ModelsOptions, 'idle'>} ClientOptions */

/** OpenAI's options that have no meaning without a server. */
const SERVER_OPTIONS = [
  'apiKey', 'adminAPIKey', 'organization', 'project', 'webhookSecret', 'baseURL', 'timeout', 'fetchOptions', 'fetch',
  'maxRetries', 'defaultHeaders', 'defaultQuery', 'dangerouslyAllowBrowser', 'logLevel', 'logger', 'workloadIdentity',
  'provider',
];

export class Client {
  #models;

  /** @param {import('./models.js').Loader} plumb @param {ClientOptions} [options] */
  constructor(plumb, options = {}) {
    const server = SERVER_OPTIONS.find(name => name in Object(options));
    if (server) {
      throw argumentError(`new OpenAI: remove the option ${server}: models run on this machine, and no server is `
        + `involved; the known options are ${Object.keys(known.CLIENT).join(', ')}`);
    }
    known.checkOptions('new OpenAI', options, known.CLIENT);
    this.#models = new Models('new OpenAI', plumb, options);
    const hold = this.#models.hold.bind(this.#models);
    /** `chat.completions.create({model, messages, ...})`.  A model is loaded when it is first used, and kept while
     * there is memory for it. */
    this.chat = { completions: new Completions(hold) };
    /** `embeddings.create({model, input, ...})`, with the same models. */
    this.embeddings = new Embeddings(hold);
    /** `decisions.create({model, input, questions})`, and `decisions.systemOne({model, state, questions})`. */
    this.decisions = new Decisions(hold);
  }

  /** Frees the models that are loaded, and ends loads and answers that are running.  The next call loads again. */
  async close() { await this.#models.close(); }

  /** `await using` closes the client. @returns {Promise<void>} */
  async [ASYNC_DISPOSE]() { await this.close(); }
}
