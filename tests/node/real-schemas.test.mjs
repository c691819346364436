/** Schemas that npm packages ship: texts that their grammars give are valid.  Ground truth: ajv.  The instances that
 * are made without plumb are in json_schema_test.c. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import Ajv from 'ajv';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { byteGrammars, compiled } from './byte-grammars.mjs';
import { random as randomOf, repeats, root } from './helpers.mjs';

const lines = readFileSync(`${root}tests/vectors/grammar/suite-real.txt`, 'utf8').split('\n');
const schemas = lines.flatMap((line, i) => !line.startsWith('# ') ? []
  : [[line.slice(2), JSON.parse(lines[i + 1].slice(2))]]);

const grammars = await byteGrammars();

test('each text that the grammar of a real schema gives is valid by ajv', () => {
  let tried = 0, judged = 0;
  for (const [name, schema] of schemas) {
    if (/draft-04/.test(schema.$schema)) continue;   // ajv does not have it
    const isNew = /2020-12/.test(schema.$schema) || JSON.stringify(schema).includes('"unevaluatedProperties"');
    const ajv = new (isNew ? Ajv2020 : Ajv)({ strict: false, logger: false, meta: isNew, validateSchema: false });
    addFormats(ajv);
    const isValid = ajv.compile(schema), random = randomOf(name.length);
    let grammar;
    try {
      grammar = compiled(grammars, schema);
    } catch (error) {
      assert.match(error.message, /uniqueItems/, name);
      continue;
    }
    const isKept = grammar.warnings.every(warning => warning.endsWith(': unknown keyword, ignored'));
    for (let n = 0; n < 20; n++) {
      if (!repeats(n)) continue;
      tried++;
      const text = grammar.sample(random, 4000);
      if (text === undefined) continue;
      const yes = isValid(JSON.parse(text)) || !isKept;
      assert.ok(yes, `${name}: ${text.slice(0, 300)}: ${ajv.errorsText(isValid.errors)}`);
      judged++;
    }
  }
  assert.ok(judged > 100 && judged > 0.9 * tried, `${judged} of ${tried} texts`);
});
