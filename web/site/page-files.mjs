/* Lists the files of the chat page and of the search page, for their service worker and for static hosts.
 *
 *   node web/site/page-files.mjs FOLDER [MODEL...]   copies the page to FOLDER, and models to FOLDER/models
 */
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readdirSync, realpathSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));
/** Patterns for the files of the package that the page needs: modules that it imports, the page itself, built files. */
const WANTED = [
  /^(index|openai|fetch)\.js$/, /^(base|loader|engine|answers|openai|serving|command|api|browser)\/[^/]+\.js$/,
  /^(chat|examples\/search)\/.+$/, /^dist\/[^/]+\.wasm$/, /^dist\/vendor\/.*(?<!\.d)\.m?js$/,
];
/** Files that the service worker keeps only once an answer or a document has needed them. */
const LATER = /^dist\/vendor\/(katex|highlightjs-cdn-assets|pdfjs)\//;
/** @param {string} path */
const isWanted = path => WANTED.some(pattern => pattern.test(path));

/** Whether the page needs a file of the package. @param {string} path */
export const isPageFile = path => path === 'sw.js' || isWanted(path);

/** Paths of the page's files, sorted. @returns {string[]} */
function pageFiles() {
  const all = readdirSync(web, { recursive: true, withFileTypes: true });
  return all.filter(entry => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(web.length).replaceAll('\\', '/'))
    .filter(isWanted).sort();
}

/** The text of the service worker with the list of files that it keeps.  When a file changes, so does the text.
 * @returns {Promise<string>} */
export async function serviceWorker() {
  /** @type {Record<string, string>} */
  const files = {};
  for (const path of pageFiles()) {   // one after the other, so that the event loop turns
    const bytes = await readFile(join(web, path));
    files[path] = `sha256-${createHash('sha256').update(bytes).digest('base64')}`;
  }
  const version = createHash('sha256').update(JSON.stringify(files)).digest('hex').slice(0, 16);
  const later = Object.keys(files).filter(path => LATER.test(path));
  const program = await readFile(join(web, 'sw.js'), 'utf8');
  return `self.SHELL = ${JSON.stringify({ version, files, later })};
${program}`;
}

if (process.argv[1] && fileURLToPath(import.meta.url) === realpathSync(process.argv[1])) {
  const [folder, ...models] = process.argv.slice(2);
  /** @param {string} from @param {string} to */
  const copy = (from, to) => {
    mkdirSync(dirname(to), { recursive: true });
    copyFileSync(from, to);
  };
  const licences = readdirSync(join(web, 'dist/vendor')).map(name => `dist/vendor/${name}/LICENSE`);
  for (const path of [...pageFiles(), ...licences]) copy(join(web, path), join(folder, 'web', path));
  copy(join(web, '../LICENSE'), join(folder, 'LICENSE'));
  for (const model of models) copy(model, join(folder, 'models', basename(model)));
  writeFileSync(join(folder, 'web/sw.js'), await serviceWorker());
  writeFileSync(join(folder, '.nojekyll'), '');   // without it, some hosts leave out files whose names begin with _
  writeFileSync(join(folder, 'index.html'), '<!doctype html>\n<meta charset="utf-8">\n<title>plumb chat</title>\n'
    + '<meta http-equiv="refresh" content="0; url=web/chat/">\n<a href="web/chat/">plumb chat</a>\n');
}
