/* Embeddings of texts, and the order of texts by how well they answer a query.  host.js calls these functions. */
import { PlumbError } from '../base/errors.js';

/** @typedef {import('./engine.js').Engine} Engine */
/** @typedef {object} EmbedArgs  what model.embed and model.rank pass on, checked there
 * @property {typeof import('../base/parameters.js').POOLINGS[number]} [pooling]
 * @property {boolean} [normalize]
 * @property {number} [dimensions]
 * @property {boolean} [truncate]
 * @property {boolean} [parseSpecial] */
/** @typedef {object} OwnEmbedOptions
 * @property {boolean} [normalize]  divide each vector by its length, so that the product of two vectors is their cosine
 *   similarity; default true
 * @typedef {InputOptions & OwnEmbedOptions} EmbedOptions */
/** @typedef {object} OwnRankOptions
 * @property {'mean' | 'cls' | 'last'} [pooling]  how the vectors of the tokens become one, without a reranker; default:
 *   as the file says
 * @property {string} [queryPrefix]  is put in front of the query; prefix: in front of each text
 * @typedef {Omit<InputOptions, 'pooling'> & OwnRankOptions} RankOptions  dimensions: without a reranker */
/** @typedef {object} InputOptions
 * @property {'mean' | 'cls' | 'last' | 'none'} [pooling]  how the vectors of the tokens become one: their mean, or that
 *   of the first or last token; default: as the file says.  'none': the vectors of all tokens, one after the other
 * @property {number} [dimensions]  keep only the first elements of each vector, for models that were trained for that
 *   ("Matryoshka"); default: all
 * @property {string} [prefix]  is put in front of each text that is a string, such as "query: " or "search_document: ".
 *   A GGUF file does not say which prefixes its model was trained with; its model card does
 * @property {boolean} [truncate]  leave out the end of a text that is longer than the context; default false: it is
 *   PLUMB_ERROR_CONTEXT
 * @property {boolean} [parseSpecial]  turn the text of a special token into that token; default false
 * @property {AbortSignal} [signal]  makes the call reject with its reason
 * @property {(progress: EmbedProgress) => void} [onProgress]  is called whenever some texts are finished */
/** @typedef {object} EmbedProgress
 * @property {number} done  texts that are finished
 * @property {number} total  texts
 * @property {number} tokens  of the texts that are finished */
/** @typedef {object} Run
 * @property {() => Promise<void>} pause  yields to the event loop; rejects if the call was aborted
 * @property {(progress: EmbedProgress) => void} emit
 * @property {<T>(use: () => T) => T} withRoom  calls use again if other sessions can leave the memory that it has not
 *   found */

/** Milliseconds of tokenizing after which it yields to the event loop. */
const SLICE = 30;
/** How many texts the engine is given at once.  It computes the first of them, about 256 tokens. */
const GIVEN = 64;

/** @param {Engine} engine @param {(string | Int32Array)[]} texts @param {EmbedArgs} args @param {Run} run
 * @returns {Promise<Float32Array[]>} */
export const embed = (engine, texts, args, run) => pooled(engine, 'embed', texts, args, run);

/** @param {Engine} engine @param {'embed' | 'rank'} where @param {(string | Int32Array)[]} texts
 * @param {EmbedArgs} args @param {Run} run */
async function pooled(engine, where, texts, args, run) {
  const pooling = args.pooling ?? engine.modelInfo().pooling;
  if (args.pooling === undefined && (pooling === 'none' || pooling === 'rank')) {
    const why = pooling === 'rank' ? 'the model is a reranker; use model.rank, or'
      : 'the file does not say how the vectors of the tokens become one;';
    throw new PlumbError('PLUMB_ERROR_ARGUMENT', `${where}: ${why} pass a pooling: 'mean', 'cls' or 'last'`);
  }
  const inputs = await tokenize(engine, where, texts, undefined, args, run);
  return compute(engine, where, inputs, pooling, args, run);
}

/** @param {Engine} engine @param {string} query @param {string[]} texts @param {EmbedArgs} args @param {Run} run
 * @returns {Promise<{index: number, score: number}[]>}  the best text first, of equal ones the first */
export async function rank(engine, query, texts, args, run) {
  /** @type {number[]} */
  let scores;
  if (args.pooling === undefined && engine.modelInfo().pooling === 'rank') {
    const inputs = await tokenize(engine, 'rank', texts, query, args, run);
    scores = (await compute(engine, 'rank', inputs, 'rank', { normalize: false }, run)).map(([score]) => score);
  } else {
    const [wanted, ...vectors] = await pooled(engine, 'rank', [query, ...texts], { ...args, normalize: true }, {
      ...run, emit: ({ done, total, tokens }) => run.emit({ done: done - 1, total: total - 1, tokens }),
    });
    scores = vectors.map(vector => vector.reduce((sum, x, i) => sum + x * wanted[i], 0));
  }
  const order = (/** @type {number} */ score) => Number.isNaN(score) ? -Infinity : score;
  return scores.map((score, index) => ({ index, score })).sort((a, b) => order(b.score) - order(a.score) || 0);
}

/** The tokens of texts, or of pairs of a query and each of them.
 * @param {Engine} engine @param {'embed' | 'rank'} where @param {(string | Int32Array)[]} texts
 * @param {string | undefined} query @param {EmbedArgs} args @param {Run} run */
async function tokenize(engine, where, texts, query, { truncate = false, parseSpecial = false }, run) {
  const most = engine.session.contextLength;
  const name = (/** @type {number} */ i) => where === 'embed' || query !== undefined ? `text ${i}`
    : i > 0 ? `text ${i - 1}` : 'the query';
  /** @type {Int32Array[]} */
  const inputs = [];
  let slice = performance.now();
  for (const [i, text] of texts.entries()) {
    if (performance.now() - slice > SLICE) {
      await run.pause();
      slice = performance.now();
    }
    const options = { query, parseSpecial, most: truncate ? most : 0 };
    const ids = typeof text === 'string' ? engine.tokenizeInput(text, options)
      : truncate ? text.subarray(0, most) : text;
    if (ids.length > most) {
      throw new PlumbError('PLUMB_ERROR_CONTEXT', `${where}: ${name(i)} has ${ids.length} tokens, but the context `
        + `holds ${most}; shorten it, pass truncate: true, or load the model with a larger contextLength`,
      { tokens: ids.length, contextLength: most });
    }
    if (ids.length === 0) throw new PlumbError('PLUMB_ERROR_ARGUMENT', `${where}: ${name(i)} has no tokens`);
    inputs.push(ids);
  }
  return inputs;
}

/** @param {Engine} engine @param {'embed' | 'rank'} where @param {Int32Array[]} inputs
 * @param {typeof import('../base/parameters.js').POOLINGS[number]} pooling @param {EmbedArgs} args @param {Run} run */
async function compute(engine, where, inputs, pooling, { dimensions, normalize = true }, run) {
  /** @type {Float32Array[]} */
  const all = [];
  let tokens = 0;
  while (all.length < inputs.length) {
    await run.pause();
    const some = inputs.slice(all.length, all.length + GIVEN);
    const { length, vectors } = run.withRoom(() => engine.session.embed(some, pooling));
    if (dimensions !== undefined && dimensions > length) {
      throw new PlumbError('PLUMB_ERROR_ARGUMENT', `${where}: dimensions is ${dimensions}, but the model's vectors `
        + `have ${length} elements`, { dimensions, elements: length });
    }
    for (const vector of vectors) {
      tokens += inputs[all.length].length;
      all.push(finish(vector, length, dimensions ?? length, normalize));
    }
    run.emit({ done: all.length, total: inputs.length, tokens });
  }
  return all;
}

/** Keeps the first elements of each row of a vector, and divides them by their length.
 * @param {Float32Array} rows @param {number} length  elements of a row @param {number} kept  those that are kept
 * @param {boolean} normalize */
function finish(rows, length, kept, normalize) {
  const result = new Float32Array(rows.length / length * kept);
  for (let row = 0; row * length < rows.length; row++) {
    const from = rows.subarray(row * length, row * length + kept);
    const norm = normalize ? Math.sqrt(from.reduce((sum, x) => sum + x * x, 0)) : 1;
    for (let i = 0; i < kept; i++) result[row * kept + i] = from[i] / (norm || 1);
  }
  return result;
}
