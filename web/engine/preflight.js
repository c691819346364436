/* Predicts a load from the headers of a model's files alone: whether the model can run, how much memory it takes, and
 * how fast it is here.  Little is estimated: the engine opens the same session that a load would open, but on weights
 * that are all zero (plumb_model_rehearse), and its passes are timed. */
import { yieldToEventLoop } from '../base/async.js';
import { PlumbError, reasonOf } from '../base/errors.js';
import { Download } from '../loader/download.js';
import { sum } from '../loader/progress.js';
import { pulledFetch } from '../loader/request.js';
import { read } from '../loader/source.js';
import { Damaged, Sums, digestOf } from '../loader/sums.js';
import { INITIAL, PAGE } from './instance.js';

/** @typedef {object} Preflight
 * @property {boolean} supported  whether plumb can run the model; `fits` says whether there is memory for it here
 * @property {{code: string, message: string}[]} problems  why it is not supported
 * @property {string} [name]  general.name of the file, or else its general.basename
 * @property {string} [architecture]
 * @property {number} [parameters]
 * @property {number} [layers]
 * @property {number} [trainedContext]  tokens
 * @property {number} [contextLength]  tokens that a session would hold
 * @property {boolean} [chat]  whether the file has a chat template; without one, chats are put into ChatML
 * @property {boolean} [hasLogits]  as in ModelInfo; undefined if it is not supported
 * @property {typeof import('../base/parameters.js').POOLINGS[number]} [pooling]  as in ModelInfo, as above
 * @property {number} [dimensions]  as in ModelInfo, as above
 * @property {{type: string, tensors: number, bytes: number}[]} types  the types of the tensors, most bytes first
 * @property {number} [fileBytes]  bytes of all parts; undefined if the size of one is unknown
 * @property {number} bytesRead  bytes read from all parts to get their headers.  From a server that supports ranges
 *   these are, for each part, at most 64 KiB or twice the header's size, whichever is more
 * @property {MemoryPlan} [memory]  undefined if it is not supported
 * @property {boolean} [fits]  whether a module can have that memory here; undefined if it is not supported
 * @property {number} threads  how many would compute; 1 if no session could be opened
 * @property {string} [threadsNote]  why there are fewer than requested
 * @property {string} module  the variant of the module that would compute, such as plumb-mt-relaxed.  Those that end in
 *   -64 have 64-bit addresses, for models that do not fit into 4 GiB; they compute the same, but take longer
 * @property {string} [moduleNote]  why it is not the fastest one, although this host can run that
 * @property {{decode?: number, prefill: number}} [speed]  expected tokens per second with these threads: decode for
 *   answers, prefill for prompts and texts to embed; undefined if it was not requested, or the model does not fit or is
 *   not supported; decode is undefined if the model only computes embeddings */
/** @typedef {object} MemoryPlan  in bytes
 * @property {number} weights  all tensors, with the sizes they have in the file
 * @property {number} kv  keys and values of contextLength tokens
 * @property {number} scratch  the rest of a session; 0 if there was no memory to open one
 * @property {number} module  everything else: the program's data and stacks, the vocabulary, and memory that is not in
 *   use yet
 * @property {number} total  linear memory after a load: the sum of the above.  If the model fits, this is measured, and
 *   exact to some pages of 64 KiB; otherwise it is estimated
 * @property {number} limit  the most that a module can have here.  If the model does not fit, this was tried out, and
 *   is what the system gave.  If it fits, nothing more is allocated to find out: with threads it is the address space
 *   that was reserved, with one thread what the module can address: 4 GiB, or 16 GiB with 64-bit addresses; the
 *   system may have less than either
 * @property {number} [device]  memory of this machine, if the host tells it; browsers never say more than 8 GiB */

/** Bytes of the first request; each further request asks for as many as have arrived. */
const FIRST_BYTES = 1 << 16;
/** MEASURE: milliseconds for which passes are timed.  PROMPT: the most tokens of a prompt that is timed. */
const MEASURE = 500, PROMPT = 64;

/** @typedef {object} Hosted  what holds the engine
 * @property {number} limit  bytes that the memory of the engine may grow to
 * @property {boolean} canWiden  whether another module could give it more memory
 * @property {(variant: import('./variant.js').Variant) => Promise<string | undefined>} enableThreads  lets the threads
 *   serve; resolves to the reason if they do not */
/** @typedef {object} Work  what host.js provides
 * @property {import('./engine.js').Engine} engine  a new one
 * @property {Hosted} hosted
 * @property {() => Promise<Pick<Work, 'engine' | 'variant'> | undefined>} widen  replaces the engine by one with 64-bit
 *   addresses that has read the same; undefined: this host has none
 * @property {import('./variant.js').Variant} variant  the module of the engine
 * @property {import('../loader/source.js').Platform} platform
 * @property {import('../base/protocol.js').Call} call */

/** @typedef {{parts: import('../loader/source.js').Part[], measure: boolean, fetches?: boolean, memory64?: boolean}
 *   & import('./engine.js').SessionArgs} PreflightArgs */

/** @param {Work} work @param {PreflightArgs} args
 * @returns {Promise<Preflight>} */
export async function preflight(work, args) {
  const { hosted, widen, platform, call } = work;
  let { engine, variant } = work;
  /** @type {Preflight} */
  const plan = { supported: false, problems: [], types: [], bytesRead: 0, threads: 1, module: variant.name,
    moduleNote: variant.slower };
  let room = { fits: false, canRun: false };
  /** check verifies the copy whose bytes the engine got last, if there is one.  readHeaders sets it.  digest is that
   * of the engine that there is. */
  const copy = { check: async () => {}, digest: digestOf(() => engine) };
  try {
    engine.headersOnly();
    engine.keepHeader();
    await readHeaders(engine, args, plan, copy, platform, call);
    describe(engine, plan);
    await yieldToEventLoop();
    const isLarge = args.memory64 || engine.needsWide({ limit: hosted.limit }, args);
    const wide = hosted.canWiden && isLarge && await widen();
    if (wide) {
      ({ engine, variant } = wide);
      plan.module = variant.name;
    }
    engine.forgetHeader();
    room = engine.rehearse();
    plan.supported = true;
  } catch (error) {
    if (error instanceof Damaged) throw damaged(error);
    if (!(error instanceof PlumbError) || error.code === 'PLUMB_ERROR_IO') throw error;
    // The engine refuses the bytes, which may be the fault of the copy that they came from.
    await copy.check().catch(error => {
      call.signal.throwIfAborted();
      throw damaged(error);
    });
    plan.problems.push({ code: error.code, message: error.message });
    return plan;
  }
  plan.threadsNote = await hosted.enableThreads(variant);
  call.signal.throwIfAborted();
  try {
    planMemory(engine, plan, hosted.limit, room.fits, args);
  } catch (error) {
    if (!(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_UNSUPPORTED') throw error;
    plan.supported = false;   // kvType cannot store its heads
    plan.problems.push({ code: error.code, message: error.message });
  }
  if (args.measure && plan.fits && room.canRun) plan.speed = await measure(engine, call.signal);
  return plan;
}

/** @param {unknown} error */
const damaged = error => new PlumbError('PLUMB_ERROR_IO', `the copy on this machine is damaged: ${reasonOf(error)}`);

/** Feeds each part to the engine up to the end of its header.  Sets bytesRead and fileBytes of the plan.
 *
 * A part that comes from a copy brings the digests of its chunks (sums.js).  A chunk can only be verified when all of
 * it has been read, but the engine gets its bytes before that.  So if the engine refuses bytes, copy.check reads the
 * rest of the chunk, and throws Damaged if its digest is wrong.
 * @param {import('./engine.js').Engine} engine @param {PreflightArgs} args
 * @param {Preflight} plan @param {{check: () => Promise<void>, digest: import('../loader/sums.js').Digest}} copy
 * @param {import('../loader/source.js').Platform} platform @param {import('../base/protocol.js').Call} call */
async function readHeaders(engine, { parts, fetches }, plan, copy, { openFile, oneBuffer, pause, silence }, call) {
  const sizes = parts.map(({ size }) => size), { signal } = call, fetch = fetches ? pulledFetch(call) : undefined;
  // If there are several parts, the engine gets no size, which would be that of all parts from this one on: they may be
  // pieces of one file, whose header announces more bytes than the first piece has.
  const begin = (/** @type {number | undefined} */ size) => engine.begin(parts.length === 1 ? size : undefined);
  for (const [i, part] of parts.entries()) {
    if (part.kind === 'url') {
      // checked: the ranges are joined even if nothing proves that they are of one file, unless something disproves it.
      const download = new Download(part, {
        signal, pause, silence, oneBuffer, range: FIRST_BYTES, checked: true, cache: 'default', fetch,
      });
      try {
        await download.open(0);
        const { certain, size } = download.facts;
        begin(certain ? size : undefined);
        for await (const chunk of download.chunks()) {
          plan.bytesRead += chunk.length;
          if (!engine.write(chunk)) break;
        }
      } finally {
        download.close();
      }
      sizes[i] = download.facts.size;
    } else {
      const pull = () => call.pull(i), expected = part.kind === 'file' ? undefined : part.sums;
      const sums = expected && new Sums(copy.digest, expected, part.size);
      copy.check = async () => sums?.endChunk(async (at, end) =>
        part.kind === 'blob' ? new Uint8Array(await part.blob.slice(at, end).arrayBuffer()) : pull());
      begin(part.size);
      for await (const n of read(engine, part, { pull, openFile, oneBuffer, hash: sums })) {
        signal.throwIfAborted();
        plan.bytesRead += n;
        if (!engine.needsBytes) break;
      }
    }
    // Only the files of a split model have a header each.  Other parts are pieces of one file, whose header is here.
    if (engine.hasHeader && !(Number(engine.metadata()['split.count']) > 1)) break;
  }
  plan.fileBytes = sum(sizes);
}

/** Fills in what the keys say, also for models that cannot run. @param {import('./engine.js').Engine} engine
 * @param {Preflight} plan */
function describe(engine, plan) {
  const metadata = engine.metadata();
  const text = (/** @type {string} */ key) => typeof metadata[key] === 'string' ? metadata[key] : undefined;
  const architecture = text('general.architecture');
  const number = (/** @type {string} */ key) => Number(metadata[`${architecture}.${key}`] ?? NaN) || undefined;
  Object.assign(plan, {
    name: text('general.name') ?? text('general.basename'), architecture, layers: number('block_count'),
    trainedContext: number('context_length'), chat: text('tokenizer.chat_template') !== undefined,
    types: engine.types(),
  });
}

/** Opens the session that a load would open, and fills in what it takes.  If it does not fit, the memory that a module
 * has from the start stands for `module` of the plan.
 * @param {import('./engine.js').Engine} engine @param {Preflight} plan
 * @param {number} memoryLimit  bytes that the engine's memory may grow to
 * @param {boolean} weightsFit  whether the engine has allocated memory for all weights @param {PreflightArgs} args */
function planMemory(engine, plan, memoryLimit, weightsFit, args) {
  const { contextLength, kvType, snapshots } = args;
  let opened = false;
  try {
    engine.openSession(args);
    opened = true;
  } catch (error) {
    if (!(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_MEMORY') throw error;
  }
  const { parameters, weightBytes: weights, hasLogits, pooling, dimensions } = engine.modelInfo();
  Object.assign(plan, { parameters, hasLogits, pooling, dimensions });
  plan.contextLength = opened ? engine.session.contextLength : contextLength ?? engine.defaultContext(kvType);
  const kv = engine.kvBytes(plan.contextLength, kvType ?? 'i16', snapshots);
  const { sessionBytes = kv, threads = 1 } = opened ? engine.session.info() : {};
  const scratch = sessionBytes - kv;
  plan.threads = threads;
  plan.fits = weightsFit && opened;
  const total = plan.fits ? engine.bytes : INITIAL * PAGE + weights + sessionBytes;
  plan.memory = {
    weights, kv, scratch, module: total - weights - sessionBytes, total,
    limit: plan.fits ? memoryLimit : engine.exhaust(), device: deviceMemory(),
  };
}

/** @returns {number | undefined}  in bytes */
export function deviceMemory() {
  const { deviceMemory } = /** @type {{deviceMemory?: number}} */ (globalThis.navigator ?? {});
  return deviceMemory === undefined ? undefined : deviceMemory * 2 ** 30;
}

/** Times passes like those of a chat and takes the fastest of each kind, because a JavaScript engine runs code slowly
 * at first, and other programs compute too.
 * @param {import('./engine.js').Engine} engine @param {AbortSignal} signal */
async function measure(engine, signal) {
  const { session } = engine, n = Math.min(PROMPT, session.batch, session.contextLength - 1);
  const prompt = new Int32Array(n);
  const { hasLogits, hasEncoder, vocabulary } = engine.modelInfo();
  let round = 0;
  const timed = (/** @type {Int32Array} */ ids, isPrompt = false) => {
    const start = performance.now();
    if (hasEncoder && isPrompt) session.encode(ids.fill(round++ % vocabulary));   // a text that it has not read
    else if (hasLogits) session.feed(ids);
    else session.embed([ids], 'mean');
    return (performance.now() - start) / 1000;
  };
  let decode = Infinity, prefill = 0;
  const end = performance.now() + MEASURE;
  do {
    session.rewind(0);
    // A long prompt takes too long with a large model; a shorter one gives nearly the same rate.  decode * n * 500 is
    // an estimate of the milliseconds that a prompt of n tokens takes, if each takes half as long as a single token.
    // The first prompt is short, because decode is not known yet: it is Infinity.
    const fed = decode * n * 500 > MEASURE ? Math.min(n, 8) : n;
    prefill = Math.max(prefill, fed / timed(prompt.subarray(0, fed), true));
    for (let i = 0; i < 4 && session.position < session.contextLength; i++) {
      decode = Math.min(decode, timed(prompt.subarray(0, 1)));
    }
    await yieldToEventLoop();
    signal.throwIfAborted();
  } while (performance.now() < end);
  return { ...hasLogits && { decode: 1 / decode }, prefill };
}
