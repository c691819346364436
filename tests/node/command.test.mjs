/** Plumb.command: the command line in a worker, on files that it receives.  Ground truth: the native build. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { openAsBlob, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fails, realPath, root, tiny, tinyPath } from './helpers.mjs';
import { BlobFiles } from '../../web/command/blob-files.js';
import { runCommand } from '../../web/command/command.js';
import { Plumb } from '../../web/node/index.js';

const native = `${root}build/native/plumb`;
/** A missing native build is a failure unless HOSTS leaves native tests out. */
const skip = !(process.env.HOSTS ?? 'native').includes('native') && 'HOSTS leaves the native build out';
const model = { 'model.gguf': tiny };
/** Options of a command that reads all weights and computes little. */
const oneToken = ['--tokens', '1', '--taps', 'result_output', '--json'];
/** Removes what depends on the host: threads, and the names of kernels. @param {string} json */
const checks = json => JSON.parse(json).checks.filter(({ name }) => name !== 'threads')
  .map(({ name, verdict, why }) => [name, verdict, why.replace(/\b(sse41|simd128)\b/, 'SIMD')]);

test('selfcheck of a Blob, of bytes and of a file on disk gives the same as the native program', { skip }, async () => {
  const expected = checks(spawnSync(native, ['selfcheck', tinyPath, '--json'], { encoding: 'utf8' }).stdout);
  for (const file of [tiny, new Blob([tiny]), await openAsBlob(tinyPath)]) {
    const { code, out, err, files } = await Plumb.command(['selfcheck', 'a/b.gguf', '--json'], {
      files: { 'a/b.gguf': file },
    });
    assert.deepEqual([code, err, files], [0, '', {}]);
    assert.deepEqual(checks(out), expected);
  }
});

test('files that a command writes are returned, and the next command can read them', async () => {
  /** @param {string} tokens */
  const trace = async tokens => {
    const args = ['trace', './model.gguf', '--tokens', tokens, '-o', 'traces/one.json'];
    const { code, out, err, files } = await Plumb.command(args, { files: model });
    assert.deepEqual([code, out, err, Object.keys(files)], [0, '', '', ['traces/one.json']]);
    return files['traces/one.json'];
  };
  const [a, b] = [await trace('72,101,13'), await trace('72,101,14')];
  assert.deepEqual(JSON.parse(Buffer.from(a).toString()).tokens, [72, 101, 13]);
  const { code, out, err, files } = await Plumb.command(['diff', 'a', 'b.json', '--html', '/report.html'], {
    files: { a, 'b.json': Buffer.from(b).toString() },
  });
  assert.deepEqual([code, err], [1, ''], 'they part');
  assert.match(out, /token/);
  assert.match(Buffer.from(files['report.html']).toString(), /^<!doctype html>/i);
  const same = await Plumb.command(['diff', 'a', 'b'], { files: { a, b: a } });
  assert.equal(same.code, 0, same.out);
});

test('names that begin with a dash, and names that objects have, are names of files', async () => {
  for (const name of ['-m.gguf', '--json', '--', '-', '__proto__', 'constructor', 'a/__proto__']) {
    const files = Object.fromEntries([[name, tiny], ['other', 'text']]);
    const { code, out, err } = await Plumb.command(['inspect', name], { files });
    assert.deepEqual([code, err], [0, ''], name);
    assert.match(out, /synthetic llama F32/, name);
  }
  for (const name of ['__proto__', 'constructor', 'toString', 'a/__proto__']) {
    const args = ['trace', 'model.gguf', '--tokens', '72', '-o', name];
    const { code, files } = await Plumb.command(args, { files: model });
    assert.deepEqual([code, Object.keys(files)], [0, [name]]);
    assert.deepEqual(JSON.parse(Buffer.from(files[name]).toString()).tokens, [72]);
  }
});

test('errors are reported by exit code and messages, and messages arrive as they are written', async () => {
  let heard = '';
  const onError = text => { heard += text; };
  const noise = Uint8Array.from({ length: 5000 }, (_, i) => i * 131 ^ i >> 3);
  for (const [args, code, message] of [
    [['walk'], 2, /^plumb: unknown command walk; .*\n$/],
    [['inspect', 'none.gguf'], 1, /^plumb: none\.gguf: PLUMB_ERROR_IO: No such file.*\n$/],
    [['inspect', 'noise'], 1, /^plumb: noise: PLUMB_ERROR_MAGIC: .*\n$/],
    [['inspect', '.'], 1, /^plumb: \.: PLUMB_ERROR_IO: .*\n$/],
    [['diff', 'noise', 'text', '--html', 'out.html'], 3, /^plumb: noise: .*\n$/],
    [['inspect', '/etc/passwd'], 1, /^plumb: \/etc\/passwd: PLUMB_ERROR_IO: No such file.*\n$/],
    [['trace', 'noise', '-p', '-'], 1, /^plumb: noise: .*\n$/],
    [['diff', 'noise', 'text', '--html', 'text'], 2, /^plumb: diff: text is also an input/],
  ]) {
    heard = '';
    const result = await Plumb.command(args, { files: { noise, text: '{}' }, onError });
    assert.deepEqual([result.code, result.out, result.files], [code, '', {}], args.join(' '));
    assert.match(result.err, message);
    assert.equal(heard, result.err);
  }
  const { code, out } = await Plumb.command(['selfcheck', 'noise', '--json'], { files: { noise } });
  assert.equal(code, 1);
  assert.equal(JSON.parse(out).checks[0].verdict, 'FAIL');
});

test('a model of 98 MB is read in pieces', { skip }, async () => {
  const file = await openAsBlob(realPath), size = statSync(realPath).size;
  let largest = 0, sum = 0;
  file.slice = (from, to) => {
    largest = Math.max(largest, to - from);
    sum += to - from;
    return Blob.prototype.slice.call(file, from, to);
  };
  const { code, out } = await Plumb.command(['trace', 'model.gguf', ...oneToken], { files: { 'model.gguf': file } });
  assert.equal(code, 0);
  const { taps } = JSON.parse(spawnSync(native, ['trace', realPath, ...oneToken], { encoding: 'utf8' }).stdout);
  assert.deepEqual(JSON.parse(out).taps, taps);
  assert.ok(largest <= 4 << 20, `${largest} bytes at once`);
  assert.ok(sum >= size && sum < 1.1 * size, `${sum} bytes of ${size}`);
});

/** A worker whose program prints a line and never ends; `ended` counts how often it was terminated. */
function endless() {
  let hear = (/** @type {any} */ _message) => {};
  const worker = {
    ended: 0,
    post: (/** @type {any} */ { id }) => setImmediate(() => hear({ id, event: 'error', data: 'plumb: well' })),
    onMessage: (/** @type {any} */ handler) => { hear = handler; },
    onDeath: () => {},
    terminate: () => worker.ended++,
  };
  return worker;
}

test('a signal ends it at once, with its reason', async () => {
  const files = { 'model.gguf': await openAsBlob(realPath) }, args = ['selfcheck', 'model.gguf'];
  const reason = new Error('enough'), stop = new AbortController();
  setTimeout(() => stop.abort(reason), 300);
  await assert.rejects(Plumb.command(args, { files, signal: stop.signal }), error => error === reason);
  await assert.rejects(Plumb.command(args, { files, signal: stop.signal }), error => error === reason);
  const worker = endless(), now = new AbortController();
  const onError = () => now.abort(reason);
  await assert.rejects(runCommand(() => ({ worker, files: {} }), ['walk'], { signal: now.signal, onError }),
    error => error === reason);
  assert.equal(worker.ended, 1);
});

test('an error thrown by onError ends the command at once, and the call rejects with it', async () => {
  const thrown = new TypeError('no ear');
  const onError = () => { throw thrown; };
  await assert.rejects(Plumb.command(['walk'], { onError }), error => error === thrown);
  const worker = endless();
  await assert.rejects(runCommand(() => ({ worker, files: {} }), ['walk'], { onError }), error => error === thrown);
  assert.equal(worker.ended, 1);
});

test('a file that changes while it is read is a read error', async () => {
  const path = join(tmpdir(), `plumb-changed-${process.pid}.gguf`);
  writeFileSync(path, tiny);
  const files = { 'model.gguf': await openAsBlob(path) };
  writeFileSync(path, tiny.subarray(0, 100));
  const { code, err } = await Plumb.command(['inspect', 'model.gguf'], { files });
  rmSync(path);
  assert.equal(code, 1);
  assert.match(err, /^plumb: model\.gguf: PLUMB_ERROR_IO: I\/O error\n$/);
});

test('wrong arguments are refused', async () => {
  await fails(() => Plumb.command('inspect'), 'PLUMB_ERROR_ARGUMENT', /array of strings/);
  await fails(() => Plumb.command(['inspect', 1]), 'PLUMB_ERROR_ARGUMENT', /array of strings/);
  await fails(() => Plumb.command(['a\0b']), 'PLUMB_ERROR_ARGUMENT', /array of strings/);
  await fails(() => Plumb.command(['x'], { files: { a: 1 } }), 'PLUMB_ERROR_ARGUMENT', /files is an object, expected/);
  await fails(() => Plumb.command(['x'], { file: {} }), 'PLUMB_ERROR_ARGUMENT', /unknown option "file"/);
});

test('lines of progress arrive apart from messages, wherever the program pauses in them', () => {
  const lines = [], messages = [];
  const files = new BlobFiles({}, () => new Uint8Array(), text => messages.push(text), 1000, line => lines.push(line));
  const write = text => files.streams[2].write(Buffer.from(text), null);
  assert.deepEqual(files.streams[2].stat(), { type: 'terminal' });
  for (const piece of ['plumb: ', 'ready\n', '\r', 'diagnose 4', ' %, 9 s left', ' \x1b', '[K',
    '\rdiagnose 5 % \x1b[K\r\x1b[K', 'plumb: done\n']) assert.equal(write(piece), piece.length);
  assert.deepEqual(lines, ['diagnose 4 %, 9 s left', 'diagnose 5 %']);
  assert.equal(messages.join(''), 'plumb: ready\nplumb: done\n');
  assert.equal(files.result().err, 'plumb: ready\nplumb: done\n');
});

test('a command shows its progress only if it is asked for', async () => {
  const lines = [], text = 'a b '.repeat(400000);   // tokenizing more than a megabyte shows a line at once
  const run = options => Plumb.command(['perplexity', 'model.gguf', 'text', '--chunks', '1', '--ctx', '8'],
    { files: { ...model, text }, ...options });
  const shown = await run({ onProgress: line => lines.push(line) });
  assert.ok(lines.length > 0 && /^tokenizing 1\.6 MB/.test(lines[0]), JSON.stringify(lines));
  const silent = await run({});
  assert.deepEqual([shown.code, shown.out, shown.err], [silent.code, silent.out, silent.err]);
  await assert.rejects(run({ onProgress() { throw new Error('enough'); } }), { message: 'enough' });
});

test('the output of a program is bounded, and space that it frees can be used again', () => {
  const how = { read: false, write: true, create: true, exclusive: false, truncate: true, append: false,
    directory: false };
  const files = new BlobFiles({}, () => new Uint8Array(), () => {}, 1000);
  const full = { code: 'ENOSPC' };
  const a = files.open('/a', how);
  assert.equal(a.write(new Uint8Array(600), 0), 600);
  assert.throws(() => files.streams[1].write(new Uint8Array(500), null), full);
  assert.throws(() => a.write(new Uint8Array(1), 1e9), full);
  assert.equal(a.write(new Uint8Array(300), 600), 300);
  files.unlink('/a');
  assert.equal(files.streams[1].write(new Uint8Array(500), null), 500);
  assert.throws(() => files.open('/b', how).write(new Uint8Array(501), 0), full);
});
