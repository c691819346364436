/* plumb-llm/prompt-api: the interface of the Prompt API. */
import { languageModelOf } from './api/prompt-api.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';
export { LanguageModelSession } from './api/prompt-api.js';

/** @typedef {import('./api/prompt-api.js').CreateOptions} CreateOptions
 * @typedef {import('./api/prompt-api.js').PromptOptions} PromptOptions
 * @typedef {import('./api/prompt-api.js').Prompt} Prompt
 * @typedef {import('./api/prompt-api.js').Expected} Expected
 * @typedef {import('./api/prompt-api.js').LanguageModel} LanguageModel */

/** Something like the browser's `LanguageModel` (https://webmachinelearning.github.io/prompt-api), with a model of your
 * own: `availability()`, `create(options)`, and of a session `prompt`, `promptStreaming`, `append`, `clone`, `destroy`,
 * `measureContextUsage`, `contextUsage` and `contextWindow`.  Text only, without tools.
 * @param {import('./loader/source.js').Source} source  as in Plumb.load; the first session loads it
 * @param {import('./loader/load-options.js').LoadOptions} [load]
 * @returns {LanguageModel} */
export const createLanguageModel = (source, load = {}) => languageModelOf(Plumb, source, load);
