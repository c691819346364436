/** Answers that a schema binds, of models that think first.  Ground truth: the cases with a schema of llama.cpp's
 * tests/test-chat.cpp, with what llama.cpp's parsers make of them; and the prompts of llama.cpp's 70 templates. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { ReasoningMeter } from '../../web/engine/budget.js';
import { Plumb } from '../../web/node/index.js';
import { AnswerReader } from '../../web/answers/answer.js';
import { headOf, withHead } from '../../web/answers/bound.js';
import { byteGrammars, follow } from './byte-grammars.mjs';
import { fails, realWithTemplate, root } from './helpers.mjs';
import { formatOf, promptOf, TEMPLATES } from './templates.mjs';

const { cases } = JSON.parse(readFileSync(`${root}tests/vectors/toolcalls/cases.json`, 'utf8'));
const ANY = { language: /** @type {const} */ ('schema'), text: 'true', flags: 8 };
const NONE = new Map();
let grammars;
before(async () => { grammars = await byteGrammars(); });

/** Reads a bound answer in two pieces. */
function read(source, prompt, text, cut) {
  const reader = new AnswerReader(formatOf(source), [], { prompt, isBound: true });
  const deltas = [...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut)), ...reader.end()];
  const { content, reasoning_content: reasoning = '' } = reader.message;
  assert.equal(deltas.map(delta => delta.content ?? '').join(''), content);
  assert.equal(deltas.map(delta => delta.reasoning ?? '').join(''), reasoning);
  return { content, reasoning };
}
/** Whether a text is an answer that its grammar allows. */
const allows = (source, prompt, text) =>
  follow(grammars, withHead(formatOf(source), headOf(formatOf(source), prompt), ANY, NONE), text).every(Boolean);

test('llama.cpp\'s cases: reasoning, then the value', () => {
  const bound = cases.filter(one => one.schema);
  assert.equal(bound.length, 7);
  for (const { template, prompt, input, parsed } of bound) {
    // llama.cpp also allows a fence around the value, and marks and white space behind it.
    const source = TEMPLATES.get(template) ?? assert.fail(template);
    const text = input.replace(/```json\n(.*)\n```$/, '$1').replace(/<\|END_TEXT\|>$/, '').trimEnd();
    assert.ok(allows(source, prompt, text), `${template}: ${text}`);
    for (let cut = 0; cut <= text.length; cut++) {
      const { content, reasoning } = read(source, prompt, text, cut);
      assert.deepEqual([content, reasoning], [parsed.content, parsed.reasoning.trim()], template);
    }
  }
});

test('the prompts of all templates, thinking and not: reasoning is reasoning, and the value is the content', () => {
  const value = '{"a":"<think></think> <response> <|message|> [/THINK]"}';
  const count = { open: 0, may: 0, none: 0, channels: 0 };
  for (const [template, source] of TEMPLATES) {
    const format = formatOf(source), { think, channels } = format;
    for (const enable_thinking of [true, false]) {
      const prompt = promptOf(source, [{ role: 'user', content: 'Hi' }], { enable_thinking });
      const head = headOf(format, prompt), shown = `${template}: ${prompt}`;
      const answers = head.think || channels ? [] : [`${head.skip}${value}`];
      if (channels) {
        const [final, thought] = channels.user === 'final' ? ['<|channel|>final', '<|channel|>analysis']
          : [' to=user', ' to=self'];
        const end = channels.user === 'final' ? '<|end|>' : '<|eom|>';
        answers.push(`${final}<|message|>${value}`,
          `${thought}<|message|>Hm <b>.${end}<|start|>assistant${final}<|message|>${value}`);
      } else if (head.think) {
        answers.push(`${head.isOpen ? '' : think.start}Hm <b>.${think.ends[0]}\n\n${value}`);
        if (!head.isOpen) answers.push(value);
        else assert.ok(!allows(source, prompt, value), shown);
      }
      for (const text of answers) {
        const reasoning = text.includes('Hm') ? 'Hm <b>.' : '';
        assert.ok(allows(source, prompt, text), `${shown}${text}`);
        for (let cut = 0; cut <= text.length; cut++) {
          assert.deepEqual(read(source, prompt, text, cut), { content: value, reasoning }, `${shown}${text}`);
        }
      }
      // A value can also follow at once.
      const { skip, isOpen } = headOf(format, prompt + head.skip);
      assert.deepEqual([skip, isOpen], ['', false], shown);
      count[channels ? 'channels' : head.isOpen ? 'open' : head.think ? 'may' : 'none']++;
    }
  }
  assert.deepEqual(count, { channels: 4, open: 34, may: 22, none: 80 });
});

test('the budget of an answer with tools counts all reasoning before the first call, and nothing in calls', () => {
  for (const [tokens, spent] of [
    [['<think>', 'a', '</think>', 'So', '<think>', 'a'], true], [['<think>', 'a', '</think>', '<think>'], false],
    [['<think>', 'a', '</think>', '<tool', '_call>', '{"', '<think>', 'a', 'b'], false],
    [['<think>', 'a', '<end_by_call>', '{"', '<think>', 'a', 'b'], false],
  ]) {
    const meter = new ReasoningMeter({ start: '<think>', ends: ['</think>', '<end_by_call>'], limit: 2, isOpen: false,
      calls: ['<tool_call>', '<end_by_call>'] });
    for (const token of tokens) meter.push(token);
    assert.equal(meter.isSpent, spent, tokens.join(''));
  }
});

test('the budget counts only the reasoning at the beginning of an answer that is bound', () => {
  for (const [start, tokens, spent] of [
    ['<think>', ['<think>', 'a', 'b', 'c'], true], ['<think>', ['\n', '<th', 'ink>', 'a', 'b', 'c'], true],
    ['<think>', ['{"', '<think>', 'a', 'b', 'c'], false],
    ['<think>', ['<think>', 'a', '</think>', '<think>', 'a', 'b', 'c'], false],
  ]) {
    const meter = new ReasoningMeter({ start, ends: ['</think>'], limit: 2, isOpen: false, isFirst: true });
    for (const token of tokens) meter.push(token);
    assert.equal(meter.isSpent, spent, tokens.join(''));
  }
});

const TURNS = '{% for m in messages %}{{ "<|im_start|>" + m.role + "\\n" + m.content + "<|im_end|>\\n" }}{% endfor %}'
  + '{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}';
const THINKS = [
  ['a prompt that opens the reasoning', `${TURNS}{{ "<think>\\n" }}{% endif %}`],
  ['a prompt that opens the reasoning or closes it', `${TURNS}{{ "<think>\\n" }}{% if not enable_thinking %}`
    + '{{ "\\n</think>\\n\\n" }}{% endif %}{% endif %}'],
  ['messages with channels', TURNS.replace('<|im_start|>assistant\\n', '<|start|>assistant')
    + '{% endif %}{# <|channel|> #}'],
];
for (const [what, template] of THINKS) {
  describe(`the default model with ${what}`, () => {
    const schema = /** @type {const} */ ({ type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'],
      additionalProperties: false });
    const messages = [{ role: /** @type {const} */ ('user'), content: 'Is water wet?' }];
    const isValue = text => /^\{"ok":(true|false)\}$/.test(text);
    let model;
    before(async () => { model = await Plumb.load(realWithTemplate(template)); });
    after(() => model.close());

    test('a chat and create give reasoning within the budget, and then the value', async () => {
      for (const reasoningBudget of [0, 6]) {
        const thinks = { enable_thinking: true };
        const chat = model.chat({ temperature: 0, maxTokens: 80, reasoningBudget, template: thinks });
        assert.ok(isValue(await chat.send('Is water wet?', { schema })));
        const said = chat.messages.at(-1);
        assert.ok(isValue(said.content) && Boolean(said.reasoning_content) === (reasoningBudget > 0
          && template.includes('<think>')), JSON.stringify(said));
        const { choices: [{ message, finish_reason }] } = await model.chat.completions.create({
          messages, temperature: 0, max_tokens: 80, reasoning_budget: reasoningBudget, chat_template_kwargs: thinks,
          response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
        });
        assert.ok(isValue(message.content) && finish_reason === 'stop', message.content);
        assert.equal(Boolean(message.reasoning_content), Boolean(said.reasoning_content));
        const kinds = [];
        const stream = await model.chat.completions.create({
          messages, temperature: 0, max_tokens: 80, reasoning_budget: reasoningBudget, chat_template_kwargs: thinks,
          response_format: { type: 'json_schema', json_schema: { name: 'x', schema } }, stream: true,
        });
        for await (const { choices: [{ delta }] } of stream) {
          const kind = delta.reasoning_content ? 'reasoning' : delta.content ? 'content' : undefined;
          if (kind && kinds.at(-1) !== kind) kinds.push(kind);
        }
        assert.deepEqual(kinds, message.reasoning_content ? ['reasoning', 'content'] : ['content']);
      }
    });

    test('chat.object gives the value, and generate without reasoning', async () => {
      const chat = model.chat({ temperature: 0, maxTokens: 80 }), thinks = { enable_thinking: true };
      for (const [options, isThought] of [[{}, false], [{ reasoningBudget: 4 }, true], [{ reasoningBudget: 0 }, false],
        [{ reasoningBudget: 4, template: thinks }, true]]) {
        assert.equal(typeof (await chat.object(schema, 'Is water wet?', options)).ok, 'boolean');
        assert.equal(Boolean(chat.messages.at(-1).reasoning_content), isThought && template.includes('<think>'));
      }
      assert.ok(isValue(await model.generate(messages, { temperature: 0, maxTokens: 20, schema })));
      await fails(model.generate(messages, { reasoningBudget: 1, schema }).next(), 'PLUMB_ERROR_ARGUMENT',
        /reasoningBudget and grammar exclude each other/);
      const free = { type: 'array', uniqueItems: true, items: {} };
      await fails(chat.send('x', { schema: free }).next(), 'PLUMB_ERROR_UNSUPPORTED',
        /^\/uniqueItems: /);
    });
  });
}
