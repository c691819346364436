/** Every string type of Zod 4 and every format of numbers: what its JSON Schema allows.  Ground truth: Zod itself, by
 * which each instance is judged, and each text that the grammar gives. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { jsonSchemaOf } from '../../web/answers/constraint.js';
import { byteGrammars, compiled } from './byte-grammars.mjs';
import { random as randomOf } from './helpers.mjs';

const grammars = await byteGrammars();

/** Types of strings with valid instances.  narrower: plumb writes fewer, as docs/grammars.md says.  looser: the JSON
 * Schema that Zod gives says less than Zod checks, so that an answer can fail its check. */
const STRINGS = {
  'string.startsWith': { type: z.string().startsWith('ab.'), valid: ['ab.', 'ab.c\nd'] },
  'string.endsWith': { type: z.string().endsWith('.md'), valid: ['.md', 'a/b.md'] },
  'string.includes': { type: z.string().includes('x+'), valid: ['x+', 'ax+b'] },
  'string.lowercase': { type: z.string().lowercase(), valid: ['', 'abc ü1'] },
  'string.uppercase': { type: z.string().uppercase(), valid: ['', 'ABC Ü1'] },
  'string.regex': { type: z.string().regex(/^[a-c]{2,4}$/), valid: ['ab', 'cccc'] },
  'string.length': { type: z.string().length(3), valid: ['abc', 'a\u{e9}"'] },
  'string of several': { type: z.string().startsWith('a').endsWith('b').includes('x').max(9), valid: ['axb', 'a-x-b'] },
  'string.nullable': { type: z.string().max(2).nullable(), valid: ['ab', null] },
  templateLiteral: { type: z.templateLiteral(['v', z.int().min(0), z.literal(['', '-rc'])]), valid: ['v1', 'v20-rc'] },
  base64: { valid: ['', 'YQ==', 'YWI=', 'YWJj'] },
  base64url: { valid: ['', 'YQ', 'YWI', 'YWJj', '-_-_'] },
  cidrv4: { valid: ['10.0.0.0/8', '255.255.255.255/32', '0.0.0.0/0'] },
  cidrv6: { valid: ['2001:db8::/32', '::/0', '::1/128'] },
  creditCard: { valid: ['4111111111111111', '5555555555554444'], looser: true },
  cuid: { valid: ['cjld2cjxh0000qzrmn831i7rn'] },
  cuid2: { valid: ['tz4a98xxat96iws9zmbrgj3a', 'a'] },
  currencyCode: { valid: ['EUR', 'USD'] },
  e164: { valid: ['+14155552671', '+4930123456'] },
  email: { valid: ['a@example.com', "o'b+c@mail.example.org"], narrower: true },
  emoji: { valid: ['😀', '👍🏽', '❤️', '🇩🇪'] },
  guid: { valid: ['00000000-0000-0000-0000-000000000001', 'A1E74DA9-FE91-5726-0928-96E6655C7FB9'] },
  'hash sha256': { type: z.hash('sha256'), valid: ['a'.repeat(64)] },
  'hash md5 base64': { type: z.hash('md5', { enc: 'base64' }), valid: ['1B2M2Y8AsgTpgAmY7PhCfg=='] },
  'hash sha1 base64url': { type: z.hash('sha1', { enc: 'base64url' }), valid: ['2jmj7l5rSw0yVb_vlWAYkK_YBwk'] },
  hex: { valid: ['', 'deadBEEF0'] },
  hostname: { valid: ['localhost', 'example.com', 'a-b.c.example.org'], narrower: true },
  httpUrl: { valid: ['https://example.com/', 'http://example.org/a?b=c#d'], narrower: true, looser: true },
  iban: { valid: ['DE89370400440532013000', 'GB82WEST12345698765432'], looser: true },
  ipv4: { valid: ['0.0.0.0', '192.168.1.255'] },
  ipv6: { valid: ['::', '::1', '2001:db8::8a2e:370:7334', '1:2:3:4:5:6:7:8'] },
  jwt: { valid: ['eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.YWJj'], looser: true },
  ksuid: { valid: ['0ujsszwN8NRY24YaXiTIE2VWDTS'] },
  mac: { valid: ['00:1A:2B:3C:4D:5E', '00:1a:2b:3c:4d:5e'] },
  nanoid: { valid: ['V1StGXR8_Z5jdHi6B-myT'] },
  stringFormat: { type: z.stringFormat('x', /^x+$/), valid: ['x', 'xxx'] },
  ulid: { valid: ['01ARZ3NDEKTSV4RRFFQ69G5FAV'] },
  url: { valid: ['https://example.com/a?b#c', 'mailto:a@example.com'], narrower: true, looser: true },
  uuid: { valid: ['f81d4fae-7dec-11d0-a765-00a0c91e6bf6', 'ffffffff-ffff-ffff-ffff-ffffffffffff'] },
  uuidv4: { valid: ['9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d'] },
  uuidv6: { valid: ['1ef21d2f-1207-6660-8c4f-419efbd44d48'] },
  uuidv7: { valid: ['017f22e2-79b0-7cc3-98c4-dc0c0c07398f'] },
  xid: { valid: ['9m4e2mr0ui3e8a215n4g'] },
  'iso.date': { valid: ['2024-02-29', '1999-12-31'] },
  'iso.time': { valid: ['23:59', '23:59:59', '00:00:00.123'] },
  'iso.datetime': { valid: ['2024-02-29T00:00:00Z', '1999-12-31T23:59:59.5Z'], narrower: true },
  'iso.datetime with offset': { type: z.iso.datetime({ offset: true }), valid: ['2024-02-29T00:00:00+01:00'],
    narrower: true },
  'iso.datetime, local': { type: z.iso.datetime({ local: true }), valid: ['2024-02-29T00:00:00'], narrower: true },
  'iso.duration': { valid: ['P1Y2M3DT4H5M6S', 'P3W', 'PT1H'], narrower: true },
};
const typeOf = name => name.split('.').reduce((value, key) => value[key], z)();

/** Strings that differ from a valid one in one place. @param {string} text @param {(n: number) => number} random */
function* mutations(text, random) {
  const chars = [...text], other = [...'0aAgGzZ9.-_:/+=@ \n"é😀'];
  const pick = list => list[random(list.length)];
  for (let n = 0; n < 24; n++) {
    const at = random(chars.length + 1), drop = n % 3 === 0 ? 0 : 1;
    yield [...chars.slice(0, at), ...n % 3 === 1 ? [] : [pick(other)], ...chars.slice(at + drop)].join('');
  }
  yield* [text + text, '', text.toUpperCase(), text.toLowerCase(), ` ${text}`, `${text}\n`];
}

test('the table has every type of strings that Zod has', () => {
  const names = [...Object.keys(z), ...Object.keys(z.iso).map(name => `iso.${name}`)].filter(name => {
    try {
      const made = typeOf(name);
      if (made instanceof Promise) made.catch(() => {});
      return made instanceof z.ZodStringFormat;
    } catch {   // no function, or one that needs arguments
      return false;
    }
  });
  assert.ok(names.length > 30);
  assert.deepEqual(names.filter(name => !Object.hasOwn(STRINGS, name)), []);
});

for (const [name, { type = typeOf(name), valid, narrower = false, looser = false }] of Object.entries(STRINGS)) {
  test(`zod: ${name}`, () => {
    const { matches, sample } = compiled(grammars, jsonSchemaOf('test', type)), random = randomOf(name.length);
    const isValid = value => type.safeParse(value).success;
    for (const one of valid) {
      assert.ok(isValid(one), `${one} is not valid by Zod`);
      assert.ok(matches(JSON.stringify(one)), `${one} is refused`);
      for (const other of [...one === null ? [] : mutations(one, random), 7, null]) {
        const allowed = matches(JSON.stringify(other)), expected = isValid(other);
        const wrong = allowed ? !looser && !expected : !narrower && expected;
        const verdicts = `${expected ? 'valid' : 'invalid'}, and ${allowed ? 'allowed' : 'refused'}`;
        assert.ok(!wrong, `${JSON.stringify(other)} is ${verdicts}`);
      }
    }
    for (let n = 0; n < 30 && !looser; n++) {
      const text = sample(random);
      assert.ok(text === undefined || isValid(JSON.parse(text)), `${text} is not valid by Zod`);
    }
  });
}

/** Numbers as texts, so that large integers are exact.  Those with more than 15 digits are written only if they are
 * integers between two bounds, and multiples have no exponent. */
const NUMBERS = ['0', '1', '-1', '0.5', '-0.25', '127', '128', '-128', '-129', '255', '256', '32767', '32768', '-32769',
  '65535', '65536', '2147483647', '2147483648', '-2147483648', '-2147483649', '4294967295', '4294967296',
  '9007199254740991', '-9007199254740991', '9223372036854775807', '9223372036854775808', '-9223372036854775808',
  '-9223372036854775809', '18446744073709551615', '18446744073709551616', '3.4e+38', '3.5e+38', '-3.5e+38', '1e+300',
  '"1"', 'null'];
/** Zod's types, and the formats of OpenAPI by the type that has the same values. */
const FORMATS = {
  number: { type: z.number() }, int: { type: z.int() }, int32: { type: z.int32(), format: 'integer' },
  uint32: { type: z.uint32(), format: 'integer' }, float32: { type: z.float32(), name: 'float', format: 'number' },
  float64: { type: z.float64(), name: 'double', format: 'number' },
  int64: { type: z.int64(), format: 'integer', isBig: true },
  uint64: { type: z.uint64(), format: 'integer', isBig: true },
  'min, max': { type: z.number().gt(0).max(128) }, multipleOf: { type: z.number().multipleOf(0.25).min(-1) },
  positive: { type: z.int().positive() }, nullable: { type: z.int32().nullable() },
};

for (const [name, { type, format, name: known = name, isBig = false }] of Object.entries(FORMATS)) {
  const schemas = [...isBig ? [] : [jsonSchemaOf('test', type)], ...format ? [{ type: format, format: known },
    { type: format, format: known, nullable: true }] : []];
  test(`zod: numbers: ${name}`, () => {
    const isValid = (text, schema) => schema.nullable && text === 'null'
      || type.safeParse(isBig && /^-?\d+$/.test(text) ? BigInt(text) : JSON.parse(text)).success;
    for (const schema of schemas) {
      const { matches, sample, warnings } = compiled(grammars, schema), random = randomOf(name.length);
      assert.deepEqual(warnings, []);
      for (const text of NUMBERS) {
        const allowed = matches(text), expected = isValid(text, schema);
        const isLong = text.replace(/\D/g, '').length > 15 && schema.type === 'number'
          || text.includes('e') && schema.multipleOf !== undefined;
        assert.ok(allowed === expected || !allowed && isLong, `${text} by ${JSON.stringify(schema)}: ${allowed}`);
      }
      for (let n = 0; n < 30; n++) {
        const text = sample(random);
        assert.ok(text === undefined || isValid(text, schema), text);
      }
    }
  });
}
