/** Properties of downloads and of kept copies, by fast-check.  Ground truth: the bytes of the files themselves.
 *
 * A server may do anything except lie: it may truncate answers, ignore ranges, hide headers, change the file, send less
 * or more than requested, or send errors.  But equal strong ETags and equal dates mean equal bytes, and Content-Range
 * is right.  Then every download gives one whole file of the server, or an error. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import fc from 'fast-check';
import { PlumbError } from '../../web/base/errors.js';
import { Download, StartOver } from '../../web/loader/download.js';
import { plumbOn, server, tiny, tinyPath } from './helpers.mjs';
import { Plumb } from '../../web/node/index.js';

const RUNS = Number(process.env.RUNS ?? 1500), seed = Number(process.env.SEED ?? 1);
const URL = 'https://models.example/m.gguf';
const body = (/** @type {number} */ n, /** @type {number} */ seed) =>
  Uint8Array.from({ length: n }, (_, i) => i * 31 + seed * 97 + (i >> 3));
const FILES = [body(60, 1), body(60, 2), body(47, 3)];
const DATES = ['Mon, 01 Jan 2024 00:00:00 GMT', 'Tue, 02 Jan 2024 00:00:00 GMT', 'Wed, 03 Jan 2024 00:00:00 GMT'];

const answers = fc.array(fc.record({
  file: fc.constantFrom(0, 0, 0, 1, 2),
  status: fc.constantFrom(200, 206, 206, 206, 206, 416, 304, 404, 500, 503, 204, 'none'),
  /** The content of a 206: the rest; a range from another place, labelled so; all bytes; a part of the rest. */
  holds: fc.constantFrom('rest', 'rest', 'rest', 'elsewhere', 'all', 'part'),
  range: fc.constantFrom('whole', 'whole', 'star', 'none', 'nonsense'),
  length: fc.boolean(), etag: fc.constantFrom('strong', 'strong', 'weak', 'none'), date: fc.boolean(),
  encoded: fc.constantFrom(false, false, false, true), cors: fc.boolean(),
  cut: fc.option(fc.nat(60)), extra: fc.constantFrom(0, 0, 0, 5), piece: fc.integer({ min: 1, max: 30 }),
}), { minLength: 1, maxLength: 9 });

/** @param {any} step @param {number} at  first byte that was asked for */
function answer({ file, status, holds, range, length, etag, date, encoded, cors, cut, extra, piece }, at) {
  if (status === 'none') throw new TypeError('fetch failed');
  const bytes = FILES[file];
  const from = status !== 206 || holds === 'all' ? 0 : holds === 'elsewhere' ? Math.max(0, at - 7) : at;
  const to = status === 206 && holds === 'part' ? Math.min(bytes.length, from + 9) : bytes.length;
  const headers = new Headers();
  if (etag !== 'none' && !cors) headers.set('ETag', `${etag === 'weak' ? 'W/' : ''}"${file}"`);
  if (date) headers.set('Last-Modified', DATES[file]);
  if (length && !encoded) headers.set('Content-Length', String(to - from));
  if (encoded && !cors) headers.set('Content-Encoding', 'gzip');
  if (status === 206 && !cors && range !== 'none') {
    headers.set('Content-Range', range === 'nonsense' ? 'bytes of it'
      : `bytes ${from}-${to - 1}/${range === 'star' ? '*' : bytes.length}`);
  }
  if (status === 416 && !cors) headers.set('Content-Range', `bytes */${bytes.length}`);
  // A decoded range of an encoded file is not the requested range.
  const content = encoded && status === 206 ? bytes : bytes.slice(from, to);
  const sent = new Uint8Array([...content, ...new Uint8Array(length ? 0 : extra * Number(status === 206))]);
  let i = 0;
  const stream = new ReadableStream({
    pull(controller) {
      if (cut !== null && i >= cut) controller.error(new Error('torn'));
      else if (i >= sent.length) controller.close();
      else controller.enqueue(sent.slice(i, i = Math.min(sent.length, cut ?? Infinity, i + piece)));
    },
  });
  const none = [204, 304].includes(Number(status));
  const response = new Response(none ? null : stream, { status: Number(status), headers });
  Object.defineProperty(response, 'type', { value: cors ? 'cors' : 'basic' });
  return response;
}

/** Downloads from a server with these answers. @param {any[]} steps @param {{at: number, facts: any}} [copy] */
async function download(steps, copy) {
  let i = 0;
  const real = globalThis.fetch;
  globalThis.fetch = /** @type {any} */ (async (/** @type {any} */ _, /** @type {any} */ { headers }) => {
    const at = Number(/\d+/.exec(headers.Range ?? '0')?.[0]), last = steps[steps.length - 1];
    // After its list of answers the server is gone, or behaves.
    const end = last.cors ? { ...last, status: 404 }
      : { ...last, status: at > 0 ? 206 : 200, holds: 'rest', range: 'whole', encoded: false, cut: null, extra: 0 };
    const step = i < steps.length ? steps[i++] : end;
    // An unrequested part ends a download: most servers then send everything.
    const all = step.status === 206 && headers.Range === undefined && step.piece % 8 > 0;
    return answer(all ? { ...step, status: 200 } : step, at);
  });
  const one = new Download({ url: URL, name: URL }, {
    signal: new AbortController().signal, pause: async () => {}, silence: () => new Promise(() => {}), checked: false,
    cache: 'no-store',
  });
  try {
    for (let pass = 0; pass < 20; pass++) {
      try {
        await one.open(pass === 0 && copy ? copy.at : 0, pass === 0 ? copy?.facts : undefined);
        const all = [...FILES[0].subarray(0, one.at)];   // a copy is of the first file
        for await (const chunk of one.chunks()) all.push(...chunk);
        return Uint8Array.from(all);
      } catch (error) {
        if (!(error instanceof StartOver)) throw error;
      }
    }
    throw new Error('it never ends');
  } finally {
    one.close();
    globalThis.fetch = real;
  }
}

/** The number of downloads that gave a file. */
let whole = 0;
beforeEach(() => { whole = 0; });
/** A minimum is checked, because errors alone would satisfy any property. */
const notOnlyErrors = () => assert.ok(whole > RUNS / 10, `only ${whole} of ${RUNS} downloads gave a file`);

/** One of the files, or an error of the package. @param {any[]} steps @param {{at: number, facts: any}} [copy] */
async function isRight(steps, copy) {
  const found = await download(steps, copy).catch(error => error);
  if (found instanceof Error) return assert.ok(found instanceof PlumbError, `${found.stack}`);
  whole++;
  // If no header gives the size of the file, extra bytes after it cannot be detected.
  assert.ok(FILES.some(file => Buffer.compare(file, found) === 0), `${found.length} bytes of no file: ${found}`);
}

test('any sequence of answers from a server gives one of its files or an error', async () => {
  await fc.assert(fc.asyncProperty(answers, steps => isRight(steps)), { numRuns: RUNS, seed });
  notOnlyErrors();
});

test('the same holds for a download that resumes a copy', async () => {
  await fc.assert(fc.asyncProperty(answers, fc.integer({ min: 1, max: 60 }), fc.boolean(), fc.boolean(), fc.boolean(),
    (steps, at, etag, date, certain) => isRight(steps, { at, facts: {
      size: 60, certain, etag: etag ? '"0"' : undefined, lastModified: date ? DATES[0] : undefined,
    } })), { numRuns: RUNS, seed });
  notOnlyErrors();
});

// ---- files stored with a copy ----

const copies = mkdtempSync(join(tmpdir(), 'plumb-properties-'));
after(() => rmSync(copies, { recursive: true, force: true }));

test('no bytes in the metadata, the slots or the file of a copy give a wrong model or a crash', async t => {
  process.env.PLUMB_CACHE = copies;
  const url = `${await server(t, (request, response) => {
    const from = Number(/\d+/.exec(request.headers.range ?? '0')?.[0]);
    if (from >= tiny.length) return void response.writeHead(416, { 'Content-Range': `bytes */${tiny.length}` }).end();
    response.writeHead(from > 0 ? 206 : 200, { ETag: '"one"', 'Content-Length': tiny.length - from,
      ...from > 0 && { 'Content-Range': `bytes ${from}-${tiny.length - 1}/${tiny.length}` } });
    response.end(tiny.subarray(from));
  })}m`;
  const plumb = plumbOn({ pause: async () => {}, silence: () => new Promise(() => {}) });
  const logits = async (/** @type {any} */ library, /** @type {any} */ source) => {
    const model = await library.load(source, { worker: false });
    const found = await model.feed([72, 101, 13, 255]);
    await model.close();
    return [...found];
  };
  const expected = await logits(Plumb, tinyPath);
  assert.deepEqual(await logits(plumb, url), expected);
  const name = readdirSync(copies).find(one => one.endsWith('.json'))?.slice(0, -5);
  const { readFileSync } = await import('node:fs');
  const good = JSON.parse(readFileSync(join(copies, `${name}.json`), 'utf8'));
  const slot = new Uint8Array(16);
  new DataView(slot.buffer).setFloat64(0, tiny.length);
  slot.set(Buffer.from(good.sums, 'hex'), 8);

  const meta = fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.json().map(text => Buffer.from(text)),
    // One or two keys of good metadata get any value; without digests the content of the file would be trusted.
    fc.record({ key: fc.constantFrom('url', 'complete', 'lastUsed', 'size', 'announced', 'etag', 'sha256', 'sums'),
      value: fc.oneof(fc.jsonValue(), fc.nat(), fc.constant(false), fc.constant(''), fc.constant('0'.repeat(16))) })
      .map(({ key, value }) => Buffer.from(JSON.stringify({ ...good, [key]: value }))),
    fc.constantFrom(good, { ...good, complete: false, sums: '' }, { ...good, complete: false, sums: '', size: 5 })
      .map(one => Buffer.from(JSON.stringify(one))));
  const bytes = fc.oneof(fc.constant(undefined), fc.constant(tiny),
    fc.nat(tiny.length).map(n => tiny.subarray(0, n)), fc.uint8Array({ maxLength: 200 }),
    fc.nat(tiny.length - 1).map(at => tiny.map((byte, i) => i === at ? byte ^ 4 : byte)));
  const slots = fc.oneof(fc.constant(undefined), fc.constant(slot), fc.uint8Array({ maxLength: 80 }),
    fc.nat(tiny.length).map(n => {
      const other = slot.slice();
      new DataView(other.buffer).setFloat64(0, n);
      return other;
    }));
  await fc.assert(fc.asyncProperty(meta, bytes, bytes, slots, async (meta, whole, part, slots) => {
    for (const one of readdirSync(copies)) rmSync(join(copies, one), { recursive: true });
    const put = (/** @type {string} */ kind, /** @type {Uint8Array | undefined} */ content) =>
      content && writeFileSync(join(copies, `${name}.${kind}`), content);
    put('json', meta);
    put('gguf', whole);
    put('x.part', part);
    put('x.sums', slots);
    await plumb.listCached();
    assert.deepEqual(await logits(plumb, url), expected);
    assert.deepEqual((await plumb.listCached()).map(({ complete, bytes }) => [complete, bytes]), [[true, tiny.length]]);
    assert.deepEqual(Buffer.compare(readFileSync(join(copies, `${name}.gguf`)), tiny), 0);
  }), { numRuns: Math.ceil(RUNS / 25), seed });
});
