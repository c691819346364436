/** Pages of one origin that share an engine, in Chromium.  Ground truth: the texts of an engine of their own. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { root } from '../node/helpers.mjs';

const URL = '/models/SmolLM2-135M-Instruct.Q4_1.gguf', OPTIONS = { maxTokens: 40, temperature: 0.8, seed: 7 };
let server, browser, context, requests;
/** What the pages' models answer to these prompts alone. */
const prompts = ['Once upon a time, there was', 'The three primary colours are'], alone = [];

/** Opens a page with the functions that the tests call in it. */
async function open() {
  const page = await context.newPage();
  page.on('request', request => { if (request.url().endsWith('.gguf')) requests.push(request.url()); });
  await page.goto(`${server.url}tests/hosts/page.html`);
  await page.evaluate(async ([url, options]) => {
    const { Plumb } = await import('/web/index.js');
    Object.assign(window, {
      load: async more => {
        window.model = await Plumb.load(url, { contextLength: 512, shared: true, ...more });
        return window.model.warnings;
      },
      say: async prompt => {
        window.text = '';
        for await (const piece of window.model.generate(prompt, options)) window.text += piece;
        return window.text;
      },
    });
  }, [URL, OPTIONS]);
  return page;
}
const load = (page, more) => page.evaluate(more => window.load(more), more);
const say = (page, prompt) => page.evaluate(prompt => window.say(prompt), prompt);
const engines = pages => pages.map(page => page.workers().filter(one => one.url().includes('engine-worker')).length);
/** Waits until a page has written some of its answer. */
const began = page => page.waitForFunction(() => window.text?.length > 20);

before(async () => {
  server = await serve({ root });
  browser = await launchChrome();
  context = await browser.newContext();
  requests = [];
  const page = await open();
  assert.deepEqual(await load(page, { shared: false }), []);
  for (const prompt of prompts) alone.push(await say(page, prompt));
  await context.close();
});
after(async () => {
  await browser?.close();
  await server?.close();
});
beforeEach(async () => {
  await context.close();
  context = await browser.newContext();
  requests = [];
});

test('two pages have one engine, one download and their own sessions', async () => {
  const pages = [await open(), await open()];
  const warnings = await Promise.all(pages.map(page => load(page)));
  assert.deepEqual(warnings, [[], []]);
  assert.deepEqual(engines(pages).sort(), [0, 1]);
  assert.deepEqual([...new Set(requests)], [new globalThis.URL(URL, server.url).href]);
  assert.deepEqual(await Promise.all(pages.map((page, i) => say(page, prompts[i]))), alone);
  const positions = await Promise.all(pages.map(page => page.evaluate(async () => {
    const session = await window.model.session();
    await session.feed([1, 2, 3]);
    return [(await window.model.info()).position, (await session.info()).position];
  })));
  for (const [own, session] of positions) assert.ok(own > 3 && session === 3);
});

test('the page with the engine closes while another page streams: the text is the same, then the other has it',
  async () => {
    const first = await open(), second = await open();
    await load(first);
    await load(second);
    assert.deepEqual(engines([first, second]), [1, 0]);
    const text = say(second, prompts[1]);
    await began(second);
    await first.close();
    assert.equal(await text, alone[1]);
    assert.deepEqual(engines([second]), [1]);
    assert.equal(new Set(requests).size, 1);
    assert.equal(await say(second, prompts[0]), alone[0]);
  });

test('what a session held is lost with the engine, which is an error; chats go on', async () => {
  const first = await open(), second = await open();
  await load(first);
  await load(second);
  await second.evaluate(async () => {
    window.session = await window.model.session();
    await window.session.feed([1, 2, 3]);
    window.chat = window.model.chat();
    window.before = await window.chat.send('Say one.', { maxTokens: 8, temperature: 0 });
  });
  await first.close();
  const results = await second.evaluate(async () => {
    const code = await window.session.feed([4]).catch(({ code }) => code);
    await window.session.rewind();
    const logits = await window.session.feed([1, 2, 3, 4]);
    const chat = window.model.chat({ messages: window.chat.messages });
    return { code, logits: logits.length, same: await window.chat.send('And two.', { maxTokens: 8, temperature: 0 })
      === await chat.send('And two.', { maxTokens: 8, temperature: 0 }) };
  });
  assert.deepEqual(results, { code: 'PLUMB_ERROR_STATE', logits: 49152, same: true });
});

test('a page that closes its model serves the others on; the last one frees the engine', async () => {
  const first = await open(), second = await open();
  await load(first);
  await load(second);
  await first.evaluate(() => window.model.close());
  assert.equal(await say(second, prompts[0]), alone[0]);
  assert.deepEqual(engines([first, second]), [1, 0]);
  assert.equal(await first.evaluate(() => window.model.info().catch(({ code }) => code)), 'PLUMB_ERROR_STATE');
  const [worker] = first.workers().filter(one => one.url().includes('engine-worker'));
  const ended = worker.waitForEvent('close');
  await second.evaluate(() => window.model.close());
  await ended;
  await load(first);
  assert.equal(await say(first, prompts[1]), alone[1]);
});

test('a page that ends while its answer is written takes nothing of the others along, and its sessions are freed',
  async () => {
    const first = await open(), second = await open();
    await load(first);
    await load(second);
    void say(second, prompts[1]).catch(() => {});
    await began(second);
    await second.close();
    assert.equal(await say(first, prompts[0]), alone[0]);
    assert.deepEqual(engines([first]), [1]);
  });

test('what cannot be shared says why, and has an engine of its own', async () => {
  const page = await open();
  const [warning] = await page.evaluate(async url => {
    const { Plumb } = await import('/web/index.js');
    const model = await Plumb.load(await (await fetch(url)).blob(), { shared: true, contextLength: 64 });
    await model.close();
    return model.warnings;
  }, '/tests/vectors/synth/f32.gguf');
  assert.match(warning.message, /^the engine is not shared: only the models of URLs are$/);
});
