/** Conversations of the chat page: changed, kept, found again, taken away and given back. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import { fileName } from '../../web/chat/dom.js';
import { LONG, TINY, answer, answers, ask, open, put, setUp, state, stored as storedOf } from './chat-page.mjs';

test('the name of a file is that of its address, also where a % begins no byte', () => {
  for (const [url, name] of [['https://h/a/My%20model.gguf?x=1#y', 'My model.gguf'],
    ['https://h/100%.gguf', '100%.gguf'], ['https://h/', 'https://h/']]) assert.equal(fileName(url), name);
});

const where = await setUp();
let page;
const titles = () => page.locator('#chats .title').allTextContents();
const messages = () => page.locator('#log > li').evaluateAll(items => items.map(item =>
  [item.className, item.querySelector('.text').textContent]));
const stored = () => storedOf(page);
before(async () => {
  page = await open(where);
  await state(page, 'ready');
  // Short answers, the same each time.
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', '12');
  await page.fill('#set-seed', '1');
  await page.getByRole('button', { name: 'Done' }).click();
});
after(() => page.close());
afterEach(() => assert.deepEqual(page.problems, []));

test('Regenerate answers the same question anew', async () => {
  const first = await answer(page, 'Name a colour.');
  const old = await page.locator('#log > .assistant').elementHandle();
  await page.locator('#log > .assistant').getByRole('button', { name: 'Regenerate' }).click();
  await page.waitForFunction(old => !old.isConnected && document.body.dataset.state === 'ready', old);
  assert.deepEqual(await messages(), [['user', 'Name a colour.'], ['assistant', first]]);   // the seed is the same
});

test('a message is edited in its place, and the conversation goes on from there', async () => {
  await answer(page, 'And an animal.');
  const tools = page.locator('#log > .user').first();
  await tools.hover();
  await tools.getByRole('button', { name: 'Edit' }).click();
  const field = page.getByRole('textbox', { name: 'Edit your message' });
  assert.equal(await field.inputValue(), 'Name a colour.');
  await field.press('Escape');
  const before = await messages();
  assert.equal(before.length, 4);
  const change = async () => {
    await tools.getByRole('button', { name: 'Edit' }).click();
    await field.fill('Name a river.');
    await field.press('Enter');
    await page.waitForFunction(() => document.querySelectorAll('#log > li').length === 2);
  };
  await change();
  await page.locator('#toast').getByRole('button', { name: 'Undo' }).last().click();
  await state(page, 'ready');
  assert.deepEqual(await messages(), before, 'what was replaced is back');
  await change();
  await state(page, 'ready');
  const [[, question], [who, text]] = await messages();
  assert.deepEqual([question, who], ['Name a river.', 'assistant']);
  assert.ok(text.length > 0);
});

test('a reload finds the conversation and the settings again, and its model goes on with it', async () => {
  const before = await messages();
  await page.reload();
  await state(page, 'ready');
  assert.deepEqual(await messages(), before);
  assert.equal((await titles())[0], 'Name a river.');
  await answer(page, 'And another.');
  assert.equal((await messages()).length, 4);
  const [, tokens] = /^(\d+) tokens? /.exec(await page.textContent('#log > li:last-child .figures'));
  assert.ok(Number(tokens) <= 12, tokens);
});

test('a reload in the middle of an answer loses none of what was said', async () => {
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', '1000');
  await page.keyboard.press('Escape');
  await page.click('#fresh');
  await ask(page, LONG);
  await page.waitForFunction(() => document.querySelector('#log > .assistant .text').textContent.length > 150);
  const said = (await answers(page))[0].trim();
  await page.reload();
  await page.waitForSelector('#log > li');
  const [question, [, text]] = await messages();
  assert.deepEqual(question, ['user', LONG]);
  assert.ok(text.startsWith(said), `${text}, before the reload ${said}`);
  await state(page, 'ready');
});

test('a question that was asked before there was a model is answered at the next visit', async () => {
  await page.click('#fresh');
  await page.reload();
  await state(page, 'loading');
  await page.fill('#prompt', 'Name a bird.');
  await page.keyboard.press('Enter');
  await page.getByText('Waiting for the model').waitFor();
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#log > .assistant .text')?.textContent.length > 0);
  await page.keyboard.press('Escape');
  await state(page, 'ready');
  assert.deepEqual((await messages())[0], ['user', 'Name a bird.']);
});

test('a conversation is renamed, deleted, and brought back', async () => {
  const item = () => page.locator('#chats li').first();
  await item().hover();
  await item().getByRole('button', { name: /^Rename/ }).click();
  await page.keyboard.type('Lighthouse');
  await page.keyboard.press('Enter');
  assert.equal((await titles())[0], 'Lighthouse');
  const before = await messages();
  await item().hover();
  await item().getByRole('button', { name: 'Delete Lighthouse' }).click();
  assert.ok(!(await titles()).includes('Lighthouse'));
  assert.equal(await page.locator('#log > li').count(), 0);
  await page.getByRole('button', { name: 'Undo' }).click();
  assert.deepEqual(await messages(), before);
  await page.reload();
  await page.waitForSelector('#log > li');
  assert.ok((await titles()).includes('Lighthouse'));
});

test('a conversation that is deleted in the middle of its answer does not come back', async () => {
  await page.click('#fresh');
  await ask(page, `${LONG} To be deleted.`);
  const item = page.locator('#chats li').first();
  await item.hover();
  await item.getByRole('button', { name: /^Delete/ }).click();
  await state(page, 'ready');
  await page.reload();
  await state(page, 'ready');
  assert.ok(!(await stored()).some(({ messages }) => /To be deleted/.test(messages[0]?.content)));
});

test('a model that goes in the middle of an answer: stopped if the reader did it, else a failure and loaded again',
  async () => {
    const own = await open(where);
    const wait = () => own.waitForFunction(() =>
      /\w/.test(document.querySelector('#log > .assistant:last-child .text')?.textContent ?? ''));
    await state(own, 'ready');
    await ask(own, LONG);
    await wait();
    await own.click('#open-settings');
    await own.fill('#set-contextLength', '1024');
    await own.getByRole('button', { name: 'Done' }).click();
    await state(own, 'ready');
    assert.match(await own.textContent('#log > li:last-child .figures'), /stopped$/);
    assert.equal(await own.locator('#log .problem').count(), 0);
    await ask(own, LONG);
    await wait();
    for (const worker of own.workers()) {
      await worker.evaluate(() => void setTimeout(() => { throw new Error('the engine broke'); }))
        .catch(() => {});   // it went with the first one
    }
    await own.locator('#log .problem').waitFor();
    await state(own, 'ready');
    await own.getByRole('button', { name: 'Try again' }).click();
    await wait();
    assert.equal(await own.locator('#log .problem').count(), 0);
    await own.close();
  });

test('conversations are chosen from the list', async () => {
  await page.getByRole('button', { name: 'Name a river.', exact: true }).click();
  assert.equal((await messages())[0][1], 'Name a river.');
  assert.equal(await page.locator('#chats [aria-current]').textContent(), 'Name a river.');
});

test('what another tab has changed, and did not tell, is not overwritten: both are kept', async () => {
  const texts = async () => (await stored()).map(({ messages }) => messages?.at(0)?.content);
  const n = (await texts()).length;
  const theirs = await page.evaluate(() => new Promise(resolve => {
    const opening = indexedDB.open('plumb-chat', 1);
    opening.onsuccess = () => {
      const change = opening.result.transaction('conversations', 'readwrite');
      const store = change.objectStore('conversations');
      const asking = store.get(JSON.parse(localStorage.getItem('plumb.chat')));
      asking.onsuccess = () => store.put({ ...asking.result, revision: 'theirs', title: 'Theirs',
        messages: [{ role: 'user', content: 'What they said.' }] });
      change.oncomplete = () => resolve(asking.result.messages[0].content);
    };
  }));
  await answer(page, 'And then?');
  await page.getByText('This tab goes on in a copy: “Name a river. (copy)”').waitFor();
  const now = await texts();
  assert.equal(now.length, n + 1);
  assert.ok(now.includes('What they said.') && now.includes(theirs));
  assert.deepEqual((await titles()).filter(title => /Theirs|Name a river/.test(title)).sort(),
    ['Name a river. (copy)', 'Theirs']);
  const before = await messages();
  await page.reload();
  await page.waitForSelector('#log > li');
  assert.deepEqual(await messages(), before);   // its own is still the one that is shown
});

test('a conversation that the browser refuses to keep says so, until it is kept again', async () => {
  await state(page, 'ready');
  await page.evaluate(() => {
    const { put } = IDBObjectStore.prototype;
    IDBObjectStore.prototype.put = function (...args) {
      put.apply(this, args);
      this.transaction.abort();   // as a full disk does, at the end
    };
    globalThis.giveBack = () => (IDBObjectStore.prototype.put = put);
  });
  await answer(page, 'Once more.');
  assert.match(await page.textContent('#chats-note'), /^Not saved/);
  await page.evaluate(() => globalThis.giveBack());
  await answer(page, 'And once more.');
  await page.waitForFunction(() => document.querySelector('#chats-note').textContent === '');
});

test('what is exported as JSON comes back by an import; Markdown is for people', async () => {
  const [all] = await Promise.all([page.waitForEvent('download'), page.click('#export-json')]);
  const json = readFileSync(await all.path(), 'utf8');
  const [one] = await Promise.all([page.waitForEvent('download'), page.click('#export-markdown')]);
  assert.equal(one.suggestedFilename(), 'Name a river copy.md');
  const markdown = readFileSync(await one.path(), 'utf8');
  assert.match(markdown, /^# Name a river\. \(copy\)\n\n## You\n\nName a river\.\n\n## Model\n\n/);
  const before = await messages(), { conversations } = JSON.parse(json);
  assert.ok(conversations.length >= 2);
  const other = await open(where, `?model=${TINY}`);
  await other.setInputFiles('#import-file', await all.path());
  await other.getByRole('button', { name: 'Name a river. (copy)', exact: true }).click();
  const texts = await other.locator('#log > li .text').allTextContents();
  assert.deepEqual(texts, before.map(([, text]) => text));
  await other.close();
});

test('an imported conversation that ends in a question is not answered before the reader asks for it', async () => {
  await put(page, [{ messages: [{ role: 'user', content: 'Name a mountain.' }] }]);
  assert.deepEqual(await messages(), [['user', 'Name a mountain.'], ['assistant', '']]);
  assert.equal(await page.textContent('#log .figures'), 'not answered');
  await page.locator('#log > .assistant').getByRole('button', { name: 'Regenerate' }).click();
  await page.waitForFunction(() => document.querySelector('#log > .assistant .text').textContent.length > 0);
  await state(page, 'ready');
});

test('files and records that are no conversations are passed over', async () => {
  const n = (await titles()).length;
  for (const text of ['', '{', '[]', '{"conversations": 7}', 'null', '{"conversations": [1, null, {"messages": "x"}]}',
    '{"conversations": [{"messages": [{"role": "root", "content": "x"}]}, {"messages": [{"role": "user"}]}]}']) {
    const buffer = Buffer.from(text);
    await page.setInputFiles('#import-file', { name: 'x.json', mimeType: 'application/json', buffer });
    await page.getByText('There is no conversation in that file').waitFor();
    await page.evaluate(() => document.querySelector('#toast').replaceChildren());
  }
  assert.equal((await titles()).length, n);
  await page.evaluate(() => new Promise(resolve => {
    const opening = indexedDB.open('plumb-chat', 1);
    opening.onsuccess = () => {
      const change = opening.result.transaction('conversations', 'readwrite');
      const store = change.objectStore('conversations');
      const bad = [{}, { messages: null }, { messages: [null] }, { messages: [{ role: 'user', content: {} }] },
        { title: {}, updated: 'x', messages: [] }, { messages: 'x'.repeat(10) },
        { messages: [{ role: 'assistant', content: 'x', problem: 5, figures: {} }] },
        { updated: 1e300, messages: [] }, { updated: -1e300, messages: [] },
        { messages: [{ role: 'user', content: 'x'.repeat(1.1e7) }] }];
      bad.forEach((record, i) => store.put({ id: `bad${i}`, ...record }));
      change.oncomplete = resolve;
    };
  }));
  await page.evaluate(() => localStorage.setItem('plumb.settings',
    '{"temperature":"hot","topK":-5,"threads":1e9,"system":7}'));
  await page.evaluate(() => localStorage.setItem('plumb.chat', '{{'));
  await page.reload();
  await state(page, 'ready');
  assert.equal((await titles()).length, n + 5);   // a title, time or problem that is none is left out
  await page.click('#open-settings');
  assert.deepEqual(await page.locator('#set-temperature, #set-topK, #set-threads, #set-system')
    .evaluateAll(fields => fields.map(({ id, value }) => [id, value])),
  [['set-system', ''], ['set-temperature', '0.8'], ['set-topK', '40'], ['set-threads', '']]);
  await page.keyboard.press('Escape');
});

test('a system prompt is told to the model, but is no message', async () => {
  const before = await messages();
  await page.click('#open-settings');
  await page.fill('#set-system', 'You are a pirate. Always say arr.');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.waitForFunction(() => /^[1-9]\d* of 2,048 tokens$/.test(document.querySelector('#room').textContent));
  assert.deepEqual(await messages(), before);
  await page.click('#open-settings');
  await page.getByRole('button', { name: 'Reset to defaults' }).click();
  assert.equal(await page.inputValue('#set-system'), '');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => /^0 of 2,048 tokens$/.test(document.querySelector('#room').textContent));
});

test('a setting of the model loads it again', async () => {
  await page.click('#open-settings');
  await page.locator('#set-contextLength').pressSequentially('5e');   // as yet no number, and not an empty field
  assert.equal(await page.getAttribute('#set-contextLength', 'aria-invalid'), 'true');
  await page.fill('#set-contextLength', '512');
  await page.fill('#set-threads', '1');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.waitForFunction(() => /of 512 tokens$/.test(document.querySelector('#room').textContent));
  await page.click('#model');
  await page.getByText('512 tokens; trained for 8,192').waitFor();
  await page.keyboard.press('Escape');
});

test('a conversation that has outgrown the context goes on without its first messages', async () => {
  const words = 'The keeper lit the lamp and looked at the sea. '.repeat(20);
  await put(page, [{ messages: [{ role: 'user', content: words }, { role: 'assistant', content: words },
    { role: 'user', content: words }, { role: 'assistant', content: 'Well.' }] }]);
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', '8');
  await page.getByRole('button', { name: 'Done' }).click();
  await answer(page, 'What now?');
  assert.match(await page.textContent('#log > li:last-child .figures'), /without the first 2 messages/);
  assert.equal((await stored()).some(({ messages }) => messages?.length === 6), true);
});

test('on a narrow screen a choice and a click beside it put the list away; an answer to nothing is not answered anew',
  async () => {
    const page = await open(where, `?model=${TINY}`, { viewport: { width: 400, height: 800 } });
    await state(page, 'ready');   // before its modules are there the page hears of no file
    await put(page, [{ title: 'One', messages: [{ role: 'assistant', content: 'First words.' },
      { role: 'user', content: 'q' }, { role: 'assistant', content: 'a' }] },
      { title: 'Two', messages: [{ role: 'user', content: 'x' }, { role: 'assistant', content: 'y' }] }]);
    await page.setInputFiles('#import-file', { name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(
      '{"conversations":[{"id":{},"title":"Three","messages":[{"role":"assistant","content":"Hm"}]},7]}') });
    await page.getByText('Imported 1; 1 could not be read').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Regenerate' }).count(), 0);
    const hidden = () => page.locator('#side').isHidden();
    await page.click('#menu');
    assert.equal(await hidden(), false);
    await page.mouse.click(390, 400);
    assert.equal(await hidden(), true, 'shade');
    await page.click('#menu');
    await page.getByRole('button', { name: 'One', exact: true }).click();
    assert.equal(await hidden(), true, 'chosen');
    assert.equal(await page.getByRole('button', { name: 'Regenerate' }).count(), 1);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'menu');
    await page.click('#menu');
    const item = page.locator('#chats li').filter({ hasText: 'Two' });
    await item.hover();
    await item.getByRole('button', { name: /^Rename/ }).click();
    await page.keyboard.type('Zwei');
    await page.keyboard.press('Enter');
    assert.deepEqual((await page.locator('#chats .title').allTextContents()).sort(), ['One', 'Three', 'Zwei']);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Zwei');
    assert.deepEqual(page.problems, []);
    await page.close();
  });

const focused = page => page.evaluate(() => document.activeElement.id);
/** Two conversations of which the first is open. */
const two = page => put(page, [{ title: 'Two', messages: [{ role: 'user', content: 'x' },
  { role: 'assistant', content: 'y' }] }, { title: 'One', messages: [{ role: 'user', content: 'first' },
  { role: 'assistant', content: 'a' }, { role: 'user', content: 'second' }, { role: 'assistant', content: 'b' }] }]);
const item = (page, title) => page.locator('#chats li').filter({ hasText: title });
async function press(page, title, name) {
  await item(page, title).hover();
  await item(page, title).getByRole('button', { name }).click();
}

test('an answer does not wait for a trace of the inspector, which says that it was stopped', async () => {
  const page = await open(where, '', { viewport: { width: 1440, height: 900 } });
  await state(page, 'ready');
  await put(page, [{ messages: [{ role: 'user', content: 'The keeper lit the lamp and looked at the sea. '.repeat(40) },
    { role: 'assistant', content: 'Well.' }] }]);
  await page.click('#open-inspect');
  await page.waitForFunction(() => document.querySelector('#view-tokens').textContent !== '');   // its module is there
  await page.click('#tab-layers');
  await page.getByRole('button', { name: 'Trace the conversation' }).click();
  await ask(page, LONG);
  await page.locator('#view-layers').getByText('Stopped').waitFor();
  await page.keyboard.press('Escape');
  await state(page, 'ready');
  assert.equal(await page.locator('#view-layers .result').textContent(), '', 'another subject');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('an answer goes on while its conversation is chosen once more, and while Escape ends what a keyboard composes',
  async () => {
    const page = await open(where);
    const compose = selector => page.locator(selector).dispatchEvent('keydown',
      { key: 'Escape', isComposing: true, bubbles: true, cancelable: true });
    await state(page, 'ready');
    await ask(page, LONG);
    await page.locator('#chats [aria-current]').click();
    assert.equal(await page.getAttribute('body', 'data-state'), 'answering');
    await compose('#prompt');
    assert.equal(await page.getAttribute('body', 'data-state'), 'answering');
    await page.keyboard.press('Escape');
    await state(page, 'ready');
    await page.locator('#log > .user').hover();
    await page.locator('#log > .user').getByRole('button', { name: 'Edit' }).click();
    await compose('.editor textarea');
    assert.equal(await page.locator('.editor').count(), 1);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.editor').count(), 0);
    await page.close();
  });

test('on a touch screen Stop and Regenerate leave the keyboard where it is', async () => {
  const page = await open(where, '', { hasTouch: true, isMobile: true, viewport: { width: 400, height: 800 } });
  await state(page, 'ready');
  await ask(page, LONG);
  await page.locator('#prompt').blur();
  await page.tap('#stop');
  await state(page, 'ready');
  assert.notEqual(await focused(page), 'prompt');
  await page.locator('#log > .assistant').getByRole('button', { name: 'Regenerate' }).tap();
  await state(page, 'answering');
  assert.notEqual(await focused(page), 'prompt');
  await page.close();
});

test('a draft outlives an idea that is clicked and a message that is edited', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.fill('#prompt', 'A draft');
  await page.locator('#ideas button').first().click();
  await page.locator('#log .problem').waitFor();
  assert.equal(await page.inputValue('#prompt'), 'A draft');
  await page.locator('#log > .user').hover();
  await page.locator('#log > .user').getByRole('button', { name: 'Edit' }).click();
  await page.locator('.editor textarea').fill('Another question');
  await page.keyboard.press('Enter');
  await page.locator('#log > .user').getByText('Another question').waitFor();
  assert.equal(await page.inputValue('#prompt'), 'A draft');
  assert.ok(await page.isEnabled('#send'));
  await page.close();
});

test('a setting of the model does not load one that a link asks for and the reader has not', async () => {
  const url = 'http://127.0.0.1:1/m.gguf';
  const page = await open({ ...where, also: url }, `?model=${encodeURIComponent(url)}`);
  await page.locator('#plan .problem').waitFor();
  await page.keyboard.press('Escape');
  await page.click('#open-settings');
  await page.fill('#set-contextLength', '512');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#settings', { state: 'hidden' });
  await page.evaluate(() => new Promise(resolve => setTimeout(resolve)));   // behind the dialog's event
  assert.equal(await page.getAttribute('body', 'data-state'), 'failed');
  await page.close();
});

test('the way back from a replaced answer goes with the next question and with another conversation', async () => {
  const page = await open(where, `?model=${TINY}`);
  const line = page.getByText('The answers from here on were replaced');
  await state(page, 'ready');
  await two(page);
  const regenerate = () => page.getByRole('button', { name: 'Regenerate' }).first().click();
  await regenerate();
  await line.waitFor();
  await item(page, 'Two').locator('.title').click();
  assert.equal(await line.count(), 0);
  await regenerate();
  await line.waitFor();
  await page.fill('#prompt', 'And then?');
  await page.keyboard.press('Enter');
  assert.equal(await line.count(), 0);
  await page.close();
});

test('the focus stays where the reader put it, or goes to the message box', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await two(page);
  await press(page, 'Two', /^Rename/);
  await page.keyboard.type('Zwei');
  await page.click('#prompt');
  assert.equal(await focused(page), 'prompt');
  assert.equal(await item(page, 'Zwei').count(), 1);
  await press(page, 'Zwei', /^Delete/);
  await page.getByRole('button', { name: 'Undo' }).focus();
  await page.keyboard.press('Enter');
  assert.equal(await focused(page), 'prompt');
  assert.equal(await item(page, 'Zwei').count(), 1);
  await page.close();
});

test('what a panel lies over is out of reach, however the window became that narrow', async () => {
  const page = await open(where, `?model=${TINY}`, { viewport: { width: 1440, height: 900 } });
  await page.click('#open-inspect');
  const inert = () => page.evaluate(() => [...document.querySelectorAll('[inert]')].map(({ id }) => id).join());
  for (const [width, covered] of [[1440, ''], [1100, 'side,page'], [900, 'side,page'], [1440, '']]) {
    await page.setViewportSize({ width, height: 900 });
    await page.waitForFunction(width => innerWidth === width, width);
    await page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    assert.equal(await inert(), covered, `${width} px`);
  }
  await page.close();
});

test('a drag that ends elsewhere leaves nothing over the page for good', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  for (const end of [() => page.mouse.click(300, 300), () => page.keyboard.press('Escape')]) {
    await page.evaluate(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([''], 'm.gguf'));
      document.body.dispatchEvent(new DragEvent('dragenter', { bubbles: true, dataTransfer }));
    });
    assert.ok(await page.isVisible('#drop'));
    await end();
    assert.ok(await page.isHidden('#drop'));
  }
  await page.close();
});
