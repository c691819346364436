/* plumb in Node: the engine runs in the caller's thread unless `worker: true` asks for one; models are also read from
 * files. */
import { statSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createPlumb } from '../plumb.js';
import { attempt, platform, start } from './platform.js';

export { PlumbError } from '../errors.js';
export { Model } from '../plumb.js';

export const Plumb = createPlumb({
  ...platform,
  worker: false,
  postsBlobs: false,
  startWorker: () => start('./worker.js'),
  locate(source) {
    const text = String(source);
    if (/^(https?|data|blob):/.test(text)) return { kind: 'url', name: text, url: text };
    const path = text.startsWith('file:') ? fileURLToPath(text) : text;
    return { kind: 'file', name: basename(path), size: attempt(path, () => statSync(path).size), path };
  },
});
