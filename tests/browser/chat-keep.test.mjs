/** Conversations of the chat page: changing, storing, restoring, deleting and undoing. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import { fileName } from '../../web/chat/dom.js';
import {
  FAILING, LONG, TINY, answer, answers, ask, begin, open, put, reload, saved, setUp, state, stored as storedOf, until,
} from './chat-page.mjs';

test('a file is named after its URL, even if a % in it does not begin an escape', () => {
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

test('Regenerate answers the same question again', async () => {
  const first = await answer(page, 'Name a colour.');
  const old = await page.locator('#log > .assistant').elementHandle();
  await page.locator('#log > .assistant').getByRole('button', { name: 'Regenerate' }).click();
  await page.waitForFunction(old => !old.isConnected && document.body.dataset.state === 'ready', old);
  assert.deepEqual(await messages(), [['user', 'Name a colour.'], ['assistant', first]]);   // the seed is the same
});

test('a message is edited in place, and the conversation continues from there', async () => {
  await answer(page, 'And an animal.');
  const tools = page.locator('#log > .user').first();
  await tools.hover();
  await tools.getByRole('button', { name: 'Edit' }).click();
  const field = page.getByRole('textbox', { name: 'Edit your message' });
  assert.equal(await field.inputValue(), 'Name a colour.');
  await field.press('Escape');
  assert.equal((await messages()).length, 4);
  await tools.getByRole('button', { name: 'Edit' }).click();
  await field.fill('Name a river.');
  await field.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('#log > li').length === 2);
  await state(page, 'ready');
  const [[, question], [who, text]] = await messages();
  assert.deepEqual([question, who], ['Name a river.', 'assistant']);
  assert.ok(text.length > 0);
});

test('a reload restores the conversation and the settings, and the model continues the conversation', async () => {
  const before = await messages();
  await reload(page);
  await state(page, 'ready');
  assert.deepEqual(await messages(), before);
  assert.equal((await titles())[0], 'Name a river.');
  await answer(page, 'And another.');
  assert.equal((await messages()).length, 4);
  const [, tokens] = /^(\d+) tokens? /.exec(await page.textContent('#log > li:last-child .figures'));
  assert.ok(Number(tokens) <= 12, tokens);
});

test('a reload during an answer loses none of its text', async () => {
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', '1000');
  await page.keyboard.press('Escape');
  await page.click('#new-chat');
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

test('what was said when a page was left is restored if it continues the stored answer, and forgotten', async () => {
  const page = await open(where);
  await state(page, 'ready');
  const left = { whole: 'Said and more', same: 'Said', other: 'Another', wrong: 7 };
  await put(page, Object.keys(left).map(title =>
    ({ title, messages: [{ role: 'user', content: title }, { role: 'assistant', content: 'Said' }] })));
  for (const { id, title } of await storedOf(page))
    await page.evaluate(([id, content]) => localStorage.setItem(`plumb.left.${id}`, JSON.stringify({ n: 2, content })),
      [id, left[title]]);
  await page.reload();
  await state(page, 'ready');
  const said = (await storedOf(page)).filter(({ title }) => title in left)
    .map(({ title, messages }) => `${title}: ${messages[1].content}`).sort();
  assert.deepEqual(said, ['other: Said', 'same: Said', 'whole: Said and more', 'wrong: Said']);
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter(key => key.includes('left.'))), []);
  await page.close();
});

test('a question that was asked before a model was loaded is answered at the next visit', async () => {
  await page.click('#new-chat');
  await page.route(url => url.pathname === '/never.gguf', () => {});   // no answer comes, however slow the test is
  await page.goto(`${where.url}web/chat/?model=/never.gguf`);
  await state(page, 'loading');
  await page.fill('#prompt', 'Name a bird.');
  await page.keyboard.press('Enter');
  await page.getByText('Waiting for the model').waitFor();
  // A question is written to the database when it is asked; this takes some milliseconds.
  await until(async () => (await stored()).some(({ messages }) => messages[0]?.content === 'Name a bird.'), 'stored');
  await page.goto(`${where.url}web/chat/`);
  await page.waitForFunction(() => document.querySelector('#log > .assistant .text')?.textContent.length > 0);
  await page.keyboard.press('Escape');
  await state(page, 'ready');
  assert.deepEqual((await messages())[0], ['user', 'Name a bird.']);
});

test('a conversation can be renamed, deleted and restored', async () => {
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
  await reload(page);
  await page.waitForSelector('#log > li');
  assert.ok((await titles()).includes('Lighthouse'));
});

test('a conversation that is deleted during its answer does not reappear', async () => {
  await page.click('#new-chat');
  await ask(page, `${LONG} To be deleted.`);
  const item = page.locator('#chats li').first();
  await item.hover();
  await item.getByRole('button', { name: /^Delete/ }).click();
  await state(page, 'ready');
  await reload(page);
  await state(page, 'ready');
  assert.ok(!(await stored()).some(({ messages }) => /To be deleted/.test(messages[0]?.content)));
});

test('an answer whose model is reloaded by the reader is marked as stopped; if the engine fails, it is an error',
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
        .catch(() => {});   // it has already ended with the first one
    }
    await own.locator('#log .problem').waitFor();
    await state(own, 'ready');
    await own.getByRole('button', { name: 'Try again' }).click();
    await wait();
    assert.equal(await own.locator('#log .problem').count(), 0);
    await own.close();
  });

test('conversations can be selected from the list', async () => {
  await page.getByRole('button', { name: 'Name a river.', exact: true }).click();
  assert.equal((await messages())[0][1], 'Name a river.');
  assert.equal(await page.locator('#chats [aria-current]').textContent(), 'Name a river.');
});

test('a change that another tab did not announce is not overwritten: both versions are kept', async () => {
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
  // The note comes when the question is saved, and may be gone when the answer is complete.
  const note = page.getByText('This tab continues in a copy: “Name a river. (copy)”').waitFor();
  await answer(page, 'And then?');
  await note;
  const now = await texts();
  assert.equal(now.length, n + 1);
  assert.ok(now.includes('What they said.') && now.includes(theirs));
  assert.deepEqual((await titles()).filter(title => /Theirs|Name a river/.test(title)).sort(),
    ['Name a river. (copy)', 'Theirs']);
  const before = await messages();
  await reload(page);
  await page.waitForSelector('#log > li');
  assert.deepEqual(await messages(), before);   // the tab still shows its own version
});

test('a conversation that cannot be stored shows a warning until it is stored again', async () => {
  await state(page, 'ready');
  assert.equal(await page.textContent('#chats-note'), '');
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
  const warning = page.locator('#toast').filter({ hasText: 'Not saved' });
  await warning.getByRole('button', { name: 'Export all' }).first().waitFor();
  await page.evaluate(() => {
    globalThis.giveBack();
    document.querySelector('#toast').replaceChildren();
  });
  await answer(page, 'And once more.');
  await page.waitForFunction(() => document.querySelector('#chats-note').textContent === '');
  assert.equal(await warning.count(), 0);
});

test('a browser without a database shows that conversations are lost, and chats', async () => {
  const other = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(() => {
    Object.defineProperty(globalThis, 'indexedDB', { value: { open() { throw new Error('no database'); } } });
  }));
  await state(other, 'ready');
  assert.match(await other.textContent('#chats-note'), /^This browser stores no data here/);
  await answer(other, 'Name a colour.');
  assert.deepEqual(other.problems, []);
  await other.close();
});

test('an export as JSON can be imported again; an export as Markdown is readable', async () => {
  const [all] = await Promise.all([page.waitForEvent('download'), page.click('#export-json')]);
  const json = readFileSync(await saved(all), 'utf8');
  const [one] = await Promise.all([page.waitForEvent('download'), page.click('#export-markdown')]);
  assert.equal(one.suggestedFilename(), 'Name a river copy.md');
  const markdown = readFileSync(await saved(one), 'utf8');
  assert.match(markdown, /^# Name a river\. \(copy\)\n\n## You \(version 2 of 2\)\n\nName a river\.\n\n## Model\n\n/);
  const before = await messages(), { conversations } = JSON.parse(json);
  assert.ok(conversations.length >= 2);
  const other = await open(where, `?model=${TINY}`);
  await other.setInputFiles('#import-file', await saved(all));
  await other.getByRole('button', { name: 'Name a river. (copy)', exact: true }).click();
  // The last messages of a conversation are shown first.
  await other.waitForFunction(n => document.querySelectorAll('#log > li').length === n, before.length);
  const texts = await other.locator('#log > li .text').allTextContents();
  assert.deepEqual(texts, before.map(([, text]) => text));
  await other.close();
});

test('an imported conversation that ends in a question is answered only when the reader asks for it', async () => {
  await put(page, [{ messages: [{ role: 'user', content: 'Name a mountain.' }] }]);
  assert.deepEqual(await messages(), [['user', 'Name a mountain.'], ['assistant', '']]);
  assert.equal(await page.textContent('#log .figures'), 'not answered');
  await page.locator('#log > .assistant').getByRole('button', { name: 'Regenerate' }).click();
  await page.waitForFunction(() => document.querySelector('#log > .assistant .text').textContent.length > 0);
  await state(page, 'ready');
});

test('files and records that are not conversations are skipped', async () => {
  const n = (await titles()).length;
  for (const text of ['', '{', '[]', '{"conversations": 7}', 'null', '{"conversations": [1, null, {"messages": "x"}]}',
    '{"conversations": [{"messages": [{"role": "root", "content": "x"}]}, {"messages": [{"role": "user"}]}]}']) {
    const buffer = Buffer.from(text);
    await page.setInputFiles('#import-file', { name: 'x.json', mimeType: 'application/json', buffer });
    await page.getByText('That file contains no conversations').waitFor();
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
  assert.equal((await titles()).length, n + 5);   // an invalid title, time or problem is left out
  await page.click('#open-settings');
  assert.deepEqual(await page.locator('#set-temperature, #set-topK, #set-threads, #set-system')
    .evaluateAll(fields => fields.map(({ id, value }) => [id, value])),
  [['set-system', ''], ['set-temperature', '0.8'], ['set-topK', '40'], ['set-threads', '']]);
  await page.keyboard.press('Escape');
});

test('the system prompt reaches the model but is not shown as a message', async () => {
  const before = await messages();
  await page.click('#open-settings');
  await page.fill('#set-system', 'You are a pirate. Always say arr.');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.waitForFunction(() =>
    /^[1-9]\d* of 8,192 tokens$/.test(document.querySelector('#context-used').textContent));
  assert.deepEqual(await messages(), before);
  await page.click('#open-settings');
  await page.getByRole('button', { name: 'Reset to defaults' }).click();
  assert.equal(await page.inputValue('#set-system'), '');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => /^0 of 8,192 tokens$/.test(document.querySelector('#context-used').textContent));
});

test('changing a setting of the model reloads it', async () => {
  await page.click('#open-settings');
  await page.locator('#set-contextLength').pressSequentially('5e');   // not a number yet, and not an empty field
  assert.equal(await page.getAttribute('#set-contextLength', 'aria-invalid'), 'true');
  await page.fill('#set-contextLength', '512');
  await page.fill('#set-threads', '1');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.waitForFunction(() => /of 512 tokens$/.test(document.querySelector('#context-used').textContent));
  await page.click('#model');
  await page.getByText('512 tokens; trained for 8,192').waitFor();
  await page.keyboard.press('Escape');
});

test('a conversation that exceeds the context continues without its first messages', async () => {
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

test('on a narrow screen a selection or a click outside closes the list; Regenerate needs a question',
  async () => {
    const page = await open(where, `?model=${TINY}`, { viewport: { width: 400, height: 800 } });
    await state(page, 'ready');   // the page handles files only once its modules have loaded
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

test('an answer does not wait for a trace of the inspector; the inspector says that it was stopped', async () => {
  const page = await open(where, '', { viewport: { width: 1440, height: 900 } });
  await state(page, 'ready');
  await put(page, [{ messages: [{ role: 'user', content: 'The keeper lit the lamp and looked at the sea. '.repeat(40) },
    { role: 'assistant', content: 'Well.' }] }]);
  await page.click('#open-inspect');
  await page.waitForFunction(() => document.querySelector('#view-tokens').textContent !== '');   // its module ran
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

test('selecting the open conversation again, or Escape that ends an IME composition, does not stop an answer',
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
    await page.keyboard.press('Escape');   // the list of conversations has the focus
    await state(page, 'ready');
    assert.match(await page.locator('#log .figures').last().textContent(), /stopped$/);
    assert.ok(await page.isVisible('#chats'));
    await page.locator('#log > .user').hover();
    await page.locator('#log > .user').getByRole('button', { name: 'Edit' }).click();
    await compose('.editor textarea');
    assert.equal(await page.locator('.editor').count(), 1);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.editor').count(), 0);
    await page.close();
  });

test('selecting another conversation stops an answer, which stays in its own', async () => {
  const page = await open(where);
  await state(page, 'ready');
  await put(page, [{ title: 'Other', messages: [{ role: 'user', content: 'x' },
    { role: 'assistant', content: 'y' }] }]);
  await page.click('#new-chat');
  await ask(page, LONG);
  await item(page, 'Other').locator('.title').click();
  await state(page, 'ready');
  await page.locator('#chats li').filter({ hasNotText: 'Other' }).locator('.title').first().click();
  assert.match(await page.textContent('#log > .assistant:last-child .figures'), /stopped$/);
  await page.close();
});

test('on a touch screen Stop and Regenerate do not open the keyboard', async () => {
  const page = await open(where, '', { hasTouch: true, isMobile: true, viewport: { width: 400, height: 800 } });
  await state(page, 'ready');
  await ask(page, LONG);
  await page.locator('#prompt').blur();
  await page.tap('#stop');
  await state(page, 'ready');
  assert.notEqual(await focused(page), 'prompt');
  await begin(page, () => page.locator('#log > .assistant').getByRole('button', { name: 'Regenerate' }).tap());
  assert.notEqual(await focused(page), 'prompt');
  await page.close();
});

test('a draft survives a click on an example question and the edit of a message', async () => {
  const page = await open(where, `?model=${FAILING}`);
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

test('changing a setting does not load a model that only the link requested, not the reader', async () => {
  const url = 'http://127.0.0.1:1/m.gguf';
  const page = await open({ ...where, also: url }, `?model=${encodeURIComponent(url)}`);
  await page.locator('#plan .problem').waitFor();
  await page.keyboard.press('Escape');
  await page.click('#open-settings');
  await page.fill('#set-contextLength', '512');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#settings', { state: 'hidden' });
  await page.evaluate(() => new Promise(resolve => setTimeout(resolve)));   // after the dialog's event
  assert.equal(await page.getAttribute('body', 'data-state'), 'failed');
  await page.close();
});

test('the focus stays where the reader put it, or moves to the message box', async () => {
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

test('what a panel covers cannot be focused, however the window became that narrow', async () => {
  const page = await open(where, `?model=${TINY}`, { viewport: { width: 1440, height: 900 } });
  await page.click('#open-inspect');
  await page.waitForSelector('#inspect [role=tablist]:not([inert])');
  const inert = () => page.evaluate(() => [...document.querySelectorAll('[inert]')].map(({ id }) => id).join());
  for (const [width, covered] of [[1440, ''], [1100, 'side,page'], [900, 'side,page'], [1440, '']]) {
    await page.setViewportSize({ width, height: 900 });
    await page.waitForFunction(width => innerWidth === width, width);
    await page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    assert.equal(await inert(), covered, `${width} px`);
  }
  await page.close();
});

test('the drop overlay goes away after a drag that ends elsewhere', async () => {
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

test('a long conversation goes on after a reload without being read again, until it is deleted', async () => {
  const page = await open(where, '', {}, one => one.addInitScript(() => {
    localStorage['plumb.settings'] = '{"seed":1,"maxTokens":12}';
  }));
  await state(page, 'ready');
  const kept = () => page.evaluate(async () => {
    const names = [], root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle('plumb-chats').catch(() => undefined);
    for await (const handle of folder?.values() ?? []) {
      if ((await handle.getFile()).size > 0 && !handle.name.endsWith('.crswap')) names.push(handle.name);
    }
    return names;
  });
  const keeps = n => until(async () => (await kept()).length === n, `${n} states`);
  const read = async () => Number(/(\d+) read at/.exec(
    await page.locator('#log > .assistant .figures').last().textContent() ?? '')?.[1]);
  await answer(page, `Which of these is a fruit? ${'A stone, a tree, a river, an apple. '.repeat(40)}`);
  assert.ok(await read() > 350);
  await keeps(1);
  await reload(page);
  await state(page, 'ready');
  await answer(page, 'And a plant?');
  assert.ok(await read() < 40, `${await read()} tokens were read`);
  const item = page.locator('#chats li').first();
  await item.hover();
  await item.getByRole('button', { name: /^Delete/ }).click();
  await keeps(0);
  await page.close();
});
