/* OpenAI's embeddings with a model on this machine: https://platform.openai.com/docs/api-reference/embeddings. */
import { yieldToEventLoop } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { givenOf, nameOf } from './answering.js';

/** @typedef {object} EmbeddingParameters  null is the same as absent
 * @property {string} [model]  as in chat.completions.create
 * @property {string | string[] | number[] | number[][]} input  one text or several, as strings or as token ids
 * @property {number | null} [dimensions]  keep only the first elements of each vector; for models that were trained for
 *   that
 * @property {'float' | 'base64' | null} [encoding_format]  base64: the bytes of a vector's f32 values; default float
 * @property {string | null} [user]
 * @property {'mean' | 'cls' | 'last' | null} [pooling]  plumb's own: as in model.embed
 * @property {boolean | null} [truncate]  plumb's own: as in model.embed */
/** @typedef {object} Embedding
 * @property {'embedding'} object
 * @property {number} index  of the text
 * @property {number[] | string} embedding  of length 1; a string with encoding_format base64 */
/** @typedef {object} EmbeddingResponse
 * @property {'list'} object
 * @property {Embedding[]} data
 * @property {string} model
 * @property {{prompt_tokens: number, total_tokens: number}} usage */
/** @typedef {object} EmbeddingModel  the model that computes them
 * @property {Record<string, import('../engine/engine.js').MetadataValue>} metadata
 * @property {(texts: (string | Int32Array)[], options?: import('../engine/embed.js').EmbedOptions) =>
 *   Promise<Float32Array[]>} embed */

/** How many texts or vectors are copied before the event loop turns. */
const AT_ONCE = 64;

/** `model.embeddings`, and `embeddings` of the client of plumb-llm/openai. */
export class Embeddings {
  #hold;

  /** @param {(where: string, name?: string, signal?: AbortSignal) =>
   *   Promise<{model: EmbeddingModel, free: () => void}>} hold  as for Completions */
  constructor(hold) {
    this.#hold = hold;
  }

  /** Computes embeddings, as model.embed does.
   * @param {EmbeddingParameters} params
   * @param {{signal?: AbortSignal}} [options]  signal: makes the call reject with its reason
   * @returns {Promise<EmbeddingResponse>} */
  async create(params, options = {}) {
    const where = 'embeddings.create';
    known.checkOptions(where, options, known.FEED);
    const given = givenOf(where, params, known.EMBEDDING, '{input, ...}');
    const { input, dimensions, encoding_format: format = 'float', pooling, truncate } = given;
    if (input === undefined) throw argumentError(`${where}: input is missing`);
    const isOne = typeof input === 'string' || typeof input[0] === 'number';
    const texts = [];
    for (const [i, text] of /** @type {(string | number[])[]} */ (isOne ? [input] : input).entries()) {
      if (i % AT_ONCE === AT_ONCE - 1) await yieldToEventLoop();
      texts.push(typeof text === 'string' ? text : new Int32Array(text));
    }
    options.signal?.throwIfAborted();
    const { model, free } = await this.#hold(where, given.model, options.signal);
    let tokens = 0;
    const vectors = await model.embed(texts, {
      dimensions, pooling, truncate, signal: options.signal, onProgress: progress => { tokens = progress.tokens; },
    }).finally(free);
    /** @type {Embedding[]} */
    const data = [];
    for (const [index, vector] of vectors.entries()) {
      if (index % AT_ONCE === AT_ONCE - 1) await yieldToEventLoop();
      data.push({ object: 'embedding', index, embedding: format === 'base64' ? base64(vector) : [...vector] });
    }
    return {
      object: 'list', model: nameOf(model, given.model), data,
      usage: { prompt_tokens: tokens, total_tokens: tokens },
    };
  }
}

/** @param {Float32Array} vector */
const base64 = vector => btoa(String.fromCharCode(...new Uint8Array(vector.buffer)));
