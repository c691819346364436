/* The worker of documents: it reads files, and searches in their texts.  The page starts one to read each file, which
 * it ends afterwards or when that takes too long, and one that searches.  The bytes are not trusted, so the worker
 * gives up what could send anything before it looks at them. */
import { sha256 } from '../../dist/vendor/noble-hashes/sha2.js';
import { hex } from '../../base/hex.js';
import { serve } from '../../base/protocol.js';
import { readPdf } from './pdf.js';
import { Search } from './search.js';
import { isPdf, Refusal, textOf } from './text.js';

const search = new Search();

/** What the page can ask for. @type {import('../../base/protocol.js').Methods} */
const methods = {
  /** `refused`: why the file cannot be attached. @param {{file: File}} args */
  async read({ file }, { emit }) {
    // Everything that a PDF needs is loaded by import, which these do not concern.
    for (const name of ['fetch', 'XMLHttpRequest', 'WebSocket', 'EventSource', 'WebTransport', 'Worker',
      'BroadcastChannel', 'indexedDB', 'caches', 'eval']) {
      Object.defineProperty(globalThis, name, { value: undefined });
    }
    const bytes = new Uint8Array(await file.arrayBuffer()), digest = hex(sha256(bytes));
    try {
      return { digest, ...isPdf(bytes)
        ? await readPdf(bytes, { onPage: (page, total) => emit('progress', { page, total }) })
        : { text: textOf(bytes), pages: [], total: 0 } };
    } catch (error) {
      if (error instanceof Refusal) return { refused: error.message };
      throw error;
    }
  },
  /** @param {{key: string, text: string, index?: import('./search.js').Index}} args */
  add: ({ key, text, index }) => search.add(key, text, index),
  /** @param {{question: string, keys: string[]}} args */
  candidates: ({ question, keys }) => search.candidates(question, keys),
  /** @param {{vectors: {i: number, vector: Float32Array}[]}} args */
  setVectors: ({ vectors }) => vectors.forEach(({ i, vector }) => search.setVector(i, vector)),
  /** @param {{question: string, keys: string[], vector?: Float32Array}} args */
  find: ({ question, keys, vector }) => search.find(question, keys, { vector }),
};

serve({
  post: message => postMessage(message),
  onMessage: handler => addEventListener('message', ({ data }) => handler(data)),
}, methods);
