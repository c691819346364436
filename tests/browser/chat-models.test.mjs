/** The models dialog of the chat page: models that the server fetches, the catalogue, search in the hub, files that are
 * remembered. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ModelFetches } from '../../web/site/model-fetches.mjs';
import { serve } from '../../web/site/serve.mjs';
import { CATALOGUE } from '../../web/chat/models/catalogue.js';
import { OFFERED } from '../../web/chat/models/offered.js';
import { ggufHeader } from '../node/gguf.mjs';
import { imitateHub } from '../node/hub-server.mjs';
import { root, tiny, tinyPath } from '../node/helpers.mjs';
import { TINY, answer, examineAll, open, screenshot, setUp, state, until } from './chat-page.mjs';

const where = await setUp();
const HUB = 'https://huggingface.co', TOKEN = 'hf_s3cret_t0ken';

/** Lets the page of a context ask an imitation of the hub. @param {import('playwright-core').Page} page
 * @param {Awaited<ReturnType<typeof imitateHub>>} hub */
const toHub = (page, hub) => page.context().route(`${HUB}/**`, async route => {
  const { pathname, search } = new URL(route.request().url());
  const response = await route.fetch({ url: `${hub.url}${pathname}${search}`, maxRedirects: 0 });
  const link = response.headers().link?.replaceAll(hub.url, HUB);
  await route.fulfill({ response, headers: { ...response.headers(), ...link && { link } } });
});

test('a model that the server lacks is fetched by it, with progress, and then loaded; a failure says why', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-models-')), name = `test-${process.pid}.gguf`;
  const path = `${root}models/${name}`, go = join(folder, 'go'), manifest = join(folder, 'manifest.json');
  t.after(() => {
    rmSync(folder, { recursive: true });
    if (existsSync(path)) rmSync(path);
  });
  writeFileSync(manifest, JSON.stringify([{ name: 'm', file: name }]));
  const script = `const fs = require('fs'), [go, tiny, path] = ${JSON.stringify([go, tinyPath, path])};
    console.log('{"bytes": 250000000, "total": 1000000000}');
    const timer = setInterval(() => {
      if (!fs.existsSync(go)) return;
      clearInterval(timer);
      if (fs.readFileSync(go, 'utf8') === 'fail') { console.error('fetch: no <b>way'); process.exit(1); }
      fs.copyFileSync(tiny, path);
    }, 20);`;
  const fetches = new ModelFetches(root, { manifest, command: [process.execPath, '-e', script] });
  const server = await serve({ root, home: '/web/chat/', fetches });
  t.after(server.close);
  writeFileSync(go, 'fail');
  const page = await open({ ...where, url: server.url }, `?model=/models/${name}`);
  await state(page, 'failed');
  assert.match(await page.textContent('#failure-detail'), /^the server could not fetch the model: fetch: no <b>way /);
  rmSync(go);
  await page.click('#retry');
  await page.getByText('The server of this page fetches the model: 250 of 1000 MB').waitFor();
  assert.equal(await page.evaluate(() => document.querySelector('#bar').value), 0.25);
  writeFileSync(go, '');
  await state(page, 'ready');
  assert.match(await page.textContent('#model-name'), /^synthetic/);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('offered models say where they are; one that a host of static files lacks comes from the hub', async () => {
  const page = await open({ ...where, also: 'https://huggingface.co' }, `?model=${TINY}`);
  await state(page, 'ready');
  let here = { 'Plumb-Model': 'absent' };
  await page.route('**/qwen2.5-coder-0.5b*', route => route.fulfill({ status: 404, headers: here }));
  const offered = page.locator('#offered button', { hasText: 'Qwen2.5-Coder 0.5B' });
  await page.click('#model');
  await offered.getByText('Not here yet: the server of this page fetches it.').waitFor();
  await page.keyboard.press('Escape');
  here = {};
  await page.click('#model');
  await offered.getByText('This server does not have it. It is on the hub.').waitFor();
  await page.route('https://huggingface.co/**', route => route.fulfill({ json: [] }));
  assert.equal(await page.isVisible('#better'), false, 'the default model is not loaded');
  await page.keyboard.press('Escape');
  await page.evaluate(() => history.replaceState(null, '', location.pathname));
  await page.reload();
  await page.getByRole('button', { name: 'Load Qwen2.5-Coder 0.5B' }).click();
  await page.getByText('Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF: there is no GGUF file of a model').waitFor();
  await page.close();
});

test('a site without models offers its default model from the hub, and asks before it goes there', async () => {
  const hub = 'https://huggingface.co';
  const page = await open({ ...where, also: hub }, '', {}, page =>
    page.route('**/models/*.gguf', route => route.fulfill({ status: 404 })));
  await state(page, 'failed');
  assert.equal(await page.textContent('#failure-title'), 'This server does not have SmolLM2 135M');
  assert.match(await page.textContent('#failure-advice') ?? '', /^Its 98 MB can come from the hub, huggingface\.co/);
  const asked = [];
  await page.route(`${hub}/**`, route => {
    asked.push(route.request().url());
    return route.fulfill({ json: [] });
  });
  assert.deepEqual(page.problems, []);
  await page.getByRole('button', { name: 'Load it' }).click();
  await page.waitForFunction(() => /smollm2/i.test(document.querySelector('#failure-detail')?.textContent ?? '')
    && document.body.dataset.state === 'failed');
  await until(async () => asked.length > 0, 'a request to the hub');
  await page.close();
});

test('the catalogue filters by words, use, language and memory, and expects a speed after an answer', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#model');
  const items = page.locator('#catalogue li'), shown = async () => (await items.allTextContents())
    .map(text => CATALOGUE.find(({ title }) => text.startsWith(title))?.name);
  await items.first().waitFor();
  const fitting = await items.count();
  const all = CATALOGUE.length - OFFERED.length;   // those are listed above
  assert.ok(fitting > 0 && fitting <= all);
  assert.doesNotMatch(await items.first().textContent() ?? '', /tokens\/s/);
  await page.getByLabel('Fits here').uncheck();
  assert.equal(await items.count(), all);
  await page.fill('#find', 'gemma reranker');
  assert.equal(await items.count(), 0);
  assert.match(await page.textContent('#find-count') ?? '', /^0 of \d+ models, as of 20\d\d-/);
  await page.fill('#find', '');
  await page.getByLabel('Use').selectOption('Ranking of texts');
  assert.deepEqual(await shown(), ['qwen3-reranker:0.6b', 'gte-reranker:149m']);
  await page.getByLabel('Language').selectOption('German');
  assert.deepEqual(await shown(), ['qwen3-reranker:0.6b']);
  await page.keyboard.press('Escape');
  await answer(page, 'Once upon a time');
  await page.click('#model');
  await page.getByLabel('Use').selectOption('Any use');
  await page.waitForFunction(() => /about [\d.]+ tokens\/s/.test(document.querySelector('#catalogue').textContent));
  // By keyboard alone: the list is reached from the field, and its first model is looked at.  There is no hub here.
  await page.context().route(`${HUB}/**`, route => route.abort());
  await page.fill('#find', 'granite 350M');
  await page.focus('#find');
  for (let i = 0; i < 5; i++) await page.keyboard.press('Tab');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /^Granite 4\.0 350M/);
  await page.keyboard.press('Enter');
  await page.locator('#catalogue li #plan').getByText('Reading the header of the file').waitFor();
  await page.fill('#find', 'granite');   // the look ends with its place
  assert.equal(await page.locator('#another #plan').count(), 1);
  page.problems.length = 0;   // the request to the hub
  await page.close();
});

test('search in the hub: only when asked, sizes, pages, hostile names; a gated model wants a token', async t => {
  const evil = '<img src=x onerror=document.title=1>', files = { 'm-Q4_K_M.gguf': readFileSync(tinyPath) };
  const { header } = ggufHeader({ layers: 1, embedding: 32, feedForward: 64, heads: 1,
    architecture: `${evil}\u202e${'x'.repeat(1e5)}` });
  const hub = await imitateHub({
    'org/tiny-0': { files, about: { downloads: 1234567 } }, 'org/tiny-gated': { files, gated: TOKEN },
    'org/tiny-evil': { files: { [`${evil}-\u202eQ4_K_M.gguf`]: header } },
    'org/tiny-endless': { files, lie: all => Array.from({ length: 400 }, () => all[0]) },
    'org/tiny-broken': { files, refuse: { status: 200, body: '<html>' } },
    ...Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`org/tiny-more-${i}`, { files }])),
    'bad/tiny-id': { files, about: { id: `${evil}/tiny` } },
  });
  t.after(() => hub.close());
  const page = await open({ ...where, also: 'https://huggingface.co' }, `?model=${TINY}`);
  await toHub(page, hub);
  await state(page, 'ready');
  await page.click('#model');
  await page.fill('#find', 'tiny');
  await page.waitForFunction(() => document.querySelectorAll('#catalogue li').length === 0);
  assert.equal(hub.seen.length, 0, 'nothing is sent while the reader types');
  await page.keyboard.press('Enter');
  const results = page.locator('#hub-results li');
  await page.getByText('The 10 most downloaded ones').waitFor();
  await page.getByText('1,234,567 downloads a month').waitFor();
  await results.nth(0).getByText(/^\d+ kB {2}· {2}m-Q4_K_M\.gguf$/).waitFor();
  await results.nth(4).getByText('Its files could not be listed.').waitFor({ timeout: 30000 });
  await page.getByRole('button', { name: 'More results' }).click();
  await page.getByText('The 14 most downloaded ones').waitFor();
  assert.equal(await page.locator('#hub-results img').count(), 0);
  await results.nth(2).getByRole('button').click();
  await page.locator('#hub-results #plan .problem').first().waitFor();
  assert.ok((await page.textContent('#plan') ?? '').length < 1000);
  page.problems.length = 0;   // the hub has sent the page on to the address of a file
  await examineAll(page, 'models-hub');
  // A gated model asks for a token, which goes to the hub only, and is in no text of the page.
  await results.nth(1).getByRole('button').click();
  await page.getByLabel('Token of your account').fill('no token');
  await page.keyboard.press('Enter');
  await page.getByText('That is not a token.').waitFor();
  await page.getByLabel('Token of your account').fill(TOKEN);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: /^Download/ }).click();
  await page.waitForFunction(() => /^synthetic/.test(document.querySelector('#model-name').textContent));
  await state(page, 'ready');
  assert.ok(hub.seen.some(({ path, token }) => /gated\/resolve/.test(path) && token === TOKEN));
  const kept = () => page.evaluate(() => JSON.stringify({ ...localStorage }));
  assert.ok(!(await kept()).includes(TOKEN));
  assert.ok(!(await page.content()).includes(TOKEN));
  // hf:org/repo typed in the field is no search.
  await page.click('#model');
  const asked = hub.seen.length;
  await page.fill('#find', 'hf:org/none');
  await page.keyboard.press('Enter');
  await page.getByText('hf:org/none: the hub answered 401').waitFor();
  assert.ok(hub.seen.slice(asked).every(({ path }) => path.startsWith('/api/models/org/none/')));
  await page.getByLabel('Keep it on this device').check();
  await page.getByLabel('Token of your account').fill(`${TOKEN}2`);
  await Promise.all([page.waitForResponse(/none/), page.keyboard.press('Enter')]);
  assert.ok((await kept()).includes(`${TOKEN}2`));
  assert.notEqual(await page.title(), '1');
  page.problems.length = 0;   // answers that refuse
  await page.close();
});

test('axe finds nothing wrong with the catalogue and the form for a token', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#model');
  await page.locator('#catalogue li').first().waitFor();
  await page.locator('#more').scrollIntoViewIfNeeded();
  await examineAll(page, 'models-more');
  await page.fill('#find', 'qat');
  await page.locator('#catalogue button').click();
  await page.getByLabel('Token of your account').waitFor();
  await examineAll(page, 'models-token');
  await page.close();
});

test('a file is found again by its handle after a click, asked for again without one, and never replaced', async () => {
  const page = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(() => {
    // A handle of the browser's own storage, which can do the same as one of a file that the reader has chosen.
    Object.assign(globalThis, { showOpenFilePicker: async () =>
      [await (await navigator.storage.getDirectory()).getFileHandle('mine.gguf')] });
    const ask = wanted => async () => localStorage.allowed === 'yes' || wanted && navigator.userActivation.isActive
      ? 'granted' : 'prompt';
    Object.assign(globalThis.FileSystemFileHandle.prototype, { queryPermission: ask(false),
      requestPermission: ask(true) });
  }));
  await state(page, 'ready');
  const write = (/** @type {number} */ extra) => page.evaluate(async ([url, extra]) => {
    const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
    const folder = await navigator.storage.getDirectory();
    const file = await (await folder.getFileHandle('mine.gguf', { create: true })).createWritable();
    await file.write(new Uint8Array([...bytes, ...new Uint8Array(extra)]));
    await file.close();
  }, /** @type {const} */ ([TINY, extra]));
  const named = () => page.waitForFunction(() => /^synthetic/.test(document.querySelector('#model-name').textContent));
  const title = (/** @type {string} */ text) => page.waitForFunction(text =>
    document.querySelector('#failure:not([hidden]) #failure-title')?.textContent === text, text);
  await write(0);
  await page.click('#model');
  await page.getByRole('button', { name: 'Open files…' }).click();
  await page.waitForFunction(() => localStorage['plumb.model'] === '"file:mine.gguf"');
  await page.goto(`${where.url}web/chat/`);
  await title('mine is a file on your computer');
  assert.equal(await page.textContent('#model-name'), 'mine');
  await screenshot(page, 'file-again');
  await page.getByRole('button', { name: 'Load it' }).click();
  await state(page, 'ready');
  await named();
  // With a permission that lasts there is no question, unless the file has changed.
  await page.evaluate(() => { localStorage.allowed = 'yes'; });
  await page.reload();
  await state(page, 'ready');
  await named();
  await write(1000);
  await page.reload();
  await title('The file mine has changed');
  assert.equal(await page.textContent('#failure-detail'), 'It had 89 kB, and this one has 90 kB.');
  await page.getByRole('button', { name: 'Load it' }).click();
  await state(page, 'ready');
  await page.evaluate(async () => (await navigator.storage.getDirectory()).removeEntry('mine.gguf'));
  await page.reload();
  await title('mine is not where it was');
  // Another file is not taken in its place without a word.
  await page.setInputFiles('#file', { name: 'other.gguf', mimeType: '', buffer: readFileSync(tinyPath) });
  await title('This is another file');
  assert.equal(await page.textContent('#failure-detail'), 'Expected mine.gguf, not other.gguf.');
  await page.getByRole('button', { name: 'Load it' }).click();
  await state(page, 'ready');
  await page.waitForFunction(() => localStorage['plumb.model'] === '"file:other.gguf"');
  // A browser that gives no handles asks for the file.
  await page.reload();
  await title('other is a file on your computer');
  await page.evaluate(() => Object.assign(globalThis, { showOpenFilePicker: undefined }));
  const [chooser] = await Promise.all([page.waitForEvent('filechooser'),
    page.getByRole('button', { name: 'Choose the file…' }).click()]);
  await chooser.setFiles({ name: 'other.gguf', mimeType: '', buffer: readFileSync(tinyPath) });
  await state(page, 'ready');
  await named();
  // A dropped file gives its handle, too.
  await write(0);
  await page.evaluate(async () => {
    const handle = await (await navigator.storage.getDirectory()).getFileHandle('mine.gguf');
    globalThis.DataTransferItem.prototype.getAsFileSystemHandle = async () => handle;
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(await handle.getFile());
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  });
  await page.waitForFunction(() => localStorage['plumb.model'] === '"file:mine.gguf"');
  await state(page, 'ready');
  await page.reload();
  await state(page, 'ready');   // its permission lasts
  assert.deepEqual(page.problems, []);
  await page.close();
});
