/* What users see: Plumb.load and the model it gives.  Checks arguments, has the module compiled while the worker
 * starts, turns prompts into tokens and events into an iterator; all else happens on the engine's side (host.js), in a
 * worker or not.  browser/library.js and node/index.js say how each host compiles, reads files and starts
 * workers. */
import { PlumbError, argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { Local, Remote } from '../base/protocol.js';
import { runCommand } from '../command/command.js';
import { createHost } from '../engine/host.js';
import { choose } from '../engine/variant.js';
import { isDamage } from '../loader/parts.js';
import { describe, expand } from '../loader/source.js';
import { Completions } from '../openai/completions.js';
import { chatTokens, checkNesting, Renderer } from '../template/template.js';
import { knowsTools, messagesFor } from '../template/toolcalls.js';
import { Chat } from './chat.js';

/** @typedef {import('../loader/source.js').Platform & import('../loader/source.js').Sites
 *   & import('../engine/variant.js').Machine & {
 *   worker: boolean,
 *   startWorker: (workerUrl?: string | URL) => import('../base/protocol.js').WorkerLike,
 *   startCommand: import('../command/command.js').StartCommand,
 *   startRenderer?: (workerUrl?: string | URL) => import('../base/protocol.js').WorkerLike,
 *   persist?: () => void}} ClientPlatform
 *   worker: whether the engine runs in one unless told otherwise; persist: asks that copies may stay */
/** @typedef {import('../loader/load-options.js').LoadOptions} LoadOptions */
/** @typedef {Pick<LoadOptions, 'contextLength' | 'kvType' | 'precision' | 'threads' | 'signal' | 'worker'
 *   | 'workerUrl'> & {measure?: boolean}} PreflightOptions
 *   as of load; measure: compute for half a second to tell the speed (default true) */
/** @typedef {object} TraceOptions
 * @property {string} [taps]  names to keep, such as "l_out-*,result_output" (* is any text, ? any character); default:
 *   all
 * @property {[number, number]} [layers]  of the taps inside layers, first and last; default all
 * @property {number} [values]  first values of each row; default 8, Infinity: all.  Of result_output the ten largest
 *   too
 * @property {(tap: import('../engine/engine.js').TapRecord) => void} [onTap]  hears of every record as it is computed
 * @property {AbortSignal} [signal]
 * @property {boolean} [parseSpecial]  of a string prompt, as in generate
 * @property {TemplateOptions} [template]  of a chat */
/** @typedef {import('../template/messages.js').Message} Message
 * @typedef {import('../template/messages.js').TemplateOptions} TemplateOptions
 * @typedef {import('../template/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../engine/host.js').Stats} Stats */

/** @typedef {object} ModelInfo
 * @property {string} architecture  general.architecture of the file
 * @property {number} parameters
 * @property {number} weightBytes
 * @property {number} layers
 * @property {number} embedding  elements of a token's vector
 * @property {number} heads
 * @property {number} headsKV
 * @property {number} headDim
 * @property {number} feedForward
 * @property {number} vocabulary  tokens
 * @property {number} trainedContext  tokens
 * @property {number} contextLength  tokens that this session holds
 * @property {number} batch  tokens of a prompt that are computed at once
 * @property {string} module  the file that runs, such as plumb-mt-relaxed
 * @property {number} threads
 * @property {string} kernels  the instructions they use
 * @property {typeof known.PRECISIONS[number]} precision  how activations are rounded
 * @property {number} sessionBytes  of memoryBytes, those of the session
 * @property {number} memoryBytes  all that the engine holds */

/** What was said on the console, so that it is said once. @type {Set<string>} */
const said = new Set();
/** Milliseconds that an aborted load has to give up what it holds. */
const PATIENCE = 1000;

/** What can be done before there is a model: `Plumb` is the one of this host. */
export class Library {
  #platform;
  /** Of the latest load, for the worker that renders templates. @type {string | URL | undefined} */
  #workerUrl;
  /** Loads that end: the next one finds their copies given back. @type {Set<Promise<unknown>>} */
  #ending = new Set();
  /** Of chat templates, for all models. */
  #renderer;

  /** @param {ClientPlatform} platform */
  constructor(platform) {
    this.#platform = platform;
    const { startRenderer } = platform;
    this.#renderer = new Renderer(startRenderer && (() => startRenderer(this.#workerUrl)));
  }

  /** Loads a model.  Bytes go straight from where they come to their place in the engine's memory.
   * @param {import('../loader/source.js').Source} source  URL, File, Blob, ReadableStream, Uint8Array, ArrayBuffer,
   *   in Node also a path; or an array of the parts of a split file.  A URL or path that ends in
   *   -00001-of-0000N.gguf stands for all N files
   * @param {LoadOptions} [options]
   * @returns {Promise<Model>} */
  async load(source, options = {}) {
    known.checkOptions('Plumb.load', options, known.LOAD);
    const { precision, contextLength, kvType, onProgress, cache } = options;
    const parts = describe(source, this.#platform);
    const sha256 = sums(options.sha256, parts.length);
    const { transport, result } = await this.#open('load', parts, options, {
      contextLength, precision, kvType, cache, sha256,
    }, onProgress);
    const loaded = /** @type {Loaded} */ (result);
    for (const { code, message } of loaded.warnings ?? []) {
      if (code !== 'threads' && code !== 'module' || said.has(message)) continue;
      said.add(message);
      console.warn(`plumb: ${message}`);
    }
    if (options.persist) this.#platform.persist?.();
    return new Model(transport, loaded, this.#renderer);
  }

  /** Says what a load would meet, from the header alone: whether plumb can run the model, the memory that it takes,
   * and how fast it would be.  Of a URL some hundred kilobytes to some megabytes are read, most of them the
   * vocabulary; of a whole copy on this machine no byte comes from the server, unless the copy is damaged, as a load
   * would download it anew.  Rejects only where bytes cannot be had.
   * @param {import('../loader/source.js').Source} source  as of load, but no stream: that can be read only once
   * @param {PreflightOptions} [options]
   * @returns {Promise<import('../engine/preflight.js').Preflight & {cached?: {bytes: number, complete: boolean},
   *   storage?: {quota: number, usage: number, fits: boolean}}>}  cached: what copies hold, if they are worth
   *   something; storage: what the browser gives and has given to this site, in bytes, and whether a copy would find
   *   room */
  async preflight(source, options = {}) {
    known.checkOptions('Plumb.preflight', options, known.PREFLIGHT);
    const { contextLength, kvType, precision, measure = true } = options;
    const parts = describe(source, this.#platform);
    if (parts.some(({ part, next }) => next && part.size === undefined)) {
      throw argumentError('Plumb.preflight: a stream can be read only once; give a URL, a File or bytes');
    }
    const copies = await this.#cachedOf(parts);
    const local = await Promise.all(parts.map(async (one, i) => {
      const whole = copies[i]?.complete ? await this.#platform.store?.whole(copies[i].url) : undefined;
      if (!whole) return one;
      const { part, next } = describe(whole.blob, this.#platform)[0];
      return { part: { ...part, sums: whole.sums }, next };
    }));
    const look = async (/** @type {import('../loader/source.js').Described[]} */ parts) => {
      const args = { contextLength, kvType, precision, measure };
      const { transport, result } = await this.#open('preflight', parts, options, args);
      await transport.terminate();
      return /** @type {import('../engine/preflight.js').Preflight} */ (result);
    };
    const copied = local.some((one, i) => one !== parts[i]);
    let plan = await look(local).catch(error => {
      if (!copied || error?.code !== 'PLUMB_ERROR_IO') throw error;
    });
    // A load drops such copies, and downloads anew.
    const worthless = copied && (!plan || plan.problems.some(isDamage));
    if (!plan || worthless) plan = await look(describe(source, this.#platform));
    const found = copies.filter(copy => copy !== undefined);
    const bytes = found.reduce((sum, copy) => sum + copy.bytes, 0);
    const cached = { bytes, complete: found.length === parts.length && found.every(({ complete }) => complete) };
    const { quota, usage } = await globalThis.navigator?.storage?.estimate?.() ?? {};
    return {
      ...plan, ...found.length > 0 && !worthless && { cached },
      ...quota !== undefined && usage !== undefined && {
        storage: { quota, usage, fits: (plan.fileBytes ?? 0) - bytes <= quota - usage },
      },
    };
  }

  /** Runs a command of the command line: ['selfcheck', 'model.gguf', '--json'].  `plumb --help` names the commands.
   * Rejects with a PlumbError where the program itself breaks down, and with the signal's reason; what the program
   * finds wrong is told by `code` and `err`.
   * @param {string[]} args  the words of the command
   * @param {import('../command/command.js').CommandOptions} [options]
   * @returns {Promise<import('../command/command.js').CommandResult>} */
  async command(args, options = {}) {
    return runCommand(this.#platform.startCommand, args, options);
  }

  /** The copies of URLs on this machine, whole or not, the latest used first.  PLUMB_ERROR_IO where the file system
   * does not say.
   * @returns {Promise<import('../loader/copy-store.js').Cached[]>} */
  async listCached() {
    return await this.#platform.store?.list() ?? [];
  }

  /** Removes copies.  One that is being written is PLUMB_ERROR_STATE, one that the file system keeps PLUMB_ERROR_IO.
   * @param {string | URL | (string | URL)[]} url  the first of a split model stands for all
   * @returns {Promise<boolean>}  whether there was one */
  async removeCached(url) {
    let any = false;
    for (const one of [url].flat().flatMap(expand)) any = await this.#platform.store?.remove(this.#address(one)) || any;
    return any;
  }

  /** The whole copy of a URL, as a Blob: for a look at it, or to save it as a file.
   * @param {string | URL} url @returns {Promise<Blob | undefined>} */
  async openCached(url) {
    return (await this.#platform.store?.whole(this.#address(url)))?.blob;
  }

  /** Starts an engine and has it do something with the parts of a model; ends it where that fails.
   * @param {'load' | 'preflight'} method
   * @param {import('../loader/source.js').Described[]} parts
   * @param {Pick<LoadOptions, 'threads' | 'signal' | 'worker' | 'workerUrl'>} options
   * @param {object} args  of the method, beside the parts
   * @param {LoadOptions['onProgress']} [onProgress]
   * @returns {Promise<{transport: import('../base/protocol.js').Transport, result: unknown}>} */
  async #open(method, parts, { threads = 'auto', signal, worker = this.#platform.worker, workerUrl }, args,
    onProgress) {
    signal?.throwIfAborted();
    const variant = choose(this.#platform, threads, worker);   // compiled while the worker starts
    variant.catch(() => {});   // who pulls it says what failed
    if (workerUrl !== undefined) this.#workerUrl = workerUrl;
    const transport = worker ? new Remote(this.#platform.startWorker(workerUrl))
      : new Local(createHost(this.#platform));
    /** @type {() => void} */
    let unfollow = () => {};
    const aborted = new Promise((_, reject) => {
      const abort = () => reject(signal?.reason);
      signal?.addEventListener('abort', abort);
      unfollow = () => signal?.removeEventListener('abort', abort);
    });
    let running = Promise.resolve(), held = false;
    try {
      if (this.#ending.size > 0) await Promise.race([aborted, Promise.all(this.#ending)]);
      running = transport.call(method, { ...args, parts: parts.map(({ part }) => part) }, {
        signal,
        onEvent: (_, progress) => onProgress?.(progress),
        onPull: async i => i === 'module' ? variant : await parts[i].next?.() ?? null,
      });
      if (method === 'load') held = this.#renderer.hold();   // its worker starts beside the load
      return { transport, result: await Promise.race([aborted, running]) };
    } catch (error) {
      if (held) this.#renderer.release();
      const end = settled(running, PATIENCE).then(async () => {
        await transport.terminate();
        this.#ending.delete(end);
      });
      this.#ending.add(end);
      throw error;
    } finally {
      for (const { cancel } of parts) (async () => cancel?.())().catch(() => {});   // also of what is behind the model
      unfollow();
    }
  }

  /** The copy of each part, if there is one. @param {import('../loader/source.js').Described[]} parts */
  async #cachedOf(parts) {
    const all = parts.some(({ part }) => part.kind === 'url') ? await this.#platform.store?.list() ?? [] : [];
    return parts.map(({ part }) => part.kind === 'url' ? all.find(({ url }) => url === part.url) : undefined);
  }

  /** The URL that a copy goes by. @param {string | URL} source */
  #address(source) {
    const part = this.#platform.locate(source);
    if (!('kind' in part) || part.kind !== 'url') throw argumentError(`${source}: only URLs have copies`);
    return part.url;
  }
}

/** @param {ClientPlatform} platform */
export const createPlumb = platform => new Library(platform);

/** Once it ends, or after a time. @param {Promise<unknown>} promise @param {number} ms */
function settled(promise, ms) {
  /** @type {any} */
  let timer;
  const late = new Promise(resolve => { timer = setTimeout(resolve, ms); });
  return Promise.race([promise.catch(() => {}), late]).finally(() => clearTimeout(timer));
}

/** One checksum for each part. @param {string | string[] | undefined} sha256 @param {number} parts */
function sums(sha256, parts) {
  if (sha256 === undefined) return undefined;
  const all = [sha256].flat();
  if (all.length === parts) return all.map(one => one.toLowerCase());
  throw argumentError(`Plumb.load: sha256 has ${all.length} checksums, the model ${parts} parts`,
    { checksums: all.length, parts });
}

/** @typedef {{metadata: Record<string, import('../engine/engine.js').MetadataValue>, bos: number, bosText: string,
 *   eosText: string, warnings?: import('../loader/parts.js').Warning[]}} Loaded */

/** A loaded model with one session: the tokens it has seen.  generate keeps as much of it as the new prompt begins
 * with; feed, step and rewind change it by hand. */
export class Model {
  #transport;
  #closed = false;
  #loaded;
  #renderer;

  /** @param {import('../base/protocol.js').Transport} transport
   * @param {Loaded} loaded @param {Renderer} renderer */
  constructor(transport, loaded, renderer) {
    this.#transport = transport;
    this.#loaded = loaded;
    this.#renderer = renderer;
    /** All keys of the file; arrays of more than 64 elements as {type, count}.
     * @type {Record<string, import('../engine/engine.js').MetadataValue>} */
    this.metadata = loaded.metadata;
    /** Of the last generate that ended. @type {Stats | undefined} */
    this.lastStats = undefined;
    /** Conversations: `model.chat(options)` gives one that keeps its messages, a Chat.  `model.chat.completions`
     * takes OpenAI's parameters and gives its results.
     * @type {((options?: import('./chat.js').ChatOptions) => Chat) & {completions: Completions}} */
    this.chat = Object.assign((/** @type {import('./chat.js').ChatOptions | undefined} */ options) =>
      new Chat(this, options), { completions: new Completions(async () => ({ model: this, entered() {} })) });
    /** What runs otherwise than asked, and why: 'threads', there is one; 'module', the fastest module does not load,
     * and a slower one with the same results runs; 'cache', no copy is kept.
     * @type {{code: string, message: string}[]} */
    this.warnings = loaded.warnings ?? [];
  }

  /** @param {string} method @param {object} [args] @param {import('../base/protocol.js').CallOptions} [options] */
  async #call(method, args, options) {
    if (this.#closed) throw new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
    return this.#transport.call(method, args, options);
  }

  /** Architecture, sizes, context, the module that runs, its threads, kernels and precision, and the memory that it
   * holds now.
   * @returns {Promise<ModelInfo>} */
  async info() {
    return this.#call('info');
  }

  /** Token ids of a text.
   * @param {string} text
   * @param {{addSpecial?: boolean, parseSpecial?: boolean}} [options]  first and last tokens as the file asks (default
   *   true); text of special tokens becomes those tokens (default false)
   * @returns {Promise<Int32Array>} */
  async tokenize(text, options = {}) {
    known.checkOptions('tokenize', options, known.TOKENIZE);
    if (typeof text !== 'string') throw argumentError(`tokenize: the text is ${typeof text}, expected a string`);
    const { addSpecial = true, parseSpecial = false } = options;
    return this.#call('tokenize', { text, addSpecial, parseSpecial });
  }

  /** The text of tokens.
   * @param {ArrayLike<number>} ids @param {{special?: boolean}} [options]  show control tokens too (default false)
   * @returns {Promise<string>} */
  async detokenize(ids, options = {}) {
    known.checkOptions('detokenize', options, known.DETOKENIZE);
    return this.#call('detokenize', { ids: tokenIds('detokenize', ids), special: options.special ?? false });
  }

  /** The chat as one text, by the file's own template.
   * @param {Message[]} messages @param {TemplateOptions} [options] @returns {Promise<string>} */
  async applyChatTemplate(messages, options = {}) {
    known.checkOptions('applyChatTemplate', { template: options }, known.TEMPLATE);
    const { said, variables } = this.#template('applyChatTemplate', messages, options);
    return this.#renderer.render(this.#source, { ...variables, ...said });
  }

  /** The tokens of a chat, as generate would have them: how many they are says what a prompt takes of the context.
   * @param {Message[]} messages @param {TemplateOptions} [options] @returns {Promise<Int32Array>} */
  async tokenizeChat(messages, options = {}) {
    known.checkOptions('tokenizeChat', { template: options }, known.TEMPLATE);
    const { said, variables } = this.#template('tokenizeChat', messages, options);
    return this.#chatTokens(said, variables);
  }

  /** Continues a text, a chat or tokens; gives the answer in pieces of whole characters.  Leaving the loop ends it.
   * A string or tokens are continued as they are; messages go through the file's chat template, and special tokens
   * spelt out in them stay text.
   * @param {string | Message[] | Int32Array | number[]} prompt
   * @param {GenerateOptions} [options]
   * @returns {AsyncGenerator<string, Stats, void>} */
  async *generate(prompt, options = {}) {
    known.checkOptions('generate', options, known.GENERATE);
    const { signal, parseSpecial, template, onToken, ...rest } = options;
    const ids = await this.#promptIds(prompt, parseSpecial ?? true, template ?? {});
    const abort = new AbortController();
    const follow = () => abort.abort();
    if (signal?.aborted) follow();
    signal?.addEventListener('abort', follow);
    /** @type {string[]} */
    const pieces = [];
    let wake = () => {};
    let ended = false;
    const result = this.#call('generate', { ids, options: rest, tell: onToken !== undefined }, {
      signal: abort.signal,
      onEvent: (event, data) => {
        if (event === 'token') return onToken?.(data);
        pieces.push(data);
        wake();
      },
    }).finally(() => {
      ended = true;
      wake();
    });
    result.catch(() => {});   // thrown below, or nobody is there to hear it
    try {
      while (pieces.length > 0 || !ended) {
        if (pieces.length > 0) yield /** @type {string} */ (pieces.shift());
        else await new Promise(resolve => { wake = () => resolve(undefined); });
      }
      return await result;
    } finally {
      signal?.removeEventListener('abort', follow);
      abort.abort();   // what still runs, where the loop was left
      this.lastStats = await result.catch(() => this.lastStats);
    }
  }

  /** Computes one more token.  PLUMB_ERROR_TOKEN: it is none of the vocabulary; PLUMB_ERROR_CONTEXT: the context is
   * full. @param {number} token
   * @returns {Promise<Float32Array>} the logits of what comes after it, one for each token of the vocabulary */
  async step(token) {
    return this.feed([token]);
  }

  /** Computes more tokens; errors as of step.  @param {ArrayLike<number>} ids @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Float32Array>} the logits after the last one */
  async feed(ids, options = {}) {
    known.checkOptions('feed', options, known.FEED);
    options.signal?.throwIfAborted();
    const tokens = tokenIds('feed', ids);
    if (tokens.length === 0) throw argumentError('feed: there are no tokens');
    return this.#call('feed', { ids: tokens }, { signal: options.signal });
  }

  /** Computes a prompt from its first token and tells what every step of it was.  The session then holds the prompt.
   * @param {string | Message[] | Int32Array | number[]} prompt  as in generate
   * @param {TraceOptions} [options]
   * @returns {Promise<import('../engine/engine.js').TraceDocument>}  JSON.stringify gives what `plumb diff` reads */
  async trace(prompt, options = {}) {
    known.checkOptions('trace', options, known.TRACE);
    const { signal, onTap, parseSpecial, template, ...rest } = options;
    signal?.throwIfAborted();
    const ids = await this.#promptIds(prompt, parseSpecial ?? true, template ?? {});
    if (ids.length === 0) throw argumentError('trace: there are no tokens');
    return this.#call('trace', { ids, options: rest, tell: onTap !== undefined }, {
      signal,
      onEvent: (_, taps) => taps.forEach((/** @type {import('../engine/engine.js').TapRecord} */ tap) => onTap?.(tap)),
    });
  }

  /** Forgets all tokens from this position on. @param {number} [position]  default 0: all */
  async rewind(position = 0) {
    known.checkOptions('rewind', { position }, known.REWIND);
    await this.#call('rewind', { position });
  }

  /** Frees the engine.  What runs is ended first; later calls fail. */
  async close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#renderer.release();
    await this.#transport.call('close').catch(() => {});
    await this.#transport.terminate();
  }

  get #source() { return /** @type {string | undefined} */ (this.metadata['tokenizer.chat_template']); }

  /** @param {string | Message[] | Int32Array | number[]} prompt @param {boolean} parseSpecial
   * @param {TemplateOptions} template
   * @returns {Promise<Int32Array>} */
  async #promptIds(prompt, parseSpecial, template) {
    if (typeof prompt === 'string') return this.tokenize(prompt, { parseSpecial });
    if (prompt instanceof Int32Array || (Array.isArray(prompt) && typeof prompt[0] === 'number')) {
      return tokenIds('generate', /** @type {ArrayLike<number>} */ (prompt));
    }
    const { said, variables } = this.#template('generate', /** @type {Message[]} */ (prompt), template);
    return this.#chatTokens(said, variables);
  }

  /** @param {Record<string, any>} said @param {Record<string, any>} variables */
  #chatTokens(said, variables) {
    return chatTokens(this.#source, said, variables, {
      tokenize: (text, special) => this.tokenize(text, { addSpecial: false, ...special }),
      controls: ids => this.#call('controls', { ids }),
      bos: this.#loaded.bos,
    }, this.#renderer);
  }

  /** What the template sees: what others said, and the rest.
   * @param {string} where @param {Message[]} messages @param {TemplateOptions} options */
  #template(where, messages, { addGenerationPrompt = true, ...said }) {
    known.checkMessages(where, messages);
    checkNesting(where, [messages, said]);
    if (said.tools?.length && !knowsTools(this.#source)) {
      throw new PlumbError('PLUMB_ERROR_TEMPLATE', `${where}: the model's chat template knows no tools`);
    }
    const { bosText, eosText } = this.#loaded;
    return {
      said: { ...said, messages: messagesFor(this.#source, messages) },
      // null, not undefined, for what is not given: templates ask "is not none".
      variables: {
        tools: null, documents: null, add_generation_prompt: addGenerationPrompt,
        bos_token: bosText, eos_token: eosText,
      },
    };
  }
}

/** @param {string} where @param {ArrayLike<number>} ids @returns {Int32Array} */
function tokenIds(where, ids) {
  const numbers = Array.from(ids ?? []);
  const wrong = numbers.findIndex(id => !Number.isInteger(id) || id < 0 || id >= 2 ** 31);
  if (wrong >= 0) throw argumentError(`${where}: token ${wrong} is ${numbers[wrong]}, which is no token id`);
  return Int32Array.from(numbers);
}
