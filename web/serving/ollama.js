/* Ollama's API with the same models, so that its clients and editors find them:
 * https://github.com/ollama/ollama/blob/main/docs/api.md.  Answers are those of chat.completions and completions. */
import { mapped } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { givenOf } from '../openai/answering.js';
import { Completions } from '../openai/completions.js';
import { Embeddings } from '../openai/embeddings.js';
import { TextCompletions } from '../openai/text-completions.js';
import { lineStream } from './answers.js';
import { complete, durations, headOf, joined, messagesOf, modelOf, samplingOf, secondsOf } from './ollama-shapes.js';
import { pullLines } from './pulling.js';
import { route } from './route.js';

/** @typedef {import('./models.js').Models} Models
 * @typedef {import('../openai/completions.js').CompletionMessage} CompletionMessage
 * @typedef {import('./ollama-shapes.js').Part} Part
 * @typedef {import('./ollama-shapes.js').Request} Request */
/** @typedef {{hasTemplate: boolean, free: () => void, loaded: number}} Loaded  loaded: milliseconds */

/** The version whose API this is.  Editors refuse older ones. */
const VERSION = '0.12.11';
/** The longest that a list of models waits for what their files say, in milliseconds. */
const PATIENCE = 2000;

export class Ollama {
  #models;
  #chats;
  #texts;
  #embeddings;
  #created = new Date().toISOString();

  /** @param {Models} models @param {import('./route.js').Hold} hold */
  constructor(models, hold) {
    this.#models = models;
    this.#chats = new Completions(hold);
    this.#texts = new TextCompletions(hold);
    this.#embeddings = new Embeddings(hold);
    /** The routes that generate texts. */
    this.generating = [
      route('POST', '/api/chat', ({ body, options }) => this.#chat(body, options.signal)),
      route('POST', '/api/generate', ({ body, options }) => this.#generate(body, options.signal)),
    ];
    /** The routes that compute without generating. */
    this.measuring = [
      route('POST', '/api/embed', ({ body, options }) => this.#embed(body, options.signal)),
      route('POST', '/api/embeddings', async ({ body, options }) => {
        const { prompt = '', ...rest } = givenOf('api/embeddings', body, known.OLLAMA_EMBEDDINGS, '{model, prompt}');
        const { embeddings: [embedding] } = await this.#embed({ ...rest, input: prompt }, options.signal);
        return { embedding };
      }),
    ];
    /** The routes that only tell something. */
    this.telling = [
      route('GET', '/api/version', () => ({ version: VERSION })),
      route('GET', '/api/tags', async ({ options }) => ({ models: await this.#list(options.signal) })),
      route('GET', '/api/ps', async ({ options }) => ({ models: await this.#loaded(options.signal) })),
      route('POST', '/api/pull', ({ body, options }) => this.#pull(body, options.signal), { waits: false }),
      route('POST', '/api/show', ({ body, options }) => this.#show(body, options.signal)),
    ];
  }

  /** Checks a request. @param {string} where @param {any} body @param {Parameters<typeof givenOf>[2]} table
   * @param {AbortSignal} signal @returns {Request} */
  #request(where, body, table, signal) {
    const given = /** @type {Record<string, any>} */ (givenOf(where, body, table, '{model, ...}'));
    const name = given.model ?? given.name;
    if (name === undefined) throw argumentError(`${where}: model is missing`);
    const options = given.options
      && givenOf(`${where}: options`, given.options, known.OLLAMA_OPTIONS, 'an object');
    const names = this.#models.list().map(one => one.name), bare = name.replace(/:latest$/, '');
    const model = !names.includes(name) && names.includes(bare) ? bare : name;
    return { where, given: { ...given, options }, signal, model };
  }

  /** Loads the model, and remembers how long it is to stay. @param {Request} request @returns {Promise<Loaded>} */
  async #load({ where, given: { keep_alive: keep }, model: name, signal }) {
    const start = performance.now(), { model, free } = await this.#models.hold(where, name, signal);
    if (keep !== undefined) this.#models.keep(name, secondsOf(keep));
    return { hasTemplate: model.chatTemplate !== '', free, loaded: performance.now() - start };
  }

  /** @param {any} body @param {AbortSignal} signal */
  async #chat(body, signal) {
    const request = this.#request('api/chat', body, known.OLLAMA_CHAT, signal), { given } = request;
    /** @param {Part} part */
    const shape = ({ content = '', thinking, calls, logprobs }) => ({
      message: { role: 'assistant', content, ...thinking && { thinking }, ...calls && { tool_calls: calls } },
      ...logprobs && { logprobs },
    });
    if (!given.messages?.length) return this.#onlyLoad(request, shape);
    const messages = messagesOf(given.messages);
    return this.#answer(request, shape, await this.#load(request), messages);
  }

  /** @param {any} body @param {AbortSignal} signal */
  async #generate(body, signal) {
    const request = this.#request('api/generate', body, known.OLLAMA_GENERATE, signal);
    const { prompt, system, raw = false } = request.given;
    /** @param {Part} part */
    const shape = ({ content = '', thinking, logprobs }) =>
      ({ response: content, ...thinking && { thinking }, ...logprobs && { logprobs } });
    if (!prompt) return this.#onlyLoad(request, shape);
    const load = await this.#load(request);
    const isPlain = raw || !load.hasTemplate;
    return this.#answer(request, shape, load, isPlain ? prompt : [
      ...system ? [{ role: /** @type {const} */ ('system'), content: system }] : [], { role: 'user', content: prompt },
    ]);
  }

  /** Loads a model, or lets it be closed if it is to be kept for no time.
   * @param {Request} request @param {(part: Part) => object} shape */
  async #onlyLoad(request, shape) {
    const isUnload = request.given.keep_alive !== undefined && secondsOf(request.given.keep_alive) === 0;
    if (isUnload) await this.#models.unload(request.model);
    else (await this.#load(request)).free();
    return { ...headOf(request), ...shape({}), done: true, done_reason: isUnload ? 'unload' : 'load' };
  }

  /** Answers a prompt. @param {Request} request @param {(part: Part) => object} shape @param {Loaded} load
   * @param {string | CompletionMessage[]} prompt  a text to continue, or messages */
  async #answer(request, shape, { loaded, free }, prompt) {
    const start = performance.now();
    free();   // the model is held again at once, so that it is not closed meanwhile
    const begun = typeof prompt === 'string' ? this.#begunText(request, prompt) : this.#begunChat(request, prompt);
    const parts = complete(await begun, request.signal), prefill = performance.now() - start;
    const lineOf = (/** @type {Part} */ part) => {
      const line = { ...headOf(request), ...shape(part), done: part.usage !== undefined }, { reason, usage } = part;
      if (!usage) return line;
      const whole = performance.now() - start;
      return {
        ...line, done_reason: reason, prompt_eval_count: usage.prompt_tokens, eval_count: usage.completion_tokens,
        ...durations({
          total_duration: loaded + whole, load_duration: loaded, prompt_eval_duration: prefill,
          eval_duration: whole - prefill,
        }),
      };
    };
    if (request.given.stream === false) return lineOf(await joined(parts));
    return lineStream(mapped(parts, part => [lineOf(part)]));
  }

  /** @param {Request} request @param {CompletionMessage[]} messages @returns {Promise<AsyncGenerator<Part>>} */
  async #begunChat({ given, model, signal }, messages) {
    const { format, think, tools, logprobs, top_logprobs } = given;
    const stream = await this.#chats.create({
      model, messages, tools, logprobs, top_logprobs, ...samplingOf(given.options), stream: true,
      stream_options: { include_usage: true },
      reasoning_effort: typeof think === 'string' ? /** @type {any} */ (think) : undefined,
      chat_template_kwargs: typeof think === 'boolean' ? { enable_thinking: think } : undefined,
      response_format: typeof format === 'object'
        ? { type: 'json_schema', json_schema: { name: 'format', schema: format } }
        : format ? { type: 'json_object' } : undefined,
    }, { signal });
    return (async function* () {
      let name = '', reason;
      for await (const { choices: [choice], usage } of stream) {
        if (usage) yield { reason, usage };
        if (!choice) continue;
        const { delta: { content, reasoning_content: thinking, tool_calls }, finish_reason, logprobs } = choice;
        reason = finish_reason === 'tool_calls' ? 'stop' : finish_reason ?? undefined;
        const calls = [];
        for (const { function: { name: begun = name, arguments: args } } of tool_calls ?? []) {
          name = begun;
          if (args) calls.push({ function: { name, arguments: JSON.parse(args) } });   // they come in one piece
        }
        if (!content && !thinking && calls.length === 0 && !logprobs) continue;
        yield { content, thinking, ...calls.length > 0 && { calls }, ...logprobs && { logprobs: logprobs.content } };
      }
    })();
  }

  /** @param {Request} request @param {string} prompt @returns {Promise<AsyncGenerator<Part>>} */
  async #begunText({ where, given, model, signal }, prompt) {
    for (const name of ['format', 'logprobs', 'think', 'system']) {
      if (!given[name]) continue;
      throw argumentError(`${where}: ${name} needs a chat template: the model has none, or raw is true`);
    }
    const { max_tokens = 2 ** 31 - 1, ...sampling } = samplingOf(given.options);
    const stream = /** @type {import('../openai/answering.js').Stream<any>} */ (await this.#texts.create({
      model, prompt, max_tokens, ...sampling, stream: true, stream_options: { include_usage: true },
    }, { signal }));
    return (async function* () {
      let reason;
      for await (const { choices: [choice], usage } of stream) {
        if (usage) yield { reason, usage };
        reason = choice?.finish_reason ?? reason;
        if (choice?.text) yield { content: choice.text };
      }
    })();
  }

  /** @param {any} body @param {AbortSignal} signal */
  async #embed(body, signal) {
    const request = this.#request('api/embed', body, known.OLLAMA_EMBED, signal), { given, model } = request;
    const { loaded, free } = await this.#load(request), start = performance.now();
    free();
    const { data, usage } = await this.#embeddings.create({
      model, input: given.input ?? [], truncate: given.truncate ?? true, dimensions: given.dimensions,
    }, { signal });
    return {
      model: given.model, embeddings: data.map(({ embedding }) => embedding), prompt_eval_count: usage.prompt_tokens,
      ...durations({ total_duration: loaded + performance.now() - start, load_duration: loaded }),
    };
  }

  /** @param {any} body @param {AbortSignal} signal */
  async #pull(body, signal) {
    const { where, model, given: { stream } } = this.#request('api/pull', body, known.OLLAMA_PULL, signal);
    const lines = pullLines(this.#models, where, model, signal), first = await lines.next();   // throws a refusal
    const all = (async function* () {
      if (first.value) yield first.value;
      yield* lines;
    })();
    if (stream !== false) return lineStream(all);
    let last = {};
    for await (const line of all) last = line;
    return last;
  }

  /** What is known of all models. @param {AbortSignal} signal */
  async #list(signal) {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]), list = [];
    for (const { name } of this.#models.list()) {   // one after the other, because each may take much memory
      const about = await this.#models.about('api/tags', name, patience).catch(() => undefined);
      list.push(await modelOf(name, this.#created, about));
    }
    return list;
  }

  /** The models that are loaded. @param {AbortSignal} signal */
  async #loaded(signal) {
    const list = [];
    for (const { name, model, used = 0, idle = Infinity } of this.#models.list()) {
      const info = await model?.info().catch(() => undefined);
      if (!info) continue;
      const about = await this.#models.about('api/ps', name, signal).catch(() => undefined);
      list.push({
        ...await modelOf(name, this.#created, about), size: info.memoryBytes, size_vram: 0,
        context_length: info.contextLength,
        expires_at: new Date(Math.min(used + 1000 * idle, Date.UTC(9999, 0))).toISOString(),
      });
    }
    return list;
  }

  /** @param {any} body @param {AbortSignal} signal */
  async #show(body, signal) {
    const { where, model: name } = this.#request('api/show', body, known.OLLAMA_SHOW, signal);
    const about = await this.#models.about(where, name, signal);
    const loaded = this.#models.list().find(one => one.name === name)?.model;
    const { architecture: key, parameters, layers, dimensions, chat, hasLogits, pooling } = about;
    const { contextLength, trainedContext } = about;
    const capabilities = Object.entries({ completion: hasLogits, tools: chat, embedding: pooling !== 'none' })
      .flatMap(([name, has]) => has ? [name] : []);
    const { modified_at, details } = await modelOf(name, this.#created, about);
    return {
      modelfile: '', parameters: '', license: '', capabilities, modified_at, details,
      template: loaded?.chatTemplate ?? '',
      model_info: {
        'general.architecture': key, 'general.parameter_count': parameters, [`${key}.block_count`]: layers,
        [`${key}.context_length`]: contextLength ?? trainedContext, [`${key}.embedding_length`]: dimensions,
      },
    };
  }
}
