/** The package's JSDoc types hold under tsc --strict. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from './helpers.mjs';

const compiler = `${root}node_modules/typescript/bin/tsc`;
const tsc = (...options) =>
  spawnSync(process.execPath, [compiler, '-p', `${root}web`, ...options], { encoding: 'utf8' });

test('tsc --checkJs --strict finds no error in web/', () => {
  const { stdout, status } = tsc('--noEmit');
  assert.equal(stdout, '');
  assert.equal(status, 0);
});

test('the published declarations contain the API', t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-types-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const { stdout, status } = tsc('--declaration', '--emitDeclarationOnly', '--outDir', folder);
  assert.deepEqual([stdout, status], ['', 0]);
  const declared = readFileSync(join(folder, 'api/plumb.d.ts'), 'utf8');
  for (const name of ['load(', 'generate(', 'tokenize(', 'detokenize(', 'applyChatTemplate(', 'step(', 'close(']) {
    assert.ok(declared.includes(name), `${name} is missing`);
  }
});
