/** The file server. Ground truth: RFC 9110 on ranges and validators, worked out by hand for a file of ten bytes. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, mkdirSync, readFileSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ModelFetches } from '../../web/site/model-fetches.mjs';
import { serve } from '../../web/site/serve.mjs';
import { root } from './helpers.mjs';

let folder, server;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'plumb-serve-'));
  mkdirSync(join(folder, 'site', 'deep'), { recursive: true });
  writeFileSync(join(folder, 'secret.txt'), 'secret');
  writeFileSync(join(folder, 'site', '.hidden'), 'secret');
  writeFileSync(join(folder, 'site', 'ten.bin'), '0123456789');
  writeFileSync(join(folder, 'site', 'empty.bin'), '');
  writeFileSync(join(folder, 'site', 'deep', 'index.html'), '<p>deep');
  symlinkSync('../secret.txt', join(folder, 'site', 'link.txt'));
  symlinkSync('..', join(folder, 'site', 'up'));
  symlinkSync('ten.bin', join(folder, 'site', 'inside.bin'));
  mkdirSync(join(folder, 'elsewhere'));
  writeFileSync(join(folder, 'elsewhere', 'a.gguf'), 'model');
  symlinkSync('../elsewhere', join(folder, 'site', 'models'));
  for (const name of ['a.js', 'a.mjs', 'a.css', 'a.wasm', 'a.json', 'a b.txt']) {
    writeFileSync(join(folder, 'site', name), 'x');
  }
  server = await serve({ root: join(folder, 'site'), home: '/deep/' });
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

/** Like fetch, but sends the path unchanged. */
function raw(path, headers = {}, method = 'GET') {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.url);
    request({ hostname, port, path, headers, method }, response => {
      const chunks = [];
      response.on('data', chunk => chunks.push(chunk));
      response.on('end', () => resolve({
        status: response.statusCode, headers: response.headers, text: Buffer.concat(chunks).toString(),
      }));
    }).on('error', reject).end();
  });
}

test('a file is sent whole, with the headers for cross-origin isolation', async () => {
  const { status, headers, text } = await raw('/ten.bin');
  assert.deepEqual([status, text, headers['content-length']], [200, '0123456789', '10']);
  assert.equal(headers['cross-origin-opener-policy'], 'same-origin');
  assert.equal(headers['cross-origin-embedder-policy'], 'require-corp');
  assert.equal(headers['cross-origin-resource-policy'], 'same-origin');
  assert.equal(headers['accept-ranges'], 'bytes');
});

for (const [range, status, content, text] of [
  ['bytes=0-0', 206, 'bytes 0-0/10', '0'],
  ['bytes=2-4', 206, 'bytes 2-4/10', '234'],
  ['bytes=7-', 206, 'bytes 7-9/10', '789'],
  ['bytes=7-99', 206, 'bytes 7-9/10', '789'],
  ['bytes=-3', 206, 'bytes 7-9/10', '789'],
  ['bytes=-99', 206, 'bytes 0-9/10', '0123456789'],
  ['bytes=10-', 416, 'bytes */10', '416\n'],
  ['bytes=-0', 416, 'bytes */10', '416\n'],
  ['bytes=4-2', 200, undefined, '0123456789'],
  ['bytes=0-1,3-4', 200, undefined, '0123456789'],
  ['pages=1-2', 200, undefined, '0123456789'],
]) {
  test(`Range: ${range} gives ${status} ${content ?? 'and the whole file'}`, async () => {
    const answer = await raw('/ten.bin', { Range: range });
    assert.deepEqual([answer.status, answer.headers['content-range'], answer.text], [status, content, text]);
  });
}

test('a matching ETag gives 304, and If-Range gives a range only of the same file', async () => {
  const { etag } = (await raw('/ten.bin')).headers;
  assert.equal((await raw('/ten.bin', { 'If-None-Match': etag })).status, 304);
  assert.equal((await raw('/ten.bin', { 'If-None-Match': '"other"' })).status, 200);
  assert.equal((await raw('/ten.bin', { Range: 'bytes=1-2', 'If-Range': etag })).text, '12');
  assert.equal((await raw('/ten.bin', { Range: 'bytes=1-2', 'If-Range': '"other"' })).text, '0123456789');
});

test('a file that changes has another ETag, even with the same size and time, as files of packages have', async () => {
  const file = join(folder, 'site', 'packed.js'), ofPackages = new Date('1985-10-26');
  const etags = [];
  for (const text of ['one', 'two']) {
    writeFileSync(file, text);
    utimesSync(file, ofPackages, ofPackages);
    etags.push((await raw('/packed.js')).headers.etag);
    await new Promise(resolve => setTimeout(resolve, 20));   // longer than a tick of the file system's clock
  }
  assert.notEqual(etags[0], etags[1]);
});

test('a redirect keeps the query, which names the model in a link to the chat', async () => {
  for (const [asked, to] of [['/?model=a%20b&x', '/deep/?model=a%20b&x'], ['/deep?model=/m', '/deep/?model=/m'],
    ['/', '/deep/'], ['/deep', '/deep/']]) {
    assert.equal((await raw(asked)).headers.location, to);
  }
});

test('HEAD has the headers and no body; other methods are refused; empty files are served', async () => {
  const head = await raw('/ten.bin', {}, 'HEAD');
  assert.deepEqual([head.status, head.headers['content-length'], head.text], [200, '10', '']);
  assert.equal((await raw('/ten.bin', {}, 'PUT')).status, 405);
  assert.deepEqual([(await raw('/empty.bin')).status, (await raw('/empty.bin')).text], [200, '']);
});

test('content types are those that browsers require', async () => {
  for (const [name, type] of [['a.js', 'text/javascript'], ['a.mjs', 'text/javascript'], ['a.css', 'text/css'],
    ['a.wasm', 'application/wasm'], ['a.json', 'application/json'], ['deep/', 'text/html']]) {
    assert.ok((await raw(`/${name}`)).headers['content-type'].startsWith(type), name);
  }
});

test('folders redirect to their index, / to the home page', async () => {
  assert.deepEqual([(await raw('/deep')).status, (await raw('/deep')).headers.location], [301, '/deep/']);
  assert.equal((await raw('/deep/?x#y')).text, '<p>deep');
  assert.deepEqual([(await raw('/')).status, (await raw('/')).headers.location], [302, '/deep/']);
  assert.equal((await raw('/a%20b.txt')).text, 'x');
});

for (const path of ['/../secret.txt', '/%2e%2e/secret.txt', '/deep/../../secret.txt', '/..%2fsecret.txt', '/.hidden',
  '/link.txt', '/up/secret.txt', '/up/', '/up', '/models/a.gguf',
  '/deep/..%5c..%5csecret.txt', '//../secret.txt', '/%00', '/%', '/ten.bin/', '/none', '/ten.bin%00.js']) {
  test(`${path} reveals nothing`, async () => {
    const { status, text } = await raw(path);
    assert.ok(status === 404 || status === 400, `status ${status}`);
    assert.doesNotMatch(text, /secret/);
  });
}

test('a symbolic link is followed inside the folder and into a folder named on the command line', async t => {
  assert.equal((await raw('/inside.bin')).text, '0123456789');
  const other = await serve({ root: join(folder, 'site'), linked: [join(folder, 'elsewhere')] });
  t.after(other.close);
  assert.equal(await (await fetch(`${other.url}models/a.gguf`)).text(), 'model');
  assert.equal((await fetch(`${other.url}up/secret.txt`)).status, 404);
  assert.equal((await fetch(`${other.url}link.txt`)).status, 404);
});

test('a request with another site\'s host name is refused, even if that name resolves to this machine', async t => {
  const { port } = new URL(server.url);
  for (const host of [`127.0.0.1:${port}`, 'localhost', `LOCALHOST:${port}`, 'a.localhost', '[::1]:80', '127.9.9.9',
    '192.168.0.7', '[::2]']) {   // a page of another site cannot have an address for its name
    assert.equal((await raw('/ten.bin', { Host: host })).status, 200, host);
  }
  for (const host of ['evil.example', `evil.example:${port}`, 'localhost.evil.example', '127.0.0.1.evil.example',
    'notlocalhost', '127.0.0.1@evil.example']) {
    const { status, text } = await raw('/ten.bin', { Host: host });
    assert.deepEqual([status, text], [421, '421\n'], host);
  }
  const named = await serve({ root: join(folder, 'site'), names: ['Models.example'] });
  t.after(named.close);
  const { port: other } = new URL(named.url);
  for (const [host, status] of /** @type {[string, number][]} */ ([['models.example:8', 200], ['evil.example', 421]])) {
    const answer = await new Promise(resolve =>
      request({ hostname: '127.0.0.1', port: other, path: '/ten.bin', headers: { Host: host } }, resolve).end());
    assert.equal(/** @type {any} */ (answer).statusCode, status);
    /** @type {any} */ (answer).resume();
  }
});

test('a model that is not there is fetched when its own page asks, once for all who watch', async t => {
  const manifest = join(folder, 'manifest.json'), begun = join(folder, 'begun'), go = join(folder, 'go');
  writeFileSync(manifest, JSON.stringify([{ name: 'm', file: 'm.gguf' }, { name: 'bad', file: 'bad.gguf' }]));
  // Stands for models/fetch.py: says that it has begun, waits for a file, and then writes the model, or fails.
  const script = `const fs = require('fs'), [begun, go, to] = ${JSON.stringify([begun, go,
    join(folder, 'elsewhere', 'm.gguf')])};
    fs.appendFileSync(begun, process.argv[1]);
    if (process.argv[1] === 'bad') { console.error('a line\\nfetch: no such <b>package'); process.exit(1); }
    console.log('{"bytes": 1, "total": 5}');
    const timer = setInterval(() => {
      if (!fs.existsSync(go)) return;
      clearInterval(timer);
      fs.writeFileSync(to, 'model');
    }, 20);`;
  const fetches = new ModelFetches(folder, { manifest, command: [process.execPath, '-e', script] });
  const { url, close } = await serve({ root: join(folder, 'site'), linked: [join(folder, 'elsewhere')], fetches });
  t.after(close);
  const ask = (path, options = {}) => fetch(url + path, { method: 'POST', ...options });
  const { status, headers } = await fetch(`${url}models/m.gguf`, { method: 'HEAD' });
  assert.deepEqual([status, headers.get('Plumb-Model')], [404, 'absent']);
  assert.equal((await fetch(`${url}models/none.gguf`)).headers.get('Plumb-Model'), null);
  assert.equal((await ask('models/none.gguf')).status, 405);
  for (const origin of ['http://evil.example', 'null', url.replace(/:\d+/, ':1')]) {
    assert.equal((await ask('models/m.gguf', { headers: { Origin: origin } })).status, 403, origin);
  }
  assert.deepEqual((await (await ask('models/bad.gguf')).text()).trim(), '{"error":"fetch: no such <b>package"}');
  const first = new AbortController();
  const left = await ask('models/m.gguf', { signal: first.signal, headers: { Origin: new URL(url).origin } });
  assert.equal(new TextDecoder().decode((await left.body.getReader().read()).value), '{"bytes": 1, "total": 5}\n');
  first.abort();   // the only one who watches
  while (fetches.running > 0) await new Promise(resolve => setTimeout(resolve, 10));
  const both = await Promise.all([ask('models/m.gguf'), ask('models/m.gguf')]);
  writeFileSync(go, '');
  for (const answer of both) assert.match(await answer.text(), /"bytes": 1, "total": 5\}\n\{"done":true\}\n$/);
  assert.equal(readFileSync(begun, 'utf8'), 'badmm', 'one download for two watchers, and one that was stopped');
  assert.equal(await (await fetch(`${url}models/m.gguf`)).text(), 'model');
});

test('a port in use is an error; no other port is chosen silently', async () => {
  const port = Number(new URL(server.url).port);
  await assert.rejects(serve({ root: folder, port }), { code: 'EADDRINUSE' });
});

/** Runs `node web/site/serve.mjs`; resolves with the first line it prints. */
function command(t, env, ...args) {
  const child = spawn(process.execPath, [`${root}web/site/serve.mjs`, ...args], { env: { ...process.env, ...env } });
  t.after(() => child.kill());
  return new Promise(resolve => {
    child.stdout.once('data', data => resolve(String(data)));
    child.stderr.once('data', data => resolve(String(data)));
  });
}

test('the command accepts host names', async t => {
  const [, url] = /(http:\S+)/.exec(await command(t, { PORT: '' }, '--name', 'page.example')) ?? [];
  const { port } = new URL(url);
  for (const [host, status] of /** @type {[string, number][]} */ ([['page.example', 302], ['evil.example', 421]])) {
    const answer = await new Promise(resolve =>
      request({ hostname: '127.0.0.1', port, path: '/', headers: { Host: host } }, resolve).end());
    assert.equal(/** @type {any} */ (answer).statusCode, status);
    /** @type {any} */ (answer).resume();
  }
});

test('the command prints the URL of the chat page, and reports that a requested port is in use', async t => {
  const [, url] = /^plumb chat: (http:\/\/127\.0\.0\.1:\d+\/) /.exec(await command(t, { PORT: '' })) ?? [];
  assert.match(await (await fetch(url)).text(), /<title>plumb chat<\/title>/);
  for (const [path, status] of /** @type {[string, number][]} */ ([
    ['.git/config', 404], ['package.json', 404], ['web/package.json', 404], ['web/site/serve.mjs', 404],
    ['web/cli/main.mjs', 404], ['node_modules/typescript/package.json', 404], ['tests/', 404],
    ['src/engine/gguf/gguf.c', 404],
    ['models/manifest.json', 404], ['web/chat/', 200], ['web/chat/page.js', 200], ['web/index.js', 200],
    ['web/sw.js', 200], ['web/dist/plumb.wasm', 200], ['web/dist/vendor/json-schema/index.js', 200],
    ['models/SmolLM2-135M-Instruct.Q4_1.gguf', 200],
  ])) assert.equal((await fetch(url + path, { method: 'HEAD' })).status, status, path);
  const { port } = new URL(url);
  assert.match(await command(t, { PORT: port }), new RegExp(`^plumb: port ${port}: .*EADDRINUSE`));
  const [, next] = /(http:\S+)/.exec(await command(t, { PORT: '' })) ?? [];
  assert.notEqual(next, url);
});
