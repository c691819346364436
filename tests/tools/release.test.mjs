/** What `make release` makes: the list of its files, their parts and their licences.  `make test` builds none
 * of its programs, which would take minutes, but checks those that are there. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { FILES, FOLDER, SYSTEMS, partsOf, vendored } from '../../tools/release/files.mjs';
import { sbom } from '../../tools/release/sbom.mjs';
import { isStatic, machO } from '../../tools/release/start.mjs';

const require = createRequire(import.meta.url);

/** A validator by the schema of the standard. @param {object} list @returns {unknown[]} its findings */
function findings(list) {
  const Ajv = require('ajv'), formats = require('ajv-formats');
  const schema = (/** @type {string} */ name) => JSON.parse(readFileSync(
    `node_modules/@cyclonedx/cyclonedx-library/res/schema/${name}.SNAPSHOT.schema.json`, 'utf8'));
  const ajv = formats(new Ajv({ strict: false, allErrors: true, logger: false }));
  for (const name of ['spdx', 'jsf-0.82']) {
    const { $id, ...rest } = schema(name);
    assert.match($id, /cyclonedx/);
    ajv.addSchema(rest, `http://cyclonedx.org/schema/${name}.SNAPSHOT.schema.json`);
  }
  const { $schema, ...rest } = schema('bom-1.6');
  assert.match($schema, /draft-07/);
  const validate = ajv.compile(rest);
  return validate(list) ? [] : validate.errors ?? [];
}

const list = () => sbom(FILES.map(file => ({ file, sha256: 'ab'.repeat(32) })), [{ name: 'zig', version: '1' }],
  '2026-01-01T00:00:00.000Z');

test('release: the parts list is valid by the schema of CycloneDX, and says when it is not', () => {
  assert.deepEqual(findings(list()), []);
  assert.notDeepEqual(findings({ ...list(), components: [{ type: 'toy', name: 'x' }] }), []);
});

test('release: every file is in the parts list, and every library of the page and the package', () => {
  const { components, dependencies } = list(), names = components.map(({ name }) => name);
  for (const { name } of FILES) assert.ok(names.includes(name), name);
  const page = dependencies.find(({ ref }) => /site/.test(ref))?.dependsOn ?? [];
  for (const { name, version } of vendored()) assert.ok(page.includes(`${name}@${version}`), name);
  const folders = readdirSync('web/dist/vendor');
  assert.ok(folders.length > 3);
  for (const folder of folders) assert.ok(vendored().some(({ text }) => text.includes(`/${folder}/`)), folder);
  const refs = new Set(components.map(component => component['bom-ref']));
  assert.equal(refs.size, components.length);
  for (const { dependsOn = [] } of dependencies) for (const ref of dependsOn) assert.ok(refs.has(ref), ref);
});

test('release: the Makefile builds each program under the name of the list', () => {
  assert.ok(SYSTEMS.length >= 5);
  const programs = FILES.filter(({ kind }) => kind === 'program');
  assert.deepEqual(programs.map(({ system }) => system), SYSTEMS);
  for (const file of programs) {
    const { stderr } = spawnSync('make', ['-n', file.from], { encoding: 'utf8' });
    assert.doesNotMatch(stderr, /No rule/, file.from);
    assert.ok(partsOf(file).length > 0);
  }
});

const linux = 'build/cross/linux-x64/plumb';
test('release: the program for Linux is static', { skip: !existsSync(linux) && 'not built' }, () => {
  assert.equal(isStatic(linux), true);
  assert.equal(isStatic('build/native/plumb'), false);
  assert.match(spawnSync(linux, ['--help'], { encoding: 'utf8' }).stdout, /plumb run/);
});

test('release: what is in the folder is what SHA256SUMS says', { skip: !existsSync(FOLDER) && 'not made' }, () => {
  const { status, stdout } = spawnSync('sha256sum', ['-c', 'SHA256SUMS'], { cwd: FOLDER, encoding: 'utf8' });
  assert.equal(status, 0, stdout);
  const made = JSON.parse(readFileSync(join(FOLDER, readdirSync(FOLDER).find(name => name.endsWith('.cdx.json')) ?? ''),
    'utf8'));
  assert.deepEqual(findings(made), []);
});

/** A program for a Mac that has only these load commands. @param {[number, Buffer][]} commands */
function mac(commands, processor = 0x0100000c) {
  const made = commands.map(([number, rest]) => {
    const command = Buffer.alloc(8 + Math.ceil(rest.length / 8) * 8);
    command.writeUInt32LE(number, 0);
    command.writeUInt32LE(command.length, 4);
    rest.copy(command, 8);
    return command;
  });
  const header = Buffer.alloc(32);
  [0xfeedfacf, processor, 0, 2, commands.length].forEach((word, i) => header.writeUInt32LE(word, 4 * i));
  return Buffer.concat([header, ...made]);
}
const words = (/** @type {number[]} */ ...all) => Buffer.from(new Uint32Array(all).buffer);
const library = (/** @type {string} */ name) =>
  /** @type {[number, Buffer]} */ ([0xc, Buffer.concat([words(24, 0, 0, 0), Buffer.from(`${name}\0`)])]);
const system = library('/usr/lib/libSystem.B.dylib');
/** @type {[number, Buffer]} */
const version = [0x32, words(1, 11 << 16, 0, 0)];
/** @type {[number, Buffer]} */
const signature = [0x1d, words(0, 100)];

for (const [what, bytes, expected] of /** @type {[string, Buffer, RegExp | string][]} */ ([
  ['is read', mac([system, version, signature]), 'macOS 11.0 or later, loads libSystem only, signed ad hoc'],
  ['must be signed', mac([system, version]), /not signed/],
  ['must load nothing else', mac([system, library('/opt/x.dylib'), version, signature]), /it loads .*opt/],
  ['must be for its processor', mac([system, version, signature], 7), /no program for macos-arm64/],
  ['must say its system', mac([system, signature]), /does not say/],
]))
  test(`release: the header of a program for a Mac ${what}`, t => {
    const folder = mkdtempSync(join(tmpdir(), 'plumb-macho-')), file = join(folder, 'plumb');
    t.after(() => rmSync(folder, { recursive: true }));
    writeFileSync(file, bytes);
    if (typeof expected === 'string') assert.equal(machO(file, 'macos-arm64'), expected);
    else assert.throws(() => machO(file, 'macos-arm64'), expected);
  });
