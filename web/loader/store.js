/* Copies of models' files on this machine, in a folder of the host's (opfs.js, node/folder.js).  Of each URL, with NAME
 * its sha256:
 *
 *   NAME.gguf   the bytes so far, from the first on: whoever writes it holds its lock
 *   NAME.json   Meta; written before the first byte, and again when the last one is certainly there
 *
 * Both are untrusted: what does not fit together is no copy, and never an error of the load. */
import { PlumbError, reasonOf } from '../errors.js';
import { hex } from '../hex.js';
import { sum } from './progress.js';

/** @typedef {object} Handle  an open file
 * @property {() => number} size
 * @property {(target: Uint8Array, at: number) => number} read  as much as it likes; 0 at the end of the file
 * @property {(bytes: Uint8Array, at: number) => void} write  all of them, or throws
 * @property {(size: number) => void} truncate
 * @property {() => void} flush
 * @property {() => void} close
 * @typedef {object} Folder  what has to do with a file that is not there gives undefined
 * @property {boolean} writes  whether lock and read are possible
 * @property {() => Promise<string[]>} names
 * @property {(name: string) => Promise<Blob | undefined>} file
 * @property {(name: string) => Promise<string | undefined>} text
 * @property {(name: string) => Promise<Handle | undefined>} read
 * @property {(name: string) => Promise<Handle>} lock  makes it if need be, for nobody else to lock; throws Busy
 * @property {(name: string) => Promise<boolean>} remove  whether it was there; throws Busy
 * @property {() => Promise<number>} room  bytes that can still be written */
/** @typedef {object} Meta
 * @property {string} url
 * @property {boolean} complete
 * @property {number} lastUsed  milliseconds since 1970
 * @property {number} [size]  of the whole file, in bytes; known if it is complete
 * @property {string} [etag]
 * @property {string} [lastModified]
 * @property {string} [sha256]  that it was found to have */
/** @typedef {Meta & {bytes: number}} Cached  bytes: that are there */

/** Someone else has the file. */
export class Busy extends Error {
  constructor() { super('another tab or process is using it'); }
}

/** Copies can be read here, but not written. */
export class ReadOnly extends Error {
  constructor() { super('in the page\'s own thread they can only be read; leave out worker: false'); }
}

/** The file system's error, with the path that it is about. @param {string} what @param {unknown} error */
function failure(what, error) {
  const { path } = /** @type {{path?: string}} */ (error);
  return new PlumbError('PLUMB_ERROR_IO', `${what}: ${reasonOf(error)}`, path === undefined ? {} : { path });
}

/** Bytes as people read them. @param {number} n */
const megabytes = n => `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB`;

export class Store {
  /** @param {() => Promise<Folder>} open  rejects where there is none, with the reason */
  constructor(open) {
    this.open = open;
  }

  /** @returns {Promise<Cached[]>} */
  async list() {
    const folder = await this.#folder();
    if (!folder) return [];
    const entries = await folder.names().catch(error => { throw failure('the copies cannot be listed', error); });
    const names = entries.filter(name => name.endsWith('.json')).map(name => name.slice(0, -5));
    const all = await Promise.all(names.map(async name => {
      const meta = parse(await folder.text(`${name}.json`).catch(() => undefined));
      const file = await folder.file(`${name}.gguf`).catch(() => undefined);
      if (!meta || !file || await nameOf(meta.url) !== name) return [];
      return [{ ...meta, bytes: file.size, complete: meta.complete && file.size === meta.size }];
    }));
    return all.flat().sort((a, b) => b.lastUsed - a.lastUsed);
  }

  /** @param {string} url @returns {Promise<boolean>}  whether there was one */
  async remove(url) {
    const folder = await this.#folder(), name = await nameOf(url);
    try {
      const removed = await folder?.remove(`${name}.gguf`);
      return await folder?.remove(`${name}.json`) || removed || false;
    } catch (error) {
      if (!(error instanceof Busy)) throw failure(`${url}: the copy cannot be removed`, error);
      throw new PlumbError('PLUMB_ERROR_STATE', `${url}: the copy cannot be removed: ${error.message}`, { url });
    }
  }

  /** The whole file, if it is there. @param {string} url @returns {Promise<Blob | undefined>} */
  async blob(url) {
    const folder = await this.#folder(), name = await nameOf(url);
    const meta = parse(await folder?.text(`${name}.json`).catch(() => undefined), url);
    const file = meta?.complete ? await folder?.file(`${name}.gguf`).catch(() => undefined) : undefined;
    return file?.size === meta?.size ? file : undefined;
  }

  /** For a load: what there is of a file, and where more of it goes.
   * @param {string} url @returns {Promise<Copy>}  rejects where nothing can be kept, with the reason */
  async take(url) {
    const folder = await this.open(), name = await nameOf(url);
    const meta = parse(await folder.text(`${name}.json`), url);
    if (meta?.complete) {
      const blob = await folder.file(`${name}.gguf`);
      if (blob?.size === meta.size) {
        const handle = folder.writes ? await folder.read(`${name}.gguf`).catch(() => undefined) : undefined;
        return new Copy(this, folder, name, meta, handle, blob);
      }
    }
    if (!folder.writes) throw new ReadOnly();
    const handle = await folder.lock(`${name}.gguf`);
    const fits = meta && !meta.complete && handle.size() <= (meta.size ?? Infinity);
    return new Copy(this, folder, name, fits ? meta : { url, complete: false, lastUsed: 0 }, handle);
  }

  async #folder() { return this.open().catch(() => undefined); }
}

/** What a load has of a file on this machine. */
export class Copy {
  /** Bytes that the whole is going to have, if that was said. @type {number | undefined} */
  #size;

  /** @param {Store} store @param {Folder} folder @param {string} name @param {Meta} meta
   * @param {Handle} [handle]  locked unless the copy is complete @param {Blob} [blob]  of a complete copy */
  constructor(store, folder, name, meta, handle, blob) {
    this.store = store;
    this.folder = folder;
    this.name = name;
    this.meta = meta;
    this.handle = handle;
    this.blob = blob;
    /** Bytes that are there. */
    this.at = meta.complete ? /** @type {number} */ (meta.size) : meta.lastUsed ? handle?.size() ?? 0 : 0;
  }

  get complete() { return this.meta.complete; }

  /** Bytes from `at` on are going to be written.  Throws if they should not.
   * @param {number} at @param {import('./download.js').Facts} facts */
  async begin(at, { size, certain, etag, lastModified }) {
    if (this.complete) {
      if (!this.folder.writes) throw new ReadOnly();
      this.close();
      this.handle = await this.folder.lock(`${this.name}.gguf`);
    }
    const { url } = this.meta;
    this.meta = { url, complete: false, lastUsed: Date.now(), size: certain ? size : undefined, etag, lastModified };
    this.blob = undefined;
    this.at = at;
    this.#size = size;
    this.handle?.truncate(at);
    const need = (size ?? 0) - at, room = await this.folder.room();
    if (need > room) throw new Error(await this.#shortage(`there is room for ${megabytes(Math.max(0, room))}`, need));
    await this.#say();
  }

  /** Throws where there is no more room, which not every browser tells before. @param {Uint8Array} chunk */
  async write(chunk) {
    try {
      this.handle?.write(chunk, this.at);
    } catch (error) {
      throw new Error(await this.#shortage(`after ${megabytes(this.at)}: ${reasonOf(error)}`, this.#size));
    }
    this.at += chunk.length;
  }

  /** @param {string} reason @param {number} [need]  bytes */
  async #shortage(reason, need) {
    const kept = sum((await this.store.list()).map(({ url, bytes }) => url === this.meta.url ? 0 : bytes)) ?? 0;
    const needs = need === undefined ? '' : `it needs ${megabytes(need)}, `;
    return `${needs}${reason}; other cached models take ${megabytes(kept)}, and Plumb.removeCached removes them`;
  }

  /** All bytes are there, and were used. @param {string} [sha256]  that they were found to have */
  async finish(sha256 = this.meta.sha256) {
    if (!this.complete) this.handle?.flush();
    this.meta = { ...this.meta, size: this.at, complete: true, sha256, lastUsed: Date.now() };
    await this.#say();
  }

  close() {
    this.handle?.close();
    this.handle = undefined;
  }

  async remove() {
    this.close();
    await this.store.remove(this.meta.url);
  }

  async #say() {
    if (!this.folder.writes) return;
    const bytes = new TextEncoder().encode(JSON.stringify(this.meta));
    const file = await this.folder.lock(`${this.name}.json`);
    try {
      file.write(bytes, 0);   // before the rest is cut off: most often there is none, and the file is never empty
      file.truncate(bytes.length);
      file.flush();
    } finally {
      file.close();
    }
  }
}

/** @param {string} url */
async function nameOf(url) {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(url))));
}

/** Undefined for what is no Meta. @param {string | undefined} text @param {string} [url]  it must be of
 * @returns {Meta | undefined} */
function parse(text, url) {
  /** @type {any} */
  let meta;
  try {
    meta = JSON.parse(text ?? '');
  } catch {
    return undefined;
  }
  const optional = (/** @type {string} */ type, /** @type {string[]} */ names) =>
    names.every(name => meta[name] === undefined || typeof meta[name] === type);
  const valid = typeof meta === 'object' && meta !== null && typeof meta.url === 'string'
    && typeof meta.complete === 'boolean' && Number.isSafeInteger(meta.lastUsed) && meta.lastUsed > 0
    && optional('string', ['etag', 'lastModified', 'sha256'])
    && (Number.isSafeInteger(meta.size) && meta.size >= 0 || meta.size === undefined && !meta.complete)
    && (url === undefined || meta.url === url);
  if (!valid) return undefined;
  const { complete, lastUsed, size, etag, lastModified, sha256 } = meta;
  return { url: meta.url, complete, lastUsed, size, etag, lastModified, sha256 };
}
