/** The models dialog of the chat page: models that the server fetches, the catalogue, search in the hub, files that are
 * remembered. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ModelFetches } from '../../web/site/model-fetches.mjs';
import { serve } from '../../web/site/serve.mjs';
import { root, tinyPath } from '../node/helpers.mjs';
import { TINY, open, setUp, state } from './chat-page.mjs';

const where = await setUp();

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
  await offered.click();
  await page.getByText('Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF: there is no GGUF file of a model').waitFor();
  await page.close();
});
