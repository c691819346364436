/* plumb in Node.  The engine runs in a worker, unless `worker: false` asks for the caller's thread.  Models can also be
 * read from files. */
import { resolveObjectURL } from 'node:buffer';
import { createReadStream, existsSync, statSync } from 'node:fs';
import { totalmem } from 'node:os';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MessageChannel, Worker } from 'node:worker_threads';
import { createPlumb } from '../api/plumb.js';
import { PlumbError } from '../base/errors.js';
import { HUB } from '../loader/hub.js';
import { urlPart } from '../loader/source.js';
import { attempt, NO_FLAGS, platform, wrap } from './platform.js';

export { PlumbError } from '../base/errors.js';
export { Adapter, Model } from '../api/plumb.js';
export { Session } from '../api/session.js';

/** Loads models. */
export const Plumb = createPlumb({
  ...platform,
  worker: true,
  postsBlobs: false,
  startWorker: () => wrap(new Worker(new URL('./engine-worker.js', import.meta.url), { execArgv: NO_FLAGS })),
  startCommand(blobs) {
    const { port1, port2 } = new MessageChannel();
    const answered = new Int32Array(new SharedArrayBuffer(4));
    port1.on('message', async ({ name, from, to }) => {
      const bytes = await blobs[name].slice(from, to).arrayBuffer().catch(() => undefined);   // the file was changed
      port1.postMessage(bytes && new Uint8Array(bytes));
      Atomics.store(answered, 0, 1);
      Atomics.notify(answered, 0);
    });
    const files = Object.fromEntries(Object.entries(blobs).map(([name, { size }]) => [name, { name, size }]));
    const worker = new Worker(new URL('./command-worker.js', import.meta.url),
      { execArgv: NO_FLAGS, workerData: { bytes: port2, answered }, transferList: [port2] });
    return { worker: wrap(worker), files };
  },
  hub: () => ({ url: process.env.HF_ENDPOINT || HUB, token: process.env.HF_TOKEN || undefined }),
  memory: Math.min(totalmem(), process.constrainedMemory?.() || Infinity),
  exists: text => !/^\s*https?:/i.test(text) && existsSync(text),
  locate(source) {
    const text = String(source);
    if (/^blob:/i.test(text)) return { bytes: blobOf(text) };   // a worker could not resolve it
    if (/^\s*(https?|data):/i.test(text)) return urlPart(text);
    const path = text.startsWith('file:') ? fileURLToPath(text) : text;
    const stats = attempt(path, () => statSync(path));
    // A pipe can be read only once, from its first byte, and has no known size.
    if (stats.isFIFO() || stats.isSocket() || stats.isCharacterDevice()) return { bytes: pipe(path) };
    return { kind: 'file', name: basename(path), size: stats.size, path };
  },
});

/** @param {string} url */
function blobOf(url) {
  const blob = resolveObjectURL(url);
  if (blob) return /** @type {Blob} */ (/** @type {unknown} */ (blob));
  throw new PlumbError('PLUMB_ERROR_IO', `${url}: this process has no Blob with this URL, or it was revoked`, { url });
}

/** The bytes of a pipe, which is opened when the first of them is requested.  Standard input may be a socket, which
 * cannot be opened by its name. @param {string} path @returns {AsyncGenerator<Uint8Array, void, void>} */
async function* pipe(path) {
  const isInput = path === '/dev/stdin' || path === '/dev/fd/0' || path === '/proc/self/fd/0';
  yield* isInput ? process.stdin : createReadStream(path);
}
