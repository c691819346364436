/** A service worker that answers requests of its pages with plumb-llm/fetch, as the guide says. */
import { createHandler } from '/web/fetch.js';

const handler = createHandler({ models: { smol: '/models/SmolLM2-135M-Instruct.Q4_1.gguf' } });
addEventListener('install', event => event.waitUntil(skipWaiting()));
addEventListener('activate', event => event.waitUntil(clients.claim()));
addEventListener('fetch', event => {
  if (new URL(event.request.url).pathname.startsWith('/v1/')) event.respondWith(handler(event.request));
});
