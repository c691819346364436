/* plumb-llm/fetch: a function from a Request to a Response, with the API of OpenAI's service. */
import { Plumb } from './index.js';
import { createHandler as create } from './serving/handler.js';

export { PlumbError } from './index.js';

/** @typedef {import('./serving/handler.js').HandlerOptions} HandlerOptions
 * @typedef {import('./serving/handler.js').Handler} Handler */

/** Creates the handler.  It does not load anything yet. @param {HandlerOptions} [options] @returns {Handler} */
export const createHandler = options => create(Plumb, options);
