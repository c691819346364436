/** Downloads whose connection breaks, from servers that misbehave.  Ground truth: the file itself (its sha256 by Node's
 * own hash), every request that the server saw, and the logits of the file. */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Plumb } from '../../web/node/index.js';
import { copyPath, expected, files, flaky, HEADER, load, network, other, otherwise, quick, sha256,
  surelyRead } from './downloads.mjs';
import { fails, root, server, tiny } from './helpers.mjs';

const CUTS = [-1, 0, 1, 3, 5000, HEADER, 60000, tiny.length - 1];
for (const cut of CUTS) {
  test(`a connection that breaks ${cut < 0 ? 'before the answer' : `after ${cut} bytes`} is resumed there`, async t => {
    const { url, seen } = await flaky(t, i => i === 0 ? { cut } : {});
    const phases = [];
    const { logits, warnings } = await load(url, {
      sha256: sha256(tiny), onProgress: ({ phase, attempt, bytes }) => phases.push([phase, attempt, bytes]),
    });
    assert.equal(logits, expected);
    assert.deepEqual(warnings, []);
    assert.equal(seen.length, 2);
    assert.deepEqual([seen[1].range, seen[1].ifRange], cut > 0 ? [`bytes=${cut}-`, '"one"'] : [undefined, undefined]);
    assert.deepEqual(network.waits, [500]);
    assert.deepEqual(phases.filter(([phase]) => phase === 'wait'), [['wait', 1, Math.max(0, cut)]]);
    assert.equal(phases.at(-1)[2], tiny.length);
  });
}

test('many breaks: each attempt that receives bytes resets the waits', async t => {
  const { url, seen } = await flaky(t, i => i < 12 ? { cut: 7000 * (i + 1) } : {});
  assert.equal((await load(url)).logits, expected);
  assert.equal(seen.length, 13);
  assert.deepEqual(network.waits, Array(12).fill(500));
});

test('five attempts without a byte end the load; the error gives the place and the numbers', async t => {
  const { url, seen } = await flaky(t, i => i === 0 ? { cut: 60000 } : { cut: 0 });
  await assert.rejects(load(url), {
    code: 'PLUMB_ERROR_IO', message: /model\.gguf: the download stopped after 60000 of 88544 bytes: .*5 retries/,
    details: { name: url, bytes: 60000, total: 88544, tries: 5 },
  });
  assert.equal(seen.length, 6);
  assert.deepEqual(network.waits, [500, 1000, 2000, 4000, 8000]);
  await fails(load('http://127.0.0.1:1/model.gguf'), 'PLUMB_ERROR_IO', /no connection: .*(ECONNREFUSED|bad port)/);
});

test('ranges shorter than requested are joined without a wait', async t => {
  const { url, seen } = await flaky(t, i => i === 0 ? { cut: 10000 } : { limit: 30000 });
  assert.equal((await load(url)).logits, expected);
  assert.deepEqual(seen.map(({ range }) => range), [undefined, 'bytes=10000-', 'bytes=40000-', 'bytes=70000-']);
  assert.deepEqual(network.waits, [500]);
});

test('Last-Modified is enough to resume; with only a weak ETag the download starts again', async t => {
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
  assert.deepEqual(seen.map(({ range }) => range), [undefined, 'bytes=60000-']);   // the checksum detects a difference
});

test('a server without validators that always breaks the connection ends the load', async t => {
  const { url, seen } = await flaky(t, () => ({ etag: '', cut: 60000 }));
  await fails(load(url), 'PLUMB_ERROR_IO', /the download stopped after 60000 of 88544 bytes: .*5 retries/);
  assert.equal(seen.length, 6);
});

test('a file that changes between two attempts is downloaded from its start', async t => {
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
    assert.equal((await load(url)).logits, otherwise);   // the copy is the new file
    assert.ok(asked >= 3 && seen.length === asked, `${seen.length} requests`);
  }
});

test('if a server without ranges sends everything again, the bytes already received are skipped', async t => {
  const { url, seen } = await flaky(t, i => ({ ranges: false, ...i < 3 && { cut: 20000 * (i + 1) } }));
  assert.equal((await load(url)).logits, expected);
  assert.equal(seen.length, 4);
  assert.equal((await load(url, { sha256: sha256(tiny) })).logits, expected);   // its copy is right
  assert.equal(seen.length, 4);
});

test('a 416 for a complete file ends the download, even after an answer that was being skipped', async t => {
  const asked = [];
  const url = await server(t, ({ headers: { range } }, response) => {
    const i = asked.push(range);
    const send = bytes => response.write(bytes, () => surelyRead().then(() => response.destroy()));
    response.setHeader('ETag', '"one"');
    if (i === 1) {
      response.writeHead(200, { 'Content-Length': tiny.length });
      send(tiny.subarray(0, 60000));
    } else if (i === 2) {   // all of the rest, but the answer does not end
      response.writeHead(206, { 'Content-Range': 'bytes 60000-88543/88544' });
      send(tiny.subarray(60000));
    } else if (i === 3) {
      response.writeHead(200, { 'Content-Length': tiny.length });
      send(tiny.subarray(0, 20000));
    } else response.writeHead(416, { 'Content-Range': 'bytes */88544' }).end();
  });
  assert.deepEqual(await load(`${url}m`), { logits: expected, warnings: [] });
  assert.deepEqual(asked, [undefined, 'bytes=60000-', 'bytes=88544-', 'bytes=88544-']);
});

test('a range from another place is an error that says so', async t => {
  const { url } = await flaky(t, i => i === 0 ? { cut: 60000 }
    : { ranges: false, headers: { 'Content-Range': 'bytes 5-88543/88544' } });
  const wrong = await server(t, (request, response) => {
    if (!request.headers.range) {
      response.writeHead(200, { ETag: '"one"', 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => response.destroy()));
    } else {
      response.writeHead(206, { ETag: '"one"', 'Content-Range': 'bytes 5-88543/88544' }).end(tiny.subarray(5));
    }
  });
  await fails(load(`${wrong}m`), 'PLUMB_ERROR_IO',
    /requested the bytes from 60000 on, .*"Content-Range: bytes 5-88543/);
  assert.equal((await load(url)).logits, expected);   // of a 200 the header means nothing
});

for (const [what, headers] of [['neither Content-Range nor Content-Length', {}],
  ['no Content-Range, but the length of the rest', { 'Content-Length': 28544 }],
  ['a Content-Range, but encoded', { 'Content-Range': 'bytes 60000-88543/88544', 'Content-Encoding': 'gzip' }]]) {
  test(`a 206 with ${what} is refused, and the download starts again`, async t => {
    const asked = [];
    const url = await server(t, ({ headers: { range } }, response) => {
      asked.push(range);
      response.setHeader('ETag', '"one"');
      if (asked.length === 1) {
        response.writeHead(200, { 'Content-Length': tiny.length });
        response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => response.destroy()));
      } else if (range) {
        response.writeHead(206, headers);
        response.end(headers['Content-Encoding'] ? gzipSync(tiny) : headers['Content-Length'] ? tiny.subarray(0, 28544)
          : tiny);
      } else response.writeHead(200, { 'Content-Length': tiny.length }).end(tiny);
    });
    const { logits, warnings } = await load(`${url}m`);
    assert.deepEqual([logits, warnings], [expected, []]);
    // One request by the same load, and one by the load that resumes the copy.
    assert.deepEqual(asked, [undefined, 'bytes=60000-', 'bytes=60000-', undefined]);
    assert.equal(sha256(readFileSync(copyPath())), sha256(tiny));
    const [{ complete, size }] = await quick.listCached();
    assert.deepEqual([complete, size], [true, tiny.length]);
  });
}

test('a server that only sends such ranges ends the load with an error', async t => {
  const url = await server(t, ({ headers: { range } }, response) => {
    response.setHeader('ETag', '"one"');
    if (range) return void response.writeHead(206).end(tiny);
    response.writeHead(200, { 'Content-Length': tiny.length });
    response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => response.destroy()));
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the download stopped after 60000 of 88544 bytes: .*5 retries/);
});

test('a size that is known exactly stays known when later answers omit it', async t => {
  const url = await server(t, ({ headers: { range } }, response) => {
    response.setHeader('ETag', '"one"');
    if (!range) {
      response.writeHead(200, { 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => response.destroy()));
    } else response.writeHead(206, { 'Content-Range': 'bytes 60000-88543/*' }).end(Buffer.alloc(30000));
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the server sends more than the 88544 bytes/);
});

test('an empty answer is an error that names the URL', async t => {
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
      response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => response.destroy()));
    } else {
      response.writeHead(206, { ETag: '"one"', 'Content-Range': 'bytes 60000-88543/88544' });
      response.write(tiny.subarray(60000));
      response.end('and more');
    }
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the server sends more than the 88544 bytes/);
});

test('more bytes of a range than its Content-Range announces are refused: they would overwrite others', async t => {
  const url = await server(t, ({ headers: { range } }, response) => {
    const from = Number(/\d+/.exec(range ?? '0')[0]), to = Math.min(from + 10000, tiny.length);
    response.setHeader('ETag', '"one"');
    if (!range) {
      response.writeHead(200, { 'Content-Length': tiny.length });
      response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => response.destroy()));
    } else {
      response.writeHead(206, { 'Content-Range': `bytes ${from}-${to - 1}/${tiny.length}` });
      response.write(tiny.subarray(from, to));
      response.end(to < tiny.length ? '12345' : '');
    }
  });
  await fails(load(`${url}m`), 'PLUMB_ERROR_IO', /the server sends more than the \d+ bytes that it announced/);
});

test('an endless download leaves no copy and no checksum; one that ends soon has both', async t => {
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
  assert.match(warnings[0].message, /no copy is kept: the server sends more bytes than the model has/);
  assert.deepEqual(files(), []);
  await fails(load(`${url}m`, { sha256: sha256(tiny) }), 'PLUMB_ERROR_IO', /\/m: the server sends more than 16777216 /);
  assert.deepEqual(files(), []);
  assert.ok(sent < 2 ** 27, `${sent} bytes sent`);
  const padded = Buffer.concat([tiny, zeros]);
  const ending = await flaky(t, () => ({ bytes: padded, length: false }));
  assert.deepEqual(await load(ending.url, { sha256: sha256(padded) }), { logits: expected, warnings: [] });
  assert.equal(sha256(readFileSync(copyPath())), sha256(padded));
});

test('a connection that stalls, before or within the answer, is closed, and the rest is requested again', async t => {
  const seen = [], gone = [];
  let silent = () => {};
  const url = await server(t, ({ headers: { range } }, response) => {
    const i = seen.push(range);
    if (i <= 2) gone.push(new Promise(resolve => response.on('close', resolve)));
    if (i === 1) return silent();
    const from = Number(/\d+/.exec(range ?? '0')[0]);
    response.setHeader('ETag', '"one"').setHeader('Content-Length', tiny.length - from);
    if (from > 0) response.writeHead(206, { 'Content-Range': `bytes ${from}-88543/88544` }).end(tiny.subarray(from));
    else response.write(tiny.subarray(0, 60000), () => surelyRead().then(() => silent()));   // then it stalls
  });
  const patience = [];
  network.silence = (ms, signal) => new Promise((resolve, reject) => {
    patience.push(ms);
    silent = resolve;
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  const phases = [];
  const { logits, warnings } = await load(`${url}m`, { onProgress: ({ phase }) => phases.push(phase) });
  assert.deepEqual([logits, warnings], [expected, []]);
  assert.deepEqual(seen, [undefined, undefined, 'bytes=60000-']);
  assert.deepEqual(network.waits, [500, 500]);
  assert.ok(phases.includes('wait') && patience.every(ms => ms === 30000));
  await Promise.all(gone);   // both connections are closed
  network.silence = async () => {};
  await fails(load(`${url}n`, { cache: 'no-store' }), 'PLUMB_ERROR_IO', /no data arrived for 30 seconds \(\d retries/);
});

test('a server that never answers gets fewer attempts', async () => {
  await assert.rejects(load('http://127.0.0.1:1/m'), {
    code: 'PLUMB_ERROR_IO', message: /no connection: .* \(2 retries failed\)/,
    details: { url: 'http://127.0.0.1:1/m', tries: 2 },
  });
  assert.deepEqual(network.waits, [500, 1000]);
});

test('temporary errors are retried: 503, 429, 408; Retry-After is honoured', async t => {
  const { url } = await flaky(t, i => i === 0 ? { status: 503, headers: { 'Retry-After': '7' } }
    : i === 1 ? { status: 429, headers: { 'Retry-After': '3600' } } : i === 2 ? { status: 408 } : {});
  assert.equal((await load(url)).logits, expected);
  assert.deepEqual(network.waits, [7000, 30000, 2000]);
  const never = await flaky(t, () => ({ status: 500 }));
  await fails(load(never.url), 'PLUMB_ERROR_IO', /the server answered 500 Internal Server Error \(5 retries/);
  for (const status of [404, 403, 410, 416, 206]) {
    const { url, seen } = await flaky(t, () => ({ status }));
    await assert.rejects(load(url), { code: 'PLUMB_ERROR_IO', details: { url, status } });
    assert.equal(seen.length, 1);
  }
});

test('a split model is found by its first file name, on disk and on a server, and each file has its copy', async t => {
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

/** File names of a model split into n files. @param {number} n */
const partsOf = n => Array.from({ length: n }, (_, i) =>
  `m-${String(i + 1).padStart(5, '0')}-of-${String(n).padStart(5, '0')}.gguf`);

test('if the first file of a split model fails, the others are not requested', async t => {
  const asked = [];
  const url = await server(t, (request, response) => {
    asked.push(`${request.method} ${request.url}`);
    response.writeHead(404).end('no');
  });
  await fails(load(`${url}${partsOf(999)[0]}`), 'PLUMB_ERROR_IO', /m-00001-of-00999\.gguf: the server answered 404/);
  assert.deepEqual(asked, [`GET /${partsOf(999)[0]}`]);
});

test('the sizes of a split model\'s files are requested in order, at most 6 at once', async t => {
  const asked = [], waiting = [];
  let most = 0, open = 0;
  const url = await server(t, (request, response) => {
    asked.push(`${request.method} ${request.url}`);
    most = Math.max(most, ++open);
    response.on('close', () => open--);
    response.writeHead(200, { ETag: '"one"', 'Content-Length': request.method === 'HEAD' ? 5000 : 1 << 20 });
    if (request.method === 'HEAD') waiting.push(() => response.end());
    else response.write(tiny.subarray(0, 1000));   // then it stalls
    // All simultaneous requests have arrived if no further one arrives in two waits.
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

test('a name with more than 999 files is refused before any request', async t => {
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
