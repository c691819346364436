/** chat.run, reasoning and its budget.  The runs are those of a model that is a script: it gives written answers in
 * pieces of three characters, and records what it is asked.  The budget is tested with the default model. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { type } from 'arktype';
import { z } from 'zod';
import { Chat } from '../../web/api/chat.js';
import { Completions } from '../../web/openai/completions.js';
import { Plumb } from '../../web/node/index.js';
import { WHOLE } from '../../web/answers/constraint.js';
import { CONTINUED, FORMAT, POOL } from '../../web/answers/formats.js';
import { fails, realPath, textOf } from './helpers.mjs';
import { formatOf } from './templates.mjs';

const HERMES = '{% if tools %}<tool_call>{% endif %}<think>';
/** @param {string[]} answers @param {string} [template] @param {string} [end]  of the prompt
 * @param {'stop' | 'length'} [reason]  why answers end */
function scripted(answers, template = HERMES, end = '', reason = 'stop') {
  const asked = [], options = [];
  let aborted = false;
  const stats = finishReason => /** @type {any} */ ({ promptTokens: 1, tokens: 1, reusedTokens: 0, finishReason });
  const model = {
    asked, options, [POOL]: { take: async () => [model], give() {} },
    [CONTINUED]() {}, metadata: { 'tokenizer.chat_template': template },
    info: async () => ({ contextLength: 1000, module: 'script' }),
    async tokenizeChat(messages, variables) {
      asked.push({ messages: structuredClone(messages), variables });
      return Int32Array.of(1);
    },
    detokenize: async () => end, tokenize: async () => new Int32Array(), [FORMAT]: async () => formatOf(template),
    async *generate(_, given) {
      options.push(given);
      const text = answers.shift() ?? assert.fail('no answer is left');
      try {
        for (let at = 0; at < text.length; at += 3) {
          if (given.signal?.aborted) return this.lastStats = stats('abort');
          yield text.slice(at, at + 3);
          await null;
        }
        return this.lastStats = stats(reason);
      } finally {
        aborted = given.signal?.aborted;
      }
    },
    wasAborted: () => aborted,
  };
  return model;
}
const call = (name, given) => `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;
const add = {
  description: 'adds', parameters: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } },
    required: ['a', 'b'], additionalProperties: false },
  execute: ({ a, b }) => ({ sum: a + b }),
};
async function all(events) {
  const list = [];
  for await (const event of events) list.push(event);
  return list;
}
/** The arguments by Zod: a text that becomes a number. */
const ZOD = z.object({ a: z.enum(['1', '2']).transform(Number), b: z.int().default(5) });
/** ...and what a model is told of them. */
const TOLD = { type: 'object', properties: { a: { type: 'string', enum: ['1', '2'] },
  b: { default: 5, type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER } },
required: ['a'], additionalProperties: false };
const told = ({ asked: [{ variables }] }) => {
  const { $schema, ...parameters } = variables.tools[0].function.parameters;
  return parameters;
};
const joined = (events, kind) => events.map(event => event[kind] ?? '').join('');

describe('tools with the schemas of libraries', () => {
  test('execute gets what the library makes of the arguments; the model is told the JSON Schema', async () => {
    const model = scripted([call('add', { a: '2' }), call('add', { a: '3' }), call('size', { words: ['a'] }), 'Done.']);
    const given = [];
    const events = await all(new Chat(model).run('Add.', { tools: {
      add: { parameters: ZOD, execute: args => { given.push(args); return args.a + args.b; } },
      size: { schema: type({ words: 'string[]' }), execute: ({ words }) => words.length },
    } }));
    assert.deepEqual(given, [{ a: 2, b: 5 }]);
    assert.deepEqual(told(model), TOLD);
    const results = events.flatMap(({ result }) => result ?? []);
    assert.deepEqual(results.map(({ content, failed }) => [content.replace(/expected.*/, ''), failed]), [['7', false],
      ['Error: the arguments do not fit the schema of "add": /a: Invalid option: ', true], ['1', false]]);
  });

  test('a chat and chat.completions convert the parameters of their tools, too', async () => {
    const tools = [{ type: 'function', function: { name: 'add', parameters: ZOD } }];
    const [one, two] = [scripted(['Hello.']), scripted(['Hello.'])];
    await textOf(new Chat(one, { tools }).send('Add.'));
    await new Completions(async () => ({ model: two, free() {} }))
      .create({ messages: [{ role: 'user', content: 'Add.' }], tools });
    assert.deepEqual(told(one), TOLD);
    assert.deepEqual(told(two), TOLD);
    assert.throws(() => new Chat(one, { tools: [{ type: 'function', function: { name: 'f',
      parameters: z.object({ when: z.date() }) } }] }), /chat: tool f: the schema gives no JSON Schema: Date/);
  });

  test('nullable of OpenAPI 3.0 allows null in the arguments', async () => {
    const parameters = { type: 'object', properties: { a: { type: 'string', nullable: true } }, required: ['a'] };
    const model = scripted([call('f', { a: null }), call('f', { a: 1 }), 'Done.']), given = [];
    await all(new Chat(model).run('Go.', { tools: { f: { parameters, execute: ({ a }) => given.push(a) } } }));
    assert.deepEqual(given, [null]);
  });
});

describe('run', () => {
  test('executes calls, also several at once, and gives the model their results until it answers', async () => {
    const model = scripted([
      `<think>Both.</think>I add.\n${call('add', { a: 1, b: 2 })}\n${call('now', {})}`,
      `Then ${call('add', { a: 3, b: 4 })}`, 'It is 7.',
    ]);
    const order = [];
    const now = { async execute(given, { id, signal }) {
      order.push('now begins');
      assert.deepEqual([given, typeof id, signal], [{}, 'string', undefined]);
      await null;
      order.push('now ends');
      return '12:00';
    } };
    const noted = { ...add, execute: args => (order.push('add'), add.execute(args)) };
    const chat = new Chat(model, { system: 'Be exact.' });
    const events = await all(chat.run('1+2?', { tools: { add: noted, now } }));
    assert.deepEqual(order, ['add', 'now begins', 'now ends', 'add']);
    assert.equal(joined(events, 'content'), 'I add.ThenIt is 7.');
    assert.equal(joined(events, 'reasoning'), 'Both.');
    assert.deepEqual(events.flatMap(({ result }) => result ? [[result.name, result.content, result.failed]] : []),
      [['add', '{"sum":3}', false], ['now', '12:00', false], ['add', '{"sum":7}', false]]);
    assert.deepEqual(events.at(-1), { finish: { reason: 'stop', steps: 3, content: 'It is 7.' } });
    assert.deepEqual(chat.messages.map(({ role }) => role),
      ['system', 'user', 'assistant', 'tool', 'tool', 'assistant', 'tool', 'assistant']);
    const [, , said, first, second] = chat.messages;
    assert.deepEqual([said.content, said.reasoning_content], ['I add.', 'Both.']);
    assert.deepEqual([first.tool_call_id, second.tool_call_id], said.tool_calls.map(({ id }) => id));
    assert.deepEqual(model.asked[1].messages, chat.messages.slice(0, 5));
    assert.deepEqual(model.asked[0].variables.tools, [
      { type: 'function', function: { name: 'add', description: 'adds', parameters: add.parameters } },
      { type: 'function', function: { name: 'now', parameters: { type: 'object', properties: {} } } },
    ]);
  });

  test('whatever goes wrong with a call is a result that the model sees', async () => {
    const model = scripted([
      [call('add', { a: 1 }), call('sub', {}), call('add', { a: 1, b: 2, c: 3 }), call('fail', {})].join('\n'),
      'Sorry.',
    ]);
    const fail = { execute: () => { throw new Error('no network'); } };
    const chat = new Chat(model);
    await all(chat.run('?', { tools: { add, fail } }));
    const results = chat.messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
    assert.equal(results.length, 4);
    assert.match(results[0], /^Error: the arguments do not fit the schema of "add": .*required property "b"/);
    assert.match(results[1], /^Error: there is no tool "sub"; the tools are add, fail$/);
    assert.match(results[2], /^Error: the arguments do not fit the schema of "add": \/c/);
    assert.equal(results[3], 'Error: no network');
  });

  test('ends at maxSteps with the results in the chat', async () => {
    const chat = new Chat(scripted([call('add', { a: 1, b: 1 }), call('add', { a: 2, b: 2 })]));
    const events = await all(chat.run('?', { tools: { add }, maxSteps: 2 }));
    assert.deepEqual(events.at(-1), { finish: { reason: 'maxSteps', steps: 2, content: '' } });
    assert.equal(chat.messages.at(-1)?.content, '{"sum":4}');
  });

  test('a signal ends a run while a tool hangs, and the chat can go on', async () => {
    const model = scripted([`${call('hang', {})}`, 'Well.']), stop = new AbortController();
    const chat = new Chat(model);
    const hang = { execute: () => { stop.abort(); return new Promise(() => {}); } };
    const events = await all(chat.run('?', { tools: { hang }, signal: stop.signal }));
    assert.deepEqual(events.at(-1), { finish: { reason: 'abort', steps: 1, content: '' } });
    assert.equal(chat.messages.at(-1)?.content, 'Error: the call was aborted');
    assert.equal(await textOf(chat.send('And?')), 'Well.');
  });

  test('leaving the loop ends the answer; another answer at the same time is refused', async () => {
    const model = scripted(['a long answer', 'next']), chat = new Chat(model);
    for await (const event of chat.run('?', { tools: { add } })) {
      await fails(chat.send('x').next(), 'PLUMB_ERROR_STATE', /still generating/);
      if (event.content) break;
    }
    assert.equal(chat.messages.at(-1)?.content, 'a l');
    assert.equal(await textOf(chat.send('?')), 'next');
  });

  test('toolChoice, parallelToolCalls and onDelta are those of the chat, or of the run', async () => {
    const tools = { add, now: { execute: () => '12:00' } }, named = { type: 'function', function: { name: 'now' } };
    const two = `${call('now', {})}${call('now', {})}`, seen = [];
    for (const [ofChat, ofRun] of [[true, {}], [false, { toolChoice: 'auto' }]]) {
      for (const given of [{ toolChoice: 'required' }, { toolChoice: named }, { toolChoice: 'none' },
        { parallelToolCalls: false }, { onDelta: delta => seen.push(delta) }]) {
        const model = scripted([two, 'Noon.']);
        const chat = new Chat(model, ofChat ? given : { toolChoice: 'none', parallelToolCalls: true });
        const events = await all(chat.run('?', { tools, ...ofChat ? {} : { ...ofRun, ...given } }));
        const results = events.filter(({ result }) => result).length, [first, second] = model.options;
        const grammars = [first, second].map(options => options?.[WHOLE]?.grammar.text);
        const isNone = given.toolChoice === 'none', isBound = given.toolChoice !== undefined && !isNone;
        assert.equal(Boolean(model.asked[0].variables.tools), !isNone);
        assert.equal(results, isNone ? 0 : given.parallelToolCalls === false ? 1 : 2);
        // A call is required of the first answer only.
        if (!isNone) assert.equal(grammars[0] !== grammars[1], isBound);
        if (given.onDelta) {
          assert.deepEqual(seen.splice(0), events.filter(({ result, finish }) => !result && !finish));
        }
      }
    }
    const chat = new Chat(scripted([two, 'Noon.']));
    assert.equal(await chat.run('?', { tools }), 'Noon.');
    await fails(chat.run('?', { tools, toolChoice: { type: 'function', function: { name: 'sub' } } }).next(),
      'PLUMB_ERROR_ARGUMENT', /toolChoice asks for the tool "sub"/);
  });

  test('invalid options are refused', async () => {
    const chat = new Chat(scripted([]));
    for (const [options, message] of [
      [undefined, /tools is missing/], [{}, /tools is missing/],
      [{ tools: [] }, /tools is an array, expected an object/],
      [{ tools: { add: {} } }, /tools is an object, expected/], [{ tools: { add }, maxSteps: 0 }, /maxSteps is 0/],
      [{ tools: { add }, parseSpecial: true }, /unknown option "parseSpecial"/],
    ]) await fails(chat.run('?', options).next(), 'PLUMB_ERROR_ARGUMENT', message);
  });
});

describe('answers', () => {
  const tools = ['add', 'now'].map(name => ({ type: /** @type {const} */ ('function'), function: { name } }));

  test('parallelToolCalls: false ends an answer with its first call', async () => {
    const text = `So ${call('now', {})}\n${call('now', {})} and more`;
    const model = scripted([text, text]), chat = new Chat(model, { tools, parallelToolCalls: false });
    await textOf(chat.send('?'));
    assert.equal(chat.messages.at(-1)?.tool_calls.length, 1);
    assert.ok(model.wasAborted());
    assert.equal(chat.lastStats?.finishReason, 'stop');
    const completions = new Completions(async () => ({ model, free() {} }));
    const { choices: [one] } = await completions.create({ messages: [{ role: 'user', content: '?' }], tools,
      parallel_tool_calls: false });
    assert.equal(one.message.tool_calls?.length, 1);
    assert.equal(one.finish_reason, 'tool_calls');
  });

  test('an answer that maxTokens cuts ends with "length", keeps whole calls and has nothing of another', async () => {
    const one = call('now', {}), two = `So\n${one}\n${call('add', { a: 1 })}`;
    const messages = [{ role: /** @type {const} */ ('user'), content: '?' }];
    for (const [text, content, n] of [
      [two, 'So', 2], [two.slice(0, -30), 'So', 1], [`So\n${one}`, 'So', 1], [`So\n${one}`.slice(0, -20), 'So', 0],
      ['So\n<tool_c', 'So', 0], [one.slice(0, 20), '', 0],
      ['{"title": "some te', '{"title": "some te', 0], ['{"name": "Ad', '{"name": "Ad', 0], ['{"nam', '', 0],
      ['```json\n[{"tool_name": "ad', '', 0], ['{"first', '{"first', 0],
    ]) {
      const model = scripted([text, text, text], HERMES, '', 'length'), chat = new Chat(model, { tools });
      assert.equal(await textOf(chat.send('?')), content, text);
      const said = chat.messages.at(-1);
      assert.deepEqual([said?.content, said?.tool_calls?.length ?? 0, chat.lastStats?.finishReason],
        [content, n, 'length'], text);
      const completions = new Completions(async () => ({ model, free() {} }));
      const { choices: [{ message, finish_reason }] } = await completions.create({ messages, tools });
      assert.deepEqual([message.content ?? '', message.tool_calls?.length ?? 0, finish_reason], [content, n, 'length']);
      const chunks = await all(await completions.create({ messages, tools, stream: true }));
      const choices = chunks.flatMap(({ choices: [choice] }) => choice ?? []);
      assert.equal(choices.at(-1).finish_reason, 'length');
      assert.equal(joined(choices.map(({ delta }) => delta), 'content'), content);
      const deltas = choices.flatMap(({ delta }) => delta.tool_calls ?? []);
      assert.deepEqual(deltas.filter(({ id }) => id).map(({ function: { name } }) => name), ['now', 'add'].slice(0, n));
      for (const { id, function: { arguments: given } } of deltas) if (!id) JSON.parse(given);
    }
  });

  test('reasoning is split off in chats, completions and their streams', async () => {
    const text = '\nHm, 2.\n</think>\n\nTwo.';   // the prompt opens the reasoning
    const model = scripted([text, text, text], HERMES, 'assistant\n<think>\n'), chat = new Chat(model), seen = [];
    assert.equal(await textOf(chat.send('?', { onDelta: delta => seen.push(delta) })), 'Two.');
    assert.deepEqual(chat.messages.at(-1), { role: 'assistant', content: 'Two.', reasoning_content: 'Hm, 2.' });
    assert.equal(joined(seen, 'reasoning'), 'Hm, 2.');
    const completions = new Completions(async () => ({ model, free() {} }));
    const params = { messages: [{ role: /** @type {const} */ ('user'), content: '?' }], reasoning_budget: 9,
      reasoning_effort: /** @type {const} */ ('none'), chat_template_kwargs: { a: 1 } };
    const { choices: [{ message }] } = await completions.create(params);
    assert.deepEqual([message.content, message.reasoning_content], ['Two.', 'Hm, 2.']);
    assert.deepEqual(model.asked[1].variables, { enable_thinking: false, a: 1 });
    assert.equal(model.options[1].reasoningBudget, 9);
    const chunks = await all(await completions.create({ ...params, stream: true }));
    const deltas = chunks.flatMap(({ choices: [one] }) => one ? [one.delta] : []);
    assert.equal(joined(deltas, 'reasoning_content'), 'Hm, 2.');
    assert.equal(joined(deltas, 'content'), 'Two.');
  });

  test('the budget is for reasoning before a call, but only at the beginning if the answer is bound', async () => {
    for (const [options, isFirst] of [
      [{}, false], [{ toolChoice: /** @type {const} */ ('required') }, true], [{ regex: 'a' }, true],
    ]) {
      const model = scripted([call('now', {})]);
      await textOf(new Chat(model, { tools }).send('?', { reasoningBudget: 5, ...options }));
      assert.equal(model.options[0][WHOLE].isFirst, isFirst, JSON.stringify(options));
    }
  });

  test('the model sees its reasoning as reasoning_content, for its template to keep or leave out', async () => {
    const model = scripted(['<think>Hm.</think>One.', 'Two.']), chat = new Chat(model);
    await textOf(chat.send('?'));
    await textOf(chat.send('And?'));
    assert.equal(model.asked[1].messages[1].reasoning_content, 'Hm.');
  });
});

test('the default model with a template that opens reasoning: the budget ends it, control tokens show', async t => {
  const TEMPLATE = '{% for m in messages %}{{ "<|im_start|>" + m.role + "\\n" + m.content + "<|im_end|>\\n" }}'
    + '{% endfor %}{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n<think>\\n" }}{% endif %}';
  const file = readFileSync(realPath);   // its template is replaced by one of the same length
  const at = file.indexOf('{% for message', file.indexOf('tokenizer.chat_template'));
  file.write(TEMPLATE.padEnd(Number(file.readBigUInt64LE(at - 8))), at);
  const model = await Plumb.load(file);
  t.after(() => model.close());
  const messages = [{ role: /** @type {const} */ ('user'), content: 'Name a colour.' }];
  for (const budget of [0, 1, 5]) {
    const options = { temperature: 0, maxTokens: 40, reasoningBudget: budget }, ids = [];
    const text = await textOf(model.generate(messages, { ...options, onToken: ({ id }) => ids.push(id) }));
    const end = [...await model.tokenize('</think>', { parseSpecial: true, addSpecial: false })];
    assert.deepEqual(ids.slice(budget, budget + end.length), end, text);
    const chat = model.chat(options), seen = [];
    await textOf(chat.send('Name a colour.', { onDelta: delta => seen.push(delta) }));
    const thought = text.slice(0, text.indexOf('</think>'));
    assert.equal(chat.messages[1].reasoning_content ?? '', thought.trim());
    assert.equal(chat.messages[1].content, text.slice(thought.length + '</think>'.length).trimStart());
    assert.equal(joined(seen, 'reasoning'), thought.trim());
    // Without a budget the model would go on.
    const free = await textOf(model.generate(messages, { ...options, reasoningBudget: undefined }));
    assert.ok(free.startsWith(thought) && free !== text, free);
  }
  await fails(textOf(model.generate(messages, { reasoningBudget: 1, grammar: 'root ::= "a"' })), 'PLUMB_ERROR_ARGUMENT',
    /reasoningBudget and grammar exclude each other/);
  const [control] = await model.tokenize('<|im_start|>', { parseSpecial: true, addSpecial: false });
  const forced = { temperature: 0, maxTokens: 1, logitBias: { [control]: 1e6 } };
  assert.equal(await textOf(model.generate(messages, forced)), '');
  assert.equal(await textOf(model.generate(messages, { ...forced, special: ['<|im_start|>', 'x'] })), '<|im_start|>');
});
