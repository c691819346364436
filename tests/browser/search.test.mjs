/** The search page: notes are added, found by meaning, kept for the next visit, and deleted. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { open, screenshot, setUp, state } from './chat-page.mjs';

const where = { ...await setUp(), path: 'web/examples/search/' };
let page;
beforeEach(async () => {
  page = await open(where, '', { viewport: { width: 1000, height: 900 } });
});
afterEach(async () => {
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

const file = (name, text) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(text) });
/** Waits until the notes have n passages in all. */
const indexed = (page, n) => page.waitForFunction(n => {
  const figures = [...document.querySelectorAll('#notes .figures')];
  return figures.reduce((sum, { textContent }) => sum + Number.parseInt(textContent), 0) === n;
}, n, { timeout: 60000 });
/** Searches, and waits for the first passage. */
async function search(page, query, first) {
  await page.fill('#prompt', query);
  await page.press('#prompt', 'Enter');
  await page.waitForFunction(first => document.querySelector('#results p')?.textContent.includes(first), first,
    { timeout: 20000 });
}

test('notes that were written and opened are found by meaning, also after a reload, and are deleted', async () => {
  await page.fill('#note-text', '# Kitchen\n\nBake the loaf for forty minutes.\n\nThe fridge hums at night.');
  await page.click('#add');
  await page.setInputFiles('#note-files', [
    file('garden.txt', 'Water the tomatoes every morning.\n\nPrune the apple tree in February.'),
    file('picture.txt', 'PNG\0\0'),
  ]);
  await page.getByText('Not added: picture.txt.').waitFor();
  await state(page, 'ready');
  await indexed(page, 4);
  await search(page, 'How long does bread stay in the oven?', 'Bake the loaf for forty minutes.');
  await search(page, 'When are fruit trees cut?', 'Prune the apple tree in February.');
  const scores = await page.locator('#results .figures').allTextContents();
  assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
  assert.equal(scores.length, 4);
  await screenshot(page, 'search');
  await page.locator('#results button').first().click();
  assert.equal(await page.textContent('#note-title'), 'garden.txt');
  assert.equal(await page.textContent('#note mark'), 'Prune the apple tree in February.');
  await page.keyboard.press('Escape');

  await page.reload();
  assert.equal(await page.locator('#notes li').count(), 2);
  await state(page, 'ready');
  await indexed(page, 4);
  await search(page, 'Which machine is loud?', 'The fridge hums at night.');
  await page.getByRole('button', { name: 'Delete garden.txt' }).click();
  await indexed(page, 2);
  await page.getByRole('button', { name: 'Undo' }).click();
  await indexed(page, 4);
  await page.click('#clear');
  await page.getByText('There are no notes yet.').waitFor();
  await page.reload();
  await state(page, 'ready');
  await page.getByText('There are no notes yet.').waitFor();
});

test('wrong records are skipped, and without a database the notes last as long as the page', async () => {
  await page.fill('#note-text', 'A note that stays.');
  await page.click('#add');
  await state(page, 'ready');
  await indexed(page, 1);
  await page.evaluate(() => new Promise((resolve, reject) => {
    const opening = indexedDB.open('plumb-search', 1);
    opening.onerror = reject;
    opening.onsuccess = () => {
      const change = opening.result.transaction('notes', 'readwrite'), store = change.objectStore('notes');
      store.put({ id: 'a', name: 7, text: 'x' });
      store.put({ id: 'b', name: 'b', text: 'The index of this one is wrong.', index: { model: 'x',
        bounds: Uint32Array.of(5, 1e9), vectors: Float32Array.of(NaN) } });
      change.oncomplete = () => {
        opening.result.close();
        resolve();
      };
    };
  }));
  await page.reload();
  await state(page, 'ready');
  await indexed(page, 2);
  await search(page, 'a faulty index', 'The index of this one is wrong.');

  const closed = await open(where, '', {}, page => page.addInitScript(() => {
    IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); };
  }));
  await state(closed, 'ready');
  await closed.click('#example');
  await closed.getByText('Not saved: the browser cannot store the notes.').waitFor();
  await search(closed, 'When do I need other tyres?', 'The winter tyres are in the cellar');
  assert.deepEqual(closed.problems, []);
  await closed.context().close();
});

test('a model that computes no embeddings is refused with advice', async () => {
  const other = await open(where, '?model=/tests/vectors/synth/f32.gguf');
  await state(other, 'failed');
  await other.getByText('This model cannot search notes').waitFor();
  assert.deepEqual(other.problems, []);
  await other.context().close();
});
