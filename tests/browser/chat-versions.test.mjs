/** Versions of messages in the chat page: edited and answered again, turned with the mouse and with the keyboard, kept
 * over a reload. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { TINY, answer, begin, open, put, setUp, state, stored, until, whole } from './chat-page.mjs';

const where = await setUp();
let page;
const said = async () => (await page.locator('#log > li .text').allTextContents()).map(text => text.trim());
const versions = () => page.locator('#log .versions').allTextContents();
const edit = async (n, text) => {
  await page.locator('#log > .user').nth(n).hover();
  await page.locator('#log > .user').nth(n).getByRole('button', { name: 'Edit' }).click();
  await page.locator('.editor textarea').fill(text);
  await begin(page, () => page.keyboard.press('Enter'));
};
before(async () => {
  page = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(() => {
    localStorage['plumb.settings'] = '{"maxTokens":8}';
  }));
  await state(page, 'ready');
});
after(() => page.close());
afterEach(() => assert.deepEqual(page.problems, []));

test('an edit in the middle begins a version; arrows turn to the old one with all that followed, also after a reload',
  async () => {
    for (const text of ['One', 'Two', 'Three']) await answer(page, text);
    const old = await said();
    await edit(1, 'Zwei');
    await whole(page, 4);
    const fresh = await said();
    assert.deepEqual([fresh[0], fresh[1], fresh[2]], [old[0], old[1], 'Zwei']);
    assert.deepEqual(await versions(), ['2 / 2']);
    await page.getByRole('button', { name: 'Earlier version' }).click();
    assert.deepEqual(await said(), old);
    assert.deepEqual(await versions(), ['1 / 2']);
    assert.ok(await page.getByRole('button', { name: 'Earlier version' }).isDisabled());
    await until(async () => (await stored(page))[0].messages[2].content === 'Two', 'the turn is stored');
    await page.reload();
    await state(page, 'ready');
    assert.deepEqual(await said(), old);
    await page.getByRole('group', { name: 'Version 1 of 2' }).getByRole('button', { name: 'Later version' }).click();
    assert.deepEqual(await said(), fresh);
  });

test('Regenerate keeps the old answer, and the arrow keys turn; the focus stays', async () => {
  const before = await said();
  await begin(page, () => page.locator('#log > .assistant').last().getByRole('button', { name: 'Regenerate' }).click());
  await whole(page, 4);
  const after = await said();
  const last = page.locator('#log > .assistant').last();
  assert.equal(await last.locator('.versions').textContent(), '2 / 2');
  await last.getByRole('button', { name: 'Earlier version' }).focus();
  await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await said(), before);
  assert.equal(await page.evaluate(() => document.activeElement?.ariaLabel), 'Later version', 'the other is disabled');
  assert.equal(await page.textContent('#live'), 'Version 1 of 2');
  await page.keyboard.press('ArrowRight');
  assert.deepEqual(await said(), after);
});

test('a failed answer is replaced, and with it no version is lost', async () => {
  await page.click('#new-chat');
  await put(page, [{ title: 'Failed', messages: [{ role: 'user', content: 'Q' }, { role: 'assistant', content: '',
    problem: { title: 'No', advice: '', detail: '' },
    versions: { before: [[{ role: 'assistant', content: 'old' }]], after: [] } }] }]);
  await begin(page, () => page.getByRole('button', { name: 'Try again' }).click());
  await whole(page, 2);
  assert.deepEqual(await versions(), ['2 / 2']);
  await page.getByRole('button', { name: 'Earlier version' }).click();
  assert.deepEqual(await said(), ['Q', 'old']);
  const isStored = async () =>
    (await stored(page)).find(({ title }) => title === 'Failed').messages[1].content === 'old';
  await until(isStored, 'the turn is stored');
});

test('a version of a thousand messages is shown in several tasks, in order', async () => {
  const tail = Array.from({ length: 1000 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', content: `m${i}` }));
  await put(page, [{ title: 'Long', messages: [{ role: 'user', content: 'Start', versions: { before: [tail],
    after: [] } }, { role: 'assistant', content: 'x' }] }]);
  await page.getByRole('button', { name: 'Earlier version' }).click();
  await page.waitForFunction(() => document.querySelectorAll('#log > li').length === 1000);
  assert.deepEqual(await said(), tail.map(({ content }) => content));
});
