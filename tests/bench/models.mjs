/**
 * `node tests/bench/models.mjs [NAME...]` makes the missing files that the bench measures, in models/bench/: the
 * default model in other types by llama.cpp's own quantizer, and files of random weights in the shapes of TinyLlama
 * 1.1B, of a wider SmolLM2 135M, of Qwen3 0.6B, of half of OLMoE 1B-7B, and of models that are no plain transformers
 * (shapes.py).  Gemma 3 270M and both Qwen2.5-Coder are those of models/manifest.json.  Rows of SmolLM2 have 576
 * weights, which is not a multiple of 256: there llama.cpp replaces K-quants by other types (Q4_K by Q5_0, Q6_K by
 * Q8_0), so the bench reports the types in each file.
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
/** SmolLM2 with rows of 768 instead of 576 weights, which superblocks can fill. */
const wide = (type) => ({
  name: `wide-${type}`, title: `768 wide ${type}`, random: true, file: `${FOLDER}/smollm2-768.${type}.gguf`,
  make: (out) => python('models/synth.py', out, '--shape', 'smollm2', '--type', type),
});
/** The types of `bench.mjs --types`. */
export const WIDE = ['Q6_K', 'IQ2_XS', 'IQ3_S', 'IQ4_XS', 'TQ2_0', 'MXFP4'].map(wide);
const synthetic = (name, title, file, ...options) => ({
  name, title, random: true, file: `${FOLDER}/${file}`,
  make: (out) => python('models/synth.py', out, ...options),
});
/** Shapes that are no plain transformers; see shapes.py. */
const shaped = (name, title) => ({
  name, title: `${title}-shaped Q4_0`, random: true, file: `${FOLDER}/${name}.Q4_0.gguf`,
  make: (out) => python('tests/bench/shapes.py', out, name),
});
/** The models of `bench.mjs --hybrids`. */
export const HYBRIDS = [
  shaped('lfm2-350m', 'LFM2-350M'), shaped('qwen3.5-0.8b', 'Qwen3.5-0.8B'),
  shaped('gemma4-e2b', 'Gemma 4 E2B (10 of 35 layers)'), shaped('granite-4-h-350m', 'Granite 4 H 350M'),
  shaped('falcon-h1-0.5b', 'Falcon-H1-0.5B'), shaped('rwkv7-0.1b', 'RWKV7-0.1B'),
];
const fetched = (name, title, file, entry) => ({
  name, title, file: `models/${file}`, make: () => execFileSync('python3', ['models/fetch.py', entry]),
});
export const MODELS = [
  ...['Q4_0', 'Q4_1', 'Q5_0', 'Q8_0', 'Q4_K_M', 'Q5_K_M', 'Q6_K', 'F16', 'F32'].map(smollm2),
  ...['Q4_0', 'Q4_K', 'Q5_K', 'Q6_K', 'F32'].map(tinyllama),
  fetched('gemma3-270m', 'Gemma 3 270M Q4_K_M', 'gemma-3-270m.Q4_K_M.gguf', 'gemma-3-270m-q4_k_m'),
  synthetic('qwen3-0.6b', 'Qwen3-0.6B-shaped Q4_K_M', 'qwen3-0.6b.Q4_K_M.gguf',
    '--shape', 'qwen3', '--type', 'Q4_K_M', '--context', '8192'),
  // Half of OLMoE's 16 layers: a file of 2 GB, the most that wllama opens in one piece.  Layers are as in OLMoE.
  synthetic('olmoe', 'OLMoE-shaped Q4_0, 8 of 16 layers', 'olmoe-8l.Q4_0.gguf',
    '--shape', 'olmoe', '--type', 'Q4_0', '--layers', '8'),
  fetched('qwen2.5-0.5b', 'Qwen2.5-Coder 0.5B Instruct Q4_K_M', 'qwen2.5-coder-0.5b-instruct-q4_k_m.gguf',
    'qwen2.5-coder-0.5b-instruct-q4_k_m'),
  fetched('qwen2.5-1.5b', 'Qwen2.5-Coder 1.5B Instruct Q4_K_M', 'qwen2.5-coder-1.5b-instruct-q4_k_m.gguf',
    'qwen2.5-coder-1.5b-instruct-q4_k_m'),
  ...WIDE, ...HYBRIDS,
];

/** The model with that name; makes its file if it is missing. */
export function make(name) {
  const model = MODELS.find(model => model.name === name);
  if (!model) throw new Error(`no model ${name}; there are ${MODELS.map(({ name }) => name).join(', ')}`);
  if (!existsSync(model.file)) {
    mkdirSync(FOLDER, { recursive: true });
    console.error(`bench: makes ${model.file}`);
    model.make(`${model.file}.part`);
    if (existsSync(`${model.file}.part`)) renameSync(`${model.file}.part`, model.file);
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
