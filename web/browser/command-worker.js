/* The browser's worker of Plumb.command: one command of the command line, then it is ended. */
import { serve } from '../base/protocol.js';
import { createCommand } from '../command/blob-files.js';
import { fail } from '../command/wasi.js';
import { platform } from './platform.js';

const scope = /** @type {any} */ (self);

/** Present in workers only, as it blocks. */
const reader = new /** @type {any} */ (globalThis).FileReaderSync();

serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, createCommand(platform.compile, (blob, from, to) => {
  try {
    return new Uint8Array(reader.readAsArrayBuffer(blob.slice(from, to)));
  } catch {
    fail('EIO');   // a file that was changed or removed since it was chosen
  }
}));
