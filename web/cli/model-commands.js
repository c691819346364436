/* The commands pull, list, rm and preflight, and inspect of what is at a server: what can be known and done of models
 * before they run. */
import { openAsBlob } from 'node:fs';
import { PlumbError, reasonOf } from '../base/errors.js';
import { modelsOf } from '../loader/copy-store.js';
import { nameOfUrl, shownName } from '../loader/hub.js';
import { send } from '../loader/request.js';
import { explained, isRemote, resolve, siteOf } from '../loader/resolve.js';
import { folderPath } from '../node/cache-folder.js';
import { Plumb } from '../node/index.js';
import { places } from '../node/places.js';
import { CommandError, LOAD, pick } from './arguments.js';
import { jsonLine, printError, ProgressLine, report, shown, watchOutput } from './terminal.js';

const mb = (/** @type {number} */ bytes) => (bytes / 1e6).toFixed(1);

/** How the commands name a copy: by its name on the hub, or else by its URL or cacheKey. @param {string} url */
function nameOfCopy(url) {
  const name = nameOfUrl(siteOf(places), url);
  return name ? shownName(name) : url;
}

/** The models whose whole copies are on this machine, by name, with their URLs.  A copy with a cacheKey has none.
 * @returns {Promise<Record<string, string>>} */
export async function kept() {
  const whole = modelsOf(await Plumb.listCached()).filter(({ url, complete }) => complete && /^https?:/.test(url));
  return Object.fromEntries(whole.map(({ url }) => [nameOfCopy(url), url]));
}

/** Downloads models, so that the next load finds them on this machine.
 * @param {string[]} names @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function pull(names, { json }) {
  if (names.length === 0) throw new CommandError('pull: NAME is needed; see plumb pull --help');
  watchOutput(() => {});
  for (const name of names) {
    const progress = new ProgressLine();
    try {
      const copies = await Plumb.pull(name, { onProgress: progress.show });
      progress.end();
      print(copies, json);
    } catch (error) {
      progress.end();
      return report(error, name, json);
    }
  }
  return 0;
}

/** Lists the copies of models.
 * @param {string[]} words @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function list(words, { json }) {
  if (words.length > 0) throw new CommandError('list: expected no words; see plumb list --help');
  watchOutput(() => {});
  const copies = await Plumb.listCached();
  if (copies.length === 0) printError(`list: there are no copies in ${folderPath()}`);
  print(copies, json);
  return 0;
}

/** Prints a line for each copy with JSON, and otherwise for each model, whose parts are one.
 * @param {import('../loader/copy-store.js').Cached[]} copies @param {boolean} [json] */
function print(copies, json = false) {
  if (json) {
    for (const copy of copies) process.stdout.write(jsonLine({ name: nameOfCopy(copy.url), ...copy }));
    return;
  }
  for (const { url, bytes, size, complete } of modelsOf(copies)) {
    process.stdout.write(shown(process.stdout, `${mb(bytes).padStart(9)} MB${
      complete ? '' : ` of ${Number.isNaN(size) ? '?' : mb(size)} MB`}  ${nameOfCopy(url)}\n`));
  }
}

/** Removes copies of models.
 * @param {string[]} names @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function rm(names, { json }) {
  if (names.length === 0) throw new CommandError('rm: NAME is needed; see plumb rm --help');
  for (const name of names) {
    try {
      if (await Plumb.removeCached(name)) continue;
    } catch (error) {
      if (isRemote(name, places)) return report(error, name, json);   // otherwise it is no file, or no copy of one
    }
    throw new CommandError(`rm: there is no copy of ${name}`, 1);
  }
  return 0;
}

/** Prints, from the header alone, whether a model can run here, how much memory it takes and how fast it would be.
 * @param {string[]} files @param {Record<string, any>} values
 * @returns {Promise<number>} the exit code; 1 also if the model cannot run */
export async function preflight(files, values) {
  if (files.length === 0) throw new CommandError('preflight: MODEL is needed; see plumb preflight --help');
  watchOutput(() => {});
  try {
    const plan = await Plumb.preflight(files, pick(values, LOAD));
    const { memory, fits, speed } = plan;
    const can = plan.supported && fits;
    if (values.json) {
      process.stdout.write(jsonLine(plan));
      return can ? 0 : 1;
    }
    const lines = [
      `${plan.name ?? files[0]}: ${plan.architecture ?? 'architecture unknown'}`
        + (plan.parameters ? `, ${mb(plan.parameters)} M parameters` : '')
        + (plan.fileBytes ? `, ${mb(plan.fileBytes)} MB` : ''),
      ...plan.problems.map(({ code, message }) => `not supported: ${code}: ${message}`),
      ...memory ? [`memory ${mb(memory.total)} MB of at most ${mb(memory.limit)}: weights ${mb(memory.weights)}, ${
        plan.contextLength} tokens of context ${mb(memory.kv)}, the rest ${mb(memory.scratch + memory.module)}${
        fits ? '' : '; not enough memory'}`] : [],
      ...speed ? [`prefill about ${speed.prefill.toFixed(0)} tokens/s, ${speed.decode === undefined ? ''
        : `decode ${speed.decode.toFixed(0)} tokens/s, `}${plan.threads} thread${plan.threads === 1 ? '' : 's'}`] : [],
      ...[plan.threadsNote, plan.moduleNote].filter(note => note !== undefined),
      ...plan.pooling === 'rank' ? ['a reranker: it scores how well texts answer a query']
        : plan.hasLogits === false ? [`computes embeddings of ${plan.dimensions} elements, and no text; pooling: ${
          plan.pooling}`]
        : plan.chat === false ? ['no chat template: chats are put into ChatML, as in llama.cpp'] : [],
      `${plan.cached ? `${mb(plan.cached.bytes)} MB of it are on this machine, ` : ''}${
        plan.bytesRead} bytes were read for this report`,
    ];
    for (const line of lines) process.stdout.write(shown(process.stdout, `${line}\n`));
    return can ? 0 : 1;
  } catch (error) {
    return report(error, files.at(-1) ?? '', values.json);
  }
}

/** @typedef {import('../loader/source.js').Part & {kind: 'url'}} UrlPart */

/** Bytes that one request asks for. */
const BLOCK = 1 << 20;
/** Used as the size if a server does not tell it. */
const UNKNOWN = 2 ** 52;

/** A server's file as a Blob that fetches only what is read of it. */
class RemoteFile extends Blob {
  #part;
  #size;
  /** The file's first bytes, with room for more after them. */
  #bytes = new Uint8Array(BLOCK);
  /** How many bytes are there. */
  #length = 0;
  /** Reads from a server that sends files only whole. @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
  #reader;
  /** Why the file cannot be read. @type {PlumbError | undefined} */
  failure;

  /** @param {UrlPart} part @param {Response} response  the answer to the request for the first block */
  constructor(part, response) {
    super();
    this.#part = part;
    const range = /^bytes 0-\d+\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '')?.[1];
    if (response.status === 206 && range === undefined) {
      throw ioError(part, 'the server answered 206 without Content-Range');
    }
    this.#size = Number(range ?? response.headers.get('Content-Length') ?? UNKNOWN);
    if (response.status !== 206) this.#reader = response.body?.getReader();
  }

  /** @param {UrlPart} part @returns {Promise<RemoteFile>} */
  static async open(part) {
    const response = await requestRange(part, 0, BLOCK);
    const file = new RemoteFile(part, response);
    if (!file.#reader) await file.#addBody(response, BLOCK);
    return file;
  }

  /** @override */
  get size() { return this.#size; }

  /** @override @param {number} from @param {number} to */
  slice(from = 0, to = this.#size) {
    return /** @type {Blob} */ (/** @type {unknown} */ ({ arrayBuffer: () => this.#read(from, to) }));
  }

  /** @param {number} from @param {number} to */
  async #read(from, to) {
    try {
      while (this.#length < to && await this.#readMore());
      return this.#bytes.slice(from, Math.min(to, this.#length)).buffer;
    } catch (error) {
      this.failure = error instanceof PlumbError ? error : ioError(this.#part, reasonOf(error));
      throw error;
    }
  }

  /** Adds the bytes that follow those that are there; false: there are no more. */
  async #readMore() {
    const at = this.#length;
    if (!this.#reader) {
      if (at < this.#size) await this.#requestBlock(at);
      return this.#length > at;
    }
    const { value } = await this.#reader.read();
    if (value) this.#append(value);
    return value !== undefined;
  }

  /** @param {Uint8Array} bytes */
  #append(bytes) {
    const end = this.#length + bytes.length;
    if (end > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(end, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = larger;
    }
    this.#bytes.set(bytes, this.#length);
    this.#length = end;
  }

  /** Adds the body of a response to a range request.  A server may send fewer bytes than were asked for, but not more.
   * @param {Response} response @param {number} limit  bytes that were requested */
  async #addBody({ body }, limit) {
    const start = this.#length;
    for await (const bytes of /** @type {AsyncIterable<Uint8Array>} */ (/** @type {unknown} */ (body ?? []))) {
      if (this.#length + bytes.length > start + limit) {
        throw ioError(this.#part, `the server sends more than the ${limit} bytes requested from byte ${start}`);
      }
      this.#append(bytes);
    }
  }

  /** @param {number} at */
  async #requestBlock(at) {
    const response = await requestRange(this.#part, at, at + BLOCK);
    const range = response.headers.get('Content-Range') ?? '';
    if (response.status !== 206 || !range.startsWith(`bytes ${at}-`) || !range.endsWith(`/${this.#size}`)) {
      throw ioError(this.#part, `the server answered ${response.status} ${range} to a request for bytes from ${at}`);
    }
    await this.#addBody(response, BLOCK);
  }

  async end() {
    await this.#reader?.cancel().catch(() => {});
  }
}

/** @param {UrlPart} part @param {string} what @param {object} [details] */
const ioError = ({ name }, what, details) => new PlumbError('PLUMB_ERROR_IO', `${name}: ${what}`,
  { url: name, ...details });

/** @param {UrlPart} part @param {number} from @param {number} to */
async function requestRange(part, from, to) {
  const headers = { Range: `bytes=${from}-${to - 1}`, 'Accept-Encoding': 'identity' };
  const response = await send(part, { headers }).catch(error => { throw ioError(part, reasonOf(error)); });
  const { ok, status } = response;
  if (!ok) {
    throw ioError(part, `the server answered ${status}`, { status, code: response.headers.get('X-Error-Code') });
  }
  return response;
}

/** Opens what is at a server, of a split model the first part. @param {string} word */
async function openRemote(word) {
  const resolved = await resolve(word, places), [{ part }] = resolved.parts;
  return RemoteFile.open(/** @type {UrlPart} */ (part)).catch(error => { throw explained(error, resolved, places); });
}

/** Runs inspect with URLs or names among its files.  The C program reads only their headers.
 * @param {string[]} words  of the command @returns {Promise<number>} the exit code */
export async function inspect(words) {
  watchOutput(() => {});
  /** @type {Record<string, Blob>} */
  const files = {};
  /** @type {RemoteFile[]} */
  const remote = [];
  try {
    for (const word of words.filter(word => !word.startsWith('-'))) {
      const isAway = isRemote(word, places);
      const copy = isAway ? await Plumb.openCached(word).catch(() => undefined)
        : await openAsBlob(word).catch(() => undefined);   // the C program reports why it cannot be opened
      if (copy) files[word] = copy;
      else if (isAway) remote.push(/** @type {RemoteFile} */ (files[word] = await openRemote(word)));
    }
    const { code, out, err } = await Plumb.command(['inspect', ...words], { files });
    const failure = remote.find(file => file.failure)?.failure;
    if (failure) throw failure;
    process.stdout.write(out);
    process.stderr.write(err);
    return code;
  } finally {
    await Promise.all(remote.map(file => file.end()));
  }
}
