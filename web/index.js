/* plumb in a browser: the engine runs in a module worker. */
import { platform, wrap } from './platform.js';
import { createPlumb } from './plumb.js';

export { PlumbError } from './errors.js';
export { Model } from './plumb.js';

export const Plumb = createPlumb({
  ...platform,
  worker: true,
  postsBlobs: true,
  startWorker: () => wrap(new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })),
  locate(source) {
    const url = new URL(source, globalThis.location?.href).href;
    return { kind: 'url', name: url, url };
  },
});
