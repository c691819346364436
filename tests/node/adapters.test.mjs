/** LoRAs and control vectors of a model. Ground truth: llama.cpp's logits with the same adapters
 * (tests/vectors/adapters). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Adapter, Plumb } from '../../web/node/index.js';
import { fails, root } from './helpers.mjs';

const folder = `${root}tests/vectors/adapters/`, nVocab = 64;
const modelPath = `${root}tests/vectors/archs/llama.gguf`;
const [lora, types, control] = ['llama-lora', 'llama-types', 'llama-control'].map(name => `${folder}${name}.gguf`);

/** The tokens of a file of logits.c, and llama.cpp's logits after the last one. @param {string} name */
function vectors(name) {
  const words = readFileSync(`${folder}${name}.bin`), nToken = words.readUInt32LE(12);
  const last = words.length - 4 * nVocab;
  return {
    tokens: Array.from({ length: nToken }, (_, i) => words.readInt32LE(32 + 4 * i)),
    logits: Array.from({ length: nVocab }, (_, i) => words.readFloatLE(last + 4 * i)),
  };
}

/** The relative RMS error of a model's logits. @param {import('../../web/api/plumb.js').Model} model
 * @param {string} name */
async function distance(model, name) {
  const { tokens, logits } = vectors(name);
  await model.rewind();
  const own = await model.feed(tokens);
  const square = (/** @type {number[]} */ values) => values.reduce((sum, x) => sum + x * x, 0);
  return Math.sqrt(square(logits.map((x, i) => x - own[i])) / square(logits));
}

describe('a small model', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(modelPath); });
  after(() => model.close());

  test('logits with adapters are llama.cpp\'s, and adapters are exchanged and scaled without loading them again',
    async () => {
      const phases = [];
      const one = await model.loadAdapter(lora, { onProgress: ({ phase }) => phases.push(phase) });
      const two = await model.loadAdapter(new Uint8Array(readFileSync(types)));
      const direction = await model.loadAdapter(new Blob([readFileSync(control)]));
      assert.deepEqual([one, two, direction].map(({ kind }) => kind), ['lora', 'lora', 'control']);
      assert.equal(phases.at(-1), 'ready');
      await model.setAdapters([{ adapter: one, scale: 0.7 }]);
      assert.ok(await distance(model, 'llama-lora') < 1e-3);
      await model.setAdapters([{ adapter: one, scale: -0.5 }, { adapter: two, scale: 1.25 }]);
      assert.ok(await distance(model, 'llama-two') < 1e-3);
      await model.setAdapters([{ adapter: direction, scale: 1.5 }]);
      assert.ok(await distance(model, 'llama-control') < 1e-3);
      await model.setAdapters([{ adapter: one, scale: 0.7 }, { adapter: direction, scale: -2, layers: [2, 2] }]);
      assert.ok(await distance(model, 'llama-range') < 1e-3);
      assert.deepEqual(model.adapters.map(({ scale }) => scale), [0.7, -2]);
      await model.setAdapters([]);
      assert.ok(await distance(model, 'llama-lora') > 0.1, 'the adapter stays in use');
    });

  test('the session forgets what other adapters computed', async () => {
    const adapter = await model.loadAdapter(lora);
    await model.setAdapters([]);
    await model.rewind();
    const none = await model.feed([7, 1, 33]);
    await model.setAdapters([{ adapter }]);
    const changed = await model.feed([7, 1, 33]);   // from the first position on
    assert.notDeepEqual(changed, none);
    await model.setAdapters([{ adapter, scale: 1 }]);
    await model.rewind(2);
    assert.deepEqual(await model.feed([33]), changed, 'the same list keeps the tokens');
    await model.setAdapters([{ adapter, scale: 0 }]);
    assert.deepEqual(await model.feed([7, 1, 33]), none);
  });

  test('an adapter in use cannot be freed, and one that was freed cannot be used', async () => {
    const adapter = await model.loadAdapter(lora);
    await model.setAdapters([{ adapter }]);
    await fails(adapter.free(), 'PLUMB_ERROR_STATE', /the adapter is in use/);
    await model.setAdapters([]);
    await adapter.free();
    await adapter.free();
    await fails(model.setAdapters([{ adapter }]), 'PLUMB_ERROR_ARGUMENT', /adapter 0 is not one of this model, or was/);
  });

  test('an adapter is in use as soon as setAdapters was called, and the list is a copy', async () => {
    const adapter = await model.loadAdapter(lora), use = { adapter, scale: 1 };
    const set = model.setAdapters([use]);
    await fails(adapter.free(), 'PLUMB_ERROR_STATE', /the adapter is in use/);
    await set;
    use.scale = 5;
    assert.equal(model.adapters[0].scale, 1);
    await model.setAdapters([]);
    await adapter.free();
  });

  test('what is no adapter of this model is refused', async () => {
    const bytes = new Uint8Array(readFileSync(lora));
    const other = `${folder}chatglm-lora.gguf`;
    await fails(model.loadAdapter(modelPath), 'PLUMB_ERROR_METADATA', /expected general\.type adapter/);
    await fails(model.loadAdapter(other), 'PLUMB_ERROR_METADATA', /architecture "chatglm", and this one is llama/);
    await fails(model.loadAdapter(bytes.subarray(0, 9000)), 'PLUMB_ERROR_TRUNCATED', /./);
    await fails(model.loadAdapter(lora, { sha256: '0'.repeat(64) }), 'PLUMB_ERROR_CHECKSUM', /the sha256 is/);
    await fails(model.loadAdapter(lora, { scale: 1 }), 'PLUMB_ERROR_ARGUMENT', /unknown option "scale"/);
    await fails(model.loadAdapter([lora, lora]), 'PLUMB_ERROR_ARGUMENT', /an adapter is one file, not 2/);
    const adapter = await model.loadAdapter(lora);
    assert.ok(adapter instanceof Adapter);
    await fails(model.setAdapters({ adapter }), 'PLUMB_ERROR_ARGUMENT', /expected an array/);
    await fails(model.setAdapters([adapter]), 'PLUMB_ERROR_ARGUMENT', /./);
    await fails(model.setAdapters([{ adapter, scale: NaN }]), 'PLUMB_ERROR_ARGUMENT', /scale is NaN/);
    await fails(model.setAdapters([{ adapter, layers: [0, 0] }]), 'PLUMB_ERROR_ARGUMENT', /last >= 1/);
    const signal = AbortSignal.abort();
    await assert.rejects(model.loadAdapter(lora, { signal }), { name: 'AbortError' });
  });
});

test('a load takes adapters', async () => {
  for (const worker of [true, false]) {
    const model = await Plumb.load(modelPath, { worker, adapters: [
      { source: lora, scale: 0.7 }, { source: control, scale: -2, layers: [2, 2] },
    ] });
    assert.ok(await distance(model, 'llama-range') < 1e-3);
    assert.equal(model.adapters.length, 2);
    await model.close();
  }
  await fails(Plumb.load(modelPath, { adapters: [{ source: modelPath }] }), 'PLUMB_ERROR_METADATA', /general\.type/);
  await fails(Plumb.load(modelPath, { adapters: [{ source: lora, factor: 1 }] }), 'PLUMB_ERROR_ARGUMENT',
    /adapters\[0\]: unknown option "factor"/);
});
