/**
 * `node tests/bench/report.mjs RESULTS.json...` writes the tables of docs/speed.md, between its two markers, and
 * docs/speed.svg.  If several files have the same measurement, the last one is used.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { median } from './median.mjs';
import { plot } from './plot.mjs';

const HOSTS = { chromium: 'Chromium', firefox: 'Firefox', webkit: 'WebKitGTK', wasmtime: 'wasmtime',
  native: 'native' };

const three = (x) => x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
const MB = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
const key = ({ model, engine, kind, n, threads }) => [model, engine, kind, n, threads].join(' ');
const merge = (all, name) => [...new Map(all.flatMap(results => results[name].map(row => [key(row), row]))).values()];
/** @param {string} [rest]  alignment of the columns after the first */
export const table = (head, rows, rest = '---:') => [head, head.map((_, i) => i ? rest : '---'), ...rows]
  .map(row => `| ${row.join(' | ')} |`).join('\n');

const speedOf = (run) => run?.seconds.length ? run.tokens / median(run.seconds) : undefined;

/** The queries of the tables on the results. */
class Speeds {
  constructor(all) {
    this.all = all;
    this.runs = merge(all, 'runs');
    this.opened = merge(all, 'engines');
    this.models = [...new Map(all.flatMap(({ models }) => models.map(model => [model.name, model]))).values()];
    this.last = all.at(-1);
  }

  find(model, engine, kind, n) {
    return this.runs.find(run => run.model === model && run.engine === engine && run.kind === kind && run.n === n);
  }

  /** Median tokens per second; undefined if there is none. */
  speed(model, engine, kind, n) { return speedOf(this.find(model, engine, kind, n)); }

  /** The share of its short-context speed that an engine keeps with a long context, if one bench measured both. */
  kept(model, engine, short, long) {
    return this.all.map(({ runs }) => {
      const at = (context) => speedOf(runs.find(({ model: name, engine: id, kind, n }) =>
        name === model && id === engine && kind === 'decode' && n === context));
      return at(long) / at(short);
    }).findLast(Number.isFinite) ?? NaN;
  }

  /** The measurements of one model or of all. */
  lengths(kind, model) {
    const runs = this.runs.filter(run => run.kind === kind && (!model || run.model === model));
    return [...new Set(runs.map(({ n }) => n))].sort((a, b) => a - b);
  }

  /** The length that the targets are about, or the nearest one measured with the model. */
  nearest(kind, n, model) {
    return this.lengths(kind, model)
      .reduce((best, some) => Math.abs(some - n) < Math.abs(best - n) ? some : best, Infinity);
  }
}

const PEERS = { 'llama.cpp': 'llama.cpp', 'llama.cpp-built': 'llama.cpp built for this CPU',
  'llama.cpp-wasm': 'llama.cpp, WebAssembly', 'llama.cpp-wasm-plain': 'llama.cpp, WebAssembly, K and V in F32' };
const WASM_PEERS = ['wllama-2', 'wllama-3', 'llama.cpp-wasm', 'llama.cpp-wasm-plain'];
const OURS = { plumb: 'plumb', plumb16: 'plumb, exact16', plumb8: 'plumb, fast8' };
/** "wllama 3.8.1, Chromium, 2 threads" */
export function nameOf(id, versions) {
  const [name, host, threads] = id.split('/');
  const version = name.startsWith('wllama') ? `wllama ${versions[name]}` : OURS[name] ?? PEERS[name] ?? name;
  const where = HOSTS[host] ?? `Node ${versions[host].split('.')[0]}`;
  return `${version}, ${where}, ${threads} thread${threads === '1' ? '' : 's'}`;
}

/** Texts of the cells of a table, and the notes on those that could not be measured. */
class Cells {
  notes = [];

  /** @param {object | undefined} run  of Speeds.find */
  show(run) {
    if (!run) return '';
    if (run.seconds.length) return three(speedOf(run));
    const note = run.error ?? run.skipped ?? 'not run';
    return `${run.error ? 'failed' : '-'} [${this.notes.indexOf(note) + 1 || this.notes.push(note)}]`;
  }

  /** @param {string} text  a table @returns {string[]} */
  with(text) { return [text, ...this.notes.map((note, i) => `[${i + 1}] ${note}  `)]; }
}

/** The types that take at least 1 % of a file, the largest first. */
const typesOf = ({ bytes, types }) => Object.entries(types).filter(([, size]) => size >= 0.01 * bytes)
  .sort(([, a], [, b]) => b - a).map(([type]) => type).join(', ');

/** Median tokens/s of all models: the engines that ran most of them; the others; other lengths. @returns {string[]} */
function speedTables(speeds) {
  const models = speeds.models.filter(({ name }) => speeds.lengths('prefill', name).length > 0);
  const { versions } = speeds.last, names = models.map(({ name }) => name);
  const engines = [...new Set(speeds.runs.map(({ engine }) => engine))].map(engine => ({ engine,
    ran: names.filter(name => speeds.find(name, engine, 'decode', usual(speeds, 'decode', name))) }));
  const most = engines.filter(({ ran }) => ran.length > models.length / 2);
  const others = engines.filter(({ ran }) => ran.length && ran.length <= models.length / 2);
  const both = (cells, name, engine) => ['prefill', 'decode'].map(kind =>
    cells.show(speeds.find(name, engine, kind, usual(speeds, kind, name)))).filter(Boolean).join(', ');
  const first = new Cells(), second = new Cells(), third = new Cells();
  const longer = names.filter(name => speeds.lengths('decode', name).length > 1);
  const lengths = ['prefill', 'decode'].flatMap(kind => [...new Set(longer.flatMap(name =>
    speeds.lengths(kind, name)))].sort((a, b) => a - b).map(n => [kind, n]));
  const at = (name, engine) => lengths.map(([kind, n]) => speeds.find(name, engine, kind, n));
  return [
    ...first.with(table(['', 'MB', 'types', ...most.map(({ engine }) => nameOf(engine, versions))],
      models.map(model => [model.title, (model.bytes / 1e6).toFixed(0), typesOf(model),
        ...most.map(({ engine }) => both(first, model.name, engine))]))),
    ...others.length ? ['Other engines, with the same N and C:', ...second.with(table(
      ['', ...models.filter(({ name }) => others.some(({ ran }) => ran.includes(name))).map(({ title }) => title)],
      others.map(({ engine }) => [nameOf(engine, versions), ...names
        .filter(name => others.some(({ ran }) => ran.includes(name))).map(name => both(second, name, engine))])))] : [],
    ...longer.length ? ['Other lengths:', ...third.with(table(
      ['', ...lengths.map(([kind, n]) => kind === 'prefill' ? `prefill ${n}` : `decode at ${n}`)],
      longer.flatMap(name => most.filter(({ engine }) => at(name, engine).filter(Boolean).length > 2)
        .map(({ engine }) => [`${models.find(model => model.name === name).title}: ${nameOf(engine, versions)}`,
          ...at(name, engine).map(run => third.show(run))]))))] : [],
  ];
}

/** How far the runs lie apart, and what plumb ran. */
function aboutRuns(speeds) {
  const spreads = speeds.runs.filter(({ seconds }) => seconds.length > 1).map(({ seconds }) =>
    median(seconds) * (1 / Math.min(...seconds) - 1 / Math.max(...seconds)));
  const percent = (x) => `${(100 * x).toFixed(0)} %`;
  const kinds = [...new Set(speeds.opened.filter(({ engine }) => engine.startsWith('plumb'))
    .map(({ about }) => about).filter(Boolean))];
  return `Medians of tokens per second: of a prompt of N tokens, then after C tokens. N is 512 and C 128, or the nearest
length of the options above. The fastest run of a cell is faster than its slowest by ${percent(median(spreads))} of the
median in the middle of all cells, and by at most ${percent(Math.max(...spreads))}; \`bench/results\` has every run.
Modules and kernels of plumb: ${kinds.join('; ')}.`.replaceAll('\n', ' ');
}

/** How many times as fast as the best peer in WebAssembly plumb should be, and as llama.cpp built for this CPU. */
const WANTED = { decode: 2.5, prefill: 5, built: 0.85 };

/** The length of a prompt, or context of a decode, that the targets are about, or the nearest one measured. */
const usual = (speeds, kind, model) => speeds.nearest(kind, kind === 'prefill' ? 512 : 128, model);

/** The ratios that the targets are about, in tables of one row for each model and precision. @returns {string[]} */
function ratioTables(speeds) {
  const models = speeds.models.filter(({ name }) => speeds.lengths('prefill', name).length > 0);
  const of = (model, engine, kind) => speeds.speed(model, engine, kind, usual(speeds, kind, model));
  const peer = (model, kind, host, threads) => {
    const measured = WASM_PEERS.map(name => of(model, `${name}/${host}/${threads}`, kind));
    return measured.some(Boolean) ? Math.max(...measured.filter(Boolean)) : NaN;
  };
  /** plumb with some threads on a host, to the best wasm peer, or to another engine. */
  const toPeer = (kind, host, threads) => (m, ours) =>
    of(m, `${ours}/${host}/${threads}`, kind) / peer(m, kind, host, threads);
  const to = (other, kind, threads) => (m, ours) =>
    of(m, `${ours}/chromium/${threads}`, kind) / of(m, `${other}/native/${threads}`, kind);
  const onlyPlumb = (value) => (m, ours) => ours === 'plumb' ? value(m) : NaN;
  const keptAt = (n) =>
    onlyPlumb(m => speeds.kept(m, 'plumb/chromium/1', usual(speeds, 'decode', m), n));
  const second = (engine, kind) => onlyPlumb(m => of(m, `${engine}/2`, kind) / of(m, `${engine}/1`, kind));
  const wasmtime = (kind) => onlyPlumb(m => of(m, 'plumb/wasmtime/1', kind) / of(m, 'plumb/node/1', kind));
  const tables = [
    ['1 thread', [
      ['prefill / wasm', WANTED.prefill, toPeer('prefill', 'chromium', 1)],
      ['decode / wasm', WANTED.decode, toPeer('decode', 'chromium', 1)],
      ['Node: prefill / wasm', WANTED.prefill, toPeer('prefill', 'node', 1)],
      ['Node: decode / wasm', WANTED.decode, toPeer('decode', 'node', 1)],
      ['prefill / native', undefined, to('llama.cpp', 'prefill', 1)],
      ['decode / native', undefined, to('llama.cpp', 'decode', 1)],
      ['prefill / built', undefined, to('llama.cpp-built', 'prefill', 1)],
      ['decode / built', WANTED.built, to('llama.cpp-built', 'decode', 1)],
    ]],
    ['2 threads', [
      ['prefill / wasm', WANTED.prefill, toPeer('prefill', 'chromium', 2)],
      ['decode / wasm', WANTED.decode, toPeer('decode', 'chromium', 2)],
      ['prefill / 1 thread', 1.8, second('plumb/chromium', 'prefill')],
      ['llama.cpp, native', undefined, second('llama.cpp/native', 'prefill')],
      ['decode / 1 thread', 1.6, second('plumb/chromium', 'decode')],
      ['llama.cpp, native', undefined, second('llama.cpp/native', 'decode')],
    ]],
    ['1 thread', [
      ['decode at 4096 / at C', 0.6, keptAt(4096)],
      ['decode at 8192 / at C', 0.8, keptAt(8192)],
      ['prefill: wasmtime / Node', 0.8, wasmtime('prefill')],
      ['decode: wasmtime / Node', 0.8, wasmtime('decode')],
    ]],
  ];
  const lines = models.flatMap(({ name, title }) =>
    [{ name, ours: 'plumb', title }, { name, ours: 'plumb8', title: `${title}, fast8` }]);
  return tables.flatMap(([title, columns]) => {
    const used = columns.filter(([, , value]) => lines.some(({ name, ours }) => Number.isFinite(value(name, ours))));
    const rows = lines.map(line => ({ ...line, values: used.map(([, , value]) => value(line.name, line.ours)) }))
      .filter(({ values }) => values.some(Number.isFinite));
    const cell = (ratio, target) => !Number.isFinite(ratio) ? '' : ratio < target ? `**${ratio.toFixed(2)}**`
      : ratio.toFixed(2);
    return rows.length === 0 ? [] : [table(
      [title, ...used.map(([name, target]) => target ? `${name} (${target})` : name)],
      rows.map(({ title: model, values }) => [model, ...values.map((ratio, i) => cell(ratio, used[i][1]))]))];
  });
}

/** Linear memory and JavaScript heaps.  The browser counts linear memory as heap if threads share it; otherwise only
 * plumb reports its size. */
function heldBy({ info, page: { bytes } }, fileBytes) {
  if (bytes > fileBytes) return bytes;
  return info && info.memoryBytes + bytes;
}

/** Seconds and memory of a load; targets beside them. */
function loadTable(loads, models, versions) {
  const rows = [];
  for (const { name, title, bytes } of models) {
    const bare = loads.find(load => load.model === name && load.kind === 'fetch');
    if (!bare) continue;
    rows.push([`${title}: fetch alone`, three(median(bare.seconds)), '', '', '', '']);
    for (const load of loads.filter(({ model, kind }) => model === name && kind !== 'fetch')) {
      const who = nameOf(`${load.kind}/chromium/${load.threads}`, versions).replace(', Chromium', '');
      if (load.error) {
        rows.push([who, `failed: ${load.error}`, '', '', '', '']);
        continue;
      }
      const { seconds, prefillSeconds } = load;
      const ratio = median(seconds.map((s, i) => (s - prefillSeconds[i]) / bare.seconds[i]));
      const kv = load.info && 4 * load.info.layers * load.info.headsKV * load.info.headDim * load.context;
      const held = load.page && heldBy(load, bytes);
      rows.push([who, three(median(seconds)), three(median(prefillSeconds)), ratio.toFixed(2),
        !held ? '' : `${MB(held)}${kv ? ` (${MB(1.05 * bytes + kv + 32e6)})` : ''}`,
        load.processBytes ? `${MB(load.processBytes)}, ${(load.processBytes / bytes).toFixed(2)}x` : '']);
    }
  }
  return rows.length ? table(['in Chromium', 'first token, s', 'of this prefill, s', '(first - prefill) / fetch (1.15)',
    'wasm memory + JS heap (target)',
    'peak of all processes, less an empty page; by the size of the file'], rows) : '';
}

function accuracyTable(accuracy, models) {
  const show = ({ kl, sameTop, error }) =>
    error ? [`failed: ${error}`, ''] : [kl.toExponential(1), `${(100 * sameTop).toFixed(2)} %`];
  const rows = accuracy.map(({ model, plumb, fast8, 'llama.cpp': llama }) =>
    [models.find(({ name }) => name === model).title, ...show(plumb), ...fast8 ? show(fast8) : ['', ''],
      ...show(llama)]);
  return rows.length ? table(['against the reference pass', 'plumb: mean KL (1e-4)',
    'same top token (99.5 %)', 'fast8: mean KL', 'same top token', 'llama.cpp native: mean KL', 'same top token'],
  rows) : '';
}

function sections(all) {
  const speeds = new Speeds(all);
  const versionsOfLoads = all.findLast(({ loads }) => loads.length > 0)?.versions;
  const loads = loadTable(merge(all, 'loads'), speeds.models, versionsOfLoads);
  const accuracy = accuracyTable(merge(all, 'accuracy'), speeds.models);
  return [
    ...origins(all),
    ...speeds.runs.length ? [
      '## Ratios', 'A ratio in bold misses its target, which is in parentheses. "Wasm" is the fastest peer in '
      + 'WebAssembly, in the same host and with as many threads: llama.cpp with its SIMD kernels, by its defaults or '
      + 'with K and V in F32, or wllama. "Native" is npm\'s llama.cpp, "built" the one for this CPU. plumb runs in '
      + 'Chromium unless a heading says Node, with its default precision unless a row says fast8. Weights of models '
      + 'that are "shaped" or "768 wide", which is SmolLM2 with rows that superblocks fill, are random.',
      ...ratioTables(speeds), '## Tokens per second', aboutRuns(speeds), ...speedTables(speeds),
    ] : [],
    ...loads ? ['## Load and memory', loads] : [],
    ...accuracy ? ['## Accuracy', accuracy] : [],
  ].join('\n\n');
}

const machineOf = ({ machine }) =>
  `${machine.cpu}, ${machine.cores} cores, ${machine.system} (${machine.flags.join(' ')})`;
const BENCH = 'node tests/bench/bench.mjs';
/** Names and versions; compilers say their name, and what they are, once more. @returns {[string, string][]} */
const versionsIn = ({ versions }) => Object.entries(versions).map(([name, version]) =>
  [name, version.replace(/^(em)?cc (\(Emscripten[^)]*\) )?| \(\)$/g, '')]);
const versionsOf = (run) => versionsIn(run).map(named => named.join(' ')).join(', ');

/** The machine and versions of a run, for its page. */
export const origin = (run) => `Measured ${run.date} on ${machineOf(run)}, at commit ${run.commit}, by `
  + `\`${run.command}\`.  Versions: ${versionsOf(run)}.`;

/** The same of several runs, with what they share said once. */
function origins(all) {
  const versions = new Map();
  for (const [name, version] of all.flatMap(versionsIn))
    versions.set(name, new Set(versions.get(name)).add(version));
  return [`Measured on ${[...new Set(all.map(machineOf))].join('; ')}. Versions: ${[...versions].map(([name, of]) =>
    `${name} ${[...of].join(' and ')}`).join(', ')}. By \`${BENCH}\` and these options:`,
  all.map(({ date, commit, command }) => `- ${date}, ${commit.slice(0, 7)}: \`${command.replace(`${BENCH} `, '')
    .replace(/ --out \S+| ?--no-report/g, '').trim()}\``).join('\n')];
}

/** Replaces the text between the two markers of a page. @param {string} file @param {string} by  the calling script */
export function writeTables(file, by, tables) {
  const text = readFileSync(file, 'utf8');
  const markers = [`<!-- tables: ${by} writes what is between here -->`, '<!-- and here -->'];
  const [from, to] = markers.map(marker => text.indexOf(marker));
  if (from < 0 || to < from) throw new Error(`${file} lacks its markers ${markers.join(' and ')}`);
  writeFileSync(file, `${text.slice(0, from + markers[0].length)}\n\n${tables}\n\n${text.slice(to)}`);
}

/** @param {object[]} all  results, the newest last */
export function report(all) {
  writeTables('docs/speed.md', 'tests/bench/report.mjs', sections(all));
  const speeds = new Speeds(all);
  if (speeds.runs.length) writeFileSync('docs/speed.svg', plot(speeds));
  console.log('docs/speed.md and docs/speed.svg are of this run');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  report(process.argv.slice(2).map(file => JSON.parse(readFileSync(file, 'utf8'))));
}
