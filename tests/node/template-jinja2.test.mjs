/** Chat templates that llama.cpp does not have, small templates, and long conversations.  Ground truth: jinja2 3.1.6,
 * set up as transformers sets it up (tests/vectors/jinja2). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mock, test } from 'node:test';
import { patched } from '../../web/template/inputs.js';
import { renderBounded } from '../../web/template/jinja.js';
import { limitsFor, LIMITS } from '../../web/template/limits.js';
import { named, names, NOW, sourceOf } from './template-results.mjs';

process.env.TZ = 'UTC';
mock.timers.enable({ apis: ['Date'], now: NOW });

const read = name => readFileSync(new URL(`../vectors/jinja2/${name}`, import.meta.url), 'utf8').trimEnd();
const unescaped = text => text.replace(/\\x(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));

/** @param {string} source @param {Record<string, any>} variables */
function rendered(source, variables) {
  try {
    return { text: renderBounded(source, structuredClone(variables)) };
  } catch (error) {
    return { error: error.message };
  }
}

/** What the engine in JavaScript does not know.  A template with it is an error that names it. */
const UNKNOWN = new RegExp(['statement type: (with|raw)', 'got UnaryOperator', 'Expected closing statement token',
  'loop\\.(changed|depth)', 'operator "%" between', 'partition\\(\\)', 'ObjectValue filter: sort'].join('|'));

test('160 templates that llama.cpp does not have: the text is jinja2\'s, or an error names what is not known', () => {
  const conversations = JSON.parse(read('conversations.json'));
  let source = '', at = 0, equal = 0, templates = 0;
  for (const line of read('cases.tsv').split('\n')) {
    if (line.startsWith('T\t')) {
      source = unescaped(line.slice(2));
      templates++;
      at = 0;
      continue;
    }
    const wanted = unescaped(line), { text, error } = rendered(source, conversations[at++].variables);
    if (error && UNKNOWN.test(error)) continue;
    if (wanted.startsWith('!')) assert.ok(error?.includes(wanted.slice(1)), `${source}: ${text ?? error}`);
    else assert.equal(text ?? error, wanted, source);
    equal++;
  }
  assert.equal(templates, 160);
  assert.ok(equal > 250, `only ${equal} texts are equal`);
});

test('what a loop prints before break and continue stays, and an iteration does not see the one before', () => {
  const [first, ...lines] = read('language.tsv').split('\n'), variables = JSON.parse(first);
  let n = 0;
  for (const line of lines) {
    const [source, wanted] = line.split('\t').map(unescaped);
    if (wanted.startsWith('!') || !/\{% (for|macro)|\r/.test(source) || source.includes('varargs')) continue;
    const { text, error } = rendered(source, variables);
    if (error) continue;   // of something that is not known
    assert.equal(text, wanted, source);
    n++;
  }
  assert.ok(n > 25, `${n} templates`);
});

test('70 templates of 401 messages equal jinja2\'s, and the limits grow with the messages', () => {
  const conversations = read('long.json').split('\n').map(line => JSON.parse(line));
  /** With calls only one, because they take seconds. */
  const rows = read('long.tsv').split('\n').map(line => line.split('\t'))
    .filter(([name, i]) => i === '0' || name === 'deepseek-ai-DeepSeek-V3.2');
  assert.equal(rows.length, names.length + 1);
  for (const [name, i, wanted] of rows) {
    if (wanted.startsWith('!')) continue;
    const { text, error } = rendered(patched(sourceOf(name)), conversations[Number(i)]);
    assert.equal(text === undefined ? error : named(text), wanted, name);
  }
  assert.deepEqual(limitsFor({}), LIMITS);
  assert.ok(limitsFor({ messages: Array(401) }).steps > 1e6);
  assert.deepEqual(limitsFor({ messages: Array(1e6) }), limitsFor({ messages: Array(4096) }));
});
