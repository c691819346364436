/* The engine's side of the protocol: one function for each method, around one Engine.  It runs in a worker
 * (engine-worker.js) or in the caller's own thread (protocol.js, class Local).  Long work yields to the event loop
 * between its pieces, so that an abort can arrive.  Calls that change a session run one after the other; those of
 * several sessions run at the same time, and feeder.js computes their tokens together.
 *
 * A host serves one load or one preflight, which is its first call.  Other calls may follow only if a load has
 * succeeded, but close may come at any time, and more than once. */
import { yieldToEventLoop } from '../base/async.js';
import { PlumbError } from '../base/errors.js';
import { StartOver } from '../loader/download.js';
import { Parts } from '../loader/parts.js';
import { digestOf } from '../loader/sums.js';
import { addressesOf } from './addresses.js';
import { decide } from './decide.js';
import { embed, rank } from './embed.js';
import { Engine, HOSTS64 } from './engine.js';
import { Feeder } from './feeder.js';
import { generate } from './generation.js';
import { decode as textOf } from './instance.js';
import { preflight } from './preflight.js';
import { Templates } from './templates.js';
import { MAX_MEMORY, MAX_MEMORY64, Threads, returnMemory, takeMemory } from './threads.js';

/** @typedef {import('../base/protocol.js').Call} Call
 * @typedef {import('../base/protocol.js').Methods} Methods
 * @typedef {import('../loader/source.js').Platform} Platform
 * @typedef {import('./variant.js').Variant} Variant
 * @typedef {import('./engine.js').SessionArgs} SessionArgs */

/** Milliseconds of loading after which the host yields to the event loop. */
const SLICE = 30;
/** Bytes of a copy that are read at once after its header. */
const COPIED = 1 << 20;
/** Tokens that a trace feeds at once.  Each takes about 40 ms, and an abort waits for all of them. */
const TRACED = 8;
/** Bytes of sessions outside of the engine's memory from which on caches are dropped and not moved there. */
const CACHE_OUTSIDE = 2 ** 29;
/** How many times a preflight reads the headers at most.  It starts again if a file changes meanwhile. */
const PASSES = 3;

/** @param {Platform} platform @returns {Methods} */
export function createHost(platform) {
  const host = new Host(platform);
  return { ...opening(host, platform), ...texts(host), ...computing(host), ...adapting(host, platform),
    close: () => host.close() };
}

/** The engine of a host, with its threads and their memory: creates them, and frees them together. */
class HostedEngine {
  #platform;
  /** @type {Engine | undefined} */
  #engine;
  /** @type {Threads | undefined} */
  #threads;
  /** The memory of an engine with threads. @type {import('./threads.js').SharedMemory | undefined} */
  #shared;
  /** The variant that runs. */
  module = '';
  /** Whether its addresses have 64 bits. */
  wide = false;
  /** How many bytes the engine's memory can have. */
  limit = MAX_MEMORY;

  /** @param {Platform} platform */
  constructor(platform) { this.#platform = platform; }

  /** Whether another module could give it more memory: it has all that 32-bit addresses reach, and could use it. */
  get canWiden() { return !this.wide && this.limit === MAX_MEMORY && (this.#engine?.keepsHeader ?? false); }

  get engine() {
    if (!this.#engine) throw new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
    return this.#engine;
  }

  /** Creates an engine without a model.  Its threads start while the model arrives.
   * @param {Variant} variant @param {AbortSignal} signal @returns {Promise<Engine>} */
  async create({ module, name, threads }, signal) {
    signal.throwIfAborted();
    this.module = name;
    this.wide = addressesOf(module) !== undefined;
    this.#shared = threads > 1 ? takeMemory(this.wide) : undefined;
    const { startThread } = this.#platform, memory = this.#shared?.memory;
    this.limit = this.#shared?.limit ?? (this.wide ? MAX_MEMORY64 : MAX_MEMORY);
    const created = this.#engine = await Engine.create(module, memory);
    if (memory && startThread) {
      const setups = Array.from({ length: threads - 1 }, (_, i) =>
        ({ module, memory, stack: created.createStack(), thread: i + 1 }));
      this.#threads = new Threads(startThread, setups);
    }
    return created;
  }

  /** Replaces the engine, which keeps its header, by one of another module that continues in its place.
   * @param {Variant} variant @param {AbortSignal} signal @returns {Promise<Engine>} */
  async replace(variant, signal) {
    const before = new HostedEngine(this.#platform);
    [before.#engine, before.#threads, before.#shared] = [this.#engine, this.#threads, this.#shared];
    this.#engine = this.#threads = this.#shared = undefined;
    try {
      const next = await this.create(variant, signal);
      before.engine.handOver(next);
      await before.free();
      return next;
    } catch (error) {   // callers go on with the one before: it still checks what has arrived
      await this.free();
      [this.#engine, this.#threads, this.#shared] = [before.#engine, before.#threads, before.#shared];
      throw error;
    }
  }

  /** Lets the threads serve.  Must be called before a session is opened, because a session keeps the number of threads
   * that there are when it is opened.  Returns why there is only one thread although more were requested, otherwise
   * undefined.
   * @param {Variant} variant @returns {Promise<string | undefined>} */
  async enableThreads({ threads, note }) {
    if (!this.#threads) return note;
    const failure = await this.#threads.failure;
    if (!failure) {
      this.#threads.serve();
      this.engine.setThreads(threads);
    }
    return failure;
  }

  /** Frees the engine at once.  When the promise resolves, its threads have ended, if this platform reports that. */
  async free() {
    const used = this.#engine?.free(), ended = this.#threads?.terminate(), memory = this.#shared;
    this.#engine = this.#threads = this.#shared = undefined;
    if ((await ended ?? true) && memory && used !== undefined) returnMemory(memory, used);
  }

  /** Turns a RangeError of a load or a preflight into PLUMB_ERROR_MEMORY: JavaScript has failed to allocate memory, and
   * the engine has not crashed.  Returns any other error as it is, including the RangeError of a stack overflow.
   * @param {unknown} error @param {number} [total]  bytes of the model */
  asMemoryError(error, total) {
    if (!(error instanceof RangeError) || /call stack/i.test(error.message)) return error;
    const held = this.#engine?.bytes ?? 0, of = total === undefined ? '' : ` of ${total} bytes`;
    return new PlumbError('PLUMB_ERROR_MEMORY', `no memory for the model${of}; the engine holds ${held} bytes: `
      + error.message, { held, ...total !== undefined && { total } });
  }
}

/** What the methods share. */
class Host {
  hosted;
  templates = new Templates();
  /** The adapters that are loaded, by the numbers that the user's side has for them.
   * @type {Map<number, ReturnType<Engine['createAdapter']>>} */
  adapters = new Map();
  /** Those that all sessions use. @type {{id: number, scale: number, layers?: [number, number]}[]} */
  adaptersInUse = [];
  /** What the load said of sessions. @type {SessionArgs} */
  sessionArgs = {};
  /** How answers compute ahead that do not say it themselves. @type {import('./session.js').Speculation | undefined} */
  speculation;
  /** Whether the memory of the load's session grows with its tokens. */
  sessionGrows = false;
  /** How many calls began that change a session. */
  #calls = 0;
  /** The last call of alone, which never rejects. @type {Promise<unknown>} */
  #alone = Promise.resolve();
  /** Sessions that are being closed. @type {Set<HostedSession>} */
  #ending = new Set();
  /** The load of the module for grammars. @type {Promise<void> | undefined} */
  grammars;
  /** The sessions, by the numbers that the user's side has for them.  0 is that of the load.
   * @type {Map<number, HostedSession>} */
  #sessions = new Map();
  feeder = new Feeder(() => this.engine, () => this.#makeRoom());
  /** close() aborts this to end the calls in the queue, whose own signals only their callers can abort. */
  #closing = new AbortController();

  /** @param {Platform} platform */
  constructor(platform) { this.hosted = new HostedEngine(platform); }

  get engine() { return this.hosted.engine; }

  /** @param {number} [id] @returns {HostedSession} */
  session(id = 0) {
    const { engine } = this;
    let found = this.#sessions.get(id);
    if (!found && id === 0) {
      found = new HostedSession(engine.session, { grows: this.sessionGrows });
      this.#sessions.set(0, found);
    }
    if (!found) throw new PlumbError('PLUMB_ERROR_STATE', 'the session is closed');
    return found;
  }

  /** All sessions; there is one as soon as the model is loaded. */
  get sessions() {
    this.session();
    return [...this.#sessions.values()];
  }

  /** @param {number} id  a new number @param {import('./session.js').Session} session
   * @param {boolean} [isCache]  as in HostedSession */
  addSession(id, session, isCache) {
    const hosted = new HostedSession(session, { grows: true, isCache });
    hosted.used = ++this.#calls;
    this.#sessions.set(id, hosted);
  }

  /** Resolves when all calls of alone that were made have ended. */
  get aloneEnded() { return this.#alone; }

  /** Ends the calls of a session, and frees it. @param {number} id */
  async closeSession(id) {
    const found = this.session(id);
    this.#sessions.delete(id);
    found.closing.abort();
    this.#ending.add(found);
    await found.last;
    this.#ending.delete(found);
    this.engine.closeSession(found.session);
  }

  /** Calls use, again and again while there is no memory but other sessions can leave it. @template T
   * @param {() => T} use @returns {T} */
  withRoom(use) {
    for (;;) {
      try {
        return use();
      } catch (error) {
        if (!(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_MEMORY' || !this.#makeRoom()) throw error;
      }
    }
  }

  /** Moves what the session that was not used for longest holds out of the engine's memory.  The next call that uses it
   * puts it back.  What is only a cache is dropped instead if much was moved out before.  Returns false if all sessions
   * are in use or hold nothing. */
  #makeRoom() {
    const all = [...this.#sessions.values()].sort((a, b) => a.used - b.used);
    const oldest = all.find(one => one.grows && one.running === 0 && one.session.position > 0);
    if (!oldest?.isCache || all.reduce((sum, { storedBytes }) => sum + storedBytes, 0) < CACHE_OUTSIDE) {
      return oldest?.store() ?? false;
    }
    oldest.session.clear();
    return true;
  }

  /** Throws the error of a method.  A trap (RuntimeError) or an overflow of JavaScript's stack inside the module
   * (RangeError) leaves the instance in an unknown state, so the engine is freed.  A RangeError does not say where it
   * was thrown, so any that arrives here counts as such an overflow.  Those that a load or a preflight throws because
   * memory is short do not arrive: asMemoryError replaces them.
   * @param {unknown} error @returns {never} */
  fail(error) {
    if (error instanceof WebAssembly.RuntimeError || error instanceof RangeError) {
      this.hosted.free();
      throw new PlumbError('PLUMB_ERROR', `the engine crashed (${error.message}); load the model again`);
    }
    throw error;
  }

  /** @template {Methods[string]} F @param {F} method @returns {F} */
  direct(method) {
    return /** @type {F} */ (async (args, call) => {
      try {
        return await method(args, call);
      } catch (error) {
        return this.fail(error);
      }
    });
  }

  /** As direct, but the method runs only after all earlier calls for the same session have ended.  args.session is the
   * number of the session; default: 0.
   * @param {(args: any, call: Call, hosted: HostedSession) => any} method @returns {Methods[string]} */
  inOrder(method) {
    return (args, call) => {
      /** @type {HostedSession} */
      let hosted;
      try {
        hosted = this.session(args?.session);
      } catch (error) {
        return Promise.reject(error);
      }
      const run = this.direct(async () => {
        hosted.running++;
        hosted.used = ++this.#calls;
        try {
          this.session(args?.session);   // it may have been closed meanwhile
          this.withRoom(() => hosted.load());
          return await method(args, call, hosted);
        } finally {
          hosted.running--;
        }
      });
      const result = hosted.last.then(() => run());
      hosted.last = result.catch(() => {});
      return result;
    };
  }

  /** As direct, but the method runs after all earlier calls for any session, and before all later ones.
   * @param {(args: any, call: Call) => any} method @returns {Methods[string]} */
  alone(method) {
    return (args, call) => {
      const all = [...this.sessions, ...this.#ending];
      const result = Promise.all([this.#alone, ...all.map(({ last }) => last)]).then(() =>
        this.direct(method)(args, call));
      this.#alone = result.catch(() => {});
      for (const hosted of all) hosted.last = this.#alone;
      return result;
    };
  }

  /** @param {AbortSignal} signal  of a call @param {HostedSession} [hosted] */
  isStopped(signal, hosted) {
    return signal.aborted || this.#closing.signal.aborted || (hosted?.closing.signal.aborted ?? false);
  }

  /** Why a call ends early. @param {AbortSignal} signal @param {HostedSession} [hosted] */
  stopped(signal, hosted) {
    const what = hosted?.closing.signal.aborted ? 'session' : 'model';
    return signal.reason ?? new PlumbError('PLUMB_ERROR_STATE', `the ${what} is closed`);
  }

  /** Feeds ids.  Returns how many were fed, which is fewer than all if the signal ended it.
   * @param {HostedSession} hosted @param {Int32Array} ids @param {AbortSignal} signal
   * @param {(fed: number) => void} [onFed]  is called after each batch */
  feed(hosted, ids, signal, onFed) {
    return this.feeder.feed(hosted.session, ids, () => this.isStopped(signal, hosted), { onFed });
  }

  /** As feed, but throws if the signal ended it. @param {HostedSession} hosted @param {Int32Array} ids
   * @param {AbortSignal} signal */
  async feedAll(hosted, ids, signal) {
    if (await this.feed(hosted, ids, signal) < ids.length) throw this.stopped(signal, hosted);
  }

  async close() {
    this.#closing.abort();
    await Promise.all([...this.#sessions.values(), ...this.#ending].map(({ last }) => last));
    await this.hosted.free();
  }
}

/** A session, with its calls. */
class HostedSession {
  /** The end of the queue of its calls: resolves when the one that was made last has ended, and never rejects.
   * @type {Promise<unknown>} */
  last = Promise.resolve();
  /** closeSession aborts this. */
  closing = new AbortController();
  /** How many calls run, and the number of the last one, of all sessions. */
  running = 0;
  used = 0;
  /** What the session holds, while that is not in the engine's memory. @type {Uint8Array | undefined} */
  #stored;

  /** @param {import('./session.js').Session} session
   * @param {{grows: boolean, isCache?: boolean}} about  grows: whether its memory grows with its tokens; isCache:
   *   whether each call brings its whole prompt, so that what it holds can be dropped */
  constructor(session, { grows, isCache = false }) {
    this.session = session;
    this.grows = grows;
    this.isCache = isCache;
  }

  /** How many bytes of it are outside of the engine's memory. */
  get storedBytes() { return this.#stored?.length ?? 0; }

  /** Moves what the session holds out of the engine's memory.  Returns false if there is no other memory for it. */
  store() {
    try {
      this.#stored = this.session.save();
    } catch (error) {
      if (error instanceof RangeError || error instanceof PlumbError) return false;
      throw error;
    }
    this.session.clear();
    return true;
  }

  /** Empties the session, whose adapters become others.
   * @param {import('./session.js').AdapterUse[]} uses */
  setAdapters(uses) {
    this.session.setAdapters(uses);
    this.#stored = undefined;
  }

  /** Puts it back, if it was moved. */
  load() {
    if (this.#stored) this.session.restore(this.#stored);
    this.#stored = undefined;
  }
}

/** The first calls. @param {Host} host @param {Platform} platform @returns {Methods} */
const opening = (host, platform) => ({
  /** @param {import('../loader/parts.js').LoadArgs & SessionArgs & {speculate?: import('./session.js').Speculation}}
   *   args */
  load(args, call) {
    return passes(host, new Parts(args, call, platform), call, (parts, variant) => {
      const { contextLength, precision, kvType, snapshots, speculate, reserve = true } = args;
      host.sessionGrows = !reserve;
      host.sessionArgs = { contextLength, precision, kvType, snapshots };
      host.speculation = speculate;
      return build(host.hosted, variant, parts, args, call);
    });
  },
  /** Reads the parts for their copies alone. @param {import('../loader/parts.js').LoadArgs} args */
  pull(args, call) {
    return passes(host, new Parts(args, call, platform), call, async (parts, variant) => {
      const engine = await host.hosted.create(variant, call.signal);
      await copyParts(engine, parts, call.signal);
      await host.hosted.free();
    });
  },
  /** @param {import('./preflight.js').PreflightArgs} args */
  async preflight(args, call) {
    const { hosted } = host;
    try {
      const variant = await call.pull('module');
      for (let pass = 1; ; pass++) {
        try {
          const engine = await hosted.create(variant, call.signal);
          const widen = async () => {
            const wide = await wideVariant(call);
            return wide && { engine: await hosted.replace(wide, call.signal), variant: wide };
          };
          return await preflight({ engine, hosted, widen, variant, platform, call }, args);
        } catch (thrown) {
          const error = hosted.asMemoryError(thrown);   // while there is an engine whose memory it can count
          if (!(error instanceof StartOver)) throw error;
          // The requests may have read different files, so all headers are read again.  Bytes that were pulled
          // cannot be read a second time.
          if (pass < PASSES && args.parts.every(({ kind }) => kind !== 'pull')) continue;
          throw new PlumbError('PLUMB_ERROR_IO', `${error.message} (while its header was being read)`);
        } finally {
          await hosted.free();
        }
      }
    } catch (error) {
      return host.fail(hosted.asMemoryError(error));
    }
  },
});

/** Reads all parts of a model, with a new engine each time, until that succeeds or another time is of no use.
 * @template T @param {Host} host @param {Parts} parts @param {Call} call
 * @param {(parts: Parts, variant: Variant) => Promise<T>} read @returns {Promise<T>} */
async function passes(host, parts, call, read) {
  const { hosted } = host;
  try {
    const variant = await Promise.race([call.pull('module'), parts.aborted]);
    for (;;) {
      try {
        return await read(parts, variant);
      } catch (thrown) {
        const error = await parts.findCause(hosted.asMemoryError(thrown, parts.meter.total));
        await hosted.free();
        if (!await parts.prepareRetry(error)) throw error;
      }
    }
  } catch (error) {
    await parts.abandon(error);
    return host.fail(error);
  }
}

/** Reads all parts so that their copies are written or verified.  The engine only reads the headers, so that a file
 * that is no model is found.
 * @param {Engine} engine @param {Parts} parts @param {AbortSignal} signal */
async function copyParts(engine, parts, signal) {
  engine.headersOnly();
  const rest = new Uint8Array(COPIED), isOne = parts.parts.length === 1;
  // Only the first file is checked: pieces of one file have no header of their own.
  let checks = true, first = true, at = 0;
  /** Whether the model may have more bytes.  If there is one file, they end with its last tensor. */
  const continues = () => !isOne || !engine.hasHeader
    || at < (header ??= at) + engine.types().reduce((sum, { bytes }) => sum + bytes, 0);
  /** About how many bytes the header has. @type {number | undefined} */
  let header;
  for await (const _ of parts.read({
    begin(size) {
      checks = first;
      if (first) engine.begin(isOne ? size : undefined);
      first = false;
    },
    fill: put => checks && engine.needsBytes ? engine.fill(put) : put(rest),
    write(chunk) {
      if (checks && engine.needsBytes) engine.write(chunk);
      at += chunk.length;
      return continues();
    },
    digest: engine.digest,
  })) {
    await yieldToEventLoop();
    signal.throwIfAborted();
  }
  if (!engine.hasHeader) throw new PlumbError('PLUMB_ERROR_TRUNCATED', 'the file ends in its header');
  const [warning] = parts.warnings;
  if (warning) throw new PlumbError('PLUMB_ERROR_IO', warning.message);
  parts.meter.emit('ready');
}

/** The module with 64-bit addresses; undefined: this host has no such memories.
 * @param {Call} call @returns {Promise<Variant | undefined>} */
const wideVariant = call => call.pull('wide module');

/** Creates an engine and loads the model into it. @param {HostedEngine} hosted @param {Variant} usual
 * @param {Parts} parts @param {SessionArgs & {memory64?: boolean}} args @param {Call} call */
async function build(hosted, usual, parts, args, call) {
  let variant = args.memory64 ? await wideVariant(call) : usual;
  if (!variant) {
    throw new PlumbError('PLUMB_ERROR_UNSUPPORTED',
      `memory64: this host has no memory with 64-bit addresses, ${HOSTS64}`);
  }
  let engine = await hosted.create(variant, call.signal);
  engine.keepHeader();
  const { meter, warnings } = parts;
  let slice = performance.now();
  /** @type {ReturnType<Engine['metadata']> | undefined} */
  let metadata, isSized = false, lacksWide = false;   // isSized: all sizes were known when makeRoom was last called
  // The engine knows only the tensors of the first file, so for several files it gets the size of all.
  const isSplit = meter.sizes.length > 1;
  const makeRoom = () => {
    isSized = meter.total !== undefined;
    engine.checkRoom({ limit: hosted.limit, total: isSplit ? meter.total : 0, lacksWide }, args);
    engine.reserve(meter.left ?? 0);
  };
  for await (const _ of parts.read(following(() => engine))) {
    if (!metadata && engine.hasHeader) {   // the weights are still arriving
      if (hosted.canWiden
        && engine.needsWide({ limit: hosted.limit, total: isSplit ? meter.estimate : 0 }, args)) {
        const wide = await wideVariant(call);
        lacksWide = !wide;
        engine.checkRoom({ limit: wide ? MAX_MEMORY64 : hosted.limit, lacksWide }, args);   // before it allocates
        if (wide) engine = await hosted.replace(variant = wide, call.signal);
      }
      if (engine.refused) throw engine.refused;
      engine.forgetHeader();
      engine.loadVocabulary();
      metadata = engine.metadata();
      makeRoom();
    } else if (metadata && !isSized && meter.total !== undefined) {   // the last size of a part became known
      makeRoom();
    }
    if (performance.now() - slice > SLICE) {
      await yieldToEventLoop();
      slice = performance.now();
    }
    call.signal.throwIfAborted();
  }
  meter.emit('prepare');
  await yieldToEventLoop();
  call.signal.throwIfAborted();
  engine.end();
  const note = await hosted.enableThreads(variant);
  engine.openSession(args);
  const { bos, eos } = engine;
  const text = (/** @type {number} */ id) => id < 0 ? '' : engine.piece(id, true);
  if (note) warnings.push({ code: 'threads', message: `1 thread: ${note}` });
  if (variant.slower) warnings.push({ code: 'module', message: variant.slower });
  const context = contextWarning(engine, args);
  if (context) warnings.push({ code: 'context', message: context });
  meter.emit('ready');
  return { metadata, bosText: text(bos), eosText: text(eos), warnings };
}

/** A sink that passes all to the engine that there is. @param {() => Engine} engine
 * @returns {import('../loader/source.js').Sink} */
const following = engine => ({
  begin: size => engine().begin(size),
  fill: put => engine().fill(put),
  write: chunk => engine().write(chunk),
  digest: digestOf(engine),
});

/** What the user must know of the context, if anything. @param {Engine} engine @param {SessionArgs} args */
function contextWarning(engine, args) {
  const { contextLength, trainedContext } = engine.session.info(), usual = engine.defaultContext(args.kvType);
  if (engine.session.exceedsTraining) {
    return `contextLength is ${contextLength}, but the model was trained for ${trainedContext} tokens: its answers get `
      + 'worse beyond that';
  }
  return args.contextLength === undefined && contextLength < usual
    ? `contextLength is ${contextLength}: there is no memory for ${usual} tokens` : undefined;
}

/** The calls that leave the session as it is. @param {Host} host @returns {Methods} */
const texts = host => ({
  info: host.direct(({ session } = {}) => ({ ...host.session(session).session.info(), module: host.hosted.module })),
  tokenize: host.direct(({ text, ...options }) => host.engine.tokenize(text, options)),
  detokenize: host.direct(({ ids, special }) => host.engine.detokenize(ids, special)),
  /** The text of each token, also of control tokens. */
  pieces: host.direct(({ ids }) => Array.from(ids, (/** @type {number} */ id) => host.engine.piece(id, true))),
  /** How a template's models write their answers. */
  format: (about, { pull }) => host.templates.use(about, () => pull('plumb-template'), ({ format }) => format),
  /** The text of the prompt that a template makes of a chat. */
  render: ({ json, ...about }, { pull }) =>
    host.templates.use(about, () => pull('plumb-template'), template => textOf(template.render(json).text)),
  /** The tokens of that prompt. */
  renderTokens: host.direct(async ({ json, ...about }, { pull }) => {
    const prompt = await host.templates.use(about, () => pull('plumb-template'), template => template.render(json));
    return host.engine.tokenizePrompt(prompt);
  }),
});

/** The calls that change a session. @param {Host} host @returns {Methods} */
const computing = host => ({
  /** @param {{id: number, isCache?: boolean} & SessionArgs} args  id: a new number; isCache: as in HostedSession */
  openSession: host.direct(async ({ id, isCache, ...args }) => {
    await host.aloneEnded;
    const session = host.withRoom(() => host.engine.openSession({ ...host.sessionArgs, ...args }));
    try {
      host.withRoom(() => session.setAdapters(adapterUses(host)));
    } catch (error) {
      host.engine.closeSession(session);
      throw error;
    }
    host.addSession(id, session, isCache);
  }),
  /** @param {{id: number, session: number}} args  id: a new number; session: the one to fork */
  forkSession: host.inOrder((/** @type {{id: number}} */ { id }, _, { session }) =>
    host.addSession(id, host.withRoom(() => session.fork()))),
  closeSession: host.direct(({ id }) => host.closeSession(id)),
  feed: host.inOrder(async ({ ids }, { signal }, hosted) => {
    await host.feedAll(hosted, ids, signal);
    return hosted.session.logits();
  }),
  /** Empties the session, feeds ids in batches, and returns the records of all batches as one trace.  With
   * `emitTaps` it also emits the records of each batch. */
  trace: host.inOrder(async ({ ids, options, emitTaps }, { signal, emit, pull }, { session }) => {
    const { engine } = host;
    if (!engine.hasTraces) await engine.loadTraces(await pull('plumb-trace'));
    session.rewind(0);
    session.setShift(0);
    /** @type {import('./traces.js').TraceDocument | undefined} */
    let whole;
    for (let at = 0; at < ids.length; at += TRACED) {
      await yieldToEventLoop();
      if (host.isStopped(signal)) throw host.stopped(signal);
      const trace = session.trace(ids, at, Math.min(at + TRACED, ids.length), options);
      if (emitTaps) emit('taps', trace.taps);
      if (!whole) whole = trace;
      else for (const tap of trace.taps) whole.taps.push(tap);
    }
    return whole;
  }),
  save: host.inOrder((_, __, { session }) => session.save()),
  restore: host.inOrder((/** @type {{bytes: Uint8Array}} */ { bytes }, _, { session }) =>
    host.withRoom(() => session.restore(bytes))),
  rewind: host.inOrder(async ({ position }, { signal }, hosted) =>
    host.feedAll(hosted, hosted.session.rewind(position), signal)),
  embed: host.inOrder(({ texts, options }, call) => embed(host.engine, texts, options, embedding(host, call))),
  rank: host.inOrder(({ query, texts, options }, call) =>
    rank(host.engine, query, texts, options, embedding(host, call))),
  decide: host.inOrder(({ prompts }, { signal }, hosted) => decide(host.engine, hosted.session, prompts, {
    feed: async (session, ids) => {
      const fed = await host.feeder.feed(session, ids, () => host.isStopped(signal, hosted),
        { isPrompt: true });
      if (fed < ids.length) throw host.stopped(signal, hosted);
    },
    withRoom: use => host.withRoom(use),
  })),
  generate: host.inOrder(async ({ ids, options, emitTokens, emitPrompt }, { signal, emit, pull }, hosted) => {
    if (options.grammar) await loadGrammars(host, pull);
    const chosen = { ...options, speculate: options.speculate ?? host.speculation };
    return generate(host.engine, hosted.session, ids, chosen, {
      emit: text => text && emit('text', text),
      onToken: emitTokens ? token => emit('token', token) : undefined,
      aborted: () => host.isStopped(signal, hosted),
      onPrompt: emitPrompt ? progress => emit('prompt', progress) : undefined,
      feed: (rest, onFed) => host.feed(hosted, rest, signal, onFed),
      withRoom: use => host.withRoom(use),
    });
  }),
});

/** Makes grammars possible.  Several answers may begin at the same time.
 * @param {Host} host @param {Call['pull']} pull */
function loadGrammars(host, pull) {
  host.grammars ??= pull('plumb-grammar').then(module => host.engine.loadGrammars(module)).catch(error => {
    host.grammars = undefined;
    throw error;
  });
  return host.grammars;
}

/** The adapters in use, as a session takes them. @param {Host} host */
const adapterUses = host => host.adaptersInUse.map(({ id, ...use }) => {
  const adapter = host.adapters.get(id);
  if (!adapter) throw new PlumbError('PLUMB_ERROR_ARGUMENT', 'setAdapters: an adapter was freed');
  return { ...use, pointer: adapter.pointer };
});

/** Makes all sessions use adapters. @param {Host} host @param {Host['adaptersInUse']} uses */
function useAdapters(host, uses) {
  host.adaptersInUse = uses;
  const all = adapterUses(host);
  for (const hosted of host.sessions) host.withRoom(() => hosted.setAdapters(all));
}

/** Reads a file that is used beside the model, again if that has failed and may succeed.
 * @template {Omit<ReturnType<Engine['createDraft']>, 'end'>} T @template R @param {Host} host @param {Parts} parts
 * @param {Call} call @param {() => T} create  a sink for its bytes @param {(sink: T) => R} end
 * @returns {Promise<R>} */
async function loadBehind(host, parts, call, create, end) {
  try {
    for (;;) {
      const sink = create();
      try {
        for await (const _ of parts.read(sink)) {
          await yieldToEventLoop();
          if (host.isStopped(call.signal)) throw host.stopped(call.signal);
        }
        const result = end(sink);
        parts.meter.emit('ready');
        return result;
      } catch (thrown) {
        const error = await parts.findCause(host.hosted.asMemoryError(thrown, parts.meter.total));
        sink.free();
        if (!await parts.prepareRetry(error)) throw error;
      }
    }
  } catch (error) {
    await parts.abandon(error);
    throw error;
  }
}

/** The calls of adapters and of a draft model. @param {Host} host @param {Platform} platform @returns {Methods} */
const adapting = (host, platform) => ({
  /** @param {import('../loader/parts.js').LoadArgs & {id: number}} args  id: a new number */
  loadAdapter: host.alone(({ id, ...args }, call) =>
    loadBehind(host, new Parts(args, call, platform), call, () => host.engine.createAdapter(), adapter => {
      const kind = adapter.end();
      host.adapters.set(id, adapter);
      return kind;
    })),
  /** @param {import('../loader/parts.js').LoadArgs} args */
  loadDraft: host.alone((args, call) => loadBehind(host, new Parts(args, call, platform), call,
    () => host.engine.createDraft(), draft => host.withRoom(() => draft.end()))),
  setAdapters: host.alone((/** @type {{uses: Host['adaptersInUse']}} */ { uses }) => {
    const before = host.adaptersInUse;
    if (JSON.stringify(uses) === JSON.stringify(before)) return;
    try {
      useAdapters(host, uses);
    } catch (error) {
      useAdapters(host, before);   // those that were set; they fitted before
      throw error;
    }
  }),
  freeAdapter: host.alone((/** @type {{id: number}} */ { id }) => {
    if (host.adaptersInUse.some(use => use.id === id)) {
      throw new PlumbError('PLUMB_ERROR_STATE', 'the adapter is in use; setAdapters([]) ends that');
    }
    host.adapters.get(id)?.free();
    host.adapters.delete(id);
  }),
});

/** @param {Host} host @param {Call} call @returns {import('./embed.js').Run} */
const embedding = (host, { signal, emit }) => ({
  pause: async () => {
    await yieldToEventLoop();
    if (host.isStopped(signal)) throw host.stopped(signal);
  },
  emit: progress => emit('progress', progress),
  withRoom: use => host.withRoom(use),
});
