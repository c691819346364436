/* A static file server for this machine: Range, ETag, and the headers that make a page cross-origin isolated
 * (SharedArrayBuffer, precise timers).  Serves files below one folder, none that begin with a dot.
 *
 *   node web/serve.mjs     the chat page, on PORT (default: 8080, or the next one that is free)
 */
import { createReadStream } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { serviceWorker } from './shell.mjs';

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

/** Its text has a list of the page's files in it, as they are now. */
const SERVICE_WORKER = fileURLToPath(new URL('sw.js', import.meta.url));

/** @param {object} options
 * @param {string} options.root  the folder whose files are served
 * @param {number} [options.port]  0: any free one (default)
 * @param {string} [options.host]  default 127.0.0.1
 * @param {string} [options.home]  where / leads to
 * @param {Record<string, string>} [options.headers]  of every answer; default: those that isolate a page
 * @returns {Promise<{url: string, close: () => Promise<void>}>} */
export async function serve({ root, port = 0, host = '127.0.0.1', home, headers = HEADERS }) {
  const server = createServer((request, response) => {
    answer(request, response, { root, home, headers }).catch(() => response.destroy());
  });
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

/** @param {import('node:http').IncomingMessage} request @param {import('node:http').ServerResponse} response
 * @param {{root: string, home?: string, headers: Record<string, string>}} site */
async function answer(request, response, site) {
  /** @param {number} status @param {Record<string, string | number>} [headers] */
  const short = (status, headers = {}) => {
    response.writeHead(status, { ...site.headers, 'Content-Type': 'text/plain; charset=utf-8', ...headers });
    response.end(`${status}\n`);
  };
  if (request.method !== 'GET' && request.method !== 'HEAD') return short(405, { Allow: 'GET, HEAD' });
  const path = pathOf(request.url ?? '/');
  if (path === undefined) return short(400);
  const query = /\?[^#]*/.exec(request.url ?? '')?.[0] ?? '';
  if (path === '/' && site.home) return short(302, { Location: site.home + query });
  const found = await find(site.root, path);
  if (!found) return short(404);
  if (found.folder) return short(301, { Location: encodeURI(`${path}/`.replace(/^\/+/, '/')) + query });

  const { file, size, mtimeMs } = found;
  if (await realpath(file) === SERVICE_WORKER) {
    const text = serviceWorker();
    response.writeHead(200, {
      ...site.headers, 'Content-Type': TYPES['.js'], 'Content-Length': Buffer.byteLength(text),
    });
    response.end(request.method === 'HEAD' ? '' : text);
    return;
  }
  const etag = `"${size.toString(36)}-${Math.trunc(mtimeMs).toString(36)}"`;
  const type = TYPES[extname(file)] ?? 'application/octet-stream';
  const headers = { ...site.headers, ETag: etag, 'Accept-Ranges': 'bytes', 'Content-Type': type };
  if (request.headers['if-none-match'] === etag) {
    response.writeHead(304, headers);
    response.end();
    return;
  }
  const ifRange = request.headers['if-range'];
  const range = ifRange && ifRange !== etag ? undefined : rangeOf(request.headers.range, size);
  if (range === 'outside') return short(416, { 'Content-Range': `bytes */${size}` });
  const [start, end] = range ?? [0, size - 1];
  response.writeHead(range ? 206 : 200, {
    ...headers, 'Content-Length': end - start + 1, ...range && { 'Content-Range': `bytes ${start}-${end}/${size}` },
  });
  if (request.method === 'HEAD' || end < start) response.end();
  else await pipeline(createReadStream(file, { start, end, highWaterMark: 1 << 20 }), response);
}

/** The decoded path of a request; undefined if it is not a well-formed one. @param {string} url */
function pathOf(url) {
  try {
    const path = decodeURIComponent(url.replace(/[?#].*$/s, ''));
    return path.startsWith('/') && !path.includes('\0') && !path.includes('\\') ? path : undefined;
  } catch {
    return undefined;
  }
}

/** The file of a path, if there is one and no part of it begins with a dot ("..", ".git").  Symbolic links are
 * followed: models are often kept elsewhere, and whoever can make a link here can read the files anyway.
 * @param {string} top @param {string} path
 * @returns {Promise<{folder: true} | {folder: false, file: string, size: number, mtimeMs: number} | undefined>} */
async function find(top, path) {
  if (path.split('/').some(part => part.startsWith('.'))) return undefined;
  try {
    const file = join(top, path.endsWith('/') ? `${path}index.html` : path);
    const entry = await stat(file);
    if (entry.isDirectory()) return { folder: true };
    return entry.isFile() ? { folder: false, file, size: entry.size, mtimeMs: entry.mtimeMs } : undefined;
  } catch {
    return undefined;
  }
}

/** First and last byte of a single range; undefined: none, or one to be ignored; 'outside': beyond the file.
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
  const root = fileURLToPath(new URL('..', import.meta.url));
  const asked = Number(process.env.PORT || 8080);
  for (let port = asked; ; port++) {
    try {
      const { url } = await serve({ root, port, home: '/web/chat/' });
      console.log(`plumb chat: ${url}   (Ctrl-C ends it)`);
      break;
    } catch (error) {
      const busy = error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
      if (!busy || process.env.PORT || port > asked + 50) {
        console.error(`plumb: port ${port}: ${error instanceof Error ? error.message : error}`);
        process.exit(1);
      }
    }
  }
}
