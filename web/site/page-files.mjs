/* Lists the files of the chat page and of the gallery, for their service worker and for static hosts.
 *
 *   node web/site/page-files.mjs FOLDER [MODEL...]   copies the page to FOLDER, with shorter scripts, and models
 *                                                    to FOLDER/models
 */
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, readdirSync, realpathSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));
/** Patterns for the files of the package that the page needs: modules that it imports, the page itself, built files. */
const WANTED = [
  /^(index|openai|fetch)\.js$/, /^(base|loader|engine|answers|openai|serving|command|api|browser)\/[^/]+\.js$/,
  /^(chat|examples)\/.+$/, /^dist\/[^/]+\.wasm$/, /^dist\/vendor\/.*(?<!\.d)\.m?js$/,
];
/** Files that the service worker keeps only once a page has needed them. */
const LATER = /^(dist\/vendor\/(katex|highlightjs-cdn-assets|pdfjs)|examples\/diagnose\/samples)\//;
/** @param {string} path */
const isWanted = path => WANTED.some(pattern => pattern.test(path));

/** Whether the page needs a file of the package. @param {string} path */
export const isPageFile = path => path === 'sw.js' || isWanted(path);

/** Workers that read what others wrote: documents, and the Markdown of answers. */
const READERS = /(^|\/)chat\/(documents|typeset)\/worker\.js$/;
/** The content security policy of a file.  A worker has that of its own file, not that of its page.  Those that read
 * what others wrote may load scripts of this site, and nothing else.
 * @param {string} path @returns {string | undefined} */
export const policyOf = path => READERS.test(path) ? "default-src 'none'; script-src 'self'" : undefined;

/** Paths of the page's files, sorted. @returns {string[]} */
function pageFiles() {
  const all = readdirSync(web, { recursive: true, withFileTypes: true });
  return all.filter(entry => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(web.length).replaceAll('\\', '/'))
    .filter(isWanted).sort();
}

/** The text of the service worker with the list of files that it keeps.  When a file changes, so does the text.
 * @param {string} [folder]  that has the files @returns {Promise<string>} */
export async function serviceWorker(folder = web) {
  /** @type {Record<string, string>} */
  const files = {};
  for (const path of pageFiles()) {   // one after the other, so that the event loop turns
    const bytes = await readFile(join(folder, path));
    files[path] = `sha256-${createHash('sha256').update(bytes).digest('base64')}`;
  }
  const version = createHash('sha256').update(JSON.stringify(files)).digest('hex').slice(0, 16);
  const later = Object.keys(files).filter(path => LATER.test(path));
  const policies = Object.fromEntries(Object.keys(files).flatMap(path => {
    const policy = policyOf(path);
    return policy ? [[path, policy]] : [];
  }));
  const program = await readFile(join(folder, 'sw.js'), 'utf8');
  return `self.SHELL = ${JSON.stringify({ version, files, later, policies })};
${program}`;
}

/** A shorter script that does the same.  Its functions and classes keep their names, so that an error still says
 * where it happened. @param {string} text */
async function shorter(text) {
  const { minify } = await import('terser');
  const { code } = await minify(text, { module: true, keep_fnames: true, keep_classnames: true,
    format: { max_line_len: 200 } });
  return code ?? '';
}

if (process.argv[1] && fileURLToPath(import.meta.url) === realpathSync(process.argv[1])) {
  const [folder, ...models] = process.argv.slice(2);
  /** @param {string} from @param {string} to */
  const copy = (from, to) => {
    mkdirSync(dirname(to), { recursive: true });
    copyFileSync(from, to);
  };
  const licences = readdirSync(join(web, 'dist/vendor')).map(name => `dist/vendor/${name}/LICENSE`);
  for (const path of [...pageFiles(), ...licences, 'sw.js']) {
    const from = join(web, path), to = join(folder, 'web', path);
    copy(from, to);
    if (/(?<!\.min)\.m?js$/.test(path)) writeFileSync(to, await shorter(readFileSync(from, 'utf8')));
  }
  copy(join(web, '../LICENSE'), join(folder, 'LICENSE'));
  for (const model of models) copy(model, join(folder, 'models', basename(model)));
  writeFileSync(join(folder, 'web/sw.js'), await serviceWorker(join(folder, 'web')));
  writeFileSync(join(folder, '.nojekyll'), '');   // without it, some hosts leave out files whose names begin with _
  writeFileSync(join(folder, 'index.html'), '<!doctype html>\n<meta charset="utf-8">\n<title>plumb chat</title>\n'
    + '<meta http-equiv="refresh" content="0; url=web/chat/">\n<a href="web/chat/">plumb chat</a>\n');
}
