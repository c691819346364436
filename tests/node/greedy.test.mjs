/** Every host must give the same greedy ids.  The JavaScript tests of Node, Chromium, Firefox and WebKit read them from
 * the files prompts.json of tests/vectors/llama; the C tests, native and under wasmtime, read the files that it was
 * made from. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { models } from './helpers.mjs';

for (const { name, ids, f32, vectors } of models.flatMap(({ vectors, prompts }) =>
  prompts.map(prompt => ({ ...prompt, vectors })))) {
  test(`the C tests and the JavaScript tests have the same ids: ${name}`, () => {
    const file = readFileSync(`${vectors}${name}.f32.bin`);
    const words = Array.from({ length: file.length / 4 }, (_, i) => file.readInt32LE(4 * i));
    assert.equal(file.toString('latin1', 0, 8), 'PLMBLOGT');
    // Header, tokens, and one record for each choice: logsumexp, sampled logits, ids of the largest, these logits.
    const [, nToken, nRecord, , nSample, nTop] = words.slice(2, 8), record = 1 + nSample + 2 * nTop;
    const tokens = words.slice(8, 8 + nToken), records = words.slice(8 + nToken);
    const chosen = Array.from({ length: nRecord }, (_, i) => records[i * record + 1 + nSample]);
    assert.deepEqual([chosen.length, records.length], [64, 64 * record]);
    assert.deepEqual([tokens.slice(0, nToken + 1 - nRecord), chosen], [ids, f32.ids]);
    assert.deepEqual(tokens.slice(nToken + 1 - nRecord), f32.ids.slice(0, -1));
  });
}
