/* The engine's side of the protocol: one function for each method, around one Engine.  It runs in a worker
 * (engine-worker.js) or in the caller's own thread (protocol.js, class Local).  Long work yields to the event loop
 * between its pieces, so that an abort can arrive.  Calls that change the session run one after the other.
 *
 * A host serves one load or one preflight, which is its first call.  Other calls may follow only if a load has
 * succeeded, but close may come at any time, and more than once. */
import { ReasoningMeter } from './budget.js';
import { PlumbError } from '../base/errors.js';
import { StartOver } from '../loader/download.js';
import { Parts } from '../loader/parts.js';
import { embed, rank } from './embed.js';
import { Engine } from './engine.js';
import { decode as textOf } from './instance.js';
import { preflight } from './preflight.js';
import { StopFilter } from './stop.js';
import { Templates } from './templates.js';
import { MAX_MEMORY, Threads, returnMemory, takeMemory } from './threads.js';

/** @typedef {import('../base/protocol.js').Call} Call
 * @typedef {import('../base/protocol.js').Methods} Methods
 * @typedef {import('../loader/source.js').Platform} Platform
 * @typedef {import('./engine.js').SessionArgs} SessionArgs */
/** @typedef {object} Stats
 * @property {number} promptTokens
 * @property {number} reusedTokens  those of promptTokens that were still in the session
 * @property {number} tokens  how many were generated
 * @property {number} forcedTokens  those of tokens that were not sampled, because a grammar left no choice
 * @property {number} prefillSeconds
 * @property {number} decodeSeconds
 * @property {number} prefillRate  tokens per second over the prompt tokens that were computed, which are fewer than
 *   promptTokens - reusedTokens if the prompt was stopped
 * @property {number} decodeRate  single-token steps per second (the first token comes out of the prefill)
 * @property {'stop' | 'length' | 'abort'} finishReason  'stop': the model or a stop string ended the text; 'length':
 *   maxTokens is reached or the context is full; 'abort': the signal ended it, the caller left the loop or closed the
 *   model
 * @property {number | bigint} seed
 * @property {string[]} [warnings]  what is not kept of a schema with strict: false, each with its JSON pointer */

/** Milliseconds of loading after which the host yields to the event loop. */
const SLICE = 30;
/** Tokens that a trace feeds at once.  Each takes about 40 ms, and an abort waits for all of them. */
const TRACED = 8;
/** How many times a preflight reads the headers at most.  It starts again if a file changes meanwhile. */
const PASSES = 3;

/** Yields to the event loop once; setTimeout would wait 4 ms each time.
 * @type {() => Promise<void>} */
const yieldToEventLoop = typeof setImmediate === 'function' ? () => new Promise(resolve => setImmediate(resolve))
  : (() => {
    const { port1, port2 } = new MessageChannel();
    /** @type {(() => void)[]} */
    const waiting = [];
    port1.onmessage = () => waiting.shift()?.();
    return () => new Promise(resolve => {
      waiting.push(resolve);
      port2.postMessage(0);
    });
  })();

/** @param {Platform} platform @returns {Methods} */
export function createHost(platform) {
  /** @type {Engine | undefined} */
  let engine;
  /** @type {Threads | undefined} */
  let workers;
  /** The memory of an engine with threads. @type {import('./threads.js').SharedMemory | undefined} */
  let shared;
  const templates = new Templates();
  /** The variant that runs, and how many bytes the engine's memory can have. */
  let moduleName = '', memoryLimit = 0;
  /** The end of the queue of inOrder: resolves when the call that was made last has ended, and never rejects.
   * @type {Promise<unknown>} */
  let last = Promise.resolve();
  /** close() aborts this to end the calls in the queue, whose own signals only their callers can abort. */
  const closing = new AbortController();

  const ready = () => {
    if (!engine) throw new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
    return engine;
  };
  /** Frees the engine at once.  When the promise resolves, its threads have ended, if this platform reports that. */
  const free = async () => {
    const used = engine?.free(), ended = workers?.terminate(), memory = shared;
    engine = workers = shared = undefined;
    if ((await ended ?? true) && memory && used !== undefined) returnMemory(memory, used);
  };
  /** Throws the error of a method.  A trap (RuntimeError) or an overflow of JavaScript's stack inside the module
   * (RangeError) leaves the instance in an unknown state, so the engine is freed.  A RangeError does not say where it
   * was thrown, so any that arrives here counts as such an overflow.  Those that a load or a preflight throws because
   * memory is short do not arrive: asMemoryError replaces them.
   * @param {unknown} error @returns {never} */
  const fail = error => {
    if (error instanceof WebAssembly.RuntimeError || error instanceof RangeError) {
      free();
      throw new PlumbError('PLUMB_ERROR', `the engine crashed (${error.message}); load the model again`);
    }
    throw error;
  };
  /** @template {Methods[string]} F @param {F} method @returns {F} */
  const direct = method => /** @type {F} */ (async (args, call) => {
    try {
      return await method(args, call);
    } catch (error) {
      return fail(error);
    }
  });
  /** As direct, but the method runs only after all earlier calls of this kind have ended. @template {Methods[string]} F
   * @param {F} method @returns {F} */
  const inOrder = method => /** @type {F} */ ((args, call) => {
    const result = last.then(() => direct(method)(args, call));
    last = result.catch(() => {});
    return result;
  });
  /** Feeds ids in batches.  Returns how many were fed, which is fewer than all if the signal ended it.
   * @param {Engine} engine @param {Int32Array} ids @param {AbortSignal} signal
   * @param {(at: number, end: number) => void} [step]  feeds a batch, ids [at, end)
   * @param {number} [n]  tokens in a batch */
  const feed = async (engine, ids, signal, step = (at, end) => engine.feed(ids.subarray(at, end)),
    n = engine.batch) => {
    for (let at = 0; at < ids.length; at += n) {
      await yieldToEventLoop();
      if (signal.aborted || closing.signal.aborted) return at;
      step(at, Math.min(at + n, ids.length));
    }
    return ids.length;
  };
  /** As feed, but throws if the signal ended it. @type {(...args: Parameters<typeof feed>) => Promise<void>} */
  const feedAll = async (engine, ids, signal, step, n) => {
    if (await feed(engine, ids, signal, step, n) < ids.length) throw stopped(signal);
  };
  /** Why a call ends early. @param {AbortSignal} signal */
  const stopped = signal => signal.reason ?? new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
  /** @param {Call} call @returns {import('./embed.js').Run} */
  const embedding = ({ signal, emit }) => ({
    pause: async () => {
      await yieldToEventLoop();
      if (signal.aborted || closing.signal.aborted) throw stopped(signal);
    },
    emit: progress => emit('progress', progress),
  });

  /** Turns a RangeError of a load or a preflight into PLUMB_ERROR_MEMORY: JavaScript has failed to allocate memory, and
   * the engine has not crashed.  Returns any other error as it is, including the RangeError of a stack overflow.
   * @param {unknown} error @param {number} [total]  bytes of the model */
  const asMemoryError = (error, total) => {
    if (!(error instanceof RangeError) || /call stack/i.test(error.message)) return error;
    const held = engine?.bytes ?? 0, of = total === undefined ? '' : ` of ${total} bytes`;
    return new PlumbError('PLUMB_ERROR_MEMORY', `no memory for the model${of}; the engine holds ${held} bytes: `
      + error.message, { held, ...total !== undefined && { total } });
  };
  /** Creates an engine without a model, and sets the variables at the top.  Its threads start while the model arrives.
   * @param {import('./variant.js').Variant} variant @param {AbortSignal} signal
   * @returns {Promise<Engine>} */
  const createEngine = async ({ module, name, threads }, signal) => {
    signal.throwIfAborted();
    moduleName = name;
    shared = threads > 1 ? takeMemory() : undefined;
    const memory = shared?.memory;
    memoryLimit = shared?.limit ?? MAX_MEMORY;
    const created = engine = await Engine.create(module, memory);
    if (memory && platform.startThread) {
      const setups = Array.from({ length: threads - 1 }, (_, i) =>
        ({ module, memory, stack: created.createStack(), thread: i + 1 }));
      workers = new Threads(platform.startThread, setups);
    }
    return created;
  };
  /** Lets the threads serve.  Must be called before a session is opened, because a session keeps the number of threads
   * that there are when it is opened.  Returns why there is only one thread although more were requested, otherwise
   * undefined.
   * @param {import('./variant.js').Variant} variant @returns {Promise<string | undefined>} */
  const enableThreads = async ({ threads, note }) => {
    if (!workers) return note;
    const failure = await workers.failure;
    if (!failure) {
      workers.serve();
      ready().setThreads(threads);
    }
    return failure;
  };
  /** Creates an engine and loads the model into it. @param {import('./variant.js').Variant} variant
   * @param {Parts} parts @param {SessionArgs} args @param {Call} call */
  const build = async (variant, parts, { contextLength, precision, kvType }, call) => {
    const engine = await createEngine(variant, call.signal);
    const { meter, warnings } = parts;
    let slice = performance.now();
    /** @type {ReturnType<Engine['metadata']> | undefined} */
    let metadata, isSized = false;   // isSized: the sizes of all parts were known when makeRoom was last called
    const makeRoom = () => {
      isSized = meter.total !== undefined;
      // The engine knows only the tensors of the first file, so for several files it gets the size of all.
      engine.checkRoom(memoryLimit, meter.sizes.length > 1 ? meter.total : 0, contextLength, kvType);
      engine.reserve(meter.left ?? 0);
    };
    for await (const _ of parts.read(engine)) {
      if (!metadata && engine.hasHeader) {   // the weights are still arriving
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
    const note = await enableThreads(variant);
    engine.openSession(contextLength, precision, kvType);
    const { bos, eos } = engine;
    const text = (/** @type {number} */ id) => id < 0 ? '' : engine.piece(id, true);
    if (note) warnings.push({ code: 'threads', message: `1 thread: ${note}` });
    if (variant.slower) warnings.push({ code: 'module', message: variant.slower });
    meter.emit('ready');
    return { metadata, bosText: text(bos), eosText: text(eos), warnings };
  };

  return {
    /** @param {import('../loader/parts.js').LoadArgs & SessionArgs} args */
    async load(args, call) {
      const parts = new Parts(args, call, platform);
      try {
        const variant = await Promise.race([call.pull('module'), parts.aborted]);
        for (;;) {
          try {
            return await build(variant, parts, args, call);
          } catch (thrown) {
            const error = await parts.findCause(asMemoryError(thrown, parts.meter.total));
            await free();
            if (!await parts.prepareRetry(error)) throw error;
          }
        }
      } catch (error) {
        await parts.abandon(error);
        return fail(error);
      }
    },
    /** @param {import('./preflight.js').PreflightArgs} args */
    async preflight(args, call) {
      try {
        const variant = await call.pull('module');
        for (let pass = 1; ; pass++) {
          try {
            const engine = await createEngine(variant, call.signal);
            return await preflight({
              engine, memoryLimit, enableThreads: () => enableThreads(variant), yieldToEventLoop, platform, call,
            }, args);
          } catch (thrown) {
            const error = asMemoryError(thrown);   // while there is an engine whose memory it can count
            if (!(error instanceof StartOver)) throw error;
            // The requests may have read different files, so all headers are read again.  Bytes that were pulled
            // cannot be read a second time.
            if (pass < PASSES && args.parts.every(({ kind }) => kind !== 'pull')) continue;
            throw new PlumbError('PLUMB_ERROR_IO', `${error.message} (while its header was being read)`);
          } finally {
            await free();
          }
        }
      } catch (error) {
        return fail(asMemoryError(error));
      }
    },
    info: direct(() => ({ ...ready().info(), module: moduleName })),
    tokenize: direct(({ text, addSpecial, parseSpecial }) => ready().tokenize(text, addSpecial, parseSpecial)),
    detokenize: direct(({ ids, special }) => ready().detokenize(ids, special)),
    /** How a template's models write their answers. */
    format: (about, { pull }) => templates.use(about, () => pull('plumb-template'), ({ format }) => format),
    /** The text of the prompt that a template makes of a chat. */
    render: ({ json, ...about }, { pull }) =>
      templates.use(about, () => pull('plumb-template'), template => textOf(template.render(json).text)),
    /** The tokens of that prompt. */
    renderTokens: direct(async ({ json, ...about }, { pull }) => {
      const prompt = await templates.use(about, () => pull('plumb-template'), template => template.render(json));
      return ready().tokenizePrompt(prompt);
    }),
    feed: inOrder(async ({ ids }, { signal }) => {
      const engine = ready();
      await feedAll(engine, ids, signal);
      return engine.logits();
    }),
    /** Empties the session, feeds ids in batches, and returns the records of all batches as one trace.  With
     * `emitTaps` it also emits the records of each batch. */
    trace: inOrder(async ({ ids, options, emitTaps }, { signal, emit }) => {
      const engine = ready();
      engine.rewind(0);
      /** @type {import('./engine.js').TraceDocument | undefined} */
      let whole;
      await feedAll(engine, ids, signal, (at, end) => {
        const trace = engine.trace(ids, at, end, options);
        if (emitTaps) emit('taps', trace.taps);
        if (!whole) whole = trace;
        else for (const tap of trace.taps) whole.taps.push(tap);
      }, TRACED);
      return whole;
    }),
    rewind: inOrder(async ({ position }, { signal }) => {
      const engine = ready();
      await feedAll(engine, engine.rewind(position), signal);
    }),
    embed: inOrder(({ texts, options }, call) => embed(ready(), texts, options, embedding(call))),
    rank: inOrder(({ query, texts, options }, call) => rank(ready(), query, texts, options, embedding(call))),
    generate: inOrder(async ({ ids, options, emitTokens }, { signal, emit, pull }) => {
      if (options.grammar && !ready().hasGrammars) await ready().loadGrammars(await pull('plumb-grammar'));
      return generate(ready(), ids, options, {
        emit: text => text && emit('text', text),
        onToken: emitTokens ? token => emit('token', token) : undefined,
        aborted: () => signal.aborted || closing.signal.aborted,
        feed: rest => feed(ready(), rest, signal),
      });
    }),
    async close() {
      closing.abort();
      await last;
      await free();
    },
  };
}

/** @typedef {{maxTokens?: number, stop?: string | string[], logprobs?: number, special?: string[],
 *   budget?: import('./budget.js').Budget} & import('./engine.js').Sampling
 *   & {grammar?: import('./engine.js').Grammar}} GenerateOptions */

/** Feeds the prompt, then samples tokens and feeds them back, one at a time.  A token is fed only if the next one is to
 * be sampled.  So if the text ends because the model ends the turn, the session holds the prompt and all tokens of the
 * text; if it ends for another reason, the last of these tokens is missing, and forced tokens before it.  The token
 * that ends the turn is not part of the text: it is neither fed nor counted.
 * @param {Engine} engine @param {Int32Array} ids  the prompt
 * @param {GenerateOptions} options
 * @param {{emit: (text: string) => void, onToken?: (token: import('./engine.js').GeneratedToken) => void,
 *   aborted: () => boolean, feed: (ids: Int32Array) => Promise<number>}} run
 * @returns {Promise<Stats>} */
async function generate(engine, ids, options, run) {
  if (ids.length === 0) throw new PlumbError('PLUMB_ERROR_ARGUMENT', 'the prompt is empty');
  if (ids.length > engine.contextLength) {
    throw new PlumbError('PLUMB_ERROR_CONTEXT', `the prompt has ${ids.length} tokens, but the context holds `
      + `${engine.contextLength}; shorten it or load the model with a larger contextLength`,
    { promptTokens: ids.length, contextLength: engine.contextLength });
  }
  const seed = options.seed ?? crypto.getRandomValues(new Uint32Array(1))[0];
  const sampler = engine.createSampler({ ...options, seed }, run.onToken !== undefined);
  const stops = new StopFilter([options.stop ?? []].flat());
  const shown = new Set((options.special ?? []).flatMap(text => [...engine.tokenize(text, false, true)])
    .filter(id => engine.piece(id, false) === ''));
  const meter = options.budget && new ReasoningMeter(options.budget);
  /** Tokens that come next, whatever the model would say. @type {number[]} */
  const forced = [];
  /** Tokens of the text that are not fed yet.  Forced tokens are fed together with the token before them, because
   * nobody needs the logits between them, unless they are to be described. @type {number[]} */
  let unfed = [];
  const maxTokens = options.maxTokens ?? Infinity;
  const start = performance.now();
  let reused = 0, computed = 0, tokens = 0, forcedTokens = 0, steps = 0, prefillEnd = start;
  /** @type {Stats['finishReason'] | undefined} */
  let reason;
  try {
    if (run.aborted()) reason = 'abort';
    else {
      reused = engine.reuse(ids);
      computed = await run.feed(ids.subarray(reused));
      if (computed < ids.length - reused) reason = 'abort';
    }
    prefillEnd = performance.now();
    ids.forEach(sampler.accept);
    engine.beginText();
    const force = () => {
      const ids = sampler.forced();
      forced.push(...ids);
      forcedTokens += ids.length;
    };
    force();
    while (!reason) {
      if (meter?.isSpent && forced.length === 0) {
        forced.push(...engine.tokenize(meter.end, false, true));
        sampler.follow(forced);
      }
      const id = forced.shift() ?? sampler.sample();
      if (id < 0 && sampler.isComplete()) {   // the vocabulary has no token that ends a turn
        reason = 'stop';
        break;
      }
      if (id < 0) {
        throw engine.logits().some(logit => logit > -Infinity)
          ? new PlumbError('PLUMB_ERROR_ARGUMENT', `no token can be sampled: ${options.grammar
            ? 'the grammar and logitBias forbid' : 'logitBias forbids'} all of them; allow at least one`)
          : new PlumbError('PLUMB_ERROR_TENSOR', 'no token can be sampled: all logits are NaN or -infinity, '
            + 'so the weights are damaged; run plumb selfcheck to find where');
      }
      run.onToken?.(engine.describeToken(id, options.logprobs ?? 0, sampler.nextSet()));
      if (engine.endsTurn(id)) {
        reason = 'stop';
        break;
      }
      sampler.accept(id);
      tokens++;
      meter?.push(engine.piece(id, true));
      run.emit(stops.push(engine.pushToken(id, shown.has(id))));
      await yieldToEventLoop();
      unfed.push(id);
      if (forced.length === 0) force();
      if (stops.stopped) reason = 'stop';
      else if (tokens >= maxTokens || engine.position + unfed.length > engine.contextLength) reason = 'length';
      else if (run.aborted()) reason = 'abort';
      else if (forced.length === 0 || run.onToken) {
        engine.feed(unfed);
        unfed = [];
        steps++;
      }
    }
    if (!stops.stopped) {
      if (reason === 'stop') run.emit(stops.push(engine.flushText()));   // otherwise a character was cut off
      run.emit(stops.flush());
    }
  } finally {
    sampler.free();
  }
  const prefill = (prefillEnd - start) / 1000, decode = (performance.now() - prefillEnd) / 1000;
  return {
    promptTokens: ids.length, reusedTokens: reused, tokens, forcedTokens: forcedTokens - forced.length,
    prefillSeconds: prefill, decodeSeconds: decode,
    prefillRate: prefill > 0 ? computed / prefill : 0, decodeRate: decode > 0 ? steps / decode : 0,
    finishReason: reason, seed, ...sampler.warnings.length > 0 && { warnings: sampler.warnings },
  };
}
