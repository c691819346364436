/** What preflight says of a model from its header. Ground truth: what a load of the whole file says afterwards. */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { ggufHeader } from './gguf.mjs';
import { fails, realPath, root, server, tiny } from './helpers.mjs';

const NAMES = [1, 2, 3].map(i => `${root}tests/vectors/synth/split-0000${i}-of-00003.gguf`);

/** A server of files that answers ranges, and what it was asked for. */
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

/** Preflight and load agree. */
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
  assert.ok(Math.abs(total - info.memoryBytes) <= 2 ** 22, `${total} bytes planned, ${info.memoryBytes} taken`);
  assert.ok(limit > total);
  assert.equal(plan.types.reduce((sum, { bytes }) => sum + bytes, 0), info.weightBytes);
  return plan;
}

test('the default model: memory to the byte, two of its 98 megabytes read, a speed', async t => {
  const file = readFileSync(realPath);
  const { url, asked } = await ranges(t, { model: file });
  const plan = await agrees(realPath);
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

test('other contexts, types of K and V, threads, and workers', async () => {
  const source = `${root}tests/vectors/synth/qwen2.gguf`;
  for (const options of [{ contextLength: 100 }, { kvType: 'f32' }, { kvType: 'q8', threads: 1 }, { worker: true }]) {
    await agrees(source, { measure: false, ...options });
  }
});

test('a split model: the headers of all its files', async t => {
  const files = Object.fromEntries(NAMES.map((name, i) => [`${i}`, readFileSync(name)]));
  const { url } = await ranges(t, files);
  const plan = await agrees([0, 1, 2].map(i => `${url}${i}`), { measure: false });
  assert.equal(plan.fileBytes, Object.values(files).reduce((sum, { length }) => sum + length, 0));
  const wrong = await Plumb.preflight([`${url}0`, `${url}2`, `${url}1`], { measure: false });
  assert.equal(wrong.supported, false);
  assert.match(wrong.problems[0].message, /file 2 of the split model says it is number 3/);
});

test('servers without ranges, or that do not say a size', async t => {
  for (const options of [{ ranged: false }, { size: false }, { ranged: false, size: false }]) {
    const { url } = await ranges(t, { tiny }, options);
    const plan = await Plumb.preflight(`${url}tiny`, { measure: false });
    assert.equal(plan.supported, true, JSON.stringify(plan.problems));
    assert.equal(plan.fileBytes, options.size === false ? undefined : tiny.length);
  }
});

test('one file cut into pieces, in its header and behind it', async () => {
  for (const cuts of [[5000], [100, 5000, 60000], [60000]]) {
    const parts = [0, ...cuts].map((cut, i) => tiny.subarray(cut, cuts[i]));
    const plan = await agrees(parts, { measure: false });
    assert.equal(plan.fileBytes, tiny.length);
  }
});

test('bytes and a Blob', async () => {
  for (const source of [tiny, new Blob([tiny])]) {
    const plan = await Plumb.preflight(source, { measure: false });
    assert.deepEqual([plan.supported, plan.fileBytes], [true, tiny.length]);
  }
});

test('what cannot run is said in the words of a load, with what is known of it', async () => {
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

test('a model that fits no module says what it needs, and a context that does not fit what K and V need', async t => {
  // Files of 7 and 3 GB of which only the headers are ever asked for.
  const files = {
    large: ggufHeader({ layers: 32, embedding: 4096, feedForward: 11008, heads: 32, vocabulary: 32000, type: 'Q8_0' }),
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
  assert.ok(plan.memory.weights > 6.7e9 && plan.memory.total > plan.memory.limit);
  assert.equal(plan.memory.kv, 512 * 32 * 32 * 2 * (128 * 2 + 4));
  const wide = await Plumb.preflight(`${url}wide`, { contextLength: 64 });
  // Of a tensor of 983 MB no zeros are made, so nothing runs.
  assert.deepEqual([wide.problems, wide.fits, wide.speed], [[], true, undefined]);
  assert.ok(wide.memory.weights > 3.2e9 && wide.memory.total > wide.memory.weights);
  const context = await Plumb.preflight(tiny, { contextLength: 2 ** 30 });
  assert.deepEqual([context.supported, context.fits], [true, false]);
  assert.ok(context.memory.kv > 2 ** 32 && context.memory.total > context.memory.kv);
});

test('a server that fails, and one that gives other bytes, are errors', async t => {
  const { url } = await ranges(t, {});
  await fails(Plumb.preflight(`${url}none`), 'PLUMB_ERROR_IO', /none: the server answered 404/);
  const other = await server(t, (_, response) =>
    response.writeHead(206, { 'Content-Range': 'bytes 7-99/1000' }).end(Buffer.alloc(93)));
  await fails(Plumb.preflight(other), 'PLUMB_ERROR_IO', 
    /asked for the bytes from 0 on, the server answered with "Content-Range: bytes 7-99\/1000"/);
  await fails(Plumb.preflight('http://127.0.0.1:1/'), 'PLUMB_ERROR_IO', /no connection/);
});

test('an answer that never ends is read to the end of what was asked for', async t => {
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

test('ranges may be shorter than asked for, but not so short that there is no end to them', async t => {
  const real = readFileSync(realPath);
  let most = 0, total = 0, asked = 0;
  const url = await server(t, (request, response) => {
    asked++;
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range).map(Number);
    const part = real.subarray(first, Math.min(last + 1, first + most));
    response.writeHead(206, { 'Content-Range': `bytes ${first}-${first + part.length - 1}/${total}` }).end(part);
  });
  for ([most, total] of [[2 ** 16, real.length], [2 ** 17, '*'], [2 ** 18, '9'.repeat(30)]]) {
    const plan = await Plumb.preflight(url, { measure: false });
    assert.deepEqual([plan.problems, plan.fileBytes], [[], total === real.length ? total : undefined]);
  }
  asked = 0;
  [most, total] = [1, real.length];
  await fails(Plumb.preflight(url), 'PLUMB_ERROR_IO', /asked for the bytes 0 to 65535 of \d+, the server sent 1$/);
  assert.equal(asked, 1);
  const broken = await server(t, (_, response) => {
    response.writeHead(206, { 'Content-Range': `bytes 0-65535/${tiny.length}`, 'Content-Length': 65536 });
    response.write(tiny.subarray(0, 1000), () => setImmediate(() => response.destroy()));
  });
  await fails(Plumb.preflight(broken), 'PLUMB_ERROR_IO', /the bytes stop after \d+: /);
});

test('an empty file, and a web page, are problems in the words of a load', async t => {
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

test('a signal ends it, and unknown options are refused', async t => {
  const hanging = await server(t, () => {});
  const stop = new AbortController();
  const result = Plumb.preflight(hanging, { signal: stop.signal });
  stop.abort();
  await assert.rejects(result, { name: 'AbortError' });
  await fails(Plumb.preflight(tiny, { mesure: true }), 'PLUMB_ERROR_ARGUMENT', /unknown option "mesure"/);
  await fails(Plumb.preflight(new ReadableStream()), 'PLUMB_ERROR_ARGUMENT', /read only once/);
});
