/* trace and logits.  Ground truth: the tensors of llama.cpp's evaluation callback on a synthetic model (dump.mjs), and
 * its logits for the default model. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { dump, model, tokens, valuesOf } from './dump.mjs';
import { ids, native, nativeTest, output, plumb, smol, start, temporary, test } from './plumb.mjs';

const n_token = tokens.length;
const args = ['trace', model, '--tokens', tokens.join()];
const trace = async (...more) => JSON.parse(await output([...args, '--json', ...more]));

const sum = (values, of) => values.reduce((total, value) => total + of(value), 0);
const near = (found, expected, most, what) =>
  assert.ok(Math.abs(found - expected) <= most, `${what}: ${found}, llama.cpp ${expected}`);

test('trace: shapes, values, statistics and entropies of all taps equal those of llama.cpp\'s tensors', async () => {
  const found = await trace('--values', 'all', '--reference');
  assert.deepEqual(found.tokens, tokens);
  assert.equal(found.taps.length, dump.size * n_token);
  for (const { name, token, shape, values, entropy, ...stats } of found.taps) {
    const expected = valuesOf(name, token), n = expected.length, what = `${name} of token ${token}`;
    assert.equal(shape.reduce((a, b) => a * b), n, what);
    const rms = Math.sqrt(sum(expected, x => x * x) / n), most = 1e-5 * Math.max(rms, 1e-3);
    assert.equal(values.length, n, what);
    near(Math.sqrt(sum(values.map((x, i) => x - expected[i]), d => d * d) / n), 0, most, what);
    near(stats.mean, sum(expected, x => x) / n, most, `mean of ${what}`);
    near(stats.rms, rms, most, `rms of ${what}`);
    near(stats.min, Math.min(...expected), 10 * most, `min of ${what}`);
    near(stats.max, Math.max(...expected), 10 * most, `max of ${what}`);
    assert.deepEqual([stats.nan, stats.inf], [0, 0]);
    assert.equal(entropy !== undefined, name.startsWith('kq_soft_max'));
    entropy?.forEach((value, head) => {
      const weights = expected.slice(head * n_token, (head + 1) * n_token);
      near(value, -sum(weights, p => p > 0 ? p * Math.log(p) : 0), 1e-4, `entropy of ${what}, head ${head}`);
    });
  }
});

test('trace: options select taps, layers and values', async () => {
  const names = async (...more) => [...new Set((await trace('--values', '3', ...more)).taps.map(({ name }) => name))];
  assert.deepEqual(await names('--taps', 'l_out'), ['l_out-0', 'l_out-1']);
  assert.deepEqual(await names('--taps', '?cur-1,embd'), ['embd', 'Qcur-1', 'Kcur-1', 'Vcur-1']);
  assert.deepEqual(await names('--layers', '1', '--taps', '*_out,result*'),
    ['kqv_out-1', 'attn_out-1', 'ffn_out-1', 'l_out-1', 'result_norm', 'result_output']);
  assert.equal((await names('--layers', '0-1')).length, dump.size);
  for (const [n, expected] of [['3', 3], ['0', undefined], ['all', 32]]) {
    const { taps } = await trace('--values', n, '--taps', 'embd');
    assert.deepEqual(taps.map(({ values }) => values?.length), Array(n_token).fill(expected));
  }
});

test('trace: taps are known by other programs\' names; a pattern that matches none is wrong usage', async () => {
  const names = async taps => [...new Set((await trace('--taps', taps)).taps.map(({ name }) => name))];
  assert.deepEqual(await names('logits,l_out_1, q_proj'), ['Qcur-0', 'Qcur-1', 'l_out-1', 'result_output']);
  for (const [more, says] of [
    [['--taps', 'Qcurr'], '--taps: unknown tap "Qcurr"; known taps are embd, inp_per_layer, '],
    [['--taps', 'embd,l_out-2'], '--taps: unknown tap "l_out-2"; known taps are '],
    [['--taps', 'l_out-1', '--layers', '0'], '--taps: "l_out-1" is not in layers 0-0'],
    [['--layers', '1-60'], '--layers 1-60: the model has 2 layers, numbered from 0'],
  ]) {
    const path = temporary('none.json', '');
    const { code, out, err } = await plumb([...args, '-o', path, ...more]);
    assert.deepEqual([code, out, err.startsWith(`plumb: trace: ${says}`)], [2, '', true], err);
    assert.equal(readFileSync(path, 'utf8'), '');
  }
});

test('trace: a prompt at once, in batches or token by token gives the same bits', async () => {
  /* Means depend on the batch: they add the zeros of later keys in another order. */
  const steady = taps => JSON.stringify(taps, (key, value) =>
    key === 'mean' || key === 'rms' || key === 'entropy' ? undefined : value);
  const { taps } = await trace('--values', 'all');
  for (const feeding of [['--batch', '5'], ['--n-prompt', '3'], ['--n-prompt', '1000'], ['--scalar']]) {
    const { taps: again, n_prompt } = await trace('--values', 'all', ...feeding);
    assert.ok(steady(again) === steady(taps), feeding.join(' '));
    assert.equal(n_prompt, feeding[1] === '3' ? 3 : n_token);
  }
});

test('trace prints a readable table', async () => {
  const lines = (await output([...args, '--layers', '0'])).trimEnd().split('\n');
  assert.match(lines[0], /^plumb \S+, fast pass, \w+, exact16, 24 tokens$/);
  assert.deepEqual(lines[1].trim().split(/ +/),
    ['tap', 'tokens', 'shape', 'mean', 'rms', 'min', 'max', 'NaN/Inf']);
  assert.equal(lines.length, 2 + 1 + 16 + 1 + 2);
  for (const line of lines) assert.ok(line.length <= 80, line);
  const cells = lines.find(line => line.startsWith('Vcur-0 ')).split(/ +/), { values } = dump.get('Vcur-0');
  assert.deepEqual([cells[1], cells[2], cells[7]], ['24', '2x8', '0']);
  const rms = Math.sqrt(sum(values, x => x * x) / values.length), mean = sum(values, x => x) / values.length;
  [mean, rms, Math.min(...values), Math.max(...values)].forEach((expected, i) =>
    near(Number(cells[3 + i]), expected, 5e-3 * Math.max(rms, Math.abs(expected)), lines[1].trim().split(/ +/)[3 + i]));
  const soft = lines[lines.findIndex(line => line.startsWith('kq_soft_max-0 ')) + 1];
  const { values: weights } = dump.get('kq_soft_max-0');
  assert.match(soft, /^  entropy +24 +4 /);   // tokens and heads
  near(Number(soft.trim().split(/ +/).at(-1)), -sum(weights, p => p > 0 ? p * Math.log(p) : 0) / (n_token * 4), 5e-3,
    'mean entropy');
  const [one] = (await output(['trace', model, '--tokens', '1'])).split('\n', 1);
  assert.match(one, / 1 token$/);
  const [some] = (await output([...args, '--n-prompt', '3'])).split('\n', 1);
  assert.match(some, / 24 tokens, 3 of them as a prompt$/);
});

test('trace -o writes a file, JSON or GGUF', async () => {
  const path = temporary('trace.json', ''), gguf = temporary('trace.gguf', '');
  assert.equal(await output([...args, '-o', path]), '');
  assert.equal(readFileSync(path, 'utf8'), await output([...args, '--json']));
  assert.equal(await output([...args, '-o', '-']), await output([...args, '--json']));
  assert.equal(await output([...args, '-o', gguf, '--values', 'all', '--reference']), '');
  const { tensors } = JSON.parse(await output(['inspect', gguf, '--json'])), data = readFileSync(gguf);
  assert.equal(tensors.filter(({ name }) => dump.has(name)).length, dump.size);
  const { offset, bytes, type } = tensors.find(({ name }) => name === 'l_out-1'), { values } = dump.get('l_out-1');
  assert.deepEqual([type, bytes], ['F32', 4 * values.length]);
  values.forEach((value, i) => near(data.readFloatLE(offset + 4 * i), value, 1e-4, `l_out-1, value ${i}`));
  const { code, err } = await plumb([...args, '-o', 'none/trace.json']);
  assert.equal(code, 1);
  assert.match(err, /^plumb: none\/trace\.json: PLUMB_ERROR_IO: [^\n]+\n$/);
});

nativeTest('trace: a file that will be large is told in time', async () => {
  const path = `${temporary('large', '')}.json`, text = 'All work and no play. '.repeat(200);
  const child = start(['trace', smol, '-p', text, '--values', 'all', '-o', path]);
  const end = new Promise(resolve => child.on('close', resolve));
  const [line] = await once(child.stderr, 'data');
  child.kill('SIGINT');
  const [, gb] = `${line}`.match(/^plumb: trace: the trace will have up to (\d+\.\d) GB; use --taps and --layers /);
  /* For a token, in each of 30 layers: 9 taps of 576 values, 3 of K and V, 3 of the feed-forward net, 9 heads. */
  const n = ids(await output(['tokenize', smol, text, '--ids'])).length;
  const values = n * (30 * (9 * 576 + 3 * 192 + 3 * 1536 + 9 * n) + 2 * 576 + 49152);
  near(Number(gb), values * 13.3e-9, 0.06, 'GB');
  assert.equal(await end, 130);
  assert.ok(!existsSync(path));
});

test('trace --profile shows the share of every operation', async () => {
  const operationOf = name => name.replace(/-\d+$/, '').replace(/^(kq_soft_max|kqv_out)$/, 'attention');
  const operations = [...new Set([...dump.keys()].map(operationOf))].sort();
  const { tokens: n, seconds, operations: found } = JSON.parse(await output([...args, '--profile', '--json']));
  assert.equal(n, n_token);
  assert.deepEqual(found.map(({ name }) => name).sort(), operations);
  near(sum(found, ({ share }) => share), 1, 0.01, 'sum of the shares');
  near(sum(found, ({ seconds }) => seconds), seconds, 1e-4, 'sum of the times');
  assert.ok(found.every(({ seconds }, i) => i === 0 || seconds <= found[i - 1].seconds), 'the longest first');
  const path = temporary('profiled.json', ''), table = await output([...args, '--profile', '-o', path]);
  assert.deepEqual([...table.matchAll(/^(\w+) +[\d.]+ ms +[\d.]+ %$/gm)].map(([, name]) => name).sort(), operations);
  assert.equal(readFileSync(path, 'utf8'), await output([...args, '--json']));
});

test('trace: -p is fed unchanged, --chat with the chat template', async () => {
  const { prompts } = JSON.parse(readFileSync('tests/vectors/llama/prompts.json', 'utf8'));
  const fed = async (...more) =>
    JSON.parse(await output(['trace', smol, '--taps', 'embd', '--values', '0', '--json', ...more])).tokens;
  assert.deepEqual(await fed('-p', 'The capital of France is'), prompts.find(({ name }) => name === 'capital').ids);
  assert.deepEqual(await fed('-p', 'What is gravity? Answer in two sentences.', '--chat'),
    prompts.find(({ name }) => name === 'chat').ids);
  assert.deepEqual(await fed('-p', '<|im_end|>', '--parse-special'), [2]);
  assert.deepEqual(JSON.parse(await output(['trace', smol, '--taps', 'embd', '--json', '-p', '-'], 'hi\n')).tokens,
    ids(await output(['tokenize', smol, 'hi', '--ids'])));
});

test('trace and logits refuse prompts that cannot be fed', async () => {
  for (const name of ['trace', 'logits']) {
    const empty = await plumb([name, smol, '-p', '']);
    assert.deepEqual([empty.code, empty.out, empty.err], [1, '', `plumb: ${name}: the prompt has no tokens\n`]);
    const range = await plumb([name, smol, '--tokens', '1,49152']);
    assert.deepEqual([range.code, range.out], [2, '']);
    assert.match(range.err, /--tokens: at byte 2: expected token ids from 0 to 49151/);
    const none = await plumb([name, 'models/none.gguf', '-p', 'x']);
    assert.deepEqual([none.code, none.out], [1, '']);
  }
});

/* The fast pass computes the same bits on every host.  --scalar is needed because a trace names its kernels. */
(native ? test : () => {})('trace: the bytes are those of the native build', async () => {
  for (const what of [[...args, '--values', 'all'], ['trace', smol, '-p', 'The capital of France is']]) {
    const words = [...what, '--scalar', '--json'];
    assert.ok(await output(words) === await output(words, '', native), what.join(' '));
  }
  const kernels = ({ program, ...rest }) => rest;
  const words = ['trace', smol, '-p', 'The capital of France is', '--json'];
  assert.deepEqual(kernels(JSON.parse(await output(words))), kernels(JSON.parse(await output(words, '', native))));
});

/* ---- logits ---- */

test('logits --chat: the likeliest first token of an answer is llama.cpp\'s', async () => {
  const { prompts } = JSON.parse(readFileSync('tests/vectors/llama/prompts.json', 'utf8'));
  const { f32: { ids: [first] } } = prompts.find(({ name }) => name === 'chat');
  const question = 'What is gravity? Answer in two sentences.';
  for (const [how, same] of [[['--chat'], true], [[], false]]) {
    const found = JSON.parse(await output(['logits', smol, '-p', question, '--top', '1', '--json', ...how]));
    assert.equal(found[0].id === first, same, JSON.stringify(found));
  }
});

test('logits: the likeliest tokens and their logits are llama.cpp\'s', async () => {
  const data = readFileSync('tests/vectors/llama/capital.f32.bin');
  const [n, , , n_sample, n_top] = [1, 2, 3, 4, 5].map(i => data.readUInt32LE(8 + 4 * i));
  const record = 32 + 4 * n /* of the prompt's last token */, top = record + 4 * (1 + n_sample);
  const expected = Array.from({ length: n_top }, (_, i) =>
    ({ id: data.readUInt32LE(top + 4 * i), logit: data.readFloatLE(top + 4 * (n_top + i)) }));
  const ask = ['logits', smol, '-p', 'The capital of France is', '--reference'];
  const found = JSON.parse(await output([...ask, '--json']));
  assert.equal(found.length, 10);
  assert.ok(n_top >= 2);
  assert.deepEqual([found[0].id, found[0].piece], [7042, ' Paris']);
  expected.forEach(({ id, logit }, i) => {
    assert.equal(found[i].id, id);
    near(found[i].logit, logit, 0.01, `logit ${i}`);
    near(found[i].probability, Math.exp(logit - data.readFloatLE(record)), 0.01, `probability ${i}`);
  });
  assert.match(await output([...ask, '--top', '1']),
    /^ +id +logit +probability +token\n  7042 +17\.\d{6} +0\.7\d{5}  " Paris"\n$/);
});
