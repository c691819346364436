/** OpenAI's Responses API.  Ground truth: chat.completions on the same model, whose answers other tests compare with
 * llama.cpp's; and OpenAI's package, which must read responses, and join the events of streams to them. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { createHandler } from '../../web/node/fetch.js';
import { Plumb } from '../../web/node/index.js';
import { Responses } from '../../web/openai/responses.js';
import { fails, realPath, realWithTemplate } from './helpers.mjs';
import { smallPath } from './small.mjs';

const TURNS = '{% for m in messages %}{{ "<|im_start|>" + m.role + "\\n" + m.content + "<|im_end|>\\n" }}{% endfor %}'
  + '{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}';
const QUESTION = 'What is the capital of France?', NEXT = 'And of Italy?';
const user = content => ({ role: 'user', content });
const parameters = {
  type: 'object', required: ['a', 'b'], additionalProperties: false,
  properties: { a: { type: 'integer' }, b: { type: 'integer' } },
};
const ADD = { type: 'function', name: 'add', description: 'Adds two numbers.', parameters, strict: true };
const { type, ...about } = ADD, DEEP = [{ type, function: about }];
const GREEDY = { model: 'smol', temperature: 0, max_output_tokens: 12 };

/** @type {import('../../web/serving/handler.js').Handler} */
let handler;
/** @type {OpenAI} */
let client;
/** The small model, whose answers do not end, and the default one.
 * @type {import('../../web/api/plumb.js').Model} */
let model, real;
before(async () => {
  [model, real] = await Promise.all([smallPath, realPath].map(path => Plumb.load(path, { threads: 1 })));
  const thinker = realWithTemplate(`${TURNS}{{ "<think>\\n" }}{% endif %}`);
  handler = createHandler({ models: { smol: smallPath, real: realPath, thinker }, load: { threads: 1 } });
  client = new OpenAI({ apiKey: 'none', baseURL: 'http://plumb.invalid/v1', fetch: handler, maxRetries: 0 });
});
after(async () => {
  await handler.close();
  await model.close();
  await real.close();
});

/** What chat.completions answers. @param {any[]} messages @param {object} [more] */
async function chat(messages, more, of = model) {
  const answer = await of.chat.completions.create({ messages, temperature: 0, max_tokens: 12, ...more });
  return { ...answer.choices[0].message, usage: answer.usage };
}
/** A response without what differs from call to call. @param {any} response */
const same = response => JSON.parse(JSON.stringify(response, (key, value) =>
  /^(id|created_at|call_id|item_id|cached_tokens)$/.test(key) ? undefined : value));
const eventsOf = async stream => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

test('a response has the answer of chat.completions, in OpenAI\'s object', async () => {
  const { content, usage } = await chat([user(QUESTION)], {}, real), metadata = { task: '1' };
  const response = await client.responses.create({ ...GREEDY, model: 'real', input: QUESTION, metadata });
  assert.match(response.id, /^resp_[0-9a-f]{48}$/);
  assert.match(response.output[0].id, /^msg_[0-9a-f]{24}$/);
  assert.ok(Math.abs(response.created_at - Date.now() / 1000) < 600);
  assert.deepEqual(same(response), {
    object: 'response', status: 'completed', model: 'real', error: null, incomplete_details: null, output_text: content,
    output: [{ type: 'message', status: 'completed', role: 'assistant',
      content: [{ type: 'output_text', annotations: [], text: content, logprobs: [] }] }],
    usage: {
      input_tokens: usage.prompt_tokens, input_tokens_details: {}, output_tokens: usage.completion_tokens,
      output_tokens_details: { reasoning_tokens: 0 }, total_tokens: usage.total_tokens,
    },
    instructions: null, tools: [], tool_choice: 'auto', parallel_tool_calls: true, text: { format: { type: 'text' } },
    max_output_tokens: 12, temperature: 0, top_p: null, top_logprobs: 0, reasoning: { effort: null, summary: null },
    previous_response_id: null, truncation: 'disabled', store: true, metadata, background: false,
    service_tier: 'default',
  });
});

test('the events come in their order, and OpenAI\'s package joins them to the same response', async () => {
  const body = { ...GREEDY, model: 'real', input: QUESTION, include: ['message.output_text.logprobs'],
    top_logprobs: 2 };
  const whole = await client.responses.create(body), [{ content: [part] }] = whole.output;
  const events = await eventsOf(await client.responses.create({ ...body, stream: true }));
  assert.deepEqual(events.map(({ sequence_number }) => sequence_number), events.map((_, i) => i));
  const { length } = events.filter(({ type }) => type === 'response.output_text.delta');
  assert.ok(length > 4);
  assert.deepEqual(events.map(({ type }) => type.replace('response.', '')), [
    'created', 'in_progress', 'output_item.added', 'content_part.added', ...Array(length).fill('output_text.delta'),
    'output_text.done', 'content_part.done', 'output_item.done', 'completed',
  ]);
  const [created, , added, begun, ...rest] = events, last = rest.at(-1), id = added.item.id;
  const { status, output, usage } = created.response;
  assert.deepEqual([status, output, usage], ['in_progress', [], null]);
  assert.deepEqual([added.output_index, added.item.status, added.item.content], [0, 'in_progress', []]);
  assert.deepEqual(begun.part, { type: 'output_text', text: '', annotations: [], logprobs: [] });
  for (const event of rest.slice(0, -2)) {
    assert.deepEqual([event.item_id, event.output_index, event.content_index], [id, 0, 0]);
  }
  assert.equal(rest.flatMap(({ delta = '' }) => delta).join(''), whole.output_text);
  assert.deepEqual([rest.at(-4).text, rest.at(-3).part, rest.at(-2).item.content], [part.text, part, [part]]);
  assert.deepEqual(same({ ...last.response, output_text: whole.output_text }), same(whole));
  assert.equal(part.logprobs.length, whole.usage.output_tokens);   // also of the token that ends the turn
  assert.ok(part.logprobs.every(({ token, logprob, top_logprobs }) => token.length > 0 && logprob <= 0
    && top_logprobs.length === 2));

  const joined = await client.responses.stream(body).finalResponse();
  assert.deepEqual(same({ ...joined, output_parsed: undefined, output: whole.output }), same(whole));
});

test('input is items of every kind, and instructions a system message', async () => {
  const system = 'You speak Spanish only.', call = { name: 'add', arguments: '{"a":4,"b":7}' };
  const calls = [{ id: 'call_1', type: 'function', function: call }];
  for (const [given, messages, more] of [
    [{ input: QUESTION, instructions: system }, [{ role: 'system', content: system }, user(QUESTION)]],
    [{ input: [{ role: 'developer', content: system }, { type: 'message', ...user([
      { type: 'input_text', text: 'What is' }, { type: 'input_text', text: 'water?' }]) }] },
    [{ role: 'system', content: system }, user('What is\nwater?')]],
    [{ input: [{ role: 'system', content: 'Be brief.' }, user(QUESTION)], instructions: system },
      [{ role: 'system', content: `${system}\n\nBe brief.` }, user(QUESTION)]],
    [{ input: [user(QUESTION), { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed',
      content: [{ type: 'output_text', text: 'Paris.', annotations: [] }] }, user(NEXT)] },
    [user(QUESTION), { role: 'assistant', content: 'Paris.' }, user(NEXT)]],
    [{ tools: [ADD], input: [user(QUESTION), { role: 'assistant', content: 'I add.' },
      { type: 'function_call', call_id: 'call_1', ...call },
      { type: 'function_call_output', call_id: 'call_1', output: [{ type: 'input_text', text: '11' }] }] },
    [user(QUESTION), { role: 'assistant', content: 'I add.', tool_calls: calls },
      { role: 'tool', tool_call_id: 'call_1', content: '11' }], { tools: DEEP }],
  ]) {
    const { content, usage } = await chat(messages, more);
    const response = await client.responses.create({ ...GREEDY, ...given });
    assert.deepEqual([response.output_text, response.usage.input_tokens], [content, usage.prompt_tokens]);
  }
});

test('a response goes on from another one, but not with its instructions', async () => {
  const first = await client.responses.create({ ...GREEDY, input: QUESTION, instructions: 'You are a poet.' });
  const history = [user(QUESTION), { role: 'assistant', content: first.output_text }];
  const second = await client.responses.create({ ...GREEDY, input: NEXT, previous_response_id: first.id });
  const { content } = await chat([...history, user(NEXT)]);
  assert.deepEqual([second.output_text, second.previous_response_id], [content, first.id]);
  const stream = await client.responses.create({
    ...GREEDY, input: 'Thanks.', previous_response_id: second.id, stream: true,
  });
  const third = (await eventsOf(stream)).at(-1).response;
  const whole = [...history, user(NEXT), { role: 'assistant', content }, user('Thanks.')];
  assert.equal(third.output[0].content[0].text, (await chat(whole)).content);
  const reference = [{ type: 'item_reference', id: first.output[0].id }, user(NEXT)];
  const other = await client.responses.create({ ...GREEDY, input: [user(QUESTION), ...reference] });
  assert.equal(other.output_text, second.output_text);

  const { output_text } = await client.responses.retrieve(third.id);
  assert.equal(output_text, third.output[0].content[0].text);
  await client.responses.delete(third.id);
  await assert.rejects(client.responses.retrieve(third.id), /404 there is no response "resp_/);
  await assert.rejects(client.responses.create({ ...GREEDY, input: NEXT, previous_response_id: third.id }),
    /400 .*previous_response_id: there is no response "resp_/);
  const loose = await client.responses.create({ ...GREEDY, input: QUESTION, store: false });
  await assert.rejects(client.responses.retrieve(loose.id), /404/);
});

test('responses are kept up to a number of characters, the least recently used are forgotten first', async () => {
  const responses = new Responses(async () => ({ model, free() {} }), 4000);
  const ask = previous_response_id =>
    responses.create({ input: QUESTION, max_output_tokens: 2, temperature: 0, previous_response_id });
  const [one, two, three] = [await ask(), await ask(), await ask()];
  assert.ok([one, two, three].every(({ id }) => responses.retrieve(id)));
  await ask(one.id);
  assert.deepEqual([one, two].map(({ id }) => responses.retrieve(id) !== undefined), [true, false]);
  assert.equal(responses.delete(two.id), false);
  assert.equal(responses.delete(one.id), true);
  const few = new Responses(async () => ({ model, free() {} }), 500);
  const { id } = await few.create({ input: QUESTION, max_output_tokens: 1 });
  assert.equal(few.retrieve(id), undefined);   // alone it is too long
});

test('calls of tools are items, in a stream with their arguments', async () => {
  const body = { ...GREEDY, model: 'real', max_output_tokens: 40, tools: [ADD], input: 'Add 4 and 7.' };
  const { tool_calls: [call] } = await chat([user(body.input)], { tools: DEEP, tool_choice: 'required', max_tokens: 40,
    parallel_tool_calls: false }, real);
  for (const tool_choice of ['required', { type: 'function', name: 'add' },
    { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'add' }] }]) {
    const { output, ...whole } = await client.responses.create({ ...body, tool_choice, parallel_tool_calls: false });
    assert.deepEqual([output.length, output[0].type, output[0].status, output[0].name, output[0].arguments],
      [1, 'function_call', 'completed', 'add', call.function.arguments]);
    assert.match(output[0].call_id, /^call_/);
    assert.deepEqual([whole.output_text, whole.tools, whole.tool_choice], ['', [ADD], tool_choice]);
  }
  const stream = await client.responses.create({ ...body, tool_choice: 'required', parallel_tool_calls: false,
    stream: true });
  const events = await eventsOf(stream), item = events.find(({ type }) => type === 'response.output_item.done').item;
  assert.deepEqual(events.map(({ type }) => type.replace('response.', '')), [
    'created', 'in_progress', 'output_item.added', 'function_call_arguments.delta', 'function_call_arguments.done',
    'output_item.done', 'completed',
  ]);
  assert.deepEqual([events[2].item.name, events[2].item.arguments, events[4].arguments], ['add', '', item.arguments]);
  const none = { type: 'allowed_tools', mode: 'auto', tools: [] };
  assert.equal((await client.responses.create({ ...body, tool_choice: none })).output[0].type, 'message');
});

test('an answer in a format: JSON, a JSON Schema, and one of Zod', async () => {
  const Thing = z.object({ name: z.enum(['Ann', 'Bob']), age: z.int().min(0).max(9) });
  const body = { ...GREEDY, max_output_tokens: 40, input: 'Repeat: {"name": "Ann", "age": 5}' };
  const { output_parsed: value } = await client.responses.parse({ ...body,
    text: { format: zodTextFormat(Thing, 'thing') } });
  assert.ok(Thing.safeParse(value).success, JSON.stringify(value));
  const { output_text } = await client.responses.create({ ...body, text: { format: { type: 'json_object' } } });
  assert.equal(typeof JSON.parse(output_text), 'object');
  await assert.rejects(client.responses.create({ ...body, text: { format: {
    type: 'json_schema', name: 'thing', strict: true, schema: { type: 'object', properties: { a: {} } },
  } } }), /400 .*strict: true requires additionalProperties: false/);
});

describe('reasoning', () => {
  const body = { ...GREEDY, model: 'thinker', input: QUESTION, max_output_tokens: 30, reasoning_budget: 5 };

  test('is an item before the text, and goes back to the model', async () => {
    const response = await client.responses.create(body), [thought, message] = response.output;
    assert.deepEqual([thought.type, message.type, response.output.length], ['reasoning', 'message', 2]);
    assert.deepEqual([thought.summary, thought.content.length, thought.content[0].type], [[], 1, 'reasoning_text']);
    assert.ok(thought.content[0].text.length > 0 && message.content[0].text.length > 0);
    const { reasoning_tokens: pieces } = response.usage.output_tokens_details;
    assert.ok(pieces > 2 && pieces <= body.reasoning_budget, `${pieces} pieces`);
    const again = await client.responses.create({ ...body, input: [user(QUESTION), ...response.output, user(NEXT)] });
    const after = await client.responses.create({ ...body, input: NEXT, previous_response_id: response.id });
    assert.deepEqual([after.output_text, after.usage.input_tokens], [again.output_text, again.usage.input_tokens]);
  });

  test('has events of its own, which OpenAI\'s package joins', async () => {
    const whole = await client.responses.create(body);
    const events = await eventsOf(await client.responses.create({ ...body, stream: true }));
    const thoughts = events.filter(({ output_index: i }) => i === 0).map(({ type }) => type.replace('response.', ''));
    const { length } = thoughts.filter(type => type === 'reasoning_text.delta');
    assert.deepEqual(thoughts, ['output_item.added', 'content_part.added',
      ...Array(length).fill('reasoning_text.delta'), 'reasoning_text.done', 'content_part.done', 'output_item.done']);
    assert.ok(length > 2);
    const joined = await client.responses.stream(body).finalResponse();
    assert.deepEqual(joined.output.map(({ content: [{ text }] }) => text),
      whole.output.map(({ content: [{ text }] }) => text));
  });

  test('may be all that there is', async () => {
    const response = await client.responses.create({ ...body, max_output_tokens: 3, reasoning_budget: null });
    assert.deepEqual([response.status, response.incomplete_details], ['incomplete', { reason: 'max_output_tokens' }]);
    assert.deepEqual(response.output.map(({ type, status }) => [type, status]), [['reasoning', 'incomplete']]);
  });
});

test('an answer that is cut off is incomplete', async () => {
  const body = { ...GREEDY, input: QUESTION, max_output_tokens: 3 };
  const { status, incomplete_details, output: [{ status: ofItem }] } = await client.responses.create(body);
  assert.deepEqual([status, incomplete_details, ofItem], ['incomplete', { reason: 'max_output_tokens' }, 'incomplete']);
  const last = (await eventsOf(await client.responses.create({ ...body, stream: true }))).at(-1);
  assert.deepEqual([last.type, last.response.status], ['response.incomplete', 'incomplete']);
});

test('truncation leaves out the oldest turns, but not the system message', async () => {
  const small = await Plumb.load(smallPath, { threads: 1, contextLength: 256 });
  const responses = new Responses(async () => ({ model: small, free() {} }));
  const system = { role: 'system', content: 'Be brief.' }, turn = [user('word '.repeat(150)),
    { role: 'assistant', content: 'Yes.' }];
  const body = { ...GREEDY, model: undefined, input: [system, ...turn, ...turn, user(QUESTION)] };
  await fails(responses.create(body), 'PLUMB_ERROR_CONTEXT', /holds 256/);
  const response = await responses.create({ ...body, truncation: 'auto' });
  const { usage, content } = await chat([system, ...turn, user(QUESTION)]);
  assert.deepEqual([response.output[0].content[0].text, response.usage.input_tokens], [content, usage.prompt_tokens]);
  const tooLong = { ...body, truncation: 'auto', input: 'word '.repeat(400) };
  await fails(responses.create(tooLong), 'PLUMB_ERROR_CONTEXT', /holds 256/);
  await small.close();
});

test('a stream whose model is closed ends with response.failed, a whole response rejects', async () => {
  const doomed = await Plumb.load(smallPath, { threads: 1 });
  let held = 0;
  const responses = new Responses(async () => {
    held++;
    return { model: doomed, free: () => void held-- };
  });
  const body = { ...GREEDY, model: undefined, input: 'Write a long story about a dog.', max_output_tokens: 400 };
  const rejected = fails(responses.create(body), 'PLUMB_ERROR_STATE', /closed/), events = [];
  for await (const event of await responses.create({ ...body, stream: true })) {
    events.push(event);
    if (events.length === 8) doomed.close();
  }
  const { type, sequence_number, response } = events.at(-1);
  assert.deepEqual([type, sequence_number, response.status, response.error],
    ['response.failed', events.length - 1, 'failed', { code: 'server_error', message: 'the model was closed' }]);
  await rejected;
  assert.equal(held, 0);
});

test('the signal rejects a response with its reason, and ends a stream; leaving the loop ends it too', async () => {
  let held = 0;
  const responses = new Responses(async () => {
    held++;
    return { model: real, free: () => void held-- };
  });
  const body = { ...GREEDY, model: undefined, input: 'Write a long story about a dog.', max_output_tokens: 400 };
  const abort = new AbortController(), whole = responses.create(body, { signal: abort.signal });
  setTimeout(() => abort.abort(new Error('enough')), 100);
  await assert.rejects(whole, /^Error: enough$/);
  const second = new AbortController(), types = [];
  for await (const { type } of await responses.create({ ...body, stream: true }, { signal: second.signal })) {
    if (types.push(type) === 8) second.abort();
  }
  assert.ok(types.length < 12 && !types.includes('response.failed'), types.join());
  for await (const { type } of await responses.create({ ...body, stream: true })) {
    if (type === 'response.output_text.delta') break;
  }
  assert.equal(held, 0);
});

test('a stream that is left after any number of its events gives back what it holds', async () => {
  for (let n = 0; n <= 4; n++) {
    const response = await handler('http://plumb.invalid/v1/responses', {
      method: 'POST', body: JSON.stringify({ ...GREEDY, input: QUESTION, stream: true }),
    });
    const reader = /** @type {ReadableStream} */ (response.body).getReader();
    for (let i = 0; i < n; i++) await reader.read();
    await reader.cancel();
    const users = () => handler.models.list().find(({ name }) => name === 'smol')?.users;
    for (let i = 0; users() !== 0 && i < 100; i++) await new Promise(resolve => { setTimeout(resolve, 20); });
    assert.equal(users(), 0, `${n} events`);
  }
});

test('what is wrong or not there is an error that names it', async () => {
  for (const [given, message] of [
    [{ input: undefined }, /input is missing/],
    [{ input: 5 }, /input is 5, expected a string or an array of items/],
    [{ input: [] }, /messages is empty/],
    [{ input: [null] }, /input\[0\]\.role is undefined/],
    [{ input: [user(QUESTION), { type: 'web_search_call' }] }, /input\[1\] has type "web_search_call", expected "mess/],
    [{ input: [user([{ type: 'input_image', image_url: 'x' }])] }, /input\[0\]\.content\[0\] has type "input_image"/],
    [{ input: [user(5)] }, /input\[0\]\.content is number, expected a string or an array/],
    [{ input: [{ type: 'function_call', name: 'add', arguments: '{}' }] }, /input\[0\]\.call_id is undefined/],
    [{ input: [{ role: 'robot', content: 'x' }] }, /input\[0\]\.role is "robot", expected one of/],
    [{ input: [{ type: 'item_reference', id: 'msg_5' }] }, /input\[0\]: no response that is kept has an item "msg_5"/],
    [{ tools: [{ type: 'web_search' }] }, /tools is an array, expected an array of \{type: 'function', name/],
    [{ tool_choice: 'add' }, /tool_choice is "add", expected 'auto'/],
    [{ tool_choice: { type: 'function', name: 'sub' }, tools: [ADD] }, /the tool "sub", which is not in tools/],
    [{ text: { format: { type: 'xml' } } }, /text is an object, expected \{format\}/],
    [{ text: { verbosity: 'high' } }, /text is an object/],
    [{ reasoning: { effort: 'huge' } }, /reasoning is an object, expected \{effort, summary\}, where effort is "none"/],
    [{ background: true }, /background is true, expected false/],
    [{ conversation: 'c' }, /unknown option "conversation"/],
    [{ temperature: 3 }, /temperature is 3, expected a number from 0 to 2/],
    [{ previous_response_id: 'resp_x' }, /there is no response "resp_x"/],
    [{ stream_options: { include_usage: true } }, /stream_options is an object/],
  ]) {
    const body = { ...GREEDY, input: QUESTION, ...given };
    await assert.rejects(client.responses.create(body), error => {
      assert.equal(error.status, 400, error.message);
      assert.match(error.message, message);
      return true;
    }, JSON.stringify(given));
  }
  const unknown = client.responses.create({ ...GREEDY, model: 'gpt', input: QUESTION });
  await assert.rejects(unknown, /404 there is no model "gpt"/);
});
