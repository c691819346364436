/** Sources of a model. Ground truth: the file itself.  Every source must give the same logits as the file, which
 * tests/node/model.test.mjs compares with llama.cpp's. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createReadStream, mkdtempSync, openAsBlob, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { before, test } from 'node:test';
import { hasWide } from '../../web/engine/variant.js';
import { Plumb } from '../../web/node/index.js';
import { ggufHeader } from './gguf.mjs';
import { fails, promise, root, server, textOf, tiny, tinyPath } from './helpers.mjs';

const IDS = [72, 101, 13, 255];
/** Loads, computes, closes. */
async function logitsOf(source, options) {
  const model = await Plumb.load(source, options);
  const logits = await model.feed(IDS);
  await model.close();
  return logits;
}

/** @type {Float32Array} */
let expected;
before(async () => { expected = await logitsOf(tinyPath); });
const same = async (source, options) => assert.deepEqual(await logitsOf(source, options), expected);

/** @param {Uint8Array} bytes @param {number} size */
const stream = (bytes, size) => {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) controller.close();
      else controller.enqueue(bytes.subarray(at, at += size));
    },
  });
};
const cut = (...ends) => ends.map((end, i) => tiny.subarray(ends[i - 1] ?? 0, end));

for (const worker of [false, true]) {
  const where = worker ? 'in a worker' : 'in this thread';
  const options = { worker };

  test(`${where}: a path, a file: URL as text and as an object`, async () => {
    await same(tinyPath, options);
    await same(pathToFileURL(tinyPath), options);
    await same(pathToFileURL(tinyPath).href, options);
  });

  test(`${where}: Uint8Array, a view into a buffer, ArrayBuffer; all stay usable`, async () => {
    const around = new Uint8Array(tiny.length + 20);
    around.set(tiny, 7);
    await same(tiny, options);
    await same(around.subarray(7, 7 + tiny.length), options);
    await same(tiny.slice().buffer, options);
    assert.equal(tiny.length, 88544);
    assert.deepEqual(around.subarray(7, 7 + tiny.length), tiny);
  });

  test(`${where}: Blob and File`, async () => {
    await same(new Blob([tiny]), options);
    await same(new File([tiny], 'tiny.gguf'), options);
    await same(await openAsBlob(tinyPath), options);
    const short = new File([tiny.subarray(0, 500)], 'short.gguf');
    await fails(Plumb.load(short, options), 'PLUMB_ERROR_TRUNCATED', /^short\.gguf: /);
  });

  test(`${where}: a stream in pieces of 1,000 bytes, and an async iterable`, async () => {
    await same(stream(tiny, 1000), options);
    await same(createReadStream(tinyPath), options);
  });

  test(`${where}: pieces of one file, of different kinds, cut in the header and in a tensor`, async () => {
    const [a, b, c, d] = cut(3, 5000, 50001, tiny.length);
    await same([a, new Blob([b]), stream(c, 777), d.slice().buffer], options);
    await same([a, b, c, d], options);
  });
}

test('a stream with bytes after the model is cancelled once the model is loaded', async () => {
  let sent = 0, cancelled = 0;
  await same(new ReadableStream({
    pull(controller) { controller.enqueue(sent++ === 0 ? tiny.slice() : new Uint8Array(1000)); },
    cancel() { cancelled++; },
  }));
  assert.equal(cancelled, 1);
});

test('a refused call does not touch the caller\'s stream', async () => {
  const aborted = AbortSignal.abort(new Error('before'));
  for (const refused of [
    one => Plumb.load(one, { sha256: ['0'.repeat(64), '1'.repeat(64)] }),
    one => Plumb.load([one, 5]),
    one => Plumb.load([one, 'http://127.0.0.1/m-00001-of-00002.gguf', {}]),
    one => Plumb.load(one, { threads: 0 }),
    one => Plumb.load(one, { signal: aborted }),
    one => Plumb.preflight(one),
    one => Plumb.preflight([one, tiny]),
  ]) {
    let cancelled = 0, at = 0;
    const one = new ReadableStream({
      pull(controller) {
        if (at >= tiny.length) controller.close();
        else controller.enqueue(tiny.subarray(at, at += 5000));
      },
      cancel() { cancelled++; },
    });
    await assert.rejects(async () => refused(one));
    assert.deepEqual([one.locked, cancelled], [false, 0], String(refused));
    await same(one);
  }
});

test('a stream is unlocked after a load and after a failed load', async () => {
  const good = stream(tiny, 5000), bad = stream(tiny.subarray(8), 5000);
  await same(good);
  await fails(Plumb.load(bad), 'PLUMB_ERROR_MAGIC', /./);
  await new Promise(resolve => setImmediate(resolve));
  assert.deepEqual([good.locked, bad.locked], [false, false]);
  const reader = stream(tiny, 5000);
  reader.getReader();
  await fails(() => Plumb.load(reader), 'PLUMB_ERROR_ARGUMENT', /the stream is locked: something else is reading it/);
});

test('a stream of single bytes loads', () => same(stream(tiny, 1)));

test('servers that send the length, that do not, and that compress', async t => {
  const url = await server(t, (request, response) => {
    if (request.url === '/length') response.setHeader('Content-Length', tiny.length);
    if (request.url === '/gzip') {
      const packed = gzipSync(tiny);
      response.writeHead(200, { 'Content-Encoding': 'gzip', 'Content-Length': packed.length }).end(packed);
    } else response.end(tiny);
  });
  for (const path of ['length', 'chunked', 'gzip']) await same(new URL(path, url));
});

test('progress: bytes increase to the total, with a rate; ready comes last', async t => {
  const url = await server(t, (_, response) => {
    response.setHeader('Content-Length', tiny.length);
    response.write(tiny.subarray(0, 40000));
    setTimeout(() => response.end(tiny.subarray(40000)), 300);
  });
  const seen = [];
  const model = await Plumb.load(url, { onProgress: progress => seen.push(progress) });
  await model.close();
  assert.deepEqual([...new Set(seen.map(({ phase }) => phase))], ['download', 'prepare', 'ready']);
  assert.ok(seen.every(({ bytes }, i) => i === 0 || bytes >= seen[i - 1].bytes));
  assert.ok(seen.every(({ total }) => total === tiny.length));
  const [half, last] = [seen[0], seen.at(-1)];
  assert.ok(half.bytes > 0 && half.bytes <= 40000, `first report at ${half.bytes}`);
  assert.equal(last.bytes, tiny.length);
  assert.ok(last.rate > 1e4 && last.rate < 1e6, `${last.rate} bytes/s over 300 ms`);
  assert.equal(last.secondsLeft, 0);
});

test('progress counts the chunk in which the model ends, even if more bytes follow in it', async t => {
  const padded = Buffer.concat([tiny, Buffer.alloc(5000)]);
  const url = await server(t, (_, response) => response.setHeader('Content-Length', padded.length).end(padded));
  for (const source of [padded, new Blob([padded]), stream(padded, 40000), url]) {
    let last;
    const model = await Plumb.load(source, { cache: 'no-store', onProgress: progress => { last = progress; } });
    await model.close();
    assert.ok(last.bytes >= tiny.length, `${last.bytes} bytes`);
  }
});

test('a web page instead of a model and a 404 are errors', async t => {
  const url = await server(t, (request, response) => {
    if (request.url === '/page') response.setHeader('Content-Type', 'text/html').end('<!doctype html><p>Welcome');
    else response.writeHead(Number(request.url?.slice(1))).end('no');
  });
  await fails(Plumb.load(`${url}page`), 'PLUMB_ERROR_MAGIC',
    /\/page: the server sent a web page \(text\/html\), not a GGUF file/);
  await fails(Plumb.load(`${url}404`), 'PLUMB_ERROR_IO', /\/404: the server answered 404 Not Found$/);
});

test('a truncated file, a file that is not GGUF and a missing file are errors', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-load-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const short = join(folder, 'short.gguf'), text = join(folder, 'text.gguf');
  writeFileSync(short, readFileSync(tinyPath).subarray(0, 80000));
  writeFileSync(text, 'Once upon a time there was a file that was no model at all.');
  await fails(Plumb.load(short), 'PLUMB_ERROR_TRUNCATED', /^short\.gguf: .*\d/);
  await fails(Plumb.load(text), 'PLUMB_ERROR_MAGIC', /^text\.gguf: /);
  await fails(Plumb.load(join(folder, 'none.gguf')), 'PLUMB_ERROR_IO', /none\.gguf: ENOENT/);
  await fails(Plumb.load(tiny.subarray(0, 80000)), 'PLUMB_ERROR_TRUNCATED', /\d/);
  await fails(Plumb.load(stream(tiny.subarray(0, 80000), 1000)), 'PLUMB_ERROR_TRUNCATED', /\d/);
});

test('an iterator whose next() returns no promise, throws or returns nothing is an error', async () => {
  let at = 0;
  const iterated = next => ({ [Symbol.asyncIterator]: () => ({ next }) });
  await same(iterated(() => ({ done: at >= tiny.length, value: tiny.subarray(at, at += 5000) })));
  const broken = /the stream: reading stopped after 0 bytes: /;
  await fails(Plumb.load(iterated(() => { throw new Error('torn'); })), 'PLUMB_ERROR_IO', broken);
  await fails(Plumb.load(iterated(() => undefined)), 'PLUMB_ERROR_IO', broken);
});

test('a stream that fails and a stream of something other than bytes are errors', async () => {
  let n = 0;
  const failing = new ReadableStream({
    pull(controller) {
      if (n++ < 3) controller.enqueue(tiny.subarray(n * 100 - 100, n * 100));
      else controller.error(new Error('tape torn'));
    },
  });
  await fails(Plumb.load(failing), 'PLUMB_ERROR_IO', /the stream: reading stopped after 300 bytes: tape torn/);
  await fails(Plumb.load(new ReadableStream({ start: controller => controller.enqueue('text') })),
    'PLUMB_ERROR_ARGUMENT', /not a Uint8Array/);
});

for (const worker of [false, true]) {
  test(`abort ${worker ? 'in a worker' : 'in this thread'}: before, while bytes arrive, while they do not`, async t => {
    const stalled = new AbortController();
    let closed = () => {};
    const gone = new Promise(resolve => { closed = () => resolve(undefined); });
    const url = await server(t, (_, response) => {
      response.on('close', closed);
      response.write(tiny.subarray(0, 1000));   // then it stalls
      setTimeout(() => stalled.abort(reason), 200);
    });
    const reason = new Error('enough');
    await assert.rejects(Plumb.load(tinyPath, { worker, signal: AbortSignal.abort(reason) }), reason);

    await assert.rejects(Plumb.load(url, { worker, signal: stalled.signal }), reason);
    await gone;   // the connection is closed

    let cancelled = false;
    const endless = new AbortController();
    const source = new ReadableStream({
      async pull(controller) {
        await new Promise(resolve => setTimeout(resolve, 1));
        controller.enqueue(tiny.subarray(0, 10));
        endless.abort(reason);
      },
      cancel() { cancelled = true; },
    });
    await assert.rejects(Plumb.load(source, { worker, signal: endless.signal }), reason);
    assert.ok(cancelled, 'the stream was not cancelled');
  });
}

test('a model larger than memory is an error with the sizes, and the next load works', async t => {
  const more = hasWide() ? 17.2e9 : 4.4e9, most = hasWide() ? 17.1795e9 : 4.2945e9;   // bytes, beside 2^34 or 2^32
  const url = await server(t, ({ url }, response) => {
    response.writeHead(200, { 'Content-Length': 18e9 }).write(promise(url === '/more' ? more : most));
  });   // then it stalls
  await fails(Plumb.load(`${url}more`, { cache: 'no-store' }), 'PLUMB_ERROR_MEMORY',
    new RegExp(`no memory for ${more} bytes of .*: a module can use at most ${hasWide() ? 2 ** 34 : 4294901760} `));
  for (const worker of [false, true]) {
    for (const threads of [1, 2]) {
      await fails(Plumb.load(url, { worker, threads, cache: 'no-store' }), 'PLUMB_ERROR_MEMORY',
        /out of memory: tensor "token_embd\.weight" needs (42944|171794)\d{5} bytes/);
      await same(tinyPath, { worker, threads });
    }
  }
});

test('a model that no module can hold with its context is refused as soon as the header is read', async t => {
  // 3.9 GB of weights, or with 64-bit addresses 16.3.
  const shape = { layers: hasWide() ? 134 : 32, embedding: 4096, feedForward: 12160, heads: 32 };
  const { header, size } = ggufHeader(shape);
  const url = await server(t, (_, response) => {
    response.writeHead(200, { 'Content-Length': size }).write(header);   // then it stalls
  });
  // The fewest tokens by default; codes of 16 bits, and a scale for each head.
  const kv = 2 * shape.layers * shape.heads * 1024 * (2 * 128 + 4);
  await assert.rejects(Plumb.load(url, { cache: 'no-store' }), error => {
    assert.equal(error.code, 'PLUMB_ERROR_MEMORY');
    assert.equal(error.details.kv, kv);
    assert.ok(error.details.weights <= size && error.details.weights > 3.89e9, error.message);
    assert.ok(error.details.limit < error.details.weights + kv, error.message);
    assert.match(error.message, /contextLength, kvType 'q8_0' or a smaller model/);
    return true;
  });
  const parts = await server(t, (request, response) => {
    const first = request.url === '/first';
    response.setHeader('Content-Length', first ? tiny.length + 1e9 : 4e9);
    if (request.method === 'HEAD') return void setTimeout(() => response.end(), 200);   // after the header
    response.write(first ? tiny : 'x');
    const more = setInterval(() => response.write('x'), 50);
    response.on('close', () => clearInterval(more));
  });
  await fails(Plumb.load(['first', 'second'].map(name => new URL(name, parts)), { cache: 'no-store' }),
    'PLUMB_ERROR_MEMORY', /no memory for 50000\d{5} bytes of weights and \d+ bytes of keys and values/);
  const smaller = new AbortController();
  await assert.rejects(Plumb.load(url, { cache: 'no-store', contextLength: 256, signal: smaller.signal,
    onProgress: ({ bytes }) => bytes >= header.length && setTimeout(() => smaller.abort(), 200) }), /aborted/);
});

test('if no token can be sampled, the error blames logitBias or the weights, whichever is the reason', async () => {
  const text = async (source, logitBias) => {
    const model = await Plumb.load(source, { worker: false });
    try {
      return await textOf(model.generate([72, 101], { maxTokens: 1, logitBias }));
    } finally {
      await model.close();
    }
  };
  const all = Object.fromEntries(Array.from({ length: 260 }, (_, id) => [id, -Infinity]));
  await fails(text(tiny, all), 'PLUMB_ERROR_ARGUMENT', /no token can be sampled: logitBias forbids all of them/);
  const damaged = tiny.slice().fill(255, 20000);   // the weights are NaN
  for (const logitBias of [undefined, {}, { 5: 1 }, all]) {
    await fails(text(damaged, logitBias), 'PLUMB_ERROR_TENSOR', /all logits are NaN or -infinity, so the weights/);
  }
});

test('without memory for the engine itself there is an error with the sizes, and the next load works', async () => {
  // In a separate process: here the memory of a closed engine would be available to the next one.
  const said = execFileSync(process.execPath, ['--input-type=module', '-e', `
    import { Plumb } from '${root}web/node/index.js';
    const { Memory } = WebAssembly;
    WebAssembly.Memory = class { constructor() { throw new RangeError('could not allocate memory'); } };
    const options = { threads: 2, worker: false }, seen = [];
    for (const call of [Plumb.load, Plumb.preflight]) {
      await call.call(Plumb, '${tinyPath}', options).catch(({ code, message, details }) =>
        seen.push({ code, message, details }));
    }
    WebAssembly.Memory = Memory;
    const model = await Plumb.load('${tinyPath}', options);
    seen.push((await model.info()).threads);
    console.log(JSON.stringify(seen));`], { encoding: 'utf8' });
  const code = 'PLUMB_ERROR_MEMORY', tail = '; the engine holds 0 bytes: could not allocate memory';
  assert.deepEqual(JSON.parse(said), [
    { code, message: `no memory for the model of 88544 bytes${tail}`, details: { held: 0, total: tiny.length } },
    { code, message: `no memory for the model${tail}`, details: { held: 0 } },
    2,
  ]);
});

test('invalid sources and options are refused', async () => {
  const none = [[undefined, /undefined/], [null, /null/], [5, /number/], [{}, /object/], [[], /empty/]];
  for (const [source, message] of none) {
    await fails(() => Plumb.load(source), 'PLUMB_ERROR_ARGUMENT', message);
  }
  for (const [options, message] of [
    [{ contextlength: 5 }, /unknown option "contextlength"; the known options are threads, precision, contextLength/],
    ...[0, -1, 1.5, NaN, Infinity, 2 ** 24 + 1, 2 ** 32, 2 ** 32 + 64].map(contextLength =>
      [{ contextLength }, new RegExp(`contextLength is ${contextLength}, expected an integer from 1 to 16777216`)]),
    [{ contextLength: '5' }, /contextLength is "5"/],
    ...[0, -1, 1.5, 65, 2 ** 32 + 1, NaN, Infinity].map(threads =>
      [{ threads }, new RegExp(`threads is ${threads}, expected an integer from 1 to 64, or 'auto'`)]),
    [{ threads: 'all' }, /threads is "all"/],
    [{ kvType: 'f16' }, /kvType is "f16", expected 'i16', 'q8_0', 'q4_0' or 'f32'/],
    [{ precision: 'fast' }, /precision is "fast", expected 'exact16' or 'fast8'/],
    [{ signal: {} }, /signal is an object, expected an AbortSignal/],
    [{ onProgress: 'loud' }, /onProgress is "loud", expected a function/],
    [null, /the options are null/],
  ]) {
    await fails(() => Plumb.load(tinyPath, options), 'PLUMB_ERROR_ARGUMENT', message);
    if (options?.onProgress) continue;   // preflight has no onProgress
    await fails(() => Plumb.preflight(tinyPath, options), 'PLUMB_ERROR_ARGUMENT',
      options?.contextlength ? /unknown option/ : message);
  }
});
