/* `Plumb` in a browser.  The engine runs in a module worker, unless `worker: false` asks for the caller's thread, or
 * the caller is a service worker, which can have no worker. */
import { createPlumb } from '../api/plumb.js';
import { giveThreads } from '../base/relay.js';
import { deviceMemory } from '../engine/preflight.js';
import { urlPart } from '../loader/source.js';
import { baseUrl, checkHost, platform, start } from './platform.js';
import { share, unsharedReason } from './shared.js';

/** Whether the browser was already asked not to evict what is stored; some browsers ask the user. */
let persistRequested = false;

/** Loads models. */
export const library = createPlumb({
  ...platform,
  worker: typeof Worker === 'function',
  postsBlobs: true,
  startWorker(workerUrl) {
    const create = () => new Worker(new URL('./engine-worker.js', import.meta.url), { type: 'module' });
    return giveThreads(start('engine-worker.js', create, workerUrl), () => platform.startThread(workerUrl));
  },
  startCommand(files, workerUrl) {
    const create = () => new Worker(new URL('./command-worker.js', import.meta.url), { type: 'module' });
    return { worker: start('command-worker.js', create, workerUrl), files };
  },
  memory: deviceMemory(),
  share,
  unsharedReason,
  locate(source) {
    checkHost();
    return urlPart(String(source), baseUrl());
  },
  persist() {
    if (persistRequested) return;
    persistRequested = true;
    navigator.storage?.persist?.().catch(() => {});
  },
});
