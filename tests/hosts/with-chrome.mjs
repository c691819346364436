/** Runs a command whose test files share one headless browser, which chrome.mjs finds in $CHROME_SERVER.  Each context
 * of it has its own storage, as in a browser of its own.  They also share a built site (tools/site.mjs), which
 * chat-page.mjs finds in $SITE: its pages open faster than those of the tree.
 *
 *   node tests/hosts/with-chrome.mjs PROGRAM [ARGUMENT...]
 *
 * SITE=FOLDER takes another site, such as that of a release. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { options, shellPath } from './chrome.mjs';
import { freePort } from './port.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const port = await freePort();
const browser = await chromium.launch(options([`--remote-debugging-port=${port}`], shellPath()));
const [program, ...args] = process.argv.slice(2);
const SITE = resolve(process.env.SITE ?? mkdtempSync(join(tmpdir(), 'plumb-tests-')));
if (!process.env.SITE) {
  process.on('exit', () => rmSync(SITE, { recursive: true, force: true }));
  execFileSync(process.execPath, [join(root, 'tools/site.mjs'), SITE]);
}
for (const name of ['tests', 'models', 'build', 'README.md']) {   // what the tests load
  if (!existsSync(join(SITE, name))) symlinkSync(join(root, name), join(SITE, name));
}
const env = { ...process.env, CHROME_SERVER: `http://127.0.0.1:${port}`, SITE };
const child = spawn(program, args, { stdio: 'inherit', env });
child.on('close', async code => {
  await browser.close();
  process.exitCode = code ?? 1;
});
