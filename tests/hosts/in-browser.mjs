/** `node tests/hosts/in-browser.mjs chromium|firefox|webkit MODULE [CASES]`: the C test program in a browser's worker;
 * TAP on stdout.  CASES: 'numbers sample', say, as tests/main.c's program takes them.  WebKit runs modules with threads
 * only with its switch for shared memory. */
import { writeSync } from 'node:fs';
import { serve } from '../../web/site/serve.mjs';
import { launch } from './browser.mjs';

const [name, module, wanted] = process.argv.slice(2);
const server = await serve({ root: '.', port: 0, host: '127.0.0.1' });
const browser = await launch[name]({ sharedMemory: true });
try {
  await browser.open(new URL('tests/hosts/page.html', server.url).href);
  await browser.evaluate(async ({ module, wanted }) => {
    const [{ platform, wrap }, { giveThreads }] =
      await Promise.all([import('/web/browser/platform.js'), import('/web/base/relay.js')]);
    const worker = new Worker('worker.js', { type: 'module' });
    giveThreads(wrap(worker), platform.startThread);
    let text = '', end, wake = () => {};
    worker.onmessage = ({ data }) => {
      text += data.text ?? '';
      if (data.status !== undefined || data.error) end = data;
      wake();
    };
    worker.onerror = event => {
      end = { error: event.message ?? 'the worker did not start' };
      wake();
    };
    worker.postMessage({ url: module, wanted });
    /** Waits for new output, and returns the output since the last call and how the program ended. */
    globalThis.printed = async () => {
      while (!text && !end) await new Promise(resolve => { wake = resolve; });
      const taken = { text, ...end };
      text = '';
      return taken;
    };
  }, { module: `/${module}`, wanted });
  for (;;) {
    const { text, error, status } = await browser.evaluate(() => globalThis.printed());
    writeSync(1, text);
    if (error) throw new Error(error);
    if (status !== undefined) {
      process.exitCode = status;
      break;
    }
  }
} finally {
  await browser.close();
  await server.close();
}
