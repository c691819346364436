/** Help with writing in the chat page, with the keyboard alone: recalled messages, prompts by "/", the palette and the
 * prompt library.  Ground truth for accessibility: axe-core. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TINY, answer, examineAll, open, openForAll, put, setUp, state } from './chat-page.mjs';

const where = await setUp(), page = await openForAll(where);
const draft = () => page.inputValue('#prompt');
const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key); };
const focused = () => page.evaluate(() => document.activeElement?.id);
const marked = list => page.locator(`${list} [aria-selected=true]`).innerText().then(text => text.split('\n')[0]);

test('in the empty box the up arrow recalls messages, and the down arrow goes back; a draft stays', async () => {
  for (const text of ['One', 'Two', 'Two']) await answer(page, text);
  await page.focus('#prompt');
  await press('ArrowUp');
  assert.equal(await draft(), 'Two');
  await press('ArrowUp');
  assert.equal(await draft(), 'One', 'the same message only once');
  await press('ArrowUp');
  assert.equal(await draft(), 'One', 'there is none before the first');
  await press('ArrowDown', 'ArrowDown');
  assert.equal(await draft(), '');
  await page.fill('#prompt', 'A draft');
  await press('ArrowUp');
  assert.equal(await draft(), 'A draft');
  await page.fill('#prompt', '');
});

test('"/" lists the prompts, Enter inserts one and sends nothing, Escape closes the list', async () => {
  await page.focus('#prompt');
  await page.keyboard.type('/su');
  assert.equal(await marked('#slash'), '/summarize');
  assert.equal(await page.getAttribute('#prompt', 'aria-activedescendant'), 'slash-0');
  await press('Enter');
  assert.match(await draft(), /^Summarize this text/);
  assert.equal(await page.isVisible('#slash'), false);
  const n = await page.locator('#log > li').count();
  await page.fill('#prompt', '');
  await page.keyboard.type('/');
  await press('ArrowDown', 'ArrowDown');
  assert.equal(await marked('#slash'), '/review');
  await press('Escape');
  assert.equal(await page.isVisible('#slash'), false);
  await page.fill('#prompt', 'a / b');
  assert.equal(await page.isVisible('#slash'), false);
  await page.fill('#prompt', '');
  assert.equal(await page.locator('#log > li').count(), n);
});

test('one\'s own prompts are saved, changed and deleted, and stay after a reload', async () => {
  await page.fill('#prompt', 'Answer like a pirate: ');
  await press('Control+k');
  await page.waitForSelector('#palette[open]');
  await page.keyboard.type('save draft');
  await press('Enter');
  await page.waitForSelector('#library[open]');
  assert.equal(await focused(), 'library-name');
  assert.equal(await page.inputValue('#library-text'), 'Answer like a pirate: ');
  await page.keyboard.type('no name');
  await press('Enter');
  assert.match(await page.textContent('#library-note'), /^A name has/);
  await page.fill('#library-name', 'pirate');
  await press('Enter');
  await page.getByText('Saved. Write /pirate to use it.').waitFor();
  await press('Escape');
  await page.reload();
  await state(page, 'ready');
  await page.focus('#prompt');
  await page.keyboard.type('/pir');
  await press('Tab');
  assert.equal(await draft(), 'Answer like a pirate: ');
  await page.fill('#prompt', '/zzz');
  assert.equal(await marked('#slash'), 'Edit the prompts');
  await press('Enter');
  await page.getByRole('button', { name: 'Delete /pirate' }).focus();
  await press('Enter');
  await page.getByText('Deleted /pirate').waitFor();
  assert.equal(await page.locator('#library-list li').count(), 5);
  await press('Escape');
});

/** Opens the palette, whose module is loaded when it is first opened. */
async function openPalette() {
  await press('Control+k');
  await page.waitForSelector('#palette[open]');
}

test('Ctrl-K finds actions, conversations and prompts by typing', async () => {
  await put(page, [{ title: 'Walrus', messages: [{ role: 'user', content: 'tusks' },
    { role: 'assistant', content: 'long' }] }]);
  await page.click('#new-chat');
  await openPalette();
  assert.equal(await focused(), 'palette-field');
  await page.keyboard.type('tusks');
  assert.equal(await marked('#palette-list'), 'Walrus');
  await press('Enter');
  assert.equal(await focused(), 'prompt');
  assert.equal(await page.textContent('#log > .user .text'), 'tusks');
  await openPalette();
  await press('ArrowUp');
  assert.equal(await page.getAttribute('#palette-field', 'aria-activedescendant'),
    `palette-${await page.locator('#palette-list li').count() - 1}`, 'the last follows the first backwards');
  await page.keyboard.type('settings');
  await press('Enter');
  await page.waitForSelector('#settings[open]');
  await press('Escape');
  await page.waitForFunction(() => document.querySelector('dialog[open]') === null);
  await openPalette();
  await press('Control+k');   // the same keys close it
  await page.waitForFunction(() => document.querySelector('#palette[open]') === null);
  await openPalette();
  await page.keyboard.type('no such thing');
  await page.getByText('Nothing is found').waitFor();
  await press('Enter');
});

test('stored prompts that are none do no harm', async () => {
  for (const bad of ['7', '"x"', '{',
    '[null,7,{"name":"<b>","text":"x"},{"name":"ok","text":7},{"name":"fine","text":"t"}]']) {
    await page.evaluate(bad => { localStorage['plumb.prompts'] = bad; }, bad);
    await page.fill('#prompt', '/');
    await page.locator('#slash li').first().waitFor();
    await page.fill('#prompt', '');
  }
  await page.fill('#prompt', '/fi');
  assert.equal(await marked('#slash'), '/fine');
  await page.fill('#prompt', '');
});

test('axe finds no violations in what helps to write', async () => {
  const other = await open(where, `?model=${TINY}`, { reducedMotion: 'reduce' });
  await state(other, 'ready');
  const before = [[{ role: 'user', content: 'Why?' }, { role: 'assistant', content: 'Because.' }]];
  await put(other, [{ title: 'Walrus', messages: [
    { role: 'user', content: 'Why are tusks long?', versions: { before, after: [] } },
    { role: 'assistant', content: 'So \\(a^2\\) is\n\n\\[ \\frac{1}{2} \\]\n\n```js\nlet a = 1; // "x"\n```' }] }]);
  await other.waitForSelector('#log math');
  await other.waitForSelector('#log code span');
  await examineAll(other, 'versions');
  await other.fill('#prompt', '/');
  await other.focus('#prompt');
  await examineAll(other, 'slash');
  await other.keyboard.press('Escape');
  await other.keyboard.press('Control+k');
  await other.locator('#palette-list li').first().waitFor();
  await examineAll(other, 'palette');
  await other.keyboard.type('edit prompts');
  await other.keyboard.press('Enter');
  await other.locator('#library-name').waitFor();
  await examineAll(other, 'library');
  await other.close();
});
