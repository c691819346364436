/* The commands cache, preflight, and inspect with URLs: what can be known of models before they run. */
import { openAsBlob } from 'node:fs';
import { PlumbError, reasonOf } from '../base/errors.js';
import { folderPath } from '../node/cache-folder.js';
import { Plumb } from '../node/index.js';
import { CommandError, LOAD, pick } from './arguments.js';
import { jsonLine, printError, report, shown, watchOutput } from './terminal.js';

const mb = (/** @type {number} */ bytes) => (bytes / 1e6).toFixed(1);

/** Lists the copies of URLs, or removes one.
 * @param {string[]} words @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function cache([what, url, ...rest], { json }) {
  if (what === 'remove' && url && rest.length === 0) {
    if (!/^https?:/i.test(url)) throw new CommandError(`cache: ${url} is not a URL; only URLs have copies`);
    if (await Plumb.removeCached(url)) return 0;
    throw new CommandError(`cache: there is no copy of ${url}`, 1);
  }
  if (what !== undefined) throw new CommandError('cache: expected "plumb cache" or "plumb cache remove URL"');
  watchOutput(() => {});
  const copies = await Plumb.listCached();
  if (copies.length === 0) printError(`cache: there are no copies in ${folderPath()}`);
  for (const copy of copies) {
    process.stdout.write(json ? jsonLine(copy) : shown(process.stdout, `${mb(copy.bytes).padStart(9)} MB${
      copy.complete ? '' : ` of ${copy.size === undefined ? '?' : mb(copy.size)} MB`}  ${copy.url}\n`));
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
      ...plan.threadsNote ? [plan.threadsNote] : [],
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

/** Bytes that one request asks for. */
const BLOCK = 1 << 20;
/** Used as the size if a server does not tell it. */
const UNKNOWN = 2 ** 52;

/** A server's file as a Blob that fetches only what is read of it. */
class RemoteFile extends Blob {
  #url;
  #size;
  /** The file's first bytes, with room for more after them. */
  #bytes = new Uint8Array(BLOCK);
  /** How many bytes are there. */
  #length = 0;
  /** Reads from a server that sends files only whole. @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
  #reader;
  /** Why the file cannot be read. @type {PlumbError | undefined} */
  failure;

  /** @param {string} url @param {Response} response  the answer to the request for the first block */
  constructor(url, response) {
    super();
    this.#url = url;
    const range = /^bytes 0-\d+\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '')?.[1];
    if (response.status === 206 && range === undefined) {
      throw ioError(url, 'the server answered 206 without Content-Range');
    }
    this.#size = Number(range ?? response.headers.get('Content-Length') ?? UNKNOWN);
    if (response.status !== 206) this.#reader = response.body?.getReader();
  }

  /** @param {string} url @returns {Promise<RemoteFile>} */
  static async open(url) {
    const response = await requestRange(url, 0, BLOCK);
    const file = new RemoteFile(url, response);
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
      this.failure = error instanceof PlumbError ? error : ioError(this.#url, reasonOf(error));
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
        throw ioError(this.#url, `the server sends more than the ${limit} bytes requested from byte ${start}`);
      }
      this.#append(bytes);
    }
  }

  /** @param {number} at */
  async #requestBlock(at) {
    const response = await requestRange(this.#url, at, at + BLOCK);
    const range = response.headers.get('Content-Range') ?? '';
    if (response.status !== 206 || !range.startsWith(`bytes ${at}-`) || !range.endsWith(`/${this.#size}`)) {
      throw ioError(this.#url, `the server answered ${response.status} ${range} to a request for bytes from ${at}`);
    }
    await this.#addBody(response, BLOCK);
  }

  async end() {
    await this.#reader?.cancel().catch(() => {});
  }
}

/** @param {string} url @param {string} what */
const ioError = (url, what) => new PlumbError('PLUMB_ERROR_IO', `${url}: ${what}`, { url });

/** @param {string} url @param {number} from @param {number} to */
async function requestRange(url, from, to) {
  const headers = { Range: `bytes=${from}-${to - 1}`, 'Accept-Encoding': 'identity' };
  const response = await fetch(url, { headers }).catch(error => { throw ioError(url, reasonOf(error)); });
  if (!response.ok) throw ioError(url, `the server answered ${response.status}`);
  return response;
}

/** Runs inspect with URLs among its files.  The C program reads only their headers.
 * @param {string[]} words  of the command @returns {Promise<number>} the exit code */
export async function inspect(words) {
  watchOutput(() => {});
  /** @type {Record<string, Blob>} */
  const files = {};
  /** @type {RemoteFile[]} */
  const remote = [];
  try {
    for (const word of words.filter(word => !word.startsWith('-'))) {
      const copy = isUrl(word) ? await Plumb.openCached(word).catch(() => undefined)
        : await openAsBlob(word).catch(() => undefined);   // the C program reports why it cannot be opened
      if (copy) files[word] = copy;
      else if (isUrl(word)) remote.push(/** @type {RemoteFile} */ (files[word] = await RemoteFile.open(word)));
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

/** @param {string} word */
const isUrl = word => /^https?:\/\//i.test(word);
