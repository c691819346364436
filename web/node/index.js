/* plumb in Node.  The engine runs in a worker, unless `worker: false` asks for the caller's thread.  Models can also be
 * read from files. */
import { totalmem } from 'node:os';
import { MessageChannel, Worker } from 'node:worker_threads';
import { createPlumb } from '../api/plumb.js';
import { places } from './places.js';
import { NO_FLAGS, platform, wrap } from './platform.js';

export { fitCalibration } from '../answers/calibration.js';
export { PlumbError } from '../base/errors.js';
export { Adapter, Model } from '../api/plumb.js';
export { Session } from '../api/session.js';

/** Loads models. */
export const Plumb = createPlumb({
  ...platform,
  ...places,
  memory: Math.min(totalmem(), process.constrainedMemory?.() || Infinity),
  worker: true,
  startWorker: () => wrap(new Worker(new URL('./engine-worker.js', import.meta.url), { execArgv: NO_FLAGS })),
  startCommand(blobs) {
    const { port1, port2 } = new MessageChannel();
    const answered = new Int32Array(new SharedArrayBuffer(4));
    port1.on('message', async ({ name, from, to }) => {
      const bytes = await blobs[name].slice(from, to).arrayBuffer().catch(() => undefined);   // the file was changed
      port1.postMessage(bytes && new Uint8Array(bytes));
      Atomics.store(answered, 0, 1);
      Atomics.notify(answered, 0);
    });
    const files = Object.fromEntries(Object.entries(blobs).map(([name, { size }]) => [name, { name, size }]));
    const worker = new Worker(new URL('./command-worker.js', import.meta.url),
      { execArgv: NO_FLAGS, workerData: { bytes: port2, answered }, transferList: [port2] });
    return { worker: wrap(worker), files };
  },
});
