/* What both sides take from Node: modules, compiled once, workers, and files, read straight into the engine's
 * memory. */
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { PlumbError, reasonOf } from '../errors.js';
import { Store } from '../loader/store.js';
import { folder, openFile } from './folder.js';

/** By name. @type {Map<string, Promise<WebAssembly.Module>>} */
const compiled = new Map();

/** Memory that chat templates may take: what jinja.js allows takes less. */
const RENDERER_MB = 512;

/** @type {import('../host.js').Platform & import('../variant.js').Machine
 *   & {startRenderer: () => import('../protocol.js').WorkerLike}} */
export const platform = {
  compile(name) {
    const path = fileURLToPath(new URL(`../dist/${name}.wasm`, import.meta.url));
    const module = compiled.get(name) ?? readFile(path).then(bytes => WebAssembly.compile(bytes)).catch(error => {
      compiled.delete(name);
      throw new PlumbError('PLUMB_ERROR_IO',
        `${path}: the engine does not load: ${reasonOf(error)} (\`make wasm\` builds it)`);
    });
    compiled.set(name, module);
    return module;
  },
  processors: availableParallelism(),
  startThread: () => start('./thread.js'),
  startRenderer: () => start('./renderer.js', { resourceLimits: { maxOldGenerationSizeMb: RENDERER_MB } }),
  openFile(path) {
    const file = attempt(path, () => openFile(path));
    return { ...file, read: (target, at) => attempt(path, () => file.read(target, at)) };
  },
  store: new Store(folder),
};

/** A worker of this folder.
 * @param {string} file @param {import('node:worker_threads').WorkerOptions} [options]
 * @returns {import('../protocol.js').WorkerLike} */
export function start(file, options) {
  // No flags of this process (--input-type and the like): they may not fit the worker's file.
  const worker = new Worker(new URL(file, import.meta.url), { ...options, execArgv: [] });
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    onMessage: handler => worker.on('message', handler),
    onDeath: handler => {
      worker.on('error', error => handler(reasonOf(error)));
      worker.on('exit', code => handler(`it exited with ${code}`));
    },
    terminate: () => worker.terminate(),
    ref: () => worker.ref(),
    unref: () => worker.unref(),
  };
}

/** Names the file whose action fails. @template T @param {string} path @param {() => T} action @returns {T} */
export function attempt(path, action) {
  try {
    return action();
  } catch (error) {
    throw new PlumbError('PLUMB_ERROR_IO', `${path}: ${reasonOf(error)}`, { path });
  }
}
