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
  assert.deepEqual([templates, equal], [160, 260]);
});

/** What further is not known in the small templates. */
const UNKNOWN_IN_SMALL = new RegExp([UNKNOWN.source, 'is not a function that plumb knows', 'Unknown test: filter',
  'Unknown (String|Array|Object|Numeric)Value filter', 'operator "[<+]" between (Boolean|Array)Value',
  'Expected closing expression token', 'Unexpected token: CloseParen', 'Unexpected escaped character: 1',
  'a key of an object is of type (Null|Boolean)Value', 'Object key must be a string: got IntegerValue',
  'Slice stop must be numeric', '(width|attribute|sep argument|the separator) must be a',
  'items in map must be an object', 'Cannot compare type: ArrayValue',
  'Cannot apply filter "(join|default|int)" to type: (Object|Undefined|Null)Value',
  'format: \\{0\\} is not supported', 'range is a function', 'Invalid LHS .*FilterExpression'].join('|'));

/** Small templates, by how they begin, of which the engine in JavaScript makes other texts than jinja2. */
const DIFFERENT = {
  'numbers are doubles': ['{{ (100000000.5 * 10)|tojson }}', '{{ 9007199254740993 == 9', '{{ 9223372036854775807 }}'],
  'tuples print as lists': ['{{ (1, 2) }}', '{{ o|items|list|string }}', "{{ {'b': 1, 'a': 2}|dictsort|string }}",
    "{{ {'b': 1, 'a': 2}|dictsort(by='value')|string }}", "{{ {'b': 1, 'a': 2}|dictsort(reverse=true)|string }}",
    '{% macro f() %}{{ varargs }}{{ kwargs }}', '{% set a, c = 1, 2 %}{% set a, c = c, a %}'],
  'tojson takes an indent of 0 for none': ["{{ {'a': {'b': [1, 2.5, none]}}|tojson(indent=0) }}"],
  'int ignores the base and what is behind the digits': ["{{ ' -7x'|int }}", "{{ 'ff'|int(base=16) }}",
    "{{ '0x1f'|int(base=0) }}"],
  'the sign of what remains of a float': ['{{ 7 // 2 }} {{ -7 // 2 }}'],
  'a comment with + is stripped': ['a\n  {#+ c #}'],
  'what has no letters is upper': ["{{ 'AB' is upper }}{{ 'aB' is upper }}"],
  'what jinja2 refuses has a text': ['{{ 1 / 0 }}', "{{ 'a' + 1 }}", "{% for k, v in {'a': 1, 'bc': 'x'} %}",
    '{% set a = [1] %}{% set _ = a.append(2) %}', '{{ x.first }}', '{{ l[::0] }}'],
};

test('316 small templates: the text is jinja2\'s, or an error names what is not known, but for what is listed', () => {
  const [first, ...lines] = read('language.tsv').split('\n'), variables = JSON.parse(first);
  const different = Object.values(DIFFERENT).flat(), count = { equal: 0, unknown: 0, different: 0 };
  for (const line of lines) {
    const [source, wanted] = line.split('\t').map(unescaped), { text, error } = rendered(source, variables);
    if (error && UNKNOWN_IN_SMALL.test(error) && !wanted.startsWith('!')) {
      count.unknown++;
      continue;
    }
    const isEqual = wanted.startsWith('!') ? error !== undefined : text === wanted;
    const isListed = different.some(begin => source.startsWith(begin));
    assert.equal(isEqual, !isListed, `${source}: ${text ?? error}, expected ${wanted}`);
    count[isEqual ? 'equal' : 'different']++;
  }
  assert.deepEqual(count, { equal: 235, unknown: 58, different: different.length });
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
