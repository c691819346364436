/** Documents in the chat page: attached by the button, by dropping and by pasting, refused, searched, shown at their
 * places, kept for the next visit, exported and imported; hostile ones run nothing and send nothing.  The licences are
 * texts that others wrote, so their places are known. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { hostilePdfs, inColumns } from '../pdf.mjs';
import { examineAll, reload, saved, screenshot, setUp, state, stored, visits, whole } from './chat-page.mjs';

const SMALL = '?model=/tests/vectors/synth/f32.gguf', SMOL = '?model=/models/SmolLM2-135M-Instruct.Q4_1.gguf';
const where = await setUp();
const visit = visits(where, { viewport: { width: 1280, height: 860 } });

const file = (name, content, mimeType = 'text/plain') => ({ name, mimeType, buffer: Buffer.from(content) });
const licence = name => file(`${name}.txt`, readFileSync(`/usr/share/common-licenses/${name}`));
const attach = (page, ...files) => page.setInputFiles('#attach-file', files);
/** Waits until so many documents are attached and none is being read. */
const attached = (page, n) => page.waitForFunction(n => document.querySelectorAll('#attached li').length === n
  && !document.querySelector('#attached progress'), n);
const refused = (page, text) => page.getByText(text).waitFor({ timeout: 10000 });
async function setLimit(page, tokens) {
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', String(tokens));
  await page.getByRole('button', { name: 'Done' }).click();
}
/** Asks about what is attached, and waits for the answer. */
async function ask(page, question) {
  const before = await page.locator('#log > li').count();
  await page.fill('#prompt', question);
  await page.keyboard.press('Enter');
  return async () => {
    await whole(page, before + 2);
    return (await page.locator('#log > .assistant .text').last().textContent()).trim();
  };
}
test('files are attached by the button, by dropping and by pasting, and removed; others are refused', async () => {
  const page = await visit(SMALL);
  await state(page, 'ready');
  await attach(page, file('a.md', '# Title\n\nText.'), file('old.txt', Buffer.from('Gr\xfc\xdfe \x80', 'latin1')),
    file('paper.pdf', inColumns('Title', ['Some words '.repeat(30)]), 'application/pdf'));
  await attached(page, 3);
  const transfer = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(['x,y\n1,2'], 'table.csv'));
    return data;
  });
  await page.dispatchEvent('#scroll', 'drop', { dataTransfer: transfer });
  await attached(page, 4);
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(['def f(): pass'], 'f.py'));
    const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true });
    document.querySelector('#prompt').dispatchEvent(event);
  });
  await attached(page, 5);
  assert.deepEqual((await page.locator('#attached li').allTextContents()).sort(),
    ['a.md1 kB', 'f.py1 kB', 'old.txt1 kB', 'paper.pdf2 kB  ·  1 page', 'table.csv1 kB']);
  await attach(page, file('picture.png', Buffer.from('\x89PNG\r\n\x1a\n\0', 'latin1')), file('empty.txt', ''),
    file('\u202e<img src=x onerror=alert(1)>.txt', 'a\0b'));
  await refused(page, 'Not attached: picture.png. It is a picture, which cannot be read as text.');
  await refused(page, 'Not attached: empty.txt. It is empty.');
  await refused(page, 'Not attached: <img src=x onerror=alert(1)>.txt. It is not a text.');
  await page.evaluate(() => {   // a file of a gigabyte that is not there
    const file = new File(['x'], 'huge.txt');
    Object.defineProperty(file, 'size', { value: 1e9 });
    const data = new DataTransfer();
    Object.defineProperty(data, 'files', { value: [file] });
    const event = new ClipboardEvent('paste', { bubbles: true });
    Object.defineProperty(event, 'clipboardData', { value: data });
    document.querySelector('#prompt').dispatchEvent(event);
  });
  await refused(page, 'Not attached: huge.txt. It is larger than 50 MB.');
  await page.getByRole('button', { name: 'Remove table.csv' }).focus();
  await page.keyboard.press('Enter');
  await attached(page, 4);
  await examineAll(page, 'documents-attached');
});

test('a short document is given as a whole, also after a reload; its text is shown', async () => {
  const page = await visit(SMALL);
  await state(page, 'ready');
  await attach(page, file('old.txt', Buffer.from('Gr\xfc\xdfe \x80 and \x93quotes\x94', 'latin1')));
  await attached(page, 1);
  await (await ask(page, 'What is it?'))();
  const [{ messages: [question] }] = await stored(page);
  // The bytes of Unicode's table CP1252.TXT.
  assert.equal(question.documents[0].text, 'Grüße € and “quotes”');
  assert.equal(question.documents[0].whole, true);
  await reload(page);
  await state(page, 'ready');
  await page.locator('#log .chips button').click();
  assert.equal(await page.textContent('#document .plain'), 'Grüße € and “quotes”');
  await page.keyboard.press('Escape');
});

test('a long document is searched by words or by meaning; places lead into it, and are kept and exported', async () => {
  const page = await visit(SMOL);
  await state(page, 'ready');
  await setLimit(page, 8);
  await attach(page, licence('MPL-2.0'));
  await attached(page, 1);
  const first = await ask(page, 'How many days do I have to cure a first violation after a notice?');
  await page.getByRole('button', { name: 'Search by words only' }).waitFor();
  await examineAll(page, 'documents-choice');
  await page.getByRole('button', { name: 'Download 25 MB' }).click();
  await first();
  await page.locator('.places li').first().waitFor();
  const places = await page.locator('.places blockquote').allTextContents();
  assert.ok(places.length <= 4);
  assert.ok(places.some(text => /30 days\s+after\s+Your\s+receipt/.test(text)), places.join('\n'));
  await examineAll(page, 'documents-places');
  const at = places.findIndex(text => /30 days\s+after\s+Your\s+receipt/.test(text));
  await page.locator('.places button').nth(at).focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('#document[open] mark');
  assert.match(await page.textContent('#document mark'), /30 days\s+after\s+Your\s+receipt/);
  const seen = await page.locator('#document mark').evaluate(mark => {
    const { top } = mark.getBoundingClientRect(), box = mark.closest('.body').getBoundingClientRect();
    return top >= box.top && top < box.bottom;
  });
  assert.ok(seen, 'the place is in view');
  await examineAll(page, 'documents-viewer');
  await page.keyboard.press('Escape');
  assert.equal(await (await ask(page, 'Which football club won the cup in 1998?'))(), 'Not found in the documents.');

  await reload(page);
  await state(page, 'ready');
  assert.deepEqual(await page.locator('.places blockquote').allTextContents(), places);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export-json')]);
  const path = await saved(download);
  const other = await visit(SMALL);
  await other.setInputFiles('#import-file', path);
  await other.locator('.places li').first().waitFor();
  assert.deepEqual(await other.locator('.places blockquote').allTextContents(), places);
  await other.locator('.places button').first().click();
  assert.ok(await other.textContent('#document mark'));
});

test('10 MB of notes are read and searched; the longest task of the page is printed', async t => {
  const page = await visit(SMOL);
  await state(page, 'ready');
  await setLimit(page, 4);
  const gpl = readFileSync('/usr/share/common-licenses/GPL-3', 'utf8');
  await page.evaluate(async gpl => {
    localStorage['plumb.documents.by-words'] = 'true';
    const half = gpl.repeat(Math.ceil(5e6 / gpl.length));
    const notes = `${half}\n\nThe spare key of the boat house hangs behind the barometer.\n\n${half}`;
    const data = new DataTransfer();
    data.items.add(new File([notes], 'notes.txt'));
    await new Promise(resolve => setTimeout(resolve, 100));
    globalThis.longest = 0;
    new PerformanceObserver(list => list.getEntries().forEach(({ duration }) => {
      globalThis.longest = Math.max(globalThis.longest, duration);
    })).observe({ type: 'longtask' });
    const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true });
    document.querySelector('#prompt').dispatchEvent(event);
  }, gpl);
  await attached(page, 1);
  await (await ask(page, 'Where does the spare key of the boat house hang?'))();
  assert.match(await page.locator('.places blockquote').first().textContent(), /behind the barometer/);
  await page.locator('.places button').first().click();
  await page.waitForSelector('#document[open] mark');
  const longest = await page.evaluate(() => globalThis.longest);
  t.diagnostic(`the longest task took ${longest} ms`);   // more than 50 only if the machine does much else
  const [{ messages: [question] }] = await stored(page);
  assert.equal(question.documents[0].text, undefined, 'a text beyond the budget is not stored');
});

test('hostile documents run nothing, send nothing and do not stop the page', async () => {
  const page = await visit(SMALL);
  await state(page, 'ready');
  const files = Object.entries(hostilePdfs()).filter(([name]) => !/5000|unpacked/.test(name))
    .map(([name, { bytes }]) => file(`${name}.pdf`, bytes, 'application/pdf'));
  await attach(page, ...files, file('page.html', '<script>alert(1)</script><img src="http://evil.example/x">'),
    file('notes.md', '[x](javascript:alert(1)) ![y](http://evil.example/y) <script>alert(1)</script>'));
  await page.waitForFunction(() => !document.querySelector('#attached progress'), undefined, { timeout: 60000 });
  const names = await page.locator('#attached bdi').allTextContents();
  for (const name of ['javascript.pdf', 'launch.pdf', 'links.pdf', 'page.html', 'notes.md']) {
    assert.ok(names.includes(name), name);
  }
  await page.evaluate(() => { localStorage['plumb.documents.by-words'] = 'true'; });
  await (await ask(page, 'What?'))();
  await page.getByRole('button', { name: /page\.html/ }).click();
  assert.equal(await page.textContent('#document .plain'),
    '<script>alert(1)</script><img src="http://evil.example/x">');
});
