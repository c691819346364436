/** The engine in a worker: errors reach the call that caused them, and a worker that dies ends pending calls.  Ground
 * truth: the results of the same model without a worker. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { Plumb, PlumbError } from '../../web/node/index.js';
import { platform } from '../../web/node/platform.js';
import { createHost } from '../../web/engine/host.js';
import { createPlumb } from '../../web/api/plumb.js';
import { Remote, serve } from '../../web/base/protocol.js';
import { fails, textOf, tiny, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';

/** Makes a hang fail. */
const LIMIT = { timeout: 20000 };
const OPTIONS = { temperature: 0, maxTokens: 12, logitBias: { 256: -Infinity } };

test('a worker gives the same output as the model in this thread', async () => {
  const [here, there] = await Promise.all([false, true].map(worker => Plumb.load(tinyPath, { worker })));
  assert.equal(await textOf(there.generate('Hello', OPTIONS)), await textOf(here.generate('Hello', OPTIONS)));
  assert.deepEqual(await there.step(5), await here.step(5));
  assert.deepEqual(await there.tokenize('Hello'), await here.tokenize('Hello'));
  assert.deepEqual(there.metadata, here.metadata);
  await Promise.all([here.close(), there.close()]);
});

test('the engine does not block the event loop unless worker is false', async () => {
  /** How often the event loop turns while one batch of a prompt is computed. @param {object} options */
  const turns = async options => {
    const model = await Plumb.load(smallPath, { threads: 1, ...options });
    let n = 0, done = false;
    const feeding = model.feed(new Int32Array(64).fill(65)).finally(() => { done = true; });
    for (; !done; n++) await new Promise(resolve => setImmediate(resolve));
    await feeding;
    await model.close();
    return n;
  };
  const [usual, here] = [await turns({}), await turns({ worker: false })];
  assert.ok(usual > 100, `${usual} turns by default`);
  assert.ok(here < 10, `${here} turns with worker: false`);
});

test('each of many calls at once gets its own answer or error', async () => {
  const model = await Plumb.load(tinyPath, { worker: true });
  const results = await Promise.allSettled([
    model.tokenize('a'), model.feed([999]), model.tokenize('b'), model.rewind(99), model.detokenize([71]),
    textOf(model.generate('Hello', OPTIONS)), textOf(model.generate('', OPTIONS)), model.info(),
  ]);
  assert.deepEqual(results.map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled', 'rejected', 'fulfilled',
    'fulfilled', 'rejected', 'fulfilled']);
  const errors = results.flatMap(result => result.status === 'rejected' ? [result.reason] : []);
  assert.deepEqual(errors.map(({ code }) => code),
    ['PLUMB_ERROR_TOKEN', 'PLUMB_ERROR_ARGUMENT', 'PLUMB_ERROR_ARGUMENT']);
  assert.ok(errors.every(error => error instanceof PlumbError));
  await model.close();
});

for (const worker of [false, true]) {
  const where = worker ? 'in a worker' : 'in this thread';

  test(`the speed of a stopped prompt counts only the computed tokens ${where}`, LIMIT, async t => {
    const model = await Plumb.load(tinyPath, { worker });
    t.after(() => model.close());
    const ids = new Int32Array(500).fill(65), { batch } = await model.info();
    /** @param {number} wait  turns of the event loop before the signal */
    const computed = async wait => {
      const stop = new AbortController();
      await model.rewind();
      const pieces = textOf(model.generate(ids, { temperature: 0, maxTokens: 1, signal: stop.signal }));
      for (let i = 0; i < wait; i++) await new Promise(resolve => setImmediate(resolve));
      stop.abort();
      await pieces;
      const { prefillRate, prefillSeconds, finishReason } = /** @type {any} */ (model.lastStats);
      return { n: Math.round(prefillRate * prefillSeconds), finishReason };
    };
    assert.deepEqual(await computed(0), { n: 0, finishReason: 'abort' });
    if (worker) return;   // how much a worker has computed by then is not deterministic
    const { n, finishReason } = await computed(4);
    assert.equal(finishReason, 'abort');
    assert.ok(n >= batch && n < ids.length && n % batch === 0, `${n} of ${ids.length} tokens in batches of ${batch}`);
  });

  test(`an error thrown by a callback ends its call, not the model ${where}`, LIMIT, async t => {
    const model = await Plumb.load(tinyPath, { worker });
    t.after(() => model.close());
    const expected = await textOf(model.generate('Hello', OPTIONS));
    for (const error of [new RangeError('mine'), new WebAssembly.RuntimeError('mine'), null]) {
      let calls = 0;
      const fail = () => {
        calls++;
        throw error;
      };
      const isMine = (/** @type {unknown} */ found) => found === error;
      await assert.rejects(textOf(model.generate('Hello', { ...OPTIONS, onToken: fail })), isMine);
      await assert.rejects(model.trace('Hello', { onTap: fail }), isMine);
      assert.equal(calls, 2);
      if (error) {   // a signal's reason may be anything, too
        // If this thread is delayed before it aborts, a worker may have computed all tokens by then.
        let found;
        for (let tries = 0; !found && tries < 50; tries++) {
          const abort = new AbortController();
          await model.rewind();
          const feeding = model.feed(new Int32Array(500).fill(65), { signal: abort.signal });
          abort.abort(error);
          found = await feeding.catch(reason => reason);
        }
        assert.ok(isMine(found), `${found}`);
      }
      await model.rewind();
      assert.equal(await textOf(model.generate('Hello', OPTIONS)), expected);
    }
  });

  test(`an error thrown by onProgress ends the load ${where}`, LIMIT, async () => {
    for (const last of ['read', 'prepare', 'ready']) {
      const error = new RangeError(last);
      const onProgress = (/** @type {{phase: string}} */ { phase }) => { if (phase === last) throw error; };
      await assert.rejects(Plumb.load(tinyPath, { worker, onProgress }), found => found === error);
    }
  });
}

/** A package whose worker runs this file or code.
 * @param {URL | string} code
 * @param {(name: string) => Promise<WebAssembly.Module>} [compile]  default: never resolves, and nothing waits for it
 * @param {(worker: Worker) => void} [started] */
const withWorker = (code, compile = () => new Promise(() => {}), started = () => {}) => createPlumb({
  compile,
  worker: true,
  postsBlobs: false,
  startWorker() {
    const worker = new Worker(code, { eval: typeof code === 'string', execArgv: [] });
    started(worker);
    return {
      post: (message, transfer = []) => worker.postMessage(message, transfer),
      onMessage: handler => worker.on('message', handler),
      onDeath: handler => {
        worker.on('error', error => handler(error.message));
        worker.on('exit', status => handler(`it exited with code ${status}`));
      },
      terminate: () => worker.terminate(),
    };
  },
  locate: source => ({ kind: 'url', name: String(source), url: String(source) }),
});
/** Node's own. */
const ENGINE = new URL('../../web/node/engine-worker.js', import.meta.url);

test('a worker that throws while it starts, or exits, rejects the load', async () => {
  await fails(withWorker('throw new Error("no wasm here")').load(tiny), 'PLUMB_ERROR_STATE',
    /the worker stopped: no wasm here/);
  await fails(withWorker('process.exit(3)').load(tiny), 'PLUMB_ERROR_STATE',
    /the worker stopped: it exited with code 3/);
});

test('a worker that dies later rejects every pending and every later call', async () => {
  const model = await withWorker(`
    const { parentPort } = require('node:worker_threads');
    parentPort.on('message', ({ id, method }) => {
      const loaded = { metadata: {}, bos: -1, bosText: '', eosText: '' };
      if (method === 'load') parentPort.postMessage({ id, result: loaded });
      else if (method === 'rewind') setTimeout(() => { throw new Error('out of luck'); }, 50);
    });`).load(tiny);
  const pending = [model.tokenize('a'), model.generate([1, 2]).next(), model.info(), model.rewind()];
  for (const call of pending) await fails(call, 'PLUMB_ERROR_STATE', /the worker stopped: out of luck/);
  await fails(model.tokenize('b'), 'PLUMB_ERROR_STATE', /the worker stopped: out of luck/);
  await model.close();
});

/* Two cases: the engine does not listen yet, and the engine waits for the module. */
for (const [worker, late] of [[false, false], [true, false], [false, true], [true, true]]) {
  const where = `${worker ? 'in a worker' : 'in this thread'}${late ? ', late' : ''}`;

  test(`a compile error rejects the load ${where}`, LIMIT, async t => {
    const details = { url: 'https://a.site/plumb.wasm', status: 404 };
    const error = new PlumbError('PLUMB_ERROR_IO', `${details.url}: the engine does not load: 404`, details);
    let waits = () => {}, ended = Promise.resolve();
    const waiting = new Promise(resolve => { waits = () => resolve(undefined); });
    const compile = async () => {
      if (late && !worker) setTimeout(waits, 10);
      if (late) await waiting;
      throw error;
    };
    const plumb = withWorker(ENGINE, compile, started => {
      t.after(() => started.terminate());   // otherwise a failure would hang
      started.once('message', waits);
      ended = once(started, 'exit');
    });
    await assert.rejects(plumb.load(tiny, { worker }), found => {
      assert.ok(found instanceof PlumbError, `${found} is no PlumbError`);
      assert.deepEqual([found.code, found.message, found.details], [error.code, error.message, details]);
      return true;
    });
    await ended;
  });

  test(`an abort while the module compiles ends the load at once ${where}`, LIMIT, async t => {
    const stop = new AbortController(), reason = new Error('enough'), abort = () => stop.abort(reason);
    let pulled = 0, cancelled = false, fail = () => {}, ended = Promise.resolve();
    const compiling = new Promise(resolve => { fail = () => resolve(undefined); });
    const compile = async () => {
      if (!late) queueMicrotask(abort);
      else if (!worker) setTimeout(abort, 10);
      await compiling;
      throw new Error('nobody hears this');
    };
    const plumb = withWorker(ENGINE, compile, started => {
      t.after(() => started.terminate());
      if (late) started.once('message', abort);
      ended = once(started, 'exit');
    });
    const source = {
      next: async () => ({ done: pulled++ > 0, value: tiny }),
      return: async () => { cancelled = true; },
    };
    const loading = plumb.load({ [Symbol.asyncIterator]: () => source }, { worker, signal: stop.signal });
    await assert.rejects(loading, reason);
    await ended;
    fail();
    await new Promise(resolve => setTimeout(resolve, 10));
    assert.deepEqual({ pulled, cancelled }, { pulled: 0, cancelled: true });
  });
}

/** Both ends of the protocol, connected only by structuredClone.
 * @param {import('../../web/base/protocol.js').Methods} methods */
function connected(methods) {
  const ends = [() => {}, () => {}];
  const carry = (/** @type {number} */ to) => (message, transfer = []) => {
    const copy = structuredClone(message, { transfer });
    queueMicrotask(() => ends[to](copy));
  };
  serve({ post: carry(0), onMessage: handler => { ends[1] = handler; } }, methods);
  const nothing = () => {};
  return new Remote({
    post: carry(1), onMessage: handler => { ends[0] = handler; }, onDeath: nothing, terminate: nothing,
  });
}

test('the protocol: pulls are answered in order, results are transferred, aborts arrive', async () => {
  const result = new Float32Array([1, 2, 3]);
  const chunk = new Uint8Array([1, 2, 3, 4]).subarray(1, 3);
  const remote = connected({
    async pull(_, { pull }) {
      const chunks = await Promise.all([pull(0), pull(1), pull(0)]);
      return chunks.map(bytes => bytes && [...bytes]);
    },
    result: () => result,
    wait: (_, { signal }) => new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
    }),
    unknown: () => { throw new TypeError('a bug'); },
  });
  const pulled = await remote.call('pull', {}, { onPull: async part => part ? null : chunk });
  assert.deepEqual(pulled, [[2, 3], null, [2, 3]]);
  assert.deepEqual([...chunk], [2, 3]);
  assert.deepEqual(await remote.call('result'), new Float32Array([1, 2, 3]));
  assert.equal(result.length, 0, 'the worker still has the array');
  const abort = new AbortController();
  const waiting = remote.call('wait', {}, { signal: abort.signal });
  abort.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  await fails(remote.call('unknown'), 'PLUMB_ERROR', /TypeError: a bug/);
  const gone = async () => { throw new PlumbError('PLUMB_ERROR_IO', 'gone', { bytes: 7 }); };
  await assert.rejects(remote.call('pull', {}, { onPull: gone }), { code: 'PLUMB_ERROR_IO', details: { bytes: 7 } });
});

test('the engine abandons an aborted load that waits for the module, and loads again', LIMIT, async () => {
  const remote = connected(createHost({}));
  const module = await platform.compile('plumb');
  const args = { parts: [{ kind: 'pull', name: 'tiny', size: tiny.length }], contextLength: 64 };
  const stop = new AbortController();
  let answer = (/** @type {any} */ _) => {};
  /** @type {(number | 'module')[]} */
  const pulls = [];
  const never = remote.call('load', args, { signal: stop.signal, onPull: part => new Promise(resolve => {
    pulls.push(part);
    answer = resolve;
    stop.abort();
  }) });
  await assert.rejects(never, { name: 'AbortError' });
  answer({ module, name: 'plumb', threads: 1 });
  await fails(remote.call('info'), 'PLUMB_ERROR_STATE', /the model is closed/);
  assert.deepEqual(pulls, ['module']);

  const chunks = [tiny, null];
  await remote.call('load', args, { onPull: async part =>
    part === 'module' ? { module, name: 'plumb', threads: 1 } : chunks.shift() });
  assert.equal((await remote.call('info')).contextLength, 64);
  await remote.call('close');
});

test('a module that arrives after the abort is not used', async () => {
  const stop = new AbortController(), reason = new Error('enough');
  const module = await platform.compile('plumb');
  /** @type {(number | 'module')[]} */
  const pulls = [];
  const pull = async (/** @type {number | 'module'} */ part) => {
    pulls.push(part);
    stop.abort(reason);
    return part === 'module' ? { module, name: 'plumb', threads: 1 } : null;
  };
  const call = { signal: stop.signal, emit: () => {}, pull };
  await assert.rejects(createHost({}).load({ parts: [{ kind: 'pull', name: 'tiny' }] }, call), reason);
  assert.deepEqual(pulls, ['module']);
});

test('a trap in the engine is an error that says so, and the model is closed', async () => {
  // (module (memory (export "memory") 1) (func (export "malloc") (param i32) (result i32) (i32.const 8))
  //         (func (export "plumb_model_create") (result i32) unreachable))
  const module = new WebAssembly.Module(Uint8Array.from([
    0, 97, 115, 109, 1, 0, 0, 0,
    1, 10, 2, 96, 1, 127, 1, 127, 96, 0, 1, 127,
    3, 3, 2, 0, 1,
    5, 3, 1, 0, 1,
    7, 40, 3, 6, ...Buffer.from('memory'), 2, 0, 6, ...Buffer.from('malloc'), 0, 0,
    18, ...Buffer.from('plumb_model_create'), 0, 1,
    10, 10, 2, 4, 0, 65, 8, 11, 3, 0, 0, 11,
  ]));
  const remote = connected(createHost({}));
  const onPull = async () => ({ module, name: 'broken', threads: 1 });
  await fails(remote.call('load', { parts: [] }, { onPull }), 'PLUMB_ERROR',
    /the engine crashed \(unreachable\); load the model again/);
  await fails(remote.call('tokenize', { text: 'x' }), 'PLUMB_ERROR_STATE', /the model is closed/);
});
