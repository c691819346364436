/* plumb-llm/fetch in Node. */
import { createHandler as create } from '../serving/handler.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';

/** @param {import('../serving/handler.js').HandlerOptions} [options] */
export const createHandler = options => create(Plumb, options);
