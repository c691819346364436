/** Two tabs of the chat page with the same conversations.  Ground truth: the browser's database, which the test reads
 * itself. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { FAILING, LONG, ask, open, put, setUp, state, stored, until } from './chat-page.mjs';

const where = await setUp(undefined, { tree: true });
const titles = page => page.locator('#chats .title').allTextContents();
/** The questions in each conversation, in order. */
const questions = async page => (await stored(page)).map(({ messages }) =>
  messages.filter(({ role }) => role === 'user').map(({ content }) => content).join(' | ')).sort();
const listed = (page, n) => page.waitForFunction(n => document.querySelectorAll('#chats li').length === n, n);

let a, b;
beforeEach(async () => {
  a = await open(where, `?model=${FAILING}`);
  await state(a, 'ready');
  await put(a, [{ title: 'Shared', messages: [{ role: 'user', content: 'First?' },
    { role: 'assistant', content: 'Yes.' }] }]);
  b = await a.context().newPage();
  b.problems = a.problems;
  b.on('pageerror', error => b.problems.push(String(error)));
  await b.goto(a.url());
  await state(b, 'ready');
  assert.match(await b.textContent('#log'), /First\?/);
});
afterEach(async () => {
  assert.deepEqual(a.problems, []);
  await a.context().close();
});

/** Sends a message that this model cannot answer; the failure is part of the conversation.  Returns when it is stored:
 * a tab that reads the conversation before would have an old version. */
async function say(page, text) {
  await page.fill('#prompt', text);
  await page.keyboard.press('Enter');
  await page.locator('#log > .user', { hasText: text }).waitFor();
  await page.locator('#log > li:last-child .problem').waitFor();
  const isStored = async () => (await stored(page)).some(({ messages }) =>
    messages.at(-1).problem && messages.at(-2)?.content === text);
  await until(isStored, text);
}

test('a conversation continued in two tabs becomes the original and one copy, and both tabs list both', async () => {
  await say(a, 'Said in A.');
  await b.getByText('Another tab has continued this conversation').waitFor();
  await say(b, 'Said in B.');
  await say(b, 'More in B.');
  await say(a, 'More in A.');
  await b.getByText('This tab continues in a copy: “Shared (copy)”').waitFor();
  assert.deepEqual(await questions(a), ['First? | Said in A. | More in A.', 'First? | Said in B. | More in B.']);
  for (const page of [a, b]) {
    await listed(page, 2);
    assert.deepEqual((await titles(page)).sort(), ['Shared', 'Shared (copy)']);
  }
  assert.equal(await a.getByText('in a copy').count(), 0, 'nothing happened to the conversation of the first tab');
  assert.equal(await b.locator('#chats [aria-current]').textContent(), 'Shared (copy)');
  await b.getByRole('button', { name: 'Shared', exact: true }).click();
  assert.match(await b.textContent('#log'), /More in A\./);
});

test('if both tabs write at the same time, there are two conversations, each with one tab\'s turn', async () => {
  for (const [page, text] of [[a, 'Said in A.'], [b, 'Said in B.']]) await page.fill('#prompt', text);
  await Promise.all([a.click('#send'), b.click('#send')]);
  for (const page of [a, b]) await page.locator('#log > li:last-child .problem').waitFor();
  for (const page of [a, b]) await listed(page, 2);
  assert.deepEqual(await questions(a), ['First? | Said in A.', 'First? | Said in B.']);
});

test('consecutive writes of one tab make only one copy', async () => {
  const made = await b.evaluate(async () => {
    const { openStore } = await import('/web/chat/conversation/conversation-store.js');
    const quiet = { saving() {}, diverged() {}, removed() {}, changed() {} };
    const [one, two] = [await openStore(quiet), await openStore(quiet)];
    const [{ id }] = one.list();
    one.get(id).messages.push({ role: 'user', content: 'one' });
    await one.put(one.get(id));
    const stale = two.list()[0];
    stale.messages.push({ role: 'user', content: 'two' });
    await Promise.all([two.put(stale), two.put(stale), two.put(stale)]);
    stale.messages.push({ role: 'assistant', content: 'three' });
    await two.put(stale);
  });
  assert.equal(made, undefined);
  assert.deepEqual(await questions(a), ['First? | one', 'First? | two']);
});

test('a tab that only reads is notified, and shows the other tab\'s text on request', async () => {
  await say(a, 'Said in A.');
  await b.getByRole('button', { name: 'Show it' }).click();
  assert.match(await b.textContent('#log'), /Said in A\./);
  await say(b, 'Said in B.');
  assert.deepEqual(await questions(a), ['First? | Said in A. | Said in B.']);
});

test('new conversations, names, imports and deletions appear in the list of the other tab', async () => {
  await a.click('#new-chat');
  await say(a, 'Another one.');
  await listed(b, 2);
  await a.locator('#chats li', { hasText: 'Shared' }).hover();
  await a.getByRole('button', { name: 'Rename Shared' }).click();
  await a.keyboard.type('Renamed');
  await a.keyboard.press('Enter');
  await b.locator('#chats').getByRole('button', { name: 'Renamed', exact: true }).waitFor();
  await put(a, Array.from({ length: 30 }, (_, i) => ({ title: `Import ${i}`,
    messages: [{ role: 'user', content: `q${i}` }, { role: 'assistant', content: 'a' }] })));
  await listed(b, 32);
  await a.locator('#chats li', { hasText: 'Renamed' }).hover();
  await a.getByRole('button', { name: 'Delete Renamed' }).click();
  await listed(b, 31);
  assert.match(await b.textContent('#log'), /First\?/, 'what is being read stays');
  await a.getByRole('button', { name: 'Undo' }).click();
  await listed(b, 32);
  assert.equal((await stored(b)).length, 32);
});

test('renaming a conversation in one tab does not fork it while the other tab continues it', async () => {
  await b.locator('#chats li', { hasText: 'Shared' }).hover();
  await b.getByRole('button', { name: 'Rename Shared' }).click();
  await b.keyboard.type('Renamed');
  await b.keyboard.press('Enter');
  await a.locator('#chats').getByRole('button', { name: 'Renamed', exact: true }).waitFor();
  await say(a, 'Said in A.');
  assert.deepEqual((await stored(a)).map(({ title }) => title), ['Renamed']);
});

test('a conversation that one tab deletes while the other writes to it is not lost', async () => {
  await b.locator('#chats li', { hasText: 'Shared' }).hover();
  await b.getByRole('button', { name: 'Delete Shared' }).click();
  await listed(a, 0);
  await say(a, 'Said in A.');
  await listed(b, 1);
  assert.deepEqual(await questions(a), ['First? | Said in A.']);
  const [{ revision }] = await stored(b);   // it is no longer one that B has deleted: B stores its answers again
  await b.locator('#chats li').click();
  await b.getByRole('button', { name: 'Try again' }).click();
  for (let i = 0; i < 200 && (await stored(b))[0].revision === revision; i++) await b.waitForTimeout(100);
  assert.notEqual((await stored(b))[0].revision, revision);
});

test('an answer that streams in one tab while another tab deletes its conversation is kept completely', async () => {
  const real = await open(where);
  await state(real, 'ready');
  const other = await real.context().newPage();
  await other.goto(`${where.url}web/chat/?model=${FAILING}`);
  await ask(real, LONG);
  await listed(other, 1);
  await other.locator('#chats li').hover();
  await other.getByRole('button', { name: /^Delete/ }).click();
  await other.getByText('Deleted “').waitFor();
  const length = (await real.textContent('#log > .assistant .text')).length;
  await real.waitForFunction(n => document.querySelector('#log > .assistant .text').textContent.length > n + 40,
    length);
  await real.keyboard.press('Escape');
  await state(real, 'ready');
  const said = await real.textContent('#log > .assistant .text');
  await listed(other, 1);
  const [{ messages }] = await stored(real);
  const letters = text => text.replace(/[^\p{L}\p{N}]/gu, '');   // without Markdown syntax
  assert.equal(letters(messages[1].content), letters(said));
  assert.ok(messages[1].content.length > length);
  await real.context().close();
});

test('both tabs have one engine', () => {
  const engines = page => page.workers().filter(worker => worker.url().includes('engine-worker')).length;
  assert.deepEqual([a, b].map(engines).sort(), [0, 1]);
});
