/**
 * A visit to the chat page as `make serve` serves it, in Chromium: what a person waits for.
 *
 *   node tests/bench/visit.mjs [VISITS]    default 5
 *
 * Each visit has a browser profile of its own: first with nothing kept, then a reload.  A question is asked before the
 * model is there, so that the first token comes as soon as it can.  Milliseconds, medians and the worst:
 *   arrived -> token   from the model's last byte to the first text of the answer
 *   reload -> token    from the reload to the first text of an answer
 *   longest task       that the page's own thread had, from the visit to the end of the second answer
 */
import { fileURLToPath } from 'node:url';
import { serve } from '../../web/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { median } from './median.mjs';

/** Milliseconds until a new window of the browser has loaded what is its own. */
const SETTLE = 3000;
const visits = Number(process.argv[2] ?? 5);
const root = fileURLToPath(new URL('../..', import.meta.url));

/** Asks as soon as there is somewhere to write, and gives the time of the answer's first text. */
async function ask(page) {
  await page.fill('#prompt', 'Why is the sky blue?');
  await page.press('#prompt', 'Enter');
  const token = await page.waitForFunction(() => globalThis.firstText, undefined, { timeout: 60000, polling: 20 });
  return token.jsonValue();
}

/** Notes when an answer shows its first text, and how long tasks take. */
function watch() {
  globalThis.longest = 0;
  new PerformanceObserver(list => {
    for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration);
  }).observe({ type: 'longtask', buffered: true });
  new MutationObserver(() => {
    const answer = document.querySelector('#log > .assistant:last-child .text');
    if (answer?.textContent.trim()) globalThis.firstText ??= Date.now();
  }).observe(document, { subtree: true, childList: true, characterData: true });
}

async function visit(server, browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  await page.addInitScript(watch);
  await page.waitForTimeout(SETTLE);
  let arrived;
  page.on('requestfinished', request => {
    if (request.url().endsWith('.gguf')) arrived = Date.now();
  });
  await page.goto(server.url);
  const first = await ask(page) - arrived;
  await page.waitForFunction(() => document.body.dataset.state === 'ready', undefined, { timeout: 120000 });
  const cold = await page.evaluate(() => globalThis.longest);
  await page.click('#fresh');
  const click = Date.now();
  await page.reload({ waitUntil: 'domcontentloaded' });
  const reload = await ask(page) - click;
  await page.waitForFunction(() => document.body.dataset.state === 'ready', undefined, { timeout: 120000 });
  const task = Math.max(cold, await page.evaluate(() => globalThis.longest));
  await context.close();
  return { 'arrived -> token': first, 'reload -> token': reload, 'longest task': task };
}

const server = await serve({ root, home: '/web/chat/' });
const browser = await launchChrome();
try {
  const all = [];
  for (let i = 0; i < visits; i++) all.push(await visit(server, browser));
  for (const name of Object.keys(all[0])) {
    const values = all.map(one => one[name]);
    const [middle, worst] = [median(values), Math.max(...values)].map(value => value.toFixed(0));
    console.log(`${name.padEnd(18)} ${middle.padStart(6)} ms   worst ${worst} ms`);
  }
} finally {
  await browser.close();
  await server.close();
}
