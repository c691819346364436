/* A download whose connection may break at any byte.  It then requests the missing bytes.  If nothing proves that they
 * are of the same file, the load must start over (StartOver).
 *
 * The proof is a strong ETag that stays the same, or else a Last-Modified, provided that the size does not change.
 * Every response is compared here.  A request for missing bytes also has If-Range, so that a server sends all of a file
 * that has changed.  A page does not send If-Range to other origins, because it would need a CORS preflight, whereas
 * Range does not. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { corsProblem, noConnection, webPage } from './fetch-errors.js';
import { send } from './request.js';
import { streamChunks } from './stream.js';

/** RETRIES: after this many retries in a row that bring no new byte, the download fails.  Before the first one it waits
 * FIRST_WAIT milliseconds, and before each further one twice as long as before the last, or as long as the server asks
 * if that is more, but at most LONGEST_WAIT. */
const RETRIES = 5, FIRST_WAIT = 500, LONGEST_WAIT = 30000;
/** The number of retries if the server has never responded.  Most often its name is misspelt, or it does not allow
 * pages of this site to read its responses; a browser reports both in the same way. */
const RETRIES_NO_RESPONSE = 2;
/** Milliseconds without a byte after which a connection is given up, because a lost one is not always reported. */
const SILENCE = 30000;

/** @typedef {'default' | 'no-cache' | 'reload' | 'no-store'} CacheMode */
/** @typedef {object} Facts  what a server says about a file
 * @property {number} [size]  in bytes
 * @property {boolean} certain  whether the size is reliable.  Otherwise it may be that of the encoded bytes, and a
 *   different number may arrive
 * @property {string} [etag]
 * @property {string} [lastModified] */
/** @typedef {object} DownloadOptions
 * @property {AbortSignal} signal
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} [pause]  waits before a retry
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} [silence]  waits while nothing arrives.  The signal
 *   ends the wait when something does; if it resolves before that, the connection is given up
 * @property {(attempt: number) => void} [onWait]  called before the wait; attempt: the number of the retry, from 1
 * @property {boolean} checked  whether bytes need no proof that they are of one file, because a checksum will show it
 *   or, in a preflight, it matters little
 * @property {CacheMode} cache  the mode of the browser's own cache
 * @property {number} [range]  only in a preflight, which reads the beginning of a file and keeps no copy: how many
 *   bytes the first request asks for.  Each further request asks for as many as have arrived.  A response is not read
 *   beyond the range that was requested, and failures are forgotten only after this many new bytes
 * @property {import('./request.js').Fetch} [fetch]  used in the place of fetch
 * @property {boolean} [oneBuffer]  as in Platform */

/** The load must start over: the bytes so far may be of another file than the rest, or the copy cannot be used. */
export class StartOver extends Error {}

export class Download {
  /** The position of the next byte. */
  at = 0;
  /** @type {Facts} */
  facts = { certain: false };
  /** @type {Response | undefined} */
  #response;
  /** Aborts the present request. */
  #request = new AbortController();
  /** How many bytes of the present response are still to be skipped, because an earlier response has brought them. */
  #skip = 0;
  /** The position after the last byte of the present response, if it is a range. */
  #end = Infinity;
  /** The furthest position that any pass (a call of open) has reached when the failures were forgotten.  Only bytes
   * after it count as new. */
  #furthest = 0;
  /** The failures since then. */
  #failures = 0;
  /** Whether the server has responded at least once. */
  #hasAnswered = false;
  /** The encoding of the present response, if it has one.  No range of the file can then be requested.
   * @type {string | undefined} */
  #encoding;
  #pause;
  #silence;

  /** @param {import('./request.js').Target & {name: string}} file  name: what messages show of its URL
   * @param {DownloadOptions} options */
  constructor(file, options) {
    this.file = file;
    this.name = file.name;
    this.options = options;
    this.#pause = options.pause ?? pause;
    this.#silence = options.silence ?? pause;
  }

  /** Requests the file from byte `at` on.  Afterwards `this.at` is the position of the first byte that chunks() yields:
   * 0 if the file has changed or no range of it can be requested, otherwise `at`.  With `whole` it only asks whether
   * the file has changed; if not, chunks() must not be called.
   * @param {number} at @param {Facts} [known]  what the server said when the bytes before `at` were downloaded
   * @param {boolean} [whole]  whether all bytes of the known file are here
   * @returns {Promise<boolean>}  whether the server has the known file */
  async open(at, known, whole = false) {
    this.at = known && !whole && this.#resumable(known) ? at : 0;
    this.facts = { certain: false, ...known };
    for (;;) {
      const response = await this.#fetch(whole);
      if (!this.#isPositionKnown(response)) {
        drop(response);
        if (this.at === 0) throw this.#unknownPosition(response);
        this.at = 0;
        continue;
      }
      const same = response.status === 304 || Boolean(known) && this.#same(response, whole);
      if (same || this.at === 0) {
        if (!whole || !same) this.#take(response);
        else drop(response);
        return same;
      }
      if (response.status === 200) {   // another file, and this response has all of it
        this.at = 0;
        this.#take(response);
        return false;
      }
      drop(response);   // a range of another file, or none (416)
      this.at = 0;
    }
  }

  /** Yields the bytes from `this.at` on.  A chunk is valid until the next one is requested.  Each turn of the outer
   * loop reads one response until it ends or breaks, and then requests what is missing. */
  async *chunks() {
    const { signal, oneBuffer, range } = this.options;
    const { name, facts } = this, least = range ?? 1;
    for (;;) {
      const response = /** @type {Response} */ (this.#response), start = this.at;
      let reason = 'the connection was closed';
      try {
        let first = this.at === 0;
        for await (let chunk of response.body ? streamChunks(response.body, oneBuffer, this.#watch) : []) {
          if (first) checkKind(name, response, chunk);
          first = false;
          const skipped = Math.min(this.#skip, chunk.length);
          this.#skip -= skipped;
          // A preflight ignores what follows its range; in a load it is an error, below.
          chunk = chunk.subarray(skipped, range && skipped + this.#end - this.at);
          const limit = Math.min(facts.certain && facts.size !== undefined ? facts.size : Infinity, this.#end);
          if (this.at + chunk.length > limit) {
            throw new PlumbError('PLUMB_ERROR_IO', `${name}: the server sends more than the ${limit} bytes that it `
              + 'announced', { url: name, total: limit });
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
        const isSizeKnown = facts.certain && facts.size !== undefined;
        // More bytes may follow a range if no response has said how long the file is.
        const mayFollow = this.#end < Infinity && (range || this.at < (facts.size ?? Infinity));
        const missing = this.#skip > 0 || (isSizeKnown ? this.at < Number(facts.size) : mayFollow);
        if (!missing && this.at === 0) {
          throw new PlumbError('PLUMB_ERROR_TRUNCATED', `${name}: the server sent an empty file, not a GGUF file`,
            { url: name, bytes: 0 });
        }
        if (!missing) return;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof PlumbError) throw error;
        reason = reasonOf(error);
      }
      // A server may send a shorter range than requested.  If all of that arrived and brought enough bytes, the next
      // request follows at once and no failure is counted, unless there were failures that are not forgotten yet.
      const received = this.at - start, enough = this.at === this.#end && received >= least;
      if (this.at === this.#end) reason = `the server sends only ${received} bytes per request`;
      if (!enough || this.#failures > 0) await this.#failed(this.#broken(reason));
      if (this.at > 0 && !this.#resumable(facts)) throw this.#notResumable();
      const next = await this.#fetch();
      const problem = !this.#isPositionKnown(next) ? this.#unknownPosition(next).message
        : !this.#same(next) ? `${name}: the file has changed` : undefined;
      if (problem !== undefined) {
        drop(next);
        throw new StartOver(problem);
      }
      this.#take(next);
    }
  }

  /** Aborts the present request when the load is aborted. */
  #follow = () => this.#request.abort(this.options.signal.reason);

  /** Closes the connection. */
  close() {
    this.options.signal.removeEventListener('abort', this.#follow);
    if (this.#response) drop(this.#response);
  }

  /** Whether a range of the file may be requested.  Its bytes must not be encoded, and unless they need no proof, it
   * must be possible to prove that they are of the same file. @param {Facts} facts */
  #resumable({ etag, lastModified }) {
    if (this.#encoding !== undefined) return false;
    return this.options.checked || strong(etag) !== undefined || lastModified !== undefined;
  }

  #notResumable() {
    const why = this.#encoding === undefined ? 'nothing shows that the file is unchanged'
      : `its bytes are encoded (Content-Encoding: ${this.#encoding}), so no range of the file can be requested`;
    return new StartOver(`${this.name}: the download cannot be resumed: ${why}`);
  }

  /** Requests the bytes from `at` on, again and again until there is a response that can be used.  Throws if a retry is
   * of no use, or if there were too many.
   * @param {boolean} [whole]  as in open @returns {Promise<Response>}  with status 200, 206, 304 or 416 */
  async #fetch(whole = false) {
    const { file, name, at, options: { signal, cache, range, fetch } } = this, { url } = file;
    for (;;) {
      signal.throwIfAborted();
      const request = this.#request = new AbortController();
      signal.addEventListener('abort', this.#follow);   // one listener for all requests
      /** @type {Response} */
      let response;
      try {
        const init = { signal: request.signal, cache, headers: this.#headers(whole) };
        response = await this.#watch(send(file, init, fetch));
      } catch (error) {
        signal.throwIfAborted();
        const cors = this.#hasAnswered || fetch ? undefined : await corsProblem(url, signal);
        const problem = new PlumbError('PLUMB_ERROR_IO', `${name}: ${cors ?? noConnection(url, error)}`,
          { url: name });
        // The first time it may still have been a connection that broke.
        if (cors !== undefined && this.#failures > 0) throw problem;
        await this.#failed(at > 0 && cors === undefined ? this.#broken(reasonOf(error)) : problem);
        continue;
      }
      this.#hasAnswered = true;
      const { status } = response, part = response.headers.get('Content-Range');
      const [, start] = /^bytes (\d+)-\d+\/(?:\d+|\*)$/.exec(part ?? '') ?? [];
      if (status === 206 && part !== null && Number(start) !== at) {
        drop(response);
        throw new PlumbError('PLUMB_ERROR_IO', `${name}: requested the bytes from ${at} on, but the server answered `
          + `with "Content-Range: ${part}"`, { url: name, bytes: at });
      }
      const partial = (at > 0 || range) && (status === 206 || status === 416);
      if (status === 200 || partial || status === 304 && whole) return response;
      drop(response);
      const code = response.headers.get('X-Error-Code') ?? undefined;   // the hub's
      const error = new PlumbError('PLUMB_ERROR_IO',
        `${name}: the server answered ${`${status} ${response.statusText}`.trim()}`,
        { url: name, status, ...code !== undefined && { code } });
      if (status !== 408 && status !== 429 && status < 500) throw error;
      await this.#failed(error, retryAfter(response));
    }
  }

  /** Waits for what the server sends, and aborts the request if nothing arrives in time.
   * @type {<T>(pending: Promise<T>) => Promise<T>} */
  #watch = async pending => {
    const request = this.#request, arrived = new AbortController();
    const silent = this.#silence(SILENCE, arrived.signal).then(() => {
      const error = new Error(`no data arrived for ${SILENCE / 1000} seconds`);
      request.abort(error);
      throw error;
    });
    try {
      return await Promise.race([pending, silent]);
    } finally {
      arrived.abort('data arrived');   // ends the wait; what it rejects with is ignored, because the race is over
    }
  };

  /** @param {boolean} whole  as in open */
  #headers(whole) {
    const { file: { url }, at, facts, options: { range } } = this;
    const etag = strong(facts.etag), { lastModified } = facts;
    /** @type {Record<string, string>} */
    const headers = range ? { Range: `bytes=${at}-${this.#rangeEnd() - 1}` } : at > 0 ? { Range: `bytes=${at}-` } : {};
    const isElsewhere = globalThis.location && new URL(url, location.href).origin !== location.origin;
    if (isElsewhere) return headers;   // the headers below would need a CORS preflight
    if (at > 0 && (etag ?? lastModified)) headers['If-Range'] = /** @type {string} */ (etag ?? lastModified);
    if (whole && facts.etag) headers['If-None-Match'] = facts.etag;
    else if (whole && lastModified) headers['If-Modified-Since'] = lastModified;
    return headers;
  }

  /** Waits before the next retry, or throws the error if there were too many.
   * @param {PlumbError} error @param {number} [minWait]  milliseconds that the server asks for */
  async #failed(error, minWait = 0) {
    const { signal, onWait } = this.options;
    if (!/^https?:/.test(this.file.url)) throw error;   // another fetch of a data: or blob: URL does not help
    const retries = this.#hasAnswered ? RETRIES : RETRIES_NO_RESPONSE;
    if (++this.#failures > retries) {
      error.message += ` (${retries} retries failed)`;
      error.details.tries = retries;
      throw error;
    }
    onWait?.(this.#failures);
    await this.#pause(Math.min(Math.max(FIRST_WAIT * 2 ** (this.#failures - 1), minWait), LONGEST_WAIT), signal);
    signal.throwIfAborted();
  }

  /** @param {string} reason */
  #broken(reason) {
    const { name, at, facts: { size } } = this;
    const total = size === undefined ? '' : ` of ${size}`;
    return new PlumbError('PLUMB_ERROR_IO', `${name}: the download stopped after ${at}${total} bytes: ${reason}`,
      { name, bytes: at, ...size !== undefined && { total: size } });
  }

  /** Whether it is known which bytes of the file a response has.  A 206 must say in its Content-Range that they are
   * those from `at` on; #fetch refuses one that names another position.  A browser may hide that header in a response
   * of another origin; then the length decides.  A range of encoded bytes is useless, because its positions are not
   * those of the file.
   * @param {Response} response */
  #isPositionKnown(response) {
    const { headers, status, type } = response, { at, facts: { size }, options: { range } } = this;
    if (status !== 206) return true;
    if (encodingOf(response) !== undefined) return false;
    if (headers.has('Content-Range')) return true;
    const length = bytesOf(headers.get('Content-Length'));
    // A preflight keeps no copy that could be wrong.  So it accepts any response that ends within the requested range,
    // and at the start of the file also one without a length.
    if (range) return length === undefined ? at === 0 : at + length <= this.#rangeEnd();
    return type === 'cors' && length !== undefined && size !== undefined && at + length === size;
  }

  /** The error for a response that #isPositionKnown refuses. @param {Response} response */
  #unknownPosition(response) {
    const { name, at } = this, encoding = encodingOf(response);
    const how = encoding === undefined ? 'without a "Content-Range" that says which bytes it sends'
      : `with encoded bytes (Content-Encoding: ${encoding})`;
    return new PlumbError('PLUMB_ERROR_IO', `${name}: requested the bytes from ${at} on, but the server answered 206 `
      + how, { url: name, bytes: at });
  }

  /** Whether a response is of the file that the facts describe.  A 416 is of it if the known file ends at `at`.  For
   * any other response, the first rule decides that applies to what both state:
   *
   *   - sizes that are certain and differ: no;
   *   - two strong ETags: yes if they are equal, otherwise no;
   *   - two ETags that differ, apart from being weak or strong: no;
   *   - Last-Modified: yes if they are equal, otherwise no.
   *
   * @param {Response} response @param {boolean} [whole]  as in open */
  #same(response, whole = false) {
    const { at, facts } = this;
    if (response.status === 416) {   // a browser may hide the Content-Range
      const end = /^bytes \*\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '')?.[1];
      const size = this.options.range ? facts.size ?? at : facts.size;   // a preflight needs no proof
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
    // There is no proof.  None is needed if a checksum will show it, or if there are no bytes yet to which those of the
    // response must fit; but the engine may have been told the size.
    return at === 0 && !whole && facts.size === found.size || this.options.checked;
  }

  /** Makes a response the present one, from which the next bytes come. @param {Response} response */
  #take(response) {
    this.#response = response;
    this.#skip = response.status === 200 ? this.at : 0;
    const end = /^bytes \d+-(\d+)\//.exec(response.headers.get('Content-Range') ?? '')?.[1] ?? Infinity;
    this.#end = response.status === 206 ? Math.min(Number(end) + 1, this.#rangeEnd()) : Infinity;
    if (response.status === 416) {   // all bytes are here
      drop(response);
      this.#response = new Response();
      this.#updateFacts({ ...this.facts, size: this.at, certain: true });
      return;
    }
    this.#encoding = encodingOf(response);
    this.#updateFacts(this.#factsOf(response));
  }

  /** The position after the last byte that a request asks for: Infinity, except in a preflight. */
  #rangeEnd() { return this.at + Math.max(this.options.range ?? Infinity, this.at); }

  /** @param {Response} response  to a request for the bytes from `at` on @returns {Facts} */
  #factsOf(response) {
    const { headers, status } = response;
    const length = encodingOf(response) === undefined ? headers.get('Content-Length') : null;
    const total = /\/(\d+)$/.exec(headers.get('Content-Range') ?? '')?.[1];
    // If the browser hides the Content-Range, #isPositionKnown has verified that the length is that of the rest.
    const isHidden = !headers.has('Content-Range') && !this.options.range;
    const toEnd = length !== null && isHidden ? String(this.at + Number(length)) : null;
    const size = bytesOf(status === 206 ? total ?? toEnd : length);
    return {
      size,
      // If a response is of another origin, a browser may show its length but hide that it is encoded.  A range is not
      // encoded, because browsers request it with "Accept-Encoding: identity".
      certain: size !== undefined && (status === 206 || response.type !== 'cors'),
      etag: headers.get('ETag') ?? undefined,
      lastModified: headers.get('Last-Modified') ?? undefined,
    };
  }

  /** Takes over the facts of a response.  If `at` is not 0, facts that the response does not state stay as they were,
   * and a certain size is not replaced by an uncertain one. @param {Facts} found */
  #updateFacts(found) {
    const { certain, size } = this.facts;
    const stated = Object.entries(found).filter(([, value]) => this.at === 0 || value !== undefined);
    Object.assign(this.facts, Object.fromEntries(stated));
    if (this.at > 0 && certain && !found.certain) Object.assign(this.facts, { certain, size });
  }
}

/** Throws if a response is a web page, because the engine would only say that it is not a GGUF file.  0x47 is 'G', the
 * first byte of such a file.
 * @param {string} name @param {Response} response @param {Uint8Array} chunk  the first one */
function checkKind(name, response, chunk) {
  const problem = chunk[0] === 0x47 ? undefined : webPage(response, 'a GGUF file');
  if (problem === undefined) return;
  throw new PlumbError('PLUMB_ERROR_MAGIC', `${name}: ${problem}`,
    { url: name, type: response.headers.get('Content-Type') ?? '' });
}

/** The number of bytes in a header, or undefined if it has none. @param {string | null | undefined} text */
const bytesOf = text => /^\d{1,15}$/.test(text ?? '') ? Number(text) : undefined;

/** Ends a response, and so its connection. @param {Response} response */
const drop = response => void response.body?.cancel().catch(() => {});

/** @param {string} [etag] @returns {string | undefined}  the ETag if it is strong: equal ones then mean equal bytes */
const strong = etag => etag?.startsWith('W/') ? undefined : etag;
/** What remains of an ETag for the weak comparison of RFC 9110. @param {string} etag */
const weak = etag => etag.replace(/^W\//, '');

/** The Content-Encoding of a response, or undefined if it has none.  With one, lengths count the encoded bytes, not
 * those that arrive here. @param {Response} response */
function encodingOf({ headers }) {
  const encoding = headers.get('Content-Encoding');
  return encoding && encoding !== 'identity' ? encoding : undefined;
}

/** How long the server asks to wait: Retry-After is a number of seconds or a date.
 * @param {Response} response @returns {number}  milliseconds */
export function retryAfter(response) {
  const text = response.headers.get('Retry-After') ?? '';
  const ms = /^\d+$/.test(text) ? 1000 * Number(text) : Date.parse(text) - Date.now();
  return ms > 0 ? ms : 0;
}

/** Waits; rejects when the signal is aborted meanwhile. @type {NonNullable<DownloadOptions['pause']>} */
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
