/** There is no second copy of the file: linear memory holds the file, the session and at most 32 MB more, and the
 * process never grows by more than the file and 96 MB.  V8 collects buffers once 64 MB of them are garbage, independent
 * of the file's size.  The file here is several times as large, so that even a third of a second copy is detected. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createReadStream, mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ggufHeader } from './gguf.mjs';
import { root, server } from './helpers.mjs';

/** A model whose weights are zeros. */
const folder = mkdtempSync(join(tmpdir(), 'plumb-memory-')), path = join(folder, 'zeros.gguf');
after(() => rmSync(folder, { recursive: true }));
const { header, size } = ggufHeader({ layers: 8, embedding: 2048, feedForward: 5632, heads: 16, type: 'Q8_0' });
writeFileSync(path, header);
truncateSync(path, size);

/** Loads in a fresh process and returns its memory. @param {string} source @param {boolean} worker */
async function load(source, worker) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', `
    import { openAsBlob } from 'node:fs';
    import { Plumb } from '${root}web/node/index.js';
    const tiny = await Plumb.load('${root}tests/vectors/synth/f32.gguf', { worker: ${worker} });   // code is compiled
    await tiny.close();
    const before = process.resourceUsage().maxRSS * 1024;
    const model = await Plumb.load(${source}, { worker: ${worker}, contextLength: 64 });
    const peak = process.resourceUsage().maxRSS * 1024 - before;
    console.log(JSON.stringify({ peak, ...await model.info() }));
    await model.close();`], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', data => { text += data; });
  await new Promise(resolve => child.on('close', resolve));
  return JSON.parse(text);
}

for (const [kind, worker] of [['file', false], ['file', true], ['fetch', false], ['fetch', true], ['Blob', true]]) {
  test(`${kind}, ${worker ? 'in a worker' : 'in this thread'}: the file is in memory once`, async t => {
    const url = await server(t, (_, response) => {
      response.setHeader('Content-Length', size);
      createReadStream(path).pipe(response);
    });
    const source = { file: JSON.stringify(path), fetch: JSON.stringify(url),
      Blob: `await openAsBlob(${JSON.stringify(path)})` };
    const { peak, memoryBytes, sessionBytes } = await load(source[kind], worker);
    const file = statSync(path).size;
    const mb = (/** @type {number} */ n) => `${(n / 2 ** 20).toFixed(1)} MB`;
    const [linear, process] = [mb(memoryBytes), mb(peak)];
    t.diagnostic(`file ${mb(file)}, session ${mb(sessionBytes)}, linear memory ${linear}, process ${process}`);
    const least = 0.95 * file + sessionBytes;   // all weights are in memory
    assert.ok(memoryBytes > least && memoryBytes <= file + sessionBytes + 32 * 2 ** 20, `linear memory ${linear}`);
    assert.ok(peak > 0.95 * file && peak <= file + 96 * 2 ** 20, `the process grew by ${process}`);
  });
}
