/** The shape of the tree: rooms include only what lies above them, and every room's tests are in the test program. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import test from 'node:test';

test('tree: make layers finds no back edge', () => {
  const { status, stdout, stderr } = spawnSync('make', ['layers'], { encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
});

const rows = [
  ['src/gguf/a.c', '#include "base/base.h"\n#include <stdio.h>\n', null],
  ['src/gguf/a.c', '\n#include "model/model.h"\n', 'src/gguf/a.c:2: room gguf includes model/model.h which comes after it'],
  ['src/gguf/a.c', '#include "gguf.h"\n', 'src/gguf/a.c:1: write "room/file.h", not "gguf.h"'],
  ['src/attic/a.c', '#include "base/base.h"\n', 'src/attic/a.c:1: room attic has no place in tools/layers.awk'],
  ['src/cli/a.c', '#include "cli/cli.h"\n#include "plumb.h"\n', null],
  ['src/cli/a.c', '#include "base/base.h"\n',
    'src/cli/a.c:1: the command line sees only plumb.h of the engine, not base/base.h'],
  ['wasm/a.c', '#include "plumb.h"\n#include "digest.h"\n', null],
  ['wasm/a.c', '#include "base/base.h"\n', 'wasm/a.c:1: wasm/ sees only plumb.h of the engine, not base/base.h'],
];
for (const [file, text, refusal] of rows)
  test(`tree: layers.awk says ${refusal ?? 'nothing'}: ${JSON.stringify(text)} in ${file}`, (t) => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-layers-'));
    t.after(() => rmSync(dir, { recursive: true }));
    mkdirSync(join(dir, file, '..'), { recursive: true });
    writeFileSync(join(dir, file), text);
    const rules = resolve('tools/layers.awk');
    const { status, stdout } = spawnSync('awk', ['-f', rules, file], { cwd: dir, encoding: 'utf8' });
    assert.equal(status, refusal ? 1 : 0);
    assert.equal(stdout.split('\n')[0], refusal ?? '');
  });

test('tree: tests/main.c lists every room that has tests', () => {
  const main = readFileSync('tests/main.c', 'utf8');
  const files = readdirSync('tests').filter((name) => name.endsWith('_test.c'));
  assert.ok(files.length >= 9);
  for (const file of files) {
    const [, room] = /^void test_(\w+)\(void\) \{/m.exec(readFileSync(`tests/${file}`, 'utf8')) ?? assert.fail(file);
    assert.match(main, new RegExp(`X\\(${room}\\)|[{ ]test_${room}[,}]`), `${file}: test_${room}`);
  }
});
