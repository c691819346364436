/** Messages too long for the context, answers that were cut off, and what the page says about them.  Ground truth:
 * llama.cpp's greedy tokens (tests/vectors), and the package's own count of tokens, computed outside the page. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { prompts, realPath } from '../node/helpers.mjs';
import { LONG, TINY, answer, holdModel, open, put, reload, setUp, state, stored, whole } from './chat-page.mjs';

const where = await setUp();
let page, model;
const room = () => page.textContent('#context-used');
const last = () => page.locator('#log > li:last-child');
/** Settings of the first visit. @param {Record<string, unknown>} values */
const withSettings = values => page => page.addInitScript(values => {
  if (sessionStorage.visited) return;
  sessionStorage.visited = 'yes';
  localStorage['plumb.settings'] = JSON.stringify(values);
}, values);
before(async () => {
  model = await Plumb.load(realPath);
});
after(() => model.close());
afterEach(async () => {
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a draft shows its token count beside that of the conversation once the reader pauses', async () => {
  page = await open(where);
  await state(page, 'ready');
  const text = 'How many roads must a man walk down?';
  const { length: n } = await model.tokenize(text, { addSpecial: false });
  await page.fill('#prompt', text);
  await page.waitForFunction(said => document.querySelector('#context-used').textContent === said,
    `draft ${n}  ·  0 of 8,192 tokens`);
  assert.equal(await page.textContent('#draft-note'), '');
  await page.fill('#prompt', '');
  await page.waitForFunction(() => document.querySelector('#context-used').textContent === '0 of 8,192 tokens');
});

test('a draft of 50,000 characters shows its token count and cannot be sent; a shorter one can', async () => {
  page = await open(where, '', {}, withSettings({ maxTokens: 8, seed: 1 }));
  await state(page, 'ready');
  const text = 'The keeper lit the lamp and looked at the sea. '.repeat(1064).slice(0, 50000);
  const { length: all } = await model.tokenizeChat([{ role: 'user', content: text }]);
  assert.ok(all > 10000);
  await page.fill('#prompt', text);
  await page.keyboard.press('Enter');   // before it was measured
  const shown = all.toLocaleString('en');
  await page.getByText(`This message is too long: it takes ${shown} tokens, and the context holds 8,192. `
    + 'Shorten it, or set a longer context in the settings.').waitFor();
  assert.match(await room(), /^draft 1\d,\d{3} {2}· {2}0 of 8,192 tokens$/);
  assert.ok(await page.isDisabled('#send'));
  assert.equal(await page.getAttribute('#prompt', 'aria-invalid'), 'true');
  await page.focus('#prompt');
  await page.keyboard.press('Enter');
  await page.waitForTimeout(300);
  assert.equal(await page.locator('#log > li').count(), 0);
  assert.equal(await page.inputValue('#prompt'), text, 'the draft is not lost');
  await page.fill('#prompt', 'Name a colour.');
  await page.waitForFunction(() => !document.querySelector('#send').disabled
    && document.querySelector('#draft-note').textContent === '');
  await page.keyboard.press('Enter');
  await whole(page, 2);
  assert.equal(await page.locator('#log > li').count(), 2);
});

test('a draft that was too long can be sent once the context is longer', async () => {
  page = await open(where, '', {}, withSettings({ maxTokens: 8, contextLength: 128 }));
  await state(page, 'ready');
  await page.fill('#prompt', 'red green blue '.repeat(50));
  await page.getByText('This message is too long').waitFor();
  await page.click('#open-settings');
  await page.fill('#set-contextLength', '1024');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.waitForFunction(() => /of 1,024 tokens$/.test(document.querySelector('#context-used').textContent)
    && !document.querySelector('#send').disabled);
  await page.click('#send');
  await whole(page, 2);
  assert.equal(await page.locator('#log .problem').count(), 0);
});

test('an edited message that becomes too long is not sent, and the messages after it stay', async () => {
  page = await open(where);
  await state(page, 'ready');
  await put(page, [{ messages: [{ role: 'user', content: 'Short?' }, { role: 'assistant', content: 'Yes.' }] }]);
  await page.locator('#log > .user').hover();
  await page.locator('#log > .user').getByRole('button', { name: 'Edit' }).click();
  await page.locator('.editor textarea').fill('many words '.repeat(5000));
  await page.locator('.editor').getByRole('button', { name: 'Send' }).click();
  await page.locator('.editor').getByText('This message is too long: it takes').waitFor();
  assert.equal((await stored(page))[0].messages[1].content, 'Yes.');
  await page.locator('.editor').getByRole('button', { name: 'Cancel' }).click();
  assert.deepEqual(await page.locator('#log .text').allTextContents(), ['Short?', 'Yes.\n']);
});

test('a message that turns out too long once the model is loaded can be edited and is not retried', async () => {
  let release = () => {};
  page = await open(where, '', {}, async page => { release = await holdModel(page); });
  await page.fill('#prompt', 'red green blue '.repeat(3000));
  await page.keyboard.press('Enter');
  await page.locator('#log > .user').waitFor();
  release();
  await page.locator('#log .problem').waitFor();
  assert.match(await page.textContent('#log .problem'), /^This is too long for the context\. Shorten the message/);
  assert.equal(await page.getByRole('button', { name: 'Try again' }).and(page.locator(':visible')).count(), 0);
  await page.getByRole('button', { name: 'Edit the message' }).click();
  await page.locator('.editor textarea').fill('Name a colour.');
  await page.keyboard.press('Enter');
  await whole(page, 2);
  assert.equal(await page.locator('#log .problem').count(), 0);
});

test('an answer that reaches the length limit says so, and continues as if it had not been cut', async () => {
  const { messages, f32 } = prompts[1];
  const [system, question] = messages.length === 2 ? messages : [undefined, ...messages];
  page = await open(where, '', {}, withSettings({ maxTokens: 8, temperature: 0,
    ...system && { system: system.content } }));
  await state(page, 'ready');
  await answer(page, question.content);
  for (let i = 2; i <= 3; i++) {
    assert.match(await last().textContent(), /The answer was cut off at the length limit in the settings\./);
    assert.match(await last().locator('.figures').textContent(), new RegExp(`^${8 * (i - 1)} tokens`));
    assert.equal(await page.textContent('#live'), 'The answer was cut off');
    if (i === 3) {   // a stored answer can be continued too
      await reload(page);
      await state(page, 'ready');
    }
    await page.getByRole('button', { name: 'Continue' }).click();
    await last().locator('.figures', { hasText: new RegExp(`^${8 * i} tokens`) }).waitFor();
    await state(page, 'ready');
  }
  const [{ messages: kept }] = await stored(page);
  assert.equal(kept.length, 2);
  assert.equal(kept[1].content, await model.detokenize(f32.ids.slice(0, 24)));
  assert.deepEqual(kept[1].cut, { by: 'limit', tokens: 24 });
  await answer(page, 'Thanks.');
  assert.equal(await page.locator('#log > .assistant').first().getByRole('button', { name: 'Continue' }).isVisible(),
    false, 'only the last answer goes on');
});

test('a continued answer that is stopped or fails keeps its text', async () => {
  page = await open(where, '', {}, withSettings({ maxTokens: 12, temperature: 0 }));
  await state(page, 'ready');
  const first = await answer(page, LONG);
  await page.evaluate(() => localStorage.setItem('plumb.settings', '{"maxTokens":1000,"temperature":0}'));
  await reload(page);
  await state(page, 'ready');
  await page.getByRole('button', { name: 'Continue' }).click();
  const grown = n => page.waitForFunction(n => document.querySelector('#log > .assistant .text').textContent.length > n,
    n);
  await grown(first.length + 40);
  await page.reload();   // in the middle of it
  await page.waitForSelector('#log > .assistant');
  const text = await page.textContent('#log > .assistant .text');
  assert.ok(text.startsWith(first.trim()) && text.length > first.length + 40, `${text}, begun as ${first}`);
  await state(page, 'ready');

  await put(page, [{ title: 'Cut', messages: [{ role: 'user', content: LONG },
    { role: 'assistant', content: 'Once upon a time', cut: { by: 'limit', tokens: 4 } }] }]);
  for (const worker of page.workers()) {
    await worker.evaluate(() => void setTimeout(() => { throw new Error('the engine broke'); })).catch(() => {});
  }
  await page.waitForTimeout(200);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByText('The answer could not be continued. The engine stopped.').waitFor();
  const cut = (await stored(page)).find(({ title }) => title === 'Cut');
  assert.deepEqual(cut.messages[1], { role: 'assistant', content: 'Once upon a time',
    cut: { by: 'limit', tokens: 4 } });
  await state(page, 'ready');   // it has been reloaded
  await page.getByRole('button', { name: 'Continue' }).click();
  await grown(60);
  await page.click('#stop');
  await state(page, 'ready');
  assert.match(await page.textContent('#log > .assistant .text'), /^Once upon a time/);
});

test('an answer that fills the context says so; it continues if earlier turns can be left out', async () => {
  page = await open(where, '', {}, withSettings({ contextLength: 96, maxTokens: 1000, temperature: 0 }));
  await state(page, 'ready');
  await answer(page, LONG);
  assert.match(await last().textContent(), /cut off because the context is full\. Start a new chat, or set a longer/);
  assert.equal(await page.getByRole('button', { name: 'Continue' }).count(), 0);
  const before = (await stored(page))[0].messages;
  await put(page, [{ title: 'Longer', messages: [...before.slice(0, 2).map(({ role, content }) => ({ role, content })),
    { role: 'user', content: 'Count to thirty.' },
    { role: 'assistant', content: 'One, two, three', cut: { by: 'context', tokens: 5 } }] }]);
  assert.match(await last().textContent(), /context is full\. It can continue without the oldest messages\./);
  await page.getByRole('button', { name: 'Continue' }).click();
  await last().locator('.figures', { hasText: 'read at' }).waitFor();
  assert.match(await last().locator('.figures').textContent(), /without the first 2 messages/);
  assert.match(await last().locator('.text').textContent(), /^One, two, three.+/);
});

test('a context longer than the training context shows a warning in the settings and in the conversation', async () => {
  page = await open(where, `?model=${TINY}`);   // trained for 512 tokens
  await state(page, 'ready');
  await page.click('#open-settings');
  await page.fill('#set-contextLength', '512');
  assert.equal(await page.textContent('#about-contextLength'), '');
  await page.fill('#set-contextLength', '1024');
  assert.equal(await page.textContent('#about-contextLength'),
    'The model was trained for 512 tokens. Its answers get worse beyond that.');
  assert.equal(await page.getAttribute('#set-contextLength', 'aria-invalid'), 'false', 'it is a warning');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.click('#model');
  await page.getByText('1,024 tokens; trained for 512; its answers get worse beyond that').waitFor();
  await page.close();

  page = await open(where, '', {}, withSettings({ contextLength: 8300, maxTokens: 4 }));   // trained for 8,192
  await state(page, 'ready');
  await page.fill('#prompt', 'One.');
  await page.waitForFunction(() => /^draft \d/.test(document.querySelector('#context-used').textContent));
  assert.equal(await page.textContent('#draft-note'), '');
  await page.fill('#prompt', 'a '.repeat(8250));
  await page.getByText('The model was trained for 8,192 tokens. Its answers get worse beyond that.').waitFor();
  assert.ok(await page.isEnabled('#send'));
});
