/** A fresh project that has installed the package's tarball, like a user's project. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const { version } = JSON.parse(readFileSync(`${root}web/package.json`, 'utf8'));
export const tarball = `${root}build/plumb-llm-${version}.tgz`;

/** A new folder, removed after the tests. */
function newFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-project-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A project into which npm has installed the package. @type {string | undefined} */
let installed;
function install() {
  const folder = newFolder();
  writeFileSync(join(folder, 'package.json'), '{ "name": "project", "private": true, "type": "module" }\n');
  // Offline: the package has no dependencies, so no registry is needed.
  execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', '--loglevel=error', tarball],
    { cwd: folder });
  return folder;
}

/** A folder with the package in node_modules and the files of a folder of tests/package; removed after the tests.
 * @param {string} [files] @returns {string} its path */
export function project(files) {
  const folder = newFolder();
  cpSync(installed ??= install(), folder, { recursive: true, verbatimSymlinks: true });
  if (files) cpSync(`${root}tests/package/${files}`, folder, { recursive: true });
  return folder;
}
