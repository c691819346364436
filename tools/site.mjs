/* Builds the site for hosts of static files: the chat page and the gallery, whose modules are joined to a few files.
 *
 *   node tools/site.mjs FOLDER [MODEL...]   writes the site to FOLDER, and models to FOLDER/models
 */
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, posix, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pageFiles, serviceWorker } from '../web/site/page-files.mjs';

const web = fileURLToPath(new URL('../web/', import.meta.url));
const { build, transform } = createRequire(join(web, 'package.json'))('esbuild');
const [target, ...models] = process.argv.slice(2);
if (target === undefined) throw new Error('usage: node tools/site.mjs FOLDER [MODEL...]');
const site = join(resolve(target), 'web');

/** For all scripts.  Functions and classes keep their names, so that an error still says where it happened. */
const SHORTER = { minify: true, keepNames: true, target: 'es2022', legalComments: 'none', lineLimit: 200 };
/** A line of a page that loads a module early, and the script of a page. */
const PRELOAD = /<link rel="modulepreload" href="([^"]*)">\n/g, SCRIPT = /<script type="module" src="([^"]*)">/;
/** Modules that are loaded by their address, beside those of pages. */
const WORKER = /(-|\/)worker\.js$/, ENGINE = 'browser/engine-worker.js';
/** Files that stay as they are: libraries that are loaded by their address when they are needed. */
const LIBRARY = /\.min\.m?js$/;

const read = path => readFileSync(join(web, path), 'utf8');
/** The paths of the site's files, but for licences. @type {string[]} */
const kept = [];
/** @param {string} path @param {string | Buffer} content */
function write(path, content) {
  mkdirSync(dirname(join(site, path)), { recursive: true });
  writeFileSync(join(site, path), content);
  if (!path.endsWith('/LICENSE')) kept.push(path);
}
/** The path of what a file names. @param {string} file @param {string} address */
const pathOf = (file, address) => posix.join(posix.dirname(file), address);

/** A module keeps the address of the file that it comes from, wherever its code is, because it finds workers, modules
 * of WebAssembly and libraries by it. */
const ownAddresses = {
  name: 'own addresses',
  setup({ onLoad }) {
    onLoad({ filter: /\.m?js$/ }, ({ path }) => {
      const own = JSON.stringify(relative(web, path).replaceAll('\\', '/')), text = readFileSync(path, 'utf8');
      return { loader: 'js', contents: !text.includes('import.meta.url') ? text
        : `const ownAddress = import.meta.url.slice(0, import.meta.url.lastIndexOf('/web/') + 5) + ${own}; `
          + text.replaceAll('import.meta.url', 'ownAddress') };
    });
  },
};

/** Joins modules.  Those that are loaded by their address keep it.
 * @param {string[]} entryPoints @param {boolean} splitting  whether what several of them need, or what is loaded later,
 *   is in chunks/; otherwise each of them is one file
 * @returns {Promise<Record<string, {inputs: string[], imports: string[]}>>}  for each file the modules in it, and the
 *   files that it imports at once */
async function joined(entryPoints, splitting) {
  const { metafile } = await build({ ...SHORTER, absWorkingDir: web, entryPoints, outbase: '.', outdir: site,
    bundle: true, splitting, format: 'esm', chunkNames: 'chunks/[hash]', metafile: true, logLevel: 'warning',
    // Imports of nothing, by which a worker of the tree loads all its modules at once.
    logOverride: { 'ignored-bare-import': 'silent' }, plugins: [ownAddresses] });
  const own = path => relative(site, resolve(web, path)).replaceAll('\\', '/');
  return Object.fromEntries(Object.entries(metafile.outputs).map(([path, { inputs, imports }]) => [own(path), {
    inputs: Object.keys(inputs),
    imports: imports.filter(({ kind }) => kind === 'import-statement').map(one => own(one.path)),
  }]));
}

/** A page that loads early what its script imports, and what the page of the tree loads early.
 * @param {string} path @param {Awaited<ReturnType<typeof joined>>} files */
function pageWithPreloads(path, files) {
  const text = read(path), script = SCRIPT.exec(text);
  if (!script) return text;
  /** @type {Set<string>} */
  const early = new Set();
  const add = file => {
    if (early.has(file)) return;
    early.add(file);
    files[file].imports.forEach(add);
  };
  const own = pathOf(path, script[1]);
  files[own].imports.forEach(add);
  for (const [, address] of text.matchAll(PRELOAD)) {
    const module = pathOf(path, address), file = Object.keys(files).find(one => files[one].inputs.includes(module));
    if (file === undefined) throw new Error(`${path}: no script imports ${module}`);
    if (file !== own) add(file);
  }
  const links = [...early].map(file =>
    `<link rel="modulepreload" href="${posix.relative(posix.dirname(path), file)}">\n`);
  return text.replace(PRELOAD, '').replace(/.*<script type="module"[^\n]*\n/, line => line + links.join(''));
}

const all = pageFiles(), pages = all.filter(path => path.endsWith('.html'));
const modules = pages.flatMap(page => {
  const script = SCRIPT.exec(read(page));
  return script ? [pathOf(page, script[1])] : [];
});
// The chat page and the engine's worker share files, which are loaded once.  The pages of the gallery have their own,
// so that the chat page is not cut into more.
const [chat, gallery] = [true, false].map(isChat => modules.filter(path => path.startsWith('chat/') === isChat));
const files = { ...await joined([...chat, ENGINE], true), ...await joined(gallery, true),
  ...await joined(all.filter(path => WORKER.test(path) && path !== ENGINE), false) };
kept.push(...Object.keys(files));
const replaced = new Set(Object.values(files).flatMap(({ inputs }) => inputs));
for (const path of all) {
  if (path in files) continue;
  if (pages.includes(path)) write(path, pageWithPreloads(path, files));
  else if (/\.css$|theme\.js$/.test(path)) {
    const loader = posix.extname(path).slice(1);
    write(path, (await transform(read(path), { ...SHORTER, keepNames: false, loader })).code);
  } else if (!/\.m?js$/.test(path) || LIBRARY.test(path) && !replaced.has(path)) {
    write(path, readFileSync(join(web, path)));
  }
}
for (const name of readdirSync(join(web, 'dist/vendor'))) {
  write(`dist/vendor/${name}/LICENSE`, read(`dist/vendor/${name}/LICENSE`));
}
write('sw.js', await serviceWorker(site, kept.sort()));

const beside = path => join(resolve(target), path);
copyFileSync(join(web, '../LICENSE'), beside('LICENSE'));
for (const model of models) {
  mkdirSync(beside('models'), { recursive: true });
  copyFileSync(model, beside(`models/${basename(model)}`));
}
writeFileSync(beside('.nojekyll'), '');   // without it, some hosts leave out files whose names begin with _
writeFileSync(beside('index.html'), '<!doctype html>\n<meta charset="utf-8">\n<title>plumb chat</title>\n'
  + '<meta http-equiv="refresh" content="0; url=web/chat/">\n<a href="web/chat/">plumb chat</a>\n');
