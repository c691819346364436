/**
 * `node tests/bench/report.mjs RESULTS.json...` writes the tables of docs/speed.md, between its two markers, and
 * docs/speed.svg.  If several files have the same measurement, the last one is used.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { median } from './median.mjs';
import { plot } from './plot.mjs';

const HOSTS = { chromium: 'Chromium', wasmtime: 'wasmtime', native: 'native' };

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

const PEERS = { 'llama.cpp': 'llama.cpp', 'llama.cpp-built': 'llama.cpp built for this CPU' };
const OURS = { plumb: 'plumb', plumb16: 'plumb, exact16', plumb8: 'plumb, fast8' };
/** "wllama 3.8.1, Chromium, 2 threads" */
export function nameOf(id, versions) {
  const [name, host, threads] = id.split('/');
  const version = name.startsWith('wllama') ? `wllama ${versions[name]}` : OURS[name] ?? PEERS[name] ?? name;
  const where = HOSTS[host] ?? `Node ${versions[host].split('.')[0]}`;
  return `${version}, ${where}, ${threads} thread${threads === '1' ? '' : 's'}`;
}

/** One table for a model: median tokens/s, and the slowest and fastest run. */
function speedTable(speeds, { name, title, bytes, types }) {
  const cells = ['prefill', 'decode'].flatMap(kind => speeds.lengths(kind, name).map(n => [kind, n]));
  const engines = [...new Set(speeds.runs.filter(({ model }) => model === name).map(({ engine }) => engine))];
  const notes = [];
  const show = (run) => {
    if (!run) return '';
    if (run.seconds.length) {
      const rates = run.seconds.map(seconds => run.tokens / seconds);
      const spread = rates.length > 1 ? ` (${three(Math.min(...rates))}..${three(Math.max(...rates))})` : '';
      return `${three(median(rates))}${spread}`;
    }
    const note = run.error ?? run.skipped ?? 'not run';
    const at = notes.indexOf(note) + 1 || notes.push(note);
    return `${run.error ? 'failed' : '-'} [${at}]`;
  };
  /** The modules and kernels that plumb used. */
  const what = (engine) => speeds.opened.find(row => row.model === name && row.engine === engine)?.about;
  const rows = engines.map(engine => [
    `${nameOf(engine, speeds.last.versions)}${engine.startsWith('plumb') && what(engine) ? ` (${what(engine)})` : ''}`,
    ...cells.map(([kind, n]) => show(speeds.find(name, engine, kind, n))),
  ]);
  const holds = Object.entries(types).map(([type, size]) => `${type} ${(size / 1e6).toFixed(1)}`).join(', ');
  return [
    `### ${title}`, '', `${MB(bytes)}; MB by type: ${holds}.`, '',
    table(['tokens/s', ...cells.map(([kind, n]) => kind === 'prefill' ? `prefill ${n}` : `decode at ${n}`)], rows),
    ...notes.flatMap((note, i) => [...i ? [] : [''], `[${i + 1}] ${note}  `]),
  ].join('\n');
}

/** How many times as fast as the best wasm peer plumb should be with this model. */
const isFloat = (model) => /^F(16|32)$/.test(model);
const isArchitecture = (model) => /^(gemma|qwen|olmoe)/.test(model);   // the models of bench.mjs --architectures
const decodeTarget = (model) => isFloat(model) ? 2 : model === 'qwen2.5-1.5b' ? 3.5 : isArchitecture(model) ? 3 : 4;
const prefillTarget = (model) => isFloat(model) ? 2 : isArchitecture(model) ? 5 : 3;

/** The ratios that the targets are about, for plumb or another of OURS; '' if not measured. */
function ratioTable(speeds, ours) {
  const models = speeds.models.filter(({ name }) => !isWide(name) && speeds.lengths('prefill', name).length > 0);
  const prompt = (model) => speeds.nearest('prefill', 512, model);
  const context = (model) => speeds.nearest('decode', 128, model);
  const longest = (model) => speeds.lengths('decode', model).at(-1);
  const of = (model, engine, kind, n = kind === 'prefill' ? prompt(model) : context(model)) =>
    speeds.speed(model, engine, kind, n);
  const peer = (model, kind, threads) => {
    const both = ['wllama-2', 'wllama-3'].map(name => of(model, `${name}/chromium/${threads}`, kind));
    const measured = both.filter(Boolean);
    return measured.length ? Math.max(...measured) : NaN;
  };
  const columns = [
    ['decode / best wasm peer, 1 thread', decodeTarget, m =>
      of(m, `${ours}/chromium/1`, 'decode') / peer(m, 'decode', 1)],
    ['the same, 2 threads', decodeTarget, m =>
      of(m, `${ours}/chromium/2`, 'decode') / peer(m, 'decode', 2)],
    ['decode / native llama.cpp, 1 thread', () => 0.7, m =>
      of(m, `${ours}/chromium/1`, 'decode') / of(m, 'llama.cpp/native/1', 'decode')],
    ['decode / llama.cpp built for this CPU, 1 thread', () => 0.75, m =>
      of(m, `${ours}/chromium/1`, 'decode') / of(m, 'llama.cpp-built/native/1', 'decode')],
    ['the same, 2 threads', () => 0.75, m =>
      of(m, `${ours}/chromium/2`, 'decode') / of(m, 'llama.cpp-built/native/2', 'decode')],
    ['prefill / best wasm peer, 1 thread', prefillTarget, m =>
      of(m, `${ours}/chromium/1`, 'prefill') / peer(m, 'prefill', 1)],
    ['the same, 2 threads', prefillTarget, m =>
      of(m, `${ours}/chromium/2`, 'prefill') / peer(m, 'prefill', 2)],
    ['prefill / native llama.cpp, 1 thread', () => 0.5, m =>
      of(m, `${ours}/chromium/1`, 'prefill') / of(m, 'llama.cpp/native/1', 'prefill')],
    ['prefill, 2 threads / 1', () => 1.8, m =>
      of(m, `${ours}/chromium/2`, 'prefill') / of(m, `${ours}/chromium/1`, 'prefill')],
    ['the same for native llama.cpp', undefined, m =>
      of(m, 'llama.cpp/native/2', 'prefill') / of(m, 'llama.cpp/native/1', 'prefill')],
    ['decode, 2 threads / 1', () => 1.5, m =>
      of(m, `${ours}/chromium/2`, 'decode') / of(m, `${ours}/chromium/1`, 'decode')],
    ['the same for native llama.cpp', undefined, m =>
      of(m, 'llama.cpp/native/2', 'decode') / of(m, 'llama.cpp/native/1', 'decode')],
    ['decode at the longest context / at the usual context', () => 0.6, m => longest(m) === context(m) ? NaN
      : speeds.kept(m, `${ours}/chromium/1`, context(m), longest(m))],
    ['in Node: decode / best wasm peer, 1 thread', decodeTarget, m =>
      of(m, `${ours}/node/1`, 'decode') / peer(m, 'decode', 1)],
    ['in Node: prefill / best wasm peer, 1 thread', prefillTarget, m =>
      of(m, `${ours}/node/1`, 'prefill') / peer(m, 'prefill', 1)],
    ['decode, wasmtime / Node, both exact16', () => 0.8, m =>
      of(m, 'plumb/wasmtime/1', 'decode') / of(m, 'plumb16/node/1', 'decode')],
    ['prefill, wasmtime / Node, both exact16', () => 0.8, m =>
      of(m, 'plumb/wasmtime/1', 'prefill') / of(m, 'plumb16/node/1', 'prefill')],
  ];
  const lengths = ['prompt length, context of decode, longest context', ...models.map(({ name }) =>
    [prompt(name), context(name), longest(name)].filter(Number.isFinite).join(', '))];
  const rows = columns.map(([name, target, value]) => [name, ...models.map(({ name: model }) => {
    const ratio = value(model), wanted = target?.(model);
    if (!Number.isFinite(ratio)) return '-';
    const bold = ratio < wanted ? '**' : '';
    return `${bold}${ratio.toFixed(2)}${bold}${wanted ? ` (${wanted})` : ''}`;
  })]);
  const who = ours === 'plumb' ? 'plumb with default settings' : OURS[ours];
  return models.every(({ name }) => !of(name, `${ours}/chromium/1`, 'decode')) ? ''
    : table([`${who}, in Chromium, and the target`, ...models.map(({ title }) => title)], [lengths, ...rows]);
}

const isWide = (model) => model.startsWith('wide-');   // the models of bench.mjs --types

/** One row for each type of bench.mjs --types: plumb beside both generations of wllama, and how many times as fast as
 * wllama 2 it is. */
function typesTable(speeds) {
  const models = speeds.models.filter(({ name }) => isWide(name) && speeds.lengths('decode', name).length > 0);
  const notes = [];
  const rows = models.map(({ name, title, bytes }) => [`${title}, ${MB(bytes)}`,
    ...[['decode', speeds.lengths('decode', name)[0], 2.5], ['prefill', speeds.lengths('prefill', name)[0], 4]]
      .flatMap(([kind, n, target]) => {
        const of = (engine) => speeds.speed(name, `${engine}/chromium/1`, kind, n);
        const show = (engine) => {
          const run = speeds.find(name, `${engine}/chromium/1`, kind, n), speed = speedOf(run);
          if (speed || !run) return speed ? three(speed) : '';
          const note = run.error ?? run.skipped ?? 'not run';
          return `- [${notes.indexOf(note) + 1 || notes.push(note)}]`;
        };
        const ratio = of('plumb') / of('wllama-2'), bold = ratio < target ? '**' : '';
        return [show('plumb'), show('wllama-2'), show('wllama-3'),
          Number.isFinite(ratio) ? `${bold}${ratio.toFixed(2)}${bold} (${target})` : '-'];
      })]);
  const { versions } = speeds.last;
  const columns = (kind) => [`${kind}: plumb`, `wllama ${versions['wllama-2']}`, `wllama ${versions['wllama-3']}`,
    `plumb / wllama ${versions['wllama-2']} (target)`];
  return models.length === 0 ? '' : [
    table(['tokens/s, Chromium, 1 thread', ...columns('decode'), ...columns('prefill')], rows),
    ...notes.map((note, i) => `[${i + 1}] ${note}  `),
  ].join('\n\n');
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
    'peak of all processes less that of the empty page, also as a multiple of the file size'], rows) : '';
}

function accuracyTable(accuracy, models) {
  const show = ({ kl, sameTop, error }) =>
    error ? [`failed: ${error}`, ''] : [kl.toExponential(1), `${(100 * sameTop).toFixed(2)} %`];
  const rows = accuracy.map(({ model, plumb, fast8, 'llama.cpp': llama }) =>
    [models.find(({ name }) => name === model).title, ...show(plumb), ...fast8 ? show(fast8) : ['', ''],
      ...show(llama)]);
  return rows.length ? table(['against the reference pass on the same weights', 'plumb: mean KL (1e-4)',
    'same top token (99.5 %)', 'fast8: mean KL', 'same top token', 'llama.cpp native: mean KL', 'same top token'],
  rows) : '';
}

function sections(all) {
  const speeds = new Speeds(all);
  const { versions, modules } = speeds.last;
  const loads = loadTable(merge(all, 'loads'), speeds.models, versions);
  const types = typesTable(speeds);
  const accuracy = accuracyTable(merge(all, 'accuracy'), speeds.models);
  return [
    ...origins(all),
    ...speeds.runs.length ? [
      '## Ratios', 'A ratio in bold misses its target, which follows it in parentheses.  The first table is for '
      + 'the default precision, exact16; the others are for a precision that was requested.',
      ...Object.keys(OURS).map(ours => ratioTable(speeds, ours)).filter(Boolean),
      '## Tokens per second', 'Each cell shows the median, and in parentheses the slowest and the fastest run.',
      ...speeds.models.filter(({ name }) => !isWide(name) && speeds.runs.some(({ model }) => model === name))
        .map(model => speedTable(speeds, model)),
      ...types ? ['## Other types', 'Random weights in the shape of SmolLM2-135M, but 768 wide, so that superblocks '
        + 'fill a row.  Every matrix has the type.', types] : [],
    ] : [],
    ...loads ? ['## Load and memory', loads] : [],
    '## Modules', table(['module', 'bytes'], Object.entries(modules).map(([name, bytes]) => [name, bytes])),
    ...accuracy ? ['## Accuracy', accuracy] : [],
  ].join('\n\n');
}

const machineOf = ({ machine }) =>
  `${machine.cpu}, ${machine.cores} cores, ${machine.system} (${machine.flags.join(' ')})`;
const versionsOf = ({ versions }) => Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(', ');

/** The machine and versions of a run, for its page. */
export const origin = (run) => `Measured ${run.date} on ${machineOf(run)}, at commit ${run.commit}, by `
  + `\`${run.command}\`.  Versions: ${versionsOf(run)}.`;

/** The same of several runs, with what they share said once. */
function origins(all) {
  const shared = (run) => `Measured on ${machineOf(run)}.  Versions: ${versionsOf(run)}.`;
  return [...new Set(all.map(shared))].flatMap(about => [about, all.filter(run => shared(run) === about)
    .map(({ date, commit, command }) => `- ${date}, commit ${commit}: \`${command}\``).join('\n')]);
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
