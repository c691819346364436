/** preflight predicts a load from the header of a model. Ground truth: a load of the whole file. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import { constants, gzipSync } from 'node:zlib';
import { Engine } from '../../web/engine/engine.js';
import { Session } from '../../web/engine/session.js';
import { KV_TYPES } from '../../web/base/parameters.js';
import { INITIAL, PAGE } from '../../web/engine/instance.js';
import { createHost } from '../../web/engine/host.js';
import { takeMemory } from '../../web/engine/threads.js';
import { choose, hasWide } from '../../web/engine/variant.js';
import { Store } from '../../web/loader/copy-store.js';
import { folder } from '../../web/node/cache-folder.js';
import { Plumb } from '../../web/node/index.js';
import { platform } from '../../web/node/platform.js';
import { ggufHeader } from './gguf.mjs';
import { fails, plumbOn, realPath, root, server, textOf, tiny, tinyPath } from './helpers.mjs';

const NAMES = [1, 2, 3].map(i => `${root}tests/vectors/synth/split-0000${i}-of-00003.gguf`);
const real = readFileSync(realPath);

let waits = [], pause, silence;
beforeEach(() => {
  waits = [];
  pause = () => new Promise(resolve => setImmediate(resolve));
  silence = () => new Promise(() => {});
});
/** The package, except that waits are recorded and end at once. */
const quick = plumbOn({
  pause(ms, signal) {
    waits.push(ms);
    return pause(ms, signal);
  },
  silence: (ms, signal) => silence(ms, signal),
});
const look = (/** @type {string} */ url) => quick.preflight(url, { measure: false });

/** A server of files that supports ranges, and the ranges that were requested. */
async function ranges(t, files, { ranged = true, size = true } = {}) {
  const asked = [];
  const url = await server(t, (request, response) => {
    const file = files[request.url.slice(1)], { range } = request.headers;
    asked.push(range);
    if (!file) return response.writeHead(404).end();
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
    if (!ranged || first === undefined) {
      response.writeHead(200, size ? { 'Content-Length': file.length } : {});
      return response.end(file);
    }
    const part = file.subarray(Number(first), Number(last) + 1);
    response.writeHead(206, { 'Content-Range': `bytes ${first}-${Number(first) + part.length - 1}/${
      size ? file.length : '*'}` });
    response.end(part);
  });
  return { url, asked };
}

/** Checks that preflight and load agree. */
async function agrees(source, options = {}) {
  const plan = await Plumb.preflight(source, options);
  const { measure, ...others } = options;
  const model = await Plumb.load(source, others);
  const info = await model.info();
  await model.close();
  assert.deepEqual([plan.supported, plan.problems, plan.fits], [true, [], true]);
  for (const name of ['architecture', 'parameters', 'layers', 'trainedContext', 'contextLength', 'threads']) {
    assert.deepEqual(plan[name], info[name], name);
  }
  const { weights, kv, scratch, module, total, limit } = plan.memory;
  assert.equal(weights, info.weightBytes);
  assert.equal(kv + scratch, info.sessionBytes);
  assert.equal(weights + kv + scratch + module, total);
  // A load allocates its vocabulary after the first tensor and measures kernels meanwhile.  That leaves holes of a few
  // KB, so memory may differ by a page.
  assert.ok(Math.abs(total - info.memoryBytes) <= 65536, `${total} bytes planned, ${info.memoryBytes} taken`);
  assert.ok(limit > total);
  assert.equal(plan.types.reduce((sum, { bytes }) => sum + bytes, 0), info.weightBytes);
  return plan;
}

test('preflight of the default model gives its memory and speed, and reads about two of its 98 megabytes', async t => {
  const file = readFileSync(realPath);
  const { url, asked } = await ranges(t, { model: file });
  const plan = await agrees(realPath);
  await agrees(realPath, { threads: 1, measure: false });
  assert.equal(plan.chat, true);
  assert.deepEqual(plan.types.map(({ type }) => type), ['Q4_1', 'Q8_0', 'F32']);
  assert.equal(plan.fileBytes, statSync(realPath).size);
  assert.ok(plan.speed.decode > 0 && plan.speed.prefill > 0);
  const remote = await Plumb.preflight(`${url}model`, { measure: false });
  assert.equal(remote.speed, undefined);
  assert.equal(remote.fileBytes, file.length);
  const same = { bytesRead: 0, speed: undefined };
  assert.deepEqual({ ...remote, ...same }, { ...plan, ...same });
  assert.ok(remote.bytesRead < 4e6, `${remote.bytesRead} bytes`);
  assert.deepEqual(asked.slice(0, 3), ['bytes=0-65535', 'bytes=65536-131071', 'bytes=131072-262143']);
});

test('preflight agrees with the load for other contexts, types of K and V, threads, and workers', async () => {
  const source = `${root}tests/vectors/kv/heads.gguf`;
  for (const options of [{ contextLength: 100 }, { kvType: 'f32' }, { kvType: 'q8_0', threads: 1 },
    { kvType: 'q4_0' }, { worker: true }]) {
    await agrees(source, { measure: false, ...options });
  }
});

test('preflight knows the memory of long contexts, of each type of K and V, within 2 %', async t => {
  const source = `${root}tests/vectors/kv/heads.gguf`;
  for (const kvType of KV_TYPES) {
    for (const contextLength of [4096, 16384, 32768]) {
      const { memory, ...plan } = await Plumb.preflight(source, { kvType, contextLength, threads: 1, measure: false });
      const model = await Plumb.load(source, { kvType, contextLength, threads: 1 });
      const { memoryBytes, sessionBytes } = await model.info();
      await model.close();
      assert.equal(plan.contextLength, contextLength);
      const session = memory.kv + memory.scratch;
      const percents = [session / sessionBytes, memory.total / memoryBytes].map(ratio => 100 * (ratio - 1));
      t.diagnostic(`${kvType}, ${contextLength} tokens: a session of ${session} bytes, ${memory.kv} of them K and V; `
        + `the load has ${sessionBytes}; of all memory ${memory.total} and ${memoryBytes}`);
      assert.ok(percents.every(percent => Math.abs(percent) < 2), `${percents} %`);
    }
  }
});

test('preflight says if heads cannot be stored as kvType', async () => {
  const { supported, problems, memory } = await Plumb.preflight(tiny, { kvType: 'q8_0', measure: false });
  assert.deepEqual([supported, memory, problems], [false, undefined, [{ code: 'PLUMB_ERROR_UNSUPPORTED',
    message: 'K and V cannot be stored as q8_0, which has blocks of 32: the model has heads of 8 elements' }]]);
  await fails(Plumb.load(tiny, { kvType: 'q8_0' }), 'PLUMB_ERROR_UNSUPPORTED', /has heads of 8 elements/);
  // A load knows it before the weights arrive.
  const cut = new Blob([tiny.subarray(0, -100)]).stream();   // of unknown size
  await fails(Plumb.load(cut, { kvType: 'q4_0' }), 'PLUMB_ERROR_UNSUPPORTED', /has heads of 8 elements/);
});

test('preflight gives the number of threads, and why there are not more', async () => {
  const look = async (other, threads) => {
    const { threads: n, threadsNote } = await plumbOn(other).preflight(tiny, { measure: false, threads });
    const model = await plumbOn(other).load(tiny, { threads });
    assert.equal((await model.info()).threads, n);
    await model.close();
    return [n, threadsNote];
  };
  assert.deepEqual(await look({}, 3), [3, undefined]);
  assert.deepEqual(await look({}, 1), [1, undefined]);
  assert.deepEqual(await look({ processors: 1 }), [1, undefined]);
  assert.deepEqual(await look({ startThread: undefined }, 2), [1, undefined]);
  const alone = () => 'no memory is shared here';
  assert.deepEqual(await look({ singleThreadReason: alone }, 2), [1, alone()]);
  assert.deepEqual(await look({ singleThreadReason: alone }, 1), [1, undefined], 'nobody asked for more');
  const startThread = () => ({ post() {}, onMessage() {}, onDeath: say => say('it is broken'), terminate() {} });
  assert.deepEqual(await look({ startThread }, 2), [1, 'a worker stopped: it is broken']);
});

test('the predicted speed equals that of an answer, measured by a clock that counts the work', async t => {
  // Each pass takes 3 ms plus 1 ms per token.  The first passes take twice as long, because an engine's code is slow at
  // first.
  let now = 0, passes = 0;
  const { feed } = Session.prototype, { feedTogether } = Engine.prototype;
  const pass = (/** @type {ArrayLike<number>} */ ids) => { now += (passes++ < 6 ? 2 : 1) * (3 + ids.length); };
  t.mock.method(performance, 'now', () => now);
  t.mock.method(Session.prototype, 'feed', function (/** @type {ArrayLike<number>} */ ids) {
    pass(ids);
    return feed.call(this, ids);
  });
  t.mock.method(Engine.prototype, 'feedTogether', function (/** @type {any[]} */ feeds) {
    pass(feeds[0].ids);
    return feedTogether.call(this, feeds);
  });
  const { speed } = await quick.preflight(tiny, { threads: 1 });
  assert.ok(passes > 20, `${passes} passes`);
  const model = await quick.load(tiny, { threads: 1 });
  await textOf(model.generate(new Int32Array(64), { maxTokens: 12, logitBias: { 256: -Infinity } }));
  const { decodeRate, prefillRate } = model.lastStats;
  await model.close();
  assert.deepEqual([speed.decode, speed.prefill].map(Math.fround), [1000 / 4, 64000 / 67].map(Math.fround));
  assert.deepEqual([decodeRate, prefillRate].map(Math.fround), [1000 / 4, 64000 / 67].map(Math.fround));
});

test('an embedding model is measured by embedding, and the plan says what it computes', async () => {
  const plan = await quick.preflight(readFileSync(`${root}tests/vectors/archs/nomic-bert.gguf`), { threads: 1 });
  const { supported, hasLogits, pooling, dimensions, speed } = plan;
  assert.deepEqual({ supported, hasLogits, pooling, dimensions },
    { supported: true, hasLogits: false, pooling: 'mean', dimensions: 32 });
  assert.ok(speed.prefill > 0 && speed.decode === undefined);
  const { hasLogits: answers, pooling: none } = await quick.preflight(tiny, { measure: false });
  assert.deepEqual([answers, none], [true, 'none']);
});

test('the headers of all files of a split model are read', async t => {
  const files = Object.fromEntries(NAMES.map((name, i) => [`${i}`, readFileSync(name)]));
  const { url } = await ranges(t, files);
  const plan = await agrees([0, 1, 2].map(i => `${url}${i}`), { measure: false });
  assert.equal(plan.fileBytes, Object.values(files).reduce((sum, { length }) => sum + length, 0));
  const wrong = await Plumb.preflight([`${url}0`, `${url}2`, `${url}1`], { measure: false });
  assert.equal(wrong.supported, false);
  assert.match(wrong.problems[0].message, /file 2 of the split model is number 3 according/);
});

test('preflight works with servers without ranges or without a size', async t => {
  for (const options of [{ ranged: false }, { size: false }, { ranged: false, size: false }]) {
    const { url } = await ranges(t, { tiny }, options);
    const plan = await Plumb.preflight(`${url}tiny`, { measure: false });
    assert.equal(plan.supported, true, JSON.stringify(plan.problems));
    assert.equal(plan.fileBytes, options.size === false ? undefined : tiny.length);
  }
});

test('preflight works with a file cut into pieces, in its header and after it', async () => {
  for (const cuts of [[5000], [100, 5000, 60000], [60000]]) {
    const parts = [0, ...cuts].map((cut, i) => tiny.subarray(cut, cuts[i]));
    const plan = await agrees(parts, { measure: false });
    assert.equal(plan.fileBytes, tiny.length);
  }
});

test('preflight works with bytes and a Blob', async () => {
  for (const source of [tiny, new Blob([tiny])]) {
    const plan = await Plumb.preflight(source, { measure: false });
    assert.deepEqual([plan.supported, plan.fileBytes], [true, tiny.length]);
  }
});

test('bytesRead includes the chunk in which the header ends, of every kind of source', async () => {
  const browser = plumbOn({ postsBlobs: true });   // reads a Blob on the engine's side, as browsers do
  for (const [plumb, source] of [[Plumb, tiny], [Plumb, new Blob([tiny])], [browser, new File([tiny], 'tiny.gguf')]]) {
    const { bytesRead } = await plumb.preflight(source, { measure: false });
    assert.equal(bytesRead, tiny.length);   // it is one chunk
  }
  const { bytesRead } = await Plumb.preflight(tinyPath, { measure: false });
  assert.ok(bytesRead > 0 && bytesRead < tiny.length, `${bytesRead} bytes`);
});

test('a model that cannot run has the same message as a load, with the known facts', async () => {
  const of = async change => {
    const bytes = Buffer.from(tiny);
    change(bytes);
    return Plumb.preflight(bytes, { measure: false });
  };
  const strange = await of(bytes => bytes.write('x', bytes.indexOf('general.architecture') + 20 + 12));
  assert.deepEqual([strange.supported, strange.architecture], [false, 'xlama']);
  assert.deepEqual(strange.problems.map(({ code }) => code), ['PLUMB_ERROR_UNSUPPORTED']);
  assert.match(strange.problems[0].message, /"xlama" is not supported/);
  const none = await of(bytes => bytes.write('FUGG'));
  assert.deepEqual([none.supported, none.problems[0].code], [false, 'PLUMB_ERROR_MAGIC']);
  const cut = await Plumb.preflight(tiny.subarray(0, 5000), { measure: false });
  assert.deepEqual([cut.supported, cut.problems[0].code], [false, 'PLUMB_ERROR_TRUNCATED']);
  const vocabulary = await of(bytes => bytes.write('x', bytes.indexOf('tokenizer.ggml.model') + 20 + 12));
  assert.equal(vocabulary.supported, false);
  assert.match(vocabulary.problems[0].message, /tokenizer/);
});

test('a model too large for any module says what it needs; a context too large, what K and V need', async t => {
  // Files of 18 and 3 GB; only their headers are requested.
  const files = {
    large: ggufHeader({ layers: 84, embedding: 4096, feedForward: 11008, heads: 32, vocabulary: 32000, type: 'Q8_0' }),
    wide: ggufHeader({ layers: 1, embedding: 4096, feedForward: 60000, heads: 32, type: 'F32' }),
  };
  const url = await server(t, (request, response) => {
    const { header, size } = files[request.url.slice(1)];
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range).map(Number);
    const part = Buffer.alloc(last + 1 - first);
    Buffer.from(header.subarray(first, last + 1)).copy(part);
    response.writeHead(206, { 'Content-Range': `bytes ${first}-${last}/${size}` }).end(part);
  });
  const plan = await Plumb.preflight(`${url}large`, { contextLength: 512 });
  assert.deepEqual([plan.problems, plan.supported, plan.fits, plan.speed], [[], true, false, undefined]);
  assert.ok(plan.memory.weights > 2 ** 34 && plan.memory.total > plan.memory.limit);
  assert.equal(plan.memory.kv, 512 * 84 * 32 * 2 * (128 * 2 + 4));
  const wide = await Plumb.preflight(`${url}wide`, { contextLength: 64 });
  // A tensor of 983 MB is too large for made-up weights, so nothing runs.
  assert.deepEqual([wide.problems, wide.fits, wide.speed], [[], true, undefined]);
  assert.ok(wide.memory.weights > 3.2e9 && wide.memory.total > wide.memory.weights);
  const context = await Plumb.preflight(tiny, { contextLength: 2 ** 24, kvType: 'f32' });
  assert.deepEqual([context.supported, context.fits], [true, hasWide()]);
  assert.ok(context.memory.kv >= 2 ** 32 && context.memory.total > context.memory.kv);
});

test('the limit is what a module can allocate on this device', async t => {
  const { Memory } = WebAssembly, { grow } = Memory.prototype;
  t.after(() => {
    WebAssembly.Memory = Memory;
    Memory.prototype.grow = grow;
  });
  // A device with little address space for shared memory, and less physical memory than address space.
  let most = 65535;
  WebAssembly.Memory = class extends Memory {
    constructor(/** @type {WebAssembly.MemoryDescriptor} */ options) {
      if (Number(options.maximum) > 20000) throw new RangeError('no addresses');
      super(options);
    }
  };
  Memory.prototype.grow = function (pages) {
    if (this.buffer.byteLength / 65536 + Number(pages) > most) throw new RangeError('no pages');
    return grow.call(this, pages);
  };
  // The memories of earlier tests that were not collected yet would be reused.  They are larger than a new one can be.
  while (takeMemory().limit > 20000 * PAGE);
  const look = async (/** @type {object} */ options) =>
    (await quick.preflight(tiny, { measure: false, ...options })).memory.limit / 65536;
  const unfit = { contextLength: 2 ** 24, kvType: 'f32' };
  assert.equal(await look({ threads: 2 }), 16383);
  assert.equal(await look({ threads: 2, ...unfit }), 16383);
  assert.equal(await look({ threads: 1 }), 65535);
  most = 10001;
  assert.equal(await look({ threads: 2, ...unfit }), 10001);
  // With 64-bit addresses it fits, since the module itself grows its memory.
  assert.equal(await look({ threads: 1, ...unfit }), hasWide() ? 262144 : 10001);
});

test('a context is as long as the training if K and V have 512 MiB, and shorter only without memory', async t => {
  const shape = { layers: 32, embedding: 512, feedForward: 512, heads: 8 }, { header, size } = ggufHeader(shape);
  const file = new Uint8Array(size), token = shape.layers * shape.heads * 2 * (2 * 64 + 4);
  file.set(header);
  const look = async () => {
    const model = await Plumb.load(file, { threads: 2, worker: false }), { contextLength } = await model.info();
    await model.close();
    const plan = await Plumb.preflight(file, { threads: 2, worker: false, measure: false });
    assert.deepEqual([plan.contextLength, plan.memory.kv], [contextLength, contextLength * token]);
    return [contextLength, ...model.warnings.map(({ code, message }) => `${code}: ${message}`)];
  };
  assert.deepEqual(await look(), [4096]);
  const { Memory } = WebAssembly;
  t.after(() => { WebAssembly.Memory = Memory; });
  WebAssembly.Memory = class extends Memory {
    constructor(/** @type {WebAssembly.MemoryDescriptor} */ options) {
      if (Number(options.maximum) * PAGE > size + 4096 * token) throw new RangeError('no addresses');
      super(options);
    }
  };
  while (takeMemory().limit > size + 4096 * token);   // those of earlier tests
  assert.deepEqual(await look(), [2048, 'context: contextLength is 2048: there is no memory for 4096 tokens']);
  WebAssembly.Memory = Memory;
  const long = ggufHeader({ ...shape, layers: 64, heads: 32 });   // 16 elements in a head
  const larger = new Uint8Array(long.size);
  larger.set(long.header);
  const plan = await Plumb.preflight(larger, { threads: 1, measure: false, kvType: 'f32' });
  assert.equal(plan.contextLength, 2 ** 29 / (64 * 32 * 2 * 16 * 4));
  const beyond = await Plumb.load(tiny, { contextLength: 513, worker: false });   // trained for 512
  assert.deepEqual(beyond.warnings, [{ code: 'context',
    message: 'contextLength is 513, but the model was trained for 512 tokens: its answers get worse beyond that' }]);
  await beyond.close();
});

test('a server that fails and a server that sends wrong bytes are errors', async t => {
  for (const status of [404, 403, 410]) {
    const url = await server(t, (_, response) => void response.writeHead(status).end());
    await assert.rejects(look(url), {
      code: 'PLUMB_ERROR_IO', message: new RegExp(`/: the server answered ${status} \\w+`), details: { url, status },
    });
  }
  const other = await server(t, (_, response) =>
    response.writeHead(206, { 'Content-Range': 'bytes 7-99/1000' }).end(Buffer.alloc(93)));
  await fails(look(other), 'PLUMB_ERROR_IO',
    /requested the bytes from 0 on, but the server answered with "Content-Range: bytes 7-99\/1000"/);
  assert.deepEqual(waits, []);
  const never = await server(t, (_, response) => void response.writeHead(500).end());
  await fails(look(never), 'PLUMB_ERROR_IO', /the server answered 500 Internal Server Error \(5 retries/);
  await fails(look('http://127.0.0.1:1/'), 'PLUMB_ERROR_IO', /no connection: .* \(2 retries/);
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 500, 1000]);
});

/** A server of the default model.  step(i) can change answer i: {bytes, cut: bytes after which the connection breaks,
 * most: largest number of bytes of an answer, etag, total, range: false (no Content-Range), status, headers}.
 * @param {import('node:test').TestContext} t @param {(i: number) => object} step */
async function steps(t, step) {
  const asked = [];
  const url = await server(t, (request, response) => {
    const { range } = request.headers, [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range).map(Number);
    const { bytes = real, cut = Infinity, most = Infinity, etag = '"one"', total = bytes.length, shown = true, status,
      headers = {} } = step(asked.push(range) - 1);
    if (status) return void response.writeHead(status, headers).end();
    if (first >= bytes.length) return void response.writeHead(416).end();
    const part = bytes.subarray(first, Math.min(last + 1, first + most));
    if (etag) response.setHeader('ETag', etag);
    if (shown) response.setHeader('Content-Range', `bytes ${first}-${first + part.length - 1}/${total}`);
    response.writeHead(206, { 'Content-Length': part.length });
    if (cut >= part.length) return void response.end(part);
    // A stream that breaks drops its buffer.
    response.write(part.subarray(0, cut), () => setTimeout(() => response.destroy(), 100));
  });
  return { url, asked };
}

test('a connection that breaks or is refused for a while is retried as in a load', async t => {
  const { bytesRead, ...plan } = await Plumb.preflight(realPath, { measure: false });
  const { url, asked } = await steps(t, i => i === 0 ? { status: 503, headers: { 'Retry-After': '7' } }
    : i === 1 || i === 3 ? { cut: 1000 } : {});
  const { bytesRead: remote, ...found } = await look(url);
  assert.deepEqual(found, plan);
  assert.deepEqual(waits, [7000, 1000, 500]);
  assert.deepEqual(asked.slice(0, 6), ['bytes=0-65535', 'bytes=0-65535', 'bytes=1000-66535', 'bytes=66536-133071',
    'bytes=67536-135071', 'bytes=135072-270143']);
  assert.ok(remote < 4e6, `${remote} bytes`);
});

test('a connection that stalls is closed, and the request is repeated', async t => {
  let silent = () => {}, asked = 0;
  const gone = [];
  const url = await server(t, ({ headers: { range } }, response) => {
    const first = Number(/\d+/.exec(range)[0]);
    if (++asked <= 2) gone.push(new Promise(resolve => response.on('close', resolve)));
    if (asked === 1) return silent();
    response.writeHead(206, { 'Content-Range': `bytes ${first}-${tiny.length - 1}/${tiny.length}` });
    if (asked > 2) response.end(tiny.subarray(first));
    else response.write(tiny.subarray(0, 1000), () => setTimeout(() => silent(), 100));   // then it stalls
  });
  silence = (ms, signal) => new Promise((resolve, reject) => {
    assert.equal(ms, 30000);
    silent = resolve;
    signal.addEventListener('abort', () => reject(signal.reason));
  });
  assert.deepEqual((await look(url)).problems, []);
  assert.deepEqual([asked, waits], [3, [500, 1000]]);
  await Promise.all(gone);   // both connections are closed
  silence = async () => {};
  await fails(look(url), 'PLUMB_ERROR_IO', /no data arrived for 30 seconds \(\d retries/);
});

test('a signal ends the wait before a retry', async t => {
  const { url, asked } = await steps(t, () => ({ status: 503 }));
  const stop = new AbortController(), reason = new Error('enough');
  const ended = new Promise(resolve => {
    pause = (_, signal) => new Promise((_, reject) => {
      signal.addEventListener('abort', () => {
        resolve();
        reject(signal.reason);
      });
      stop.abort(reason);
    });
  });
  await assert.rejects(quick.preflight(url, { signal: stop.signal }), reason);
  await ended;
  assert.equal(asked.length, 1);
});

test('if the file changes between two ranges, its header is read again, but not endlessly', async t => {
  const other = Buffer.from(real), name = other.indexOf('general.name') + 'general.name'.length + 12;
  other.write('Xyz', name);
  const longer = Buffer.concat([other, Buffer.alloc(5)]);
  for (const changed of [{ etag: '"two"', bytes: other }, { etag: '', bytes: longer }]) {
    const { url, asked } = await steps(t, i => i < 2 ? {} : changed);
    const plan = await look(url);
    assert.match(plan.name, /^Xyz/);
    assert.deepEqual([plan.problems, plan.fileBytes], [[], changed.bytes.length]);
    assert.deepEqual(asked.slice(1, 5), ['bytes=65536-131071', 'bytes=131072-262143', 'bytes=0-65535',
      'bytes=65536-131071']);
  }
  const { url, asked } = await steps(t, i => ({ etag: `"${i}"` }));
  await fails(look(url), 'PLUMB_ERROR_IO', /: the file has changed \(while its header was being read\)$/);
  assert.equal(asked.length, 6);
  assert.deepEqual(waits, []);
});

test('a range of encoded bytes is refused, and the error says so', async t => {
  const packed = gzipSync(tiny);
  const url = await server(t, (_, response) => response.writeHead(206, {
    'Content-Range': `bytes 0-${packed.length - 1}/${packed.length}`, 'Content-Encoding': 'gzip',
  }).end(packed));
  await fails(look(url), 'PLUMB_ERROR_IO',
    /: requested the bytes from 0 on, but the server answered 206 with encoded bytes \(Content-Encoding: gzip\)$/);
});

test('an encoded answer that breaks cannot be resumed, and the error says why', async t => {
  const half = gzipSync(tiny.subarray(0, 5000), { finishFlush: constants.Z_SYNC_FLUSH });
  const url = await server(t, (_, response) => {
    response.writeHead(200, { ETag: '"one"', 'Content-Encoding': 'gzip' });
    response.write(half, () => setTimeout(() => response.destroy(), 100));
  });
  await fails(look(url), 'PLUMB_ERROR_IO', new RegExp('the download cannot be resumed: its bytes are encoded '
    + '\\(Content-Encoding: gzip\\), so no range of the file can be requested \\(while its header was being read\\)$'));
});

test('an endless answer is read only to the end of the requested range', async t => {
  const zeros = Buffer.alloc(1 << 20);
  const url = await server(t, (request, response) => {
    const [, first] = /^bytes=(\d+)-/.exec(request.headers.range).map(Number);
    const size = request.url === '/none' ? '*' : 2 ** 41;
    response.writeHead(206, { 'Content-Range': `bytes ${first}-${2 ** 40}/${size}` });
    const more = () => {
      while (!response.destroyed && response.write(zeros));
    };
    response.on('drain', more);
    response.write(tiny.subarray(first));
    more();
  });
  for (const name of ['some', 'none']) {
    const plan = await Plumb.preflight(url + name, { measure: false });
    assert.deepEqual([plan.problems, plan.fileBytes], [[], name === 'none' ? undefined : 2 ** 41]);
    assert.ok(plan.bytesRead <= 2 ** 17, `${plan.bytesRead} bytes`);
  }
});

test('ranges may be shorter than requested, but not so short that reading never ends', async t => {
  for (const [most, total] of [[2 ** 16, real.length], [2 ** 17, '*'], [2 ** 18, '9'.repeat(30)]]) {
    const { url } = await steps(t, () => ({ most, total }));
    const plan = await look(url);
    assert.deepEqual([plan.problems, plan.fileBytes], [[], total === real.length ? total : undefined]);
  }
  assert.deepEqual(waits, []);
  for (const [short, why] of [[{ most: 1 }, 'the server sends only 1 bytes per request'],
    [{ most: 1, total: '*' }, '.* only 1 bytes per request'],
    [{ most: 1, shown: false }, 'the connection was closed'], [{ cut: 1 }, '.*']]) {
    const { url, asked } = await steps(t, () => short);
    waits = [];
    await fails(look(url), 'PLUMB_ERROR_IO',
      new RegExp(`/: the download stopped after 6( of \\d+)? bytes: ${why} \\(5 retries failed\\)$`));
    assert.equal(asked.length, 6);
    assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000]);
  }
});

test('without Content-Range, which browsers hide for other sites, an answer is the requested range', async t => {
  const whole = await steps(t, () => ({ shown: false }));
  const plan = await look(whole.url);
  assert.deepEqual([plan.problems, plan.fileBytes, waits], [[], undefined, []]);
  // Only a request beyond the end shows where the file ends.
  const { url, asked } = await steps(t, () => ({ shown: false, bytes: real.subarray(0, 131072) }));
  const { problems } = await look(url);
  assert.deepEqual(problems.map(({ code }) => code), ['PLUMB_ERROR_TRUNCATED']);
  assert.deepEqual([asked, waits], [['bytes=0-65535', 'bytes=65536-131071', 'bytes=131072-262143'], []]);
});

test('a copy needs no byte from the server; for a copy that a load would remove, the header is fetched', async t => {
  const { url, asked } = await ranges(t, { 'model.gguf': tiny });
  const model = `${url}model.gguf`;
  await (await quick.load(model)).close();
  const path = join(process.env.PLUMB_CACHE, `${createHash('sha256').update(model).digest('hex')}.gguf`);
  asked.length = 0;
  const { bytesRead, cached, ...plan } = await look(model);
  assert.deepEqual([cached, plan.supported], [{ bytes: tiny.length, complete: true }, true]);
  assert.equal(asked.length, 0);
  const tokenizer = Buffer.from(tiny).indexOf('tokenizer.ggml.model') + 20 + 12;   // only the digest covers this
  for (const [at, n, value] of [[0, 4], [100, 3000], [8, 16], [tokenizer, 1, tiny[tokenizer] ^ 1]]) {
    const bytes = tiny.slice().fill(value ?? 255, at, at + n);
    writeFileSync(path, bytes);
    asked.length = 0;
    const { bytesRead, ...found } = await look(model);   // ignores bytesRead, which depends on the copy
    assert.deepEqual(found, plan);
    assert.deepEqual(asked, ['bytes=0-65535']);
    assert.deepEqual(readFileSync(path), Buffer.from(bytes));
  }
  const { problems } = await quick.preflight(tiny.slice().fill(tiny[tokenizer] ^ 1, tokenizer, tokenizer + 1));
  assert.deepEqual(problems.map(({ code }) => code), ['PLUMB_ERROR_UNSUPPORTED']);
  // The same holds for a copy that cannot be read.
  const broken = plumbOn({ store: new Store(async () => {
    const real = await folder();
    const stream = () => new ReadableStream({ pull() { throw new Error('the disk is broken'); } });
    return { ...real, file: async () => Object.assign(new Blob([tiny]), { stream }) };
  }) });
  asked.length = 0;
  assert.equal((await broken.preflight(model, { measure: false })).supported, true);
  assert.deepEqual(asked, ['bytes=0-65535']);
  await quick.removeCached(model);
});

test('an error for lack of memory says how much the engine holds', async t => {
  t.mock.method(Engine.prototype, 'rehearse', () => { throw new RangeError('Array buffer allocation failed'); });
  await assert.rejects(quick.preflight(tiny), error => {
    const { held } = error.details;
    assert.equal(error.code, 'PLUMB_ERROR_MEMORY');
    assert.equal(error.message, `no memory for the model; the engine holds ${held} bytes: Array buffer allocation `
      + 'failed');
    assert.ok(held >= INITIAL * PAGE, `${held} bytes`);
    return true;
  });
});

test('an empty file and a web page have the same messages as in a load', async t => {
  const url = await server(t, ({ url, headers: { range } }, response) => {
    if (url === '/page') response.setHeader('Content-Type', 'text/html').end('<!doctype html><p>Welcome');
    else if (url === '/416' && range) response.writeHead(416, { 'Content-Range': 'bytes */0' }).end();
    else response.setHeader('Content-Length', 0).end();
  });
  for (const [name, code] of [['page', 'PLUMB_ERROR_MAGIC'], ['416', 'PLUMB_ERROR_TRUNCATED'],
    ['200', 'PLUMB_ERROR_TRUNCATED']]) {
    const plan = await Plumb.preflight(url + name, { measure: false });
    assert.deepEqual([plan.supported, plan.problems.map(({ code }) => code)], [false, [code]]);
    await assert.rejects(Plumb.load(url + name), { code, message: plan.problems[0].message });
  }
});

test('an abort while a copy is checked rejects with its reason, not with a damaged copy', async () => {
  const stop = new AbortController(), reason = new Error('enough');
  let pulls = 0;
  const part = { kind: 'pull', name: '', size: tiny.length, sums: ['0'.repeat(16)] };
  const pull = async (/** @type {number | 'module'} */ what) => {
    if (what === 'module') return choose(platform, 1, false);
    if (pulls++ === 0) return Buffer.from('this is no model');
    stop.abort(reason);   // the engine has refused the bytes, and the rest of the copy is read
    throw reason;
  };
  const call = { signal: stop.signal, emit() {}, pull };
  await assert.rejects(createHost(platform).preflight({ parts: [part], measure: false }, call), reason);
  assert.equal(pulls, 2);
});

test('a signal ends it, and unknown options are refused', async t => {
  const hanging = await server(t, () => {});
  const stop = new AbortController();
  const result = Plumb.preflight(hanging, { signal: stop.signal });
  stop.abort();
  await assert.rejects(result, { name: 'AbortError' });
  await fails(Plumb.preflight(tiny, { mesure: true }), 'PLUMB_ERROR_ARGUMENT', /unknown option "mesure"/);
  await fails(Plumb.preflight(new ReadableStream()), 'PLUMB_ERROR_ARGUMENT', /read only once/);
});
