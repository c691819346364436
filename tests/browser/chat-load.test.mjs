/** Models of the chat page: selected, dropped, too large, interrupted; the page offline, and on hosts that send no
 * headers. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  createReadStream, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, truncateSync, writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { ggufHeader } from '../node/gguf.mjs';
import { imitateHub } from '../node/hub-server.mjs';
import { realPath, root, server, tinyPath } from '../node/helpers.mjs';
import { KEPT, TINY, answer, answers, open, screenshot, setUp, state, whole } from './chat-page.mjs';

const where = await setUp();

/** Drops files on the page as a file manager does. @param {import('playwright-core').Page} page
 * @param {{name: string, url: string}[]} files  of this server */
async function drop(page, files) {
  const transfer = await page.evaluateHandle(async files => {
    const transfer = new DataTransfer();
    for (const { name, url } of files) {
      transfer.items.add(new File([await (await fetch(url)).blob()], name));
    }
    return transfer;
  }, files);
  for (const type of ['dragenter', 'dragover', 'drop']) {
    await page.dispatchEvent('body', type, { dataTransfer: transfer });
  }
}

test('what cannot work before all parts of the page are there cannot be clicked or focused before', async () => {
  const page = await open(await setUp(undefined, { tree: true }), `?model=${TINY}`);
  /** @type {() => void} */
  let release = () => {};
  const released = new Promise(resolve => { release = () => resolve(undefined); });
  await page.route('**/message-list.js', async route => {
    await released;
    await route.continue();
  });
  await page.reload({ waitUntil: 'commit' });
  await page.waitForSelector('#welcome:not([hidden])');
  for (const button of ['#ideas li.answers button', '#export-json']) {
    await assert.rejects(page.click(button, { timeout: 300 }), /Timeout/, button);
  }
  for (const box of ['#prompt', '#search']) {
    await page.focus(box);
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'BODY', box);
  }
  release();
  await state(page, 'ready');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'prompt');
  await page.click('#ideas li.continues button');
  await whole(page, 2);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a dropped file is loaded, and so are the files of a split model; a hint is shown during the drag', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  const hovering = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(['x'], 'x'));
    return transfer;
  });
  await page.dispatchEvent('body', 'dragenter', { dataTransfer: hovering });
  assert.ok(await page.isVisible('#drop'));
  await page.dispatchEvent('body', 'dragleave', { dataTransfer: hovering });
  assert.ok(!await page.isVisible('#drop'));
  const part = n => ({ name: `m-0000${n}-of-00003.gguf`, url: `/tests/vectors/synth/split-0000${n}-of-00003.gguf` });
  for (const files of [[{ name: 'one.gguf', url: TINY }], [part(2), part(3), part(1)]]) {
    await page.evaluate(() => { document.querySelector('#model-name').textContent = ''; });
    await drop(page, files);
    await page.waitForFunction(() => /^synthetic/.test(document.querySelector('#model-name').textContent));
    await state(page, 'ready');
  }
  await page.click('#open-inspect');   // which checks all files of the running model
  await page.waitForFunction(() => document.querySelector('#view-tokens').textContent !== '');   // its module is there
  await page.click('#tab-check');
  await page.getByRole('button', { name: 'Run the self-check' }).click();
  const checks = page.locator('.checks li');
  await checks.first().waitFor();
  const verdicts = await checks.evaluateAll(items => items.map(item => item.dataset.verdict));
  assert.ok(verdicts.length > 5 && verdicts.every(verdict => ['OK', 'SKIP'].includes(verdict)), verdicts.join(' '));
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a file that is not a model shows an error, and another model can still be loaded', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.setInputFiles('#file', { name: 'holiday.gguf', mimeType: '', buffer: Buffer.from('Not a model at all.') });
  await page.getByText('This is not a valid model file').first().waitFor();
  await screenshot(page, 'not-a-model');
  if (!await page.isVisible('#models')) await page.click('#model');
  await page.evaluate(() => { document.querySelector('#model-name').textContent = ''; });
  await page.setInputFiles('#file', tinyPath);
  await page.waitForFunction(() => /^synthetic/.test(document.querySelector('#model-name').textContent));
  await state(page, 'ready');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a URL is checked first: errors, the model found there, and the memory it needs', async () => {
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#model');
  await page.fill('#url', 'http://[');
  await page.keyboard.press('Enter');
  await page.getByText('That is not the address of a file.').waitFor();
  await page.fill('#url', '/models/none.gguf');
  await page.keyboard.press('Enter');
  await page.getByText('The model was not found').first().waitFor();
  await page.fill('#url', '/models/SmolLM2-135M-Instruct.Q4_1.gguf');
  await page.keyboard.press('Enter');
  const plan = page.locator('.plan');
  await plan.waitFor();
  const text = await plan.textContent();
  assert.match(text, /^Smollm2 135M.*98\.4 MB.*llama.*135 million weights/);
  assert.match(text, /weights 96\.6 MB, context of 8,192 tokens 195 MB/);   // 2 * 30 layers * 192 * 16 bits each
  assert.match(text, /Memory3\d\d MB of /, 'from 100 MB on there are no decimals');
  assert.match(text, /Speedabout \d+ tokens\/s, prompt \d+ tokens\/s/);
  await screenshot(page, 'plan');
  const [button, shown] = await Promise.all(['#open', '#plan'].map(id => page.locator(id).boundingBox()));
  assert.ok(shown.y > button.y, 'the plan is below the buttons');
  assert.equal(await page.textContent('#model-name'), 'synthetic llama F32', 'nothing is loaded yet');
  await plan.getByRole('button', { name: 'Download 98.4 MB' }).click();
  await page.waitForFunction(() => document.querySelector('#model-name').textContent === 'smollm2 135M');
  assert.equal(new URL(page.url()).search, '');
  await page.reload();   // the choice is stored
  await state(page, 'ready');
  assert.equal(await page.textContent('#model-name'), 'smollm2 135M');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a model of the hub is named, checked, loaded, remembered, and not asked for again', async t => {
  const other = Buffer.from('no model');
  const hub = await imitateHub({ 'org/tiny-GGUF': { files: {
    'tiny-Q8_0.gguf': other, 'tiny-Q4_K_M.gguf': readFileSync(tinyPath), 'mmproj-Q4_K_M.gguf': other,
  } } });
  t.after(() => hub.close());
  const page = await open({ ...where, also: 'https://huggingface.co' }, `?model=${TINY}`);
  await state(page, 'ready');
  await page.context().route('https://huggingface.co/**', async route => {
    const { pathname, search } = new URL(route.request().url());
    const response = await route.fetch({ url: `${hub.url}${pathname}${search}` });
    const link = response.headers().link?.replaceAll(hub.url, 'https://huggingface.co');
    await route.fulfill({ response, headers: { ...response.headers(), ...link && { link } } });
  });
  await page.click('#model');
  for (const [text, message] of [['smolm2:135m', /There is no such model.*the nearest are smollm2:135m/s],
    ['hf:org/none', /The server denied access to this model.*hf:org\/none: the hub answered 401/s]]) {
    await page.fill('#url', text);
    await page.keyboard.press('Enter');
    await page.waitForFunction(source => new RegExp(source, 's').test(document.querySelector('#plan').textContent),
      message.source);
  }
  await page.fill('#url', 'https://huggingface.co/org/tiny-GGUF');
  await page.keyboard.press('Enter');
  await page.locator('.plan').getByRole('button', { name: /^Download/ }).click();
  await state(page, 'ready');
  await page.waitForFunction(() => /^synthetic/.test(document.querySelector('#model-name').textContent));
  assert.match(hub.seen.at(-1)?.path ?? '', /resolve\/main\/tiny-Q4_K_M\.gguf$/);
  const asked = hub.seen.length;
  await page.reload();
  await state(page, 'ready');
  assert.equal(hub.seen.length, asked);
  await page.click('#model');
  await page.getByRole('button', { name: /^tiny-Q4_K_M\.gguf/ }).waitFor();
  page.problems.length = 0;   // the refusal that was asked for
  await page.close();
});

test('a base model is chosen from the list, and continues texts as llama.cpp does', async () => {
  const page = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(() => {
    localStorage['plumb.settings'] = '{"temperature":0,"maxTokens":6}';
  }));
  await state(page, 'ready');
  await page.click('#model');
  await page.locator('#offered').getByRole('button', { name: 'Gemma 3 270M' }).click();
  await page.waitForFunction(() => document.querySelector('#model-name').textContent === 'gemma-3 270M');
  await state(page, 'ready');
  assert.match(await page.innerText('#welcome'), /does not answer messages but continues your text/);
  // tests/vectors/llama/gemma3/prompts.json has the ids: of the prompt, with a first token, and of 12 choices.
  await page.getByRole('button', { name: 'The three primary colours are' }).click();
  await whole(page, 2);
  assert.deepEqual((await answers(page)).map(text => text.trim()), ['red, yellow and blue.']);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.locator('#log > .assistant').getByText('The three primary colours are').waitFor();
  await state(page, 'ready');
  assert.match((await answers(page))[0], /^\s*red, yellow and blue\.\s+The three primary colours are\s*$/);
  await page.reload();   // the choice is stored
  await state(page, 'ready');
  assert.equal(await page.textContent('#model-name'), 'gemma-3 270M');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a link whose model is not a URL shows an error, and the page remains usable', async () => {
  const page = await open(where, '?model=http://[');
  await state(page, 'failed');
  assert.match(await page.textContent('#failure'), /That is not the address of a file.*http:\/\/\[/s);
  await page.click('#other');
  await page.setInputFiles('#file', tinyPath);
  await state(page, 'ready');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a model too large for the memory shows the sizes, and the default model can still be loaded', async t => {
  const { header, size } = ggufHeader({ layers: 40, embedding: 8192, feedForward: 24320, heads: 64 });
  const file = join(tmpdir(), `plumb-huge-${process.pid}.gguf`);
  writeFileSync(file, header);
  truncateSync(file, size);   // sparse: it has no blocks on the disk
  t.after(() => rmSync(file));
  const page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#model');
  await page.setInputFiles('#file', file);
  await page.getByText('There is not enough memory').first().waitFor();
  assert.match(await page.textContent('.plan'), /weights 19\.49 GB, context of 1,024 tokens 1\.36 GB/);
  assert.match(await page.textContent('.plan'), /It needs (more than )?\d+\.\d\d GB; the limit here is 1\d\.\d\d GB\./);
  await screenshot(page, 'too-large');
  assert.equal(await page.textContent('#model-name'), 'synthetic llama F32', 'the one before still runs');
  await page.getByRole('button', { name: 'Try anyway' }).click();
  await state(page, 'failed');
  assert.equal(await page.textContent('#failure-title'), 'There is not enough memory');
  assert.match(await page.textContent('#failure-detail'),
    /\d{11} bytes of weights and 1363148800 bytes of keys and values/);
  await page.click('#other');
  await page.locator('#offered').getByRole('button', { name: 'SmolLM2 135M' }).click();
  await page.waitForFunction(() => document.querySelector('#model-name').textContent === 'smollm2 135M');
  await state(page, 'ready');
  assert.ok((await answer(page, 'Say one word.')).length > 0);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('the next visit loads the model again and resumes its interrupted download', async t => {
  const bytes = readFileSync(tinyPath);
  let cut = false;
  const asked = [];
  const url = await server(t, (request, response) => {
    asked.push(request.headers.range);
    const from = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.writeHead(request.headers.range ? 206 : 200, { 'Access-Control-Allow-Origin': '*', ETag: '"1"',
      'Access-Control-Expose-Headers': 'ETag, Content-Range, Accept-Ranges, Content-Length', 'Accept-Ranges': 'bytes',
      'Cross-Origin-Resource-Policy': 'cross-origin', 'Content-Length': bytes.length - from,
      ...request.headers.range && { 'Content-Range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } });
    if (!cut) return response.end(bytes.subarray(from));
    response.write(bytes.subarray(from, 50000));   // then the connection stalls
  });
  const page = await open({ ...where, also: url }, `?model=${encodeURIComponent(`${url}m.gguf`)}`);
  await page.locator('.plan').waitFor();   // for another server the plan is shown first
  assert.match(await page.textContent('#failure'), /not downloaded yet/);
  assert.equal(await page.textContent('#retry'), 'Load it');
  cut = true;
  await page.locator('.plan').getByRole('button').click();
  await page.waitForFunction(() => /^0\.1 of 0\.1 MB/.test(document.querySelector('#loading-text').textContent)
    && Number(document.querySelector('#bar').getAttribute('value')) > 0.5);
  const other = await page.context().newPage();   // it finds the copy in use
  await other.setViewportSize({ width: 360, height: 640 });
  await other.goto(`${where.url}web/chat/?model=${TINY}`);
  await state(other, 'ready');
  await other.click('#model');
  await other.getByRole('button', { name: 'Delete m.gguf' }).click();
  await other.locator('#plan .problem').waitFor();
  assert.match(await other.textContent('#plan'), /^http.*\/m\.gguf: the copy cannot be removed: another tab/);
  await other.close();
  cut = false;
  await page.reload();
  await state(page, 'ready');
  assert.equal(await page.textContent('#model-name'), 'synthetic llama F32');
  assert.equal(asked.at(-1), 'bytes=50000-');
  const chosen = () => page.evaluate(() => localStorage['plumb.model']);
  assert.equal(await chosen(), undefined, 'the model of a link is not that of later visits');
  await page.click('#model');
  await page.locator('#kept li', { hasText: 'm.gguf' }).getByRole('button', { name: 'm.gguf' }).first().click();
  await page.waitForFunction(() => !document.querySelector('#models').open);
  await state(page, 'ready');
  assert.equal(await chosen(), JSON.stringify(`${url}m.gguf`), 'the one that the reader chooses is');
  await page.click('#model');
  await page.locator('#kept li', { hasText: 'm.gguf' }).waitFor();
  await page.getByRole('button', { name: 'Delete m.gguf' }).click();
  await page.locator('#kept li', { hasText: 'm.gguf' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Delete f32.gguf' }).waitFor();   // the copy that the other tab used
  assert.equal(await page.textContent('#plan'), 'Deleted the copy of m.gguf');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a download of unknown size is labelled so; showing the plan of a URL does not move the focus', async t => {
  let answer = () => {};
  const looked = new Promise(resolve => { answer = resolve; });
  const url = await server(t, async (request, response) => {
    await looked;
    response.writeHead(200, { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin' });
    response.write(readFileSync(tinyPath));   // chunked, without a Content-Length
    response.end();
  });
  const page = await open({ ...where, also: url }, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#model');
  await page.fill('#url', `${url}m.gguf`);
  await page.keyboard.press('Enter');
  await page.keyboard.type('?x');
  answer();
  const plan = page.locator('.plan');
  await plan.waitFor();
  assert.equal(await plan.getByRole('button').textContent(), 'Download  ·  Start');
  await page.keyboard.type('=1');
  assert.equal(await page.inputValue('#url'), `${url}m.gguf?x=1`);
  await page.click('#look');
  await page.waitForFunction(() => document.activeElement.closest('.plan'));
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('offline, the page loads with its conversation and its model, and it answers', async () => {
  const own = await serve({ root });
  const page = await open({ url: own.url, browser: where.browser }, '', KEPT);
  await state(page, 'ready');
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', '8');
  await page.getByRole('button', { name: 'Done' }).click();
  const said = await answer(page, 'Name a colour.');
  await page.evaluate(() => navigator.serviceWorker.ready);
  await own.close();
  await page.context().setOffline(true);
  await page.reload();
  await state(page, 'ready');
  assert.equal(await page.textContent('#log > .assistant .text'), said);
  assert.ok((await answer(page, 'And another.')).length > 0);
  await page.click('#open-inspect');
  await page.locator('.token').first().waitFor();   // modules that are loaded when they are needed
  const cached = await page.evaluate(async () => {
    const found = [];
    for (const name of await caches.keys()) {
      for (const { url } of await (await caches.open(name)).keys()) found.push(url);
    }
    return found;
  });
  assert.ok(cached.some(url => url.endsWith('/chat/inspect/inspect.js')));
  assert.ok(!cached.some(url => new URL(url).pathname.startsWith('/models/') || url.endsWith('.gguf')), 'no models');
  const posted = await page.evaluate(() =>
    fetch(location.href, { method: 'POST' }).then(({ status }) => status, () => 'failed'));
  assert.equal(posted, 'failed', 'what is no GET is the server\'s to answer');
  await page.close();
});

/** A host of static files that sends no headers. @param {import('node:test').TestContext} t @param {string} folder */
async function plainHost(t, folder) {
  const types = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css',
    '.svg': 'image/svg+xml', '.wasm': 'application/wasm' };
  const http = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    const path = join(folder, decodeURIComponent(pathname).replace(/\/$/, '/index.html'));
    try {
      statSync(path);
    } catch {
      return response.writeHead(404).end();
    }
    response.writeHead(200, { 'Content-Type': types[extname(path)] ?? 'application/octet-stream' });
    createReadStream(path).pipe(response);
  });
  await new Promise(resolve => http.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    http.close();
    http.closeAllConnections();
  });
  return `http://127.0.0.1:${http.address().port}/`;
}

/** A site made by `make site`, with a link to the model. @param {import('node:test').TestContext} t */
function site(t) {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-site-'));
  t.after(() => rmSync(folder, { recursive: true }));
  execFileSync(process.execPath, [`${root}tools/site.mjs`, folder, tinyPath]);
  symlinkSync(realPath, join(folder, 'models', 'SmolLM2-135M-Instruct.Q4_1.gguf'));
  return folder;
}

test('on a host without headers the service worker isolates the page, which reloads itself once', async t => {
  const url = await plainHost(t, site(t));
  let loads = 0;
  const page = await open({ url, browser: where.browser }, '', KEPT, page => page.on('load', () => loads++));
  await state(page, 'ready');
  assert.equal(await page.evaluate(() => crossOriginIsolated), true);
  assert.equal(loads, 2);
  await page.click('#model');
  const threads = await page.locator('#facts dt:text-is("Threads") + dd').textContent();
  assert.ok(Number(threads) > 1 || (await page.evaluate(() => navigator.hardwareConcurrency)) === 1, threads);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('without a service worker the engine runs on one thread, and the page says why', async t => {
  const url = await plainHost(t, site(t));
  const page = await open({ url, browser: where.browser }, '', {}, page =>
    page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'serviceWorker', { value: undefined })));
  await state(page, 'ready');
  assert.equal(await page.evaluate(() => crossOriginIsolated), false);
  await page.getByText('The model runs with one thread only').waitFor();
  await page.getByRole('button', { name: 'Why?' }).click();
  assert.match(await page.locator('#facts dt:text-is("Threads") + dd').textContent(),
    /^1 thread: the page is not cross-origin isolated.*Cross-Origin-Opener-Policy/);
  await page.keyboard.press('Escape');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('a new version of the page is offered; accepting it replaces every file', async t => {
  const folder = site(t), url = await plainHost(t, folder);
  const page = await open({ url, browser: where.browser }, '?model=/models/f32.gguf', KEPT);
  await state(page, 'ready');
  await page.evaluate(() => navigator.serviceWorker.ready);
  const worker = readFileSync(join(folder, 'web/sw.js'), 'utf8');
  edit(folder, { 'chat/index.html': text => text.replace('What would you like', 'What would YOU like') });
  const next = readFileSync(join(folder, 'web/sw.js'), 'utf8');
  writeFileSync(join(folder, 'web/sw.js'), worker);   // not there yet
  await page.evaluate(() => Promise.all(['plumb-page-0123456789abcdef', 'other'].map(name => caches.open(name))));
  await page.reload();   // the service worker is still that of the old version
  await state(page, 'ready');
  assert.match(await page.textContent('#welcome-title'), /would you/);
  writeFileSync(join(folder, 'web/sw.js'), next);
  await page.reload();
  await page.getByText('A new version of this page is available').waitFor();
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Reload' }).click()]);
  await state(page, 'ready');
  assert.match(await page.textContent('#welcome-title'), /would YOU/);
  const names = await page.evaluate(() => caches.keys());
  assert.deepEqual(names.sort(), ['other', `plumb-page-${url}web/#next`]);
  await page.close();
});

/** The names of the caches of pages, and how many files each has. @param {import('playwright-core').Page} page */
const kept = page => page.evaluate(async () => {
  const names = (await caches.keys()).filter(name => name.startsWith('plumb-page-')).sort();
  return Promise.all(names.map(async name => [name, (await (await caches.open(name)).keys()).length]));
});

test('two copies of the page on one origin keep their caches, and each works offline', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-sites-')), texts = { a: 'Copy A', 'a/web/b': 'Copy B' };
  t.after(() => rmSync(folder, { recursive: true }));
  for (const [copy, title] of Object.entries(texts)) {   // the second one is in the folder of the first
    execFileSync(process.execPath, [`${root}tools/site.mjs`, join(folder, copy), tinyPath]);
    edit(join(folder, copy), { 'chat/index.html': text => text.replace('What would you like', title) });
  }
  const url = await plainHost(t, folder), context = await where.browser.newContext(), page = await context.newPage();
  const visit = async copy => {
    await page.goto(`${url}${copy}/web/chat/?model=/${copy}/models/f32.gguf`);
    await state(page, 'ready');
    await page.evaluate(() => navigator.serviceWorker.ready);
    assert.match(await page.textContent('#welcome-title'), new RegExp(texts[copy]));
  };
  for (const copy of [...Object.keys(texts), ...Object.keys(texts)]) await visit(copy);
  const caches = await kept(page), [[, files]] = caches;
  assert.deepEqual(caches.map(([name]) => name.replace(/#\w+$/, '')),
    Object.keys(texts).map(copy => `plumb-page-${url}${copy}/web/`).sort());
  assert.deepEqual(caches.map(([, n]) => n), [files, files]);
  await context.setOffline(true);
  for (const copy of Object.keys(texts)) await visit(copy);
  await context.close();
});

test('a version with a missing file is completed, or else replaced as a whole', async t => {
  const folder = site(t), url = await plainHost(t, folder);
  const page = await open({ url, browser: where.browser }, '?model=/models/f32.gguf', KEPT);
  await state(page, 'ready');
  await page.evaluate(() => navigator.serviceWorker.ready);
  const [[name, files]] = await kept(page);
  const forget = path => page.evaluate(async ([name, url]) =>
    (await caches.open(name)).delete(url), [name, `${url}web/${path}`]);
  assert.ok(await forget('chat/page.js'));
  await page.reload();
  await state(page, 'ready');
  assert.deepEqual(await kept(page), [[name, files]], 'the same version again');

  edit(folder, { 'chat/index.html': text => text.replace('What would you like', 'What would YOU like'),
    'chat/page.js': text => `${text}globalThis.version = 'next';\n` });
  for (const path of ['chat/page.js', 'chat/panels.css']) assert.ok(await forget(path));
  const status = path => page.evaluate(url => fetch(url).then(({ status }) => status, () => 'refused'),
    `${url}web/${path}`);
  assert.equal(await status('chat/page.js'), 'refused', 'no file of the next version for a page of this one');
  assert.equal(await status('chat/panels.css'), 200, 'a file that has not changed');
  await page.reload();
  await state(page, 'ready');
  assert.match(await page.textContent('#welcome-title'), /would YOU/);
  assert.equal(await page.evaluate(() => globalThis.version), 'next');
  await page.waitForFunction(async url => (await caches.keys()).includes(`plumb-page-${url}web/#next`), url);
  await page.close();
});

/** Changes files of a site, which is then another version. @param {string} folder
 * @param {Record<string, (text: string) => string>} changes  by the paths of the files */
function edit(folder, changes) {
  const worker = join(folder, 'web/sw.js');
  for (const [path, change] of Object.entries(changes)) {
    const file = join(folder, 'web', path), text = change(readFileSync(file, 'utf8'));
    writeFileSync(file, text);
    const sum = createHash('sha256').update(text).digest('base64'), entry = new RegExp(`("${path}":")[^"]*`);
    writeFileSync(worker, readFileSync(worker, 'utf8').replace(entry, `$1sha256-${sum}`));
  }
  writeFileSync(worker, readFileSync(worker, 'utf8').replace(/("version":")[^"]*/, '$1next'));
}
