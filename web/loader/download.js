/* A file of a server, whose connection may break at any byte: it is asked again for what is missing, and for all of it
 * (StartOver) where nothing proves that the rest would be of the same file.
 *
 * The proof is a strong ETag or a Last-Modified that stays the same, together with the size.  Requests to other sites
 * have a Range header and nothing else that would need a preflight; what the answer says is compared here. */
import { PlumbError, reasonOf } from '../errors.js';
import { streamChunks } from './stream.js';

/** Tries without a byte beyond those that are there, and the milliseconds before the first; each waits twice as long
 * as the one before, or as long as the server asks for, within limits. */
const TRIES = 5, FIRST_WAIT = 500, LONGEST_WAIT = 30000;
/** Tries at a server that never answered: most often its name is misspelt, or it refuses this site, which a browser does
 * not tell apart. */
const TRIES_UNHEARD = 2;
/** Milliseconds without a byte after which a connection is given up: one that is lost does not always say so. */
const SILENCE = 30000;

/** @typedef {object} Facts  what a server says of a file
 * @property {number} [size]  bytes
 * @property {boolean} certain  the size may be relied on, not only shown
 * @property {string} [etag]
 * @property {string} [lastModified] */
/** @typedef {object} DownloadOptions
 * @property {AbortSignal} signal
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} pause
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} silence  as pause; resolves if nothing came meanwhile
 * @property {(attempt: number) => void} onWait
 * @property {boolean} checked  a checksum will tell whether the bytes belong together
 * @property {RequestCache} cache  of the browser's own
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
  /** Behind the last byte of the present answer, if it says so. @type {number | undefined} */
  #end;
  #furthest = 0;
  #failures = 0;
  #heard = false;
  #encoded = false;

  /** @param {string} url @param {DownloadOptions} options */
  constructor(url, options) {
    this.url = url;
    this.options = options;
  }

  /** Asks for the file from byte `at` on, which is 0 afterwards if the file is not the one that is known.
   * @param {number} at @param {Facts} [known]
   * @param {boolean} [whole]  all of it is here, and the question is whether it has changed
   * @returns {Promise<boolean>}  whether it is the one that is known */
  async open(at, known, whole = false) {
    this.at = known && !whole && this.#resumable(known) ? at : 0;
    this.facts = { certain: false, ...known };
    this.#end = undefined;
    for (;;) {
      const response = await this.#ask(whole);
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
    const { signal, oneBuffer } = this.options;
    const { url, facts } = this;
    for (;;) {
      const response = /** @type {Response} */ (this.#response);
      let reason = 'the connection was closed';
      try {
        let first = this.at === 0;
        for await (let chunk of response.body ? streamChunks(response.body, oneBuffer, this.#watch) : []) {
          if (first) checkKind(url, response, chunk);
          first = false;
          const skipped = Math.min(this.#skip, chunk.length);
          this.#skip -= skipped;
          chunk = chunk.subarray(skipped);
          if (facts.certain && facts.size !== undefined && this.at + chunk.length > facts.size) {
            throw new PlumbError('PLUMB_ERROR_IO', `${url}: the server sends more than the ${facts.size} bytes that it `
              + 'announced', { url, total: facts.size });
          }
          if (chunk.length === 0) continue;
          this.at += chunk.length;
          if (this.at > this.#furthest) {
            this.#furthest = this.at;
            this.#failures = 0;
          }
          yield chunk;
        }
        const missing = this.#skip > 0 || facts.certain && facts.size !== undefined && this.at < facts.size;
        if (!missing) return;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof PlumbError) throw error;
        reason = reasonOf(error);
      }
      // A server may answer with less than it was asked for.
      if (this.at !== this.#end || this.#failures > 0) await this.#failed(this.#broken(reason));
      if (this.at > 0 && !this.#resumable(facts)) throw new StartOver(`${url}: nothing says that the file is the same`);
      const again = await this.#ask();
      if (!this.#same(again)) {
        drop(again);
        throw new StartOver(`${url}: the file has changed`);
      }
      this.#take(again);
    }
  }

  /** Gives the connection up. */
  close() {
    if (this.#response) drop(this.#response);
  }

  /** @param {Facts} facts */
  #resumable({ etag, lastModified }) {
    return !this.#encoded && (this.options.checked || strong(etag) !== undefined || lastModified !== undefined);
  }

  /** @param {boolean} [whole]  as open has it @returns {Promise<Response>}  200, 206, 304 or 416 */
  async #ask(whole = false) {
    const { url, at, options: { signal, cache } } = this;
    for (;;) {
      signal.throwIfAborted();
      const request = this.#request = new AbortController();
      const follow = () => request.abort(signal.reason);
      signal.addEventListener('abort', follow, { signal: request.signal });
      /** @type {Response} */
      let response;
      try {
        response = await this.#watch(fetch(url, { signal: request.signal, cache, headers: this.#headers(whole) }));
      } catch (error) {
        signal.throwIfAborted();
        await this.#failed(at > 0 ? this.#broken(reasonOf(error))
          : new PlumbError('PLUMB_ERROR_IO', `${url}: no connection: ${reasonOf(error)}`, { url }));
        continue;
      }
      this.#heard = true;
      const { status } = response;
      if (status === 200 || (status === 206 || status === 416) && at > 0 || status === 304 && whole) return response;
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
    const silent = this.options.silence(SILENCE, came.signal).then(() => {
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
    const { url, at, facts } = this;
    const etag = strong(facts.etag), { lastModified } = facts;
    /** @type {Record<string, string>} */
    const headers = at > 0 ? { Range: `bytes=${at}-` } : {};
    const elsewhere = globalThis.location && new URL(url, location.href).origin !== location.origin;
    if (elsewhere) return headers;   // these would need a preflight
    if (at > 0 && (etag ?? lastModified)) headers['If-Range'] = /** @type {string} */ (etag ?? lastModified);
    if (whole && facts.etag) headers['If-None-Match'] = facts.etag;
    else if (whole && lastModified) headers['If-Modified-Since'] = lastModified;
    return headers;
  }

  /** Waits for the next try, or throws. @param {PlumbError} error @param {number} [asked]  ms, by the server */
  async #failed(error, asked = 0) {
    const { signal, pause, onWait } = this.options;
    if (!/^https?:/.test(this.url)) throw error;   // data: and blob: do not get better
    const tries = this.#heard ? TRIES : TRIES_UNHEARD;
    if (++this.#failures > tries) {
      error.message += ` (${tries} more tries brought nothing)`;
      error.details.tries = tries;
      throw error;
    }
    onWait(this.#failures);
    await pause(Math.min(Math.max(FIRST_WAIT * 2 ** (this.#failures - 1), asked), LONGEST_WAIT), signal);
    signal.throwIfAborted();
  }

  /** @param {string} reason */
  #broken(reason) {
    const { url, at, facts: { size } } = this;
    const total = size === undefined ? '' : ` of ${size}`;
    return new PlumbError('PLUMB_ERROR_IO', `${url}: the bytes stop after ${at}${total}: ${reason}`,
      { name: url, bytes: at, ...size !== undefined && { total: size } });
  }

  /** Whether an answer is of the file that the facts are of.
   * @param {Response} response @param {boolean} [whole]  as open has it */
  #same(response, whole = false) {
    const { url, at, facts } = this;
    const range = response.headers.get('Content-Range');
    if (response.status === 416) return /^bytes \*\/(\d+)$/.exec(range ?? '')?.[1] === String(at);
    const [, start] = /^bytes (\d+)-\d+\/(?:\d+|\*)$/.exec(range ?? '') ?? [];
    if (response.status === 206 && range !== null && Number(start) !== at) {
      drop(response);
      throw new PlumbError('PLUMB_ERROR_IO', `${url}: asked for the bytes from ${at} on, the server answered with `
        + `"Content-Range: ${range}"`, { url, bytes: at });
    }
    const found = factsOf(response, at);
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
    const end = /^bytes \d+-(\d+)\//.exec(response.headers.get('Content-Range') ?? '')?.[1];
    this.#end = end === undefined ? undefined : Number(end) + 1;
    this.#encoded = isEncoded(response);
    this.#note(factsOf(response, this.at));
  }

  /** What an answer says; of what the rest of a file leaves unsaid, what was known stays. @param {Facts} found */
  #note(found) {
    const said = Object.entries(found).filter(([, value]) => this.at === 0 || value !== undefined);
    Object.assign(this.facts, Object.fromEntries(said));
  }
}

/** A server that answers everything with its start page is a common accident, and deserves its own words.
 * @param {string} url @param {Response} response @param {Uint8Array} chunk  the first */
export function checkKind(url, response, chunk) {
  const type = response.headers.get('Content-Type') ?? '';
  if (!type.includes('text/html') || chunk[0] === 0x47) return;
  throw new PlumbError('PLUMB_ERROR_MAGIC', `${url}: the server sent a web page (${type}), not a GGUF file`,
    { url, type });
}

/** A number of bytes that a header tells; undefined for what is none. @param {string | null | undefined} text */
export const bytesOf = text => /^\d{1,15}$/.test(text ?? '') ? Number(text) : undefined;

/** @param {Response} response */
const drop = response => void response.body?.cancel().catch(() => {});

/** @param {string} [etag] @returns {string | undefined}  only if equal ones mean equal bytes */
const strong = etag => etag?.startsWith('W/') ? undefined : etag;
/** @param {string} etag */
const weak = etag => etag.replace(/^W\//, '');

/** With a Content-Encoding lengths count the encoded bytes, not the ones that arrive here.
 * @param {Response} response */
const isEncoded = response => ![null, '', 'identity'].includes(response.headers.get('Content-Encoding'));

/** @param {Response} response @param {number} at  the first byte that was asked for @returns {Facts} */
function factsOf(response, at) {
  const { headers, status } = response;
  const length = isEncoded(response) ? null : headers.get('Content-Length');
  const whole = /\/(\d+)$/.exec(headers.get('Content-Range') ?? '')?.[1];
  const text = status !== 206 ? length : whole ?? (length === null ? null : String(at + Number(length)));
  const size = bytesOf(text);
  return {
    size,
    // Of another site's answer a browser shows the length, but not the encoding, which a range has none of.
    certain: size !== undefined && (status === 206 || response.type !== 'cors'),
    etag: headers.get('ETag') ?? undefined,
    lastModified: headers.get('Last-Modified') ?? undefined,
  };
}

/** @param {Response} response @returns {number}  milliseconds */
function retryAfter({ headers }) {
  const text = headers.get('Retry-After') ?? '';
  const ms = /^\d+$/.test(text) ? 1000 * Number(text) : Date.parse(text) - Date.now();
  return ms > 0 ? ms : 0;
}

/** @type {DownloadOptions['pause']} */
export const pause = (ms, signal) => new Promise((resolve, reject) => {
  const done = () => {
    clearTimeout(timer);
    signal.removeEventListener('abort', done);
    if (signal.aborted) reject(signal.reason);
    else resolve();
  };
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', done);
});
