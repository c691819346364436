/* The browser's worker: host.js behind the protocol. */
import { createHost } from './host.js';
import { platform } from './platform.js';
import { serve } from './protocol.js';
import { askForThread } from './relay.js';
// What those import in their turn, asked for at once and not when each has arrived.
import './dist/vendor/noble-hashes/_md.js';
import './dist/vendor/noble-hashes/_u64.js';
import './dist/vendor/noble-hashes/sha2.js';
import './dist/vendor/noble-hashes/utils.js';
import './engine.js';
import './errors.js';
import './hex.js';
import './loader/blame.js';
import './loader/busy.js';
import './loader/download.js';
import './loader/file.js';
import './loader/opfs.js';
import './loader/parts.js';
import './loader/progress.js';
import './loader/source.js';
import './loader/store.js';
import './loader/stream.js';
import './loader/sums.js';
import './loader/writer.js';
import './options.js';
import './preflight.js';
import './stop.js';
import './threads.js';

const scope = /** @type {any} */ (self);

serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, createHost({ ...platform, startThread: () => askForThread(scope) }));
