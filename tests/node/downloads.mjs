/** Shared by the tests of downloads and of copies: a server that breaks connections, loads whose waits take no time,
 * and a folder of copies for each test. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Plumb } from '../../web/node/index.js';
import { plumbOn, server, tiny, tinyPath } from './helpers.mjs';

export const IDS = [72, 101, 13, 255];
/** An offset in f32.gguf after all keys and the tensor directory. */
export const HEADER = 20000;
export const sha256 = (/** @type {Uint8Array} */ bytes) => createHash('sha256').update(bytes).digest('hex');
/** A model like the tiny one, of the same size, with other weights. */
export const other = tiny.slice();
other.fill(0, tiny.length - 2000, tiny.length - 1000);

/** Waits until the reader has certainly read what was sent, because a stream that breaks drops its buffer.  Reader and
 * server share one event loop, so this counts its turns instead of time, which depends on other load. */
export async function surelyRead() {
  for (let turn = 0; turn < 40; turn++) await sleep(2);
}

/** Replacements for the platform's waits in a test. */
export const network = {
  /** Milliseconds of the waits between tries, in order. */
  waits: /** @type {number[]} */ ([]),
  /** A wait for bytes: it resolves when the connection counts as stalled. */
  silence: /** @type {(ms: number, signal: AbortSignal) => Promise<void>} */ (() => new Promise(() => {})),
};
/** Waits are recorded and end at once. */
export const noWaits = {
  async pause(ms, signal) {
    network.waits.push(ms);
    await new Promise(resolve => setImmediate(resolve));
    signal.throwIfAborted();
  },
  silence: (ms, signal) => network.silence(ms, signal),
};
/** The package with only these replaced. */
export const quick = plumbOn(noWaits);

/** The folder of the copies of this test. */
export let copies = '';
beforeEach(t => {
  network.waits = [];
  network.silence = () => new Promise(() => {});
  copies = process.env.PLUMB_CACHE = mkdtempSync(join(tmpdir(), 'plumb-copies-'));
  t.after?.(() => rmSync(copies, { recursive: true, force: true }));
});
process.on('exit', () => rmSync(copies, { recursive: true, force: true }));

export const files = () => readdirSync(copies).sort();
export const copyPath = () => join(copies, files().find(name => name.endsWith('.gguf')) ?? 'none');
export const metaPath = () => join(copies, files().find(name => name.endsWith('.json')) ?? 'none');

const digest = (/** @type {Float32Array} */ logits) => sha256(new Uint8Array(logits.buffer));
/** Loads, computes, closes. */
export async function load(source, options, plumb = quick) {
  const model = await plumb.load(source, options);
  const logits = await model.feed(IDS);
  await model.close();
  return { logits: digest(logits), warnings: model.warnings };
}
export const expected = (await load(tinyPath, {}, Plumb)).logits;
export const otherwise = (await load(other, {}, Plumb)).logits;
assert.notEqual(expected, otherwise);

/** A server of `bytes` that supports ranges and validators; step(i) says how it answers request i.
 * @param {import('node:test').TestContext} t
 * @param {(i: number, request: import('node:http').IncomingMessage) => object} step  {cut: bytes of the file after
 *   which the connection breaks, bytes, etag, lastModified, ranges: false, status, headers, length: false} */
export async function flaky(t, step) {
  const seen = [];
  const url = await server(t, (request, response) => {
    if (request.method === 'HEAD') return void response.setHeader('Content-Length', tiny.length).end();
    const { range, 'if-range': ifRange, 'if-none-match': ifNoneMatch } = request.headers;
    const i = seen.push({ range, ifRange, ifNoneMatch }) - 1;
    const { cut = Infinity, bytes = tiny, etag = '"one"', lastModified, ranges = true, status, headers = {},
      length = true, limit = Infinity } = step(i, request);
    if (cut < 0) return void request.socket.destroy();
    if (status) return void response.writeHead(status, headers).end('no');
    if (etag) response.setHeader('ETag', etag);
    if (lastModified) response.setHeader('Last-Modified', lastModified);
    if (etag && ifNoneMatch === etag) return void response.writeHead(304).end();
    const from = ranges && (ranges === 'always' || !ifRange || ifRange === etag || ifRange === lastModified)
      ? Number(/^bytes=(\d+)-$/.exec(range ?? '')?.[1] ?? 0) : 0;
    if (from >= bytes.length) {
      return void response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
    }
    const end = Math.min(bytes.length, from + limit);
    if (length) response.setHeader('Content-Length', end - from);
    if (from > 0) response.setHeader('Content-Range', `bytes ${from}-${end - 1}/${bytes.length}`);
    response.writeHead(from > 0 ? 206 : 200, headers);
    response.flushHeaders();
    if (cut >= end) return void response.end(bytes.subarray(from, end));
    response.write(bytes.subarray(from, Math.max(cut, from)), () => surelyRead().then(() => response.destroy()));
  });
  return { url: `${url}model.gguf`, seen };
}
