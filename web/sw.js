/* The service worker of the chat page and of the search page.  With it they work without a network, and have threads on
 * hosts that send no headers.
 *
 * It keeps the files of the pages in a cache of their version.  A new version is fetched as a whole into another cache
 * and takes over when the page says so, so that files of two versions never mix.  It does not touch requests for
 * anything else, such as models.  To its responses it adds the headers that make a page cross-origin isolated.
 *
 * site/page-files.mjs puts SHELL, {version, files: {path: integrity}}, in front of this text; paths are relative to the
 * folder of this file.  That folder is the root of the package: a browser asks a service worker for the scripts of
 * workers only if they are in its folder or below, and the page's workers are in browser/. */
const worker = /** @type {any} */ (self);
const { version, files } = /** @type {{version: string, files: Record<string, string>}} */ (worker.SHELL);
const PREFIX = 'plumb-page-';
const CACHE = PREFIX + version;
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

worker.addEventListener('install', (/** @type {any} */ event) => event.waitUntil(keep()));

async function keep() {
  const cache = await caches.open(CACHE);
  await cache.addAll(Object.entries(files).map(([path, integrity]) =>
    new Request(new URL(path, location.href), { integrity, cache: 'no-cache' })));
}

worker.addEventListener('activate', (/** @type {any} */ event) => event.waitUntil((async () => {
  const others = (await caches.keys()).filter(name => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(others.map(name => caches.delete(name)));
  await worker.clients.claim();
})()));

worker.addEventListener('message', (/** @type {MessageEvent} */ event) => {
  if (event.data === 'take over') worker.skipWaiting();
});

worker.addEventListener('fetch', (/** @type {any} */ event) => {
  const { request } = event;
  const folder = new URL('.', location.href).href, address = request.url.replace(/[?#].*$/s, '');
  if (request.method !== 'GET' || !address.startsWith(folder)) return;
  const path = address.slice(folder.length).replace(/(^|\/)$/, '$1index.html');
  if (Object.hasOwn(files, path)) event.respondWith(answer(folder + path, request));
});

/** @param {string} url @param {Request} request */
async function answer(url, request) {
  const kept = caches.open(CACHE).then(cache => cache.match(url, { ignoreVary: true }));
  const found = await kept.catch(() => undefined) ?? await fetch(request);   // a broken cache counts as empty
  const headers = new Headers(found.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(found.body, { status: found.status, statusText: found.statusText, headers });
}
