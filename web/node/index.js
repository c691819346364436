/* plumb in Node: the engine runs in the caller's thread unless `worker: true` asks for one; models are also read from
 * files, straight into the engine's memory. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { PlumbError, reasonOf } from '../errors.js';
import { createPlumb } from '../plumb.js';

export { PlumbError } from '../errors.js';
export { Model } from '../plumb.js';

/** At most this much is read at once, so that aborts and progress have their turn. */
const READ = 8 << 20;

/** @type {Promise<WebAssembly.Module> | undefined} */
let compiled;

/** @type {import('../host.js').Platform} */
export const platform = {
  compile() {
    const url = new URL('../dist/plumb.wasm', import.meta.url);
    return compiled ??= readFile(url).then(bytes => WebAssembly.compile(bytes)).catch(error => {
      compiled = undefined;
      throw new PlumbError('PLUMB_ERROR_IO',
        `${fileURLToPath(url)}: the engine does not load: ${reasonOf(error)} (\`make wasm\` builds it)`);
    });
  },
  openFile(path) {
    const file = attempt(path, () => openSync(path, 'r'));
    return {
      read: target => attempt(path, () => readSync(file, target, 0, Math.min(target.length, READ), null)),
      close: () => closeSync(file),
    };
  },
};

export const Plumb = createPlumb({
  ...platform,
  worker: false,
  postsBlobs: false,
  startWorker() {
    // No flags of this process (--input-type and the like): they may not fit the worker's file.
    const worker = new Worker(new URL('./worker.js', import.meta.url), { execArgv: [] });
    return {
      post: (message, transfer = []) => worker.postMessage(message, transfer),
      onMessage: handler => worker.on('message', handler),
      onDeath: handler => {
        worker.on('error', error => handler(reasonOf(error)));
        worker.on('exit', code => handler(`it exited with ${code}`));
      },
      terminate: () => worker.terminate(),
    };
  },
  locate(source) {
    const text = String(source);
    if (/^(https?|data|blob):/.test(text)) return { kind: 'url', name: text, url: text };
    const path = text.startsWith('file:') ? fileURLToPath(text) : text;
    return { kind: 'file', name: basename(path), size: attempt(path, () => statSync(path).size), path };
  },
});

/** @template T @param {string} path @param {() => T} action @returns {T} */
function attempt(path, action) {
  try {
    return action();
  } catch (error) {
    throw new PlumbError('PLUMB_ERROR_IO', `${path}: ${reasonOf(error)}`, { path });
  }
}
