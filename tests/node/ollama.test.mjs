/** Ollama's API.  Ground truth: its documentation (docs/api.md of github.com/ollama/ollama, v0.12), and what
 * chat.completions, completions and embed of the same models answer.  clients.test.mjs has Ollama's own clients. */
import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import { after, before, test } from 'node:test';
import { createHandler } from '../../web/node/fetch.js';
import { Plumb } from '../../web/node/index.js';
import { realPath, realWithTemplate, root, tinyPath } from './helpers.mjs';

const encoderPath = `${root}models/all-MiniLM-L6-v2.Q8_0.gguf`;
const TURNS = '{% for m in messages %}{{ "<|im_start|>" + m.role + "\\n" + m.content + "<|im_end|>\\n" }}{% endfor %}'
  + '{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}';
const user = content => ({ role: 'user', content });
const QUESTION = 'What is the capital of France?', GREEDY = { temperature: 0, num_predict: 12 };
const ASK = { model: 'smol', messages: [user(QUESTION)], options: GREEDY };

/** @type {import('../../web/serving/handler.js').Handler} */
let handler;
/** @type {import('../../web/api/plumb.js').Model} */
let model;
before(async () => {
  const thinker = realWithTemplate(`${TURNS}{{ "<think>\\n" }}{% if not enable_thinking %}`
    + '{{ "\\n</think>\\n\\n" }}{% endif %}{% endif %}');
  handler = createHandler({ models: { smol: realPath, mini: encoderPath, thinker, base: tinyPath, gone: '/no/file' },
    load: { threads: 1 } });
  model = await Plumb.load(realPath, { threads: 1 });
});
after(async () => {
  await handler.close();
  await model.close();
});

const get = async path => (await handler(`http://plumb.invalid${path}`)).json();
/** @param {string} path @param {object} body */
const post = (path, body) =>
  handler(`http://plumb.invalid/api/${path}`, { method: 'POST', body: JSON.stringify(body) });
const lines = async response => (await response.text()).trimEnd().split('\n').map(line => JSON.parse(line));
/** The answer as one object. @param {string} path @param {object} body */
const whole = async (path, body) => (await post(path, { ...body, stream: false })).json();
/** What chat.completions answers. @param {any[]} messages @param {object} [more] */
async function chat(messages, more) {
  const { choices: [{ message }], usage } = await model.chat.completions.create({
    messages, temperature: 0, max_tokens: 12, ...more,
  });
  return { ...message, usage };
}

test('a chat streams lines of JSON, of which the last has the counts and the times in nanoseconds', async () => {
  const { content, usage } = await chat(ASK.messages), start = performance.now();
  const response = await post('chat', ASK);
  assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
  const parts = await lines(response), last = parts.pop(), took = performance.now() - start;
  assert.ok(parts.length > 3);
  for (const { created_at, message, ...rest } of parts) {
    assert.deepEqual([message.role, Object.keys(message), rest],
      ['assistant', ['role', 'content'], { model: 'smol', done: false }]);
    assert.equal(new Date(created_at).toISOString(), created_at);
  }
  assert.equal(parts.map(({ message }) => message.content).join(''), content);
  const { created_at, total_duration, load_duration, prompt_eval_duration, eval_duration, ...rest } = last;
  assert.deepEqual(rest, {
    model: 'smol', message: { role: 'assistant', content: '' }, done: true, done_reason: 'stop',
    prompt_eval_count: usage.prompt_tokens, eval_count: usage.completion_tokens,
  });
  for (const time of [total_duration, load_duration, prompt_eval_duration, eval_duration]) {
    assert.ok(Number.isInteger(time) && time > 0 && time <= took * 1e6, `${time} ns of ${took} ms`);
  }
  assert.ok(Math.abs(total_duration - load_duration - prompt_eval_duration - eval_duration) < 5);
  const { message, done, done_reason } = await whole('chat', ASK);
  assert.deepEqual([message, done, done_reason], [{ role: 'assistant', content }, true, 'stop']);
});

test('a prompt is a question, or with raw: true, or for a model without a template, a text to continue', async () => {
  const asked = await whole('generate', { model: 'smol', prompt: QUESTION, options: GREEDY });
  assert.deepEqual([asked.response, asked.done_reason], [(await chat(ASK.messages)).content, 'stop']);
  const system = 'You speak Spanish only.';
  assert.equal((await whole('generate', { model: 'smol', prompt: QUESTION, system, options: GREEDY })).response,
    (await chat([{ role: 'system', content: system }, user(QUESTION)])).content);
  let text = '';
  for await (const piece of model.generate('The sky is', { temperature: 0, maxTokens: 12 })) text += piece;
  const raw = { model: 'smol', prompt: 'The sky is', raw: true, options: GREEDY };
  const parts = await lines(await post('generate', raw));
  assert.equal(parts.map(({ response }) => response).join(''), text);
  assert.deepEqual([parts.at(-1).done_reason, parts.at(-1).eval_count], ['length', 12]);
  const base = await whole('generate', { model: 'base', prompt: 'abc', options: { num_predict: 3, temperature: 0 } });
  assert.deepEqual([base.done, base.eval_count], [true, 3]);
});

test('options: what can be kept is kept', async () => {
  const story = [user('Write a long story about a dog.')];
  for (const [options, params] of [
    [{ temperature: 1, seed: 7, num_predict: 8 }, { temperature: 1, seed: 7, max_tokens: 8 }],
    [{ temperature: 1, seed: 7, num_predict: 8, top_k: 3, top_p: 0.5, min_p: 0.1, typical_p: 0.9 },
      { temperature: 1, seed: 7, max_tokens: 8, top_k: 3, top_p: 0.5, min_p: 0.1, typical_p: 0.9 }],
    [{ temperature: 0, num_predict: 12, repeat_penalty: 1.5, repeat_last_n: -1, presence_penalty: 0.5 },
      { max_tokens: 12, repeat_penalty: 1.5, penalty_last_n: 2 ** 24, presence_penalty: 0.5 }],
    [{ temperature: 0, num_predict: 12, stop: [' time'] }, { stop: ' time' }],
    // How it computes is not for a request to say.
    [{ temperature: 0, num_predict: 5, num_ctx: 999999, num_gpu: 99, use_mmap: true, num_thread: 64, mirostat: 0,
      stop: [], num_keep: 4 }, { max_tokens: 5 }],
  ]) {
    const { message } = await whole('chat', { ...ASK, messages: story, options });
    assert.equal(message.content, (await chat(story, params)).content, JSON.stringify(options));
  }
  const { done_reason, eval_count } = await whole('chat', { ...ASK, options: { temperature: 0, num_predict: -1 } });
  assert.deepEqual([done_reason, eval_count > 5], ['stop', true]);
});

test('format is JSON or a schema; log-probabilities', async () => {
  const age = { type: 'object', required: ['age'], additionalProperties: false,
    properties: { age: { type: 'integer', minimum: 0, maximum: 9 } } };
  const ask = { ...ASK, messages: [user('Repeat: {"name": "Ann", "age": 5}')], options: { temperature: 0 } };
  assert.ok(JSON.parse((await whole('chat', { ...ask, format: age })).message.content).age < 10);
  assert.equal(typeof JSON.parse((await whole('chat', { ...ask, format: 'json' })).message.content), 'object');
  const { response } = await whole('generate', { model: 'smol', prompt: ask.messages[0].content, format: age,
    options: { temperature: 0 } });
  assert.ok(JSON.parse(response).age < 10);
  const { logprobs, eval_count } = await whole('chat', { ...ASK, logprobs: true, top_logprobs: 2 });
  assert.ok(logprobs.length === eval_count && logprobs.every(one => one.top_logprobs.length === 2));
});

test('calls have arguments that are objects, and their results come back by the tool\'s name', async () => {
  const parameters = { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } };
  const tools = ['add', 'sub'].map(name => ({ type: 'function', function: { name, parameters } }));
  const body = { ...ASK, tools, options: { temperature: 0, num_predict: 40 }, messages: [
    user('Repeat: <tool_call>\n{"name": "add", "arguments": {"a": 4, "b": 7}}\n</tool_call>')] };
  const { message } = await whole('chat', body);
  assert.deepEqual(message, { role: 'assistant', content: '',
    tool_calls: [{ function: { name: 'add', arguments: { a: 4, b: 7 } } }] });
  const parts = await lines(await post('chat', body));
  assert.deepEqual(parts.flatMap(part => part.message.tool_calls ?? []), message.tool_calls);
  assert.equal(parts.at(-1).done_reason, 'stop');

  const calls = [{ function: { name: 'sub', arguments: { a: 1, b: 2 } } }, ...message.tool_calls];
  const call = (id, name, args) => ({ id, type: 'function', function: { name, arguments: JSON.stringify(args) } });
  const answer = await whole('chat', { ...ASK, tools, messages: [...body.messages,
    { role: 'assistant', content: '', tool_calls: calls }, { role: 'tool', tool_name: 'add', content: '11' },
    { role: 'tool', content: '-1' }] });
  const { content, usage } = await chat([...body.messages, { role: 'assistant', content: '', tool_calls: [
    call('call_0', 'sub', { a: 1, b: 2 }), call('call_1', 'add', { a: 4, b: 7 })] },
  { role: 'tool', tool_call_id: 'call_1', name: 'add', content: '11' },
  { role: 'tool', tool_call_id: 'call_0', content: '-1' }], { tools });
  assert.deepEqual([answer.message.content, answer.prompt_eval_count], [content, usage.prompt_tokens]);
});

test('thinking is apart from the text, and think: false turns it off', async () => {
  const ask = { ...ASK, model: 'thinker', options: { temperature: 0, num_predict: 5 } };
  const { message } = await whole('chat', { ...ask, think: true });
  assert.ok(message.thinking.length > 0 && message.content === '', JSON.stringify(message));
  const parts = await lines(await post('chat', { ...ask, think: true }));
  assert.equal(parts.map(part => part.message.thinking ?? '').join(''), message.thinking);
  const { message: other } = await whole('chat', { ...ask, think: false });
  assert.ok(other.content.length > 0 && !('thinking' in other), JSON.stringify(other));
  const generated = await whole('generate', { model: 'thinker', prompt: QUESTION, think: true, options: ask.options });
  assert.deepEqual([generated.thinking, generated.response], [message.thinking, '']);
});

test('vectors are those of embed', async () => {
  const encoder = await Plumb.load(encoderPath, { threads: 1 }), texts = ['A cat.', 'A dog.'];
  const vectors = (await encoder.embed(texts)).map(vector => [...vector]);
  const { embeddings, model: name, prompt_eval_count: tokens, load_duration, total_duration } =
    await whole('embed', { model: 'mini', input: texts });
  assert.deepEqual([embeddings, name, tokens], [vectors, 'mini', 10]);
  assert.ok(load_duration > 0 && total_duration > load_duration);
  assert.deepEqual(await whole('embeddings', { model: 'mini', prompt: texts[1] }), { embedding: vectors[1] });
  const long = 'word '.repeat(600);
  assert.equal((await whole('embed', { model: 'mini', input: long })).prompt_eval_count, 512);
  assert.match((await whole('embed', { model: 'mini', input: long, truncate: false })).error, /512/);
  await encoder.close();
});

test('lists of models, what is known of one, and what is loaded', async () => {
  const { models } = await get('/api/tags'), [smol] = models;
  assert.deepEqual(models.map(({ name }) => name), ['smol', 'mini', 'thinker', 'base', 'gone']);
  assert.match(smol.digest, /^[0-9a-f]{64}$/);
  assert.equal(new Set(models.map(({ digest }) => digest)).size, models.length);
  assert.deepEqual([smol.model, smol.size, smol.details], ['smol', 98362432, {
    parent_model: '', format: 'gguf', family: 'llama', families: ['llama'], parameter_size: '135M',
    quantization_level: 'Q4_1',
  }]);
  assert.deepEqual([models[4].size, models[4].details.parameter_size], [0, '']);   // its file is not there
  const show = async name => (await post('show', { model: name })).json();
  const { capabilities, model_info: info, template } = await show('smol:latest');
  assert.deepEqual(capabilities, ['completion', 'tools']);
  assert.deepEqual(info, { 'general.architecture': 'llama', 'general.parameter_count': 134515008,
    'llama.block_count': 30, 'llama.context_length': 8192, 'llama.embedding_length': 576 });
  assert.equal(template, model.metadata['tokenizer.chat_template']);
  assert.deepEqual((await show('mini')).capabilities, ['embedding']);
  assert.match((await show('gone')).error, /no\/file/);
  const loaded = (await get('/api/ps')).models.find(({ name }) => name === 'smol');
  assert.ok(loaded.size > 98362432 && loaded.size_vram === 0 && loaded.context_length === 8192);
  assert.match((await get('/api/version')).version, /^\d+\.\d+\.\d+$/);
});

test('an empty request loads a model, and keep_alive says how long it stays', async () => {
  const isLoaded = async () => (await get('/api/ps')).models.some(({ name }) => name === 'base');
  const ask = { model: 'base', stream: false };
  assert.equal((await whole('generate', { ...ask, keep_alive: 0 })).done_reason, 'unload');
  assert.equal(await isLoaded(), false);
  const { done, done_reason, message } = await whole('chat', { ...ask, keep_alive: '10m' });
  assert.deepEqual([done, done_reason, message], [true, 'load', { role: 'assistant', content: '' }]);
  assert.equal(await isLoaded(), true);
  const { expires_at } = (await get('/api/ps')).models.find(({ name }) => name === 'base');
  assert.ok(Math.abs(new Date(expires_at) - Date.now() - 600_000) < 60_000, expires_at);
  for (const [keep_alive, seconds] of [[90, 90], ['1h1m1.5s', 3661.5], ['200', 200]]) {
    await whole('chat', { ...ask, keep_alive });
    const { expires_at: then } = (await get('/api/ps')).models.find(({ name }) => name === 'base');
    assert.ok(Math.abs(new Date(then) - Date.now() - 1000 * seconds) < 10_000, `${keep_alive}: ${then}`);
  }
  await whole('generate', { ...ask, prompt: 'abc', options: { num_predict: 1 }, keep_alive: '30ms' });
  assert.equal(await isLoaded(), true);
  await wait(100);
  assert.equal(await isLoaded(), false);
  await whole('generate', { ...ask, prompt: 'abc', options: { num_predict: 1 }, keep_alive: -1 });
  const [{ expires_at: never }] = (await get('/api/ps')).models.filter(({ name }) => name === 'base');
  assert.match(never, /^9999/);
  assert.equal((await whole('generate', { ...ask, keep_alive: 0 })).done_reason, 'unload');
  assert.equal(await isLoaded(), false);
});

test('errors have Ollama\'s shape, and name what is wrong', async () => {
  for (const [path, body, status, message] of [
    ['chat', { ...ASK, model: undefined }, 400, /^api\/chat: model is missing$/],
    ['chat', { ...ASK, model: 'gpt' }, 404, /^there is no model "gpt"; the models are: "smol"/],
    ['chat', { ...ASK, model: '/etc/passwd' }, 404, /^there is no model/],
    ['show', { model: '/etc/passwd' }, 404, /^there is no model/],
    ['chat', { ...ASK, messages: 'hi' }, 400, /messages is "hi", expected an array of \{role, content, tool_calls\?\}/],
    ['chat', { ...ASK, messages: [{ ...user('hi'), images: ['AAAA'] }] }, 400, /without images/],
    ['chat', { ...ASK, messages: [{ role: 'robot', content: 'hi' }] }, 400, /role is "robot"/],
    ['chat', { ...ASK, options: { temperature: 'hot' } }, 400, /options: temperature is "hot", expected a number/],
    ['chat', { ...ASK, options: { mirostat: 1 } }, 400, /mirostat is 1, expected 0/],
    ['chat', { ...ASK, options: { warmth: 1 } }, 400, /unknown option "warmth"/],
    ['chat', { ...ASK, format: 'xml' }, 400, /format is "xml", expected 'json' or a JSON Schema/],
    ['chat', { ...ASK, think: 'much' }, 400, /think is "much"/],
    ['chat', { ...ASK, keep_alive: 'long' }, 400, /keep_alive is "long", expected a number of seconds, or a text/],
    ['generate', { model: 'smol', prompt: 'a', suffix: 'b' }, 400, /suffix is "b", expected no suffix/],
    ['generate', { model: 'smol', prompt: 'a', template: '{{ .Prompt }}' }, 400, /expected no template/],
    ['generate', { model: 'smol', prompt: 'a', context: [1, 2] }, 400, /context is an array, expected no context/],
    ['generate', { model: 'smol', prompt: 'a', images: ['AAAA'] }, 400, /expected no images/],
    ['generate', { model: 'smol', prompt: 'a', raw: true, format: 'json' }, 400, /format needs a chat template/],
    ['chat', { ...ASK, model: 'mini' }, 400, /chat_template|embeddings/],
    ['chat', { ...ASK, model: 'gone' }, 500, /no\/file/],
    ['push', { model: 'smol' }, 404, /^there is no \/api\/push$/],
    ['pull', { model: 'hf:org/repo' }, 403, /not download models .*--pull, or run "plumb pull hf:org\/repo/],
    ['tags', {}, 405, /\/api\/tags takes GET, not POST/],
  ]) {
    const response = await post(path, body), answer = await response.json();
    assert.deepEqual([response.status, Object.keys(answer)], [status, ['error']], `${path} ${JSON.stringify(answer)}`);
    assert.match(answer.error, message);
  }
  const broken = await handler('http://plumb.invalid/api/chat', { method: 'POST', body: '{' });
  assert.deepEqual([broken.status, typeof (await broken.json()).error], [400, 'string']);
  // null and what is empty count as absent.
  const { done } = await whole('generate', { model: 'smol', prompt: 'a', suffix: '', template: '', context: [],
    images: [], format: '', think: null, options: { num_predict: 1, stop: null } });
  assert.equal(done, true);
});

test('a stream whose model is closed ends with a line that says so', async () => {
  const own = createHandler({ models: { smol: realPath }, load: { threads: 1 } });
  const { body } = await own('http://plumb.invalid/api/chat', { method: 'POST', body: JSON.stringify({
    ...ASK, messages: [user('Write a long story about a dog.')], options: { temperature: 0, num_predict: 400 } }) });
  let text = '';
  for await (const piece of body.pipeThrough(new TextDecoderStream())) {
    if (text === '') own.close();
    text += piece;
  }
  assert.deepEqual(JSON.parse(text.trimEnd().split('\n').at(-1)), { error: 'the model was closed' });
});
