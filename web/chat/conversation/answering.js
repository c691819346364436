/* The answer that grows: asks the model, and shows and saves what arrives. */
import { PlumbError } from '../../index.js';
import { afterReasoning, continuation } from './continuation.js';
import { count, dotted, toast } from '../dom.js';
import { explain, ExplainedError, isFatal } from '../explain.js';
import { ABORTED, messagesOf } from '../tools/kept.js';
import { isNothingNew, isRepeated } from '../tools/repeats.js';

/** @typedef {import('./conversation-store.js').Message} Message
 * @typedef {import('../inspect/inspect.js').Token} Token
 * @typedef {import('../../api/plumb.js').Model} Model
 * @typedef {import('../../api/plumb.js').Message} ModelMessage
 * @typedef {import('../../api/plumb.js').Stats} Stats */
/** @typedef {object} Question
 * @property {Model} model
 * @property {import('./conversation-store.js').Conversation} chat  whose last message is answered
 * @property {Message} [open]  an answer, the last message, that is continued instead
 * @property {import('./versions.js').Versions} [versions]  of the answer, if it is not continued
 * @property {import('../settings.js').Settings} settings
 * @property {(messages: Message[]) => ModelMessage[]} prompt  what the model is given of messages
 * @property {(signal: AbortSignal, status: (text: string) => void) => Promise<string | undefined>} [prepare]
 *   before the model is asked; returns what is said instead of asking it
 * @property {() => Promise<{tools?: import('../../answers/messages.js').Tool[]} | undefined>} told  the tools as the
 *   template tells the model of them
 * @property {(hooks: import('../tools/toolset.js').Hooks) =>
 *   Promise<import('../tools/toolset.js').Runnable | undefined>} [tools]
 *   that the model may call
 * @property {WeakMap<Message, Token[]>} tokens  gets those of the answer
 * @property {import('./message-list.js').MessageList} list
 * @property {() => void} save  saves the conversation
 * @property {import('./saved-states.js').SavedStates} states
 * @property {(text: string) => void} status  shows what the model does */

/** Milliseconds between two saves of a growing answer, and between two updates of its speed. */
const SAVE_INTERVAL = 200, SPEED_INTERVAL = 500;
/** How many of the likeliest tokens the inspector shows beside the chosen one. */
const ALTERNATIVES = 5;
/** How many tokens an answer must have to tell how fast the model is. */
const MEASURED = 8;
/** What an answer in words may be, but not a call that is written as text: it begins with a letter or a digit. */
const WORDS = '[\\p{L}\\p{N}][^]*';
/** Errors of a schema: it is not one, or has keywords that cannot be kept. */
const BROKEN = ['PLUMB_ERROR_ARGUMENT', 'PLUMB_ERROR_UNSUPPORTED'];

export class Answering {
  #controller = new AbortController();
  #message;
  /** What the message had before. */
  #known;
  /** What the model is given. @type {ModelMessage[]} */
  #messages = [];
  #sampling;
  #schema;
  #view;
  /** The part of the answer whose calls have no results yet. @type {import('../tools/kept.js').Step | undefined} */
  #step;
  /** How many answers the model has given, and may give, with tools. @type {{of: number, most: number} | undefined} */
  #steps;
  /** @type {import('../tools/toolset.js').Runnable['placeOf']} */
  #placeOf = () => undefined;
  /** Whether calls were made since the last piece: their time is not that of writing. */
  #hasWaited = false;
  /** How a run with tools has ended. @type {'stop' | 'length' | 'abort' | 'maxSteps' | undefined} */
  #finish;
  /** @type {Token[]} */
  #seen;
  /** How many tokens were there before. */
  #before;
  /** How many tokens of the context the conversation takes, if the model has said it. @type {number | undefined} */
  used;
  /** Tokens per second, if the answer was long enough to tell. @type {number | undefined} */
  speed;
  /** Whether the model cannot answer any more. */
  isFatal = false;

  /** @param {Question} question */
  constructor(question) {
    const { chat, open, versions, settings, tokens, list, save } = this.question = question;
    const message = this.#message = open
      ?? /** @type {Message} */ ({ role: 'assistant', content: '', ...versions && { versions } });
    if (!open) chat.messages.push(message);
    const index = chat.messages.length - 1;
    this.#known = { figures: message.figures, cut: message.cut };
    for (const call of message.steps?.flatMap(({ calls }) => calls) ?? []) {
      if (call.result === undefined) Object.assign(call, { result: ABORTED, failed: true });
    }
    // Shown if the page is left during the answer.
    message.figures = 'stopped';
    message.cut = { by: 'stop', tokens: message.cut?.tokens ?? 0 };
    delete message.problem;
    this.#sampling = settings.sampling();
    this.#schema = open && !open.json ? undefined : settings.schema();
    if (this.#schema !== undefined) message.json = true;
    this.#view = list.begin(message, index);
    save();
    this.#seen = open && tokens.get(open) || [];
    this.#before = this.#seen.length;
    tokens.set(message, this.#seen);
  }

  abort() { this.#controller.abort(); }

  /** Resolves when there is nothing more to come. */
  async run() {
    try {
      await this.#grow();
    } catch (error) {
      // Closing the model to load another one makes the answer fail, but counts as stopping it.
      if (!this.#controller.signal.aborted) this.#fail(error);
    }
  }

  async #grow() {
    const { save, states, chat: { messages }, prompt, prepare } = this.question;
    const message = this.#message, seen = this.#seen, before = messages.slice(0, messages.indexOf(message));
    const status = (/** @type {string} */ text) => this.#status(text);
    const instead = await prepare?.(this.#controller.signal, status);
    if (instead !== undefined) {
      delete message.figures;
      delete message.cut;
      message.content = instead;
      return this.#view.push(instead);
    }
    this.#messages = [...prompt(before), ...messagesOf(message)];
    let first = 0, counted = 0, shownAt = 0, savedAt = performance.now();
    const { pieces, trimmed, chat, stats: lastStats } = await this.#ask();
    for await (const piece of pieces) {
      const now = performance.now();
      if (first === 0 || this.#hasWaited) [first, counted] = [now, seen.length];
      this.#hasWaited = false;
      message.content += piece;
      this.#view.push(piece);
      if (now - shownAt > SPEED_INTERVAL && now > first) {
        status(`${((seen.length - counted) * 1000 / (now - first)).toFixed(1)} tokens/s`);
        shownAt = now;
      }
      if (now - savedAt > SAVE_INTERVAL) {
        savedAt = now;
        this.#countTokens();
        save();
      }
    }
    const stats = lastStats();
    if (!stats) return;
    const reason = this.#finish ?? stats.finishReason;
    const tokens = (this.#known.cut?.tokens ?? 0) + (this.#steps ? seen.length - this.#before : stats.tokens);
    message.figures = summary({ ...stats, tokens }, trimmed(), reason === 'abort');
    delete message.cut;
    if (reason === 'abort') message.cut = { by: 'stop', tokens };
    else if (reason === 'maxSteps') message.cut = { by: 'steps', tokens };
    else if (reason === 'length') {
      message.cut = { by: stats.tokens === this.#sampling.maxTokens ? 'limit' : 'context', tokens };
    }
    this.used = stats.promptTokens + stats.tokens;
    if (stats.tokens >= MEASURED) this.speed = stats.decodeRate;
    if (chat) states.keep(this.question.chat.id, chat, this.used);
  }

  /** Shows what the model does, and at which step it is. @param {string} text */
  #status(text) {
    const { of, most } = this.#steps ?? {};
    this.question.status(dotted([of !== undefined && `Step ${of} of at most ${most}`, text]));
  }

  /** Notes how many tokens there are, for an answer that is left. */
  #countTokens() {
    const { cut } = this.#message;
    if (cut) cut.tokens = (this.#known.cut?.tokens ?? 0) + this.#seen.length - this.#before;
  }

  /** Asks the model, and returns the answer in pieces.
   * @returns {Promise<{pieces: AsyncIterable<string>, trimmed: () => number, chat?: import('../../api/chat.js').Chat,
   *   stats: () => Stats | undefined}>}  trimmed: how many of the first messages did not fit;
   *   stats: once it has ended */
  async #ask() {
    const { model, open } = this.question, sampling = this.#sampling, schema = this.#schema;
    const messages = this.#messages, own = {
      ...sampling, logprobs: ALTERNATIVES, signal: this.#controller.signal,
      onToken: (/** @type {Token} */ token) => this.#seen.push(token),
      onPromptProgress: (/** @type {import('../../index.js').PromptProgress} */ progress) => this.#view.read(progress),
    };
    if (open && (open.content || open.reasoning)) {
      const { ids, trimmed, end } = await continuation(model, messages, open, await this.question.told() ?? {},
        sampling.maxTokens);
      // Behind reasoning that goes on, the schema binds what follows it.
      const bound = schema !== undefined && { schema, reasoningBudget: undefined,
        ...end ? { triggers: [end] } : { begun: open.content } };
      const pieces = model.generate(ids, { ...own, ...end && { special: [end] }, ...bound });
      return { pieces: afterReasoning(pieces, end, reasoning => this.#think(reasoning)), trimmed: () => trimmed,
        stats: () => model.lastStats };
    }
    const thinks = schema === undefined && sampling.reasoningBudget !== 0, question = messages.pop();
    const template = sampling.reasoningBudget === undefined && thinks ? {} : { enable_thinking: thinks };
    const chat = model.chat({ messages, contextEnd: 'trim' });
    await this.question.states.restore(this.question.chat.id, chat);
    const about = { trimmed: () => chat.trimmed, chat, stats: () => chat.lastStats };
    const onDelta = (/** @type {import('../../index.js').AnswerDelta} */ { reasoning }) =>
      reasoning !== undefined && this.#think(reasoning);
    const { contextLength } = await model.info();
    const runnable = await this.question.tools?.({ contextLength, isRepeated: () => isRepeated(this.#message.steps),
      setState: (id, to) => {
        this.#view.setState(id, to);
        this.#status(to === 'asks' ? 'Waiting for your answer' : 'Waiting for a result');
      } });
    if (runnable) {
      const { tools, most, placeOf } = runnable;
      this.#steps = { of: 1, most };
      this.#placeOf = placeOf;
      const run = chat.run(question ?? '', { ...own, template, tools, maxSteps: most });
      return { ...about, pieces: this.#inSteps(chat, run, { ...own, template, onDelta }) };
    }
    const pieces = chat.send(question ?? '', {
      ...own, template, ...schema !== undefined && { schema, showSchema: false, reasoningBudget: undefined }, onDelta,
    });
    return { ...about, pieces };
  }

  /** The text behind the steps of a run.  Small models call a tool again and again instead of answering: one whose last
   * step brings nothing new is asked for words behind the step before, without tools.
   * @param {import('../../api/chat.js').Chat} chat @param {AsyncIterable<import('../../index.js').RunEvent>} run
   * @param {import('../../index.js').SendOptions} options */
  async *#inSteps(chat, run, options) {
    if (!(yield* this.#written(run))) return;
    const { messages } = chat, repeated = messages.findLastIndex(({ role }) => role === 'assistant');
    const last = messages.findLastIndex(({ role }, at) => role === 'tool' && at < repeated);
    chat.rewind(last);
    yield* chat.send(messages[last], { ...options, regex: WORDS });
  }

  /** Shows and keeps the steps of a run, and yields the text behind them.  Returns whether it ends because the last
   * step, which is then taken away, brings nothing new.
   * @param {AsyncIterable<import('../../index.js').RunEvent>} events */
  async *#written(events) {
    for await (const { content, reasoning, call, result, finish } of events) {
      if (reasoning) this.#think(reasoning);
      else if (call) this.#addCall(call);
      else if (result) {
        this.#addResult(result);
        const { steps = [] } = this.#message;
        if (this.#step || !isNothingNew(steps)) continue;
        const { content: said } = /** @type {import('../tools/kept.js').Step} */ (steps.pop());
        this.#view.showSteps();
        if (said) yield said;
        return true;
      } else if (finish) this.#finish = finish.reason;
      else if (content && this.#step) this.#step.content = (this.#step.content ?? '') + content;
      else if (content) yield content;
    }
    return false;
  }

  /** @param {NonNullable<import('../../index.js').RunEvent['call']>} call  a piece of it */
  #addCall({ index, id = '', name = '', arguments: given }) {
    const message = this.#message;
    if (!this.#step) {
      const { content, reasoning } = message;
      this.#step = { ...reasoning && { reasoning }, ...content && { content }, calls: [] };
      (message.steps ??= []).push(this.#step);
      message.content = '';
      delete message.reasoning;
      this.#view.beginStep();
    }
    const { calls } = this.#step, at = this.#placeOf(name);
    calls[index] ??= { id, name, arguments: '', ...at && { at } };
    calls[index].arguments += given;
    this.#view.showSteps();
    if (given) this.question.save();
  }

  /** @param {NonNullable<import('../../index.js').RunEvent['result']>} result */
  #addResult({ id, content, failed }) {
    const calls = this.#step?.calls ?? [], call = calls.find(one => one.id === id && one.result === undefined);
    if (!call) return;
    this.#hasWaited = true;
    call.result = content;
    if (failed) call.failed = true;
    if (calls.every(({ result }) => result !== undefined)) {
      this.#step = undefined;
      if (this.#steps) this.#steps.of = Math.min(this.#steps.of + 1, this.#steps.most);
      this.#status('');
    }
    this.#view.showSteps();
    this.question.save();
  }

  /** @param {string} reasoning */
  #think(reasoning) {
    if (!this.#message.reasoning) this.#status('Thinking');
    this.#message.reasoning = (this.#message.reasoning ?? '') + reasoning;
    this.#view.think(reasoning);
  }

  /** @param {unknown} error */
  #fail(error) {
    const message = this.#message, { figures, cut } = this.#known, code = error instanceof PlumbError ? error.code : '';
    const why = this.#schema !== undefined && error instanceof PlumbError && BROKEN.includes(code)
      ? explain(new ExplainedError('No answer can keep the JSON Schema', 'Change it in the settings.', error.message))
      : explain(error);
    const hasMore = this.#seen.length > this.#before;
    this.#countTokens();
    delete message.figures;
    if (!this.question.open) {
      message.problem = why;
      if (!hasMore) delete message.cut;
      else if (message.cut) message.cut.by = 'failure';
    } else {   // the part that there was before is still an answer
      if (!hasMore) message.cut = cut;
      else if (message.cut) message.cut.by = 'failure';
      if (figures !== undefined) message.figures = figures;
      toast(`The answer could not be continued. ${why.title}. ${why.advice}`);
    }
    this.isFatal = isFatal(error);
  }

  /** Shows and saves the answer as it is now. */
  end() {
    this.#view.end();
    this.question.chat.updated = Date.now();
    this.question.save();
  }
}

/** @param {import('../../api/plumb.js').Stats} stats @param {number} trimmed @param {boolean} isStopped */
function summary({ tokens, decodeRate, promptTokens, reusedTokens, prefillRate }, trimmed, isStopped) {
  const read = promptTokens - reusedTokens;
  return dotted([count(tokens, 'token'), `${decodeRate.toFixed(1)} tokens/s`,
    `${read} read at ${prefillRate.toFixed(0)}/s`,
    trimmed > 0 && `without the first ${count(trimmed, 'message')}`, isStopped && 'stopped']);
}
