/** Closed models leave no memory behind: after ten models that warm up a page, fifteen more let its heap grow by less
 * than 5 %, and its process by less than 5 % of one of them (it ends some ms after them, at 32 to 36 MB). */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { serve } from '../../../web/site/serve.mjs';
import { launchChrome } from '../../hosts/chrome.mjs';
import { realPath, root } from '../../node/helpers.mjs';

let browser, server;
before(async () => {
  browser = await launchChrome([]);   // of its own, whose processes are measured
  server = await serve({ root });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

test('25 models loaded, used and closed in a page leave no memory behind', async t => {
  const page = await browser.newPage();
  await page.route('**/blank.html', route => route.fulfill({
    contentType: 'text/html', body: '<!doctype html>',
    headers: { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' },
  }));
  await page.goto(`${server.url}blank.html`);
  const devtools = await page.context().newCDPSession(page), system = await browser.newBrowserCDPSession();
  await devtools.send('Performance.enable');
  const bytesOf = pid => Number(/^RssAnon:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
  /** Bytes of the page's heap after garbage collection. */
  const heap = async () => {
    await devtools.send('HeapProfiler.collectGarbage');
    const { metrics } = await devtools.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'JSHeapUsedSize').value;
  };

  let pid;
  const heaps = [], processes = [];
  for (let i = 0; i < 25; i++) {
    await page.evaluate(async () => {
      const { Plumb } = await import('/web/index.js');
      globalThis.model = await Plumb.load('/models/SmolLM2-135M-Instruct.Q4_1.gguf', { contextLength: 256 });
      for await (const _ of model.generate([{ role: 'user', content: 'Hello' }], { maxTokens: 2 }));
    });
    if (i === 0) {
      const { processInfo } = await system.send('SystemInfo.getProcessInfo');
      pid = processInfo.map(({ id }) => id).sort((a, b) => bytesOf(b) - bytesOf(a))[0];
      assert.ok(bytesOf(pid) > statSync(realPath).size, `no process holds the model: ${bytesOf(pid)} bytes`);
    }
    await page.evaluate(async () => {
      await model.close();
      globalThis.model = undefined;
    });
    heaps.push(await heap());
    processes.push(bytesOf(pid));
  }
  // The heap grows with the code that the first nine loads compile.
  const growth = sizes => Math.min(...sizes.slice(-3)) - Math.min(...sizes.slice(10, 13));
  for (const [name, sizes] of Object.entries({ heaps, processes })) {
    t.diagnostic(`${name}: ${sizes.map(size => (size / 1e6).toFixed(2)).join(' ')}`);
  }
  assert.ok(growth(heaps) < 0.04 * heaps[9], `the heap grew by ${growth(heaps)} bytes`);
  assert.ok(growth(processes) < 0.05 * statSync(realPath).size, `the process grew by ${growth(processes)} bytes`);
});
