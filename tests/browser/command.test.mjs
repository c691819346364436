/** Plumb.command in a page of headless Chromium, under the content security policy of the chat page.  Ground truth: the
 * same program in Node, which tests/cli compares with the native one. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { realPath, root, tinyPath } from '../node/helpers.mjs';

const REAL = '/models/SmolLM2-135M-Instruct.Q4_1.gguf', TINY = '/tests/vectors/synth/f32.gguf';
let server, browser, page;
/** The sizes of the worker's reads, in bytes. @type {number[]} */
const reads = [];
before(async () => {
  server = await serve({ root });
  browser = await launchChrome();
  page = await browser.newPage();
  page.on('console', message => {
    const [, n] = /^read (\d+)$/.exec(message.text()) ?? [];
    if (n) reads.push(Number(n));
  });
  const policy = "default-src 'none'; connect-src 'self' data:; worker-src 'self'; "
    + "script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'";
  await page.route('**/blank.html', route => route.fulfill({
    contentType: 'text/html', headers: { 'Content-Security-Policy': policy },
    body: `<!doctype html><input type="file"><script type="module">
      import { Plumb, PlumbError } from '/web/index.js';
      Object.assign(globalThis, {
        Plumb, PlumbError, blob: async url => (await fetch(url)).blob(),
        text: bytes => new TextDecoder().decode(bytes),
      });
    </script>`,
  }));
  await page.route('**/web/browser/command-worker.js', async route => {
    const response = await route.fetch();
    const watched = `const read = FileReaderSync.prototype.readAsArrayBuffer;
      FileReaderSync.prototype.readAsArrayBuffer = function (blob) {
        console.log('read ' + blob.size);
        return read.call(this, blob);
      };`;
    await route.fulfill({ response, body: `${await response.text()}\n${watched}` });
  });
  await page.goto(`${server.url}blank.html`);
  await page.waitForFunction(() => 'Plumb' in globalThis);
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** The output of the command line in Node. @param {string[]} args @param {string} [cwd] */
const inNode = (args, cwd = root) =>
  spawnSync(process.execPath, [`${root}web/cli/main.mjs`, ...args], { encoding: 'utf8', cwd }).stdout;

test('selfcheck of a file gives the same as the command line', async () => {
  const { code, out, err, files } = await page.evaluate(async url =>
    Plumb.command(['selfcheck', 'tiny.gguf', '--json'], { files: { 'tiny.gguf': await blob(url) } }), TINY);
  assert.deepEqual([code, err, files], [0, '', {}]);
  assert.deepEqual(JSON.parse(out).checks, JSON.parse(inNode(['selfcheck', tinyPath, '--json'])).checks);
});

test('two traces are compared, and the report is an HTML page', async t => {
  const { traces, code, out, html } = await page.evaluate(async url => {
    const model = await blob(url), traces = [];
    for (const tokens of ['72,101,13', '72,101,14']) {
      const args = ['trace', 'm.gguf', '--tokens', tokens, '-o', 't.json'];
      traces.push((await Plumb.command(args, { files: { 'm.gguf': model } })).files['t.json']);
    }
    const { code, out, files } = await Plumb.command(['diff', 'a', 'b', '--html', 'report.html'],
      { files: { a: traces[0], b: text(traces[1]) } });
    return { traces: traces.map(text), code, out, html: text(files['report.html']) };
  }, TINY);
  assert.equal(JSON.stringify(JSON.parse(traces[0]).taps),
    JSON.stringify(JSON.parse(inNode(['trace', tinyPath, '--tokens', '72,101,13', '--json'])).taps));
  assert.equal(code, 1);
  const folder = mkdtempSync(join(tmpdir(), 'plumb-'));
  t.after(() => rmSync(folder, { recursive: true }));
  traces.forEach((trace, i) => writeFileSync(join(folder, 'ab'[i]), trace));
  assert.ok(out.length > 50);
  assert.equal(out, inNode(['diff', 'a', 'b'], folder));
  assert.match(html, /^<!doctype html>/i);
});

test('hostile files and wrong usage are reported by exit code and messages, not thrown', async () => {
  const results = await page.evaluate(async () => {
    const noise = crypto.getRandomValues(new Uint8Array(5000));
    const cases = [['inspect', 'noise'], ['diff', 'noise', 'noise'], ['walk'], ['inspect', 'none']];
    return Promise.all(cases.map(async args => {
      let heard = '';
      const { code, err } = await Plumb.command(args, { files: { noise }, onError: piece => { heard += piece; } });
      return { code, err, heard };
    }));
  });
  assert.deepEqual(results.map(({ code }) => code), [1, 3, 2, 1]);
  for (const { err, heard } of results) {
    assert.match(err, /^plumb: [^\n]+\n$/);
    assert.equal(heard, err);
  }
});

test('a model of 98 MB is read in pieces from the File of an input element', async () => {
  reads.length = 0;
  await page.setInputFiles('input', realPath);
  const oneToken = ['--tokens', '1', '--taps', 'result_output', '--json'];   // it reads all and computes little
  const { code, out } = await page.evaluate(async options => {
    const [file] = document.querySelector('input').files;
    return Plumb.command(['trace', 'model.gguf', ...options], { files: { 'model.gguf': file } });
  }, oneToken);
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(out).taps, JSON.parse(inNode(['trace', realPath, ...oneToken])).taps);
  const size = statSync(realPath).size, sum = reads.reduce((a, b) => a + b, 0);
  assert.ok(Math.max(...reads) <= 4 << 20, `${Math.max(...reads)} bytes at once`);
  assert.ok(sum >= size && sum < 1.1 * size, `${sum} bytes of ${size}`);
});

test('a signal ends it and its worker', async () => {
  const reason = await page.evaluate(async url => {
    const files = { m: await blob(url) };
    try {
      await Plumb.command(['selfcheck', 'm'], { files, signal: AbortSignal.timeout(300) });
    } catch (error) {
      return error.name;
    }
  }, REAL);
  assert.equal(reason, 'TimeoutError');
  for (let i = 0; i < 50 && page.workers().length > 0; i++) await page.waitForTimeout(100);
  assert.deepEqual(page.workers().map(worker => worker.url()), []);
});

test('a program that traps or does not load is a PlumbError', async () => {
  // (module (memory (export "memory") 1) (func (export "_start") unreachable))
  const trap = Buffer.from([0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 5, 3, 1, 0, 1, 7, 19, 2, 6, 109,
    101, 109, 111, 114, 121, 2, 0, 6, 95, 115, 116, 97, 114, 116, 0, 0, 10, 5, 1, 3, 0, 0, 11]);
  for (const [answer, code, message] of [
    [{ contentType: 'application/wasm', body: trap }, 'PLUMB_ERROR', /^plumb inspect: the program crashed \(unrea/],
    [{ status: 404 }, 'PLUMB_ERROR_IO', /plumb-cli\.wasm: the engine does not load: the server answered 404/],
  ]) {
    await page.route('**/plumb-cli.wasm', route => route.fulfill(answer));
    const error = await page.evaluate(async () => {
      try {
        await Plumb.command(['inspect', 'x']);
      } catch (error) {
        return { own: error instanceof PlumbError, code: error.code, message: error.message };
      }
    });
    await page.unroute('**/plumb-cli.wasm');
    assert.deepEqual([error?.own, error?.code], [true, code]);
    assert.match(error.message, message);
  }
});
