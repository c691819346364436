/** The OpenAI-compatible interface.  Ground truth: llama.cpp's greedy tokens in tests/vectors/llama; log-probabilities
 * by a 64-bit softmax of model.feed's logits, computed here; and the types of OpenAI's package (openai.test.mjs). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Client } from '../../web/serving/client.js';
import { POOL } from '../../web/answers/formats.js';
import { VERSION } from '../../web/openai/answering.js';
import { Plumb } from '../../web/node/index.js';
import { OpenAI } from '../../web/node/openai.js';
import { fails, prompts, realPath, root, server, textOf, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';

const asked = prompts[1];
const { messages } = asked;
const GREEDY = { messages, temperature: 0 };
const all = async chunks => {
  const list = [];
  for await (const chunk of chunks) list.push(chunk);
  return list;
};
const contentOf = chunks => chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');

test('the version equals the package\'s', () => {
  assert.equal(VERSION, JSON.parse(readFileSync(`${root}web/package.json`, 'utf8')).version);
});

describe('the default model', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(realPath, { precision: 'exact16' }); });
  beforeEach(() => model.rewind());
  after(() => model.close());
  const create = (params, options) => model.chat.completions.create({ ...GREEDY, ...params }, options);
  const llamaSays = n => model.detokenize(asked.f32.ids.slice(0, n));

  test('a completion has llama.cpp\'s text, in OpenAI\'s object', async () => {
    const started = Date.now() / 1000;
    const { id, created, ...rest } = await create({ max_tokens: 30 });
    assert.match(id, /^chatcmpl-[0-9a-f]{24}$/);
    assert.ok(Number.isInteger(created) && created >= Math.floor(started) && created <= started + 600);
    assert.deepEqual(rest, {
      object: 'chat.completion', model: model.metadata['general.name'],
      system_fingerprint: `plumb-${VERSION}-${(await model.info()).module}`,
      choices: [{
        index: 0, message: { role: 'assistant', content: await llamaSays(30), refusal: null }, logprobs: null,
        finish_reason: 'length',
      }],
      usage: {
        prompt_tokens: 39, completion_tokens: 30, total_tokens: 69, prompt_tokens_details: { cached_tokens: 0 },
      },
    });
    const again = await create({ max_completion_tokens: 5, model: 'mine', stream: false, stop: null });
    assert.deepEqual([again.model, again.usage.prompt_tokens_details.cached_tokens], ['mine', 38]);
    assert.notEqual(again.id, id);
  });

  test('a stream has the role, the text in pieces, the finish reason, and on request the usage', async () => {
    const text = await llamaSays(20);
    const stream = await create({ max_tokens: 20, stream: true, stream_options: { include_usage: true } });
    const chunks = await all(stream);
    const [first, ...more] = chunks, usage = more.pop(), last = more.pop();
    assert.deepEqual(first.choices, [{
      index: 0, delta: { role: 'assistant', content: '', refusal: null }, logprobs: null, finish_reason: null,
    }]);
    assert.ok(more.length > 10);
    for (const { choices: [choice, ...none], usage } of more) {
      assert.deepEqual([Object.keys(choice.delta), choice.finish_reason, none, usage], [['content'], null, [], null]);
    }
    assert.equal(contentOf(more), text);
    assert.deepEqual(last.choices, [{ index: 0, delta: {}, logprobs: null, finish_reason: 'length' }]);
    assert.deepEqual([usage.choices, usage.usage.completion_tokens], [[], 20]);
    assert.equal(new Set(chunks.map(({ id, created, object }) => `${id} ${created} ${object}`)).size, 1);
    assert.equal(usage.object, 'chat.completion.chunk');
    assert.equal((await all(stream)).length, 0);   // it has already been read

    const bare = await all(await create({ max_tokens: 3, stream: true }));
    assert.ok(bare.every(chunk => !('usage' in chunk) && chunk.choices.length === 1));
  });

  test('log-probabilities equal those of the softmax, one for each token, with the text of its chunk', async () => {
    const n = 12;
    const { choices: [{ logprobs }] } = await create({ max_tokens: n, logprobs: true, top_logprobs: 3 });
    assert.deepEqual(logprobs?.content.map(({ token }) => token),
      await Promise.all(asked.f32.ids.slice(0, n).map(id => model.detokenize([id]))));
    await model.rewind();
    let logits = await model.feed(asked.ids);
    for (const [i, { token, bytes, logprob, top_logprobs }] of /** @type {any} */ (logprobs).content.entries()) {
      const sum = Math.log(logits.reduce((total, value) => total + Math.exp(value), 0));
      const id = asked.f32.ids[i];
      assert.equal(new TextDecoder().decode(Uint8Array.from(bytes)), token);
      assert.ok(Math.abs(logprob - (logits[id] - sum)) < 1e-9, `token ${i}: ${logprob}`);
      const likeliest = [...logits.keys()].sort((a, b) => logits[b] - logits[a]).slice(0, 3);
      assert.deepEqual(top_logprobs.map(top => top.token),
        await Promise.all(likeliest.map(one => model.detokenize([one]))));
      for (const [j, top] of top_logprobs.entries()) {
        assert.ok(Math.abs(top.logprob - (logits[likeliest[j]] - sum)) < 1e-9);
      }
      logits = await model.step(id);
    }

    const chunks = await all(await create({ max_tokens: n, logprobs: true, stream: true }));
    for (const { choices: [{ delta, logprobs }] } of chunks) {
      assert.equal(logprobs?.content.map(({ token }) => token).join('') ?? '', delta.content ?? '');
      assert.ok(logprobs?.content.every(({ top_logprobs }) => top_logprobs.length === 0) ?? true);
    }
    const told = chunks.flatMap(({ choices: [{ logprobs }] }) => logprobs?.content ?? []);
    assert.deepEqual(told.map(({ logprob }) => logprob), logprobs?.content.map(({ logprob }) => logprob));
  });

  test('the token that ends the turn has no log-probability; the tokens of a stop string have one', async () => {
    const end = { [asked.f32.ids[4]]: -100, 2: 100 };   // <|im_end|>, as soon as it may
    const ended = await create({ logprobs: true, logit_bias: end });
    assert.deepEqual([ended.choices[0].finish_reason, ended.choices[0].logprobs, ended.usage.completion_tokens],
      ['stop', { content: [], refusal: null }, 0]);
    const text = await llamaSays(12), at = text.indexOf(' ', 15);
    const params = { logprobs: true, stop: ['@@', text.slice(at, at + 6)], max_tokens: 40 };
    const { choices: [choice], usage } = await create(params);
    assert.equal(choice.message.content, text.slice(0, at));
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(choice.logprobs?.content.length, usage.completion_tokens);
    const chunks = await all(await create({ ...params, stream: true }));
    assert.equal(contentOf(chunks), text.slice(0, at));
    assert.equal(chunks.flatMap(({ choices: [one] }) => one.logprobs?.content ?? []).length, usage.completion_tokens);
  });

  test('parameters reach the sampler', async () => {
    const generate = async params => (await create({ max_tokens: 12, ...params })).choices[0].message.content;
    const wild = { temperature: 2, top_p: 1, top_k: 0, min_p: 0 };
    const one = await generate({ ...wild, seed: 1 });
    assert.equal(await generate({ ...wild, seed: 1 }), one);
    assert.notEqual(await generate({ ...wild, seed: 2 }), one);
    assert.equal(await generate({ ...wild, seed: (1n << 64n) + 1n }), one);
    const own = { temperature: 2, topP: 1, topK: 0, minP: 0, maxTokens: 12, seed: 2n ** 64n - 1n };
    const negative = await textOf(model.generate(messages, own));
    assert.notEqual(negative, one);
    assert.equal(await generate({ ...wild, seed: -1 }), negative);
    assert.equal(await generate({ ...wild, seed: 1, top_k: 1 }), await llamaSays(12));
    assert.equal(await generate({ ...wild, seed: 1, top_p: 0 }), await llamaSays(12));
    assert.equal(await generate({ ...wild, seed: 1, min_p: 1 }), await llamaSays(12));
    const [first] = asked.f32.ids;
    assert.notEqual(await generate({ max_tokens: 1, logit_bias: { [first]: -100 } }), await llamaSays(1));
    await model.rewind();
    const logits = await model.feed([...asked.ids, 504]);   // after the first token two logits are close
    const forced = { logit_bias: { 504: 60, 7042: 59 + logits[504] - logits[7042] }, max_tokens: 2 };
    assert.equal(await generate(forced), await model.detokenize([504, 504]));
    for (const penalty of ['presence_penalty', 'frequency_penalty', 'repeat_penalty']) {
      assert.equal(await generate({ ...forced, [penalty]: 2 }), await model.detokenize([504, 7042]), penalty);
    }
    assert.equal(await textOf(model.generate(messages, { temperature: 1, typicalP: 0.2, seed: 3, maxTokens: 12 })),
      await generate({ temperature: 1, typical_p: 0.2, seed: 3 }));
  });

  test('messages may have parts, be results of a completion, or have the developer role', async () => {
    const parts = [{ type: 'text', text: 'One' }, { type: 'text', text: 'two' }];
    const usage = async said => (await create({ messages: said, max_tokens: 1 })).usage;
    const plain = [{ role: 'system', content: 'S' }, { role: 'user', content: 'One\ntwo' }];
    const expected = await model.tokenizeChat(plain);
    const inParts = [{ role: 'developer', content: 'S' }, { role: 'user', content: parts }];
    assert.equal((await usage(inParts)).prompt_tokens, expected.length);
    assert.equal((await usage(plain)).prompt_tokens_details.cached_tokens, expected.length - 1);   // the same tokens
    const { choices: [{ message }] } = await create({ max_tokens: 3 });
    assert.ok((await usage([...messages, message, ...messages])).prompt_tokens > 39 + 3);
  });

  test('abandoning the stream, a signal and the controller stop the engine', async t => {
    const reasons = [], { give } = model[POOL];
    t.mock.method(model[POOL], 'give', function (session, prompt) {
      reasons.push(session.lastStats?.finishReason);
      return give.call(this, session, prompt);
    });
    const stream = await create({ stream: true });
    for await (const { choices: [{ delta }] } of stream) if (delta.content) break;
    assert.ok(stream.controller.signal.aborted);
    assert.deepEqual(reasons, ['abort']);

    const own = await create({ stream: true });
    const chunks = [];
    for await (const chunk of own) if (chunks.push(chunk) === 4) own.controller.abort();
    assert.equal(chunks.at(-1)?.choices[0].finish_reason, null);
    assert.deepEqual(reasons, ['abort', 'abort']);

    const unread = await create({ stream: true });   // nobody reads it
    unread.controller.abort();
    assert.ok((await create({ max_tokens: 1 })).usage.completion_tokens === 1);

    const stop = new AbortController(), reason = new Error('enough');
    const streamed = await create({ stream: true }, { signal: stop.signal });
    let read = 0;
    for await (const _ of streamed) if (++read === 3) stop.abort(reason);
    assert.ok(read < 10, `${read} chunks`);
    const answer = create({ logit_bias: { 0: -100, 2: -100 } }, { signal: AbortSignal.timeout(500) });
    await assert.rejects(answer, { name: 'TimeoutError' });
    await assert.rejects(create({}, { signal: stop.signal }), reason);
  });

  test('several answers share their prompt, and are those of seeds that follow each other', async () => {
    const wild = { temperature: 1.5, max_tokens: 8 };
    const alone = await Promise.all([5, 6, 7].map(async seed => (await create({ ...wild, seed })).choices[0].message));
    const { choices, usage } = await create({ ...wild, seed: 5, n: 3 });
    assert.deepEqual(choices.map(({ index, message }) => [index, message]), alone.map((message, i) => [i, message]));
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [asked.ids.length, 24]);
    const chunks = await all(await create({ ...wild, seed: 5, n: 3, stream: true }));
    for (const [index, message] of alone.entries()) {
      const own = chunks.filter(({ choices: [choice] }) => choice.index === index);
      assert.equal(own.map(({ choices: [{ delta }] }) => delta.content ?? '').join(''), message.content);
      assert.equal(own.at(-1).choices[0].finish_reason, 'length');
    }
    const left = await create({ n: 8, stream: true });
    for await (const _ of left) break;
    assert.equal((await create({ ...wild, seed: 5, n: 8 })).choices.length, 8);   // all sessions were given back
  });

  test('create rejects invalid requests, also for a stream', async () => {
    for (const stream of [false, true]) {
      const long = [{ role: 'user', content: 'x '.repeat(8300) }];
      await fails(create({ messages: long, stream }), 'PLUMB_ERROR_CONTEXT', /holds 8192/);
      const tools = [{ type: 'function', function: { name: 'now' } }];
      await create({ tools, tool_choice: 'none', max_tokens: 1, stream }).then(one => one.controller?.abort());
      await create({ tools: [], max_tokens: 1, stream }).then(one => one.controller?.abort());
    }
  });

  test('invalid parameters are refused', async () => {
    const now = { type: 'function', function: { name: 'now' } };
    const image = { type: 'image_url', image_url: { url: 'data:,' } };
    for (const [params, message] of [
      [{ n: 9 }, /n is 9, expected an integer from 1 to 8/],
      [{ max_token: 2 }, /unknown option "max_token"; the known options are model, messages, stream, /],
      [{ user: 5 }, /user is 5, expected a string/],
      [{ temperature: 2.1 }, /temperature is 2.1, expected a number from 0 to 2/],
      [{ top_p: -0.1 }, /top_p is -0.1, expected a number from 0 to 1/],
      [{ presence_penalty: 3 }, /presence_penalty is 3, expected a number from -2 to 2/],
      [{ frequency_penalty: NaN }, /frequency_penalty is NaN/],
      [{ logit_bias: { 5: 101 } }, /logit_bias is an object, expected .* from -100 to 100/],
      [{ logit_bias: { x: 1 } }, /logit_bias is an object, expected/],
      [{ seed: 1.5 }, /seed is 1.5, expected an integer/],
      [{ seed: '1' }, /seed is "1", expected an integer/],
      [{ top_logprobs: 3 }, /top_logprobs is only allowed with logprobs: true/],
      [{ logprobs: true, top_logprobs: 21 }, /top_logprobs is 21/],
      [{ logprobs: 1 }, /logprobs is 1, expected true or false/],
      [{ max_tokens: 0 }, /max_tokens is 0/],
      [{ max_tokens: 1, max_completion_tokens: 1 }, /give either max_tokens or max_completion_tokens, not both/],
      [{ stream_options: { include_usage: true } }, /only allowed with stream: true/],
      [{ stream: true, stream_options: { usage: true } }, /stream_options is an object, expected/],
      [{ stop: [''] }, /stop is an array/],
      [{ tool_choice: 'maybe' }, /tool_choice is "maybe", expected 'auto', 'none', 'required' or/],
      [{ tool_choice: 'required' }, /tool_choice asks for a call, but there are no tools/],
      [{ tools: [now], tool_choice: 'required', response_format: { type: 'json_object' } },
        /a required call and json exclude each other/],
      [{ tools: [now], tool_choice: { ...now, function: { name: 'x' } } }, /asks for the tool "x", which is/],
      [{ reasoning_budget: -1 }, /reasoning_budget is -1, expected an integer/],
      [{ reasoning_effort: 'huge' }, /reasoning_effort is "huge", expected "none" or/],
      [{ chat_template_kwargs: 3 }, /chat_template_kwargs is 3, expected/],
      [{ tools: [{ type: 'custom' }] }, /tools is an array, expected/],
      [{ response_format: { type: 'xml' } }, /response_format is an object, expected \{type: 'text'\}/],
      [{ messages: 'Hi' }, /messages is "Hi", expected an array/],
      [{ messages: null }, /messages is missing/],
      [{ messages: [] }, /chat.completions.create: messages is empty/],
      [{ messages: [{ role: 'function', content: '' }] },
        /messages\[0\].role is "function", expected one of "system", /],
      [{ messages: [null] }, /messages\[0\].role is undefined/],
      [{ messages: [{ role: 'user', content: 5 }] }, /messages\[0\].content is neither/],
      [{ messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, image] }] },
        /messages\[0\].content\[1\] has type "image_url", expected "text"/],
    ]) await fails(create(params), 'PLUMB_ERROR_ARGUMENT', message);
    for (const params of [undefined, null, 'Hi']) {
      await fails(model.chat.completions.create(params), 'PLUMB_ERROR_ARGUMENT', /expected \{messages, \.\.\.\}/);
    }
    await fails(create({}, { timeout: 5 }), 'PLUMB_ERROR_ARGUMENT',
      /unknown option "timeout"; the known options are signal/);
  });
});

describe('the client', () => {
  const models = { smol: smallPath };
  const load = { precision: /** @type {const} */ ('exact16') };

  test('models are loaded by name at first use, and stay', async t => {
    const phases = [];
    const onProgress = ({ phase }) => phases.push(phase);
    const client = new OpenAI({ models, otherModels: true, load: { ...load, onProgress } });
    t.after(() => client.close());
    assert.equal(phases.length, 0);
    const loads = () => phases.filter(phase => phase === 'ready').length;
    const ask = params => client.chat.completions.create({ model: 'smol', ...GREEDY, max_tokens: 3, ...params });
    const { model, choices: [{ message }] } = await ask();
    assert.deepEqual([model, message.content?.length && loads()], ['smol', 1]);
    const both = await Promise.all([ask(), ask({ stream: true })]);
    assert.equal(contentOf(await all(both[1])), message.content);
    assert.equal(loads(), 1);

    const stream = await ask({ stream: true });
    const other = ask({ model: tinyPath });
    assert.equal(contentOf(await all(stream)), message.content);
    await other;
    assert.equal(loads(), 2);
    await fails(ask({ model: `${root}none.gguf` }), 'PLUMB_ERROR_IO', /none.gguf/);
    assert.equal((await ask()).choices[0].message.content, message.content);
    await client.close();
    await client.close();
    assert.equal((await ask()).choices[0].message.content, message.content);
    assert.equal(loads(), 3);
  });

  test('a stream that nobody reads does not block its model, and can be read later', { timeout: 60000 }, async () => {
    const client = new OpenAI({ models: { smol: smallPath }, otherModels: true,
      load: { ...load, contextLength: 64 } });
    const ask = params => client.chat.completions.create({ ...GREEDY, model: 'smol', stream: true, ...params });
    const unread = await ask();
    await fails(ask({ model: tinyPath }), 'PLUMB_ERROR_CONTEXT', /the prompt has 91 tokens/);
    const chunks = await all(unread);
    assert.equal(contentOf(chunks), contentOf(await all(await ask())));
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
    await ask();
    await client.close();
  });

  for (const worker of [false, true]) {
    const where = worker ? 'in a worker' : 'in this thread';

    test(`close ends running answers and loads ${where}`, { timeout: 60000 }, async t => {
      let loading = () => {};
      const onProgress = () => loading();
      const client = new OpenAI({ models, otherModels: true, load: { ...load, worker, onProgress } });
      t.after(() => client.close());
      const ask = params => client.chat.completions.create({ ...GREEDY, model: 'smol', ...params });
      const closed = 'PLUMB_ERROR_STATE', why = /the (model|client) (was|is) closed/;
      const begun = new Promise(resolve => { loading = () => resolve(undefined); });
      const asked = [ask(), ask(), ask({ model: tinyPath })].map(answer => fails(answer, closed, why));
      await begun;
      await client.close();
      await Promise.all(asked);

      const endless = { logit_bias: { 0: -100, 2: -100 } };
      const stream = await ask({ ...endless, stream: true });
      const others = [ask(endless), ask({ model: tinyPath })].map(answer => fails(answer, closed, why));
      await client.close();
      await Promise.all(others);
      assert.equal((await all(stream)).at(-1).choices[0].finish_reason, null);
      assert.equal((await ask({ max_tokens: 2 })).usage.completion_tokens, 2);
    });

    test(`a model that was closed is loaded again ${where}`, { timeout: 60000 }, async t => {
      let loaded;
      const plumb = { load: async (source, options) => loaded = await Plumb.load(source, options) };
      const client = new Client(plumb, { models, otherModels: true, load: { ...load, worker } });
      t.after(() => client.close());
      const ask = () => client.chat.completions.create({ ...GREEDY, model: 'smol', max_tokens: 2 });
      const first = await ask(), model = loaded;
      await ask();
      assert.equal(loaded, model);
      await model.close();
      assert.equal((await ask()).choices[0].message.content, first.choices[0].message.content);
      assert.notEqual(loaded, model);
    });
  }

  test('a signal during the load of a model ends only its own call', { timeout: 60000 }, async t => {
    const url = await server(t, (_, response) => void response.write('GGUF'));   // then it stalls
    const client = new OpenAI({ models, otherModels: true, load: { ...load, cache: 'no-store' } });
    t.after(() => client.close());
    const stop = new AbortController(), reason = new Error('enough');
    const ask = (model, options) => client.chat.completions.create({ ...GREEDY, model, max_tokens: 2 }, options);
    const never = assert.rejects(ask(url, { signal: stop.signal }), found => found === reason);
    const behind = assert.rejects(ask('smol', { signal: AbortSignal.timeout(100) }), { name: 'TimeoutError' });
    const answer = ask('smol');
    await behind;
    stop.abort(reason);
    await never;
    assert.equal((await answer).usage.completion_tokens, 2);
  });

  test('server options, unknown options and a missing model are errors', async () => {
    for (const [options, message] of [
      [{ apiKey: 'x', models },
        /new OpenAI: remove the option apiKey: .* server is involved; the known options are models, otherModels, load/],
      [{ dangerouslyAllowBrowser: true }, /remove the option dangerouslyAllowBrowser/],
      [{ model: 'x' }, /unknown option "model"; the known options are models, otherModels, load/],
      [null, /options are null/],
    ]) await fails(async () => new OpenAI(options), 'PLUMB_ERROR_ARGUMENT', message);
    const client = new OpenAI();
    await fails(client.chat.completions.create({ messages }), 'PLUMB_ERROR_ARGUMENT', /model is missing/);
    await fails(client.chat.completions.create({ model: 'x', messages, n: 0 }), 'PLUMB_ERROR_ARGUMENT', /n is 0/);
    for (const model of ['constructor', `${root}none.gguf`]) {   // a path, not what every object has
      await fails(client.chat.completions.create({ model, messages }), 'PLUMB_ERROR_IO',
        /no such file.*is not in the models of new OpenAI\(\{ models \}\) \(there are none\), so .* a URL or a path/);
    }
    const named = new OpenAI({ models: { smol: `${root}none.gguf`, other: smallPath } });
    for (const model of ['gpt', tinyPath, '/etc/passwd', 'http://127.0.0.1:1/', '__proto__']) {   // a stranger's word
      const why = /^(chat\.completions|embeddings)\.create: model ".*" is not in .* \("smol", "other"\); otherModels/;
      await fails(named.chat.completions.create({ model, messages }), 'PLUMB_ERROR_ARGUMENT', why);
      await fails(named.embeddings.create({ model, input: 'a' }), 'PLUMB_ERROR_ARGUMENT', why);
    }
    await fails(new OpenAI({ models: {} }).chat.completions.create({ model: tinyPath, messages }),
      'PLUMB_ERROR_ARGUMENT', /\(there are none\)/);
    const open = new OpenAI({ models: { smol: smallPath }, otherModels: true });
    await fails(open.chat.completions.create({ model: 'gpt', messages }), 'PLUMB_ERROR_IO', /\("smol"\), so it was/);
    await fails(named.chat.completions.create({ model: 'smol', messages }), 'PLUMB_ERROR_IO',
      /none\.gguf: [^;]*no such file[^;]*$/);
  });
});
