/**
 * Compares every tap of plumb's two passes with llama.cpp's, layer by layer, on SmolLM2, on Gemma 3, on seven synthetic
 * models of TinyLlama's shape and one of Granite's, with the commands of a user: `plumb trace` and `plumb diff`.
 *
 *   node tests/layers.mjs            prints a line for each model; exit code 1 if a limit is passed
 *   node tests/layers.mjs --write    native only: also writes docs/layers.md, with the effect of quantization
 *
 * PLUMB is the command line under test, as in tests/cli.  PYTHON has numpy and gguf, of the versions below, and makes
 * the missing synthetic models (2 GB in models/).  --write needs LLAMA_QUANTIZE, llama.cpp's tool.
 */
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { createReadStream, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { command, plumb, smol } from './cli/plumb.mjs';

const vectors = 'tests/vectors/layers', scratch = 'build/layers';
const synthetics = [...['Q4_0', 'Q4_K', 'Q5_K', 'Q6_K', 'Q8_0', 'F16', 'F32'].map((type) => `tinyllama-2l.${type}`),
  'granite-2l.Q4_K'];
const real = {
  smollm2: { path: smol, about: '30 layers, 576 wide, 9 query heads and 3 K/V heads, Q4_1; the real '
    + 'SmolLM2-135M-Instruct.' },
  gemma3: { path: 'models/gemma-3-270m.Q4_K_M.gguf', about: '18 layers, 640 wide, 4 query heads of 256 and one K/V '
    + 'head, Q4_K_M; the real Gemma 3 270M.  llama.cpp has no name for its `attn_out`.' },
};
const shapes = { tinyllama: '32 query heads and 4 K/V heads',
  granite: '32 query heads and 8 K/V heads, Granite\'s factors' };
const limits = { reference: 1e-5, first: 1e-3, result: 1e-2 };
const passes = { reference: ['--reference'], fast: [] };

/** @typedef {{tap: string, layer: number | null, error: number}} Tap */

mkdirSync(scratch, { recursive: true });

/* ---- models ---- */

const sums = Object.fromEntries(readFileSync(`${vectors}/sha256`, 'utf8').trim().split('\n')
  .map((line) => line.split(/\s+/).reverse()));

/** A synthetic model, made if it is missing; its bytes must be those that llama.cpp was given. */
async function synthetic(shape, type) {
  const name = `${shape}-2l.${type}.gguf`, path = `models/${name}`;
  if (!existsSync(path)) {
    execFileSync(process.env.PYTHON ?? 'python3',
      ['models/synth.py', path, '--shape', shape, '--layers', '2', '--type', type], { stdio: 'inherit' });
  }
  const hash = createHash('sha256');
  for await (const piece of createReadStream(path)) hash.update(piece);
  if (hash.digest('hex') !== sums[name]) {
    throw new Error(`${path} is not the file that llama.cpp was given (tests/vectors/layers/sha256): remove it, and ` +
      'let PYTHON be one with numpy 2.4.6 and gguf 0.19.0');
  }
  return path;
}

/** The model's weights in another type, by llama-quantize. */
function quantized(path, name, type) {
  const out = `${scratch}/${name}.${type}.gguf`;
  if (!existsSync(out)) {
    execFileSync(process.env.LLAMA_QUANTIZE, ['--allow-requantize', path, out, type], { stdio: 'ignore' });
  }
  return out;
}

/* ---- commands ---- */

/** Runs plumb; exit code 1 of a diff means that the sides diverge. @returns {Promise<string>} standard output */
async function run(args, codes = [0]) {
  const { code, out, err } = await plumb(args);
  if (!codes.includes(Number(code))) throw new Error(`plumb ${args.join(' ')}: exit code ${code}: ${err}`);
  return out;
}

async function trace(model, tokens, out, args) {
  await run(['trace', model, '--tokens', tokens.join(','), ...args, '--values', 'all', '-o', out]);
  return out;
}

/** @returns {Promise<Tap[]>} */
async function diff(a, b) {
  const { taps } = JSON.parse(await run(['diff', a, b, '--json'], [0, 1]));
  return taps;
}

/** Both passes of one model. */
async function measure(name, model) {
  const truth = `${vectors}/${name}.json`, { tokens } = JSON.parse(readFileSync(truth, 'utf8'));
  const result = {};
  for (const [pass, args] of Object.entries(passes)) {
    const file = await trace(model, tokens, `${scratch}/${name}.${pass}.gguf`, args);
    result[pass] = await diff(file, truth);
    rmSync(file);
  }
  return result;
}

/* ---- errors ---- */

const own = readFileSync(`${vectors}/own.txt`, 'utf8').trim().split('\n').map((line) => line.split(' '));
/** llama.cpp's own pass on the quantized file. @returns {Tap[]} */
const ownTaps = (name) => own.filter(([model]) => model === name).map(([, tap, error]) =>
  ({ tap, layer: /-\d+$/.test(tap) ? Number(tap.split('-')[1]) : null, error: Number(error) }));

/** @param {Tap[]} taps */
const largest = (taps) => taps.reduce((a, b) => (b.error > a.error ? b : a));
const errorOf = (taps, tap) => taps.find((t) => t.tap === tap)?.error ?? NaN;
const inLayer = (taps, layer) => taps.filter((t) => t.layer === layer);
const show = (error) => (error === 0 ? '0' : error.toExponential(1));

/** @returns {string[]} the violated limits */
function failures(name, { reference, fast }, nTap) {
  const found = [];
  const check = (what, error, limit) => {
    if (!(error <= limit)) found.push(`${name}: ${what}: ${error}, the limit is ${limit}`);
  };
  for (const [pass, taps] of Object.entries({ reference, fast })) {
    if (taps.length !== nTap) found.push(`${name}: ${taps.length} taps of the ${pass} pass, not ${nTap}`);
  }
  for (const { tap, error } of reference) check(`reference pass, ${tap}`, error, limits.reference);
  for (const { tap, error } of inLayer(fast, 0)) check(`fast pass, ${tap}`, error, limits.first);
  check('fast pass, result_norm', errorOf(fast, 'result_norm'), limits.result);
  return found;
}

/* ---- the document ---- */

const row = (cells) => `| ${cells.join(' | ')} |`;
const head = (cells) => [row(cells), row(cells.map((_, i) => (i ? '---:' : '---')))];

function summary(models) {
  return [...head(['model', 'reference: worst tap', 'fast: worst of layer 0', 'fast: `result_norm`',
    'fast: `result_output`', 'llama.cpp: worst of layer 0', 'llama.cpp: `result_norm`',
    'llama.cpp: `result_output`']),
  ...models.map(({ name, reference, fast, theirs }) => row([name, `${show(largest(reference).error)}`,
    ...[fast, theirs].flatMap((taps) => [largest(inLayer(taps, 0)).error, errorOf(taps, 'result_norm'),
      errorOf(taps, 'result_output')].map(show))]))];
}

const nameOf = (tap) => tap.replace(/-\d+$/, '');
/** @param {Tap[]} taps  of a model @returns {string[]} the names of its taps, without layers */
const namesOf = (taps) => [...new Set(taps.map((t) => nameOf(t.tap)))];
const worstOf = (taps, name) => largest(taps.filter((t) => nameOf(t.tap) === name));

/** All taps of a real model: layer 0 and the worst layer. */
function table({ reference, fast, theirs }) {
  const worst = (taps, name) => {
    const { error, layer } = worstOf(taps, name);
    return layer === null ? show(error) : `${show(error)} (${layer})`;
  };
  const first = (taps, name) => taps.filter((t) => t.tap === `${name}-0`).map((t) => show(t.error)).join('');
  return [...head(['tap', 'reference: worst', 'fast: layer 0', 'worst', 'llama.cpp: layer 0', 'worst']),
    ...namesOf(fast).map((name) => row([`\`${name}\``, worst(reference, name),
      ...[fast, theirs].flatMap((taps) => [first(taps, name), worst(taps, name)])]))];
}

/** All taps of the synthetic models, the worse of their two layers: the fast pass, llama.cpp. */
function syntheticTable(models) {
  return [...head(['tap', ...models.map(({ name }) => name)]),
    ...namesOf(models[0].fast).map((name) => row([`\`${name}\``, ...models.map(({ fast, theirs }) =>
      [fast, theirs].map((taps) => show(worstOf(taps, name).error)).join(', '))]))];
}

/** The same weights in four types against F32: every fifth l_out and the last one, and the logits. */
async function quantizations(name, f32, tokens) {
  const kinds = ['F16', 'Q8_0', 'Q4_K_M', 'Q4_0'];
  const base = await trace(f32, tokens, `${scratch}/${name}.base.gguf`, ['--taps', 'embd,l_out,result_output']);
  const columns = [];
  for (const kind of kinds) {
    const file = await trace(quantized(f32, name, kind), tokens, `${scratch}/${name}.kind.gguf`,
      ['--taps', 'embd,l_out,result_output']);
    columns.push(await diff(file, base));
    rmSync(file);
  }
  rmSync(base);
  return [...head(['tap', ...kinds]),
    ...columns[0].filter(({ layer }, i) => layer === null || layer % 5 === 0 || columns[0][i + 1].layer === null)
      .map(({ tap }) => row([`\`${tap}\``, ...columns.map((taps) => show(errorOf(taps, tap)))]))];
}

async function document(models) {
  const version = (await run(['--version'])).trim().replace(/^plumb /, '');
  const smolF32 = quantized(smol, 'smollm2', 'F32'), tokens = (name) =>
    JSON.parse(readFileSync(`${vectors}/${name}.json`, 'utf8')).tokens;
  const lines = [
    '# By layer: plumb and llama.cpp', '',
    '<!-- Written by `node tests/layers.mjs --write`. -->', '',
    'The tables show the relative RMS error of every tap against llama.cpp on the same weights in F32: per token',
    '|a - b| / |b|, then the root mean square over the tokens.  *reference* and *fast* are plumb\'s two passes on',
    'the file itself.  *llama.cpp* is llama.cpp\'s own pass on that file; it rounds activations to 8 bits (to f16',
    'for F16).', '',
    'The truth is `tests/vectors/layers` (llama.cpp v0.5.0, CPU, AVX2, one thread, KV cache in F32): 12 values (24 of',
    'Gemma 3), the mean, the RMS and the extremes of each row, of which the largest difference counts.  The mean and',
    'the RMS have 6 digits there, whose rounding alone gives about 2e-6 (see `embd`).  llama.cpp\'s own pass was',
    'compared over whole rows.  If a few components are huge, as in SmolLM2, 12 values usually overstate an error:',
    'over whole rows of 7 tokens the error of the fast pass was 2.3e-4 at `result_norm` and 4.7e-4 at the worst tap,',
    'and that of the reference pass 2.3e-6.', '',
    '    node tests/layers.mjs                              # checks, and makes the synthetic models (2 GB)',
    '    LLAMA_QUANTIZE=... node tests/layers.mjs --write   # writes this page',
    `    plumb trace ${smol} --values all -o mine.gguf \\`,
    `        --tokens ${tokens('smollm2').join(',')}`,
    '    plumb diff mine.gguf tests/vectors/layers/smollm2.json', '',
    `plumb ${version}, native, ${cpus()[0].model}, ${new Date().toISOString().slice(0, 10)}.  The script checks these`,
    `limits: reference pass ${show(limits.reference)} at every tap; fast pass ${show(limits.first)} in layer 0,`,
    `${show(limits.result)} at \`result_norm\`.`, '',
    ...summary(models), '',
  ];
  for (const model of models.filter(({ name }) => real[name]))
    lines.push(`## ${model.name}`, '', `${model.about}  The number of the worst layer is in parentheses.`, '',
      ...table(model), '');
  lines.push('## Synthetic models', '', 'Random weights in 2 layers, 2048 wide; tinyllama has '
    + `${shapes.tinyllama}, granite ${shapes.granite}.  Each cell has the worse layer: the fast pass, llama.cpp.`, '',
  ...syntheticTable(models.filter(({ name }) => !real[name])), '');
  lines.push('## Quantization alone', '',
    'These tables compare the fast pass on weights in F32 with the same weights after `llama-quantize`.  They show',
    'the error of an engine that computes everything correctly but on a file of another type.  An error far above',
    'these figures is not quantization.', '',
    '    llama-quantize F32.gguf Q4_K_M.gguf Q4_K_M',
    '    plumb trace F32.gguf --tokens ... --taps embd,l_out,result_output --values all -o f32.trace.gguf',
    '    plumb trace Q4_K_M.gguf --tokens ... --taps embd,l_out,result_output --values all -o q4.trace.gguf',
    '    plumb diff q4.trace.gguf f32.trace.gguf', '',
    '### TinyLlama\'s shape, random weights', '',
    ...await quantizations('tinyllama-2l', 'models/tinyllama-2l.F32.gguf', tokens('tinyllama-2l.F32')), '',
    '### SmolLM2', '',
    'F32 has the values of its Q4_1 file, so Q4_0 and Q4_K_M round a second time.  Its embedding is Q8_0, which only',
    'F16 changes.  Its rows of 576 fit no K-quant: llama-quantize uses Q5_0 and Q8_0 for them, and Q4_K and Q6_K for',
    'the rows of 1536.', '',
    ...await quantizations('smollm2', smolF32, tokens('smollm2')), '');
  return lines.join('\n');
}

/* ---- main ---- */

const write = process.argv.includes('--write'), models = [], found = [];
for (const name of [...Object.keys(real), ...synthetics]) {
  const [shape, type] = name.split(/-2l\./), path = type ? await synthetic(shape, type) : real[name].path;
  const model = { name, about: real[name]?.about, theirs: ownTaps(name), ...await measure(name, path) };
  models.push(model);
  const wrong = failures(name, model, model.theirs.length);
  found.push(...wrong);
  const first = largest(inLayer(model.fast, 0)), worst = largest(model.fast);
  console.log(`${wrong.length ? 'FAIL' : 'ok  '} ${name.padEnd(18)} reference ${show(largest(model.reference).error)}` +
    `   fast: layer 0 ${show(first.error)} (${first.tap}), worst ${show(worst.error)} (${worst.tap}), ` +
    `result_norm ${show(errorOf(model.fast, 'result_norm'))}`);
}
for (const line of found) console.log(`     ${line}`);
if (write && !found.length) writeFileSync('docs/layers.md', await document(models));
console.log(`${models.length - new Set(found.map((line) => line.split(':')[0])).size} passed, ` +
  `${new Set(found.map((line) => line.split(':')[0])).size} failed`);
process.exitCode = found.length ? 1 : 0;
