/* The service worker of the chat page and of the gallery.  With it they work without a network, and have threads on
 * hosts that send no headers.
 *
 * It keeps the files of the pages in a cache of their version.  A new version is fetched as a whole into another cache
 * and takes over when the page says so, so that files of two versions never mix: the integrity of every file is
 * checked, a version of which files are missing is completed or not used any more, and another copy of the page on the
 * same origin has its own caches.  It does not touch requests for anything else, such as models.  To its responses it
 * adds the headers that make a page cross-origin isolated, and the policies of files that have one.
 *
 * site/page-files.mjs puts SHELL, {version, files: {path: integrity}, later: paths, policies: {path: policy}}, in front
 * of this text; paths are relative to the folder of this file, and those in `later` are kept when the page first asks
 * for them.  That folder is
 * the root of the package: a browser asks a service worker for the scripts of workers only if they are in its folder or
 * below, and the page's workers are in browser/ and chat/. */
const worker = /** @type {any} */ (self);
const { version, files, later, policies } = /** @type {{version: string, files: Record<string, string>,
 *   later: string[], policies: Record<string, string>}} */ (worker.SHELL);
/** The paths of the files that are kept from the start. */
const first = Object.keys(files).filter(path => !later.includes(path));
const FOLDER = new URL('.', location.href).href;
const PREFIX = `plumb-page-${FOLDER}#`;
const CACHE = PREFIX + version;
/** The names of caches of versions that shared them with all copies of the page on their origin. */
const EARLIER = /^plumb-page-[^#]*$/;
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

worker.addEventListener('install', (/** @type {any} */ event) => event.waitUntil(keep()));

async function keep() {
  const cache = await caches.open(CACHE);
  await cache.addAll(first.map(requestOf));
}

/** A request that fails if the server has another version of the file. @param {string} path */
const requestOf = path => new Request(FOLDER + path, { integrity: files[path], cache: 'no-cache' });

worker.addEventListener('activate', (/** @type {any} */ event) => event.waitUntil((async () => {
  const others = (await caches.keys())
    .filter(name => name.startsWith(PREFIX) && name !== CACHE || EARLIER.test(name));
  await Promise.all(others.map(name => caches.delete(name)));
  // This is not awaited.  In Firefox it ends only when every worker of the page has answered, which an engine's thread
  // that waits for work does not, and until `activate` ends, each request of the page waits.
  worker.clients.claim();
})()));

worker.addEventListener('message', (/** @type {MessageEvent} */ event) => {
  if (event.data === 'take over') worker.skipWaiting();
});

worker.addEventListener('fetch', (/** @type {any} */ event) => {
  const { request } = event, address = request.url.replace(/[?#].*$/s, '');
  if (request.method !== 'GET' || !address.startsWith(FOLDER)) return;
  const path = address.slice(FOLDER.length).replace(/(^|\/)$/, '$1index.html');
  if (Object.hasOwn(files, path)) event.respondWith(request.mode === 'navigate' ? open(path, request) : file(path));
});

/** The start of a page.  If its version is not whole and the server has another one, this worker ends, and the page
 * starts without it. @param {string} path @param {Request} request */
async function open(path, request) {
  if (await isWhole() || await keep().then(() => true, () => false)) return file(path);
  const other = await fetch(request);   // fails without a network
  return await worker.registration.unregister() ? Response.redirect(request.url) : isolated(other);
}

async function isWhole() {
  const names = await caches.open(CACHE).then(cache => cache.keys()).catch(() => []);
  const kept = new Set(names.map((/** @type {Request} */ { url }) => url.slice(FOLDER.length)));
  return first.every(path => kept.has(path));
}

/** @param {string} path */
async function file(path) {
  const cache = await caches.open(CACHE).catch(() => undefined);
  const kept = await cache?.match(FOLDER + path, { ignoreVary: true }).catch(() => undefined);
  if (kept) return isolated(kept, policies[path]);
  const response = await fetch(requestOf(path));
  if (response.ok && later.includes(path)) await cache?.put(FOLDER + path, response.clone()).catch(() => {});
  return isolated(response, policies[path]);
}

/** @param {Response} response @param {string} [policy]  of its content */
function isolated({ body, headers, status, statusText }, policy) {
  const all = new Headers(headers);
  if (policy) all.set('Content-Security-Policy', policy);
  for (const [name, value] of Object.entries(HEADERS)) all.set(name, value);
  return new Response(body, { status, statusText, headers: all });
}
