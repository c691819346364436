/* The browser's worker: host.js behind the protocol.  Its threads are workers of the page's (index.js): one that is
 * terminated while workers of its own are ending may never end in Chromium. */
import { createHost } from './host.js';
import { platform } from './platform.js';
import { serve } from './protocol.js';
// What those import in their turn, asked for at once and not when each has arrived.
import './engine.js';
import './errors.js';
import './hex.js';
import './loader/download.js';
import './loader/file.js';
import './loader/opfs.js';
import './loader/parts.js';
import './loader/progress.js';
import './loader/source.js';
import './loader/store.js';
import './loader/stream.js';
import './options.js';
import './preflight.js';
import './stop.js';
import './threads.js';

const scope = /** @type {any} */ (self);

/** Between a thread and this worker: {message} in both directions, {death} from there, {terminate} from here. */
function startThread() {
  const { port1, port2 } = new MessageChannel();
  scope.postMessage({ thread: port2 }, [port2]);
  port1.start();
  const on = (/** @type {'message' | 'death'} */ kind) => (/** @type {(data: any) => void} */ handler) =>
    port1.addEventListener('message', ({ data }) => kind in data && handler(data[kind]));
  return {
    post: (/** @type {any} */ message) => port1.postMessage({ message }),
    onMessage: on('message'),
    onDeath: on('death'),
    terminate: () => port1.postMessage({ terminate: true }),
  };
}

serve({
  post: (message, transfer) => scope.postMessage(message, transfer),
  onMessage: handler => scope.addEventListener('message', (/** @type {MessageEvent} */ event) => handler(event.data)),
}, createHost({ ...platform, startThread }));
