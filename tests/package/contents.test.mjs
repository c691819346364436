/** The contents and the declarations of the tarball. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { project, root, tarball } from './helpers.mjs';

let folder;
before(() => { folder = project(); });

const filesOf = path => readdirSync(path, { recursive: true, withFileTypes: true })
  .filter(entry => entry.isFile())
  .map(entry => join(entry.parentPath ?? entry.path, entry.name).slice(path.length + 1));

test('the tarball has the code, types, licences and documentation, and is at most 3.4 MB', t => {
  const { size } = statSync(tarball);
  t.diagnostic(`${size} bytes`);
  assert.ok(size <= 3.4e6, `${size} bytes`);
  const expected = [
    /^package\.json$/, /^README\.md$/, /^LICENSE$/, /^docs\/api\.md$/,
    /^(index|openai|fetch|ai|prompt-api|sw)\.js$/, /^cli\/main\.mjs$/,
    /^(browser|node)\/(index|openai|fetch|ai|prompt-api|[a-z]+-worker|[A-Z0-9]{8})\.js$/,
    /^chat\/(page|theme|(documents|typeset)\/worker)\.js$/, /^chat\/([a-z]+\/)?[a-z-]+\.(css|html|svg)$/,
    /^examples\/([a-z]+\/)*[a-z-]+\.(js|css|html|json|gguf)$/,
    /^dist\/plumb(-mt|-relaxed|-mt-relaxed|-64|-mt-64|-grammar|-template|-trace|-cli)?\.wasm$/,
    /^dist\/types\/([a-z]+\/)*[a-z-]+\.d\.ts$/,
    /^dist\/vendor\/[a-z-]+\/(LICENSE|[a-z0-9_.-]+\.m?js)$/,
  ];
  const installed = join(folder, 'node_modules', 'plumb-llm'), files = filesOf(installed);
  const read = (/** @type {string} */ file) => readFileSync(join(installed, file), 'utf8');
  assert.deepEqual(files.filter(file => !expected.some(pattern => pattern.test(file))), []);
  for (const pattern of expected) assert.ok(files.some(file => pattern.test(file)), `no ${pattern}`);
  assert.equal(files.filter(file => file.endsWith('.wasm')).length, 10);
  const libraries = new Set(files.flatMap(file => /^(dist\/vendor\/.*)\//.exec(file)?.[1] ?? []));
  for (const library of libraries) assert.ok(files.includes(`${library}/LICENSE`), `no licence of ${library}`);
  // The licence of DOMPurify does not name its owner, but its code does.
  assert.ok(files.some(file => file.startsWith('browser/') && /\(c\) Cure53/.test(read(file))));
});

test('it has no dependencies, so nothing else is installed', () => {
  const { private: kept, dependencies, peerDependencies } =
    JSON.parse(readFileSync(join(folder, 'node_modules', 'plumb-llm', 'package.json'), 'utf8'));
  assert.deepEqual([kept, dependencies, peerDependencies], [undefined, undefined, undefined]);
  assert.deepEqual(readdirSync(join(folder, 'node_modules')).filter(name => !name.startsWith('.')), ['plumb-llm']);
});

test('an incomplete package is not packed, and the error names the missing file', t => {
  const copy = mkdtempSync(join(tmpdir(), 'plumb-incomplete-'));
  t.after(() => rmSync(copy, { recursive: true }));
  const prepack = () => spawnSync(process.execPath, [`${root}tools/prepack.mjs`, copy], { encoding: 'utf8' });
  cpSync(join(folder, 'node_modules', 'plumb-llm'), copy, { recursive: true });
  assert.deepEqual([prepack().status, prepack().stderr], [0, '']);
  for (const [file, by] of /** @type {[string, RegExp][]} */ ([
    ['dist/plumb-mt.wasm', /^sw\.js$/], ['chat/page.js', /^sw\.js$/], ['dist/types/index.d.ts', /^package\.json$/],
    ['LICENSE', /^package\.json$/], ['ai.js', /^package\.json$/], ['browser/thread-worker.js', /^sw\.js$/],
    ['node/thread-worker.js', /^node\/[\w-]+\.js$/], ['node/engine-worker.js', /^node\/\w+\.js$/],
  ])) {
    rmSync(join(copy, file));
    const { status, stderr } = prepack();
    assert.equal(status, 1);
    const [, missing, named] =
      /^plumb: (\S+) is not there, which (\S+) names: `make package` builds all that is packed\n$/.exec(stderr)
      ?? [stderr];
    assert.equal(missing, file);
    assert.match(named, by);
    cpSync(join(folder, 'node_modules', 'plumb-llm', file), join(copy, file));
  }
});

const DOM = ['es2023', 'dom', 'dom.iterable', 'dom.asynciterable'];
for (const [moduleResolution, module, lib, sample] of /** @type {[string, string, string[], string][]} */ ([
  ['bundler', 'esnext', DOM, 'sample.ts'], ['nodenext', 'nodenext', DOM, 'sample.ts'],
  ['node10', 'esnext', DOM, 'sample.ts'], ['bundler', 'esnext', ['es2022'], 'sample-es2022.ts'],
  ['bundler', 'esnext', ['es2022', 'esnext.disposable'], 'sample-using.ts'],
  ['nodenext', 'nodenext', [...DOM, 'esnext.disposable'], 'sample-using.ts'],
])) {
  const where = `moduleResolution ${moduleResolution} and lib ${
    lib === DOM ? lib[0] : lib.length === 1 ? `${lib[0]} alone` : `${lib[0]} with ${lib.at(-1)}`}`;
  test(`correct uses compile in strict TypeScript, by ${where}, and wrong uses do not`, () => {
    cpSync(`${root}tests/package/${sample}`, join(folder, sample));
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({
      compilerOptions: {
        strict: true, noEmit: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, types: [],
        target: 'es2022', lib, module, moduleResolution,
      },
      files: [sample],
    }));
    const { stdout, status } = spawnSync(process.execPath, [`${root}node_modules/typescript/bin/tsc`, '-p', folder],
      { encoding: 'utf8' });
    assert.deepEqual([stdout, status], ['', 0]);
  });
}

const tool = (/** @type {string[]} */ ...args) => {
  const { stdout, stderr, status } = spawnSync(process.execPath, args.with(0, `${root}node_modules/${args[0]}`),
    { encoding: 'utf8' });
  return [status, status === 0 ? '' : stdout + stderr];
};
test('publint finds no problem', () => {
  assert.deepEqual(tool('publint/src/cli.js', 'run', tarball, '--strict'), [0, '']);
});
test('arethetypeswrong finds no problem, by node10, node16 and bundler', () => {
  // The package has only ES modules; the one ignored rule requires CommonJS too.
  assert.deepEqual(tool('@arethetypeswrong/cli/dist/index.js', tarball, '--no-definitely-typed', '--ignore-rules',
    'cjs-resolves-to-esm'), [0, '']);
});

test('the error codes in the types are those of include/plumb.h and web/base/errors.js', () => {
  const names = (/** @type {string} */ text) => text.match(/\bPLUMB_ERROR(_[A-Z]+)*\b/g) ?? [];
  const types = readFileSync(join(folder, 'node_modules/plumb-llm/dist/types/base/errors.d.ts'), 'utf8');
  const known = names(/type ErrorCode =(.*?);/s.exec(types)?.[1] ?? '');
  const status = /typedef enum plumb_status \{(.*?)\}/s.exec(readFileSync(`${root}include/plumb.h`, 'utf8'))?.[1] ?? '';
  assert.deepEqual(known.sort(), ['PLUMB_ERROR', 'PLUMB_ERROR_CHECKSUM', ...names(status)].sort());
});

test('the exports in Node are those that the types of index.js declare', () => {
  const names = JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e',
    'console.log(JSON.stringify(Object.keys(await import("plumb-llm"))))'], { cwd: folder, encoding: 'utf8' }));
  const declared = readFileSync(join(folder, 'node_modules', 'plumb-llm', 'dist', 'types', 'index.d.ts'), 'utf8');
  const values = [...declared.matchAll(/^export (?:\{ ([\w, ]+) \}|const (\w+))/gm)]
    .flatMap(([, list, one]) => list?.split(', ') ?? one);
  assert.deepEqual(names, values.sort());
});
