/* plumb-llm/prompt-api: a GGUF model with the interface of the Prompt API, LanguageModel
 * (https://webmachinelearning.github.io/prompt-api).  Models read text only, and tools are not supported. */
import { onAbort, unlessAborted } from '../base/async.js';
import { firstThatFits } from '../answers/fitting.js';

/** @typedef {import('./plumb.js').Library} Library
 * @typedef {import('./plumb.js').Model} Model
 * @typedef {import('./session.js').Session} Session
 * @typedef {import('../answers/messages.js').Message} Message
 * @typedef {string | {role: string, content: string | {type: string, value: any}[], prefix?: boolean}[]} Prompt
 * @typedef {{signal?: AbortSignal, responseConstraint?: any, omitResponseConstraintInput?: boolean}} PromptOptions
 *   responseConstraint: a JSON Schema or a RegExp.  The model is told the schema, unless omitResponseConstraintInput
 * @typedef {{type: string, languages?: string[]}[]} Expected
 * @typedef {object} CreateOptions
 * @property {any[]} [initialPrompts]  messages; the first may be the system's
 * @property {number} [temperature] @property {number} [topK]
 * @property {'most-predictable' | 'predictable' | 'balanced' | 'creative' | 'most-creative'} [samplingMode]  without
 *   temperature and topK
 * @property {Expected} [expectedInputs] @property {Expected} [expectedOutputs] @property {any[]} [tools]
 * @property {AbortSignal} [signal] @property {(monitor: any) => void} [monitor]  receives downloadprogress events */

/** The temperature of each samplingMode. @type {Record<string, number>} */
const MODES = { 'most-predictable': 0, predictable: 0.4, balanced: 0.8, creative: 1, 'most-creative': 1.3 };
const dom = (/** @type {string} */ name, /** @type {string} */ message) => new DOMException(message, name);

/** Whether there is something that models here do not have. @param {CreateOptions} options */
const isUnsupported = ({ expectedInputs = [], expectedOutputs = [], tools = [] }) => tools.length > 0
  || [...expectedInputs, ...expectedOutputs].some(({ type }) => type !== 'text');

/** @param {any} prompt @param {boolean} isInitial  whether it may begin with a system message @returns {Message[]} */
function messagesOf(prompt, isInitial = false) {
  const all = Array.isArray(prompt) ? prompt : [{ role: 'user', content: String(prompt) }];
  return all.map(({ role, content }, i) => {
    if (role === 'system' && !(isInitial && i === 0)) {
      throw isInitial ? new TypeError('a system message must be the first of the initialPrompts')
        : dom('NotSupportedError', 'a prompt has no system message; use initialPrompts');
    }
    if (!['system', 'user', 'assistant'].includes(role)) throw new TypeError(`unknown role ${role}`);
    const parts = Array.isArray(content) ? content : [{ type: 'text', value: String(content) }];
    const other = parts.find(({ type }) => type !== 'text');
    if (other) throw dom('NotSupportedError', `the model reads text only, not ${other.type}`);
    return { role, content: parts.map(({ value }) => String(value)).join('\n') };
  });
}

/** @typedef {object} LanguageModel
 * @property {(options?: CreateOptions) => Promise<'unavailable' | 'downloadable' | 'downloading' | 'available'>}
 *   availability  downloadable: the first session downloads the model
 * @property {(options?: CreateOptions) => Promise<LanguageModelSession>} create  loads the model with the first
 *   session; a signal ends the load, unless another session waits for it
 * @typedef {object} State  of a session
 * @property {Model} model @property {Session} session @property {Message[]} messages @property {object} sampling
 * @property {number} window  tokens @property {number} usage  tokens @property {number} kept  how many messages stay
 * @property {() => () => void} hold  counts a session, and returns what ends that @property {() => void} release */
/** A function of a session for languageModelOf: adds messages. */
const ADD = Symbol('add');

/** What `LanguageModel.create` gives: a conversation, in which each prompt goes on with the ones before. */
export class LanguageModelSession extends EventTarget {
  #state;
  #destroyed = new AbortController();
  /** Resolves when the calls so far have ended. @type {Promise<void>} */
  #last = Promise.resolve();
  /** @type {((event: Event) => void) | null} */
  oncontextoverflow = null;

  /** @param {State} state */
  constructor(state) {
    super();
    this.#state = state;
  }

  get contextUsage() { return this.#state.usage; }
  get contextWindow() { return this.#state.window; }

  /** The whole answer. @param {Prompt} input @param {PromptOptions} [options] */
  async prompt(input, options) {
    let text = '';
    for await (const piece of this.#answer(input, options)) text += piece;
    return text;
  }

  /** The answer in pieces.
   * @param {Prompt} input @param {PromptOptions} [options] @returns {ReadableStream<string>} */
  promptStreaming(input, options) {
    const pieces = this.#answer(input, options);
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() { await pieces.return(); },
    });
  }

  /** Adds messages without an answer. @param {Prompt} input @param {{signal?: AbortSignal}} [options] */
  async append(input, { signal } = {}) {
    const end = await this.#turn(signal);
    try {
      await this[ADD](messagesOf(input));
    } finally {
      end();
    }
  }

  /** How many tokens a prompt would add. @param {Prompt} input @param {PromptOptions} [options] */
  async measureContextUsage(input, { signal } = {}) {
    signal?.throwIfAborted();
    return await this.#count([...this.#state.messages, ...messagesOf(input)]) - this.#state.usage;
  }

  /** A session that goes on from this one, independently. @param {{signal?: AbortSignal}} [options] */
  async clone({ signal } = {}) {
    const end = await this.#turn(signal), session = await this.#state.session.fork().finally(end);
    return new LanguageModelSession({ ...this.#state, session, release: this.#state.hold() });
  }

  /** Ends what is running, and frees the session, and the model with its last session. */
  destroy() {
    if (this.#destroyed.signal.aborted) return;
    this.#destroyed.abort(dom('AbortError', 'the session was destroyed'));
    this.#state.session.close().catch(() => {}).finally(this.#state.release);
  }

  /** Waits for the calls before, and returns a function that lets the next one begin.
   * @param {AbortSignal} [signal] */
  async #turn(signal) {
    const before = this.#last;
    let end = () => {};
    this.#last = new Promise(resolve => { end = resolve; });
    await before;
    if (!this.#destroyed.signal.aborted && !signal?.aborted) return end;
    end();
    throw signal?.reason ?? dom('InvalidStateError', 'the session was destroyed');
  }

  /** How many tokens messages have. @param {Message[]} messages */
  async #count(messages) {
    return messages.length && (await this.#state.model.tokenizeChat(messages, { addGenerationPrompt: false,
      continueFinalMessage: false })).length;
  }

  /** The messages with others behind them, without the oldest ones if all do not fit. @param {Message[]} added */
  async #fitting(added) {
    const { kept, window, messages: before } = this.#state, all = [...before, ...added];
    const from = (/** @type {number} */ first) => [...all.slice(0, kept), ...all.slice(first)];
    if (await this.#count(all) < window) return all;
    const others = Array.from({ length: before.length - kept }, (_, i) => kept + i + 1);
    const first = await firstThatFits(others, async one => await this.#count(from(one)) < window) ?? kept;
    const messages = from(first), n = await this.#count(messages);
    if (n >= window) throw dom('QuotaExceededError', `the prompt needs ${n} tokens, but the context holds ${window}`);
    const event = new Event('contextoverflow');
    this.dispatchEvent(event);
    this.oncontextoverflow?.(event);
    return messages;
  }

  /** @param {Message[]} added */
  async [ADD](added) {
    const messages = await this.#fitting(added), usage = await this.#count(messages);
    Object.assign(this.#state, { messages, usage });
  }

  /** @param {Prompt} input @param {PromptOptions} [options] @returns {AsyncGenerator<string, void, void>} */
  async *#answer(input, { signal, responseConstraint: bound, omitResponseConstraintInput: omit = false } = {}) {
    const { session, sampling } = this.#state, end = await this.#turn(signal), stop = new AbortController();
    const unfollow = [signal, this.#destroyed.signal].map(one => onAbort(one, reason => stop.abort(reason)));
    try {
      const messages = await this.#fitting(messagesOf(input)), before = messages.slice(0, -1);
      const last = messages[before.length], content = String(last?.content), isUser = last?.role === 'user';
      const options = { ...sampling, signal: stop.signal,
        ...bound instanceof RegExp ? { regex: bound.source } : bound && { schema: bound } };
      // An assistant's message is continued.
      const pieces = isUser ? session.chat({ messages: before }).send(content, { ...options, showSchema: !omit })
        : session.generate(messages, options);
      let text = '';
      for await (const piece of pieces) {
        stop.signal.throwIfAborted();
        text += piece;
        yield piece;
      }
      stop.signal.throwIfAborted();
      this.#state.messages = isUser ? messages : before;
      await this[ADD]([{ role: 'assistant', content: isUser ? text : `${content}${text}` }]);
    } finally {
      for (const one of unfollow) one();
      end();
    }
  }
}

/** LanguageModel of a model, which is loaded when a session is first created.
 * @param {Library} plumb @param {import('../loader/source.js').Source} source
 * @param {import('../loader/load-options.js').LoadOptions} load @returns {LanguageModel} */
export function languageModelOf(plumb, source, load) {
  /** @type {{model: Promise<Model>, stop: AbortController, isLoaded: boolean} | undefined} */
  let current;
  let sessions = 0;
  /** @type {Set<EventTarget>} */
  const monitors = new Set();
  const report = (/** @type {number} */ loaded) => monitors.forEach(monitor =>
    monitor.dispatchEvent(Object.assign(new Event('downloadprogress'), { loaded, total: 1, lengthComputable: true })));
  function begin() {
    const stop = new AbortController();
    const one = { stop, isLoaded: false, model: plumb.load(source, { ...load, signal: stop.signal,
      onProgress: progress => {
        load.onProgress?.(progress);
        if (progress.total) report(Math.min(progress.bytes / progress.total, 1));
      } }) };
    one.model.then(() => { one.isLoaded = true; }, () => { if (current === one) current = undefined; });
    return one;
  }
  function hold() {
    sessions++;
    return () => {
      if (--sessions > 0) return;
      current?.stop.abort(dom('AbortError', 'no session waits for the model'));
      current?.model.then(model => model.close(), () => {});
      current = undefined;
    };
  }

  return {
    async availability(options = {}) {
      if (isUnsupported(options)) return 'unavailable';
      if (current) return current.isLoaded ? 'available' : 'downloading';
      const isUrl = source instanceof URL || typeof source === 'string'
        && ('location' in globalThis || /^https?:/.test(source));
      const plan = await plumb.preflight(source, { measure: false }).catch(() => undefined);
      return !plan?.supported ? 'unavailable' : !isUrl || plan.cached?.complete ? 'available' : 'downloadable';
    },
    async create(options = {}) {
      const { initialPrompts = [], samplingMode, temperature, topK, signal, monitor } = options;
      signal?.throwIfAborted();
      if (isUnsupported(options)) throw dom('NotSupportedError', 'models here read and write text, without tools');
      if (samplingMode !== undefined && (temperature ?? topK) !== undefined) {
        throw new TypeError('samplingMode excludes temperature and topK');
      }
      const messages = messagesOf(initialPrompts, true), target = /** @type {any} */ (new EventTarget());
      target.addEventListener('downloadprogress', (/** @type {Event} */ event) => target.ondownloadprogress?.(event));
      monitor?.(target);
      monitors.add(target);
      const release = hold();
      try {
        report(0);
        current ??= begin();
        const model = await unlessAborted(current.model, signal);
        report(1);
        const sampling = { temperature: temperature ?? MODES[samplingMode ?? ''], topK };
        const one = new LanguageModelSession({ model, session: await model.session(), messages: [], sampling, usage: 0,
          window: (await model.info()).contextLength, kept: messages.length, hold, release });
        await one[ADD](messages);
        return one;
      } catch (error) {
        release();
        throw error;
      } finally {
        monitors.delete(target);
      }
    },
  };
}
