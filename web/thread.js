/* A thread of the engine in a browser: threads.js started it. */
import { join } from './threads.js';

const scope = /** @type {any} */ (self);
scope.addEventListener('message', (/** @type {MessageEvent} */ event) =>
  join(event.data, message => scope.postMessage(message)));
