/* A thread of the engine in a browser: threads.js started it. */
import { createThread } from './threads.js';

const scope = /** @type {any} */ (self);
const receive = createThread(message => scope.postMessage(message));
scope.addEventListener('message', (/** @type {MessageEvent} */ event) => receive(event.data));
