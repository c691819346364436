/** No second copy of the file: linear memory holds file, session and at most 32 MB more, and the whole process does not
 * grow by twice the file at any time (chunks of a fetch that the garbage collector has not yet met count there, pages
 * of the session that were never written do not). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createReadStream, statSync } from 'node:fs';
import { test } from 'node:test';
import { realPath, root, server } from './helpers.mjs';

/** Loads in a fresh process; returns what it held. @param {string} source @param {boolean} worker */
async function load(source, worker) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', `
    import { openAsBlob } from 'node:fs';
    import { Plumb } from '${root}web/node/index.js';
    const tiny = await Plumb.load('${root}tests/vectors/synth/f32.gguf', { worker: ${worker} });   // code is compiled
    await tiny.close();
    const before = process.resourceUsage().maxRSS * 1024;
    const model = await Plumb.load(${source}, { worker: ${worker} });
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
    const url = await server(t, (_, response) => void createReadStream(realPath).pipe(response));
    const path = JSON.stringify(realPath);
    const source = { file: path, fetch: JSON.stringify(url), Blob: `await openAsBlob(${path})` };
    const { peak, memoryBytes, sessionBytes } = await load(source[kind], worker);
    const file = statSync(realPath).size;
    const mb = (/** @type {number} */ n) => `${(n / 2 ** 20).toFixed(1)} MB`;
    const [linear, process] = [mb(memoryBytes), mb(peak)];
    t.diagnostic(`file ${mb(file)}, session ${mb(sessionBytes)}, linear memory ${linear}, process ${process}`);
    assert.ok(memoryBytes <= file + sessionBytes + 32 * 2 ** 20, `linear memory ${linear}`);
    assert.ok(peak > 0.8 * file && peak <= 1.75 * file, `the process grew by ${process}`);
  });
}
