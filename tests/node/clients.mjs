/** The clients of clients.test.mjs: what it asks of each, and how each asks it.  Every client has the same functions:
 *
 *   ask({ messages, model, max, temperature, stop, seed, json, schema, tools })   an Answer
 *   stream(the same, signal)   the pieces of its text; leaving the loop or the signal ends it
 *   embed(texts)               vectors
 *   models()                   names, if the client can list them
 *
 * Messages are those of OpenAI's chat completions. */
import { execFile, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { OpenAI as LlamaOpenAI, OpenAIEmbedding } from '@llamaindex/openai';
import { embedMany, generateObject, generateText, jsonSchema, streamText, tool } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { root } from './helpers.mjs';

/** @typedef {{text: string, reason?: string, tokens?: number, calls?: {name: string, arguments: object}[]}} Answer
 * @typedef {{messages: any[], model?: string, max?: number, temperature?: number, stop?: string, seed?: number,
 *   json?: boolean, schema?: object, tools?: any[]}} Question */
/** @typedef {object} Client
 * @property {(question: Question) => Promise<Answer>} ask
 * @property {(question: Question, signal: AbortSignal) => AsyncIterable<string>} stream
 * @property {(texts: string[]) => Promise<number[][]>} embed
 * @property {() => Promise<string[]>} [models]
 * @property {boolean} [reads]  whether it reads a stream to its end, even if the loop over it is left
 * @property {() => void} [close] */

/** The names of the models: one that answers, and one that computes vectors. */
export const MODEL = 'smol', ENCODER = 'mini';
const KEY = { apiKey: 'none' };
/** Clients that wait and ask again would hide errors. */
const ONCE = { maxRetries: 0 };

/** @param {Question} question */
const chatBody = ({ model = MODEL, messages, max, temperature = 0, stop, seed, json, schema, tools }) => ({
  model, messages, temperature, stop, seed, tools, max_tokens: max,
  response_format: schema ? { type: 'json_schema', json_schema: { name: 'thing', schema } }
    : json ? { type: 'json_object' } : undefined,
});

/** @param {any} completion @returns {Answer} */
const chatAnswer = ({ choices: [{ message, finish_reason: reason }], usage }) => ({
  text: message.content ?? '', reason, tokens: usage.completion_tokens,
  calls: message.tool_calls?.map(call =>
    ({ name: call.function.name, arguments: JSON.parse(call.function.arguments) })),
});

/** OpenAI's package, by its chat completions. @param {string} url @param {typeof fetch} fetch @returns {Client} */
function openai(url, fetch) {
  const client = new OpenAI({ ...KEY, ...ONCE, baseURL: `${url}/v1`, fetch });
  return {
    ask: async question => chatAnswer(await client.chat.completions.create(chatBody(question))),
    async *stream(question, signal) {
      const stream = await client.chat.completions.create({ ...chatBody(question), stream: true }, { signal });
      for await (const { choices: [choice] } of stream) if (choice?.delta.content) yield choice.delta.content;
    },
    async embed(input) {
      return (await client.embeddings.create({ model: ENCODER, input })).data.map(({ embedding }) => embedding);
    },
    models: async () => (await client.models.list()).data.map(({ id }) => id),
  };
}

/** The items of the Responses API for messages. @param {any[]} messages */
const itemsOf = messages => messages.flatMap(({ role, content, tool_calls: calls = [], tool_call_id: id }) =>
  role === 'tool' ? [{ type: 'function_call_output', call_id: id, output: content }] : [
    ...content ? [{ role, content }] : [],
    ...calls.map(call => ({ type: 'function_call', call_id: call.id, ...call.function })),
  ]);

/** The body of a request of the Responses API. @param {Question} question */
const responseBody = ({ model = MODEL, messages, max, temperature = 0, stop, seed, json, schema, tools }) => ({
  model, input: itemsOf(messages), temperature, max_output_tokens: max, stop, seed,
  tools: tools?.map(({ type, function: about }) => ({ type, strict: null, ...about })),
  text: schema ? { format: { type: 'json_schema', name: 'thing', schema } }
    : json ? { format: { type: 'json_object' } } : undefined,
});

/** @param {any} response @returns {Answer} */
const responseAnswer = ({ output_text: text, output, usage, status }) => ({
  text, reason: status === 'incomplete' ? 'length' : 'stop', tokens: usage.output_tokens,
  calls: output.filter(({ type }) => type === 'function_call')
    .map(call => ({ name: call.name, arguments: JSON.parse(call.arguments) })),
});

/** OpenAI's package, by its Responses API. @param {string} url @param {typeof fetch} fetch @returns {Client} */
function responses(url, fetch) {
  const client = new OpenAI({ ...KEY, ...ONCE, baseURL: `${url}/v1`, fetch });
  return {
    ...openai(url, fetch),
    ask: async question => responseAnswer(await client.responses.create(responseBody(question))),
    async *stream(question, signal) {
      for await (const event of client.responses.stream(responseBody(question), { signal })) {
        if (event.type === 'response.output_text.delta') yield event.delta;
      }
    },
  };
}

/** The AI SDK. @param {string} url @param {typeof fetch} fetch @returns {Client} */
function ai(url, fetch) {
  const provider = createOpenAICompatible({
    name: 'plumb', baseURL: `${url}/v1`, fetch, supportsStructuredOutputs: true, includeUsage: true,
  });
  const optionsOf = ({ model = MODEL, messages, max, temperature = 0, stop, seed, tools = [] }) => ({
    ...ONCE, model: provider.chatModel(model), temperature, seed, maxOutputTokens: max,
    allowSystemInMessages: true, stopSequences: stop && [stop],
    messages: messages.map(({ role, content, tool_calls: calls, tool_call_id: toolCallId }) => {
      if (role === 'tool') {
        const output = { type: 'text', value: content };
        return { role, content: [{ type: 'tool-result', toolCallId, toolName: 'add', output }] };
      }
      return calls ? { role, content: calls.map(({ id, function: { name, arguments: args } }) =>
        ({ type: 'tool-call', toolCallId: id, toolName: name, input: JSON.parse(args) })) } : { role, content };
    }),
    ...tools.length > 0 && { tools: Object.fromEntries(tools.map(({ function: { name, description, parameters } }) =>
      [name, tool({ description, inputSchema: jsonSchema(parameters) })])) },
  });
  return {
    async ask(question) {
      const options = optionsOf(question);
      if (question.json || question.schema) {
        const { object } = await generateObject({
          ...options, ...question.schema ? { schema: jsonSchema(question.schema) } : { output: 'no-schema' },
        });
        return { text: JSON.stringify(object) };
      }
      const { text, finishReason, usage, toolCalls } = await generateText(options);
      return {
        text, reason: finishReason, tokens: usage.outputTokens,
        calls: toolCalls.map(({ toolName: name, input }) => ({ name, arguments: input })),
      };
    },
    async *stream(question, signal) {
      yield* streamText({ ...optionsOf(question), abortSignal: signal }).textStream;
    },
    async embed(values) {
      return (await embedMany({ ...ONCE, model: provider.embeddingModel(ENCODER), values })).embeddings;
    },
  };
}

/** LangChain, by chat completions or by responses.
 * @param {string} url @param {typeof fetch} fetch @param {boolean} [useResponsesApi] @returns {Client} */
function langchain(url, fetch, useResponsesApi = false) {
  const configuration = { baseURL: `${url}/v1`, fetch };
  const modelOf = ({ model = MODEL, max, temperature = 0, stop, seed }) => new ChatOpenAI({
    ...KEY, ...ONCE, model, configuration, temperature, maxTokens: max, useResponsesApi,
    modelKwargs: { stop, seed },   // it has no other place for them in the Responses API
  });
  const callOf = ({ json, schema, tools }) => ({
    tools, tool_choice: tools && 'auto',
    response_format: schema ? { type: 'json_schema', json_schema: { name: 'thing', schema } }
      : json ? { type: 'json_object' } : undefined,
  });
  return {
    async ask(question) {
      const answer = await modelOf(question).invoke(question.messages, callOf(question));
      const { finish_reason: reason, status } = answer.response_metadata;
      return {
        text: answer.text, reason: reason ?? (status === 'incomplete' ? 'length' : 'stop'),
        tokens: answer.usage_metadata?.output_tokens,
        calls: answer.tool_calls?.map(({ name, args }) => ({ name, arguments: args })),
      };
    },
    async *stream(question, signal) {
      for await (const chunk of await modelOf(question).stream(question.messages, { ...callOf(question), signal })) {
        if (chunk.text) yield chunk.text;
      }
    },
    embed: texts => new OpenAIEmbeddings({ ...KEY, ...ONCE, model: ENCODER, configuration }).embedDocuments(texts),
  };
}

/** LlamaIndex. @param {string} url @param {typeof fetch} fetch @returns {Client} */
function llamaindex(url, fetch) {
  const session = { ...KEY, ...ONCE, baseURL: `${url}/v1`, additionalSessionOptions: { fetch } };
  const modelOf = (question, more = {}) => {
    const { model, stop, seed, response_format } = chatBody(question);
    return new LlamaOpenAI({
      ...session, model, temperature: question.temperature ?? 0, maxTokens: question.max,
      additionalChatOptions: { stop, seed, response_format, ...more },
    });
  };
  const messagesOf = ({ messages }) => messages.map(({ role, content, tool_calls: calls, tool_call_id: id }) => ({
    role: role === 'tool' ? 'user' : role, content: content ?? '',
    ...calls && { options: { toolCall: calls.map(call =>
      ({ id: call.id, name: call.function.name, input: call.function.arguments })) } },
    ...id && { options: { toolResult: { id, result: content, isError: false } } },
  }));
  return {
    async ask(question) {
      const tools = question.tools?.map(({ function: { name, description, parameters } }) =>
        ({ metadata: { name, description, parameters } }));
      const { message, raw } = await modelOf(question).chat({ messages: messagesOf(question), tools });
      return {
        text: String(message.content), reason: raw.choices[0].finish_reason, tokens: raw.usage.completion_tokens,
        calls: message.options?.toolCall?.map(({ name, input }) =>
          ({ name, arguments: typeof input === 'string' ? JSON.parse(input) : input })),
      };
    },
    async *stream(question) {
      for await (const { delta } of await modelOf(question).chat({ messages: messagesOf(question), stream: true })) {
        if (delta) yield delta;
      }
    },
    embed: texts => new OpenAIEmbedding({ ...session, model: ENCODER }).getTextEmbeddings(texts),
    reads: true,
  };
}

/** The body of a chat in Ollama's API. @param {Question} question */
const ollamaBody = ({ model = MODEL, messages, max, temperature = 0, stop, seed, json, schema, tools }) => ({
  model, tools, format: schema ?? (json ? 'json' : undefined),
  options: { temperature, num_predict: max, seed, stop: stop && [stop] },
  messages: messages.map(({ role, content, tool_calls: calls }) => ({
    role, content: content ?? '', ...calls && { tool_calls: calls.map(({ function: { name, arguments: args } }) =>
      ({ function: { name, arguments: JSON.parse(args) } })) },
    ...role === 'tool' && { tool_name: 'add' },
  })),
});

/** @param {any} answer @returns {Answer} */
const ollamaAnswer = ({ message, done_reason: reason, eval_count: tokens }) => ({
  text: message.content, reason, tokens, calls: message.tool_calls?.map(call => call.function),
});

/** Ollama's package. @param {string} host @param {typeof fetch} fetch @returns {Client} */
function ollama(host, fetch) {
  const client = new Ollama({ host, fetch });
  return {
    ask: async question => ollamaAnswer(await client.chat({ ...ollamaBody(question), stream: false })),
    async *stream(question, signal) {
      const stream = await client.chat({ ...ollamaBody(question), stream: true });
      signal.addEventListener('abort', () => stream.abort());
      for await (const { message } of stream) if (message.content) yield message.content;
    },
    embed: async input => (await client.embed({ model: ENCODER, input })).embeddings,
    models: async () => (await client.list()).models.map(({ name }) => name),
  };
}

/** The clients from npm, each by the address of a server and the function that asks it.
 * @type {Record<string, (url: string, fetch: typeof globalThis.fetch) => Client>} */
export const npm = {
  openai, 'openai, responses': responses, ai, '@langchain/openai': langchain,
  '@langchain/openai, responses': (url, fetch) => langchain(url, fetch, true), '@llamaindex/openai': llamaindex, ollama,
};

const run = promisify(execFile);

/** @param {string} url @returns {Client} */
function curl(url) {
  /** @param {string} path @param {object} [body] */
  const json = async (path, body) => {
    const { stdout } = await run('curl', ['-sS', url + path, ...body ? ['-d', JSON.stringify(body)] : []]);
    const answer = JSON.parse(stdout);
    if (answer.error) throw Object.assign(new Error(answer.error.message), { status: 404 });
    return answer;
  };
  return {
    ask: async question => chatAnswer(await json('/v1/chat/completions', chatBody(question))),
    async *stream(question, signal) {
      const body = JSON.stringify({ ...chatBody(question), stream: true });
      const { stdout } = spawn('curl', ['-sSN', `${url}/v1/chat/completions`, '-d', body], { signal })
        .on('error', () => {});   // when the signal ends it
      for await (const line of createInterface({ input: stdout })) {
        const { content } = line.startsWith('data: {') ? JSON.parse(line.slice(6)).choices[0].delta : {};
        if (content) yield content;
      }
    },
    embed: async input =>
      (await json('/v1/embeddings', { model: ENCODER, input })).data.map(({ embedding }) => embedding),
    models: async () => (await json('/v1/models')).data.map(({ id }) => id),
  };
}

/** How each API has a question and its answer. */
const APIS = {
  openai: [chatBody, chatAnswer], responses: [responseBody, responseAnswer], ollama: [ollamaBody, ollamaAnswer],
};
/** A client in Python: clients.py gets a line of JSON for each call, and answers with one.
 * @param {keyof typeof APIS} name @param {string} url @returns {Client} */
function python(name, url) {
  const [bodyOf, answerOf] = APIS[name];
  const child = spawn('python3', [`${root}tests/node/clients.py`, name, url], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, PYTHONPATH: `${root}build/setup/py`, NO_PROXY: '*', PYTHONDONTWRITEBYTECODE: '1' },
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  /** @param {string} call @param {object} [argument] */
  const said = async (call, argument) => {
    child.stdin.write(`${JSON.stringify({ call, ...argument })}\n`);
    return nextLine();
  };
  const nextLine = async () => {
    const { value = '{"error": "clients.py has ended"}' } = await lines.next();
    const { error, status, result } = JSON.parse(value);
    if (error !== undefined) throw Object.assign(new Error(error), { status });
    return result;
  };
  return {
    ask: async question => answerOf(await said('ask', { body: bodyOf(question) })),
    async *stream(question) {
      let piece = await said('stream', { body: bodyOf(question) });
      try {
        for (; piece !== null; piece = await said('next')) yield piece;
      } finally {
        if (piece !== null) await said('leave');
      }
    },
    embed: input => said('embed', { model: ENCODER, input }),
    models: () => said('models'),
    close() { child.stdin.end(); },
  };
}

/** The clients that need a port. @type {Record<string, (url: string) => Client>} */
export const others = {
  curl, 'openai, Python': url => python('openai', url), 'openai, responses, Python': url => python('responses', url),
  'ollama, Python': url => python('ollama', url),
};
