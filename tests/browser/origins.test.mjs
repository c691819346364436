/** The package from another origin than the page's, and unusual pages. Ground truth: llama.cpp's token ids
 * (tests/vectors). */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { after, before, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { prompts, root, server } from '../node/helpers.mjs';

const [{ ids: PROMPT, f32: { ids: EXPECTED } }] = prompts, N = 4;
const CHAT = prompts.find(({ name }) => name === 'chat');
const MODEL = '/models/SmolLM2-135M-Instruct.Q4_1.gguf', TINY = '/tests/vectors/synth/f32.gguf';
const ISOLATED = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
/** A policy that forbids blob: workers. */
const STRICT = {
  ...ISOLATED, 'Content-Security-Policy': 'default-src \'self\'; script-src \'self\' OTHER \'wasm-unsafe-eval\'; '
    + 'connect-src \'self\' OTHER; worker-src \'self\' OTHER',
};
const CORS = { 'Access-Control-Allow-Origin': '*' };
const THREADS = Math.min(8, availableParallelism());

let browser;
before(async () => { browser = await launchChrome(); });
after(() => browser?.close());

/** A page of one site, and the URL of the package on another: localhost is not 127.0.0.1.  Chromium does not let a page
 * that playwright fulfils request anything from this machine.
 * @param {import('node:test').TestContext} t
 * @param {{headers?: Record<string, string>, packageHeaders?: Record<string, string>, body?: string}} [options] */
async function open(t, { headers = {}, packageHeaders = CORS, body = '' } = {}) {
  const other = await serve({ root, headers: packageHeaders });
  const origin = other.url.replace('127.0.0.1', 'localhost').replace(/\/$/, '');
  const page = await browser.newPage();
  t.after(async () => {
    await page.close();
    await other.close();
  });
  const own = Object.fromEntries(Object.entries(headers).map(([name, text]) =>
    [name, text.replaceAll('OTHER', origin)]));
  const site = await server(t, ({ url }, response) => {
    const answer = (/** @type {string} */ type, /** @type {string | Buffer} */ body) => {
      response.writeHead(200, { ...own, 'Content-Type': type });
      response.end(body);
    };
    const [, file] = /^\/own-workers\/([\w-]+\.js)$/.exec(url) ?? [];
    if (url === '/') return answer('text/html', `<!doctype html>${body}`);
    if (file) return answer('text/javascript', `import '${origin}/web/browser/${file}';`);   // its whole content
    if (!existsSync(root + url)) return void response.writeHead(404, own).end();
    answer(url.endsWith('.js') ? 'text/javascript' : 'application/octet-stream', readFileSync(root + url));
  });
  assert.notEqual(new URL(origin).hostname, new URL(site).hostname);
  await page.goto(site);
  return { page, origin, site };
}

/** Uses the package of that origin: the engine, its threads, a chat template, a command.
 * @param {import('playwright-core').Page} page @param {string} origin @param {object} [options] */
const use = (page, origin, options = {}) => page.evaluate(async ({ origin, options, model: url, prompt, n }) => {
  try {
    const { Plumb } = await import(`${origin}/web/index.js`);
    const model = await Plumb.load(url, { cache: 'no-store', ...options });
    const { threads } = await model.info();
    const ids = [];
    let logits = await model.feed(prompt);
    while (ids.length < n) {
      ids.push(logits.reduce((best, logit, id) => logit > logits[best] ? id : best, 0));
      logits = await model.step(ids.at(-1));
    }
    const chat = await model.applyChatTemplate([{ role: 'user', content: 'Hello' }]);
    await model.close();
    const { code } = await Plumb.command(['--version'], options.workerUrl ? { workerUrl: options.workerUrl } : {});
    const { supported } = await Plumb.preflight(url, { measure: false, ...options });
    return { ids, threads, code, supported, isChat: chat.includes('<|im_start|>user\nHello<|im_end|>') };
  } catch ({ name, code, message }) {
    return { name, code, message };
  }
}, { origin, options, model: MODEL, prompt: PROMPT, n: N });
const works = (/** @type {number} */ threads) =>
  ({ ids: EXPECTED.slice(0, N), threads, code: 0, supported: true, isChat: true });

test('a page imports the package from another origin', async t => {
  const { page, origin } = await open(t);
  assert.deepEqual(await use(page, origin), works(1));
});

test('an isolated page imports it from another origin and has threads, with CORP and without', async t => {
  for (const corp of [{}, { 'Cross-Origin-Resource-Policy': 'cross-origin' }]) {
    const { page, origin } = await open(t, { headers: ISOLATED, packageHeaders: { ...CORS, ...corp } });
    assert.deepEqual(await use(page, origin), works(THREADS));
  }
});

test('a page whose policy forbids blob: workers can use workerUrl', async t => {
  const { page, origin } = await open(t, { headers: STRICT });
  const refused = await use(page, origin);
  assert.equal(refused.code, 'PLUMB_ERROR_STATE');
  assert.match(refused.message,
    /engine-worker\.js does not load, or .* forbids workers from blob: URLs; add blob: .*workerUrl/);
  assert.deepEqual(await use(page, origin, { workerUrl: '/own-workers/engine-worker.js' }), works(THREADS));
  const missing = await use(page, origin, { workerUrl: '/nowhere/engine-worker.js' });
  assert.equal(missing.code, 'PLUMB_ERROR_STATE');
  assert.match(missing.message, /nowhere\/engine-worker\.js \(from workerUrl\) does not load/);
});

for (const [how, headers, options] of /** @type {[string, Record<string, string>, object][]} */ ([
  ['a blob: worker', ISOLATED, {}],
  ['the worker of workerUrl', STRICT, { workerUrl: '/own-workers/engine-worker.js' }],
])) {
  test(`a chat is answered on such a page with ${how}`, async t => {
    const { page, origin } = await open(t, { headers });
    const answer = await page.evaluate(async ({ origin, options, model: url, messages, n }) => {
      const { Plumb } = await import(`${origin}/web/index.js`);
      const model = await Plumb.load(url, { cache: 'no-store', ...options });
      const chat = model.chat({ temperature: 0, maxTokens: n }), ids = [];
      for await (const _ of chat.send(messages, { onToken: ({ id }) => ids.push(id) }));
      await model.close();
      return ids;
    }, { origin, options, model: MODEL, messages: CHAT.messages, n: N });
    assert.deepEqual(answer, CHAT.f32.ids.slice(0, N));
  });
}

test('shared workers and service workers run models, and say what they cannot do', async t => {
  const { page } = await open(t);
  const [shared, service] = await page.evaluate(async () => {
    const url = '/tests/browser/scope-worker.js', { serviceWorker } = navigator;
    const shared = new SharedWorker(url, { type: 'module' });
    const ofShared = new Promise((resolve, reject) => {
      shared.onerror = () => reject(new Error('the shared worker does not start'));
      shared.port.onmessage = ({ data }) => resolve(data);
    });
    const ofService = new Promise(resolve => { serviceWorker.onmessage = ({ data }) => resolve(data); });
    const { installing } = await serviceWorker.register(url, { type: 'module', scope: '/tests/browser/none/' });
    installing.onstatechange = () => installing.state === 'activated' && installing.postMessage('');
    return Promise.all([ofShared, ofService]);
  });
  const refused = (/** @type {string} */ scope) => 'PlumbError PLUMB_ERROR_UNSUPPORTED '
    + `a ${scope} cannot start workers: use plumb in a page or in a dedicated worker`;
  for (const [results, scope] of [[shared, 'SharedWorkerGlobalScope'], [service, 'ServiceWorkerGlobalScope']]) {
    const { load, preflight, command, fits } = results;
    assert.deepEqual([load, preflight, command, fits], [`${refused(scope)}, or load with worker: false`,
      `${refused(scope)}, or load with worker: false`, refused(scope), true]);
  }
  assert.ok(shared.text.length > 0 && shared.text === service.text);
  assert.match(shared.chat, /^\w+/);
  assert.equal(service.chat, shared.chat);
});

test('the URL of a model is relative to <base href>', async t => {
  const { page, site } = await open(t, { body: '<base href="/tests/vectors/synth/">' });
  const found = await page.evaluate(async web => {
    const { Plumb } = await import(`${web}index.js`);
    const model = await Plumb.load('f32.gguf');
    await model.close();
    return (await Plumb.listCached()).map(({ url }) => url);
  }, `${site}web/`);
  assert.deepEqual(found, [new URL(TINY, site).href]);
});

test('a page served by plain http has no copies, and removing or opening one says so', async t => {
  const { page, site } = await open(t);
  await page.route('http://plain.test/**', async route => {
    const path = new URL(route.request().url()).pathname;
    const contentType = path.endsWith('.js') ? 'text/javascript' : 'text/html';
    await route.fulfill({ contentType, body: path === '/' ? '' : readFileSync(`${root}${path}`) });
  });
  await page.goto('http://plain.test/');
  const found = await page.evaluate(async () => {
    const { Plumb } = await import('/web/index.js');
    const url = '/model.gguf';
    return {
      isSecureContext, subtle: typeof crypto.subtle, list: await Plumb.listCached(),
      removed: await Plumb.removeCached(url), opened: typeof await Plumb.openCached(url),
    };
  });
  assert.deepEqual(found,
    { isSecureContext: false, subtle: 'undefined', list: [], removed: false, opened: 'undefined' }, site);
});

test('persistent storage is requested only with persist: true', async t => {
  const { page } = await open(t);
  const asked = await page.evaluate(async url => {
    const { Plumb } = await import('/web/index.js');
    let asked = 0;
    navigator.storage.persist = async () => (asked++, true);
    const seen = [];
    for (const persist of [undefined, false, true]) {
      await (await Plumb.load(url, { persist })).close();
      seen.push(asked);
    }
    return seen;
  }, TINY);
  assert.deepEqual(asked, [0, 0, 1]);
});
