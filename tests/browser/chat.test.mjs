/** The chat page, clicked through in headless Chromium as a visitor would. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { tinyPath } from '../node/helpers.mjs';
import {
  LONG, TINY, answer, answers as answersOf, ask as askPage, holdModel, open as openPage, put, reload, setUp,
  stallingServer, state as stateOf, stored, whole,
} from './chat-page.mjs';

const where = await setUp([], { tree: true });
let page;

/** Opens the page and records every change that the reader sees. */
async function open(query = '', options = {}) {
  page = await openPage(where, query, options, page => page.addInitScript(() => {
    globalThis.seen = { bar: [], loading: new Set(), answer: [], status: new Set() };
    const frame = () => {
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
/** Counts the work of the page's thread from now on, by the operations that make up long tasks.  `make bench-visit`
 * measures their duration.
 * @returns {Promise<() => Promise<{layouts: number, styles: number, parsed: number[], log: number[], other: number,
 *   status: number, loading: number, ms: number}>>}  what has been done since: how often the page was laid out and
 *   styles were computed; the characters of each text that the Markdown library was given; the items that were added
 *   to the log at a time; changes of the log outside of its last item, of the status and of what is said of the
 *   loading; and the time */
async function countWork() {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  const metrics = async () => Object.fromEntries((await devtools.send('Performance.getMetrics')).metrics
    .map(({ name, value }) => [name, value]));
  const before = await metrics();
  const start = await page.evaluate(() => {
    for (const list of Object.values(globalThis.work)) list.length = 0;
    return performance.now();
  });
  return async () => {
    const { LayoutCount, RecalcStyleCount } = await metrics();
    return page.evaluate(([layouts, styles, start]) => {
      const { work } = globalThis, sum = list => list.reduce((a, b) => a + b, 0);
      return { layouts, styles, parsed: work.parsed, log: work.log, other: sum(work.other), status: sum(work.status),
        loading: sum(work.loading), ms: performance.now() - start };
    }, [LayoutCount - before.LayoutCount, RecalcStyleCount - before.RecalcStyleCount, start]);
  };
}
/** Has a page note its work; before it is there. */
const noteWork = page => page.addInitScript(() => {
  globalThis.work = { parsed: [], log: [], other: [], status: [], loading: [], intl: [] };
  // Its first use takes 40 ms.
  for (const name of ['NumberFormat', 'DateTimeFormat', 'RelativeTimeFormat', 'Collator', 'PluralRules', 'Segmenter']) {
    Intl[name] = new Proxy(Intl[name], { construct(...args) {
      globalThis.work.intl.push(name);
      return Reflect.construct(...args);
    } });
  }
  document.addEventListener('readystatechange', async () => {
    if (document.readyState !== 'interactive') return;   // all elements exist, and no module has run
    const log = document.querySelector('#log'), all = { subtree: true, childList: true, characterData: true,
      attributes: true };
    new MutationObserver(records => {
      const { work } = globalThis;
      work.log.push(records.flatMap(({ target, addedNodes }) => target === log ? [...addedNodes] : []).length);
      work.other.push(records.filter(({ target }) => target !== log && target.isConnected
        && !log.lastElementChild?.contains(target)).length);
    }).observe(log, all);
    for (const id of ['status', 'loading']) {
      new MutationObserver(records => globalThis.work[id].push(records.length))
        .observe(document.getElementById(id), all);
    }
    const { default: { prototype } } = await import('/web/dist/vendor/markdown-it/markdown-it.esm.min.mjs');
    const { parse } = prototype;
    prototype.parse = function (text, env) {
      globalThis.work.parsed.push(text.length);
      return parse.call(this, text, env);
    };
  });
});
const state = (name, timeout) => stateOf(page, name, timeout);
const text = selector => page.textContent(selector);
const answers = () => answersOf(page);
const ask = question => askPage(page, question);

describe('a visit', () => {
  before(() => open());
  afterEach(() => assert.deepEqual(page.problems, []));
  after(() => page.close());

  test('the page is cross-origin isolated, and loading shows its progress', async () => {
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
    await whole(page, 4);
    assert.equal((await answers()).length, 2);
    assert.ok((await answers())[1].length > 0);
    assert.deepEqual(await page.locator('#log > li').evaluateAll(items => items.map(item => item.className)),
      ['user', 'assistant', 'user', 'assistant']);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'prompt');
  });

  test('Stop and Escape end an answer and keep its text', async () => {
    for (const stop of [() => page.click('#stop'), () => page.keyboard.press('Escape')]) {
      await page.click('#new-chat');
      await ask(LONG);
      await page.waitForFunction(() => document.querySelector('#log .assistant .text').textContent.length > 40);
      const question = page.locator('#log > .user');
      await question.hover();
      await question.getByRole('button', { name: 'Edit' }).click();
      assert.equal(await page.locator('#log .editor').count(), 0, 'no question can be edited during an answer');
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

  test('New chat starts over, also during an answer', async () => {
    await ask(LONG);
    await page.click('#new-chat');
    await state('ready');
    assert.equal(await page.locator('#log > li').count(), 0);
    assert.ok(await page.isVisible('#welcome'));
    await page.click('#ideas button');
    await whole(page, 2);
    assert.equal((await answers()).length, 1);
    assert.equal(await page.locator('#log > li').count(), 2);
  });

  test('the sampling settings reach the sampler', async () => {
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
      await page.click('#new-chat');
      await answer(page, 'Say “ha” twelve times: ha ha ha');
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
    const turns = await page.locator('#log > li').count();
    await page.fill('#prompt', markup);
    await page.keyboard.press('Enter');
    await page.locator('#log > li').nth(turns + 1).waitFor();
    await page.keyboard.press('Escape');
    await whole(page, turns + 2);
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

  test('another model is opened from a file; one without a chat template continues the text', async () => {
    await page.setInputFiles('#file', tinyPath);
    await page.waitForFunction(() => document.querySelector('#model-name').textContent.startsWith('synthetic'));
    await state('ready');
    await page.click('#new-chat');
    assert.match(await page.innerText('#welcome'),
      /This model has no chat template\. It does not answer messages but continues your text\./);
    assert.equal(await page.getAttribute('#prompt', 'placeholder'), 'Write the beginning of a text');
    await answer(page, 'Hello');
    assert.equal(await page.locator('#log .problem').count(), 0);
  });
});

/** Layouts that a test causes itself, by looking at the page and by its clicks. */
const OWN = 20;

test('a load does one layout per progress step, uses no Intl, and does no work for hidden parts', async t => {
  const asked = [];
  let release;
  page = await openPage(where, '', { reducedMotion: 'reduce' }, async page => {
    page.on('request', request => asked.push(new URL(request.url()).pathname.split('/').at(-1)));
    release = await holdModel(page);
    await noteWork(page);
  });
  const work = await countWork();   // the parser did the work before this point
  release();
  await state('ready');
  const { layouts, styles, parsed, loading } = await work();
  t.diagnostic(`${layouts} layouts, ${styles} times styles, ${loading} changes of the progress`);
  assert.ok(loading >= 6, `${loading} changes of the progress: it moves`);
  for (const n of [layouts, styles]) assert.ok(n <= loading + OWN, `${n} for ${loading} changes`);
  assert.ok(parsed.length <= 1 && parsed.every(n => n < 50), `parsed: ${parsed}`);
  assert.deepEqual(await page.evaluate(() => globalThis.work.intl), []);
  assert.ok(asked.includes('page.js') && !asked.includes('inspect.js'), asked.join(' '));
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a growing answer does one layout per rendering, every 80 ms, and parses only what may still change',
  async t => {
    page = await openPage(where, '', { reducedMotion: 'reduce' }, noteWork);
    await state('ready');
    await put(page, [{ messages: Array.from({ length: 20 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user',
      content: `Text ${i}` })) }]);
    const work = await countWork();
    await ask('Write a letter to a friend.');   // of many short paragraphs
    await page.waitForFunction(() => document.body.dataset.state === 'ready'
      || document.querySelector('#log > .assistant:last-child .text').textContent.length > 800);
    const { layouts, styles, parsed, other, status, ms } = await work();
    await page.keyboard.press('Escape');
    await state('ready');
    t.diagnostic(`${layouts} layouts, ${styles} times styles, ${parsed.length} renderings, ${status} of the status`);
    assert.ok(parsed.length > 5, `${parsed.length} renderings`);
    assert.ok(parsed.length <= ms / 80 + 2, `${parsed.length} renderings in ${ms} ms`);
    assert.ok(status <= ms / 500 + 6, `${status} changes of the status in ${ms} ms`);
    for (const n of [layouts, styles]) assert.ok(n <= parsed.length + status + OWN, `${n} for ${parsed.length}`);
    assert.equal(other, 0, 'nothing changes in the messages before it');
    const [{ messages }] = (await stored(page)).filter(({ messages }) => messages.length === 22);
    const { content } = messages.at(-1);
    const most = await page.evaluate(async text => {
      const { blocksOf } = await import('/web/chat/conversation/markdown-blocks.js');
      const sizes = blocksOf(text).map(({ start, end }) => end - start);
      // The last two blocks, and the text since the last rendering.
      return Math.max(...sizes.map((_, i) => sizes.slice(i, i + 3).reduce((a, b) => a + b)));
    }, content);
    assert.ok(most < content.length, `the answer has no more blocks than these: ${content}`);
    assert.ok(Math.max(...parsed) <= most, `${Math.max(...parsed)} characters at once, of blocks of ${most}`);
    assert.deepEqual(page.problems, []);
    await page.close();
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
  /** Pixels from the end of the visible part to the end of the log. */
  const below = () => page.evaluate(() => {
    const { scrollHeight, scrollTop, clientHeight } = document.querySelector('#scroll');
    return scrollHeight - scrollTop - clientHeight;
  });
  before(async () => {
    page = await openPage(where, `?model=${TINY}`, { reducedMotion: 'reduce' }, noteWork);
    await state('ready');
    await put(page, [{ title: 'Tides', messages }]);
  });
  afterEach(() => assert.deepEqual(page.problems, []));
  after(() => page.close());

  test('200 messages are restored: each is parsed once, the page yields every 8 ms, and the last is in view',
    async t => {
      // A clock that advances 3 ms with every reading: after the third message 9 ms have passed.
      await page.evaluate(() => { sessionStorage.slow = 'yes'; });
      await page.addInitScript(() => {
        if (!sessionStorage.slow) return;
        let now = 0;
        performance.now = () => now += 3;
      });
      const work = await countWork();
      await reload(page);
      await page.waitForSelector('#log > li');
      await allThere();
      await state('ready');
      await page.evaluate(() => { delete sessionStorage.slow; });
      const { layouts, styles, parsed, log, other } = await work();
      t.diagnostic(`${layouts} layouts, ${styles} times styles, ${log.length} turns`);
      const added = log.filter(n => n > 0);
      assert.equal(added.reduce((a, b) => a + b), 200, 'each is added once');
      assert.ok(Math.max(...added) <= 3, `added at a time: ${added}`);
      for (const n of [layouts, styles]) assert.ok(n <= 2 * added.length + OWN, `${n} for ${added.length} turns`);
      assert.ok(other <= 100, `${other} changes: each is changed at most once again, when its code is highlighted`);
      const answers = messages.filter(({ role }) => role === 'assistant').map(({ content }) => content.length);
      assert.deepEqual(parsed.filter(n => n > 50).sort(), answers.sort(), 'each answer is parsed once');
      assert.deepEqual(await items(), all);
      assert.equal(await page.locator('#log table').count(), 100);
      assert.ok(await below() < 2, `${await below()} px below`);
      await page.reload();
      await allThere();
    });

  test('scrolling up to messages without a layout moves the text by exactly the scrolled distance', async () => {
    const moves = await page.evaluate(async () => {
      const scroll = document.querySelector('#scroll'), moves = [];
      const frames = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
      for (let i = 0; i < 30; i++) {
        const marks = [...document.querySelectorAll('#log > li')].map(item => [item, item.getBoundingClientRect().top]);
        const [mark, top] = marks.find(([item, top]) => top + item.offsetHeight > 200);
        scroll.scrollTop -= 300;
        await frames();
        moves.push(mark.getBoundingClientRect().top - top);
      }
      return moves;
    });
    assert.ok(await page.locator('#log > .far').count() > 100);
    for (const by of moves) assert.ok(Math.abs(by - 300) < 2, `${by} of 300 px: ${moves}`);
  });

  test('the end is restored first; the scroll position is kept; another conversation is not mixed in',
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

  test('an edit while earlier messages are still being restored changes the right message', async () => {
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

test('a question that is asked while the model loads is answered once it has loaded', async () => {
  let release;
  page = await openPage(where, '', {}, async page => { release = await holdModel(page); });
  await state('loading');
  await page.fill('#prompt', 'What is gravity? Answer in two sentences.');
  await page.keyboard.press('Enter');
  assert.equal(await text('#status'), 'Waiting for the model');
  release();
  await whole(page, 2);
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

  test('a missing model: the error says what happened, what to do and where; Try again loads again', async () => {
    await open('?model=/models/none.gguf');
    const [title, advice, detail] = await failure();
    assert.equal(title, 'The model was not found');
    assert.equal(advice, 'Check its address, or open a GGUF file from your computer.');
    assert.match(detail, /\/models\/none\.gguf: the server answered 404 Not Found \(PLUMB_ERROR_IO\)$/);
    await page.route('**/none.gguf', route => route.fulfill({ path: tinyPath }));
    await page.click('#retry');
    await state('ready');
  });

  test('a web page instead of a model is an error', async () => {
    await open('?model=/web/chat/');
    const [title, , detail] = await failure();
    assert.equal(title, 'This is not a valid model file');
    assert.match(detail, /the server sent a web page \(text\/html/);
  });

  test('a load can be cancelled', async t => {
    const { url, stall } = await stallingServer(t);
    page = await openPage({ ...where, also: url }, `?model=${encodeURIComponent(`${url}m.gguf`)}`);
    await page.locator('.plan').waitFor();
    stall();
    await page.locator('.plan').getByRole('button').click();
    await page.waitForFunction(() => Number(document.querySelector('#bar').getAttribute('value')) > 0);
    await page.click('#cancel');
    assert.equal((await failure())[0], 'Loading was cancelled');
    for (let i = 0; i < 100 && page.workers().length > 0; i++) await page.waitForTimeout(50);
    assert.equal(page.workers().length, 0, 'the worker is gone');
  });
});
