/* An HTTP server around a handler of plumb-llm/fetch, with what a port needs: it answers only requests that name this
 * machine, refuses pages of other sites, checks a key, does not wait for ever for slow clients, counts what it does,
 * and ends in order. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { isIP } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { yieldToEventLoop } from '../base/async.js';
import { errorBody, httpError, HttpError } from '../serving/answers.js';
import { isLocalName } from './local-names.js';
import { Metrics } from './metrics.js';

/** @typedef {import('node:http').IncomingMessage} IncomingMessage
 * @typedef {import('node:http').ServerResponse} ServerResponse */
/** @typedef {object} ServerOptions
 * @property {string} [host]  default 127.0.0.1
 * @property {number} [port]  0, the default: any free one
 * @property {string} [apiKey]  requests must have it, as "Authorization: Bearer KEY"; files of a page need none
 * @property {string[]} [origins]  of pages that may use the server, besides its own; '*': all
 * @property {string[]} [names]  host names that requests may use, besides addresses and this machine's loopback names
 * @property {import('node:http').RequestListener} [page]  answers requests that are none of the API
 * @property {(line: LogLine) => void} [log]  receives a line for each request that was answered */
/** @typedef {{time: string, method: string, path: string, status: number, seconds: number, error?: string}} LogLine
 *   status: 499 if the client went away before */

/** The path that only a server has. */
const METRICS = '/metrics';
const METHODS = ['GET', 'HEAD', 'POST', 'DELETE'];
/** Milliseconds after which a client that takes no more bytes is given up, and in which a request must arrive. */
const STALLED = 60_000, ARRIVES = 120_000;
/** Status of a request whose client went away, as in nginx. */
const CLIENT_GONE = 499;

/** @param {import('../serving/handler.js').Handler} handler @param {ServerOptions} [options]
 * @returns {Promise<{url: string, close: (seconds?: number) => Promise<void>}>}  close: ends when the requests that are
 *   being answered have ended, but at most after so many seconds */
export async function startServer(handler, { host = '127.0.0.1', port = 0, log = () => {}, ...rules } = {}) {
  const metrics = new Metrics();
  handler.onStats(metrics.answer);
  /** @type {Set<AbortController>} */
  const running = new Set();
  /** Resolves when the request that came last may begin: each begins in a turn of the event loop of its own. */
  let begun = Promise.resolve();
  const server = createServer({ requestTimeout: ARRIVES }, async (request, response) => {
    const start = performance.now(), abort = new AbortController(), [path] = (request.url ?? '/').split('?');
    running.add(abort);
    /** @type {HttpError | undefined} */
    let failure;
    response.on('close', () => {
      abort.abort(new HttpError(CLIENT_GONE, 'the client went away'));
      running.delete(abort);
      const seconds = (performance.now() - start) / 1000;
      const status = response.writableFinished ? response.statusCode : CLIENT_GONE;
      const isApi = path === METRICS || handler.has(path);
      metrics.request(isApi ? handler.routeOf(path) ?? 'other' : 'page', status, seconds);
      log({ time: new Date().toISOString(), method: request.method ?? '', path, status,
        seconds: Number(seconds.toFixed(3)), ...failure && { error: failure.message } });
    });
    try {
      await (begun = begun.then(yieldToEventLoop));
      await answer(request, response, abort.signal, { handler, metrics, host, ...rules });
    } catch (error) {
      failure = httpError(error);
      refuse(response, failure, path);
    }
  });
  // What Node loads and compiles for a first request is there before anybody waits for it.
  await (await handler(new Request('http://localhost/v1/chat/completions', { method: 'POST', body: '{}' }))).text();
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => resolve(undefined));
  });
  metrics.begin();
  const { port: bound } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://${isIP(host) === 6 ? `[${host}]` : host}:${bound}`,
    async close(seconds = 0) {
      const closed = new Promise(resolve => { server.close(resolve); });
      server.closeIdleConnections();
      const timer = setTimeout(() => {
        for (const abort of running) abort.abort(new HttpError(503, 'the server stops'));
        server.closeAllConnections();
      }, 1000 * seconds);
      await closed;
      clearTimeout(timer);
      await handler.close();
    },
  };
}

/** @typedef {{handler: import('../serving/handler.js').Handler, metrics: Metrics, host: string}
 *   & Omit<ServerOptions, 'log' | 'port'>} Rules */

/** @param {IncomingMessage} incoming @param {ServerResponse} response @param {AbortSignal} signal
 * @param {Rules} rules */
async function answer(incoming, response, signal, { handler, metrics, host, apiKey, origins, names = [], page }) {
  const name = incoming.headers.host ?? '';
  if (!isLocalName(name, [host, ...names])) {
    throw new HttpError(421, `this server has not the name ${JSON.stringify(name)}; --name allows it`);
  }
  const { origin } = incoming.headers, path = incoming.url ?? '/';
  const isOwn = origin === undefined || origin === `http://${name}`;
  if (!isOwn && !origins?.some(one => one === '*' || one === origin)) {
    throw new HttpError(403, `pages of ${origin} may not use this server; --cors ${origin} allows it`);
  }
  if (!isOwn) {
    response.setHeader('Access-Control-Allow-Origin', origin);
    response.setHeader('Vary', 'Origin');
  }
  if (incoming.method === 'OPTIONS') {
    response.writeHead(204, {
      Allow: 'GET, POST, DELETE, OPTIONS',
      ...!isOwn && {
        'Access-Control-Allow-Methods': 'GET, POST, DELETE', 'Access-Control-Max-Age': '600',
        'Access-Control-Allow-Headers': incoming.headers['access-control-request-headers'] ?? '*',
      },
    });
    response.end();
    return;
  }
  if (path !== METRICS && !handler.has(path.replace(/\?.*$/s, ''))) {
    if (!page) throw new HttpError(404, `there is no ${path}`, 'not_found');
    return page(incoming, response);
  }
  if (apiKey !== undefined && path !== '/health' && !isKey(incoming, apiKey)) {
    throw new HttpError(401, 'the key is missing or wrong: send "Authorization: Bearer KEY"', 'invalid_api_key',
      { 'WWW-Authenticate': 'Bearer' });
  }
  if (path === METRICS && incoming.method === 'GET') {
    response.writeHead(200, { 'Content-Type': 'text/plain; version=0.0.4; charset=utf-8' });
    response.end(await metrics.text(handler));
    return;
  }
  if (!METHODS.includes(incoming.method ?? '')) {
    throw new HttpError(405, `no path takes ${incoming.method}`, null, { Allow: METHODS.join(', ') });
  }
  const hasBody = incoming.method !== 'GET' && incoming.method !== 'HEAD';
  const request = new Request(`http://localhost${path}`, /** @type {any} */ ({
    method: incoming.method, headers: incoming.headers, signal,
    ...hasBody && { body: Readable.toWeb(incoming), duplex: 'half' },
  }));
  await send(await handler(request), response);
  // Many clients read the answer only when they have sent everything.
  if (request.body && !request.bodyUsed) await request.body.pipeTo(new WritableStream()).catch(() => {});
}

/** Whether a request has the key.  Digests of keys have the same length, which timingSafeEqual needs.
 * @param {IncomingMessage} request @param {string} key */
function isKey({ headers }, key) {
  const [, given] = /^Bearer +(.+)$/i.exec(headers.authorization ?? '') ?? [, headers['x-api-key'] ?? ''];
  const digest = (/** @type {unknown} */ text) => createHash('sha256').update(String(text)).digest();
  return timingSafeEqual(digest(given), digest(key));
}

/** Writes a response, as fast as the client takes it. @param {Response} answer @param {ServerResponse} response */
async function send({ status, headers, body }, response) {
  response.writeHead(status, Object.fromEntries(headers));
  if (!body) return void response.end();
  /** @type {any} */
  let timer;
  const watched = async function* (/** @type {AsyncIterable<Uint8Array>} */ pieces) {
    for await (const piece of pieces) {
      timer = setTimeout(() => response.destroy(), STALLED);
      yield piece;   // returns when the client has taken it
      clearTimeout(timer);
    }
  };
  await pipeline(Readable.fromWeb(/** @type {any} */ (body)), watched, response)
    .catch(() => {})   // the client went away
    .finally(() => clearTimeout(timer));
}

/** Answers with an error, if the answer has not begun. @param {ServerResponse} response @param {HttpError} error
 * @param {string} path */
function refuse(response, error, path) {
  if (response.headersSent || response.destroyed) return void response.destroy();
  response.writeHead(error.status, { 'Content-Type': 'application/json', ...error.headers });
  response.end(JSON.stringify(errorBody(error, path)));
}
