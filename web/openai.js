/* plumb-llm/openai: the client, under the name that it has in OpenAI's package. */
import { Plumb } from './index.js';
import { Client } from './serving/client.js';

export { PlumbError } from './index.js';

/** @typedef {import('./serving/client.js').ClientOptions} ClientOptions
 * @typedef {import('./openai/completions.js').Completions} Completions
 * @typedef {import('./openai/completions.js').CompletionParameters} CompletionParameters
 * @typedef {import('./openai/completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('./openai/completions.js').MessageContent} MessageContent
 * @typedef {import('./openai/completions.js').ChatCompletion} ChatCompletion
 * @typedef {import('./openai/completions.js').AnswerMessage} AnswerMessage
 * @typedef {import('./openai/completions.js').FinishReason} FinishReason
 * @typedef {import('./openai/answering.js').Usage} Usage
 * @typedef {import('./openai/completions.js').Logprobs} Logprobs
 * @typedef {import('./openai/completions.js').TokenLogprob} TokenLogprob
 * @typedef {import('./openai/completions.js').TopLogprob} TopLogprob
 * @typedef {import('./openai/completions.js').ChatCompletionChunk} ChatCompletionChunk
 * @typedef {import('./openai/completions.js').ToolCallDelta} ToolCallDelta
 * @typedef {import('./openai/completions.js').Delta} Delta
 * @typedef {import('./openai/completions.js').ResponseFormat} ResponseFormat
 * @typedef {import('./openai/embeddings.js').Embeddings} Embeddings
 * @typedef {import('./openai/embeddings.js').EmbeddingParameters} EmbeddingParameters
 * @typedef {import('./openai/embeddings.js').EmbeddingResponse} EmbeddingResponse
 * @typedef {import('./openai/embeddings.js').Embedding} Embedding
 * @typedef {import('./openai/decisions.js').Decisions} Decisions
 * @typedef {import('./openai/decisions.js').DecisionParameters} DecisionParameters
 * @typedef {import('./openai/decisions.js').DecisionQuestionParam} DecisionQuestionParam
 * @typedef {import('./openai/decisions.js').DecisionItem} DecisionItem
 * @typedef {import('./openai/decisions.js').DecisionPart} DecisionPart
 * @typedef {import('./openai/decisions.js').Decision} Decision
 * @typedef {import('./openai/decisions.js').OpenAIAnswer} OpenAIAnswer
 * @typedef {import('./openai/decisions.js').SystemOneParameters} SystemOneParameters
 * @typedef {import('./openai/decisions.js').SystemOneQuestion} SystemOneQuestion
 * @typedef {import('./openai/decisions.js').SystemOneAnswer} SystemOneAnswer
 * @typedef {import('./openai/decisions.js').SystemOneResponse} SystemOneResponse
 * @typedef {import('./openai/decisions.js').Entry} Entry */

/** @template C @typedef {import('./openai/answering.js').Stream<C>} Stream */

/** A stand-in for the class OpenAI of OpenAI's package, without what only a server needs. */
export class OpenAI extends Client {
  /** Does not load anything yet. @param {import('./serving/client.js').ClientOptions} [options] */
  constructor(options) { super(Plumb, options); }
}
export default OpenAI;
