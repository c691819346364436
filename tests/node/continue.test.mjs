/** Answers that go on with the assistant's last message, and chat templates of one's own.  Ground truth: transformers'
 * continue_final_message for llama.cpp's 70 templates (tests/vectors/continue), and llama.cpp's ChatML. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import Ajv from 'ajv';
import { Plumb } from '../../web/node/index.js';
import { fails, realPath, realWithTemplate, root, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';
import { promptOf, TEMPLATES } from './templates.mjs';

const { conversations, expected } = JSON.parse(readFileSync(`${root}tests/vectors/continue/expected.json`, 'utf8'));
const NOW = new Date(Date.UTC(2026, 6, 25, 12));

/** Where plumb's prompt is another one, and why. */
const OTHERWISE = {
  'CohereForAI-c4ai-command-r-plus-tool_use': 'jinja2 refuses it without tools',
  'NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use': 'jinja2 refuses it without tools',
  'NousResearch-Hermes-3-Llama-3.1-8B-tool_use': 'jinja2 refuses it without tools',
  'fireworks-ai-llama-3-firefunction-v2': 'jinja2 refuses it without a date',
  'meta-llama-Llama-3.1-8B-Instruct': 'the date is in it, as in prompts of llama.cpp\'s server',
  'meta-llama-Llama-3.3-70B-Instruct': 'the date is in it, as in prompts of llama.cpp\'s server',
  'StepFun3.5-Flash space': 'its contents are trimmed, as in llama.cpp\'s server',
  'mistralai-Ministral-3-14B-Reasoning-2512 reasoning': 'its reasoning is a part of the content, as in llama.cpp',
  'mistralai-Ministral-3-14B-Reasoning-2512 only reasoning': 'its reasoning is a part of the content',
  'unsloth-mistral-Devstral-Small-2507 reasoning': 'the template prints no message with reasoning',
};

test('a prompt that is continued is transformers\' for 70 templates', () => {
  let same = 0;
  for (const [name, source] of TEMPLATES) {
    for (const [conversation, messages] of Object.entries(conversations)) {
      const what = `${name} ${conversation}`;
      const render = () => promptOf(source, messages,
        { addGenerationPrompt: undefined, continue_final_message: true, enable_thinking: true }, NOW);
      if (name in OTHERWISE || what in OTHERWISE) continue;
      if (expected[name][conversation] === null) assert.throws(render, /PLUMB|continue_final_message|line/, what);
      else assert.equal(render(), expected[name][conversation], what);
      same += Number(expected[name][conversation] !== null);
    }
  }
  assert.equal(same, 280);
});

test('what cannot be continued is an error', () => {
  const ask = { role: 'user', content: 'Hi' }, source = '{% for m in messages %}[{{ m.content }}]{% endfor %}';
  const render = (messages, how = true, template = source) =>
    promptOf(template, messages, { addGenerationPrompt: undefined, continue_final_message: how });
  assert.equal(render([ask, { role: 'assistant', content: 'Hello' }]), '[Hi][Hello');
  const parts = ['a', 'b'].map(text => ({ type: 'text', text }));
  assert.equal(render([ask, { role: 'assistant', content: parts }]), '[Hi][a\nb');
  assert.equal(render([ask, { role: 'assistant', content: 'Hello' }], false), '[Hi][Hello]');
  assert.throws(() => render([ask]), /continue_final_message: the last message is not the assistant's/);
  assert.throws(() => render([ask, { role: 'assistant', content: '', tool_calls: [
    { type: 'function', function: { name: 'f', arguments: '{}' } }] }]), /the last message has calls of tools/);
  assert.throws(() => render([ask, { role: 'assistant', content: 'x' }], 'reasoning_content'), /no text to continue/);
  assert.throws(() => render([ask, { role: 'assistant', content: 'x' }], true, '{{ messages[0].content }}'),
    /continue_final_message: the template does not print the last message/);
});

describe('the default model', () => {
  const messages = [{ role: /** @type {const} */ ('user'), content: 'Count from one to ten in words.' },
    { role: /** @type {const} */ ('assistant'), content: 'one, two, three,' }];
  const greedy = { temperature: 0, maxTokens: 9 };
  let model;
  before(async () => { model = await Plumb.load(realPath); });
  after(() => model.close());

  test('messages that end with the assistant\'s are continued, with the same tokens as its prompt', async () => {
    const whole = await model.applyChatTemplate(messages, { addGenerationPrompt: false });
    const prompt = whole.slice(0, whole.lastIndexOf('<|im_end|>'));
    assert.equal(await model.applyChatTemplate(messages), prompt);
    const ids = await model.tokenizeChat(messages);
    assert.deepEqual(ids, await model.tokenize(prompt, { parseSpecial: true, addSpecial: false }));
    assert.deepEqual(await model.tokenizeChat(messages, { continueFinalMessage: true }), ids);
    const text = await model.generate(messages, greedy);
    assert.equal(text, await model.generate(prompt, greedy));
    assert.match(text, /^ four, five/);
    const create = async params => (await model.chat.completions.create({ messages, temperature: 0, max_tokens: 9,
      ...params })).choices[0].message.content;
    assert.deepEqual([await create(), await create({ continue_final_message: true }),
      await create({ continue_final_message: true, add_generation_prompt: false })], [text, text, text]);
    assert.notEqual(await create({ continue_final_message: false }), text);
    assert.equal(await model.generate(messages, { ...greedy, template: { continueFinalMessage: false } }),
      await model.generate(`${whole}<|im_start|>assistant\n`, greedy));
  });

  test('a chat has the continued message as one', async () => {
    const chat = model.chat(greedy);
    assert.match(await chat.send(messages), /^ four, five/);
    assert.deepEqual(chat.messages.map(({ role }) => role), ['user', 'assistant']);
    assert.match(chat.messages[1].content, /^one, two, three, four, five/);
    await chat.send('And then?');
    assert.equal(chat.messages.length, 4);
  });

  test('a schema binds what is new, and a message with calls is not continued', async () => {
    const bound = await model.generate([messages[0], { role: 'assistant', content: '{"n":' }],
      { ...greedy, regex: '[0-9]\\}' });
    assert.match(bound, /^[0-9]\}$/);
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } };
    const called = [messages[0], { role: 'assistant', content: '', tool_calls: [call] }];
    assert.match(await model.applyChatTemplate(called), /<\|im_start\|>assistant\n$/);
  });

  test('options that contradict each other are refused', async () => {
    await fails(model.applyChatTemplate(messages, { addGenerationPrompt: true, continueFinalMessage: true }),
      'PLUMB_ERROR_ARGUMENT', /addGenerationPrompt and continueFinalMessage exclude each other/);
    await fails(model.applyChatTemplate(messages.slice(0, 1), { continueFinalMessage: true }),
      'PLUMB_ERROR_ARGUMENT', /the last message is not the assistant's/);
    await fails(model.applyChatTemplate(messages, { continueFinalMessage: 'text' }), 'PLUMB_ERROR_ARGUMENT',
      /continueFinalMessage is true, false, 'content' or 'reasoning_content'/);
  });
});

const THINKS = '{% for m in messages %}{{ "<|im_start|>" + m.role + "\\n" }}{% if m.reasoning_content %}'
  + '{{ "<think>\\n" + m.reasoning_content + "\\n</think>\\n\\n" }}{% endif %}{{ m.content + "<|im_end|>\\n" }}'
  + '{% endfor %}{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n<think>\\n" }}{% endif %}';

test('reasoning is continued as reasoning, and content behind it as content', async t => {
  const model = await Plumb.load(realWithTemplate(THINKS));
  t.after(() => model.close());
  const ask = { role: 'user', content: 'Is water wet?' };
  const thought = { role: 'assistant', content: '', reasoning_content: 'Water is' };
  assert.match(await model.applyChatTemplate([ask, thought]), /assistant\n<think>\nWater is$/);
  const schema = { type: 'boolean' };
  const create = params => model.chat.completions.create({ messages: [ask, thought], temperature: 0, max_tokens: 40,
    reasoning_budget: 4, response_format: { type: 'json_schema', json_schema: { name: 'x', schema } }, ...params });
  const { choices: [{ message }] } = await create();
  assert.ok(message.reasoning_content?.startsWith(' '), message.reasoning_content);
  assert.match(message.content, /^(true|false)$/);
  const said = { role: 'assistant', content: 'tr', reasoning_content: 'Easy.' };
  const { choices: [{ message: rest }] } = await create({ messages: [ask, said], response_format: undefined,
    max_tokens: 5 });
  assert.equal(rest.reasoning_content, undefined);
  assert.ok(rest.content.length > 0);
  const chat = model.chat({ temperature: 0, maxTokens: 6, reasoningBudget: 3 });
  await chat.send([ask, thought]);
  assert.ok(chat.messages[1].reasoning_content.startsWith('Water is '), JSON.stringify(chat.messages));
});

/* ---- templates of one's own ---- */

test('chatTemplate is used instead of the file\'s, and can be replaced', async t => {
  const model = await Plumb.load(smallPath, { chatTemplate: '{{ bos_token }}Q: {{ messages[0].content }} A:' });
  t.after(() => model.close());
  const ask = [{ role: 'user', content: 'Why?' }];
  assert.equal(await model.applyChatTemplate(ask), '<|im_start|>Q: Why? A:');
  model.chatTemplate = '{{ messages[0].content }}{% if tools %}<tool_call>{% endif %}';
  assert.equal(await model.applyChatTemplate(ask), 'Why?');
  model.chatTemplate = 'chatml';
  assert.equal(await model.applyChatTemplate(ask), '<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n');
  for (const wrong of [5, '', 'chat.jinja']) {
    assert.throws(() => { model.chatTemplate = /** @type {any} */ (wrong); },
      /chatTemplate is ("[^"]*"|5), expected the text of a chat template, in which \{\{ or \{% is, or 'chatml'/);
  }
  await fails(Plumb.load(smallPath, { chatTemplate: 'chat.jinja' }), 'PLUMB_ERROR_ARGUMENT', /text of a chat template/);
  model.chatTemplate = '{{ nonsense(';
  await fails(model.applyChatTemplate(ask), 'PLUMB_ERROR_TEMPLATE', /line 1/);
  assert.deepEqual(model.warnings.filter(({ code }) => code === 'template'), []);
});

test('the format of answers is that of the template in use', async t => {
  const model = await Plumb.load(smallPath, { chatTemplate: THINKS });
  t.after(() => model.close());
  const create = async () => (await model.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }],
    temperature: 0, max_tokens: 12, reasoning_budget: 4 })).choices[0].message;
  assert.ok((await create()).reasoning_content);
  model.chatTemplate = 'chatml';
  assert.equal((await create()).reasoning_content, undefined);
});

test('a file without a template has ChatML, and answers end before <|im_end|> where that is no token', async t => {
  const model = await Plumb.load(tinyPath);
  t.after(() => model.close());
  assert.equal(model.chatTemplate, '');
  const messages = [{ role: 'system', content: 'S' }, { role: 'user', content: 'Hi' }];
  // CHATML_TEMPLATE_SRC of llama.cpp's common/chat.cpp, by hand
  assert.equal(await model.applyChatTemplate(messages),
    '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n');
  const [piece] = [await model.tokenize('<|im_end|>', { addSpecial: false, parseSpecial: true })];
  assert.ok(piece.length > 1, 'or this is no test');
  const text = await model.generate(messages, { grammar: 'root ::= "a<|im_end|>" "b"*', maxTokens: 40 });
  assert.equal(text, 'a');
});

test('a bound answer goes on behind its beginning, wherever it was cut', async () => {
  const model = await Plumb.load(smallPath), schema = { type: 'object', additionalProperties: false,
    required: ['name', 'ages'], properties: { name: { type: 'string', maxLength: 12 },
      ages: { type: 'array', minItems: 1, maxItems: 3, items: { type: 'integer', minimum: 0, maximum: 99 } } } };
  const isThing = new Ajv().compile(schema), hot = { temperature: 1, seed: 3 };
  for (const begun of ['', '{', '{"na', '{"name":"Ä"', '{"name":"A","ages":[1', '{"name":"A","ages":[1,9]}']) {
    const text = await model.generate(`Ann: ${begun}`, { ...hot, schema, begun });
    assert.ok(isThing(JSON.parse(begun + text)), `${begun}${text}`);
  }
  assert.match(await model.generate('12', { ...hot, regex: '[0-9]{4}', begun: '12' }), /^[0-9]{2}$/);
  const messages = [{ role: 'user', content: 'Who?' }, { role: 'assistant', content: '{"name":"' }];
  const template = { continueFinalMessage: true }, chat = model.chat({ messages });
  const said = await model.generate(messages, { ...hot, schema, begun: '{"name":"', template });
  assert.ok(isThing(JSON.parse(`{"name":"${said}`)));
  const refused = (options, message) => fails(async () => { await model.generate('a', options); },
    'PLUMB_ERROR_ARGUMENT', message);
  await refused({ schema, begun: '[' }, /./);
  for (const options of [{ begun: 'a' }, { begun: 'a', schema, triggers: ['x'] }]) {
    await refused(options, /begun needs a grammar/);
  }
  await fails(async () => { await chat.send('And?', { schema, begun: '{' }); }, 'PLUMB_ERROR_ARGUMENT', /./);
  await model.close();
});
