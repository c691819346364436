/** What a caller adds to the requests of a load: headers, credentials, a fetch, the name of the copy.  Ground truth:
 * the requests that servers saw, and the logits of the file. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Plumb } from '../../web/node/index.js';
import { copies, expected, files, flaky, load, network, quick, sha256 } from './downloads.mjs';
import { fails, plumbOn, root, server, tiny, tinyPath } from './helpers.mjs';

const SECRET = 'hf_s3cret-t0ken';
const HEADERS = { Authorization: `Bearer ${SECRET}`, 'X-Key': 'k3y-of-the-caller' };
const plumbs = { worker: Plumb, 'the same thread': quick };

/** A server that keeps what the requests have in their headers.
 * @param {(request: import('node:http').IncomingMessage) => object} [answer]  {status, headers, bytes} */
async function watched(t, answer = () => ({})) {
  const seen = [];
  const url = await server(t, (request, response) => {
    const { authorization, 'x-key': key, range } = request.headers;
    seen.push({ method: request.method, path: request.url, authorization, key, range });
    const { status = 200, headers = {}, bytes = tiny, message } = answer(request);
    response.writeHead(status, message, { 'Content-Length': bytes.length, ...headers });
    response.end(request.method === 'HEAD' ? undefined : bytes);
  });
  return { url, seen };
}

for (const [where, plumb] of Object.entries(plumbs)) {
  test(`headers go to the server of the model, and not where it redirects a request (${where})`, async t => {
    const other = await watched(t);
    const own = await watched(t, ({ url }) => url === '/here' ? {}
      : { status: 302, headers: { Location: url === '/near' ? '/here' : `${other.url}file` } });
    for (const path of ['near', 'far']) {
      await load(`${own.url}${path}`, { headers: HEADERS, cache: 'no-store' }, plumb);
      await plumb.preflight(`${own.url}${path}`, { headers: new Headers(HEADERS), measure: false });
    }
    const all = { authorization: HEADERS.Authorization, key: HEADERS['X-Key'] };
    assert.deepEqual(own.seen.map(({ path }) => path), ['/near', '/here', '/near', '/here', '/far', '/far']);
    for (const { authorization, key } of own.seen) assert.deepEqual({ authorization, key }, all);
    assert.deepEqual(other.seen.map(({ authorization, key, range }) => ({ authorization, key, range })), [
      { authorization: undefined, key: undefined, range: undefined },
      { authorization: undefined, key: undefined, range: 'bytes=0-65535' },
    ]);
  });
}

test('headers are not sent back to their server when a request has been at another', async t => {
  let home = '';
  const other = await watched(t, () => ({ status: 307, headers: { Location: `${home}back` } }));
  const own = await watched(t, ({ url }) => url === '/back' ? {}
    : { status: 301, headers: { Location: other.url } });
  home = own.url;
  assert.equal((await load(`${own.url}m`, { headers: HEADERS })).logits, expected);
  assert.deepEqual(own.seen.map(({ path, key }) => [path, key]), [['/m', HEADERS['X-Key']], ['/back', undefined]]);
});

test('redirects without an end are an error', async t => {
  const { url, seen } = await watched(t, () => ({ status: 302, headers: { Location: '/again' } }));
  await fails(load(`${url}m`, { headers: HEADERS }), 'PLUMB_ERROR_IO', /more than 20 redirects/);
  assert.ok(seen.length < 100, `${seen.length} requests`);
});

test('headers do not go to other parts and adapters on other servers, unless these are the model\'s', async t => {
  const bytes = { '/m': readFileSync(`${root}tests/vectors/archs/llama.gguf`), '/a': tiny.subarray(0, 50000),
    '/b': tiny.subarray(50000), '/lora': readFileSync(`${root}tests/vectors/adapters/llama-lora.gguf`) };
  const answer = ({ url }) => ({ bytes: bytes[url] });
  const own = await watched(t, answer), other = await watched(t, answer);
  assert.equal((await load([`${own.url}a`, `${other.url}b`], { headers: HEADERS })).logits, expected);
  const adapters = [own, other].map(({ url }) => ({ source: `${url}lora` }));
  const model = await Plumb.load(`${own.url}m`, { headers: HEADERS, adapters });
  await model.loadAdapter(`${other.url}lora`, { cache: 'reload' });
  assert.deepEqual(own.seen.map(({ path, key }) => [path, key]), ['/a', '/m', '/lora'].map(path =>
    [path, HEADERS['X-Key']]));
  assert.ok(other.seen.every(({ key, authorization }) => !key && !authorization));
  const paths = other.seen.filter(({ method }) => method === 'GET').map(({ path }) => path);
  assert.deepEqual(paths, ['/b', '/lora', '/lora']);
  await model.loadAdapter(`${other.url}lora`, { cache: 'reload', headers: HEADERS });
  assert.equal(other.seen.at(-1).key, HEADERS['X-Key']);
  await model.close();
});

test('a fetch of the caller gets every request, with the headers, and streams the file', async t => {
  const { url, seen } = await flaky(t, i => i === 0 ? { cut: 50000 } : {});
  for (const [where, plumb] of Object.entries(plumbs)) {
    const asked = [];
    const fetch = (address, init) => {
      const key = new Headers(init.headers).get('x-key');
      asked.push([address, key, init.credentials, init.signal instanceof AbortSignal]);
      return globalThis.fetch(address, init);
    };
    const options = { fetch, headers: HEADERS, credentials: 'include', cache: 'reload' };
    assert.deepEqual(await load(url, options, plumb), { logits: expected, warnings: [] }, where);
    assert.equal(sha256(readFileSync(join(copies, files().find(name => name.endsWith('.gguf'))))), sha256(tiny));
    const { fits, cached } = await plumb.preflight(url, { fetch, measure: false });
    assert.ok(fits && cached.complete);
    assert.ok(asked.length > 0);
    for (const one of asked) assert.deepEqual(one, [url, HEADERS['X-Key'], 'include', true]);
  }
  assert.equal(seen.length, 3);
});

test('what a fetch of the caller throws or returns in error is reported; an abort ends its request', async () => {
  for (const plumb of Object.values(plumbs)) {
    const unlucky = async () => { throw new Error('no luck'); };
    await fails(plumb.load('http://a.example/m', { fetch: unlucky, cache: 'no-store' }), 'PLUMB_ERROR_IO',
      /^http:\/\/a\.example\/m: no connection: .*no luck \(2 retries failed\)$/);
    await assert.rejects(plumb.load('http://a.example/m', { fetch: () => 'nothing', cache: 'no-store' }),
      /the function returned string, expected a Response/);
    const broken = () => new Response(new ReadableStream({ pull() { throw new Error('broke'); } }));
    await fails(plumb.load('http://a.example/m', { fetch: async () => broken(), cache: 'no-store' }), 'PLUMB_ERROR_IO',
      /broke/);
    const stop = new AbortController();
    let aborted = false;
    const loading = plumb.load('http://a.example/m', {
      signal: stop.signal, cache: 'no-store',
      fetch: (_, { signal }) => new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          aborted = true;
          reject(signal.reason);
        });
        stop.abort(new Error('enough'));
      }),
    });
    await assert.rejects(loading, /enough/);
    for (let turn = 0; turn < 100 && !aborted; turn++) await sleep(20);   // the worker is told after the rejection
    assert.ok(aborted);
    const late = new AbortController();
    setTimeout(() => late.abort(new Error('too late')), 50);
    const silent = plumb.load('http://a.example/m', {
      signal: late.signal, cache: 'no-store', fetch: () => new Promise(() => {}),
    });
    await assert.rejects(silent, /too late/);
  }
});

test('requests of a fetch of the caller run at the same time, and one that stalls is ended and repeated', async t => {
  const parts = [tiny.subarray(0, 60000), tiny.subarray(60000)];
  const { url } = await watched(t, ({ url }) => ({ bytes: parts[Number(url.slice(1))] }));
  for (const [where, plumb] of Object.entries(plumbs)) {
    const asked = [];
    const fetch = async (address, init) => {
      asked.push(init.method ?? 'GET');
      if (init.method === 'HEAD') await sleep(30);   // the bytes of the first part arrive meanwhile
      const response = await globalThis.fetch(address, init);
      const body = response.body?.pipeThrough(new TransformStream({ async transform(chunk, controller) {
        for (let at = 0; at < chunk.length; at += 5000) {
          await sleep(3);
          controller.enqueue(chunk.subarray(at, at + 5000));
        }
      } }));
      return new Response(body, response);
    };
    const both = [`${url}0`, `${url}1`];
    assert.equal((await load(both, { fetch, cache: 'no-store' }, plumb)).logits, expected, where);
    assert.deepEqual(asked, ['GET', 'HEAD', 'GET']);
  }
  const signals = [];
  network.silence = async () => { if (signals.length > 1) await new Promise(() => {}); };
  const stalling = async (address, init) => {
    signals.push(init.signal);
    return signals.length === 1 ? new Promise(() => {}) : globalThis.fetch(address, init);
  };
  const whole = await watched(t);
  assert.equal((await load(whole.url, { fetch: stalling, cache: 'no-store' })).logits, expected);
  assert.deepEqual(signals.map(({ aborted }) => aborted), [true, false]);
});

test('credentials go to fetch; wrong options are refused, and no message shows a header', async t => {
  const { url } = await flaky(t, () => ({}));
  const modes = [], { fetch } = globalThis;
  t.mock.method(globalThis, 'fetch', (address, options) => {
    modes.push(options.credentials);
    return fetch(address, options);
  });
  for (const credentials of ['omit', 'include', undefined]) await load(url, { credentials, cache: 'no-store' });
  assert.deepEqual(modes, ['omit', 'include', undefined]);
  for (const [options, message] of [
    [{ headers: 1 }, /headers is 1/], [{ headers: { 'bad name': SECRET } }, /headers is an object, expected an obj/],
    [{ headers: { a: `${SECRET}\nb: c` } }, /headers is an object/], [{ credentials: 'yes' }, /credentials is "yes"/],
    [{ fetch: url }, /fetch is/], [{ cacheKey: '' }, /cacheKey is ""/],
  ]) {
    for (const call of [Plumb.load, Plumb.preflight, Plumb.pull]) {
      await assert.rejects(call.call(Plumb, url, options), error => {
        assert.equal(error.code, 'PLUMB_ERROR_ARGUMENT');
        assert.match(error.message, message);
        assert.doesNotMatch(error.message, /s3cret/);
        return true;
      });
    }
  }
});

/** What an error shows. @param {any} error */
const allOf = error => JSON.stringify([error.message, error.details, error.stack]);
/** All texts in the folder of the copies that are not model bytes, and the list. */
const written = async plumb => JSON.stringify([await plumb.listCached(), readdirSync(copies),
  ...files().filter(name => name.endsWith('.json')).map(name => readFileSync(join(copies, name), 'utf8'))]);

test('cacheKey names the copy of a URL that changes; it is found, listed and removed by that name', async t => {
  const { url, seen } = await flaky(t, () => ({}));
  const signed = n => `${url}?Expires=${n}&Signature=s3cret-${n}`;
  await load(signed(1), { cacheKey: 'my-model' });
  assert.deepEqual(await load(signed(2), { cacheKey: 'my-model' }), { logits: expected, warnings: [] });
  assert.equal(seen.length, 1);
  assert.deepEqual((await quick.listCached()).map(one => [one.url, one.complete]), [['my-model', true]]);
  assert.deepEqual((await quick.preflight(signed(3), { cacheKey: 'my-model', measure: false })).cached,
    { bytes: tiny.length, complete: true });
  assert.equal((await quick.openCached('my-model')).size, tiny.length);
  assert.doesNotMatch(await written(quick), /s3cret/);
  assert.equal(await quick.removeCached('my-model'), true);
  assert.deepEqual(files(), []);
  // A key that is the URL without its query is the copy of that URL.
  await load(signed(4), { cacheKey: url });
  await load(url);
  assert.equal(seen.length, 2);
  const cut = await watched(t, ({ url }) => ({ bytes: url.startsWith('/a') ? tiny.subarray(0, 40000)
    : tiny.subarray(40000) }));
  for (const n of [1, 2]) {
    const both = [`${cut.url}a?s=${n}`, `${cut.url}b?s=${n}`];
    assert.equal((await load(both, { cacheKey: 'both' })).logits, expected);
  }
  assert.equal(cut.seen.filter(({ method }) => method === 'GET').length, 2);
  assert.equal(await quick.removeCached('both'), true);
  assert.deepEqual((await quick.listCached()).map(one => one.url), [url]);
});

test('queries and tokens are in no message, warning or list, whatever a server repeats', async t => {
  const signature = 'X-Amz-Signature=s3cret-signature', { url } = await flaky(t, () => ({}));
  const signed = `${url}?${signature}`;
  await load(signed);
  await load(signed);
  const [{ url: shown }] = await quick.listCached();
  assert.match(shown, /^http:\/\/127\.0\.0\.1:\d+\/model\.gguf\?copy=[0-9a-f]{16}$/);
  assert.doesNotMatch(await written(quick), /s3cret/);
  assert.equal((await quick.openCached(shown)).size, tiny.length);
  assert.equal(await quick.removeCached(signed), true);
  await load(signed);
  assert.equal(await quick.removeCached(shown), true);
  const echo = await watched(t, request => ({
    status: 403, message: `no ${request.headers.authorization ?? ''} ${request.url}`, bytes: Buffer.from('no'),
  }));
  const page = await watched(t, request => ({
    headers: { 'Content-Type': `text/html; ${request.headers.authorization}` }, bytes: Buffer.from('<html>'),
  }));
  for (const site of [echo.url, page.url, 'http://127.0.0.1:1/']) {
    const address = `${site}m?${signature}`;
    for (const plumb of Object.values(plumbs)) {
      const methods = [plumb.load, plumb.pull, ...site === page.url ? [] : [plumb.preflight]];
      for (const method of methods) {
        await assert.rejects(method.call(plumb, address, { headers: HEADERS }), error => {
          assert.match(error.message, /\/m\?\.\.\.: /);
          assert.doesNotMatch(allOf(error), /s3cret|k3y/);
          return true;
        });
      }
      // A preflight reports that the file is no model, and does not reject.
      const { problems } = await plumb.preflight(`${page.url}m?${signature}`, { headers: HEADERS });
      assert.match(problems[0].message, /text\/html; \.\.\./);
      assert.doesNotMatch(JSON.stringify(problems), /s3cret|k3y/);
    }
  }
  const model = await Plumb.load(tinyPath);
  await assert.rejects(model.loadAdapter(`${echo.url}m?${signature}`, { headers: HEADERS }),
    error => !/s3cret|k3y/.test(allOf(error)));
  await model.close();
  assert.doesNotMatch(await written(quick), /s3cret/);
});

test('a copy that cannot be kept is a warning without the query', async t => {
  const { url } = await flaky(t, () => ({}));
  const full = plumbOn({ store: { take: async () => { throw new Error(`no folder for ${url}?key=s3cret-key`); },
    list: async () => [] } });
  const { warnings } = await load(`${url}?key=s3cret-key`, { headers: HEADERS }, full);
  assert.match(warnings[0].message, /model\.gguf\?\.\.\.: no copy is kept: no folder/);
  assert.doesNotMatch(warnings[0].message, /s3cret/);
});
