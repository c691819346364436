/** The shape of the tree: rooms include only earlier rooms, and every room's tests are in the test program. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import test from 'node:test';
import { names, parameters } from '../../tools/tables.mjs';

test('tree: make layers finds no back edge', () => {
  const { status, stdout, stderr } = spawnSync('make', ['layers'], { encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
});

const rows = [
  ['src/engine/gguf/a.c', '#include "base/base.h"\n#include <stdio.h>\n', null],
  ['src/engine/gguf/a.c', '\n#include "model/model.h"\n',
    'src/engine/gguf/a.c:2: room gguf includes model/model.h which comes after it'],
  ['src/engine/gguf/a.c', '#include "gguf.h"\n', 'src/engine/gguf/a.c:1: write "room/file.h", not "gguf.h"'],
  ['src/engine/attic/a.c', '#include "base/base.h"\n',
    'src/engine/attic/a.c:1: room attic has no place in tools/layers.awk'],
  ['src/truth/gguf/a.c', '\n', 'src/truth/gguf/a.c:1: room gguf is of the wing engine'],
  ['src/cli/a.c', '#include "cli/cli.h"\n#include "plumb_truth.h"\n', null],
  ['src/cli/a.c', '#include "base/base.h"\n',
    'src/cli/a.c:1: the command line sees only the public headers, not base/base.h'],
  ['wasm/a.c', '#include "plumb.h"\n#include "digest.h"\n', null],
  ['wasm/a.c', '#include "plumb_truth.h"\n#include "grammar/grammar.h"\n', null],
  ['wasm/a.c', '#include "base/base.h"\n',
    'wasm/a.c:1: wasm/ sees the public headers, api, template, grammar and trace, not base/base.h'],
  ['src/answers/grammar/a.c', '#include "plumb_truth.h"\n',
    'src/answers/grammar/a.c:1: room grammar of the answers includes plumb_truth.h'],
  ['src/engine/api/a.c', '#include "plumb.h"\n#include "template/template.h"\n',
    'src/engine/api/a.c:2: room api includes template/template.h which comes after it'],
];
for (const [file, text, refusal] of rows)
  test(`tree: layers.awk reports ${refusal ?? 'nothing'}: ${JSON.stringify(text)} in ${file}`, (t) => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-layers-'));
    t.after(() => rmSync(dir, { recursive: true }));
    mkdirSync(join(dir, file, '..'), { recursive: true });
    writeFileSync(join(dir, file), text);
    const rules = resolve('tools/layers.awk');
    const { status, stdout } = spawnSync('awk', ['-f', rules, file], { cwd: dir, encoding: 'utf8' });
    assert.equal(status, refusal ? 1 : 0);
    assert.equal(stdout.split('\n')[0], refusal ?? '');
  });

/** @type {[string, Record<string, string>, string | null][]} */
const trees = [
  ['a room imports itself, rooms before it, Node and what was built', {
    'base/a.js': "import fs from 'node:fs';\nexport * from './b.js';\n", 'base/b.js': '',
    'engine/a.js': "import '../base/a.js';\nimport '../dist/vendor/a.js';\n", 'index.js': "import './engine/a.js';\n",
    'chat/a.js': "import '../index.js';\nnew URL('../dist/a.wasm', import.meta.url);\n",
  }, null],
  ['an import runs back', { 'base/a.js': "\nimport {\n  b,\n} from '../engine/b.js';\n", 'engine/b.js': '' },
    'web/base/a.js:4: room base imports engine/b.js of the later room engine'],
  ['an import at its time runs back', { 'base/a.js': "await import('../engine/b.js');\n", 'engine/b.js': '' },
    'web/base/a.js:1: room base imports engine/b.js of the later room engine'],
  ['a type runs back', { 'base/a.js': "/** @type {import('../engine/b.js').B} */\n", 'engine/b.js': '' },
    'web/base/a.js:1: room base imports engine/b.js of the later room engine'],
  ['a worker lies in a later room', {
    'api/a.js': "new Worker(new URL('../browser/b.js', import.meta.url));\n", 'browser/b.js': '',
  }, 'web/api/a.js:1: room api imports browser/b.js of the later room browser'],
  ['a room imports the entries', { 'api/a.js': "export * from '../index.js';\n", 'index.js': '' },
    'web/api/a.js:1: room api imports index.js of the later room entries'],
  ['modules of one room go in a circle', {
    'base/a.js': "import './b.js';\n", 'base/b.js': "\nimport './c.js';\n",
    'base/c.js': "\n\n/** @type {import('./a.js').A} */\n",
  }, 'web/base/c.js:3: a circle: base/a.js -> base/b.js -> base/c.js -> base/a.js'],
  ['a room is not in the list', { 'attic/a.mjs': '' },
    'web/attic/a.mjs:1: room attic has no place in tools/layers.mjs'],
  ['a file is not there', { 'base/a.js': "import './b.js';\n" }, 'web/base/a.js:1: base/b.js is not there'],
];
for (const [what, files, refusal] of trees)
  test(`tree: layers.mjs reports ${refusal ?? 'nothing'}: ${what}`, (t) => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-layers-'));
    t.after(() => rmSync(dir, { recursive: true }));
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(join(dir, 'web', file, '..'), { recursive: true });
      writeFileSync(join(dir, 'web', file), text);
    }
    const { status, stdout } = spawnSync(process.execPath, [resolve('tools/layers.mjs')],
      { cwd: dir, encoding: 'utf8' });
    assert.deepEqual([status, stdout], refusal ? [1, `${refusal}\n`] : [0, '']);
  });

test('tree: no line of code has more than 120 columns', () => {
  const files = ['src', 'include', 'wasm', 'web', 'tests', 'tools', 'models'].flatMap((folder) =>
    readdirSync(folder, { recursive: true }).map((name) => join(folder, String(name))))
    .filter((name) => /\.(c|h|m?js|py|css|html|awk|sh)$/.test(name) && !/(^|\/)(node_modules|dist)\//.test(name))
    .concat('Makefile');
  assert.ok(files.length > 300);
  const long = files.flatMap((file) => readFileSync(file, 'utf8').split('\n').flatMap((line, i) =>
    [...line].length > 120 ? [`${file}:${i + 1}`] : []));
  assert.deepEqual(long, []);
});

test('tree: web/base/parameters.js is what tools/tables.mjs makes of plumb.h', () => {
  assert.equal(page('web/base/parameters.js'), parameters(page('include/plumb.h')), '`make docs`');
});

test('tree: web/cli/names.js is what tools/tables.mjs makes of src/cli/names.h', () => {
  assert.equal(page('web/cli/names.js'), names(page('src/cli/names.h'), page('src/cli/options.c')), '`make docs`');
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

const pages = execFileSync('git', ['ls-files', '*.md'], { encoding: 'utf8' }).trim().split('\n');
const page = (/** @type {string} */ path) => readFileSync(path, 'utf8');
const rooms = ['engine', 'answers', 'truth'].flatMap(wing =>
  readdirSync(`src/${wing}`).map(room => `src/${wing}/${room}`));

test('tree: CONTRIBUTING lists the rooms in the order of make layers, and the README those of src', () => {
  const listed = [...page('CONTRIBUTING.md').matchAll(/^ {4}(.*)$/gm)].map(([, line]) => line).join(' ')
    .replaceAll(/ +/g, ' ');
  const inSrc = [...page('tools/layers.awk').matchAll(/wing\("(\w+)", "([a-z ]+)"\)/g)]
    .map(([, wing, rooms]) => wing === rooms ? wing : `${wing} ${rooms}`).join(' ');
  const inWeb = [...(/const ROOMS = \[([^\]]*)\]/.exec(page('tools/layers.mjs'))?.[1] ?? '').matchAll(/'(\w+)'/g)]
    .map(([, name]) => name).join(' ').replace('entries', '(index.js, openai.js)');
  assert.ok(inSrc.length > 100 && inWeb.length > 50);
  assert.ok(listed.includes(inSrc) && listed.includes(inWeb), `${listed}: ${inSrc}, ${inWeb}`);
  for (const wing of readdirSync('src')) assert.match(page('README.md'), new RegExp(`^ {4}src/${wing} `, 'm'));
  for (const room of rooms) assert.match(page('README.md'), new RegExp(`^ {6}${basename(room)} `, 'm'));
});

test('tree: the README of a room of src names every source of it', () => {
  const described = rooms.filter(room => existsSync(`${room}/README.md`));
  assert.ok(described.length >= 3);
  // The files of the kernels are by type and instruction set.
  for (const room of described.filter(room => !room.endsWith('kernels'))) {
    const text = page(`${room}/README.md`);
    const missing = readdirSync(room).filter(name => name.endsWith('.c')
      && !text.includes(`\`${name}\``) && !text.includes(`\`${name.replace('.c', '')}`));
    assert.deepEqual(missing, [], `${room}/README.md`);
  }
});

test('tree: the files that documents name are there', () => {
  const folders = 'src|web|tests|tools|models|docs|include|wasm|bench', endings = 'c|h|m?js|py|md|sh|json|txt|awk';
  const name = new RegExp(`(?<![\\w/.-])(?:${folders})/[\\w./-]+\\.(?:${endings})\\b`, 'g');
  const gone = pages.flatMap(path => [...page(path).matchAll(name)].map(([file]) => file)
    .filter(file => !existsSync(file) && !existsSync(join(path, '..', file)))
    .filter(file => !/DATE|^src.index\.js$/.test(file))   // which stand for others
    .map(file => `${path}: ${file}`));
  assert.deepEqual(gone, []);
});

test('tree: the documents name every command of the command line', () => {
  const text = [...pages.filter(path => path.startsWith('docs/')), 'README.md'].map(page).join('\n');
  const help = execFileSync('build/native/plumb', ['--help'], { encoding: 'utf8' });
  const commands = [...help.matchAll(/^ {2}plumb (\w+)/gm)].map(([, command]) => command);
  assert.ok(commands.length > 10, help);
  for (const command of new Set(commands)) assert.ok(text.includes(`plumb ${command}`), `plumb ${command}`);
});

test('tree: tests/fuzz/seeds.py writes the seeds that are there, with the numbers of today\'s taps and models', () => {
  const { status, stderr } = spawnSync('python3', ['tests/fuzz/seeds.py', '--check'], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
