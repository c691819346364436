/** Closing a model frees its memory in each supported version of Node.  V8 does not count shared memory when it decides
 * whether to collect garbage, so freeing must not depend on garbage collection. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Plumb } from '../../web/node/index.js';
import { root, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';

const CYCLES = 12, EARLY = 5;
/** The newest of each line, from npm; process.execPath is the one that runs the tests. */
const NODES = [process.execPath, ...['22', '24'].map(line => `${root}node_modules/node-${line}/bin/node`)];

for (const node of NODES) {
  for (const worker of [undefined, false]) {
    const where = worker === undefined ? 'with default options' : `with worker: ${worker}`;
    // The other versions of Node are binaries for this platform.
    const skip = node !== process.execPath && `${process.platform} ${process.arch}` !== 'linux x64' && 'not linux x64';
    test(`${CYCLES} models closed ${where} free their memory: ${node.replace(root, '')}`, { skip }, async t => {
      const { stdout } = await promisify(execFile)(node, ['--input-type=module', '-e', `
        import { readFileSync } from 'node:fs';
        import { Plumb } from '${root}web/node/index.js';
        const held = [];
        for (let i = 0; i < ${CYCLES}; i++) {
          const model = await Plumb.load('${smallPath}', { worker: ${worker} });
          for await (const _ of model.generate('Hello', { maxTokens: 1 }));
          await model.close();
          held.push(Number(/VmRSS:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024);
        }
        console.log(JSON.stringify({ version: process.version, held }));`],
      { env: { ...process.env, NODE_OPTIONS: '' } });
      const { version, held } = JSON.parse(stdout);
      t.diagnostic(`${version}, MB after each: ${held.map((/** @type {number} */ mb) => mb.toFixed(0)).join(' ')}`);
      assert.equal(held.length, CYCLES);
      assert.ok(held[CYCLES - 1] <= 1.2 * held[EARLY - 1],
        `${held[EARLY - 1].toFixed(0)} MB after ${EARLY}, ${held[CYCLES - 1].toFixed(0)} MB after ${CYCLES}`);
    });
  }
}

test('what the engine creates for a call is freed when the call ends, however it ends', async t => {
  /** @type {Record<string, number>} */
  const live = { model: 0, session: 0, sampler: 0, matcher: 0 };
  const { instantiate } = WebAssembly;
  t.after(() => Object.assign(WebAssembly, { instantiate }));
  const counted = (/** @type {string} */ name, /** @type {any} */ of) => {
    const [, kind = '', what] = /^plumb_(?:wasm_)?(\w+)_(create|free)$/.exec(name) ?? [];
    return !kind ? of : (/** @type {number[]} */ ...args) => {
      live[kind] = (live[kind] ?? 0) + (what === 'create' ? 1 : args[0] ? -1 : 0);
      return of(...args);
    };
  };
  Object.assign(WebAssembly, { instantiate: async (/** @type {any} */ module, /** @type {any} */ imports) => {
    const { exports } = /** @type {any} */ (await instantiate(module, imports));
    return { exports: Object.fromEntries(Object.entries(exports).map(([name, of]) => [name, counted(name, of)])) };
  } });
  const model = await Plumb.load(tinyPath, { worker: false });
  const schema = { type: 'object', properties: { a: { type: 'string', maxLength: 4 } }, required: ['a'] };
  const stop = new AbortController();
  for (const options of [{}, { schema }, { stop: ['a', 'e'] }, { schema, signal: stop.signal }]) {
    for await (const _ of model.generate('One', { maxTokens: 8, ...options })) if (options.signal) stop.abort();
    for await (const _ of model.generate('Two', { maxTokens: 8, ...options })) break;
    // Grammars are kept.
    const counts = [live.model, live.session, live.sampler, live.matcher];
    assert.deepEqual(counts, [1, 1, 0, 0], Object.keys(options).join());
  }
  await model.close();
  assert.deepEqual([live.model, live.session], [0, 0]);
});
