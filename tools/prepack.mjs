/* Refuses a package if a file is missing that package.json names, that one of the modules imports, or that the service
 * worker keeps for the pages.
 *
 *   node tools/prepack.mjs FOLDER   with the files of the package, as join.mjs writes them */
import { existsSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';

const [, , folder] = process.argv;
const { exports, bin } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
/** @param {unknown} entry @returns {string[]}  the paths in it, at any depth */
const paths = entry => typeof entry === 'string' ? [entry] : Object.values(entry ?? {}).flatMap(paths);

/** Each file, and the file that names it. @type {Map<string, string>} */
const named = new Map(['./LICENSE', ...paths(exports), ...paths(bin)]
  .map(path => [posix.normalize(path), 'package.json']));
const [, list] = /^self\.SHELL = (.*);$/m.exec(readFileSync(join(folder, 'sw.js'), 'utf8')) ?? [];
if (list === undefined) throw new Error('sw.js has no list of files');
for (const path of Object.keys(JSON.parse(list).files)) named.set(path, 'sw.js');
for (const [path, by] of named) {
  if (!existsSync(join(folder, path))) {
    console.error(`plumb: ${path} is not there, which ${by} names: \`make package\` builds all that is packed`);
    process.exit(1);
  }
  if (!/\.m?js$/.test(path)) continue;
  // Joined modules have such quotes.  Others are in comments.
  for (const [, other] of readFileSync(join(folder, path), 'utf8').matchAll(/(?:from|import|URL)[ (]*"(\.[^"]+)"/g)) {
    const file = posix.join(posix.dirname(path), other);
    if (!named.has(file)) named.set(file, path);
  }
}
