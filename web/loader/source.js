/* Where a model's bytes come from.  The user's side is the thread that calls Plumb.load; there, describe() turns any
 * source into parts.  The engine's side is usually a worker (protocol.js); there, the bytes of each part are moved into
 * linear memory, chunk by chunk: by url-file.js if the part is a URL, otherwise by read().  There are four kinds of
 * parts:
 *
 *   url   the engine's side fetches it
 *   blob  the engine's side streams it (File, Blob)
 *   file  the engine's side reads it (in Node, with the host's openFile)
 *   pull  the user's side hands over its chunks
 *
 * Outside of linear memory, neither side ever holds a whole part, unless the caller gives it as an array. */
import { PlumbError, argumentError, reasonOf } from '../base/errors.js';
import { shownUrl, urlOf } from './secrets.js';
import { expand } from './split.js';
import { streamChunks } from './stream.js';

/** @typedef {Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array> | URL
 *   | string} OneSource
 * @typedef {OneSource | OneSource[]} Source  an array: the parts of one model, in order */
/** @typedef {{kind: 'url', name: string, size?: number, url: string, headers?: Record<string, string>,
 *     credentials?: 'omit' | 'same-origin' | 'include', copy?: string}
 *   | {kind: 'blob', name: string, size: number, blob: Blob, sums?: string[]}
 *   | {kind: 'file', name: string, size: number, path: string}
 *   | {kind: 'pull', name: string, size?: number, sums?: string[]}} Part  a part, which can be posted to a worker;
 *   name: what messages show, without secrets; copy: the name of the copy, if it is not the URL;
 *   sums: the digests of a copy (sums.js), if a preflight reads the complete copy in place of its URL */
/** @typedef {{part: Part, next?: () => Promise<Uint8Array | null>, cancel?: () => unknown}} Described
 *   next, cancel: for a pull part; they stay on the user's side */
/** @typedef {(path: string) => import('./copy-store.js').Handle} OpenFile */
/** @typedef {{update: (bytes: Uint8Array) => unknown}} Hash */
/** @typedef {object} Sink  what receives the bytes: an Engine
 * @property {(size?: number) => void} begin  starts a part; size: bytes of this part and all later ones, if known
 * @property {(put: (target: Uint8Array) => number) => number} fill  calls put, which writes the next bytes straight to
 *   their place in linear memory and returns how many it wrote.  Returns that number, or -1 without a call if the part
 *   needs no more bytes, although the file may have more, such as padding
 * @property {(chunk: Uint8Array) => boolean} write  takes a chunk; returns false if the part does not need all of it
 * @property {import('./sums.js').Digest} digest */
/** @typedef {object} Platform  what a host provides for a load
 * @property {() => import('../base/protocol.js').WorkerLike} [startThread]  starts a worker that runs createThread of
 *   threads.js, or writes a copy (opfs-writer.js)
 * @property {OpenFile} [openFile]
 * @property {import('./copy-store.js').Store} [store]  for copies of downloaded files
 * @property {import('./download.js').DownloadOptions['pause']} [pause]  waits before a retry
 * @property {import('./download.js').DownloadOptions['silence']} [silence]  waits before a connection is given up
 * @property {boolean} [oneBuffer]  whether streams are faster if they fill a given buffer than if they make new ones */

/** An array is handed over in pieces of this many bytes, because a worker gets a copy of each, and not one of the whole
 * array.  Bytes of a file that only the hash needs are read in such pieces too. */
const PIECE = 1 << 20;
/** @typedef {object} Sites  which sources a host knows
 * @property {(source: string | URL) => Part | {bytes: AsyncIterable<Uint8Array> | Blob}} locate  what a string or URL
 *   means on this host; bytes: those of a pipe or of a blob: URL
 * @property {boolean} postsBlobs  whether a Blob can be posted to a worker (in Node a Blob of a file cannot) */

/** The part at a URL.  fetch refuses a URL with a user name or a password.
 * @param {string} text @param {string} [base]  to which it is relative @returns {Part & {kind: 'url'}} */
export function urlPart(text, base) {
  const url = urlOf(text, base);
  if (!url) throw argumentError(`${shownUrl(text)}: this is not a URL`);
  if (url.username || url.password) {
    throw argumentError(`${shownUrl(url.href)}: browsers and Node fetch no URL that has a user name or a password; `
      + "pass them as headers: { Authorization: 'Basic ...' }");
  }
  url.hash = '';
  return { kind: 'url', name: shownUrl(url.href), url: url.href };
}

/** Turns a source into parts, and checks what can be checked before a byte is read.
 * @param {Source} source @param {Sites} sites
 * @param {import('./request.js').RequestOptions & {origin?: string}} [options]  origin: that of the server which gets
 *   the headers; default: that of the first part at a URL
 * @returns {Described[]} */
export function describe(source, sites, { headers, credentials, cacheKey, origin } = {}) {
  const all = Array.isArray(source) ? source
    : typeof source === 'string' || source instanceof URL ? expand(source) : [source];
  if (all.length === 0) throw argumentError('Plumb.load: the array of parts is empty');
  const described = all.map((one, i) =>
    describeOne(one, all.length > 1 ? `part ${i + 1} of ${all.length}` : '', sites));
  const home = origin ?? originOf(described);
  for (const [i, { part }] of described.entries()) {
    if (part.kind !== 'url') continue;
    if (headers && originOf([described[i]]) === home) part.headers = Object.fromEntries(new Headers(headers));
    if (credentials) part.credentials = credentials;
    if (cacheKey !== undefined) part.copy = i === 0 ? cacheKey : `${cacheKey}#${i + 1}`;
  }
  return described;
}

/** The origin of the first part at a URL. @param {Described[]} parts */
export function originOf(parts) {
  const first = parts.find(({ part }) => part.kind === 'url')?.part;
  return first?.kind === 'url' ? new URL(first.url).origin : undefined;
}

/** @param {OneSource} source @param {string} name  for error messages if the source has no name of its own; may be ''
 * @param {Sites} sites @returns {Described} */
function describeOne(source, name, sites) {
  if (typeof source === 'string' || source instanceof URL) {
    const found = sites.locate(source);
    return 'bytes' in found ? describeOne(found.bytes, shownUrl(String(source)), sites) : { part: found };
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
    throw argumentError(`Plumb.load: ${title} is locked: something else is reading it`);
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
    if (!(value instanceof Uint8Array)) {
      throw argumentError(`Plumb.load: ${title} yielded a chunk that is not a Uint8Array`);
    }
    bytes += value.length;
    return value;
  };
  return { part: { kind: 'pull', name }, next: checked, cancel };
}

/** Reads a stream.  It locks the stream only when the first chunk is requested, so that a call that is refused leaves
 * the caller's stream as it was.  cancel ends the stream and releases its lock.
 * @param {any} stream @returns {{next: () => any, cancel: () => Promise<void>}}  next may return anything */
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

/** Reads an async iterable in the same way. @param {any} source @returns {{next: () => any, cancel: () => unknown}} */
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

/** Moves one part that is not a URL into the engine, and yields how many bytes each step read.
 * @param {Sink} engine
 * @param {Exclude<Part, {kind: 'url'}>} part
 * @param {object} from
 * @param {() => Promise<Uint8Array | null>} from.pull  gets the next chunk of a pull part
 * @param {OpenFile} [from.openFile]
 * @param {boolean} [from.oneBuffer]  as in Platform
 * @param {Hash} [from.hash]  gets all bytes of the part, including those that the engine does not need */
export async function* read(engine, part, { pull, openFile, oneBuffer, hash }) {
  if (part.kind === 'file') {
    if (!openFile) throw argumentError('files can only be read in Node');
    const file = openFile(part.path);
    try {
      yield* readHandle(engine, file, file.size(), hash);
    } finally {
      file.close();
    }
  } else if (part.kind === 'blob') yield* readBlob(engine, part.blob, part.name, oneBuffer, hash);
  else yield* feed(engine, pulled(pull), hash);
}

/** Reads a file straight into the engine's memory, where the bytes are also hashed, so that nothing is copied.
 * @param {Sink} engine @param {Pick<import('./copy-store.js').Handle, 'read'>} file
 * @param {number} size  how many of its bytes are read @param {Hash} [hash] */
export function* readHandle(engine, file, size, hash) {
  /** @type {Uint8Array | undefined} */
  let rest;   // a buffer for bytes that only the hash needs
  for (let at = 0, n; at < size; at += n) {
    const put = (/** @type {Uint8Array} */ target) => {
      const n = file.read(target.subarray(0, size - at), at);
      hash?.update(target.subarray(0, n));
      return n;
    };
    n = rest ? put(rest) : engine.fill(put);
    if (n < 0) {   // the engine needs no more
      if (!hash) return;
      n = put(rest = new Uint8Array(PIECE));
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

/** Copies chunks into the engine, and yields their lengths.  Ends when the engine needs no more, or if there is a hash,
 * after the last chunk.
 * @param {Sink} engine @param {AsyncIterable<Uint8Array>} chunks @param {Hash} [hash] */
async function* feed(engine, chunks, hash) {
  let needed = true;
  for await (const chunk of chunks) {
    hash?.update(chunk);   // before engine.write, which may throw: Sums.endChunk then reads on after this chunk
    needed &&= engine.write(chunk);
    yield chunk.length;
    if (!needed && !hash) return;
  }
}

/** The chunks of a pull part. @param {() => Promise<Uint8Array | null>} pull */
async function* pulled(pull) {
  for (let chunk; (chunk = await pull());) yield chunk;
}

/** Passes chunks on.  If the stream breaks, the error says after how many bytes.
 * @param {AsyncIterable<Uint8Array>} chunks @param {string} name @param {number} [size] */
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

/** The error for a source that broke off. @param {string} name @param {number} bytes  read so far
 * @param {number | undefined} size  in bytes @param {unknown} error */
function broken(name, bytes, size, error) {
  const total = size === undefined ? '' : ` of ${size}`;
  return new PlumbError('PLUMB_ERROR_IO', `${name}: reading stopped after ${bytes}${total} bytes: ${reasonOf(error)}`,
    { name, bytes, ...size !== undefined && { total: size } });
}
