/* What a load would meet, from the headers of a model's files alone: can it run, what memory does it take, how fast is
 * it here?  Nothing is estimated that can be asked of the engine: it opens the very session that a load would open, on
 * weights of zeros (plumb_model_rehearse), and its passes are timed. */
import { PlumbError, reasonOf } from './errors.js';
import { bytesOf, checkKind } from './loader/download.js';
import { read } from './loader/source.js';
import { streamChunks } from './loader/stream.js';

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
 * @property {number} total  linear memory after a load: the sum of these
 * @property {number} limit  that a module can have here at most
 * @property {number} [device]  of this machine, as far as it tells: browsers never say more than 8 GiB */

/** The first request's bytes; each further one asks for as many as have come. */
const FIRST_BYTES = 1 << 16;
/** Milliseconds for which passes are timed, and tokens of the prompts among them. */
const MEASURE = 500, PROMPT = 64;
/** Tokens, as plumb_session_params has it. */
const DEFAULT_CONTEXT = 2048;
/** As MAX_MEMORY and INITIAL_MEMORY of wasm/toolchain.mk have it. */
const PAGE = 1 << 16, MAX_PAGES = 65535, START_BYTES = 1 << 24;

/** @typedef {object} Work  what host.js lends
 * @property {import('./engine.js').Engine} engine  new
 * @property {() => Promise<string | undefined>} ready  once its threads serve, or why they do not
 * @property {() => Promise<void>} turn  of the event loop
 * @property {import('./host.js').Platform} platform
 * @property {import('./host.js').Call} call */

/** @typedef {{parts: import('./loader/source.js').Part[], measure: boolean}
 *   & import('./host.js').SessionArgs} PreflightArgs */

/** @param {Work} work @param {PreflightArgs} args
 * @returns {Promise<Preflight>} */
export async function preflight({ engine, ready, turn, platform, call }, args) {
  /** @type {Preflight} */
  const plan = { supported: false, problems: [], types: [], bytesRead: 0, threads: 1 };
  let room = { fits: false, canRun: false };
  try {
    engine.headersOnly();
    await readHeaders(engine, args.parts, plan, platform, call);
    describe(engine, plan);
    await turn();
    room = engine.rehearse();
    plan.supported = true;
  } catch (error) {
    if (!(error instanceof PlumbError) || error.code === 'PLUMB_ERROR_IO') throw error;
    plan.problems.push({ code: error.code, message: error.message });
    return plan;
  }
  plan.threadsNote = await ready();
  call.signal.throwIfAborted();
  planMemory(engine, plan, room.fits, args);
  if (args.measure && plan.fits && room.canRun) plan.speed = await measure(engine, turn, call.signal);
  return plan;
}

/** @param {import('./engine.js').Engine} engine @param {import('./loader/source.js').Part[]} parts
 * @param {Preflight} plan @param {import('./host.js').Platform} platform @param {import('./host.js').Call} call */
async function readHeaders(engine, parts, plan, { openFile, oneBuffer }, call) {
  /** @type {(number | undefined)[]} */
  const sizes = parts.map(({ size }) => size);
  let begun = -1;
  for (const [i, part] of parts.entries()) {
    const begin = (/** @type {number | undefined} */ size) => {
      if (begun === i) return;
      begun = i;
      sizes[i] = size;
      engine.begin(parts.length === 1 ? size : undefined);
    };
    if (part.kind === 'url') {
      for await (const { chunk, size } of headerChunks(part.url, call.signal, oneBuffer)) {
        begin(size);
        plan.bytesRead += chunk.length;
        if (!engine.write(chunk)) break;
      }
      begin(0);   // if nothing came
    } else {
      begin(part.size);
      for await (const n of read(engine, part, { pull: () => call.pull(i), openFile, oneBuffer })) {
        call.signal.throwIfAborted();
        plan.bytesRead += n;
      }
    }
    // Of one file that was cut into pieces the others have no header.
    if (engine.hasHeader && !(Number(engine.metadata()['split.count']) > 1)) break;
  }
  if (sizes.every(size => size !== undefined)) plan.fileBytes = sizes.reduce((sum, size) => sum + Number(size), 0);
}

/** The first bytes of a file, in ever larger ranges, until the caller has enough; of a server that knows no ranges as
 * they come.  size: of the file, if the server says it.  No answer is read beyond its range, and none may bring less
 * than the first asks for, but the one at the file's end: else there would be no end to the requests.
 * @param {string} url @param {AbortSignal} signal @param {boolean} [oneBuffer]  as Platform has it
 * @returns {AsyncGenerator<{chunk: Uint8Array, size?: number}>} */
async function* headerChunks(url, signal, oneBuffer) {
  for (let at = 0, size; ;) {
    const start = at, end = at + Math.max(FIRST_BYTES, at);
    /** @type {Response | undefined} */
    let response;
    try {
      response = await fetch(url, { signal, headers: { Range: `bytes=${at}-${end - 1}` } });
      const { status, headers, body } = response;
      const range = headers.get('Content-Range');
      if (status === 416 && (size === undefined || size === at)) return;   // it has no more bytes
      if (status !== 206 && (status !== 200 || at > 0)) {
        throw new PlumbError('PLUMB_ERROR_IO', `${url}: the server answered ${status} ${response.statusText}`.trim(),
          { url, status });
      }
      const [, first, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(range ?? '') ?? [];
      if (status === 206 && range !== null && Number(first) !== at) {
        throw new PlumbError('PLUMB_ERROR_IO', `${url}: asked for the bytes from ${at} on, the server answered with `
          + `"Content-Range: ${range}"`, { url, bytes: at });
      }
      size = bytesOf(status === 206 ? total : headers.get('Content-Encoding') ? null : headers.get('Content-Length'));
      for await (let chunk of body ? streamChunks(body, oneBuffer) : []) {
        if (at === 0) checkKind(url, response, chunk);
        if (status === 206) chunk = chunk.subarray(0, end - at);
        at += chunk.length;
        yield { chunk, size };
        if (status === 206 && at === end) break;
      }
      if (status === 200 || at === size || size === undefined && at - start < FIRST_BYTES) return;
      if (at - start < FIRST_BYTES) {
        throw new PlumbError('PLUMB_ERROR_IO', `${url}: asked for the bytes ${start} to ${end - 1} of ${size}, the `
          + `server sent ${at - start}`, { url, bytes: at });
      }
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof PlumbError) throw error;
      const what = response ? `the bytes stop after ${at}` : 'no connection';
      throw new PlumbError('PLUMB_ERROR_IO', `${url}: ${what}: ${reasonOf(error)}`, { url });
    } finally {
      response?.body?.cancel().catch(() => {});
    }
  }
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
 * @param {boolean} weightsFit  what the engine holds is what all weights need @param {PreflightArgs} args */
function planMemory(engine, plan, weightsFit, { contextLength, precision, kvType }) {
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
    limit: plan.fits ? MAX_PAGES * PAGE : largestMemory(), device: deviceMemory(),
  };
}

/** Bytes of the largest memory that can be had, to a factor of two. @returns {number} */
function largestMemory() {
  for (let pages = MAX_PAGES; pages > 1; pages >>= 1) {
    try {
      return new WebAssembly.Memory({ initial: pages, maximum: pages }).buffer.byteLength;
    } catch {
      // less, then
    }
  }
  return 0;
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
