/* Files that are not models: exit code 1, one line with the file, the status and the place, nothing on standard output.
 * Also inspect, compared with what the gguf package reads (tests/vectors/cli/make.py). */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import {
  closeSync, existsSync, linkSync, lstatSync, openSync, readFileSync, readSync, statSync, symlinkSync, writeFileSync,
} from 'node:fs';
import { basename, resolve } from 'node:path';
import {
  command, isNative, isNode, nativeTest, output, plumb, repeats, smol, start, temporary, test,
} from './plumb.mjs';

const facts = JSON.parse(readFileSync('tests/vectors/cli/facts.json', 'utf8'));

/** Bytes [from, to) of a file. */
function bytes(path, from, to) {
  const data = Buffer.alloc(to - from), fd = openSync(path, 'r');
  assert.equal(readSync(fd, data, 0, data.length, from), data.length);
  closeSync(fd);
  return data;
}
const gguf = (version, n_tensor, n_key) => {
  const header = Buffer.alloc(24);
  header.write('GGUF');
  header.writeUInt32LE(version, 4);
  header.writeBigUInt64LE(BigInt(n_tensor), 8);
  header.writeBigUInt64LE(BigInt(n_key), 16);
  return header;
};
const size = statSync(smol).size;

/* name, bytes, status, text of the line; whether tensors must be read to detect it */
const bad = [
  ['not a GGUF', Buffer.from('PK\x03\x04 something else entirely'), 'PLUMB_ERROR_MAGIC', 'byte'],
  ['version 4', gguf(4, 0, 0), 'PLUMB_ERROR_VERSION', '4'],
  ['empty', Buffer.alloc(0), 'PLUMB_ERROR_TRUNCATED', '0'],
  ['cut in the header', bytes(smol, 0, 1000), 'PLUMB_ERROR_TRUNCATED', '(992|1000)'],
  ['too many keys', gguf(3, 0, 2 ** 40), 'PLUMB_ERROR_METADATA', '1099511627776'],
];
const cut = ['cut in the tensors', bytes(smol, 0, size - 1000), 'PLUMB_ERROR_TRUNCATED', `${size - 1000}`];
const commands = path => [['inspect', path], ['tokenize', path, 'x'], ['run', path, '-p', 'x'], ['bench', path],
  ['score', path, '--ids', '1']];

test('a malformed file exits 1 and names the file, the status and the place', async t => {
  for (const [name, data, status, says] of [...bad, cut].filter((_, i) => repeats(i))) {
    const path = temporary(`${name.replaceAll(' ', '-')}.gguf`, data);
    for (const args of commands(path).slice(name === cut[0] ? 1 : 0)) {
      await t.test(`${args[0]}, ${name}`, async () => {
        const { code, out, err } = await plumb(args);
        assert.deepEqual([code, out], [1, '']);
        assert.match(err, /^plumb: [^\n]*\n$/);
        assert.match(err, new RegExp(`^plumb: ${path}: ${status}: .*\\b${says}\\b`));
      });
    }
  }
});

test('inspect reads the header of a file whose tensors are truncated, and says what is missing', async () => {
  const path = temporary('cut.gguf', cut[1]);
  for (const how of [[], ['--json']]) {
    const whole = await output(['inspect', smol, ...how]), { code, out, err } = await plumb(['inspect', path, ...how]);
    assert.deepEqual([code, out.replace(path, smol)], [0, whole]);
    assert.equal(err, `plumb: ${path}: it has ${size - 1000} bytes, but its tensors end at byte ${size}: `
      + 'the rest is missing\n');
  }
});

test('a file that cannot be opened or read exits 1', async () => {
  for (const path of ['models/none.gguf', 'models']) {
    for (const args of commands(path)) {
      const { code, out, err } = await plumb(args);
      assert.deepEqual([code, out], [1, '']);
      assert.match(err, new RegExp(`^plumb: ${path}: PLUMB_ERROR_IO: [^\\n]+\\n$`));
    }
  }
});

/* wasmtime can access only the checkout. */
(isNative || isNode ? test : () => {})('absolute paths and those above the current directory are found', async () => {
  const vocab = 'models/ggml-vocab-llama-spm.gguf', expected = await output(['inspect', vocab, '--json']);
  for (const path of [resolve(vocab), `../${basename(resolve('.'))}/${vocab}`, `./build/../${vocab}`]) {
    assert.equal(await output(['inspect', path, '--json']), expected, path);
  }
});

/* Only under wasmtime. */
(isNative || isNode ? () => {} : test)('a folder that wasmtime does not show is told as that', async () => {
  const blind = await plumb(['inspect', smol], '', command.filter(word => word !== '--dir=.'));
  for (const { code, err } of [blind, await plumb(['inspect', '../x.gguf'])]) {
    assert.equal(code, 1);
    assert.match(err, /\.gguf: PLUMB_ERROR_IO: .* \(start wasmtime with --dir=FOLDER\)\n$/);
  }
});

test('a file name with control bytes is escaped into one line', async () => {
  const { code, err } = await plumb(['inspect', 'a\nb\x1b[31m']);
  assert.equal(code, 1);
  assert.match(err, /^plumb: a\?b\?\[31m: PLUMB_ERROR_IO: [^\n]+\n$/);
});

test('a model cut at any byte is read from its pieces', async () => {
  const cut = 1234567;
  const parts = [temporary('part0', bytes(smol, 0, 700)), temporary('part1', bytes(smol, 700, cut)),
    temporary('part2', bytes(smol, cut, size))];
  const score = ['--ids', '504', '--json'];
  assert.equal(await output(['score', ...parts, ...score]), await output(['score', smol, ...score]));
  const { code, err } = await plumb(['score', parts[0], parts[1], ...score]);
  assert.equal(code, 1);
  assert.match(err, new RegExp(`^plumb: ${parts[1]}: PLUMB_ERROR_TRUNCATED: `));
});

/* ---- inspect ---- */

/** Compares floats as f32, in any notation. */
function plain(keys) {
  const rounded = v => Array.isArray(v) ? v.map(Math.fround) : Math.fround(v);
  return Object.fromEntries(Object.entries(keys).map(([name, key]) =>
    [name, key.type.endsWith('float32') ? { ...key, value: rounded(key.value) } : key]));
}

for (const [file, expected] of Object.entries(facts.inspect)) {
  test(`inspect --json of ${file} gives what the gguf package reads`, async () => {
    const found = JSON.parse(await output(['inspect', `models/${file}`, '--json']));
    assert.deepEqual(plain(found.keys), plain(expected.keys));
    assert.deepEqual(found.totals, expected.totals);
    if (expected.tensors) assert.deepEqual(found.tensors, expected.tensors);
  });
}

test('inspect prints a line for every key, tensor and type', async () => {
  const expected = facts.inspect['SmolLM2-135M-Instruct.Q4_1.gguf'];
  const lines = (await output(['inspect', smol])).split('\n');
  assert.equal(lines[0], smol);
  assert.deepEqual(lines.slice(2, 7), ['what it computes',
    '  30 layers of width 576, trained for 8192 tokens, RMS norms', '  layers 0-29',
    '    attention of 9 heads of 64, 3 for K and V, RoPE with base 100000',
    '    feed-forward network of 1536']);
  for (const name of Object.keys(expected.keys)) {
    assert.equal(lines.filter(line => line.startsWith(`  ${name}  `)).length, 1, name);
  }
  for (const { name, type, shape, bytes } of expected.tensors) {
    const line = lines.find(line => line.startsWith(`  ${name} `));
    assert.deepEqual(line?.trim().split(/  +/), [name, type, shape.join(' x '), `${bytes} bytes`]);
  }
  assert.ok(lines.includes('  llama.attention.head_count_kv  uint32 3'));
  assert.ok(lines.includes('  general.languages  array of string [1] "en"'));
  assert.match(lines.find(line => line.startsWith('  tokenizer.ggml.merges')), /\[48900\] "Ġ t" "Ġ a" .* \.\.\.$/);
  assert.match(lines.find(line => line.startsWith('  tokenizer.chat_template')), /\\n.*"\.\.\. \(368 bytes\)$/);
  assert.match(lines.find(line => line.startsWith('  Q4_1 ')),
    / 210 tensors +106168320 elements +66355200 bytes +5\.000 bits per element$/);
  assert.match(lines.find(line => line.startsWith('  all ')), / 272 tensors +134515008 elements +96576768 bytes/);
});

test('hostile bytes in keys are escaped, in text and in JSON', async () => {
  const string = data => {
    const n = Buffer.alloc(8);
    n.writeBigUInt64LE(BigInt(data.length));
    return Buffer.concat([n, data]);
  };
  const type = Buffer.from([8, 0, 0, 0]);
  // c3 a4 is UTF-8, ff and ed a0 80 (a surrogate) are not.
  const value = Buffer.from('"\\\n\x00\x1b[2J\x7f \xff\xc3\xa4\xed\xa0\x80', 'latin1');
  const path = temporary('hostile.gguf', Buffer.concat([gguf(3, 0, 1), string(Buffer.from('a.b')), type, string(value),
    Buffer.alloc(64)]));
  const line = (await output(['inspect', path])).split('\n').find(line => line.startsWith('  a.b'));
  assert.equal(line, String.raw`  a.b  string "\"\\\n\x00\x1b[2J\x7f \xffä\xed\xa0\x80"`);
  const { keys } = JSON.parse(await output(['inspect', path, '--json']));
  assert.equal(keys['a.b'].value, '"\\\n\x00\x1b[2J\x7f \ufffdä\ufffd\ufffd\ufffd');
});

/** Runs a shell script in which $0 is the command line and $1 a word. */
const shell = (script, word) => new Promise(resolve => execFile('sh', ['-c', script, command[0], word],
  (error, stdout, stderr) => resolve({ error, stdout, stderr })));

nativeTest('inspect reads no further than the header', async () => {
  const { tensors } = facts.inspect['SmolLM2-135M-Instruct.Q4_1.gguf'];
  const end = Math.min(...tensors.map(tensor => tensor.offset));
  const header = temporary('header', bytes(smol, 0, end));
  const { error, stdout } = await shell('cat "$1" | "$0" inspect /dev/stdin --json', header);
  assert.equal(error, null);
  assert.equal(JSON.parse(stdout).tensors.length, 272);
});

test('a closed output pipe is not an error', async () => {
  const child = start(['inspect', smol, '--json']);
  child.stdout.destroy();
  const err = [];
  child.stderr.on('data', piece => err.push(piece));
  const [code, signal] = await new Promise(resolve => child.on('close', (...end) => resolve(end)));
  /* wasmtime gives the program EIO, not EPIPE. */
  assert.deepEqual([code, signal, Buffer.concat(err).toString()],
    isNative || isNode ? [0, null, ''] : [1, null, 'plumb: standard output: PLUMB_ERROR_IO: I/O error\n']);
});

nativeTest('a disk that is full is an error', async () => {
  const { error, stderr } = await shell('"$0" inspect "$1" >/dev/full', smol);
  assert.equal(error?.code, 1);
  assert.match(stderr, /^plumb: standard output: PLUMB_ERROR_IO: [^\n]+\n$/);
});

/* ---- files that are written ---- */

const small = 'tests/vectors/synth/f32.gguf';
const copy = name => temporary(name, readFileSync(small));

test('an output file that is also an input is refused with exit code 2, by whatever path', async () => {
  const model = copy('kept.gguf'), [a, b] = ['a.json', 'b.json'].map(name => temporary(name, ''));
  for (const path of [a, b]) await output(['trace', small, '--tokens', '1,2', '-o', path]);
  const text = temporary('text.txt', 'Once upon a time there was a text.\n'.repeat(20));
  const link = `${model}.link.gguf`;
  linkSync(model, link);
  for (const [args, path] of [
    [['trace', model, '--tokens', '1', '--values', 'all', '-o', model], model],
    [['trace', model, '--tokens', '1', '--values', 'all', '-o', `./${model}`], model],
    [['trace', model, '--tokens', '1', '--values', 'all', '-o', link], model],
    [['diff', a, b, '--html', a], a], [['diff', a, b, '--html', b], b],
    [['diff', a, b, '--model', model, '--html', model], model],
    [['perplexity', model, text, '--ctx', '16', '--save', text], text],
    [['perplexity', model, text, '--ctx', '16', '--kl', a, '--save', a], a],
  ]) {
    const before = readFileSync(path), { code, out, err } = await plumb(args);
    assert.deepEqual([code, out], [2, '']);
    assert.equal(err, `plumb: ${args[0]}: ${args.at(-1)} is also an input and would be overwritten\n`);
    assert.ok(readFileSync(path).equals(before), args.join(' '));
  }
});

test('an output file is replaced only once its successor is complete', async () => {
  const path = temporary('old.json', 'old'), args = ['trace', small, '--tokens', '1,2', '-o', path];
  writeFileSync(`${path}.part`, 'of somebody else');
  const { code, out, err } = await plumb(args);
  assert.deepEqual([code, out], [1, '']);
  assert.match(err, /old\.json\.part: PLUMB_ERROR_IO: the file exists: another run/);
  assert.deepEqual([path, `${path}.part`].map(path => readFileSync(path, 'utf8')), ['old', 'of somebody else']);
  const fresh = temporary('fresh.json', 'old');
  assert.equal(await output([...args.slice(0, -1), fresh]), '');
  assert.equal(JSON.parse(readFileSync(fresh, 'utf8')).tokens.length, 2);
  assert.ok(!existsSync(`${fresh}.part`));
});

nativeTest('what is no regular file is written itself and stays', async () => {
  /* A link, so that only the link can be lost. */
  const full = `${temporary('device', '')}.full`, fifo = `${temporary('device', '')}.fifo`;
  symlinkSync('/dev/full', full);
  const { code, err } = await plumb(['trace', small, '--tokens', '1', '-o', full]);
  assert.deepEqual([code, err], [1, `plumb: ${full}: PLUMB_ERROR_IO: No space left on device\n`]);
  assert.ok(lstatSync(full).isSymbolicLink() && !existsSync(`${full}.part`));
  execFileSync('mkfifo', [fifo]);
  const [, read] = await Promise.all([output(['trace', small, '--tokens', '1,2', '-o', fifo]),
    new Promise((resolve, reject) => execFile('cat', [fifo], (error, out) => error ? reject(error) : resolve(out)))]);
  assert.equal(JSON.parse(read).tokens.length, 2);
  assert.ok(lstatSync(fifo).isFIFO());
});

nativeTest('Ctrl-C leaves no half of a file', async () => {
  const path = `${temporary('saved', '')}.base`, text = temporary('long.txt', 'All work and no play. '.repeat(3000));
  const child = start(['perplexity', smol, text, '--save', path]);
  const end = new Promise(resolve => child.on('close', resolve));
  while (!existsSync(`${path}.part`) && child.exitCode === null) await new Promise(resolve => setTimeout(resolve, 20));
  child.kill('SIGINT');
  assert.equal(await end, 130);
  assert.ok(!existsSync(path) && !existsSync(`${path}.part`));
});
