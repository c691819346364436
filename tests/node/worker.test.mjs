/** The engine behind a worker: errors reach the call that caused them, and a worker that dies ends what waits for it.
 * Ground truth: what the same model answers without a worker. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { Plumb, PlumbError } from '../../web/node/index.js';
import { createHost } from '../../web/host.js';
import { createPlumb } from '../../web/plumb.js';
import { Remote, serve } from '../../web/protocol.js';
import { fails, textOf, tiny, tinyPath } from './helpers.mjs';

const OPTIONS = { temperature: 0, maxTokens: 12, logitBias: { 256: -Infinity } };

test('a worker says what the same model says in this thread', async () => {
  const [here, there] = await Promise.all([Plumb.load(tinyPath), Plumb.load(tinyPath, { worker: true })]);
  assert.equal(await textOf(there.generate('Hello', OPTIONS)), await textOf(here.generate('Hello', OPTIONS)));
  assert.deepEqual(await there.step(5), await here.step(5));
  assert.deepEqual(await there.tokenize('Hello'), await here.tokenize('Hello'));
  assert.deepEqual(there.metadata, here.metadata);
  await Promise.all([here.close(), there.close()]);
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

/** A package whose worker runs this code. @param {string} code */
const withWorker = code => createPlumb({
  compile: async () => assert.fail('the engine belongs in the worker'),
  worker: true,
  postsBlobs: false,
  startWorker() {
    const worker = new Worker(code, { eval: true });
    return {
      post: (message, transfer = []) => worker.postMessage(message, transfer),
      onMessage: handler => worker.on('message', handler),
      onDeath: handler => {
        worker.on('error', error => handler(error.message));
        worker.on('exit', status => handler(`it exited with ${status}`));
      },
      terminate: () => worker.terminate(),
    };
  },
  locate: source => ({ kind: 'url', name: String(source), url: String(source) }),
});

test('a worker that throws while it starts, or exits, rejects the load', async () => {
  await fails(withWorker('throw new Error("no wasm here")').load(tiny), 'PLUMB_ERROR_STATE',
    /the worker stopped: no wasm here/);
  await fails(withWorker('process.exit(3)').load(tiny), 'PLUMB_ERROR_STATE',
    /the worker stopped: it exited with 3/);
});

test('a worker that dies later rejects every pending call, and every later one', async () => {
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

/** Both ends of the protocol with nothing between them but structuredClone.
 * @param {import('../../web/host.js').Methods} methods */
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

test('a trap in the engine is an error that says so, and the model is given up', async () => {
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
  const remote = connected(createHost({ compile: async () => module }));
  await fails(remote.call('load', { parts: [] }), 'PLUMB_ERROR',
    /the engine broke down \(unreachable\); load the model again/);
  await fails(remote.call('tokenize', { text: 'x' }), 'PLUMB_ERROR_STATE', /the model is closed/);
});
