/** Bundles for Node by the README's commands: with the package in node_modules, and in a folder of their own.  They are
 * here because esbuild is installed for the tests of this folder only. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { project, root, version } from '../helpers.mjs';

const SCRIPT = `import { Plumb } from 'plumb-llm';
await using model = await Plumb.load(process.env.MODEL, { threads: 2 });
console.log(await model.generate([{ role: 'user', content: 'Hi' }], { regex: '[ab]{3}', temperature: 0 }));
console.log((await Plumb.command(['--version'])).out.trim());
`;

/** A project with the script and esbuild, which turns `await using` into what every Node runs. */
function newProject() {
  const folder = project();
  mkdirSync(join(folder, 'src'));
  writeFileSync(join(folder, 'src/index.js'), SCRIPT);
  for (const name of ['.bin', 'esbuild', '@esbuild']) {
    rmSync(join(folder, 'node_modules', name), { recursive: true, force: true });
    symlinkSync(`${root}tests/package/bundlers/node_modules/${name}`, join(folder, 'node_modules', name));
  }
  return folder;
}
const run = (folder, script) => execFileSync(process.execPath, [script], { cwd: folder, encoding: 'utf8',
  env: { ...process.env, MODEL: `${root}models/SmolLM2-135M-Instruct.Q4_1.gguf` } });
const EXPECTED = new RegExp(`^[ab]{3}\nplumb ${version}\n$`);

test('esbuild leaves the package in node_modules', () => {
  const folder = newProject();
  execFileSync('npx', ['--no-install', 'esbuild', 'src/index.js', '--bundle', '--platform=node', '--format=esm',
    '--external:plumb-llm', '--target=node20', '--outfile=index.js', '--log-level=error'], { cwd: folder });
  assert.match(run(folder, 'index.js'), EXPECTED);
});

test('esbuild makes a folder that needs no node_modules', () => {
  const folder = newProject();
  const [, commands] = /<!-- bundle: esbuild-node -->\n```sh\n(.*?)```/s
    .exec(readFileSync(`${root}web/README.md`, 'utf8')) ?? assert.fail('README has no commands');
  execFileSync('sh', ['-ec', commands.replace('--bundle', '--bundle --target=node20 --log-level=error')],
    { cwd: folder });
  const other = `${folder}/alone`;
  cpSync(join(folder, 'dist'), join(other, 'dist'), { recursive: true });
  writeFileSync(join(other, 'package.json'), '{ "type": "module" }\n');
  rmSync(join(folder, 'node_modules'), { recursive: true });
  assert.match(run(other, 'dist/js/index.js'), EXPECTED);
});
