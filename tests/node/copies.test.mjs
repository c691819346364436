/** The copies that downloads leave in a folder.  Ground truth: the file itself (its sha256 by Node's own hash), every
 * request that the server saw, and the logits of the file. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeAll } from '../../web/browser/opfs-writer.js';
import { Plumb } from '../../web/node/index.js';
import { copies, copyPath, expected, files, flaky, HEADER, load, metaPath, noWaits, other, otherwise,
  quick, sha256 } from './downloads.mjs';
import { ggufHeader } from './gguf.mjs';
import { fails, plumbOn, random, root, server, tiny, tinyPath } from './helpers.mjs';

test('the second load needs no server; the copy equals the file; it can be listed, opened and removed', async t => {
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

test('no-cache asks the server, reload downloads again, no-store keeps no copy', async t => {
  let bytes = tiny, etag = '"one"';
  const { url, seen } = await flaky(t, () => ({ bytes, etag }));
  await load(url, { cache: 'no-store' });
  assert.deepEqual(files(), []);
  await load(url, { cache: 'no-cache' });
  assert.equal((await load(url, { cache: 'no-cache' })).logits, expected);
  assert.deepEqual(seen.map(({ ifNoneMatch }) => ifNoneMatch), [undefined, undefined, '"one"']);
  [bytes, etag] = [other, '"two"'];
  assert.equal((await load(url)).logits, expected);   // without a request
  assert.equal((await load(url, { cache: 'no-cache' })).logits, otherwise);
  assert.equal((await load(url)).logits, otherwise);
  [bytes, etag] = [tiny, '"two"'];
  assert.equal((await load(url, { cache: 'reload' })).logits, expected);
  assert.equal((await load(url)).logits, expected);
  assert.equal(seen.length, 5);
});

test('without copies the HTTP cache of the browser gets the mode; with copies it keeps nothing', async t => {
  const { url } = await flaky(t, () => ({})), { fetch } = globalThis, modes = [];
  t.mock.method(globalThis, 'fetch', (/** @type {string} */ address, /** @type {RequestInit} */ options) => {
    modes.push(options.cache);
    return fetch(address, options);
  });
  const storeless = plumbOn({ ...noWaits, store: undefined });
  for (const cache of ['default', 'no-cache', 'reload', 'no-store', undefined]) await load(url, { cache }, storeless);
  assert.deepEqual(modes.splice(0), ['default', 'no-cache', 'reload', 'no-store', 'default']);
  for (const cache of ['default', 'no-cache', 'reload']) await load(url, { cache });
  assert.deepEqual(modes, ['no-store', 'no-store', 'no-store']);
});

/** Replaces the metadata by that of an older version, which had no digests. @param {object} change */
function age(change) {
  const { sums, ...meta } = JSON.parse(readFileSync(metaPath(), 'utf8'));
  assert.match(sums, /^[0-9a-f]+$/);
  writeFileSync(metaPath(), JSON.stringify({ ...meta, ...change }));
}

for (const cut of [0, 1, 5000, 60000, tiny.length - 1, tiny.length]) {
  test(`a copy of ${cut} bytes left by a killed process of an older version is resumed`, async t => {
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

test('a copy whose file has changed on the server is downloaded again', async t => {
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

test('the metadata stored with a copy is not trusted', async t => {
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

test('a damaged copy is replaced by a new download, with a warning', async t => {
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

test('a load ignores a damaged copy that cannot be removed, and ends', async t => {
  const { url, seen } = await flaky(t, () => ({}));
  const stuck = await onFolder(() => ({ async remove() { throw new Error('the file system is read-only'); } }));
  await load(url);
  for (const at of [HEADER + 9, 3]) {   // the digest detects one, the engine refuses the other
    flip(copyPath(), at);
    seen.length = 0;
    const { logits, warnings } = await load(url, {}, stuck);
    assert.equal(logits, expected);
    assert.equal(warnings.length, 2);
    assert.match(warnings[0].message, /the copy on this machine is damaged/);
    assert.match(warnings[1].message, /no copy is kept: .*cannot be removed: the file system is read-only$/);
    assert.equal(seen.length, 1);
  }
});

test('one flipped bit of a copy is detected, wherever it is', async t => {
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
        + 'again' }]);
      assert.equal(seen.length, 1);
      assert.equal(sha256(readFileSync(copyPath())), sha256(padded));
      assert.deepEqual((await load(url, options)).warnings, []);
    }
  }
});

test('one flipped bit of a header is detected, whether or not the engine accepts the header', async t => {
  const { header, size } = ggufHeader({ layers: 1, embedding: 32, feedForward: 32, heads: 2, vocabulary: 12000 });
  assert.ok(header.length > 3 * 65536);
  const bytes = Buffer.concat([header, Buffer.alloc(size - header.length)]);
  const { url } = await flaky(t, () => ({ bytes }));
  const { logits: right } = await load(url), next = random(3);
  const codes = new Map();
  for (let i = 0; i < 16; i++) {
    // The first places give a tokenizer and an architecture that plumb does not know.
    const at = i === 0 ? bytes.indexOf('tokenizer.ggml.model') + 32
      : i === 1 ? bytes.indexOf('general.architecture') + 32 : i < 9 ? next(900) : next(header.length);
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

test('one flipped bit of an incomplete copy is detected before the download is resumed', async t => {
  const { url, seen } = await flaky(t, i => i % 7 < 6 ? { cut: 60000 } : {});
  await fails(load(url), 'PLUMB_ERROR_IO', /the download stopped after 60000 of 88544 bytes/);
  const part = join(copies, files().find(name => name.endsWith('.part')));
  assert.deepEqual((await quick.listCached()).map(({ bytes, complete }) => [bytes, complete]), [[60000, false]]);
  flip(part, 59999);
  seen.length = 5;
  const { logits, warnings } = await load(url);
  assert.equal(logits, expected);
  assert.match(warnings[0].message, /damaged: the bytes from 0 to 60000 are not those/);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

test('a copy made by an older version gets digests from the load that reads it', async t => {
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
test('digests equal those of another implementation of XXH64', async t => {
  for (const [bytes, sums] of [[tiny, XXH64.tiny], [Buffer.concat([tiny, Buffer.alloc(5 << 20, 7)]), XXH64.padded]]) {
    const { url } = await flaky(t, () => ({ bytes }));
    await load(url);
    const all = files().filter(name => name.endsWith('.json')).map(name =>
      JSON.parse(readFileSync(join(copies, name), 'utf8')));
    assert.equal(all.find(meta => meta.url === url).sums, sums);
  }
});

test('a file that is not a model leaves no copy', async t => {
  const { url } = await flaky(t, () => ({ bytes: tiny.map(byte => byte ^ 255) }));
  await fails(load(url), 'PLUMB_ERROR_MAGIC', /model\.gguf: /);
  const short = await flaky(t, () => ({ bytes: tiny.subarray(0, 80000), length: false }));
  await fails(load(short.url), 'PLUMB_ERROR_TRUNCATED', /\d/);
  assert.deepEqual(files(), []);
});

test('a verified sha256 is stored, so the next load does not compute it; a mismatch removes the copy', async t => {
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
  await load(url, { sha256: right });   // verifies the copy
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

test('an aborted load keeps what it has downloaded, and the next one resumes there', async t => {
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

test('an abort during the wait before a retry ends the load at once', async t => {
  const { url } = await flaky(t, i => i === 0 ? { cut: 60000 } : { cut: 0 });
  for (const worker of [false, true]) {
    const stop = new AbortController(), reason = new Error('enough');
    const loading = Plumb.load(url, {
      worker, signal: stop.signal, onProgress: ({ phase }) => phase === 'wait' && stop.abort(reason),
    });
    await assert.rejects(loading, reason);
  }
});

test('of two simultaneous loads one keeps a copy, and the other warns that it does not', async t => {
  const { url } = await flaky(t, () => ({}));
  const both = await Promise.all([load(url), load(url)]);
  assert.deepEqual(both.map(({ logits }) => logits), [expected, expected]);
  const warnings = both.flatMap(({ warnings }) => warnings);
  assert.equal(warnings.length, 1);
  assert.equal(warnings[0].code, 'cache');
  assert.match(warnings[0].message, /model\.gguf: no copy is kept: another tab or process is using it/);
  assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
});

test('a folder that cannot be written causes a warning', async t => {
  const { url } = await flaky(t, () => ({}));
  process.env.PLUMB_CACHE = tinyPath;   // a file
  const { logits, warnings } = await load(url);
  assert.equal(logits, expected);
  assert.deepEqual(warnings.map(({ code }) => code), ['cache']);
  assert.match(warnings[0].message, /no copy is kept: .*(EEXIST|ENOTDIR)/);
});

test('a file system error names the path; a folder in place of a file is not a copy', async t => {
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
  const { status, stderr } = spawnSync(process.execPath, [`${root}web/cli/main.mjs`, 'list'], { encoding: 'utf8' });
  assert.equal(status, 1);
  assert.match(stderr.replace(path, 'PATH'), /^plumb: PATH: PLUMB_ERROR_IO: [^\n]*\n$/);
});

/** The package with a folder that fails. @param {Partial<import('../../web/loader/copy-store.js').Folder>} change */
async function onFolder(change) {
  const { Store } = await import('../../web/loader/copy-store.js');
  const { folder } = await import('../../web/node/cache-folder.js');
  const store = new Store(async () => {
    const real = await folder();
    return { ...real, ...change(real) };
  });
  return plumbOn({ ...noWaits, store });
}

test('too little space: the warning gives the numbers; if space runs out, the load goes on without a copy', async t => {
  const { url } = await flaky(t, () => ({}));
  const small = await onFolder(() => ({ room: async () => 50000 }));
  const { logits, warnings } = await load(url, {}, small);
  assert.equal(logits, expected);
  assert.match(warnings[0].message,
    /needs 0\.1 MB, but there is room for 0\.1 MB; other cached models take 0\.0 MB, and Plumb\.removeCached/);
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
      /no copy is kept: it needs 0\.1 MB, but writing failed after 0\.\d MB: the quota is used up; other cached/);
    assert.deepEqual(files(), []);
  }
});

test('the warning for a failed write says what happened, and how to make room only if there was no room', async t => {
  const { url } = await flaky(t, () => ({}));
  for (const [method, what] of [['reserve', 'reserving the space failed'], ['write', 'writing failed after 0.0 MB'],
    ['publish', 'writing failed after 0.1 MB']]) {
    for (const [code, isRoom] of [['EIO', false], ['EROFS', false], ['ENOSPC', true], ['EDQUOT', true]]) {
      const failing = await onFolder(real => ({
        async lock(name) {
          return Object.assign(await real.lock(name), { [method]() {
            throw Object.assign(new Error(`${code}: it failed`), { code });
          } });
        },
      }));
      const { logits, warnings } = await load(url, {}, failing);
      assert.equal(logits, expected);
      const reason = `${what}: ${code}: it failed`, advice = `it needs 0.1 MB, but ${reason}; other cached models take `
        + '0.0 MB, and Plumb.removeCached removes them';
      assert.deepEqual(warnings, [{ code: 'cache', message: `${url}: no copy is kept: ${isRoom ? advice : reason}` }]);
      assert.deepEqual(files(), []);
    }
  }
});

test('a short write in a browser continues; only an error or the quota says that the storage is full', async t => {
  const storage = { estimate: async () => ({ quota: 1000, usage: 0 }) };
  const real = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  Object.defineProperty(globalThis, 'navigator', { value: { storage }, configurable: true });
  t.after(() => {
    if (real) Object.defineProperty(globalThis, 'navigator', real);
    else Reflect.deleteProperty(globalThis, 'navigator');
  });
  const bytes = Uint8Array.from({ length: 100 }, (_, i) => i);
  /** A handle that writes at most `most` bytes at once, and from byte `end` on returns `then` or throws it. */
  const handle = (most, end = Infinity, then = 0) => {
    const file = new Uint8Array(200);
    return { file, write(/** @type {Uint8Array} */ data, /** @type {{at: number}} */ { at }) {
      if (at < end) {
        file.set(data.subarray(0, most), at);
        return Math.min(data.length, most);
      }
      if (typeof then !== 'number') throw then;
      return then;
    } };
  };
  for (const most of [1000, 100, 30, 1]) {
    const { file, ...short } = handle(most);
    await writeAll(short, bytes, 50);
    assert.deepEqual(file.subarray(50, 150), bytes);
  }
  const failed = { name: 'Error', message: 'the browser wrote 0 of the last 40 bytes' };
  const full = { name: 'QuotaExceededError', message: 'the storage is full' };
  await assert.rejects(async () => writeAll(handle(30, 60), bytes, 0), failed);
  await assert.rejects(async () => writeAll(handle(30, 60, 2 ** 32 - 8), bytes, 0), full);   // Chromium's code for this
  await assert.rejects(async () => writeAll(handle(30, 60, 2 ** 32 - 16), bytes, 0), { name: 'Error' });
  const thrown = new DOMException('no more', 'QuotaExceededError');
  await assert.rejects(async () => writeAll(handle(30, 60, thrown), bytes, 0), thrown);
  storage.estimate = async () => ({ quota: 1000, usage: 961 });
  await assert.rejects(async () => writeAll(handle(30, 60), bytes, 0), full);
});

test('an error while a copy is closed hides no other error and does not prevent a new download', async t => {
  const failing = await onFolder(real => ({
    async lock(name) {
      const lock = await real.lock(name), { close } = lock;
      return Object.assign(lock, { async close(size) {
        await close.call(lock, size);
        throw new Error('the worker that writes the copy stopped');
      } });
    },
  }));
  const stop = new AbortController(), reason = new Error('enough');
  const silent = await flaky(t, () => ({ cut: 60000 }));
  const onProgress = ({ bytes }) => bytes === 60000 && stop.abort(reason);
  await assert.rejects(load(silent.url, { signal: stop.signal, onProgress }, failing), reason);
  const broken = await flaky(t, i => i === 0 ? { cut: 60000 } : { cut: 0 });
  await fails(load(broken.url, {}, failing), 'PLUMB_ERROR_IO',
    /the download stopped after 60000 of 88544 bytes: .*5 retries/);
  // No validator says that the rest belongs to the same file.
  const changing = await flaky(t, i => ({ etag: '', ...i === 0 && { cut: 60000 } }));
  assert.equal((await load(changing.url, {}, failing)).logits, expected);
  assert.deepEqual(files().filter(name => name.endsWith('.lock')), []);
});
