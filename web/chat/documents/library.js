/* The documents of this page: reads files in a worker of their own, and finds the passages that may answer a question.
 * The page's own thread only passes texts on. */
import { onAbort } from '../../base/async.js';
import { Remote } from '../../base/protocol.js';
import { wrap } from '../../browser/platform.js';
import { nameOf } from './stored.js';
import { MAX_BYTES, Refusal } from './text.js';

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('./stored.js').Place} Place */
/** @typedef {Document & {index?: import('./search.js').Index}} Searched  index: undefined if it is not stored
 * @typedef {{embed: (texts: string[], signal?: AbortSignal) => Promise<Float32Array[]>}} Embedder */

/** Milliseconds that reading a file may take, and how many passages get vectors between two reports of the progress. */
const READ_TIMEOUT = 60000, BATCH = 8;

/** Starts worker.js, whose methods it calls. */
const started = () => new Remote(wrap(new Worker(new URL('worker.js', import.meta.url), { type: 'module' })));

/** Reads a file.  Rejects with a Refusal if it cannot be attached.
 * @param {File} file @param {{signal?: AbortSignal, onProgress?: (progress: {page: number, total: number}) => void}}
 *   [how] @returns {Promise<Document & {text: string}>} */
export async function readDocument(file, { signal, onProgress } = {}) {
  const name = nameOf(file.name);
  if (file.size > MAX_BYTES) throw new Refusal(`It is larger than ${MAX_BYTES / 1e6} MB`);
  if (file.size === 0) throw new Refusal('It is empty');
  const worker = started();
  let unfollow = () => {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const stopped = new Promise((_, reject) => {
    const late = `Reading it took more than ${READ_TIMEOUT / 1000} seconds`;
    timer = setTimeout(() => reject(new Refusal(late)), READ_TIMEOUT);
    unfollow = onAbort(signal, () => reject(new Refusal('Reading it was stopped')));
  });
  try {
    const { refused, digest, text, pages, total } = await Promise.race([stopped,
      worker.call('read', { file }, { onEvent: (_, progress) => onProgress?.(progress) })]);
    if (refused !== undefined) throw new Refusal(refused);
    return { digest, name, size: file.size, text, ...total > 0 && { pages, total } };
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(`It could not be read: ${/** @type {Error} */ (error).message}`);
  } finally {
    clearTimeout(timer);
    unfollow();
    worker.terminate();
  }
}

/** Finds places in documents.  The vectors of their indexes and those that it makes must be of one model. */
export class Finder {
  /** @type {Remote | undefined} */
  #worker;
  /** The keys of the texts that the worker has.  An imported conversation may give a text the digest of another.
   * @type {Map<string, string>} */
  #keys = new Map();

  /** The key of a document, whose text the worker gets if it has it not. @param {Searched} document */
  #add({ text = '', index }) {
    const known = this.#keys.get(text);
    if (known !== undefined) return known;
    const key = String(this.#keys.size);
    this.#keys.set(text, key);
    this.#worker ??= started();
    this.#worker.call('add', { key, text, index }).catch(() => {});   // the search that follows fails, too
    return key;
  }

  /** Ends the worker. */
  close() { this.#worker?.terminate(); }

  /** The places that may answer a question, the best first; none if nothing is near.
   * @param {string} question @param {Searched[]} documents  with their texts
   * @param {{embedder?: Embedder, signal?: AbortSignal, onProgress?: (done: number, total: number) => void}} [how]
   *   embedder: of the model that compares texts; undefined: only words are compared
   * @returns {Promise<Place[]>} */
  async find(question, documents, { embedder, signal, onProgress } = {}) {
    const keys = documents.map(one => this.#add(one)), worker = /** @type {Remote} */ (this.#worker);
    /** @type {Float32Array | undefined} */
    let vector;
    if (embedder) {
      /** @type {{i: number, text: string}[]} */
      const candidates = await worker.call('candidates', { question, keys });
      [vector] = await embedder.embed([question], signal);
      for (let at = 0; at < candidates.length; at += BATCH) {
        onProgress?.(at, candidates.length);
        const some = candidates.slice(at, at + BATCH);
        const vectors = await embedder.embed(some.map(({ text }) => text), signal);
        await worker.call('setVectors', { vectors: some.map(({ i }, n) => ({ i, vector: vectors[n] })) });
      }
    }
    signal?.throwIfAborted();
    /** @type {import('./search.js').Found[]} */
    const found = await worker.call('find', { question, keys, vector });
    if (!found.some(({ near }) => near)) return [];
    return found.map(({ document, start, text, sentence, line }) => {
      const { digest, name, pages } = documents[keys.indexOf(document)];
      return { digest, name, text, start, sentence, line,
        ...pages && { page: pages.filter(at => at <= start + sentence[0]).length } };
    });
  }
}
