/* Copies of models' files on this machine, in a folder of the host's (browser/opfs.js, node/cache-folder.js).  Of each
 * URL, with NAME its sha256:
 *
 *   NAME.gguf   the whole file; in a browser also the bytes so far, in Node those lie in a file of who writes it
 *   NAME.json   Meta; written before the first byte, and again when the last one is there
 *   slots       of a file that is not whole: the digests of its bytes so far (sums.js), in a file of the folder's
 *
 * Whoever writes a copy holds its lock.  All of it is untrusted: what does not fit together is no copy, and never an
 * error of the load.  Bytes are not flushed to the disk: what a power failure loses is found by the digests.
 *
 * Copies of older versions have no digests: a whole one gets them from the bytes that its next load reads, and one that
 * is not whole is gone on with as it is. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { hex } from '../base/hex.js';
import { Busy } from './busy.js';
import { sum } from './progress.js';
import { parseSlots, parseSums } from './sums.js';

/** @typedef {object} Handle  an open file
 * @property {() => number} size
 * @property {(target: Uint8Array, at: number) => number} read  as much as it likes; 0 at the end of the file
 * @property {() => void} close */
/** @typedef {object} Lock  a copy that nobody else may write until it is closed
 * @property {() => number} size  of the file that a former writer left
 * @property {Uint8Array} slots  that it left
 * @property {Handle['read']} read
 * @property {(at: number) => unknown} begin  bytes and slots before `at` stay, others go; at 0 nothing is left, but
 *   whoever reads the file goes on
 * @property {(size: number) => unknown} reserve  room for a file of this size; throws where there is none
 * @property {(bytes: Uint8Array, at: number, slots: Uint8Array, slotsAt: number) => Promise<void> | void} write  the
 *   bytes of one chunk and then slots; all of them, or throws, perhaps at a later call.  Takes a copy of both
 * @property {(size: number, say: () => Promise<void>) => Promise<void>} publish  what was written is all of NAME.gguf.
 *   Calls say, which writes that down, once all bytes are in a file and while the copy is locked; then the slots go
 * @property {() => Promise<unknown> | unknown} discard  removes the copy and closes
 * @property {(size: number) => Promise<void> | void} close  after the last write; what was written up to size stays
 * @typedef {object} Folder  what has to do with a file that is not there gives undefined
 * @property {boolean} writes  whether lock and read are possible
 * @property {() => Promise<string[]>} names  of all files
 * @property {(name: string) => Promise<Blob | undefined>} file
 * @property {(name: string) => Promise<string | undefined>} text
 * @property {(name: string, text: string) => Promise<void>} put  replaces the text of a file, or throws
 * @property {(name: string) => Promise<Handle | undefined>} read
 * @property {(name: string) => Promise<{size: number, slots: Uint8Array} | undefined>} partial  of a copy that is not
 *   whole
 * @property {(name: string, startThread?: () => import('../base/protocol.js').WorkerLike) => Promise<Lock>} lock  a
 *   copy, by its NAME; throws Busy
 * @property {(name: string) => Promise<boolean>} remove  a copy; whether it was there; throws Busy
 * @property {() => Promise<number>} room  bytes that can still be written */
/** @typedef {object} Meta
 * @property {string} url
 * @property {boolean} complete
 * @property {number} lastUsed  milliseconds since 1970
 * @property {number} [size]  of the whole file, in bytes; known if it is complete
 * @property {number} [announced]  what the server said of the size, if that cannot be relied on
 * @property {string} [etag]
 * @property {string} [lastModified]
 * @property {string} [sha256]  that it was found to have
 * @property {string} [sums]  if it is complete, the digests; else empty, for they are in the slots.  Undefined of older
 *   versions */
/** @typedef {Omit<Meta, 'sums' | 'announced'> & {bytes: number}} Cached  bytes: that are there */

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
    const names = entries.filter(name => /^[0-9a-f]{64}\.json$/.test(name)).map(name => name.slice(0, -5));
    const all = await Promise.all(names.map(async name => {
      const meta = parse(await folder.text(`${name}.json`).catch(() => undefined));
      if (!meta || await nameOf(meta.url) !== name) return [];
      const { sums, announced, ...shown } = meta;
      const file = meta.complete ? await folder.file(`${name}.gguf`).catch(() => undefined) : undefined;
      if (file?.size === meta.size && file) return [{ ...shown, bytes: file.size }];
      const partial = await folder.partial(name).catch(() => undefined);
      if (!partial) return [];
      return [{ ...shown, bytes: meta.complete ? 0 : proved(meta, partial).at, complete: false }];
    }));
    return all.flat().sort((a, b) => b.lastUsed - a.lastUsed);
  }

  /** @param {string} url @returns {Promise<boolean>}  whether there was one */
  async remove(url) {
    const folder = await this.#folder();
    if (!folder) return false;   // also on pages of plain http, which have no crypto.subtle
    const name = await nameOf(url);
    try {
      return await folder?.remove(name) ?? false;
    } catch (error) {
      if (!(error instanceof Busy)) throw failure(`${url}: the copy cannot be removed`, error);
      throw new PlumbError('PLUMB_ERROR_STATE', `${url}: the copy cannot be removed: ${error.message}`, { url });
    }
  }

  /** The whole file and its digests, if it is there.
   * @param {string} url @returns {Promise<{blob: Blob, sums?: string[]} | undefined>} */
  async whole(url) {
    const folder = await this.#folder();
    if (!folder) return undefined;
    const name = await nameOf(url);
    const meta = parse(await folder?.text(`${name}.json`).catch(() => undefined), url);
    const blob = meta?.complete ? await folder?.file(`${name}.gguf`).catch(() => undefined) : undefined;
    return blob && blob.size === meta?.size ? { blob, sums: sumsOf(meta) } : undefined;
  }

  /** For a load: what there is of a file, and where more of it goes.
   * @param {string} url @param {() => import('../base/protocol.js').WorkerLike} [startThread]  one that may write
   * @returns {Promise<Copy>}  rejects where nothing can be kept, with the reason */
  async take(url, startThread) {
    const folder = await this.open(), name = await nameOf(url);
    const copy = new Copy(this, folder, name, { url, complete: false, lastUsed: 0 }, startThread);
    if (await copy.findWhole()) return copy;
    if (!folder.writes) throw new ReadOnly();
    const lock = await folder.lock(name, startThread);
    try {
      await copy.findPart(lock);
    } catch (error) {
      await copy.close().catch(() => {});
      throw error;
    }
    return copy;
  }

  async #folder() { return this.open().catch(() => undefined); }
}

/** What a load has of a file on this machine. */
export class Copy {
  /** Bytes that are there. */
  at = 0;
  /** The digests of those bytes; undefined of a copy that has none. @type {string[] | undefined} */
  sums;
  /** Of a complete copy. @type {Blob | undefined} */
  blob;
  /** @type {Handle | undefined} */
  #handle;
  /** @type {Lock | undefined} */
  #lock;
  /** What its metadata was, as text. @type {string | undefined} */
  #text;
  /** Bytes that the whole is going to have, if that was said. @type {number | undefined} */
  #size;
  /** Whether the slots of the bytes that were there are written. */
  #recorded = true;

  /** @param {Store} store @param {Folder} folder @param {string} name @param {Meta} meta
   * @param {() => import('../base/protocol.js').WorkerLike} [startThread] */
  constructor(store, folder, name, meta, startThread) {
    this.store = store;
    this.folder = folder;
    this.name = name;
    this.meta = meta;
    this.startThread = startThread;
  }

  /** Whether it is whole; then it is open. */
  async findWhole() {
    const { meta, text, blob } = await this.#look();
    if (!meta || !blob) return false;
    this.#handle = this.folder.writes ? await this.folder.read(`${this.name}.gguf`).catch(() => undefined) : undefined;
    this.meta = meta;
    this.#text = text;
    this.blob = blob;
    this.at = blob.size;
    this.sums = sumsOf(meta);
    return true;
  }

  /** What there is of one that was not whole before its lock was waited for: who had it may have finished.
   * @param {Lock} lock */
  async findPart(lock) {
    this.#lock = lock;
    const { meta, blob } = await this.#look(), partial = { size: lock.size(), slots: lock.slots };
    if (meta?.complete) {
      const { at, sums } = parseSlots(lock.slots, partial.size);
      // A writer that was killed while it published had written down that the file is whole.
      const isUnpublished = at === meta.size && sums.join('') === meta.sums;
      if (!blob && isUnpublished) await lock.publish(at, async () => {});
      if (blob || isUnpublished) {
        await this.close();
        if (await this.findWhole()) return;
        throw new Busy();
      }
    } else if (meta) {
      const { at, sums } = proved(meta, partial);
      if (at <= (meta.size ?? Infinity)) {
        this.meta = meta;
        this.at = at;
        this.sums = sums;
      }
    }
  }

  /** The metadata, its text, and the file if it is whole. */
  async #look() {
    const text = await this.folder.text(`${this.name}.json`), meta = parse(text, this.meta.url);
    const file = meta?.complete ? await this.folder.file(`${this.name}.gguf`) : undefined;
    return { meta, text, blob: file?.size === meta?.size ? file : undefined };
  }

  get complete() { return this.meta.complete; }

  /** What its bytes are read from; undefined where only the blob is to be had. */
  get reader() { return this.#lock ?? this.#handle; }

  /** Bytes from `at` on are going to be written.  Throws if they should not.
   * @param {number} at @param {import('./download.js').Facts} facts */
  async begin(at, { size, certain, etag, lastModified }) {
    if (this.complete) {
      if (!this.folder.writes) throw new ReadOnly();
      this.#handle?.close();
      this.#handle = undefined;
      this.#lock = await this.folder.lock(this.name, this.startThread);
    }
    const { url } = this.meta, lock = /** @type {Lock} */ (this.#lock);
    this.meta = {
      url, complete: false, lastUsed: Date.now(), size: certain ? size : undefined,
      announced: certain ? undefined : size, etag, lastModified, sums: '',
    };
    this.blob = undefined;
    this.at = at;
    this.#recorded = at === 0 || this.sums !== undefined;
    if (at === 0) this.sums = [];
    this.#size = size;
    await lock.begin(at);
    const need = (size ?? 0) - at, room = await this.folder.room();
    if (need > room) throw new Error(await this.#shortage(`there is room for ${megabytes(Math.max(0, room))}`, need));
    await this.#say();
    try {
      if (size !== undefined && size > at) await lock.reserve(size);
    } catch (error) {
      throw new Error(await this.#shortage(reasonOf(error), need));
    }
  }

  /** Throws where there is no more room, which not every browser tells before.
   * @param {Uint8Array} chunk  of which sums takes the digest @param {import('./sums.js').Sums} sums  of all before */
  async write(chunk, sums) {
    const lock = /** @type {Lock} */ (this.#lock);
    try {
      if (!this.#recorded) await lock.write(new Uint8Array(), this.at, sums.allSlots(), 0);
      this.#recorded = true;
      for (const { piece, at, slot, slotAt } of sums.slots(chunk)) {
        await lock.write(piece, at, slot, slotAt);
        this.at += piece.length;
      }
    } catch (error) {
      throw await this.#unwritten(error);
    }
  }

  /** @param {unknown} error  of a write */
  async #unwritten(error) {
    if (error instanceof Busy) return error;
    return new Error(await this.#shortage(`after ${megabytes(this.at)}: ${reasonOf(error)}`, this.#size));
  }

  /** @param {string} reason @param {number} [need]  bytes */
  async #shortage(reason, need) {
    const kept = sum((await this.store.list()).map(({ url, bytes }) => url === this.meta.url ? 0 : bytes)) ?? 0;
    const needs = need === undefined ? '' : `it needs ${megabytes(need)}, `;
    return `${needs}${reason}; other cached models take ${megabytes(kept)}, and Plumb.removeCached removes them`;
  }

  /** All bytes are there, and were used.
   * @param {string} [sha256]  that they were found to have
   * @param {string[]} [sums]  their digests, if they were read */
  async finish(sha256 = this.meta.sha256, sums = this.sums) {
    const { complete } = this;
    this.meta = {
      ...this.meta, size: this.at, announced: undefined, complete: true, sha256, sums: sums?.join(''),
      lastUsed: Date.now(),
    };
    if (!complete) {
      try {
        await this.#lock?.publish(this.at, () => this.#say());
      } catch (error) {
        throw await this.#unwritten(error);
      }
    } else if (this.folder.writes && await this.#isSame()) {
      await this.#say();   // nobody has replaced the copy meanwhile
    }
  }

  async close() {
    const lock = this.#lock;
    this.#handle?.close();
    this.#lock = this.#handle = undefined;
    await lock?.close(this.at);
  }

  /** Removes it, unless someone else has replaced it meanwhile. */
  async remove() {
    const lock = this.#lock;
    this.#lock = undefined;
    if (lock) return void await lock.discard();
    await this.close();
    if (this.complete && await this.#isSame()) await this.store.remove(this.meta.url);
  }

  async #isSame() { return await this.folder.text(`${this.name}.json`) === this.#text; }

  async #say() {
    this.#text = JSON.stringify(this.meta);
    await this.folder.put(`${this.name}.json`, this.#text);
  }
}

/** The bytes that a copy which is not whole can be proved to have; of an older version, all that there are.
 * @param {Meta} meta @param {{size: number, slots: Uint8Array}} partial
 * @returns {{at: number, sums?: string[]}} */
const proved = ({ sums }, { size, slots }) => sums === undefined ? { at: size } : parseSlots(slots, size);

/** The digests of a whole copy. @param {Meta} meta */
const sumsOf = ({ sums, size = 0 }) => sums === undefined ? undefined : parseSums(sums, size);

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
    && optional('string', ['etag', 'lastModified', 'sha256', 'sums'])
    && (Number.isSafeInteger(meta.size) && meta.size >= 0 || meta.size === undefined && !meta.complete)
    && (url === undefined || meta.url === url)
    && (meta.announced === undefined || Number.isSafeInteger(meta.announced) && meta.announced >= 0)
    && (!meta.complete || meta.sums === undefined || parseSums(meta.sums, meta.size) !== undefined);
  if (!valid) return undefined;
  const { complete, lastUsed, size, announced, etag, lastModified, sha256, sums } = meta;
  return { url: meta.url, complete, lastUsed, size, announced, etag, lastModified, sha256, sums };
}
