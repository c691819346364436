/** Conversations.  Ground truth: llama.cpp's greedy answer in tests/vectors/llama; and for the state that a turn leaves
 * in the session, the answer to the same messages in an empty session. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, prompts, realPath, root, textOf } from './helpers.mjs';
import { smallPath } from './small.mjs';

const asked = prompts[1];
const GREEDY = { temperature: 0, maxTokens: 12 };
const user = content => ({ role: 'user', content });
const assistant = content => ({ role: 'assistant', content });

describe('the default model', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(realPath, { precision: 'exact16' }); });
  beforeEach(() => model.rewind());
  after(() => model.close());
  /** The answer to all messages in an empty session, without a chat. */
  const anew = async (messages, options = GREEDY) => {
    await model.rewind();
    return textOf(model.generate(messages, options));
  };

  test('a chat answers as llama.cpp does, and keeps the messages', async () => {
    const [question, ...none] = asked.messages;
    assert.deepEqual([question.role, none], ['user', []]);
    const chat = model.chat(GREEDY);
    const text = await textOf(chat.send(question.content, { maxTokens: 30, seed: undefined }));
    assert.equal(text, await model.detokenize(asked.f32.ids.slice(0, 30)));
    assert.deepEqual(chat.messages, [...asked.messages, assistant(text)]);
    assert.equal(chat.lastStats?.tokens, 30);
    assert.deepEqual([chat.lastStats?.promptTokens, chat.lastStats?.tokens], [39, 30]);
    chat.messages.length = 0;   // a copy
    assert.equal(chat.messages.length, 2);
  });

  test('a second turn recomputes nothing of the first', async () => {
    const chat = model.chat(GREEDY);
    await textOf(chat.send('Name a colour.'));
    const first = /** @type {any} */ (chat.lastStats);
    const text = await textOf(chat.send('Another one?'));
    const { reusedTokens, promptTokens } = /** @type {any} */ (chat.lastStats);
    const held = first.promptTokens + first.tokens - (first.finishReason === 'length' ? 1 : 0);
    assert.equal(reusedTokens, held);
    assert.ok(promptTokens - held < 20 && promptTokens > held, `${promptTokens} tokens, ${held} held`);
    assert.equal(await anew(chat.messages.slice(0, 3)), text);
  });

  test('regenerate and edit compute only what follows the change', async () => {
    const chat = model.chat({ ...GREEDY, system: 'Be brief.' });
    await textOf(chat.send('Name a colour.'));
    const text = await textOf(chat.send('Name an animal.'));
    const asWas = chat.messages;
    const { promptTokens } = /** @type {any} */ (chat.lastStats);
    assert.equal(await textOf(chat.regenerate()), text);
    assert.equal(chat.lastStats?.reusedTokens, promptTokens - 1);   // the last one once more, for its logits
    assert.deepEqual(chat.messages, asWas);

    const edited = await textOf(chat.edit(3, 'Name a city.'));
    assert.deepEqual(chat.messages, [...asWas.slice(0, 3), user('Name a city.'), assistant(edited)]);
    const same = await model.tokenize(await model.applyChatTemplate(asWas.slice(0, 3), { addGenerationPrompt: false }),
      { parseSpecial: true });
    assert.ok(Number(chat.lastStats?.reusedTokens) > same.length, `${chat.lastStats?.reusedTokens} reused`);
    assert.equal(await anew(chat.messages.slice(0, 4)), edited);

    const other = await textOf(chat.edit(1, user('Say hello.')));
    assert.deepEqual(chat.messages, [asWas[0], user('Say hello.'), assistant(other)]);
    chat.rewind(1);
    assert.deepEqual(chat.messages, [asWas[0]]);
    await fails(chat.regenerate().next(), 'PLUMB_ERROR_ARGUMENT', /nothing to answer/);
  });

  test('an answer that is abandoned or stopped keeps the text so far', async () => {
    const chat = model.chat({ temperature: 0 });
    let said = '';
    for await (const piece of chat.send('Tell me a story.')) {
      said += piece;
      if (said.length > 20) break;
    }
    assert.deepEqual(chat.messages, [user('Tell me a story.'), assistant(said)]);
    assert.equal(chat.lastStats?.finishReason, 'abort');

    const stop = new AbortController();
    said = '';
    for await (const piece of chat.send('Go on.', { signal: stop.signal })) {
      said += piece;
      if (said.length > 20) stop.abort();
    }
    assert.deepEqual(chat.messages.slice(2), [user('Go on.'), assistant(said)]);
  });

  test('an answer that is stopped before its first character leaves the chat as it was', async () => {
    const chat = model.chat({ messages: [user('Hi'), assistant('Hello!')] }), asWas = chat.messages;
    const signal = AbortSignal.abort(), add = { execute: () => 1 };
    for (const answer of [() => chat.send('And?', { signal }), () => chat.regenerate({ signal }),
      () => chat.edit(0, 'Ho', { signal }), () => chat.run('And?', { tools: { add }, signal })]) {
      assert.equal(await answer(), '');
      assert.deepEqual(chat.messages, asWas);
      assert.equal(chat.lastStats?.finishReason, 'abort');
    }
    const stop = new AbortController(), answer = chat.send('And?', { signal: stop.signal }).next();
    stop.abort();   // while the prompt is read
    assert.ok((await answer).done);
    assert.deepEqual(chat.messages, asWas);
  });

  test('await gives the whole answer, a loop its pieces, and what was read once is not read again', async () => {
    const chat = model.chat(GREEDY), text = await chat.send('Name a colour.');
    assert.equal(text, chat.messages[1].content);
    assert.equal(await chat.regenerate(), text);
    assert.equal(await chat.edit(0, 'Name a colour.'), text);
    assert.equal(await model.generate(chat.messages.slice(0, 1), GREEDY), text);
    const looped = chat.regenerate();
    let said = '';
    for await (const piece of looped) {
      said += piece;
      if (said.length > 2) break;
    }
    assert.equal(await looped, said);
    const both = chat.regenerate(), [whole, pieces] = [both.then(all => all), textOf(both).catch(error => error.code)];
    assert.deepEqual([await whole, await pieces], [text, 'PLUMB_ERROR_STATE']);
    const other = chat.regenerate(), first = textOf(other);
    assert.deepEqual([await other, await first], [text, text]);
    await fails(async () => chat.send('x', { topP: 2 }), 'PLUMB_ERROR_ARGUMENT', /topP is 2/);
  });

  test('a failed answer leaves the chat unchanged', async () => {
    const chat = model.chat({ messages: [user('Hi'), assistant('Hello!')] });
    const asWas = chat.messages;
    await fails(textOf(chat.send('x '.repeat(8300))), 'PLUMB_ERROR_CONTEXT', /holds 8192/);
    await fails(textOf(chat.edit(0, 'Hi', { topP: 2 })), 'PLUMB_ERROR_ARGUMENT', /topP is 2/);
    assert.deepEqual(chat.messages, asWas);
    assert.equal(chat.lastStats, undefined);
    await textOf(chat.send('Bye.', GREEDY));
    assert.equal(chat.messages.length, 4);
  });

  test('a chat gives one answer at a time', async () => {
    const chat = model.chat(GREEDY);
    const answer = chat.send('Hi');
    await answer.next();
    const busy = /the chat is still generating an answer/;
    for (const action of [() => chat.send('Hey').next(), () => chat.regenerate().next(), () => chat.edit(0, 'x').next(),
      async () => chat.rewind(0)]) await fails(action, 'PLUMB_ERROR_STATE', busy);
    await answer.return(/** @type {any} */ (undefined));
    chat.rewind(0);
    assert.deepEqual(chat.messages, []);
  });

  test('a template without tools: a system message describes them, and calls and results become text', async () => {
    const tools = [{ type: /** @type {const} */ ('function'), function: { name: 'now', parameters: {} } }];
    const called = [{ id: 'a', type: 'function', function: { name: 'now', arguments: '{"zone": "UTC"}' } }];
    const said = [user('Hi'), { ...assistant('Well.'), tool_calls: called },
      { role: /** @type {const} */ ('tool'), content: '12:00', tool_call_id: 'a' }];
    const text = await model.applyChatTemplate(said, { tools });
    const [system, ...rest] = text.split('<|im_end|>\n');
    assert.ok(system.startsWith('<|im_start|>system\n# Tools\n') && system.includes(JSON.stringify(tools[0])), system);
    assert.ok(system.endsWith('<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'));
    assert.deepEqual(rest, ['<|im_start|>user\nHi',
      '<|im_start|>assistant\nWell.\n<tool_call>\n{"name":"now","arguments":{"zone":"UTC"}}\n</tool_call>',
      '<|im_start|>user\n<tool_response>\n12:00\n</tool_response>', '<|im_start|>assistant\n']);
    const own = await model.applyChatTemplate([{ role: 'system', content: 'Be kind.' }, ...said], { tools });
    assert.ok(own.startsWith('<|im_start|>system\nBe kind.\n\n# Tools\n'), own);
    const chat = model.chat({ tools, maxTokens: 1 });
    await textOf(chat.send('Hi'));
    assert.equal(chat.lastStats?.promptTokens, (await model.tokenizeChat([user('Hi')], { tools })).length);
  });

  test('invalid arguments are refused', async () => {
    const chat = model.chat({ messages: [user('Hi'), assistant('Hello!')] });
    const calls = [{ id: 'c', type: 'function', function: { name: 'now', arguments: '{}' } }];
    for (const content of ['', null, undefined]) {
      const said = [{ role: 'developer', content: 'x' }, user('Hi'), { role: 'assistant', content, tool_calls: calls }];
      assert.deepEqual(model.chat({ messages: said }).messages, said);
    }
    assert.equal(model.chat({ messages: [user([{ type: 'text', text: 'Hi' }])] }).messages.length, 1);
    for (const [action, message] of [
      [async () => model.chat({ sytem: 'x' }),
        /chat: unknown option "sytem"; the known options are system, tools, messages, /],
      [async () => model.chat({ signal: AbortSignal.abort() }), /unknown option "signal"/],
      [async () => model.chat({ contextEnd: 'drop' }), /contextEnd is "drop", expected 'error', 'trim' or 'shift'/],
      [async () => model.chat({ sinks: 4 }), /sinks needs contextEnd: 'shift'/],
      [async () => model.chat({ sinks: 0, contextEnd: 'shift' }), /sinks is 0, expected a positive integer/],
      [() => chat.send('x', { sinks: 4 }).next(), /chat.send: unknown option "sinks"/],
      [async () => model.chat({ tools: [{ name: 'f' }] }), /tools is an array, expected an array of \{type: /],
      [async () => model.chat({ messages: [{ content: 'x' }] }), /chat: messages\[0\].role is undefined, expected/],
      [async () => model.chat({ system: 'x', messages: [{ role: 'system', content: 'y' }] }),
        /give either system or a system message in messages, not both/],
      ...['system', 'developer'].flatMap(role => [
        [async () => model.chat({ messages: [user('Hi'), { role, content: 'x' }] }), /chat: a system message can only/],
        [async () => model.chat({ system: 'x', messages: [user('Hi'), { role, content: 'x' }] }), /can only be the/],
        [() => chat.send({ role, content: 'x' }).next(), /chat.send: a system message can only be the first message/],
        [() => model.chat().send([user('x'), { role, content: 'x' }]).next(), /chat.send: a system message can only/],
      ]),
      ...[5, true, {}, null, undefined].flatMap(content => [
        [async () => model.chat({ messages: [user(content)] }), /chat: messages\[0\].content is .*, expected a string/],
        [() => chat.send(user(content)).next(), /chat.send: messages\[0\].content is .*, expected a string/],
        [() => chat.edit(0, user(content)).next(), /chat.edit: messages\[0\].content is .*, expected a string/],
      ]),
      [() => chat.send([]).next(), /expected a string, or messages/],
      [() => chat.send().next(), /expected a string, or messages/],
      [() => chat.send('x', { maxtokens: 1 }).next(), /chat.send: unknown option "maxtokens"/],
      [() => chat.edit(2, 'x').next(), /no message 2: the chat has 2 messages/],
      [() => chat.edit(1, 'x').next(), /message 1 would have the role assistant/],
      [async () => chat.rewind(3), /no message 3: the chat has 2 messages/],
      [async () => chat.rewind(-1), /no message -1/],
    ]) await fails(action, 'PLUMB_ERROR_ARGUMENT', message);
  });
});

describe('a context of 160 tokens', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(smallPath, { precision: 'exact16', contextLength: 160 }); });
  after(() => model.close());
  const questions = ['red', 'cats', 'Rome', 'the Nile', 'oaks', 'eels'].map(what => `Tell me all about ${what}.`);
  const GREEDY = { temperature: 0, maxTokens: 20 };
  const tokensOf = async messages =>
    (await model.tokenize(await model.applyChatTemplate(messages), { parseSpecial: true })).length;

  test('trim leaves out whole turns, the oldest first, and never the system message', async () => {
    const chat = model.chat({ system: 'Be brief.', contextEnd: 'trim', ...GREEDY });
    let most = 0;
    for (const question of questions) {
      const text = await textOf(chat.send(question));
      const all = chat.messages.slice(0, -1);
      const kept = [all[0], ...all.slice(1 + chat.trimmed)];
      assert.equal(kept[1].role, 'user');
      assert.equal(chat.lastStats?.promptTokens, await tokensOf(kept));
      assert.ok(Number(chat.lastStats?.promptTokens) <= 160 - 20);
      if (chat.trimmed > most) {   // with the last removed turn it would not have fitted
        assert.ok(await tokensOf([all[0], ...all.slice(1 + chat.trimmed - 2)]) > 160 - 20);
        await model.rewind();
        assert.equal(await textOf(model.generate(kept, GREEDY)), text);
      }
      most = chat.trimmed;
    }
    assert.ok(most >= 4 && most % 2 === 0, `${most} left out`);
    assert.equal(chat.messages.length, 13);

    const left = chat.trimmed;
    await fails(textOf(chat.send('x '.repeat(200))), 'PLUMB_ERROR_CONTEXT', /has 2\d\d tokens, but .* holds 160/);
    assert.deepEqual([chat.trimmed, chat.messages.length], [left, 13]);
    await textOf(chat.edit(1, 'Hello.'));
    assert.deepEqual([chat.trimmed, chat.messages.length], [0, 3]);
  });

  test('in a long chat the first turn that fits is found in few steps, and an abort ends the search', async () => {
    const turns = 60, messages = questions.slice(0, 1).concat(Array(turns - 1).fill('And more of it?'))
      .flatMap(text => [user(text), assistant('Certainly.')]);
    let searched = 0;
    const { tokenizeChat } = model;
    model.tokenizeChat = (...args) => (searched++, tokenizeChat.apply(model, args));
    try {
      const chat = model.chat({ messages, contextEnd: 'trim', ...GREEDY });
      await textOf(chat.send('Go on.'));
      const all = chat.messages.slice(0, -1);
      assert.ok(await tokensOf(all.slice(chat.trimmed)) <= 140);
      assert.ok(await tokensOf(all.slice(chat.trimmed - 2)) > 140);
      assert.ok(searched <= 3 + Math.log2(turns), `${searched} times tokenized`);

      const abort = new AbortController();
      searched = 0;
      model.tokenizeChat = (...args) => (abort.abort(searched++), tokenizeChat.apply(model, args));
      const other = model.chat({ messages, contextEnd: 'trim', ...GREEDY });
      assert.equal(await textOf(other.send('Go on.', { signal: abort.signal })), '');
      assert.deepEqual([searched, other.lastStats?.finishReason, other.trimmed], [1, 'abort', 0]);
    } finally {
      model.tokenizeChat = tokenizeChat;
    }
  });

  test('a turn is removed up to the next user message; a quarter of the context stays free', async () => {
    const turn = [user('Name a colour.'), assistant('I look.'), { role: 'tool', content: 'red' }, assistant('Red.')];
    const chat = model.chat({ messages: [...turn, ...turn, ...turn], contextEnd: 'trim', temperature: 0 });
    await textOf(chat.send('Another?', { stop: ['.', ','], maxTokens: 100 }));
    assert.equal(chat.trimmed, 4 * Math.ceil(chat.trimmed / 4));
    const kept = count => [...Array(count).fill(turn).flat(), user('Another?')];
    const fits = (await Promise.all([0, 1, 2, 3].map(async n => await tokensOf(kept(n)) <= 120))).lastIndexOf(true);
    assert.ok(fits < 3);
    assert.equal(chat.trimmed, 4 * (3 - fits));
  });

  test('shift drops tokens behind the system message, and computes nothing anew', async () => {
    const chat = model.chat({ system: 'Be brief.', contextEnd: 'shift', ...GREEDY });
    let dropped = 0, total = 0;
    for (const question of questions) {
      await textOf(chat.send(question));
      const { promptTokens, reusedTokens, droppedTokens = 0, tokens } = /** @type {any} */ (chat.lastStats);
      // The prompt has the end of the last answer and the question more than the session.
      if (total > 0) assert.ok(promptTokens - reusedTokens < 40, `${reusedTokens} of ${promptTokens} reused`);
      total = promptTokens + tokens;
      dropped = droppedTokens;
    }
    assert.ok(dropped > 40 && total > 200, `${dropped} of ${total} tokens dropped`);
    assert.equal(chat.trimmed, 0);
    assert.equal(chat.messages.length, 13);

    // The same chat, computed anew, gives the same answer; another one in between changes nothing.
    const answer = chat.messages[12].content, [first] = questions;
    assert.equal(await textOf(chat.regenerate()), answer);
    const alone = [{ role: 'user', content: first }], plain = await textOf(model.generate(alone, GREEDY));
    const again = model.chat({ messages: chat.messages.slice(0, -2), contextEnd: 'shift', ...GREEDY });
    assert.equal(await textOf(again.send(/** @type {string} */ (questions.at(-1)))), answer);
    assert.equal(again.lastStats?.droppedTokens, dropped);
    assert.equal(await textOf(model.generate(alone, GREEDY)), plain);
    await model.rewind();
    assert.equal(await textOf(model.generate(alone, GREEDY)), plain);
  });

  test('with sinks a text may be longer than the context; otherwise it may not', async () => {
    const ends = await model.tokenize('<|im_end|><|endoftext|><reponame><file_sep>', { parseSpecial: true });
    const long = { temperature: 0, sinks: 4, logitBias: Object.fromEntries([...ends].map(end => [end, -Infinity])) };
    await textOf(model.generate([user('Count.')], { ...long, maxTokens: 400 }));
    assert.deepEqual([model.lastStats?.tokens, model.lastStats?.finishReason], [400, 'length']);
    await textOf(model.generate([user('Count.')], long));
    assert.deepEqual([model.lastStats?.tokens, model.lastStats?.finishReason], [160, 'length']);
    const prompt = [user('Count. '.repeat(100))];
    assert.ok((await textOf(model.generate(prompt, { ...long, maxTokens: 5 }))).length > 0);
    await fails(textOf(model.generate(prompt, { maxTokens: 5 })), 'PLUMB_ERROR_CONTEXT', /but the context holds 160/);

    const chat = model.chat({ contextEnd: 'shift', sinks: 81, ...GREEDY });
    await fails(textOf(chat.send('Hi')), 'PLUMB_ERROR_ARGUMENT', /81 tokens cannot stay in a full context of 160/);
    assert.deepEqual(chat.messages, []);
  });

  test('a model whose tokens cannot move says so, and the chat is as before', async () => {
    const learned = await Plumb.load(`${root}tests/vectors/archs/gpt2.gguf`);
    await fails(textOf(learned.generate([1, 2], { sinks: 4 })), 'PLUMB_ERROR_UNSUPPORTED',
      /has learned an embedding of each position/);
    await learned.close();
  });

  test('without trim a full context is an error', async () => {
    const chat = model.chat(GREEDY);
    await fails(async () => {
      for (const question of questions) await textOf(chat.send(question));
    }, 'PLUMB_ERROR_CONTEXT', /but the context holds 160/);
    assert.equal(chat.messages.at(-1)?.role, 'assistant');
    assert.equal(chat.trimmed, 0);
  });
});

test('throw() ends an answer with that error, in newer versions of Node too', () => {
  const script = `import { mapped } from ${JSON.stringify(`${root}web/base/async.js`)};
    const values = (async function* () { yield 1; })();
    const answer = mapped(values, value => [value, value]);
    await answer.next();
    await answer.throw(new Error('mine')).catch(error => console.log(error.message));`;
  for (const node of [process.execPath, `${root}node_modules/node-24/bin/node`]) {
    assert.equal(execFileSync(node, ['--input-type=module', '-e', script], { encoding: 'utf8' }), 'mine\n');
  }
});
