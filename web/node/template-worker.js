/* Node's worker that renders chat templates, for template.js. */
import { parentPort } from 'node:worker_threads';
import { serve } from '../base/protocol.js';
import { rendering } from '../template/rendering.js';

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
serve({
  post: (message, transfer = []) => port.postMessage(message, transfer),
  onMessage: handler => port.on('message', handler),
}, rendering);
