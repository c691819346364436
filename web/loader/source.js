/* Where a model's bytes come from.  On the user's side describe() turns any source into parts; on the engine's side
 * read() moves each part's bytes into linear memory, chunk by chunk, straight from where they arrive:
 *
 *   url   the engine's side fetches it (url-file.js)   blob  the engine's side streams it (File, Blob)
 *   pull  the user's side hands over chunks        file  the engine's side reads it (Node; openFile of the host)
 *
 * No part is ever held as a whole. */
import { PlumbError, argumentError, reasonOf } from '../base/errors.js';
import { streamChunks } from './stream.js';

/** @typedef {Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array> | URL
 *   | string} OneSource
 * @typedef {OneSource | OneSource[]} Source  an array: the parts of one model, in order */
/** @typedef {{kind: 'url', name: string, size?: number, url: string}
 *   | {kind: 'blob', name: string, size: number, blob: Blob, sums?: string[]}
 *   | {kind: 'file', name: string, size: number, path: string}
 *   | {kind: 'pull', name: string, size?: number, sums?: string[]}} Part  what can be posted to a worker; sums: the
 *   digests of a copy (sums.js), for a preflight */
/** @typedef {{part: Part, next?: () => Promise<Uint8Array | null>, cancel?: () => unknown}} Described
 *   next, cancel: of a pull part, stay on the user's side */
/** @typedef {(path: string) => import('./copy-store.js').Handle} OpenFile */
/** @typedef {{update: (bytes: Uint8Array) => unknown}} Hash */
/** @typedef {object} Sink  what the bytes are moved into: an Engine
 * @property {(size?: number) => void} begin  a part, of that many bytes if it is known
 * @property {(fill: (target: Uint8Array) => number) => number} fill  has the next bytes written to their place; how
 *   many they were, or -1 when the part needs no more
 * @property {(chunk: Uint8Array) => boolean} write  false when the part needs no more bytes
 * @property {import('./sums.js').Digest} digest */
/** @typedef {object} Platform  what a host lends to a load
 * @property {() => import('../base/protocol.js').WorkerLike} [startThread]  a worker that runs join of threads.js
 * @property {OpenFile} [openFile]
 * @property {import('./copy-store.js').Store} [store]  for copies of what is downloaded
 * @property {import('./download.js').DownloadOptions['pause']} [pause]  before the next try
 * @property {import('./download.js').DownloadOptions['silence']} [silence]  before a connection is given up
 * @property {boolean} [oneBuffer]  whether streams fill a buffer that they are given faster than they make new ones */

/** Bytes of an array that are handed over at once: what a worker gets is a copy of this size, not of the file. */
const PIECE = 1 << 20;
/** Of the files of a split model, the first: NAME-00001-of-00003.gguf. */
const SPLIT = /-00001-of-(\d{5})\.gguf(?=$|[?#])/;
/** The most files that one name may stand for. */
const MOST_PARTS = 999;

/** @typedef {object} Sites
 * @property {(source: string | URL) => Part | {bytes: AsyncIterable<Uint8Array>}} locate  what a string or URL means on
 *   this host; bytes: it is a pipe
 * @property {boolean} postsBlobs  whether a Blob can be posted to a worker (in Node one of a file cannot) */

/** The first file of a split model stands for all. @param {string | URL} source @returns {(string | URL)[]} */
export function expand(source) {
  const count = Number(SPLIT.exec(String(source))?.[1] ?? 1);
  if (count <= 1) return [source];
  if (count > MOST_PARTS) {
    throw argumentError(`${source}: the name says that the model has ${count} parts; at most ${MOST_PARTS} are loaded`,
      { parts: count, limit: MOST_PARTS });
  }
  return Array.from({ length: count }, (_, i) =>
    String(source).replace(SPLIT, `-${String(i + 1).padStart(5, '0')}-of-$1.gguf`));
}

/** @param {Source} source @param {Sites} sites @returns {Described[]} */
export function describe(source, sites) {
  const all = Array.isArray(source) ? source
    : typeof source === 'string' || source instanceof URL ? expand(source) : [source];
  if (all.length === 0) throw argumentError('Plumb.load: the array of parts is empty');
  return all.map((one, i) => describeOne(one, all.length > 1 ? `part ${i + 1} of ${all.length}` : '', sites));
}

/** @param {OneSource} source @param {string} name @param {Sites} sites @returns {Described} */
function describeOne(source, name, sites) {
  if (typeof source === 'string' || source instanceof URL) {
    const found = sites.locate(source);
    return 'bytes' in found ? describeOne(found.bytes, String(source), sites) : { part: found };
  }
  if (source instanceof Blob) {
    const own = 'name' in source ? String(source.name) : name;
    if (sites.postsBlobs) return { part: { kind: 'blob', name: own, size: source.size, blob: source } };
    const { part, ...pull } = describeOne(source.stream(), own, sites);
    return { part: { .../** @type {Part & {kind: 'pull'}} */ (part), size: source.size }, ...pull };
  }
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
    const bytes = source instanceof ArrayBuffer ? new Uint8Array(source)
      : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    let at = 0;
    const next = async () => at < bytes.length ? bytes.subarray(at, at += PIECE) : null;
    return { part: { kind: 'pull', name, size: bytes.length }, next };
  }
  const isStream = typeof /** @type {any} */ (source)?.getReader === 'function';
  if (!isStream && typeof /** @type {any} */ (source)?.[Symbol.asyncIterator] !== 'function') {
    throw argumentError(`Plumb.load: ${name || 'the source'} is ${source === null ? 'null' : typeof source}, expected `
      + 'a URL, File, Blob, ReadableStream, Uint8Array, ArrayBuffer, or an array of those');
  }
  const title = name || 'the stream';
  if (isStream && /** @type {any} */ (source).locked) {
    throw argumentError(`Plumb.load: ${title} is locked: something else reads it`);
  }
  const { next, cancel } = isStream ? streamReader(source) : iteratorReader(source);
  let bytes = 0;
  const checked = async () => {
    let done, value;
    try {
      ({ done, value } = await next());
    } catch (error) {
      throw broken(title, bytes, undefined, error);
    }
    if (done) return null;
    if (!(value instanceof Uint8Array)) throw argumentError(`Plumb.load: ${title} gave a chunk that is no Uint8Array`);
    bytes += value.length;
    return value;
  };
  return { part: { kind: 'pull', name }, next: checked, cancel };
}

/** Takes the reader of a stream when the first chunk is asked for: until then the stream is the caller's, so that a
 * call that is refused leaves it as it was.  cancel ends the stream and gives its lock back.
 * @param {any} stream @returns {{next: () => any, cancel: () => Promise<void>}}  next may give anything */
function streamReader(stream) {
  /** @type {ReadableStreamDefaultReader | undefined} */
  let reader;
  let ended = false;
  return {
    next: () => ended ? { done: true } : (reader ??= stream.getReader()).read(),
    async cancel() {
      ended = true;
      if (!reader) return void await stream.cancel();
      await reader.cancel().finally(() => reader?.releaseLock());
    },
  };
}

/** The same of what can be iterated. @param {any} source @returns {{next: () => any, cancel: () => unknown}} */
function iteratorReader(source) {
  /** @type {AsyncIterator<unknown> | undefined} */
  let iterator;
  let ended = false;
  const begin = () => iterator ??= /** @type {AsyncIterator<unknown>} */ (source[Symbol.asyncIterator]());
  return {
    next: () => ended ? { done: true } : begin().next(),
    cancel() {
      ended = true;
      return begin().return?.();
    },
  };
}

/** Moves one part that is on this machine into the engine and yields how many bytes each step moved.
 * @param {Sink} engine
 * @param {Exclude<Part, {kind: 'url'}>} part
 * @param {object} from
 * @param {() => Promise<Uint8Array | null>} from.pull  the next chunk, of a pull part
 * @param {OpenFile} [from.openFile]
 * @param {boolean} [from.oneBuffer]  as Platform has it
 * @param {Hash} [from.hash]  of all bytes of the part, also of those that the engine does not need */
export async function* read(engine, part, { pull, openFile, oneBuffer, hash }) {
  if (part.kind === 'file') {
    if (!openFile) throw argumentError('files can be read in Node only');
    const file = openFile(part.path);
    try {
      yield* readHandle(engine, file, file.size(), hash);
    } finally {
      file.close();
    }
  } else if (part.kind === 'blob') yield* readBlob(engine, part.blob, part.name, oneBuffer, hash);
  else yield* feed(engine, pulled(pull), hash);
}

/** @param {Sink} engine @param {Pick<import('./copy-store.js').Handle, 'read'>} file
 * @param {number} size  bytes of it @param {Hash} [hash] */
export function* readHandle(engine, file, size, hash) {
  /** @type {Uint8Array | undefined} */
  let rest;   // what only the hash needs
  for (let at = 0, n; at < size; at += n) {
    const fill = (/** @type {Uint8Array} */ target) => {
      const n = file.read(target.subarray(0, size - at), at);
      hash?.update(target.subarray(0, n));
      return n;
    };
    n = rest ? fill(rest) : engine.fill(fill);
    if (n < 0) {
      if (!hash) return;
      n = fill(rest = new Uint8Array(PIECE));
    }
    if (n === 0) {
      throw new PlumbError('PLUMB_ERROR_IO', `the file ends after ${at} of ${size} bytes`, { bytes: at, total: size });
    }
    yield n;
  }
}

/** @param {Sink} engine @param {Blob} blob @param {string} name
 * @param {boolean} [oneBuffer] @param {Hash} [hash] */
export function readBlob(engine, blob, name, oneBuffer, hash) {
  return feed(engine, placed(streamChunks(blob.stream(), oneBuffer), name, blob.size), hash);
}

/** @param {Sink} engine @param {AsyncIterable<Uint8Array>} chunks @param {Hash} [hash] */
async function* feed(engine, chunks, hash) {
  let needed = true;
  for await (const chunk of chunks) {
    hash?.update(chunk);   // before the engine, which may refuse it
    needed &&= engine.write(chunk);
    if (!needed && !hash) return;
    yield chunk.length;
  }
}

/** @param {() => Promise<Uint8Array | null>} pull */
async function* pulled(pull) {
  for (let chunk; (chunk = await pull());) yield chunk;
}

/** Says where a stream broke. @param {AsyncIterable<Uint8Array>} chunks @param {string} name @param {number} [size] */
async function* placed(chunks, name, size) {
  let bytes = 0;
  try {
    for await (const chunk of chunks) {
      bytes += chunk.length;
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Error && error.name === 'AbortError') throw error;
    throw broken(name, bytes, size, error);
  }
}

/** @param {string} name @param {number} bytes @param {number | undefined} size @param {unknown} error */
function broken(name, bytes, size, error) {
  const total = size === undefined ? '' : ` of ${size}`;
  return new PlumbError('PLUMB_ERROR_IO', `${name}: the bytes stop after ${bytes}${total}: ${reasonOf(error)}`,
    { name, bytes, ...size !== undefined && { total: size } });
}
