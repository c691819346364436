/** The chat page, clicked through in headless Chromium as a visitor would. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { serve } from '../../web/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { root, tinyPath } from '../node/helpers.mjs';

const LONG = 'Tell a long story about a lighthouse keeper.';
let server, browser, page, problems;
before(async () => {
  server = await serve({ root, home: '/web/chat/' });
  browser = await launchChrome();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Opens the page; notes errors of its own, and requests to other places than its server. */
async function open(query = '', options = {}) {
  page = await browser.newPage(options);
  problems = [];
  page.on('pageerror', error => problems.push(String(error)));
  page.on('request', request => {
    if (!request.url().startsWith(server.url) && !/^(data|blob):/.test(request.url())) problems.push(request.url());
  });
  // Everything the reader gets to see, as it changes, and the longest time between two frames.
  await page.addInitScript(() => {
    globalThis.seen = { bar: [], loading: new Set(), answer: [], status: new Set() };
    globalThis.longestGap = 0;
    let last = 0;
    const frame = now => {
      if (last) globalThis.longestGap = Math.max(globalThis.longestGap, now - last);
      last = now;
      const text = selector => document.querySelector(selector)?.textContent ?? '';
      const { seen } = globalThis;
      const bar = document.querySelector('#bar')?.getAttribute('value');
      if (bar && bar !== seen.bar.at(-1)) seen.bar.push(bar);
      seen.loading.add(text('#loading-text'));
      seen.status.add(text('#status'));
      const answer = text('#log .assistant:last-child .text').length;
      if (answer !== seen.answer.at(-1)) seen.answer.push(answer);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  await page.goto(`${server.url}web/chat/${query}`);
}
const state = (name, timeout = 60000) => page.waitForSelector(`body[data-state=${name}]`, { timeout });
const text = selector => page.textContent(selector);
const answers = () => page.locator('#log .assistant .text').allTextContents();
async function ask(question) {
  await page.fill('#prompt', question);
  await page.keyboard.press('Enter');
  await state('answering');
}

describe('a visit', () => {
  before(() => open());
  afterEach(() => assert.deepEqual(problems, []));
  after(() => page.close());

  test('the page is cross-origin isolated, and loading shows how far it is', async () => {
    await state('ready');
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    const { bar, loading } = await page.evaluate(() => ({ bar: seen.bar.map(Number), loading: [...seen.loading] }));
    assert.ok(bar.length >= 3 && bar[0] < 0.4 && bar.at(-1) > 0.5, `the bar showed ${bar}`);
    assert.ok(bar.every((value, i) => i === 0 || value > bar[i - 1]), `the bar showed ${bar}`);
    const figures = /^\d+(\.\d)? of 98\.4 MB {2}· {2}\d+(\.\d)? MB\/s {2}· {2}\d+ s left$/;
    assert.ok(loading.some(line => figures.test(line)), `shown: ${loading.join(' | ')}`);
    assert.equal(await text('#model'), 'smollm2 135M');
    assert.ok(await page.isVisible('#welcome'));
    assert.ok(await page.isDisabled('#send'), 'there is nothing to send yet');
  });

  test('Enter sends; the answer streams; tokens/s are shown', async () => {
    await ask('What is gravity? Answer in two sentences.');
    assert.ok(!await page.isVisible('#welcome'));
    assert.equal(await page.inputValue('#prompt'), '');
    await state('ready');
    const steps = await page.evaluate(() => seen.answer.filter(length => length > 0));
    assert.ok(steps.length > 5, `the answer grew in ${steps.length} steps`);
    assert.equal(await text('#log .user .text'), 'What is gravity? Answer in two sentences.');
    const [answer] = await answers();
    assert.match(answer, /gravity|force|mass|object/i);
    assert.match(await text('#log .assistant .figures'), /^\d+ tokens {2}· {2}\d+\.\d tokens\/s$/);
  });

  test('a second turn follows the first, sent with the button', async () => {
    await page.fill('#prompt', 'Say that in five words.');
    await page.click('#send');
    await state('answering');
    await state('ready');
    assert.equal((await answers()).length, 2);
    assert.ok((await answers())[1].length > 0);
    assert.deepEqual(await page.locator('#log li').evaluateAll(items => items.map(item => item.className)),
      ['user', 'assistant', 'user', 'assistant']);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'prompt');
  });

  test('Stop ends an answer, which stays; so does Escape', async () => {
    for (const stop of [() => page.click('#stop'), () => page.keyboard.press('Escape')]) {
      await page.click('#fresh');
      await ask(LONG);
      await page.waitForFunction(() => document.querySelector('#log .assistant .text').textContent.length > 40);
      await stop();
      await state('ready', 3000);
      const said = (await answers()).at(-1);
      assert.ok(said.length > 40 && said.length < 2000, `${said.length} characters`);
      assert.match(await text('#log .assistant:last-child .figures'), /tokens\/s {2}· {2}stopped$/);
      await page.waitForTimeout(300);
      assert.equal((await answers()).at(-1), said);
    }
  });

  test('while it answers no frame is late: the longest gap is under 100 ms', async t => {
    // A page that waits for its engine is late each time; one on a machine that is busy otherwise only sometimes.
    const gaps = [];
    for (let i = 0; i < 3 && !(gaps.at(-1) < 100); i++) {
      await page.click('#fresh');
      await page.evaluate(() => { longestGap = 0; });
      await ask(LONG);
      await state('ready', 4000).catch(() => page.click('#stop'));
      await state('ready');
      gaps.push(await page.evaluate(() => longestGap));
      assert.ok((await answers())[0].length > 100, 'there was an answer');
    }
    t.diagnostic(`longest gap ${gaps.at(-1).toFixed(0)} ms`);
    assert.ok(gaps.at(-1) > 0 && gaps.at(-1) < 100, `${gaps.join(', ')} ms between two frames`);
    const status = await page.evaluate(() => [...seen.status]);
    assert.ok(status.some(line => /^\d+\.\d tokens\/s$/.test(line)), `shown while it answers: ${status.join(' | ')}`);
  });

  test('New chat starts over, also in the middle of an answer', async () => {
    await ask(LONG);
    await page.click('#fresh');
    await state('ready');
    assert.equal(await page.locator('#log li').count(), 0);
    assert.ok(await page.isVisible('#welcome'));
    await page.click('#ideas button');
    await state('answering');
    await state('ready');
    assert.equal((await answers()).length, 1);
    assert.equal(await page.locator('#log li').count(), 2);
  });

  test('what the model says is text, not markup', async () => {
    const markup = '<b>bold</b><img src=x onerror=alert(1)>';
    await page.fill('#prompt', markup);
    await page.keyboard.press('Enter');
    await state('answering');
    await page.click('#stop');
    await state('ready');
    assert.equal(await page.locator('#log .text *').count(), 0);
    assert.equal(await page.locator('#log .user .text').last().textContent(), markup);
  });

  test('Shift+Enter makes a new line; an empty message is not sent', async () => {
    const turns = await page.locator('#log li').count();
    await page.fill('#prompt', '   ');
    await page.keyboard.press('Enter');
    await page.fill('#prompt', 'one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('two');
    assert.equal(await page.inputValue('#prompt'), 'one\ntwo');
    assert.equal(await page.locator('#log li').count(), turns);
    await page.fill('#prompt', '');
  });

  test('another model is opened from a file; one without a chat template says so', async () => {
    await page.setInputFiles('#file', tinyPath);
    await page.waitForFunction(() => document.querySelector('#model').textContent.startsWith('synthetic'));
    await state('ready');
    await page.fill('#prompt', 'Hello');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#log .assistant .figures');
    assert.match((await answers())[0], /^This model cannot chat\. Open an instruction-tuned model/);
    assert.match(await text('#log .assistant .figures'), /no tokenizer\.chat_template/);
  });
});

describe('loads that fail', () => {
  afterEach(() => page.close());
  const failure = async () => {
    await state('failed');
    assert.ok(await page.isVisible('#failure'));
    assert.deepEqual(problems, []);
    return [await text('#failure-title'), await text('#failure-advice'), await text('#failure-detail')];
  };

  test('a model that is not there: what happened, what to do, the place; Try again tries again', async () => {
    await open('?model=/models/none.gguf');
    const [title, advice, detail] = await failure();
    assert.equal(title, 'The model is not there');
    assert.equal(advice, 'Check its address, or open a GGUF file from your computer.');
    assert.match(detail, /\/models\/none\.gguf: the server answered 404 Not Found \(PLUMB_ERROR_IO\)$/);
    await page.route('**/none.gguf', route => route.fulfill({ path: tinyPath }));
    await page.click('#retry');
    await state('ready');
  });

  test('a web page instead of a model', async () => {
    await open('?model=/web/chat/');
    const [title, , detail] = await failure();
    assert.equal(title, 'This is not a readable model');
    assert.match(detail, /the server sent a web page \(text\/html/);
  });

  test('a load can be cancelled', async () => {
    await open();
    await page.waitForFunction(() => Number(document.querySelector('#bar').getAttribute('value')) > 0);
    await page.click('#cancel');
    assert.equal((await failure())[0], 'Loading was cancelled');
    await page.waitForTimeout(100);
    assert.equal(page.workers().length, 0, 'the worker is gone');
  });
});

/** Contrast ratio of two colours "rgb(r, g, b)", by WCAG 2. */
function contrast(a, b) {
  const [high, low] = [a, b].map(color => {
    const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, blue] = color.match(/[\d.]+/g).map(n => linear(n / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * blue;
  }).sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

for (const colorScheme of ['light', 'dark']) {
  for (const width of [360, 1440]) {
    test(`${width} px, ${colorScheme}: nothing sticks out, text is legible, buttons can be reached`, async () => {
      await open('?model=/tests/vectors/synth/f32.gguf', { colorScheme, viewport: { width, height: 740 } });
      await state('ready');
      await page.fill('#prompt', 'A'.repeat(300));
      await page.keyboard.press('Enter');
      await page.waitForSelector('#log .assistant .figures');
      const { overflow, ground, colors, outside } = await page.evaluate(() => {
        const inks = ['body', '.figures', '#log .assistant .text', 'nav button'];
        const color = selector => getComputedStyle(document.querySelector(selector)).color;
        return {
          overflow: document.documentElement.scrollWidth - innerWidth,
          ground: getComputedStyle(document.body).backgroundColor,
          colors: Object.fromEntries(inks.map(selector => [selector, color(selector)])),
          outside: [...document.querySelectorAll('button, textarea, #log .text')].filter(element => {
            const { left, right, width } = element.getBoundingClientRect();
            return width > 0 && (left < 0 || right > innerWidth);
          }).map(element => element.id || element.className),
        };
      });
      assert.ok(overflow <= 0, `${overflow} px too wide`);
      assert.deepEqual(outside, []);
      assert.equal(contrast(ground, 'rgb(0, 0, 0)') < 2, colorScheme === 'dark');
      for (const [what, color] of Object.entries(colors)) {
        assert.ok(contrast(ground, color) >= 4.5, `${what}: ${contrast(ground, color).toFixed(1)} : 1`);
      }
      await page.close();
    });
  }
}
