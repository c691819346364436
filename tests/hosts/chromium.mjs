/** `node tests/hosts/chromium.mjs MODULE`: the C test program in a worker of headless Chromium; TAP on stdout. */
import { writeSync } from 'node:fs';
import { serve } from '../../web/serve.mjs';
import { launchChrome } from './chrome.mjs';

const server = await serve({ root: '.', port: 0, host: '127.0.0.1' });
const browser = await launchChrome();
try {
  const page = await browser.newPage();
  await page.exposeFunction('print', (text) => void writeSync(1, text));
  await page.goto(new URL('tests/hosts/page.html', server.url).href);
  process.exitCode = await page.evaluate((module) => new Promise((resolve, reject) => {
    const worker = new Worker('worker.js', { type: 'module' });
    let printed = Promise.resolve();
    worker.onmessage = ({ data }) => {
      if (data.text !== undefined) printed = printed.then(() => window.print(data.text));
      else printed.then(() => resolve(data.status), reject);
    };
    worker.onerror = (event) => printed.then(() => reject(new Error(event.message)), reject);
    worker.postMessage(module);
  }), `/${process.argv[2]}`);
} finally {
  await browser.close();
  await server.close();
}
