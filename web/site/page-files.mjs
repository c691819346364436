/* Lists the files of the chat page and of the gallery, for their service worker and for static hosts. */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));
/** Patterns for the files of the package that the page needs: modules that it imports, the page itself, built files. */
const WANTED = [
  /^(index|openai|fetch)\.js$/, /^(base|loader|engine|answers|openai|serving|command|api|browser)\/[^/]+\.js$/,
  /^(chat|examples)\/.+$/, /^dist\/[^/]+\.wasm$/, /^dist\/vendor\/.*(?<!\.d)\.m?js$/,
];
/** Files that the service worker keeps only once a page has needed them. */
const LATER =
  /^(dist\/(vendor\/(katex|highlightjs-cdn-assets|pdfjs)\/|plumb-(mt-)?64\.wasm$)|examples\/diagnose\/samples\/)/;
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
export function pageFiles() {
  const all = readdirSync(web, { recursive: true, withFileTypes: true });
  return all.filter(entry => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(web.length).replaceAll('\\', '/'))
    .filter(isWanted).sort();
}

/** What the list begins with. */
const LIST = 'self.SHELL = ';

/** The text of the service worker with the list of files that it keeps.  When a file changes, so does the text.  Where
 * the modules are joined (tools/join.mjs), sw.js already has the list.
 * @param {string} [folder]  that has the files @param {string[]} [paths]  of those
 * @returns {Promise<string>} */
export async function serviceWorker(folder = web, paths) {
  const program = await readFile(join(web, 'sw.js'), 'utf8');
  if (program.startsWith(LIST)) return program;
  /** @type {Record<string, string>} */
  const files = {};
  for (const path of paths ?? pageFiles()) {   // one after the other, so that the event loop turns
    const bytes = await readFile(join(folder, path));
    files[path] = `sha256-${createHash('sha256').update(bytes).digest('base64')}`;
  }
  const version = createHash('sha256').update(JSON.stringify(files)).digest('hex').slice(0, 16);
  const later = Object.keys(files).filter(path => LATER.test(path));
  const policies = Object.fromEntries(Object.keys(files).flatMap(path => {
    const policy = policyOf(path);
    return policy ? [[path, policy]] : [];
  }));
  return `${LIST}${JSON.stringify({ version, files, later, policies })};
${program}`;
}
