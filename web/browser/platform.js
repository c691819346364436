/* What the user's side and the engine's side need from a browser: modules, which are compiled while they arrive, and
 * workers. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { MODULES } from '../engine/modules.js';
import { corsProblem, noConnection, webPage } from '../loader/fetch-errors.js';
import { Store } from '../loader/copy-store.js';
import { opfs } from './opfs.js';

/** Throws if this is Node, which has an entry of its own. */
export function checkHost() {
  if ('Worker' in globalThis || !(/** @type {any} */ (globalThis).process?.versions?.node)) return;
  throw new PlumbError('PLUMB_ERROR_UNSUPPORTED', 'this is the entry of plumb-llm for browsers: in Node import '
    + '\'plumb-llm\', or its file node/index.js');
}

/** Why the engine has only one thread here; undefined if it may have more.
 * @param {boolean} worker  whether the engine runs in a worker of its own */
function singleThreadReason(worker) {
  if (!worker && !('WorkerGlobalScope' in globalThis)) {
    return 'the engine runs in the page\'s own thread, which must not block; leave out worker: false';
  }
  if (!globalThis.crossOriginIsolated) {
    return 'the page is not cross-origin isolated, so the browser gives it no shared memory; serve it with the headers '
      + '"Cross-Origin-Opener-Policy: same-origin" and "Cross-Origin-Embedder-Policy: require-corp"';
  }
  if (!('Worker' in globalThis)) return `a ${scopeName()} cannot start workers`;
  // WebKitGTK up to 2.50 says that a page is isolated, but refuses to send shared memory to a worker.
  if (!('SharedArrayBuffer' in globalThis)) {
    return 'this browser has no SharedArrayBuffer, although the page is cross-origin isolated';
  }
}

/** Such as SharedWorkerGlobalScope. */
const scopeName = () => globalThis.constructor?.name ?? 'scope of this kind';

/** Whether this page is forbidden to compile even the smallest module. */
function forbidden() {
  try {
    return !new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0));
  } catch {
    return true;
  }
}

/** The compiled modules by name, for all models of a page: if Chromium compiles a module again, it keeps both results.
 * @type {Map<string, Promise<WebAssembly.Module>>} */
const compiled = new Map();

/** @param {URL} url */
async function compile(url) {
  checkHost();
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
    // compileStreaming requires the right MIME type, which not every server sends.
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

/** The URL and the type of the worker that create would start.
 * @param {() => Worker} create @returns {{url: URL, isModule: boolean}} */
function planned(create) {
  const { Worker } = globalThis;
  let plan = { url: new URL('about:blank'), isModule: true };
  try {
    // Bundlers rewrite the URL in the call of Worker.  That call is run with this class in the place of Worker.
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

/** blob: URLs of modules that import a worker of another origin, by the URL of that worker.
 * @type {Map<string, string>} */
const blobs = new Map();

/** Starts a worker of another origin.  No browser does so directly, but a module of the page's own origin may import
 * it.
 * @param {() => Worker} create */
function startForeign(create) {
  const { url: { href }, isModule } = planned(create);
  const code = isModule ? `import ${JSON.stringify(href)};` : `importScripts(${JSON.stringify(href)});`;
  const blob = blobs.get(href) ?? URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  blobs.set(href, blob);
  return wrap(new Worker(blob, { type: isModule ? 'module' : 'classic' }), `it could not start: ${href} does not load, `
    + 'or the page\'s Content-Security-Policy forbids workers from blob: URLs; add blob: to its worker-src, or set '
    + 'workerUrl to the URL of engine-worker.js on the page\'s own origin');
}

/** Whether the package comes from another origin than the page.  Some bundlers make import.meta.url a file: URL. */
function isForeign() {
  const { protocol, origin } = new URL(import.meta.url);
  return /^https?:$/.test(protocol) && origin !== globalThis.location?.origin;
}

/** Starts a worker of the package.
 * @param {string} file  the name of its file
 * @param {() => Worker} create  starts it, with the URL spelt out, so that bundlers find it
 * @param {string | URL} [workerUrl]  as in LoadOptions @returns {import('../base/protocol.js').WorkerLike} */
export function start(file, create, workerUrl) {
  checkHost();
  if (!('Worker' in globalThis)) {
    throw new PlumbError('PLUMB_ERROR_UNSUPPORTED', `a ${scopeName()} cannot start workers: use plumb in a page or `
      + `in a dedicated worker${file === 'engine-worker.js' ? ', or load with worker: false' : ''}`);
  }
  if (workerUrl !== undefined) {
    const engineUrl = new URL(workerUrl, baseUrl());
    const url = file === 'engine-worker.js' ? engineUrl : new URL(file, engineUrl);
    return wrap(new Worker(url, { type: 'module' }), `it could not start: ${url} (from workerUrl) does not load`);
  }
  if (isForeign()) return startForeign(create);
  try {
    return wrap(create());
  } catch (error) {
    if (!(error instanceof DOMException) || error.name !== 'SecurityError') throw error;
    return startForeign(create);   // the package is in a bundle from another origin
  }
}

/** The URL to which the URLs in the page's code are relative. */
export const baseUrl = () => globalThis.document?.baseURI ?? globalThis.location?.href;

export const platform = {
  /** @param {string} name  a key of MODULES */
  compile(name) {
    const module = compiled.get(name) ?? compile(MODULES[name]);
    compiled.set(name, module);
    module.catch(() => compiled.delete(name));
    return module;
  },
  processors: globalThis.navigator?.hardwareConcurrency ?? 1,
  singleThreadReason,
  oneBuffer: true,
  store: new Store(opfs),
  /** @param {string | URL} [workerUrl] */
  startThread: workerUrl =>
    start('thread-worker.js', () => new Worker(new URL('./thread-worker.js', import.meta.url), { type: 'module' }),
      workerUrl),
};

/** @param {Worker} worker
 * @param {string} [silent]  the reason for an error without a message
 * @returns {import('../base/protocol.js').WorkerLike} */
export const wrap = (worker, silent = 'it could not start: its files do not load, or the page\'s '
  + 'Content-Security-Policy forbids workers; its worker-src must allow \'self\'') => ({
  post: (message, transfer = []) => worker.postMessage(message, transfer),
  onMessage: handler => worker.addEventListener('message', event => handler(event.data)),
  onDeath: handler => {
    // An error in the worker's code has a message; a failure to start it has none, whatever the reason.
    worker.addEventListener('error', event => handler(event.message ?? silent));
    worker.addEventListener('messageerror', () => handler('a message could not be read'));
  },
  terminate: () => worker.terminate(),
});
