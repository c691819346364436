/** Threads and variants of the module.  Ground truth: llama.cpp's greedy tokens (tests/vectors), and one thread's
 * logits, bit for bit. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { Plumb } from '../../web/node/index.js';
import { platform } from '../../web/node/platform.js';
import { hasRelaxedDot } from '../../web/engine/variant.js';
import { fails, plumbOn, prompts, realPath, root, textOf, tiny, tinyPath } from './helpers.mjs';

/** Loads with each number of threads; the logits of a prompt and of the tokens after it must not depend on it. */
const COMPARE = `
  const seen = [];
  for (const threads of [1, 2, 3]) {
    const model = await Plumb.load(path, { threads, precision: 'exact16' });
    const info = await model.info();
    const rows = [await model.feed(ids)];
    for (const id of next) rows.push(await model.step(id));
    const hash = createHash('sha256');
    for (const row of rows) hash.update(new Uint8Array(row.buffer));
    const best = row => row.reduce((best, value, i) => value > row[best] ? i : best, 0);
    seen.push({ module: info.module, threads: info.threads, ids: rows.map(best), hash: hash.digest('hex') });
    await model.close();
  }`;

/** Runs code in a process of its own; what it prints, once it has exited by itself.
 * @param {string} code @param {string[]} [flags] @returns {Promise<string>} */
async function alone(code, flags = []) {
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', `
    import { createHash } from 'node:crypto';
    import { Plumb } from '${root}web/node/index.js';
    ${code}`], { stdio: ['ignore', 'pipe', 'inherit'] });
  const late = setTimeout(() => child.kill('SIGKILL'), 60000);
  let text = '';
  child.stdout.on('data', data => { text += data; });
  const [code_, signal] = await new Promise(resolve => child.on('close', (...how) => resolve(how)));
  clearTimeout(late);
  assert.deepEqual([code_, signal], [0, null], text);
  return text;
}

for (const relaxed of [false, true]) {
  test(`${relaxed ? 'relaxed ' : ''}modules with 1, 2 and 3 threads: llama.cpp's tokens, the same bits`, async () => {
    const { ids, f32 } = prompts[0];
    const next = f32.ids.slice(0, 12);
    // Node 20 needs to be asked for relaxed SIMD, and its baseline compiler gets the dots wrong.
    const old = Number(process.versions.node.split('.')[0]) < 22;
    const asked = old && relaxed ? ['--experimental-wasm-relaxed-simd', '--no-liftoff'] : [];
    // Later versions have it, and use the other modules if validation of a module with it fails.
    const without = relaxed ? '' : 'WebAssembly.validate = () => false;';
    const seen = JSON.parse(await alone(`
      ${without}
      const path = ${JSON.stringify(realPath)}, ids = ${JSON.stringify(ids)}, next = ${JSON.stringify(next)};
      ${COMPARE}
      console.log(JSON.stringify(seen));`, asked));
    const suffix = relaxed ? '-relaxed' : '';
    assert.deepEqual(seen.map(({ module, threads }) => [module, threads]),
      [[`plumb${suffix}`, 1], [`plumb-mt${suffix}`, 2], [`plumb-mt${suffix}`, 3]]);
    for (const { ids, hash, threads } of seen) {
      assert.deepEqual(ids, f32.ids.slice(0, 13), `${threads} threads`);
      assert.equal(hash, seen[0].hash, `${threads} threads`);
    }
  });
}

test('the relaxed dot is used only where it is correct', async () => {
  // As in Node 20: off without a flag; with the flag the first compiler is wrong.
  if (Number(process.versions.node.split('.')[0]) >= 22) return assert.equal(hasRelaxedDot(), true);
  assert.equal(hasRelaxedDot(), false);
  const probe = `import { hasRelaxedDot } from '${root}web/engine/variant.js'; console.log(hasRelaxedDot());`;
  const flag = '--experimental-wasm-relaxed-simd';
  assert.equal(await alone(probe, [flag, '--liftoff-only']), 'false\n');
  assert.equal(await alone(probe, [flag, '--no-liftoff']), 'true\n');
});

test('a process ends by itself: closed, not closed, in a worker, aborted', async () => {
  const [tiny, big] = [tinyPath, realPath].map(path => JSON.stringify(path));
  for (const worker of [false, true]) {
    assert.equal(await alone(`const model = await Plumb.load(${tiny}, { threads: 3, worker: ${worker} });
      const { length } = await model.feed([1, 2, 3]);
      console.log((await model.info()).threads, length);
      await model.close();
      console.log('closed');`), '3 260\nclosed\n');
  }
  for (const worker of [false, true]) {
    assert.equal(await alone(`const model = await Plumb.load(${tiny}, { threads: 3, worker: ${worker} });
      console.log((await model.info()).threads);`), '3\n');
  }
  assert.equal(await alone(`
    for (const worker of [false, true]) {
      const stop = new AbortController();
      const loading = Plumb.load(${big}, { threads: 3, worker, signal: stop.signal, onProgress: () => stop.abort() });
      await loading.catch(error => console.log(error.name));
    }`), 'AbortError\nAbortError\n');
});

const threadsOfProcess = () => readdirSync('/proc/self/task').length;
test('closing ends the workers', { skip: process.platform !== 'linux' && 'needs /proc' }, async () => {
  const before = threadsOfProcess();
  for (const worker of [false, true]) {
    const model = await Plumb.load(tinyPath, { threads: 6, worker });
    assert.ok(threadsOfProcess() >= before + 5, `${threadsOfProcess()} threads, ${before} before`);
    await model.close();
    for (let i = 0; i < 200 && threadsOfProcess() > before; i++) await new Promise(resolve => setTimeout(resolve, 20));
    assert.ok(threadsOfProcess() <= before, `${threadsOfProcess()} threads, ${before} before`);
  }
});

test('many models one after the other return their threads, memory and address space', {
  skip: process.platform !== 'linux' && 'needs /proc' }, async t => {
  for (const worker of [false, true]) {
    const held = JSON.parse(await alone(`
      import { readFileSync } from 'node:fs';
      const held = [];
      for (let i = 0; i < 60; i++) {
        const model = await Plumb.load(${JSON.stringify(tinyPath)}, { threads: 2, worker: ${worker} });
        const [{ threads }, logits] = [await model.info(), await model.step(1)];
        if (threads !== 2 || logits.length !== 260) throw new Error(threads + ' threads, ' + logits.length + ' logits');
        await model.close();
        const status = readFileSync('/proc/self/status', 'utf8');
        const of = name => Number(status.split(name + ':')[1].trim().split(/\\s/)[0]);
        held.push({ rss: of('VmRSS') / 1024, size: of('VmSize') / 1024, tasks: of('Threads') });
      }
      console.log(JSON.stringify(held));`));
    // The least of ten: a thread that is just ending still has its 521 MB of address space.
    const least = (name, from, to) => Math.min(...held.slice(from, to).map(one => one[name]));
    for (const name of ['rss', 'size', 'tasks']) {
      const [early, late] = [least(name, 10, 20), least(name, 50, 60)];
      t.diagnostic(`worker ${worker}: ${name} ${early.toFixed(0)} after 20, ${late.toFixed(0)} after 60`);
      // A model has 16 MB of memory and 4 GB of address space: 40 leaked models would exceed this many times.
      assert.ok(late <= 1.2 * early + (name === 'tasks' ? 1 : 0), `${name}: ${early} after 20, ${late} after 60`);
    }
  }
});

/** A worker of this code, as a thread. @param {string} code */
function threadOf(code) {
  const worker = new Worker(code, { eval: true });
  return {
    post: message => worker.postMessage(message),
    onMessage: handler => worker.on('message', handler),
    onDeath: handler => {
      worker.on('error', error => handler(error.message));
      worker.on('exit', status => handler(`it exited with code ${status}`));
    },
    terminate: () => worker.terminate(),
  };
}

test('without shared memory there is one thread and one warning; no warning if one thread was requested', async t => {
  const said = t.mock.method(console, 'warn', () => {});
  const lonely = plumbOn({ singleThreadReason: () => 'no headers' });
  for (const threads of [1, 'auto', 4, undefined]) {
    const model = await lonely.load(tiny, { threads });
    const { threads: n, module } = await model.info();
    assert.deepEqual([n, module.replace('-relaxed', '')], [1, 'plumb']);
    assert.equal(said.mock.callCount(), threads === 1 || platform.processors === 1 ? 0 : 1, String(threads));
    await model.close();
  }
  if (platform.processors > 1) assert.deepEqual(said.mock.calls[0].arguments, ['plumb: 1 thread: no headers']);
});

test('if threads do not start, the model runs on one thread and warns why', async t => {
  const said = t.mock.method(console, 'warn', () => {});
  const one = await Plumb.load(tinyPath, { threads: 1 });
  const expected = await one.step(7);
  await one.close();
  let n = 0;
  const broken = [
    [() => threadOf('throw new Error("no threads here")'), 'a worker stopped: no threads here'],
    [() => threadOf('process.exit(3)'), 'a worker stopped: it exited with code 3'],
    [() => threadOf('require("node:worker_threads").parentPort.postMessage({ failed: "out of luck" })'),
      'out of luck'],
    [() => n++ === 1 ? threadOf('process.exit(4)') : platform.startThread(), 'a worker stopped: it exited with code 4'],
  ];
  for (const [startThread, why] of broken) {
    const model = await plumbOn({ startThread }).load(tiny, { threads: 3 });
    assert.equal((await model.info()).threads, 1);
    assert.deepEqual(await model.step(7), expected);
    assert.deepEqual(said.mock.calls.at(-1).arguments, [`plumb: 1 thread: ${why}`]);
    await model.close();
  }
});

test('threads that do not answer are waited for at most 20 s', async t => {
  const said = t.mock.method(console, 'warn', () => {});
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const silent = plumbOn({ startThread: () => threadOf('setInterval(() => {}, 1000)') });
  const loading = silent.load(tiny, { threads: 2 });
  let loaded = false;
  loading.then(() => { loaded = true; });
  for (let i = 0; i < 50 && !loaded; i++) {
    await new Promise(resolve => setImmediate(resolve));
    t.mock.timers.tick(1000);
  }
  const model = await loading;
  assert.equal((await model.info()).threads, 1);
  assert.deepEqual(said.mock.calls.at(-1).arguments, ['plumb: 1 thread: a worker did not start within 20 s']);
  await model.close();
});

test('a thread that traps ends all calls with an error, none hangs, and the model can be loaded again', async () => {
  // In a process that is killed if it hangs.  The thread's stack ends at address 16: code that needs more traps.
  const { words, last, threads, same } = JSON.parse(await alone(`
    import { plumbOn, textOf, tiny } from '${root}tests/node/helpers.mjs';
    import { platform } from '${root}web/node/platform.js';
    const startThread = () => {
      const thread = platform.startThread();
      const post = ({ setup, ...rest }) => thread.post(setup ? { setup: { ...setup, stack: 16 } } : rest);
      return { ...thread, post };
    };
    const trapping = plumbOn({ startThread }), ids = Int32Array.from({ length: 99 }, (_, i) => i);
    const model = await trapping.load(tiny, { threads: 2 });
    let words = [];
    while (words.length === 0) {   // until the thread gets part of the work
      await model.rewind(0);
      const calls = [model.feed(ids), model.feed(ids), textOf(model.generate('a', { maxTokens: 9 })), model.rewind(0)];
      const outcomes = await Promise.allSettled(calls);
      words = outcomes.flatMap(({ reason }) => reason ? [reason.code + ': ' + reason.message] : []);
    }
    const last = await model.step(1).catch(error => error.code);
    await model.close();
    const [one, two] = [await Plumb.load(tiny, { threads: 1 }), await Plumb.load(tiny, { threads: 2 })];
    const same = String(await one.feed(ids)) === String(await two.feed(ids));
    console.log(JSON.stringify({ words, last, threads: (await two.info()).threads, same }));`));
  assert.match(words[0], /^PLUMB_ERROR: the engine crashed \(.+\); load the model again$/);
  for (const word of words.slice(1)) assert.equal(word, 'PLUMB_ERROR_STATE: the model is closed');
  assert.deepEqual([last, threads, same], ['PLUMB_ERROR_STATE', 2, true]);
});

test('if a thread dies between two calls, the others do its work', async () => {
  const started = [];
  const mortal = plumbOn({ startThread: () => started[started.push(platform.startThread()) - 1] });
  const model = await mortal.load(tiny, { threads: 3 });
  const one = await Plumb.load(tinyPath, { threads: 1 });
  for (let id = 1; id < 4; id++) {
    assert.deepEqual(await model.step(id), await one.step(id));
    await started.pop()?.terminate();
  }
  await model.close();
  await one.close();
});

test('text generation works with threads', async () => {
  const model = await Plumb.load(realPath, { threads: 2 });
  const { messages, f32 } = prompts[1];
  const text = await textOf(model.generate(messages, { temperature: 0, maxTokens: 24 }));
  assert.equal(text, await model.detokenize(f32.ids.slice(0, 24)));
  await fails(() => model.feed([1e6]), 'PLUMB_ERROR_TOKEN', /token 1000000/);
  await model.close();
});
