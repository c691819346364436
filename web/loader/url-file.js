/* A model's file at a URL, as a load sees it.  The bytes that its copy on this machine has are read from there.  The
 * rest is downloaded, and the same chunks are written to the copy in the same pass. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { ReadOnly } from './copy-store.js';
import { Download, StartOver } from './download.js';
import { readBlob, readHandle } from './source.js';
import { Damaged, Sums } from './sums.js';

/** The most bytes that are taken beyond those that the engine needs, if the size of the file is not certain.  A
 * response without an end would otherwise fill the disk. */
const MOST_BEYOND = 1 << 24;

/** @typedef {object} UrlOptions
 * @property {AbortSignal} signal
 * @property {import('./download.js').CacheMode} [mode]  absent: as 'default', but without a warning if copies can only
 *   be read here
 * @property {string} [sha256]  the checksum that the file should have
 * @property {import('./copy-store.js').Store} [store]
 * @property {import('./download.js').DownloadOptions['pause']} [pause]
 * @property {import('./download.js').DownloadOptions['silence']} [silence]
 * @property {boolean} [oneBuffer]
 * @property {() => import('../base/protocol.js').WorkerLike} [startThread]
 * @property {(attempt: number) => void} onWait
 * @property {(message: string) => void} warn */

export class UrlFile {
  /** The size in bytes, if it is known; it may be known before the file is opened. @type {number | undefined} */
  size;
  /** Whether the size is reliable. */
  certain = false;
  /** How many bytes are read from the copy. */
  local = 0;
  /** Whether bytes come from the server. */
  downloads = true;
  /** @type {import('./copy-store.js').Copy | undefined} */
  #copy;
  /** The digests of the copy's bytes. @type {Sums | undefined} */
  #sums;
  #keeps;
  /** The same object in all passes of a load, because it counts the failed attempts. */
  #download;
  /** @type {Promise<void> | undefined} */
  #found;
  /** @type {Promise<void> | undefined} */
  #opened;

  /** @param {string} url @param {UrlOptions} options */
  constructor(url, options) {
    this.url = url;
    this.options = options;
    this.#keeps = Boolean(options.store) && options.mode !== 'no-store' && /^https?:/.test(url);
    this.#download = new Download(url, {
      ...options, checked: options.sha256 !== undefined,
      cache: options.mode === 'no-store' || this.#keeps ? 'no-store' : 'default',
    });
  }

  /** Looks for a copy. */
  find() {
    return this.#found ??= (async () => {
      if (!this.#keeps) return;
      try {
        this.#copy = await /** @type {import('./copy-store.js').Store} */ (this.options.store).take(this.url,
          this.options.startThread);
        this.size = this.#copy.meta.size;
      } catch (error) {
        this.#noCopy(error);
      }
    })();
  }

  /** The size before the file is opened: that of the copy, or else what the server says to a HEAD request. */
  async guess() {
    await this.find();
    if (this.size !== undefined || !/^https?:/.test(this.url)) return this.size;
    const { ok, headers } = await fetch(this.url, { method: 'HEAD', signal: this.options.signal, cache: 'no-store' });
    const length = headers.get('Content-Encoding') ? null : headers.get('Content-Length');
    return ok && length !== null ? Number(length) : undefined;
  }

  /** Finds the copy, and sends a request to the server if one is needed.  May be called before there is an engine,
   * because the response takes time too. */
  open() {
    this.#opened ??= this.#open();
    this.#opened.catch(() => {});   // Parts.read waits for it again and reports the failure
    return this.#opened;
  }

  async #open() {
    const { mode = 'default', sha256, signal } = this.options;
    await this.find();
    signal.throwIfAborted();
    for (;;) {
      const copy = this.#copy, download = this.#download;
      const wrong = sha256 !== undefined && copy?.meta.sha256 !== undefined && copy.meta.sha256 !== sha256;
      const known = copy && copy.at > 0 && mode !== 'reload' && !wrong ? copy.meta : undefined;
      const whole = known !== undefined && copy?.complete === true;
      const { etag, lastModified, size, announced } = known ?? {};
      const here = whole && mode === 'default' || await download.open(copy?.at ?? 0,
        known && { etag, lastModified, size: size ?? announced, certain: size !== undefined }, whole) && whole;
      this.downloads = !here;
      this.local = here ? /** @type {number} */ (size) : download.at;
      [this.size, this.certain] = here ? [size, true] : [download.facts.size, download.facts.certain];
      try {
        if (!here) await copy?.begin(download.at, download.facts);
        return;
      } catch (error) {
        await this.#drop(error);
        if (this.local === 0) return;
        download.close();   // the copy that it continues is gone
      }
    }
  }

  /** Moves the file into the engine; yields how many bytes each step moved, and where they come from.
   * @param {import('./source.js').Sink} engine @param {import('./source.js').Hash} [hash]
   * @returns {AsyncGenerator<{n: number, phase: 'read' | 'download'}>} */
  async *read(engine, hash) {
    if (this.#copy) this.#sums = new Sums(engine.digest, this.#copy.sums, this.#copy.sums && this.local);
    if (this.local > 0) {
      for await (const n of this.#readCopy(engine, hash)) yield { n, phase: 'read' };
    }
    if (!this.downloads) return;
    let needed = true, beyond = 0;
    for await (const chunk of this.#download.chunks()) {
      hash?.update(chunk);
      try {
        if (this.#sums) await this.#copy?.write(chunk, this.#sums);
      } catch (error) {
        await this.#drop(error);
      }
      needed &&= engine.write(chunk);
      if (!needed && !hash && !this.#copy) return;
      if (!needed && !this.#download.facts.certain) beyond += chunk.length;
      if (beyond > MOST_BEYOND) {
        await this.#drop(new Error('the server sends more than the model has'));
        if (!hash) return;
        throw new PlumbError('PLUMB_ERROR_IO', `${this.url}: the server sends more than ${MOST_BEYOND} bytes behind `
          + 'the model, and no end of which there could be a checksum', { url: this.url });
      }
      yield { n: chunk.length, phase: 'download' };
    }
  }

  /** @param {import('./source.js').Sink} engine @param {import('./source.js').Hash} [hash] */
  async *#readCopy(engine, hash) {
    const copy = /** @type {import('./copy-store.js').Copy} */ (this.#copy), { reader, blob } = copy;
    const sums = /** @type {Sums} */ (this.#sums);
    const all = {
      update(/** @type {Uint8Array} */ bytes) {
        sums.update(bytes);
        hash?.update(bytes);
      },
    };
    try {
      yield* reader ? readHandle(engine, reader, this.local, all)
        : readBlob(engine, /** @type {Blob} */ (blob), this.url, this.options.oneBuffer, all);
    } catch (error) {
      if (error instanceof PlumbError && error.code !== 'PLUMB_ERROR_IO' || error instanceof RangeError) throw error;
      throw await this.#unreadable(error);
    }
  }

  /** Must be called when the engine has refused something, before it is freed: the engine gets bytes before their chunk
   * is complete and its digest can be checked.  Throws StartOver if the copy is damaged or cannot be read. */
  async check() {
    const copy = this.#copy, { reader, blob } = copy ?? {};
    try {
      await this.#sums?.endChunk(async (at, end) => {
        if (!reader) return new Uint8Array(await /** @type {Blob} */ (blob).slice(at, end).arrayBuffer());
        const bytes = new Uint8Array(end - at);
        return bytes.subarray(0, reader.read(bytes, at));
      });
    } catch (error) {
      throw await this.#unreadable(error);
    }
  }

  /** Removes a copy that is damaged or cannot be read. @param {unknown} error  why reading it failed */
  async #unreadable(error) {
    await this.#copy?.remove().catch(() => {});
    if (error instanceof Damaged) this.#damaged(error.message);
    return new StartOver(`${this.url}: the copy cannot be read: ${reasonOf(error)}`);
  }

  /** @param {string} reason */
  #damaged(reason) {
    this.options.warn(`${this.url}: the copy on this machine is damaged: ${reason}; it is removed, and the file is `
      + 'downloaded anew');
  }

  /** The sha256 that its copy was once found to have; undefined if bytes come from the server. */
  get verified() { return this.downloads ? undefined : this.#copy?.meta.sha256; }

  /** Must be called after all bytes were read: completes the copy and closes it.
   * @param {string} [sha256]  the checksum that was computed, if any */
  async finish(sha256) {
    const known = this.#copy?.complete;
    try {
      await this.#copy?.finish(sha256, this.#sums?.all());
    } catch (error) {
      if (!known) await this.#drop(error);
    }
    await this.#copy?.close().catch(() => {});   // a failure does not matter: all bytes were used
  }

  /** Closes the connection and the copy; the file can be opened again afterwards.
   * @param {'keep' | 'unfinished' | 'all'} [remove]  which copy is removed: none, an incomplete one, or any
   * @param {string} [damage]  what is wrong with the copy, for a warning */
  async close(remove = 'keep', damage) {
    await this.#opened?.catch(() => {});
    await this.#found;
    this.#download.close();
    const copy = this.#copy;
    this.#copy = this.#found = this.#opened = undefined;
    this.local = 0;
    this.#sums = undefined;
    if (damage !== undefined) this.#damaged(damage);
    // A failure here, such as that of a dead writer, must not replace the reason why the file is given up.
    if (remove === 'all' || remove === 'unfinished' && !copy?.complete) await copy?.remove().catch(() => {});
    else await copy?.close().catch(() => {});
  }

  /** Removes the copy and continues without one. @param {unknown} error  the reason, for a warning */
  async #drop(error) {
    const copy = this.#copy;
    this.#copy = undefined;
    this.#noCopy(error);
    await copy?.remove().catch(() => {});
  }

  /** @param {unknown} error */
  #noCopy(error) {
    this.#keeps = false;
    if (error instanceof ReadOnly && this.options.mode === undefined) return;
    this.options.warn(`${this.url}: no copy is kept: ${reasonOf(error)}`);
  }
}
