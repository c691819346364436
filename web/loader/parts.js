/* The parts of a model while it loads, on the engine's side.  Parts opens each of them, verifies checksums, reports the
 * progress, and decides after a failure whether the load is tried again and which copies are kept. */
// sha2.js is not loaded on demand: a bundler that makes one file of a worker, such as Vite before 8, refuses import().
import { PlumbError, reasonOf } from '../base/errors.js';
import { hex } from '../base/hex.js';
import { sha256 as hasher } from '../dist/vendor/noble-hashes/sha2.js';
import { StartOver } from './download.js';
import { Meter, sum } from './progress.js';
import { pulledFetch } from './request.js';
import { read } from './source.js';
import { UrlFile } from './url-file.js';

/** The codes of errors that mean that a file is broken, or its copy damaged. */
const DAMAGED = ['MAGIC', 'VERSION', 'TRUNCATED', 'METADATA', 'TENSOR', 'TOKENIZER'].map(name => `PLUMB_ERROR_${name}`);

/** The most requests for the sizes of parts at one time.  Together with the download of a part these are 6 requests, as
 * many as a browser sends to one server. */
const MAX_SIZE_REQUESTS = 5;

/** @typedef {object} LoadArgs
 * @property {import('./source.js').Part[]} parts
 * @property {import('./download.js').CacheMode} [cache]
 * @property {(string | undefined)[]} [sha256]  of each part, in lowercase hex digits
 * @property {boolean} [fetches]  whether the caller has given a function in the place of fetch */
/** @typedef {{code: 'threads' | 'module' | 'cache' | 'context' | 'shared', message: string}} Warning  what does not run
 *   as requested */

export class Parts {
  /** @type {Warning[]} */
  warnings = [];
  /** Aborts all requests: when the call is aborted or the load has failed for good. */
  #end = new AbortController();
  /** Ends the loops of one pass that ask for sizes: they send no more requests and ignore the answers to earlier ones.
   * A pass is one attempt to read all parts into a new engine. */
  #sizeRequests = new AbortController();
  /** The index of the part that is being read. */
  #reached = 0;

  /** @param {LoadArgs} args @param {import('../base/protocol.js').Call} call
   * @param {import('./source.js').Platform} platform */
  constructor({ parts, cache, sha256 = [], fetches }, call, platform) {
    this.parts = parts;
    this.call = call;
    this.platform = platform;
    this.sha256 = sha256;
    this.meter = new Meter(progress => call.emit('progress', progress), parts.map(({ size }) => size));
    /** Rejects when the call is aborted, and never resolves: for a race against a promise that has no signal. */
    this.aborted = new Promise((_, reject) => {
      const abort = () => {
        this.#end.abort(call.signal.reason);
        reject(call.signal.reason);
      };
      if (call.signal.aborted) abort();
      call.signal.addEventListener('abort', abort);
    });
    this.aborted.catch(() => {});
    const { store, pause, silence, oneBuffer, startThread } = platform, fetch = fetches ? pulledFetch(call) : undefined;
    /** For each part that is a URL, its file; undefined for the others. */
    this.files = parts.map((part, i) => part.kind !== 'url' ? undefined : new UrlFile(part, {
      signal: this.#end.signal, mode: cache, sha256: sha256[i], store, pause, silence, oneBuffer, startThread, fetch,
      onWait: attempt => this.meter.emit('wait', attempt),
      warn: message => void this.warnings.push({ code: 'cache', message }),
    }));
    this.#start();
  }

  /** Sends the first requests while the engine is still being compiled.  Opens the first part; after that it asks for
   * the sizes of the later ones, in order. */
  #start() {
    const requests = this.#sizeRequests = new AbortController();
    this.#reached = 0;
    const [first, ...others] = this.files;
    const opened = first?.open() ?? Promise.resolve();
    let next = 0;
    const requestSizes = async () => {
      while (next < others.length && !requests.signal.aborted && !this.#end.signal.aborted) {
        const i = next++, file = others[i];
        if (!file) continue;
        const size = await file.guess().catch(() => undefined);
        if (requests.signal.aborted) return;
        this.meter.sizes[i + 1] ??= size;
        if (size === undefined) next = others.length;   // the total is unknown then, whatever the other sizes are
      }
    };
    opened.then(() => { for (let i = 0; i < MAX_SIZE_REQUESTS; i++) requestSizes(); }, () => {});
  }

  /** Moves all parts into the engine.  Yields after each chunk. @param {import('./source.js').Sink} engine */
  async *read(engine) {
    const { parts, files, call, meter, sha256, platform: { openFile, oneBuffer } } = this;
    for (const [i, part] of parts.entries()) {
      const file = files[i], expected = sha256[i];
      this.#reached = i;
      try {
        await file?.open();
        meter.sizes[i] = file ? file.size : part.size;
        meter.partial = Boolean(file?.downloads);
        engine.begin(this.#certainFrom(i));
        const hash = expected === undefined || file?.verified === expected ? undefined
          : hasher.create();
        if (file) {
          for await (const { n, phase } of file.read(engine, hash)) {
            meter.add(n, phase);
            yield;
          }
        } else if (part.kind !== 'url') {
          for await (const n of read(engine, part, { pull: () => call.pull(i), openFile, oneBuffer, hash })) {
            meter.add(n, 'read');
            yield;
          }
        }
        const found = hash && hex(hash.digest());
        if (found !== undefined && found !== expected) {
          await file?.close('all');
          throw new PlumbError('PLUMB_ERROR_CHECKSUM', `the sha256 is ${found}, expected ${expected}`,
            { found, expected: /** @type {string} */ (expected) });
        }
        await file?.finish(found);
      } catch (error) {
        call.signal.throwIfAborted();
        if (error instanceof PlumbError && part.name && !error.message.startsWith(part.name)) {
          error.message = `${part.name}: ${error.message}`;
        }
        throw error;
      }
    }
  }

  /** Bytes of part `first` and of all later ones together, because a file may be cut into several parts.  Undefined if
   * one of the sizes is not certain.
   * @param {number} first */
  #certainFrom(first) {
    const { parts, files } = this;
    return sum(parts.slice(first).map((part, i) => {
      const file = files[first + i];
      return file ? file.certain ? file.size : undefined : part.size;
    }));
  }

  /** The error to report for a failure: StartOver if the copy that was being read turns out to be damaged, otherwise
   * `error`.  Must be called before the engine is freed, because the engine computes the digest of the copy.
   * @param {unknown} error */
  async findCause(error) {
    if (this.call.signal.aborted || !(error instanceof PlumbError)) return error;
    try {
      await this.files[this.#reached]?.check();
      return error;
    } catch (cause) {
      return cause;
    }
  }

  /** Whether the load is worth another pass with a new engine after this failure: a file has changed, or a copy may be
   * damaged.  If so, this removes suspect copies and sends the first requests again.  If the engine finds the model
   * broken, all copies that were used are suspect, because those of older versions have no digests.  Parts that were
   * pulled cannot be read a second time.
   *
   * Passes are not counted.  They end because a suspect copy is not used again (it is removed, and if that fails,
   * UrlFile ignores it), and because a Download counts its failures over all passes as long as it does not get further.
   * @param {unknown} error */
  async prepareRetry(error) {
    if (this.call.signal.aborted) return false;
    const copied = (/** @type {UrlFile | undefined} */ file) => file !== undefined && file.local > 0;
    const damaged = isDamage(error) && this.files.some(copied);
    if (!damaged && !(error instanceof StartOver)) return false;
    if (this.parts.slice(0, this.#reached + 1).some(({ kind }) => kind === 'pull')) return false;
    this.#sizeRequests.abort();
    for (const file of this.files) {
      // The reason need not name the URL, because the warning does.
      if (damaged && copied(file)) await file?.close('all', reasonOf(error).replace(`${file.name}: `, ''));
      else await file?.close('keep');
    }
    this.meter.reset();
    this.#start();
    return true;
  }

  /** Closes all files after the failure that ends the load.  If the model is broken, it removes all copies; if plumb
   * does not support the model, the unfinished ones.  Throws PLUMB_ERROR_IO in place of a StartOver: the load could not
   * start over because a part was pulled, which only the caller can provide again.
   * @param {unknown} error */
  async abandon(error) {
    this.#end.abort(error);
    this.#sizeRequests.abort();
    const remove = isDamage(error) ? 'all' : isUnsupported(error) ? 'unfinished' : 'keep';
    for (const file of this.files) await file?.close(remove);
    if (error instanceof StartOver) throw new PlumbError('PLUMB_ERROR_IO', `${error.message}; load it again`);
  }
}

/** @param {any} error  an error, or a problem of a preflight @returns {boolean} */
export const isDamage = error => DAMAGED.includes(error?.code);
/** @param {unknown} error */
const isUnsupported = error => error instanceof PlumbError && error.code === 'PLUMB_ERROR_UNSUPPORTED';
