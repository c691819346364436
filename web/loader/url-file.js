/* A model's file at a URL, as a load sees it.  The bytes that its copy on this machine has are read from there.  The
 * rest is downloaded, and each chunk is also written to the copy.  A copy that fails does not make the load fail:
 * either the load goes on without it and warns, or it starts over (StartOver).  A pass is one attempt to read it. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { ReadOnly } from './copy-store.js';
import { Download, StartOver } from './download.js';
import { send } from './request.js';
import { readBlob, readHandle } from './source.js';
import { Damaged, Sums } from './sums.js';

/** The most bytes after the end of the model that are downloaded for the copy or the checksum, if the size of the file
 * is not certain.  A response without an end would otherwise fill the disk. */
const MAX_BEYOND = 1 << 24;

/** @typedef {object} UrlOptions
 * @property {AbortSignal} signal
 * @property {import('./download.js').CacheMode} [mode]  absent: as 'default', but without a warning if copies can only
 *   be read here.  Where no copies are kept, it is the mode of the browser's own cache
 * @property {string} [sha256]  the checksum that the file should have
 * @property {import('./copy-store.js').Store} [store]  absent: no copies are kept
 * @property {import('./download.js').DownloadOptions['pause']} [pause]
 * @property {import('./download.js').DownloadOptions['silence']} [silence]
 * @property {boolean} [oneBuffer]
 * @property {() => import('../base/protocol.js').WorkerLike} [startThread]
 * @property {(attempt: number) => void} onWait
 * @property {import('./request.js').Fetch} [fetch]
 * @property {(message: string) => void} warn */

export class UrlFile {
  /** The size in bytes, if it is known; it may be known before the file is opened. @type {number | undefined} */
  size;
  /** Whether the size is reliable, as in Facts. */
  certain = false;
  /** How many bytes at the start of the file this pass reads from the copy.  The rest comes from the server. */
  local = 0;
  /** Whether a response of the server follows the bytes of the copy; known after open. */
  downloads = true;
  /** @type {import('./copy-store.js').Copy | undefined} */
  #copy;
  /** Computes the digests of the file in this pass, if there is a copy. @type {Sums | undefined} */
  #sums;
  /** Whether a copy is looked for and kept.  Becomes false for all later passes if that fails. */
  #keeps;
  /** The same object in all passes of a load, because it counts the failures. */
  #download;
  /** The result of find in this pass, so that further calls wait for the first. @type {Promise<void> | undefined} */
  #found;
  /** The same for open. @type {Promise<void> | undefined} */
  #opened;

  /** @param {import('./source.js').Part & {kind: 'url'}} part @param {UrlOptions} options */
  constructor(part, options) {
    this.part = part;
    /** What messages show of the URL. */
    this.name = part.name;
    this.size = part.size;
    this.options = options;
    this.#keeps = Boolean(options.store) && options.mode !== 'no-store' && /^https?:/.test(part.url);
    this.#download = new Download(part, {
      ...options, checked: options.sha256 !== undefined,
      // If this load keeps a copy, the browser's own cache need not keep another.
      cache: this.#keeps ? 'no-store' : options.mode ?? 'default',
    });
  }

  /** Looks for a copy, and opens it.  Never rejects. */
  find() {
    return this.#found ??= (async () => {
      if (!this.#keeps) return;
      try {
        this.#copy = await /** @type {import('./copy-store.js').Store} */ (this.options.store).take(
          this.part.copy ?? this.part.url, this.options.startThread);
        this.size = this.#copy.meta.size ?? this.size;
      } catch (error) {
        this.#noCopy(error);
      }
    })();
  }

  /** The size before the file is opened: that of the copy, or else what the server says to a HEAD request. */
  async guess() {
    await this.find();
    if (this.size !== undefined || !/^https?:/.test(this.part.url)) return this.size;
    const { signal, fetch } = this.options;
    const { ok, headers } = await send(this.part, { method: 'HEAD', signal, cache: 'no-store' }, fetch);
    const length = headers.get('Content-Encoding') ? null : headers.get('Content-Length');
    return ok && length !== null ? Number(length) : undefined;
  }

  /** Finds the copy, and sends a request to the server if one is needed.  May be called before there is an engine, so
   * that the response arrives while the engine is being compiled. */
  open() {
    this.#opened ??= this.#open();
    this.#opened.catch(() => {});   // Parts.read waits for it again and reports the failure
    return this.#opened;
  }

  /** Decides where the bytes come from:
   *
   *   - from a complete copy alone, in the mode 'default' without a request, and in the mode 'no-cache' if the server
   *     says that the file is unchanged;
   *   - from an incomplete copy and then from the server, if the server proves that the file is unchanged;
   *   - from the server alone in all other cases: without a copy, in the mode 'reload', if the file has changed, and if
   *     the copy was found to have another sha256 than the load expects.
   *
   * Then it prepares the copy for the bytes that follow.  If that fails, it drops the copy, and if bytes were to come
   * from the copy, decides again without it. */
  async #open() {
    const { mode = 'default', sha256, signal } = this.options;
    await this.find();
    signal.throwIfAborted();
    for (;;) {
      const copy = this.#copy, download = this.#download;
      const wrong = sha256 !== undefined && copy?.meta.sha256 !== undefined && copy.meta.sha256 !== sha256;
      // What the server said when the copy was written; undefined if the copy must not be used.
      const known = copy && copy.at > 0 && mode !== 'reload' && !wrong ? copy.meta : undefined;
      const whole = known !== undefined && copy?.complete === true;
      const { etag, lastModified, size, announced } = known ?? {};
      // Whether all bytes come from the copy.  If not, download.at is the position from which the server sends them.
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
    // The digests of the copy describe exactly the bytes that are read from it, because #open uses all of them or none.
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
      yield { n: chunk.length, phase: 'download' };
      if (!needed && !hash && !this.#copy) return;
      if (!needed && !this.#download.facts.certain) beyond += chunk.length;
      if (beyond > MAX_BEYOND) {
        await this.#drop(new Error('the server sends more bytes than the model has'));
        if (!hash) return;
        throw new PlumbError('PLUMB_ERROR_IO', `${this.name}: the server sends more than ${MAX_BEYOND} bytes after `
          + 'the end of the model, so the checksum of the file cannot be computed', { url: this.name });
      }
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
        : readBlob(engine, /** @type {Blob} */ (blob), this.name, this.options.oneBuffer, all);
    } catch (error) {
      // These errors come from the engine, which refuses the bytes, gets no memory for them or crashes.  All others
      // count as failures of the copy.
      if (error instanceof PlumbError && error.code !== 'PLUMB_ERROR_IO' || error instanceof RangeError
        || error instanceof WebAssembly.RuntimeError) throw error;
      throw await this.#unreadable(error);
    }
  }

  /** Checks the copy after the engine has refused its bytes: the engine gets them before their chunk is complete and
   * its digest can be compared.  Must be called before the engine is freed, because the engine computes the digest.
   * Throws StartOver if the copy is damaged or cannot be read. */
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

  /** Removes a copy that is damaged or cannot be read, and returns the error to throw.
   * @param {unknown} error  why reading it failed */
  async #unreadable(error) {
    if (error instanceof Damaged) this.#warnDamaged(error.message);
    await this.#remove(this.#copy);
    return new StartOver(`${this.name}: the copy cannot be read: ${reasonOf(error)}`);
  }

  /** Warns that the copy is damaged. @param {string} reason */
  #warnDamaged(reason) {
    this.options.warn(`${this.name}: the copy on this machine is damaged: ${reason}; it is removed, and the file is `
      + 'downloaded again');
  }

  /** The sha256 that an earlier load has computed of the copy, if all bytes come from the copy; otherwise undefined. */
  get verified() { return this.downloads ? undefined : this.#copy?.meta.sha256; }

  /** Must be called after all bytes were read: completes the copy and closes it.
   * @param {string} [sha256]  the checksum that was computed, if any */
  async finish(sha256) {
    const wasComplete = this.#copy?.complete;
    try {
      await this.#copy?.finish(sha256, this.#sums?.all());
    } catch (error) {
      // If this fails for a complete copy, only its metadata is out of date.
      if (!wasComplete) await this.#drop(error);
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
    if (damage !== undefined) this.#warnDamaged(damage);
    // If this fails, for example because the worker that writes the copy has died, the error must not replace the one
    // for which the file is closed.
    if (remove === 'all' || remove === 'unfinished' && !copy?.complete) await this.#remove(copy);
    else await copy?.close().catch(() => {});
  }

  /** Removes a copy.  If that fails, this load does not look for copies any more: it would find the same one again, and
   * never end.
   * @param {import('./copy-store.js').Copy} [copy] */
  async #remove(copy) {
    await copy?.remove().catch(error => this.#noCopy(error));
  }

  /** Removes the copy and continues without one. @param {unknown} error  the reason, for a warning */
  async #drop(error) {
    const copy = this.#copy;
    this.#copy = undefined;
    this.#noCopy(error);
    await copy?.remove().catch(() => {});
  }

  /** Gives up copies for this load. @param {unknown} error  the reason, for a warning */
  #noCopy(error) {
    this.#keeps = false;
    if (error instanceof ReadOnly && this.options.mode === undefined) return;   // nobody has asked for a copy
    this.options.warn(`${this.name}: no copy is kept: ${reasonOf(error)}`);
  }
}
