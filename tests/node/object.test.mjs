/** Answers that are values of schemas.  Ground truth: ajv, JSON.parse and RegExp of JavaScript on the answers. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Ajv from 'ajv/dist/2020.js';
import { Plumb } from '../../web/node/index.js';
import { partialValue } from '../../web/api/object.js';
import { fails, repeats, textOf } from './helpers.mjs';
import { smallPath } from './small.mjs';

let model;
before(async () => { model = await Plumb.load(smallPath); });
after(() => model.close());

const ajv = new Ajv({ strict: false });
const hot = { temperature: 1.5, topP: 1, minP: 0, maxTokens: 160 };
const PERSON = /** @type {const} */ ({
  type: 'object', additionalProperties: false, required: ['name', 'age', 'tags'],
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 12 }, age: { type: 'integer', minimum: 0, maximum: 130 },
    tags: { type: 'array', maxItems: 3, items: { enum: ['red', 'green', 'blue'] } },
  },
});
const SCHEMAS = [
  PERSON, { enum: ['yes', 'no', null, 7] },
  { type: 'array', minItems: 2, maxItems: 3, items: { type: 'integer', multipleOf: 5, minimum: -20, maximum: 20 } },
  { anyOf: [{ type: 'boolean' }, { type: 'string', pattern: '^[a-f]{2,4}$' }] },
  { $ref: '#/$defs/list', $defs: { list: { type: 'object', additionalProperties: false, required: ['n'],
    properties: { n: { type: 'integer', minimum: 0, maximum: 99 }, next: { $ref: '#/$defs/list' } } } } },
];

test('at temperature 1.5 every whole answer is valid by ajv, for several schemas, seeds and kinds of white space',
  async () => {
    let tried = 0, whole = 0;
    for (const [i, schema] of SCHEMAS.entries()) {
      const isValid = ajv.compile(schema);
      for (const [seed, whitespace] of ['compact', 'free', 'pretty'].entries()) {
        if (!repeats(i + seed)) continue;
        tried++;
        const text = await textOf(model.generate([{ role: 'user', content: 'Who are you?' }],
          { ...hot, schema, seed, schemaOptions: { whitespace } }));
        if (model.lastStats.finishReason === 'length') continue;
        const value = JSON.parse(text);
        assert.ok(isValid(value), `${text}: ${ajv.errorsText(isValid.errors)}`);
        if (whitespace === 'compact') assert.equal(text, JSON.stringify(value));
        if (whitespace === 'pretty') assert.equal(text, JSON.stringify(value, null, 2));
        whole++;
      }
    }
    assert.ok(whole >= 0.8 * tried, `${whole} of ${tried} answers are whole`);
  });

test('regex and json: true; warnings of a schema that is not strict', async () => {
  assert.match(await textOf(model.generate('a', { ...hot, regex: String.raw`\d{4}-\d\d`, seed: 1 })), /^\d{4}-\d\d$/);
  assert.match(await textOf(model.generate('a', { ...hot, json: true, seed: 1, maxTokens: 1 })), /^\{/);
  const schema = { type: 'array', items: { type: 'integer' }, maxItems: 1, uniqueItems: true };
  const unique = { properties: { a: { type: 'array', items: { type: 'integer' }, uniqueItems: true } } };
  await textOf(model.generate('a', { ...hot, schema, seed: 1 }));
  assert.equal(model.lastStats.warnings, undefined);
  await fails(() => textOf(model.generate('a', { ...hot, schema: unique })), 'PLUMB_ERROR_UNSUPPORTED',
    /^\/properties\/a\/uniqueItems: /);
  await textOf(model.generate('a', { ...hot, schema: unique, schemaOptions: { strict: false }, seed: 1 }));
  assert.match(model.lastStats.warnings.join('\n'), /^\/properties\/a\/uniqueItems: /);
});

test('onToken says which tokens a grammar allowed: those that begin what may follow, sampled or forced', async () => {
  const texts = ['The answer is yes', 'The answer is no'], grammar = 'root ::= "The answer is " ("yes" | "no")';
  const tokens = [];
  const said = await textOf(model.generate('Is it?', { grammar, logprobs: 20, seed: 1,
    onToken: token => tokens.push(token) }));
  assert.ok(texts.includes(said));
  assert.equal(tokens.slice(0, -1).map(({ piece }) => piece).join(''), said);
  let at = 0, ruledOut = 0;
  for (const { piece, allowed, allowedTokens, top } of tokens.slice(0, -1)) {
    const rests = texts.filter(text => text.startsWith(said.slice(0, at))).map(text => text.slice(at));
    const beginnings = new Set(rests.flatMap(rest => Array.from(rest, (_, i) => rest.slice(0, i + 1))));
    const single = await Promise.all([...beginnings].map(text => model.tokenize(text, { addSpecial: false })));
    assert.equal(allowedTokens, single.filter(({ length }) => length === 1).length, `after ${said.slice(0, at)}`);
    for (const one of top) assert.equal(one.allowed, beginnings.has(one.piece), one.piece);
    ruledOut += top.filter(one => !one.allowed).length;
    assert.equal(allowed, true);
    at += piece.length;
  }
  assert.ok(tokens.length > 4 && ruledOut > 20);
  const [end] = tokens.slice(-1);
  assert.ok(end.allowed && end.allowedTokens < 10);
  assert.ok(end.top.every(({ allowed, piece }) => !allowed || /^<\|/.test(piece)));
  await textOf(model.generate('Is it?', { maxTokens: 2, onToken: token => tokens.push(token) }));
  assert.ok(tokens.length > 2 && !('allowedTokens' in tokens.at(-1)) && !('allowed' in tokens.at(-1)));
});

test('an option that is wrong is an error that says what is', async () => {
  for (const [options, message] of [
    [{ grammar: 'root ::= "a"', regex: 'a' }, /give only one of grammar and regex/],
    [{ schemaOptions: {} }, /schemaOptions needs a schema/],
    [{ schema: 7 }, /schema is 7, expected a JSON Schema or a Standard Schema/],
    [{ json: false }, /json is false, expected true/],
    [{ json: true, schemaOptions: { order: 'sorted' } }, /order \('schema' or 'any'\)/],
    [{ schema: { type: 'strin' } }, /^\/type: /],
    [{ schema: { '~standard': { vendor: 'arktype' } } }, /the schema of arktype gives no JSON Schema/],
    [{ regex: 'a(' }, /./],
  ]) await fails(() => textOf(model.generate('a', options)), 'PLUMB_ERROR_ARGUMENT', message);
  await fails(() => textOf(model.generate('a', { regex: '(a)\\1' })), 'PLUMB_ERROR_UNSUPPORTED', /back-reference/);
});

test('chat.object gives the value, and partial values while it grows; the answer is a message', async () => {
  const chat = model.chat();
  const answer = chat.object(PERSON, 'Describe a person.', { ...hot, seed: 3 });
  const partials = [];
  for await (const partial of answer) partials.push(partial);
  const value = await answer;
  assert.ok(ajv.validate(PERSON, value), JSON.stringify(value));
  assert.deepEqual(partials.at(-1), value);
  assert.ok(partials.length > 3);
  for (const [i, partial] of partials.entries()) {
    assert.ok(value.name.startsWith(partial.name ?? ''), JSON.stringify(partial));
    if (i > 0) assert.ok(Object.keys(partial).length >= Object.keys(partials[i - 1]).length);
  }
  assert.deepEqual(JSON.parse(chat.messages.at(-1).content), value);
  assert.deepEqual(await model.chat().object(PERSON, 'Describe a person.', { ...hot, seed: 3 }), value);
});

test('a chat tells the model the schema in the system message, unless showSchema is false; its messages do not change',
  async () => {
    const schema = { enum: ['yes', 'no'] }, question = { role: 'user', content: 'Is it?' };
    const shown = 'Answer only with JSON that is valid by this JSON Schema:\n{"enum":["yes","no"]}';
    const parts = [{ type: 'text', text: 'Be brief.' }];
    const length = async (...messages) => (await model.tokenizeChat([...messages, question])).length;
    const system = content => ({ role: 'system', content });
    for (const [before, options, expected] of [
      [[], { schema }, [system(shown)]],
      [[system('Be brief.')], { schema }, [system(`Be brief.\n\n${shown}`)]],
      [[system(parts)], { schema }, [system([...parts, { type: 'text', text: shown }])]],
      [[], { json: true }, [system('Answer only with a JSON object.')]],
      [[system('Be brief.')], { schema, showSchema: false }, [system('Be brief.')]],
      [[], { regex: 'yes|no' }, []],
    ]) {
      const chat = model.chat({ messages: before, ...options });
      await textOf(chat.send('Is it?', { ...hot, maxTokens: 3 }));
      assert.equal(chat.lastStats.promptTokens, await length(...expected), JSON.stringify([before, options]));
      assert.deepEqual(chat.messages.slice(0, -1), [...before, question]);
    }
    const chat = model.chat();
    await chat.object(schema, 'Is it?', { ...hot, showSchema: false });
    assert.equal(chat.lastStats.promptTokens, await length());
  });

test('chat.object: a cut answer is an error with what is known; so is a loop that is left', async () => {
  const chat = model.chat();
  const error = await chat.object(PERSON, 'Describe a person.', { ...hot, seed: 3, maxTokens: 5 }).then(
    () => assert.fail('it was not cut'), thrown => thrown);
  assert.equal(error.code, 'PLUMB_ERROR_TRUNCATED');
  assert.match(error.message, /allow more tokens/);
  assert.deepEqual(error.details.partial, partialValue(error.details.text));
  assert.equal(typeof error.details.partial, 'object');
  const answer = chat.object(PERSON, 'And another.', hot);
  for await (const _ of answer) break;
  await fails(() => answer.value, 'PLUMB_ERROR_STATE', /the loop was left/);
});

test('chat.object: a Standard Schema gives its JSON Schema, and checks the value', async () => {
  const isShort = { '~standard': { version: 1, vendor: 'test',
    jsonSchema: { input: ({ target }) => ({ $schema: `https://json-schema.org/${target.replace('-', '/')}/schema`,
      enum: ['ab', 'abc'] }) },
    validate: async value => value === 'ab' ? { value: { length: value.length } }
      : { issues: [{ message: 'it is too long', path: [{ key: 'a' }, 0] }] } } };
  const results = new Set();
  for (let seed = 0; seed < 8; seed++) {
    results.add(await model.chat().object(isShort, 'Say ab.', { ...hot, seed })
      .then(({ length }) => length, ({ code, message }) => `${code} ${message}`));
  }
  const refusal = 'chat.object: the value does not fit the schema: /a/0: it is too long';
  const expected = [2, `PLUMB_ERROR_ARGUMENT ${refusal}`];
  assert.ok(results.size > 0 && [...results].every(result => expected.includes(result)), [...results].join());
  const zod = { toJSONSchema: () => ({ const: 5 }) };
  assert.equal(await model.chat().object(zod, 'Five?', hot), 5);
});

test('partialValue: every beginning of a JSON text has the value of what is complete in it', () => {
  const text = '{"a\\"":[1,-2.5e3,true,{"b":null}],"c":"x\\n\\ud83d\\ude00y","d":{},"__proto__":[[]]}';
  for (let n = 0; n <= text.length; n++) assert.doesNotThrow(() => partialValue(text.slice(0, n)), text.slice(0, n));
  for (const [part, value] of [
    ['', undefined], ['"', ''], ['{', {}], ['{"a', {}], ['{"a":', {}], ['{"a":1', {}], ['{"a":1,', { a: 1 }],
    ['{"a":tru', {}], ['["x\\', ['x']], ['["x\\u00e', ['x']], ['["\\ud83d', ['']], ['["\\ud83d\\ude00', ['😀']],
    ['[[1,2],[3', [[1, 2], []]], ['{"a":[{"b":"c', { a: [{ b: 'c' }] }], ['[1]', [1]], ['["\\\\"', ['\\']],
  ]) assert.deepEqual(partialValue(part), value, part);
  assert.deepEqual(partialValue(text), JSON.parse(text));
  for (const [open, close] of [['[', ']'], ['{"a":', '}'], ['[1,{"b":[', ']}]']]) {
    for (const deep of [open.repeat(1e5), `${open.repeat(1e5)}2${close.repeat(1e5)}`]) {
      assert.ok(JSON.stringify(partialValue(deep)).length < 1e4);
    }
  }
});

test('response_format: json_schema and json_object, and the rules of strict', async () => {
  const ask = (json_schema, more = {}) => model.chat.completions.create({
    messages: [{ role: 'user', content: 'Describe a person.' }], seed: 3, temperature: 1.5, max_tokens: 160,
    response_format: { type: 'json_schema', json_schema }, ...more,
  });
  const { choices: [{ message, finish_reason }] } = await ask({ name: 'person', schema: PERSON, strict: true });
  assert.equal(finish_reason, 'stop');
  assert.ok(ajv.validate(PERSON, JSON.parse(message.content)), message.content);
  const { choices: [first] } = await ask(null, { response_format: { type: 'json_object' }, max_tokens: 2 });
  assert.match(first.message.content, /^\{/);
  const at = /response_format\.json_schema\.schema/;
  for (const [schema, message] of [
    [{ type: 'object', properties: { a: { type: 'object' } }, required: ['a'], additionalProperties: false },
      /schema\/properties\/a: strict: true requires additionalProperties: false/],
    [{ ...PERSON, required: ['name'] }, /strict: true requires all properties in required, but "age" is missing/],
    [{ type: 'array', items: { anyOf: [{ properties: {} }] } }, /schema\/items\/anyOf\/0: strict: true requires/],
  ]) {
    await fails(() => ask({ name: 'x', schema, strict: true }), 'PLUMB_ERROR_ARGUMENT', at);
    await fails(() => ask({ name: 'x', schema, strict: true }), 'PLUMB_ERROR_ARGUMENT', message);
  }
  await fails(() => ask({ schema: {} }), 'PLUMB_ERROR_ARGUMENT',
    /expected \{type: 'text'\}, \{type: 'json_object'\} or/);
});
