/* plumb-llm/ai: a provider for the AI SDK (package ai 7, specification v4 of @ai-sdk/provider), for generateText,
 * streamText, embed and decide.  It needs nothing of those packages.  Each call becomes one in OpenAI's shape. */
import { argumentError } from '../base/errors.js';
import { closedError } from '../openai/answering.js';
import { Client } from './client.js';

/** @typedef {import('../openai/completions.js').ChatCompletionChunk} Chunk
 * @typedef {import('../openai/answering.js').Usage} CompletionUsage
 * @typedef {{type: 'unsupported', feature: string, details?: string}} Warning
 * @typedef {{unified: 'stop' | 'length' | 'tool-calls', raw: string | undefined}} FinishReason
 * @typedef {{type: 'text' | 'reasoning', text: string}
 *   | {type: 'tool-call', toolCallId: string, toolName: string, input: string}} Content */

/** Options of the SDK with the names that they have in OpenAI's API. */
const NAMES = {
  maxOutputTokens: 'max_tokens', temperature: 'temperature', topP: 'top_p', topK: 'top_k', seed: 'seed',
  presencePenalty: 'presence_penalty', frequencyPenalty: 'frequency_penalty', stopSequences: 'stop',
};
const EFFORTS = { none: 'none', minimal: 'minimal', low: 'low', medium: 'medium', high: 'high', xhigh: 'high',
  max: 'high' };

/** The text of parts. @param {string} where @param {any[]} parts */
function textOf(where, parts) {
  const other = parts.find(({ type }) => type !== 'text');
  if (other) throw argumentError(`ai: ${where} has a part of type ${other.type}; models read text only`);
  return parts.map(({ text }) => text).join('\n');
}

/** What a tool has returned, as a text. @param {any} output */
function resultText({ type, value, reason }) {
  if (type === 'content') return textOf('a result', value);
  if (type === 'execution-denied') return reason ?? 'The user has denied this call.';
  return type.endsWith('json') ? JSON.stringify(value) : value;
}

/** @param {any[]} prompt  of the SDK */
const messagesOf = prompt => prompt.flatMap(({ role, content }) => {
  if (role === 'system') return [{ role, content }];
  if (role === 'user') return [{ role, content: textOf('a message', content) }];
  if (role === 'tool') {
    return content.flatMap((/** @type {any} */ part) => part.type === 'tool-result'
      ? [{ role, tool_call_id: part.toolCallId, content: resultText(part.output) }] : []);
  }
  const of = (/** @type {string} */ type) => content.filter((/** @type {any} */ part) => part.type === type);
  const reasoning = of('reasoning').map((/** @type {any} */ { text }) => text).join('');
  const calls = of('tool-call').map((/** @type {any} */ { toolCallId, toolName, input }) => ({
    id: toolCallId, type: 'function', function: { name: toolName, arguments: JSON.stringify(input) } }));
  return [{ role, content: of('text').map((/** @type {any} */ { text }) => text).join('') || null,
    ...reasoning && { reasoning_content: reasoning }, ...calls.length > 0 && { tool_calls: calls } }];
});

/** The parameters of chat.completions.create. @param {string} model @param {any} options */
function parametersOf(model, { prompt, tools = [], toolChoice, responseFormat, reasoning, providerOptions, ...rest }) {
  /** @type {Warning[]} */
  const warnings = tools.filter((/** @type {any} */ { type }) => type !== 'function')
    .map((/** @type {any} */ { id }) => ({ type: 'unsupported', feature: `tool ${id}` }));
  const functions = tools.flatMap((/** @type {any} */ { type, name, description, inputSchema, strict }) =>
    type !== 'function' ? []
      : { type, function: { name, description, parameters: inputSchema, ...strict !== undefined && { strict } } });
  const { type, schema, name = 'answer', description } = responseFormat ?? {};
  const format = type !== 'json' ? undefined : !schema ? { type: 'json_object' }
    : { type: 'json_schema', json_schema: { name, schema, ...description && { description } } };
  return {
    warnings, parameters: {
      model, messages: messagesOf(prompt),
      ...Object.fromEntries(Object.entries(NAMES).filter(([own]) => rest[own] !== undefined)
        .map(([own, theirs]) => [theirs, rest[own]])),
      ...functions.length > 0 && { tools: functions, tool_choice: toolChoice?.type === 'tool'
        ? { type: 'function', function: { name: toolChoice.toolName } } : toolChoice?.type },
      response_format: format, reasoning_effort: /** @type {Record<string, string>} */ (EFFORTS)[reasoning],
      ...providerOptions?.plumb,
    },
  };
}

/** @param {string | null} raw @returns {FinishReason} */
const finishOf = raw => ({ unified: raw === 'tool_calls' ? 'tool-calls' : raw === 'length' ? 'length' : 'stop',
  raw: raw ?? undefined });

/** @param {CompletionUsage | undefined} usage */
function usageOf(usage) {
  const total = usage?.prompt_tokens ?? 0, cacheRead = usage?.prompt_tokens_details.cached_tokens ?? 0;
  return { inputTokens: { total, noCache: total - cacheRead, cacheRead, cacheWrite: undefined },
    outputTokens: { total: usage?.completion_tokens ?? 0, text: undefined, reasoning: undefined } };
}

/** @param {{id: string, created: number, model: string}} answer */
const metadataOf = ({ id, created, model }) => ({ id, timestamp: new Date(1000 * created), modelId: model });

/** The parts of a stream. @param {AsyncIterable<Chunk>} chunks @param {Warning[]} warnings
 * @returns {AsyncGenerator<any, void, void>} */
async function* partsOf(chunks, warnings) {
  /** What is open: text or reasoning, and its number. @type {{type: string, id: string} | undefined} */
  let open;
  let n = 0, usage = /** @type {any} */ (undefined), reason = /** @type {string | null} */ (null), isFirst = true;
  const calls = /** @type {any[]} */ ([]);
  yield { type: 'stream-start', warnings };
  const begin = function* (/** @type {string} */ type) {
    if (open?.type === type) return;
    if (open) yield { type: `${open.type}-end`, id: open.id };
    open = type ? { type, id: String(n++) } : undefined;
    if (open) yield { type: `${type}-start`, id: open.id };
  };
  for await (const chunk of chunks) {
    if (isFirst) yield { type: 'response-metadata', ...metadataOf(chunk) };
    isFirst = false;
    usage = chunk.usage ?? usage;
    const { delta, finish_reason: finish } = chunk.choices[0] ?? { delta: {} };
    reason = finish ?? reason;
    for (const [type, text] of [['reasoning', delta.reasoning_content], ['text', delta.content]]) {
      if (!type || !text) continue;
      yield* begin(type);
      yield { type: `${type}-delta`, id: open?.id, delta: text };
    }
    for (const { index, id, function: { name, arguments: text = '' } = {} } of /** @type {any[]} */ (
      delta.tool_calls ?? [])) {
      const call = calls[index] ??= { id, name: '', text: '' };
      call.name += name ?? '';
      call.text += text;
    }
  }
  if (reason === null) throw closedError();
  yield* begin('');
  for (const { id, name, text } of calls.filter(Boolean)) {
    yield { type: 'tool-call', toolCallId: id, toolName: name, input: text };
  }
  yield { type: 'finish', usage: usageOf(usage), finishReason: finishOf(reason) };
}

/** The models of a client as a provider of the AI SDK; ai.js describes it.
 * @param {import('./models.js').Loader} plumb @param {import('./client.js').ClientOptions} [options] */
export function createProvider(plumb, options) {
  const client = new Client(plumb, options);
  const specificationVersion = /** @type {const} */ ('v4');
  const about = (/** @type {string} */ modelId) => ({ specificationVersion, provider: 'plumb', modelId });
  const create = async (/** @type {any} */ parameters, /** @type {AbortSignal} */ signal) =>
    /** @type {any} */ (await client.chat.completions.create(parameters, { signal }));
  const languageModel = (/** @type {string} */ modelId) => ({
    ...about(modelId), supportedUrls: {},
    async doGenerate(/** @type {any} */ options) {
      const { parameters, warnings } = parametersOf(modelId, options);
      const answer = /** @type {import('../openai/completions.js').ChatCompletion} */ (
        await create(parameters, options.abortSignal));
      const [{ message, finish_reason: reason }] = answer.choices, { reasoning_content: reasoning, content } = message;
      const all = /** @type {Content[]} */ ([
        ...reasoning ? [{ type: 'reasoning', text: reasoning }] : [],
        ...content ? [{ type: 'text', text: content }] : [],
        ...(message.tool_calls ?? []).map(({ id, function: { name, arguments: input } }) =>
          ({ type: 'tool-call', toolCallId: id, toolName: name, input })),
      ]);
      return { content: all, finishReason: finishOf(reason), usage: usageOf(answer.usage), warnings,
        request: { body: parameters }, response: metadataOf(answer) };
    },
    async doStream(/** @type {any} */ options) {
      const { parameters, warnings } = parametersOf(modelId, options);
      const asked = { ...parameters, stream: true, stream_options: { include_usage: true } };
      const chunks = await create(asked, options.abortSignal), parts = partsOf(chunks, warnings);
      const stream = new ReadableStream({
        async pull(controller) {
          const { done, value } = await parts.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: () => chunks.controller.abort(),
      });
      return { stream, request: { body: asked } };
    },
  });
  const embeddingModel = (/** @type {string} */ modelId) => ({
    ...about(modelId), maxEmbeddingsPerCall: undefined, supportsParallelCalls: false,
    async doEmbed(/** @type {any} */ { values, abortSignal, providerOptions }) {
      const { data, usage } = await client.embeddings.create(
        { model: modelId, input: values, ...providerOptions?.plumb }, { signal: abortSignal });
      return { embeddings: data.map(({ embedding }) => /** @type {number[]} */ (embedding)),
        usage: { tokens: usage.prompt_tokens }, warnings: [] };
    },
  });
  const decisionModel = (/** @type {string} */ modelId) => ({
    ...about(modelId), supportedQuestionTypes: /** @type {const} */ (['choice', 'score', 'boolean']),
    async doDecide(/** @type {any} */ { state, questions, abortSignal, providerOptions }) {
      const asked = Object.entries(questions).map(([name, { type, ...more }]) =>
        [name, { ...more, type: type === 'boolean' ? 'noul' : type }]);
      const text = state.map((/** @type {any} */ part) => part.type === 'json' ? JSON.stringify(part.value, null, 2)
        : textOf('the state', [part])).join('\n');
      const { answers, usage } = await client.decisions.systemOne({ model: modelId, state: text,
        questions: Object.fromEntries(asked), ...providerOptions?.plumb }, { signal: abortSignal });
      return {
        answers: Object.fromEntries(Object.entries(answers).map(([name, answer]) => [name, answer.type === 'noul'
          ? { type: /** @type {const} */ ('boolean'), probability: answer.noul } : answer])),
        usage: { inputTokens: usage.input_tokens, outputTokens: 0 }, warnings: [],
      };
    },
  });
  return Object.assign((/** @type {string} */ modelId) => languageModel(modelId), {
    specificationVersion, languageModel, embeddingModel, decisionModel,
    /** @param {string} id @returns {never} */
    imageModel: id => { throw argumentError(`ai: ${id} is no model of images, which plumb does not run`); },
    /** Frees the models that are loaded. */
    close: () => client.close(),
  });
}
