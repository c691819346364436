/* The documents of this page: reads files in a worker of their own, and finds the passages that may answer a question.
 * The page's own thread only passes texts on. */
import { nameOf } from './stored.js';
import { MAX_BYTES, Refusal } from './text.js';

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('./stored.js').Place} Place */
/** @typedef {{embed: (texts: string[], signal?: AbortSignal) => Promise<Float32Array[]>}} Embedder */

/** Milliseconds that reading a file may take, and how many passages get vectors between two reports of the progress. */
const READ_TIMEOUT = 60000, BATCH = 8;

/** Calls the functions of worker.js. */
class Caller {
  #worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
  /** @type {Map<number, {resolve: (value: any) => void, reject: (reason: Error) => void}>} */
  #waiting = new Map();
  #last = 0;

  /** @param {(progress: {page: number, total: number}) => void} [onProgress] */
  constructor(onProgress) {
    this.#worker.addEventListener('message', ({ data: { id, result, error, refused, progress } }) => {
      if (progress) return onProgress?.(progress);
      const one = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) one?.resolve(result);
      else one?.reject(refused ? new Refusal(error) : new Error(error));
    });
    this.#worker.addEventListener('error', event => {
      event.preventDefault();
      this.end(new Error(event.message || 'The worker of documents could not be started'));
    });
  }

  /** @param {string} call @param {...unknown} args @returns {Promise<any>} */
  call(call, ...args) {
    return new Promise((resolve, reject) => {
      this.#waiting.set(++this.#last, { resolve, reject });
      this.#worker.postMessage({ id: this.#last, call, args });
    });
  }

  /** Ends the worker, whatever it does. @param {Error} [reason] */
  end(reason = new Refusal('Reading it was stopped')) {
    this.#worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }
}

/** Reads a file.  Rejects with a Refusal if it cannot be attached.
 * @param {File} file @param {{signal?: AbortSignal, onProgress?: (progress: {page: number, total: number}) => void}}
 *   [how] @returns {Promise<Document & {text: string}>} */
export async function readDocument(file, { signal, onProgress } = {}) {
  const name = nameOf(file.name);
  if (file.size > MAX_BYTES) throw new Refusal(`It is larger than ${MAX_BYTES / 1e6} MB`);
  if (file.size === 0) throw new Refusal('It is empty');
  const caller = new Caller(onProgress), stop = () => caller.end();
  const timer = setTimeout(() => caller.end(new Refusal(`Reading it took more than ${READ_TIMEOUT / 1000} seconds`)),
    READ_TIMEOUT);
  signal?.addEventListener('abort', stop);
  try {
    signal?.throwIfAborted();
    const { digest, text, pages, total } = await caller.call('read', file);
    return { digest, name, size: file.size, text, ...total > 0 && { pages, total } };
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(`It could not be read: ${/** @type {Error} */ (error).message}`);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
    caller.end();
  }
}

/** Finds places in documents. */
export class Finder {
  /** @type {Caller | undefined} */
  #caller;
  /** The keys of the texts that the worker has.  An imported conversation may give a text the digest of another.
   * @type {Map<string, string>} */
  #keys = new Map();

  /** The key of a document, whose text the worker gets if it has it not. @param {Document} document */
  #add({ text = '' }) {
    const known = this.#keys.get(text);
    if (known !== undefined) return known;
    const key = String(this.#keys.size);
    this.#keys.set(text, key);
    this.#caller ??= new Caller();
    this.#caller.call('add', key, text).catch(() => {});   // the search that follows fails, too
    return key;
  }

  /** The places that may answer a question, the best first; none if nothing is near.
   * @param {string} question @param {Document[]} documents  with their texts
   * @param {{embedder?: Embedder, signal?: AbortSignal, onProgress?: (done: number, total: number) => void}} [how]
   *   embedder: of the model that compares texts; undefined: only words are compared
   * @returns {Promise<Place[]>} */
  async find(question, documents, { embedder, signal, onProgress } = {}) {
    const keys = documents.map(one => this.#add(one)), caller = /** @type {Caller} */ (this.#caller);
    /** @type {Float32Array | undefined} */
    let vector;
    if (embedder) {
      /** @type {{i: number, text: string}[]} */
      const candidates = await caller.call('candidates', question, keys);
      [vector] = await embedder.embed([question], signal);
      for (let at = 0; at < candidates.length; at += BATCH) {
        onProgress?.(at, candidates.length);
        const some = candidates.slice(at, at + BATCH);
        const vectors = await embedder.embed(some.map(({ text }) => text), signal);
        await caller.call('setVectors', some.map(({ i }, n) => ({ i, vector: vectors[n] })));
      }
    }
    signal?.throwIfAborted();
    /** @type {import('./search.js').Found[]} */
    const found = await caller.call('find', question, keys, vector);
    if (!found.some(({ near }) => near)) return [];
    return found.map(({ document, start, text, sentence, line }) => {
      const { digest, name, pages } = documents[keys.indexOf(document)];
      return { digest, name, text, start, sentence, line,
        ...pages && { page: pages.filter(at => at <= start + sentence[0]).length } };
    });
  }
}
