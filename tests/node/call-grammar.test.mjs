/** Grammars of calls.  Ground truth: the calls of llama.cpp's tests/test-chat.cpp that its parsers read
 * (tests/vectors/toolcalls), and ajv on the arguments of calls that a model writes at temperature 1.5. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import Ajv from 'ajv/dist/2020.js';
import { Plumb } from '../../web/node/index.js';
import { AnswerReader } from '../../web/answers/answer.js';
import { callGrammar } from '../../web/answers/call-grammar.js';
import { byteGrammars, follow as followIn, randomText } from './byte-grammars.mjs';
import { fails, random, root, textOf } from './helpers.mjs';
import { smallPath } from './small.mjs';
import { formatOf, TEMPLATES } from './templates.mjs';

const { tools: TOOLS, cases } = JSON.parse(readFileSync(`${root}tests/vectors/toolcalls/cases.json`, 'utf8'));
const sourceOf = name => TEMPLATES.get(name) ?? assert.fail(`there is no template ${name}`);
let grammars;
before(async () => { grammars = await byteGrammars(); });
const follow = (grammar, text) => followIn(grammars, grammar, text);
const accepts = (grammar, text) => follow(grammar, text).every(Boolean);
const grammarOf = ({ template, prompt, tools }, options, change = tool => tool) =>
  callGrammar(formatOf(sourceOf(template)), tools.map(i => change(TOOLS[i])), { prompt, ...options }).grammar;

describe('llama.cpp\'s cases', () => {
  const own = cases.filter(one => one.tools.length > 0 && !one.continues && !one.schema);
  const called = own.filter(one => one.parsed.calls.length > 0 && !one.partial);
  const shown = ({ template, input }) => `${template}: ${input}`;
  /** Calls that llama.cpp's parsers read, but a grammar does not write. */
  const OTHERWISE = [
    // without the tags that end a call
    '<think>I need to call two functions<|tool_call_begin|>functions.special_function:0<|tool_call_argument_begin|>'
      + '{"arg1": 1}<|tool_call_begin|>functions.python:1<|tool_call_argument_begin|>{"code": "print(\'hey\')"}',
    '<|tool_call_begin|>functions.execute_command:0<|tool_call_argument_begin|>{"command": "ls -lah", "cwd": '
      + '"/home/user/development/exllamav3", "timeout": 10}',
    // Python's True inside an object
    '<|tool_call_start|>[set_config(config={"enabled": True, "count": 3})]<|tool_call_end|>',
  ];

  test('auto: every text with calls is accepted, with a few exceptions, and every text without', () => {
    const refused = own.filter(one => {
      const [all, mayEnd] = follow(grammarOf(one), one.input);
      return !all || !mayEnd && !one.partial;
    });
    assert.deepEqual([...new Set(refused.map(({ input }) => input))], OTHERWISE);
    assert.deepEqual([own.length, called.length, refused.length], [285, 268, 5]);
  });

  test('required: texts that begin with a call are accepted, and no text without a call', () => {
    let n = 0;
    for (const one of own.filter(({ partial }) => !partial)) {
      const accepted = accepts(grammarOf(one, { required: true }), one.input);
      if (one.parsed.content === '' && one.parsed.calls.length > 0 && !OTHERWISE.includes(one.input)) {
        assert.ok(accepted, shown(one));
        n++;
      } else if (one.parsed.calls.length === 0) assert.ok(!accepted, shown(one));
    }
    assert.equal(n, 224);
  });

  test('keywords that no format of calls can keep are left out with a warning, or are errors of strict tools', () => {
    const odd = [
      { type: 'string', pattern: '(?<=a)b' }, { type: 'string', minLength: 5, maxLength: 2 },
      { type: 'string', maxLength: 1e9 }, { type: 'array', minItems: 3, maxItems: 2 },
      { type: 'array', items: { type: 'string' }, minItems: 1e9 }, { type: 'array', maxItems: 'two' },
      { $ref: '#/%zz' }, { type: 'array', minItems: 1.5 },
    ];
    for (const template of new Set(own.map(one => one.template))) {
      for (const a of odd) {
        const made = strict => callGrammar(formatOf(sourceOf(template)), [{ type: 'function', function: {
          name: 'f', strict, parameters: { type: 'object', properties: { a, 'nul\0': {} }, required: ['a'] },
        } }], { required: true });
        const { grammar, warnings } = made(false), matcher = grammars.createMatcher(grammar);
        const all = [...warnings, ...matcher.warnings];
        matcher.free();
        if (a.$ref === undefined) assert.match(all.join('\n'), /^tool f\/properties\/a/m, `${template}: ${all}`);
        const message = /^tool f(\/properties\/a|: no value)/;
        if (a.$ref === undefined) assert.throws(() => grammars.createMatcher(made(true).grammar), { message });
      }
    }
  });

  test('one call at most, if calls are not parallel', () => {
    for (const one of called) {
      const { calls } = one.parsed, hasMore = one.input.endsWith('The time has been checked.');
      if (OTHERWISE.includes(one.input) || hasMore) continue;   // what follows the only call is not read
      assert.equal(accepts(grammarOf(one, { parallel: false }), one.input), calls.length === 1, shown(one));
    }
  });

  test('other names and arguments that do not fit are refused', () => {
    const renamed = ({ function: { name, ...rest } }) =>
      ({ type: 'function', function: { name: `${name}x`, ...rest } });
    const changed = ({ function: { name, parameters } }) => ({ type: 'function', function: { name, parameters: {
      ...parameters, properties: Object.fromEntries(Object.keys(parameters.properties ?? {}).map(key =>
        [key, { type: 'string', enum: ['nothing else'] }])) } } });
    const closed = ({ function: { name } }) => ({ type: 'function', function: { name } });
    for (const one of called) {
      const hasArguments = one.parsed.calls.every(([, given]) => given.trim() !== '{}');
      for (const change of [renamed, ...hasArguments ? [changed, closed] : []]) {
        assert.ok(!accepts(grammarOf(one, {}, change), one.input), `${change.name} ${shown(one)}`);
      }
    }
  });
});

const HERMES = 'In this template a call is <tool_call>', MISTRAL = 'tools, [TOOL_CALLS]', PLAIN = 'only tools';
const tool = (name, parameters, more) => ({ type: 'function', function: { name, parameters, ...more } });
const ADD = tool('add', { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer', minimum: 0 } },
  required: ['a'] });
const CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}';
for (const [what, source, accepted, refused] of [
  ['tags', HERMES, ['', 'Hi <tool_cal> there', `Well: <tool_call>${CALL}</tool_call>`, `\`\`\`json\n${CALL}\n\`\`\`\n`,
    `<tool_call>\n${CALL}\n</tool_call>\n<tool_call>${CALL}</tool_call> So.`, `[${CALL}, ${CALL}]`, '{"name": "Ada"}',
    `{${CALL}}`,
    '<tool_call>{"name":"add","arguments":{"b":0,"a":1}}</tool_call>', `<think>maybe</think>\n${CALL}`],
  ['<tool_call>', 'a <tool_call> b', '<tool_call>{"name": "sub", "arguments": {"a": 1}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"a": 1, "b": -2}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"a": 1, "c": 2}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"b": 2}}</tool_call>', `${CALL} is it`, `\`\`\`\n${CALL} `,
    `{${CALL}`, '{{"name": "add", "arguments": {}}}',
    '```json\n{"name": "add", "arguments": {"a": "1"}}\n```']],
  ['a mark', MISTRAL, [`[TOOL_CALLS][${CALL}]`, `[TOOL_CALLS] ${CALL}`, `See [1] [TOOL_CALLS][${CALL}]`, '[1, 2]'],
    ['[TOOL_CALLS]', `[TOOL_CALLS][${CALL}`, '[{"name": "add"}]']],
  ['nothing', PLAIN, [CALL, ` [${CALL}]`, '{"a": 1}', 'So: {"name": "add"}'],
    ['{"name": "add", "arguments": {}}', '{"type": "function", "name": "add"}', '{"id": 1, "name" : "add"}']],
]) {
  test(`free text until a call, with ${what} around calls`, () => {
    const { grammar, warnings } = callGrammar(formatOf(source), [ADD]);
    for (const text of accepted) assert.ok(accepts(grammar, text), text);
    for (const text of refused) assert.ok(!accepts(grammar, text), text);
    assert.deepEqual(warnings, []);
  });
}

test('a tool without parameters, or with empty ones, is called so in the format of every template', () => {
  const named = { type: 'object', required: ['in', 'list'], properties: {
    in: { type: 'object', properties: {} }, list: { type: 'array', items: { type: 'integer' }, maxItems: 0 },
  } };
  const tools = [tool('now'), tool('today', {}), tool('here', { type: 'object', properties: {} }),
    tool('there', { properties: {} }), tool('none', null), tool('deep', named)];
  const wanted = { now: {}, today: {}, here: {}, there: {}, none: {}, deep: { in: {}, list: [] } };
  for (const [template, source] of TEMPLATES) {
    const { grammar } = callGrammar(formatOf(source), tools, { required: true, parallel: false }), pick = random(3);
    const seen = new Set();
    for (let i = 0; i < 200 && seen.size < tools.length; i++) {
      const text = randomText(grammars, grammar, pick) ?? '', reader = new AnswerReader(formatOf(source), tools);
      reader.push(text);
      reader.end();
      for (const { function: { name, arguments: given } } of reader.message.tool_calls ?? []) {
        assert.deepEqual(JSON.parse(given), wanted[name], `${template}: ${text}`);
        seen.add(name);
      }
    }
    assert.equal(seen.size, tools.length, `${template}: ${[...seen]}`);
  }
  // Where the schema says so, or says nothing of members, there may be any.
  for (const open of [{ type: 'object' }, { type: 'object', properties: {}, additionalProperties: true }]) {
    for (const [source, text] of [[HERMES, '<tool_call>{"name": "t", "arguments": {"a": 1}}</tool_call>'],
      [TEMPLATES.get('Qwen3-Coder'), '<tool_call><function=t><parameter=a>\n1\n</parameter></function></tool_call>']]) {
      assert.ok(accepts(callGrammar(formatOf(source), [tool('t', open)]).grammar, text), text);
    }
  }
});

test('many long texts and large enums are bounded, in a syntax of its own and in JSON', () => {
  const values = Array.from({ length: 20000 }, (_, i) => `value ${i}`), text = { type: 'string', maxLength: 1000 };
  const properties = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`p${i}`, text]));
  const tools = [tool('t', { type: 'object', properties: { ...properties, e: { enum: values } }, required: ['p0'] },
    { strict: true })];
  const inXml = (p, e) => `<tool_call>\n<function=t>\n<parameter=p0>\n${p}\n</parameter>\n${e === '' ? ''
    : `<parameter=e>\n${e}\n</parameter>\n`}</function>\n</tool_call>`;
  const inJson = (p, e) => `<tool_call>\n${JSON.stringify({ name: 't', arguments: { p0: p, ...e !== '' && { e } } })}`
    + '\n</tool_call>';
  for (const [source, write] of [[TEMPLATES.get('Qwen3-Coder'), inXml], [HERMES, inJson]]) {
    const { grammar, warnings } = callGrammar(formatOf(source), tools, { required: true });
    assert.deepEqual(warnings, []);
    for (const [p, e, fits] of [['', '', true], ['é'.repeat(1000), 'value 19999', true], ['é'.repeat(1001), '', false],
      ['<'.repeat(999), 'value 0', true], ['a', 'value 20000', false], ['a', 'value 01', false]]) {
      assert.equal(accepts(grammar, write(p, e)), fits, write(p, e));
    }
  }
});

test('a schema that is too large is refused by its place', () => {
  const long = 'a text that is so long that many of them are too much for a grammar, however it is written';
  const parameters = { type: 'object', properties: { a: { type: 'string' },
    b: { enum: Array.from({ length: 60000 }, (_, i) => `${i}: ${long}`) } } };
  for (const source of [TEMPLATES.get('Qwen3-Coder'), HERMES]) {
    const { grammar } = callGrammar(formatOf(source), [tool('t', parameters, { strict: true })], { required: true });
    assert.throws(() => accepts(grammar, ''), ({ code, message }) => code === 'PLUMB_ERROR_UNSUPPORTED'
      && /^tool t\/properties\/b[:/]/.test(message), source === HERMES ? 'in JSON' : 'in XML');
  }
});

test('nullable of OpenAPI 3.0 adds null to a type, in every format of calls', () => {
  const formats = new Map([...TEMPLATES].map(one => [JSON.stringify(formatOf(one[1])), one]));
  for (const n of [{ type: 'boolean', nullable: true }, { type: 'array', items: { const: 1 }, nullable: true }]) {
    for (const [template, source] of formats.values()) readsNull(template, source, n);
  }
});

/** Calls of a tool whose argument n may be null. @param {string} template @param {string} source @param {object} n */
function readsNull(template, source, n) {
  const parameters = { type: 'object', additionalProperties: false, required: ['n'], properties: { n } };
  const isValid = new Ajv({ strict: false }).compile(parameters), tools = [tool('t', parameters)];
  const pick = random(5), one = { required: true, parallel: false };
  const { grammar, warnings } = callGrammar(formatOf(source), tools, one);
  assert.deepEqual(warnings, [], template);
  const seen = new Set();
  for (let i = 0; i < 300 && seen.size < 2; i++) {
    const text = randomText(grammars, grammar, pick) ?? '', reader = new AnswerReader(formatOf(source), tools);
    reader.push(text);
    reader.end();
    for (const { function: { arguments: given } } of reader.message.tool_calls ?? []) {
      assert.ok(isValid(JSON.parse(given)), `${template}: ${given}`);
      seen.add(JSON.parse(given).n === null);
    }
  }
  assert.equal(seen.size, 2, `${template}: ${JSON.stringify(n)}`);
}

test('reasoning comes before a required call only if the template knows it', () => {
  const text = `<think>a</think><tool_call>${CALL}</tool_call>`;
  for (const [source, isAccepted] of [[HERMES, false], [`${HERMES} <think>`, true]]) {
    const grammarFor = required => callGrammar(formatOf(source), [ADD], { required }).grammar;
    assert.equal(accepts(grammarFor(true), text), isAccepted);
    assert.ok(accepts(grammarFor(false), text) && accepts(grammarFor(true), text.slice(16)));
  }
});

test('no more reasoning is opened behind the first, before and between required calls', () => {
  const { grammar } = callGrammar(formatOf(`${HERMES} <think>`), [ADD], { required: true });
  const call = `<tool_call>${CALL}</tool_call>`, text = `<think>a</think>${call}`;
  assert.ok(accepts(grammar, `${text}\n${call}`) && accepts(grammar, text.replace('<tool', '</think><tool')));
  for (const more of ['<think>', '\n<think>', '<think></think>']) {
    assert.ok(!accepts(grammar, `<think>a</think>${more}${call}`) && !accepts(grammar, `${text}${more}${call}`), more);
  }
});

test('little can stand before a required call', () => {
  const { grammar } = callGrammar(formatOf(HERMES), [ADD], { required: true }), call = `<tool_call>${CALL}</tool_call>`;
  assert.ok(accepts(grammar, `\n\n${call}`) && accepts(grammar, `<response>\n${call}`));
  assert.ok(!accepts(grammar, `${'\n'.repeat(5)}${call}`) && !accepts(grammar, `${'<response>'.repeat(3)}${call}`));
});

test('what cannot be kept is left out with a warning, or an error if the tool is strict', () => {
  const list = { type: 'array', items: { type: 'integer' }, uniqueItems: true };
  const unique = { type: 'object', properties: { a: list } };
  const XML = '<tool_call><function=x><parameter=y>', LFM = '<|tool_list_start|>';
  const dated = { type: 'object', properties: { day: { type: 'string', format: 'date' } }, minProperties: 1 };
  const warningsOf = (source, parameters, more) => {
    const { grammar, warnings } = callGrammar(formatOf(source), [tool('t', parameters, more)]);
    const matcher = grammars.createMatcher(grammar);
    matcher.free();
    return [...warnings, ...matcher.warnings];
  };
  assert.match(warningsOf(HERMES, unique).join(), /^tool t\/properties\/a\/uniqueItems: /);
  assert.match(warningsOf(LFM, unique).join(), /^tool t\/properties\/a\/uniqueItems: /);
  assert.match(warningsOf(HERMES, { $ref: 'https://example.com/x' }).join(), /^tool t\/\$ref: /);
  assert.deepEqual(warningsOf(XML, dated).map(one => one.split(':')[0]),
    ['tool t/minProperties', 'tool t/properties/day/format']);
  for (const parameters of [unique, { $ref: 'https://example.com/x' }]) {
    assert.throws(() => warningsOf(HERMES, parameters, { strict: true }),
      { code: /PLUMB_ERROR_/, message: /^tool t\// });
  }
  assert.throws(() => warningsOf(XML, dated, { strict: true }), { code: 'PLUMB_ERROR_UNSUPPORTED' });
});

describe('SmolLM2, whose template has no tools, at temperature 1.5', () => {
  const WEATHER = tool('weather', { type: 'object', required: ['city', 'unit'], properties: {
    city: { type: 'string', maxLength: 8 }, unit: { enum: ['celsius', 'fahrenheit'] },
    days: { type: 'array', maxItems: 2, items: { type: 'integer', minimum: 0, maximum: 6 } },
  }, additionalProperties: false });
  const NOW = tool('now');
  const hot = { temperature: 1.5, topP: 1, minP: 0, maxTokens: 250 };
  const isWeather = new Ajv().compile(WEATHER.function.parameters);
  let model;
  before(async () => { model = await Plumb.load(smallPath); });
  after(() => model.close());
  const ask = async (toolChoice, options = {}) => {
    const chat = model.chat({ tools: [WEATHER, NOW], parallelToolCalls: false });
    await textOf(chat.send('How cold is it in Oslo?', { ...hot, toolChoice, ...options }));
    return { ...chat.messages.at(-1), reason: chat.lastStats.finishReason };
  };

  test('required and by name: the answer is a call that fits its schema', async () => {
    for (const [choice, seed] of [['required', 1], ['required', 2], [tool('weather'), 3], [tool('now'), 4]]) {
      const { tool_calls: [{ function: { name, arguments: given } }, ...more], content, reason } = await ask(choice,
        { seed });
      assert.deepEqual([content, more, reason], ['', [], 'stop']);
      if (choice !== 'required') assert.equal(name, choice.function.name);
      const value = JSON.parse(given);
      assert.ok(name === 'now' ? Object.keys(value).length === 0 : isWeather(value), given);
    }
  });

  test('tool_choice and parallel_tool_calls of OpenAI', async () => {
    const { choices: [{ message, finish_reason }] } = await model.chat.completions.create({
      messages: [{ role: 'user', content: 'How cold is it in Oslo?' }], tools: [WEATHER, NOW], seed: 5,
      temperature: 1.5, top_p: 1, min_p: 0, tool_choice: { type: 'function', function: { name: 'weather' } },
      parallel_tool_calls: false, max_tokens: 250,
    });
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.tool_calls.length, 1);
    assert.ok(isWeather(JSON.parse(message.tool_calls[0].function.arguments)));
  });

  test('a required call and another grammar exclude each other', async () => {
    await fails(() => ask('required', { json: true }), 'PLUMB_ERROR_ARGUMENT', /required call and json exclude/);
    await fails(() => ask(tool('rain')), 'PLUMB_ERROR_ARGUMENT', /the tool "rain", which is not in tools/);
  });

  test('triggers: free text until one of them, and then the schema, regex or grammar', async () => {
    for (const [seed, constraint, rest] of [
      [1, { schema: { type: 'array', items: { type: 'boolean' }, maxItems: 2 } },
        /^\[((true|false)(,(true|false))?)?\]$/],
      [2, { regex: '\\d{2}' }, /^\d\d$/],
      [3, { grammar: 'root ::= "(" [a-c] root? ")" # root\n' }, /^(\([a-c])+\)+$/],
      [4, { grammar: 'root ::= free rootx\nfree ::= freex\nfreex ::= "7"\nrootx ::= "8"' }, /^78$/],
    ]) {
      const text = await textOf(model.generate('a e', { ...hot, ...constraint, seed, triggers: ['e', '<x>'] }));
      const [, begin, end] = /^([^e]*)e([^]*)$/.exec(text) ?? assert.fail(`there is no e in ${text}`);
      assert.ok(!begin.includes('<x>'));
      if (model.lastStats.finishReason === 'stop') assert.match(end, rest);
    }
    await fails(() => textOf(model.generate('a', { triggers: ['e'] })), 'PLUMB_ERROR_ARGUMENT', /triggers needs/);
    await fails(() => textOf(model.generate('a', { json: true, triggers: [] })), 'PLUMB_ERROR_ARGUMENT', /not empty/);
  });

  test('a trigger that is a control token', async () => {
    const [id] = await model.tokenize('<|im_start|>', { parseSpecial: true, addSpecial: false });
    const text = await textOf(model.generate('a', { ...hot, regex: '[0-9]{3}', triggers: ['<|im_start|>'], seed: 1,
      special: ['<|im_start|>'], logitBias: { [id]: 100 } }));
    assert.match(text, /^<\|im_start\|>\d{3}$/);
  });
});
