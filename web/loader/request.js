/* Sends the requests for the files of models, with what the caller adds to them: headers, credentials, and a function
 * in the place of fetch.  That function stays on the user's side, because it cannot be sent to a worker: there,
 * fetchServer calls it, and on the engine's side pulledFetch asks it by pulls (base/protocol.js), first for a response
 * and then for each chunk of its body. */
import { onAbort } from '../base/async.js';
import { PlumbError, argumentError } from '../base/errors.js';

/** @typedef {(url: string, init: RequestInit) => Promise<Response>} Fetch */
/** @typedef {object} RequestOptions  what a caller adds to the requests of a load
 * @property {Record<string, string> | [string, string][] | Headers} [headers]  headers of each request to the server of
 *   the model, such as `{ Authorization: 'Bearer ...' }`.  Servers of other origins do not get them: neither for other
 *   parts or adapters, nor when a request is redirected to one.  (A browser, which follows redirects itself, removes
 *   Authorization, and sends other headers only if that server allows them by CORS.)
 * @property {'omit' | 'same-origin' | 'include'} [credentials]  whether a browser sends cookies, in the terms of fetch
 * @property {(url: string, init: RequestInit) => Promise<Response>} [fetch]  used in the place of fetch for all
 *   requests of the load.  It runs in the thread that calls, so each byte takes longer
 * @property {string} [cacheKey]  the name of the copy on this machine, in the place of the URL: for URLs that change,
 *   such as signed ones.  Another part of the model than the first has it with "#2", "#3" and so on */
/** @typedef {{url: string, headers?: Record<string, string>,
 *   credentials?: 'omit' | 'same-origin' | 'include'}} Target */

/** The most redirects that are followed, as by fetch. */
const MAX_REDIRECTS = 20;

/** Sends a request.  In Node it follows redirects itself, so that headers of the caller, which fetch would pass on, are
 * sent to no other origin.  A browser does not say where a redirect leads.
 * @param {Target} target @param {RequestInit} init @param {Fetch} [fetch] @returns {Promise<Response>} */
export async function send({ url, headers, credentials }, init, fetch = globalThis.fetch) {
  const options = { ...init, ...credentials && { credentials } };
  if (!headers || !/^https?:/i.test(url)) return fetch(url, options);
  const all = new Headers(headers);
  new Headers(init.headers).forEach((value, name) => all.set(name, value));
  if (globalThis.location) return fetch(url, { ...options, headers: all });
  let own = true;
  for (let at = url, redirects = 0; ; redirects++) {
    /** @type {Response} */
    const response = await fetch(at, { ...options, headers: own ? all : init.headers, redirect: 'manual' });
    const location = response.headers.get('Location');
    if (![301, 302, 303, 307, 308].includes(response.status) || location === null) return response;
    response.body?.cancel().catch(() => {});
    if (redirects === MAX_REDIRECTS) throw new Error(`more than ${MAX_REDIRECTS} redirects`);
    const next = new URL(location, at);
    own &&= next.origin === new URL(url).origin;
    at = next.href;
  }
}

/** @typedef {{status: number, statusText: string, type: string, headers: [string, string][], hasBody: boolean}}
 *   Head */

/** The caller's fetch, as the engine's side uses it.
 * @param {import('../base/protocol.js').Call} call @returns {Fetch} */
export function pulledFetch(call) {
  let last = 0;
  return async (url, { signal, headers, ...init }) => {
    const n = ++last;
    const cancel = () => void call.pull({ cancel: n }).catch(() => {});
    let unfollow = () => {};
    const aborted = new Promise((_, reject) => {
      unfollow = onAbort(signal ?? undefined, reason => {
        reject(reason);
        cancel();
      });
    });
    aborted.catch(() => {});
    /** @template T @param {Promise<T>} pulled @returns {Promise<T>} */
    const whileWanted = pulled => Promise.race([pulled, aborted]).catch(error => {
      // What was thrown on the user's side fails the request, which may be repeated, and not the engine.
      throw error instanceof PlumbError && error.code === 'PLUMB_ERROR' ? new Error(error.message) : error;
    });
    signal?.throwIfAborted();
    const ask = { fetch: n, url, init: { ...init, headers: [...new Headers(headers)] } };
    const { status, statusText, type, headers: answered, hasBody } =
      /** @type {Head} */ (await whileWanted(call.pull(ask)).catch(error => {
        unfollow();
        throw error;
      }));
    const body = !hasBody ? null : new ReadableStream({
      async pull(controller) {
        const chunk = await whileWanted(call.pull({ read: n }));
        if (chunk) return controller.enqueue(chunk);
        unfollow();
        controller.close();
      },
      cancel() {
        unfollow();
        cancel();
      },
    }, { highWaterMark: 0 });
    if (!hasBody) unfollow();
    const ok = status >= 200 && status < 300;
    return /** @type {Response} */ ({ ok, status, statusText, type, headers: new Headers(answered), body });
  };
}

/** The user's side of pulledFetch.  end closes the responses that are still open. @param {Fetch} fetch */
export function fetchServer(fetch) {
  /** @type {Map<number, {abort: AbortController, reader?: ReadableStreamDefaultReader<Uint8Array>}>} */
  const open = new Map();
  const close = (/** @type {number} */ n) => {
    const { abort, reader } = open.get(n) ?? {};
    open.delete(n);
    reader?.cancel().catch(() => {});
    abort?.abort();
  };
  return {
    /** @param {import('../base/protocol.js').FetchPull} pull @returns {Promise<Head | Uint8Array | null>} */
    async answer(pull) {
      if ('cancel' in pull) {
        close(pull.cancel);
        return null;
      }
      if ('read' in pull) {
        const { done, value } = await open.get(pull.read)?.reader?.read() ?? { done: true };
        if (!done && !(value instanceof Uint8Array)) throw argumentError('fetch: its body has a chunk of no bytes');
        if (done) open.delete(pull.read);
        return value ?? null;
      }
      const abort = new AbortController();
      open.set(pull.fetch, { abort });
      const response = await fetch(pull.url, { ...pull.init, signal: abort.signal });
      if (!Number.isInteger(response?.status) || typeof response.headers?.forEach !== 'function') {
        throw argumentError(`fetch: the function returned ${typeof response}, expected a Response`);
      }
      const { status, statusText = '', type = 'default', headers, body } = response;
      open.set(pull.fetch, { abort, reader: body?.getReader() });
      return { status, statusText, type, headers: [...headers], hasBody: Boolean(body) };
    },
    end() { for (const n of [...open.keys()]) close(n); },
  };
}
