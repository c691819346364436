/* What the user's side and the engine's side need from Node: modules, which are compiled once, workers, and files,
 * which are read straight into the engine's memory. */
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { PlumbError, reasonOf } from '../base/errors.js';
import { MODULES } from '../engine/modules.js';
import { Store } from '../loader/copy-store.js';
import { folder, openFile } from './cache-folder.js';

/** The compiled modules by name. @type {Map<string, Promise<WebAssembly.Module>>} */
const compiled = new Map();

/** The execArgv of workers.  It is empty, because the flags of this process (such as --input-type) may not fit their
 * files. @type {string[]} */
export const NO_FLAGS = [];

/** @type {import('../loader/source.js').Platform & import('../engine/variant.js').Machine} */
export const platform = {
  compile(name) {
    const path = fileURLToPath(MODULES[name]);
    const module = compiled.get(name) ?? readFile(path).then(bytes => WebAssembly.compile(bytes)).catch(error => {
      compiled.delete(name);
      throw new PlumbError('PLUMB_ERROR_IO',
        `${path}: the engine does not load: ${reasonOf(error)} (\`make wasm\` builds it)`);
    });
    compiled.set(name, module);
    return module;
  },
  processors: availableParallelism(),
  startThread: () => wrap(new Worker(new URL('./thread-worker.js', import.meta.url), { execArgv: NO_FLAGS })),
  openFile(path) {
    const file = attempt(path, () => openFile(path));
    return { ...file, read: (target, at) => attempt(path, () => file.read(target, at)) };
  },
  store: new Store(folder),
};

/** @param {Worker} worker @returns {import('../base/protocol.js').WorkerLike} */
export const wrap = worker => ({
  post: (message, transfer = []) => worker.postMessage(message, transfer),
  onMessage: handler => worker.on('message', handler),
  onDeath: handler => {
    worker.on('error', error => handler(reasonOf(error)));
    worker.on('exit', code => handler(`it exited with code ${code}`));
  },
  terminate: () => worker.terminate(),
  ref: () => worker.ref(),
  unref: () => worker.unref(),
});

/** Runs an action on a file.  If it fails, the error names the file. @template T @param {string} path
 * @param {() => T} action @returns {T} */
export function attempt(path, action) {
  try {
    return action();
  } catch (error) {
    throw new PlumbError('PLUMB_ERROR_IO', `${path}: ${reasonOf(error)}`, { path });
  }
}
