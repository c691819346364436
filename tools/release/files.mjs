/* The files of a release, and what is inside of each.  Everything else about a release is made from these lists. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));
/** @param {string} path */
export const text = path => readFileSync(join(root, path), 'utf8');
export const FOLDER = 'build/release';
/** @type {string} */
export const VERSION = JSON.parse(text('web/package.json')).version;

/** The systems of tools/release/targets.mk, such as linux-x64. @type {string[]} */
export const SYSTEMS = (/^systems := (.*)$/m.exec(text('tools/release/targets.mk'))?.[1] ?? '').split(' ');

/** A part of a release that others wrote.  text: the file with its licence; comment: what of that file, if not all.
 * @typedef {{name: string, version: string, licence: string, purl?: string, text: string, begin?: string}} Part */

/** @typedef {{name: string, from: string, system?: string, kind: 'program' | 'package' | 'site'}} File
 *   from: the file or folder that is built */

/** @type {File[]} */
export const FILES = [
  { name: `plumb-llm-${VERSION}.tgz`, from: `build/plumb-llm-${VERSION}.tgz`, kind: 'package' },
  { name: `plumb-site-${VERSION}.zip`, from: 'build/release-site', kind: 'site' },
  ...SYSTEMS.map(system => {
    const ending = system.startsWith('windows') ? '.exe' : '';
    return { name: `plumb-${VERSION}-${system}${ending}`, from: `build/cross/${system}/plumb${ending}`, system,
      kind: /** @type {const} */ ('program') };
  }),
];

const zig = 'build/setup/zig/ziglang';
/** @returns {string} */
export const zigVersion = () => /^ZIG_VERSION=(\S*)/m.exec(text('tools/setup.sh'))?.[1] ?? '';

/** Zig's library of helpers of the compiler, such as memcpy, which is linked to every program. @returns {Part} */
const compilerRuntime = () => ({ name: 'zig compiler_rt', version: zigVersion(), licence: 'MIT',
  purl: `pkg:pypi/ziglang@${zigVersion()}`, text: `${zig}/LICENSE` });

/** The versions of what zig ships, and where it says so.
 * @type {Record<string, {version: string, file: string, says: string}>} */
export const SHIPPED = {
  musl: { version: '1.2.5', file: `${zig}/lib/libc/musl/src/internal/version.h`, says: '"1.2.5"' },
  'mingw-w64': { version: '13.0', file: `${zig}/lib/libc/include/any-windows-any/_mingw_mac.h`,
    says: '__MINGW64_VERSION_MAJOR 13' },
};

/** The compilers of the WebAssembly modules, as far as they are installed. */
export function compilers() {
  const run = (/** @type {string} */ program, /** @type {string[]} */ ...args) =>
    spawnSync(program, args, { encoding: 'utf8' }).stdout ?? '';
  const number = (/** @type {string} */ output) => /\d+(?:\.\d+)+/.exec(output)?.[0] ?? 'unknown';
  return {
    emscripten: number(run('emcc', '--version')),
    llvm: number(run(process.env.LLVM ? `clang-${process.env.LLVM}` : 'clang', '--version')),
    'wasi-libc': number(run('dpkg-query', '-W', '-f', '${Version}', 'wasi-libc')),
  };
}

/** @returns {Part} */
const musl = () => ({ name: 'musl', version: SHIPPED.musl.version, licence: 'MIT',
  text: `${zig}/lib/libc/musl/COPYRIGHT` });

/** What is linked to the programs of a system, besides plumb itself.
 * @type {Record<string, () => Part[]>} */
const LINKED = {
  linux: () => [compilerRuntime(), musl()],
  macos: () => [compilerRuntime()],
  windows: () => [compilerRuntime(), musl(),   // its memmem
    { name: 'mingw-w64', version: SHIPPED['mingw-w64'].version, licence: 'ZPL-2.1',
      text: `${zig}/lib/libc/mingw/COPYING` },
    { name: 'winpthreads', version: SHIPPED['mingw-w64'].version, licence: 'MIT',
      text: `${zig}/lib/libc/mingw/winpthreads/thread.c`, begin: 'comment' }],
};

/** What is linked to the WebAssembly modules. @returns {Part[]} */
function inModules() {
  const { emscripten, llvm, 'wasi-libc': wasi } = compilers(), wasiLicences = `${zig}/lib/libc/wasi/LICENSE`;
  return [
    { name: 'emscripten-libraries', version: emscripten, licence: 'MIT', text: 'tools/release/licences/emscripten' },
    { name: 'musl', version: `of emscripten ${emscripten}`, licence: 'MIT', text: `${zig}/lib/libc/musl/COPYRIGHT` },
    { name: 'wasi-libc', version: wasi, licence: 'Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT',
      text: `${wasiLicences}-MIT` },
    { name: 'compiler-rt', version: llvm, licence: 'Apache-2.0 WITH LLVM-exception',
      text: `${zig}/lib/libunwind/LICENSE.TXT` },
  ];
}

/** The libraries in web/dist/vendor, of the packages that the Makefile copies there.  If the licence file of a folder
 * has titles "==== NAME VERSION", these are the packages that its files contain. @returns {Part[]} */
export function vendored() {
  const { packages } = JSON.parse(text('web/package-lock.json')), vendor = 'web/dist/vendor';
  /** @param {string} name @param {string} licence @returns {Part} */
  const part = (name, licence) => {
    const { version, license } = packages[`node_modules/${name}`];
    return { name, version, licence: license.replace(/^\((.*)\)$/, '$1'), text: licence,
      purl: `pkg:npm/${name.replace('@', '%40')}@${version}` };
  };
  return readdirSync(join(root, vendor)).sort().flatMap(folder => {
    const licence = `${vendor}/${folder}/LICENSE`;
    const titles = [...text(licence).matchAll(/^==== (\S+) (\S+)$/gm)];
    if (titles.length > 0) {
      return titles.map(([title, name, version]) => {
        const found = part(name, licence);
        if (found.version !== version) throw new Error(`${licence}: "${title}", but ${found.version} is installed`);
        return { ...found, begin: title };
      });
    }
    const [, name] = new RegExp(`vendor_rule,${folder}/[^,]*,([^,]+),`).exec(text('Makefile')) ?? [];
    if (!name) throw new Error(`${vendor}/${folder}: no vendor_rule of the Makefile makes it`);
    return [part(name, licence)];
  });
}

/** @param {File} file @returns {Part[]} */
export const partsOf = ({ kind, system = '' }) =>
  kind === 'program' ? LINKED[system.replace(/-.*/, '')]() : [...vendored(), ...inModules()];

/** The text of the licence of a part. @param {Part} part @returns {string} */
export function licenceOf({ text: path, begin }) {
  const all = text(path);
  if (begin === 'comment') return (/\/\*(.*?)\*\//s.exec(all)?.[1] ?? '').replace(/^ {3}/gm, '').trim();
  if (!begin) return all.trim();
  const from = all.indexOf(begin) + begin.length, to = all.indexOf('\n==== ', from);
  return all.slice(from, to < 0 ? undefined : to).trim();
}

/** Those of the files that are not built. @returns {string[]} */
export const missing = () => FILES.filter(({ from }) => !existsSync(join(root, from))).map(({ from }) => from);
