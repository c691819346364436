/** Runs a command whose test files share one headless browser, which chrome.mjs finds in $CHROME_SERVER.  Each context
 * of it has its own storage, as in a browser of its own.
 *
 *   node tests/hosts/with-chrome.mjs PROGRAM [ARGUMENT...] */
import { spawn } from 'node:child_process';
import { chromium } from 'playwright-core';
import { options } from './chrome.mjs';

const server = await chromium.launchServer(options());
const [program, ...args] = process.argv.slice(2);
const child = spawn(program, args, { stdio: 'inherit', env: { ...process.env, CHROME_SERVER: server.wsEndpoint() } });
child.on('close', async code => {
  await server.close();
  process.exitCode = code ?? 1;
});
