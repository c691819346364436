/** One test suite: a child process that prints TAP, and the verdict on it. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Parser } from 'tap-parser';

/**
 * @typedef {object} Suite
 * @property {string} name
 * @property {string[]} command  program and arguments
 * @property {Record<string, string>} [env]  added to our own
 * @property {number} seconds  of 2 cores, roughly: the longest suites start first
 *
 * @typedef {object} Outcome
 * @property {number} passed  leaf tests, not the groups around them
 * @property {number} failed  a failure of the whole suite counts as one
 * @property {number} skipped
 * @property {{name: string, why: string}[]} failures
 * @property {string} last  the test that ended last
 * @property {number} seconds
 */

/** Seconds without a test that ends, after which a suite counts as hanging.  How long a whole suite takes depends on
 * what else the machine does. */
const SILENCE = 1200;

/** The suite, or one that fails with the reason if the file that it needs was not built.
 * @template {Suite} T @param {string} file @param {T} suite @returns {T} */
export function needs(file, suite) {
  if (existsSync(file)) return suite;
  const why = `${file} is not there: \`make test\` builds it, with clang of LLVM 19 or newer`;
  return { ...suite, command: [process.execPath, '-e', `console.error(${JSON.stringify(why)}); process.exitCode = 1`] };
}

/** Runs the suite; never rejects. @param {Omit<Suite, 'seconds'>} suite @param {number} [silence]
 * @returns {Promise<Outcome>} */
export async function runSuite({ command: [program, ...args], env }, silence = SILENCE) {
  const start = performance.now();
  const outcome = { passed: 0, failed: 0, skipped: 0, failures: [], last: 'none', seconds: 0 };
  const fail = (name, why) => {
    outcome.failed++;
    outcome.failures.push({ name, why });
  };
  const parser = new Parser();
  collect(parser, outcome, fail);
  const end = await run(program, args, env, silence, parser);
  outcome.seconds = (performance.now() - start) / 1000;

  const { plan } = end.tap;
  const unfinished = !plan || plan.end === null || end.tap.count !== plan.end - plan.start + 1;
  const reason = end.error ? `cannot be run: ${end.error.message}`
    : end.timedOut ? `no test ended for ${silence} s; killed; the last one: ${outcome.last}`
    : end.signal ? `died of ${end.signal}`
    : end.code !== 0 && outcome.failed === 0 ? `exit status ${end.code}, though no test failed`
    : unfinished ? `the output ends without its plan (${end.tap.count} tests, exit status ${end.code})`
    : outcome.passed + outcome.failed + outcome.skipped === 0 ? 'ran no test' : null;
  if (reason) fail('the suite itself', [reason, end.tail].filter(Boolean).join('\n'));
  return outcome;
}

/** Counts the leaves of a TAP tree and collects the texts of failures: comments before (our C harness), YAML after. */
function collect(parser, outcome, fail) {
  let comments = [];
  let failedBelow = 0;
  parser.on('comment', (text) => comments.push(text.replace(/^# ?/, '').trim()));
  parser.on('child', (child) => {
    collect(child, outcome, (...failure) => {
      failedBelow++;
      fail(...failure);
    });
  });
  parser.on('assert', (test) => {
    const notes = comments.filter((text) => !text.startsWith('Subtest:'));
    const group = test.closingTestPoint;
    comments = [];
    if (test.skip || (test.todo && !test.ok)) outcome.skipped++;
    else if (!test.ok) {
      const hung = test.diag?.failureType === 'testTimeoutFailure' ? [`the last test that ended: ${outcome.last}`] : [];
      if (!group || failedBelow === 0) {
        fail(test.fullname || test.name, [...notes, ...hung, yaml(test.diag)].join('\n').trim());
      }
    } else if (!group) outcome.passed++;
    outcome.last = test.name;
    if (group) failedBelow = 0;
  });
}

/** The useful part of the YAML block that node's runner prints. */
function yaml(diag) {
  if (!diag) return '';
  const { error, location, stack, expected, actual } = diag;
  const shown = (label, value) => value === undefined ? [] : [`${label}: ${JSON.stringify(value).slice(0, 300)}`];
  return [error, ...shown('expected', expected), ...shown('actual', actual), location && `at ${location}`, stack]
    .filter(Boolean).join('\n').replace(/^.*\(?node:internal.*\n?|^.*node:async_hooks.*\n?/gm, '');
}

function run(program, args, env, silence, parser) {
  return new Promise((resolve) => {
    let timedOut = false, error, tail = '';
    // It has its own process group, so that a hanging suite's browser or server dies with it.
    const child = spawn(program, args, {
      detached: true, stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env },
    });
    const kill = () => {
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch { /* gone already */ }
    };
    const timer = setTimeout(() => {
      timedOut = true;
      kill();
    }, silence * 1000);
    process.once('exit', kill);
    child.stdout.on('data', () => timer.refresh());
    child.stderr.on('data', (data) => { tail = (tail + data).slice(-4000); });
    child.on('error', (e) => { error = e; });
    const parsed = new Promise((done) => parser.on('complete', done));
    child.stdout.pipe(parser);
    child.on('close', async (code, signal) => {
      clearTimeout(timer);
      process.removeListener('exit', kill);
      kill();  // ends the processes that the suite left running
      if (error) parser.end();
      resolve({ error, code, signal, timedOut, tail: tail.trim(), tap: await parsed });
    });
  });
}
