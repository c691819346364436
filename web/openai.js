/* plumb/openai: the client with the name that OpenAI's package gives it. */
import { Client } from './client.js';
import { Plumb } from './index.js';

export { PlumbError } from './index.js';

/** @typedef {import('./client.js').ClientOptions} ClientOptions
 * @typedef {import('./completions.js').Completions} Completions
 * @typedef {import('./completions.js').CompletionParameters} CompletionParameters
 * @typedef {import('./completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('./completions.js').MessageContent} MessageContent
 * @typedef {import('./completions.js').ChatCompletion} ChatCompletion
 * @typedef {import('./completions.js').AnswerMessage} AnswerMessage
 * @typedef {import('./completions.js').FinishReason} FinishReason
 * @typedef {import('./completions.js').Usage} Usage
 * @typedef {import('./completions.js').Logprobs} Logprobs
 * @typedef {import('./completions.js').TokenLogprob} TokenLogprob
 * @typedef {import('./completions.js').TopLogprob} TopLogprob
 * @typedef {import('./completions.js').Stream} Stream
 * @typedef {import('./completions.js').ChatCompletionChunk} ChatCompletionChunk
 * @typedef {import('./completions.js').Delta} Delta */

/** What `new OpenAI()` of OpenAI's package gives, as far as it means something where no server is asked. */
export class OpenAI extends Client {
  /** Loads nothing yet. @param {import('./client.js').ClientOptions} [options] */
  constructor(options) { super(Plumb, options); }
}
export default OpenAI;
