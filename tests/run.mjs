/**
 * Runs every test on every host and closes with one line, "N passed, N failed, N skipped".
 *
 * HOSTS="native node" selects hosts.  A missing host that is selected is a failure, and so is a suite whose build is
 * missing.  `node tests/run.mjs TEXT` runs the suites whose name contains TEXT, and
 * `node tests/run.mjs --check` those of `make check`.  `make test` and `make check` build what their suites need.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { wasmtime } from './hosts/wasmtime.mjs';
import { needs, runSuite } from './suite.mjs';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));

const hosts = (process.env.HOSTS || 'native node chromium firefox webkit wasmtime').split(/\s+/).filter(Boolean);
const underWasmtime = [wasmtime(), 'run', '--dir=.'];

/** The test files of a folder, run by Node's own runner.  wanted: says of a file's name whether it is one of them;
 * atOnce: how many of them run at a time, 0 for Node's default. */
function nodeTests(folder, wanted = () => true, atOnce = check ? 2 : 0) {
  const files = list(folder, '.test.mjs').filter((name) => wanted(name.replace('.test.mjs', '')))
    .map((name) => `${folder}/${name}`);
  if (!files.length) return [process.execPath, '-e', `throw new Error('${folder} holds no *.test.mjs')`];
  // A suite of which no test ends for long is stopped below.  On a busy machine a file may need more than Node allows.
  return [process.execPath, '--test', ...atOnce ? [`--test-concurrency=${atOnce}`] : [],
    '--test-timeout=3600000', '--test-reporter=tap', ...files];
}
/** The same with one browser for all files, two at a time: pages wait for much that is no work.
 * @param {string} folder */
const chromeTests = folder =>
  [process.execPath, 'tests/hosts/with-chrome.mjs', ...nodeTests(folder, () => true, 2)];
const list = (folder, suffix) =>
  existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(suffix)).sort() : [];
/** PLUMB: the command line that tests/cli runs, as a JSON array. */
const cli = (command) => ({ PLUMB: JSON.stringify(command) });

/** Two real models against llama.cpp, and a sentence encoder, by a release build of the C tests. @param {string[]}
 * command @param {string[]} texts  what the names of the wanted cases contain; none: all cases */
const truth = (command, ...texts) =>
  ({ name: 'real models against llama.cpp', command: [...command, 'truth', ...texts], seconds: 100 });
/** Those that compute with the fast pass only.  The reference pass needs most of the time, and nothing in it depends on
 * the host; the C tests run it on small models everywhere. */
const fast = ['greedy tokens', 'fast pass equals llama.cpp', 'taps of the fast pass', 'fast pass: sentences'];

/** `make package` needs a compiler that has relaxed SIMD. */
const tarball = `build/plumb-llm-${JSON.parse(readFileSync('web/package.json', 'utf8')).version}.tgz`;

/** The cases of the C tests that a host runs, unless WHOLE=1 asks for all: see tests/main.c.  In Node every case runs.
 * Builds with sanitizers, and hosts whose compilers may only compute other numbers, make a sample of the proofs that
 * differ only in their data. @param {'sample' | 'numbers sample' | 'threads sample'} cases */
const sample = (cases) => process.env.WHOLE ? [] : [cases];
/** The C tests in a browser. @param {string} browser @param {string} name  of a module in build/emcc
 * @param {string[]} cases  see tests/main.c */
const cTests = (browser, name, cases) => needs(`build/emcc/${name}.wasm`, {
  name: `C tests${name === 'tests' ? '' : ', 4 threads'}`, seconds: 80,
  command: [process.execPath, 'tests/hosts/in-browser.mjs', browser, `build/emcc/${name}.wasm`, ...cases] });

/** The files of tests/node that take more than a few seconds: they run the default model, start many processes or
 * threads, render thousands of templates or compile types.  `make check` runs all the others. */
const slow = ['answers', 'bound', 'call-grammar', 'chat', 'cli', 'clients', 'completions', 'copies',
  'download-properties', 'faults', 'handler', 'load', 'locks', 'logprobs', 'machine-code', 'markdown', 'memory',
  'model', 'ollama', 'openai', 'precision', 'preflight', 'release', 'responses', 'schema-libraries', 'threads', 'truth',
  'types'];
const check = process.argv.includes('--check');

/** What the command line does with files, sessions and standard streams: what its 64-bit host layer carries. */
const WIDE_CLI = ['files', 'hostile', 'model', 'state'];

/** @type {Record<string, (import('./suite.mjs').Suite & {quick?: boolean})[]>} */
const suites = {
  native: [
    truth(['build/native/tests']),
    { name: 'C tests, each allocation fails', command: ['build/native-sanitize/memory'], seconds: 100 },
    check ? { name: 'C tests', command: ['build/native/tests', 'sample'], seconds: 100, quick: true }
      : { name: 'C tests, ASan and UBSan', command: ['build/native-sanitize/tests', ...sample('sample')],
        seconds: 250 },
    { name: 'C tests, TSan', command: ['build/native-thread/tests', ...sample('threads sample')], seconds: 150 },
    ...list('tests/fuzz', '_fuzz.c').map((file) => file.replace('_fuzz.c', '')).map((name) => ({
      name: `fuzz corpus ${name}`, command: [`build/native-sanitize/fuzz-${name}`,
        ...list(`tests/fuzz/corpus/${name}`, '').map((input) => `tests/fuzz/corpus/${name}/${input}`)],
      seconds: 20 })),
    { name: 'command line', command: nodeTests('tests/cli'), env: cli(['build/native/plumb']), seconds: 40 },
    { name: 'tools', command: nodeTests('tests/tools'), seconds: 30 },
    ...[['second engine', 'reference/engine.py', '--selftest'], ['proof of diagnose', 'reference/prove.py', '--check'],
      ['operators', 'operators/measure.py', '--check'], ['bug reports', 'reports/measure.py', '--check'],
      ['case book', 'cases/cases.py', '--check']]
      .map(([name, script, option]) => ({ name, command: ['python3', `tests/${script}`, option],
        env: { PYTHONPATH: 'build/setup/py' }, seconds: 60 })),
  ],
  node: [
    { name: 'C tests', seconds: 150, quick: true,
      command: [process.execPath, 'tests/hosts/node.mjs', 'build/emcc/tests.wasm', ...check ? ['sample 1/3'] : []] },
    { name: 'C tests, 4 threads',
      command: [process.execPath, 'tests/hosts/node.mjs', 'build/emcc/tests-mt.wasm', ...sample('threads sample')],
      seconds: 30 },
    { name: 'JavaScript', command: nodeTests('tests/node', (name) => !check || !slow.includes(name)), seconds: 900,
      quick: true, ...check && { env: { SAMPLE: '1' } } },
    needs(tarball, { name: 'package', command: nodeTests('tests/package'), seconds: 40 }),
    { name: 'command line', command: nodeTests('tests/cli'), env: cli([process.execPath, 'web/cli/main.mjs']),
      seconds: 120 },
  ],
  chromium: [
    cTests('chromium', 'tests-mt-relaxed', sample('threads sample')),
    needs(tarball, { name: 'package', command: chromeTests('tests/package/browser'), seconds: 300 }),
    { name: 'JavaScript and chat page', command: chromeTests('tests/browser'), seconds: 800 },
  ],
  firefox: [
    cTests('firefox', 'tests-mt-relaxed', sample('numbers sample')),
    { name: 'JavaScript and chat page', command: nodeTests('tests/firefox'), seconds: 60 },
  ],
  // It has no relaxed SIMD, and threads only with a switch: docs/browsers.md.
  webkit: [
    cTests('webkit', 'tests', sample('numbers sample')),
    cTests('webkit', 'tests-mt', sample('threads sample')),
    { name: 'JavaScript and chat page', command: nodeTests('tests/webkit'), seconds: 60 },
  ],
  wasmtime: [
    truth([...underWasmtime, 'build/wasi/tests.wasm'], ...fast),
    { name: 'C tests', command: [...underWasmtime, 'build/wasi/tests.wasm', ...sample('numbers sample')], seconds: 60 },
    { name: 'C tests, 64-bit addresses', seconds: 80,
      command: [...underWasmtime, 'build/wasm64/tests.wasm', ...sample('numbers sample')] },
    { name: 'command line, 64-bit addresses', command: nodeTests('tests/cli', name => WIDE_CLI.includes(name)),
      env: cli([...underWasmtime, 'build/wasm64/plumb.wasm']), seconds: 40 },
    { name: 'command line', command: nodeTests('tests/cli'), env: cli([...underWasmtime, 'build/wasi/plumb.wasm']),
      seconds: 80 },
  ],
};
for (const host of hosts)
  if (!(host in suites)) throw new Error(`HOSTS: no host ${host}; there are ${Object.keys(suites).join(', ')}`);

// Each suite is its own process group; process.exit ends the running ones.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

const start = performance.now();
const text = process.argv.slice(2).find((word) => word !== '--check') ?? '';
const wanted = hosts.flatMap((host) => suites[host].map((suite) => ({ ...suite, name: `${host}: ${suite.name}` })))
  .filter(({ name, quick }) => (quick || !check) && name.includes(text))
  .sort((a, b) => b.seconds - a.seconds);  // the long ones start first
const total = { passed: 0, failed: 0, skipped: 0 };

async function runAll() {
  for (let suite; (suite = wanted.shift());) {
    const outcome = await runSuite(suite);
    for (const key of Object.keys(total)) total[key] += outcome[key];
    report(suite, outcome);
  }
}

function report({ name }, { passed, failed, skipped, failures, seconds }) {
  const counts = [`${passed} passed`, failed && `${failed} failed`, skipped && `${skipped} skipped`].filter(Boolean);
  const time = `${seconds.toFixed(1).padStart(6)} s`;
  console.log(`${failed ? 'FAIL' : 'ok  '} ${name.padEnd(40)} ${time}   ${counts.join(', ')}`);
  for (const { name: test, why } of failures) {
    console.log(`     not ok: ${test}`);
    for (const line of why.split('\n').filter(Boolean)) console.log(`         ${line}`);
  }
}

// One more than processors, up to 3, since some suites wait at times: for a browser, a server or a lock.
await Promise.all(Array.from({ length: Math.min(3, availableParallelism() + 1) }, runAll));

console.log(`all suites: ${((performance.now() - start) / 1000).toFixed(0)} s`);
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed || !total.passed ? 1 : 0;
