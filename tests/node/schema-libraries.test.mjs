/** Schemas of Zod, Valibot and ArkType in chat.object.  Ground truth: these libraries, by whose checks the values go,
 * and their types. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import * as v from 'valibot';
import { z } from 'zod';
import { Plumb } from '../../web/node/index.js';
import { fails, root } from './helpers.mjs';
import { smallPath } from './small.mjs';

let model;
before(async () => { model = await Plumb.load(smallPath); });
after(() => model.close());

const hot = { temperature: 1.5, topK: 0, topP: 1, minP: 0, maxTokens: 200 };
const PEOPLE = {
  zod: z.object({ name: z.string().min(1).max(12), age: z.int().min(0).max(130),
    tags: z.array(z.enum(['red', 'blue'])).max(3).optional() }),
  valibot: toStandardJsonSchema(v.object({ name: v.pipe(v.string(), v.minLength(1), v.maxLength(12)),
    age: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(130)),
    tags: v.optional(v.pipe(v.array(v.picklist(['red', 'blue'])), v.maxLength(3))) })),
  arktype: type({ name: '1 <= string <= 12', age: '0 <= number.integer <= 130', 'tags?': "('red' | 'blue')[] <= 3" }),
};

for (const [name, schema] of Object.entries(PEOPLE)) {
  test(`${name}: every value passes the library's check, and the answer is its JSON`, async () => {
    for (let seed = 0; seed < 3; seed++) {
      const chat = model.chat();
      const value = await chat.object(schema, 'Describe a person.', { ...hot, seed });
      const { value: checked, issues } = await schema['~standard'].validate(JSON.parse(chat.messages.at(-1).content));
      assert.equal(issues, undefined);
      assert.deepEqual(value, checked);
      assert.ok(value.name.length > 0 && value.age >= 0 && value.age <= 130, JSON.stringify(value));
      assert.deepEqual(Object.keys(value).filter(key => !['name', 'age', 'tags'].includes(key)), []);
    }
  });
}

test('zod: formats, unions, tuples, records and recursion', async () => {
  const list = z.object({ id: z.int().min(0).max(9), get next() { return list.optional(); } });
  for (const [schema, isRight] of [
    [z.object({ email: z.email().max(20) }), ({ email }) => /^\S+@\S+\.[a-z]{2,}$/i.test(email)],
    [z.object({ day: z.iso.date() }), ({ day }) => !Number.isNaN(Date.parse(day))],
    [z.object({ id: z.uuid() }), ({ id }) => id.length === 36],
    [z.discriminatedUnion('kind', [z.object({ kind: z.literal('a'), n: z.int().min(1).max(5) }),
      z.object({ kind: z.literal('b'), s: z.string().max(5) })]),
    ({ kind, n, s }) => kind === 'a' ? n < 6 : s.length < 6],
    [z.tuple([z.boolean(), z.literal([1, 'x', null])]), pair => pair.length === 2 && [1, 'x', null].includes(pair[1])],
    [z.record(z.enum(['x', 'y']), z.number().min(0).lt(1)), ({ x, y }) => x >= 0 && x < 1 && y >= 0 && y < 1],
    [z.object({ price: z.number().multipleOf(0.01).min(0).max(100) }), ({ price }) => price <= 100],
    [list, function isList({ id, next }) { return id <= 9 && (next === undefined || isList(next)); }],
  ]) {
    const value = await model.chat().object(schema, 'Give an example.', { ...hot, seed: 1, maxTokens: 400 });
    assert.ok(isRight(value), JSON.stringify(value));
  }
});

test('zod: the value is what the schema makes of the JSON, and what it refuses is an error', async () => {
  const length = z.object({ word: z.enum(['one', 'three']).transform(text => text.length), n: z.int().default(7) });
  const { word, n } = await model.chat().object(length, 'Choose.', { ...hot, seed: 2 });
  assert.ok(word === 3 || word === 5);
  assert.equal(typeof n, 'number');
  const never = z.object({ word: z.enum(['one', 'three']) })
    .refine(() => false, { message: 'none is right', path: ['word'] });
  const answered = async schema => model.chat().object(schema, 'Choose.', hot);
  await fails(() => answered(never), 'PLUMB_ERROR_ARGUMENT', /\/word: none is right/);
  await fails(() => answered(z.object({ when: z.date() })), 'PLUMB_ERROR_ARGUMENT',
    /the schema gives no JSON Schema: Date cannot be represented/);
  await fails(() => answered(z.jwt().max(3)), 'PLUMB_ERROR_ARGUMENT',
    /the value does not fit the schema: \/: Invalid JWT/);
  await fails(() => answered(v.string()), 'PLUMB_ERROR_ARGUMENT', /valibot gives no JSON Schema/);
});

test('a template shows the parameters of tools as JSON Schema', async () => {
  const prompt = parameters => model.applyChatTemplate([{ role: 'user', content: 'Go.' }],
    { tools: [{ type: 'function', function: { name: 'f', parameters } }] });
  const { input } = PEOPLE.zod['~standard'].jsonSchema;
  assert.equal(await prompt(PEOPLE.zod),
    await prompt({ ...input({ target: 'draft-2020-12' }), additionalProperties: false }));
});
