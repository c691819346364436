/** The README's examples run as they are in a page, with the installed package. */
import assert from 'node:assert/strict';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../../web/site/serve.mjs';
import { launchChrome } from '../../hosts/chrome.mjs';
import { project, root } from '../helpers.mjs';
import { examplesFor, expectedOf } from '../readme.mjs';

const IMPORTS = Object.fromEntries(['index', 'openai', 'fetch', 'ai', 'prompt-api'].map(name =>
  [name === 'index' ? 'plumb-llm' : `plumb-llm/${name}`, `/node_modules/plumb-llm/${name}.js`]));
let browser, folder, server;
before(async () => {
  browser = await launchChrome();
  folder = project();
  symlinkSync(`${root}models`, join(folder, 'models'));
  symlinkSync('node_modules/plumb-llm', join(folder, 'plumb-llm'));
  server = await serve({ root: folder, linked: [root] });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Opens a page of the project, which has no icon.  A missing URL is an error. @param {string} html */
async function open(html) {
  writeFileSync(join(folder, 'index.html'), html);
  const page = await browser.newPage();
  const errors = [], logs = [];
  page.on('pageerror', error => errors.push(String(error)));
  page.on('console', message => (message.type() === 'error' ? errors : logs).push(message.text()));
  page.on('response', response => {
    if (response.status() >= 400) errors.push(`${response.status()} ${response.url()}`);
  });
  await page.route('**/favicon.ico', route => route.fulfill({ status: 204 }));
  await page.goto(server.url);
  return { page, logs, errors };
}

for (const { line, code } of examplesFor('browser')) {
  test(`line ${line} in a page`, async () => {
    writeFileSync(join(folder, 'example.js'), code);
    const { page, logs, errors } = await open(`<!doctype html><title>example</title><body></body>
      <script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>
      <script type="module">
        import('/example.js').then(() => { document.title = 'done'; }, error => {
          document.title = 'failed';
          console.error(error.stack);
        });
      </script>`);
    await page.waitForFunction(() => document.title !== 'example', null, { timeout: 60000 });
    assert.deepEqual([errors, await page.title()], [[], 'done']);
    assert.match(logs.join('\n'), expectedOf(code));
    await page.close();
  });
}

for (const { line, code } of examplesFor('browser', 'html')) {
  test(`line ${line}, a page of its own`, async () => {
    const { page, errors } = await open(code);
    // The text of the element, not of the body, which contains the script.
    await page.waitForFunction(() => (document.querySelector('#answer')?.textContent ?? '').length > 100, null,
      { timeout: 60000 });
    assert.deepEqual(errors, []);
    await page.close();
  });
}
