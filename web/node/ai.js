/* plumb-llm/ai in Node. */
import { createProvider } from '../openai/ai-sdk.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';

/** @param {import('../openai/client.js').ClientOptions} [options] */
export const createPlumb = options => createProvider(Plumb, options);
