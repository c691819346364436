/* Node's worker for a thread of the engine (threads.js). */
import { parentPort } from 'node:worker_threads';
import { createThread } from '../engine/threads.js';

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
port.on('message', createThread(message => port.postMessage(message)));
