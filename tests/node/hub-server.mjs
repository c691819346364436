/** An imitation of the hub of Hugging Face, as its client huggingface_hub 2.4.0 uses it: the list of files in pages,
 * refusals with X-Error-Code, and files that another server sends, by URLs with a signature that is different each
 * time.  That server refuses requests with Authorization, as S3 does. */
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';

/** @typedef {object} Repository
 * @property {Record<string, Uint8Array>} files
 * @property {string} [token]  needed for everything
 * @property {string} [gated]  the token that is needed for files, but not for their list
 * @property {(list: any[]) => any} [lie]  changes the list of files
 * @property {Record<string, any>} [refuse]  status, headers and body of every answer of the API
 * @property {Record<string, any>} [about]  what a search says of it, besides its name */

const PAGE = 3;
const CORS = { 'Access-Control-Allow-Origin': '*', 'Access-Control-Allow-Headers': 'authorization, range',
  'Access-Control-Expose-Headers': 'X-Error-Code, X-Error-Message, Link, ETag, Content-Range',
  'Cross-Origin-Resource-Policy': 'cross-origin' };
const sha256 = (/** @type {Uint8Array} */ bytes) => createHash('sha256').update(bytes).digest('hex');

/** @param {import('node:http').RequestListener} answer */
async function listen(answer) {
  const http = createServer(answer);
  await new Promise(resolve => http.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (http.address());
  return { url: `http://127.0.0.1:${port}`, close() {
    http.close();
    http.closeAllConnections();
  } };
}

/** @param {Record<string, Repository>} repositories  by "org/repo" or "org/repo@revision" */
export async function imitateHub(repositories) {
  /** The requests: method, path and token of each. @type {{method?: string, path: string, token?: string}[]} */
  const seen = [];
  /** Those of the server that sends the files. @type {{method?: string, range?: string}[]} */
  const sent = [];
  /** The files for which there is a signature. @type {Map<string, Uint8Array>} */
  const signed = new Map();
  const cdn = await listen((request, response) => {
    if (request.method === 'OPTIONS') return void response.writeHead(204, CORS).end();
    sent.push({ method: request.method, range: request.headers.range });
    const url = new URL(request.url ?? '', cdn.url), bytes = signed.get(url.searchParams.get('X-Amz-Signature') ?? '');
    if (!bytes) return void response.writeHead(403, CORS).end('the signature is wrong');
    if (request.headers.authorization) return void response.writeHead(400, CORS).end('two ways to authenticate');
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const start = Number(from ?? 0), end = Math.min(bytes.length, to ? Number(to) + 1 : Infinity);
    response.writeHead(from === undefined ? 200 : 206, { ...CORS, ETag: `"${sha256(bytes)}"`,
      'Content-Length': end - start,
      ...from !== undefined && { 'Content-Range': `bytes ${start}-${end - 1}/${bytes.length}` } });
    response.end(request.method === 'HEAD' ? undefined : bytes.subarray(start, end));
  });
  const hub = await listen((request, response) => {
    if (request.method === 'OPTIONS') return void response.writeHead(204, CORS).end();
    const url = new URL(request.url ?? '', hub.url);
    const token = /^Bearer (.*)$/.exec(request.headers.authorization ?? '')?.[1];
    seen.push({ method: request.method, path: url.pathname, token });
    const refuse = (/** @type {number} */ status, /** @type {string} */ code, headers = {}) => void response
      .writeHead(status, { ...CORS, ...code && { 'X-Error-Code': code, 'X-Error-Message': code }, ...headers })
      .end(JSON.stringify({ error: code }));
    if (url.pathname === '/api/models') {
      const { search, limit, cursor = '0' } = Object.fromEntries(url.searchParams), at = Number(cursor);
      const found = Object.entries(repositories).filter(([id]) => id.toLowerCase().includes(search.toLowerCase()));
      const next = new URL(url);
      next.searchParams.set('cursor', String(at + Number(limit)));
      response.writeHead(200, { ...CORS, 'Content-Type': 'application/json; charset=utf-8',
        ...at + Number(limit) < found.length && { Link: `<${next.href}>; rel="next"` } });
      return void response.end(JSON.stringify(found.slice(at, at + Number(limit)).map(([id, { about, gated }]) =>
        ({ _id: 'd'.repeat(24), id, modelId: id, private: false, likes: 1, downloads: 5, tags: ['gguf'],
          ...gated && { gated: 'manual' }, ...about }))));
    }
    const [, api, name, revision, path] = /^\/(api\/models\/)?([^/]+\/[^/]+)\/(?:tree|resolve)\/([^/]+)(?:\/(.+))?$/
      .exec(url.pathname) ?? [];
    const branch = decodeURIComponent(revision ?? ''), key = branch === 'main' ? name : `${name}@${branch}`;
    const repository = repositories[key];
    if (!repository) return name in repositories ? refuse(404, 'RevisionNotFound') : refuse(401, 'RepoNotFound');
    if (repository.token && token !== repository.token) return refuse(401, 'RepoNotFound');
    if (api && repository.refuse) {
      const { status, headers = {}, body = '' } = repository.refuse;
      return void response.writeHead(status, { ...CORS, ...headers }).end(body);
    }
    if (api) {
      const all = Object.entries(repository.files).map(([path, bytes]) => ({ type: 'file', path, size: bytes.length,
        oid: 'a'.repeat(40), lfs: { oid: sha256(bytes), size: bytes.length, pointerSize: 134 } }));
      const folder = { type: 'directory', path: 'folder', size: 0, oid: 'b'.repeat(40) };
      const list = repository.lie?.(all) ?? [folder, ...all];
      const at = Number(url.searchParams.get('cursor') ?? 0), next = new URL(url);
      next.searchParams.set('cursor', String(at + PAGE));
      response.writeHead(200, { ...CORS, 'Content-Type': 'application/json; charset=utf-8',
        ...at + PAGE < list.length && { Link: `<${next.href}>; rel="next"` } });
      return void response.end(JSON.stringify(Array.isArray(list) ? list.slice(at, at + PAGE) : list));
    }
    if (repository.gated && token !== repository.gated) return refuse(token ? 403 : 401, 'GatedRepo');
    const bytes = repository.files[decodeURIComponent(path ?? '')];
    if (!bytes) return refuse(404, 'EntryNotFound');
    const signature = `s3cret-${signed.size}`;
    signed.set(signature, bytes);
    response.writeHead(302, { ...CORS, 'X-Repo-Commit': 'c'.repeat(40), 'X-Linked-Size': bytes.length,
      'X-Linked-ETag': `"${sha256(bytes)}"`, Location: `${cdn.url}/file?X-Amz-Signature=${signature}` }).end();
  });
  return { url: hub.url, cdn: cdn.url, seen, sent, repositories, close() {
    hub.close();
    cdn.close();
  } };
}
