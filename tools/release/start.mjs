/* Starts the programs of a release where this machine can: those for Linux on x86-64 directly and in an empty folder
 * that is the root of the file system, those for 64-bit ARM by qemu, those for Windows by wine.  Of programs for a Mac
 * only the headers are read.  Every program answers a prompt, and its tokens and its text must be those of the native
 * build. */
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

/** @typedef {{where: string, same: boolean | undefined, why?: string}} Outcome  same: undefined if it was not run */

/** The last character is no ASCII, since Windows hands arguments over in another encoding. */
const ASK = ['--raw', '-p', 'The capital of Österreich is', '-n', '12', '--temp', '0'];

/** @param {string[]} command @param {string} model @param {import('node:child_process').SpawnSyncOptions} [options] */
function answers([program, ...args], model, options) {
  return [['--ids'], []].map(more => {
    const { status, stdout, stderr, error } = spawnSync(program, [...args, 'run', model, ...ASK, ...more],
      { ...options, encoding: 'utf8', timeout: 600_000, stdio: ['ignore', 'pipe', 'pipe'] });
    if (status !== 0) throw new Error(`exit ${status}: ${error ?? String(stderr).trim().split('\n').at(-1)}`);
    return stdout;
  });
}

/** @param {string[]} names */
const installed = names => names.find(name => spawnSync('sh', ['-c', `command -v ${name}`]).status === 0);

/** Runs in a folder of its own, which is the root of the file system.  That needs root.
 * @param {string} program @param {string} model */
function inEmptyRoot(program, model) {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-root-'));
  try {
    copyFileSync(program, join(folder, 'plumb'));
    copyFileSync(model, join(folder, 'model.gguf'));
    return answers(['chroot', folder, '/plumb'], '/model.gguf', { env: { PATH: process.env.PATH } });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** @typedef {{where: string, needs?: string[], run: (program: string, model: string, tool: string) => string[]}} Way */

/** @type {Record<string, Way[]>} */
const WAYS = {
  'linux-x64': [
    { where: 'directly', run: (program, model) => answers([program], model) },
    { where: 'in an empty root', needs: ['chroot'], run: inEmptyRoot },
  ],
  'linux-arm64': [{ where: 'qemu-user', needs: ['qemu-aarch64-static', 'qemu-aarch64'],
    run: (program, model, tool) => answers([tool, program], model) }],
  'windows-x64': [{ where: 'wine', needs: ['wine64', 'wine'],
    run: (program, model, tool) => answers([tool, program], model, {
      env: { ...process.env, WINEDEBUG: '-all', WINEPREFIX: resolve('build/setup/wine') } }) }],
};

/** @param {string} system @param {string} program @param {string} model @param {string} native
 * @returns {Outcome[]} */
export function start(system, program, model, native) {
  if (system.startsWith('macos')) return [{ where: `not started; ${machO(program, system)}`, same: undefined }];
  if (process.platform !== 'linux' || process.arch !== 'x64') return [{ where: 'not started', same: undefined }];
  const wanted = answers([native], model);
  return WAYS[system].map(({ where, needs, run }) => {
    const tool = needs && installed(needs);
    if (needs && !tool) {
      return process.env.UNSTARTED ? { where: `not started: no ${needs[0]}`, same: undefined }
        : { where, same: false, why: `not started, since there is no ${needs[0]}; UNSTARTED=1 allows that` };
    }
    try {
      const found = run(resolve(program), resolve(model), tool ?? '');
      const same = JSON.stringify(found) === JSON.stringify(wanted);
      return { where, same, ...!same && { why: `${JSON.stringify(found)}, not ${JSON.stringify(wanted)}` } };
    } catch (error) {
      return { where, same: false, why: error instanceof Error ? error.message : String(error) };
    }
  });
}

/** Reads the headers of a program for a Mac: it must be for the right processor and for macOS 11 or later, load the
 * system's own library only and, for ARM, be signed, since such a Mac starts nothing that is not.
 * @param {string} program @param {string} system */
export function machO(program, system) {
  const bytes = readFileSync(program), word = (/** @type {number} */ at) => bytes.readUInt32LE(at);
  const processor = { 'macos-arm64': 0x0100000c, 'macos-x64': 0x01000007 }[system];
  if (word(0) !== 0xfeedfacf || word(4) !== processor || word(12) !== 2)
    throw new Error(`${program}: no program for ${system}`);
  const libraries = [];
  let least = '', isSigned = false;
  for (let i = 0, at = 32; i < word(16); i++, at += word(at + 4)) {
    const command = word(at) & 0x7fffffff;
    if (command === 0xc || command === 0x18) {
      const from = at + word(at + 8);
      libraries.push(bytes.toString('utf8', from, bytes.indexOf(0, from)));
    }
    if (command === 0x32 && word(at + 8) === 1) least = `${word(at + 12) >> 16}.${word(at + 12) >> 8 & 255}`;
    if (command === 0x1d) isSigned = word(at + 12) > 0;
  }
  const others = libraries.filter(name => name !== '/usr/lib/libSystem.B.dylib');
  if (others.length > 0 || libraries.length === 0)
    throw new Error(`${program}: it loads ${libraries.join(', ') || 'nothing'}`);
  if (least === '') throw new Error(`${program}: it does not say for which macOS it is`);
  if (!isSigned && system === 'macos-arm64') throw new Error(`${program}: it is not signed`);
  return `macOS ${least} or later, loads libSystem only${isSigned ? ', signed ad hoc' : ''}`;
}

/** Whether a program for Linux needs no other file. @param {string} program */
export const isStatic = program =>
  !/INTERP|NEEDED/.test(execFileSync('readelf', ['-ld', program], { encoding: 'utf8' }));
