/** The list of conversations: search, keyboard, repeated imports, deletion and undo.  No action may lose a
 * conversation, so the test reads the browser's database itself. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, test } from 'node:test';
import { FAILING, TINY, open, put, reload, saved, setUp, state, stored } from './chat-page.mjs';

const where = await setUp();
let page;
const titles = () => page.locator('#chats .title').evaluateAll(all => all.map(one => one.firstChild.textContent));
/** The list shows exactly these. @param {...string} expected */
const found = (...expected) => page.waitForFunction(expected =>
  [...document.querySelectorAll('#chats .title')].map(one => one.firstChild.textContent).sort().join() === expected,
expected.sort().join());
const CHATS = [
  { title: 'Tides', messages: [{ role: 'user', content: 'Why does the sea rise?' },
    { role: 'assistant', content: 'The **Moon** pulls at it, and so does the sun. $5 (a+b)* [x]' }] },
  { title: 'Bread', messages: [{ role: 'user', content: 'How long does it rise?' },
    { role: 'assistant', content: `${'Knead it well. '.repeat(200)}Then wait for an hour; ÜBER night is better.` }] },
  { title: 'Moon', messages: [{ role: 'user', content: 'How far is it?' }, { role: 'assistant', content: 'Far.' }] },
];
const everything = async () => (await stored(page)).map(({ title, messages }) =>
  JSON.stringify([title, messages.map(({ role, content }) => [role, content])])).sort();
const json = conversations => ({ name: 'c.json', mimeType: 'application/json',
  buffer: Buffer.from(JSON.stringify({ plumb_chat: 1, conversations })) });
const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.ariaLabel
  || document.activeElement.firstChild?.textContent);

beforeEach(async () => {
  page = await open(where, `?model=${TINY}`, { viewport: { width: 1300, height: 800 }, acceptDownloads: true });
  await state(page, 'ready');
  await put(page, CHATS);
});
afterEach(async () => {
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a search finds words in titles and messages, ignores case, and shows the matches', async () => {
  const before = await everything();
  for (const [query, ...expected] of [['moon', 'Moon', 'Tides'], ['MOON sun', 'Tides'], ['rise', 'Bread', 'Tides'],
    ['  rise   sea ', 'Tides'], ['über', 'Bread'], ['(a+b)* [x]', 'Tides'], ['$5', 'Tides'], ['a-b'], ['\\d'],
    ['', 'Bread', 'Moon', 'Tides']]) {
    await page.fill('#search', query);
    await found(...expected);
  }
  await page.fill('#search', 'hour');
  await found('Bread');
  assert.equal(await page.textContent('#chats mark'), 'hour');
  assert.match(await page.textContent('#chats .title .figures'), /wait for an hour; ÜBER night/);
  assert.equal(await page.textContent('#found'), '1 of 3');
  await page.fill('#search', 'nowhere');
  await page.getByText('No conversation contains these words').waitFor();
  await page.focus('#search');
  await page.keyboard.press('Escape');
  await found('Bread', 'Moon', 'Tides');
  assert.equal(await page.inputValue('#search'), '');
  assert.deepEqual(await everything(), before);
});

test('conversations that a search hides survive an export, a deletion, a new chat and a reload', async () => {
  const before = await everything();
  await page.fill('#search', 'hour');
  await found('Bread');
  const [all] = await Promise.all([page.waitForEvent('download'), page.click('#export-json')]);
  const { conversations } = JSON.parse(readFileSync(await saved(all), 'utf8'));
  assert.deepEqual(conversations.map(({ title }) => title).sort(), ['Bread', 'Moon', 'Tides']);
  await page.locator('#chats li').hover();
  await page.getByRole('button', { name: 'Delete Bread' }).click();
  await found();
  assert.equal((await stored(page)).length, 2);
  await page.getByRole('button', { name: 'Undo' }).click();
  await found('Bread');
  assert.deepEqual(await everything(), before);
  await page.click('#new-chat');
  await found('Bread', 'Moon', 'Tides');
  await page.fill('#search', 'hour');
  await reload(page);
  await state(page, 'ready');
  await page.fill('#search', '');
  await found('Bread', 'Moon', 'Tides');
  assert.deepEqual(await everything(), before);
});

test('each conversation is one Tab stop; arrow keys, F2 and Delete reach its actions', async () => {
  await page.focus('#search');
  const order = [];
  for (let i = 0; i < 4; i++) {
    await page.keyboard.press('Tab');
    order.push(await focused());
  }
  assert.deepEqual(order, [...await titles(), 'import']);
  const [first, second, third] = await titles();
  await page.focus('#search');
  await page.keyboard.press('ArrowDown');
  assert.equal(await focused(), first);
  for (const [key, expected] of [['ArrowRight', `Rename ${first}`], ['ArrowRight', `Delete ${first}`],
    ['ArrowRight', `Delete ${first}`], ['ArrowDown', `Delete ${second}`], ['ArrowLeft', `Rename ${second}`],
    ['ArrowLeft', second], ['End', third], ['ArrowDown', third], ['ArrowUp', second], ['Home', first]]) {
    await page.keyboard.press(key);
    assert.equal(await focused(), expected, key);
  }
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');   // Rename
  await page.keyboard.type('By Enter');
  await page.keyboard.press('ArrowLeft');   // in the text
  await page.keyboard.press('Delete');
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'By Ente');
  await page.keyboard.press('F2');
  await page.keyboard.type('By F2');
  await page.keyboard.press('Escape');
  assert.equal(await focused(), 'By Ente');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Delete');
  await found('By Ente', third);
  assert.equal(await focused(), third, 'the next one has the focus');
});

test('importing a file twice adds nothing; changed and new conversations are added', async () => {
  const before = await everything();
  await page.setInputFiles('#import-file', json(CHATS));
  await page.getByText('3 already exist').waitFor();
  assert.deepEqual(await everything(), before);

  const [all] = await Promise.all([page.waitForEvent('download'), page.click('#export-json')]);
  const file = await saved(all);
  await page.setInputFiles('#import-file', [file, file]);
  await page.getByText('6 already exist').waitFor();
  assert.deepEqual(await everything(), before);
  const exported = JSON.parse(readFileSync(file, 'utf8')).conversations;

  // Another browser: the first import adds all, the second nothing, even after one conversation has continued.
  const other = await open(where, `?model=${FAILING}`, { viewport: { width: 1300, height: 800 } });
  await state(other, 'ready');
  await other.setInputFiles('#import-file', file);
  await other.getByText('Imported 3').waitFor();
  await other.fill('#prompt', 'And then?');
  await other.keyboard.press('Enter');
  await other.locator('#log .problem').waitFor();
  await other.setInputFiles('#import-file', file);
  await other.getByText('3 already exist').waitFor();
  assert.equal((await stored(other)).length, 3);
  assert.ok((await stored(other)).some(({ messages }) => messages[2]?.content === 'And then?'), 'it has not gone back');
  // An export of that browser adds here only the one conversation that is new, and only once.
  const [back] = await Promise.all([other.waitForEvent('download'), other.click('#export-json')]);
  const again = { name: 'again.json', mimeType: 'application/json', buffer: readFileSync(await saved(back)) };
  await other.context().close();
  await page.setInputFiles('#import-file', again);
  await page.getByText('Imported 1; 2 already exist').waitFor();
  await page.setInputFiles('#import-file', again);
  await page.getByText('3 already exist').last().waitFor();
  assert.equal((await stored(page)).length, 4);
  for (const one of before) assert.ok((await everything()).includes(one));

  // A known id with other contents overwrites nothing.
  const n = (await everything()).length;
  const { id } = exported[0];
  await page.setInputFiles('#import-file', json([{ id, title: 'Other',
    messages: [{ role: 'user', content: 'Other words' }, { role: 'assistant', content: 'Yes' }] }]));
  await page.getByText('Imported 1', { exact: true }).waitFor();
  assert.equal((await everything()).length, n + 1);
  for (const one of before) assert.ok((await everything()).includes(one));
});

test('two conversations in a file are both imported even if one is a prefix of the other', async () => {
  const messages = [{ role: 'user', content: 'Begin' }, { role: 'assistant', content: 'Begun' },
    { role: 'user', content: 'Go on' }, { role: 'assistant', content: 'Gone' }];
  const file = json([{ id: 'a', title: 'Short', messages: messages.slice(0, 2) },
    { id: 'b', title: 'Long', messages }]);
  await page.setInputFiles('#import-file', file);
  await page.getByText('Imported 2').waitFor();
  await found('Bread', 'Moon', 'Tides', 'Short', 'Long');
  await page.setInputFiles('#import-file', file);
  await page.getByText('2 already exist').waitFor();
  await found('Bread', 'Moon', 'Tides', 'Short', 'Long');
});

test('Undo stays for as long as the reader needs, and restores everything that was deleted', async () => {
  const before = await everything();
  await page.clock.install();
  const line = page.locator('#toast p', { hasText: 'Deleted' }), undo = page.getByRole('button', { name: 'Undo' });
  await page.locator('#chats .title').first().focus();
  const [first] = await titles();
  await page.keyboard.press('Delete');
  assert.equal(await line.textContent(), `Deleted “${first}”Undo`);
  await page.clock.fastForward('10:00:00');
  assert.equal(await undo.count(), 1, 'after ten hours');
  await page.keyboard.press('Delete');
  assert.equal(await line.count(), 1);
  assert.match(await line.textContent(), /^Deleted 2 conversations/);
  assert.equal((await stored(page)).length, 1);
  await undo.focus();
  await page.keyboard.press('Enter');
  await found('Bread', 'Moon', 'Tides');
  assert.deepEqual(await everything(), before);
  assert.equal(await focused(), 'prompt');

  await page.locator('#chats .title').first().focus();
  await page.keyboard.press('Delete');
  await page.getByRole('button', { name: /^Dismiss: Deleted/ }).click();
  assert.equal(await undo.count(), 0);
  await page.locator('#chats .title').first().focus();
  await page.keyboard.press('Delete');
  await undo.click();
  assert.equal((await stored(page)).length, 2, 'what was dismissed does not come back');
});
