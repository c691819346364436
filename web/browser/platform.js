/* What both sides take from a browser: modules, compiled while they arrive, and workers for the engine's threads. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { corsProblem, noConnection, webPage } from '../loader/blame.js';
import { Store } from '../loader/copy-store.js';
import { opfs } from './opfs.js';

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
  // WebKitGTK up to 2.50 says that a page is isolated and still refuses to send shared memory to a worker.
  if (!('SharedArrayBuffer' in globalThis)) {
    return 'this browser has no SharedArrayBuffer, although the page is cross-origin isolated';
  }
}

/** Each spelt out: so bundlers find the files. @type {Record<string, URL>} */
const MODULES = {
  'plumb': new URL('../dist/plumb.wasm', import.meta.url),
  'plumb-mt': new URL('../dist/plumb-mt.wasm', import.meta.url),
  'plumb-relaxed': new URL('../dist/plumb-relaxed.wasm', import.meta.url),
  'plumb-mt-relaxed': new URL('../dist/plumb-mt-relaxed.wasm', import.meta.url),
  'plumb-cli': new URL('../dist/plumb-cli.wasm', import.meta.url),   // of command-worker.js
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
  const failure = (/** @type {string} */ reason) =>
    new PlumbError('PLUMB_ERROR_IO', `${url}: the engine does not load: ${reason}`, { url: url.href });
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw failure(await corsProblem(url.href) ?? noConnection(url.href, error));
  }
  const { ok, status, statusText, headers } = response;
  if (!ok) throw failure(`the server answered ${`${status} ${statusText}`.trim()}`);
  const page = webPage(response, 'a WebAssembly module');
  if (page !== undefined) throw failure(`${page}; the package's folder dist must be served beside its JavaScript`);
  const empty = 'the server sent an empty file, not a WebAssembly module';
  if (headers.get('Content-Length') === '0') throw failure(empty);
  try {
    // Streaming asks for the right MIME type, which not every server sends.
    const type = headers.get('Content-Type');
    if (type?.startsWith('application/wasm')) return await WebAssembly.compileStreaming(response);
    const bytes = await response.arrayBuffer();
    if (bytes.byteLength === 0) throw new Error(empty);
    return await WebAssembly.compile(bytes);
  } catch (error) {
    if (forbidden()) {
      throw new PlumbError('PLUMB_ERROR_UNSUPPORTED', 'the page\'s Content-Security-Policy forbids WebAssembly: add '
        + '\'wasm-unsafe-eval\' to its script-src');
    }
    throw failure(reasonOf(error));
  }
}

/** The worker that create would start.
 * @param {() => Worker} create @returns {{url: URL, isModule: boolean}} */
function planned(create) {
  const { Worker } = globalThis;
  let plan = { url: new URL('about:blank'), isModule: true };
  try {
    // Bundlers rewrite the URL where Worker is called with it, so the call is made with this class in its place.
    globalThis.Worker = /** @type {any} */ (class {
      constructor(/** @type {string | URL} */ url, /** @type {WorkerOptions} */ options) {
        plan = { url: new URL(url, location.href), isModule: options?.type === 'module' };
      }
    });
    create();
  } finally {
    globalThis.Worker = Worker;
  }
  return plan;
}

/** blob: URLs of modules that import a worker of another origin, by its URL. @type {Map<string, string>} */
const blobs = new Map();

/** A worker of another origin.  No browser starts one, but a module of the page's own origin may import it.
 * @param {() => Worker} create */
function startForeign(create) {
  const { url: { href }, isModule } = planned(create);
  const code = isModule ? `import ${JSON.stringify(href)};` : `importScripts(${JSON.stringify(href)});`;
  const blob = blobs.get(href) ?? URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  blobs.set(href, blob);
  return wrap(new Worker(blob, { type: isModule ? 'module' : 'classic' }), `it could not start: ${href} does not load, `
    + 'or the page\'s Content-Security-Policy forbids workers from blob: URLs; add blob: to its worker-src, or give '
    + 'workerUrl, where engine-worker.js lies on the page\'s own origin');
}

/** Whether the package comes from another origin than the page.  Some bundlers put a file: URL here. */
function isForeign() {
  const { protocol, origin } = new URL(import.meta.url);
  return /^https?:$/.test(protocol) && origin !== globalThis.location?.origin;
}

/** Starts a worker of the package.
 * @param {string} file  its name
 * @param {() => Worker} create  starts it, with the URL spelt out, for bundlers read it there
 * @param {string | URL} [workerUrl]  as LoadOptions has it @returns {import('../base/protocol.js').WorkerLike} */
export function start(file, create, workerUrl) {
  if (workerUrl !== undefined) {
    const own = new URL(workerUrl, baseUrl());
    const url = file === 'engine-worker.js' ? own : new URL(file, own);
    return wrap(new Worker(url, { type: 'module' }), `it could not start: ${url}, by workerUrl, does not load`);
  }
  if (isForeign()) return startForeign(create);
  try {
    return wrap(create());
  } catch (error) {
    if (!(error instanceof DOMException) || error.name !== 'SecurityError') throw error;
    return startForeign(create);   // bundled, and the bundle comes from another origin
  }
}

/** What URLs of the page's own code are relative to. */
export const baseUrl = () => globalThis.document?.baseURI ?? globalThis.location?.href;

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
  /** @param {string | URL} [workerUrl] */
  startRenderer: workerUrl =>
    start('template-worker.js', () => new Worker(new URL('./template-worker.js', import.meta.url), { type: 'module' }),
      workerUrl),
  /** @param {string | URL} [workerUrl] */
  startThread: workerUrl =>
    start('thread-worker.js', () => new Worker(new URL('./thread-worker.js', import.meta.url), { type: 'module' }),
      workerUrl),
};

/** @param {Worker} worker
 * @param {string} [silent]  what an error means that has no message
 * @returns {import('../base/protocol.js').WorkerLike} */
export const wrap = (worker, silent = 'it could not start: its files do not load, or the page\'s '
  + 'Content-Security-Policy forbids workers; its worker-src must allow \'self\'') => ({
  post: (message, transfer = []) => worker.postMessage(message, transfer),
  onMessage: handler => worker.addEventListener('message', event => handler(event.data)),
  onDeath: handler => {
    // An error of its code has a message; one of its start has none, whatever the reason.
    worker.addEventListener('error', event => handler(event.message ?? silent));
    worker.addEventListener('messageerror', () => handler('a message could not be read'));
  },
  terminate: () => worker.terminate(),
});
