/**
 * Measures what a person waits for on a visit to the chat page, served as by `make serve`, in Chromium.
 *
 *   node tests/bench/visit.mjs [VISITS]    default 5
 *   node tests/bench/visit.mjs bytes       only what the page loads before the first token, file by file
 *   node tests/bench/visit.mjs tabs        only the memory of one tab and of two, which have one engine
 *
 * SITE=FOLDER serves the page of a built site (`make site`) instead of this tree's.  Each visit has its own browser
 * profile: first an empty one, then a reload.  The question is asked before the model has loaded, so that the first
 * token comes as soon as possible.  Milliseconds, medians and the worst:
 *   visit -> token     from the address to the first text of the answer, with an empty profile
 *   arrived -> token   from the model's last byte to that text
 *   reload -> token    from the reload to the first text of an answer
 *   longest task       of the page's own thread, from the visit to the end of the second answer; 0: below 50 ms
 *   200 messages, task the same while a reload restores a conversation of 200 messages
 *
 * Then the package alone loads a large model of random weights (LARGE=FILE takes another file, below this folder), in a
 * window with a profile on the disk and in a private one, whose files are in memory.  Medians in milliseconds, and the
 * first two loads as multiples of the bare fetch:
 *   fetch       a worker reads the bytes and discards them
 *   no copy     a load with cache: 'no-store'
 *   first load  one that keeps a copy; it should take at most 1.3 times as long as the fetch
 *   reload      one from that copy
 * The server sends the model at LINE megabytes per second, by default 312, which is a line of 2.5 Gbit/s.  Then it
 * sends as fast as it can; server, browser and engine compete for the processors in that case.
 *
 * Finally the speeds that preflight predicts for the default model, and those of an answer, in tokens per second:
 * medians.
 */
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { relative, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome, launchProfile } from '../hosts/chrome.mjs';
import { median } from './median.mjs';
import { held } from './memory.mjs';
import { make } from './models.mjs';

/** Milliseconds until a new browser window has finished its own start-up work. */
const SETTLE = 3000;
/** 200 messages of Markdown, as a file to import. */
const MARKDOWN = '## Tides\n\nThe **moon** pulls at the *sea*.\n\n- high water\n- low water, `twice` a day\n\n'
  + '| Day | Height |\n| --- | ---: |\n| 1 | 3.2 m |\n\n```js\nconst high = moon + sun;\n```\n';
const LONG_CHAT = Buffer.from(JSON.stringify({ plumb_chat: 1, conversations: [{ title: 'Tides',
  messages: Array.from({ length: 200 }, (_, i) => i % 2 === 0 ? { role: 'user', content: `Question ${i}?` }
    : { role: 'assistant', content: MARKDOWN }) }] }));
/** Bytes per second of a fast line, bytes that are sent at once, and how many are buffered on the way. */
const LINE = 1e6 * Number(process.env.LINE ?? 312), PIECE = 1 << 18, BUFFERED = 1 << 22;
const visits = Number(process.argv[2] ?? 5);
const root = fileURLToPath(new URL('../..', import.meta.url));

/** Asks as soon as the message box exists, and returns the time of the answer's first text. */
async function ask(page) {
  await page.fill('#prompt', 'Why is the sky blue?');
  await page.press('#prompt', 'Enter');
  const token = await page.waitForFunction(() => globalThis.firstText, undefined, { timeout: 60000, polling: 20 });
  return token.jsonValue();
}

/** Records when an answer shows its first text, and how long tasks take. */
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
  const begin = Date.now();
  await page.goto(server.url);
  const token = await ask(page);
  await page.waitForFunction(() => document.body.dataset.state === 'ready', undefined, { timeout: 120000 });
  const cold = await page.evaluate(() => globalThis.longest);
  await page.click('#new-chat');
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
  return { 'visit -> token': token - begin, 'arrived -> token': token - arrived, 'reload -> token': reload,
    'longest task': task, '200 messages, task': long };
}

/** Prints the files that the page loads before the first token of an answer, with their bytes as gzip and Brotli pack
 * them; the model is left out.
 * @param {{url: string}} server @param {import('playwright-core').Browser} browser */
async function printBytes(server, browser) {
  // What the service worker keeps for later is not what the reader waits for.
  const context = await browser.newContext({ serviceWorkers: 'block' }), page = await context.newPage();
  await page.addInitScript(watch);
  /** @type {Map<string, Promise<number[]>>} */
  const files = new Map();
  context.on('response', response => {
    const { pathname } = new URL(response.url());
    if (response.status() !== 200 || pathname.endsWith('.gguf') || files.has(pathname)) return;
    files.set(pathname, response.body().then(body => [gzipSync(body).length, brotliCompressSync(body).length]));
  });
  await page.goto(server.url);
  await ask(page);
  const all = await Promise.all([...files].map(async ([path, sizes]) => ({ path, sizes: await sizes })));
  const line = (/** @type {number[]} */ sizes, /** @type {string} */ text) =>
    console.log(`${sizes.map(size => String(size).padStart(8)).join('')}  ${text}`);
  for (const { path, sizes } of all.sort((a, b) => b.sizes[0] - a.sizes[0])) line(sizes, path);
  line([0, 1].map(i => all.reduce((sum, { sizes }) => sum + sizes[i], 0)),
    `${all.length} files before the first token, bytes by gzip and by Brotli`);
  await context.close();
}

/** Prints what all processes of a browser hold: with an empty page, with one tab and with two after an answer of the
 * default model, and with a tab of another profile.
 * @param {{url: string}} server @param {import('playwright-core').Browser} browser */
async function printTabs(server, browser) {
  const session = await browser.newBrowserCDPSession();
  const line = async (/** @type {string} */ text) => {
    await new Promise(resolve => setTimeout(resolve, SETTLE));
    console.log(`${(await held(session) / 1e6).toFixed(0).padStart(6)} MB  ${text}`);
  };
  const open = async (/** @type {import('playwright-core').BrowserContext} */ context) => {
    const page = await context.newPage();
    await page.addInitScript(watch);
    await page.goto(server.url);
    await ask(page);
    await page.waitForSelector('body[data-state=ready]', { timeout: 120000 });
    return page;
  };
  const context = await browser.newContext(), other = await browser.newContext();
  await (await context.newPage()).goto('about:blank');
  await line('an empty page');
  const first = await open(context);
  await line('and a tab that has answered');
  await open(context);
  await line('and a second tab of the same profile that has answered');
  await first.close();
  await line('and without the first tab');
  await open(other);
  await line('and a tab of another profile, which has an engine of its own');
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

/** Serves what the server serves, and the large model from memory at a limited rate, as another machine would: without
 * much work for this one.
 * @param {{url: string}} server @param {Buffer} bytes  of the model @param {number} rate  bytes per second
 * @returns {Promise<{url: string, close: () => void}>} */
async function serveModel(server, bytes, rate) {
  async function* pieces() {
    let due = performance.now();
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.subarray(at, at + PIECE), now = performance.now();
      // If the receiver was late, the line was idle meanwhile, except for what fits into the buffers on the way.
      due = Math.max(due, now - 1000 * BUFFERED / rate) + 1000 * piece.length / rate;
      if (due > now + 1) await new Promise(resolve => setTimeout(resolve, due - now));
      yield piece;
    }
  }
  const line = createServer((incoming, response) => {
    if (incoming.method === 'GET' && incoming.url?.endsWith('.gguf')) {
      response.writeHead(200, { 'Content-Length': bytes.length, ETag: '"1"' });
      pipeline(pieces, response).catch(() => response.destroy());
      return;
    }
    const { method, headers } = incoming;
    request(new URL(incoming.url ?? '/', server.url), { method, headers }, answer => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    }).end();
  });
  await new Promise(resolve => line.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (line.address());
  return {
    url: `http://127.0.0.1:${port}/`,
    close() {
      line.close();
      line.closeAllConnections();
    },
  };
}

/** @param {{url: string}} server @param {import('playwright-core').BrowserContext} context @param {string} title */
async function keep(server, context, title) {
  const page = await context.newPage();
  await page.goto(`${server.url}web/README.md`);   // a page of this site that loads no model
  const all = [], url = new URL(relative(root, large), server.url).href;
  for (let i = 0; i < visits; i++) all.push(await page.evaluate(loads, url));
  await context.close();
  console.log(`\n${title}: ${relative(root, large)}`);
  const fetched = median(all.map(one => one.fetch));
  for (const name of Object.keys(all[0])) {
    const middle = median(all.map(one => one[name]));
    console.log(`${name.padEnd(19)} ${middle.toFixed(0).padStart(6)} ms   ${(middle / fetched).toFixed(2)}`);
  }
}

/** The speeds that preflight predicts for a model, and those of an answer, in a page. @param {string} url */
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

/** @param {import('playwright-core').Browser} browser */
async function printTimes(browser) {
  const all = [];
  for (let i = 0; i < visits; i++) all.push(await visit(site, browser));
  for (const name of Object.keys(all[0])) {
    const values = all.map(one => one[name]);
    const [middle, worst] = [median(values), Math.max(...values)].map(value => value.toFixed(0));
    console.log(`${name.padEnd(19)} ${middle.padStart(6)} ms   worst ${worst} ms`);
  }
  const bytes = readFileSync(large);
  for (const rate of [LINE, Infinity]) {
    const line = await serveModel(server, bytes, rate);
    const title = rate === LINE ? `${LINE / 1e6} MB/s` : 'without a limit';
    await keep(line, await launchProfile(), `${title}, a profile on the disk`);
    await keep(line, await browser.newContext(), `${title}, a private window`);
    line.close();
  }
  await expectations(browser);
}

const only = { bytes: printBytes, tabs: printTabs }[process.argv[2]];
const large = only ? '' : resolve(process.env.LARGE ?? make('1.1B-Q4_K').file);
const server = await serve({ root, home: '/web/chat/' });
const site = process.env.SITE ? await serve({ root: resolve(process.env.SITE), home: '/web/chat/' }) : server;
const browser = await launchChrome();
try {
  await (only ? only(site, browser) : printTimes(browser));
} finally {
  await browser.close();
  await server.close();
  if (site !== server) await site.close();
}
