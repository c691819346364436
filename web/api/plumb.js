/* The public interface: Plumb.load and the Model that it returns.  This file checks arguments, compiles the module
 * while the worker starts, turns prompts into tokens, and turns events into an iterator.  The engine's side (host.js)
 * does everything else, in a worker or in the caller's thread.  browser/library.js and node/index.js tell it how each
 * host compiles modules, reads files and starts workers. */
import { onAbort } from '../base/async.js';
import { PlumbError, argumentError, reasonOf } from '../base/errors.js';
import * as known from '../base/options.js';
import { Local, Remote } from '../base/protocol.js';
import { runCommand } from '../command/command.js';
import { createHost } from '../engine/host.js';
import { choose, chooseWide, memoryLimit } from '../engine/variant.js';
import { MAX_MEMORY } from '../engine/threads.js';
import { isDamage } from '../loader/parts.js';
import { fetchServer } from '../loader/request.js';
import { copiesOf, explained, resolve } from '../loader/resolve.js';
import { concealed, concealer, copyName } from '../loader/secrets.js';
import { describe, originOf } from '../loader/source.js';
import { expand } from '../loader/split.js';
import { Completions } from '../openai/completions.js';
import { Decisions } from '../openai/decisions.js';
import { Embeddings } from '../openai/embeddings.js';
import { CONTINUED, FORMAT, POOL } from '../answers/formats.js';
import { plainTools } from '../answers/constraint.js';
import { Chat } from './chat.js';
import { SessionPool } from './pool.js';
import { CALL, openSession, PROMPT, Session } from './session.js';

/** @typedef {import('../loader/source.js').Platform & import('../loader/resolve.js').Places
 *   & import('../engine/variant.js').Machine & {
 *   worker: boolean,
 *   memory?: number,
 *   startWorker: (workerUrl?: string | URL) => import('../base/protocol.js').WorkerLike,
 *   startCommand: import('../command/command.js').StartCommand,
 *   persist?: () => void,
 *   share?: (options: ShareOptions) => Promise<Opened>,
 *   unsharedReason?: () => string | undefined}} ClientPlatform
 *   worker: whether the engine runs in a worker by default; memory: bytes of this machine, if known; persist: asks the
 *   browser not to evict copies; share: uses one engine together with other pages; unsharedReason: why they cannot */
/** @typedef {{transport: import('../base/protocol.js').Transport, result: any}} Opened  result: of the method that was
 *   called first */
/** @typedef {object} ShareOptions
 * @property {string} key  what names the model
 * @property {(onProgress: (progress: any) => void, signal?: AbortSignal) => Promise<Opened>} open  loads it here
 * @property {(module: string) => Promise<WebAssembly.Module>} compile
 * @property {object} session  the arguments of the model's own session
 * @property {(progress: any) => void} [onProgress]
 * @property {AbortSignal} [signal]  ends the load */
/** @typedef {import('../loader/load-options.js').LoadOptions} LoadOptions */
/** @typedef {Pick<LoadOptions, 'contextLength' | 'kvType' | 'snapshots' | 'precision' | 'memory64' | 'threads'
 *   | 'signal' | 'worker' | 'workerUrl' | keyof RequestOptions> & {measure?: boolean}} PreflightOptions
 *   as in load; measure: compute for half a second to estimate the speed (default true) */
/** @typedef {Pick<LoadOptions, 'signal' | 'onProgress' | 'sha256' | 'worker' | 'workerUrl' | keyof RequestOptions>
 *   & {cache?: 'default' | 'no-cache' | 'reload'}} PullOptions
 *   as in load; cache: default 'no-cache' */
/** @typedef {import('../loader/request.js').RequestOptions} RequestOptions
 * @typedef {import('../loader/resolve.js').Resolved} Resolved */
/** @typedef {object} TraceOptions
 * @property {string} [taps]  names of the taps to record, such as "l_out-*,result_output" (* matches any text, ? any
 *   character); default: all
 * @property {[number, number]} [layers]  the first and last layer whose taps are recorded; default: all layers
 * @property {number} [values]  how many of the first values of each row to record; default 8, Infinity: all.
 *   result_output also records its ten largest
 * @property {(tap: import('../engine/traces.js').TapRecord) => void} [onTap]  receives each record as it is computed
 * @property {AbortSignal} [signal]
 * @property {boolean} [parseSpecial]  for a string prompt, as in generate
 * @property {TemplateOptions} [template]  for a chat prompt, as in generate */
/** @typedef {import('../answers/messages.js').Message} Message
 * @typedef {import('../answers/messages.js').TemplateOptions} TemplateOptions
 * @typedef {import('../answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('../answers/formats.js').Format} Format
 * @typedef {import('../engine/embed.js').EmbedOptions} EmbedOptions
 * @typedef {import('../engine/embed.js').RankOptions} RankOptions
 * @typedef {import('../engine/generation.js').Stats} Stats */

/** @typedef {import('./session.js').ModelInfo} ModelInfo */

/** Warnings already printed on the console: each is printed once. @type {Set<string>} */
const printed = new Set();
/** @param {string} message */
function warn(message) {
  if (!printed.has(message)) console.warn(`plumb: ${message}`);
  printed.add(message);
}

/** How much of a machine's memory a file of the hub may fill, if its name leaves the choice to plumb. */
const OF_MEMORY = 0.8;
/** Milliseconds that a failed or aborted load has to release what it holds, before its engine is terminated. */
const SHUTDOWN_TIMEOUT = 5000;

/** What can be done without a model.  `Plumb` is this host's instance. */
export class Library {
  #platform;
  /** Failed loads that are still shutting down.  The next load waits for them, so that it finds their copies released.
   * @type {Set<Promise<unknown>>} */
  #ending = new Set();

  /** @param {ClientPlatform} platform */
  constructor(platform) {
    this.#platform = platform;
  }

  /** Loads a model.  Its bytes go straight from their source to their place in the engine's memory.
    * @param {import('../loader/source.js').Source} source  URL, File, Blob, ReadableStream, Uint8Array, ArrayBuffer,
    *   in Node also a path; or an array with the parts of a split file.  A URL or path that ends in
    *   -00001-of-0000N.gguf stands for all N files.  Or a model on the hub of Hugging Face: "hf:org/repo" for the best
    *   file that fits this machine, "hf:org/repo:Q4_K_M" or "hf:org/repo:file.gguf"; or a short name, such as
    *   "smollm2:135m"
   * @param {LoadOptions} [options]
   * @returns {Promise<Model>} */
  async load(source, options = {}) {
    known.checkOptions('Plumb.load', options, known.LOAD);
    const { precision, contextLength, kvType, snapshots, speculate, memory64 } = options;
    const { shared, reserve = !shared, onProgress, cache, adapters = [], draft } = options;
    adapters.forEach((one, i) => known.checkOptions(`Plumb.load: adapters[${i}]`, one, known.LOADED_ADAPTER));
    const resolved = await this.#resolve(source, options, cache), { parts } = resolved;
    const sha256 = sums('load', options.sha256, parts.length) ?? resolved.sha256;
    const session = { contextLength, precision, kvType, snapshots };
    /** @type {ShareOptions['open']} */
    const open = (onProgress, signal) => this.#open('load', resolved, { ...options, signal },
      { ...session, speculate, memory64, reserve, cache, sha256 }, onProgress);
    if (shared && draft !== undefined) throw argumentError('Plumb.load: shared and draft exclude each other');
    const unshared = shared ? this.#unsharedReason(resolved, adapters) : undefined;
    const { compile, share } = this.#platform, { signal } = options;
    const { transport, result } = shared && !unshared && share
      ? await share({ key: sharedKey(resolved, options.threads), open, compile, session, onProgress, signal })
      : await open(progress => onProgress?.(progress), signal);
    const loaded = /** @type {Loaded} */ (result);
    if (unshared) (loaded.warnings ??= []).push({ code: 'shared', message: `the engine is not shared: ${unshared}` });
    for (const { code, message } of loaded.warnings ?? []) {
      if (code !== 'cache') warn(message);
    }
    if (options.persist) this.#platform.persist?.();
    const model = new Model(transport, loaded, this.#platform, options.chatTemplate);
    try {
      /** @type {AdapterUse[]} */
      const uses = [];
      const { signal, headers, credentials, fetch } = options;
      for (const { source, sha256, ...use } of adapters) {
        const adapter = await model[ADD_ADAPTER](source, { sha256, cache, signal, headers, credentials, fetch },
          originOf(parts));
        uses.push({ adapter, ...use });
      }
      if (uses.length > 0) await model.setAdapters(uses);
      if (draft !== undefined) {
        await model[ADD_DRAFT](draft, { cache, signal, headers, credentials, fetch }, originOf(parts));
      }
      return model;
    } catch (error) {
      await model.close();
      throw error;
    }
  }

  /** Why a load with shared: true has an engine of its own; undefined: it shares one.
   * @param {Resolved} resolved @param {unknown[]} adapters */
  #unsharedReason({ parts }, adapters) {
    if (adapters.length > 0) {
      throw argumentError('Plumb.load: shared and adapters exclude each other, because adapters would change the '
        + 'answers of all pages');
    }
    if (parts.some(({ part }) => part.kind !== 'url')) return 'only the models of URLs are';
    return this.#platform.unsharedReason ? this.#platform.unsharedReason() : 'there are no other pages here';
  }

  /** Predicts a load from the header alone: whether plumb can run the model, how much memory it takes, and how fast it
    * would be.  For a URL, this reads some hundred kilobytes to some megabytes, most of them the vocabulary.  If this
    * machine has a whole copy, no bytes come from the server, unless the copy is damaged: then a load would download
    * the model again.  A model that plumb cannot run is not an error; the call rejects if the bytes cannot be read.
    * @param {import('../loader/source.js').Source} source  as in load, but not a stream, which can be read only once
   * @param {PreflightOptions} [options]
   * @returns {Promise<import('../engine/preflight.js').Preflight & {cached?: {bytes: number, complete: boolean},
    *   storage?: {quota: number, usage: number, fits: boolean}}>}  cached: what usable copies hold; storage: the
    *   browser's quota for this site and how much of it is used, both in bytes, and whether a copy would fit */
  async preflight(source, options = {}) {
    known.checkOptions('Plumb.preflight', options, known.PREFLIGHT);
    const { contextLength, kvType, snapshots, precision, memory64, measure = true } = options;
    const resolved = await this.#resolve(source, options);
    return this.#preflight(resolved, () => this.#resolve(source, options), options, {
      contextLength, kvType, snapshots, precision, memory64, measure,
    });
  }

  /** @param {Resolved} resolved @param {() => Promise<Resolved>} again  resolves the source again, because streams of
   *   Blobs can be read only once @param {PreflightOptions} options @param {object} args  of the engine's method */
  async #preflight(resolved, again, options, args) {
    const { parts } = resolved;
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
      const { transport, result } = await this.#open('preflight', { ...resolved, parts }, options, args);
      await transport.terminate();
      return /** @type {import('../engine/preflight.js').Preflight} */ (result);
    };
    const copied = local.some((one, i) => one !== parts[i]);
    let plan = await look(local).catch(error => {
      if (!copied || error?.code !== 'PLUMB_ERROR_IO') throw error;
    });
    // A load drops such copies and downloads the model again.
    const worthless = copied && (!plan || plan.problems.some(isDamage));
    if (!plan || worthless) plan = await look((await again()).parts);
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

  /** Downloads a model, without loading it, and keeps its copy on this machine; a copy that is there is verified.  The
   * next load reads the copy.  PLUMB_ERROR_IO if no copy can be kept.
   * @param {string | URL} source  a URL or a name, as in load @param {PullOptions} [options]
   * @returns {Promise<import('../loader/copy-store.js').Cached[]>}  the copy of each part */
  async pull(source, options = {}) {
    known.checkOptions('Plumb.pull', options, known.PULL);
    const { cache = 'no-cache', onProgress, ...rest } = options;
    const resolved = await this.#resolve(source, rest, cache), { parts } = resolved;
    if (parts.some(({ part }) => part.kind !== 'url')) throw argumentError(`${source}: only URLs have copies`);
    const sha256 = sums('pull', options.sha256, parts.length) ?? resolved.sha256;
    const { transport } = await this.#open('pull', resolved, { ...rest, threads: 1 }, { cache, sha256 }, onProgress);
    await transport.terminate();
    const copies = await this.#cachedOf(parts);
    return copies.filter(copy => copy !== undefined);
  }

  /** Runs a command of the command line: ['selfcheck', 'model.gguf', '--json'].  `plumb --help` lists the commands.
    * Rejects with a PlumbError if the program itself breaks down, and with the signal's reason if it is aborted.
    * Problems that the program finds are reported in `code` and `err`.
   * @param {string[]} args  the words of the command
   * @param {import('../command/command.js').CommandOptions} [options]
   * @returns {Promise<import('../command/command.js').CommandResult>} */
  async command(args, options = {}) {
    return runCommand(this.#platform.startCommand, args, options);
  }

  /** Lists the copies of URLs on this machine, whole or not, the most recently used first.  PLUMB_ERROR_IO if the file
   * system cannot list them.
   * @returns {Promise<import('../loader/copy-store.js').Cached[]>} */
  async listCached() {
    return await this.#platform.store?.list() ?? [];
  }

  /** Removes copies.  PLUMB_ERROR_STATE if a copy is being written, PLUMB_ERROR_IO if the file system does not remove
   * it.
   * @param {string | URL | (string | URL)[]} url  also a cacheKey or a name, as in load; the first URL of a split model
   *   stands for all of its parts
   * @returns {Promise<boolean>}  whether there was a copy */
  async removeCached(url) {
    let any = false;
    for (const one of [url].flat()) {
      for (const copy of await this.#copiesOf(one)) any = await this.#platform.store?.remove(copy) || any;
    }
    return any;
  }

  /** Opens the whole copy of a URL as a Blob, to inspect it or to save it as a file.
   * @param {string | URL} url  also a cacheKey or a name, as in load; of a split model, the first part
   * @returns {Promise<Blob | undefined>} */
  async openCached(url) {
    const [copy] = await this.#copiesOf(url);
    return copy === undefined ? undefined : (await this.#platform.store?.whole(copy))?.blob;
  }

  /** The parts of a source.
   * @param {import('../loader/source.js').Source} source @param {PreflightOptions} options  of the call
   * @param {LoadOptions['cache']} [cache] @returns {Promise<Resolved>} */
  #resolve(source, options, cache) {
    /** @type {NonNullable<import('../loader/resolve.js').ResolveOptions['fits']>} */
    const fits = async (parts, bytes, wide) => {
      if (wide && bytes < MAX_MEMORY) return false;   // it was refused before
      const limit = Math.min(wide ? memoryLimit() : MAX_MEMORY, (this.#platform.memory ?? Infinity) * OF_MEMORY);
      // Only the header of a file that takes most of the memory is worth a request.
      if (bytes < limit / 2 || bytes > limit) return bytes < limit;
      const resolved = { parts }, { contextLength, kvType, precision } = options;
      const plan = await this.#preflight(resolved, async () => resolved, options,
        { contextLength, kvType, precision, measure: false });
      // If it is not supported, the load says why.
      return plan.fits ?? !plan.problems.some(({ code }) => code === 'PLUMB_ERROR_MEMORY');
    };
    return resolve(source, this.#platform, { ...options, cache, fits });
  }

  /** Starts an engine and calls one of its methods on the parts of a model.  Ends the engine if that fails.
   * @param {'load' | 'preflight' | 'pull'} method
   * @param {Resolved} resolved
   * @param {Pick<LoadOptions, 'threads' | 'signal' | 'worker' | 'workerUrl' | 'fetch'>} options
    * @param {object} args  the method's arguments besides the parts
   * @param {LoadOptions['onProgress']} [onProgress]
   * @returns {Promise<{transport: import('../base/protocol.js').Transport, result: unknown}>} */
  async #open(method, resolved, options, args, onProgress) {
    const { threads = 'auto', signal, worker = this.#platform.worker, workerUrl } = options, { parts } = resolved;
    signal?.throwIfAborted();
    const variant = choose(this.#platform, threads, worker);   // compiles while the worker starts
    variant.catch(() => {});   // the pull of the module reports the error
    const transport = worker ? new Remote(this.#platform.startWorker(workerUrl))
      : new Local(createHost(this.#platform));
    let unfollow = () => {};
    const aborted = new Promise((_, reject) => { unfollow = onAbort(signal, reject); });
    let running = Promise.resolve();
    try {
      if (this.#ending.size > 0) await Promise.race([aborted, Promise.all(this.#ending)]);
      const { sent, onPull, end } = askedFor(resolved, options.fetch);
      running = transport.call(method, { ...args, ...sent }, {
        signal,
        onEvent: (_, progress) => onProgress?.(progress),
        onPull: async part => part === 'module' ? variant
          : part === 'wide module' ? chooseWide(this.#platform, threads, worker) : onPull(part),
      });
      running.then(end, end);
      return { transport, result: withoutSecrets(await Promise.race([aborted, running]), parts) };
    } catch (thrown) {
      const error = explained(concealed(thrown, targets(parts)), resolved, this.#platform);
      const end = settled(running, SHUTDOWN_TIMEOUT).then(async () => {
        await transport.terminate();
        this.#ending.delete(end);
      });
      this.#ending.add(end);
      throw error;
    } finally {
      // Also after success: a stream may hold more than the model.
      for (const { cancel } of parts) (async () => cancel?.())().catch(() => {});
      unfollow();
    }
  }

  /** The copy of each part, or undefined. @param {import('../loader/source.js').Described[]} parts */
  async #cachedOf(parts) {
    const all = parts.some(({ part }) => part.kind === 'url') ? await this.#platform.store?.list() ?? [] : [];
    return Promise.all(parts.map(async ({ part }) => {
      if (all.length === 0 || part.kind !== 'url') return undefined;
      const name = await copyName(part.copy ?? part.url);
      return all.find(({ url }) => url === name);
    }));
  }

  /** The names of the copies that a source stands for. @param {string | URL} source */
  #copiesOf(source) {
    return copiesOf(source, this.#platform, one => expand(one).map(url => {
      const part = this.#platform.locate(url);
      if (!('kind' in part) || part.kind !== 'url') throw argumentError(`${url}: only URLs have copies`);
      return part.url;
    }));
  }
}

/** @param {ClientPlatform} platform */
export const createPlumb = platform => new Library(platform);

/** Resolves when the promise settles, or after ms. @param {Promise<unknown>} promise @param {number} ms */
function settled(promise, ms) {
  /** @type {any} */
  let timer;
  const late = new Promise(resolve => { timer = setTimeout(resolve, ms); });
  return Promise.race([promise.catch(() => {}), late]).finally(() => clearTimeout(timer));
}

/** What the engine's side gets of the parts, and the answers to its pulls. @param {Resolved} resolved
 * @param {RequestOptions['fetch']} fetch */
function askedFor({ parts }, fetch) {
  const server = fetch && fetchServer(fetch);
  return {
    sent: { parts: parts.map(({ part }) => part), fetches: server !== undefined },
    onPull: async (/** @type {import('../base/protocol.js').Part} */ part) => typeof part === 'object'
      ? server?.answer(part) : await parts[Number(part)].next?.() ?? null,
    end: () => server?.end(),
  };
}

/** What pages that share an engine have in common.
 * @param {Resolved} resolved @param {LoadOptions['threads']} threads */
const sharedKey = ({ parts }, threads = 'auto') =>
  [threads, ...parts.map(({ part }) => part.kind === 'url' ? part.copy ?? part.url : '')].join(' ');

/** @param {Resolved['parts']} parts */
const targets = parts => parts.flatMap(({ part }) => part.kind === 'url' ? [part] : []);

/** The result of a load or a preflight, in whose messages no secret is shown.
 * @param {any} result @param {Resolved['parts']} parts */
function withoutSecrets(result, parts) {
  const conceal = concealer(targets(parts));
  for (const one of [...result?.warnings ?? [], ...result?.problems ?? []]) one.message = conceal(one.message);
  return result;
}

/** Returns one checksum for each part. @param {string} where @param {string | string[] | undefined} sha256
 * @param {number} parts */
function sums(where, sha256, parts) {
  if (sha256 === undefined) return undefined;
  const all = [sha256].flat();
  if (all.length === parts) return all.map(one => one.toLowerCase());
  throw argumentError(`Plumb.${where}: sha256 has ${all.length} checksums, but the model has ${parts} parts`,
    { checksums: all.length, parts });
}

/** @typedef {{metadata: Record<string, import('../engine/engine.js').MetadataValue>, bosText: string,
 *   eosText: string, warnings?: import('../loader/parts.js').Warning[]}} Loaded */

/** Functions of Library, Model and Adapter for each other. */
const ID = Symbol('id'), FREE = Symbol('free'), ADD_ADAPTER = Symbol('add adapter');
const ADD_DRAFT = Symbol('add draft');
/** The number of the next adapter, of any model. */
let nextAdapter = 1;

/** An adapter of a model, in the engine's memory. */
export class Adapter {
  #model;
  /** @type {number | undefined} */
  #id;

  /** @param {Model} model @param {number} id @param {'lora' | 'control'} kind */
  constructor(model, id, kind) {
    this.#model = model;
    this.#id = id;
    /** 'lora', or 'control': a control vector. @type {'lora' | 'control'} */
    this.kind = kind;
  }

  /** Frees its memory, so that it can no longer be used.  PLUMB_ERROR_STATE: the model uses it. */
  async free() {
    const id = this.#id;
    if (id === undefined) return;
    await this.#model[FREE](id);
    this.#id = undefined;
  }

  /** @param {Model} model @returns {number | undefined} undefined: it is another model's, or freed */
  [ID](model) { return model === this.#model ? this.#id : undefined; }
}

/** @typedef {{adapter: Adapter} & import('../loader/load-options.js').AdapterScale} AdapterUse */

/** A loaded model with a session of its own; `model.session()` opens others. */
export class Model extends Session {
  #transport;
  #platform;
  #closed = false;
  /** The adapters in use. @type {readonly AdapterUse[]} */
  #adapters = [];
  #loaded;
  /** The format of the template that was used last. @type {{source?: string, format: Promise<Format>} | undefined} */
  #format;
  #template;
  /** Prompts that are chats, and which text of the last message they end with.
   * @type {WeakMap<object, import('../answers/formats.js').Continued>} */
  #chats = new WeakMap();
  /** The sessions that answer chats.
   * @type {import('../answers/messages.js').Pool} @override */
  [POOL] = new SessionPool(async () => {
    return openSession(this, { ...await this.#sessionArgs(), isCache: true });
  }, async () => (await this.info()).contextLength);

  /** @param {import('../base/protocol.js').Transport} transport @param {Loaded} loaded
   * @param {ClientPlatform} platform @param {string} [template]  instead of the file's */
  constructor(transport, loaded, platform, template) {
    super(undefined, 0);
    this.#template = template;
    this.#transport = transport;
    this.#platform = platform;
    this.#loaded = loaded;
    this.metadata = loaded.metadata;
    const held = async () => ({ model: this, free() {} });
    /** Conversations.  `model.chat(options)` returns a Chat, which keeps its messages.  `model.chat.completions` takes
     * OpenAI's parameters and returns OpenAI's results.
     * @type {((options?: import('./chat.js').ChatOptions) => Chat) & {completions: Completions}} */
    this.chat = Object.assign((/** @type {import('./chat.js').ChatOptions | undefined} */ options) =>
      new Chat(this, options), { completions: new Completions(held) });
    /** Embeddings with OpenAI's parameters and results. */
    this.embeddings = new Embeddings(held);
    /** Decisions with the parameters and results of OpenAI and of System One. */
    this.decisions = new Decisions(held);
    /** What runs differently from what was asked for, and why.  'threads': there is only one thread.  'module': the
     * fastest module does not load, and a slower one with the same results runs.  'cache': no copy is kept.
     * 'shared': the engine is not shared with other pages.
     * 'template': the file has no chat template, so that its first chat was put into ChatML.
     * @type {{code: string, message: string}[]} */
    this.warnings = loaded.warnings ?? [];
  }

  /** @param {string} method @param {object} [args] @param {import('../base/protocol.js').CallOptions} [options] */
  async [CALL](method, args, options) {
    if (this.#closed) throw new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
    return this.#transport.call(method, args, { onPull: name => this.#platform.compile(String(name)), ...options });
  }

  /** Loads an adapter for this model, a LoRA or a control vector in a GGUF file.  setAdapters uses it.  It is loaded
   * after the calls that are running.  PLUMB_ERROR_TENSOR or PLUMB_ERROR_METADATA: it is no adapter, or one for another
   * model; PLUMB_ERROR_UNSUPPORTED: it changes a tensor that no adapter can change.
   * @param {import('../loader/source.js').OneSource} source  as in Plumb.load
   * @param {import('../loader/load-options.js').AdapterOptions} [options]
   * @returns {Promise<Adapter>} */
  async loadAdapter(source, options = {}) {
    known.checkOptions('loadAdapter', options, known.ADAPTER);
    return this[ADD_ADAPTER](source, options);
  }

  /** @param {import('../loader/source.js').OneSource} source
   * @param {import('../loader/load-options.js').AdapterOptions} options
   * @param {string} [origin]  of the server which gets the headers */
  async [ADD_ADAPTER](source, options, origin) {
    const id = nextAdapter++;
    return new Adapter(this, id, await this.#loadBehind('loadAdapter', { id }, source, options, origin));
  }

  /** Loads a model that drafts. @param {import('../loader/source.js').OneSource} source
   * @param {import('../loader/load-options.js').AdapterOptions} options @param {string} [origin] */
  async [ADD_DRAFT](source, options, origin) { await this.#loadBehind('loadDraft', {}, source, options, origin); }

  /** Loads a file that is used beside the model.
   * @param {'loadAdapter' | 'loadDraft'} method @param {object} args  of the method, besides the file
   * @param {import('../loader/source.js').OneSource} source
   * @param {import('../loader/load-options.js').AdapterOptions} options
   * @param {string} [origin]  of the server which gets the headers */
  async #loadBehind(method, args, source, options, origin) {
    const { signal, onProgress, cache, sha256, fetch } = options, isAdapter = method === 'loadAdapter';
    signal?.throwIfAborted();
    const resolved = await resolve(source, this.#platform, { ...options, origin, isAdapter });
    const { parts } = resolved;
    if (parts.length !== 1) {
      throw argumentError(`${method}: ${isAdapter ? 'an adapter' : 'a draft model'} is one file, not ${parts.length}`);
    }
    const { sent, onPull, end } = askedFor(resolved, fetch);
    const sums = [sha256?.toLowerCase() ?? resolved.sha256?.[0]];
    try {
      return await this[CALL](method, { ...args, ...sent, cache, sha256: sums }, {
        signal, onEvent: (_, progress) => onProgress?.(progress), onPull,
      });
    } catch (error) {
      throw explained(concealed(error, targets(parts)), resolved, this.#platform);
    } finally {
      end();
      (async () => parts[0].cancel?.())().catch(() => {});
    }
  }

  /** The adapters in use, as the last setAdapters has set them. */
  get adapters() { return this.#adapters; }

  /** Makes the model use these adapters together, from now on; [] none.  Nothing is loaded again.  The session forgets
   * its tokens, because they were computed with other adapters, unless the list is the same as before.
   * PLUMB_ERROR_ARGUMENT: an adapter was loaded for another model, or freed.
   * @param {AdapterUse[]} uses */
  async setAdapters(uses) {
    if (!Array.isArray(uses)) throw argumentError('setAdapters: expected an array of {adapter, scale, layers}');
    const all = uses.map((use, i) => {
      known.checkOptions(`setAdapters: adapter ${i}`, use, known.USED_ADAPTER);
      const id = use.adapter instanceof Adapter ? use.adapter[ID](this) : undefined;
      if (id === undefined) throw argumentError(`setAdapters: adapter ${i} is not one of this model, or was freed`);
      return { id, scale: use.scale ?? 1, ...use.layers && { layers: use.layers } };
    });
    await this[CALL]('setAdapters', { uses: all });
    this.#adapters = Object.freeze(uses.map(use => Object.freeze({ ...use })));
  }

  /** Frees what an adapter holds. @param {number} id */
  async [FREE](id) {
    if (!this.#closed) await this[CALL]('freeAdapter', { id });
  }

  /** Opens another session on the same weights, which holds nothing.
   * @param {{contextLength?: number}} [options]  contextLength: how many tokens it can hold; default: as many as the
   *   model's own session.  Its memory grows with the tokens that it holds
   * @returns {Promise<Session>} */
  async session(options = {}) {
    known.checkOptions('session', options, known.OPEN);
    return openSession(this, await this.#sessionArgs(options));
  }

  /** @param {{contextLength?: number}} [options] */
  async #sessionArgs({ contextLength } = {}) {
    return { contextLength: contextLength ?? (await this.info()).contextLength };
  }

  /** Converts a text to token ids.
   * @param {string} text
   * @param {{addSpecial?: boolean, parseSpecial?: boolean}} [options]  addSpecial: add the first and last tokens that
   *   the file asks for (default true); parseSpecial: turn the text of a special token into that token (default false)
   * @returns {Promise<Int32Array>} @override */
  async tokenize(text, options = {}) {
    known.checkOptions('tokenize', options, known.TOKENIZE);
    if (typeof text !== 'string') throw argumentError(`tokenize: the text is ${typeof text}, expected a string`);
    const { addSpecial = true, parseSpecial = false } = options;
    return this[CALL]('tokenize', { text, addSpecial, parseSpecial });
  }

  /** Converts token ids to text.
   * @param {ArrayLike<number>} ids @param {{special?: boolean}} [options]  special: show control tokens too (default
   *   false)
   * @returns {Promise<string>} @override */
  async detokenize(ids, options = {}) {
    known.checkOptions('detokenize', options, known.DETOKENIZE);
    return this[CALL]('detokenize', { ids: known.tokenIds('detokenize', ids), special: options.special ?? false });
  }

  /** Renders a chat as one text with the file's own template.
   * @param {Message[]} messages @param {TemplateOptions} [options] @returns {Promise<string>} */
  async applyChatTemplate(messages, options = {}) {
    known.checkOptions('applyChatTemplate', { template: options }, known.TEMPLATE);
    return this.#render('render', 'applyChatTemplate', messages, options);
  }

  /** Converts a chat to the tokens that generate would use.  Their number is what the prompt takes of the context.
   * @param {Message[]} messages @param {TemplateOptions} [options] @returns {Promise<Int32Array>} @override */
  async tokenizeChat(messages, options = {}) {
    known.checkOptions('tokenizeChat', { template: options }, known.TEMPLATE);
    return this.#chatTokens('tokenizeChat', messages, options);
  }

  /** Computes the embeddings of texts: vectors that are close if the texts have similar meanings.  Several texts at
   * once are faster than one after the other, and give the same vectors.  The session forgets its tokens.
   * PLUMB_ERROR_CONTEXT: a text is too long; PLUMB_ERROR_ARGUMENT: the file does not say how the vectors of the tokens
   * become one, and there is no `pooling`.
   * @template {string | Int32Array | (string | Int32Array)[]} T
   * @param {T} texts  one text, as a string or as token ids, or an array of texts
   * @param {EmbedOptions} [options]
   * @returns {Promise<T extends any[] ? Float32Array[] : Float32Array>}  a vector for each text */
  async embed(texts, options = {}) {
    known.checkOptions('embed', options, known.EMBED);
    const { signal, onProgress, prefix = '', ...rest } = options;
    signal?.throwIfAborted();
    const isOne = typeof texts === 'string' || texts instanceof Int32Array;
    const all = checkTexts('embed', isOne ? [texts] : texts)
      .map(text => typeof text === 'string' ? prefix + text : text);
    const vectors = await this[CALL]('embed', { texts: all, options: rest }, {
      signal, onEvent: (_, progress) => onProgress?.(progress),
    });
    return isOne ? vectors[0] : vectors;
  }

  /** Sorts texts by how well they answer a query.  A reranker (whose file has a classifier) reads the query together
   * with each text, joined as llama.cpp's server does, and its score is the first number of the classifier.  With any
   * other model a score is the cosine similarity of the two embeddings, from -1 to 1.  The session forgets its tokens.
   * The errors are those of embed.
   * @param {string} query @param {string[]} texts @param {RankOptions} [options]
   * @returns {Promise<{index: number, score: number}[]>}  the best text first; index: of the text in texts */
  async rank(query, texts, options = {}) {
    known.checkOptions('rank', options, known.RANK);
    const { signal, onProgress, prefix = '', queryPrefix = '', ...rest } = options;
    signal?.throwIfAborted();
    const all = checkTexts('rank', texts);
    const wrong = [query, ...all].findIndex(text => typeof text !== 'string');
    if (wrong >= 0) {
      throw argumentError(`rank: ${wrong > 0 ? `text ${wrong - 1}` : 'the query'} is not a string`);
    }
    return this[CALL]('rank', { query: queryPrefix + query, texts: all.map(text => prefix + text), options: rest }, {
      signal, onEvent: (_, progress) => onProgress?.(progress),
    });
  }

  /** Computes a prompt from its first token and records every step of the computation.  Afterwards the session holds
   * the prompt.
   * @param {string | Message[] | Int32Array | number[]} prompt  as in generate
   * @param {TraceOptions} [options]
   * @returns {Promise<import('../engine/traces.js').TraceDocument>}  `plumb diff` reads its JSON.stringify */
  async trace(prompt, options = {}) {
    known.checkOptions('trace', options, known.TRACE);
    const { signal, onTap, parseSpecial, template, ...rest } = options;
    signal?.throwIfAborted();
    const ids = await this.#promptIds(prompt, parseSpecial ?? true, template ?? {});
    if (ids.length === 0) throw argumentError('trace: there are no tokens');
    return this[CALL]('trace', { ids, options: rest, emitTaps: onTap !== undefined }, {
      signal,
      onEvent: (_, taps) => taps.forEach((/** @type {import('../engine/traces.js').TapRecord} */ tap) => onTap?.(tap)),
    });
  }

  /** Frees the engine.  Calls that are running are ended first; later calls fail. @override */
  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await this.#transport.call('close').catch(() => {});
    await this.#transport.terminate();
  }

  /** The source of the chat template: the one of Plumb.load, or the file's; '' if there is none, as chats are in ChatML
   * then.  Setting it uses another one from now on; 'chatml' is ChatML. @override @returns {string} */
  get chatTemplate() { return this.#template ?? String(this.metadata['tokenizer.chat_template'] ?? ''); }

  /** @override */
  set chatTemplate(source) {
    known.checkOptions('chatTemplate', { chatTemplate: source }, known.LOAD);
    this.#template = source;
  }

  /** @param {string | Message[] | Int32Array | number[]} prompt @param {boolean} parseSpecial
   * @param {TemplateOptions} template
   * @returns {Promise<Int32Array>} */
  async #promptIds(prompt, parseSpecial, template) {
    if (typeof prompt === 'string') return this.tokenize(prompt, { parseSpecial });
    if (prompt instanceof Int32Array || (Array.isArray(prompt) && typeof prompt[0] === 'number')) {
      return known.tokenIds('generate', /** @type {ArrayLike<number>} */ (prompt));
    }
    return this.#chatTokens('generate', /** @type {Message[]} */ (prompt), template);
  }

  /** The tokens of a prompt, and whether it is a chat.
   * @param {string | Message[] | Int32Array | number[]} prompt @param {boolean} parseSpecial
   * @param {TemplateOptions} template */
  async [PROMPT](prompt, parseSpecial, template) {
    const ids = await this.#promptIds(prompt, parseSpecial, template);
    const given = /** @type {any} */ (prompt);   // the tokens of a chat, of which ids is a copy
    if (this.#chats.has(given)) this.#chats.set(ids, this.#chats.get(given));
    return { ids, isChat: this.#chats.has(ids) };
  }

  /** @param {string} where @param {Message[]} messages @param {TemplateOptions} options */
  async #chatTokens(where, messages, options) {
    const ids = await this.#render('renderTokens', where, messages, options);
    this.#chats.set(ids, continuedText(messages, options));
    return ids;
  }

  /** @param {Int32Array} ids @override */
  [CONTINUED](ids) { return this.#chats.get(ids); }

  /** The chat template, and the texts that it has of the vocabulary. */
  #about() { return { source: this.chatTemplate, bos: this.#loaded.bosText, eos: this.#loaded.eosText }; }

  /** How the model writes its answers. @returns {Promise<Format>} @override */
  [FORMAT]() {
    if (!this.#format || this.#format.source !== this.chatTemplate) {
      const format = this[CALL]('format', this.#about());
      this.#format = { source: this.chatTemplate, format };
      format.catch(() => { this.#format = undefined; });
    }
    return this.#format.format;
  }

  /** @param {'render' | 'renderTokens'} method @param {string} where @param {Message[]} messages
   * @param {TemplateOptions} options */
  async #render(method, where, messages, options) {
    known.checkMessages(where, messages, this.chatTemplate);
    if (this.chatTemplate === '' && !this.warnings.some(({ code }) => code === 'template')) {
      if ((await this.info()).hasEncoder) {
        throw new PlumbError('PLUMB_ERROR_TEMPLATE', 'the file has no tokenizer.chat_template; use a string prompt '
          + 'instead', { missing: 'tokenizer.chat_template' });
      }
      const message = 'the file has no tokenizer.chat_template, so that chats are put into ChatML, as in llama.cpp; '
        + 'the option chatTemplate of Plumb.load gives another one';
      this.warnings.push({ code: 'template', message });
      warn(message);
    }
    const { addGenerationPrompt, continueFinalMessage, tools, ...variables } = options;
    if (addGenerationPrompt && continueFinalMessage) {
      throw argumentError(`${where}: addGenerationPrompt and continueFinalMessage exclude each other`);
    }
    const plain = Array.isArray(tools) ? plainTools(where, tools) : tools;
    const given = { ...variables, messages, ...plain && { tools: plain } };
    known.checkNesting(where, given);
    const continued = continuedText(messages, options);
    const end = continued ? { continue_final_message: continued }
      : { add_generation_prompt: addGenerationPrompt ?? true };
    return this[CALL](method, { json: jsonOf(where, { ...given, ...end }), ...this.#about() });
  }
}

/** Which text of the last message the answer goes on with, if with any. @param {Message[]} messages
 * @param {TemplateOptions} options @returns {import('../answers/formats.js').Continued} */
function continuedText(messages, { addGenerationPrompt, continueFinalMessage }) {
  const { role, content, reasoning_content: reasoning, tool_calls: calls } = /** @type {Message} */ (messages.at(-1));
  const isUsual = role === 'assistant' && !calls?.length && (addGenerationPrompt ?? undefined) === undefined;
  const how = continueFinalMessage ?? isUsual;
  if (typeof how === 'string') return how;
  return how ? (reasoning && !content?.length ? 'reasoning_content' : 'content') : undefined;
}

/** @param {string} where @param {unknown} value */
function jsonOf(where, value) {
  try {
    return JSON.stringify(value);
  } catch (error) {
    throw argumentError(`${where}: an argument cannot be written as JSON: ${reasonOf(error)}`);
  }
}

/** @param {string} where @param {any} texts @returns {(string | Int32Array)[]} */
function checkTexts(where, texts) {
  const expected = where === 'embed' ? 'a text or an array of texts' : 'an array of texts';
  if (!Array.isArray(texts)) throw argumentError(`${where}: expected ${expected}`);
  const wrong = texts.findIndex(text => typeof text !== 'string' && !(text instanceof Int32Array));
  if (wrong < 0) return texts;
  throw argumentError(`${where}: text ${wrong} is ${typeof texts[wrong]}, expected a string or an Int32Array`);
}
