/** Downloads whose connection breaks, from servers that do not always do as they should, and the copies that are kept.
 * Ground truth: the file itself (its sha256 by Node's own hash), what the server saw of every request, and that the
 * same logits come out as from the file. */
import assert from 'node:assert/strict';
import { fork, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs, { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, truncateSync,
  utimesSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Plumb } from '../../web/node/index.js';
import { ggufHeader } from './gguf.mjs';
import { fails, plumbOn, random, root, server, tiny, tinyPath } from './helpers.mjs';

const IDS = [72, 101, 13, 255];
/** Of f32.gguf: behind all keys and the tensor directory. */
const HEADER = 20000;
const sha256 = (/** @type {Uint8Array} */ bytes) => createHash('sha256').update(bytes).digest('hex');
/** A model like the tiny one, of the same size, with other weights. */
const other = tiny.slice();
other.fill(0, tiny.length - 2000, tiny.length - 1000);

/** Milliseconds in which what was sent is surely read: a stream that breaks drops what it holds. */
const PATIENCE = 100;

let waits = [];
/** What becomes of a wait for bytes: resolved once there was silence. */
let silence = () => new Promise(() => {});
/** Waits are noted, and not waited for. */
const noWaits = {
  async pause(ms, signal) {
    waits.push(ms);
    await new Promise(resolve => setImmediate(resolve));
    signal.throwIfAborted();
  },
  silence: (ms, signal) => silence(ms, signal),
};
/** The package as it is, but for those. */
const quick = plumbOn(noWaits);

let copies = '';
beforeEach(t => {
  waits = [];
  silence = () => new Promise(() => {});
  copies = process.env.PLUMB_CACHE = mkdtempSync(join(tmpdir(), 'plumb-copies-'));
  t.after?.(() => rmSync(copies, { recursive: true, force: true }));
});
process.on('exit', () => rmSync(copies, { recursive: true, force: true }));

const digest = (/** @type {Float32Array} */ logits) => sha256(new Uint8Array(logits.buffer));
/** Loads, computes, closes. */
async function load(source, options, plumb = quick) {
  const model = await plumb.load(source, options);
  const logits = await model.feed(IDS);
  await model.close();
  return { logits: digest(logits), warnings: model.warnings };
}
const expected = (await load(tinyPath, {}, Plumb)).logits;
const otherwise = (await load(other, {}, Plumb)).logits;
assert.notEqual(expected, otherwise);

/** A server of `bytes` that knows ranges and validators; step says what becomes of request i.
 * @param {import('node:test').TestContext} t
 * @param {(i: number, request: import('node:http').IncomingMessage) => object} step  {cut: bytes of the file after
 *   which the connection breaks, bytes, etag, lastModified, ranges: false, status, headers, length: false} */
async function flaky(t, step) {
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
    response.write(bytes.subarray(from, Math.max(cut, from)), () => setTimeout(() => response.destroy(), PATIENCE));
  });
  return { url: `${url}model.gguf`, seen };
}

const CUTS = [-1, 0, 1, 3, 5000, HEADER, 60000, tiny.length - 1];
for (const cut of CUTS) {
  test(`a connection that breaks ${cut < 0 ? 'before the answer' : `after ${cut} bytes`} goes on there`, async t => {
    const { url, seen } = await flaky(t, i => i === 0 ? { cut } : {});
    const phases = [];
    const { logits, warnings } = await load(url, {
      sha256: sha256(tiny), onProgress: ({ phase, attempt, bytes }) => phases.push([phase, attempt, bytes]),
    });
    assert.equal(logits, expected);
    assert.deepEqual(warnings, []);
    assert.equal(seen.length, 2);
    assert.deepEqual([seen[1].range, seen[1].ifRange], cut > 0 ? [`bytes=${cut}-`, '"one"'] : [undefined, undefined]);
    assert.deepEqual(waits, [500]);
    assert.deepEqual(phases.filter(([phase]) => phase === 'wait'), [['wait', 1, Math.max(0, cut)]]);
    assert.equal(phases.at(-1)[2], tiny.length);
  });
}

test('many breaks: each that brings bytes starts the waits anew', async t => {
  const { url, seen } = await flaky(t, i => i < 12 ? { cut: 7000 * (i + 1) } : {});
  assert.equal((await load(url)).logits, expected);
  assert.equal(seen.length, 13);
  assert.deepEqual(waits, Array(12).fill(500));
});

test('five tries without a byte end the load, with place and numbers', async t => {
  const { url, seen } = await flaky(t, i => i === 0 ? { cut: 60000 } : { cut: 0 });
  await assert.rejects(load(url), {
    code: 'PLUMB_ERROR_IO', message: /model\.gguf: the bytes stop after 60000 of 88544: .*5 more tries/,
    details: { name: url, bytes: 60000, total: 88544, tries: 5 },
  });
  assert.equal(seen.length, 6);
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000]);
  await fails(load('http://127.0.0.1:1/model.gguf'), 'PLUMB_ERROR_IO', /no connection: .*(ECONNREFUSED|bad port)/);
});

test('ranges shorter than asked for are put together without a wait', async t => {
  const { url, seen } = await flaky(t, i => i === 0 ? { cut: 10000 } : { limit: 30000 });
  assert.equal((await load(url)).logits, expected);
  assert.deepEqual(seen.map(({ range }) => range), [undefined, 'bytes=10000-', 'bytes=40000-', 'bytes=70000-']);
  assert.deepEqual(waits, [500]);
});

test('Last-Modified is as good; a weak ETag alone is not, and starts again', async t => {
  const lastModified = 'Mon, 01 Jan 2024 00:00:00 GMT';
  for (const [first, ranges] of [
    [{ etag: '', lastModified }, [undefined, 'bytes=60000-']],
    [{ etag: 'W/"one"', lastModified }, [undefined, 'bytes=60000-']],
    [{ etag: 'W/"one"' }, [undefined, undefined]],
    [{ etag: '' }, [undefined, undefined]],
  ]) {
    const { url, seen } = await flaky(t, i => ({ ...first, ...i === 0 && { cut: 60000 } }));
    assert.equal((await load(url)).logits, expected);
    assert.deepEqual(seen.map(({ range }) => range), ranges, JSON.stringify(first));
  }
  const { url, seen } = await flaky(t, i => ({ etag: '', ...i === 0 && { cut: 60000 } }));
  assert.equal((await load(url, { sha256: sha256(tiny) })).logits, expected);
  assert.deepEqual(seen.map(({ range }) => range), [undefined, 'bytes=60000-']);   // the sum will tell
});

test('a server without validators that always breaks ends the load', async t => {
  const { url, seen } = await flaky(t, () => ({ etag: '', cut: 60000 }));
  await fails(load(url), 'PLUMB_ERROR_IO', /the bytes stop after 60000 of 88544: .*5 more tries/);
  assert.equal(seen.length, 6);
});

test('a file that changes between two tries is loaded from its start', async t => {
  for (const changed of [
    { etag: '"two"', bytes: other },                      // by If-Range: the answer is 200
    { etag: '"two"', bytes: other, ranges: 'always' },    // the server does not know If-Range: 206
    { etag: '', lastModified: 'Tue, 02 Jan 2024 00:00:00 GMT', bytes: other, ranges: 'always' },
    { etag: '"one"', bytes: Buffer.concat([other, Buffer.alloc(5)]), ranges: 'always' },   // of another size
  ]) {
    const { url, seen } = await flaky(t, i => i === 0
      ? { cut: 60000, lastModified: 'Mon, 01 Jan 2024 00:00:00 GMT' } : changed);
    const { logits, warnings } = await load(url, { sha256: sha256(changed.bytes) });
    assert.equal(logits, otherwise);
    assert.deepEqual(warnings, []);
    const asked = seen.length;
    assert.equal((await load(url)).logits, otherwise);   // the copy is the new file's
    assert.ok(asked >= 3 && seen.length === asked, `${seen.length} requests`);
  }
});

test('a server that knows no ranges sends all again: what is there is skipped', async t => {
  const { url, seen } = await flaky(t, i => ({ ranges: false, ...i < 3 && { cut: 20000 * (i + 1) } }));
  assert.equal((await load(url)).logits, expected);
  assert.equal(seen.length, 4);
  assert.equal((await load(url, { sha256: sha256(tiny) })).logits, expected);   // its copy is right
  assert.equal(seen.length, 4);
});

test('a range of another place is an error that says so', async t => {
  const { url } = await flaky(t, i => i === 0 ? { cut: 60000 }
    : { ranges: false, headers: { 'Content-Range': 'bytes 5-88543/88544' } });
  const wrong = await server(t, (request, response) => {
    if (!request.headers.range) {
      response.writeHead(200, { ETag: '"one"', 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => setTimeout(() => response.destroy(), PATIENCE));
    } else {
      response.writeHead(206, { ETag: '"one"', 'Content-Range': 'bytes 5-88543/88544' }).end(tiny.subarray(5));
    }
  });
  await fails(load(`${wrong}m`), 'PLUMB_ERROR_IO',
    /asked for the bytes from 60000 on, .*"Content-Range: bytes 5-88543/);
  assert.equal((await load(url)).logits, expected);   // of a 200 the header means nothing
});

for (const [what, headers] of [['neither Content-Range nor Content-Length', {}],
  ['no Content-Range, but the length of the rest', { 'Content-Length': 28544 }],
  ['a Content-Range, but encoded', { 'Content-Range': 'bytes 60000-88543/88544', 'Content-Encoding': 'gzip' }]]) {
  test(`a 206 with ${what} is refused, and the file is begun again`, async t => {
    const asked = [];
    const url = await server(t, ({ headers: { range } }, response) => {
      asked.push(range);
      response.setHeader('ETag', '"one"');
      if (asked.length === 1) {
        response.writeHead(200, { 'Content-Length': tiny.length });
        response.write(tiny.subarray(0, 60000), () => setTimeout(() => response.destroy(), PATIENCE));
      } else if (range) {
        response.writeHead(206, headers);
        response.end(headers['Content-Encoding'] ? gzipSync(tiny) : headers['Content-Length'] ? tiny.subarray(0, 28544)
          : tiny);
      } else response.writeHead(200, { 'Content-Length': tiny.length }).end(tiny);
    });
    const { logits, warnings } = await load(`${url}m`);
    assert.deepEqual([logits, warnings], [expected, []]);
    // Once by the same load, and once by the one that goes on with the copy.
    assert.deepEqual(asked, [undefined, 'bytes=60000-', 'bytes=60000-', undefined]);
    assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
    const [{ complete, size }] = await quick.listCached();
    assert.deepEqual([complete, size], [true, tiny.length]);
  });
}

test('a server that only ever sends such ranges ends the load with the reason, or never gets one', async t => {
  const url = await server(t, ({ headers: { range } }, response) => {
    response.setHeader('ETag', '"one"');
    if (range) return void response.writeHead(206).end(tiny);
    response.writeHead(200, { 'Content-Length': tiny.length });
    response.write(tiny.subarray(0, 60000), () => setTimeout(() => response.destroy(), PATIENCE));
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the bytes stop after 60000 of 88544: .*5 more tries/);
});

test('what was certain of the size stays certain when the rest says less', async t => {
  const url = await server(t, ({ headers: { range } }, response) => {
    response.setHeader('ETag', '"one"');
    if (!range) {
      response.writeHead(200, { 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => setTimeout(() => response.destroy(), PATIENCE));
    } else response.writeHead(206, { 'Content-Range': 'bytes 60000-88543/*' }).end(Buffer.alloc(30000));
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the server sends more than the 88544 bytes/);
});

test('an empty answer says so, with the URL', async t => {
  for (const length of [true, false]) {
    const url = await server(t, (_, response) => {
      if (length) response.setHeader('Content-Length', 0);
      response.flushHeaders();
      response.end();
    });
    await fails(load(`${url}m`), 'PLUMB_ERROR_TRUNCATED', /^http:.*\/m: the server sent an empty file, not a GGUF/);
    assert.deepEqual(files(), []);
  }
});

test('more bytes than announced are refused', async t => {
  const url = await server(t, (request, response) => {
    if (!request.headers.range) {
      response.writeHead(200, { ETag: '"one"', 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => setTimeout(() => response.destroy(), PATIENCE));
    } else {
      response.writeHead(206, { ETag: '"one"', 'Content-Range': `bytes 60000-88543/88544` });
      response.write(tiny.subarray(60000));
      response.end('and more');
    }
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the server sends more than the 88544 bytes/);
});

test('so are more bytes of a range than its Content-Range says, which would stand where others belong', async t => {
  const url = await server(t, ({ headers: { range } }, response) => {
    const from = Number(/\d+/.exec(range ?? '0')[0]), to = Math.min(from + 10000, tiny.length);
    response.setHeader('ETag', '"one"');
    if (!range) {
      response.writeHead(200, { 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => setTimeout(() => response.destroy(), PATIENCE));
    } else {
      response.writeHead(206, { 'Content-Range': `bytes ${from}-${to - 1}/${tiny.length}` });
      response.write(tiny.subarray(from, to));
      response.end(to < tiny.length ? '12345' : '');
    }
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the server sends more than the \d+ bytes that it announced/);
});

test('a download that never ends leaves no copy, and has no checksum; one that ends soon has both', async t => {
  const zeros = Buffer.alloc(1 << 20);
  let sent = 0;
  const url = await server(t, async (_, response) => {
    response.write(tiny);
    const closed = new Promise(resolve => response.on('close', resolve));
    for (sent = 0; sent < 2 ** 30 && !response.destroyed; sent += zeros.length) {
      if (!response.write(zeros)) await Promise.race([closed, new Promise(resolve => response.once('drain', resolve))]);
    }
    response.end();
  });
  const { logits, warnings } = await load(`${url}m`);
  assert.equal(logits, expected);
  assert.deepEqual(warnings.map(({ code }) => code), ['cache']);
  assert.match(warnings[0].message, /no copy is kept: the server sends more than the model has/);
  assert.deepEqual(files(), []);
  await fails(load(`${url}m`, { sha256: sha256(tiny) }), 'PLUMB_ERROR_IO', /\/m: the server sends more than 16777216 /);
  assert.deepEqual(files(), []);
  assert.ok(sent < 2 ** 27, `${sent} bytes sent`);
  const padded = Buffer.concat([tiny, zeros]);
  const ending = await flaky(t, () => ({ bytes: padded, length: false }));
  assert.deepEqual(await load(ending.url, { sha256: sha256(padded) }), { logits: expected, warnings: [] });
  assert.equal(sha256(readFileSync(copyPath())), sha256(padded));
});

test('a connection that falls silent, before the answer or within it, is given up and asked for the rest', async t => {
  const seen = [], gone = [];
  let silent = () => {};
  const url = await server(t, ({ headers: { range } }, response) => {
    const i = seen.push(range);
    if (i <= 2) gone.push(new Promise(resolve => response.on('close', resolve)));
    if (i === 1) return silent();
    const from = Number(/\d+/.exec(range ?? '0')[0]);
    response.setHeader('ETag', '"one"').setHeader('Content-Length', tiny.length - from);
    if (from > 0) response.writeHead(206, { 'Content-Range': `bytes ${from}-88543/88544` }).end(tiny.subarray(from));
    else response.write(tiny.subarray(0, 60000), () => setTimeout(() => silent(), PATIENCE));   // and nothing more
  });
  const patience = [];
  silence = (ms, signal) => new Promise((resolve, reject) => {
    patience.push(ms);
    silent = resolve;
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  const phases = [];
  const { logits, warnings } = await load(`${url}m`, { onProgress: ({ phase }) => phases.push(phase) });
  assert.deepEqual([logits, warnings], [expected, []]);
  assert.deepEqual(seen, [undefined, undefined, 'bytes=60000-']);
  assert.deepEqual(waits, [500, 500]);
  assert.ok(phases.includes('wait') && patience.every(ms => ms === 30000));
  await Promise.all(gone);   // both connections are given up
  silence = async () => {};
  await fails(load(`${url}n`, { cache: 'no-store' }), 'PLUMB_ERROR_IO', /nothing came for 30 seconds \(\d more tries/);
});

test('a server that never answers is tried less often', async () => {
  await assert.rejects(load('http://127.0.0.1:1/m'), {
    code: 'PLUMB_ERROR_IO', message: /no connection: .* \(2 more tries did not help\)/,
    details: { url: 'http://127.0.0.1:1/m', tries: 2 },
  });
  assert.deepEqual(waits, [500, 1000]);
});

test('what a server cannot do now it may do soon: 503, 429, 408; Retry-After is heeded', async t => {
  const { url } = await flaky(t, i => i === 0 ? { status: 503, headers: { 'Retry-After': '7' } }
    : i === 1 ? { status: 429, headers: { 'Retry-After': '3600' } } : i === 2 ? { status: 408 } : {});
  assert.equal((await load(url)).logits, expected);
  assert.deepEqual(waits, [7000, 30000, 2000]);
  const never = await flaky(t, () => ({ status: 500 }));
  await fails(load(never.url), 'PLUMB_ERROR_IO', /the server answered 500 Internal Server Error \(5 more tries/);
  for (const status of [404, 403, 410, 416, 206]) {
    const { url, seen } = await flaky(t, () => ({ status }));
    await assert.rejects(load(url), { code: 'PLUMB_ERROR_IO', details: { url, status } });
    assert.equal(seen.length, 1);
  }
});

// ---- copies ----

const files = () => readdirSync(copies).sort();
const copyPath = () => join(copies, files().find(name => name.endsWith('.gguf')) ?? 'none');
const metaPath = () => join(copies, files().find(name => name.endsWith('.json')) ?? 'none');

test('the second load needs no server; the copy is the file; list, open, remove', async t => {
  const { url, seen } = await flaky(t, () => ({ lastModified: 'Mon, 01 Jan 2024 00:00:00 GMT' }));
  await load(url);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
  const phases = new Set();
  assert.equal((await load(url, { onProgress: ({ phase }) => phases.add(phase) })).logits, expected);
  assert.equal(seen.length, 1);
  assert.deepEqual([...phases], ['read', 'prepare', 'ready']);
  const [entry, ...rest] = await quick.listCached();
  assert.deepEqual(rest, []);
  const { lastUsed, ...facts } = entry;
  assert.deepEqual(facts, { url, bytes: tiny.length, size: tiny.length, complete: true, etag: '"one"',
    lastModified: 'Mon, 01 Jan 2024 00:00:00 GMT', sha256: undefined });
  assert.ok(Math.abs(Date.now() - lastUsed) < 60000);
  assert.equal(sha256(new Uint8Array(await (await quick.openCached(url)).arrayBuffer())), sha256(tiny));
  assert.equal(await quick.removeCached(url), true);
  assert.equal(await quick.removeCached(url), false);
  assert.equal(await quick.openCached(url), undefined);
  assert.deepEqual(files(), []);
});

test('the modes: no-cache asks, reload downloads, no-store leaves no trace', async t => {
  let bytes = tiny, etag = '"one"';
  const { url, seen } = await flaky(t, () => ({ bytes, etag }));
  await load(url, { cache: 'no-store' });
  assert.deepEqual(files(), []);
  await load(url, { cache: 'no-cache' });
  assert.equal((await load(url, { cache: 'no-cache' })).logits, expected);
  assert.deepEqual(seen.map(({ ifNoneMatch }) => ifNoneMatch), [undefined, undefined, '"one"']);
  [bytes, etag] = [other, '"two"'];
  assert.equal((await load(url)).logits, expected);   // nobody asked
  assert.equal((await load(url, { cache: 'no-cache' })).logits, otherwise);
  assert.equal((await load(url)).logits, otherwise);
  [bytes, etag] = [tiny, '"two"'];
  assert.equal((await load(url, { cache: 'reload' })).logits, expected);
  assert.equal((await load(url)).logits, expected);
  assert.equal(seen.length, 5);
});

/** Makes the metadata that of an older version, which had no digests. @param {object} change */
function age(change) {
  const { sums, ...meta } = JSON.parse(readFileSync(metaPath(), 'utf8'));
  assert.match(sums, /^[0-9a-f]+$/);
  writeFileSync(metaPath(), JSON.stringify({ ...meta, ...change }));
}

for (const cut of [0, 1, 5000, 60000, tiny.length - 1, tiny.length]) {
  test(`a copy of ${cut} bytes that a killed process of an older version left is resumed`, async t => {
    const { url, seen } = await flaky(t, () => ({}));
    await load(url);
    truncateSync(copyPath(), cut);
    age({ complete: false });
    seen.length = 0;
    let first;
    const { logits } = await load(url, { sha256: sha256(tiny), onProgress: progress => { first ??= progress; } });
    assert.equal(logits, expected);
    assert.deepEqual(seen, [cut === 0 ? { range: undefined, ifRange: undefined, ifNoneMatch: undefined }
      : { range: `bytes=${cut}-`, ifRange: '"one"', ifNoneMatch: undefined }]);
    assert.equal(first.phase, cut === 0 ? 'download' : 'read');
    assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
    assert.equal((await quick.listCached())[0].complete, true);
  });
}

test('a copy of which the server has another file meanwhile begins anew', async t => {
  let state = {};
  const { url, seen } = await flaky(t, () => state);
  await load(url);
  truncateSync(copyPath(), 60000);
  age({ complete: false });
  state = { bytes: other, etag: '"two"' };
  assert.equal((await load(url)).logits, otherwise);
  assert.equal(sha256(readFileSync(copyPath())), sha256(other));
  assert.equal(seen.length, 2);
});

test('what is written beside a copy is not trusted', async t => {
  const { url } = await flaky(t, () => ({}));
  await load(url);
  const good = JSON.parse(readFileSync(metaPath(), 'utf8'));
  for (const text of ['', '{', 'null', '[]', '5', '"x"', '{"url":5}', '\0'.repeat(1000),
    JSON.stringify({ ...good, url: 'http://elsewhere/' }), JSON.stringify({ ...good, size: -1 }),
    JSON.stringify({ ...good, size: 1e300 }), JSON.stringify({ ...good, size: 5 }),
    JSON.stringify({ ...good, size: tiny.length + 1 }), JSON.stringify({ ...good, lastUsed: 'x' }),
    JSON.stringify({ ...good, etag: {} }), JSON.stringify({ ...good, size: undefined }),
    JSON.stringify({ ...good, complete: 'yes' }), JSON.stringify({ ...good, sums: 5 }),
    JSON.stringify({ ...good, sums: '' }), JSON.stringify({ ...good, sums: 'x'.repeat(16) }),
    JSON.stringify({ ...good, sums: good.sums + good.sums })]) {
    writeFileSync(metaPath(), text);
    await quick.listCached();
    assert.equal(await quick.openCached(url), undefined, text);
    const { logits, warnings } = await load(url);
    assert.equal(logits, expected, text);
    assert.deepEqual(warnings, [], text);
    assert.deepEqual((await quick.listCached()).map(({ complete }) => complete), [true], text);
  }
});

/** Flips one bit of a file. @param {string} path @param {number} at */
function flip(path, at) {
  const bytes = readFileSync(path);
  bytes[at] ^= 1 << at % 8;
  writeFileSync(path, bytes);
}

test('a damaged copy is loaded from the server instead, and replaced, and a warning says so', async t => {
  const { url, seen } = await flaky(t, () => ({}));
  await load(url);
  for (const [at, n] of [[0, 4], [100, 3000], [0, tiny.length]]) {
    const bytes = tiny.slice();
    bytes.fill(255, at, at + n);
    writeFileSync(copyPath(), bytes);
    const { logits, warnings } = await load(url);
    assert.equal(logits, expected);
    assert.deepEqual(warnings.map(({ code }) => code), ['cache']);
    assert.match(warnings[0].message, /the copy on this machine is damaged: .*; it is removed, and the file/);
    assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
  }
  assert.equal(seen.length, 4);
});

test('one flipped bit of a kept copy is found, wherever it is', async t => {
  const padded = Buffer.concat([tiny, Buffer.alloc(9 << 20, 7)]);   // three chunks; the engine needs the first
  const { url, seen } = await flaky(t, () => ({ bytes: padded }));
  await load(url);
  for (const [at, from, to] of [[HEADER + 9, 0, 4194304], [tiny.length - 1, 0, 4194304], [4194303, 0, 4194304],
    [4194304, 4194304, 8388608], [padded.length - 1, 8388608, padded.length]]) {
    for (const options of [{}, { sha256: sha256(padded) }]) {
      seen.length = 0;
      flip(copyPath(), at);
      const { logits, warnings } = await load(url, options);
      assert.equal(logits, expected, `byte ${at}`);
      assert.deepEqual(warnings, [{ code: 'cache', message: `${url}: the copy on this machine is damaged: the bytes `
        + `from ${from} to ${to} are not those that were downloaded; it is removed, and the file is downloaded `
        + 'anew' }]);
      assert.equal(seen.length, 1);
      assert.equal(sha256(readFileSync(copyPath())), sha256(padded));
      assert.deepEqual((await load(url, options)).warnings, []);
    }
  }
});

test('one flipped bit of a header is found, whatever the engine makes of it', async t => {
  const { header, size } = ggufHeader({ layers: 1, embedding: 32, feedForward: 32, heads: 2, vocabulary: 12000 });
  assert.ok(header.length > 3 * 65536);
  const bytes = Buffer.concat([header, Buffer.alloc(size - header.length)]);
  const { url } = await flaky(t, () => ({ bytes }));
  const { logits: right } = await load(url), next = random(3);
  const codes = new Map();
  for (let i = 0; i < 30; i++) {
    // The first places are a tokenizer and an architecture that plumb does not know.
    const at = i === 0 ? bytes.indexOf('tokenizer.ggml.model') + 32
      : i === 1 ? bytes.indexOf('general.architecture') + 32 : i < 15 ? next(900) : next(header.length);
    const damaged = Buffer.from(bytes);
    damaged[at] ^= 1 << at % 8;
    const code = await load(damaged, {}, Plumb).then(() => 'none', error => error.code);
    codes.set(code, (codes.get(code) ?? 0) + 1);
    writeFileSync(copyPath(), damaged);
    const { logits, warnings } = await load(url);
    assert.equal(logits, right, `byte ${at}`);
    assert.equal(warnings.length, 1, `byte ${at}, ${code}`);
    assert.match(warnings[0].message, /damaged: the bytes from 0 to \d+ are not those that were downloaded/);
    assert.equal(sha256(readFileSync(copyPath())), sha256(bytes));
  }
  t.diagnostic([...codes].map(([code, n]) => `${code} ${n}`).join(', '));
  assert.ok(codes.get('PLUMB_ERROR_UNSUPPORTED') >= 2);
});

test('one flipped bit of a copy that is not whole is found before the download goes on', async t => {
  const { url, seen } = await flaky(t, i => i % 7 < 6 ? { cut: 60000 } : {});
  await fails(load(url), 'PLUMB_ERROR_IO', /the bytes stop after 60000/);
  const part = join(copies, files().find(name => name.endsWith('.part')));
  assert.deepEqual((await quick.listCached()).map(({ bytes, complete }) => [bytes, complete]), [[60000, false]]);
  flip(part, 59999);
  seen.length = 5;
  const { logits, warnings } = await load(url);
  assert.equal(logits, expected);
  assert.match(warnings[0].message, /damaged: the bytes from 0 to 60000 are not those/);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

test('a copy of an older version gets its digests from the load that reads it', async t => {
  const { url, seen } = await flaky(t, () => ({}));
  await load(url);
  const { sums } = JSON.parse(readFileSync(metaPath(), 'utf8'));
  age({});
  assert.deepEqual(await load(url), { logits: expected, warnings: [] });
  assert.equal(JSON.parse(readFileSync(metaPath(), 'utf8')).sums, sums);
  flip(copyPath(), 60000);
  const { logits, warnings } = await load(url);
  assert.deepEqual([logits, warnings.length, seen.length], [expected, 1, 2]);
});

/** The digests of two files by hash-wasm 4.13.0, xxhash64 of each 4 MiB. */
const XXH64 = { tiny: 'b79edb716c98e97e', padded: 'ecb12c41dc143e2013ae54de77b7e371' };
test('digests are XXH64, by another implementation of it', async t => {
  for (const [bytes, sums] of [[tiny, XXH64.tiny], [Buffer.concat([tiny, Buffer.alloc(5 << 20, 7)]), XXH64.padded]]) {
    const { url } = await flaky(t, () => ({ bytes }));
    await load(url);
    const all = files().filter(name => name.endsWith('.json')).map(name =>
      JSON.parse(readFileSync(join(copies, name), 'utf8')));
    assert.equal(all.find(meta => meta.url === url).sums, sums);
  }
});

test('a file that is no model leaves no copy', async t => {
  const { url } = await flaky(t, () => ({ bytes: tiny.map(byte => byte ^ 255) }));
  await fails(load(url), 'PLUMB_ERROR_MAGIC', /model\.gguf: /);
  const short = await flaky(t, () => ({ bytes: tiny.subarray(0, 80000), length: false }));
  await fails(load(short.url), 'PLUMB_ERROR_TRUNCATED', /\d/);
  assert.deepEqual(files(), []);
});

test('sha256: remembered, so that the next load does not count again; a wrong one removes the copy', async t => {
  const { url, seen } = await flaky(t, () => ({}));
  const right = sha256(tiny), wrong = sha256(other);
  await load(url, { sha256: right.toUpperCase() });
  assert.equal((await quick.listCached())[0].sha256, right);
  await load(url, { sha256: right });
  assert.equal(seen.length, 1);
  await assert.rejects(load(url, { sha256: wrong }), error => {
    assert.deepEqual([error.code, error.details], ['PLUMB_ERROR_CHECKSUM', { found: right, expected: wrong }]);
    assert.ok(error.message.includes(right) && error.message.includes(wrong));
    return true;
  });
  assert.deepEqual(files(), []);
  await load(url);
  assert.equal((await quick.listCached())[0].sha256, undefined);
  await load(url, { sha256: right });   // of the copy
  assert.equal((await quick.listCached())[0].sha256, right);
  assert.equal(seen.length, 3);
  for (const source of [tinyPath, tiny, new Blob([tiny])]) {
    assert.equal((await load(source, { sha256: right }, Plumb)).logits, expected);
    await fails(load(source, { sha256: wrong }, Plumb), 'PLUMB_ERROR_CHECKSUM', /the sha256 is/);
  }
  const padded = Buffer.concat([tiny, Buffer.alloc(5000)]);   // the engine needs no padding, the sum does
  for (const source of [padded, new Blob([padded])]) {
    assert.equal((await load(source, { sha256: sha256(padded) }, Plumb)).logits, expected);
  }
  await fails(() => quick.load(url, { sha256: 'abc' }), 'PLUMB_ERROR_ARGUMENT', /64 hex digits/);
  await fails(() => quick.load(url, { sha256: [right, right] }), 'PLUMB_ERROR_ARGUMENT', /2 checksums, .* 1 parts/);
});

test('an aborted load leaves what it has, and the next one goes on there', async t => {
  for (const worker of [false, true]) {
    const stop = new AbortController(), reason = new Error('enough');
    const ranges = [];
    const url = await server(t, ({ headers: { range } }, response) => {
      if (range) ranges.push(range);
      const from = Number(/\d+/.exec(range ?? '0')[0]);
      response.setHeader('ETag', '"one"').setHeader('Content-Length', tiny.length - from);
      if (range) response.writeHead(206, { 'Content-Range': `bytes ${from}-88543/88544` }).end(tiny.subarray(from));
      else {
        response.write(tiny.subarray(0, 60000));
        setTimeout(() => stop.abort(reason), 300);
      }
    });
    await assert.rejects(Plumb.load(`${url}m`, { worker, signal: stop.signal }), reason);
    const { logits, warnings } = await load(`${url}m`, { worker }, Plumb);   // at once
    assert.equal(logits, expected);
    assert.deepEqual(warnings, []);
    assert.deepEqual(ranges, ['bytes=60000-']);
  }
});

test('an abort while the next try is waited for ends the load at once', async t => {
  const { url } = await flaky(t, i => i === 0 ? { cut: 60000 } : { cut: 0 });
  for (const worker of [false, true]) {
    const stop = new AbortController(), reason = new Error('enough');
    const loading = Plumb.load(url, {
      worker, signal: stop.signal, onProgress: ({ phase }) => phase === 'wait' && stop.abort(reason),
    });
    await assert.rejects(loading, reason);
  }
});

test('of two loads at once one keeps a copy, the other says that it does not', async t => {
  const { url } = await flaky(t, () => ({}));
  const both = await Promise.all([load(url), load(url)]);
  assert.deepEqual(both.map(({ logits }) => logits), [expected, expected]);
  const warnings = both.flatMap(({ warnings }) => warnings);
  assert.equal(warnings.length, 1);
  assert.equal(warnings[0].code, 'cache');
  assert.match(warnings[0].message, /model\.gguf: no copy is kept: another tab or process is using it/);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

// ---- several processes ----

/** When a process began, in ticks, of proc_pid_stat(5); its name has no odd characters. */
const hasProc = existsSync('/proc/self/stat');
const began = pid => hasProc ? readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ')[19] : '';
const { isHeld, take, times } = await import('../../web/node/lock.js');
/** What a lock of this process says of the machine. */
async function machine() {
  const path = join(copies, 'probe.lock'), held = await take(path);
  const text = readFileSync(path, 'utf8');
  held.release();
  return text.split(' ')[2];
}

test('a lock that a dead process left is none; one of a living process holds while it says that it lives', async t => {
  const { url } = await flaky(t, () => ({}));
  await load(url);
  const lock = copyPath().replace(/gguf$/, 'lock'), here = await machine();
  const long = Date.now() / 1000 - 60;
  for (const [text, touched, held] of [[`999999999 5 ${here}`, undefined, false], ['nonsense', undefined, false],
    ['', undefined, false], [`0 5 ${here}`, undefined, false], [`-1 5 ${here}`, undefined, false],
    [`${process.ppid} 5 ${here}`, undefined, !hasProc],
    [`${process.ppid} ${began(process.ppid)} ${here}`, undefined, true],
    [`${process.ppid} ${began(process.ppid)} ${here}`, long, false],
    ['7 5 elsewhere', long, false], ['7 5', long, false]]) {   // of another machine, of an older version
    writeFileSync(lock, text);
    if (touched) utimesSync(lock, touched, touched);
    const { logits, warnings } = await load(url, { cache: 'reload' });
    assert.equal(logits, expected);
    assert.equal(warnings.length, held ? 1 : 0, text);
    if (held) await fails(quick.removeCached(url), 'PLUMB_ERROR_STATE', /another tab or process is using it/);
    rmSync(lock, { force: true });
    if (held) await load(url, { cache: 'reload' });
  }
  assert.deepEqual(files().filter(name => !/\.(gguf|json)$/.test(name)), [], 'nothing is left');
});

test('a lock of who cannot be seen is waited for: it is stale once nobody has touched it for a while', async t => {
  const { url } = await flaky(t, () => ({}));
  await load(url);
  const lock = copyPath().replace(/gguf$/, 'lock'), usual = { ...times };
  t.after(() => Object.assign(times, usual));
  Object.assign(times, { stale: 1000, poll: 20 });
  writeFileSync(lock, '7 5 elsewhere');
  assert.deepEqual((await load(url, { cache: 'reload' })).warnings, []);
  writeFileSync(lock, '7 5 elsewhere');
  const loading = load(url, { cache: 'reload' });
  const beat = setInterval(() => writeFileSync(lock, '7 5 elsewhere'), 100);
  const { warnings } = await loading;
  clearInterval(beat);
  assert.match(warnings[0].message, /no copy is kept: another tab or process is using it/);
});

test('a lock that this user may not read holds, and so does one in a folder that he may not write to', () => {
  const path = join(copies, 'x.lock'), isRoot = process.geteuid?.() === 0;
  for (const [file, folder] of [[0o200, 0o777], [0o644, 0o555]]) {
    writeFileSync(path, '7 5 elsewhere');
    chmodSync(path, file);
    chmodSync(copies, folder);
    try {
      if (isRoot) process.seteuid(65534);
      const forbidden = () => file === 0o200 ? readFileSync(path) : writeFileSync(join(copies, 'y'), '');
      assert.throws(forbidden, { code: 'EACCES' });
      assert.equal(isHeld(path), true);
    } finally {
      if (isRoot) process.seteuid(0);
      chmodSync(copies, 0o755);
    }
    const long = Date.now() / 1000 - 60;
    utimesSync(path, long, long);
    assert.equal(isHeld(path), false);
    rmSync(path);
  }
});

/** Has some of the first links to a path fail, as if another process had its lock there at that moment.
 * @param {import('node:test').TestContext} t @param {string} path @param {number} n */
function failLinks(t, path, n) {
  const { linkSync, renameSync } = fs, renamed = [];
  t.after(() => {
    Object.assign(fs, { linkSync, renameSync });
    syncBuiltinESMExports();
  });
  fs.linkSync = (from, to) => {
    if (to === path && n-- > 0) throw Object.assign(new Error('it is there'), { code: 'EEXIST' });
    linkSync(from, to);
  };
  fs.renameSync = (from, to) => {
    renamed.push(to);
    renameSync(from, to);
  };
  syncBuiltinESMExports();
  return renamed;
}

test('a lock that has gone while it was looked at is linked: a rename might replace another lock', async t => {
  const path = join(copies, 'x.lock'), renamed = failLinks(t, path, 1);
  (await take(path)).release();
  assert.deepEqual([renamed, files()], [[], []]);
});

test('a lock that comes and goes is waited for, and the event loop has its turns meanwhile', async t => {
  const path = join(copies, 'x.lock');
  failLinks(t, path, 3);
  writeFileSync(`${path}.steal`, `${process.ppid} ${began(process.ppid)} ${await machine()}`);   // of a living process
  let turned = false;
  setTimeout(() => { turned = true; }, 0);
  (await take(path)).release();
  assert.ok(turned);
});

test('what begins at the first byte leaves nothing of what dead writers left', async () => {
  const name = createHash('sha256').update('http://models.example/m').digest('hex');
  for (const left of ['a.part', 'a.sums', 'b.part', 'b.sums']) writeFileSync(join(copies, `${name}.${left}`), '');
  const { end } = await nearlyWhole();
  assert.deepEqual(files().map(one => one.replace(/.*\./, '')).sort(), ['json', 'lock', 'part', 'sums']);
  await end();
});

test('of many processes that find a stale lock one has it', async () => {
  // Each waits for the same moment of the machine's clock, tries, and keeps what it got until all have tried.
  const program = `
    import { folder } from ${JSON.stringify(`${root}web/node/folder.js`)};
    const { lock } = await folder();
    process.on('message', async at => {
      while (Date.now() < at);
      process.send(await lock('x').then(() => true, error => error.constructor.name));
    });
    process.send('ready');`;
  const path = join(copies, 'program.mjs');
  writeFileSync(path, program);
  const said = child => new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', reject);
  });
  const text = `999999999 5 ${await machine()}`;
  for (let i = 0; i < 8; i++) {
    writeFileSync(join(copies, 'x.lock'), text);
    const children = Array.from({ length: 4 }, () => fork(path));
    await Promise.all(children.map(said));
    const answers = children.map(said), at = Date.now() + 20;
    for (const child of children) child.send(at);
    assert.deepEqual((await Promise.all(answers)).sort(), ['Busy', 'Busy', 'Busy', true]);
    for (const child of children) child.kill();
  }
  assert.deepEqual(files(), ['program.mjs', 'x.lock']);
});

/** Programs that see neither each other's process ids nor ours, as in two containers; without the right to that, they
 * are told that they are elsewhere. */
const apart = spawnSync('unshare', ['--pid', '--fork', '--mount-proc', 'true']).status === 0
  ? ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child'] : [];
const LOADER = `
  import { createHash } from 'node:crypto';
  import { times } from ${JSON.stringify(`${root}web/node/lock.js`)};
  import { Plumb } from ${JSON.stringify(`${root}web/node/index.js`)};
  Object.assign(times, { beat: 100, stale: 1500, poll: 20, elsewhere: ${apart.length === 0} });
  const model = await Plumb.load(process.argv[1], { worker: false });
  const logits = await model.feed(${JSON.stringify(IDS)});
  const { warnings } = model;
  await model.close();
  const digest = createHash('sha256').update(new Uint8Array(logits.buffer)).digest('hex');
  console.log(JSON.stringify({ logits: digest, warnings }));`;
/** Loads a URL in such a program. @param {string} url */
function elsewhere(url) {
  const [command, ...args] = [...apart, process.execPath, '--input-type=module', '-e', LOADER, url];
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', data => { text += data; });
  const end = new Promise(resolve => child.on('close', () => resolve(text && JSON.parse(text))));
  return { child, end };
}

/** A server that sends a file slowly, and knows ranges. @param {import('node:test').TestContext} t
 * @param {() => {bytes: Uint8Array, etag: string, piece: number, ms: number}} state */
async function slow(t, state) {
  const ranges = [];
  const url = await server(t, ({ headers: { range } }, response) => {
    const { bytes, etag, piece, ms } = state();
    let at = Number(/\d+/.exec(range ?? '0')[0]);
    ranges.push(at);
    response.on('error', () => {});
    if (at >= bytes.length) return void response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
    response.writeHead(at > 0 ? 206 : 200, { ETag: etag, 'Content-Length': bytes.length - at,
      ...at > 0 && { 'Content-Range': `bytes ${at}-${bytes.length - 1}/${bytes.length}` } });
    const send = () => {
      if (response.destroyed) return;
      response.write(bytes.subarray(at, at += piece));
      if (at < bytes.length) setTimeout(send, ms);
      else response.end();
    };
    send();
  });
  return { url: `${url}m`, ranges };
}
const comes = async action => {
  while (!action()) await new Promise(resolve => setTimeout(resolve, 10));
};
/** A file that is renamed or removed meanwhile has none. */
const partSize = () => Math.max(0, ...files().filter(name => name.endsWith('.part')).map(name =>
  statSync(join(copies, name), { throwIfNoEntry: false })?.size ?? 0));

test('two processes that cannot see each other: one writes the copy, the other says that it keeps none', async t => {
  const { url } = await slow(t, () => ({ bytes: tiny, etag: '"one"', piece: 2000, ms: 60 }));
  const first = elsewhere(url);
  await comes(() => partSize() > 0);
  const second = await elsewhere(url).end;
  assert.equal(second.logits, expected);
  assert.match(second.warnings[0].message, /no copy is kept: another tab or process is using it/);
  assert.deepEqual(await first.end, { logits: expected, warnings: [] });
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
  assert.deepEqual(files().map(name => name.replace(/.*\./, '')), ['gguf', 'json']);
});

test('what a process elsewhere left when it was killed is gone on with once its lock is stale', async t => {
  const { url, ranges } = await slow(t, () => ({ bytes: tiny, etag: '"one"', piece: 2000, ms: 20 }));
  const first = elsewhere(url);
  await comes(() => partSize() >= 30000);
  first.child.kill('SIGKILL');
  const left = partSize();
  const second = await elsewhere(url).end;
  assert.deepEqual(second, { logits: expected, warnings: [] });
  assert.ok(ranges.length === 2 && ranges[1] >= left && ranges[1] % 2000 === 0, `${left}: ${ranges}`);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

/** The store of this process with a URL in it of which all but the end is written, and what writes the end. */
async function nearlyWhole() {
  const { Store } = await import('../../web/loader/store.js');
  const { folder } = await import('../../web/node/folder.js');
  const { Sums } = await import('../../web/loader/sums.js');
  const store = new Store(folder), url = 'http://models.example/m', copy = await store.take(url);
  let hash = createHash('sha256');
  const digest = {
    begin() { hash = createHash('sha256'); },
    update(/** @type {Uint8Array} */ bytes) { hash.update(bytes); },
    end: () => hash.copy().digest().subarray(0, 8),
  };
  await copy.begin(0, { size: tiny.length, certain: true, etag: '"one"' });
  const sums = new Sums(digest);
  await copy.write(tiny.subarray(0, 60000), sums);
  return { store, url, async end() {
    await copy.write(tiny.subarray(60000), sums);
    await copy.finish(undefined, sums.all());
    await copy.close();
  } };
}

test('who waits for the lock of a copy that becomes whole meanwhile has the whole copy', async t => {
  const usual = { ...times };
  t.after(() => Object.assign(times, usual));
  Object.assign(times, { elsewhere: true, beat: 60000, stale: 60000, poll: 20 });
  const { store, url, end } = await nearlyWhole(), { open } = store;
  const asked = new Promise(resolve => {
    store.open = async () => {
      const folder = await open();
      return { ...folder, lock(name) {
        resolve(undefined);
        return folder.lock(name);
      } };
    };
  });
  const waiting = store.take(url);
  await asked;
  await end();
  const copy = await waiting;
  assert.deepEqual([copy.complete, copy.at], [true, tiny.length]);
  await copy.close();
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
  assert.deepEqual(files().map(name => name.replace(/.*\./, '')), ['gguf', 'json']);
});

test('a lock alone changes nothing of a copy that is whole', async () => {
  const { store, url, end } = await nearlyWhole();
  await end();
  const { folder } = await import('../../web/node/folder.js');
  const lock = await (await folder()).lock(files()[0].replace(/\..*/, ''));
  assert.equal(lock.size(), tiny.length);
  assert.equal((await store.whole(url)).blob.size, tiny.length);
  lock.close(0);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

// Three renames: the metadata at the start, the metadata of the whole file, the file itself.
for (const [rename, when] of [[2, 'before'], [2, 'after'], [3, 'after']]) {
  test(`a process that is killed ${when} rename ${rename} of a download has lost nothing of it`, async t => {
    const { url, seen } = await flaky(t, () => ({}));
    const program = `
      import fs from 'node:fs';
      import { syncBuiltinESMExports } from 'node:module';
      const { renameSync } = fs;
      let n = 0;
      fs.renameSync = (...args) => {
        if (++n !== ${rename}) return renameSync(...args);
        if (${when === 'after'}) renameSync(...args);
        process.kill(process.pid, 'SIGKILL');
      };
      syncBuiltinESMExports();
      ${LOADER}`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, url], { stdio: 'inherit' });
    assert.equal(await new Promise(resolve => child.on('close', (_, signal) => resolve(signal))), 'SIGKILL');
    assert.deepEqual(await load(url), { logits: expected, warnings: [] });
    const rest = rename === 2 && when === 'before' ? [`bytes=${tiny.length}-`] : [];
    assert.deepEqual(seen.map(({ range }) => range), [undefined, ...rest]);
    assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
    assert.deepEqual((await quick.listCached()).map(({ complete }) => complete), [true]);
    await load(url);
    assert.deepEqual(files().filter(name => name.endsWith('.part')), []);
  });
}

test('25 processes that are killed in mid-download lose nothing', async t => {
  const next = random(5);
  const padded = Buffer.concat([tiny, Buffer.alloc(1 << 20)]);
  const { url, ranges } = await slow(t, () => ({ bytes: padded, etag: '"one"', piece: 700, ms: 4 }));
  let left = 0;
  for (let i = 0; i < 25; i++) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', LOADER, url], { stdio: 'inherit' });
    const end = new Promise(resolve => child.on('close', resolve));
    const enough = left + next(4000);
    await Promise.race([comes(() => partSize() > enough), end]);
    child.kill('SIGKILL');
    await end;
    assert.ok(partSize() >= left, `${partSize()} bytes after ${left}`);
    left = partSize();
  }
  assert.ok(ranges.length === 25 && ranges.every((at, i) => i === 0 || at >= ranges[i - 1]), `${ranges}`);
  assert.deepEqual(await load(url, { sha256: sha256(padded) }), { logits: expected, warnings: [] });
  assert.equal(ranges.at(-1), left);
  assert.equal(sha256(readFileSync(copyPath())), sha256(padded));
});

test('a process that was stopped and goes on after its lock was taken writes no more', async t => {
  let state = { bytes: tiny, etag: '"one"', piece: 2000, ms: 60 };
  const { url } = await slow(t, () => state);
  const child = spawn(process.execPath, ['--input-type=module', '-e', LOADER, url],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', data => { text += data; });
  const end = new Promise(resolve => child.on('close', resolve));
  await comes(() => partSize() >= 10000);
  child.kill('SIGSTOP');
  state = { bytes: other, etag: '"two"', piece: 50000, ms: 0 };
  assert.deepEqual(await elsewhere(url).end, { logits: otherwise, warnings: [] });
  child.kill('SIGCONT');
  await end;
  const { logits, warnings } = JSON.parse(text);
  assert.equal(logits, expected);
  assert.match(warnings[0].message, /no copy is kept: .*another process has taken its lock/);
  assert.equal(sha256(readFileSync(copyPath())), sha256(other));
  assert.deepEqual(await load(url), { logits: otherwise, warnings: [] });
});

test('a folder that cannot be written leaves a warning', async t => {
  const { url } = await flaky(t, () => ({}));
  process.env.PLUMB_CACHE = tinyPath;   // a file
  const { logits, warnings } = await load(url);
  assert.equal(logits, expected);
  assert.deepEqual(warnings.map(({ code }) => code), ['cache']);
  assert.match(warnings[0].message, /no copy is kept: .*(EEXIST|ENOTDIR)/);
});

test('what the file system refuses is an error with the path; a folder in the place of a file is no copy', async t => {
  const { url } = await flaky(t, () => ({}));
  await load(url);
  const meta = metaPath();
  rmSync(meta);
  mkdirSync(join(meta, 'inside'), { recursive: true });
  assert.deepEqual([await quick.listCached(), await quick.openCached(url)], [[], undefined]);
  assert.equal(await quick.removeCached(url), true);
  assert.deepEqual(files(), []);
  const path = process.env.PLUMB_CACHE = join(copies, 'file');
  writeFileSync(path, '');
  await fails(quick.listCached(), 'PLUMB_ERROR_IO', /listed: ENOTDIR/);
  await fails(quick.removeCached(url), 'PLUMB_ERROR_IO', /model\.gguf: the copy cannot be removed: ENOTDIR/);
  assert.equal(await quick.openCached(url), undefined);
  const { status, stderr } = spawnSync(process.execPath, [`${root}web/node/cli.mjs`, 'cache'], { encoding: 'utf8' });
  assert.equal(status, 1);
  assert.match(stderr.replace(path, 'PATH'), /^plumb: PATH: PLUMB_ERROR_IO: [^\n]*\n$/);
});

/** The package on a folder that fails. @param {Partial<import('../../web/loader/store.js').Folder>} change */
async function onFolder(change) {
  const { Store } = await import('../../web/loader/store.js');
  const { folder } = await import('../../web/node/folder.js');
  const store = new Store(async () => {
    const real = await folder();
    return { ...real, ...change(real) };
  });
  return plumbOn({ ...noWaits, store });
}

test('too little room: the numbers; room that ends in the middle: the copy goes, the load goes on', async t => {
  const { url } = await flaky(t, () => ({}));
  const small = await onFolder(() => ({ room: async () => 50000 }));
  const { logits, warnings } = await load(url, {}, small);
  assert.equal(logits, expected);
  assert.match(warnings[0].message,
    /needs 0\.1 MB, there is room for 0\.1 MB; other cached models take 0\.0 MB, and Plumb\.removeCached/);
  assert.deepEqual(files(), []);
  for (const full of [1, 20000, 60000]) {
    const ending = await onFolder(real => ({
      async lock(name) {
        const lock = await real.lock(name), { write } = lock;
        return Object.assign(lock, { write(bytes, at, ...rest) {
          if (at + bytes.length > full) throw new DOMException('the quota is used up', 'QuotaExceededError');
          return write.call(lock, bytes, at, ...rest);
        } });
      },
    }));
    const { logits, warnings } = await load(url, {}, ending);
    assert.equal(logits, expected);
    assert.match(warnings[0].message,
      /no copy is kept: it needs 0\.1 MB, after 0\.\d MB: the quota is used up; other cached/);
    assert.deepEqual(files(), []);
  }
});

test('a copy that fails while it is closed stands for no other failure, and hinders no new start', async t => {
  const failing = await onFolder(real => ({
    async lock(name) {
      const lock = await real.lock(name), { close } = lock;
      return Object.assign(lock, { async close(size) {
        await close.call(lock, size);
        throw new Error('the worker that writes stopped');
      } });
    },
  }));
  const stop = new AbortController(), reason = new Error('enough');
  const silent = await flaky(t, () => ({ cut: 60000 }));
  const onProgress = ({ bytes }) => bytes === 60000 && stop.abort(reason);
  await assert.rejects(load(silent.url, { signal: stop.signal, onProgress }, failing), reason);
  const broken = await flaky(t, i => i === 0 ? { cut: 60000 } : { cut: 0 });
  await fails(load(broken.url, {}, failing), 'PLUMB_ERROR_IO', /the bytes stop after 60000 of 88544: .*5 more tries/);
  // Nothing says that the rest is of the same file.
  const changing = await flaky(t, i => ({ etag: '', ...i === 0 && { cut: 60000 } }));
  assert.equal((await load(changing.url, {}, failing)).logits, expected);
  assert.deepEqual(files().filter(name => name.endsWith('.lock')), []);
});

test('a split model by its first name, from a path and from a server, each part with its copy', async t => {
  const folder = `${root}tests/vectors/synth/`, first = 'split-00001-of-00003.gguf';
  const names = [1, 2, 3].map(i => `split-0000${i}-of-00003.gguf`);
  const whole = (await load(names.map(name => folder + name), {}, Plumb)).logits;
  assert.equal((await load(folder + first, {}, Plumb)).logits, whole);
  const asked = [];
  const url = await server(t, (request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const bytes = readFileSync(folder + request.url.slice(1).replace(/\?.*/, ''));
    response.writeHead(200, { ETag: '"one"', 'Content-Length': bytes.length });
    response.end(request.method === 'HEAD' ? undefined : bytes);
  });
  const size = names.reduce((sum, name) => sum + statSync(folder + name).size, 0);
  let total;
  const options = { sha256: names.map(name => sha256(readFileSync(folder + name))),
    onProgress: progress => { total = progress.total; } };
  assert.equal((await load(`${url}${first}?download=true`, options)).logits, whole);
  assert.equal(total, size);
  assert.deepEqual(asked.filter(line => line.startsWith('GET')), names.map(name => `GET /${name}?download=true`));
  asked.length = 0;
  assert.equal((await load(`${url}${first}?download=true`, options)).logits, whole);
  assert.deepEqual(asked, []);
  assert.equal((await quick.listCached()).length, 3);
  assert.equal(await quick.removeCached(`${url}${first}?download=true`), true);
  assert.deepEqual(await quick.listCached(), []);
});

/** Names of the parts of a model of n. @param {number} n */
const partsOf = n => Array.from({ length: n }, (_, i) =>
  `m-${String(i + 1).padStart(5, '0')}-of-${String(n).padStart(5, '0')}.gguf`);

test('a first part that fails ends a split model of many: nothing is asked of the others', async t => {
  const asked = [];
  const url = await server(t, (request, response) => {
    asked.push(`${request.method} ${request.url}`);
    response.writeHead(404).end('no');
  });
  await fails(load(`${url}${partsOf(999)[0]}`), 'PLUMB_ERROR_IO', /m-00001-of-00999\.gguf: the server answered 404/);
  assert.deepEqual(asked, [`GET /${partsOf(999)[0]}`]);
});

test('the parts of a split model are asked for their sizes in order, 6 requests at once at most', async t => {
  const asked = [], waiting = [];
  let most = 0, open = 0;
  const url = await server(t, (request, response) => {
    asked.push(`${request.method} ${request.url}`);
    most = Math.max(most, ++open);
    response.on('close', () => open--);
    response.writeHead(200, { ETag: '"one"', 'Content-Length': request.method === 'HEAD' ? 5000 : 1 << 20 });
    if (request.method === 'HEAD') waiting.push(() => response.end());
    else response.write(tiny.subarray(0, 1000));   // and nothing more
    // All that are sent at once have come when two turns of the machine's clock bring no further one.
    const n = asked.length;
    setTimeout(() => { if (asked.length === n) for (const end of waiting.splice(0)) end(); }, 50);
  });
  const stop = new AbortController();
  const loading = load(`${url}${partsOf(40)[0]}`, { signal: stop.signal });
  while (asked.length < 40) await new Promise(resolve => setTimeout(resolve, 20));
  stop.abort(new Error('enough'));
  await assert.rejects(loading, /enough/);
  assert.ok(most <= 6, `${most} requests at once`);
  const order = asked.map(line => partsOf(40).indexOf(line.split('/')[1]));
  assert.deepEqual([...order].sort((a, b) => a - b), partsOf(40).map((_, i) => i));
  assert.ok(order.every((part, i) => Math.abs(part - i) < 6), `asked in the order ${order}`);
  assert.deepEqual(asked.filter(line => line.startsWith('GET')), [`GET /${partsOf(40)[0]}`]);
});

test('a name that says more than 999 parts is refused before anything is asked', async t => {
  let asked = 0;
  const url = await server(t, (_, response) => {
    asked++;
    response.end();
  });
  for (const action of [() => quick.load(`${url}m-00001-of-99999.gguf`),
    () => quick.preflight(`${url}m-00001-of-01000.gguf`), () => quick.removeCached(`${url}m-00001-of-01000.gguf`)]) {
    await fails(action, 'PLUMB_ERROR_ARGUMENT', /m-00001-of-(99999|01000)\.gguf: .* (99999|1000) parts; at most 999/);
  }
  assert.equal(asked, 0);
});
