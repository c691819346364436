/* plumb in a browser: the engine runs in a module worker. */
import { compile } from './compile.js';
import { createPlumb } from './plumb.js';

export { PlumbError } from './errors.js';
export { Model } from './plumb.js';

export const Plumb = createPlumb({
  compile,
  worker: true,
  postsBlobs: true,
  startWorker() {
    const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
    return {
      post: (message, transfer = []) => worker.postMessage(message, transfer),
      onMessage: handler => worker.addEventListener('message', event => handler(event.data)),
      onDeath: handler => {
        worker.addEventListener('error', event => handler(event.message ?? 'its files do not load'));
        worker.addEventListener('messageerror', () => handler('a message could not be read'));
      },
      terminate: () => worker.terminate(),
    };
  },
  locate(source) {
    const url = new URL(source, globalThis.location?.href).href;
    return { kind: 'url', name: url, url };
  },
});
