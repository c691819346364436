/** The package's JSDoc types hold under tsc --strict, and so does code that uses them (tests/types). */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from './helpers.mjs';

const compiler = `${root}node_modules/typescript/bin/tsc`;

test('tsc --checkJs --strict finds no error in web/, and its declarations contain the API', t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-types-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const { stdout, status } = spawnSync(process.execPath, [compiler, '-p', `${root}web`, '--declaration',
    '--emitDeclarationOnly', '--outDir', folder], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['', 0]);
  const declared = ['plumb', 'session'].map(name => readFileSync(join(folder, `api/${name}.d.ts`), 'utf8')).join('');
  for (const name of ['load(', 'generate(', 'tokenize(', 'detokenize(', 'applyChatTemplate(', 'step(', 'close(']) {
    assert.ok(declared.includes(name), `${name} is missing`);
  }
});

test('code of users compiles, and what it gets has the types that it expects', t => {
  const folder = mkdtempSync(join(root, 'build', 'types-'));
  t.after(() => rmSync(folder, { recursive: true }));
  // What is written for OpenAI's package compiles with that one, too.
  const ours = readFileSync(`${root}tests/types/openai.mts`, 'utf8');
  const theirs = ours.replace("'../../web/openai.js'", "'openai'");
  assert.notEqual(theirs, ours);
  writeFileSync(join(folder, 'theirs.mts'), theirs);
  writeFileSync(join(folder, 'tsconfig.json'),
    '{ "extends": "../../tests/types/tsconfig.json", "include": ["../../tests/types/*.mts", "theirs.mts"] }');
  const { stdout, status } = spawnSync(process.execPath, [compiler, '-p', folder], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['', 0]);
});
