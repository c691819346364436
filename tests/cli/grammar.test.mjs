/* plumb grammar, and run within a grammar.  Ground truth: JSON.parse and regular expressions of JavaScript. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { output, plumb, smol, temporary } from './plumb.mjs';

const json = 'tests/vectors/grammar/json.gbnf';

test('grammar check: a correct one, and what is wrong where', async () => {
  assert.equal(await output(['grammar', 'check', json]), 'correct\n');
  const broken = temporary('broken.gbnf', 'root ::= a\na ::= root "b"\n');
  const { code, out, err } = await plumb(['grammar', 'check', broken]);
  assert.deepEqual([code, out], [1, '']);
  assert.match(err, /broken\.gbnf: PLUMB_ERROR_ARGUMENT: line 1, column 1: left recursion: root -> a -> root\n$/);
  assert.equal((await plumb(['grammar', 'check', 'build/no-such-file'])).code, 3);
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
    ['{"a":\n  tru}', 'parts at byte 11, line 2, column 6, at "}"\nallowed here: "e"\n'],
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
