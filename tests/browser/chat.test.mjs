/** The chat page, clicked through in headless Chromium as a visitor would. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { tinyPath } from '../node/helpers.mjs';
import {
  LONG, TINY, answers as answersOf, ask as askPage, open as openPage, put, setUp, state as stateOf,
} from './chat-page.mjs';

const where = await setUp();
let page;

/** Opens the page and notes all that the reader gets to see, as it changes, and the longest time between two frames. */
async function open(query = '', options = {}) {
  page = await openPage(where, query, options, page => page.addInitScript(() => {
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
      const answer = text('#log > .assistant:last-child .text').length;
      if (answer !== seen.answer.at(-1)) seen.answer.push(answer);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }));
}
/** Milliseconds that the longest task of the page took meanwhile. Time of its processor, not of the clock, as other
 * programs may keep it waiting. @param {() => Promise<unknown>} action */
async function longestTask(action) {
  await where.browser.startTracing(page, { categories: ['toplevel', '__metadata'] });
  await action();
  const { traceEvents } = JSON.parse(String(await where.browser.stopTracing()));
  const main = new Set(traceEvents.filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain')
    .map(({ pid, tid }) => `${pid} ${tid}`));
  const events = traceEvents.filter(({ ph, tdur, pid, tid }) => ph === 'X' && tdur && main.has(`${pid} ${tid}`));
  // What the test itself asks of the page.
  const asked = events.filter(({ args }) => JSON.stringify(args).includes('DevToolsSession'));
  const tasks = events.filter(({ pid, ts, dur }) =>
    !asked.some(it => it.pid === pid && ts <= it.ts && it.ts < ts + dur));
  return Math.max(0, ...tasks.map(({ tdur }) => tdur / 1000));
}
const state = (name, timeout) => stateOf(page, name, timeout);
const text = selector => page.textContent(selector);
const answers = () => answersOf(page);
const ask = question => askPage(page, question);

describe('a visit', () => {
  before(() => open());
  afterEach(() => assert.deepEqual(page.problems, []));
  after(() => page.close());

  test('the page is cross-origin isolated, and loading shows how far it is', async () => {
    await state('ready');
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    const { bar, loading } = await page.evaluate(() => ({ bar: seen.bar.map(Number), loading: [...seen.loading] }));
    assert.ok(bar.length >= 3 && bar[0] < 0.4 && bar.at(-1) > 0.5, `the bar showed ${bar}`);
    assert.ok(bar.every((value, i) => i === 0 || value > bar[i - 1]), `the bar showed ${bar}`);
    const figures = /^\d+(\.\d)? of 98\.4 MB {2}· {2}\d+(\.\d)? MB\/s {2}· {2}\d+ s left$/;
    assert.ok(loading.some(line => figures.test(line)), `shown: ${loading.join(' | ')}`);
    assert.equal(await text('#model-name'), 'smollm2 135M');
    assert.ok(await page.isVisible('#welcome'));
    assert.ok(await page.isDisabled('#send'), 'there is nothing to send yet');
  });

  test('Enter sends; the answer streams; tokens/s are shown', async () => {
    await ask('What is gravity? Answer in two sentences.');
    assert.ok(!await page.isVisible('#welcome'));
    assert.equal(await page.inputValue('#prompt'), '');
    await state('ready');
    const steps = await page.evaluate(() => seen.answer.filter(length => length > 0));
    assert.ok(steps.length > 1, `the answer grew in ${steps.length} steps`);
    assert.equal(await text('#log .user .text'), 'What is gravity? Answer in two sentences.');
    assert.equal(await text('#live'), 'The answer is complete');
    const [answer] = await answers();
    assert.match(answer, /gravity|force|mass|object/i);
    assert.match(await text('#log .assistant .figures'),
      /^\d+ tokens {2}· {2}\d+\.\d tokens\/s {2}· {2}\d+ read at \d+\/s$/);
  });

  test('a second turn follows the first, sent with the button', async () => {
    await page.fill('#prompt', 'Say that in five words.');
    await page.click('#send');
    await state('answering');
    await state('ready');
    assert.equal((await answers()).length, 2);
    assert.ok((await answers())[1].length > 0);
    assert.deepEqual(await page.locator('#log > li').evaluateAll(items => items.map(item => item.className)),
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
      assert.equal(await text('#live'), 'Stopped');
      const said = (await answers()).at(-1);
      assert.ok(said.length > 40 && said.length < 2000, `${said.length} characters`);
      assert.match(await text('#log > .assistant:last-child .figures'), / {2}· {2}stopped$/);
      await page.waitForTimeout(300);
      assert.equal((await answers()).at(-1), said);
    }
  });

  test('while it answers no task of the page takes 50 ms of a processor', async t => {
    await page.click('#fresh');
    const longest = await longestTask(async () => {
      await ask(`${LONG} Use headings, lists and tables.`);
      await page.waitForFunction(() => document.body.dataset.state === 'ready'
        || document.querySelector('#log > .assistant .text').textContent.length > 600, null, { timeout: 60000 });
      await page.keyboard.press('Escape');
      await state('ready');
    });
    assert.ok((await answers())[0].length > 50, 'there was an answer');
    const gap = await page.evaluate(() => longestGap);
    t.diagnostic(`longest task ${longest.toFixed(0)} ms, gap between frames ${gap.toFixed(0)} ms`);
    assert.ok(longest > 0 && longest < 50, `a task of ${longest} ms`);
  });

  test('New chat starts over, also in the middle of an answer', async () => {
    await ask(LONG);
    await page.click('#fresh');
    await state('ready');
    assert.equal(await page.locator('#log > li').count(), 0);
    assert.ok(await page.isVisible('#welcome'));
    await page.click('#ideas button');
    await state('answering');
    await state('ready');
    assert.equal((await answers()).length, 1);
    assert.equal(await page.locator('#log > li').count(), 2);
  });

  test('the settings of sampling reach the sampler', async () => {
    await page.click('#open-settings');
    await page.fill('#set-maxTokens', '12');
    const said = [];
    const usual = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 1, repeatPenalty: 1, presencePenalty: 0,
      frequencyPenalty: 0 };
    for (const changed of [{}, { temperature: 5, topK: 1 }, { temperature: 5, topP: 0 }, { temperature: 5, minP: 1 },
      { temperature: 5 }, { temperature: 5, seed: 2 }, { repeatPenalty: 10 }, { presencePenalty: 10 },
      { frequencyPenalty: 10 }]) {
      if (!await page.isVisible('#settings')) await page.click('#open-settings');
      for (const [name, value] of Object.entries({ ...usual, ...changed })) {
        await page.fill(`#set-${name}`, String(value));
      }
      await page.getByRole('button', { name: 'Done' }).click();
      await page.click('#fresh');
      await ask('Say “ha” twelve times: ha ha ha');
      await state('ready');
      said.push((await answers())[0]);
    }
    const [greedy, topK, topP, minP, hot, other, ...penalized] = said;
    assert.deepEqual([topK, topP, minP], [greedy, greedy, greedy]);
    assert.equal(new Set([greedy, hot, other]).size, 3, said.join(' | '));
    for (const one of penalized) assert.notEqual(one, greedy);
    await page.click('#open-settings');
    await page.click('#defaults');
    await page.getByRole('button', { name: 'Done' }).click();
  });

  test('what the reader writes is text, not markup', async () => {
    const markup = '<b>bold</b><img src=x onerror=alert(1)>';
    await page.fill('#prompt', markup);
    await page.keyboard.press('Enter');
    await state('answering');
    await page.click('#stop');
    await state('ready');
    assert.equal(await page.locator('#log .user .text *').count(), 0);
    assert.equal(await page.locator('#log .user .text').last().textContent(), markup);
  });

  test('Shift+Enter makes a new line; an empty message is not sent', async () => {
    const turns = await page.locator('#log > li').count();
    await page.fill('#prompt', '   ');
    await page.keyboard.press('Enter');
    await page.fill('#prompt', 'one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('two');
    assert.equal(await page.inputValue('#prompt'), 'one\ntwo');
    assert.equal(await page.locator('#log > li').count(), turns);
    await page.fill('#prompt', '');
  });

  test('another model is opened from a file; one without a chat template says so', async () => {
    await page.setInputFiles('#file', tinyPath);
    await page.waitForFunction(() => document.querySelector('#model-name').textContent.startsWith('synthetic'));
    await state('ready');
    await page.fill('#prompt', 'Hello');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#log .problem');
    assert.match(await text('#log .problem'), /^This model cannot chat\. Open an instruction-tuned model/);
    assert.match(await text('#log .problem'), /no tokenizer\.chat_template/);
  });
});

test('while the page loads no task of it takes 50 ms of a processor', async t => {
  // A processor that others share is slower at times.
  const longest = [];
  for (let i = 0; i < 3 && !(longest.at(-1) < 50); i++) {
    page = await where.browser.newPage();
    longest.push(await longestTask(async () => {
      await page.goto(`${where.url}web/chat/`);
      await state('ready');
    }));
    await page.close();
  }
  t.diagnostic(`longest task ${longest.at(-1).toFixed(0)} ms`);
  assert.ok(longest.at(-1) > 0 && longest.at(-1) < 50, `tasks of ${longest} ms`);
});

const MARKDOWN = `## Tides

The **moon** pulls at the sea, and so does the *sun*; see [tides](https://example.org/).

- high water
- low water, \`twice\` a day

| Day | Height |
| --- | ---: |
| 1 | 3.2 m |

\`\`\`js
const high = moon + sun;
\`\`\`
`;

describe('a long conversation', () => {
  const messages = Array.from({ length: 200 }, (_, i) => i % 2 === 0 ? { role: 'user', content: `Question ${i}?` }
    : { role: 'assistant', content: `${MARKDOWN}\nAnswer ${i}.` });
  const items = () => page.locator('#log > li').evaluateAll(items => items.map(item =>
    [item.classList[0], Number(/(?:Question|Answer) (\d+)/.exec(item.querySelector('.text').textContent)?.[1])]));
  const all = messages.map(({ role }, i) => [role, i]);
  const allThere = () => page.waitForFunction(() => document.querySelectorAll('#log > li').length === 200);
  /** Pixels from the end of what is seen to the end of all. */
  const below = () => page.evaluate(() => {
    const { scrollHeight, scrollTop, clientHeight } = document.querySelector('#scroll');
    return scrollHeight - scrollTop - clientHeight;
  });
  before(async () => {
    await open(`?model=${TINY}`);
    await state('ready');
    await put(page, [{ title: 'Tides', messages }]);
  });
  afterEach(() => assert.deepEqual(page.problems, []));
  after(() => page.close());

  test('while 200 messages of Markdown come back no task takes 50 ms of a processor; the last is in view', async t => {
    const longest = [];
    for (let i = 0; i < 3 && !(longest.at(-1) < 50); i++) {
      longest.push(await longestTask(async () => {
        await page.reload();
        await page.waitForSelector('#log > li');
        await allThere();
        await state('ready');
      }));
    }
    t.diagnostic(`longest task ${longest.at(-1).toFixed(0)} ms`);
    assert.ok(longest.at(-1) > 0 && longest.at(-1) < 50, `tasks of ${longest} ms`);
    assert.deepEqual(await items(), all);
    assert.equal(await page.locator('#log table').count(), 100);
    assert.ok(await below() < 2, `${await below()} px below`);
  });

  test('scrolling up to messages that were not laid out moves what is read by as much as was scrolled', async () => {
    const moves = await page.evaluate(async () => {
      const scroll = document.querySelector('#scroll'), moves = [];
      const frames = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
      for (let i = 0; i < 30; i++) {
        const marks = [...document.querySelectorAll('#log > li')].map(item => [item, item.getBoundingClientRect().top]);
        const [mark, top] = marks.find(([, top]) => top > 200);
        scroll.scrollTop -= 300;
        await frames();
        moves.push(mark.getBoundingClientRect().top - top);
      }
      return moves;
    });
    assert.ok(await page.locator('#log > .far').count() > 100);
    for (const by of moves) assert.ok(Math.abs(by - 300) < 2, `${by} of 300 px: ${moves}`);
  });

  test('the end is there first; a reader in the middle of it stays there; another conversation is not mixed in',
    async () => {
      await put(page, [{ title: 'Other', messages: [{ role: 'assistant', content: 'Hm' }] }]);
      const choose = name => page.getByRole('button', { name, exact: true }).click();
      const seen = await page.evaluate(() => new Promise(resolve => {
        const list = document.querySelector('#log'), scroll = document.querySelector('#scroll');
        [...document.querySelectorAll('#chats .title')].find(one => one.textContent === 'Tides').click();
        const first = [list.children.length, list.lastElementChild.textContent.includes('Answer 199.')];
        let before;
        const look = () => {
          const mark = list.children[list.children.length - 5];
          if (!before && list.children.length > 15) {
            scroll.scrollTop -= 1000;
            before = { mark, top: mark.getBoundingClientRect().top, count: list.children.length };
          }
          if (list.children.length < 200) setTimeout(look);
          else resolve({ first, moved: before.mark.getBoundingClientRect().top - before.top, count: before.count });
        };
        look();
      }));
      assert.ok(seen.first[0] > 0 && seen.first[0] < 100 && seen.first[1], JSON.stringify(seen));
      assert.ok(seen.count < 200 && Math.abs(seen.moved) < 2, JSON.stringify(seen));
      await choose('Other');
      await choose('Tides');
      await choose('Other');
      await page.waitForTimeout(300);
      assert.equal((await page.locator('#log .text').allTextContents()).map(text => text.trim()).join(), 'Hm');
    });

  test('what is edited while the earlier messages come is the one that was meant', async () => {
    const left = await page.evaluate(async () => {
      const list = document.querySelector('#log');
      [...document.querySelectorAll('#chats .title')].find(one => one.textContent === 'Tides').click();
      while (list.children.length < 7) await new Promise(resolve => setTimeout(resolve));
      const count = list.children.length;
      [...list.querySelectorAll('.user')].find(one => one.textContent.includes('Question 194?'))
        .querySelector('[aria-label=Edit]').click();
      list.querySelector('.editor textarea').value = 'Question 1940?';
      list.querySelector('.editor').requestSubmit();
      return count;
    });
    assert.ok(left < 150, `${left} were there already`);
    await page.waitForFunction(() => document.querySelectorAll('#log > li').length === 196);
    await state('ready');
    assert.deepEqual(await items(), [...all.slice(0, 194), ['user', 1940], ['assistant', NaN]]);
  });
});

test('a question that is asked while the model loads is answered once it is there', async () => {
  await open();
  assert.equal(await page.getAttribute('body', 'data-state'), 'loading');
  await page.fill('#prompt', 'What is gravity? Answer in two sentences.');
  await page.keyboard.press('Enter');
  assert.equal(await text('#status'), 'Waiting for the model');
  await state('answering');
  await state('ready');
  assert.match((await answers())[0], /gravity|force|mass|object/i);
  await page.close();
});

describe('loads that fail', () => {
  afterEach(() => page.close());
  const failure = async () => {
    await state('failed');
    assert.ok(await page.isVisible('#failure'));
    assert.deepEqual(page.problems, []);
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
