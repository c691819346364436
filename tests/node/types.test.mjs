/** The package's JSDoc types hold under tsc --strict. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from './helpers.mjs';

const compiler = `${root}node_modules/typescript/bin/tsc`;

test('tsc --checkJs --strict finds no error in web/, and its declarations contain the API', t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-types-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const { stdout, status } = spawnSync(process.execPath, [compiler, '-p', `${root}web`, '--declaration',
    '--emitDeclarationOnly', '--outDir', folder], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['', 0]);
  const declared = ['plumb', 'session'].map(name => readFileSync(join(folder, `api/${name}.d.ts`), 'utf8')).join('');
  for (const name of ['load(', 'generate(', 'tokenize(', 'detokenize(', 'applyChatTemplate(', 'step(', 'close(']) {
    assert.ok(declared.includes(name), `${name} is missing`);
  }
});

test('the type of a schema is that of its values', t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-infer-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'infer.ts'), `
    import type { FromSchema, DeepPartial } from '${root}web/api/infer.js';
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
  `);
  const { stdout, status } = spawnSync(process.execPath, [compiler, '--noEmit', '--strict', '--allowJs', '--module',
    'nodenext', '--target', 'es2022', '--skipLibCheck', join(folder, 'infer.ts')], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['', 0]);
});
