/* Joins the modules of web/ to few files, which load faster than many, and lays them out as in web/: as people get
 * them in the package, and on the site for hosts of static files (site.mjs).
 *
 *   node tools/join.mjs FOLDER   writes what is in the package to FOLDER
 */
import { cpSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, posix, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isPageFile, pageFiles, serviceWorker } from '../web/site/page-files.mjs';

const web = fileURLToPath(new URL('../web/', import.meta.url));
const { build, transform } = createRequire(join(web, 'package.json'))('esbuild');

/** For scripts of browsers.  Functions, classes and variables keep their names, so that an error still says where it
 * happened; bundlers of the package's users shorten them. */
const SHORTER = { minifyWhitespace: true, minifySyntax: true, target: 'es2022' };
/** A line of a page that loads a module early, and the script of a page. */
const PRELOAD = /<link rel="modulepreload" href="([^"]*)">\n/g, SCRIPT = /<script type="module" src="([^"]*)">/;
/** Modules that are loaded by their address, beside those of pages. */
const WORKER = /(-|\/)worker\.js$/, ENGINE = 'browser/engine-worker.js';
/** Files that stay as they are: libraries that are loaded by their address when they are needed. */
const LIBRARY = /\.min\.m?js$/;

const read = (/** @type {string} */ path) => readFileSync(join(web, path), 'utf8');
/** The path of what a file names. @param {string} file @param {string} address */
const pathOf = (file, address) => posix.join(posix.dirname(file), address);

/** The path of the script of a page, if it has one. @param {string} page @returns {string | undefined} */
function scriptOf(page) {
  const [, address] = SCRIPT.exec(read(page)) ?? [];
  return address === undefined ? undefined : pathOf(page, address);
}

/** Stands for the address of the package's folder, until it is known in which file the code is. */
const PACKAGE = 'PACKAGE_FOLDER';
/** A page's module keeps the address of the file that it comes from, wherever its code is, because it finds workers
 * and libraries by it.  The package's modules do not: bundlers follow only addresses that are spelt out.  These are
 * right in every folder that is directly below the package's. */
const ownAddresses = {
  name: 'own addresses',
  setup({ onLoad }) {
    onLoad({ filter: /\/web\/(chat|examples)\/.*\.js$/ }, ({ path }) => {
      const own = JSON.stringify(relative(web, path).replaceAll('\\', '/')), text = readFileSync(path, 'utf8');
      return { loader: 'js', contents: !text.includes('import.meta.url') ? text
        : `const ownAddress = new URL(${own}, ${PACKAGE}).href; `
          + text.replaceAll('import.meta.url', 'ownAddress') };
    });
  },
};

/** A file.  inputs: the modules in it; imports: the files that it imports at once; later: those that it imports when it
 * needs them. @typedef {{inputs: string[], imports: string[], later: string[]}} Joined */

/** Joins modules.  Those of entryPoints keep their path.
 * @param {string} folder  to write to @param {string[]} entryPoints @param {object} options  of esbuild
 * @returns {Promise<Record<string, Joined>>}  by path */
async function joined(folder, entryPoints, options) {
  const { metafile, outputFiles } = await build({ absWorkingDir: web, entryPoints, outbase: '.', outdir: folder,
    bundle: true, format: 'esm', write: false, metafile: true, legalComments: 'eof', logLevel: 'warning',
    // Imports of nothing, by which a worker of the tree loads all its modules at once.
    logOverride: { 'ignored-bare-import': 'silent' }, plugins: [ownAddresses], ...options });
  const own = (/** @type {string} */ path) => relative(folder, resolve(web, path)).replaceAll('\\', '/');
  for (const { path, text } of outputFiles) {
    const from = own(path), to = entryPoints.find(one => one.replace(/\.mjs$/, '.js') === from) ?? from;
    if (/new URL\(["']\.[^)]*import\.meta\.url/.test(text) && to.split('/').length !== 2) {
      throw new Error(`${to}: the addresses in it are right only in a folder directly below that of the package`);
    }
    const up = posix.relative(posix.dirname(to), '.') || '.';
    put(folder, to, text.replaceAll(PACKAGE, `new URL("${up}/",import.meta.url)`));
  }
  return Object.fromEntries(Object.entries(metafile.outputs).map(([path, { inputs, imports }]) => {
    const files = (/** @type {string} */ wanted) => imports.filter(({ kind, external }) => kind === wanted && !external)
      .map((/** @type {{path: string}} */ one) => own(one.path));
    return [own(path), { inputs: Object.keys(inputs), imports: files('import-statement'),
      later: files('dynamic-import') }];
  }));
}

/** @param {string} folder @param {string} path @param {string | Buffer} content */
function put(folder, path, content) {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), content);
}

/** A file, what it imports, and what that imports. @param {Record<string, Joined>} files @param {string} path
 * @param {boolean} later  whether also what is imported when it is needed @param {Set<string>} [found] */
function withImports(files, path, later, found = new Set()) {
  if (found.has(path)) return found;
  found.add(path);
  for (const one of [...files[path].imports, ...later ? files[path].later : []]) withImports(files, one, later, found);
  return found;
}

/** A page that loads early what its script imports, and what the page of the tree loads early.
 * @param {string} path @param {Record<string, Joined>} files */
function pageWithPreloads(path, files) {
  const text = read(path), own = scriptOf(path);
  if (own === undefined) return text;
  const early = withImports(files, own, false);
  for (const [, address] of text.matchAll(PRELOAD)) {
    const module = pathOf(path, address), file = Object.keys(files).find(one => files[one].inputs.includes(module));
    if (file === undefined) throw new Error(`${path}: no script imports ${module}`);
    withImports(files, file, false, early);
  }
  early.delete(own);
  const links = [...early].map(file =>
    `<link rel="modulepreload" href="${posix.relative(posix.dirname(path), file)}">\n`);
  return text.replace(PRELOAD, '').replace(/.*<script type="module"[^\n]*\n/, line => line + links.join(''));
}

/** Writes what browsers load: the package's entries, the chat page, the gallery, and their service worker.
 * @param {string} folder @returns {Promise<string[]>}  the paths of the files of the pages */
export async function joinForBrowsers(folder) {
  const all = pageFiles(), pages = all.filter(path => path.endsWith('.html'));
  const scripts = pages.flatMap(page => scriptOf(page) ?? []);
  const workers = all.filter(path => WORKER.test(path) && path !== ENGINE);
  // What several entries need, or what is loaded later, is in files of its own beside the workers of browser/.  The
  // engine's worker shares most of its code with the page.  Other workers are a file each.
  const files = { ...await joined(folder, [...entries('default'), ENGINE, ...scripts],
    { ...SHORTER, splitting: true, chunkNames: 'browser/[hash]' }), ...await joined(folder, workers, SHORTER) };
  /** @type {Set<string>} */
  const kept = new Set();
  for (const script of [...scripts, ENGINE, ...workers]) withImports(files, script, true, kept);
  const replaced = new Set(Object.values(files).flatMap(({ inputs }) => inputs));
  const write = (/** @type {string} */ path, /** @type {string | Buffer} */ content) => {
    put(folder, path, content);
    kept.add(path);
  };
  for (const path of all) {
    if (path in files) continue;
    if (pages.includes(path)) write(path, pageWithPreloads(path, files));
    else if (/\.css$|theme\.js$/.test(path)) {
      const loader = posix.extname(path).slice(1);
      write(path, (await transform(read(path), { ...SHORTER, loader })).code);
    } else if (!/\.m?js$/.test(path) || LIBRARY.test(path) && !replaced.has(path)) {
      write(path, readFileSync(join(web, path)));
    }
  }
  const listed = [...kept].sort();
  const licences = readdirSync(join(web, 'dist/vendor')).map(name => `dist/vendor/${name}/LICENSE`);
  const unknown = listed.filter(path => !isPageFile(path));
  if (unknown.length > 0) throw new Error(`page-files.mjs does not know these files of the pages: ${unknown}`);
  put(folder, 'sw.js', await serviceWorker(folder, listed));
  for (const path of licences) put(folder, path, read(path));
  return [...listed, 'sw.js', ...licences];
}

const manifest = JSON.parse(read('package.json'));
/** The modules that package.json exports under a condition.
 * @param {'default' | 'node'} condition @returns {string[]} */
function entries(condition) {
  return Object.values(manifest.exports).flatMap(entry => entry[condition] ? [posix.normalize(entry[condition])] : []);
}

/** Writes everything else that is in the package. @param {string} folder */
async function joinForNode(folder) {
  const workers = readdirSync(join(web, 'node')).filter(name => WORKER.test(name)).map(name => `node/${name}`);
  await joined(folder, [...entries('node'), ...workers, manifest.bin.plumb],
    { platform: 'node', target: 'node20', splitting: true, chunkNames: 'node/[hash]' });
  for (const path of ['README.md', 'LICENSE', 'docs/api.md', 'dist/types']) {
    cpSync(join(web, path), join(folder, path), { recursive: true });
  }
  const { private: _, scripts, devDependencies, ...published } = manifest;
  put(folder, 'package.json', `${JSON.stringify(published, null, 2)}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === undefined) throw new Error('usage: node tools/join.mjs FOLDER');
  const folder = resolve(process.argv[2]);
  await joinForBrowsers(folder);
  await joinForNode(folder);
}
