/* plumb-llm/ai: a provider for the AI SDK. */
import { Plumb } from './index.js';
import { createProvider } from './serving/ai-sdk.js';

export { PlumbError } from './index.js';

/** Creates a provider for the AI SDK, which does not load anything yet: `generateText({ model: plumb('smol') })`.
 * `plumb.embeddingModel` and `plumb.decisionModel` are for its embed and decide, and `plumb.close()` frees the models.
 * Options of OpenAI's API that the SDK does not have go into `providerOptions: { plumb: { min_p: 0.1 } }`.
 * @param {import('./serving/client.js').ClientOptions} [options] */
export const createPlumb = options => createProvider(Plumb, options);
