/* Builds the site for hosts of static files: the chat page and the gallery, whose modules are joined to a few files.
 *
 *   node tools/site.mjs FOLDER [MODEL...]   writes the site to FOLDER, and models to FOLDER/models
 */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { joinForBrowsers } from './join.mjs';

const [target, ...models] = process.argv.slice(2);
if (target === undefined) throw new Error('usage: node tools/site.mjs FOLDER [MODEL...]');
/** @param {string} from @param {string} path  in the site */
function copy(from, path) {
  const to = join(resolve(target), path);
  mkdirSync(dirname(to), { recursive: true });
  copyFileSync(from, to);
}

const all = mkdtempSync(join(tmpdir(), 'plumb-site-'));
try {
  for (const path of await joinForBrowsers(all)) copy(join(all, path), `web/${path}`);
} finally {
  rmSync(all, { recursive: true });
}
copy(fileURLToPath(new URL('../LICENSE', import.meta.url)), 'LICENSE');
for (const model of models) copy(model, `models/${basename(model)}`);
writeFileSync(join(target, '.nojekyll'), '');   // without it, some hosts leave out files whose names begin with _
writeFileSync(join(target, 'index.html'), '<!doctype html>\n<meta charset="utf-8">\n<title>plumb chat</title>\n'
  + '<meta http-equiv="refresh" content="0; url=web/chat/">\n<a href="web/chat/">plumb chat</a>\n');
