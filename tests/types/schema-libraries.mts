/* The values of a schema, and the arguments of tools, have the types of the library that made the schema. */
import { z } from 'zod';
import * as v from 'valibot';
import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import type { Callables } from '../../web/index.js';
import type { Chat } from '../../web/api/chat.js';
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
declare const chat: Chat;
const zod = z.object({ name: z.string(), age: z.int().optional(),
  size: z.string().transform(text => text.length) });
const valibot = toStandardJsonSchema(v.object({ name: v.string(), age: v.optional(v.number()) }));
const arktype = type({ name: 'string', 'age?': 'number' });
const a = await chat.object(zod, ''), b = await chat.object(valibot, ''), c = await chat.object(arktype, '');
const isA: Same<typeof a, z.infer<typeof zod>> = true, isNumber: number = a.size;
const isB: Same<typeof b, { name: string; age?: number | undefined }> = true;
const isC: Same<typeof c, typeof arktype.infer> = true;
for await (const partial of chat.object(zod, '')) { const name: string | undefined = partial.name; name; }
// @ts-expect-error
a.unknown;
const json = { type: 'object', required: ['n'],
  properties: { n: { type: 'integer' }, s: { type: 'string', nullable: true } } } as const;
chat.run('', { maxSteps: 2, tools: {
  zod: { parameters: zod, execute: args => {
    const is: Same<typeof args, z.infer<typeof zod>> = true;
    return is;
  } },
  arktype: { schema: arktype, execute: async ({ age = 1 }) => age.toFixed() },
  json: { parameters: json, execute: ({ n, s }) => {
    const is: Same<typeof n, number> = true, more: Same<typeof s, string | null | undefined> = true;
    return [is, more];
  } },
  none: { execute: ({ anything }) => anything },
  wide: { parameters: { type: 'object' } as Record<string, unknown>, execute: ({ a }: { a: string }) => a },
} });
// @ts-expect-error
chat.run('', { tools: { a: { parameters: zod, execute: ({ size }) => size.length } } });
const tools: Callables = { a: { parameters: zod, execute: (args: { name: string }) => args.name } };
chat.run('', { tools });
export { isA, isB, isC, isNumber };
