/* Copies of models' files on this machine, in a folder of the host (browser/opfs.js, node/cache-folder.js).  The folder
 * has these files for each URL; NAME is the sha256 of the copy's name, which is the URL, or a cacheKey (secrets.js):
 *
 *   NAME.gguf   the complete file; in a browser also an incomplete one.  In Node an incomplete one has another name
 *   NAME.json   Meta; written before the first byte, after the last one, and after each load of the complete file
 *   slots       the digests of an incomplete file (sums.js), in a file whose name the folder chooses
 *
 * The writer of a copy holds its lock.  All files are untrusted: if they do not fit together, they count as no copy,
 * and never make a load fail.  The bytes of a model are not flushed to the disk; the digests detect what a power
 * failure loses.
 *
 * Copies of older versions have no digests.  A complete one gets them from the bytes that its next load reads.  An
 * incomplete one is continued without them, and gets them for all of its bytes with the first write. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { hex } from '../base/hex.js';
import { Busy } from './busy.js';
import { sum } from './progress.js';
import { copyName, shownUrl } from './secrets.js';
import { splitOf } from './split.js';
import { parseSlots, parseSums } from './sums.js';

/** @typedef {object} Handle  an open file
 * @property {() => number} size
 * @property {(target: Uint8Array, at: number) => number} read  reads some of the bytes from `at` on into
 *   target and returns how many; 0 at the end of the file
 * @property {() => void} close */
/** @typedef {object} Lock  lets one writer, and nobody else, write a copy, until close or discard releases it
 * @property {() => number} size  the size of the file that an earlier writer left
 * @property {Uint8Array} slots  the slots that the earlier writer left
 * @property {Handle['read']} read  reads the file that the earlier writer left; only before the first write
 * @property {(at: number) => unknown} begin  keeps the bytes before `at` and their slots, and removes all others.  In
 *   Node, readers that have the old file open can still read it
 * @property {(size: number) => unknown} reserve  makes sure that there is room for a file of this size, or throws; in
 *   Node it does nothing
 * @property {(bytes: Uint8Array, at: number, slots: Uint8Array, slotsAt: number) => Promise<void> | void} write  writes
 *   bytes of one chunk at `at`, and then slots at slotsAt of their own file.  If not all can be written, it throws,
 *   perhaps at a later call.  The caller may reuse the memory of bytes afterwards, but not that of slots
 * @property {(size: number, writeMeta: () => Promise<void>) => Promise<void>} publish  makes what was written the
 *   complete NAME.gguf.  Calls writeMeta after all bytes are in a file and while the copy is locked; then
 *   removes the slots
 * @property {() => Promise<unknown> | unknown} discard  removes the copy and releases the lock
 * @property {(size: number) => Promise<void> | void} close  releases the lock after the last write, and keeps the bytes
 *   before `size`
 * @typedef {object} Folder  file, text, read and partial return undefined if the file does not exist
 * @property {boolean} writes  whether lock, put and read are possible; in a browser only in a worker
 * @property {() => Promise<string[]>} names  the names of all files
 * @property {(name: string) => Promise<Blob | undefined>} file
 * @property {(name: string) => Promise<string | undefined>} text
 * @property {(name: string, text: string) => Promise<void>} put  replaces the text of a file, or throws
 * @property {(name: string) => Promise<Handle | undefined>} read  opens a file
 * @property {(name: string) => Promise<{size: number, slots: Uint8Array} | undefined>} partial  describes an incomplete
 *   copy
 * @property {(name: string, startThread?: () => import('../base/protocol.js').WorkerLike) => Promise<Lock>} lock  locks
 *   a copy, by its NAME; throws Busy
 * @property {(name: string) => Promise<boolean>} remove  removes a copy; returns whether there was one; throws Busy
 * @property {() => Promise<number>} room  how many bytes can still be written
 * @property {() => Promise<number>} limit  how many bytes all copies may take; Infinity: any number */
/** @typedef {object} Meta
 * @property {string} url  the name of the copy: a URL, with a hash in the place of its query, or a cacheKey
 * @property {boolean} complete
 * @property {number} lastUsed  milliseconds since 1970
 * @property {number} [size]  of the complete file, in bytes; always present if `complete` is true
 * @property {number} [announced]  the size that the server has stated, if it is not reliable
 * @property {string} [etag]
 * @property {string} [lastModified]
 * @property {string} [sha256]  the checksum that was computed, if any
 * @property {string} [sums]  the digests if the copy is complete; otherwise empty, because they are in the slots.
 *   Undefined in copies of older versions */
/** @typedef {Omit<Meta, 'sums' | 'announced'> & {bytes: number}} Cached  bytes: how many of the file are stored */

/** The error where copies can be read but not written. */
export class ReadOnly extends Error {
  constructor() { super('the page\'s own thread can read copies, but not write them; leave out worker: false'); }
}

/** A PlumbError for an error of the file system, with its path. @param {string} what @param {unknown} error */
function failure(what, error) {
  const { path } = /** @type {{path?: string}} */ (error);
  return new PlumbError('PLUMB_ERROR_IO', `${what}: ${reasonOf(error)}`, path === undefined ? {} : { path });
}

/** A number of bytes as text for a person. @param {number} n */
const megabytes = n => `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB`;

/** The models that copies are of: those of a split model are one.  complete: whether all parts are whole; size: that of
 * the model, NaN if it is not known.
 * @param {Cached[]} copies @returns {{url: string, parts: Cached[], bytes: number, size: number, complete: boolean}[]}
 *   in the order of the copies */
export function modelsOf(copies) {
  /** @type {Map<string, Cached[]>} */
  const models = new Map();
  for (const copy of copies) {
    const { first } = splitOf(copy.url);
    models.set(first, [...models.get(first) ?? [], copy]);
  }
  return [...models].map(([url, parts]) => {
    const isAll = parts.length === splitOf(url).count;
    return {
      url, parts, complete: isAll && parts.every(({ complete }) => complete),
      bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
      size: isAll ? parts.reduce((sum, { size = NaN }) => sum + size, 0) : NaN,
    };
  });
}

export class Store {
  /** @param {() => Promise<Folder>} open  rejects with the reason if there is no folder */
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
      // If the metadata says complete, but there is no complete file, only the holder of the lock can find out which
      // bytes are valid (findPart).
      return [{ ...shown, bytes: meta.complete ? 0 : proved(meta, partial).at, complete: false }];
    }));
    return all.flat().sort((a, b) => b.lastUsed - a.lastUsed);
  }

  /** @param {string} url @returns {Promise<boolean>}  whether there was one */
  async remove(url) {
    const folder = await this.#folder();
    // This comes before nameOf, which throws on pages that are not secure contexts.  They have no folder either.
    if (!folder) return false;
    const name = await nameOf(url);
    try {
      return await folder.remove(name);
    } catch (error) {
      const shown = shownUrl(url);
      if (!(error instanceof Busy)) throw failure(`${shown}: the copy cannot be removed`, error);
      throw new PlumbError('PLUMB_ERROR_STATE', `${shown}: the copy cannot be removed: ${error.message}`,
        { url: shown });
    }
  }

  /** The complete file and its digests, if there is a complete copy.
   * @param {string} url @returns {Promise<{blob: Blob, sums?: string[]} | undefined>} */
  async whole(url) {
    const folder = await this.#folder();
    if (!folder) return undefined;
    const name = await nameOf(url);
    const meta = parse(await folder.text(`${name}.json`).catch(() => undefined), await copyName(url));
    const blob = meta?.complete ? await folder.file(`${name}.gguf`).catch(() => undefined) : undefined;
    return blob && blob.size === meta?.size ? { blob, sums: sumsOf(meta) } : undefined;
  }

  /** Opens the copy of a file for a load.  Unless the copy is complete, it is locked, also if there is none yet.
   * @param {string} url
   * @param {() => import('../base/protocol.js').WorkerLike} [startThread]  starts a worker that may write the copy
   * @returns {Promise<Copy>}  rejects with the reason if no copy can be kept */
  async take(url, startThread) {
    const folder = await this.open(), name = await nameOf(url);
    const copy = new Copy(this, folder, name, { url: await copyName(url), complete: false, lastUsed: 0 }, startThread);
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

  /** Removes whole models, those that were not used for longest first, until a copy may have `need` more bytes.  Does
   * nothing if the folder has no limit.  Throws, and removes nothing, if there is not enough to remove.
   * @param {Folder} folder @param {string} url  of the copy; the other parts of its model stay
   * @param {number} need  in bytes */
  async makeRoom(folder, url, need) {
    const limit = await folder.limit();
    if (limit === Infinity) return;
    const copies = await this.list(), used = sum(copies.map(({ bytes }) => bytes)) ?? 0;
    let excess = used + need - Math.min(limit, used + await folder.room());
    if (excess <= 0) return;
    const others = modelsOf(copies).filter(one => one.url !== splitOf(url).first).reverse();
    const tooLittle = () =>
      new Error(`it needs ${megabytes(need)}, but the copies of all models may take only ${megabytes(limit)}`);
    if (others.reduce((sum, { bytes }) => sum + bytes, 0) < excess) throw tooLittle();
    for (const { parts, bytes } of others) {
      if (excess <= 0) break;
      const removed = await Promise.all(parts.map(part => this.remove(part.url).catch(() => false)));
      if (removed.every(Boolean)) excess -= bytes;   // otherwise another process is using it
    }
    if (excess > 0) throw tooLittle();
  }

  async #folder() { return this.open().catch(() => undefined); }
}

/** The copy of a file, as one load uses it. */
export class Copy {
  /** How many bytes are stored. */
  at = 0;
  /** The digests of those bytes; undefined if the copy has none. @type {string[] | undefined} */
  sums;
  /** The file, if the copy is complete. @type {Blob | undefined} */
  blob;
  /** @type {Handle | undefined} */
  #handle;
  /** @type {Lock | undefined} */
  #lock;
  /** The text of its metadata when it was last read or written. @type {string | undefined} */
  #text;
  /** The size of the complete file, if the server has stated it, reliable or not. @type {number | undefined} */
  #size;
  /** Whether slots describe the bytes that were stored before.  A copy of an older version has none; the first write
   * adds them. */
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

  /** Opens the copy for reading if it is complete, and returns whether it is. */
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

  /** Finds the bytes of a copy that was incomplete before it was locked.  The process that held the lock may have
   * completed it since; then the lock is released again.  Bytes that fit no valid metadata count as none.
   * @param {Lock} lock */
  async findPart(lock) {
    this.#lock = lock;
    const { meta, blob } = await this.#look(), partial = { size: lock.size(), slots: lock.slots };
    if (meta?.complete) {
      const { at, sums } = parseSlots(lock.slots, partial.size);
      // A writer that was killed in the middle of publish had already written metadata that says complete.
      const isUnpublished = at === meta.size && sums.join('') === meta.sums;
      if (!blob && isUnpublished) await lock.publish(at, async () => {});
      if (blob || isUnpublished) {
        await this.close();
        if (await this.findWhole()) return;
        throw new Busy();   // another process has replaced or removed it since the lock was released
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

  /** The metadata, its text, and the file if it is complete and has the size that the metadata states. */
  async #look() {
    const text = await this.folder.text(`${this.name}.json`), meta = parse(text, this.meta.url);
    const file = meta?.complete ? await this.folder.file(`${this.name}.gguf`) : undefined;
    return { meta, text, blob: file?.size === meta?.size ? file : undefined };
  }

  get complete() { return this.meta.complete; }

  /** What reads its bytes; undefined if only the blob can be read. */
  get reader() { return this.#lock ?? this.#handle; }

  /** Must be called before the bytes from `at` on are written.  Throws if they cannot be written, for example for lack
   * of room.
   * @param {number} at  0, or as many bytes as are stored @param {import('./download.js').Facts} facts */
  async begin(at, { size, certain, etag, lastModified }) {
    if (this.complete) {   // it was opened for reading, without a lock
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
    await lock.begin(at);   // before the room is measured, because this removes the old bytes
    const need = (size ?? 0) - at;
    await this.store.makeRoom(this.folder, url, need);
    const room = await this.folder.room();
    if (need > room) throw new Error(await this.#shortage(`there is room for ${megabytes(Math.max(0, room))}`, need));
    await this.#writeMeta();
    try {
      if (size !== undefined && size > at) await lock.reserve(size);
    } catch (error) {
      throw await this.#writeError(error, 'reserving the space failed', need);
    }
  }

  /** Writes the next bytes.  Throws if that fails, also for lack of room, which not every browser reports in advance.
   * @param {Uint8Array} chunk
   * @param {import('./sums.js').Sums} sums  has digested all bytes before the chunk; digests those of the chunk too */
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
      throw await this.#writeError(error);
    }
  }

  /** The error to report for a failed write.  If the reason is a lack of room, it says how to make room.
   * @param {unknown} error @param {string} [what]  what failed @param {number} [need]  bytes that room is needed for */
  async #writeError(error, what = `writing failed after ${megabytes(this.at)}`, need = this.#size) {
    if (error instanceof Busy) return error;
    const reason = `${what}: ${reasonOf(error)}`;
    return new Error(isLackOfRoom(error) ? await this.#shortage(reason, need) : reason);
  }

  /** The text of an error for a lack of room. @param {string} reason @param {number} [need]  in bytes */
  async #shortage(reason, need) {
    const copies = await this.store.list().catch(() => []);   // its failure must not replace the reason
    const kept = sum(copies.map(({ url, bytes }) => url === this.meta.url ? 0 : bytes)) ?? 0;
    const needs = need === undefined ? '' : `it needs ${megabytes(need)}, but `;
    return `${needs}${reason}; other cached models take ${megabytes(kept)}, and Plumb.removeCached removes them`;
  }

  /** Must be called when all bytes are stored and were used.  Marks the copy as complete, and as used now.
   * @param {string} [sha256]  their checksum, if it was computed
   * @param {string[]} [sums]  their digests, if they were computed */
  async finish(sha256 = this.meta.sha256, sums = this.sums) {
    const { complete } = this;
    this.meta = {
      ...this.meta, size: this.at, announced: undefined, complete: true, sha256, sums: sums?.join(''),
      lastUsed: Date.now(),
    };
    if (!complete) {
      try {
        await this.#lock?.publish(this.at, () => this.#writeMeta());
      } catch (error) {
        throw await this.#writeError(error);
      }
      // If the size was not known before, the copies may take too much now.
      if (this.#size === undefined) await this.store.makeRoom(this.folder, this.meta.url, 0).catch(() => {});
    } else if (this.folder.writes && await this.#isSame()) {   // nobody else has replaced the copy
      await this.#writeMeta();
    }
  }

  /** Closes its file and releases its lock.  The bytes so far stay. */
  async close() {
    const lock = this.#lock;
    this.#handle?.close();
    this.#lock = this.#handle = undefined;
    await lock?.close(this.at);
  }

  /** Closes the copy and removes it, unless another process has replaced it.  A complete copy has no lock while it is
   * only read. */
  async remove() {
    const lock = this.#lock;
    this.#lock = undefined;
    if (lock) return void await lock.discard();
    await this.close();
    if (this.complete && await this.#isSame()) await this.store.remove(this.meta.url);
  }

  /** Whether the metadata on the disk is still what this load last read or wrote. */
  async #isSame() { return await this.folder.text(`${this.name}.json`) === this.#text; }

  async #writeMeta() {
    this.#text = JSON.stringify(this.meta);
    await this.folder.put(`${this.name}.json`, this.#text);
  }
}

/** Whether a file system has refused to store bytes because there is no room for them.  Node says so by the code of the
 * error, a browser by its name. @param {any} error */
const isLackOfRoom = error => ['ENOSPC', 'EDQUOT'].includes(error?.code) || error?.name === 'QuotaExceededError';

/** How many bytes of an incomplete copy count: those that its slots prove, or all for a copy of an older version.
 * @param {Meta} meta @param {{size: number, slots: Uint8Array}} partial
 * @returns {{at: number, sums?: string[]}} */
const proved = ({ sums }, { size, slots }) => sums === undefined ? { at: size } : parseSlots(slots, size);

/** The digests of a complete copy. @param {Meta} meta */
const sumsOf = ({ sums, size = 0 }) => sums === undefined ? undefined : parseSums(sums, size);

/** The NAME of the files of a URL's copy. @param {string} url */
async function nameOf(url) {
  const text = new TextEncoder().encode(await copyName(url));
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', text)));
}

/** The Meta in a text, or undefined if it is invalid. @param {string | undefined} text
 * @param {string} [url]  the URL that it must be of
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
