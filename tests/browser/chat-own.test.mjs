/** What a conversation has of its own: its model, system prompt, schema and settings, shown where one writes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { server, tiny } from '../node/helpers.mjs';
import {
  TINY, answer, begin, examineAll, open, openForAll, put, reload, setUp, state, stored, until, whole,
} from './chat-page.mjs';

const where = await setUp(), page = await openForAll(where);
const chip = name => page.locator('#chips').getByRole('button', { name, exact: true });
const one = async title => (await stored(page)).find(chat => chat.title === title);
const saved = (title, own) =>
  until(async () => JSON.stringify((await one(title)).own) === JSON.stringify(own), `${title} with its own settings`);

test('a system prompt and settings of one conversation are kept with it and are not those of another', async () => {
  await put(page, ['One', 'Two'].map(title => ({ title, messages: [{ role: 'user', content: `${title}?` },
    { role: 'assistant', content: 'Yes.' }] })));
  await chip('System prompt').focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('#own[open]');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'own-set-system');
  await page.keyboard.type('Be brief.');
  await page.fill('#own-set-maxTokens', '2');
  await page.keyboard.press('Escape');
  await chip('1 option').waitFor();
  assert.equal(await chip('System prompt').getAttribute('data-set'), 'true');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'chip-system', 'the focus is back');
  await saved('Two', { system: 'Be brief.', maxTokens: 2 });
  await answer(page, 'And now?');
  assert.match(await page.textContent('#log > li:last-child .figures'), /^2 tokens/);
  await page.getByRole('button', { name: 'One', exact: true }).click();
  assert.equal(await chip('System prompt').getAttribute('data-set'), 'false');
  await answer(page, 'And now?');
  assert.match(await page.textContent('#log > li:last-child .figures'), /^4 tokens/);
  await reload(page);
  await state(page, 'ready');
  await page.getByRole('button', { name: 'Two', exact: true }).click();
  await chip('1 option').click();
  await page.waitForSelector('#own[open]');
  assert.equal(await page.inputValue('#own-set-system'), 'Be brief.');
  await page.getByRole('button', { name: 'Same as the page' }).click();
  await page.locator('#own').getByRole('button', { name: 'Done' }).click();
  await chip('Options').waitFor();
  await saved('Two', undefined);
});

test('a value that is not allowed is not kept, and stored ones that are not are left out', async () => {
  await chip('Schema').click();
  await page.waitForSelector('#own[open]');
  await page.fill('#own-set-topP', '3');
  await page.locator('#own').getByRole('button', { name: 'Done' }).click();
  await page.getByText('Correct this value').waitFor();
  await page.fill('#own-set-topP', '0.5');
  await page.locator('#own').getByRole('button', { name: 'Done' }).click();
  await saved('Two', { topP: 0.5 });
  await put(page, [{ title: 'Bad', own: { topP: 7, threads: 2, __proto__: 1, nothing: 3, temperature: 0.5, system: 7 },
    model: { name: 7 }, messages: [{ role: 'user', content: 'Bad?' }, { role: 'assistant', content: 'Yes.' }] }]);
  await saved('Bad', { temperature: 0.5 });
  assert.equal((await one('Bad')).model, undefined);
});

test('a conversation of another model says so, and goes on only when the reader has decided', async () => {
  await put(page, [{ title: 'Other', model: { name: 'Otto 7B', source: `${where.url}build/chat/none.gguf` },
    messages: [{ role: 'user', content: 'Other?' }, { role: 'assistant', content: 'Yes.' }] }]);
  await page.getByText('The last answer is from Otto 7B.').waitFor();
  await page.fill('#prompt', 'And now?');
  await page.keyboard.press('Enter');
  await page.getByText('Choose which model goes on').waitFor();
  assert.equal(await page.locator('#log > li').count(), 3, 'no answer yet');
  await begin(page, () => page.getByRole('button', { name: /^Go on with/ }).click());
  await whole(page, 4);
  assert.equal(await page.isVisible('#other-model'), false);
  assert.notEqual((await one('Other')).model.name, 'Otto 7B');
});

test('the model of a conversation from another server is shown before anything is sent to it', async t => {
  await put(page, [{ title: 'Far', model: { name: 'Far 7B', source: 'javascript:alert(1)' },
    messages: [{ role: 'user', content: 'Far?' }, { role: 'assistant', content: 'Yes.' }] }]);
  await page.getByRole('button', { name: 'Load Far 7B' }).click();
  await page.getByText('That is not the address of a file.').waitFor();
  await page.keyboard.press('Escape');
  const asked = [], far = await server(t, (request, response) => {
    asked.push(request.method);
    response.writeHead(200, { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin' })
      .end(tiny);
  });
  await put(page, [{ title: 'Farther', model: { name: 'Far 8B', source: `${far}model.gguf` },
    messages: [{ role: 'user', content: 'Farther?' }, { role: 'assistant', content: 'Yes.' }] }]);
  await page.getByRole('button', { name: 'Load Far 8B' }).click();
  await page.getByText('Nothing was sent yet.').waitFor();
  assert.equal(await page.inputValue('#url'), `${far}model.gguf`);
  await fetch(`${far}first`);   // what the page has sent before arrives before
  assert.equal(asked.length, 1);
  await page.click('#look');
  await page.locator('#plan button').first().waitFor();
  assert.ok(asked.length > 1);
  assert.deepEqual(page.problems.splice(0).filter(problem => !problem.startsWith(far)), []);
  await page.keyboard.press('Escape');
  assert.equal(await page.getAttribute('body', 'data-state'), 'ready', 'the model is still there');
});

test('axe finds no violations in what a conversation has of its own', async () => {
  const other = await open(where, `?model=${TINY}`, { reducedMotion: 'reduce' });
  await state(other, 'ready');
  await put(other, [{ title: 'Other', model: { name: 'Otto 7B', source: 'https://example.com/otto.gguf' },
    own: { system: 'Be brief.', temperature: 0.5 },
    messages: [{ role: 'user', content: 'Other?' }, { role: 'assistant', content: 'Yes.' }] }]);
  await examineAll(other, 'other-model');
  await other.click('#chip-system');
  await other.waitForSelector('#own[open]');
  await examineAll(other, 'own');
  await other.close();
});
