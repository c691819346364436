/** Rendering and parsing of tool calls.  Ground truth: jinja2's rendering of conversations with the templates of
 * Qwen2.5, Llama 3.1 and 3.2, Mistral Nemo and Large (tests/vectors/tools); and calls written by hand as in the model
 * cards of these and of Granite 3. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { AnswerReader } from '../../web/answers/answer.js';
import { CONTINUED, FORMAT, POOL } from '../../web/answers/formats.js';
import { fails, realPath, root, textOf } from './helpers.mjs';
import { formatOf, promptOf } from './templates.mjs';

const vectors = `${root}tests/vectors/`;
const unescaped = (/** @type {string} */ text) =>
  Buffer.from(text.replace(/\\x(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16))), 'latin1').toString();
/** Templates of models, by name. */
const TEMPLATES = Object.fromEntries(readFileSync(`${vectors}tokenizer/chat.txt`, 'utf8').split('\n')
  .filter(line => line.startsWith('T ')).map(line => {
    const [name, source] = line.slice(2).split('\t');
    return [name, unescaped(source)];
  }));
const { chats, prompts } = JSON.parse(readFileSync(`${vectors}tools/tools.json`, 'utf8'));

const tool = name => ({ type: /** @type {const} */ ('function'), function: { name, parameters: { type: 'object' } } });
const TOOLS = [tool('add'), tool('now')];
const call = (name, args) => ({ type: 'function', function: { name, arguments: JSON.stringify(args) } });
const contentOf = deltas => deltas.map(({ content = '' }) => content).join('');
/** What is read of a text that arrives in pieces of n characters: shown before its end, and all. */
function read(source, text, n, tools = TOOLS) {
  const reader = new AnswerReader(formatOf(source), tools);
  let shown = '';
  for (let at = 0; at < text.length; at += n) shown += contentOf(reader.push(text.slice(at, at + n)));
  reader.end();
  const { content, tool_calls: calls = [] } = reader.message;
  return { shown, text: content, calls };
}
const normal = ({ type, function: { name, arguments: given } }) => call(name, JSON.parse(given));

const HERMES = TEMPLATES['Qwen-Qwen2.5-7B-Instruct'], LLAMA = TEMPLATES['meta-llama-Llama-3.1-8B-Instruct'];
const MISTRAL = TEMPLATES['mistralai-Mistral-Nemo-Instruct-2407'], GRANITE = 'respond only with <|tool_call|>';
const ADD = '{"name": "add", "arguments": {"a": 1, "b": [2, null]}}', NOW = '{"name": "now", "arguments": {}}';
const add = call('add', { a: 1, b: [2, null] }), now = call('now', {});
for (const [what, source, text, shown, calls, rest = shown] of [
  ['Hermes: one', HERMES, `<tool_call>\n${ADD}\n</tool_call>`, '', [add]],
  ['Hermes: two behind a text', HERMES,
    `I look.\n\n<tool_call>\n${ADD}\n</tool_call>\n<tool_call>${NOW}</tool_call>`, 'I look.', [add, now]],
  ['Hermes: the end is missing', HERMES, `<tool_call>${NOW}`, '', [now]],
  ['Hermes: text behind', HERMES, `Well <tool_call>${NOW}</tool_call> done`, 'Well done', [now]],
  ['Hermes: what only looks like one', HERMES, 'a <tool_cal> < b <tool', 'a <tool_cal> < b', [],
    'a <tool_cal> < b <tool'],
  ['Hermes: JSON alone is one, if it is the whole answer', HERMES, ADD, '', [add], ''],
  ['Hermes: JSON in a fence', HERMES, `\n\`\`\`json\n${ADD}\n\`\`\`\n`, '', [add], ''],
  ['Hermes: doubled braces, as in Qwen2.5-Coder\'s template', HERMES, `{${ADD}}\n`, '', [add], ''],
  ['Hermes: braces that are doubled on one side', HERMES, `{${ADD}`, '', [], `{${ADD}`],
  ['Hermes: two calls in a fence', HERMES, `\`\`\`json\n[${ADD},\n${NOW}]\n\`\`\``, '', [add, now], ''],
  ['Hermes: JSON with null for the arguments', HERMES, `[{"name": "now", "parameters": null}, ${NOW}]`, '', [now, now],
    ''],
  ['Hermes: JSON behind a text is none', HERMES, `So: ${ADD}`, `So: ${ADD}`, []],
  ['Hermes: JSON before a text is none', HERMES, `${ADD} is it`, '', [], `${ADD} is it`],
  ['Hermes: JSON of another tool is none', HERMES, '{"name": "rm", "arguments": {}}', '{"name": "rm", "arguments": {}}',
    []],
  ['Hermes: a fence with something else', HERMES, '```js\nlet a = {"name": 1};\n```',
    '```js\nlet a = {"name": 1};\n```', []],
  ['Hermes: text, a call, text, a call', HERMES,
    `a <tool_call>${NOW}</tool_call>\nb <tool_call>${ADD}</tool_call>\n`, 'a\nb', [now, add]],
  ['Hermes: tags in a string of a call', HERMES,
    '<tool_call>{"name": "add", "arguments": {"a": "\\"</tool_call>", "b": "<tool_call>{}"}}</tool_call>\nso', 'so',
    [call('add', { a: '"</tool_call>', b: '<tool_call>{}' })]],
  ['Mistral: a list', MISTRAL, `[TOOL_CALLS] [${ADD}, {"name": "now", "arguments": {}, "id": "123456789"}]`, '',
    [add, now]],
  ['Mistral: the mark does not show', MISTRAL, `[${NOW}]`, '', [now]],
  ['Granite: a list', GRANITE, `<|tool_call|>[${ADD}, ${NOW}]`, '', [add, now]],
  ['Granite: the mark does not show', GRANITE, ` [${NOW}]`, '', [now]],
  ['Granite: in the middle it is text', GRANITE, `See [${NOW}]`, `See [${NOW}]`, []],
  ['Llama: parameters', LLAMA, '\n{"name": "now", "parameters": {"zone": "UTC"}}', '', [call('now', { zone: 'UTC' })]],
  ['Llama: no arguments at all', LLAMA, '{"name": "now"}', '', [now]],
  ['Llama: other JSON is text', LLAMA, '{"name": "Ada", "age": 36}', '{"name": "Ada", "age": 36}', []],
  ['Llama: in the middle it is text', LLAMA, `It is ${NOW}`, `It is ${NOW}`, []],
]) {
  test(what, () => {
    for (const n of [1, 2, 7, text.length]) {
      const found = read(source, text, n);
      assert.equal(found.shown, shown);
      assert.equal(found.text, rest);
      assert.deepEqual(found.calls.map(normal), calls);
      for (const { id } of found.calls) assert.match(id, /^call_[0-9a-f]{24}$|^123456789$/);
    }
  });
}

test('text that is not a call of a given tool stays text', () => {
  const deep = `${'['.repeat(1e5)}${']'.repeat(1e5)}`;
  for (const body of [
    '', '{', '[]x', 'null', '3', '"now"', '{"name": "rm", "arguments": {}}', '{"name": "now", "arguments": "{}"}',
    '{"name": "now", "arguments": [1]}', '{"name": ["now"], "arguments": {}}', '{"arguments": {}}',
    '{"name": "constructor"}', `{"name": "now", "arguments": {"x": ${deep}}`,
    '<tool_call>', `${' '.repeat(1e5)}{`, '{"name": "now', `{"name": "${'</tool_call>'.repeat(1e4)}`,
  ]) {
    const marked = `<tool_call>${body}</tool_call>`, listed = `[${body},`;
    for (const [source, text] of [[HERMES, marked], [GRANITE, listed], [MISTRAL, listed], [LLAMA, body]]) {
      if (source === LLAMA && !body.startsWith('{')) continue;
      const { text: all, calls } = read(source, text, text.length);
      assert.deepEqual([all, calls], [text, []]);
    }
  }
  for (const none of ['[]', ' [ ]\n', '<|tool_call|>[]']) {
    assert.equal(read(GRANITE, none, 1).text, none);
    if (!none.startsWith('<')) assert.equal(read(LLAMA, none, 1).text, none);
  }
});

test('what comes before and behind a malformed call is kept', () => {
  const deltas = [], reader = new AnswerReader(formatOf(HERMES), TOOLS);
  const broken = '<tool_call>{"name": "add", "arguments": {"a": 1, b}}</tool_call>';
  const text = `<tool_call>${NOW}</tool_call>${broken}<tool_call>${ADD}}</tool_call>.`;
  for (const c of text) deltas.push(...reader.push(c));
  deltas.push(...reader.end());
  assert.deepEqual(reader.message.tool_calls?.map(normal), [now, add]);
  assert.equal(reader.message.content, `${broken}}</tool_call>.`);
  assert.equal(contentOf(deltas), reader.message.content);
  const calls = [];
  for (const { call } of deltas) {
    if (call) calls[call.index] = (calls[call.index] ?? '') + (call.name ?? call.arguments);
  }
  assert.deepEqual(calls, ['now{}', 'add{"a": 1, "b": [2, null]}']);
});

test('without tools everything is text and nothing is held back', () => {
  for (const source of [HERMES, GRANITE, LLAMA, undefined]) {
    assert.equal(read(source, `<tool_call>${NOW}  `, 3, []).shown, `<tool_call>${NOW}  `);
  }
});

/* The parts of those models' templates that handle messages with calls; the rest is left out or reworded. */
const GRANITE30 = `{%- for message in messages %}
    {%- if message['role'] == 'user' %}{{- 'user: ' + message['content'] + ';' }}
    {%- elif message['role'] == 'assistant' %}{{- 'assistant: ' + message['content'] + ';' }}
    {%- elif message['role'] == 'assistant_tool_call' %}{{- 'assistant: <|tool_call|>' + message['content'] + ';' }}
    {%- elif message['role'] == 'tool_response' %}{{- 'tool_response: ' + message['content'] + ';' }}
    {%- endif %}
{%- endfor %}`;
const GRANITE33 = `{# <|tool_call|> followed by a JSON list of tools #}{%- for message in messages %}
    {{- message['role'] + ': ' + message['content'] + ';' }}
{%- endfor %}`;
const said = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', ...call('now', { zone: 'UTC' }) }] },
  { role: 'tool', content: '12:00', tool_call_id: 'call_1' },
  { role: 'assistant', content: 'Noon.', tool_calls: [] },
];
for (const [name, template, expected] of [
  ['Granite 3.0', GRANITE30, 'user: Hi;assistant: <|tool_call|>[{"name":"now","arguments":{"zone":"UTC"}}];'
    + 'tool_response: 12:00;assistant: Noon.;'],
  ['Granite 3.3', GRANITE33, 'user: Hi;assistant: <|tool_call|>[{"name":"now","arguments":{"zone":"UTC"}}];'
    + 'tool: 12:00;assistant: Noon.;'],
]) {
  test(`${name}'s template gets calls in its own format`, () => {
    assert.equal(promptOf(template, said), expected);
  });
}

const variables = { documents: null, date_string: '26 Jul 2024' };
for (const { template, chat, text } of prompts) {
  test(`${template}: ${chat}`, async () => {
    const { tools, messages } = chats[chat], source = TEMPLATES[template];
    const prompt = async () => promptOf(source, messages, { ...variables, tools });
    if (text === null) await fails(prompt, 'PLUMB_ERROR_TEMPLATE', /only supports single tool-calls at once/);
    else assert.equal(await prompt(), text);
  });
}

test('a call rendered by a template is parsed as the same call', () => {
  let n = 0;
  for (const { template, chat, text } of prompts) {
    const { tools, messages } = chats[chat];
    const made = messages.find(message => message.tool_calls)?.tool_calls;
    if (!made || !text) continue;
    const [, opened] = text.match(/(?:<\|im_start\|>assistant\n|assistant<\|end_header_id\|>\n\n|\[\/INST\])(.*)/s);
    const [turn] = opened.split(/<\|im_end\|>|<\|eot_id\|>|<\/s>/);
    const plain = ({ function: { name, arguments: given } }) => [name, JSON.parse(given)];
    for (const said of [turn, turn.replace('[TOOL_CALLS]', '')]) {   // detokenizing may hide that mark
      assert.deepEqual(read(TEMPLATES[template], said, 3, tools).calls.map(plain), made.map(plain), said);
      n++;
    }
  }
  assert.ok(n > 50, `${n} turns`);
});

test('Mistral: call ids have nine letters and digits, and a call and its result share one', async () => {
  const { tools, messages } = chats['a call and its result'];
  const [question, said, result] = messages, [made] = said.tool_calls;
  for (const [id, nine] of [['call_0123456789abcdef', '789abcdef'], ['call_1', '0000call1'], [made.id, made.id]]) {
    const renamed = [question, { ...said, tool_calls: [{ ...made, id }] }, { ...result, tool_call_id: id }];
    const prompt = promptOf(MISTRAL, renamed, { ...variables, tools });
    const { text } = prompts.find(one => TEMPLATES[one.template] === MISTRAL && one.chat === 'a call and its result');
    assert.equal(prompt, text.replaceAll(made.id, nine));
  }
});

test('malformed calls in messages reach the template unchanged', () => {
  for (const tool_calls of ['x', [null], [{ type: 'function', function: { name: 'f', arguments: '{' } }], [{}]]) {
    assert.equal(promptOf('{{ messages[0].tool_calls|tojson(separators=(",", ":")) }}',
      [{ role: 'assistant', content: 'x', tool_calls }]), JSON.stringify(tool_calls));
  }
});

describe('a model with a template that supports tools', () => {
  const TEMPLATE = '{% if tools %}{{ "<tool_call>" + (tools | tojson) + "\n" }}{% endif %}{% for m in messages %}'
    + '{{ "<|im_start|>" + m.role + "\n" + m.content }}{% for c in m.tool_calls or [] %}{{ "<tool_call>" '
    + '+ (c.function.arguments | tojson) }}{% endfor %}{{ "<|im_end|>\n" }}{% endfor %}'
    + '{% if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}';
  const CALL = 'Well. <tool_call>{"name":"add","arguments": {"a.": 1}}', END = 2;
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  let forced;
  before(async () => {
    const file = readFileSync(realPath);   // its template is replaced by one of the same length
    const at = file.indexOf('{% for message', file.indexOf('tokenizer.chat_template'));
    const length = Number(file.readBigUInt64LE(at - 8));
    assert.ok(TEMPLATE.length < length, `${TEMPLATE.length} of ${length} bytes`);
    file.write(TEMPLATE.padEnd(length), at);
    model = await Plumb.load(file);
    const ids = [...await model.tokenize(CALL), END];
    assert.equal(new Set(ids).size, ids.length);
    // Each token once, in this order: see "whole characters only" of model.test.mjs.
    forced = forcing(ids);
  });
  /** Options with which a model generates these tokens. @param {number[]} ids */
  const forcing = ids => ({
    temperature: 0, logitBias: new Map(ids.map((id, i) => [id, 1e6 - 1e4 * i])), presencePenalty: 1e6,
    penaltyLastN: ids.length,
  });
  after(() => model.close());

  test('a chat shows the text and keeps the calls; tool results continue it', async () => {
    const chat = model.chat({ tools: TOOLS, parallelToolCalls: false });   // so it ends without the call's end tag
    const pieces = [];
    for await (const piece of chat.send('1 and 2?', forced)) pieces.push(piece);
    assert.equal(pieces.join(''), 'Well.');
    assert.equal(chat.lastStats?.finishReason, 'stop');
    const [, { tool_calls: [{ id }], ...message }] = /** @type {any} */ (chat.messages);
    assert.deepEqual(message, { role: 'assistant', content: 'Well.' });
    await textOf(chat.send({ role: 'tool', content: '3', tool_call_id: id }, { maxTokens: 1 }));
    const told = TOOLS.map(({ type, function: { name, parameters } }) =>
      ({ type, function: { name, description: '', parameters } }));   // llama.cpp's server adds the description
    const expected = `<tool_call>${JSON.stringify(told)}\n`.replaceAll(/([:,])/g, '$1 ')
      + '<|im_start|>user\n1 and 2?<|im_end|>\n<|im_start|>assistant\nWell.<tool_call>{"a.": 1}<|im_end|>\n'
      + '<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\n';
    const messages = chat.messages.slice(0, 3);
    assert.equal((await model.applyChatTemplate(messages, { tools: TOOLS })).trimEnd(), expected.trimEnd());
    assert.equal(chat.lastStats?.promptTokens, (await model.tokenizeChat(messages, { tools: TOOLS })).length);
  });

  test('an answer to messages ends at the stop text of the template\'s family; other texts go on', async () => {
    model.metadata['tokenizer.chat_template'] += '{#laguna_glm_thinking#}';   // its answers end with </assistant>
    const written = 'It is</assistant> so', options = forcing([...await model.tokenize(written), END]);
    const messages = [{ role: /** @type {const} */ ('user'), content: 'x' }];
    const template = { addGenerationPrompt: false };   // or the prompt ends with a token of the text
    assert.equal(await textOf(model.generate(messages, { ...options, template })), 'It is');
    assert.equal(await textOf(model.generate(await model.tokenizeChat(messages, template), options)), 'It is');
    assert.equal(await textOf(model.generate(messages, { ...options, template, stop: 'is' })), 'It ');
    assert.equal(await textOf(model.generate('x', options)), written);
    model.metadata['tokenizer.chat_template'] = TEMPLATE;
  });

  test('a completion, whole or streamed, has the calls in OpenAI\'s format', async () => {
    const { logitBias, penaltyLastN: _, ...rest } = forced;
    assert.deepEqual(Object.keys(rest), ['temperature', 'presencePenalty']);
    // OpenAI's bias range is too small to force a text, so this model generates it.
    const says = Object.create(model, {
      generate: { value: (ids, options) => model.generate(ids, { ...options, ...forced }) },
      tokenizeChat: { value: (...args) => model.tokenizeChat(...args) },
      detokenize: { value: (...args) => model.detokenize(...args) },
      tokenize: { value: (...args) => model.tokenize(...args) },
      info: { value: () => model.info() }, [FORMAT]: { value: () => model[FORMAT]() },
      [CONTINUED]: { value: ids => model[CONTINUED](ids) },
      [POOL]: { value: { take: async () => [says], give() {} } },
    });
    const { Completions } = await import('../../web/openai/completions.js');
    const completions = new Completions(async () => ({ model: says, free() {} }));
    const params = { messages: [{ role: /** @type {const} */ ('user'), content: '1 and 2?' }], tools: TOOLS,
      parallel_tool_calls: false };
    const { choices: [{ message: { tool_calls, ...message }, finish_reason }] } = await completions.create(params);
    assert.deepEqual([message, finish_reason],
      [{ role: 'assistant', content: 'Well.', refusal: null }, 'tool_calls']);
    const added = { type: 'function', function: { name: 'add', arguments: '{"a.": 1}' } };
    assert.deepEqual(tool_calls?.map(({ id: _, ...one }) => one), [added]);

    const deltas = [];
    for await (const { choices: [{ delta, finish_reason }] } of await completions.create({ ...params, stream: true })) {
      deltas.push(finish_reason ?? delta);
    }
    assert.equal(deltas.pop(), 'tool_calls');
    const [{ id, ...begun }, ...more] = deltas.flatMap(({ tool_calls: list = [] }) => list);
    assert.match(id, /^call_/);
    assert.deepEqual(begun, { index: 0, type: 'function', function: { name: 'add', arguments: '' } });
    assert.deepEqual(more, [{ index: 0, function: { arguments: '{"a.": 1}' } }]);
    assert.equal(deltas.map(({ content = '' }) => content).join(''), 'Well.');

    const untold = await completions.create({ ...params, tool_choice: 'none' });
    assert.deepEqual([untold.choices[0].message.content, untold.choices[0].finish_reason], [CALL, 'stop']);
  });
});
