/** Runs a command whose test files share one headless browser, which chrome.mjs finds in $CHROME_SERVER.  Each context
 * of it has its own storage, as in a browser of its own.
 *
 *   node tests/hosts/with-chrome.mjs PROGRAM [ARGUMENT...] */
import { spawn } from 'node:child_process';
import { chromium } from 'playwright-core';
import { options, shellPath } from './chrome.mjs';
import { freePort } from './port.mjs';

const port = await freePort();
const browser = await chromium.launch(options([`--remote-debugging-port=${port}`], shellPath()));
const [program, ...args] = process.argv.slice(2);
const env = { ...process.env, CHROME_SERVER: `http://127.0.0.1:${port}` };
const child = spawn(program, args, { stdio: 'inherit', env });
child.on('close', async code => {
  await browser.close();
  process.exitCode = code ?? 1;
});
