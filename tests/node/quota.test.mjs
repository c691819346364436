/** How much the copies of all models may take: those that were not used for longest give way.  Ground truth: the files
 * of the folder. */
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseSize } from '../../web/base/sizes.js';
import { Store } from '../../web/loader/copy-store.js';
import { folder } from '../../web/node/cache-folder.js';
import { Plumb } from '../../web/node/index.js';
import { expected, files, load, noWaits, quick } from './downloads.mjs';
import { plumbOn, server, tiny } from './helpers.mjs';

afterEach(() => { delete process.env.PLUMB_CACHE_SIZE; });

/** A server of models; the parts of a split one have half of it each. */
async function models(t) {
  const stalled = [];
  const url = await server(t, (request, response) => {
    const path = request.url ?? '', half = tiny.length / 2;
    const [, part] = /-0000(\d)-of-00002/.exec(path) ?? [];
    const bytes = part === '1' ? tiny.subarray(0, half) : part === '2' ? tiny.subarray(half) : tiny;
    response.writeHead(200, { ETag: '"one"', ...!path.includes('unknown') && { 'Content-Length': bytes.length } });
    if (request.method === 'HEAD') return void response.end();
    if (!path.includes('stalls')) return void response.end(bytes);
    response.write(bytes.subarray(0, 1000));
    stalled.push(() => response.end(bytes.subarray(1000)));
  });
  return { url, stalled };
}
/** The names of the copies, the last used first. */
const names = async () => (await quick.listCached()).map(({ url }) => url.split('/').at(-1));
/** Loads after the clock has moved, so that each copy has its own time. */
async function use(url, options, plumb) {
  await sleep(3);
  const { logits, warnings } = await load(url, options, plumb);
  assert.equal(logits, expected);
  return warnings;
}

test('the copies that were not used for longest give way to a new one, and no more than needed', async t => {
  const { url } = await models(t);
  process.env.PLUMB_CACHE_SIZE = String(3 * tiny.length + 1000);
  for (const name of ['a', 'b', 'c']) assert.deepEqual(await use(url + name), []);
  await use(`${url}a`);
  assert.deepEqual(await names(), ['a', 'c', 'b']);
  assert.deepEqual(await use(`${url}d`, {}, Plumb), []);   // in a worker
  assert.deepEqual(await names(), ['d', 'a', 'c']);
  await use(`${url}c`);
  assert.deepEqual(await use(`${url}unknown`), []);   // its size is known at its end only
  assert.deepEqual(await names(), ['unknown', 'c', 'd']);
  await use(`${url}d`, { cache: 'reload' });   // replaces its own copy
  assert.deepEqual(await names(), ['d', 'unknown', 'c']);
  assert.equal(files().length, 6);
});

test('the parts of a split model go together, and none while the others are written', async t => {
  const { url } = await models(t), first = `${url}s-00001-of-00002.gguf`;
  process.env.PLUMB_CACHE_SIZE = String(2 * tiny.length + 1000);
  await use(first);
  await use(`${url}a`);
  assert.deepEqual((await names()).sort(), ['a', 's-00001-of-00002.gguf', 's-00002-of-00002.gguf']);
  await use(`${url}b`);
  assert.deepEqual(await names(), ['b', 'a']);
  process.env.PLUMB_CACHE_SIZE = String(tiny.length + 1000);
  assert.deepEqual(await use(first), []);
  assert.deepEqual((await names()).sort(), ['s-00001-of-00002.gguf', 's-00002-of-00002.gguf']);
  await quick.removeCached(first);
  process.env.PLUMB_CACHE_SIZE = String(tiny.length / 2 + 1000);
  const [{ message }] = await use(first);   // there is room for one part only
  assert.match(message, /s-00002-of-00002\.gguf: no copy is kept: it needs 0\.0 MB, but the copies/);
  assert.deepEqual(await names(), ['s-00001-of-00002.gguf']);
});

test('a copy that is being written stays, and so do all if there is not enough to remove', async t => {
  const { url, stalled } = await models(t);
  const writing = load(`${url}stalls`);
  while (!(await names()).includes('stalls')) await sleep(5);
  await use(`${url}a`);
  process.env.PLUMB_CACHE_SIZE = String(tiny.length + 2000);
  assert.deepEqual(await use(`${url}b`), []);   // instead of a
  assert.deepEqual(await names(), ['b', 'stalls']);
  process.env.PLUMB_CACHE_SIZE = String(tiny.length + 500);
  const [warning] = await use(`${url}c`);   // would also need the bytes of the copy that is written
  const tooLittle = /no copy is kept: it needs 0\.1 MB, but the copies of all models may take only 0\.1 MB$/;
  assert.match(warning.message, tooLittle);
  stalled[0]();
  assert.deepEqual(await writing, { logits: expected, warnings: [] });
  assert.ok((await names()).includes('stalls'));
  process.env.PLUMB_CACHE_SIZE = '50000';
  const before = await names();
  const [none] = await use(`${url}d`);
  assert.match(none.message, tooLittle);
  assert.deepEqual(await names(), before);   // nothing is removed in vain
});

test('PLUMB_CACHE_SIZE is a number of bytes with a unit; anything else is a warning', async t => {
  for (const [text, bytes] of [['1', 1], ['20G', 20 * 2 ** 30], ['1.5k', 1536], ['2mb', 2 ** 21], ['1T', 2 ** 40],
    ['', undefined], ['0', undefined], ['-1', undefined], ['G', undefined], ['1e9', undefined], ['1 G', undefined]]) {
    assert.equal(parseSize(text), bytes, text);
  }
  const { url } = await models(t);
  process.env.PLUMB_CACHE_SIZE = 'much';
  const [{ message }] = await use(`${url}a`);
  assert.match(message, /no copy is kept: PLUMB_CACHE_SIZE is "much", expected a number of bytes, such as 6G$/);
  assert.deepEqual(files(), []);
});

test('with a limit, copies also give way if the disk is full', async t => {
  const { url } = await models(t);
  const onDisk = (/** @type {number} */ limit) => plumbOn({ ...noWaits, store: new Store(async () =>
    ({ ...await folder(), room: async () => (await names()).includes('a') ? 1000 : 2 * tiny.length,
      limit: async () => limit })) });
  await use(`${url}a`, {}, onDisk(2 ** 40));
  const [without] = await use(`${url}b`, {}, onDisk(Infinity));
  assert.match(without.message, /there is room for 0\.0 MB; other cached models take 0\.1 MB/);
  assert.deepEqual(await names(), ['a']);
  assert.deepEqual(await use(`${url}b`, {}, onDisk(2 ** 40)), []);
  assert.deepEqual(await names(), ['b']);
});
