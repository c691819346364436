/* Node's worker for the engine: it serves the methods of host.js by the protocol. */
import { parentPort } from 'node:worker_threads';
import { serve } from '../base/protocol.js';
import { createHost } from '../engine/host.js';
import { platform } from './platform.js';

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
serve({
  post: (message, transfer = []) => port.postMessage(message, transfer),
  onMessage: handler => port.on('message', handler),
}, createHost(platform));
