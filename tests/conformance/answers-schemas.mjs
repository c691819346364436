/** The schemas of answers.mjs: KINDS makes random ones from a seed, and `real` lists those of other programs. */
import { readdirSync, readFileSync } from 'node:fs';

/** Random numbers that depend on the seed alone: splitmix32.  `r(n)` is a whole number below n. @param {number} seed */
export function random(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ n) => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ z >>> 16, 0x21f0aaad);
    z = Math.imul(z ^ z >>> 15, 0x735a2d97);
    return ((z ^ z >>> 15) >>> 0) % n;
  };
}
/** @typedef {ReturnType<typeof random>} Random */

const one = (r, list) => list[r(list.length)];
const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));
/** n different elements of a list, in its order. */
const some = (r, list, n) => {
  const left = list.map((_, i) => i);
  while (left.length > n) left.splice(r(left.length), 1);
  return left.map(i => list[i]);
};

// ---- values that are neither objects nor arrays -----------------------------------------------------------------

const NAMES = ['name', 'age', 'city', 'id', 'kind', 'total price', 'größe', 'a/b~c', 'tags', 'is"quoted"', 'next', '数'];
const CONSTANTS = ['red', 'green', 'dark blue', 'naïve', '数学', 'a"b\\c', 'line\nend', '', '😀', 0, -1, 7, 1e21, 2.5,
  null, true, false, [], [1, 'x'], {}, { a: 1 }];
const PATTERNS = ['^[A-Z]{2}[0-9]{4}$', '^\\d{3}-\\d{2,4}$', '^(foo|bar)+$', '^#[0-9a-fA-F]{6}$', '^[^\\s]{1,8}$',
  '^v\\d+\\.\\d+(\\.\\d+)?$', '^(?=.{4,8}$)[a-z]+[0-9]*$', '^(?!no)[a-z]{2,6}$', 'a.{0,3}b$', '^\\w{1,10}$',
  '^[\\u00e0-\\u00ff]{1,4}$', '^\\p{Lu}\\p{Ll}{1,5}$', '^(a|b(c|d){2}){1,3}$', '^"[^"]{0,5}"$', '^[\\\\/]{1,3}$'];
/* uri-template is not among them: ajv-formats refuses names with dots, which RFC 6570 and the test suite have. */
const FORMATS = ['date', 'time', 'date-time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uri', 'uri-reference',
  'uuid', 'json-pointer', 'relative-json-pointer'];

const lengths = (r, schema = { type: 'string' }) => {
  const least = r(5);
  return { ...schema, minLength: least, maxLength: least + 1 + r(12) };
};
const whole = r => {
  const low = r(2000) - 1000;
  return { type: 'integer', [one(r, ['minimum', 'exclusiveMinimum'])]: low,
    [one(r, ['maximum', 'exclusiveMaximum'])]: low + 2 + r(10 ** (1 + r(5))) };
};
const decimal = r => {
  const low = (r(20000) - 10000) / 100, bounds = { type: 'number' };
  if (r(4) > 0) bounds[one(r, ['minimum', 'exclusiveMinimum'])] = low;
  if (r(4) > 0) bounds[one(r, ['maximum', 'exclusiveMaximum'])] = low + 0.5 + r(1000) / 10;
  return bounds;
};
const multiple = r => r(3) === 0
  ? { type: 'number', multipleOf: one(r, [0.5, 0.25, 0.1, 0.01]), minimum: -r(50), maximum: 50 + r(50) }
  : { type: one(r, ['integer', 'number']), multipleOf: one(r, [2, 3, 5, 7, 12, 16, 60, 100, 1000]),
    ...(r(2) ? { minimum: -r(300) } : {}), ...(r(2) ? { maximum: 1000 + r(5000) } : {}) };
const enumeration = r => ({ enum: some(r, CONSTANTS, 2 + r(6)) });
const pattern = r => ({ type: 'string', pattern: one(r, PATTERNS), ...(r(3) ? {} : { maxLength: 8 + r(10) }) });
const format = r => ({ type: 'string', format: one(r, FORMATS) });
const plain = r => one(r, [{ type: 'boolean' }, { type: 'null' }, { type: 'integer' }, { type: ['boolean', 'null'] }]);
const scalar = r => one(r, [lengths, lengths, whole, decimal, multiple, enumeration, pattern, format, plain])(r);

// ---- objects and arrays -----------------------------------------------------------------------------------------

const members = (r, n, value = scalar) => Object.fromEntries(some(r, NAMES, n).map(name => [name, value(r)]));
/** An object, of whose members some are required. */
const object = (r, n, value = scalar) => {
  const properties = members(r, n, value);
  const required = Object.keys(properties).filter(() => r(3) > 0);
  return { type: 'object', properties, ...(required.length ? { required } : {}), additionalProperties: false };
};
const nested = (r, depth = 1 + r(2)) => object(r, 1 + r(2), () => depth > 0 && r(2) ? nested(r, depth - 1) : scalar(r));
const array = (r, item = scalar) => {
  const least = r(3), schema = { type: 'array', minItems: least, maxItems: least + r(3) };
  if (r(3) === 0) Object.assign(schema, { prefixItems: times(1 + r(2), () => item(r)) });
  return { ...schema, items: r(4) ? item(r) : array(r, () => whole(r)) };
};

/** By its name, what makes a random schema of a kind. @type {Record<string, (r: Random) => any>} */
export const KINDS = {
  'nested objects': r => nested(r, 2),
  arrays: r => array(r),
  'enum and const': r => r(4) ? object(r, 2 + r(2), () => r(3) ? enumeration(r) : { const: one(r, CONSTANTS) })
    : enumeration(r),
  'integers with bounds': r => ({ type: 'array', items: whole(r), minItems: 1, maxItems: 5 }),
  'numbers with bounds': r => object(r, 1 + r(2), decimal),
  multipleOf: r => ({ type: 'array', items: multiple(r), minItems: 1, maxItems: 4 }),
  pattern: r => object(r, 1 + r(3), pattern),
  lengths: r => object(r, 1 + r(3), lengths),
  format: r => object(r, 1 + r(2), format),
  anyOf: r => ({ anyOf: times(2 + r(2), () => one(r, [scalar, array, nested])(r)) }),
  oneOf: r => r(2)
    ? { oneOf: [whole(r), whole(r), { type: 'integer', multipleOf: 2 + r(5) }, lengths(r)] }
    : { oneOf: times(2 + r(2), i => {
      const { properties, required = [] } = object(r, 1 + r(2));
      return { type: 'object', properties: { kind: { const: `k${i}` }, ...properties, type: { const: i } },
        required: ['type', ...required], additionalProperties: false };
    }) },
  allOf: r => r(2)
    ? { allOf: [{ type: 'string', minLength: 2 + r(3) }, { maxLength: 6 + r(6) }, { pattern: one(r, PATTERNS) }] }
    : { type: 'object', allOf: times(2 + r(2), i => {
      const schema = object(r, 1 + r(2));
      return { properties: schema.properties, required: schema.required ?? [], maxProperties: 3 + i };
    }), propertyNames: { enum: NAMES } },
  'recursive $ref': r => ({ $ref: '#/$defs/node', $defs: {
    leaf: scalar(r),
    node: { type: 'object', additionalProperties: false, required: ['v'], properties: { v: { $ref: '#/$defs/leaf' },
      ...(r(2) ? { next: { $ref: '#/$defs/node' } }
        : { children: { type: 'array', maxItems: 2, items: { $ref: '#/$defs/node' } } }) } },
  } }),
  'names of members': r => ({ type: 'object',
    patternProperties: Object.fromEntries(some(r, ['^x-[a-z]{1,4}$', '^\\d{1,3}$', '^[A-Z]', 'b$'], 1 + r(2))
      .map(name => [name, scalar(r)])),
    ...(r(2) ? { properties: members(r, 1 + r(2)) } : {}),
    ...(r(2) ? { additionalProperties: false } : { additionalProperties: whole(r), propertyNames: { maxLength: 6 } }),
    maxProperties: 1 + r(3) }),
  'numbers of members': r => {
    const schema = object(r, 3 + r(2)), names = Object.keys(schema.properties);
    return { ...schema, required: names.slice(0, 1), minProperties: 2, maxProperties: 3 + r(2),
      dependentRequired: { [one(r, names)]: [one(r, names)] } };
  },
  'if and not': r => r(2)
    ? { type: 'object', properties: { unit: { enum: ['C', 'F'] }, degrees: { type: 'integer' } },
      required: ['unit', 'degrees'], additionalProperties: false,
      if: { properties: { unit: { const: 'C' } } }, then: { properties: { degrees: whole(r) } },
      else: { properties: { degrees: whole(r) } } }
    : one(r, [{ ...whole(r), not: { multipleOf: 2 + r(4) } }, { ...lengths(r), not: { pattern: one(r, PATTERNS) } },
      { type: 'array', items: { ...lengths(r), not: { enum: ['', 'a', 'b'] } }, maxItems: 3 },
      { enum: CONSTANTS, not: { type: one(r, ['string', 'number', 'object', 'null']) } }]),
  'contains and uniqueItems': r => r(2)
    ? { type: 'array', items: enumeration(r), contains: { enum: [0, 'x', null, true] }, maxItems: 4 }
    : { type: 'array', uniqueItems: true, items: { enum: some(r, ['red', 'green', 'blue', 0, 1, null, true], 4) },
      minItems: r(3), maxItems: 4 },
  unevaluated: r => ({ type: 'object', properties: members(r, 1 + r(2)),
    anyOf: [{ properties: { left: scalar(r) }, required: ['left'] },
      { properties: { right: scalar(r) }, required: ['right'] }],
    dependentSchemas: { left: { properties: { more: plain(r) }, required: ['more'] } }, unevaluatedProperties: false }),
  'draft-07': r => ({ $schema: 'http://json-schema.org/draft-07/schema#', type: 'object', additionalProperties: false,
    definitions: { value: scalar(r) }, required: ['list'],
    properties: { list: { type: 'array', items: [{ $ref: '#/definitions/value' }, scalar(r)],
      additionalItems: r(2) ? false : whole(r), maxItems: 3 }, a: { $ref: '#/definitions/value' }, b: plain(r) },
    dependencies: { a: ['b'] } }),
  mixed: r => object(r, 2 + r(2), () => one(r, [scalar, scalar, array, nested,
    () => ({ anyOf: [scalar(r), array(r)] }), () => ({ allOf: [scalar(r), {}] })])(r)),
};

/** Schemas that other programs are configured by, which npm packages of this repository's tests contain.
 * @returns {{name: string, schema: any}[]} */
export function real() {
  const plugins = new URL('../../node_modules/webpack/schemas/plugins/', import.meta.url);
  return readdirSync(plugins, { recursive: true }).map(String).filter(name => name.endsWith('.json')).toSorted()
    .map(name => ({ name: `webpack ${name}`, schema: JSON.parse(readFileSync(new URL(name, plugins), 'utf8')) }))
    .filter(({ schema }) => !/^\.\.?\//.test(schema.$ref));
}
