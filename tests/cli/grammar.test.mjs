/* plumb grammar, and run within a grammar, a JSON Schema or a regular expression.  Ground truth: JSON.parse and regular
 * expressions of JavaScript. */
import assert from 'node:assert/strict';
import { ids, native, output, plumb, smol, temporary, test } from './plumb.mjs';

const json = 'tests/vectors/grammar/json.gbnf';

test('grammar check: a correct one, and what is wrong where', async () => {
  assert.match(await output(['grammar', 'check', json]), /^correct\n/);
  const broken = temporary('broken.gbnf', 'root ::= a\na ::= root "b"\n');
  const { code, out, err } = await plumb(['grammar', 'check', broken]);
  assert.deepEqual([code, out], [1, '']);
  assert.match(err, /broken\.gbnf: PLUMB_ERROR_ARGUMENT: line 1, column 1: left recursion: root -> a -> root\n$/);
  assert.equal((await plumb(['grammar', 'check', 'build/no-such-file'])).code, 3);
});

test('grammar check: ambiguity, rules that are not used, samples', async () => {
  const sum = temporary('sum.gbnf', ['root ::= sum', 'sum ::= [0-9] | sum2 | endless', 'sum2 ::= [0-9] ("+" sum)?',
    'endless ::= "(" endless', 'unused ::= sum ")"', ''].join('\n'));
  const [, ...lines] = (await output(['grammar', 'check', sum, '-n', '5'])).trimEnd().split('\n');
  assert.deepEqual(lines.slice(0, 4), ['the rule endless derives no text of finite length',
    'the rule unused is not used: no text of root needs it', 'ambiguous: the rule root derives "0" in two ways',
    'samples:']);
  assert.match(lines.slice(4).join('\n'), /^(\d(\+\d)*\n){4}\d(\+\d)*$/);
  assert.match(await output(['grammar', 'check', '--regex', 'a(b|cd)*']), /unambiguous: no text of any length has two/);
  assert.match(await output(['grammar', 'check', '--json-schema', '{}']),
    /no ambiguity found: no text of a rule with fewer than \d{2} bytes has two derivations; longer ones/);
});

test('grammar sample: texts of the grammar, the same with the same seed', async () => {
  const args = ['grammar', 'sample', temporary('word.gbnf', 'root ::= [a-c]{2,4} ("-" root)?\n'), '-n', '20'];
  const texts = await output([...args, '--seed', '1']);
  assert.match(texts, /^([a-c]{2,4}(-[a-c]{2,4})*\n){20}$/);
  assert.ok(new Set(texts.trimEnd().split('\n')).size > 5);
  assert.equal(await output([...args, '--seed', '1']), texts);
  assert.notEqual(await output([...args, '--seed', '2']), texts);
});

test('grammar match: where a text parts, and what is allowed there', async () => {
  assert.equal(await output(['grammar', 'match', json, '{"a": [1, "b"]}']), 'matches\n');
  assert.equal(await output(['grammar', 'match', json, '-'], '{}'), 'matches\n');
  for (const [text, out] of [
    ['{"a":\n  tru}', 'parts at byte 11, line 2, column 6, at "}"\nallowed here: "e"\nin the rules: value\n'],
    ['{"a": 1', 'incomplete\n'],
    ['{}x', 'parts at byte 2, line 1, column 3, at "x"\nallowed here: the end of the text'],
  ]) {
    const result = await plumb(['grammar', 'match', json, text]);
    assert.deepEqual([result.code, result.out.slice(0, out.length), result.err], [1, out, '']);
  }
});

test('run --grammar and --gbnf: the answer is a text of the grammar', async () => {
  const common = ['run', smol, '-p', 'Who are you?', '-n', '60', '--temp', '1.5', '--seed', '3'];
  const file = temporary('person.gbnf',
    'root ::= "{\\"name\\": \\"" [A-Za-z ]{1,20} "\\", \\"age\\": " [1-9] [0-9]? "}"\n');
  const { name, age } = JSON.parse(await output([...common, '--grammar', file]));
  assert.match(`${name} ${age}`, /^[A-Za-z ]{1,20} [1-9][0-9]?$/);
  assert.match(await output([...common, '--gbnf', 'root ::= "yes" | "no"']), /^(yes|no)\n$/);
  const wrong = await plumb([...common, '--gbnf', 'root ::= (']);
  assert.equal(wrong.code, 1);
  assert.match(wrong.err, /line 1, column 11: expected a symbol or `\)`, found the end of the grammar/);
});

const person = JSON.stringify({
  type: 'object', properties: { name: { type: 'string', pattern: '^[A-Z][a-z]{2,8}$' }, age: { enum: [1, 22] } },
  required: ['name', 'age'], additionalProperties: false,
});
const tags = '{"type": "object", "additionalProperties": false, "properties": {"tags": {"uniqueItems": true}}}';
const refused = /PLUMB_ERROR_UNSUPPORTED: \/properties\/tags\/uniqueItems: uniqueItems is enforced only if/;

test('run --json-schema and --regex: the answer is valid', async () => {
  const common = ['run', smol, '-p', 'Who are you?', '-n', '60', '--temp', '1.5', '--seed', '3'];
  const isValid = ({ name, age, ...rest }) =>
    assert.match([name, age, ...Object.keys(rest)].join(), /^[A-Z][a-z]{2,8},(1|22)$/);
  const compact = await output([...common, '--json-schema', temporary('person.json', person)]);
  assert.match(compact, /^\{"name":"[^"]+","age":[0-9]+\}\n$/);
  isValid(JSON.parse(compact));
  const pretty = await output([...common, '--json-schema', person, '--whitespace', 'pretty']);
  isValid(JSON.parse(pretty));
  assert.equal(pretty, `${JSON.stringify(JSON.parse(pretty), null, 2)}\n`);
  isValid(JSON.parse(await output([...common, '--json-schema', '-', '--any-order'], person)));
  assert.match(await output([...common, '--regex', '[a-f]{3}-\\d{1,8}(?=5)5']), /^[a-f]{3}-\d{1,8}5\n$/);

  const strict = await plumb([...common, '--json-schema', tags]);
  assert.equal(strict.code, 1);
  assert.match(strict.err, refused);
  const lenient = await plumb([...common, '--json-schema', tags, '--no-strict']);
  assert.equal(lenient.code, 0);
  assert.match(lenient.err, /--json-schema: \/properties\/tags\/uniqueItems: uniqueItems is enforced only if/);
  assert.match((await plumb([...common, '--json-schema', 'build/no-such-file'])).err, /no-such-file: PLUMB_ERROR_IO: /);
  assert.match((await plumb([...common, '--regex', '(a)\\1'])).err, /PLUMB_ERROR_UNSUPPORTED: .*\\1/);
});

test('grammar: a JSON Schema or a regular expression in the place of a grammar', async () => {
  assert.match(await output(['grammar', 'check', '--json-schema', person]), /^correct\n/);
  assert.equal(await output(['grammar', 'match', '--json-schema', temporary('person.json', person),
    '{"name":"Ada","age":22}']), 'matches\n');
  const swapped = ['grammar', 'match', '--json-schema', '-', '{"age":1,"name":"Ada"}'];
  assert.equal(await output([...swapped, '--any-order'], person), 'matches\n');
  assert.equal((await plumb(swapped, person)).code, 1);
  const other = await plumb(['grammar', 'match', '--json-schema', person, '{"name":"ada"']);
  assert.deepEqual([other.code, other.out.split('\n').slice(0, 2)],
    [1, ['parts at byte 9, line 1, column 10, at "ada\\""', 'allowed here: "A" to "Z"']]);
  for (const line of (await output(['grammar', 'sample', '--json-schema', person, '-n', '9'])).trimEnd().split('\n')) {
    assert.match(line, /^\{"name":"[A-Z][a-z]{2,8}","age":(1|22)\}$/);
  }
  assert.match(await output(['grammar', 'sample', '--regex', '[a-c]+b', '-n', '5']), /^([a-c]+b\n){5}$/);
  const strict = await plumb(['grammar', 'check', '--json-schema', tags]);
  assert.deepEqual([strict.code, strict.out], [1, '']);
  assert.match(strict.err, refused);
  assert.match((await plumb(['grammar', 'check', '--regex', 'a)'])).err, /PLUMB_ERROR_ARGUMENT: character 2 of/);
});

test('run within a grammar: forced text is fed as its own tokens, and every host gives the same text', async () => {
  const long = '{"the only member of this object": [true, false, null], "état": "';
  const args = ['run', smol, '-p', 'Who are you?', '--temp', '1.5', '--seed', '3', '--gbnf',
    `root ::= ${JSON.stringify(long)} [a-z]{5} "\\", " ("x" | "y") " is the last one of all members\\"}"`];
  // All but the last, which could be merged with what follows.
  const own = ids(await output(['tokenize', smol, long, '--ids', '--no-special'])).slice(0, -1);
  assert.ok(own.length > 15);
  assert.deepEqual(ids(await output([...args, '--ids'])).slice(0, own.length), own);
  assert.deepEqual(ids(await output([...args, '--ids', '-n', '7'])), own.slice(0, 7));
  const text = await output(args);
  assert.equal(text.slice(0, long.length), long);
  assert.match(text.slice(long.length), /^[a-z]{5}", [xy] is the last one of all members"}\n$/);
  if (native) assert.equal(text, await output(args, '', native));
});
