/** The 70 chat templates of llama.cpp's models/templates, with 12 conversations each.  Ground truth: llama.cpp v0.5.0,
 * its own engine and what its server makes of a conversation (tests/vectors/templates). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, mock, test } from 'node:test';
import { capabilitiesOf } from '../../web/template/capabilities.js';
import { patched, prepare, stopsOf } from '../../web/template/inputs.js';
import { root } from './helpers.mjs';
import {
  DEFECTS, equals, familyRows, MORE, named, names, NOW, promptOf, read, rows, sourceOf, textOf, texts,
} from './template-results.mjs';

process.env.TZ = 'UTC';
mock.timers.enable({ apis: ['Date'], now: NOW });

const about = JSON.parse(read('templates.json')), byJinja2 = JSON.parse(read('jinja2.json'));
const isIn = (list, { name, conversation }) => list.some(([one, other]) => one === name && other === conversation);

/** Checks what plumb makes of a row. @param {{text?: string, error?: string}} got */
function check(row, got, wanted) {
  if (isIn(DEFECTS, row)) {
    assert.notEqual(got.text, texts[wanted], 'a defect of llama.cpp that is none');
    assert.equal(got.text, byJinja2[row.name][row.conversation], row.conversation);
  } else if (!equals(got, wanted)) {
    assert.deepEqual(got, { text: texts[wanted] ?? wanted }, row.conversation);
  }
}

describe('70 templates by 12 conversations: the text is llama.cpp\'s, and so is each exception', () => {
  for (const name of names) {
    test(name, () => {
      const own = rows.filter(row => row.name === name);
      assert.equal(own.length, 12);
      for (const row of own) check(row, textOf(row), row.text);
    });
  }

  test('there are 70', () => assert.equal(names.length, 70));
});

/** llama.cpp's names of capabilities. */
const CAPABILITIES = {
  string: 'supports_string_content', typed: 'supports_typed_content', system: 'supports_system_role',
  tools: 'supports_tools', calls: 'supports_tool_calls', parallel: 'supports_parallel_tool_calls',
  objects: 'supports_object_arguments', reasoning: 'supports_preserve_reasoning', effort: 'supports_reasoning_effort',
};

describe('the prompt of a conversation is that of llama.cpp\'s server, and so are the capabilities and stops', () => {
  for (const name of names) {
    test(name, () => {
      const raw = sourceOf(name), source = patched(raw), can = capabilitiesOf(source);
      for (const [ours, theirs] of Object.entries(CAPABILITIES)) assert.equal(can[ours], about[name][theirs], theirs);
      assert.equal(source !== raw, about[name].is_changed);
      assert.deepEqual(stopsOf(raw), about[name].stops);
      for (const row of rows.filter(row => row.name === name)) {
        const got = promptOf(row);
        if (isIn(MORE, row)) {
          assert.notEqual(got.text, texts[row.prompt]);
          assert.ok(got.text?.includes('<|tool_call|>[{"name"'), got.text ?? got.error);
        } else check(row, got, row.prompt);
      }
    });
  }
});

/** What plumb prints otherwise than llama.cpp: template, conversation, plumb's text, llama.cpp's. */
const OTHERWISE = [
  // Python prints None for none, which is nothing in llama.cpp.
  ['google-gemma-4-31B-it-interleaved', 'more results than calls', 'None', ''],
  // In jinja2 a name that is none is defined.
  ['google-gemma-4-31B-it', 'more results than calls', 'response:{', 'response:unknown{'],
  // Python prints strings in lists with \\n.
  ...['google-gemma-4-31B-it', 'google-gemma-4-31B-it-interleaved'].flatMap(name => [
    [name, 'reasoning and parts', "\\n'", "\n'"],
    [name, 'an answer at the end', 'call:read{file:1}', 'call:read{file:1.0}'],   // JSON.parse makes 1 of 1.0
  ]),
];

test('results, reasoning and parts are adapted to a family of models as llama.cpp does', () => {
  assert.equal(familyRows.length, 50);
  for (const [name, conversation, prompt] of familyRows) {
    const { text, error } = promptOf({ name, conversation });
    if (prompt.startsWith('"')) {
      assert.ok(error, `${name}, ${conversation}`);
      continue;
    }
    const [, , ours = '', theirs = ''] =
      OTHERWISE.find(([one, other]) => one === name && other === conversation) ?? [];
    assert.ok(text?.includes(ours), `${name}, ${conversation}: ${text ?? error}`);
    assert.equal(named(text.replaceAll(ours, theirs)), prompt, `${name}, ${conversation}: ${text}`);
  }
});

test('wrong tool_calls break no adaptation of messages: the template may refuse them', () => {
  const messages = [{ role: 'user', content: 'x' }, { role: 'assistant', content: '', tool_calls: [null, 'x'] },
    { role: 'tool', tool_call_id: 'a', content: 'y' }, { role: 'tool', content: 'z' }];
  for (const name of names) {
    const source = sourceOf(name), can = capabilitiesOf(patched(source));
    assert.doesNotThrow(() => prepare(source, can, messages, {}), name);
  }
});

test('docs/templates.md has these results', () => {
  const page = readFileSync(`${root}docs/templates.md`, 'utf8');
  for (const name of names) {
    const own = rows.filter(row => row.name === name);
    const texts = own.filter(row => equals(textOf(row), row.text)).length;
    const prompts = own.filter(row => equals(promptOf(row), row.prompt)).length;
    assert.ok(page.includes(`\n| ${name} | ${texts} | ${prompts} | `), `${name}: run tools/templates_page.mjs`);
  }
});
