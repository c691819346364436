/**
 * Makes small faults in src/ and web/, one at a time, runs the tests that cover each, and lists what no test sees.
 *
 *   make mutants [N=200] [SEED=1] [ONLY=src/truth/diff]
 *   node tests/mutants/mutants.mjs --list      only shows the faults
 *   node tests/mutants/mutants.mjs --prepare   only builds, and finds out which test runs which line
 *   node tests/mutants/mutants.mjs --fresh     forgets what an earlier run found
 *
 * The same seed makes the same faults in the same sources.  A file is drawn with a weight of its lines of code, then
 * the kind of fault, then the place.  Generated tables and assertions are left out.  A fault that does not compile is
 * drawn again, and so is one for which optimizing compilers generate the same code in every build that ships.
 * Survivors in allowed.json, which gives reasons, are not tried again and are reported separately.  An interrupted
 * run continues where it stopped.
 *
 * The faults are made in a copy of the checkout, build/mutants.  A time-out counts as found and is marked as such,
 * because anyone who runs the tests notices an endless loop: a program used several times the processor's time that the
 * tests take, or none for three minutes.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync, appendFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { randomOf } from '../random.mjs';
import { Native } from './native.mjs';
import { apply, codeLines, sites } from './operators.mjs';
import { Web } from './web.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
process.chdir(root);
process.env.MUTANTS_ROOT = root;
const wanted = Number(process.env.N || 200), seed = process.env.SEED || '1', only = process.env.ONLY ?? '';
const flag = name => process.argv.includes(`--${name}`);
const LIMIT = 0.08;

// process.exit ends the running processes.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

/** Generated files, in which no fault is made. */
const left = /unicode_tables|\.min\.js/;
const files = execFileSync('git', ['ls-files', 'src', 'web'], { encoding: 'utf8' }).trim().split('\n')
  .filter(path => /\.(c|h|js|mjs)$/.test(path) && !left.test(path) && path.startsWith(only))
  .map(path => {
    const source = readFileSync(path, 'utf8');
    return { path, source, lines: codeLines(path, source), sites: sites(path, source) };
  }).filter(file => file.sites.size);
const allowed = JSON.parse(readFileSync('tests/mutants/allowed.json', 'utf8'));

/** Numbers below n, the same for the same seed. */
const next = randomOf(createHash('sha256').update(seed).digest().readInt32LE());
const below = n => Math.floor(next() * n);

/** Draws a fault that was not drawn before. */
const drawn = new Set();
function draw() {
  for (let tries = 0; tries < 10000; tries++) {
    let line = below(files.reduce((sum, file) => sum + file.lines, 0));
    const file = files.find(({ lines }) => (line -= lines) < 0);
    const kinds = [...file.sites.values()], kind = kinds[below(kinds.length)], site = kind[below(kind.length)];
    const key = `${file.path}:${site.at}:${site.operator}`;
    if (drawn.has(key)) continue;
    drawn.add(key);
    return { ...site, path: file.path, source: file.source };
  }
  throw new Error('there are no more faults to be made');
}

const room = path => /^(src\/cli|src\/\w+\/\w+|web\/\w+(?=\/)|web)/.exec(path)[0];
const squeeze = text => text.replace(/\s+/g, ' ').trim();

/** The place of a fault, and the lines before and after the change. */
function describe({ path, source, at, length, text, operator }) {
  const from = source.lastIndexOf('\n', at - 1) + 1, to = source.indexOf('\n', at + length);
  return { path, line: source.slice(0, at).split('\n').length, operator, before: squeeze(source.slice(from, to)),
    after: squeeze(source.slice(from, at) + text + source.slice(at + length, to)) };
}

if (flag('list')) {
  for (let i = 0; i < wanted; i++) {
    const { path, line, operator, before, after } = describe(draw());
    console.log(`${path}:${line}: ${operator}\n    ${before}\n    ${after}`);
  }
  process.exit();
}

// The copy.
const copy = 'build/mutants', parts = ['src', 'include', 'tests', 'wasm', 'web', 'tools', 'Makefile', 'package.json',
  'README.md', 'docs', 'CONTRIBUTING.md', 'CHANGELOG.md', 'LICENSE', 'package-lock.json'];
mkdirSync(`${copy}/build`, { recursive: true });
for (const part of parts) rmSync(`${copy}/${part}`, { recursive: true, force: true });
execFileSync('cp', ['-a', ...parts, copy]);
if (!existsSync(`${copy}/node_modules`)) symlinkSync(`${root}/node_modules`, `${copy}/node_modules`);
// The server does not follow links out of its folder.
if (!existsSync(`${copy}/models`)) execFileSync('cp', ['-al', 'models', copy]);
for (const name of ['native', 'native-sanitize', 'emcc', 'emcc-mt', 'emcc-relaxed', 'wasi', 'setup'])
  if (existsSync(`build/${name}`)) execFileSync('cp', ['-au', `build/${name}`, `${copy}/build`]);
process.chdir(copy);

const record = 'build/verdicts.jsonl';
const known = new Map((existsSync(record) && !flag('fresh') ? readFileSync(record, 'utf8').trim().split('\n') : [])
  .filter(Boolean).map(row => JSON.parse(row)).map(row => [row.id, row]));
// A digest of the sources of the test programs, which validates earlier results.
const state = execFileSync('sh', ['-c', 'cat $(find src tests web/*.js web/*/*.js -type f | grep -v mutants/ | sort) ' +
  '| sha256sum'], { encoding: 'utf8', maxBuffer: 1 << 28 });

let native, web;
if (flag('prepare')) {
  if (!only.startsWith('web')) await new Native().baseline();
  if (!only.startsWith('src')) await new Web(state).baseline();
  process.exit();
}
const start = performance.now(), results = [];

/** Judges faults of one language, one after the other. */
async function judge(faults, judgeOf) {
  for (const mutant of faults) {
    const mutated = apply(mutant.source, mutant), told = describe(mutant);
    const id = createHash('sha256').update(state + told.path + mutant.at + mutated).digest('hex').slice(0, 16);
    const why = allowed.find(one =>
      one.path === told.path && one.before === told.before && one.after === told.after)?.why;
    // What is known to survive takes the longest; it counts as a survivor without being tried again.
    let verdict = known.get(id) ?? (why && { ...told, verdict: 'survived', seconds: 0 });
    if (!verdict) {
      const begun = performance.now(), found = await (await judgeOf()).judge({ ...told, at: mutant.at }, mutated);
      verdict = { id, ...told, ...found, seconds: Math.round((performance.now() - begun) / 100) / 10 };
      appendFileSync(record, `${JSON.stringify(verdict)}\n`);
    }
    if (verdict.verdict !== 'invalid' && verdict.verdict !== 'equivalent') results.push({ ...verdict, why });
    console.log(`${`${results.length}`.padStart(4)} ${verdict.verdict.padEnd(10)} ${told.path}:${told.line} ` +
      `${told.operator} (${verdict.seconds} s${verdict.by ? `, ${verdict.by}` : ''})`);
    if (verdict.verdict === 'survived') console.log(`       ${told.before}\n       ${told.after}`);
  }
}

// C and JavaScript are judged at the same time; what was not valid is drawn again.
while (results.length < wanted) {
  const faults = Array.from({ length: wanted - results.length }, draw), isC = ({ path }) => path.startsWith('src/');
  await Promise.all([
    judge(faults.filter(isC), async () => {
      if (!native) await (native = new Native()).baseline();
      return native;
    }),
    judge(faults.filter(fault => !isC(fault)), async () => {
      if (!web) await (web = new Web(state)).baseline();
      return web;
    }),
  ]);
}

// The final table.
const rows = new Map();
for (const { path, verdict, by, why } of results) {
  for (const name of [room(path), 'all']) {
    const row = rows.get(name) ?? { faults: 0, found: 0, hung: 0, survived: 0, allowed: 0 };
    row.faults++;
    if (verdict === 'killed') {
      row.found++;
      if (/time-out$/.test(by ?? '')) row.hung++;
    } else if (why) row.allowed++;
    else row.survived++;
    rows.set(name, row);
  }
}
const survivors = results.filter(({ verdict }) => verdict === 'survived');
const all = rows.get('all');
rows.delete('all');
console.log('\n| where | faults | found | of them by a time-out | survived, allowed | survived |');
console.log('|---|---|---|---|---|---|');
for (const [name, row] of [...[...rows].sort(([a], [b]) => a < b ? -1 : 1), ['all', all]])
  console.log(`| ${name} | ${row.faults} | ${row.found} | ${row.hung} | ${row.allowed} | ${row.survived} |`);
console.log('');
for (const { path, line, operator, before, after, by, why } of survivors)
  console.log(`survived: ${path}:${line}: ${operator} (${why ?? by})\n    ${before}\n    ${after}`);
console.log(`seed ${seed}: ${all.found} of ${all.faults} faults found, ${survivors.length} survived ` +
  `(${(100 * survivors.length / all.faults).toFixed(1)} %), ${((performance.now() - start) / 60000).toFixed(0)} min`);
process.exitCode = survivors.length > LIMIT * all.faults ? 1 : 0;
