/** Downloads that break, and copies in the browser's private file system (OPFS), in headless Chromium. Ground truth:
 * the file itself, and the requests that its server saw. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, afterEach, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { sendEndlessHeader } from '../node/gguf.mjs';
import { realPath, root, server, tiny } from '../node/helpers.mjs';
import { until } from './chat-page.mjs';

const HEADERS = {
  'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin',
  'Last-Modified': 'Mon, 01 Jan 2024 00:00:00 GMT', ETag: '"hidden"',
};
const sum = bytes => createHash('sha256').update(bytes).digest('hex');
let pages, browser, context, page, http, model, seen, step;
/** The model's site, which is not the page's.  step(i) says after how many bytes of the file answer i stalls or
 * breaks. */
before(async () => {
  pages = await serve({ root });
  browser = await launchChrome();
});
beforeEach(async () => {
  [seen, step] = [[], () => ({})];
  http = createServer((request, response) => {
    const { range, 'if-range': ifRange } = request.headers;
    const i = seen.push({ method: request.method, range, ifRange }) - 1;
    const { bytes = tiny, cut = Infinity, stall = Infinity, headers = HEADERS } = step(i);
    const from = Number(/^bytes=(\d+)-$/.exec(range ?? '')?.[1] ?? 0);
    response.writeHead(from > 0 ? 206 : 200, { ...headers, 'Content-Length': bytes.length - from,
      ...from > 0 && { 'Content-Range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } });
    const end = Math.min(cut, stall);
    if (end === Infinity) return void response.end(bytes.subarray(from));
    response.write(bytes.subarray(from, end), () => cut < stall && setTimeout(() => response.destroy(), 1000));
  });
  await new Promise(resolve => http.listen(0, '127.0.0.1', resolve));
  model = `http://127.0.0.1:${http.address().port}/model.gguf`;
  context = await browser.newContext();
  page = await open();
});
afterEach(async () => {
  await context.close();
  http.close();
  http.closeAllConnections();
});
after(async () => {
  await browser?.close();
  await pages?.close();
});

/** An isolated page of the package's origin without code of its own.  It does not come from page.route, because
 * Chromium blocks such pages from sites on this machine. */
async function open() {
  const page = await context.newPage();
  await page.goto(`${pages.url}README.md`);
  await prepare(page);
  return page;
}
const prepare = page => page.evaluate(async () => {
  const { Plumb } = await import('/web/index.js');
  Object.assign(globalThis, {
    Plumb,
    load: async (source, options = {}) => {
      const phases = [];
      const start = performance.now();
      const onProgress = ({ phase, bytes, attempt }) => {
        globalThis.progress = { phase, bytes };
        if (phases.at(-1)?.phase !== phase) phases.push({ phase, bytes, attempt });
      };
      const model = await Plumb.load(source, { onProgress, ...options });
      const ms = performance.now() - start;
      const logits = await model.feed([72, 101, 13, 255]);
      await model.close();
      return { logits: [...logits], warnings: model.warnings, phases, ms };
    },
    failureOf: action => action().then(() => ({ code: 'none' }),
      ({ code, message, name }) => ({ code, message, name })),
  });
});
const load = (source = model, options = {}, where = page) =>
  where.evaluate(([source, options]) => load(source, options), [source, options]);
const list = (where = page) => where.evaluate(() => Plumb.listCached());
let expected;
const right = async ({ logits }) => {
  expected ??= (await page.evaluate(bytes => load(Uint8Array.from(bytes)), [...tiny])).logits;
  assert.equal(logits.length, 260);
  assert.deepEqual(logits, expected);
};
const names = ({ phases }) => phases.map(({ phase }) => phase);

test('a broken download resumes where it broke, with a request that needs no CORS preflight', async () => {
  step = i => i === 0 ? { cut: 60000 } : {};
  const loaded = await load(model, { sha256: sum(tiny) });
  await right(loaded);
  assert.deepEqual(seen, [{ method: 'GET', range: undefined, ifRange: undefined },
    { method: 'GET', range: 'bytes=60000-', ifRange: undefined }]);
  assert.deepEqual(names(loaded), ['download', 'wait', 'download', 'prepare', 'ready']);
  assert.deepEqual(loaded.phases[1], { phase: 'wait', bytes: 60000, attempt: 1 });
  assert.deepEqual(loaded.warnings, []);
});

test('the second load needs no server; the copy equals the file until it is removed', async () => {
  await load();
  http.close();
  http.closeAllConnections();
  for (const options of [{}, { worker: false }, { sha256: sum(tiny) }]) {
    const again = await load(model, options);
    await right(again);
    assert.deepEqual(names(again), ['read', 'prepare', 'ready']);
    assert.deepEqual(again.warnings.filter(({ code }) => code === 'cache'), []);
  }
  const [{ lastUsed, etag, ...entry }] = await list();
  assert.equal(etag, undefined);   // a browser hides it from other sites
  assert.ok(Math.abs(lastUsed - Date.now()) < 60000);
  assert.deepEqual(entry, { url: model, complete: true, bytes: tiny.length, size: tiny.length,
    lastModified: HEADERS['Last-Modified'], sha256: sum(tiny) });
  const bytes = await page.evaluate(async url => [...await (await Plumb.openCached(url)).bytes()], model);
  assert.equal(sum(Uint8Array.from(bytes)), sum(tiny));
  assert.deepEqual(await page.evaluate(url => Promise.all([Plumb.removeCached(`${url}#x`)]), model), [true]);
  assert.equal(await page.evaluate(url => Plumb.removeCached(url), model), false);
  assert.deepEqual(await list(), []);
});

test('a shorter file that replaces a copy leaves no bytes of the longer one', async () => {
  step = i => i === 0 ? { bytes: Buffer.concat([tiny, Buffer.alloc(100000)]) } : {};
  await load();
  assert.deepEqual((await list()).map(({ size }) => size), [tiny.length + 100000]);
  await right(await load(model, { cache: 'reload' }));
  const bytes = await page.evaluate(async url => [...await (await Plumb.openCached(url)).bytes()], model);
  assert.equal(sum(Uint8Array.from(bytes)), sum(tiny));
});

test('persistent storage is requested once, and only if the caller asks for it', async () => {
  const times = await page.evaluate(async ([url, bytes]) => {
    let n = 0;
    StorageManager.prototype.persist = async () => {
      n++;
      return true;
    };
    const times = [];
    for (const [source, persist] of [[Uint8Array.from(bytes)], [url], [url, false], [url, true], [url, true]]) {
      await load(source, { persist });
      times.push(n);
    }
    return times;
  }, [model, [...tiny]]);
  assert.deepEqual(times, [0, 0, 0, 1, 1]);
});

test('a page that is reloaded during a download resumes it', async () => {
  step = i => i === 0 ? { stall: 60000 } : {};
  await page.evaluate(url => void load(url), model);
  await until(async () => (await list())[0]?.bytes === 60000, 'the first part');
  await page.reload();
  await prepare(page);
  const [{ bytes, complete }] = await list();
  assert.deepEqual([bytes, complete], [60000, false]);
  const loaded = await load(model, { sha256: sum(tiny) });
  await right(loaded);
  assert.deepEqual(seen.map(({ range }) => range), [undefined, 'bytes=60000-']);
  assert.equal(loaded.phases[0].phase, 'read');
  assert.equal((await list())[0].complete, true);
});

test('an aborted load keeps what it has downloaded, and a load right after it resumes there', async () => {
  step = i => i === 0 ? { stall: 60000 } : {};
  const { reason, loaded } = await page.evaluate(async url => {
    const stop = new AbortController();
    const onProgress = ({ bytes }) => bytes === 60000 && stop.abort(new Error('enough'));
    const reason = await load(url, { signal: stop.signal, onProgress }).catch(error => error.message);
    return { reason, loaded: await load(url) };
  }, model);
  assert.equal(reason, 'enough');
  await right(loaded);
  assert.deepEqual(loaded.warnings, []);
  assert.deepEqual(seen.map(({ range }) => range), [undefined, 'bytes=60000-']);
});

test('two tabs: while one downloads, the other keeps no copy and warns; later both read the whole copy', async () => {
  step = i => i === 0 ? { stall: 60000 } : {};
  await page.evaluate(url => {
    globalThis.stop = new AbortController();
    void load(url, { signal: stop.signal });
  }, model);
  await page.waitForFunction(() => globalThis.progress?.bytes > 0);
  const second = await open();
  const loaded = await load(model, {}, second);
  await right(loaded);
  assert.deepEqual(loaded.warnings, [{ code: 'cache',
    message: `${model}: no copy is kept: another tab or process is using it` }]);
  const { code, message } = await second.evaluate(url => failureOf(() => Plumb.removeCached(url)), model);
  assert.equal(code, 'PLUMB_ERROR_STATE');
  assert.match(message, /model\.gguf: the copy cannot be removed: another tab or process is using it/);
  await page.close();
  page = second;
  const third = await open();
  await right(await load());   // resumes the download of the closed tab
  const asked = seen.length;
  for (const each of await Promise.all([load(model, {}, second), load(model, {}, third)])) {
    await right(each);
    assert.deepEqual([each.warnings, names(each)], [[], ['read', 'prepare', 'ready']]);
  }
  assert.equal(seen.length, asked);
});

/** Runs in a worker, because only workers can write: finishes a copy while another tab waits for its lock. */
const FINISH = `async (origin, size) => {
  const from = file => import(origin + 'web/' + file);
  const { Store } = await from('loader/copy-store.js'), { opfs } = await from('browser/opfs.js');
  const { Sums } = await from('loader/sums.js');
  const bytes = Uint8Array.from({ length: size }, (_, i) => i % 251), url = 'https://models.example/m';
  let n = 0;
  const digest = { begin() { n = 0; }, update(bytes) { for (const byte of bytes) n = Math.imul(n, 31) + byte; },
    end: () => new Uint8Array(new Float64Array([n]).buffer) };
  let wasLocked, wasWhole, begin, wait = new Promise(resolve => { begin = resolve; }), end;
  const ended = new Promise(resolve => { end = resolve; });
  const writer = new Store(async () => {
    const folder = await opfs();
    return { ...folder, async put(name, text) {
      if (JSON.parse(text).complete) {   // nobody else may write until this is written
        const copy = name.replace('.json', '');
        wasLocked = await folder.lock(copy).then(lock => { lock.close(0); return false; }, () => true);
        const there = new Uint8Array(await (await folder.file(copy + '.gguf')).arrayBuffer());
        wasWhole = there.length === size && there.every((byte, i) => byte === bytes[i]);
      }
      return folder.put(name, text);
    } };
  });
  const waiter = new Store(async () => {
    const folder = await opfs();
    return { ...folder, async lock(...args) {
      begin();
      await ended;
      return folder.lock(...args);
    } };
  });
  const copy = await writer.take(url), sums = new Sums(digest);
  await copy.begin(0, { size, certain: true });
  const waiting = waiter.take(url);
  await wait;
  await copy.write(bytes, sums);
  await copy.finish(undefined, sums.all());
  await copy.close();
  end();
  const found = await waiting, { complete, at } = found;
  await found.close();
  const left = (await (await opfs()).names()).map(name => name.replace(/.*\\./, '')).sort();
  return { wasLocked, wasWhole, complete, at, left };
}`;

test('a copy stays locked until it is marked complete; a tab that waited then sees it complete', async () => {
  const found = await page.evaluate(([code, size]) => new Promise((resolve, reject) => {
    const program = `(${code})('${location.origin}/', ${size}).then(postMessage, error => postMessage(String(error)));`;
    const address = URL.createObjectURL(new Blob([program], { type: 'text/javascript' }));
    const worker = new Worker(address, { type: 'module' });
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
  }), [FINISH, 300000]);
  assert.deepEqual(found, { wasLocked: true, wasWhole: true, complete: true, at: 300000, left: ['gguf', 'json'] });
});

test('with too little storage the warning gives the numbers, and the load continues without a copy', async () => {
  const { origin } = new URL(pages.url);
  const devtools = await context.newCDPSession(page);
  await devtools.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: 50000 });
  const loaded = await load();
  await right(loaded);
  assert.match(loaded.warnings[0].message, /no copy is kept: it needs 0\.1 MB, .*; other cached models take 0\.0 MB/);
  assert.deepEqual(await list(), []);
  await devtools.send('Storage.overrideQuotaForOrigin', { origin });
  const kept = await load();
  await right(kept);
  assert.deepEqual([kept.warnings, (await list()).length], [[], 1]);
});

test('the page\'s own thread reads copies but writes none', async () => {
  const silent = await load(model, { worker: false });
  await right(silent);
  assert.deepEqual(silent.warnings.filter(({ code }) => code === 'cache'), []);
  const asked = await load(model, { worker: false, cache: 'default' });
  assert.match(asked.warnings.find(({ code }) => code === 'cache').message,
    /no copy is kept: the page's own thread can read copies, but not write them/);
  assert.deepEqual(await list(), []);
});

test('a copy that was tampered with causes no error', async () => {
  for (const damage of ['json', 'bytes', 'size']) {
    await load();
    await page.evaluate(async damage => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('plumb');
      for await (const [name, file] of folder.entries()) {
        if (name.endsWith('.json') !== (damage === 'json')) continue;
        const to = await file.createWritable({ keepExistingData: true });
        if (damage === 'size') await to.truncate(500);
        else await to.write({ type: 'write', position: 0, data: 'Once upon a time' });
        await to.close();
      }
    }, damage);
    const loaded = await load();
    await right(loaded);
    assert.equal(loaded.warnings.length, damage === 'bytes' ? 1 : 0);
    if (damage === 'bytes') assert.match(loaded.warnings[0].message, /the copy on this machine is damaged: .*removed/);
    const [{ complete, bytes }] = await list();
    assert.deepEqual([complete, bytes], [true, tiny.length], damage);
  }
});

test('one flipped bit in a copy is detected, and the file is downloaded again', async () => {
  await load();
  for (const options of [{}, { worker: false }]) {
    await page.evaluate(async at => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('plumb');
      for await (const [name, file] of folder.entries()) {
        if (!name.endsWith('.gguf')) continue;
        const bytes = await (await file.getFile()).bytes();
        bytes[at] ^= 16;
        const to = await file.createWritable();
        await to.write(bytes);
        await to.close();
      }
    }, tiny.length - 5000);
    const loaded = await load(model, options);
    await right(loaded);
    const found = loaded.warnings.filter(({ message }) => message.includes('the copy on this machine is damaged: the '
      + `bytes from 0 to ${tiny.length} are not those that were downloaded`));
    assert.equal(found.length, 1);
  }
  assert.equal(seen.length, 3);
});

test('a sha256 mismatch names both hashes and removes the copy', async () => {
  await load();
  const wrong = '0'.repeat(64);
  const { code, message } = await page.evaluate(([url, sha256]) =>
    failureOf(() => Plumb.load(url, { sha256 })), [model, wrong]);
  assert.equal(code, 'PLUMB_ERROR_CHECKSUM');
  assert.ok(message.includes(wrong) && message.includes(sum(tiny)), message);
  assert.deepEqual(await list(), []);
});

test('an endless header is refused after 256 MiB, and its copy is removed', async t => {
  let sent = 0;
  const url = await server(t, async (_, response) => {
    response.writeHead(200, HEADERS);
    for await (sent of sendEndlessHeader(response));
  });
  const { error, kept } = await page.evaluate(async url => {
    let kept = 0;
    const onProgress = async ({ bytes }) => {
      if (bytes > 2 ** 27) kept = Math.max(kept, (await Plumb.listCached())[0]?.bytes ?? 0);
    };
    return { error: await failureOf(() => Plumb.load(url, { onProgress })), kept };
  }, `${url}endless.gguf`);
  assert.equal(error.code, 'PLUMB_ERROR_METADATA', error.message);
  assert.match(error.message, /extend beyond byte 268435456, the limit for headers/);
  assert.ok(sent < 2 ** 29, `${sent} bytes`);   // the browser reads ahead
  assert.ok(kept > 2 ** 26, `of the copy ${kept} bytes were there`);
  assert.deepEqual(await list(), []);
  assert.deepEqual(await page.evaluate(async () => {
    const names = [];
    for await (const name of (await (await navigator.storage.getDirectory()).getDirectoryHandle('plumb')).keys()) {
      names.push(name);
    }
    return names;
  }), []);
});

test('a page that is not a secure context keeps no copy and says why', async () => {
  const insecure = await context.newPage();
  await insecure.route('http://plumb.test/**', route => {
    const { pathname } = new URL(route.request().url());
    if (pathname === '/') return route.fulfill({ contentType: 'text/html', body: '<!doctype html>' });
    return route.fulfill({ path: `${root}${pathname.slice(1)}` });
  });
  await insecure.goto('http://plumb.test/');
  await prepare(insecure);
  assert.equal(await insecure.evaluate(() => isSecureContext), false);
  const loaded = await load('/tests/vectors/synth/f32.gguf', { threads: 1 }, insecure);
  await right(loaded);
  assert.match(loaded.warnings[0].message, /no copy is kept: the page is not a secure context/);
  assert.deepEqual(await list(insecure), []);
});

test('the copy of the default model equals the file, and the next load reads it', async t => {
  const url = `${pages.url}models/SmolLM2-135M-Instruct.Q4_1.gguf`;
  const options = { sha256: sum(readFileSync(realPath)) };
  const [first, verified, again] = [await load(url, options), await load(url, options), await load(url)];
  assert.deepEqual(names(first), ['download', 'prepare', 'ready']);
  for (const loaded of [verified, again]) {
    assert.deepEqual(names(loaded), ['read', 'prepare', 'ready']);
    assert.deepEqual(loaded.logits, first.logits);
  }
  const ms = [first, verified, again].map(({ ms }) => ms.toFixed(0));
  t.diagnostic(`downloaded and checked in ${ms[0]} ms, read again in ${ms[1]} and ${ms[2]} ms`);
});

test('headers stay at their server, a fetch of the page gets the requests, and cacheKey names the copy', async t => {
  const cors = { ...HEADERS, 'Access-Control-Allow-Headers': 'authorization, range, x-key' };
  const seen = [];
  const elsewhere = await server(t, (request, response) => {
    if (request.method === 'OPTIONS') return void response.writeHead(204, cors).end();
    seen.push(['elsewhere', request.headers.authorization]);
    response.writeHead(200, cors).end(tiny);
  });
  const gate = await server(t, (request, response) => {
    if (request.method === 'OPTIONS') return void response.writeHead(204, cors).end();
    seen.push(['gate', request.headers.authorization]);
    if (!request.headers.authorization) return void response.writeHead(401, cors).end('who?');
    response.writeHead(302, { ...cors, Location: `${elsewhere}file?Signature=s3cret-${seen.length}` }).end();
  });
  const headers = { Authorization: 'Bearer s3cret-token' };
  const result = await page.evaluate(async ({ url, headers }) => {
    const { code, message } = await failureOf(() => load(`${url}m?key=s3cret-key`));
    const asked = [];
    const ownFetch = (address, init) => {
      asked.push([address, init.signal instanceof AbortSignal]);
      return fetch(address, init);
    };
    const first = await load(`${url}m?key=s3cret-1`, { headers, cacheKey: 'my-model' });
    const again = await load(`${url}m?key=s3cret-2`, { headers, cacheKey: 'my-model' });
    const own = await load(`${url}m`, { headers, fetch: ownFetch, cache: 'no-store' });
    const inPage = await load(`${url}m`, { headers, fetch: ownFetch, cache: 'no-store', worker: false });
    return { code, message, first, again, own, inPage, asked, list: await Plumb.listCached(),
      removed: await Plumb.removeCached('my-model') };
  }, { url: gate, headers });
  assert.equal(result.code, 'PLUMB_ERROR_IO');
  assert.match(result.message, /\/m\?\.\.\.: the server answered 401/);
  const all = [result.first, result.again, result.own, result.inPage];
  for (const { logits, warnings } of all) {
    assert.deepEqual(logits, result.first.logits);
    assert.deepEqual(warnings.filter(({ code }) => code === 'cache'), []);
  }
  assert.deepEqual(result.asked, [[`${gate}m`, true], [`${gate}m`, true]]);
  assert.deepEqual(result.list.map(one => [one.url, one.complete]), [['my-model', true]]);
  assert.equal(result.removed, true);
  const pair = [['gate', headers.Authorization], ['elsewhere', undefined]];
  assert.deepEqual(seen, [['gate', undefined], ...pair, ...pair, ...pair]);
  assert.doesNotMatch(JSON.stringify([result.message, result.list, all.map(({ warnings }) => warnings)]), /s3cret/);
});

test('in a page the copies that were not used for longest give way when the quota is nearly full', async () => {
  const use = (/** @type {string[]} */ names) => page.evaluate(async urls => {
    const warnings = [];
    for (const url of urls) warnings.push(...(await load(url)).warnings);
    return { warnings: warnings.filter(({ code }) => code === 'cache'),
      names: (await Plumb.listCached()).map(({ url }) => url.split('/').at(-1)) };
  }, names.map(name => model.replace('model.gguf', name)));
  assert.deepEqual(await use(['a', 'b', 'c', 'a']), { warnings: [], names: ['a', 'c', 'b'] });
  // Chromium's command for the quota does not change that of a private window, so the part of it is changed.
  const { quota } = await page.evaluate(() => navigator.storage.estimate());
  await context.route('**/web/browser/opfs.js', async route => {
    const response = await route.fetch(), text = await response.text(), part = (3 * tiny.length + 40000) / quota;
    assert.match(text, /OF_QUOTA = 0\.8;/);
    await route.fulfill({ response, body: text.replace(/OF_QUOTA = 0\.8/, `OF_QUOTA = ${part}`) });
  });
  assert.deepEqual(await use(['d']), { warnings: [], names: ['d', 'a', 'c'] });
});
