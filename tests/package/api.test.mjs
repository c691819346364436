/** docs/api.md matches the comments of the modules. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { root } from './helpers.mjs';

test('web/docs/api.md is up to date with `make docs`', () => {
  const generated = execFileSync(process.execPath, [`${root}tools/api.mjs`], { encoding: 'utf8' });
  assert.equal(generated, readFileSync(`${root}web/docs/api.md`, 'utf8'), 'run `make docs`');
});
