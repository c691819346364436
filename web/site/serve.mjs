/* A static file server for this machine, with Range, ETag, and the headers that make a page cross-origin isolated
 * (SharedArrayBuffer, precise timers).  It serves files below one folder, except files whose path has a part that
 * begins with a dot and files to which a link leads out of that folder.  It answers only requests for a name of this
 * machine.  So no page of another site can read files through its own name by resolving it to 127.0.0.1.
 *
 *   node web/site/serve.mjs [--name NAME]...
 *
 * serves the chat page, which is its own files and the models in models/, on PORT (default: 8080, or the next free
 * one).  It fetches models that are not there yet when the page asks for them (model-fetches.mjs).  NAME is another
 * host name that requests may use, such as that of a proxy in front. */
import { createReadStream } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { isLocalName } from '../node/local-names.js';
import { ABSENT, ModelFetches } from './model-fetches.mjs';
import { isPageFile, policyOf, serviceWorker } from './page-files.mjs';

/** @type {Record<string, string>} */
const TYPES = {
  '.html': 'text/html; charset=utf-8', '.css': 'text/css; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8', '.json': 'application/json; charset=utf-8', '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml', '.txt': 'text/plain; charset=utf-8', '.md': 'text/plain; charset=utf-8',
};
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'no-cache',
};

/** The service worker's source.  The text that is served also has a list of the page's current files. */
const SERVICE_WORKER = fileURLToPath(new URL('../sw.js', import.meta.url));

/** @typedef {object} SiteOptions
 * @property {string} root  the folder whose files are served
 * @property {string} [base]  what comes before the paths of this site where redirects name them
 * @property {string} [home]  where / redirects to
 * @property {Record<string, string>} [headers]  sent with every answer; default: those that isolate a page
 * @property {string[]} [names]  host names that requests may use, besides this machine's loopback names
 * @property {(path: string) => boolean} [serves]  whether a path such as web/index.js is served; default: all are
 * @property {string[]} [linked]  folders outside of root to which links may lead
 * @property {ModelFetches} [fetches]  models that are fetched when a page asks for them */

/** A function that answers requests for files. @param {SiteOptions} options
 * @returns {Promise<import('node:http').RequestListener>} */
export async function createSite({
  root, base = '', home, headers = HEADERS, names = [], serves = () => true, linked = [], fetches,
}) {
  const allowedFolders = await Promise.all([root, ...linked].map(async folder =>
    (await realpath(folder)).replace(/\/?$/, sep)));
  const site = { root, base, home, headers, names, serves, allowedFolders, fetches };
  return (request, response) => void answer(request, response, site).catch(() => response.destroy());
}

/** Serves files.
 * @param {SiteOptions & {port?: number, host?: string}} options  port: 0, the default: any free one; host: default
 *   127.0.0.1
 * @returns {Promise<{url: string, close: () => Promise<void>}>} */
export async function serve({ port = 0, host = '127.0.0.1', names = [], ...site }) {
  const server = createServer(await createSite({ ...site, names: [host, ...names] }));
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => resolve(undefined));
  });
  const { port: bound } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}/`,
    close: () => new Promise(resolve => {
      server.close(() => resolve());
      server.closeAllConnections();
    }),
  };
}

/** @typedef {{root: string, base: string, home?: string, headers: Record<string, string>, names: string[],
 *   allowedFolders: string[], serves: (path: string) => boolean, fetches?: ModelFetches}} Site  allowedFolders: the
 *   real paths of the folders whose files are served */

/** @param {import('node:http').IncomingMessage} request @param {import('node:http').ServerResponse} response
 * @param {Site} site */
async function answer(request, response, site) {
  /** @param {number} status @param {Record<string, string | number>} [headers] */
  const respond = (status, headers = {}) => {
    response.writeHead(status, { ...site.headers, 'Content-Type': 'text/plain; charset=utf-8', ...headers });
    response.end(`${status}\n`);
  };
  if (!isLocalName(request.headers.host, site.names)) return respond(421);
  const path = pathOf(request.url ?? '/');
  if (path === undefined) return respond(400);
  const isFetched = site.fetches?.has(path);
  if (request.method === 'POST' && isFetched) return site.fetches?.answer(request, response, path, site.headers);
  if (request.method !== 'GET' && request.method !== 'HEAD') return respond(405, { Allow: 'GET, HEAD' });
  const query = /\?[^#]*/.exec(request.url ?? '')?.[0] ?? '';
  if (path === '/' && site.home) return respond(302, { Location: site.base + site.home + query });
  const found = await find(site, path);
  if (!found) return respond(404, isFetched ? ABSENT : {});
  if (found.folder) return respond(301, { Location: site.base + encodeURI(`${path}/`.replace(/^\/+/, '/')) + query });

  const { file, size, changed } = found;
  if (await realpath(file) === SERVICE_WORKER) {
    const text = await serviceWorker();
    response.writeHead(200, {
      ...site.headers, 'Content-Type': TYPES['.js'], 'Content-Length': Buffer.byteLength(text),
    });
    response.end(request.method === 'HEAD' ? '' : text);
    return;
  }
  const etag = `"${size.toString(36)}-${changed.toString(36)}"`;
  const type = TYPES[extname(file)] ?? 'application/octet-stream';
  const policy = policyOf(path);
  const headers = { ...site.headers, ETag: etag, 'Accept-Ranges': 'bytes', 'Content-Type': type,
    ...policy && { 'Content-Security-Policy': policy } };
  if (request.headers['if-none-match'] === etag) {
    response.writeHead(304, headers);
    response.end();
    return;
  }
  const ifRange = request.headers['if-range'];
  const range = ifRange && ifRange !== etag ? undefined : rangeOf(request.headers.range, size);
  if (range === 'outside') return respond(416, { 'Content-Range': `bytes */${size}` });
  const [start, end] = range ?? [0, size - 1];
  response.writeHead(range ? 206 : 200, {
    ...headers, 'Content-Length': end - start + 1, ...range && { 'Content-Range': `bytes ${start}-${end}/${size}` },
  });
  if (request.method === 'HEAD' || end < start) response.end();
  else await pipeline(createReadStream(file, { start, end, highWaterMark: 1 << 20 }), response);
}

/** The decoded path of a request; undefined if it is malformed. @param {string} url */
function pathOf(url) {
  try {
    const path = decodeURIComponent(url.replace(/[?#].*$/s, ''));
    return path.startsWith('/') && !path.includes('\0') && !path.includes('\\') ? path : undefined;
  } catch {
    return undefined;
  }
}

/** Finds the file of a path.  The path must be served, no part of it may begin with a dot ("..", ".git"), and the file
 * must be below one of the allowed folders, whatever links lead to it.
 * @param {Site} site @param {string} path
 * @returns {Promise<{folder: true} | {folder: false, file: string, size: number, changed: number} | undefined>}
 *   changed: when the file's content or its properties last changed, in milliseconds.  The time of modification would
 *   not do, as npm gives all files of a package the same, whatever its version */
async function find({ root, allowedFolders, serves }, path) {
  if (path.split('/').some(part => part.startsWith('.'))) return undefined;
  try {
    const name = (path.endsWith('/') ? `${path}index.html` : path).replace(/^\/+/, '');
    const file = await realpath(join(root, name));
    if (!allowedFolders.some(top => file.startsWith(top))) return undefined;
    const entry = await stat(file);
    if (!serves(entry.isDirectory() ? `${name}/index.html` : name)) return undefined;
    if (entry.isDirectory()) return { folder: true };
    return entry.isFile() ? { folder: false, file, size: entry.size, changed: Math.trunc(entry.ctimeMs) } : undefined;
  } catch {
    return undefined;
  }
}

/** The first and last byte of a single range; undefined: no range, or one to ignore; 'outside': beyond the file.
 * @param {string | undefined} header @param {number} size @returns {[number, number] | 'outside' | undefined} */
function rangeOf(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  const [first, last] = [match[1], match[2]].map(text => text === '' ? undefined : Number(text));
  if (first === undefined) return last && size ? [Math.max(0, size - last), size - 1] : 'outside';
  if (last !== undefined && last < first) return undefined;
  return first < size ? [first, Math.min(last ?? Infinity, size - 1)] : 'outside';
}

if (process.argv[1] && fileURLToPath(import.meta.url) === await realpath(process.argv[1])) {
  const { values: { name: names } } = parseArgs({ options: { name: { type: 'string', multiple: true } } });
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const serves = (/** @type {string} */ path) => /^models\/.*\.gguf$/.test(path)
    || path.startsWith('web/') && isPageFile(path.slice('web/'.length));
  const firstPort = Number(process.env.PORT || 8080);
  for (let port = firstPort; ; port++) {
    try {
      const fetches = new ModelFetches(root);
      const { url } = await serve({ root, port, home: '/web/chat/', names, serves, fetches });
      console.log(`plumb chat: ${url}   (Ctrl-C stops it)\n`
        + 'SmolLM2 135M (98 MB) answers in the first second; for real answers choose Qwen2.5-Coder 0.5B (491 MB).');
      break;
    } catch (error) {
      const busy = error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
      if (!busy || process.env.PORT || port > firstPort + 50) {
        console.error(`plumb: port ${port}: ${error instanceof Error ? error.message : error}`);
        process.exit(1);
      }
    }
  }
}
