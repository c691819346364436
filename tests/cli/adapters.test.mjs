/* --lora and --control-vector.  Ground truth: llama.cpp's logits with the same adapters (tests/vectors/adapters). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { output, plumb, test } from './plumb.mjs';

const folder = 'tests/vectors/adapters', model = 'tests/vectors/archs/llama.gguf', nVocab = 64;

/** The tokens of a file of logits.c, and llama.cpp's logits after the last one. */
function vectors(name) {
  const words = readFileSync(`${folder}/${name}.bin`), nToken = words.readUInt32LE(12);
  const tokens = Array.from({ length: nToken }, (_, i) => words.readInt32LE(32 + 4 * i));
  const last = words.length - 4 * nVocab;
  return { tokens: tokens.join(), logits: Array.from({ length: nVocab }, (_, i) => words.readFloatLE(last + 4 * i)) };
}

/** The largest difference of the logits that a command line prints from llama.cpp's. */
async function difference(name, ...options) {
  const { tokens, logits } = vectors(name);
  const args = ['logits', model, '--tokens', tokens, '--top', `${nVocab}`, '--json', '--reference', ...options];
  const top = JSON.parse(await output(args));
  assert.equal(top.length, nVocab);
  return Math.max(...top.map(({ id, logit }) => Math.abs(logit - logits[id])));
}

test('logits with adapters are llama.cpp\'s', async () => {
  const [lora, types, control] = ['llama-lora', 'llama-types', 'llama-control'].map(name => `${folder}/${name}.gguf`);
  assert.ok(await difference('llama-lora', '--lora', `${lora}:0.7`) < 1e-4);
  assert.ok(await difference('llama-two', `--lora=${lora}:-0.5`, '--lora', `${types}:1.25`) < 1e-4);
  assert.ok(await difference('llama-control', '--control-vector', `${control}:1.5`) < 1e-4);
  const range = ['--control-vector-layer-range', '2'];
  const both = ['--lora', `${lora}:.7`, '--control-vector', `${control}:-2`, ...range];
  assert.ok(await difference('llama-range', ...both) < 1e-4);
  assert.ok(await difference('llama-lora') > 0.1, 'the adapter changes nothing');
});

test('adapters that do not fit are refused in one line', async () => {
  const lora = `${folder}/llama-lora.gguf`, control = `${folder}/llama-control.gguf`;
  const cases = [
    [['--lora', control], 1, /it is a control vector: use --control-vector/],
    [['--control-vector', lora], 1, /it is a LoRA: use --lora/],
    [['--lora', `${folder}/chatglm-lora.gguf`], 1, /for a model of the architecture "chatglm"/],
    [['--lora', model], 1, /expected general\.type adapter/],
    [['--lora', 'missing.gguf:2'], 1, /^plumb: missing\.gguf: PLUMB_ERROR_IO/],
    [['--control-vector-layer-range', '1-2'], 2, /needs --control-vector/],
    [['--control-vector', control, '--control-vector-layer-range', '0'], 2, /no control vector of layer 0/],
    [Array.from({ length: 17 }, () => `--lora=${lora}`), 2, /at most 16 adapters/],
    [['--lora'], 2, /--lora needs a value/],
  ];
  for (const [options, code, message] of cases) {
    const run = await plumb(['logits', model, '--tokens', '1', ...options]);
    assert.equal(run.code, code, run.err);
    assert.match(run.err, message);
    assert.equal(run.err.trim().split('\n').length, 1);
  }
});
