/* A session of a model: what was computed of a sequence of tokens, and the calls that use it. */
import { ASYNC_DISPOSE, onAbort } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { withoutReasoning } from '../answers/bound.js';
import { WHOLE, withGrammar } from '../answers/constraint.js';
import { CONTINUED, endsWith, FORMAT, opensOf, POOL, promptOf } from '../answers/formats.js';
import { Chat } from './chat.js';
import { decide } from './decide.js';
import { TextAnswer } from './text-answer.js';

/** @typedef {import('../answers/messages.js').Message} Message
 * @typedef {import('../answers/messages.js').TemplateOptions} TemplateOptions
 * @typedef {import('../answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../engine/generation.js').Stats} Stats
 * @typedef {import('../answers/messages.js').ChatModel} ChatModel
 * @typedef {import('../answers/decisions.js').DecisionQuestion} DecisionQuestion */

/** @typedef {object} ModelInfo
 * @property {string} architecture  general.architecture of the file
 * @property {number} parameters
 * @property {number} weightBytes
 * @property {number} layers
 * @property {number} embedding  elements in a token's embedding vector
 * @property {number} heads
 * @property {number} headsKV
 * @property {number} headDim
 * @property {number} feedForward
 * @property {number} vocabulary  tokens in the vocabulary
 * @property {number} trainedContext  tokens
 * @property {boolean} hasLogits  whether it can generate text; false: it only computes embeddings
 * @property {boolean} hasEncoder  whether an encoder reads the prompt, and a decoder writes about it, as in T5
 * @property {number} decoderStart  the token with which the decoder begins; -1 without an encoder
 * @property {typeof import('../base/parameters.js').POOLINGS[number]} pooling  how the vectors of the tokens become
 *   one, as the file says; 'none': it does not say; 'rank': it is a reranker
 * @property {number} dimensions  elements of a vector of model.embed, or for a reranker numbers of its classifier
 * @property {number} contextLength  tokens that this session can hold
 * @property {number} position  tokens that it holds in the engine's memory
 * @property {number} batch  tokens of a prompt that are computed at once
 * @property {string} module  the module that runs, such as plumb-mt-relaxed
 * @property {number} threads
 * @property {string} kernels  the instructions that the kernels use
 * @property {typeof import('../base/parameters.js').PRECISIONS[number]} precision  how activations are rounded
 * @property {number} sessionBytes  the part of memoryBytes that the session takes
 * @property {number} savedBytes  how many bytes model.save() would return now
 * @property {number} memoryBytes  all memory that the engine holds */

/** Functions of a model for its sessions: CALL, a call of the engine; PROMPT, the tokens of a prompt. */
export const CALL = Symbol('call'), PROMPT = Symbol('prompt');
/** Frees sessions that nobody can use any more.  What it holds must not refer to the session, as a model does to those
 * of its pool. @type {FinalizationRegistry<{owner: WeakRef<Model>, id: number}>} */
const lost = new FinalizationRegistry(({ owner, id }) => {
  owner.deref()?.[CALL]('closeSession', { id }).catch(() => {});
});
/** @typedef {(method: string, args?: object, options?: import('../base/protocol.js').CallOptions) => Promise<any>} Call
 * @typedef {(prompt: string | Message[] | Int32Array | number[], parseSpecial: boolean, template: TemplateOptions) =>
 *   Promise<{ids: Int32Array, isChat: boolean}>} PromptOf
 * @typedef {ChatModel & Record<typeof CALL, Call> & Record<typeof PROMPT, PromptOf>} Model  of a session */
/** The number of the next session, of any model. */
let nextSession = 1;

/** A sequence of tokens that a model has computed.  generate keeps the tokens that the session and the new prompt have
 * in common at their start; feed, step and rewind change the session directly.
 *
 * A model has one session of its own, and `model.session()` opens others on the same weights.  Their calls run at the
 * same time: the engine computes tokens of all of them together, so that several answers take less time than one after
 * the other, and each has the bits that it has alone.  Sessions share what they have in common: a fork, or a prompt
 * that begins like that of another session, takes over what is computed.  If memory ends, what the session that was not
 * used for longest holds moves out of the engine, and back when it is used again. */
export class Session {
  #owner;
  #id;
  #closed = false;
  /** The sessions that answer chats: this one. @type {import('../answers/messages.js').Pool} */
  [POOL] = { take: async () => [this], give() {}, find: () => this, open: async () => this };

  /** @param {Model | undefined} owner  undefined: the session is a model @param {number} id  0: that of the load */
  constructor(owner, id) {
    this.#owner = owner ?? /** @type {Model} */ (/** @type {unknown} */ (this));
    this.#id = id;
    /** All keys of the file.  Arrays of more than 64 elements appear as {type, count}.
     * @type {Record<string, import('../engine/engine.js').MetadataValue>} */
    this.metadata = owner?.metadata ?? {};
    /** Statistics of the last generate that ended. @type {Stats | undefined} */
    this.lastStats = undefined;
    /** A conversation, which keeps its messages and uses this session.
     * @type {(options?: import('./chat.js').ChatOptions) => Chat} */
    this.chat = options => new Chat(this, options);
  }

  /** @param {string} method @param {object} [args] @param {import('../base/protocol.js').CallOptions} [options] */
  #call(method, args, options) { return this.#owner[CALL](method, { ...args, session: this.#id }, options); }

  /** Opens a session that holds what this one holds.  They share its memory, until one of them changes.
   * @returns {Promise<Session>} */
  async fork() {
    const id = nextSession++;
    await this.#call('forkSession', { id });
    return created(this.#owner, id);
  }

  /** Frees the session.  Calls that are running are ended first; later calls are PLUMB_ERROR_STATE. */
  async close() {
    if (this.#closed) return;
    this.#closed = true;
    lost.unregister(this);
    await this.#owner[CALL]('closeSession', { id: this.#id }).catch(error => {
      if (error?.code !== 'PLUMB_ERROR_STATE') throw error;   // the model is closed already
    });
  }

  /** `await using` closes a session, and a model. @returns {Promise<void>} */
  async [ASYNC_DISPOSE]() { await this.close(); }

  /** Returns the model's architecture, sizes and context; the module that runs, its threads, kernels and precision; and
   * the memory that it holds now.
   * @returns {Promise<ModelInfo>} */
  async info() { return this.#call('info'); }

  /** Continues a text, a chat or tokens.  A loop `for await` gives the answer in pieces of whole characters, and
   * `await` as a whole.  Leaving the loop stops the generation.  A string or tokens are continued as they are.
   * Messages go through the file's chat template, and the text of a special token inside a message stays text.
   * Behind messages, an answer that a grammar or schema binds comes at once, without reasoning; chat.send lets a model
   * think before it.
   * @param {string | Message[] | Int32Array | number[]} prompt
   * @param {GenerateOptions} [options]
   * @returns {TextAnswer<string, Stats>} */
  generate(prompt, options = {}) {
    return new TextAnswer(this.#generate(prompt, options));
  }

  /** @param {string | Message[] | Int32Array | number[]} prompt @param {GenerateOptions} options
   * @returns {AsyncGenerator<string, Stats, void>} */
  async *#generate(prompt, options) {
    known.checkOptions('generate', options, known.GENERATE);
    const { signal, parseSpecial, template, onToken, onPromptProgress, reasoningBudget, ...rest } =
      await withGrammar('generate', this, options);
    const prepared = await this.#owner[PROMPT](prompt, parseSpecial ?? true, template ?? {}), { isChat } = prepared;
    let { ids } = prepared;
    if (Array.isArray(prompt) && isChat && rest.grammar && !options.triggers) ids = await withoutReasoning(this, ids);
    // A whole answer's grammar has reasoning in it.
    const whole = /** @type {{[WHOLE]?: import('../answers/constraint.js').Whole}} */ (options)[WHOLE];
    if (reasoningBudget !== undefined && rest.grammar && !whole) {
      throw argumentError('generate: reasoningBudget and grammar exclude each other: the end of the reasoning is not a '
        + 'part of the grammar');
    }
    const format = isChat ? await this[FORMAT]() : undefined, think = format?.think;
    if (format?.stop) rest.stop = [rest.stop ?? [], format.stop].flat();
    const budget = think && reasoningBudget !== undefined
      ? {
        ...think, limit: reasoningBudget, isOpen: endsWith((await promptOf(this, ids, format)).prompt, think.start),
        isFirst: whole?.isFirst, calls: whole && opensOf(format),
      } : undefined;
    const abort = new AbortController(), unfollow = onAbort(signal, () => abort.abort());
    /** @type {string[]} */
    const pieces = [];
    let wake = () => {};
    let ended = false;
    const emits = { emitTokens: onToken !== undefined, emitPrompt: onPromptProgress !== undefined };
    const result = this.#call('generate', { ids, options: { ...rest, budget }, ...emits }, {
      signal: abort.signal,
      onEvent: (event, data) => {
        if (event === 'token') return onToken?.(data);
        if (event === 'prompt') return onPromptProgress?.(data);
        pieces.push(data);
        wake();
      },
    }).finally(() => {
      ended = true;
      wake();
    });
    result.catch(() => {});   // the await below throws it, unless the loop was left
    try {
      while (pieces.length > 0 || !ended) {
        if (pieces.length > 0) yield /** @type {string} */ (pieces.shift());
        else await new Promise(resolve => { wake = () => resolve(undefined); });
      }
      return await result;
    } finally {
      unfollow();
      abort.abort();   // stops the generation if the loop was left
      this.lastStats = await result.catch(() => this.lastStats);
    }
  }

  /** Answers questions about a context with probabilities.  A model that generates text computes the context once, and
   * the labels of all questions together: nothing is generated, and the same numbers come out on every host.  The
   * session then holds what the prompts of the questions have in common at their start.  An embedding model compares
   * the context with the descriptions of the labels, or else with the labels; a reranker with the instructions too.
   * @template {Record<string, DecisionQuestion>} Q
   * @param {string | Message[] | Int32Array | number[]} context @param {Q} questions  1 to 400, by their names
   * @param {import('./decide.js').DecideOptions} [options]
   * @returns {Promise<import('./decide.js').DecideResult<Q>>} */
  async decide(context, questions, options = {}) {
    return decide({
      model: this, call: (...args) => this.#call(...args),
      promptIds: async (prompt, template) => (await this.#owner[PROMPT](prompt, false, template)).ids,
    }, context, questions, options);
  }

  /** Computes one more token.  PLUMB_ERROR_TOKEN: the token is not in the vocabulary; PLUMB_ERROR_CONTEXT: the context
   * is full. @param {number} token
   * @returns {Promise<Float32Array>} the logits for the next token, one for each token of the vocabulary */
  async step(token) {
    return this.feed([token]);
  }

  /** Computes more tokens.  The errors are those of step.
   * @param {ArrayLike<number>} ids @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Float32Array>} the logits after the last token */
  async feed(ids, options = {}) {
    known.checkOptions('feed', options, known.FEED);
    options.signal?.throwIfAborted();
    const tokens = known.tokenIds('feed', ids);
    if (tokens.length === 0) throw argumentError('feed: there are no tokens');
    return this.#call('feed', { ids: tokens }, { signal: options.signal });
  }

  /** Forgets all tokens from this position on.  A model with sliding windows may have to compute the tokens before this
   * position again, if more than 480 are forgotten; if the signal ends that, the session holds fewer tokens.
   * @param {number} [position]  default 0: forgets all @param {{signal?: AbortSignal}} [options] */
  async rewind(position = 0, options = {}) {
    known.checkOptions('rewind', { position }, known.POSITION);
    known.checkOptions('rewind', options, known.FEED);
    options.signal?.throwIfAborted();
    await this.#call('rewind', { position }, { signal: options.signal });
  }

  /** Returns what the session holds as bytes: its tokens, K and V, states and logits.  They are not encrypted: who has
   * them can read the tokens.
   * @returns {Promise<Uint8Array<ArrayBuffer>>} */
  async save() {
    return this.#call('save');
  }

  /** Replaces what the session holds by what save has returned, on this or another machine, so that prompts which
   * begin with the same tokens are not computed again, and give the same bits.  The model must be the same, with the
   * same adapters in use, kvType and precision; contextLength may differ, if the tokens fit.  The bytes may come from
   * anywhere: if they are refused, the session is as before, or empty if they were damaged behind their head.
   * PLUMB_ERROR_ARGUMENT: they are of another model, adapters, kvType or precision; PLUMB_ERROR_CONTEXT: there are more
   * tokens than contextLength; PLUMB_ERROR_MAGIC, _VERSION, _TRUNCATED or _METADATA: they are no saved session, or
   * damaged.
   * @param {Uint8Array | ArrayBuffer} bytes */
  async restore(bytes) {
    const isBytes = bytes instanceof Uint8Array || bytes instanceof ArrayBuffer;
    if (!isBytes) throw argumentError('restore: expected a Uint8Array or an ArrayBuffer, as save has returned it');
    await this.#call('restore', { bytes: bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes });
  }

  // ---- what all sessions of a model have ----

  /** As model.tokenize. @param {Parameters<ChatModel['tokenize']>} args */
  tokenize(...args) { return this.#owner.tokenize(...args); }

  /** As model.detokenize. @param {Parameters<ChatModel['detokenize']>} args */
  detokenize(...args) { return this.#owner.detokenize(...args); }

  /** As model.tokenizeChat. @param {Parameters<ChatModel['tokenizeChat']>} args */
  tokenizeChat(...args) { return this.#owner.tokenizeChat(...args); }

  /** @returns {Promise<import('../answers/formats.js').Format>} */
  [FORMAT]() { return this.#owner[FORMAT](); }

  /** @param {Int32Array} ids @returns {import('../answers/formats.js').Continued} */
  [CONTINUED](ids) { return this.#owner[CONTINUED](ids); }

  /** The source of the model's chat template; '' if it has none, as its chats are in ChatML. @returns {string} */
  get chatTemplate() { return this.#owner.chatTemplate; }
}

/** @param {Model} owner @param {{contextLength?: number, isCache?: boolean}} args  of the engine's openSession */
export async function openSession(owner, args) {
  const id = nextSession++;
  await owner[CALL]('openSession', { id, ...args });
  return created(owner, id);
}

/** @param {Model} owner @param {number} id */
function created(owner, id) {
  const session = new Session(owner, id);
  lost.register(session, { owner: new WeakRef(owner), id }, session);
  return session;
}
