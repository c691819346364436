/* plumb-llm/ai in Node. */
import { createProvider } from '../serving/ai-sdk.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';

/** @param {import('../serving/client.js').ClientOptions} [options] */
export const createPlumb = options => createProvider(Plumb, options);
