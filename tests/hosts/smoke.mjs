/** The basic uses of plumb in a page, in any browser of tests/hosts/browser.mjs.  Ground truth: llama.cpp's token ids
 * (tests/vectors/llama/prompts.json), and the requests that the model's server saw. */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { prompts, root } from '../node/helpers.mjs';

const REAL = '/models/SmolLM2-135M-Instruct.Q4_1.gguf', TINY = '/tests/vectors/synth/f32.gguf';
const [, chat] = prompts;

/** A server of one file for pages of any origin.  It records each request, and while `stalls` is set it stalls halfway.
 * @param {string} path */
async function modelServer(path) {
  const file = readFileSync(path), state = { seen: /** @type {string[]} */ ([]), stalls: false };
  const http = createServer((request, response) => {
    state.seen.push(`${request.method} ${request.headers.range ?? ''}`.trim());
    response.writeHead(200, { 'Content-Length': file.length, 'Access-Control-Allow-Origin': '*',
      'Cross-Origin-Resource-Policy': 'cross-origin', 'Last-Modified': 'Mon, 01 Jan 2024 00:00:00 GMT' });
    if (state.stalls) response.write(file.subarray(0, file.length / 2));
    else response.end(file);
  });
  await new Promise(resolve => http.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (http.address());
  return Object.assign(state, {
    url: `http://127.0.0.1:${port}/model.gguf`,
    close() {
      http.close();
      http.closeAllConnections();
    },
  });
}

/** @param {string} name
 * @param {() => Promise<import('./browser.mjs').Browser>} launch
 * @param {object} expected
 * @param {boolean} [expected.shares]  whether isolated pages have SharedArrayBuffer; undefined: what the browser says
 * @param {RegExp} [expected.noCopy]  why no copy of a download is kept; undefined: it is */
export function smoke(name, launch, { shares, noCopy }) {
  describe(name, () => {
    let browser, site, plain, models;
    before(async () => {
      [site, plain, models] = [await serve({ root, home: '/web/chat/' }), await serve({ root, headers: {} }),
        await modelServer(`${root}${TINY}`)];
      browser = await launch();
    });
    after(async () => {
      await browser?.close();
      models?.close();
      await Promise.all([site?.close(), plain?.close()]);
    });

    /** A document of the package's origin with no code of its own. @param {{url: string}} [where] */
    async function open(where = site) {
      await browser.open(`${where.url}README.md`);
      await browser.evaluate(async () => {
        const { Worker } = globalThis;
        globalThis.workers = [];
        globalThis.Worker = class extends Worker {
          constructor(url, options) {
            super(url, options);
            globalThis.workers.push(new URL(url).pathname);
          }
        };
        globalThis.Plumb = (await import('/web/index.js')).Plumb;
        /** Decodes n tokens greedily. */
        globalThis.choices = async (model, ids, n) => {
          await model.rewind();
          const chosen = [];
          for (let logits = await model.feed(ids); ; logits = await model.step(chosen.at(-1))) {
            chosen.push(logits.reduce((best, value, i, all) => value > all[best] ? i : best, 0));
            if (chosen.length === n) return chosen;
          }
        };
      });
    }

    test('the engine runs in a worker, with threads if the page is isolated and memory can be shared', async t => {
      for (const where of [site, plain]) {
        await open(where);
        const { isolated, has, threads, module, warnings, workers } = await browser.evaluate(async url => {
          globalThis.model = await Plumb.load(url, { threads: 2, cache: 'no-store' });
          const { threads, module } = await model.info();
          return { isolated: crossOriginIsolated, has: 'SharedArrayBuffer' in globalThis, threads, module, workers,
            warnings: model.warnings.map(({ code, message }) => `${code}: ${message}`) };
        }, REAL);
        t.diagnostic(`${browser.version}: ${module}, ${threads} threads`);
        assert.equal(isolated, where === site);
        if (isolated) assert.equal(has, shares ?? has);
        const why = !isolated ? /^threads: 1 thread: the page is not cross-origin isolated/
          : !has ? /^threads: 1 thread: this browser has no SharedArrayBuffer, although the page is cross-/ : null;
        assert.equal(threads, why ? 1 : 2);
        assert.match(module, why ? /^plumb(-relaxed)?$/ : /^plumb-mt(-relaxed)?$/);
        assert.equal(warnings.length, why ? 1 : 0, warnings.join());
        if (why) assert.match(warnings[0], why);
        const started = name => workers.filter(path => path === `/web/browser/${name}`).length;
        assert.deepEqual([started('engine-worker.js'), started('thread-worker.js')], [1, threads - 1], workers.join());
        if (where === plain) assert.deepEqual(await chosen(chat, 8), chat.f32.ids.slice(0, 8));
      }
    });

    const chosen = ({ ids }, n) => browser.evaluate(({ ids, n }) => choices(model, ids, n), { ids, n });
    test('a signal ends an answer, and the next answer is complete', async () => {
      await open();
      const { said, stats, text, expected } = await browser.evaluate(async ({ url, messages, ids }) => {
        const model = await Plumb.load(url, { threads: 2, cache: 'no-store' });
        const stop = new AbortController(), said = [];
        for await (const piece of model.generate('Once upon a time', { signal: stop.signal, temperature: 0 })) {
          said.push(piece);
          if (said.length === 3) stop.abort();
        }
        const stats = model.lastStats;
        let text = '';
        for await (const piece of model.generate(messages, { temperature: 0, maxTokens: 8 })) text += piece;
        return { said, stats, text, expected: await model.detokenize(ids) };
      }, { url: REAL, messages: chat.messages, ids: chat.f32.ids.slice(0, 8) });
      assert.ok(said.length >= 3, `${said.length} pieces`);
      assert.equal(stats.finishReason, 'abort');   // it would continue for 2000 tokens
      assert.equal(text, expected);
    });

    test('a signal ends a load while no bytes arrive, and the next load succeeds', async () => {
      await open();
      models.stalls = true;
      const reason = await browser.evaluate(async url => {
        const stop = new AbortController();
        const onProgress = ({ bytes }) => bytes > 0 && stop.abort(new Error('enough'));
        return Plumb.load(url, { signal: stop.signal, onProgress, cache: 'no-store' }).then(() => 'loaded',
          ({ message }) => message);
      }, models.url);
      models.stalls = false;
      assert.equal(reason, 'enough');
      assert.equal(await browser.evaluate(async url => (await Plumb.load(url)).metadata['general.architecture'],
        models.url), 'llama');
    });

    test(noCopy ? 'no copy is kept, and a warning says why' : 'the second load sends no request', async () => {
      await open();
      await browser.evaluate(url => Plumb.removeCached(url).catch(() => {}), models.url);
      models.seen.length = 0;
      const load = () => browser.evaluate(async url => {
        const phases = new Set();
        const model = await Plumb.load(url, { threads: 1, onProgress: ({ phase }) => phases.add(phase) });
        const logits = [...await model.feed([72, 101, 13, 255])];
        await model.close();
        return { logits, phases: [...phases], warnings: model.warnings.map(({ message }) => message) };
      }, models.url);
      const first = await load(), second = await load();
      assert.deepEqual(second.logits, first.logits);
      const copies = await browser.evaluate(() => Plumb.listCached());
      if (noCopy) {
        for (const { warnings, phases } of [first, second]) {
          assert.deepEqual([warnings.length, phases], [1, ['download', 'prepare', 'ready']]);
          assert.match(warnings[0], noCopy);
        }
        assert.deepEqual(models.seen, ['GET', 'GET']);
        assert.deepEqual(copies, []);
      } else {
        assert.deepEqual([first.warnings, second.warnings], [[], []]);
        assert.deepEqual(second.phases, ['read', 'prepare', 'ready']);
        assert.deepEqual(models.seen, ['GET']);
        assert.deepEqual(copies.map(({ url, bytes, complete }) => ({ url, bytes, complete })),
          [{ url: models.url, bytes: statSync(`${root}${TINY}`).size, complete: true }]);
        assert.equal(await browser.evaluate(url => Plumb.removeCached(url), models.url), true);
        await load();
        assert.deepEqual(models.seen, ['GET', 'GET']);
      }
    });

    test('documents share an engine, and when the one that has it ends, an answer of the other goes on', async () => {
      await open();
      const { text, expected, module } = await browser.evaluate(async ({ url, messages, ids }) => {
        const load = async () => {
          const frame = document.createElement('iframe');
          frame.src = '/tests/hosts/page.html';
          document.body.append(frame);
          await new Promise(resolve => { frame.onload = resolve; });
          await frame.contentWindow.eval("import('/web/index.js').then(({ Plumb }) => { self.Plumb = Plumb; })");
          const model = await frame.contentWindow.Plumb.load(url, { shared: true, threads: 1, contextLength: 512 });
          return { frame, model };
        };
        const first = await load(), second = await load();
        let text = '';
        for await (const piece of second.model.generate(messages, { temperature: 0, maxTokens: ids.length })) {
          if (text === '') first.frame.remove();
          text += piece;
        }
        const { module } = await second.model.info(), expected = await second.model.detokenize(ids);
        second.frame.remove();
        return { text, expected, module };
      }, { url: REAL, messages: chat.messages, ids: chat.f32.ids.slice(0, chat.f32.first_end) });
      assert.match(module, /^plumb/);
      assert.equal(text, expected);
    });

    test('the chat page answers as llama.cpp does', async () => {
      await open();
      const answer = await browser.evaluate(async ({ url, ids }) => {
        localStorage['plumb.settings'] = JSON.stringify({ temperature: 0, threads: 2 });
        const model = await Plumb.load(url, { threads: 1, cache: 'no-store' });
        return model.detokenize(ids);
      }, { url: REAL, ids: chat.f32.ids.slice(0, chat.f32.first_end) });
      await browser.open(site.url);
      /** The page's state and the answer, once it is ready with an answer or without one, or cannot go on. */
      const ready = answered => browser.evaluate(async answered => {
        const { dataset } = document.body;
        const text = () => document.querySelector('#log > .assistant .text')?.textContent.trim() ?? '';
        const isThere = () => dataset.state === 'failed' || dataset.state === 'ready' && !!text() === answered;
        for (let i = 0; i < 2000 && !isThere(); i++) {
          await new Promise(resolve => setTimeout(resolve, 50));
        }
        return [dataset.state, text()];
      }, answered);
      assert.deepEqual(await ready(false), ['ready', '']);
      await browser.type('#prompt', `${chat.messages[0].content}\n`);
      assert.deepEqual(await ready(true), ['ready', answer]);
    });

    test('the gallery diagnoses a sample', async () => {
      await browser.open(`${site.url}web/examples/diagnose/`);
      const verdict = await browser.evaluate(async () => {
        const until = async what => {
          for (let i = 0; i < 2000 && !what(); i++) await new Promise(resolve => setTimeout(resolve, 50));
        };
        await until(() => !document.querySelector('main').inert);
        document.querySelectorAll('#samples button')[2].click();
        await until(() => document.querySelector('.verdict, .problem'));
        return document.querySelector('.verdict, .problem').textContent;
      });
      assert.match(verdict, /has no causal mask: it sees all keys of the batch, only in layer 2/);
    });
  });
}
