/** plumb serve: what a port needs.  The server is a process of its own, as users start it. */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { Plumb } from '../../web/node/index.js';
import { serve as serveFiles } from '../../web/site/serve.mjs';
import { realPath, root } from './helpers.mjs';

const SYSTEM = 'You answer in one short sentence, and you are polite to everybody who asks. '.repeat(3);
const QUESTIONS = ['What is the capital of France?', 'Name a fruit.', 'Who wrote Faust?', 'Name a planet.',
  'How many legs has a spider?', 'Say hello in German.', 'What is red and blue together?', 'Name a river.'];
const ask = question => [{ role: 'system', content: SYSTEM }, { role: 'user', content: question }];
const GREEDY = { model: 'smol', temperature: 0, max_tokens: 12 };

/** Starts plumb serve, and returns its address once it says it. @param {string[]} [options]
 * @param {{models?: string[], env?: Record<string, string>}} [more] */
async function start(options = [], { models = [`smol=${realPath}`], env = {} } = {}) {
  const process_ = spawn(process.execPath, [`${root}web/cli/main.mjs`, 'serve', ...models, '--port', '0',
    '--log', 'json', ...options], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let said = '', lines = '';
  process_.stderr.setEncoding('utf8').on('data', text => { lines += text; });
  process_.stdout.setEncoding('utf8').on('data', text => { said += text; });
  while (!said.includes('\n')) await once(process_.stdout, 'data');
  return {
    process: process_, url: String(/ at (\S+) \(/.exec(said)?.[1]),
    log: () => lines.split('\n').filter(line => line.startsWith('{')).map(line => JSON.parse(line)),
    async stop(signal = 'SIGTERM') {
      process_.kill(signal);
      if (process_.exitCode === null) await once(process_, 'exit');
      return process_.exitCode;
    },
  };
}

/** The value of a metric. @param {string} url @param {string} name */
async function metric(url, name) {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(text.split('\n').find(line => line.startsWith(`${name} `))?.split(' ')[1]);
}

/** @param {string} url @param {object | string} body @param {RequestInit} [init] */
const post = (url, body, init) => fetch(url, {
  method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body), ...init,
});

describe('a server', () => {
  /** @type {Awaited<ReturnType<typeof start>>} */
  let server;
  before(async () => { server = await start(['--cors', 'https://friend.example', '--name', 'proxy.example']); });
  after(() => server.stop());
  /** The status of a request with headers that fetch does not let one set. */
  const statusOf = async (headers, method = 'GET', path = '/v1/models') => {
    const { port } = new URL(server.url), sent = request({ port, host: '127.0.0.1', path, method, headers });
    sent.end();
    const [response] = await once(sent, 'response');
    response.resume();
    return [response.statusCode, response.headers];
  };

  test('only requests that name this machine, and no pages of other sites', async () => {
    const own = ['localhost', 'LOCALHOST.', '127.0.0.1:5', '[::1]', '192.168.1.7', 'proxy.example:80', 'a.localhost'];
    for (const host of own) {
      assert.equal((await statusOf({ host }))[0], 200, host);
    }
    for (const host of ['evil.example', 'localhost.evil.example', 'evil.example:80', '127.0.0.1.evil.example']) {
      assert.equal((await statusOf({ host }))[0], 421, `"${host}"`);
    }
    const { host } = new URL(server.url);
    for (const [origin, status] of [['https://evil.example', 403], ['null', 403], [`http://${host}`, 200],
      ['https://friend.example', 200], ['https://friend.example.evil', 403]]) {
      for (const method of ['GET', 'OPTIONS']) {
        const [found, headers] = await statusOf({ host, origin }, method);
        assert.equal(found, method === 'OPTIONS' && status === 200 ? 204 : status, origin);
        const isFriend = origin === 'https://friend.example';
        assert.equal(headers['access-control-allow-origin'], isFriend ? origin : undefined);
      }
    }
  });

  test('errors have a status, a code and OpenAI\'s shape', async () => {
    const chat = `${server.url}/v1/chat/completions`, messages = ask(QUESTIONS[0]);
    for (const [url, body, status, code, message] of [
      [chat, '{bad', 400, null, /the body is no JSON: .*position 1/],
      [chat, '', 400, null, /the body is empty/],
      [chat, 'null', 400, null, /expected \{messages/],
      [chat, { ...GREEDY, messages, temperature: 9 }, 400, null, /temperature is 9, expected a number from 0 to 2/],
      [chat, { ...GREEDY, messages, model: 'gpt' }, 404, 'model_not_found', /^there is no model "gpt"; .*: "smol"$/],
      [chat, { ...GREEDY, messages, model: '/etc/passwd' }, 404, 'model_not_found', /there is no model/],
      [chat, { ...GREEDY, messages: [{ role: 'user', content: 'x '.repeat(9000) }] }, 400, 'context_length_exceeded',
        /holds 8192/],
      [`${server.url}/v1/nothing`, {}, 404, 'not_found', /there is no \/v1\/nothing/],
      [`${server.url}/v1/models`, {}, 405, null, /takes GET, not POST/],
      [chat, 'x'.repeat(2 ** 23 + 1), 413, 'body_too_large', /more than 8388608 bytes/],
    ]) {
      const response = await post(url, body), { error } = await response.json();
      assert.deepEqual([response.status, error.code], [status, code], JSON.stringify(error));
      assert.match(error.message, message);
    }
    const line = server.log().find(({ status }) => status === 404);
    assert.deepEqual([line.method, line.path], ['POST', '/v1/chat/completions']);
  });

  test('a connection goes on after a body that nobody wanted', { timeout: 60000 }, async t => {
    const { port } = new URL(server.url), agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => agent.destroy());
    const all = [['/v1/nothing', 2e7, 404], ['/v1/completions', 2e7, 413], ['/health', 0, 200]];
    for (const [path, length, status] of all) {
      const sent = request({ port, host: '127.0.0.1', path, agent, method: length ? 'POST' : 'GET',
        headers: { host: 'localhost', ...length && { 'content-length': length } } });
      sent.end(length ? Buffer.alloc(length, ' ') : undefined);
      const [response] = await once(sent, 'response');
      assert.equal(response.statusCode, status, path);
      response.resume();
      await once(response, 'end');
    }
  });

  test('a path of many slashes is not there, and a method that no path has is an error', async () => {
    const { port } = new URL(server.url);
    assert.equal((await statusOf({ host: 'localhost' }, 'GET', `/v1/${'/'.repeat(15000)}x`))[0], 404);
    const [status, { allow }] = await statusOf({ host: `127.0.0.1:${port}` }, 'TRACE');
    assert.deepEqual([status, allow], [405, 'GET, HEAD, POST, DELETE']);
  });

  test('the chat page is at /, isolated, and files of the machine are not', async () => {
    const page = await fetch(`${server.url}/`), model = new URL(page.url).searchParams.get('model');
    assert.match(await page.text(), /<title>/);
    const start = await fetch(server.url + model, { headers: { range: 'bytes=0-3' } });
    assert.deepEqual([start.status, await start.text()], [206, 'GGUF']);
    for (const path of ['/web/index.js', '/web/api/plumb.js', '/web/sw.js', '/web/dist/plumb.wasm', '/web/chat']) {
      assert.equal((await fetch(server.url + path)).status, 200, path);
    }
    assert.equal(page.headers.get('cross-origin-embedder-policy'), 'require-corp');
    for (const path of ['/package.json', '/web/package.json', '/web/%2e%2e/Makefile', '/web/cli/main.mjs',
      '/.git/config', '/web/node/index.js', '/models/fetch.py', '/models/']) {
      assert.equal((await fetch(server.url + path)).status, 404, path);
    }
  });
});

test('the page loads a model to which a link leads, as in the cache of the hub', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-serve-')), link = join(folder, 'link.gguf');
  t.after(() => rmSync(folder, { recursive: true }));
  symlinkSync(`${root}tests/vectors/synth/f32.gguf`, link);
  const { url, stop } = await start([], { models: [link] });
  t.after(() => stop());
  const answer = await fetch(`${url}/models/link.gguf`, { headers: { range: 'bytes=0-3' } });
  assert.deepEqual([answer.status, await answer.text()], [206, 'GGUF']);
  assert.equal((await fetch(`${url}/models/f16.gguf`)).status, 404, 'its neighbours are not served');
});

test('a key is asked for, but not for the health of the server and the page', async t => {
  const { url, stop } = await start(['--api-key', 'secret']);
  t.after(() => stop());
  const statusWith = async (headers, path = '/v1/models') => (await fetch(url + path, { headers })).status;
  assert.equal(await statusWith({}), 401);
  assert.equal(await statusWith({ authorization: 'Bearer secre' }), 401);
  assert.equal(await statusWith({ authorization: 'Bearer secret' }), 200);
  assert.equal(await statusWith({ 'x-api-key': 'secret' }), 200);
  assert.equal(await statusWith({}, '/metrics'), 401);
  assert.equal(await statusWith({ authorization: 'Bearer secret' }, '/api/tags'), 200);
  assert.match((await (await fetch(`${url}/api/tags`)).json()).error, /^the key is missing or wrong/);   // as Ollama's
  assert.equal(await statusWith({}, '/health'), 200);
  assert.equal(await statusWith({}, '/'), 200);
});

test('without MODEL the models of this machine are served; ps lists those that are loaded', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-serve-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const env = { PLUMB_CACHE: folder };
  const run = args => promisify(execFile)(process.execPath, [`${root}web/cli/main.mjs`, ...args],
    { env: { ...process.env, ...env } }).catch(error => error);
  const { stderr } = await run(['serve']);
  assert.match(stderr, /^plumb: serve: MODEL is needed, or .*: plumb pull NAME downloads one\n$/);
  assert.equal((await run(['serve', 'none.gguf'])).stderr, 'plumb: serve: none.gguf: there is no such file\n');
  const files = await serveFiles({ root: `${root}tests/vectors/synth` });
  t.after(() => files.close());
  const model = `${files.url}f32.gguf`;
  await run(['pull', model]);
  const { url, stop } = await start([], { models: [], env });
  t.after(() => stop());
  const { port } = new URL(url), ps = () => run(['ps', '--port', port]);
  assert.match((await ps()).stderr, /^plumb: ps: no model is loaded at /);
  const { data } = await (await fetch(`${url}/v1/models`)).json();
  assert.deepEqual(data.map(({ id }) => id), [model]);
  await post(`${url}/tokenize`, { model, content: 'a' });
  assert.match((await ps()).stdout, /^ +[\d.]+ MB {2}\d+ tokens {2}http:\S+f32.gguf\n$/);
  assert.match((await run(['ps', '--port', '1'])).stderr, /^plumb: ps: http:\S+: .*; is plumb serve running\?\n$/);
});

test('more requests than fit into the queue are refused; a stop waits for the answers that run', async t => {
  const { url, stop, process: child } = await start(['--parallel', '1', '--queue', '1']);
  t.after(() => stop('SIGKILL'));
  const body = { ...GREEDY, messages: ask(QUESTIONS[0]), max_tokens: 100, logit_bias: { 2: -100 }, stream: true };
  const first = await post(`${url}/v1/chat/completions`, body), second = post(`${url}/v1/chat/completions`, body);
  while (await metric(url, 'plumb_requests_waiting') < 1) await wait(5);
  const third = await post(`${url}/v1/chat/completions`, body);
  assert.deepEqual([third.status, third.headers.get('retry-after')], [429, '1']);
  assert.equal((await third.json()).error.type, 'rate_limit_error');
  child.kill('SIGTERM');
  assert.match(await first.text(), /"finish_reason":"length"[^]*\[DONE\]/);
  assert.match(await (await second).text(), /\[DONE\]/);
  if (child.exitCode === null) await once(child, 'exit');
  assert.equal(child.exitCode, 0);
  await assert.rejects(fetch(`${url}/health`));
});

/** How often each client asks: the whole test takes some minutes. */
const ROUNDS = process.env.WHOLE ? 63 : 3, WARM = process.env.WHOLE ? 13 : 2, CLIENTS = 16;

test(`${CLIENTS} clients, many of them bad ones, get no wrong answer, and leave nothing behind`, async t => {
  const model = await Plumb.load(realPath, { threads: 1 });
  const right = [];
  for (const question of QUESTIONS) {
    right.push(await model.generate(ask(question), { temperature: 0, maxTokens: GREEDY.max_tokens }));
  }
  await model.close();
  const { url, stop, process: child } = await start(['--ctx', '1024', '--threads', '1']);
  t.after(() => stop('SIGKILL'));
  const chat = `${url}/v1/chat/completions`, { port } = new URL(url);
  let seed = 1;
  const random = n => {
    seed = Math.imul(seed, 1664525) + 1013904223 >>> 0;
    return Math.floor(seed / 2 ** 32 * n);
  };
  const body = (k, more) => ({ ...GREEDY, messages: ask(QUESTIONS[k]), ...more });
  const textOf = async response => {
    let text = '';
    for (const line of (await response.text()).split('\n')) {
      if (line.startsWith('data: {')) text += JSON.parse(line.slice(6)).choices[0]?.delta.content ?? '';
    }
    return text;
  };
  const HEAD = 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n';
  let answers = 0;
  /** What a client does, one of them by chance. @type {((k: number) => Promise<void>)[]} */
  const acts = [
    async k => {
      const { choices } = await (await post(chat, body(k))).json();
      assert.equal(choices[0].message.content, right[k]);
      answers++;
    },
    async k => {
      assert.equal(await textOf(await post(chat, body(k, { stream: true }))), right[k]);
      answers++;
    },
    async k => {   // goes away at any time
      const abort = new AbortController();
      setTimeout(() => abort.abort(), random(150));
      await post(chat, body(k, { stream: true, max_tokens: 200 }), { signal: abort.signal }).then(textOf)
        .catch(() => {});
    },
    async () => assert.equal((await post(chat, '{"messages": [')).status, 400),
    async () => {   // some servers end the connection before they have read so much
      const response = await post(chat, 'x'.repeat(2 ** 23 + 1)).catch(() => undefined);
      assert.ok([413, undefined].includes(response?.status));
    },
    k => new Promise(resolve => {   // reads slowly, and goes away without a word
      const text = JSON.stringify(body(k, { stream: true, max_tokens: 60 }));
      const socket = connect(Number(port), '127.0.0.1').on('error', () => {});
      socket.write(`${HEAD}Content-Length: ${text.length}\r\n\r\n${text}`);
      socket.pause();
      setTimeout(() => socket.resume(), 50);
      setTimeout(() => resolve(void socket.resetAndDestroy()), 100 + random(100));
    }),
    async k => {   // half of a request
      const socket = connect(Number(port), '127.0.0.1').on('error', () => {});
      socket.write(`${HEAD}Content-Length: 500\r\n\r\n{"model": ${k}`);
      await wait(20);
      socket.destroy();
    },
  ];
  const round = () => Promise.all(Array.from({ length: CLIENTS }, async (_, i) => {
    await acts[i < 6 ? i % 2 : random(acts.length)](random(QUESTIONS.length));
  }));
  for (let i = 0; i < WARM; i++) await round();
  const memory = async () => Math.round(await metric(url, 'process_resident_memory_bytes') / 1e6);
  const sizes = [await memory()];
  for (let i = 0; i < ROUNDS; i++) {
    await round();
    sizes.push(await memory());
  }

  // A client that is killed in the middle of an answer.
  const endless = JSON.stringify(body(0, { stream: true, max_tokens: 800, logit_bias: { 2: -100 } }));
  const killed = spawn(process.execPath, ['-e', `
    const response = await fetch(${JSON.stringify(chat)}, { method: 'POST', body: ${JSON.stringify(endless)} });
    for await (const _ of response.body) console.log('some');`, '--input-type=module'],
  { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(killed.stdout, 'data');
  killed.kill('SIGKILL');
  await Promise.all(QUESTIONS.map((_, k) => acts[0](k)));
  assert.ok(answers >= 6 * (ROUNDS + WARM), `${answers} answers`);
  while (await metric(url, 'plumb_requests_running') > 0) await wait(20);   // nothing is stuck
  assert.equal(await metric(url, 'plumb_requests_waiting'), 0);
  t.diagnostic(`${CLIENTS * (ROUNDS + WARM)} requests, resident memory in MB after each round: ${sizes.join()}`);
  if (process.env.WHOLE) assert.ok((sizes.at(-1) ?? 0) <= 1.1 * sizes[0], sizes.join());
  assert.equal(child.exitCode, null);
  assert.equal(await stop(), 0);
});
