/** plumb-llm/fetch in a service worker of headless Chromium: a page's own fetch is answered by a model.  Ground truth:
 * llama.cpp's token ids (tests/vectors). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { Plumb } from '../../web/node/index.js';
import { prompts, realPath, root } from '../node/helpers.mjs';

test('a page\'s requests are answered in a service worker, and a stream that is left ends', async t => {
  const server = await serve({ root }), browser = await launchChrome();
  t.after(async () => {
    await browser.close();
    await server.close();
  });
  const [, { messages, f32: { ids } }] = prompts, model = await Plumb.load(realPath, { threads: 1 });
  const expected = await model.detokenize(ids.slice(0, 12));
  await model.close();
  const page = await browser.newPage();
  await page.goto(`${server.url}tests/hosts/page.html`);
  const answers = await page.evaluate(async messages => {
    await navigator.serviceWorker.register('service-worker.js', { type: 'module' });
    if (!navigator.serviceWorker.controller) {
      await new Promise(resolve => { navigator.serviceWorker.addEventListener('controllerchange', resolve); });
    }
    const post = (body, init) => fetch('/v1/chat/completions', {
      method: 'POST', ...init,
      body: JSON.stringify({ model: 'smol', messages, temperature: 0, max_tokens: 12, ...body }),
    });
    const { choices: [{ message }] } = await (await post({})).json();
    const abort = new AbortController(), left = await post({ stream: true, max_tokens: 400 }, { signal: abort.signal });
    await left.body.getReader().read();
    abort.abort();
    const lines = (await (await post({ stream: true })).text()).split('\n').filter(line => line.startsWith('data: {'));
    const streamed = lines.map(line => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? '').join('');
    const wrong = await post({ model: 'gpt' });
    return [message.content, streamed, wrong.status, (await (await fetch('/v1/models')).json()).data[0].id];
  }, messages);
  assert.deepEqual(answers, [expected, expected, 404, 'smol']);
});
