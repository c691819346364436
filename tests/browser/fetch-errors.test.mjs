/** The errors that a page gets for files that fail to load, in headless Chromium.  Ground truth: the behaviour that the
 * servers were given. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { root, tiny } from '../node/helpers.mjs';

let isolated, plain, browser, http, models, asked, headers;
before(async () => {
  isolated = await serve({ root });
  plain = await serve({ root, headers: {} });
  browser = await launchChrome();
  http = createServer((request, response) => {
    asked.push(request.method);
    response.writeHead(200, { ...headers, 'Content-Length': tiny.length }).end(tiny);
  });
  await new Promise(resolve => http.listen(0, '127.0.0.1', resolve));
  models = `http://127.0.0.1:${http.address().port}/`;
});
after(async () => {
  await browser?.close();
  await isolated?.close();
  await plain?.close();
  http.close();
  http.closeAllConnections();
});

/** The error of an action in a new page. @param {string} site @param {(page: any) => Promise<void>} [prepare] */
async function failure(site, source, options = {}, prepare = async () => {}) {
  [asked, headers] = [[], headers ?? {}];
  const page = await browser.newPage();
  try {
    await prepare(page);
    await page.goto(`${site}README.md`);
    return await page.evaluate(async ([source, options]) => {
      const { Plumb } = await import('/web/index.js');
      return Plumb.load(source ?? new Uint8Array(10), options).then(model => model.close().then(() => 'none'),
        ({ code, message, details }) => ({ code, message, details }));
    }, [source, options]);
  } finally {
    await page.close();
  }
}

test('the error for another site without CORS headers names the header, the page\'s origin and the URL', async () => {
  for (const [what, site] of [['isolated', isolated], ['plain', plain]]) {
    for (const worker of [true, false]) {
      headers = {};
      const { code, message } = await failure(site.url, `${models}m.gguf`, { worker });
      assert.equal(code, 'PLUMB_ERROR_IO');
      const { origin } = new URL(site.url);
      assert.ok(message.startsWith(`${models}m.gguf: the server answers, but does not allow pages of ${origin} to `
        + 'read the answer (CORS)'), `${what}: ${message}`);
      assert.ok(message.includes(`"Access-Control-Allow-Origin: ${origin}"`), message);
      assert.ok(asked.length <= 4, `${asked.length} requests`);
    }
  }
  headers = { 'Access-Control-Allow-Origin': '*' };
  assert.equal(await failure(isolated.url, `${models}m.gguf`), 'none');
});

test('the error for an unreachable server does not blame CORS', async () => {
  for (const site of [isolated, plain]) {
    const { code, message } = await failure(site.url, 'http://127.0.0.1:1/m.gguf');
    assert.equal(code, 'PLUMB_ERROR_IO');
    assert.match(message, /^http:\/\/127\.0\.0\.1:1\/m\.gguf: no connection: [^;]*\(2 retries failed\)$/);
  }
});

for (const [what, answer, reason] of [
  ['a web page', { contentType: 'text/html; charset=utf-8', body: '<!doctype html><title>App</title>' },
    /the server sent a web page \(text\/html; charset=utf-8\), not a WebAssembly module; .*dist must be served/],
  ['nothing', { contentType: 'application/wasm', headers: { 'Content-Length': '0' }, body: '' },
    /the server sent an empty file, not a WebAssembly module$/],
  ['nothing, of no type', { contentType: 'application/octet-stream', body: '' },
    /the server sent an empty file, not a WebAssembly module$/],
  ['404', { status: 404, body: 'no' }, /the server answered 404/],
]) {
  test(`${what} instead of the engine: the error names the file's URL and what was received`, async () => {
    const route = page => page.route('**/*.wasm', route => route.fulfill({ ...answer,
      headers: { 'Cross-Origin-Resource-Policy': 'same-origin', ...answer.headers } }));
    const { code, message, details } = await failure(isolated.url, undefined, { threads: 1 }, route);
    assert.equal(code, 'PLUMB_ERROR_IO');
    assert.match(message, /^http:\/\/127\.0\.0\.1:\d+\/web\/dist\/plumb[a-z-]*\.wasm: the engine does not load: /);
    assert.match(message, reason);
    assert.match(details.url, /\.wasm$/);
  });
}
