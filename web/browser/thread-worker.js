/* A thread of the engine in a browser: threads.js started it; or one that writes a copy: opfs-writer.js did. */
import { createThread } from '../engine/threads.js';
import { serveOpfs } from './opfs.js';

const scope = /** @type {any} */ (self);
const receive = createThread(message => scope.postMessage(message));
scope.addEventListener('message', (/** @type {MessageEvent} */ { data }) =>
  data.write ? serveOpfs(data.write) : receive(data));
