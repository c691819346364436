/** The runner's verdict on suites that misbehave: each must give exactly these counts. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { needs, runSuite } from '../suite.mjs';

const node = (script, silence = 60) => runSuite({ name: 'x', command: [process.execPath, '-e', script] }, silence);
const print = (...lines) => `console.log(${JSON.stringify(['TAP version 13', ...lines].join('\n'))});`;
const counts = ({ passed, failed, skipped }) => [passed, failed, skipped];

const rows = [
  ['all pass', print('ok 1 - a', 'ok 2 - b', '1..2'), [2, 0, 0], null],
  ['one fails, and its comments say why', print('ok 1 - a', '# x.c:3: y is 2', 'not ok 2 - b', '1..2') +
    'process.exitCode = 1', [1, 1, 0], /x\.c:3: y is 2/],
  ['one is skipped', print('ok 1 - a', 'ok 2 - b # SKIP no file', '1..2'), [1, 0, 1], null],
  ['groups are not counted', print('    ok 1 - in', '    ok 2 - in too', '    1..2', 'ok 1 - group', '1..1'), [2, 0, 0],
    null],
  ['a failure in a group counts once', print('    not ok 1 - in', '    1..1', 'not ok 1 - group', '1..1'), [0, 1, 0],
    null],
  ['no test at all', print('1..0'), [0, 1, 0], /ran no test/],
  ['no output', '', [0, 1, 0], /ran no test/],
  ['the plan is missing', print('ok 1 - a'), [1, 1, 0], /without its plan/],
  ['fewer tests than planned', print('1..3', 'ok 1 - a'), [1, 1, 0], /without its plan \(1 tests, exit status 0\)/],
  ['a failing exit status', print('ok 1 - a', '1..1') + 'process.exit(3)', [1, 1, 0], /exit status 3/],
  ['a crash, with what it wrote to stderr', print('ok 1 - a') + "console.error('stack smashed'); process.abort()",
    [1, 1, 0], /SIGABRT[^]*stack smashed/],
];
for (const [name, script, expected, why] of rows)
  test(`suite: ${name}`, async () => {
    const outcome = await node(script);
    assert.deepEqual(counts(outcome), expected);
    if (why) assert.match(outcome.failures.at(-1).why, why);
  });

test('suite: a hang is killed with the processes it started', async () => {
  const script = `const child = require('child_process').spawn('sleep', ['600'], { stdio: 'ignore' });
    console.log('TAP version 13\\nnot ok 1 - ' + child.pid);`;
  const outcome = await node(script, 5);
  assert.deepEqual(counts(outcome), [0, 2, 0]);
  assert.match(outcome.failures[1].why, /no test ended for 5 s; killed; the last one: \d+$/);
  assert.ok(outcome.seconds < 60);
  const pid = Number(outcome.failures[0].name);
  await new Promise((resolve) => setTimeout(resolve, 100));
  // It has ended, or it is a zombie, which has no command line.
  const left = existsSync(`/proc/${pid}`) ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : '';
  assert.equal(left, '');
});

test('suite: a file that hangs is named with its last test, and the other files run', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-'));
  writeFileSync(join(folder, 'a.test.mjs'), `import test from 'node:test';
    test('first', () => {});
    test('second', () => new Promise(() => setInterval(() => {}, 1000)));`);
  writeFileSync(join(folder, 'b.test.mjs'), "import test from 'node:test'; test('third', () => {});");
  const files = ['a', 'b'].map((name) => join(folder, `${name}.test.mjs`));
  // Clears the variables of this test runner; otherwise Node treats the inner runner as a part of it.
  const command = ['env', '-u', 'NODE_TEST_CONTEXT', process.execPath, '--test', '--test-timeout=10000',
    '--test-reporter=tap', ...files];
  const outcome = await runSuite({ name: 'x', command });
  rmSync(folder, { recursive: true });
  assert.deepEqual(counts(outcome), [2, 1, 0]);
  assert.match(outcome.failures[0].name, /a\.test\.mjs$/);
  assert.match(outcome.failures[0].why, /the last test that ended: first\n.*timed out/);
});

test('suite: a missing program fails', async () => {
  const outcome = await runSuite({ name: 'x', command: ['no-such-program'] });
  assert.deepEqual(counts(outcome), [0, 1, 0]);
  assert.match(outcome.failures[0].why, /cannot be run: .*ENOENT/);
});

test('suite: a suite whose file was not built fails and names the file', async () => {
  const suite = { name: 'x', command: [process.execPath, '-e', print('ok 1 - a', '1..1')] };
  assert.equal(needs('tests/suite.mjs', suite), suite);
  const outcome = await runSuite(needs('build/no-such-file.tgz', suite));
  assert.deepEqual(counts(outcome), [0, 1, 0]);
  assert.match(outcome.failures[0].why, /build\/no-such-file\.tgz is not there: `make test` builds it/);
});
