/** The handler of plumb-llm/fetch, without a port.  Ground truth: the functions of a model, to which its endpoints must
 * be equal, and what fetch does: the same arguments, and a signal that ends a request with its reason. */
import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import { after, before, describe, test } from 'node:test';
import { createHandler } from '../../web/node/fetch.js';
import { Plumb } from '../../web/node/index.js';
import { fails, realPath, root, tinyPath } from './helpers.mjs';

const encoderPath = `${root}models/all-MiniLM-L6-v2.Q8_0.gguf`, BASE = 'http://plumb.invalid';
const user = content => ({ role: 'user', content });
const MESSAGES = [user('What is the capital of France?')], STORY = [user('Write a long story about a dog.')];
const CHAT = { model: 'smol', messages: MESSAGES, temperature: 0, max_tokens: 8 };
const LONG = { ...CHAT, messages: STORY, max_tokens: 400 };
/** What differs from call to call. */
const same = value => JSON.parse(JSON.stringify(value, (key, one) =>
  ['id', 'created', 'cached_tokens', 'model'].includes(key) ? undefined : one));

/** @param {import('../../web/serving/handler.js').Handler} handler */
const poster = handler => (path, body, init = {}) =>
  handler(BASE + path, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body), ...init });
const options = { models: { smol: realPath, mini: encoderPath }, load: { threads: 1 } };
const handler = createHandler({ ...options, parallel: 2, queue: 1, maxBody: 100_000 });
const post = poster(handler), json = async (path, body) => (await post(path, body)).json();
/** Waits until no request is being answered. */
async function idle({ turns } = handler) {
  for (let i = 0; turns.running > 0; i++) {
    assert.ok(i < 500, `${turns.running} requests are still answered`);
    await wait(20);
  }
}
/** The data of events. */
const dataOf = text => text.split('\n').filter(line => line.startsWith('data: ')).map(line => line.slice(6));
after(() => handler.close());

describe('endpoints answer as the functions of a model do', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model, encoder;
  before(async () => {
    model = await Plumb.load(realPath, { threads: 1 });
    encoder = await Plumb.load(encoderPath, { threads: 1 });
  });
  after(async () => {
    await model.close();
    await encoder.close();
  });

  test('chat completions, with several answers, log-probabilities and streams', async () => {
    for (const more of [{}, { logprobs: true, top_logprobs: 2 }, { n: 3, temperature: 1, seed: 5 }, { stop: ' is' }]) {
      const body = { ...CHAT, ...more }, expected = await model.chat.completions.create(body);
      const whole = await json('/v1/chat/completions', body);
      assert.deepEqual(same(whole), same(expected));
      assert.equal(whole.model, 'smol');
      const response = await post('/v1/chat/completions', { ...body, stream: true });
      assert.equal(response.headers.get('content-type'), 'text/event-stream');
      const data = dataOf(await response.text());
      assert.equal(data.pop(), '[DONE]');
      for (const { index, message } of expected.choices) {
        const pieces = data.map(one => JSON.parse(one).choices[0]).filter(choice => choice.index === index);
        assert.equal(pieces.map(({ delta }) => delta.content ?? '').join(''), message.content);
      }
    }
  });

  test('completions of texts', async () => {
    let text = '';
    for await (const piece of model.generate('The sky is', { temperature: 0, maxTokens: 5 })) text += piece;
    const body = { model: 'smol', prompt: 'The sky is', temperature: 0, max_tokens: 5 };
    const { choices: [choice], usage } = await json('/v1/completions', body);
    assert.deepEqual([choice.text, choice.finish_reason, usage.completion_tokens], [text, 'length', 5]);
    const data = dataOf(await (await post('/v1/completions', { ...body, stream: true })).text());
    assert.equal(data.slice(0, -1).map(one => JSON.parse(one).choices[0].text).join(''), text);
  });

  test('embeddings, reranking, tokens', async () => {
    const input = ['The cat sleeps.', 'Stock prices fell.'], vectors = await encoder.embed(input);
    const { data } = await json('/v1/embeddings', { model: 'mini', input });
    assert.deepEqual(data.map(({ embedding }) => embedding), vectors.map(vector => [...vector]));
    const query = 'Where is my cat?', ranked = await encoder.rank(query, input);
    for (const path of ['/rerank', '/v1/rerank']) {
      const { results } = await json(path, { model: 'mini', query, documents: input });
      assert.deepEqual(results, ranked.map(({ index, score }) => ({ index, relevance_score: score })));
    }
    const { tokens } = await json('/tokenize', { model: 'smol', content: 'The sky is' });
    assert.deepEqual(tokens, [...await model.tokenize('The sky is')]);
    assert.equal((await json('/detokenize', { model: 'smol', tokens })).content, 'The sky is');
    const chat = await json('/tokenize', { model: 'smol', messages: MESSAGES });
    assert.deepEqual(chat.tokens, [...await model.tokenizeChat(MESSAGES)]);
  });
});

test('it has the arguments of fetch: an address or a Request, and what it is to do', async () => {
  for (const input of [`${BASE}/v1/models`, new URL(`${BASE}/v1/models`), new Request(`${BASE}/v1/models/`)]) {
    const { object, data } = await (await handler(input)).json();
    assert.deepEqual([object, data.map(({ id }) => id)], ['list', ['smol', 'mini']]);
  }
  const body = JSON.stringify({ model: 'smol', content: 'a' });
  const request = new Request(`${BASE}/tokenize`, { method: 'POST', body });
  assert.equal((await (await handler(request)).json()).count, 1);
  assert.equal((await handler(new Request(`${BASE}/tokenize`), { method: 'POST', body })).status, 200);
  assert.equal((await handler(`${BASE}/health`, { method: 'HEAD' })).status, 200);
  class Server { method = 'POST'; }   // as Bun.serve and Deno.serve give one
  assert.equal((await handler(new Request(`${BASE}/health`), new Server())).status, 200);
});

test('errors have a status, a code and OpenAI\'s shape', async () => {
  const chat = '/v1/chat/completions';
  for (const [path, init, status, code, message] of [
    [chat, '{bad', 400, null, /the body is no JSON/],
    [chat, '', 400, null, /the body is empty/],
    [chat, '[]', 400, null, /messages is missing/],
    [chat, 'null', 400, null, /expected \{messages/],
    [chat, '{"messages": 1, "wrong": 2}', 400, null, /messages is 1|unknown option "wrong"/],
    [chat, `"${'x'.repeat(100_000)}"`, 413, 'body_too_large', /the body has more than 100000 bytes/],
    [chat, JSON.stringify({ ...CHAT, model: 'gpt' }), 404, 'model_not_found', /no model "gpt"; .*"smol", "mini"/],
    [chat, JSON.stringify({ ...CHAT, model: undefined }), 400, null, /model is missing/],
    [chat, JSON.stringify({ ...CHAT, model: '__proto__' }), 404, 'model_not_found', /there is no model "__proto__"/],
    [chat, JSON.stringify({ ...CHAT, messages: [user('x '.repeat(9000))] }), 400, 'context_length_exceeded', /8192/],
    ['/v1/embeddings', '{"model": "mini", "input": 5}', 400, null, /input is 5/],
    ['/nothing', '{}', 404, 'not_found', /there is no \/nothing/],
    ['/v1/models', '{}', 405, null, /takes GET, not POST/],
    [chat, { method: 'GET' }, 405, null, /takes POST, not GET/],
    ['/v1/responses/resp_1', { method: 'PUT' }, 405, null, /takes GET, DELETE, not PUT/],
    ['/v1/models/gpt', {}, 404, 'model_not_found', /there is no model "gpt"/],
    ['/v1/models/%E0%A4', {}, 400, null, /"%E0%A4" in the path is not percent-encoded UTF-8/],
  ]) {
    const response = await handler(BASE + path, typeof init === 'string' ? { method: 'POST', body: init } : init);
    const { error } = await response.json();
    assert.deepEqual([response.status, error.code], [status, code], JSON.stringify(error));
    assert.match(error.message, message);
    assert.equal(error.type, 'invalid_request_error');
    if (status === 405) assert.ok(response.headers.get('allow'));
  }
  // A body that does not say how long it is.
  let pulled = 0;
  const endless = new ReadableStream({ pull: controller => controller.enqueue(new Uint8Array(10_000).fill(pulled++)) });
  assert.equal((await handler(BASE + chat, { method: 'POST', body: endless, duplex: 'half' })).status, 413);
  assert.ok(pulled < 20, `${pulled} pieces were read`);
  assert.equal(handler.turns.running, 0);
});

test('a signal that is aborted rejects a request with its reason, while it loads or computes', async () => {
  await json('/v1/chat/completions', CHAT);
  const words = 'word '.repeat(7000);   // takes much longer than idle waits
  for (const more of [{ messages: [user(words)] }, { messages: [user(words)], stream: true }, LONG]) {
    const abort = new AbortController();
    const answer = post('/v1/chat/completions', { ...CHAT, ...more }, { signal: abort.signal });
    setTimeout(() => abort.abort(new Error('enough')), 150);
    await assert.rejects(answer, /^Error: enough$/);
    await idle();
  }
  const before = AbortSignal.abort(new Error('before'));
  await assert.rejects(post('/v1/chat/completions', CHAT, { signal: before }), /before/);
  const other = createHandler(options), abort = new AbortController();
  const loading = poster(other)('/v1/chat/completions', CHAT, { signal: abort.signal });
  abort.abort(new Error('no model'));
  await assert.rejects(loading, /^Error: no model$/);
  await idle(other);
  assert.deepEqual(other.models.list().map(({ model }) => model), [undefined, undefined]);
  await other.close();
});

test('a stream ends with the reason of the signal, and when it is left', async () => {
  for (const path of ['/v1/chat/completions', '/v1/responses', '/api/chat']) {
    const body = path === '/api/chat' ? { model: 'smol', messages: STORY }
      : path === '/v1/responses' ? { model: 'smol', input: 'Write a long story about a dog.', stream: true }
      : { ...LONG, stream: true };
    const abort = new AbortController(), response = await post(path, body, { signal: abort.signal });
    const reader = response.body.getReader();
    await reader.read();
    assert.equal(handler.turns.running, 1);
    abort.abort(new Error('enough'));
    await assert.rejects(async () => {
      while (!(await reader.read()).done);
    }, /^Error: enough$/, path);
    await idle();
    const left = await post(path, body);
    for await (const _ of left.body) break;
    await idle();
    await (await post(path, body)).body.cancel();   // before anything was read
    await idle();
  }
});

test('more requests than fit are refused with 429, and those that wait get their turn', async () => {
  const abort = new AbortController(), { signal } = abort;
  const running = [await post('/v1/chat/completions', { ...LONG, stream: true }, { signal }),
    await post('/v1/chat/completions', { ...LONG, stream: true }, { signal })];
  const waiting = json('/v1/chat/completions', CHAT), impatient = new AbortController();
  await wait(5);
  const refused = await post('/v1/chat/completions', CHAT);
  assert.deepEqual([refused.status, refused.headers.get('retry-after')], [429, '1']);
  assert.equal((await refused.json()).error.type, 'rate_limit_error');
  assert.match((await (await post('/api/chat', { model: 'smol', messages: STORY })).json()).error, /try again later/);
  assert.equal((await handler(`${BASE}/v1/models`)).status, 200);   // needs no turn
  abort.abort(new Error('enough'));
  assert.equal((await waiting).choices.length, 1);
  for (const { body } of running) await assert.rejects(body.getReader().read(), /enough/);
  await idle();

  const two = [await post('/v1/chat/completions', { ...LONG, stream: true }),
    await post('/v1/chat/completions', { ...LONG, stream: true })];
  const third = post('/v1/chat/completions', CHAT, { signal: impatient.signal });
  await wait(5);
  impatient.abort(new Error('too slow'));
  await assert.rejects(third, /too slow/);
  assert.equal(handler.turns.waiting, 0);
  for (const { body } of two) await body.cancel();
  await idle();
});

test('a stream that nobody reads is ended after some time', async () => {
  const own = createHandler({ ...options, parallel: 1, queue: 0, stalled: 0.2 });
  const { body } = await poster(own)('/v1/chat/completions', { ...LONG, stream: true });
  assert.equal((await poster(own)('/v1/chat/completions', CHAT)).status, 429);
  await wait(400);
  await idle(own);
  await assert.rejects(async () => {
    for await (const _ of body);
  }, /nobody has read the answer for 0\.2 s/);
  let text = '';   // one that is read slowly is not
  const slow = await poster(own)('/v1/chat/completions', { ...CHAT, stream: true });
  for await (const piece of slow.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    await wait(50);
  }
  assert.match(text, /\[DONE\]/);
  await own.close();
});

test('with only: embeddings there are no endpoints that write texts', async () => {
  const own = createHandler({ ...options, only: 'embeddings' }), ask = poster(own);
  for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/api/chat', '/api/generate']) {
    assert.equal((await ask(path, CHAT)).status, 404, path);
  }
  assert.equal((await ask('/v1/embeddings', { model: 'mini', input: 'a' })).status, 200);
  assert.equal((await ask('/api/embed', { model: 'mini', input: 'a' })).status, 200);
  await own.close();
});

test('close ends answers and frees the models, and the next request loads again', async () => {
  const own = createHandler({ models: { tiny: tinyPath }, load: { threads: 1 } });
  const ask = () => poster(own)('/v1/completions', { model: 'tiny', prompt: 'a', max_tokens: 3, temperature: 0 });
  const { choices: [{ text }] } = await (await ask()).json();
  await own.close();
  assert.equal(own.models.list()[0].model, undefined);
  assert.equal((await (await ask()).json()).choices[0].text, text);
  await own.close();
});

test('wrong options are errors that name them', async () => {
  for (const [given, message] of [
    [{ parallel: 17 }, /parallel is 17, expected an integer from 1 to 16/], [{ queue: -1 }, /queue is -1/],
    [{ maxBody: 0 }, /maxBody is 0/], [{ stalled: -1 }, /stalled is -1/], [{ port: 80 }, /unknown option "port"/],
    [{ load: { threads: 0 } }, /createHandler: load: threads is 0/],
  ]) await fails(async () => createHandler(given), 'PLUMB_ERROR_ARGUMENT', message);
});
