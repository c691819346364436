/* Where models can be in Node: at URLs, in files and pipes, in Blobs of this process, and on the hub.  HF_ENDPOINT is
 * the server of the hub, and HF_TOKEN a token for it. */
import { resolveObjectURL } from 'node:buffer';
import { createReadStream, existsSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PlumbError } from '../base/errors.js';
import { HUB } from '../loader/hub.js';
import { urlPart } from '../loader/source.js';
import { attempt, platform } from './platform.js';

/** @type {import('../loader/resolve.js').Places & {store?: import('../loader/copy-store.js').Store}} */
export const places = {
  store: platform.store,
  hub: () => ({ url: process.env.HF_ENDPOINT || HUB, token: process.env.HF_TOKEN || undefined }),
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
  postsBlobs: false,
};

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
