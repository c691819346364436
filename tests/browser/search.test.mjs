/** The search page: notes are added, found by meaning, kept for the next visit, and deleted. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { root } from '../node/helpers.mjs';
import { examineAll, open, screenshot, setUp, state, tabTo, usable, visits } from './chat-page.mjs';

const TINY = '?model=/tests/vectors/synth/f32.gguf';   // it makes no index, so it is for what needs none
const where = { ...await setUp(), path: 'web/examples/search/' };
const visit = visits(where, { viewport: { width: 1000, height: 900 } });

const file = (name, text) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(text) });
/** Waits until the notes have n passages in all. */
const indexed = (page, n) => page.waitForFunction(n => {
  const figures = [...document.querySelectorAll('#notes .figures')];
  return figures.reduce((sum, { textContent }) => sum + Number.parseInt(textContent), 0) === n;
}, n);
/** Searches, and waits for the first passage. */
async function search(page, query, first) {
  await page.fill('#prompt', query);
  await page.press('#prompt', 'Enter');
  await page.waitForFunction(first => document.querySelector('#results p')?.textContent.includes(first), first);
}

test('notes that were written and opened are found by meaning, also after a reload, and are deleted', async () => {
  const page = await visit();
  await usable(page);
  await page.fill('#note-text', '# Kitchen\n\nBake the loaf for forty minutes.\n\nThe fridge hums at night.');
  await page.click('#add');
  await page.setInputFiles('#note-files', [
    file('garden.txt', 'Water the tomatoes every morning.\n\nPrune the apple tree in February.'),
    file('picture.txt', 'PNG\0\0'),
  ]);
  await page.getByText('Not added: picture.txt. It is not a text.').waitFor();
  await state(page, 'ready');
  await indexed(page, 4);
  await search(page, 'How long does bread stay in the oven?', 'Bake the loaf for forty minutes.');
  await search(page, 'When are fruit trees cut?', 'Prune the apple tree in February.');
  const scores = await page.locator('#results .figures').allTextContents();
  assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
  assert.equal(scores.length, 4);
  await screenshot(page, 'search');
  await page.locator('#results button').first().click();
  assert.equal(await page.textContent('#document-title'), 'garden.txt');
  assert.equal(await page.textContent('#document mark'), 'Prune the apple tree in February.');
  await page.keyboard.press('Escape');

  await page.reload();
  await state(page, 'ready');
  assert.equal(await page.locator('#notes li').count(), 2);
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

test('with the keyboard alone a note is written, found, opened and deleted', async () => {
  const page = await visit();
  await usable(page);
  await tabTo(page, '#note-text');
  await page.keyboard.type('The fridge hums at night.');
  await tabTo(page, '#add');
  await page.keyboard.press('Enter');
  await state(page, 'ready');
  await indexed(page, 1);
  await tabTo(page, '#prompt');
  await page.keyboard.type('Which machine is loud?');
  await page.keyboard.press('Enter');
  await page.locator('#results p', { hasText: 'The fridge hums' }).waitFor();
  await tabTo(page, '#results button');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#document[open] mark');
  await page.keyboard.press('Escape');
  assert.ok(await page.evaluate(() => document.activeElement?.matches('#results button')), 'the focus is back');
  await tabTo(page, '#notes button[aria-label^=Delete]');
  await page.keyboard.press('Enter');
  await page.getByText('There are no notes yet.').waitFor();
});

test('a question is answered by a quote that leads to its place; one that is far from all notes is not', async () => {
  const page = await visit();
  await usable(page);
  await state(page, 'ready');
  await page.click('#example');
  await indexed(page, 5);
  const ask = async question => {
    await page.fill('#prompt', question);
    await page.click('#ask');
  };
  const answered = async () => {
    await page.waitForSelector('#answer[aria-busy=false]');
    return page.textContent('#answer-text');
  };
  await ask('Which football club won the cup in 1998?');
  assert.equal(await answered(), 'Not found in your notes.');
  await ask('How long does a loaf stay in the oven?');
  await page.locator('#answer .strip').waitFor();
  await examineAll(page, 'search-choice');
  await page.getByRole('button', { name: /SmolLM2 135M, quotes/ }).click();
  assert.match(await answered(), /^\[1\] “Bake the loaf for forty minutes/);
  assert.match(await page.locator('.places .used').textContent(), /^\[1\]Exampleline 5Bake the loaf/);
  await examineAll(page, 'search-answer');
  await page.locator('#answer-text button').click();
  assert.match(await page.textContent('#document mark'), /^Bake the loaf/);
  await page.keyboard.press('Escape');
  await ask('When is the next inspection of the car?');   // the model is there
  assert.match(await answered(), /“The next inspection is due in October.”$/);
  // The other model, for which the default one stands here, writes freely.
  await page.route('**/models/qwen*', route => route.fulfill({ status: 302,
    headers: { location: '/models/SmolLM2-135M-Instruct.Q4_1.gguf' } }));
  await page.click('#answer-model');
  await page.getByRole('button', { name: /Qwen2.5-Coder 0.5B, writes/ }).click();
  assert.match(await answered(), /^The next inspection of the car is /);
  assert.match(await page.textContent('#answer-about'), /^Qwen2\.5-Coder 0\.5B/);
  await page.evaluate(() => localStorage.setItem('plumb.search.answers', '"smollm2:135m"'));
  await page.reload();
  await indexed(page, 5);
  await ask('When do I cut the tree?');   // the copy of the first is there
  assert.match(await answered(), /Prune the apple tree/);
});

test('wrong records are skipped, and without a database the notes last as long as the page', async () => {
  const page = await visit();
  await usable(page);
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

  const closed = await visit('', page => page.addInitScript(() => {
    IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); };
  }));
  await state(closed, 'ready');
  await closed.click('#example');
  await closed.getByText('Not saved: the browser cannot store the notes.').waitFor();
  await search(closed, 'When do I need other tyres?', 'The winter tyres are in the cellar');
});

test('an index is used only with a model that has the same bytes', async () => {
  const path = 'tests/vectors/embed/bert.gguf', bytes = readFileSync(`${root}${path}`);
  const other = await visit(`?model=/${path}`);
  await state(other, 'ready');
  await other.fill('#note-text', 'One.\n\nTwo.');
  await other.click('#add');
  const indexes = async () => {
    await other.fill('#prompt', '');
    await other.press('#prompt', 'Enter');
    await other.waitForFunction(() => !document.querySelector('#results p'));
    await search(other, 'One', '');   // when there is a result, the index is that of the model
    return other.evaluate(() => new Promise((resolve, reject) => {
      const opening = indexedDB.open('plumb-search', 1);
      opening.onerror = reject;
      opening.onsuccess = () => {
        const asking = opening.result.transaction('notes').objectStore('notes').getAll();
        asking.onsuccess = () => {
          opening.result.close();
          resolve(asking.result.map(({ index }) => [index.model, [...index.vectors]]));
        };
      };
    }));
  };
  const first = await indexes();
  const load = async buffer => {
    await other.click('#model');
    await other.setInputFiles('#file', { name: 'bert.gguf', mimeType: '', buffer });
    await other.waitForFunction(() => document.querySelector('#models:not([open])'));
  };
  await load(bytes);
  assert.deepEqual(await indexes(), first, 'the copy of a URL and a file with the same bytes share the index');
  const changed = Buffer.from(bytes);
  changed[changed.length - 5] ^= 0x40;   // a weight of the last tensor
  await load(changed);
  assert.notEqual((await indexes())[0][0], first[0][0]);
});

test('a model that computes no embeddings is refused with advice', async () => {
  const other = await visit(TINY);
  await state(other, 'failed');
  await other.getByText('This model cannot search notes').waitFor();
});

test('after a pause, a note is read on from where it was', async () => {
  const page = await visit();
  await usable(page);
  await state(page, 'ready');
  const shown = page.evaluate(() => new Promise(resolve => {
    const text = document.querySelector('#indexing-text');
    new MutationObserver((_, observer) => {
      if (!text.textContent.startsWith('16 of 40')) return;
      observer.disconnect();
      document.querySelector('#pause').click();
      [...document.querySelectorAll('#toast button')].find(({ textContent }) => textContent === 'Go on').click();
      resolve(text.textContent);
    }).observe(text, { childList: true });
  }));
  const sentences = Array.from({ length: 40 }, (_, i) => `The sky of day ${i} was blue.`);
  sentences[19] = 'The fridge hums at night.';
  await page.fill('#note-text', sentences.join('\n\n'));
  await page.click('#add');
  assert.equal(await shown, '16 of 40 passages');
  await indexed(page, 40);
  await search(page, 'Which machine is loud?', 'The fridge hums at night.');
});

test('deleting the only note of a tab leaves those that another tab has added', async () => {
  const tab = await visit(TINY);
  await usable(tab);
  await tab.fill('#note-text', 'One');
  await tab.click('#add');
  await tab.getByText('Added 1 note').waitFor();
  const other = await tab.context().newPage();
  await other.goto(tab.url());
  await usable(other);
  await other.fill('#note-text', 'Two');
  await other.click('#add');
  await other.getByText('Added 1 note').waitFor();
  await tab.getByRole('button', { name: 'Delete One' }).click();
  await tab.getByText('Deleted “One”').waitFor();
  await tab.reload();
  await usable(tab);
  assert.deepEqual(await tab.locator('#notes .title span:first-child').allTextContents(), ['Two']);
});

test('a click before the notes are there has no effect', async () => {
  const early = await visit(TINY, page => page.addInitScript(() => {
    IDBFactory.prototype.open = () => (window.opening = {});
  }));
  await early.waitForFunction(() => window.opening?.onerror);
  await early.locator('#add').click({ force: true });
  await early.evaluate(() => window.opening.onerror());   // the page goes on without a database
  await usable(early);
  await early.fill('#note-text', 'One');
  await early.click('#add');
  await early.getByText('Added 1 note').waitFor();
});
