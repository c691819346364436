/* The worker of documents: it reads files, and searches in their texts.  The page starts one to read each file, which
 * it ends afterwards or when that takes too long, and one that searches.  The bytes are not trusted, so the worker
 * gives up what could send anything before it looks at them. */
import { sha256 } from '../../dist/vendor/noble-hashes/sha2.js';
import { hex } from '../../base/hex.js';
import { readPdf } from './pdf.js';
import { Search } from './search.js';
import { isPdf, Refusal, textOf } from './text.js';

const search = new Search();

/** What the page can ask for.  The result of each is sent back. @type {Record<string, (...args: any[]) => any>} */
const calls = {
  /** @param {File} file */
  async read(file) {
    // Everything that a PDF needs is loaded by import, which these do not concern.
    for (const name of ['fetch', 'XMLHttpRequest', 'WebSocket', 'EventSource', 'WebTransport', 'Worker',
      'BroadcastChannel', 'indexedDB', 'caches', 'eval']) {
      Object.defineProperty(globalThis, name, { value: undefined });
    }
    const bytes = new Uint8Array(await file.arrayBuffer()), digest = hex(sha256(bytes));
    if (!isPdf(bytes)) return { digest, text: textOf(bytes), pages: [], total: 0 };
    const read = await readPdf(bytes, { onPage: (page, total) => postMessage({ progress: { page, total } }) });
    return { digest, ...read };
  },
  /** @param {string} key @param {string} text */
  add: (key, text) => search.add(key, text),
  /** @param {string} question @param {string[]} keys */
  candidates: (question, keys) => search.candidates(question, keys),
  /** @param {{i: number, vector: Float32Array}[]} vectors */
  setVectors: vectors => vectors.forEach(({ i, vector }) => search.setVector(i, vector)),
  /** @param {string} question @param {string[]} keys @param {Float32Array} [vector] */
  find: (question, keys, vector) => search.find(question, keys, { vector }),
};

addEventListener('message', async ({ data: { id, call, args } }) => {
  try {
    postMessage({ id, result: await calls[call](...args) });
  } catch (error) {
    const { message = '' } = /** @type {Error} */ (error) ?? {};
    postMessage({ id, refused: error instanceof Refusal, error: message });
  }
});
