/**
 * Runs every test on every host and closes with one line, "N passed, N failed, N skipped".
 *
 * HOSTS="native node" leaves hosts out; a host that is missing otherwise is a failure.  `node tests/run.mjs TEXT` runs
 * the suites whose name contains TEXT.  What was to be built must have been: `make test` does both.
 */
import { existsSync, readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { wasmtime } from './hosts/wasmtime.mjs';
import { runSuite } from './suite.mjs';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));

const hosts = (process.env.HOSTS || 'native node chromium wasmtime').split(/\s+/).filter(Boolean);
const underWasmtime = [wasmtime(), 'run', '--dir=.'];

/** The test files of a folder, run by Node's own runner. */
function nodeTests(folder) {
  const files = list(folder, '.test.mjs').map((name) => `${folder}/${name}`);
  if (!files.length) return [process.execPath, '-e', `throw new Error('${folder} holds no *.test.mjs')`];
  // A file that hangs is stopped, and the others are run.
  return [process.execPath, '--test', '--test-timeout=600000', '--test-reporter=tap', ...files];
}
const list = (folder, suffix) =>
  existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(suffix)).sort() : [];
/** PLUMB: the command line that tests/cli runs, as a JSON array. */
const cli = (command) => ({ PLUMB: JSON.stringify(command) });

/** Both passes on the default model against llama.cpp, by a release build of the C tests. */
const truth = (command) =>
  ({ name: 'default model against llama.cpp', command: [...command, 'truth'], timeout: 1800 });

/** `make package` needs a compiler that has relaxed SIMD. */
const packed = existsSync('web/dist/plumb-relaxed.wasm');

/** @type {Record<string, (import('./suite.mjs').Suite & {alone?: boolean})[]>} */
const suites = {
  native: [
    truth(['build/native/tests']),
    { name: 'C tests, ASan and UBSan', command: ['build/native-sanitize/tests'], timeout: 1200 },
    ...list('tests/fuzz', '_fuzz.c').map((file) => file.replace('_fuzz.c', '')).map((name) => ({
      name: `fuzz corpus ${name}`, command: [`build/native-sanitize/fuzz-${name}`,
        ...list(`tests/fuzz/corpus/${name}`, '').map((input) => `tests/fuzz/corpus/${name}/${input}`)],
      timeout: 240 })),
    { name: 'command line', command: nodeTests('tests/cli'), env: cli(['build/native/plumb']), timeout: 1200 },
    { name: 'tools', command: nodeTests('tests/tools'), timeout: 240 },
    ...[['second engine', 'engine.py', '--selftest'], ['proof of diagnose', 'prove.py', '--check']]
      .map(([name, script, option]) => ({ name, command: ['python3', `tests/reference/${script}`, option],
        env: { PYTHONPATH: 'build/setup/py' }, timeout: 1800 })),
  ],
  node: [
    { name: 'C tests', command: [process.execPath, 'tests/hosts/node.mjs', 'build/emcc/tests.wasm'], timeout: 600 },
    { name: 'C tests, 4 threads', command: [process.execPath, 'tests/hosts/node.mjs', 'build/emcc/tests-mt.wasm'],
      timeout: 600 },
    { name: 'JavaScript', command: nodeTests('tests/node'), timeout: 1200 },
    ...packed ? [{ name: 'package', command: nodeTests('tests/package'), timeout: 600 }] : [],
    { name: 'command line', command: nodeTests('tests/cli'), env: cli([process.execPath, 'web/node/cli.mjs']),
      timeout: 1200 },
  ],
  chromium: [
    ...['tests', existsSync('build/emcc/tests-mt-relaxed.wasm') ? 'tests-mt-relaxed' : 'tests-mt'].map((name) => ({
      name: `C tests${name === 'tests' ? '' : ', 4 threads'}`, timeout: 600,
      command: [process.execPath, 'tests/hosts/chromium.mjs', `build/emcc/${name}.wasm`] })),
    ...packed ? [{ name: 'package', command: nodeTests('tests/package/browser'), timeout: 1200 }] : [],
    // Frame gaps are measured there: nothing may run beside it.
    { name: 'JavaScript and chat page', command: nodeTests('tests/browser'), timeout: 1800, alone: true },
  ],
  wasmtime: [
    truth([...underWasmtime, 'build/wasi/tests.wasm']),
    { name: 'C tests', command: [...underWasmtime, 'build/wasi/tests.wasm'], timeout: 600 },
    { name: 'command line', command: nodeTests('tests/cli'), env: cli([...underWasmtime, 'build/wasi/plumb.wasm']),
      timeout: 1200 },
  ],
};
for (const host of hosts)
  if (!(host in suites)) throw new Error(`HOSTS: no host ${host}; there are ${Object.keys(suites).join(', ')}`);

// Suites are process groups of their own: leaving by way of exit ends those that run.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

const start = performance.now();
const wanted = hosts.flatMap((host) => suites[host].map((suite) => ({ ...suite, name: `${host}: ${suite.name}` })))
  .filter(({ name }) => name.includes(process.argv[2] ?? ''))
  .sort((a, b) => b.timeout - a.timeout);  // the long ones begin
const total = { passed: 0, failed: 0, skipped: 0 };

async function runAll(queue) {
  for (let suite; (suite = queue.shift());) {
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

const together = wanted.filter((suite) => !suite.alone);
await Promise.all(Array.from({ length: Math.min(2, availableParallelism()) }, () => runAll(together)));
await runAll(wanted.filter((suite) => suite.alone));

console.log(`all suites: ${((performance.now() - start) / 1000).toFixed(0)} s`);
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed || !total.passed ? 1 : 0;
