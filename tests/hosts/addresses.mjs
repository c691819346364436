/** Modules with 64-bit addresses on any host that runs JavaScript: they compute what the others do, bit for bit, and a
 * load that finds its model too large for 32 bits goes on with one of them.  Ground truth: the modules with 32-bit
 * addresses. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { ggufHeader } from '../node/gguf.mjs';

const FILE = 'models/SmolLM2-135M-Instruct.Q4_1.gguf';
/** The shape of a model of 7 billion weights. */
const SHAPE = { layers: 32, embedding: 4096, feedForward: 14336, heads: 32, type: /** @type {const} */ ('Q4_K') };

/** A server of a file that is a header and zeros. @param {import('node:test').TestContext} t @param {Uint8Array} header
 * @param {number} size */
async function serverOf(t, header, size) {
  const server = createServer((request, response) => {
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? 'bytes=0-0').map(Number);
    const part = Buffer.alloc(last + 1 - first);
    Buffer.from(header.subarray(first, last + 1)).copy(part);
    response.writeHead(request.method === 'OPTIONS' ? 204 : 206, { 'Content-Range': `bytes ${first}-${last}/${size}`,
      'Access-Control-Allow-Origin': '*', 'Access-Control-Allow-Headers': '*', 'Access-Control-Expose-Headers': '*' });
    response.end(request.method === 'OPTIONS' ? undefined : part);
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  return `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}/`;
}

/** @param {string} name @param {() => Promise<import('./truth.mjs').Host>} start
 * @param {{wide: boolean, threads: number[]}} expected  wide: whether the host has memories with 64-bit addresses */
export function addresses(name, start, { wide, threads }) {
  describe(`${name}, 64-bit addresses`, () => {
    /** @type {import('./truth.mjs').Host} */
    let host;
    before(async () => { host = await start(); });
    after(() => host?.close());

    /** What a model computes in many ways. @param {object} options  of its load */
    const computed = options => host.evaluate(async ({ file, options }) => {
      const model = await Plumb.load(file, { cache: 'no-store', reserve: false, ...options });
      const hash = (/** @type {ArrayBufferView} */ { buffer, byteOffset, byteLength }) =>
        new Uint8Array(buffer, byteOffset, byteLength).reduce((sum, byte) => Math.imul(sum, 31) + byte | 0, 7);
      const text = async (/** @type {any} */ from, /** @type {object} */ how) => {
        let all = '';
        for await (const piece of from.generate('The capital of France', { maxTokens: 12, ...how })) all += piece;
        return all;
      };
      try {
        const seen = [];
        const ids = await model.tokenize('Once upon a time, there was a house at the end of the road.');
        seen.push(hash(await model.feed(ids)), hash(await model.step(260)));
        seen.push(hash(await model.embed('a text', { pooling: 'mean' })), await text(model, { seed: 5, logprobs: 3 }));
        seen.push(await text(model, { seed: 6, schema: { enum: ['red', 'green'] } }));
        await model.rewind();
        await model.feed(ids);
        const saved = await model.save();
        await model.rewind();
        await model.restore(saved);
        seen.push(hash(saved), hash(await model.step(300)));
        const sessions = await Promise.all([model.session(), model.session()]);
        seen.push(await Promise.all(sessions.map((one, i) => text(one, { temperature: 0.5 + i, seed: 7 }))));
        const { taps } = await model.trace(ids, { taps: 'l_out-*', values: 4 });
        seen.push(JSON.stringify(taps.map(({ rms, values }) => [rms, values])));
        const { module, threads, kernels, memoryBytes } = await model.info();
        return { seen, module, threads, kernels, memoryBytes };
      } finally {
        await model.close();
      }
    }, { file: host.locate(FILE), options });

    for (const n of wide ? threads : []) {
      test(`${n} threads compute the same bits`, async () => {
        const narrow = await computed({ threads: n }), other = await computed({ threads: n, memory64: true });
        assert.equal(other.module, n > 1 ? 'plumb-mt-64' : 'plumb-64');
        assert.doesNotMatch(narrow.module, /64/);
        assert.deepEqual([narrow.threads, other.threads], [n, n]);
        assert.deepEqual(other.seen, narrow.seen);
        // A context that needs more than 4 GiB: the load goes on in another module once it has read the header.
        const moved = await computed({ threads: n, contextLength: 200000 });
        assert.equal(moved.module, other.module);
        assert.ok(moved.memoryBytes < 2 ** 31);
        assert.deepEqual(moved.seen.filter((_, i) => i !== 5), narrow.seen.filter((_, i) => i !== 5));
      });
    }

    if (!wide) test('a host without them says what has them', async () => {
      const { code, message } = await host.evaluate(async file =>
        Plumb.load(file, { memory64: true }).catch(({ code, message }) => ({ code, message })), host.locate(FILE));
      assert.equal(code, 'PLUMB_ERROR_UNSUPPORTED');
      assert.match(message, /memory64: this host has no memory with 64-bit addresses, which Chrome .* Node from 24$/);
    });

    test('a model of 7 billion weights has a plan; a load of it reads on, or ends in an error', async t => {
      const { header, size } = ggufHeader(SHAPE);
      assert.ok(size > 4.1e9);
      const { plan, failed } = await host.evaluate(async ({ header, url }) => {
        const bytes = Uint8Array.from(atob(header), c => c.charCodeAt(0)), zeros = 100000;
        const pieces = [];
        for (let at = 0; at < bytes.length; at += 1000) pieces.push(bytes.slice(at, at + 1000));
        pieces.push(new Uint8Array(zeros));   // the beginning of the first tensor
        const stream = new ReadableStream({
          pull(controller) {
            const next = pieces.shift();
            if (next) controller.enqueue(next);
            else controller.close();
          },
        });
        const failed = await Plumb.load(stream, { threads: 1 }).then(() => undefined, error =>
          ({ code: error.code, message: error.message, end: bytes.length + zeros }));
        const plan = await Plumb.preflight(url, { threads: 1, measure: false, contextLength: 1024 });
        return { plan, failed };
      }, { header: Buffer.from(header).toString('base64'), url: await serverOf(t, header, size) });
      assert.deepEqual([plan.supported, plan.problems], [true, []]);
      assert.ok(plan.memory.weights > 4.1e9 && plan.memory.total > plan.memory.weights + plan.memory.kv);
      if (wide) {
        assert.deepEqual([plan.module, plan.fits], ['plumb-64', true]);
        assert.equal(plan.memory.limit, 2 ** 34);
        assert.equal(failed.code, 'PLUMB_ERROR_TRUNCATED', failed.message);
        assert.match(failed.message, new RegExp(`ends at byte ${failed.end}:`));   // nothing was lost
      } else {
        assert.deepEqual([/64/.test(plan.module), plan.fits], [false, false]);
        assert.equal(failed.code, 'PLUMB_ERROR_MEMORY');
        assert.match(failed.message, /^no memory for 4\d{9} bytes of weights /);
        assert.match(failed.message, /: a module can use at most 4294901760 bytes here; more needs /);
        assert.match(failed.message, / memory with 64-bit addresses, which Chrome has .* Node from 24; choose /);
      }
    });
  });
}
