/** The 70 chat templates of llama.cpp's models/templates, with 12 conversations each.  Ground truth: llama.cpp v0.5.0's
 * own engine, with the variables that its server gives to the templates (tests/vectors/templates). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, mock, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { capabilitiesOf } from '../../web/template/capabilities.js';
import { patched, prepare, stopsOf } from '../../web/template/inputs.js';
import { renderBounded } from '../../web/template/jinja.js';
import { root } from './helpers.mjs';

process.env.TZ = 'UTC';
mock.timers.enable({ apis: ['Date'], now: Date.UTC(2026, 6, 25, 12) });   // the clock of the vectors

const folder = `${root}tests/vectors/templates/`;
const read = (/** @type {string} */ name) => readFileSync(folder + name, 'utf8');
const texts = JSON.parse(gunzipSync(readFileSync(`${folder}texts.json.gz`)).toString());
const contexts = JSON.parse(read('contexts.json')), byJinja2 = JSON.parse(read('jinja2.json'));
const about = JSON.parse(read('templates.json')), conversations = JSON.parse(read('conversations.json'));

/** [template, conversation, context, LENGTH:HASH of the text or the message of an exception in JSON, prompt] */
const expected = read('expected.tsv').trimEnd().split('\n').map(line => line.split('\t'));
const names = [...new Set(expected.map(([name]) => name))];

/** Where plumb does as jinja2 does, because llama.cpp's engine has a defect: [template, conversation, the defect]. */
const DEFECTS = [
  ['GigaChat3-10B-A1.8B', 'parallel tool calls', 'it knows no `in` between two lists'],
  ['GigaChat3.1-10B-A1.8B', 'parallel tool calls', 'it knows no `in` between two lists'],
  ['openbmb-MiniCPM5-1B', 'parallel tool calls', 'it prints a list of objects as nothing'],
];

/** Where plumb does more than llama.cpp: [template, conversation, what it does]. */
const MORE = ['a tool call and its result', 'parallel tool calls', 'reasoning beside tool calls'].map(conversation =>
  ['ibm-granite-granite-3.3-2B-Instruct', conversation,
    'the template drops calls from earlier messages; plumb writes them as the model wrote them']);

/** The text of a render, or the message of its error. @param {() => string} render */
function outcome(render) {
  try {
    return { text: render() };
  } catch (error) {
    assert.equal(error.code, 'PLUMB_ERROR_TEMPLATE', error.stack);
    return { error: error.message };
  }
}

/** Checks what plumb makes of a template and a conversation. @param {{text?: string, error?: string}} got */
function check(name, conversation, { text, error }, wanted) {
  if (DEFECTS.some(([template, one]) => template === name && one === conversation)) {
    assert.notEqual(text, texts[wanted], 'a defect of llama.cpp that is none');
    assert.equal(text, byJinja2[name][conversation], conversation);
  } else if (wanted.startsWith('"')) {
    assert.ok(error, `${conversation}: llama.cpp fails: ${wanted}`);
    const raised = JSON.parse(wanted).split('Jinja Exception: ')[1];
    if (raised) assert.equal(error, `tokenizer.chat_template: ${raised}`);
  } else {
    assert.equal(text, texts[wanted], `${conversation}: ${error}`);
  }
}

describe('70 templates by 12 conversations: the text is llama.cpp\'s, and so is each exception', () => {
  for (const name of names) {
    test(name, () => {
      const source = read(`sources/${name}.jinja`), rows = expected.filter(([one]) => one === name);
      assert.equal(rows.length, 12);
      for (const [, conversation, context, text] of rows) {
        check(name, conversation, outcome(() => renderBounded(patched(source), contexts[Number(context)])), text);
      }
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
      const raw = read(`sources/${name}.jinja`), source = patched(raw), can = capabilitiesOf(source);
      for (const [ours, theirs] of Object.entries(CAPABILITIES)) assert.equal(can[ours], about[name][theirs], theirs);
      assert.equal(source !== raw, about[name].is_changed);
      assert.deepEqual(stopsOf(raw), about[name].stops);
      for (const [, conversation, , text, prompt] of expected.filter(([one]) => one === name)) {
        const { name: _, messages, add_generation_prompt: addGenerationPrompt, variables, ...rest } =
          conversations.find(one => one.name === conversation);
        const got = outcome(() => {
          const { input, variables: ours, finish } = prepare(raw, can, messages,
            { addGenerationPrompt, ...rest, ...variables });
          return finish(renderBounded(source, { bos_token: '<s>', eos_token: '</s>', ...ours, ...input }));
        });
        const wanted = prompt === '=' ? text : prompt;
        if (MORE.some(([template, one]) => template === name && one === conversation)) {
          assert.notEqual(got.text, texts[wanted]);
          assert.ok(got.text?.includes('<|tool_call|>[{"name"'), got.text ?? got.error);
        } else check(name, conversation, got, wanted);
      }
    });
  }
});
