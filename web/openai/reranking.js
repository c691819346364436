/* The order of documents by how well they answer a query, in the shape of Jina's and Cohere's services, which
 * llama.cpp's server has too: https://api.jina.ai/redoc, "rerank". */
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { givenOf, nameOf } from './answering.js';

/** @typedef {object} RerankParameters  null is the same as absent
 * @property {string} [model]  a reranker, or a model of embeddings
 * @property {string} query
 * @property {(string | {text: string})[]} documents
 * @property {number | null} [top_n]  how many of the best to return; default: all
 * @property {boolean | null} [return_documents]  return the texts too; default false */
/** @typedef {{index: number, relevance_score: number, document?: {text: string}}} Ranked */
/** @typedef {object} RankingModel  the model that sorts them
 * @property {Record<string, import('../engine/engine.js').MetadataValue>} metadata
 * @property {(query: string, texts: string[], options?: import('../engine/embed.js').RankOptions) =>
 *   Promise<{index: number, score: number}[]>} rank */

export class Reranking {
  #hold;

  /** @param {(where: string, name?: string, signal?: AbortSignal) =>
   *   Promise<{model: RankingModel, free: () => void}>} hold  as for Completions */
  constructor(hold) { this.#hold = hold; }

  /** Sorts documents, as model.rank does.
   * @param {RerankParameters} params @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<{object: 'list', model: string, results: Ranked[],
   *   usage: {prompt_tokens: number, total_tokens: number}}>}  the best document first */
  async create(params, options = {}) {
    const where = 'rerank';
    known.checkOptions(where, options, known.FEED);
    const { model: name, query, documents, top_n, return_documents } =
      givenOf(where, params, known.RERANK, '{query, documents, ...}');
    for (const [key, value] of Object.entries({ query, documents })) {
      if (value === undefined) throw argumentError(`${where}: ${key} is missing`);
    }
    const texts = documents.map(document => typeof document === 'string' ? document : document.text);
    options.signal?.throwIfAborted();
    const { model, free } = await this.#hold(where, name, options.signal);
    let tokens = 0;
    const ranked = await model.rank(query, texts, {
      signal: options.signal, onProgress: progress => { tokens = progress.tokens; },
    }).finally(free);
    return {
      object: 'list', model: nameOf(model, name), usage: { prompt_tokens: tokens, total_tokens: tokens },
      results: ranked.slice(0, top_n).map(({ index, score }) => ({
        index, relevance_score: score, ...return_documents && { document: { text: texts[index] } },
      })),
    };
  }
}
