/* Models on the hub of Hugging Face, or a mirror of it: names such as hf:org/repo:Q4_K_M, the list of files from its
 * API, the choice of a file, and what its refusals mean.  All answers of the server are untrusted. */
import { onAbort } from '../base/async.js';
import { PlumbError, argumentError, reasonOf } from '../base/errors.js';
import { pause as wait, retryAfter } from './download.js';
import { send } from './request.js';
import { urlOf } from './secrets.js';
import { sum } from './progress.js';
import { splitOf } from './split.js';
import { streamChunks } from './stream.js';

/** The server, unless the host says another. */
export const HUB = 'https://huggingface.co';

/** @typedef {{repository: string, revision: string, file?: string, type?: string}} HubName  file: a path in the
 *   repository; type: of the weights, such as Q4_K_M */
/** @typedef {{path: string, size: number, sha256?: string}} HubFile
 * @typedef {{path: string, size: number, parts: HubFile[]}} HubModel  path: of the first part; size: of all parts */
/** @typedef {{url: string, token?: string}} HubSite  what a host knows of the hub
 * @typedef {object} HubOptions
 * @property {Record<string, string>} [headers] @property {'omit' | 'same-origin' | 'include'} [credentials]
 * @property {import('./request.js').Fetch} [fetch] @property {AbortSignal} [signal]
 * @property {import('./download.js').DownloadOptions['pause']} [pause]  waits before a retry */

/** A type of weights at the end of a word: Q4_K_M, IQ4_XS, UD-Q4_K_XL, BF16, MXFP4. */
const TYPE = /(?:^|[-._:/])((?:I?Q\d+|TQ\d)(?:_[A-Z0-9]+)*|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32)$/i;
/** The types that are chosen if the name asks for none, the best first: Q4_K_M as in llama.cpp, then those that are
 * nearly as small or more precise. */
const PREFERRED = ['Q4_K_M', 'Q4_0', 'Q4_K_S', 'IQ4_NL', 'IQ4_XS', 'Q4_1', 'Q5_K_M', 'Q5_K_S', 'Q6_K', 'Q8_0'];
/** Names of files that are no models: projectors of images, measurements, drafts (all as in llama.cpp), adapters. */
const NO_MODEL = /mmproj|imatrix|(^|[-_.])(mtp|eagle3|dflash|dspark|lora|adapter|control[-_]vector)[-_.]/i;

/** The type of weights that a name ends in. @param {string} name */
export const typeIn = name => TYPE.exec(name)?.[1];

// ---- names ----

const HUB_PREFIX = /^(hf:|(?:https?:\/\/)?(?:www\.)?(?:hf\.co|huggingface\.co)\/)\/*(.+)$/is;
/** org/repo@revision:chosen; before a path of a file, "/" may stand for ":". */
const NAME = /^([^/:@]+\/[^/:@]+)(?:@((?:[^:/]+(?=\/.*\.gguf$)|[^:]+(?=:|$))))?(?:[:/](.*))?$/i;
export const REPOSITORY = /^[a-z0-9][\w.-]*\/[a-z0-9][\w.-]*$/i;

/** The name of a model on the hub in a text, or undefined if the text is of another kind.  These are the forms:
 *
 *   hf:org/repo, hf.co/org/repo, https://huggingface.co/org/repo     the best file that fits
 *   the same with :Q4_K_M, :file.gguf or /folder/file.gguf           this type or file
 *   the same with @revision, such as @main, before that              in a branch or a commit
 *   https://huggingface.co/org/repo/tree/main, .../blob/main/file    the addresses of its pages
 *
 * The address of a file (.../resolve/...) is an ordinary URL.
 * @param {string} text @returns {HubName | undefined} */
export function hubName(text) {
  const trimmed = text.trim();
  const [, prefix, rest] = HUB_PREFIX.exec(trimmed) ?? [];
  if (prefix === undefined) return undefined;
  const isAddress = prefix.endsWith('/'), [path] = isAddress ? rest.split(/[?#]/) : [rest];
  const [page, home, kind, branch, item = ''] =
    isAddress && /^([^/]+\/[^/]+)\/(tree|blob|resolve|raw)\/([^/]+)(?:\/(.*))?$/.exec(path) || [];
  if (kind === 'resolve' || kind === 'raw') return undefined;
  const [, repository = '', revision = 'main', chosen = ''] = page !== undefined
    ? ['', home, ...[branch, kind === 'blob' ? item : ''].map(decoded)]
    : NAME.exec(path) ?? [];
  const isFile = /\.gguf$/i.test(chosen), isAll = chosen === '' || /^latest$/i.test(chosen);
  if (REPOSITORY.test(repository) && isSafePath(revision) && (isFile ? isSafePath(chosen) : /^[\w.-]*$/.test(chosen))) {
    return { repository, revision, ...isFile ? { file: chosen } : !isAll && { type: chosen } };
  }
  throw argumentError(`${trimmed}: this is not the name of a model on the hub; expected hf:org/repo, `
    + 'hf:org/repo:Q4_K_M or hf:org/repo:file.gguf');
}

/** A part of a URL without its escapes; if they are wrong, a text that is no name. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return '\0';
  }
}

/** Whether a path stays in its folder, and has only visible characters. @param {string} path */
const isSafePath = path => path.length <= 1000 && !/[\0-\x1f\x7f\\]/.test(path)
  && path.split('/').every(name => !['', '.', '..'].includes(name));

/** A name as messages and lists show it. @param {HubName} name */
export const shownName = ({ repository, revision, file, type }) =>
  `hf:${repository}${revision === 'main' ? '' : `@${revision}`}${file ?? type ? `:${file ?? type}` : ''}`;

/** The address of the files of a repository, with a slash at its end. @param {string} site @param {HubName} name */
const filesUrl = (site, { repository, revision }) => `${site}/${repository}/resolve/${encodeURIComponent(revision)}/`;

/** The URL of a file. @param {string} site @param {HubName} name @param {string} path */
export const fileUrl = (site, name, path) => filesUrl(site, name) + path.split('/').map(encodeURIComponent).join('/');

/** The name of the file at a URL of the hub; undefined for other URLs. @param {string} site @param {string} url
 * @returns {HubName & {file: string} | undefined} */
export function nameOfUrl(site, url) {
  const [, repository, revision, file] = url.startsWith(`${site}/`)
    ? /^([^/]+\/[^/]+)\/resolve\/([^/]+)\/([^?#]+)$/.exec(url.slice(site.length + 1)) ?? [] : [];
  return repository === undefined ? undefined : { repository, revision: decoded(revision), file: decoded(file) };
}

// ---- the choice of a file ----

/** The models among files: the parts of a split model are one.  A model of which a part is missing is left out.
 * @param {HubFile[]} files @param {boolean} [whole]  false: it is not left out @returns {HubModel[]} */
export function modelsAmong(files, whole = true) {
  /** @type {Map<string, HubFile[]>} */
  const groups = new Map();
  for (const file of files) {
    const { first } = splitOf(file.path), group = groups.get(first);
    if (group) group.push(file);
    else groups.set(first, [file]);
  }
  return [...groups.values()].flatMap(parts => {
    const sorted = parts.sort((a, b) => a.path < b.path ? -1 : 1);
    const isWhole = parts.length === splitOf(parts[0].path).count
      && sorted.every((one, i) => splitOf(one.path).number === i + 1);
    if (whole && !isWhole) return [];
    return [{ path: sorted[0].path, size: sum(parts.map(({ size }) => size)) ?? 0, parts: sorted }];
  });
}

/** The name of a model's file, without what only a part has. @param {HubModel} model */
const stem = ({ path }) => splitOf(path).stem;

/** The type of a model's weights, in capitals, from the name of its file or of its folder. @param {HubModel} model */
function typeOf(model) {
  const folder = model.path.split('/').slice(0, -1).join('/');
  return (typeIn(stem(model)) ?? typeIn(folder))?.toUpperCase();
}

/** The models that a name asks for, the best first.  Throws if there is none.
 * @param {HubName} name @param {HubModel[]} models @param {boolean} [any]  whether files that are no models count: as
 *   adapters, for example @returns {HubModel[]} */
export function candidates(name, models, any = false) {
  const where = shownName({ ...name, file: undefined, type: undefined }), { file, type } = name;
  const own = models.filter(({ path }) => any || !NO_MODEL.test(path.split('/').at(-1) ?? ''));
  const lower = (/** @type {string} */ text) => text.toLowerCase();
  if (file !== undefined) {
    const paths = (/** @type {HubModel} */ { parts }) => parts.map(({ path }) => path);
    const found = models.find(one => paths(one).includes(file))
      ?? models.find(one => paths(one).some(path => lower(path) === lower(file)
        || lower(path).endsWith(`/${lower(file)}`)));
    if (found) return [found];
    throw missing(`${where}: there is no file ${file}`, models);
  }
  if (type !== undefined) {
    // As in llama.cpp: behind the type comes "." or "-", or here the end of a folder.
    const match = new RegExp(`(^|[^a-z0-9])${type.replace(/\W/g, '\\$&')}([-./]|$)`, 'i');
    const found = own.filter(one => match.test(`${stem(one)}.`)).sort((a, b) => a.path.length - b.path.length);
    if (found.length > 0) return found.slice(0, 1);
    throw missing(`${where}: there is no file of type ${type}`, own);
  }
  if (own.length === 0) {
    throw missing(`${where}: there is no GGUF file of a model`, models);
  }
  const rank = (/** @type {HubModel} */ one) => {
    const at = PREFERRED.indexOf(typeOf(one) ?? '');
    return at < 0 ? PREFERRED.length : at;
  };
  // Behind the preferred ones the largest first: with less memory, a smaller one fits.
  return own.sort((a, b) => rank(a) - rank(b) || b.size - a.size || (a.path < b.path ? -1 : 1));
}

/** Whether a model has one of the types that are chosen if a name asks for none. @param {HubModel} model */
export const isPreferred = model => PREFERRED.includes(typeOf(model) ?? '');

/** How many files a message lists at most. */
const LISTED = 20;

/** @param {string} what @param {HubModel[]} models */
function missing(what, models) {
  const shown = models.slice(0, LISTED).map(({ path }) => path).join(', ');
  const more = models.length > LISTED ? ` and ${models.length - LISTED} others` : '';
  return new PlumbError('PLUMB_ERROR_IO', `${what}; ${models.length > 0 ? `there are ${shown}${more}`
    : 'there are no GGUF files at all'}`, { files: models.slice(0, LISTED).map(({ path }) => path) });
}

/** The models of a repository that this machine has copies of.
 * @param {string} site @param {HubName} name @param {import('./copy-store.js').Cached[]} copies
 * @param {boolean} [whole]  false: also incomplete ones */
export const modelsHere = (site, name, copies, whole = true) => modelsAmong(copies.flatMap(copy => {
  const found = nameOfUrl(site, copy.url);
  const isOwn = found?.repository === name.repository && found.revision === name.revision;
  return isOwn && (copy.complete || !whole) ? [{ path: found.file, size: copy.bytes }] : [];
}), whole);

// ---- the API ----

/** The most bytes of one answer, and the most answers to one question. */
const MAX_ANSWER = 1 << 24, MAX_PAGES = 100;
/** Milliseconds that an answer may take, and how often a request is repeated that may succeed later. */
const TIMEOUT = 30000, RETRIES = 2;
/** Milliseconds: the first wait before a retry, and the longest that a server may ask for. */
const FIRST_WAIT = 500, LONGEST_WAIT = 10000;

/** The GGUF files of a repository. @param {string} site @param {HubName} name @param {HubOptions} options
 * @returns {Promise<HubFile[]>} */
export async function filesOf(site, name, options) {
  const { repository, revision } = name, where = shownName({ repository, revision });
  /** @type {HubFile[]} */
  const files = [];
  let url = `${site}/api/models/${repository}/tree/${encodeURIComponent(revision)}?recursive=true`;
  for (let page = 1; ; page++) {
    const { entries, next } = await ask(url, { site, where, name, parse }, options);
    files.push(...entries);
    if (next === undefined) return files;
    if (page === MAX_PAGES || new URL(next).origin !== new URL(site).origin) {
      throw strange(where, page === MAX_PAGES ? `the list of files has more than ${MAX_PAGES} pages`
        : 'the next page of the list of files is on another server');
    }
    url = next;
  }
}

/** @param {string} where @param {string} what */
export const strange = (where, what) => new PlumbError('PLUMB_ERROR_IO',
  `${where}: the answer of the hub makes no sense: ${what}`, {});

/** One answer of the API: a page of a list.  where: what messages call it; parse: of the list
 * @template T @param {string} url
 * @param {{site: string, where: string, name?: HubName, parse: (where: string, text: string) => T[], most?: number}}
 *   about  most: bytes
 * @param {HubOptions} options @returns {Promise<{entries: T[], next?: string}>} */
export async function ask(url, { site, where, name, parse, most = MAX_ANSWER }, options) {
  const { signal, pause = wait } = options;
  for (let attempt = 0; ; attempt++) {
    const abort = new AbortController(), unfollow = onAbort(signal, reason => abort.abort(reason));
    const timer = setTimeout(() => abort.abort(new Error(`no answer in ${TIMEOUT / 1000} seconds`)), TIMEOUT);
    let problem, asked = 0;
    try {
      const { headers, credentials, fetch } = options;
      const response = await send({ url, headers, credentials },
        { signal: abort.signal, cache: 'no-store', headers: { Accept: 'application/json' } }, fetch);
      if (response.ok) {
        const entries = parse(where, await textOf(where, response, most));
        return { entries, next: nextPage(response.headers.get('Link'), url) };
      }
      response.body?.cancel().catch(() => {});
      asked = retryAfter(response);
      const { status } = response, code = response.headers.get('X-Error-Code'), seconds = Math.ceil(asked / 1000);
      problem = name ? refusal(where, { status, code, seconds }, { site, name, headers })
        : new PlumbError('PLUMB_ERROR_IO', `${where}: the hub answered ${status}: try again later`, { status });
      if (status !== 408 && status !== 429 && status < 500) throw problem;
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof PlumbError) throw error;
      const reason = abort.signal.aborted ? abort.signal.reason : error;
      problem = new PlumbError('PLUMB_ERROR_IO', `${where}: no connection to the hub at ${site}: ${reasonOf(reason)}`,
        { unreachable: true });
    } finally {
      clearTimeout(timer);
      unfollow();
    }
    if (attempt === RETRIES || asked > LONGEST_WAIT) throw problem;
    await pause(Math.max(FIRST_WAIT * 2 ** attempt, asked), signal ?? new AbortController().signal);
  }
}

/** The text of an answer, of which not too much is read. @param {string} where @param {Response} response
 * @param {number} most  bytes */
async function textOf(where, response, most) {
  const decoder = new TextDecoder();
  let text = '', bytes = 0;
  for await (const chunk of response.body ? streamChunks(response.body) : []) {
    bytes += chunk.length;
    if (bytes > most) throw strange(where, `it has more than ${most} bytes`);
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

/** The list that an answer is. @param {string} where @param {string} text @returns {any[]} */
export function listIn(where, text) {
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    throw strange(where, `it is no JSON: ${reasonOf(error).slice(0, 100)}`);
  }
  if (!Array.isArray(list)) throw strange(where, 'it is no list');
  return list;
}

/** The GGUF files in a list of the API. @param {string} where @param {string} text @returns {HubFile[]} */
function parse(where, text) {
  const files = listIn(where, text).filter(one => one?.type === 'file' && /\.gguf$/i.test(one.path));
  return files.map(({ path, size, lfs }) => {
    const bytes = lfs?.size ?? size;
    const shown = (/** @type {unknown} */ value) => String(JSON.stringify(value)).slice(0, 100);
    if (typeof path !== 'string' || !isSafePath(path)) throw strange(where, `a file has the path ${shown(path)}`);
    if (!Number.isSafeInteger(bytes) || bytes < 0) {
      throw strange(where, `the size of ${path} is ${shown(bytes)}, expected a number of bytes`);
    }
    return { path, size: bytes, ...isSha256(lfs?.oid) && { sha256: lfs.oid.toLowerCase() } };
  });
}

/** @param {unknown} text @returns {text is string} */
const isSha256 = text => typeof text === 'string' && /^[0-9a-f]{64}$/i.test(text);

/** The URL of the next page, from a Link header. @param {string | null} link @param {string} base */
function nextPage(link, base) {
  const [, target] = /<([^>]*)>\s*;[^,]*rel="?next"?/i.exec(link ?? '') ?? [];
  return target === undefined ? undefined : urlOf(target, base)?.href;
}

/** The error for an answer that refuses a request of the API or of a file.
 * @param {string} where @param {{status: number, code?: string | null, seconds?: number}} answer  code: its header
 *   X-Error-Code; seconds: what it asks to wait
 * @param {{site: string, name: HubName, headers?: Record<string, string>}} about */
export function refusal(where, { status, code, seconds = 0 }, { site, name, headers = {} }) {
  const page = `${site}/${name.repository}`;
  const hasToken = Object.keys(headers).some(key => key.toLowerCase() === 'authorization');
  const token = "set HF_TOKEN to a token of your account (in a page: headers: { Authorization: 'Bearer ...' })";
  /** The first one that applies. @type {[boolean, string][]} */
  const reasons = [
    [code === 'GatedRepo', `the model is gated: accept its conditions at ${page}${hasToken
      ? ' with the account of the token' : `, and ${token}`}`],
    [code === 'RevisionNotFound', `there is no revision ${name.revision}`],
    [code === 'EntryNotFound', 'there is no such file'],
    [status === 401 && hasToken, 'the token is not valid, or there is no such repository'],
    [status === 401, `there is no such repository, or it is private or gated: see ${page}, and ${token}`],
    [status === 403 && hasToken, `the token gives no access: see ${page}, where its account may have to accept `
      + 'conditions'],
    [status === 403, `access is refused: see ${page}, and ${token}`],
    [status === 404, `there is no such repository or file, or it is private: see ${page}`],
    [status === 429, `too many requests; try again ${seconds > 0 ? `in ${seconds} seconds` : 'later'}${hasToken ? ''
      : `, or ${token}`}`],
    [true, 'try again later'],
  ];
  const why = reasons.find(([applies]) => applies)?.[1];
  return new PlumbError('PLUMB_ERROR_IO', `${where}: the hub answered ${status}: ${why}`, { status, url: page });
}
