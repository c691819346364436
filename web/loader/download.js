/* A file of a server, whose connection may break at any byte: it is asked again for what is missing, and for all of it
 * (StartOver) where nothing proves that the rest would be of the same file.
 *
 * The proof is a strong ETag or a Last-Modified that stays the same, together with the size.  Requests to other sites
 * have a Range header and nothing else that would need a preflight; what the answer says is compared here. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { corsProblem, noConnection, webPage } from './blame.js';
import { streamChunks } from './stream.js';

/** Tries without a byte beyond those that are there, and the milliseconds before the first; each waits twice as long
 * as the one before, or as long as the server asks for, within limits. */
const TRIES = 5, FIRST_WAIT = 500, LONGEST_WAIT = 30000;
/** Tries at a server that never answered: most often its name is misspelt, or it refuses this site, which a browser
 * does not tell apart. */
const TRIES_UNHEARD = 2;
/** Milliseconds without a byte after which a connection is given up: one that is lost does not always say so. */
const SILENCE = 30000;

/** @typedef {'default' | 'no-cache' | 'reload' | 'no-store'} CacheMode */
/** @typedef {object} Facts  what a server says of a file
 * @property {number} [size]  bytes
 * @property {boolean} certain  the size may be relied on, not only shown
 * @property {string} [etag]
 * @property {string} [lastModified] */
/** @typedef {object} DownloadOptions
 * @property {AbortSignal} signal
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} [pause]  before the next try
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} [silence]  as pause; resolves if nothing came
 * @property {(attempt: number) => void} [onWait]
 * @property {boolean} checked  nothing has to prove that the bytes belong together: a checksum will tell, or it matters
 *   little
 * @property {CacheMode} cache  of the browser's own
 * @property {number} [range]  where only a file's beginning is needed: bytes that the first request asks for, and each
 *   further one as many as have come.  Answers are read no further, and failures are forgiven after so many more bytes
 * @property {boolean} [oneBuffer]  as Platform has it */

/** The bytes so far are of another file than those to come: the load begins anew. */
export class StartOver extends Error {}

export class Download {
  /** The next byte. */
  at = 0;
  /** @type {Facts} */
  facts = { certain: false };
  /** @type {Response | undefined} */
  #response;
  /** Ends the present request. */
  #request = new AbortController();
  /** Of the present answer, that are there already. */
  #skip = 0;
  /** Behind the last byte of the present answer, if it is a range. */
  #end = Infinity;
  #furthest = 0;
  #failures = 0;
  #heard = false;
  #encoded = false;
  #pause;
  #silence;

  /** @param {string} url @param {DownloadOptions} options */
  constructor(url, options) {
    this.url = url;
    this.options = options;
    this.#pause = options.pause ?? pause;
    this.#silence = options.silence ?? pause;
  }

  /** Asks for the file from byte `at` on, which is 0 afterwards if the file is not the one that is known.
   * @param {number} at @param {Facts} [known]
   * @param {boolean} [whole]  all of it is here, and the question is whether it has changed
   * @returns {Promise<boolean>}  whether it is the one that is known */
  async open(at, known, whole = false) {
    this.at = known && !whole && this.#resumable(known) ? at : 0;
    this.facts = { certain: false, ...known };
    for (;;) {
      const response = await this.#ask(whole);
      if (!this.#placed(response)) {
        drop(response);
        if (this.at === 0) throw this.#unplaced();
        this.at = 0;
        continue;
      }
      const same = response.status === 304 || Boolean(known) && this.#same(response, whole);
      if (same || this.at === 0) {
        if (!whole || !same) this.#take(response);
        else drop(response);
        return same;
      }
      if (response.status === 200) {   // it is another file, but here it comes
        this.at = 0;
        this.#take(response);
        return false;
      }
      drop(response);
      this.at = 0;
    }
  }

  /** The bytes from `at` on.  A chunk is valid until the next is asked for. */
  async *chunks() {
    const { signal, oneBuffer, range } = this.options;
    const { url, facts } = this, least = range ?? 1;
    for (;;) {
      const response = /** @type {Response} */ (this.#response), start = this.at;
      let reason = 'the connection was closed';
      try {
        let first = this.at === 0;
        for await (let chunk of response.body ? streamChunks(response.body, oneBuffer, this.#watch) : []) {
          if (first) checkKind(url, response, chunk);
          first = false;
          const skipped = Math.min(this.#skip, chunk.length);
          this.#skip -= skipped;
          chunk = chunk.subarray(skipped, range && skipped + this.#end - this.at);
          const most = Math.min(facts.certain && facts.size !== undefined ? facts.size : Infinity, this.#end);
          if (this.at + chunk.length > most) {
            throw new PlumbError('PLUMB_ERROR_IO', `${url}: the server sends more than the ${most} bytes that it `
              + 'announced', { url, total: most });
          }
          if (chunk.length === 0) continue;
          this.at += chunk.length;
          if (this.at - this.#furthest >= least) {
            this.#furthest = this.at;
            this.#failures = 0;
          }
          yield chunk;
          if (range && this.at === this.#end) break;
        }
        const known = facts.certain && facts.size !== undefined;
        // A range whose answer does not say how long the file is may be any part of the rest.
        const open = this.#end < Infinity && (range || this.at < (facts.size ?? Infinity));
        const missing = this.#skip > 0 || (known ? this.at < Number(facts.size) : open);
        if (!missing && this.at === 0) {
          throw new PlumbError('PLUMB_ERROR_TRUNCATED', `${url}: the server sent an empty file, not a GGUF file`,
            { url, bytes: 0 });
        }
        if (!missing) return;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof PlumbError) throw error;
        reason = reasonOf(error);
      }
      // A server may answer with less than it was asked for.
      const came = this.at - start, enough = this.at === this.#end && came >= least;
      if (this.at === this.#end) reason = `the server sends ${came} at once`;
      if (!enough || this.#failures > 0) await this.#failed(this.#broken(reason));
      if (this.at > 0 && !this.#resumable(facts)) throw new StartOver(`${url}: nothing says that the file is the same`);
      const again = await this.#ask();
      const problem = !this.#placed(again) ? this.#unplaced().message
        : !this.#same(again) ? `${url}: the file has changed` : undefined;
      if (problem !== undefined) {
        drop(again);
        throw new StartOver(problem);
      }
      this.#take(again);
    }
  }

  #follow = () => this.#request.abort(this.options.signal.reason);

  /** Gives the connection up. */
  close() {
    this.options.signal.removeEventListener('abort', this.#follow);
    if (this.#response) drop(this.#response);
  }

  /** @param {Facts} facts */
  #resumable({ etag, lastModified }) {
    return !this.#encoded && (this.options.checked || strong(etag) !== undefined || lastModified !== undefined);
  }

  /** @param {boolean} [whole]  as open has it @returns {Promise<Response>}  200, 206, 304 or 416 */
  async #ask(whole = false) {
    const { url, at, options: { signal, cache, range } } = this;
    for (;;) {
      signal.throwIfAborted();
      const request = this.#request = new AbortController();
      signal.addEventListener('abort', this.#follow);   // one of all requests
      /** @type {Response} */
      let response;
      try {
        response = await this.#watch(fetch(url, { signal: request.signal, cache, headers: this.#headers(whole) }));
      } catch (error) {
        signal.throwIfAborted();
        const cors = this.#heard ? undefined : await corsProblem(url, signal);
        const problem = new PlumbError('PLUMB_ERROR_IO', `${url}: ${cors ?? noConnection(url, error)}`, { url });
        if (cors !== undefined && this.#failures > 0) throw problem;   // it was not a connection that broke just once
        await this.#failed(at > 0 && cors === undefined ? this.#broken(reasonOf(error)) : problem);
        continue;
      }
      this.#heard = true;
      const { status } = response, part = response.headers.get('Content-Range');
      const [, start] = /^bytes (\d+)-\d+\/(?:\d+|\*)$/.exec(part ?? '') ?? [];
      if (status === 206 && part !== null && Number(start) !== at) {
        drop(response);
        throw new PlumbError('PLUMB_ERROR_IO', `${url}: asked for the bytes from ${at} on, the server answered with `
          + `"Content-Range: ${part}"`, { url, bytes: at });
      }
      const partial = (at > 0 || range) && (status === 206 || status === 416);
      if (status === 200 || partial || status === 304 && whole) return response;
      drop(response);
      const error = new PlumbError('PLUMB_ERROR_IO',
        `${url}: the server answered ${`${status} ${response.statusText}`.trim()}`, { url, status });
      if (status !== 408 && status !== 429 && status < 500) throw error;
      await this.#failed(error, retryAfter(response));
    }
  }

  /** Waits for what the server sends, and ends the request if nothing comes.
   * @type {<T>(coming: Promise<T>) => Promise<T>} */
  #watch = async coming => {
    const request = this.#request, came = new AbortController();
    const silent = this.#silence(SILENCE, came.signal).then(() => {
      const error = new Error(`nothing came for ${SILENCE / 1000} seconds`);
      request.abort(error);
      throw error;
    });
    try {
      return await Promise.race([coming, silent]);
    } finally {
      came.abort('it came');
    }
  };

  /** @param {boolean} whole */
  #headers(whole) {
    const { url, at, facts, options: { range } } = this;
    const etag = strong(facts.etag), { lastModified } = facts;
    /** @type {Record<string, string>} */
    const headers = range ? { Range: `bytes=${at}-${this.#asked() - 1}` } : at > 0 ? { Range: `bytes=${at}-` } : {};
    const elsewhere = globalThis.location && new URL(url, location.href).origin !== location.origin;
    if (elsewhere) return headers;   // these would need a preflight
    if (at > 0 && (etag ?? lastModified)) headers['If-Range'] = /** @type {string} */ (etag ?? lastModified);
    if (whole && facts.etag) headers['If-None-Match'] = facts.etag;
    else if (whole && lastModified) headers['If-Modified-Since'] = lastModified;
    return headers;
  }

  /** Waits for the next try, or throws. @param {PlumbError} error @param {number} [asked]  ms, by the server */
  async #failed(error, asked = 0) {
    const { signal, onWait } = this.options;
    if (!/^https?:/.test(this.url)) throw error;   // data: and blob: do not get better
    const tries = this.#heard ? TRIES : TRIES_UNHEARD;
    if (++this.#failures > tries) {
      error.message += ` (${tries} more tries did not help)`;
      error.details.tries = tries;
      throw error;
    }
    onWait?.(this.#failures);
    await this.#pause(Math.min(Math.max(FIRST_WAIT * 2 ** (this.#failures - 1), asked), LONGEST_WAIT), signal);
    signal.throwIfAborted();
  }

  /** @param {string} reason */
  #broken(reason) {
    const { url, at, facts: { size } } = this;
    const total = size === undefined ? '' : ` of ${size}`;
    return new PlumbError('PLUMB_ERROR_IO', `${url}: the bytes stop after ${at}${total}: ${reason}`,
      { name: url, bytes: at, ...size !== undefined && { total: size } });
  }

  /** Whether the bytes of an answer are those from `at` on.  A 206 must say so in its Content-Range; #ask refuses one
   * that names another place.  A browser may hide that header in the answer of another site: then the length decides.
   * A range of encoded bytes is a range of something else.
   * @param {Response} response */
  #placed(response) {
    const { headers, status, type } = response, { at, facts: { size }, options: { range } } = this;
    if (status !== 206) return true;
    if (isEncoded(response)) return false;
    if (headers.has('Content-Range')) return true;
    const length = bytesOf(headers.get('Content-Length'));
    // Of a preflight nothing is kept.
    if (range) return length === undefined ? at === 0 : at + length <= this.#asked();
    return type === 'cors' && length !== undefined && size !== undefined && at + length === size;
  }

  #unplaced() {
    const { url, at } = this;
    return new PlumbError('PLUMB_ERROR_IO', `${url}: asked for the bytes from ${at} on, the server answered 206 `
      + 'without a "Content-Range" that says which bytes it sends', { url, bytes: at });
  }

  /** Whether an answer is of the file that the facts are of.
   * @param {Response} response @param {boolean} [whole]  as open has it */
  #same(response, whole = false) {
    const { at, facts } = this;
    if (response.status === 416) {   // a browser may not show where it ends
      const end = /^bytes \*\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '')?.[1];
      const size = this.options.range ? facts.size ?? at : facts.size;   // of a preflight nothing is kept
      return size === at && Number(end ?? at) === at;
    }
    const found = this.#factsOf(response);
    if (facts.certain && found.certain && facts.size !== found.size && facts.size !== undefined
      && found.size !== undefined) return false;
    const [was, is] = [strong(facts.etag), strong(found.etag)];
    if (was !== undefined && is !== undefined) return was === is;
    if (facts.etag !== undefined && found.etag !== undefined && weak(facts.etag) !== weak(found.etag)) return false;
    if (facts.lastModified !== undefined && found.lastModified !== undefined) {
      return facts.lastModified === found.lastModified;
    }
    return at === 0 && !whole && facts.size === found.size || this.options.checked;
  }

  /** @param {Response} response  whose bytes are to come */
  #take(response) {
    this.#response = response;
    if (response.status === 416) {   // all is here
      drop(response);
      this.#response = new Response();
      this.#note({ ...this.facts, size: this.at, certain: true });
      return;
    }
    this.#skip = response.status === 200 ? this.at : 0;
    const end = /^bytes \d+-(\d+)\//.exec(response.headers.get('Content-Range') ?? '')?.[1] ?? Infinity;
    this.#end = response.status === 206 ? Math.min(Number(end) + 1, this.#asked()) : Infinity;
    this.#encoded = isEncoded(response);
    this.#note(this.#factsOf(response));
  }

  /** Behind the last byte that is asked for. */
  #asked() { return this.at + Math.max(this.options.range ?? Infinity, this.at); }

  /** @param {Response} response  to the bytes from `at` on @returns {Facts} */
  #factsOf(response) {
    const { headers, status } = response;
    const length = isEncoded(response) ? null : headers.get('Content-Length');
    const whole = /\/(\d+)$/.exec(headers.get('Content-Range') ?? '')?.[1];
    // Where a browser hides the range #placed has seen that the length is that of the rest.
    const hidden = !headers.has('Content-Range') && !this.options.range;
    const toEnd = length !== null && hidden ? String(this.at + Number(length)) : null;
    const size = bytesOf(status === 206 ? whole ?? toEnd : length);
    return {
      size,
      // Of another site's answer a browser shows the length, but not the encoding, which a range has none of.
      certain: size !== undefined && (status === 206 || response.type !== 'cors'),
      etag: headers.get('ETag') ?? undefined,
      lastModified: headers.get('Last-Modified') ?? undefined,
    };
  }

  /** Takes over what an answer says.  What the answer for the rest of a file leaves unsaid stays as it was known, and a
   * size that was certain stays certain. @param {Facts} found */
  #note(found) {
    const { certain, size } = this.facts;
    const said = Object.entries(found).filter(([, value]) => this.at === 0 || value !== undefined);
    Object.assign(this.facts, Object.fromEntries(said));
    if (this.at > 0 && certain && !found.certain) Object.assign(this.facts, { certain, size });
  }
}

/** @param {string} url @param {Response} response @param {Uint8Array} chunk  the first */
function checkKind(url, response, chunk) {
  const problem = chunk[0] === 0x47 ? undefined : webPage(response, 'a GGUF file');
  if (problem === undefined) return;
  throw new PlumbError('PLUMB_ERROR_MAGIC', `${url}: ${problem}`,
    { url, type: response.headers.get('Content-Type') ?? '' });
}

/** A number of bytes that a header tells; undefined for what is none. @param {string | null | undefined} text */
const bytesOf = text => /^\d{1,15}$/.test(text ?? '') ? Number(text) : undefined;

/** @param {Response} response */
const drop = response => void response.body?.cancel().catch(() => {});

/** @param {string} [etag] @returns {string | undefined}  only if equal ones mean equal bytes */
const strong = etag => etag?.startsWith('W/') ? undefined : etag;
/** @param {string} etag */
const weak = etag => etag.replace(/^W\//, '');

/** With a Content-Encoding lengths count the encoded bytes, not the ones that arrive here.
 * @param {Response} response */
const isEncoded = response => ![null, '', 'identity'].includes(response.headers.get('Content-Encoding'));

/** @param {Response} response @returns {number}  milliseconds */
function retryAfter({ headers }) {
  const text = headers.get('Retry-After') ?? '';
  const ms = /^\d+$/.test(text) ? 1000 * Number(text) : Date.parse(text) - Date.now();
  return ms > 0 ? ms : 0;
}

/** @type {NonNullable<DownloadOptions['pause']>} */
const pause = (ms, signal) => new Promise((resolve, reject) => {
  const done = () => {
    clearTimeout(timer);
    signal.removeEventListener('abort', done);
    if (signal.aborted) reject(signal.reason);
    else resolve();
  };
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', done);
});
