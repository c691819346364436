/* A conversation.  It keeps the messages, asks the model for answers, and leaves out the oldest turns if the prompt no
 * longer fits.  The part of a prompt that it shares with the prompt before is still in the session and is not computed
 * again. */
import { mapped } from '../base/async.js';
import { argumentError, PlumbError } from '../base/errors.js';
import * as known from '../base/options.js';
import { firstThatFits, mostOfPrompt } from '../answers/fitting.js';
import { CONTINUED, POOL } from '../answers/formats.js';
import { jsonSchemaOf, plainTools } from '../answers/constraint.js';
import { withSchemaShown } from '../answers/system-text.js';
import { chosenTools } from '../answers/tool-choice.js';
import { beginAnswer } from '../answers/generate.js';
import { ObjectAnswer, valuesOf } from './object.js';
import { execute, toolsOf } from './run.js';
import { TextAnswer } from './text-answer.js';

/** @typedef {import('../answers/messages.js').Message} Message
 * @typedef {import('../engine/generation.js').Stats} Stats
 * @typedef {import('../answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../answers/answer.js').AnswerDelta} AnswerDelta
 * @typedef {import('../answers/answer.js').Answer} Answer */
/** @typedef {import('../answers/messages.js').ChatSession} ChatSession */
/** @typedef {object} OwnChatOptions
 * @property {string} [system]  the system message, which is the chat's first message
 * @property {import('../answers/messages.js').Tool[]} [tools]  functions that the model may call.  The chat template
 *   describes them to the model, or a system message if the template does not support tools.  Calls in answers become
 *   `tool_calls` of the message
 * @property {Message[]} [messages]  the conversation so far.  Only the first may be a system message, and only without
 *   `system`
 * @property {typeof known.CONTEXT_ENDS[number]} [contextEnd]  what happens when the context is full.  'error', the
 *   default: an answer ends with finishReason 'length', and a prompt that is too long is PLUMB_ERROR_CONTEXT.  'trim':
 *   the prompt leaves out the oldest turns after the system message until it and the answer fit.  A turn is a user's
 *   message with all messages up to the next one; an answer needs `maxTokens`, or a quarter of the context if that is
 *   less.  'shift': the first tokens stay, the older half of the others is dropped, also within an answer, and nothing
 *   is computed anew.  A chat that the session does not hold, such as a saved one, is computed from its first token on
 * @property {number} [sinks]  with 'shift': how many of the first tokens stay, as in generate; default: those of the
 *   system message, and at least 4 */
/** @typedef {object} OwnSendOptions
 * @property {import('../answers/tool-choice.js').ToolChoice} [toolChoice]  'none': the model is not told about the
 *   tools; 'required' or a tool by its name: the answer is calls, after reasoning; default 'auto'.  Calls fit the
 *   tools' schemas
 * @property {boolean} [parallelToolCalls]  false: the answer ends with its first call; default true
 * @property {(delta: AnswerDelta) => void} [onDelta]  receives each part of an answer:
 *   text, reasoning, or a piece of a call
 * @property {boolean} [showSchema]  whether the system message tells the model the `schema` of the answer, or that it
 *   is a JSON object (`json`); default true.  The messages of the chat stay as they are
 * @typedef {OwnSendOptions & Omit<GenerateOptions, 'sinks'>} SendOptions */
/** @typedef {OwnChatOptions & Omit<SendOptions, 'signal' | 'parseSpecial'>} ChatOptions  the options of an answer are
 *   the defaults for every answer of the chat */
/** A conversation with a model; `model.chat()` creates it.
 *
 * send, regenerate and edit give the text of an answer, to a loop `for await` in pieces of whole characters, and to
 * `await` as a whole.  They keep the answer as a message {role, content, reasoning_content?, tool_calls?}.  The text is
 * what is neither reasoning nor a call.  If an answer is stopped (by leaving the loop or by `signal`) or cut off (by
 * maxTokens or the context), the part that was generated is kept, without a call that is not whole.  If nothing was
 * generated before it was stopped, or if it fails, the chat is as it was before the call: PLUMB_ERROR_CONTEXT, the
 * prompt is too long; PLUMB_ERROR_TEMPLATE, the model's chat template refuses it; PLUMB_ERROR_ARGUMENT.  A chat gives
 * one answer at a time; a call that would change the chat during an answer is PLUMB_ERROR_STATE.
 *
 * Several chats of a model answer at the same time, and each goes on from what it has computed, while the model has
 * memory for it.  Then what was not used for longest is computed again. */
export class Chat {
  #model;
  /** The tokens of its last prompt. @type {Int32Array | undefined} */
  #last;
  /** With contextEnd 'shift': its session, which has dropped tokens. @type {ChatSession | undefined} */
  #kept;
  #tools;
  #contextEnd;
  #sinks;
  #defaults;
  /** @type {Message[]} */
  #messages;
  #trimmed = 0;
  #answering = false;
  /** Statistics of the last answer that ended. @type {Stats | undefined} */
  lastStats = undefined;

  /** @param {import('../answers/messages.js').ChatModel} model @param {ChatOptions} [options] */
  constructor(model, options = {}) {
    known.checkOptions('chat', options, known.CHAT);
    const { system, tools, messages = [], contextEnd = 'error', sinks, ...defaults } = options;
    this.#model = model;
    const given = messages.length > 0 ? this.#checked('chat', messages) : [];
    if (system !== undefined && isSystem(given[0])) {
      throw argumentError('chat: give either system or a system message in messages, not both');
    }
    if (sinks !== undefined && contextEnd !== 'shift') {
      throw argumentError("chat: sinks needs contextEnd: 'shift'");
    }
    this.#tools = tools && plainTools('chat', tools);
    this.#contextEnd = contextEnd;
    this.#sinks = sinks;
    this.#defaults = defaults;
    this.#messages = system === undefined ? given : [{ role: 'system', content: system }, ...given];
  }

  /** A copy of all messages, including those that no longer fit. @returns {Message[]} */
  get messages() { return structuredClone(this.#messages); }

  /** How many of the oldest messages after the system message the prompt leaves out, with `contextEnd: 'trim'`. */
  get trimmed() { return this.#trimmed; }

  /** Adds messages to the chat and yields the answer.  Results of tools are messages
   * {role: 'tool', content, tool_call_id}.
   * @param {string | Message | Message[]} content  a string is a message of the user
   * @param {SendOptions} [options]  for this answer
   * @returns {TextAnswer<string, Stats>} */
  send(content, options) {
    return new TextAnswer(this.#answer('chat.send', () => this.#with('chat.send', content), options));
  }

  /** Answers the last question again and forgets the answer that it had, if any.  The same `seed` gives the same
   * answer.
   * @param {SendOptions} [options] @returns {TextAnswer<string, Stats>} */
  regenerate(options) {
    return new TextAnswer(this.#answer('chat.regenerate', () => {
      const last = this.#messages.findLastIndex(message => message.role !== 'assistant');
      if (last < 0 || isSystem(this.#messages[last])) {
        throw argumentError('chat.regenerate: there is nothing to answer yet');
      }
      return this.#messages.slice(0, last + 1);
    }, options));
  }

  /** Replaces a message, forgets all messages after it, and answers it.
   * @param {number} index  index in chat.messages of a message of the user or of a tool
   * @param {string | Message} content  a string keeps the message's role
   * @param {SendOptions} [options] @returns {TextAnswer<string, Stats>} */
  edit(index, content, options) {
    return new TextAnswer(this.#answer('chat.edit', () => {
      const old = this.#messages[index];
      if (!old) throw noMessage('chat.edit', index, this.#messages);
      const [message] = this.#checked('chat.edit', [typeof content === 'string' ? { ...old, content } : content]);
      if (message.role === 'assistant' || isSystem(message)) {
        throw argumentError(`chat.edit: message ${index} would have the role ${message.role}, which has no answer`);
      }
      this.#trimmed = 0;
      return [...this.#messages.slice(0, index), message];
    }, options));
  }

  /** Sends messages and executes the tools that the model calls, until it answers without a call.  The results go back
   * to the model, which may call tools again.  All messages stay in the chat.
   *
   * What a tool throws becomes a result that the model sees.  So does a message about a tool that does not exist, or
   * about arguments that do not fit the tool's schema.  The calls of one step are executed at the same time.  If the
   * signal is aborted, results that are missing become errors, so that the chat can go on later.
   * @template const T  the schemas of the tools' arguments
   * @param {string | Message | Message[]} content  a string is a message of the user
   * @param {{tools: import('./run.js').Callables<T>, maxSteps?: number} & SendOptions} options  tools: by name,
   *   instead of those of the chat; maxSteps: how many answers the model may give, default 8; the others are those of
   *   an answer, with those of the chat as defaults.  A `toolChoice` that requires a call is for the first answer
   * @returns {TextAnswer<import('./run.js').RunEvent, void>}  a loop gives the events, and `await` the text of the last
   *   answer */
  run(content, options) {
    return new TextAnswer(this.#run(content, options), (text, { finish }) => finish?.content ?? text);
  }

  /** @param {string | Message | Message[]} content
   * @param {{tools: import('./run.js').Callables, maxSteps?: number} & SendOptions} options
   * @returns {AsyncGenerator<import('./run.js').RunEvent, void, void>} */
  async *#run(content, options) {
    known.checkOptions('chat.run', options, known.RUN);
    if (!options?.tools) throw argumentError('chat.run: tools is missing');
    const { tools: callables, maxSteps = 8, ...own } = options;
    /** @type {SendOptions} */
    const { toolChoice, parallelToolCalls: parallel, ...rest } = { ...this.#defaults, ...defined(own) };
    const tools = toolsOf(callables), free = toolChoice === 'none' ? 'none' : 'auto';
    const about = (/** @type {typeof toolChoice} */ choice) =>
      ({ ...chosenTools('chat.run', tools, choice, 'toolChoice'), anyName: true, parallel });
    const [first, later] = [about(toolChoice), about(free)];   // or a run would never end
    let messages = this.#with('chat.run', content);
    this.#free('chat.run');
    this.#answering = true;
    try {
      for (let steps = 1; ; steps++) {
        const { stats, message } = yield* this.#deltas(messages, steps === 1 ? first : later, rest);
        const { content: said, tool_calls: calls = [] } = message;
        const results = await Promise.all(calls.map(call => execute(call, callables, rest.signal)));
        messages = this.#messages = [...this.#messages, ...results.map(({ id, content: result }) =>
          ({ role: /** @type {const} */ ('tool'), content: result, tool_call_id: id }))];
        for (const result of results) yield { result };
        const isAborted = rest.signal?.aborted || stats.finishReason === 'abort';
        if (calls.length > 0 && steps < maxSteps && !isAborted) continue;
        const reason = isAborted ? 'abort' : calls.length > 0 ? 'maxSteps' : stats.finishReason;
        yield { finish: { reason, steps, content: said } };
        return;
      }
    } finally {
      this.#answering = false;
    }
  }

  /** Adds messages to the chat and answers with a value of a schema.  The system message tells the model the schema,
   * and only tokens with which the text remains valid can be chosen; the text is the answer's message.  A model that
   * can reason does so only with `template: { enable_thinking: true }` or a `reasoningBudget`.
   * @template const S
   * @param {S} schema  a JSON Schema, or a schema of Zod or another library that gives its JSON Schema; such a library
   *   also checks the value, and the result is what it makes of it
   * @param {string | Message | Message[]} content  a string is a message of the user
   * @param {SendOptions} [options]  for this answer
   * @returns {ObjectAnswer<import('./infer.js').FromSchema<S>>}  `await` gives the value, and a loop `for await` gives
   *   what is known of it while it grows.  PLUMB_ERROR_TRUNCATED: the answer was cut off; details.partial is what is
   *   known of the value.  PLUMB_ERROR_UNSUPPORTED: a keyword of the schema cannot be kept */
  object(schema, content, options = {}) {
    known.checkOptions('chat.object', options, known.SEND);
    const { reasoningBudget: given } = { ...this.#defaults, ...defined(options) };
    const template = { enable_thinking: (given ?? 0) > 0, ...this.#defaults.template, ...options.template };
    const reasoningBudget = given ?? (template.enable_thinking ? undefined : 0);
    const pieces = this.send(content, {
      ...options, template, reasoningBudget, toolChoice: 'none', schema: /** @type {any} */ (schema),
    });
    return new ObjectAnswer(valuesOf(schema, pieces));
  }

  /** Forgets messages.
   * @param {number} index  index in chat.messages of the first to forget; 0: all, including the system message */
  rewind(index) {
    this.#free('chat.rewind');
    if (!Number.isInteger(index) || index < 0 || index > this.#messages.length) {
      throw noMessage('chat.rewind', index, this.#messages);
    }
    this.#messages = this.#messages.slice(0, index);
    this.#trimmed = 0;
  }

  /** Returns what was computed of the chat, as session.save does.
   * @returns {Promise<Uint8Array<ArrayBuffer>>} */
  async save() {
    const { [POOL]: pool } = this.#model, prompt = this.#last ?? new Int32Array();
    const held = this.#kept ?? pool.find(prompt), position = (await held?.info())?.position ?? 0;
    if (held && (this.#kept || position >= prompt.length)) return held.save();
    const [session] = await pool.take(prompt);   // others have used its session, or its memory
    try {
      await session.rewind();
      if (prompt.length > 0) await session.feed(prompt);
      return await session.save();
    } finally {
      pool.give(session, prompt);
    }
  }

  /** Takes what save has returned, for a chat with the same messages: then its next answer begins at once.  The errors
   * are those of session.restore. @param {Uint8Array | ArrayBuffer} bytes */
  async restore(bytes) {
    const { [POOL]: pool } = this.#model, none = new Int32Array();
    const session = this.#kept ?? (await pool.take(none))[0];
    try {
      await session.restore(bytes);
      this.#last = this.#messages.length === 0 ? none
        : await this.#model.tokenizeChat(this.#messages, { addGenerationPrompt: false });
    } finally {
      if (!this.#kept) pool.give(session, this.#last ?? none);
    }
  }

  /** The session that answers a prompt, which must be given back.
   * @param {Int32Array} prompt @returns {Promise<ChatSession>} */
  async #take(prompt) {
    if (this.#kept) return this.#kept;
    const { [POOL]: pool } = this.#model;
    if (this.#contextEnd !== 'shift') return (await pool.take(prompt))[0];
    const session = this.#kept = await pool.open();
    return session;
  }

  /** All messages with further ones. @param {string} where @param {string | Message | Message[]} content */
  #with(where, content) {
    const added = typeof content === 'string' ? { role: /** @type {const} */ ('user'), content } : content;
    return [...this.#messages, ...this.#checked(where, [added].flat(), this.#messages.length)];
  }

  /** Checks messages and copies them.
   * @param {string} where @param {Message[]} messages @param {number} [before]  how many come before them in the chat
   * @returns {Message[]} */
  #checked(where, messages, before = 0) {
    if (messages.length === 0 || messages.some(message => typeof message !== 'object' || message === null)) {
      throw argumentError(`${where}: expected a string, or messages {role, content}`);
    }
    known.checkMessages(where, messages, this.#model.chatTemplate);
    if (messages.some((message, i) => before + i > 0 && isSystem(message))) {
      throw argumentError(`${where}: a system message can only be the first message of a chat`);
    }
    known.checkNesting(where, messages);
    return structuredClone(messages);
  }

  /** @param {string} where */
  #free(where) {
    if (this.#answering) throw new PlumbError('PLUMB_ERROR_STATE', `${where}: the chat is still generating an answer`);
  }

  /** Answers messages, keeps them together with the answer, and yields its text.
   * @param {string} where @param {() => Message[]} ask  returns the messages to answer
   * @param {SendOptions} [own]
   * @returns {AsyncGenerator<string, Stats, void>} */
  async *#answer(where, ask, own = {}) {
    known.checkOptions(where, own, known.SEND);
    this.#free(where);
    const { toolChoice, parallelToolCalls: parallel, ...options } = { ...this.#defaults, ...defined(own) };
    const about = { ...chosenTools(where, this.#tools, toolChoice, 'toolChoice'), parallel };
    const messages = ask();
    this.#answering = true;
    try {
      const deltas = this.#deltas(messages, about, options);
      return (yield* mapped(deltas, ({ content }) => content ? [content] : [])).stats;
    } finally {   // runs too if the caller leaves the loop
      this.#answering = false;
    }
  }

  /** Answers messages, keeps them together with the answer, and yields its parts.
   * @param {Message[]} messages @param {import('../answers/generate.js').AnswerOptions} about
   * @param {Pick<SendOptions, 'onDelta' | 'showSchema'> & GenerateOptions} options
   * @returns {AsyncGenerator<AnswerDelta, {stats: Stats, message: Answer}, void>} */
  async *#deltas(messages, about, { template, showSchema = true, onDelta, ...given }) {
    const before = this.#messages, trimmed = this.#trimmed;
    /** @type {Awaited<ReturnType<typeof beginAnswer>>['reader'] | undefined} */
    let reader;
    /** @type {Stats | undefined} */
    let stats;
    /** @type {import('../answers/formats.js').Continued} */
    let continued;
    let failed = false;
    this.lastStats = undefined;
    /** @type {ChatSession | undefined} */
    let session;
    /** @type {Int32Array} */
    let prompt = new Int32Array();
    try {
      this.#messages = messages;
      const schema = given.schema === undefined ? undefined : jsonSchemaOf('chat', given.schema);
      const options = { ...given, schema: /** @type {typeof given.schema} */ (schema) };
      const { ids, sinks } = await this.#prompt({ template, showSchema, ...options }, about.tools);
      prompt = ids;
      continued = this.#model[CONTINUED](ids);
      session = await this.#take(ids);
      const answer = await beginAnswer(session, ids, about, { ...options, sinks });
      reader = answer.reader;
      stats = this.lastStats = yield* mapped(answer.deltas, delta => {
        onDelta?.(delta);
        return [delta];
      });
      return { stats, message: reader.message };
    } catch (error) {
      failed = true;
      throw error;
    } finally {   // runs too if the caller leaves the loop
      reader?.end({ cut: true });   // unless it has ended
      const said = reader?.message, isStopped = !stats || stats.finishReason === 'abort';
      if (failed || isStopped && !(said?.content || said?.reasoning_content || said?.tool_calls)) {
        this.#messages = before;
        this.#trimmed = trimmed;
      } else if (continued) this.#messages = [...messages.slice(0, -1), extended(messages[messages.length - 1], said)];
      else this.#messages = [...messages, { role: 'assistant', content: '', ...said }];
      if (!failed) this.lastStats ??= session?.lastStats;
      if (session) this.#last = prompt;
      if (session && !this.#kept) this.#model[POOL].give(session, prompt);
    }
  }

  /** Returns the tokens of the messages, without those that are left out, and how many of them stay in a full context.
   * If they are still too many, generate throws.
   * @param {GenerateOptions & {showSchema: boolean}} options
   * @param {import('../answers/messages.js').Tool[]} [tools] */
  async #prompt({ template, showSchema, maxTokens = Infinity, signal, ...options }, tools) {
    const messages = showSchema ? withSchemaShown('chat', this.#messages, options) : this.#messages;
    const head = isSystem(messages[0]) ? 1 : 0;
    const variables = { ...template, ...tools && { tools } };
    const { contextLength } = await this.#model.info();
    const limit = mostOfPrompt(contextLength, maxTokens);
    const tokens = (/** @type {number} */ start) =>
      this.#model.tokenizeChat([...messages.slice(0, head), ...messages.slice(start)], variables);
    const start = head + this.#trimmed;
    const ids = await tokens(start);
    if (this.#contextEnd === 'shift') {
      if (this.#sinks !== undefined || head === 0) return { ids, sinks: this.#sinks ?? LEAST_SINKS };
      const other = await this.#model.tokenizeChat([messages[0], { role: 'user', content: '.' }], variables);
      const differs = ids.findIndex((id, i) => id !== other[i]);
      return { ids, sinks: Math.max(LEAST_SINKS, differs < 0 ? ids.length : differs) };
    }
    const turns = messages.flatMap(({ role }, i) => role === 'user' && i > start ? [i] : []);
    if (this.#contextEnd === 'error' || ids.length <= limit || turns.length === 0) return { ids };
    const first = await firstThatFits(turns, async turn => (await tokens(turn)).length <= limit, signal);
    if (first === undefined) return { ids: ids.subarray(0, 1) };   // aborted: generate does not compute it
    this.#trimmed = first - head;
    return { ids: await tokens(first) };
  }
}

/** How many tokens stay at least in a full context: Xiao et al. 2024, "Efficient Streaming Language Models with
 * Attention Sinks", table 2. */
const LEAST_SINKS = 4;

/** @param {Message | undefined} message */
const isSystem = message => message?.role === 'system' || message?.role === 'developer';

/** @param {string} where @param {number} index @param {Message[]} messages */
const noMessage = (where, index, messages) =>
  argumentError(`${where}: there is no message ${index}: the chat has ${messages.length} messages`);

/** A message of the assistant with what the answer has added to it.
 * @param {Message} message @param {Answer} [said] @returns {Message} */
function extended({ content, reasoning_content: reasoning = '', ...others }, said = { content: '' }) {
  const { content: more, reasoning_content: thought = '', ...calls } = said;
  return {
    ...others, ...calls, ...reasoning + thought && { reasoning_content: reasoning + thought },
    content: Array.isArray(content) ? [...content, { type: 'text', text: more }] : `${content ?? ''}${more}`,
  };
}

/** The options that are given. @param {object} options */
const defined = options => Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
