/* diff, selfcheck, weights, diagnose: exit codes 0 for agreement, 1 for a finding, 3 for a failure.  Ground truth:
 * llama.cpp's activations (dump.mjs), and hand-made mistakes in them.  The C tests cover many more mistakes. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dump, model, tokens, valuesOf } from './dump.mjs';
import { output, plumb, temporary, test } from './plumb.mjs';

const synth = name => `tests/vectors/synth/${name}.gguf`;
/** A trace of another engine with these taps, as docs/trace.md requires; change(values, name) makes the mistake. */
function foreign(name, { taps = [...dump.keys()], change = values => values, ...more } = {}) {
  const records = taps.flatMap(tap => tokens.map((_, token) =>
    ({ name: tap, token, values: change(valuesOf(tap, token), tap, token) })));
  return temporary(`${name}.json`, JSON.stringify({ tokens, taps: records, ...more }));
}
const ours = temporary('ours.json', '');
await output(['trace', model, '--tokens', tokens.join(), '--reference', '--values', 'all', '-o', ours]);
const truth = foreign('truth');

/* ---- diff ---- */

test('diff: the reference pass and llama.cpp agree, exit code 0', async () => {
  const text = await plumb(['diff', ours, truth, '--tolerance', '1e-5']);
  assert.deepEqual([text.code, text.err], [0, '']);
  for (const tap of dump.keys()) assert.match(text.out, new RegExp(`^ *${tap} `, 'm'));
  const json = JSON.parse(await output(['diff', ours, truth, '--json', '--tolerance', '1e-5']));
  assert.deepEqual([json.agree, json.tolerance, json.a.name, json.b.name], [true, 1e-5, ours, truth]);
});

test('diff: if they diverge it names the first tap that differs, exit code 1', async () => {
  const theirs = foreign('halved', {
    change: (values, name) => name === 'ffn_out-1' || name === 'l_out-1' ? values.map(x => x / 2) : values,
  });
  const { code, out, err } = await plumb(['diff', theirs, ours, '--json']);
  assert.deepEqual([code, err], [1, '']);
  const { agree, verdict } = JSON.parse(out);
  assert.deepEqual([agree, verdict.tap], [false, 'ffn_out-1']);
  assert.equal((await plumb(['diff', theirs, ours, '--tolerance', '0.6'])).code, 0);
});

test('diff --html writes one page and still prints the report', async () => {
  const page = temporary('page.html', '');
  const { code, out } = await plumb(['diff', ours, truth, '--html', page]);
  assert.deepEqual([code, out], [0, await output(['diff', ours, truth])]);
  const html = readFileSync(page, 'utf8');
  assert.match(html, /^<!doctype html>/i);
  assert.match(html, /<\/html>\s*$/i);
  assert.doesNotMatch(html, /(src|href)=["']?https?:/);
});

test('diff: two traces made with default options show the likeliest tokens with their texts', async () => {
  const [one, two] = ['one.json', 'two.json'].map(name => temporary(name, '')), page = temporary('top.html', '');
  await output(['trace', model, '--tokens', tokens.join(), '--reference', '-o', one]);
  await output(['trace', model, '--tokens', tokens.join(), '-o', two]);
  const likeliest = JSON.parse(await output(['logits', model, '--tokens', tokens.join(), '--top', '10', '--json']));
  const { top } = JSON.parse(await output(['diff', one, two, '--json']));
  assert.deepEqual([top.b.length, top.token], [10, tokens.length - 1]);
  assert.deepEqual(top.b.map(({ id, piece }) => [id, typeof piece]),
    likeliest.map(({ id }) => [id, 'string']));
  const text = await output(['diff', one, two, '--html', page]);
  assert.match(text, new RegExp(`^ 1 +\\S+ +${top.a[0].id} ".* +${top.b[0].id} "`, 'm'));
  assert.doesNotMatch(text, /--model MODEL shows/);
  assert.match(readFileSync(page, 'utf8'), new RegExp(`Likeliest next tokens.*<small>${top.b[0].id}</small>`, 's'));
});

test('diff: ten logits of one token are enough to find a divergence', async () => {
  const record = { name: 'result_output', token: tokens.length - 1 };
  const two = temporary('lists.json', JSON.stringify({ tokens, taps: [{ ...record, top: [[1, 90], [2, 80]] }] }));
  const { code, out, err } = await plumb(['diff', two, ours]);
  assert.deepEqual([code, err], [1, '']);
  assert.match(out, /A's\s+likeliest,\s+1\s/);
  assert.match(out, new RegExp(`^Next: plumb diagnose MODEL --against ${two}$`, 'm'));
  for (const line of out.split('\n').slice(2)) assert.ok(line.length <= 80 || line.startsWith('Next:'), line);
});

test('diff: nothing in common exits 3, with the report', async () => {
  const other = temporary('unknown.json', JSON.stringify({ tokens, taps: [{ name: 'my_embd', values: [1] }] }));
  const { code, out, err } = await plumb(['diff', other, ours]);
  assert.equal(code, 3);
  assert.match(err, /^plumb: diff: PLUMB_ERROR_ARGUMENT: nothing to compare: A has 0 taps[^\n]*\n$/);
  assert.match(out, /^ +1 record was ignored, because no tap has its name: my_embd$/m);
});

test('diff: different tokens are found, and --model adds their texts', async () => {
  const other = temporary('other.json', '');
  await output(['trace', model, '--tokens', [256, ...tokens].join(), '-o', other]);
  const { code, out } = await plumb(['diff', other, truth, '--model', model, '--json']);
  assert.equal(code, 1);
  assert.notEqual(JSON.parse(out).tokens.verdict, 'same');
});

/* ---- selfcheck, weights ---- */

test('selfcheck: a good file is OK, exit code 0', async () => {
  const { checks } = JSON.parse(await output(['selfcheck', model, '--json']));
  assert.ok(checks.length >= 10 && checks.some(({ verdict }) => verdict === 'OK'));
  for (const { name, verdict } of checks) assert.ok(['OK', 'SKIP'].includes(verdict), `${name}: ${verdict}`);
  const text = await output(['selfcheck', model]);
  assert.match(text, /^OK +file /m);
  assert.match(text.replace(/\n {18}/g, ' '), /^OK +tokenizer .*; all of the first 256 characters have a token$/m);
  for (const line of text.split('\n')) assert.ok(line.length <= 80, line);
});

test('selfcheck: a tensor with the wrong name fails, exit code 1', async () => {
  const bytes = readFileSync(model), at = bytes.indexOf('blk.1.ffn_up.weight');
  bytes.write('blk.1.ffn_no.weight', at);
  const { code, out, err } = await plumb(['selfcheck', temporary('renamed.gguf', bytes), '--json']);
  assert.deepEqual([code, err], [1, '']);
  assert.ok(JSON.parse(out).checks.some(({ verdict }) => verdict === 'FAIL'));
});

test('selfcheck: a file that cannot be loaded fails its first check, exit code 1', async () => {
  const { tensors } = JSON.parse(await output(['inspect', model, '--json'])), bytes = readFileSync(model);
  const { name, offset } = tensors.find(({ name }) => name === 'blk.1.ffn_up.weight');
  const unaligned = Buffer.from(bytes), entry = unaligned.indexOf(name) + name.length;
  unaligned[entry + 4 + 2 * 8 + 4]++;   // its offset, after n_dims, two dimensions and the type
  const cases = [
    ['cut in a tensor', bytes.subarray(0, offset + 1), `tensor "${name}": its \\d+ bytes end at .*${offset + 1}`],
    ['cut in the header', bytes.subarray(0, 999), 'key \\d+ .* the file has only \\d+ more'],
    ['unaligned', unaligned, `"${name}".*alignment`],
    ['empty', '', 'the file ends at byte 0'],
    ['a text', 'Once upon a time', 'magic "Once" is not "GGUF"'],
  ];
  for (const [what, data, why] of cases) {
    const path = temporary(`${what}.gguf`, data), text = await plumb(['selfcheck', path]);
    assert.deepEqual([text.code, text.err], [1, ''], what);
    for (const line of text.out.split('\n')) assert.ok(line.length <= 80, line);
    assert.match(text.out.replace(/\n {18}/g, ' '), new RegExp(`^FAIL +file +.*${why}`));
    const { code, out, err } = await plumb(['selfcheck', path, '--json']), { ok, checks } = JSON.parse(out);
    assert.deepEqual([code, err, ok, checks[0].name, checks[0].verdict], [1, '', false, 'file', 'FAIL'], what);
    assert.match(checks[0].why, new RegExp(why));
    for (const { name, verdict } of checks.slice(1)) assert.equal(verdict, 'SKIP', `${what}: ${name}`);
  }
});

test('weights: the types explain rounding to f16, but not a damaged tensor', async () => {
  assert.equal((await plumb(['weights', synth('f16'), model])).code, 0);
  const { tensors } = JSON.parse(await output(['inspect', model, '--json'])), bytes = readFileSync(model);
  const { offset } = tensors.find(({ name }) => name === 'blk.1.attn_k.weight');
  for (let i = 0; i < 32; i++) bytes.writeFloatLE(-bytes.readFloatLE(offset + 4 * i), offset + 4 * i);
  const damaged = temporary('damaged.gguf', bytes);
  const { code, out } = await plumb(['weights', damaged, model, '--json']);
  assert.equal(code, 1);
  const report = JSON.parse(out);
  assert.deepEqual([report.a, report.b], [damaged, model]);
  assert.deepEqual(report.tensors.filter(({ verdict }) => verdict !== 'ok').map(({ name }) => name),
    ['blk.1.attn_k.weight']);
  const lines = ({ out }) => out.trimEnd().split('\n'), text = lines(await plumb(['weights', damaged, model]));
  assert.deepEqual(text.slice(2).filter(line => /^\S/.test(line)).map(line => line.split(/ +/, 2).join(' ')),
    ['DIFF blk.1.attn_k.weight', `${tensors.length} tensors:`]);
  assert.match(text.at(-1),
    new RegExp(`: 1 differ more than .*, 0 are in one file only, ${tensors.length - 1} agree$`));
  for (const line of text) assert.ok(line.length <= 100 && !/ $/.test(line), line);
  const all = lines(await plumb(['weights', damaged, model, '--all']));
  assert.equal(all.filter(line => /^(ok|DIFF) /.test(line)).length, tensors.length);
});

/* ---- diagnose ---- */

test('diagnose: llama.cpp is right, exit code 0', async () => {
  assert.equal((await plumb(['diagnose', model, '--against', truth])).code, 0);
  assert.equal(JSON.parse(await output(['diagnose', model, '--against', truth, '--json'])).agree, true);
});

test('diagnose: hand-made mistakes are named, exit code 1', async () => {
  const n_embd = 32, last = 'l_out-1';
  const made = [
    ['embd.scale=added', foreign('scaled', { taps: ['embd'], change: x => x.map(x => x * Math.sqrt(n_embd)) })],
    ['norm.output=missing', foreign('unnormed', {
      taps: ['embd', last, 'result_norm'],
      change: (values, name, token) => name === 'result_norm' ? valuesOf(last, token) : values,
    })],
  ];
  for (const [mistake, theirs] of made) {
    const { code, out } = await plumb(['diagnose', model, '--against', theirs]);
    assert.equal(code, 1, mistake);
    assert.match(out, new RegExp(`^verdict: .*${mistake}`, 'm'));
    const { agree, ranking } = JSON.parse((await plumb(['diagnose', model, '--against', theirs, '--json'])).out);
    assert.equal(agree, false);
    assert.ok(JSON.stringify(ranking[0]).includes(mistake), JSON.stringify(ranking[0]));
  }
});

test('diagnose: if the file has no tokens, the command line gives them', async () => {
  const silent = foreign('silent', { tokens: undefined });
  const { code, out, err } = await plumb(['diagnose', model, '--against', silent]);
  assert.deepEqual([code, out], [3, '']);
  assert.match(err, new RegExp(`^plumb: ${silent}: PLUMB_ERROR_ARGUMENT: [^\\n]*tokens[^\\n]*--tokens or -p\\n$`));
  const told = ['diagnose', model, '--against', silent, '--tokens', tokens.join()];
  assert.equal((await plumb(told)).code, 0);
  assert.equal((await plumb([...told, '--n-prompt', '3'])).code, 0);
});

test('diagnose: tokens that contradict the file are the verdict, exit code 1; other numbers of tokens are wrong usage',
  async () => {
    const diagnose = (ids, ...more) => plumb(['diagnose', model, '--against', truth, '--tokens', ids.join(), ...more]);
    assert.equal((await diagnose(tokens)).code, 0);
    const other = tokens.with(2, tokens[2] + 1);
    const { code, out, err } = await diagnose(other);
    assert.deepEqual([code, err], [1, '']);
    assert.match(out, /^from token \d on\n.*\nThe tokens differ: .*\nThey first differ at index 2\. /ms);
    const told = JSON.parse((await diagnose(other, '--json')).out);
    assert.deepEqual([told.format, told.tokens.index, told.b.tokens], ['plumb diff', 2, other]);
    const missing = JSON.parse((await diagnose(tokens.slice(1), '--json')).out);
    assert.deepEqual([missing.agree, missing.tokens.index], [false, 0]);
    const more = await diagnose([...tokens, 1]);
    assert.deepEqual([more.code, more.out, more.err], [2, '', `plumb: diagnose: --tokens contradicts ${truth}: it has `
      + `${tokens.length + 1} tokens, but the file has ${tokens.length}\n`]);
  });

test('diagnose --tolerance sets the size from which an error counts', async () => {
  const theirs = foreign('off', { change: (x, name) => x.map(x => name === 'embd' ? 1.001 * x : x) });
  const agree = async (...more) => {
    const { code, out } = await plumb(['diagnose', model, '--against', theirs, '--json', ...more]);
    assert.equal(code === 0, JSON.parse(out).agree);
    return code;
  };
  assert.deepEqual([await agree(), await agree('--tolerance', '1e-4'), await agree('--tolerance=0.01')], [0, 1, 0]);
});

test('diagnose: a mistake in one layer is named with its layer', async () => {
  const theirs = foreign('one-layer', {
    taps: [...dump.keys()].filter(name => !name.startsWith('result')),
    change: (values, name, token) => name === 'l_out-1' ? valuesOf('ffn_out-1', token) : values,
  });
  const { code, out } = await plumb(['diagnose', model, '--against', theirs]);
  assert.equal(code, 1);
  assert.match(out, /^verdict: residual\.ffn=missing in layer 1 alone reproduces their numbers$/m);
  const { local } = JSON.parse((await plumb(['diagnose', model, '--against', theirs, '--json'])).out);
  assert.deepEqual([local.mistake, local.layers, local.parted, local.tap, local.explains],
    ['residual.ffn=missing', [1], [1], 'l_out-1', true]);
});

test('diagnose --list prints every mistake that it knows', async () => {
  const lines = (await output(['diagnose', '--list'])).trimEnd().split('\n');
  for (const line of lines) assert.ok(line.length <= 80, line);
  const list = JSON.parse(await output(['diagnose', '--list', '--json']));
  assert.ok(list.length > 100 && new Set(list.map(({ name }) => name)).size === list.length);
  assert.deepEqual(lines.filter(line => /^\S/.test(line)).map(line => line.split(/ +/, 2)),
    list.map(({ name, tap }) => [name, tap]));
  const those = JSON.parse(await output(['diagnose', model, '--list', '--json']));
  const names = new Set(list.map(({ name }) => name));
  assert.ok(those.length > 50 && those.length < list.length && those.every(({ name }) => names.has(name)));
  assert.ok(those.some(({ models }) => models === 'with RoPE') && !those.some(({ name }) => name.startsWith('alibi.')));
});

/* ---- failures ---- */

test('diff says what is wrong with a file that is not a trace', async () => {
  const table = temporary('table.txt', await output(['trace', model, '--tokens', tokens.join()]));
  for (const [path, says] of [
    [temporary('nothing.json', ''), 'the file is empty'],
    [table, 'this is the table that `plumb trace` prints for people; -o FILE.json writes a trace that can be read'],
    [temporary('other.json', '{"values": [1, 2]}'), 'the member "taps", the list of records, is missing'],
  ]) {
    const { code, out, err } = await plumb(['diff', path, truth]);
    assert.deepEqual([code, out, err], [3, '', `plumb: ${path}: PLUMB_ERROR_METADATA: ${says}\n`]);
  }
});

test('reports: a file that is missing, unreadable or malformed exits 3', async t => {
  const garbage = temporary('garbage.txt', 'Once upon a time');
  const cut = temporary('cut.gguf', readFileSync(model).subarray(0, 999));
  const cases = [
    ...[['none.json', 'IO'], ['models', 'IO'], [garbage, 'METADATA']].flatMap(([path, status]) =>
      [[['diff', path, truth], path, status], [['diff', truth, path], path, status],
        [['diagnose', model, '--against', path], path, status]]),
    [['selfcheck', 'none.gguf'], 'none.gguf', 'IO'],
    ...[['none.gguf', 'IO'], [garbage, 'MAGIC'], [cut, 'TRUNCATED']].flatMap(([path, status]) =>
      [[['weights', path, model], path, status],
        [['weights', model, path], path, status], [['diagnose', path, '--against', truth], path, status],
        [['diff', ours, truth, '--model', path], path, status]]),
    [['diff', ours, truth, '--html', 'none/page.html'], 'none/page.html', 'IO'],
  ];
  for (const [args, path, status] of cases) {
    await t.test(args.join(' '), async () => {
      const { code, out, err } = await plumb(args);
      assert.deepEqual([code, out], [3, '']);
      assert.match(err, new RegExp(`^plumb: ${path}: PLUMB_ERROR_${status}: [^\\n]+\\n$`));
    });
  }
});
