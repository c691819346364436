/* What both sides take from a browser: modules, compiled while they arrive, and workers for the engine's threads. */
import { PlumbError, reasonOf } from './errors.js';
import { opfs } from './loader/opfs.js';
import { Store } from './loader/store.js';

/** Why the engine has one thread here; undefined where it may have more.
 * @param {boolean} worker  whether it runs in one of its own */
function alone(worker) {
  if (!worker && !('WorkerGlobalScope' in globalThis)) {
    return 'the engine runs in the page\'s own thread, which must not wait for others; leave out worker: false';
  }
  if (!globalThis.crossOriginIsolated) {
    return 'the page is not cross-origin isolated, so the browser gives it no shared memory; serve it with the headers '
      + '"Cross-Origin-Opener-Policy: same-origin" and "Cross-Origin-Embedder-Policy: require-corp"';
  }
}

/** Each spelt out: so bundlers find the files. @type {Record<string, URL>} */
const MODULES = {
  'plumb': new URL('./dist/plumb.wasm', import.meta.url),
  'plumb-mt': new URL('./dist/plumb-mt.wasm', import.meta.url),
  'plumb-relaxed': new URL('./dist/plumb-relaxed.wasm', import.meta.url),
  'plumb-mt-relaxed': new URL('./dist/plumb-mt-relaxed.wasm', import.meta.url),
  'plumb-cli': new URL('./dist/plumb-cli.wasm', import.meta.url),   // of tool.js
};

/** Whether even the smallest module is refused. */
function forbidden() {
  try {
    return !new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0));
  } catch {
    return true;
  }
}

/** Once for all models of a page: what Chromium compiles anew it keeps beside the old. By name.
 * @type {Map<string, Promise<WebAssembly.Module>>} */
const compiled = new Map();

/** @param {URL} url */
async function compile(url) {
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    // Streaming asks for the right MIME type, which not every server sends.
    const streams = response.headers.get('Content-Type')?.startsWith('application/wasm');
    if (streams) return await WebAssembly.compileStreaming(response);
    return await WebAssembly.compile(await response.arrayBuffer());
  } catch (error) {
    if (forbidden()) {
      throw new PlumbError('PLUMB_ERROR_UNSUPPORTED', 'the page\'s Content-Security-Policy forbids WebAssembly: add '
        + '\'wasm-unsafe-eval\' to its script-src');
    }
    throw new PlumbError('PLUMB_ERROR_IO', `${url}: the engine does not load: ${reasonOf(error)}`,
      { url: url.href });
  }
}

export const platform = {
  /** @param {string} name  of MODULES */
  compile(name) {
    const module = compiled.get(name) ?? compile(MODULES[name]);
    compiled.set(name, module);
    module.catch(() => compiled.delete(name));
    return module;
  },
  processors: globalThis.navigator?.hardwareConcurrency ?? 1,
  alone,
  oneBuffer: true,
  store: new Store(opfs),
  startThread: () => wrap(new Worker(new URL('./thread.js', import.meta.url), { type: 'module' })),
};

/** @param {Worker} worker @returns {import('./protocol.js').WorkerLike} */
export const wrap = worker => ({
  post: (message, transfer = []) => worker.postMessage(message, transfer),
  onMessage: handler => worker.addEventListener('message', event => handler(event.data)),
  onDeath: handler => {
    // An error of its code has a message; one of its start has none, whatever the reason.
    worker.addEventListener('error', event => handler(event.message ?? 'it could not start: its files do not load, or '
      + 'the page\'s Content-Security-Policy forbids workers; its worker-src must allow \'self\''));
    worker.addEventListener('messageerror', () => handler('a message could not be read'));
  },
  terminate: () => worker.terminate(),
});
