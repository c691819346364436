/**
 * `node tests/bench/bench.mjs [options]`, which is what `make bench` runs: plumb on its hosts beside wllama in the same
 * Chromium and native llama.cpp, with the same files and tokens.  Writes bench/results/DATE-MACHINE.json with every
 * single run, and from it docs/speed.md and docs/speed.svg (report.mjs).
 *
 * Runs rotate: A, B, C, A, B, C ..., so that other load on the machine affects all equally.  Engines stay loaded for a
 * model if memory allows; otherwise each round loads, measures and closes one engine after another.
 */
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { accuracyOf } from './accuracy.mjs';
import { embeddings } from './embeddings.mjs';
import { ENGINES, closeChromium, reason, within } from './engines.mjs';
import { loadsOf } from './load.mjs';
import { describe, slug } from './machine.mjs';
import { median } from './median.mjs';
import { HYBRIDS, make, MODELS, typesOf, WIDE } from './models.mjs';
import { promptOf } from './prompt.mjs';
import { report } from './report.mjs';

const WASM_PEERS = ['llama.cpp-wasm', 'llama.cpp-wasm-plain', 'wllama-2', 'wllama-3'].map(name => `${name}/chromium/1`)
  .join();
const PROFILES = {
  quick: { models: 'Q4_0', prompts: '32,128', contexts: '64', repeats: '2', steps: '8', limit: '20', enough: '4' },
  usual: { models: 'Q4_0,Q8_0,Q4_K_M,wide-Q6_K,wide-IQ4_XS,wide-MXFP4,qwen2.5-0.5b,qwen2.5-1.5b', prompts: '128',
    contexts: '128', repeats: '3', steps: '24', limit: '90', enough: '15', engines: ['plumb/chromium', 'plumb/node/1',
      'plumb8/chromium/1', 'plumb/wasmtime', 'wllama', 'llama.cpp-wasm/chromium', 'llama.cpp-wasm-plain/chromium',
      'llama.cpp-wasm/node/1', 'llama.cpp-wasm-plain/node/1', 'llama.cpp/native', 'llama.cpp-built/native'].join() },
  architectures: { models: 'gemma3-270m,qwen3-0.6b,olmoe', prompts: '128', contexts: '64', repeats: '3',
    steps: '16', limit: '60', enough: '45', engines: `plumb/chromium/1,${WASM_PEERS},llama.cpp-built/native/1` },
  types: { models: WIDE.map(({ name }) => name).join(), prompts: '32', contexts: '32', repeats: '3', steps: '8',
    limit: '120', enough: '60', engines: `plumb/chromium/1,${WASM_PEERS}` },
  browsers: { models: 'Q4_0,Q8_0,Q4_K_M', prompts: '128', contexts: '128', repeats: '3', steps: '24', limit: '60',
    enough: '15', engines: ['chromium', 'firefox', 'webkit'].flatMap(host => ['plumb', 'plumb8', 'llama.cpp-wasm',
      'llama.cpp-wasm-plain', 'wllama-2'].map(name => `${name}/${host}/1`)).join() },
  hybrids: { models: HYBRIDS.map(({ name }) => name).join(), prompts: '256', contexts: '128', repeats: '3', steps: '16',
    limit: '90', enough: '45',
    engines: `plumb/chromium/1,plumb8/chromium/1,${WASM_PEERS}` },
  full: { models: MODELS.filter(model => ![...WIDE, ...HYBRIDS].includes(model)).map(({ name }) => name).join(),
    prompts: '32,512,2048', contexts: '128,1024,4096', repeats: '3', steps: '32', limit: '90', enough: '15',
    accuracy: true },
};
const HELP = `node tests/bench/bench.mjs [options]
  --quick, --full, --architectures, --types, --hybrids, --browsers
                       fewer, more or other models, lengths and hosts: see PROFILES in tests/bench/bench.mjs
  --embeddings         embeddings per second instead, of --texts 256: see tests/bench/embeddings.mjs
  --models A,B         of ${MODELS.map(({ name }) => name).join(' ')}
  --engines A,B        those whose id contains one of these: ${ENGINES.map(({ id }) => id).join(' ')}
  --prompts N,N        tokens of a prefill
  --contexts N,N       tokens before a decode
  --steps N            tokens of a decode
  --repeats N          runs of every engine
  --limit S            a run that would take longer is not begun
  --enough S           an engine that has spent this long on a measure is not repeated
  --accuracy           against the reference pass too, some minutes a model; a part of --full
  --no-speed, --no-load
  --no-report          leaves docs/ as it is, as --no-speed does
  --out FILE           where the results go`;

const flag = { type: 'boolean' }, text = { type: 'string' };
const { values: given } = parseArgs({
  options: {
    quick: flag, full: flag, architectures: flag, types: flag, hybrids: flag, browsers: flag, models: text,
    engines: text, prompts: text, contexts: text, steps: text, repeats: text, limit: text, enough: text, accuracy: flag,
    'no-speed': flag, 'no-load': flag, embeddings: flag, texts: text, 'no-report': flag, out: text, help: flag,
  },
});
if (given.help) {
  console.log(HELP);
  process.exit();
}
if (given.embeddings) {
  await embeddings(given);
  process.exit();
}
const profile = Object.keys(PROFILES).find(name => given[name]) ?? 'usual';
const options = { engines: '', ...PROFILES[profile], ...given };
const list = (text) => text.split(',').filter(Boolean);
const numbers = (text) => list(text).map(Number).sort((a, b) => a - b);
const prompts = numbers(options.prompts), contexts = numbers(options.contexts);
const steps = Number(options.steps), repeats = Number(options.repeats);
const limit = Number(options.limit), enough = Number(options.enough);
const engines = ENGINES.filter(({ id }) =>
  options.engines === '' || list(options.engines).some(part => id.includes(part)));
const nCtx = Math.max(...prompts, ...contexts.map(n => n + steps), 64) + 512;

const WARM_SECONDS = 2;
/** Untimed steps before a decode: while others ran, the system may have taken back pages of this engine's memory. */
const WAKE_STEPS = 8;
/** An engine that has not loaded or warmed up by then is considered to hang. */
const START_SECONDS = 300;
/** Bytes of memory that an engine takes per byte of the file, to decide whether all engines fit. */
const FOOTPRINT = { plumb: 1.2, plumb16: 1.2, plumb8: 1.2, plumb64: 1.2, 'wllama-2': 2.5, 'wllama-3': 4.5,
  'llama.cpp': 2, 'llama.cpp-built': 2, 'llama.cpp-wasm': 2.2, 'llama.cpp-wasm-plain': 2.2 };

// ---- results, saved after every run ----

/** A file name that does not exist yet: this name, or this name with a number. */
function unused(name) {
  for (let i = 1; ; i++) {
    const file = `${name}${i > 1 ? `-${i}` : ''}.json`;
    if (!existsSync(file)) return file;
  }
}

const started = Date.now();
const results = {
  ...describe(), command: ['node', 'tests/bench/bench.mjs', ...process.argv.slice(2)].join(' '),
  options: { prompts, contexts, steps, repeats, limit, enough, nCtx },
  models: [], engines: [], runs: [], loads: [], accuracy: [],
};
const out = options.out ?? unused(`bench/results/${results.date}-${slug(results.machine)}`);
mkdirSync(out.replace(/[^/]*$/, './'), { recursive: true });
const save = () => writeFileSync(out, `${JSON.stringify(results, null, 1)}\n`);

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, '0')}`;
/** Shares of the whole work, in tokens times bytes of a model. */
const work = { done: 0, all: 0 };
function log(text) {
  const gone = (Date.now() - started) / 1000;
  const left = work.done > 0 && work.done < work.all && clock(gone / work.done * (work.all - work.done));
  console.log(`[${clock(gone)}${left ? `, about ${left} left` : ''}] ${text}`);
}

// ---- speed ----

const cells = [
  ...prompts.map(n => ({ kind: 'prefill', n, tokens: n, work: n })),
  ...contexts.map((n, i) => ({ kind: 'decode', n, tokens: steps, work: n - (contexts[i - 1] ?? 0) + steps * repeats })),
];
const title = ({ kind, n }) => kind === 'prefill' ? `prefill ${n}` : `decode at ${n}`;

/** One engine on one model: its runs, one for each cell, and what is known of it so far. */
class Entry {
  constructor(engine, model, prompt) {
    Object.assign(this, { engine, model, prompt, open: null, rate: 0, context: 0, dead: '' });
    this.runs = new Map(cells.map(cell =>
      [cell, { model: model.name, engine: engine.id, kind: cell.kind, n: cell.n, tokens: cell.tokens, seconds: [] }]));
  }

  fail(error) {
    this.dead = reason(error);
    log(`${this.engine.id}: ${this.dead}`);
  }

  async start() {
    if (this.open || this.dead) return;
    const engine = this.engine.create();
    try {
      this.about = await within(START_SECONDS, engine.open(this.model.file, nCtx));
      this.open = engine;
      this.context = 0;
      await engine.setPrompt(this.prompt.ids, this.prompt.texts);
      const shortest = Math.min(...Object.keys(this.prompt.texts).map(Number));
      for (const from = Date.now(); Date.now() - from < WARM_SECONDS * 1000;) {
        this.rate = shortest / await within(START_SECONDS, engine.prefill(shortest));
        await within(START_SECONDS, engine.decode(shortest, 4));
      }
    } catch (error) {
      this.fail(error);
      await engine.close();
    }
  }

  async stop() {
    const open = this.open;
    this.open = null;
    await open?.close().catch(error => this.fail(error));
  }

  /** One run of a cell, or the stored reason why it cannot run. */
  async run(cell) {
    const run = this.runs.get(cell);
    if (this.dead) run.error ??= this.dead;
    if (!this.open || run.error || run.skipped || run.seconds.length >= repeats) return;
    if (run.seconds.reduce((sum, s) => sum + s, 0) > enough) return;
    // The context before a decode is computed once while the engine stays open.
    const before = cell.kind === 'decode' ? Math.max(0, cell.n - this.context) : 0;
    const expected = (before + cell.tokens) / this.rate;
    if (expected > limit) {
      run.skipped = `not run: it would take about ${Math.round(expected)} s, and the limit is ${limit} s`;
      return;
    }
    try {
      if (cell.kind === 'decode') await within(START_SECONDS + 10 * expected, this.open.decode(cell.n, WAKE_STEPS));
      const seconds = await within(START_SECONDS + 10 * expected,
        cell.kind === 'prefill' ? this.open.prefill(cell.n) : this.open.decode(cell.n, steps));
      run.seconds.push(seconds);
      this.context = cell.n;
      if (cell.kind === 'prefill') this.rate = cell.tokens / seconds;
    } catch (error) {
      this.fail(error);
      run.error = this.dead;
      await this.stop();
    }
  }
}

function logSpeeds(entries, cell) {
  const speeds = entries.map(entry => {
    const run = entry.runs.get(cell);
    return `${entry.engine.id} ${run.seconds.length ? (cell.tokens / median(run.seconds)).toFixed(1)
      : run.error ? 'failed' : 'not run'}`;
  });
  log(`${entries[0].model.name}, ${title(cell)}, tokens/s: ${speeds.join(', ')}`);
}

function memoryAvailable() {
  const line = existsSync('/proc/meminfo') && /MemAvailable: *(\d+)/.exec(readFileSync('/proc/meminfo', 'utf8'));
  return line ? 1024 * Number(line[1]) : 8e9;
}

async function race(model) {
  const bytes = statSync(model.file).size;
  const lengths = [...new Set([...prompts, ...contexts])];
  const prompt = await promptOf(model.file, lengths, Math.max(...prompts, ...contexts.map(n => n + steps)));
  const entries = engines.map(engine => new Entry(engine, model, prompt));
  results.runs.push(...entries.flatMap(({ runs }) => [...runs.values()]));
  const share = (some) => { work.done += some * bytes; };
  const needed = engines.reduce((sum, { name }) => sum + FOOTPRINT[name] * bytes, 0);
  if (needed < 0.6 * memoryAvailable()) {
    for (const entry of entries) await entry.start();
    for (const cell of cells) {
      for (let i = 0; i < repeats; i++) for (const entry of entries) await entry.run(cell);
      share(cell.work);
      logSpeeds(entries, cell);
      save();
    }
    for (const entry of entries) await entry.stop();
  } else {
    log(`${model.name}: one engine at a time, all together would take ${(needed / 1e9).toFixed(0)} GB`);
    for (let i = 0; i < repeats; i++) {
      for (const entry of entries) {
        await entry.start();
        for (const cell of cells) await entry.run(cell);
        await entry.stop();
        share(cells.reduce((sum, cell) => sum + cell.work, 0) / repeats / entries.length);
        save();
      }
    }
    for (const cell of cells) logSpeeds(entries, cell);
  }
  for (const { engine, about } of entries) {
    if (about) results.engines.push({ model: model.name, engine: engine.id, ...about });
  }
}

try {
  const models = list(options.models).map(make);
  const bytes = (model) => statSync(model.file).size;
  for (const model of models) {
    results.models.push({ name: model.name, title: model.title, bytes: bytes(model), types: typesOf(model.file) });
    if (!given['no-speed']) work.all += bytes(model) * cells.reduce((sum, cell) => sum + cell.work, 0);
  }
  if (!given['no-speed']) {
    for (const model of models) {
      log(`${model.title}, ${(bytes(model) / 1e6).toFixed(0)} MB, ${engines.length} engines`);
      await race(model);
      save();
    }
  }
  if (!given['no-load']) {
    for (const model of models) {
      results.loads.push(...await loadsOf(model, log));
      save();
    }
  }
  if (options.accuracy) {
    for (const model of models.filter(({ random }) => !random)) {
      results.accuracy.push(await accuracyOf(model, log, { chunks: given.quick ? 1 : 4 }));
      save();
    }
  }
} finally {
  results.seconds = (Date.now() - started) / 1000;
  save();
  await closeChromium();
}
log(`all runs are in ${out}`);
if (given['no-speed']) log(`node tests/bench/report.mjs SPEED.json ${out} puts them beside those of another run`);
else if (!given['no-report']) report([results]);
