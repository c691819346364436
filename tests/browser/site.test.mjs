/** The page as a folder on a host that knows nothing of it: Python's server of files, which sends no headers of ours,
 * and not at the root.  RELEASE_SITE=FILE.zip takes the site of a release instead of the files of the tree. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, renameSync, rmSync, mkdirSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { after } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { realPath, root } from '../node/helpers.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { KEPT, answer, open, state } from './chat-page.mjs';

const browser = await launchChrome();
after(() => browser.close());

/** A site in the folder some/path of a host. @param {import('node:test').TestContext} t
 * @returns {Promise<string>} its address */
async function host(t) {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-host-')), site = join(folder, 'some/path');
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'some'));
  if (process.env.RELEASE_SITE) {
    execFileSync('python3', ['-m', 'zipfile', '-e', process.env.RELEASE_SITE, join(folder, 'zip')]);
    renameSync(join(folder, 'zip', readdirSync(join(folder, 'zip'))[0]), site);
  } else {
    execFileSync(process.execPath, [`${root}tools/site.mjs`, site]);
  }
  mkdirSync(join(site, 'models'));
  symlinkSync(realPath, join(site, 'models/SmolLM2-135M-Instruct.Q4_1.gguf'));
  const server = spawn('python3', ['-u', '-m', 'http.server', '--bind', '127.0.0.1', '--directory', folder, '0'],
    { stdio: ['ignore', 'pipe', 'ignore'] });
  t.after(() => server.kill());
  for await (const line of createInterface(server.stdout)) {
    const port = / port (\d+)/.exec(line)?.[1];
    if (port) return `http://127.0.0.1:${port}/some/path/`;
  }
  assert.fail('the server has ended');
}

/** The page as `make serve` serves it. @param {import('node:test').TestContext} t */
async function local(t) {
  const server = await serve({ root });
  t.after(() => server.close());
  return server.url;
}

test('site: in a folder of a host without headers the page answers, with threads', async t => {
  const url = await host(t), { headers } = await fetch(`${url}web/chat/`);
  assert.equal(headers.get('cross-origin-opener-policy'), null);
  const page = await open({ url, browser, path: '' }, '', KEPT);   // leads to the chat page
  await state(page, 'ready');
  assert.match(page.url(), /\/some\/path\/web\/chat\/$/);
  assert.equal(await page.evaluate(() => crossOriginIsolated), true);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.fill('#set-maxTokens', '8');
  await page.getByRole('button', { name: 'Done' }).click();
  assert.ok((await answer(page, 'Name a colour.')).length > 0);
  await page.click('#model');
  const threads = await page.locator('#facts dt:text-is("Threads") + dd').textContent();
  assert.ok(Number(threads) > 1 || (await page.evaluate(() => navigator.hardwareConcurrency)) === 1, threads ?? '');
  assert.deepEqual(page.problems, []);
  // The workers that read documents and Markdown cannot send anything, wherever the page comes from.
  for (const at of [url, await local(t)]) {
    if (at !== url) await page.goto(`${at}web/chat/`);
    for (const room of ['documents', 'typeset']) {
      const begun = page.waitForEvent('worker', worker => worker.url().endsWith(`${room}/worker.js`));
      await page.evaluate(room => void new Worker(`${room}/worker.js`, { type: 'module' }), room);
      const sent = () => fetch(location.href).then(() => 'sent', () => 'refused');
      assert.equal(await (await begun).evaluate(sent), 'refused', `${room} at ${at}`);
    }
  }
  await page.close();
});
