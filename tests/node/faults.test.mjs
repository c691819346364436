/** Memory that cannot grow: memory.grow fails at every step of a load and of a session, and each time the result is
 * PLUMB_ERROR_MEMORY with a message, never a trap.  Ground truth: the specification of WebAssembly.  memory.grow
 * returns -1 beyond the maximum of a module, and the test writes other maxima into the module.  Also an endless
 * header. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { Engine } from '../../web/engine/engine.js';
import { importsOf, PAGE } from '../../web/engine/instance.js';
import { Traces } from '../../web/engine/traces.js';
import { PlumbError } from '../../web/base/errors.js';
import { Plumb } from '../../web/node/index.js';
import { greedyHeader, sendEndlessHeader } from './gguf.mjs';
import { root, server } from './helpers.mjs';

const MODEL = new Uint8Array(readFileSync(`${root}tests/fuzz/tiny.gguf`));
const IDS = [1, 4, 2, 8, 5, 7];

/** An unsigned LEB128 number at `at`: [value, where it ends]. @param {Uint8Array} bytes @param {number} at */
function number(bytes, at) {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++];
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return [value, at];
  }
}

/** @param {number} value */
function leb(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push(value % 128 + 128);
  return [...bytes, value];
}

/** The module with other limits of its own memory: section 5 is one memory of flags, minimum and maximum in pages.
 * @param {Uint8Array} wasm @param {number} minimum @param {number} maximum */
function withLimits(wasm, minimum, maximum) {
  for (let at = 8; at < wasm.length;) {
    const [size, begin] = number(wasm, at + 1);
    if (wasm[at] === 5) {
      const body = [1, 1, ...leb(minimum), ...leb(maximum)];
      return new Uint8Array([...wasm.subarray(0, at), 5, ...leb(body.length), ...body,
        ...wasm.subarray(begin + size)]);
    }
    at = begin + size;
  }
  throw new Error('the module has no memory of its own');
}

const wasm = new Uint8Array(readFileSync(`${root}web/dist/plumb.wasm`));

/** The smallest number of pages with which the module can be instantiated: its data and its stack. */
function fewestPages() {
  for (let pages = 1; ; pages++) {
    try {
      const module = new WebAssembly.Module(withLimits(wasm, pages, pages));
      const instance = new WebAssembly.Instance(module, importsOf(module));
      if (/** @type {any} */ (instance.exports).plumb_wasm_heap_end() <= pages * PAGE) return pages;
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;   // a data segment beyond the memory
    }
  }
}

/** Uses a model as a host does; `reached` is called at each step.
 * @param {Engine} engine @param {(step: string) => void} reached */
function work(engine, reached) {
  reached('load');
  engine.begin(MODEL.length);
  engine.write(MODEL);
  engine.end();
  reached('session');
  const session = engine.openSession({ contextLength: 64 });
  reached('text');
  const ids = engine.tokenize('abcdabcdefgh'.repeat(40), { addSpecial: true, parseSpecial: true });
  engine.detokenize(ids, true);
  reached('feed');
  session.feed(IDS);
  reached('taps');
  session.rewind(0);
  session.feedTapped(/** @type {any} */ (IDS), () => {});
  reached('sampler');
  engine.createSampler(session, { repeatPenalty: 1.1, penaltyLastN: 1 << 17 });
  reached('done');
  session.rewind(0);
  session.feed(IDS);
  return session.logits();
}

/** @param {number} fewest @param {number} maximum  pages
 * @param {number} filler  bytes taken before the engine starts */
function attempt(fewest, maximum, filler) {
  const module = new WebAssembly.Module(withLimits(wasm, fewest, maximum));
  /** @type {Engine | undefined} */
  let engine;
  const imports = importsOf(module, undefined, {
    plumb_on_tap: (/** @type {number[]} */ ...tap) => engine?.tapped(.../** @type {any} */ (tap)),
  });
  const instance = new WebAssembly.Instance(module, imports);
  const exports = /** @type {any} */ ({ ...instance.exports, _initialize: undefined });
  /** @type {any} */ (instance.exports)._initialize?.();
  exports.malloc(filler);
  let step = 'start';
  try {
    engine = new Engine(/** @type {any} */ ({ exports }));
    const logits = work(engine, next => { step = next; });
    return { step, logits };
  } catch (error) {
    const where = `${step}, ${maximum} pages, ${filler} bytes`;
    assert.ok(error instanceof PlumbError, `${where}: ${/** @type {any} */ (error)?.stack}`);
    assert.equal(error.code, 'PLUMB_ERROR_MEMORY', `${step}: ${error.message}`);
    assert.match(error.message, /memory/, step);
    if (step !== 'start' && step !== 'load' && step !== 'session') {   // the session still computes
      engine?.session.rewind(0);
      if (step !== 'text') engine?.session.feed(IDS.slice(0, 1));
    }
    return { step, message: error.message };
  } finally {
    engine?.free();
  }
}

test('memory.grow that fails at any step of a load or a session gives PLUMB_ERROR_MEMORY, never a trap', t => {
  const fewest = fewestPages();
  /** @type {Map<string, Set<string>>} */
  const messages = new Map();
  const expected = attempt(fewest, 1000, 0);
  assert.equal(expected.step, 'done');
  for (const filler of [0, 9000, 25000, 41000, 57000]) {
    for (let maximum = fewest; ; maximum++) {
      const { step, message, logits } = attempt(fewest, maximum, filler);
      if (step === 'done') {
        assert.deepEqual(logits, expected.logits);
        break;
      }
      messages.set(step, (messages.get(step) ?? new Set()).add(String(message)));
    }
  }
  for (const [step, set] of messages) t.diagnostic(`${step}: ${[...set].slice(0, 3).join(' | ')} (${set.size})`);
  for (const step of ['start', 'load', 'session', 'text', 'sampler'])
    assert.ok(messages.has(step), `memory never ran out at: ${step}`);
});

test('memory.grow that fails in a trace gives PLUMB_ERROR_MEMORY, never a trap', async () => {
  const bytes = new Uint8Array(readFileSync(`${root}web/dist/plumb-trace.wasm`));
  const traces = await Traces.create(new WebAssembly.Module(withLimits(bytes, 64, 128)), () => new Uint8Array(3));
  const run = { kernels: 'scalar', precision: 'int8', layers: 1, vocabulary: 9, order: 0, hasOutputNorms: false,
    bos: -1 };
  const record = (/** @type {number} */ n) => traces.record(run, new Int32Array(1), { values: n }, onTap =>
    onTap({ name: 'embd', layer: -1, pos: 0, tokens: 1, heads: 1, n, data: new Float32Array(n).fill(0.1) }));
  assert.equal(record(4).taps[0].values?.length, 4);
  const failures = new Set();
  for (let n = 1000; n < 4e6; n = Math.ceil(n * 1.3)) {
    try {
      assert.equal(record(n).taps[0].values?.length, n);
      assert.equal(failures.size, 0, `${n} values fit, but fewer did not`);
    } catch (error) {
      if (!(error instanceof PlumbError)) throw error;
      assert.equal(error.code, 'PLUMB_ERROR_MEMORY', error.message);
      failures.add(error.message.replace(/\d+/g, 'N'));
    }
  }
  assert.ok(failures.size >= 2, [...failures].join('; '));
  assert.equal(record(4).taps[0].values?.length, 4, 'after failures');
  const broken = await Traces.create(new WebAssembly.Module(bytes), () => { throw new Error('no text'); });
  for (let i = 0; i < 2; i++)
    assert.throws(() => broken.record(run, new Int32Array(1), {}, () => {}), /^Error: no text$/);
});

test('an endless header is refused after 256 MiB, and its copy is removed', { timeout: 300_000 }, async t => {
  const folder = mkdtempSync(`${tmpdir()}/plumb-faults-`), before = process.env.PLUMB_CACHE;
  process.env.PLUMB_CACHE = folder;
  t.after(() => {
    if (before === undefined) delete process.env.PLUMB_CACHE;
    else process.env.PLUMB_CACHE = before;
    rmSync(folder, { recursive: true });
  });
  const copies = () => readdirSync(folder, { recursive: true }).filter(name => /\.(gguf|json)/.test(String(name)));
  let sent = 0, kept = false;
  const url = await server(t, async (_, response) => {
    response.setHeader('ETag', '"endless"');
    for await (const n of sendEndlessHeader(response)) {
      sent = n;
      if (sent > 1 << 27) kept ||= copies().length > 0;
    }
  });
  await assert.rejects(Plumb.load(`${url}endless.gguf`), (/** @type {any} */ error) => {
    assert.equal(error.code, 'PLUMB_ERROR_METADATA', error.message);
    assert.match(error.message, /extend beyond byte 268435456, the limit for headers/);
    return true;
  });
  t.diagnostic(`${(sent / 2 ** 20).toFixed(1)} MiB were sent`);
  assert.ok(sent < 300 * 2 ** 20, `${sent} bytes`);
  assert.ok(kept, 'there was no copy to be dropped');
  assert.deepEqual(copies(), []);
});

/** One more than a power of two, just after a hash table has doubled. */
const MANY = 2 ** 20 + 1;

for (const [name, counts] of /** @type {const} */ ([
  ['tokens of 3 bytes', { tokens: MANY }], ['control tokens of 3 bytes', { tokens: MANY, type: 3 }],
  ['merges of 3 bytes', { tokens: 1000, merges: MANY }], ['150,000 tokens', { tokens: 150000 }],
  ['tensors', { tokens: 1000, tensors: 300000 }],
])) {
  test(`a header of ${name} takes at most 4 times its bytes of linear memory`, t => {
    const header = greedyHeader(counts), module = new WebAssembly.Module(wasm);
    for (const known of [true, false]) {
      const instance = new WebAssembly.Instance(module, importsOf(module));
      const heapEnd = () => /** @type {any} */ (instance.exports).plumb_wasm_heap_end() >>> 0;
      const engine = new Engine(instance);
      engine.headersOnly();
      engine.begin(known ? header.length + 32 * ('tensors' in counts ? counts.tensors : 0) + 32 : undefined);
      const before = heapEnd();
      for (let at = 0; at < header.length; at += 1 << 16) engine.write(header.subarray(at, at + (1 << 16)));
      engine.loadVocabulary();
      for (const special of [true, false]) engine.tokenize('!"#!"# and others', { parseSpecial: special });
      const ratio = (heapEnd() - before) / header.length;
      t.diagnostic(`${ratio.toFixed(2)} times ${(header.length / 1e6).toFixed(1)} MB, size ${known ? '' : 'un'}known`);
      assert.ok(engine.hasHeader && ratio <= 4, `${ratio.toFixed(2)} times`);
      engine.free();
    }
  });
}
