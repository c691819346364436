/** docs/api.md is what the modules say. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { root } from './helpers.mjs';

test('the reference in web/docs/api.md is the one that `make docs` writes', () => {
  const generated = execFileSync(process.execPath, [`${root}tools/api.mjs`], { encoding: 'utf8' });
  assert.equal(generated, readFileSync(`${root}web/docs/api.md`, 'utf8'), 'run `make docs`');
});
