/**
 * `node tests/bench/compare.mjs COMMIT [options]`, which is what `make bench COMPARE=COMMIT` runs: is this tree faster
 * than that commit, and how sure is that?  It builds the commit in build/bench/compare and lets both compute the same
 * in turn, in Node with the package.  The order within a pair changes, so that other load affects both equally.  For
 * each measure it prints the median of the pairs' ratios with an interval of 99 % by the bootstrap (ratio.mjs): a
 * change is real if the interval does not contain 1.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { randomOf } from '../random.mjs';
import { NODE, Program } from './engines.mjs';
import { promptOf } from './prompt.mjs';
import { ratioOf, verdictOf } from './ratio.mjs';

const HELP = `node tests/bench/compare.mjs COMMIT [options]
  --quick          2 minutes with one model
  --full           2 hours, with 1 and with 2 threads
  --minutes N      of measuring, 15 if nothing else is said
  --models A,B     files
  --prompts N,N    tokens of a prefill
  --contexts N,N   tokens before a decode
  --steps N        tokens of a decode
  --threads N,N    1 or 2`;
const SMALL = 'models/SmolLM2-135M-Instruct.Q4_1.gguf';
const LARGER = 'models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf';
const usual = { minutes: '15', models: `${SMALL},${LARGER}`, prompts: '8,128', contexts: '64', steps: '16',
  threads: '1' };
const flag = /** @type {const} */ ({ type: 'boolean' }), text = /** @type {const} */ ({ type: 'string' });
const { values, positionals: [commit] } = parseArgs({
  allowPositionals: true, options: { quick: flag, full: flag, help: flag, minutes: text, models: text, prompts: text,
    contexts: text, steps: text, threads: text },
});
if (values.help || !commit) {
  console.log(HELP);
  process.exit(values.help ? 0 : 2);
}
const options = { ...usual, ...values.quick && { minutes: '2', models: SMALL },
  ...values.full && { minutes: '120', prompts: '2,8,128,512', contexts: '64,1024', threads: '1,2' }, ...values };
const list = (/** @type {string} */ words) => words.split(',').filter(Boolean);
const prompts = list(options.prompts).map(Number), contexts = list(options.contexts).map(Number);
const steps = Number(options.steps), most = Math.max(...prompts, ...contexts.map(n => n + steps));

/** Builds a commit in a folder of its own, with the compilers and modules that this tree has. @returns {string} */
function build() {
  const { status, stdout, stderr } = spawnSync('git', ['rev-parse', '--short=12', `${commit}^{commit}`],
    { encoding: 'utf8' });
  if (status !== 0) {
    console.error(`compare: ${commit} is no commit of this repository: ${stderr.trim()}`);
    process.exit(2);
  }
  const id = stdout.trim();
  const folder = resolve('build/bench/compare', id);
  if (!existsSync(`${folder}/built`)) {
    console.log(`builds ${id}, some minutes`);
    rmSync(folder, { recursive: true, force: true });
    execFileSync('git', ['clone', '-q', '--no-checkout', '.', folder]);
    execFileSync('git', ['-C', folder, 'checkout', '-q', id]);
    symlinkSync(resolve('web/node_modules'), `${folder}/web/node_modules`);
    mkdirSync(`${folder}/build`);
    symlinkSync(resolve('build/setup'), `${folder}/build/setup`);
    execFileSync('make', ['-s', '-C', folder, '-j2', 'build'], { stdio: ['ignore', 'ignore', 'inherit'] });
    mkdirSync(`${folder}/built`);
  }
  return folder;
}

/** @typedef {{name: string, measure: (engine: Program) => Promise<number>, pairs: [number, number][]}} Cell */

/** @param {string} folder @param {string} model @param {string} threads @param {number[]} ids */
async function open(folder, model, threads, ids) {
  const engine = new Program([resolve(NODE), 'tests/bench/node.mjs', 'plumb'], threads, folder);
  await engine.open(resolve(model), most + 64);
  await engine.setPrompt(ids);
  for (const from = Date.now(); Date.now() - from < 2000;) await engine.decode(prompts[0], 4);   // warms it up
  return engine;
}

/** Measures pairs of one model until the time is over. @param {string[]} folders  of before and after
 * @param {string} model @param {string} threads @param {number} seconds */
async function compare(folders, model, threads, seconds) {
  const { ids } = await promptOf(model, [...prompts, ...contexts], most), random = randomOf(Date.now());
  const engines = await Promise.all(folders.map(folder => open(folder, model, threads, ids)));
  /** @type {Cell[]} */
  const cells = [
    ...prompts.map(n => ({ name: `prefill ${n}`, pairs: [],
      measure: (/** @type {Program} */ engine) => engine.prefill(n) })),
    ...contexts.map(n => ({ name: `decode at ${n}`, pairs: [],
      measure: async (/** @type {Program} */ engine) => {
        await engine.decode(n, 2);   // the other one was running: wakes this one up, and computes the context
        return engine.decode(n, steps);
      } })),
  ];
  for (const end = Date.now() + 1000 * seconds; Date.now() < end || cells[0].pairs.length < 8;) {
    for (const cell of cells) {
      /** @type {[number, number]} */
      const pair = [0, 0], first = random() < 0.5 ? 0 : 1;
      for (const i of [first, 1 - first]) pair[i] = await cell.measure(engines[i]);
      cell.pairs.push(pair);
    }
  }
  for (const engine of engines) await engine.close();
  for (const { name, pairs } of cells) {
    const found = ratioOf(pairs), show = (/** @type {number} */ n) => n.toFixed(3);
    console.log(`${model}, threads: ${threads}, ${name}: ${show(found.ratio)} times as fast, ${show(found.low)} to ${
      show(found.high)} with 99 %, ${pairs.length} pairs: ${verdictOf(found)}`);
  }
}

const folders = [build(), resolve('.')], models = list(options.models), threads = list(options.threads);
for (const model of models) {
  for (const n of threads) {
    await compare(folders, model, n, 60 * Number(options.minutes) / models.length / threads.length);
  }
}
