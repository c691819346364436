/* What a load would meet, from the headers of a model's files alone: can it run, what memory does it take, how fast is
 * it here?  Nothing is estimated that can be asked of the engine: it opens the very session that a load would open, on
 * weights of zeros (plumb_model_rehearse), and its passes are timed. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { Download } from '../loader/download.js';
import { sum } from '../loader/progress.js';
import { read } from '../loader/source.js';
import { Damaged, Sums } from '../loader/sums.js';

/** @typedef {object} Preflight
 * @property {boolean} supported  plumb can run it; whether there is memory for it here, `fits` says
 * @property {{code: string, message: string}[]} problems  why it is not supported
 * @property {string} [name]  as the file says
 * @property {string} [architecture]
 * @property {number} [parameters]
 * @property {number} [layers]
 * @property {number} [trainedContext]  tokens
 * @property {number} [contextLength]  tokens that a session would hold
 * @property {boolean} [chat]  whether it has a chat template
 * @property {{type: string, tensors: number, bytes: number}[]} types  of the tensors, most bytes first
 * @property {number} [fileBytes]  of all parts; undefined where a server does not say
 * @property {number} bytesRead  of all parts, to have their headers: less than twice as many, or 64 KiB each
 * @property {MemoryPlan} [memory]  undefined if it is not supported
 * @property {boolean} [fits]  whether a module can have that memory here; undefined if it is not supported
 * @property {number} threads  that would compute
 * @property {string} [threadsNote]  why not more
 * @property {{decode: number, prefill: number}} [speed]  expected tokens per second with these threads: of answers, and
 *   of prompts; undefined if it was not asked for, does not fit or is not supported */
/** @typedef {object} MemoryPlan  in bytes
 * @property {number} weights  all tensors, as large as in the file
 * @property {number} kv  keys and values of contextLength tokens
 * @property {number} scratch  what else a session holds; 0 where there was no memory to open one
 * @property {number} module  program, vocabulary, and what is set aside for more
 * @property {number} total  linear memory after a load, to some pages of 64 KiB: the sum of these
 * @property {number} limit  that a module can have here at most.  Where the model does not fit it was tried, and is
 *   what the system gave.  Where it fits nothing more is taken to try: with threads it is the addresses that were set
 *   aside, with one thread the 4 GiB that a module can address; the system may have less than either
 * @property {number} [device]  of this machine, as far as it tells: browsers never say more than 8 GiB */

/** The first request's bytes; each further one asks for as many as have come. */
const FIRST_BYTES = 1 << 16;
/** Milliseconds for which passes are timed, and tokens of the prompts among them. */
const MEASURE = 500, PROMPT = 64;
/** Tokens, as plumb_session_params has it. */
const DEFAULT_CONTEXT = 2048;
/** As INITIAL_MEMORY of wasm/toolchain.mk has it. */
const START_BYTES = 1 << 24;

/** @typedef {object} Work  what host.js lends
 * @property {import('./engine.js').Engine} engine  new
 * @property {number} most  bytes that its memory may have
 * @property {() => Promise<string | undefined>} ready  once its threads serve, or why they do not
 * @property {() => Promise<void>} turn  of the event loop
 * @property {import('../loader/source.js').Platform} platform
 * @property {import('../base/protocol.js').Call} call */

/** @typedef {{parts: import('../loader/source.js').Part[], measure: boolean}
 *   & import('./engine.js').SessionArgs} PreflightArgs */

/** @param {Work} work @param {PreflightArgs} args
 * @returns {Promise<Preflight>} */
export async function preflight({ engine, most, ready, turn, platform, call }, args) {
  /** @type {Preflight} */
  const plan = { supported: false, problems: [], types: [], bytesRead: 0, threads: 1 };
  let room = { fits: false, canRun: false };
  /** Of the part that was read last. */
  const copy = { check: async () => {} };
  try {
    engine.headersOnly();
    await readHeaders(engine, args.parts, plan, copy, platform, call);
    describe(engine, plan);
    await turn();
    room = engine.rehearse();
    plan.supported = true;
  } catch (error) {
    if (error instanceof Damaged) throw damaged(error);
    if (!(error instanceof PlumbError) || error.code === 'PLUMB_ERROR_IO') throw error;
    await copy.check().catch(error => { throw damaged(error); });
    plan.problems.push({ code: error.code, message: error.message });
    return plan;
  }
  plan.threadsNote = await ready();
  call.signal.throwIfAborted();
  planMemory(engine, plan, most, room.fits, args);
  if (args.measure && plan.fits && room.canRun) plan.speed = await measure(engine, turn, call.signal);
  return plan;
}

/** @param {unknown} error */
const damaged = error => new PlumbError('PLUMB_ERROR_IO', `the copy on this machine is damaged: ${reasonOf(error)}`);

/** @param {import('./engine.js').Engine} engine @param {import('../loader/source.js').Part[]} parts
 * @param {Preflight} plan
 * @param {{check: () => Promise<void>}} copy  its check throws if the bytes of a copy that the engine got, perhaps
 *   before their chunk had ended, are not those that were downloaded
 * @param {import('../loader/source.js').Platform} platform @param {import('../base/protocol.js').Call} call */
async function readHeaders(engine, parts, plan, copy, { openFile, oneBuffer, pause, silence }, call) {
  const sizes = parts.map(({ size }) => size), { signal } = call;
  // The header of a file that was cut into pieces may announce more than the first of them has.
  const begin = (/** @type {number | undefined} */ size) => engine.begin(parts.length === 1 ? size : undefined);
  for (const [i, part] of parts.entries()) {
    if (part.kind === 'url') {
      // Ranges of a server that proves nothing are joined, unless something tells that the file has changed.
      const download = new Download(part.url, {
        signal, pause, silence, oneBuffer, range: FIRST_BYTES, checked: true, cache: 'default',
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
      const pull = () => call.pull(i), own = part.kind === 'file' ? undefined : part.sums;
      const sums = own && new Sums(engine.digest, own, part.size);
      copy.check = async () => sums?.endChunk(async (at, end) =>
        part.kind === 'blob' ? new Uint8Array(await part.blob.slice(at, end).arrayBuffer()) : pull());
      begin(part.size);
      for await (const n of read(engine, part, { pull, openFile, oneBuffer, hash: sums })) {
        signal.throwIfAborted();
        plan.bytesRead += n;
        if (!engine.needsBytes) break;
      }
    }
    // Of one file that was cut into pieces the others have no header.
    if (engine.hasHeader && !(Number(engine.metadata()['split.count']) > 1)) break;
  }
  plan.fileBytes = sum(sizes);
}

/** What the keys say, also of what cannot run. @param {import('./engine.js').Engine} engine @param {Preflight} plan */
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

/** @param {import('./engine.js').Engine} engine @param {Preflight} plan
 * @param {number} most  as Work has it
 * @param {boolean} weightsFit  what the engine holds is what all weights need @param {PreflightArgs} args */
function planMemory(engine, plan, most, weightsFit, { contextLength, precision, kvType }) {
  let opened = false;
  try {
    engine.openSession(contextLength, precision, kvType);
    opened = true;
  } catch (error) {
    if (!(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_MEMORY') throw error;
  }
  const { parameters, weightBytes: weights, trainedContext } = engine.modelInfo();
  plan.parameters = parameters;
  plan.contextLength = contextLength ?? Math.min(trainedContext, DEFAULT_CONTEXT);
  const kv = engine.kvBytes(plan.contextLength, kvType ?? 'i16');
  const { sessionBytes = kv, threads = 1 } = opened ? engine.info() : {};
  const scratch = sessionBytes - kv;
  plan.threads = threads;
  plan.fits = weightsFit && opened;
  const total = plan.fits ? engine.bytes : START_BYTES + weights + sessionBytes;
  plan.memory = {
    weights, kv, scratch, module: total - weights - sessionBytes, total,
    limit: plan.fits ? most : engine.exhaust(), device: deviceMemory(),
  };
}

/** @returns {number | undefined} */
function deviceMemory() {
  const { deviceMemory } = /** @type {{deviceMemory?: number}} */ (globalThis.navigator ?? {});
  return deviceMemory === undefined ? undefined : deviceMemory * 2 ** 30;
}

/** Passes like those of a chat, the fastest of each kind: an engine runs code slowly at first, and others compute too.
 * @param {import('./engine.js').Engine} engine @param {() => Promise<void>} turn @param {AbortSignal} signal */
async function measure(engine, turn, signal) {
  const n = Math.min(PROMPT, engine.batch, engine.contextLength - 1), prompt = new Int32Array(n);
  const timed = (/** @type {ArrayLike<number>} */ ids) => {
    const start = performance.now();
    engine.feed(ids);
    return (performance.now() - start) / 1000;
  };
  let decode = Infinity, prefill = 0;
  const end = performance.now() + MEASURE;
  do {
    engine.rewind(0);
    // A large model has no time for a long prompt: a shorter one says nearly as much.
    const fed = decode * n * 500 > MEASURE ? Math.min(n, 8) : n;
    prefill = Math.max(prefill, fed / timed(prompt.subarray(0, fed)));
    for (let i = 0; i < 4 && engine.position < engine.contextLength; i++) decode = Math.min(decode, timed([0]));
    await turn();
    signal.throwIfAborted();
  } while (performance.now() < end);
  return { decode: 1 / decode, prefill };
}
