/** The worker of tests/hosts/in-browser.mjs: runs the C test program, posts its output and how it ended. */
import { askForThread } from '../../web/base/relay.js';
import { runTests } from './module.js';

/** The contents of files by path, or null if there is no such file.  Each request takes milliseconds, and the tests
 * read most files many times, in many parts.  The oldest are forgotten, so that all are at most CACHED bytes.
 * @type {Map<string, Uint8Array | null>} */
const files = new Map();
const CACHED = 1 << 28;
let cached = 0;

function fileAt(path) {
  if (files.has(path)) return files.get(path);
  const request = new XMLHttpRequest();  // synchronous, as only a worker may: C reads and waits
  request.open('GET', `/${path}`, false);
  request.responseType = 'arraybuffer';
  request.send();
  if (request.status !== 200 && request.status !== 404) throw new Error(`GET ${path}: status ${request.status}`);
  const file = request.status === 200 ? new Uint8Array(request.response) : null;
  cached += file?.length ?? 0;
  for (const [oldest, bytes] of files) {
    if (cached <= CACHED) break;
    files.delete(oldest);
    cached -= bytes?.length ?? 0;
  }
  files.set(path, file);
  return file;
}

const read = (path, offset, n) => fileAt(path)?.subarray(offset, offset + n) ?? null;

self.onmessage = async ({ data: { url, wanted } }) => {
  try {
    const module = await WebAssembly.compileStreaming(fetch(url));
    const print = (text) => postMessage({ text });
    postMessage({ status: await runTests(module, print, read, () => askForThread(self), wanted) });
  } catch (error) {
    postMessage({ error: `${error}\n${error.stack}` });   // a rejected promise in a worker is not reported to the page
  }
};
