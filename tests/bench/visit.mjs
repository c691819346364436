/**
 * A visit to the chat page as `make serve` serves it, in Chromium: what a person waits for.
 *
 *   node tests/bench/visit.mjs [VISITS]    default 5
 *
 * Each visit has a browser profile of its own: first with nothing kept, then a reload.  A question is asked before the
 * model is there, so that the first token comes as soon as it can.  Milliseconds, medians and the worst:
 *   arrived -> token   from the model's last byte to the first text of the answer
 *   reload -> token    from the reload to the first text of an answer
 *   longest task       that the page's own thread had, from the visit to the end of the second answer; 0: below 50 ms
 *   200 messages, task the same while a reload brings back a conversation of 200 messages
 *
 * Then the package alone loads a large model of random weights (LARGE=FILE takes another file, below this folder), in a
 * window with a profile on the disk and in a private one, whose files are in memory.  Medians in milliseconds, and the
 * first two loads as multiples of the bare fetch:
 *   fetch       the bytes are read in a worker, and nothing is done with them
 *   no copy     a load with cache: 'no-store'
 *   first load  one that keeps a copy; it should take at most 1.3 times as long as the fetch
 *   reload      one from that copy
 *
 * At last the speeds that preflight expects of the default model, and those that an answer then has, in tokens per
 * second: medians.
 */
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome, launchProfile } from '../hosts/chrome.mjs';
import { median } from './median.mjs';
import { make } from './models.mjs';

/** Milliseconds until a new window of the browser has loaded what is its own. */
const SETTLE = 3000;
/** 200 messages of Markdown, as a file to import. */
const MARKDOWN = '## Tides\n\nThe **moon** pulls at the *sea*.\n\n- high water\n- low water, `twice` a day\n\n'
  + '| Day | Height |\n| --- | ---: |\n| 1 | 3.2 m |\n\n```js\nconst high = moon + sun;\n```\n';
const LONG_CHAT = Buffer.from(JSON.stringify({ plumb_chat: 1, conversations: [{ title: 'Tides',
  messages: Array.from({ length: 200 }, (_, i) => i % 2 === 0 ? { role: 'user', content: `Question ${i}?` }
    : { role: 'assistant', content: MARKDOWN }) }] }));
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
  await page.setInputFiles('#import-file', { name: 'c.json', mimeType: 'application/json', buffer: LONG_CHAT });
  const shown = () => page.waitForFunction(() => document.querySelectorAll('#log > li').length === 200);
  await shown();
  await page.reload();
  await shown();
  await page.waitForFunction(() => document.body.dataset.state === 'ready', undefined, { timeout: 120000 });
  const long = await page.evaluate(() => globalThis.longest);
  await context.close();
  return { 'arrived -> token': first, 'reload -> token': reload, 'longest task': task, '200 messages, task': long };
}

/** The times of one round of loads, in a page. @param {string} url */
async function loads(url) {
  const { Plumb } = await import('/web/index.js');
  const times = {};
  const time = async (name, action) => {
    const start = performance.now();
    await action();
    times[name] = performance.now() - start;
  };
  const load = async options => {
    const model = await Plumb.load(url, options);
    await model.close();
    const [problem] = model.warnings.filter(({ code }) => code === 'cache');
    if (problem) throw new Error(problem.message);
  };
  const program = `onmessage = async ({ data }) => {
    const reader = (await fetch(data, { cache: 'no-store' })).body.getReader({ mode: 'byob' });
    for (let buffer = new ArrayBuffer(1 << 18); ;) {
      const { done, value } = await reader.read(new Uint8Array(buffer));
      if (done) return postMessage('done');
      buffer = value.buffer;
    }
  };`;
  await time('fetch', async () => {
    const worker = new Worker(URL.createObjectURL(new Blob([program])));
    await new Promise(resolve => {
      worker.onmessage = resolve;
      worker.postMessage(url);
    });
    worker.terminate();
  });
  await time('no copy', () => load({ cache: 'no-store' }));
  await Plumb.removeCached(url);
  await time('first load', () => load());
  await time('reload', () => load());
  return times;
}

/** @param {import('playwright-core').BrowserContext} context @param {string} title */
async function keep(context, title) {
  const file = process.env.LARGE ?? make('1.1B-Q4_K').file;
  const page = await context.newPage();
  await page.goto(`${server.url}web/README.md`);   // a page of this site that loads no model
  const all = [];
  for (let i = 0; i < visits; i++) all.push(await page.evaluate(loads, new URL(relative(root, file), server.url).href));
  await context.close();
  console.log(`\n${title}: ${file}`);
  const fetched = median(all.map(one => one.fetch));
  for (const name of Object.keys(all[0])) {
    const middle = median(all.map(one => one[name]));
    console.log(`${name.padEnd(19)} ${middle.toFixed(0).padStart(6)} ms   ${(middle / fetched).toFixed(2)}`);
  }
}

/** What preflight expects of a model, and what an answer has, in a page. @param {string} url */
async function speeds(url) {
  const { Plumb } = await import('/web/index.js');
  const { speed } = await Plumb.preflight(url);
  const model = await Plumb.load(url);
  for await (const _ of model.generate(`Once${' word'.repeat(63)}`, { maxTokens: 64 }));
  const { decodeRate, prefillRate } = model.lastStats;
  await model.close();
  return { decode: [speed.decode, decodeRate], prefill: [speed.prefill, prefillRate] };
}

/** @param {import('playwright-core').Browser} browser */
async function expectations(browser) {
  const page = await browser.newPage();
  await page.goto(`${server.url}web/README.md`);
  const all = [];
  for (let i = 0; i < visits; i++) {
    all.push(await page.evaluate(speeds, `${server.url}models/SmolLM2-135M-Instruct.Q4_1.gguf`));
  }
  await page.close();
  console.log('\ntokens/s               expected      had');
  for (const name of Object.keys(all[0])) {
    const [expected, had] = [0, 1].map(i => median(all.map(one => one[name][i])).toFixed(0).padStart(8));
    console.log(`${name.padEnd(22)} ${expected} ${had}`);
  }
}

const server = await serve({ root, home: '/web/chat/' });
const browser = await launchChrome();
try {
  const all = [];
  for (let i = 0; i < visits; i++) all.push(await visit(server, browser));
  for (const name of Object.keys(all[0])) {
    const values = all.map(one => one[name]);
    const [middle, worst] = [median(values), Math.max(...values)].map(value => value.toFixed(0));
    console.log(`${name.padEnd(19)} ${middle.padStart(6)} ms   worst ${worst} ms`);
  }
  await keep(await launchProfile(), 'a profile on the disk');
  await keep(await browser.newContext(), 'a private window');
  await expectations(browser);
} finally {
  await browser.close();
  await server.close();
}
