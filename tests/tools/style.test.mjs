/** JavaScript is written as eslint.config.js says. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';

test('style: eslint finds nothing', () => {
  const { status, stdout, stderr } = spawnSync('node_modules/.bin/eslint', ['.'], { encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
});
