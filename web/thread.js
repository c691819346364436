/* A thread of the engine in a browser: threads.js started it; or one that writes a copy: loader/writer.js did. */
import { serveOpfs } from './loader/opfs.js';
import { createThread } from './threads.js';

const scope = /** @type {any} */ (self);
const receive = createThread(message => scope.postMessage(message));
scope.addEventListener('message', (/** @type {MessageEvent} */ { data }) =>
  data.write ? serveOpfs(data.write) : receive(data));
