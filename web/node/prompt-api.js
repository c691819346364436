/* plumb-llm/prompt-api in Node. */
import { languageModelOf } from '../api/prompt-api.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';
export { LanguageModelSession } from '../api/prompt-api.js';

/** @param {import('../loader/source.js').Source} source
 * @param {import('../loader/load-options.js').LoadOptions} [load] */
export const createLanguageModel = (source, load = {}) => languageModelOf(Plumb, source, load);
