/* Node's worker of Plumb.command.  It requests the bytes of a Blob from the thread that has it, and blocks until they
 * arrive: Node has no FileReaderSync, and cannot post Blobs of files. */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { serve } from '../base/protocol.js';
import { createCommand } from '../command/blob-files.js';
import { fail } from '../command/wasi.js';
import { platform } from './platform.js';

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
const { bytes, answered } = /** @type {{bytes: import('node:worker_threads').MessagePort, answered: Int32Array}} */
  (workerData);

serve({
  post: (message, transfer = []) => port.postMessage(message, transfer),
  onMessage: handler => port.on('message', handler),
}, createCommand(platform.compile, ({ name }, from, to) => {
  Atomics.store(answered, 0, 0);
  bytes.postMessage({ name, from, to });
  Atomics.wait(answered, 0, 0);
  return receiveMessageOnPort(bytes)?.message ?? fail('EIO');
}));
