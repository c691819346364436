import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

test('docs/templates.md has the results of the native test', () => {
  const { status, stderr } = spawnSync(process.execPath, ['tools/templates_page.mjs', '--check'], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
