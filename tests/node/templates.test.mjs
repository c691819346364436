/** The module plumb-template on the 70 chat templates of llama.cpp's models/templates, with 12 conversations each.
 * Ground truth: what llama.cpp v0.5.0's server makes of a conversation (tests/vectors/templates).
 * tests/template_test.c has all else about templates. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { PlumbError } from '../../web/base/errors.js';
import { root } from './helpers.mjs';
import { formatOf, promptOf, TEMPLATES } from './templates.mjs';

process.env.TZ = 'UTC';
const NOW = new Date(Date.UTC(2026, 6, 25, 12)), folder = `${root}tests/vectors/templates/`;
const read = (/** @type {string} */ name) => readFileSync(folder + name, 'utf8');
/** llama.cpp's texts by LENGTH:HASH. @type {Record<string, string>} */
const texts = JSON.parse(gunzipSync(readFileSync(`${folder}texts.json.gz`)).toString());
const conversations = JSON.parse(read('conversations.json')), byJinja2 = JSON.parse(read('jinja2.json'));
/** prompt: LENGTH:HASH, or the message of llama.cpp's exception in JSON. */
const rows = read('expected.tsv').trimEnd().split('\n').map(line => {
  const [name, conversation, , text, prompt] = line.split('\t');
  return { name, conversation, wanted: prompt === '=' ? text : prompt };
});

test('there are 70 templates, and 840 rows', () => assert.deepEqual([TEMPLATES.size, rows.length], [70, 840]));

describe('the prompt is that of llama.cpp\'s server, or jinja2\'s where they differ', () => {
  for (const [name, source] of TEMPLATES) {
    test(name, () => {
      for (const { conversation, wanted } of rows.filter(row => row.name === name)) {
        const { name: _, messages, add_generation_prompt: addGenerationPrompt, variables, ...rest } =
          conversations.find((/** @type {any} */ one) => one.name === conversation);
        const tools = formatOf(source).describesTools ? rest : { ...rest, tools: undefined };
        const render = () => promptOf(source, messages,
          { addGenerationPrompt, enable_thinking: true, ...tools, ...variables }, NOW);   // as llama.cpp's server
        const other = byJinja2[name]?.[conversation];
        if (other === undefined && wanted.startsWith('"')) {
          const [, raised = ''] = JSON.parse(wanted).split('Jinja Exception: ');
          assert.throws(render, error => error instanceof PlumbError && error.message.includes(raised), conversation);
        } else if (name === 'ibm-granite-granite-3.3-2B-Instruct' && texts[wanted] !== render()) {
          // The template leaves out earlier calls; plumb writes them as the model did.
          assert.match(render(), /<\|tool_call\|>\[\{"name":/);
        } else {
          assert.equal(render(), other ?? texts[wanted], conversation);
        }
      }
    });
  }
});
