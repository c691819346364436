/* The browser's worker for a thread of the engine (threads.js), or for writing a copy (opfs-writer.js). */
import { createThread } from '../engine/threads.js';
import { serveOpfs } from './opfs.js';

const scope = /** @type {any} */ (self);
const receive = createThread(message => scope.postMessage(message));
scope.addEventListener('message', (/** @type {MessageEvent} */ { data }) =>
  data.write ? serveOpfs(data.write) : receive(data));
