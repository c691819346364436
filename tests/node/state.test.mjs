/** Saved sessions. Ground truth: sessions that compute everything anew (tests/state_test.c has the kinds of state). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, root } from './helpers.mjs';

const load = (/** @type {string} */ name, options = {}) =>
  Plumb.load(`${root}tests/vectors/archs/${name}.gguf`, { contextLength: 64, ...options });
const ids = Array.from({ length: 40 }, (_, i) => i * 7 % 64);

for (const worker of [false, true]) {
  test(`a saved session goes on with the same bits in another engine, worker: ${worker}`, async () => {
    for (const name of ['llama', 'lfm2', 'gemma3n']) {
      const one = await load(name, { worker }), other = await load(name, { worker, contextLength: 50 });
      await one.feed(ids.slice(0, 30));
      const saved = await one.save();
      assert.equal(saved.length, (await one.info()).savedBytes);
      const expected = await one.feed(ids.slice(30));
      await other.restore(saved);
      assert.equal(saved.length > 0, true, 'restore has taken the bytes away');
      assert.deepEqual(await other.feed(ids.slice(30)), expected);
      await other.restore(saved.buffer);
      for await (const _ of other.generate([...ids.slice(0, 30), 1], { maxTokens: 1 }));
      assert.equal(other.lastStats?.reusedTokens, 30);
      await Promise.all([one.close(), other.close()]);
    }
  });
}

test('bytes that are no session of the model are refused, and the model works', async () => {
  const model = await load('llama'), other = await load('qwen3');
  const expected = await model.feed(ids);
  const saved = await model.save();
  await fails(other.restore(saved), 'PLUMB_ERROR_ARGUMENT', /it was saved with another model/);
  await fails(model.restore(saved.subarray(0, 4000)), 'PLUMB_ERROR_TRUNCATED', /byte 4000, in section kv/);
  await fails(model.restore(new Uint8Array(100)), 'PLUMB_ERROR_MAGIC', /not a saved session/);
  await fails(model.restore(/** @type {any} */ ('bytes')), 'PLUMB_ERROR_ARGUMENT', /expected a Uint8Array/);
  await model.rewind();
  assert.deepEqual(await model.feed(ids), expected);
  const small = await load('llama', { contextLength: 39 });
  await fails(small.restore(saved), 'PLUMB_ERROR_CONTEXT', /its 40 tokens do not fit: the context holds 39/);
  const q8 = await load('llama', { kvType: 'f32' });
  await fails(q8.restore(saved), 'PLUMB_ERROR_ARGUMENT', /this session has f32/);
  await Promise.all([model, other, small, q8].map(one => one.close()));
  await fails(model.save(), 'PLUMB_ERROR_STATE', /closed/);
});

test('snapshots is an option, and statistics say what was computed again', async () => {
  const bytes = [];
  for (const snapshots of [2, 40]) {
    const model = await load('lfm2', { snapshots, contextLength: 256 });
    bytes.push((await model.info()).sessionBytes);
    const plan = await Plumb.preflight(`${root}tests/vectors/archs/lfm2.gguf`,
      { snapshots, contextLength: 256, measure: false });
    const { kv = 0, scratch = 0 } = plan.memory ?? {};
    assert.equal(kv + scratch, bytes.at(-1));
    const prompt = Array.from({ length: 200 }, (_, i) => i * 7 % 64);
    for (let n = 20; n <= 200; n += 20) await model.feed(prompt.slice(n - 20, n));   // a snapshot after each
    for await (const _ of model.generate([...prompt.slice(0, 61), 1], { maxTokens: 1 }));
    const { reusedTokens, recomputedTokens } = model.lastStats ?? {};
    assert.deepEqual([reusedTokens, recomputedTokens], snapshots === 2 ? [0, 61] : [60, 1]);
    await model.close();
  }
  assert.ok(bytes[1] > bytes[0], bytes.join());
  await fails(load('lfm2', { snapshots: 1 }), 'PLUMB_ERROR_ARGUMENT', /snapshots .* an integer from 2 to 64/);
});
