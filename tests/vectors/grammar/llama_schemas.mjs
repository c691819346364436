// Writes suite-llama.txt: the schemas of llama.cpp's tests/test-json-schema-to-grammar.cpp (v0.5.0), with instances
// made of their own names and values at random (the seed is fixed), and the verdicts of ajv 8.20.0 on them.
//
//   npm install ajv@8.20.0
//   node tests/vectors/grammar/llama_schemas.mjs build/conformance/llama.cpp
//
// The format is that of suite.mjs.  Schemas that are no schemas by draft-07 and 2020-12 (prefixItems that is no list,
// unknown types) have no instances: they must be refused.
import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';

const require = createRequire(`${process.cwd()}/`);
const Ajv = require('ajv'), Ajv2020 = require('ajv/dist/2020');
const source = readFileSync(`${process.argv[2]}/tests/test-json-schema-to-grammar.cpp`, 'utf8');
const cases = /test\(\{\s*(?:SUCCESS|FAILURE),\s*"([^"]*)",\s*(?:R"""\((.*?)\)"""|"([^\n]*)"),/gs;

let seed = 1;
const random = (n) => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return Math.floor(seed / 2 ** 32 * n);
};
const plain = [null, true, false, 0, 1, 3, 9, 10, 25, 30, 31, 100, 207, 300, -1, -5, -10, -11, -123, -124, 42, 0.5,
  '', 'a', 'b', 'foo', 'abcd', 'abc', 'abbefgkl', 'abcefghijkl', '[]{}()|+*?', '"', '(555)555-1234 aaaaandxyz',
  'foobaz', 'ababcd', 'd', '123w', '12', 'a-b', 'red', 'A', 'C', 'D', ' \r \n " \\ ', [], {}];

// All names of properties and all values of enum and const in a schema.
function collect(value, names, values) {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    if (key === 'properties') for (const name of Object.keys(inner)) names.add(name);
    if (key === 'const') values.push(inner);
    if (key === 'enum') values.push(...inner);
    collect(inner, names, values);
  }
}

function instance(names, values, depth) {
  const kind = random(depth > 2 ? 2 : 4);
  if (kind < 2) return values[random(values.length)];
  if (kind === 2) return Array.from({ length: random(6) }, () => instance(names, values, depth + 1));
  const some = [...names].filter(() => random(2));
  return Object.fromEntries(some.map((name) => [name, instance(names, values, depth + 1)]));
}

const lines = [];
for (const [, name, raw, quoted] of source.matchAll(cases)) {
  const text = raw ?? JSON.parse(`"${quoted}"`);
  const schema = JSON.parse(text);
  lines.push(`# ${name}`, `= ${JSON.stringify(schema)}`);
  const lists = schema.items instanceof Array;
  let validate;
  try {
    const options = { strict: false, validateFormats: false, logger: false };
    validate = (lists ? new Ajv(options) : new Ajv2020(options)).compile(schema);
  } catch {
    continue;
  }
  const names = new Set(), values = [...plain], found = { true: new Set(), false: new Set() };
  collect(schema, names, values);
  names.add('other');
  const strings = values.filter((value) => typeof value === 'string'), numbers = values.filter(Number.isFinite);
  for (let i = 0; i < 6000 && (found.true.size < 12 || found.false.size < 12); i++) {
    const pool = [values, values, strings, numbers][random(4)];
    const value = i < plain.length ? plain[i] : instance(names, pool, 0);
    const set = found[validate(value)];
    if (set.size < 12) set.add(JSON.stringify(value));
  }
  for (const json of found.true) lines.push(`+ ${json}`);
  for (const json of found.false) lines.push(`- ${json}`);
}
writeFileSync(new URL('suite-llama.txt', import.meta.url), lines.join('\n') + '\n');
