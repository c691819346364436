/* The browser's worker: host.js behind the protocol. */
import { createHost } from './host.js';
import { platform } from './platform.js';
import { serve } from './protocol.js';

const scope = /** @type {any} */ (self);
serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, createHost(platform));
