/* plumb-llm/fetch: a function from a Request to a Response, with the API of OpenAI's service. */
import { Plumb } from './index.js';
import { createHandler as create } from './serving/handler.js';

export { PlumbError } from './index.js';

/** @typedef {import('./serving/handler.js').HandlerOptions} HandlerOptions */
/** @typedef {(input: Request | string | URL, init?: RequestInit) => Promise<Response>} Handler  answers a request; the
 *   arguments are those of the platform's fetch.  Rejects with the reason of the request's signal, if that is aborted
 * @typedef {{close: () => Promise<void>}} Closable  ends all answers, and frees the models; the next request loads
 *   again */

/** `createHandler(options?)` creates a Handler that is Closable.  It does not load anything yet.
 * @param {HandlerOptions} [options]
 * @returns {Handler & Closable} */
export const createHandler = options => create(Plumb, options);
