/* The browser's worker of Plumb.command: it runs one command of the command line, and is then terminated. */
import { serve } from '../base/protocol.js';
import { createCommand } from '../command/blob-files.js';
import { fail } from '../command/wasi.js';
import { platform } from './platform.js';

const scope = /** @type {any} */ (self);

/** FileReaderSync exists only in workers, because it blocks. */
const reader = new /** @type {any} */ (globalThis).FileReaderSync();

serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, createCommand(platform.compile, (blob, from, to) => {
  try {
    return new Uint8Array(reader.readAsArrayBuffer(blob.slice(from, to)));
  } catch {
    fail('EIO');   // the file was changed or removed after it was chosen
  }
}));
