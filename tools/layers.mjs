/* `make layers`, the part of web/: a module imports only modules of its own room and of the rooms before it in this
 * list.  What lies at the root of web/ is the room "entries".  Types count, and so do the files of workers, which are
 * named by `new URL('...', import.meta.url)`; what was built, in dist/, is for everybody.
 *
 * Fails on an import of a later room, on a room or a file that is not there, and on modules that import each other in a
 * circle.
 *
 *   node tools/layers.mjs [FOLDER]     default: web */
import { readFileSync, readdirSync } from 'node:fs';
import { join, posix } from 'node:path';

const ROOMS = ['base', 'loader', 'engine', 'answers', 'openai', 'command', 'api', 'serving', 'browser', 'node',
  'entries', 'site', 'cli', 'chat', 'examples'];

const web = process.argv[2] ?? 'web';
const isModule = (/** @type {string} */ path) => /\.m?js$/.test(path) && !/^(dist|node_modules)\//.test(path);
const files = readdirSync(web, { recursive: true, encoding: 'utf8' }).map(path => path.replaceAll('\\', '/'))
  .filter(isModule).sort();
const roomOf = (/** @type {string} */ path) => path.includes('/') ? path.slice(0, path.indexOf('/')) : 'entries';
let refused = 0;
/** @param {string} file @param {number} line @param {string} why */
function refuse(file, line, why) {
  console.log(`${join(web, file)}:${line}: ${why}`);
  refused++;
}

/** What each module imports: the line of it, by the path. @type {Map<string, Map<string, number>>} */
const imports = new Map();
for (const file of files) {
  const own = new Map(), room = roomOf(file);
  imports.set(file, own);
  if (!ROOMS.includes(room)) refuse(file, 1, `room ${room} has no place in tools/layers.mjs`);
  for (const [i, text] of readFileSync(join(web, file), 'utf8').split('\n').entries()) {
    for (const [, name] of text.matchAll(/(?:\bfrom|\bimport|\bimport\(|\bnew URL\() ?'(\.{1,2}\/[^']+)'/g)) {
      const path = posix.join(posix.dirname(file), name);
      if (!isModule(path) || own.has(path)) continue;
      own.set(path, i + 1);
      if (!files.includes(path)) refuse(file, i + 1, `${path} is not there`);
      else if (ROOMS.indexOf(roomOf(path)) > ROOMS.indexOf(room)) {
        refuse(file, i + 1, `room ${room} imports ${path} of the later room ${roomOf(path)}`);
      }
    }
  }
}

/** Modules whose imports were followed to their end. @type {Set<string>} */
const done = new Set();
/** Looks for circles in one room: one through several has an import of a later room, which is refused already.
 * @param {string} file @param {string[]} path  of imports that lead to it */
function follow(file, path) {
  if (done.has(file)) return;
  for (const [next, line] of imports.get(file) ?? []) {
    if (roomOf(next) !== roomOf(file)) continue;
    const at = [...path, file].indexOf(next);
    if (at < 0) follow(next, [...path, file]);
    else refuse(file, line, `a circle: ${[...path.slice(at), file, next].join(' -> ')}`);
  }
  done.add(file);
}
for (const file of files) follow(file, []);
process.exitCode = refused > 0 ? 1 : 0;
