/**
 * `node tests/bench/models.mjs [NAME...]` makes the missing files that the bench measures, in models/bench/: the
 * default model in other types by llama.cpp's own quantizer, and files of TinyLlama-1.1B's shape with random weights.
 * Rows of SmolLM2 have 576 weights, which is not a multiple of 256: there llama.cpp replaces K-quants by other types
 * (Q4_K by Q5_0, Q6_K by Q8_0), so the bench reports the types in each file.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const FOLDER = 'models/bench';
const DEFAULT = 'models/SmolLM2-135M-Instruct.Q4_1.gguf';
const python = (...args) => execFileSync('python3', args, {
  env: { ...process.env, PYTHONPATH: 'build/setup/py' }, stdio: ['ignore', 'inherit', 'inherit'],
});
const quantize = (from, out, type) => execFileSync('build/bench/llama', ['quantize', from, out, type],
  { stdio: ['ignore', 'inherit', 'inherit'] });

const smollm2 = (type) => ({
  name: type, title: `SmolLM2-135M ${type}`, file: `${FOLDER}/SmolLM2-135M.${type}.gguf`,
  // From F32, so that only the default model's own Q4_1 rounds before the new type does.
  make: (out) => quantize(type === 'F32' ? DEFAULT : make('F32').file, out, type),
});
const tinyllama = (type) => ({
  name: `1.1B-${type}`, title: `1.1B-shaped ${type}`, random: true, file: `${FOLDER}/tinyllama.${type}.gguf`,
  make: (out) => python('models/synth.py', out, '--shape', 'tinyllama', '--type', type, '--context', '8192'),
});
export const MODELS = [
  ...['Q4_0', 'Q4_1', 'Q5_0', 'Q8_0', 'Q4_K_M', 'Q5_K_M', 'Q6_K', 'F16', 'F32'].map(smollm2),
  ...['Q4_0', 'Q4_K', 'Q5_K', 'Q6_K', 'F32'].map(tinyllama),
];

/** The model with that name; makes its file if it is missing. */
export function make(name) {
  const model = MODELS.find(model => model.name === name);
  if (!model) throw new Error(`no model ${name}; there are ${MODELS.map(({ name }) => name).join(', ')}`);
  if (!existsSync(model.file)) {
    mkdirSync(FOLDER, { recursive: true });
    console.error(`bench: makes ${model.file}`);
    model.make(`${model.file}.part`);
    renameSync(`${model.file}.part`, model.file);
  }
  return model;
}

/** Bytes by tensor type, largest first, as in the file. */
export function typesOf(file) {
  const { totals } = JSON.parse(execFileSync('build/native/plumb', ['inspect', '--json', file],
    { encoding: 'utf8', maxBuffer: 1 << 28 }));
  return Object.fromEntries(Object.entries(totals).map(([type, { bytes }]) => [type, bytes])
    .sort(([, a], [, b]) => b - a));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const names = process.argv.slice(2);
  for (const name of names.length > 0 ? names : MODELS.map(({ name }) => name)) {
    const { file } = make(name);
    console.log(file, JSON.stringify(typesOf(file)));
  }
}
