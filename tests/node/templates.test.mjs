/** The 70 chat templates of llama.cpp's models/templates, with 12 conversations each.  Ground truth: llama.cpp v0.5.0's
 * own engine, with the variables that its server gives to the templates (tests/vectors/templates). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, mock, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { renderBounded } from '../../web/template/jinja.js';
import { root } from './helpers.mjs';

process.env.TZ = 'UTC';
mock.timers.enable({ apis: ['Date'], now: Date.UTC(2026, 6, 25, 12) });   // the clock of the vectors

const folder = `${root}tests/vectors/templates/`;
const read = (/** @type {string} */ name) => readFileSync(folder + name, 'utf8');
const texts = JSON.parse(gunzipSync(readFileSync(`${folder}texts.json.gz`)).toString());
const contexts = JSON.parse(read('contexts.json')), byJinja2 = JSON.parse(read('jinja2.json'));

/** [template, conversation, context, LENGTH:HASH of the text or the message of an exception in JSON, prompt] */
const expected = read('expected.tsv').trimEnd().split('\n').map(line => line.split('\t'));
const names = [...new Set(expected.map(([name]) => name))];

/** Where plumb does as jinja2 does, because llama.cpp's engine has a defect: [template, conversation, the defect]. */
const DEFECTS = [
  ['GigaChat3-10B-A1.8B', 'parallel tool calls', 'it knows no `in` between two lists'],
  ['GigaChat3.1-10B-A1.8B', 'parallel tool calls', 'it knows no `in` between two lists'],
  ['openbmb-MiniCPM5-1B', 'parallel tool calls', 'it prints a list of objects as nothing'],
];

/** What plumb makes of a template: its text, or the message of its error. */
function rendered(source, variables) {
  try {
    return { text: renderBounded(source, variables) };
  } catch (error) {
    assert.equal(error.code, 'PLUMB_ERROR_TEMPLATE', error.stack);
    return { error: error.message };
  }
}

describe('70 templates by 12 conversations: the text is llama.cpp\'s, and so is each exception', () => {
  for (const name of names) {
    test(name, () => {
      const source = read(`sources/${name}.jinja`), rows = expected.filter(([one]) => one === name);
      assert.equal(rows.length, 12);
      for (const [, conversation, context, text] of rows) {
        const { text: got, error } = rendered(source, contexts[Number(context)]);
        if (DEFECTS.some(([template, one]) => template === name && one === conversation)) {
          assert.notEqual(got, texts[text], 'a defect of llama.cpp that is none');
          assert.equal(got, byJinja2[name][conversation], conversation);
        } else if (text.startsWith('"')) {
          assert.ok(error, `${conversation}: llama.cpp fails: ${text}`);
          const raised = JSON.parse(text).split('Jinja Exception: ')[1];
          if (raised) assert.equal(error, `tokenizer.chat_template: ${raised}`);
        } else {
          assert.equal(got, texts[text], `${conversation}: ${error}`);
        }
      }
    });
  }

  test('there are 70', () => assert.equal(names.length, 70));
});
