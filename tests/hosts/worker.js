/** The worker of tests/hosts/in-browser.mjs: runs the C test program, posts its output and how it ended. */
import { askForThread } from '../../web/base/relay.js';
import { runTests } from './module.js';

function read(path, offset, n) {
  if (n === 0) return new Uint8Array(0);
  const request = new XMLHttpRequest();  // synchronous, as only a worker may: C reads and waits
  request.open('GET', `/${path}`, false);
  request.responseType = 'arraybuffer';
  request.setRequestHeader('Range', `bytes=${offset}-${offset + n - 1}`);
  request.send();
  if (request.status === 404) return null;
  if (request.status === 416) return new Uint8Array(0);  // at or past the end
  if (request.status !== 206) throw new Error(`GET ${path}: status ${request.status}, expected 206 Partial Content`);
  return new Uint8Array(request.response);
}

self.onmessage = async ({ data: url }) => {
  try {
    const module = await WebAssembly.compileStreaming(fetch(url));
    postMessage({ status: await runTests(module, (text) => postMessage({ text }), read, () => askForThread(self)) });
  } catch (error) {
    postMessage({ error: `${error}\n${error.stack}` });   // a rejected promise in a worker is not reported to the page
  }
};
