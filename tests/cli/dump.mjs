/* Reads f32.taps: the whole tensors that llama.cpp's evaluation callback gets for tests/vectors/synth/f32.gguf, in the
 * layout of tests/vectors/llama/logits.c.  tests/node uses it too. */
import { readFileSync } from 'node:fs';

export const model = 'tests/vectors/synth/f32.gguf';
const beside = suffix => readFileSync(new URL(`../vectors/synth/f32.${suffix}`, import.meta.url));
const vectors = beside('bin'), n_token = vectors.readUInt32LE(12);
export const tokens = Array.from({ length: n_token }, (_, i) => vectors.readUInt32LE(32 + 4 * i));

/** By name: shape, fastest dimension first, and values. @type {Map<string, {shape: number[], values: number[]}>} */
export const dump = new Map();
for (let data = beside('taps'), at = 0; at < data.length;) {
  const name = data.subarray(at, at + 24).toString().replace(/\0.*/s, '');
  const shape = [0, 1, 2, 3].map(i => data.readUInt32LE(at + 24 + 4 * i)), n = shape.reduce((a, b) => a * b);
  dump.set(name, { shape, values: Array.from({ length: n }, (_, i) => data.readFloatLE(at + 40 + 4 * i)) });
  at += 40 + 4 * n;
}

/** The values of one token; for attention weights (key, token, head), those of all its heads. */
export function valuesOf(name, token) {
  const { shape, values } = dump.get(name);
  const n = values.length / n_token;
  if (!name.startsWith('kq_soft_max')) return values.slice(token * n, (token + 1) * n);
  return Array.from({ length: shape[2] }, (_, h) => h)
    .flatMap(h => values.slice((h * n_token + token) * shape[0], (h * n_token + token + 1) * shape[0]));
}
