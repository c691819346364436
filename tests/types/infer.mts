/* The type of a JSON Schema is that of its values. */
import type { FromSchema, DeepPartial } from '../../web/api/infer.js';
const person = { type: 'object', required: ['name'], properties: { name: { type: 'string' },
  age: { type: 'integer' }, tags: { type: 'array', items: { enum: ['red', 'blue'] } },
  more: { anyOf: [{ type: 'null' }, { const: 3 }] } },
} as const;
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
type Flat<T> = { [K in keyof T]: T[K] };
type Person = Flat<FromSchema<typeof person>>;
const a: Same<Person, { name: string; age?: number; tags?: ('red' | 'blue')[]; more?: 3 | null }> = true;
const b: Same<FromSchema<{ type: ['string', 'null'] }>, string | null> = true;
const c: Same<FromSchema<{ '~standard': { types?: { input: string; output: Date } } }>, Date> = true;
const d: Same<FromSchema<true>, unknown> = true;
const e: DeepPartial<Person> = {};
// @ts-expect-error
const f: Person = { name: 7 };
export { a, b, c, d, e, f };
