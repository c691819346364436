// Writes suite-NAME.txt, the cases of the JSON Schema test suite, in lines:
//
//   # FILE: WHAT THE GROUP SHOWS
//   = SCHEMA
//   + AN INSTANCE THAT IS VALID
//   - ONE THAT IS NOT
//
//   node tests/vectors/grammar/suite.mjs FOLDER NAME [--formats]
//
// FOLDER: tests/draft7 or another of a checkout of github.com/json-schema-org/JSON-Schema-Test-Suite, or of
// node_modules/json-schema-test-suite.  Optional tests are left out but for those of formats, which make a suite of
// their own (with --formats).  Schemas and instances are written as JSON.stringify writes them.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';

const [folder, name, formats] = process.argv.slice(2);
const from = formats ? `${folder}/optional/format` : folder;
const lines = [];
for (const file of readdirSync(from).filter((f) => f.endsWith('.json')).sort()) {
  for (const group of JSON.parse(readFileSync(`${from}/${file}`, 'utf8'))) {
    lines.push(`# ${file}: ${group.description}`, `= ${JSON.stringify(group.schema)}`);
    for (const { data, valid } of group.tests) lines.push(`${valid ? '+' : '-'} ${JSON.stringify(data)}`);
  }
}
writeFileSync(new URL(`suite-${name}.txt`, import.meta.url), lines.join('\n') + '\n');
