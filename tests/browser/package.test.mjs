/** The package in a page of headless Chromium, the engine in its worker. Ground truth: llama.cpp's token ids
 * (tests/vectors), and the same logits however the bytes come. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { prompts, realPath, root, server as badServer, tiny } from '../node/helpers.mjs';

const REAL = '/models/SmolLM2-135M-Instruct.Q4_1.gguf', TINY = '/tests/vectors/synth/f32.gguf';
let server, browser, page;
before(async () => {
  server = await serve({ root });
  browser = await launchChrome(['--js-flags=--expose-gc']);
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const ISOLATED = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
/** Runs `run` in an empty page of the package's origin. */
async function blank(headers = ISOLATED) {
  page = await browser.newPage();
  await page.route('**/blank.html', route => route.fulfill({
    contentType: 'text/html',
    headers,
    body: '<!doctype html>',
  }));
  await page.goto(`${server.url}blank.html`);
  await page.evaluate(async () => {
    const { Plumb, PlumbError } = await import('/web/index.js');
    Object.assign(globalThis, {
      Plumb, PlumbError,
      logitsOf: async source => {
        const model = await Plumb.load(source);
        const logits = await model.feed([72, 101, 13, 255]);
        await model.close();
        return [...logits];
      },
      failureOf: async action => {
        try {
          await action();
          return { code: 'none' };
        } catch (error) {
          return { code: error.code, message: error.message, name: error.name, details: error.details };
        }
      },
    });
  });
  return page;
}

/** Workers must end within 1.5 s, that is by themselves: Chromium waits 2 s before it ends a worker by force. */
async function assertWorkersEnd() {
  for (let i = 0; i < 30 && page.workers().length > 0; i++) await page.waitForTimeout(50);
  assert.deepEqual(page.workers().map(worker => worker.url()), []);
}

test('a chat is answered as by llama.cpp', async () => {
  await blank();
  const { text, expected, stats } = await page.evaluate(async ({ url, messages, ids }) => {
    globalThis.model = await Plumb.load(url, { precision: 'exact16' });
    let text = '';
    for await (const piece of model.generate(messages, { temperature: 0, maxTokens: 24 })) text += piece;
    return { text, expected: await model.detokenize(ids), stats: model.lastStats };
  }, { url: REAL, messages: prompts[1].messages, ids: prompts[1].f32.ids.slice(0, 24) });
  assert.equal(text, expected);
  assert.deepEqual([stats.promptTokens, stats.tokens], [39, 24]);
});

test('plumb-llm/openai streams llama.cpp\'s answer out of the worker, each chunk with its tokens', async () => {
  const chat = prompts[1], n = 12;
  const { chunks, text } = await page.evaluate(async ([url, chat, n]) => {
    const { OpenAI } = await import('/web/openai.js');
    const client = new OpenAI({ models: { smol: url }, load: { precision: 'exact16' } });
    const params = { model: 'smol', messages: chat.messages, temperature: 0, max_tokens: n, logprobs: true };
    const chunks = [];
    for await (const { choices: [choice] } of await client.chat.completions.create({ ...params, stream: true })) {
      chunks.push([choice.delta.content ?? '', choice.logprobs?.content.map(({ token }) => token).join('') ?? '']);
    }
    await client.close();
    const model = await Plumb.load(url);
    const text = await model.detokenize(chat.f32.ids.slice(0, n));
    await model.close();
    return { chunks, text };
  }, [REAL, chat, n]);
  assert.equal(chunks.map(([content]) => content).join(''), text);
  for (const [content, tokens] of chunks) assert.equal(tokens, content);
  assert.ok(chunks.length > n - 3, `${chunks.length} chunks`);
});

test('linear memory holds the file, the session and at most 32 MB more', async () => {
  const { memoryBytes, sessionBytes, weightBytes } = await page.evaluate(() => model.info());
  assert.ok(weightBytes > 0.97 * statSync(realPath).size && memoryBytes > weightBytes + sessionBytes);
  assert.ok(memoryBytes <= statSync(realPath).size + sessionBytes + 32 * 2 ** 20, `${memoryBytes} bytes`);
});

test('a signal ends a long prompt between batches, and the model remains usable', async () => {
  const { reason, tokens, computed, text } = await page.evaluate(async ids => {
    await model.rewind();
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 100);
    for await (const _ of model.generate([...ids, ...ids], { signal: stop.signal }));
    const { finishReason, tokens, prefillRate, prefillSeconds } = model.lastStats;
    let text = '';
    for await (const piece of model.generate(ids.slice(0, 5), { temperature: 0, maxTokens: 2 })) text += piece;
    return { reason: finishReason, tokens, computed: Math.round(prefillRate * prefillSeconds), text };
  }, prompts[2].ids);
  assert.deepEqual([reason, tokens], ['abort', 0]);
  assert.ok(computed < 1200 && computed % 64 === 0, `${computed} tokens were computed, in batches of 64`);
  assert.ok(text.length > 0);
});

test('a worker that dies rejects every pending call', async () => {
  const worker = page.workers().find(worker => worker.url().endsWith('/engine-worker.js'));
  const failing = page.evaluate(() => failureOf(async () => {
    for await (const _ of model.generate('Once upon a time', { temperature: 0 }));
  }));
  await new Promise(resolve => setTimeout(resolve, 300));
  await worker.evaluate(() => void setTimeout(() => { throw new Error('out of luck'); }));
  const { code, message } = await failing;
  assert.equal(code, 'PLUMB_ERROR_STATE');
  assert.match(message, /the worker stopped: .*out of luck/);
  assert.equal((await page.evaluate(() => failureOf(() => model.tokenize('x')))).code, 'PLUMB_ERROR_STATE');
  await page.close();
});

test('URL, File, Blob, arrays, streams, split parts and single bytes give the same logits', async () => {
  await blank();
  const all = await page.evaluate(async url => {
    const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
    const stream = (from, to, size) => new ReadableStream({
      pull(controller) {
        if (from >= to) controller.close();
        else controller.enqueue(bytes.subarray(from, from = Math.min(from + size, to)));
      },
    });
    const n = bytes.length;
    return {
      url: await logitsOf(url),
      absolute: await logitsOf(new URL(url, location.href)),
      'blob:': await logitsOf(URL.createObjectURL(new Blob([bytes]))),
      file: await logitsOf(new File([bytes], 'tiny.gguf')),
      array: await logitsOf(bytes),
      buffer: await logitsOf(bytes.slice().buffer),
      stream: await logitsOf(stream(0, n, 1000)),
      body: await logitsOf((await fetch(url)).body),
      parts: await logitsOf([bytes.subarray(0, 5000), new Blob([bytes.subarray(5000, 50001)]), stream(50001, n, 777)]),
      bytes: await logitsOf(stream(0, n, 1)),
      intact: bytes.length === n ? await logitsOf(bytes) : [],
    };
  }, TINY);
  assert.equal(all.url.length, 260);
  assert.ok(all.url.every(Number.isFinite));
  for (const [kind, logits] of Object.entries(all)) assert.deepEqual(logits, all.url, kind);
});

test('the engine also runs in the page\'s own thread', async t => {
  const expected = await page.evaluate(url => logitsOf(url), TINY), started = [];
  const note = worker => started.push(new URL(worker.url()).pathname);
  page.on('worker', note);
  t.after(() => page.off('worker', note));
  const logits = await page.evaluate(async url => {
    const model = await Plumb.load(url, { worker: false });
    const logits = await model.feed([72, 101, 13, 255]);
    await model.close();
    return [...logits];
  }, TINY);
  assert.equal(logits.length, 260);
  assert.deepEqual(logits, expected);
  assert.ok(!started.includes('/web/browser/engine-worker.js'), started.join());
});

test('the bytes of a load survive constant garbage collection', async t => {
  const collect = worker => worker.evaluate(() => void setInterval(() => gc(), 1)).catch(() => {});   // it has ended
  page.on('worker', collect);
  t.after(() => page.off('worker', collect));
  const loads = await page.evaluate(async ([tiny, real]) => {
    const file = new File([await (await fetch(real)).arrayBuffer()], 'model.gguf'), seen = [];
    const often = setInterval(() => gc(), 1);
    for (const worker of [false, true]) {
      for (const source of [file, file.stream(), (await fetch(real)).body, tiny]) {
        const model = await Plumb.load(source, { worker });
        seen.push((await model.feed([72, 101])).slice(0, 200).join());
        await model.close();
      }
    }
    clearInterval(often);
    return seen;
  }, [TINY, REAL]);
  assert.equal(loads.length, 8);
  // In the page's own thread and in the worker: three times the real model, then the tiny one.
  assert.deepEqual(loads.slice(4), loads.slice(0, 4));
  assert.equal(new Set(loads).size, 2, 'the same weights give the same logits');
});

test('the requested number of threads runs, gives the same bits, and ends with the model', async () => {
  const seen = await page.evaluate(async ([url, ids]) => {
    const seen = [];
    for (const threads of [1, 2, 3]) {
      const model = await Plumb.load(url, { threads, precision: 'exact16' });
      const { module, threads: n } = await model.info();
      seen.push({ n, module: module.replace('-relaxed', ''), logits: [...await model.feed(ids)] });
      await model.close();
    }
    return seen;
  }, [REAL, prompts[0].ids]);
  assert.deepEqual(seen.map(({ n, module }) => [n, module]), [[1, 'plumb'], [2, 'plumb-mt'], [3, 'plumb-mt']]);
  assert.equal(seen[0].logits.length, 49152);
  for (const { n, logits } of seen) assert.deepEqual(logits, seen[0].logits, `${n} threads`);
  await assertWorkersEnd();
});

test('if a thread cannot start, the model runs on one thread and warns why', async t => {
  const copy = mkdtempSync(join(tmpdir(), 'plumb-'));
  t.after(() => rmSync(copy, { recursive: true }));
  mkdirSync(join(copy, 'web/browser'), { recursive: true });
  for (const folder of ['web', 'web/browser']) {
    for (const name of readdirSync(root + folder)) {
      if (name !== 'browser' && name !== 'thread-worker.js') {
        symlinkSync(`${root}${folder}/${name}`, join(copy, folder, name));
      }
    }
  }
  const incomplete = await serve({ root: copy, linked: [`${root}web`] }), whole = page, wholeServer = server;
  server = incomplete;
  await blank();
  const said = [];
  page.on('console', message => said.push(message.text()));
  const { threads, n } = await page.evaluate(async bytes => {
    const model = await Plumb.load(Uint8Array.from(bytes), { threads: 2 });
    const { threads } = await model.info();
    const { length: n } = await model.feed([72, 101, 13, 255]);
    await model.close();
    return { threads, n };
  }, [...tiny]);
  await page.close();
  [page, server] = [whole, wholeServer];
  await incomplete.close();
  assert.deepEqual([threads, n], [1, 260]);
  assert.ok(said.some(text => text.startsWith(
    'plumb: 1 thread: a worker stopped: it could not start: its files do not load')), said.join('\n'));
});

test('a failed load says why: 404, a web page, a broken connection, a truncated file', async t => {
  const bad = await badServer(t, (request, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*').setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    response.setHeader('Content-Length', tiny.length);
    response.write(tiny.subarray(0, 60000));
    setTimeout(() => response.destroy(), 200);
  });
  const failure = source => page.evaluate(source => failureOf(() => Plumb.load(source)), source);
  const missing = await failure('/models/none.gguf');
  assert.deepEqual([missing.code, missing.details.status], ['PLUMB_ERROR_IO', 404]);
  const html = await failure('/web/chat/');
  assert.equal(html.code, 'PLUMB_ERROR_MAGIC');
  assert.match(html.message, /the server sent a web page \(text\/html/);
  const cut = await failure(`${bad}cut.gguf`);
  assert.equal(cut.code, 'PLUMB_ERROR_IO');
  assert.match(cut.message, /cut\.gguf: the download stopped after 60000 of 88544 bytes: /);
  const short = await page.evaluate(async url => {
    const bytes = await (await fetch(url)).arrayBuffer();
    return failureOf(() => Plumb.load(new File([bytes.slice(0, 80000)], 'short.gguf')));
  }, TINY);
  assert.equal(short.code, 'PLUMB_ERROR_TRUNCATED');
  assert.match(short.message, /^short\.gguf: .*\d/);
  const text = await page.evaluate(() => failureOf(() => Plumb.load(new Blob(['Once upon a time was no GGUF.']))));
  assert.equal(text.code, 'PLUMB_ERROR_MAGIC');
});

test('the Content-Length of a compressed answer from another site does not limit the download', async t => {
  const other = await badServer(t, (_, response) => {
    const packed = gzipSync(tiny);
    response.writeHead(200, { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin',
      'Content-Encoding': 'gzip', 'Content-Length': packed.length }).end(packed);
  });
  const same = await page.evaluate(async ([url, other]) => {
    const expected = await logitsOf(url);
    return (await logitsOf(other)).every((value, i) => value === expected[i]);
  }, [TINY, other]);
  assert.ok(same);
});

test('a signal ends a load and its worker, also while no bytes arrive', async t => {
  const stalled = await badServer(t, (_, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*').setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    response.write(tiny.subarray(0, 1000));
  });
  for (const [url, ms] of [[stalled, 200], [REAL, 100]]) {
    const { name, late } = await page.evaluate(async ([url, ms]) => {
      const abort = new AbortController();
      let late = false;
      setTimeout(() => {
        setTimeout(() => { late = true; });
        abort.abort();
      }, ms);
      const { name } = await failureOf(() => Plumb.load(url, { signal: abort.signal, cache: 'no-store' }));
      return { name, late };
    }, [url, ms]);
    assert.deepEqual([name, late], ['AbortError', false], `${url}: it ends before the next task`);
  }
  await assertWorkersEnd();
});

test('a page that is not cross-origin isolated has one thread, and a warning names the missing headers', async () => {
  const isolated = page, expected = await page.evaluate(url => logitsOf(url), TINY);
  await blank({});
  const said = [];
  page.on('console', message => said.push(message.text()));
  const { isolation, logits, infos } = await page.evaluate(async url => {
    const infos = [];
    for (const threads of [1, 4, undefined, 'auto']) {
      const model = await Plumb.load(url, { threads });
      const { module, threads: n } = await model.info();
      infos.push([module.replace('-relaxed', ''), n]);
      await model.close();
    }
    return { isolation: crossOriginIsolated, logits: await logitsOf(url), infos };
  }, TINY);
  assert.equal(isolation, false);
  assert.deepEqual(logits, expected);
  assert.deepEqual(infos, Array(4).fill(['plumb', 1]));
  assert.equal(said.length, 1, said.join('\n'));
  assert.match(said[0], /^plumb: 1 thread: .*Cross-Origin-Opener-Policy: same-origin.*Embedder-Policy: require-corp/);
  await page.close();
  page = isolated;
});

test('threads work under a content security policy of plain files and WebAssembly', async () => {
  await blank({ ...ISOLATED, 'Content-Security-Policy':
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; worker-src 'self'" });
  const threads = await page.evaluate(async url => {
    const model = await Plumb.load(url, { threads: 2 });
    await model.feed([72, 101]);
    const { threads } = await model.info();
    await model.close();
    return threads;
  }, TINY);
  assert.equal(threads, 2);
});

test('if a content security policy forbids workers, the error names worker-src', async () => {
  await blank({ 'Content-Security-Policy':
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'; worker-src 'none'" });
  const failures = await page.evaluate(async url => [
    await failureOf(() => Plumb.load(url)), await failureOf(() => Plumb.command(['--help'])),
    await failureOf(async () => (await Plumb.load(url, { worker: false })).close()),
  ], TINY);
  assert.deepEqual(failures.map(({ code }) => code), ['PLUMB_ERROR_STATE', 'PLUMB_ERROR_STATE', 'none']);
  for (const { message } of failures.slice(0, 2)) {
    assert.match(message, /could not start: .*worker-src must allow 'self'/);
  }
  await page.close();
});

test('preflight of a URL in a page predicts the load; if there is a copy, it requests no byte', async () => {
  await blank();
  const asked = [];
  page.on('request', request => asked.push(request.url()));
  const { plan, info, again } = await page.evaluate(async url => {
    await Plumb.removeCached(url);
    const plan = await Plumb.preflight(url, { measure: false });
    const model = await Plumb.load(url);
    const info = await model.info();
    await model.close();
    return { plan, info, again: await Plumb.preflight(url) };
  }, REAL);
  assert.deepEqual([plan.supported, plan.fits, plan.threads, plan.cached], [true, true, info.threads, undefined]);
  assert.deepEqual([plan.module, plan.moduleNote], [info.module, undefined]);
  assert.equal(plan.memory.kv + plan.memory.scratch, info.sessionBytes);
  assert.ok(Math.abs(plan.memory.total - info.memoryBytes) <= 2 ** 22, `${plan.memory.total}, ${info.memoryBytes}`);
  assert.ok(plan.bytesRead < 4e6 && plan.fileBytes === statSync(realPath).size);
  assert.ok(plan.storage.quota > plan.fileBytes && plan.storage.fits);
  assert.deepEqual(again.cached, { bytes: plan.fileBytes, complete: true });
  assert.ok(again.speed.decode > 0 && again.speed.prefill > 0);
  assert.deepEqual(asked.filter(url => url.endsWith(REAL)).length,
    1 + Math.ceil(Math.log2(plan.bytesRead / 65536)) + 1);
  await page.close();
});
