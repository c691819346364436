/* `make release` calls this when everything is built.  It copies the files of a release to build/release under the
 * names of the version, packs the site, writes the parts list, the licences and the checksums, and prints a table of
 * the files and of where their programs were started.  It fails if one could not be, unless UNSTARTED=1 allows it.
 *
 *   node tools/release/release.mjs MODEL   MODEL: the file that the programs answer a prompt with */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { FILES, FOLDER, SHIPPED, VERSION, compilers, licenceOf, missing, partsOf, text, zigVersion } from './files.mjs';
import { sbom } from './sbom.mjs';
import { isStatic, start } from './start.mjs';

const run = (/** @type {string} */ program, /** @type {string[]} */ ...args) =>
  execFileSync(program, args, { encoding: 'utf8' }).trim();
const sha256 = (/** @type {string} */ path) => createHash('sha256').update(readFileSync(path)).digest('hex');

/** Copies or packs a file. @param {import('./files.mjs').File} file */
function make({ name, from, kind }) {
  const to = join(FOLDER, name);
  if (kind === 'site') return run('python3', 'tools/release/pack.py', from, to, `plumb-site-${VERSION}`);
  copyFileSync(from, to);
  chmodSync(to, kind === 'program' ? 0o755 : 0o644);
}

/** The licence of plumb and those of all parts, each once. */
function licences() {
  const texts = new Map([[licenceOf({ name: '', version: '', licence: '', text: 'LICENSE' }), ['plumb (MIT)']]]);
  for (const part of new Map(FILES.flatMap(partsOf).map(part => [`${part.name} ${part.version}`, part])).values()) {
    const licence = licenceOf(part);
    if (licence.length < 300) throw new Error(`${part.text}: no licence of ${part.name}`);
    texts.set(licence, [...texts.get(licence) ?? [], `${part.name} ${part.version} (${part.licence})`]);
  }
  return [...texts].map(([licence, names]) => `==== ${names.join('\n==== ')}\n\n${licence}\n`).join('\n');
}

const [model] = process.argv.slice(2);
const gone = missing();
if (gone.length > 0) throw new Error(`not built: ${gone.join(', ')}`);
for (const [name, { version, file, says }] of Object.entries(SHIPPED))
  if (!text(file).includes(says)) throw new Error(`${file}: not ${name} ${version}; correct tools/release/files.mjs`);

rmSync(FOLDER, { recursive: true, force: true });
mkdirSync(FOLDER, { recursive: true });
for (const file of FILES) make(file);
const sums = FILES.map(file => ({ file, sha256: sha256(join(FOLDER, file.name)) }));
const tools = [{ name: 'zig', version: zigVersion() },
  ...Object.entries(compilers()).map(([name, version]) => ({ name, version }))];
const time = new Date(run('git', 'log', '-1', '--format=%cI')).toISOString();
const others = { [`plumb-${VERSION}.cdx.json`]: `${JSON.stringify(sbom(sums, tools, time), null, 2)}\n`,
  'LICENCES.txt': licences() };
for (const [name, content] of Object.entries(others)) writeFileSync(join(FOLDER, name), content);
const all = [...sums.map(({ file, sha256 }) => [sha256, file.name]),
  ...Object.keys(others).map(name => [sha256(join(FOLDER, name)), name])];
writeFileSync(join(FOLDER, 'SHA256SUMS'), all.map(([sum, name]) => `${sum}  ${name}\n`).join(''));

let failures = 0;
console.log(`\n${'file'.padEnd(34)} ${'bytes'.padStart(9)}  ${'sha256'.padEnd(16)}  `
  + 'where it was started: are the tokens and the text those of the native build?');
for (const [sum, name] of all) {
  const file = FILES.find(file => file.name === name), path = join(FOLDER, name);
  const outcomes = file?.system ? start(file.system, path, model, 'build/native/plumb') : [];
  if (file?.system?.startsWith('linux') && !isStatic(path))
    outcomes.push({ where: 'static', same: false, why: 'it needs other files' });
  failures += outcomes.filter(({ same }) => same === false).length;
  const told = outcomes.map(({ where, same, why }) =>
    where + (same === undefined ? '' : same ? ': yes' : `: NO, ${why}`)).join('; ');
  console.log(`${name.padEnd(34)} ${String(statSync(path).size).padStart(9)}  ${sum.slice(0, 16)}  ${told}`);
}
if (failures > 0) process.exitCode = 1;
