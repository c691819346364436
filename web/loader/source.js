/* Where a model's bytes come from.  On the user's side describe() turns any source into parts; on the engine's side
 * read() moves each part's bytes into linear memory, chunk by chunk, straight from where they arrive:
 *
 *   url   the engine's side fetches it             blob  the engine's side streams it (File, Blob)
 *   pull  the user's side hands over chunks        file  the engine's side reads it (Node; openFile of the host)
 *
 * No part is ever held as a whole. */
import { PlumbError, argumentError, reasonOf } from '../errors.js';

/** @typedef {Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array> | URL
 *   | string} OneSource
 * @typedef {OneSource | OneSource[]} Source  an array: the parts of one model, in order */
/** @typedef {{kind: 'url', name: string, size?: number, url: string}
 *   | {kind: 'blob', name: string, size: number, blob: Blob}
 *   | {kind: 'file', name: string, size: number, path: string}
 *   | {kind: 'pull', name: string, size?: number}} Part  what can be posted to a worker */
/** @typedef {{part: Part, next?: () => Promise<Uint8Array | null>, cancel?: () => unknown}} Described
 *   next, cancel: of a pull part, stay on the user's side */
/** @typedef {{size?: number, certain: boolean, chunks: AsyncIterable<Uint8Array>}} Opened
 *   certain: size may be relied on, not only shown
 * @typedef {(path: string) => {read: (target: Uint8Array) => number, close: () => void}} OpenFile
 *   read fills as much of target as it likes, 0 at the end of the file */

/** Bytes of an array that are handed over at once: what a worker gets is a copy of this size, not of the file. */
const PIECE = 1 << 20;
/** Bytes of a stream that are read at once, at most: they fit in a processor's cache. */
const BUFFER = 1 << 18;

/** @typedef {object} Sites
 * @property {(source: string | URL) => Part} locate  what a string or URL means on this host
 * @property {boolean} postsBlobs  whether a Blob can be posted to a worker (in Node one of a file cannot) */

/** @param {Source} source @param {Sites} sites @returns {Described[]} */
export function describe(source, sites) {
  const all = Array.isArray(source) ? source : [source];
  if (all.length === 0) throw argumentError('Plumb.load: the array of parts is empty');
  return all.map((one, i) => describeOne(one, all.length > 1 ? `part ${i + 1} of ${all.length}` : '', sites));
}

/** @param {OneSource} source @param {string} name @param {Sites} sites @returns {Described} */
function describeOne(source, name, sites) {
  if (typeof source === 'string' || source instanceof URL) return { part: sites.locate(source) };
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
  const { next, cancel } = reader(source);
  if (!next) {
    throw argumentError(`Plumb.load: ${name || 'the source'} is ${source === null ? 'null' : typeof source}, expected `
      + 'a URL, File, Blob, ReadableStream, Uint8Array, ArrayBuffer, or an array of those');
  }
  const title = name || 'the stream';
  let bytes = 0;
  const checked = async () => {
    const { done, value } = await next().catch(error => { throw broken(title, bytes, undefined, error); });
    if (done) return null;
    if (!(value instanceof Uint8Array)) throw argumentError(`Plumb.load: ${title} gave a chunk that is no Uint8Array`);
    bytes += value.length;
    return value;
  };
  return { part: { kind: 'pull', name }, next: checked, cancel };
}

/** @param {any} source
 * @returns {{next?: () => Promise<{done?: boolean, value?: unknown}>, cancel?: () => unknown}} */
function reader(source) {
  if (typeof source?.getReader === 'function') {
    const stream = source.getReader();
    return { next: () => stream.read(), cancel: () => stream.cancel() };
  }
  const iterator = source?.[Symbol.asyncIterator]?.();
  return iterator ? { next: () => iterator.next(), cancel: () => iterator.return?.() } : {};
}

/** @param {ReadableStream<Uint8Array>} stream @param {boolean} [oneBuffer]  for all chunks, where the stream can fill
 *   what it is given: new memory for each costs as much time as the bytes.  A chunk is valid until the next is read
 * @returns {{read: () => Promise<{done: boolean, value?: Uint8Array}>, cancel: () => Promise<void>}} */
function chunkReader(stream, oneBuffer) {
  let reader = /** @type {ReadableStreamBYOBReader | undefined} */ (undefined);
  try {
    if (oneBuffer) reader = stream.getReader({ mode: 'byob' });
  } catch {
    // Not in every browser.
  }
  if (!reader) return stream.getReader();
  const from = reader;
  let buffer = new ArrayBuffer(BUFFER);
  return {
    async read() {
      const { done, value } = await from.read(new Uint8Array(buffer));
      if (value) buffer = value.buffer;
      return { done, value };
    },
    cancel: () => from.cancel(),
  };
}

/** As for await over the stream, which Safari does not have.
 * @param {ReadableStream<Uint8Array>} stream @param {boolean} [oneBuffer] */
async function* streamChunks(stream, oneBuffer) {
  const reader = chunkReader(stream, oneBuffer);
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      ended = done;
      if (done || !value) return;
      yield value;
    }
  } catch (error) {
    ended = true;
    throw error;
  } finally {
    if (!ended) await reader.cancel().catch(() => {});
  }
}

/** Asks a server for a part before anything is there to take its bytes: an answer takes time too.
 * @param {Part | undefined} part @param {AbortSignal} signal */
export function ask(part, signal) {
  if (part?.kind !== 'url') return undefined;
  const answer = fetch(part.url, { signal });
  answer.catch(() => {});   // read() says what failed
  return { answer, drop: () => void answer.then(({ body }) => body?.cancel()).catch(() => {}) };
}

/** Moves one part into the engine and yields how many bytes each step moved.
 * @param {import('../engine.js').Engine} engine
 * @param {Part} part
 * @param {object} from
 * @param {AbortSignal} from.signal
 * @param {() => Promise<Uint8Array | null>} from.pull  the next chunk, of a pull part
 * @param {OpenFile} [from.openFile]
 * @param {Promise<Response>} [from.answer]  of a server that was asked already
 * @param {boolean} [from.oneBuffer]  as Platform has it
 * @param {(size: number | undefined, certain: boolean) => number | undefined} sized  is told the part's size; says how
 *   many bytes may come in all from here on, for one file may go on in the next part */
export async function* read(engine, part, { signal, pull, openFile, answer, oneBuffer }, sized) {
  try {
    if (part.kind === 'file') {
      if (!openFile) throw argumentError('files can be read in Node only');
      engine.begin(sized(part.size, true));
      yield* readFile(engine, part.path, openFile);
    } else {
      const { size, certain, chunks } = part.kind === 'url' ? await openUrl(part.url, signal, answer, oneBuffer)
        : openLocal(part, pull, oneBuffer);
      engine.begin(sized(size, certain));
      for await (const chunk of chunks) {
        if (!engine.write(chunk)) return;
        yield chunk.length;
      }
    }
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof PlumbError && part.name && !error.message.startsWith(part.name)) {
      error.message = `${part.name}: ${error.message}`;
    }
    throw error;
  }
}

/** @param {import('../engine.js').Engine} engine @param {string} path @param {OpenFile} openFile */
function* readFile(engine, path, openFile) {
  const file = openFile(path);
  try {
    for (let n; (n = engine.fill(file.read)) > 0;) yield n;
  } finally {
    file.close();
  }
}

/** @param {Part & {kind: 'blob' | 'pull'}} part @param {() => Promise<Uint8Array | null>} pull
 * @param {boolean} [oneBuffer] @returns {Opened} */
function openLocal(part, pull, oneBuffer) {
  const chunks = part.kind === 'pull' ? pulled(pull)
    : placed(streamChunks(part.blob.stream(), oneBuffer), part.name, part.size);
  return { size: part.size, certain: true, chunks };
}

/** @param {() => Promise<Uint8Array | null>} pull */
async function* pulled(pull) {
  for (let chunk; (chunk = await pull());) yield chunk;
}

/** @param {string} url @param {AbortSignal} signal @param {Promise<Response>} [answer] @param {boolean} [oneBuffer]
 * @returns {Promise<Opened>} */
async function openUrl(url, signal, answer, oneBuffer) {
  let response;
  try {
    response = await (answer ?? fetch(url, { signal }));
  } catch (error) {
    signal.throwIfAborted();
    throw new PlumbError('PLUMB_ERROR_IO', `${url}: no connection: ${reasonOf(error)}`, { url });
  }
  if (!response.ok || !response.body) {
    response.body?.cancel().catch(() => {});
    const answer = `${response.status} ${response.statusText}`.trim();
    throw new PlumbError('PLUMB_ERROR_IO', `${url}: the server answered ${answer}`,
      { url, status: response.status });
  }
  // With a Content-Encoding the length counts the encoded bytes, not the ones that arrive here.
  const length = response.headers.get('Content-Encoding') ? null : response.headers.get('Content-Length');
  const size = length === null ? undefined : Number(length);
  // Of another site's answer a browser shows the length, but not the encoding.
  const certain = response.type !== 'cors';
  const type = response.headers.get('Content-Type') ?? '';
  return { size, certain, chunks: noPage(placed(streamChunks(response.body, oneBuffer), url, size), url, type) };
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

/** A server that answers everything with its start page is a common accident, and deserves its own words.
 * @param {AsyncIterable<Uint8Array>} chunks @param {string} url @param {string} type */
async function* noPage(chunks, url, type) {
  let first = true;
  for await (const chunk of chunks) {
    if (first && type.includes('text/html') && chunk[0] !== 0x47) {
      throw new PlumbError('PLUMB_ERROR_MAGIC', `${url}: the server sent a web page (${type}), not a GGUF file`,
        { url, type });
    }
    first = false;
    yield chunk;
  }
}
