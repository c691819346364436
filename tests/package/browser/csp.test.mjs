/** The installed package in a page with a strict content security policy. */
import assert from 'node:assert/strict';
import { renameSync, symlinkSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../../web/site/serve.mjs';
import { launchChrome } from '../../hosts/chrome.mjs';
import { project, root } from '../helpers.mjs';

let browser, folder;
before(async () => {
  browser = await launchChrome();
  folder = project('csp');
  renameSync(join(folder, 'node_modules', 'plumb-llm'), join(folder, 'plumb-llm'));
  symlinkSync(`${root}models`, join(folder, 'models'));
  symlinkSync(`${root}tests/vectors/synth/f32.gguf`, join(folder, 'tiny.gguf'));
});
after(() => browser?.close());

/** The text of the page, the errors of the console, and all requests. @param {string} policy */
async function visit(t, policy) {
  const { url, close } = await serve({ root: folder, linked: [root], headers: {
    'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp',
    'Content-Security-Policy': policy,
  } });
  t.after(close);
  const page = await browser.newPage();
  const requests = [], complaints = [], workers = [];
  page.on('request', request => requests.push(request.url()));
  page.on('worker', worker => workers.push(worker.url()));
  page.on('console', message => message.type() === 'error' && complaints.push(message.text()));
  await page.goto(url);
  await page.waitForFunction(() => document.body.textContent.includes('{'), null, { timeout: 60000 });
  const shown = JSON.parse(await page.evaluate(() => document.body.textContent));
  await page.close();
  return { url, shown, complaints, requests, workers };
}

const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

test('files of the page\'s own server and WebAssembly are enough: no blob, no eval, no other host', async t => {
  const { url, shown, complaints, requests, workers } = await visit(t, STRICT);
  assert.equal(shown.message, undefined);
  assert.equal(shown.threads, Math.min(8, availableParallelism()));
  assert.ok(shown.text.length > 0);
  assert.ok(shown.taps > 0);
  assert.deepEqual([shown.cached, shown.downloaded, shown.code, shown.supported], [true, false, 0, true]);
  assert.deepEqual(shown.violations, []);
  // Chromium itself requests the icon, which is an image.
  assert.deepEqual(complaints.filter(text => !text.includes('favicon.ico')), []);
  assert.ok(requests.length > 10);
  assert.deepEqual(requests.filter(request => !request.startsWith(url)), []);
  assert.ok(workers.length >= 1);
  const own = /\/plumb-llm\/browser\/(engine|thread|template|command)-worker\.js$/;
  assert.deepEqual(workers.filter(worker => !own.test(worker)), []);
});

test('without \'wasm-unsafe-eval\' the error names it', async t => {
  const { shown } = await visit(t, STRICT.replace(" 'wasm-unsafe-eval'", ''));
  assert.deepEqual([shown.name, shown.code], ['PlumbError', 'PLUMB_ERROR_UNSUPPORTED']);
  assert.match(shown.message, /^the page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to /);
});
