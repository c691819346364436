/** Several models within a memory budget (web/serving/models.js), with models that only have a size. */
import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import { test } from 'node:test';
import { PlumbError } from '../../web/base/errors.js';
import { Models } from '../../web/serving/models.js';
import { fails } from './helpers.mjs';

/** The names of models are their sizes in bytes, behind a letter.
 * @param {import('../../web/serving/models.js').ModelsOptions & {held?: boolean}} [options]  held: loads end only when
 *   finish is called */
function library({ held = false, ...options } = {}) {
  /** What happened. @type {string[]} */
  const log = [];
  /** @type {(() => void)[]} */
  const waiting = [];
  const alive = new Set();
  const plumb = {
    preflight: async source => ({ memory: { total: Number(source.slice(1)) } }),
    async load(source, { signal }) {
      log.push(`load ${source}`);
      if (held) {
        await new Promise((resolve, reject) => {
          waiting.push(resolve);
          signal.addEventListener('abort', () => {
            log.push(`abort ${source}`);
            reject(signal.reason);
          });
        });
      }
      if (source.startsWith('x')) throw new PlumbError('PLUMB_ERROR_IO', `${source} is not there`);
      const model = {
        source,
        async info() {
          if (!alive.has(model)) throw new PlumbError('PLUMB_ERROR_STATE', 'closed');
          return { memoryBytes: Number(source.slice(1)) };
        },
        async close() {
          await wait(1);
          if (alive.delete(model)) log.push(`close ${source}`);
        },
      };
      alive.add(model);
      return model;
    },
  };
  const models = new Models('test', plumb, { memory: 100, ...options });
  return {
    models, log, alive, hold: (name, signal) => models.hold('test', name, signal), finish: () => waiting.shift()?.(),
  };
}

/** Whether a promise is settled after some time. @param {Promise<unknown>} promise */
const isSettled = promise => Promise.race([promise.then(() => true, () => true), wait(30).then(() => false)]);

test('a model is loaded once, and stays while there is memory', async () => {
  const { models, log, hold } = library();
  const [first, second] = await Promise.all([hold('a40'), hold('a40')]);
  assert.equal(first.model, second.model);
  first.free();
  second.free();
  (await hold('b50')).free();
  assert.equal((await hold('a40')).model, first.model);
  assert.deepEqual(log, ['load a40', 'load b50']);
  assert.deepEqual(models.list().map(({ name, users }) => [name, users]), [['a40', 1], ['b50', 0]]);
});

test('the least recently used models are closed, as many as it takes', async () => {
  const { log, hold } = library();
  for (const name of ['a30', 'b30', 'c30', 'a30']) {
    (await hold(name)).free();
    await wait(2);
  }
  (await hold('d30')).free();
  assert.deepEqual(log.splice(0), ['load a30', 'load b30', 'load c30', 'close b30', 'load d30']);
  (await hold('e60')).free();
  assert.deepEqual(log.splice(0), ['close c30', 'close a30', 'load e60']);
  (await hold('f200')).free();   // one may take more than all may
  assert.deepEqual(log.splice(0), ['close d30', 'close e60', 'load f200']);
});

test('answers that run end before their model is closed', async () => {
  const { log, hold } = library(), answer = await hold('a60'), other = hold('b60');
  assert.equal(await isSettled(other), false);
  assert.deepEqual(log, ['load a60']);
  answer.free();
  answer.free();   // the second time has no effect
  (await other).free();
  assert.deepEqual(log, ['load a60', 'close a60', 'load b60']);
});

test('a load that waits for memory is not starved by calls for the models that are loaded', async () => {
  const { log, hold } = library(), running = await hold('a60'), waiting = hold('b60');
  await wait(5);
  const late = hold('a60');   // comes after b60, so it waits for that one
  assert.equal(await isSettled(late), false);
  const abort = new AbortController(), impatient = hold('a60', abort.signal);
  await wait(1);
  abort.abort(new Error('enough'));
  assert.equal(await isSettled(impatient), true);
  await assert.rejects(impatient, /enough/);
  running.free();
  (await waiting).free();
  (await late).free();
  assert.deepEqual(log, ['load a60', 'close a60', 'load b60', 'close b60', 'load a60']);
});

test('a call that is aborted while its load waits for memory lets the others go on', async () => {
  const { log, hold } = library(), running = await hold('a60'), abort = new AbortController();
  const waiting = hold('b60', abort.signal);
  await wait(5);
  const late = hold('a60');
  abort.abort(new Error('enough'));
  await assert.rejects(waiting, /enough/);
  assert.equal((await late).model, running.model);
  assert.deepEqual(log, ['load a60']);
});

test('a load is aborted only when nobody waits for it', async () => {
  const { log, hold, finish } = library({ held: true }), one = new AbortController(), two = new AbortController();
  const calls = [hold('a10', one.signal), hold('a10', two.signal)];
  await wait(1);
  one.abort(new Error('first'));
  await assert.rejects(calls[0], /first/);
  assert.deepEqual(log, ['load a10']);
  two.abort(new Error('second'));
  await assert.rejects(calls[1], /second/);
  assert.deepEqual(log, ['load a10', 'abort a10']);
  const again = hold('a10');
  await wait(1);
  finish();   // the load that was aborted
  finish();
  await (await again).free();
  assert.deepEqual(log, ['load a10', 'abort a10', 'load a10']);
  await assert.rejects(hold('b10', AbortSignal.abort(new Error('before'))), /before/);
});

test('a load that fails is tried again by the next call, and says what the name was taken for', async () => {
  const { log, hold } = library();
  await fails(hold('x1'), 'PLUMB_ERROR_IO', /x1 is not there; model "x1" is not in the models .* a URL or a path/);
  await fails(hold('x1'), 'PLUMB_ERROR_IO', /x1 is not there/);
  assert.deepEqual(log, ['load x1', 'load x1']);
});

test('only names that are given may be used, unless others are allowed', async () => {
  const { models, log, hold } = library({ models: { small: 'a10' } });
  for (const name of ['a10', '/etc/passwd', 'constructor', '__proto__']) {
    await fails(hold(name), 'PLUMB_ERROR_ARGUMENT', /is not in the models of test\(\{ models \}\) \("small"\)/);
    await fails(models.about('test', name), 'PLUMB_ERROR_ARGUMENT', /is not in the models/);
  }
  assert.deepEqual(log, []);
  assert.equal((await hold()).model.source, 'a10');   // the only one needs no name
  assert.equal((await models.about('test', 'small')).memory?.total, 10);
  await fails(library().hold(), 'PLUMB_ERROR_ARGUMENT', /model is missing/);
  await fails(library({ models: { a: 'a1', b: 'b1' } }).hold(), 'PLUMB_ERROR_ARGUMENT', /model is missing/);
  assert.equal((await library({ models: { small: 'a10' }, otherModels: true }).hold('b20')).model.source, 'b20');
});

test('a model that nobody uses for some time is closed, but not while it is used', async () => {
  const { models, log, hold } = library({ idle: 0.03 }), used = await hold('a10');
  await wait(60);
  assert.deepEqual(log, ['load a10']);
  used.free();
  const again = await hold('a10');   // ends the time that has begun
  await wait(60);
  const third = await hold('a10');
  assert.equal(third.model, used.model);
  again.free();
  third.free();
  await wait(100);
  assert.deepEqual(log.splice(0), ['load a10', 'close a10']);
  (await hold('a10')).free();
  models.keep('a10', Infinity);
  await wait(100);
  assert.deepEqual(log.splice(0), ['load a10']);
  models.keep('a10', 0);
  await wait(30);
  assert.deepEqual(log.splice(0), ['close a10']);
  models.keep('a10', 1);   // it is not loaded
});

test('the time of a model that was closed for its memory does not close its next load', async () => {
  const { log, hold } = library({ idle: 0.08 });
  (await hold('a60')).free();
  (await hold('b60')).free();   // closes a60
  const again = await hold('a60');
  again.free();
  await wait(40);
  (await hold('a60')).free();
  await wait(60);   // 0.1 s after the first a60
  assert.deepEqual(log.slice(-1), ['load a60']);
  await wait(100);
  assert.deepEqual(log.slice(-1), ['close a60']);
});

test('a model whose engine is broken is loaded again', async () => {
  const { log, hold, alive } = library(), { model, free } = await hold('a10');
  alive.delete(model);   // its info() fails from now on
  free();
  assert.notEqual((await hold('a10')).model, model);
  assert.deepEqual(log, ['load a10', 'load a10']);
});

test('close ends loads and models, and the next call loads again', async () => {
  const { models, log, hold } = library({ held: true }), loading = hold('a10');
  await wait(1);
  await Promise.all([models.close(), fails(loading, 'PLUMB_ERROR_STATE', /the client was closed/)]);
  assert.deepEqual(log, ['load a10', 'abort a10']);
  const one = library();
  const { free } = await one.hold('a10');
  await one.models.close();
  free();
  assert.deepEqual(one.models.list(), []);
  (await one.hold('a10')).free();
  assert.deepEqual(one.log, ['load a10', 'close a10', 'load a10']);
});

test('unload waits for the answers that run', async () => {
  const { models, log, hold } = library(), { free } = await hold('a10'), unloaded = models.unload('a10');
  assert.equal(await isSettled(unloaded), false);
  free();
  assert.equal(await unloaded, true);
  assert.equal(await models.unload('a10'), false);
  assert.deepEqual(log, ['load a10', 'close a10']);
});
