/* The browser's worker that renders chat templates, for template.js. */
import { serve } from '../base/protocol.js';
import { rendering } from '../template/rendering.js';

const scope = /** @type {any} */ (self);

serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, rendering);
