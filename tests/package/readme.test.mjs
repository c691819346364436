/** The examples of the READMEs run as they are, in a project that has installed the package. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { project, root } from './helpers.mjs';
import { examples, examplesFor, expectedOf, RECIPES } from './readme.mjs';

let folder;
before(() => {
  folder = project();
  symlinkSync(`${root}models`, join(folder, 'models'));
});

test('every JavaScript example and every page says where it runs', () => {
  const places = { js: ['node', 'browser', 'both', ...RECIPES], html: ['browser', ...RECIPES] };
  const unmarked = examples.filter(({ language, mark }) => places[language] && !places[language].includes(mark));
  assert.deepEqual(unmarked.map(({ line }) => line), []);
  // Counts them independently, in case the pattern misses some.
  const { length } = readFileSync(`${root}web/README.md`, 'utf8').match(/^```(?:js|html)$/gm) ?? [];
  assert.ok(length >= 8, `${length} examples`);
  const all = examples.filter(({ file, language }) => file === 'web/README.md' && /^(js|html)$/.test(language));
  assert.equal(all.length, length);
});

for (const { file, line, code } of examplesFor('node')) {
  test(`${file}, line ${line}, in Node`, () => {
    const script = join(folder, `example-${line}.mjs`);
    writeFileSync(script, code);
    const { stdout, stderr, status } = spawnSync(process.execPath, [script], {
      cwd: folder, encoding: 'utf8', timeout: 60000, env: { ...process.env, PLUMB_CACHE: join(folder, 'cache') },
    });
    assert.deepEqual([status, stderr], [0, '']);
    assert.match(stdout.trimEnd(), expectedOf(code));
  });
}

test('npx plumb is the command line', () => {
  const { stdout, status } = spawnSync('npx', ['--no-install', 'plumb', '--help'], { cwd: folder, encoding: 'utf8' });
  assert.equal(status, 0);
  assert.match(stdout, /plumb inspect +MODEL/);
});
