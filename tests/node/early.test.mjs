/** Work that does not need the last byte starts before it arrives. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Engine } from '../../web/engine/engine.js';
import { importsOf } from '../../web/engine/instance.js';
import { createHost } from '../../web/engine/host.js';
import { Plumb } from '../../web/node/index.js';
import { platform } from '../../web/node/platform.js';
import { fails, plumbOn, realPath, repeats, root, server, tiny } from './helpers.mjs';

/** A prefix of f32.gguf: all keys, the tensor directory and some weights. */
const HEAD = 60000;
const call = { signal: new AbortController().signal, emit: () => {}, pull: async () => null };
const partOf = (/** @type {string} */ url) => ({ parts: [{ kind: 'url', name: url, url }] });

test('an unsupported vocabulary is refused before the weights arrive', async t => {
  const strange = Buffer.from(tiny);
  strange[strange.indexOf('gpt2') + 3] = '9'.charCodeAt(0);
  const url = await server(t, (_, response) => void response.write(strange.subarray(0, HEAD)));   // then it stalls
  for (const worker of [false, true]) {
    await fails(Plumb.load(url, { worker }), 'PLUMB_ERROR_UNSUPPORTED',
      /"gpt9": this kind of vocabulary is not supported/);
  }
});

test('files of a split model in the wrong order are refused with that reason', async () => {
  for (const order of [[2, 1, 3], [2]]) {
    const files = order.map(i => `${root}tests/vectors/synth/split-0000${i}-of-00003.gguf`);
    await fails(Plumb.load(files), 'PLUMB_ERROR_METADATA', /file 1 of the split model is number 2 .*: give/);
  }
});

test('a server is asked before the engine is compiled', { timeout: 20000 }, async t => {
  let asked = () => {};
  const request = new Promise(resolve => { asked = () => resolve(undefined); });
  const url = await server(t, (_, response) => {
    asked();
    response.end(tiny);
  });
  const plumb = plumbOn({
    async compile(name) {
      await request;
      return platform.compile(name);
    },
  });
  await (await plumb.load(url)).close();
});

test('an engine that does not compile closes the connection', { timeout: 20000 }, async t => {
  let closed = () => {}, asked = () => {};
  const gone = new Promise(resolve => { closed = () => resolve(undefined); });
  const request = new Promise(resolve => { asked = () => resolve(undefined); });
  const url = await server(t, (_, response) => {
    response.on('close', closed);
    response.write(tiny.subarray(0, HEAD));
    asked();
  });
  const pull = async () => {
    await request;
    throw new Error('no wasm here');
  };
  await assert.rejects(async () => createHost({}).load(partOf(url), { ...call, pull }), /no wasm here/);
  await gone;
});

/** Loads a model with relaxed dots and counts how often the clock is read.
 * @param {string} clock  the time in ms, of `looks`
 * @returns {{left: number, ids: number, early: number, loaded: number, later: number, precision: string,
 *   logits: string}} */
function measured(clock) {
  const old = Number(process.versions.node.split('.')[0]) < 22;
  const flags = old ? ['--experimental-wasm-relaxed-simd', '--no-liftoff'] : [];
  return JSON.parse(execFileSync(process.execPath, [...flags, '--input-type=module', '-e', `
    import { readFileSync } from 'node:fs';
    import { Engine } from '${root}web/engine/engine.js';
    import { importsOf } from '${root}web/engine/instance.js';
    const module = new WebAssembly.Module(readFileSync('${root}web/dist/plumb-relaxed.wasm'));
    const imports = importsOf(module);
    let looks = 0, now = 0;
    imports.env.plumb_now = () => (looks++, ${clock});
    const engine = new Engine(new WebAssembly.Instance(module, imports));
    const bytes = readFileSync('${realPath}');
    engine.begin(bytes.length);
    let at = 0;
    for (; !engine.hasHeader; at += 4096) engine.write(bytes.subarray(at, at + 4096));
    engine.loadVocabulary();
    const ids = engine.tokenize('a').length, early = looks;
    engine.write(bytes.subarray(at));
    engine.end();
    const loaded = looks;
    for (let i = 0; i < 2; i++) engine.openSession({ contextLength: 16 });
    engine.session.feed([1, 2, 3]);
    console.log(JSON.stringify({
      left: bytes.length - at, ids, early, loaded, later: looks - loaded, precision: engine.session.info().precision,
      logits: Buffer.from(engine.session.logits().buffer).toString('base64'),
    }));`],
  { encoding: 'utf8', maxBuffer: 1 << 24 }));
}

test('the precision and the logits do not depend on the clock', () => {
  // A timing reads the clock three times, and each kind of kernels is timed twice.  These clocks make the first, the
  // second or the third kind seem 1000 times as fast as the others.
  const clocks = ['performance.now()', 'looks', ...[0, 1, 2].map(fast =>
    `now += Math.floor((looks - 1) / 6) % 3 === ${fast} ? 1 : 1000`)]
    .filter((_, i) => repeats(i));
  const all = clocks.map(clock => measured(clock));
  for (const [i, { early, precision, logits }] of all.entries()) {
    assert.ok(early > 0, clocks[i]);
    assert.equal(precision, 'exact16', clocks[i]);
    assert.equal(logits, all[0].logits, clocks[i]);
  }
});

test('kernels are measured from the header on, and not again for a session', () => {
  const { left, ids, early, later } = measured('performance.now()');
  assert.ok(left > 1000 && ids === 1, `${left} bytes before the end "a" is ${ids} tokens`);
  assert.ok(early >= 4 * 3, `${early} looks at the clock`);   // 4 timings: before, at its tick, after
  assert.equal(later, 0);
});

test('with a coarse clock no kernels are measured', () => {
  const { ids, early, loaded, later } = measured('Math.floor(looks / 160000) * 16');
  assert.ok(ids === 1 && early > 1e5 && early < 1e5 + 10, `${early} looks at the clock`);
  assert.deepEqual([loaded, later], [early, 0]);
});

test('memory for the rest of the file is reserved at once, and no more', async () => {
  const module = new WebAssembly.Module(readFileSync(`${root}web/dist/plumb.wasm`));
  const imports = importsOf(module);
  let steps = 0;
  imports.env.emscripten_notify_memory_growth = () => { steps++; };
  const bytes = readFileSync(realPath);
  const growth = (/** @type {boolean} */ reserves) => {
    const engine = new Engine(new WebAssembly.Instance(module, imports));
    engine.begin(bytes.length);
    let at = 0;
    for (; !engine.hasHeader; at += 1 << 16) engine.write(bytes.subarray(at, at + (1 << 16)));
    engine.loadVocabulary();
    if (reserves) engine.reserve(bytes.length - at);
    steps = 0;
    engine.write(bytes.subarray(at));
    engine.end();
    const grown = steps;
    engine.openSession({ contextLength: 16 });   // uses the rest of the reserve if tensors fitted into free blocks
    return { steps: grown, bytes: engine.bytes };
  };
  const [once, often] = [growth(true), growth(false)];
  assert.ok(once.steps <= 1 && often.steps > 100, `${once.steps} steps, and ${often.steps}`);
  assert.equal(once.bytes, often.bytes);
  for (const size of [2 ** 32 - 1, 2 ** 33, -1]) {   // cannot be allocated, but that is not an error yet
    const engine = new Engine(new WebAssembly.Instance(module, imports));
    engine.begin();
    engine.reserve(size);
    engine.free();
  }
});

test('the browser\'s worker imports every module it needs directly, so they load in parallel', () => {
  const read = (/** @type {string} */ file) => readFileSync(new URL(file, `file://${root}web/`), 'utf8');
  const importsIn = (/** @type {string} */ file) => [...read(file).matchAll(/^import (?:.* from )?'(\.[^']+)';$/gm)]
    .map(([, name]) => new URL(name, `file:///${file}`).pathname.slice(1));
  const named = importsIn('browser/engine-worker.js');
  assert.ok(named.length > 5, `${named}`);
  const needed = new Set(named.flatMap(importsIn));
  assert.deepEqual([...needed].filter(file => !named.includes(file)), []);
});
