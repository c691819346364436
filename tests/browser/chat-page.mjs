/** The chat page in headless Chromium, for the tests that click through it. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { after, afterEach } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { root, server as serverOf, tiny, withTemplate } from '../node/helpers.mjs';

const CHAT = 'web/chat/';
export const TINY = '/tests/vectors/synth/f32.gguf';
/** The same model with a chat template that fails, so that every message ends in an error.  setUp writes it. */
export const FAILING = '/build/chat/failing.gguf';
/** How people see the page: what is wrong with a width or a scheme of colours shows in two of the four pairs.
 * WHOLE=1 gives all. @type {{colorScheme: 'light' | 'dark', width: number, height: number}[]} */
export const LOOKS = [
  { colorScheme: 'light', width: 360, height: 740 }, { colorScheme: 'dark', width: 1280, height: 800 },
  ...process.env.WHOLE ? /** @type {const} */ ([{ colorScheme: 'dark', width: 360, height: 740 },
    { colorScheme: 'light', width: 1280, height: 800 }]) : [],
];
/** Options of a page that is kept for use without a network. */
export const KEPT = /** @type {const} */ ({ serviceWorkers: 'allow' });
export const LONG = 'Tell a long story about a lighthouse keeper.';

/** The problems of all pages that were opened. @type {string[][]} */
const problems = [];

/** A server and a browser for the tests of a file.
 * @param {string[]} [flags]  of a browser of their own.  All pages of a browser have the same clipboard, and only one
 *   of them the focus, so that files that read the one or count layouts need one.
 * @param {{tree?: boolean}} [options]  tree: for tests that import modules of the page */
export async function setUp(flags, { tree = false } = {}) {
  mkdirSync(`${root}build/chat`, { recursive: true });
  writeFileSync(`${root}${FAILING}.${process.pid}`, withTemplate(tiny, "{{ raise_exception('No.') }}"));
  renameSync(`${root}${FAILING}.${process.pid}`, `${root}${FAILING}`);
  const served = !tree && process.env.SITE || root;   // with-chrome.mjs gives a site
  const server = await serve({ root: served, linked: [root], home: '/web/chat/' });
  const browser = await launchChrome(flags);
  after(async () => {
    await browser.close();
    await server.close();
    assert.deepEqual(problems.flat(), [], 'pages that no test looked at have no problems either');
  });
  return { url: server.url, browser };
}

/** Opens the page with a small model and short answers, for all tests of a file.
 * @param {Parameters<typeof open>[0]} where @param {Parameters<typeof open>[3]} [early] */
export async function openForAll(where, early = () => {}) {
  const page = await open(where, `?model=${TINY}`, {}, async page => {
    await page.addInitScript(() => { localStorage['plumb.settings'] = '{"maxTokens":4}'; });
    await early(page);
  });
  page.setDefaultTimeout(20000);
  after(() => page.close());
  afterEach(() => assert.deepEqual(page.problems, []));
  await state(page, 'ready');
  return page;
}

/** Opens pages for single tests of a file, and closes them after each test. @param {{url: string, path?: string,
 * browser: import('playwright-core').Browser}} where @param {import('playwright-core').BrowserContextOptions} use */
export function visits(where, use) {
  const pages = [];
  afterEach(async () => {
    for (const page of pages.splice(0)) {
      assert.deepEqual(page.problems, []);
      await page.context().close();
    }
  });
  return async (/** @type {string} */ query, /** @type {Parameters<typeof open>[3]} */ early) => {
    const page = await open(where, query, use, early);
    pages.push(page);
    return page;
  };
}

/** Waits until all parts of the page are there: a click before that does nothing.
 * @param {import('playwright-core').Page} page */
export const usable = page => page.waitForSelector('main:not([inert])');

/** Opens the page, and waits until the chat page is usable.  Its service worker, which fetches every file of the page
 * for use without a network and so takes more time than the page, runs if the options have KEPT.
 * `problems` lists every request to another host than `url` and `also`, every missing file and every error that the
 * page throws.
 * The seed is always the same unless a test sets another, so failures can be reproduced.
 * @param {{url: string, browser: import('playwright-core').Browser, also?: string, path?: string}} where
 *   path: of the page, if it is not the chat page @param {string} [query]
 * @param {import('playwright-core').BrowserContextOptions} [options]
 * @param {(page: import('playwright-core').Page) => unknown} [early]  before the page is there
 * @returns {Promise<import('playwright-core').Page & {problems: string[]}>} */
export async function open({ url, browser, also = url, path = CHAT }, query = '', options = {},
  early = () => {}) {
  const context = await browser.newContext({ serviceWorkers: 'block', ...options });
  const page = Object.assign(await context.newPage(), { problems: [] });
  problems.push(page.problems);
  page.on('pageerror', error => page.problems.push(String(error)));
  page.on('console', message => {
    if (/Content Security Policy|^Refused to/.test(message.text())) page.problems.push(message.text());
  });
  page.on('request', request => {
    const own = [url, also].some(start => request.url().startsWith(start)) || /^(data|blob):/.test(request.url());
    if (!own) page.problems.push(request.url());
  });
  page.on('response', response => {   // tests use missing models, but the page's own files must exist
    if (response.status() < 400 || response.url().endsWith('.gguf')) return;
    page.problems.push(`${response.status()} ${response.url()}`);
  });
  page.on('close', () => void context.close().catch(() => {}));
  await page.addInitScript(() => {
    try {
      localStorage['plumb.settings'] ??= '{"seed":1}';
    } catch {
      // A frame without storage.
    }
    globalThis.begun = 0;  // answers; a short one may be over before a test could see the page's state
    new MutationObserver(records => records.forEach((_, i) => {
      const state = i + 1 < records.length ? records[i + 1].oldValue : document.body?.dataset.state;
      if (state === 'answering') globalThis.begun++;
    })).observe(document, { subtree: true, attributeFilter: ['data-state'], attributeOldValue: true });
  });
  await early(page);
  await page.goto(`${url}${path}${query}`);
  if (path === CHAT) await usable(page);
  return page;
}

/** Waits until something is so, for which the browser has no event. @param {() => Promise<unknown>} check
 * @param {string} what */
export async function until(check, what) {
  for (let i = 0; !await check(); i++) {
    assert.ok(i < 400, `it does not come: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

/** Presses Tab until the focus is on an element that matches a selector and has a text.
 * @param {import('playwright-core').Page} page @param {string} selector @param {string} [text] */
export async function tabTo(page, selector, text = '') {
  const isThere = () => page.evaluate(([selector, text]) => {
    const { activeElement } = document;
    return !!activeElement?.matches(selector) && activeElement.textContent.includes(text);
  }, [selector, text]);
  for (let i = 0; !await isThere(); i++) {
    assert.ok(i < 80, `Tab does not reach ${selector} ${text}`);
    await page.keyboard.press('Tab');
  }
}

/** No model's file arrives before the function that this returns is called, however long the test takes.
 * @param {import('playwright-core').Page} page @returns {Promise<() => void>} */
export async function holdModel(page) {
  let release = () => {};
  const released = new Promise(resolve => { release = () => resolve(undefined); });
  await page.route(url => url.pathname.endsWith('.gguf'), async route => {
    await released;
    await route.continue();
  });
  return release;
}

/** A server with the small model for pages of another origin; after stall() it sends only the first two thirds.
 * @param {import('node:test').TestContext} t */
export async function stallingServer(t) {
  let stalls = false;
  const url = await serverOf(t, (_, response) => {
    response.writeHead(200, { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin',
      'Content-Length': tiny.length });
    if (stalls) response.write(tiny.subarray(0, 60000));
    else response.end(tiny);
  });
  return { url, stall: () => { stalls = true; } };
}

/** @param {import('playwright-core').Page} page @param {string} name  loading, failed, ready or answering */
export const state = (page, name) =>
  page.waitForSelector(`body[data-state=${name}]:has(main:not([inert]))`);

/** Does what begins an answer, and returns once it has begun. @param {import('playwright-core').Page} page
 * @param {() => Promise<unknown>} act */
export async function begin(page, act) {
  const before = await page.evaluate(() => globalThis.begun);
  await act();
  await page.waitForFunction(n => globalThis.begun > n, before);
}

/** Sends a question, and returns once its answer has begun. @param {import('playwright-core').Page} page
 * @param {string} question */
export const ask = (page, question) => begin(page, async () => {
  await page.fill('#prompt', question);
  await page.keyboard.press('Enter');
});

/** Waits until there are this many messages and the last one is complete: a short answer may be over before its start
 * can be observed. @param {import('playwright-core').Page} page @param {number} messages */
export const whole = (page, messages) => page.waitForFunction(n => document.body.dataset.state === 'ready'
  && document.querySelectorAll('#log > li').length === n, messages);

/** @param {import('playwright-core').Page} page @param {string} question
 * @returns {Promise<string>} the answer's text */
export async function answer(page, question) {
  const before = await page.locator('#log > li').count();
  await page.fill('#prompt', question);
  await page.keyboard.press('Enter');
  await whole(page, before + 2);
  return (await answers(page)).at(-1) ?? '';
}

/** @param {import('playwright-core').Page} page */
export const answers = page => page.locator('#log > .assistant .text').allTextContents();

/** Puts conversations into the page by its own import. @param {import('playwright-core').Page} page
 * @param {{title?: string, messages: {role: string, content: string}[]}[]} conversations */
export async function put(page, conversations) {
  await page.setInputFiles('#import-file', { name: 'chats.json', mimeType: 'application/json',
    buffer: Buffer.from(JSON.stringify({ plumb_chat: 1, conversations })) });
  await page.waitForFunction(text => document.querySelector('#log')?.textContent?.includes(text),
    conversations.at(-1)?.messages.at(0)?.content.slice(0, 20) ?? '');
}

/** The contents of the browser's database, read without the page's code. @param {import('playwright-core').Page} page
 * @returns {Promise<any[]>} */
export const stored = page => page.evaluate(() => new Promise((resolve, reject) => {
  const opening = indexedDB.open('plumb-chat', 1);
  opening.onerror = reject;
  opening.onsuccess = () => {
    const asking = opening.result.transaction('conversations').objectStore('conversations').getAll();
    asking.onsuccess = () => {
      opening.result.close();
      resolve(asking.result);
    };
  };
}));

/** Reloads the page once the conversations that it writes are in the database: a transaction waits for those before it.
 * @param {import('playwright-core').Page} page */
export async function reload(page) {
  await stored(page);
  await page.reload();
}

let downloads = 0;
/** Saves a download of the page, and returns its path. @param {import('playwright-core').Download} download */
export async function saved(download) {
  const path = `${root}build/chat/${process.pid}-${++downloads}.json`;
  await download.saveAs(path);
  return path;
}

/** Kept in build/screenshots for whoever wants to see them. @param {import('playwright-core').Page} page */
export async function screenshot(page, name) {
  mkdirSync(`${root}build/screenshots`, { recursive: true });
  await page.screenshot({ path: `${root}build/screenshots/${name}.png` });
}

const axe = readFileSync(`${root}node_modules/axe-core/axe.min.js`, 'utf8');
/** Checks that axe finds no violation and that nothing overflows the page.
 * @param {import('playwright-core').Page} page @param {string} name  of the state */
export async function examine(page, name) {
  await screenshot(page, name);
  if (!await page.evaluate(() => 'axe' in globalThis)) await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, impact, nodes }) =>
      `${id} (${impact}): ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
  });
  assert.deepEqual(found, [], name);
  const outside = await page.evaluate(() => {
    const seen = [...document.querySelectorAll('button, textarea, input, select, #log .text, canvas')].filter(one => {
      const { left, right, width } = one.getBoundingClientRect();
      return one.checkVisibility({ visibilityProperty: true }) && width > 1 && (left < -0.5 || right > innerWidth + 0.5)
        && !one.closest('pre, .wide, .hidden');
    });
    return { wide: document.documentElement.scrollWidth - innerWidth, seen: seen.map(one => one.id || one.className) };
  });
  assert.ok(outside.wide <= 0, `${name}: ${outside.wide} px too wide`);
  assert.deepEqual(outside.seen, [], name);
  assert.deepEqual(page.problems, [], name);
}

/** Examines the page in each of LOOKS, and leaves it as it was. @param {import('playwright-core').Page} page
 * @param {string} name */
export async function examineAll(page, name) {
  const before = page.viewportSize();
  for (const { colorScheme, ...size } of LOOKS) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(size);
    await examine(page, `${name}-${colorScheme}-${size.width}`);
  }
  await page.emulateMedia({ colorScheme: null });
  if (before) await page.setViewportSize(before);
}
