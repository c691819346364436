/* perplexity.  Ground truth: the output and the saved run of llama-perplexity (tests/vectors/perplexity). */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { nativeTest, output, plumb, smol, start as begin, temporary, test } from './plumb.mjs';

const vectors = 'tests/vectors/perplexity', text = `${vectors}/text.txt`;
const synth = name => `tests/vectors/synth/${name}.gguf`;
const near = (found, expected, relative, what) =>
  assert.ok(Math.abs(found - expected) <= relative * Math.abs(expected), `${what}: ${found}, llama.cpp ${expected}`);

/** The numbers after a label in a paragraph of llama.txt. */
function printed(paragraph, label) {
  const lines = readFileSync(`${vectors}/llama.txt`, 'utf8').split('\n');
  const line = lines.slice(lines.indexOf(paragraph) + 1).find(line => line.startsWith(label));
  return line.slice(label.length).match(/-?\d+\.\d+/g).map(Number);
}
/** The type of K and V that llama-perplexity used. */
const exact = ['--kv-type', 'f32'];
const perplexity = async (model, ...more) =>
  JSON.parse(await output(['perplexity', synth(model), text, '--json', ...more]));

test('perplexity: with f32 weights the result equals llama-perplexity\'s', async () => {
  const [ppl, error] = printed('f32', 'Final estimate: PPL =');
  for (const pass of [exact, ['--reference'], [...exact, '--batch', '7']]) {
    const found = await perplexity('f32', '--ctx', '48', ...pass);
    near(found.perplexity, ppl, 1e-6, 'perplexity');
    near(found.error, error, 1e-6, 'its error');
    assert.deepEqual([found.tokens, found.chunks, found.context], [115, 5, 48]);
  }
});

test('perplexity: with quantized weights, odd vocabulary sizes and BOS the result is close', async () => {
  /* llama.cpp rounds activations to 8 bits; without BOS the third would differ by 12 %. */
  for (const model of ['q4_0', 'untied', 'spm']) {
    const [ppl] = printed(model, 'Final estimate: PPL =');
    near((await perplexity(model, '--ctx', '48')).perplexity, ppl, 0.02, model);
  }
});

test('perplexity --kl: the divergence from a run saved by llama-perplexity equals its own', async () => {
  const found = await perplexity('f32', ...exact, '--kl', `${vectors}/q4_0.base`);
  assert.equal(found.context, 48);   // the saved run's
  const is = ([value, error], label, relative = 1e-6, scale = 1) => {
    const expected = printed('f32 against q4_0', label);
    near(value * scale, expected[0], relative, label);
    if (error !== undefined) near(error * scale, expected[1], relative * 10, `${label}, error`);
  };
  is([found.perplexity, found.error], 'Mean PPL(Q)');
  is([found.base.perplexity, found.base.error], 'Mean PPL(base)');
  is([found.log_ratio.mean, found.log_ratio.error], 'Mean ln(PPL(Q)/PPL(base))');
  is([found.kl.mean, found.kl.error], 'Mean    KLD');
  is([found.kl.max], 'Maximum KLD');
  is([found.kl.p99], '99.0%   KLD');
  is([found.kl.median], 'Median  KLD');
  is([found.probability_rms.mean, found.probability_rms.error], 'RMS Δp', 2e-4, 100);   // 3 decimals of per cent
  is([found.same_top.mean, found.same_top.error], 'Same top p', 1e-3, 100);
});

test('perplexity --save: the file equals llama-perplexity\'s; with f32 weights only last bits differ', async () => {
  /* For other weight types llama.cpp rounds activations to 8 bits: 7 % of the logits' spread. */
  for (const [model, most, mostRms] of [['f32', 1, 1e-4], ['untied', undefined, 0.1]]) {
    const path = temporary(`${model}.base`, '');
    await perplexity(model, ...exact, '--ctx', '48', '--save', path);
    const ours = readFileSync(path), theirs = readFileSync(`${vectors}/${model}.base`);
    assert.equal(ours.length, theirs.length);
    const n_vocab = theirs.readUInt32LE(12), start = 20 + 4 * 48 * 5, n_record = 8 + 2 * (n_vocab + n_vocab % 2);
    assert.ok(ours.subarray(0, start).equals(theirs.subarray(0, start)), 'header and tokens');
    for (let at = start; at < ours.length; at += n_record) {
      near(ours.readFloatLE(at), theirs.readFloatLE(at), most ? 1e-5 : 0.05, `scale at byte ${at}`);
      near(ours.readFloatLE(at + 4), theirs.readFloatLE(at + 4), most ? 1e-5 : 0.05, `least at byte ${at}`);
      const [mine, their] = [ours, theirs].map(data => Array.from({ length: n_vocab }, (_, i) =>
        data.readFloatLE(at) * data.readUInt16LE(at + 8 + 2 * i) + data.readFloatLE(at + 4)));
      const mean = their.reduce((a, b) => a + b) / n_vocab, square = (a, b) => a + b ** 2;
      const rms = Math.sqrt(mine.map((x, i) => x - their[i]).reduce(square, 0)
        / their.map(x => x - mean).reduce(square, 0));
      assert.ok(rms <= mostRms, `position at byte ${at}: relative RMS ${rms}`);
      for (let i = 0; most && i < n_vocab; i++) {
        const [a, b] = [ours, theirs].map(data => data.readUInt16LE(at + 8 + 2 * i));
        assert.ok(Math.abs(a - b) <= most, `position at byte ${at}, token ${i}: ${a}, llama.cpp ${b}`);
      }
    }
    const again = await perplexity(model, ...exact, '--kl', path);
    assert.ok(again.kl.mean < 1e-6 && again.same_top.mean === 1, JSON.stringify(again));
  }
});

test('perplexity --kl reference: the fast pass is close to the reference pass', async () => {
  const { kl, same_top, base } = await perplexity('q4_0', '--ctx', '48', '--chunks', '2', '--kl', 'reference');
  assert.ok(kl.mean > 0 && kl.mean < 1e-4 && same_top.mean > 0.9, JSON.stringify({ kl, same_top }));
  const { perplexity: itself } = await perplexity('q4_0', '--ctx', '48', '--chunks', '2', '--reference');
  near(base.perplexity, itself, 1e-6, 'the base\'s perplexity');
});

test('perplexity: one position has no standard error, and values that are not finite are null', async () => {
  const { tokens, error, kl, same_top } = await perplexity('f32', '--ctx', '4', '--chunks', '1', '--kl', 'reference');
  assert.deepEqual([tokens, error, kl.error, kl.median === kl.max, same_top], [1, 0, 0, true, { mean: 1, error: 0 }]);
  const { tensors } = JSON.parse(await output(['inspect', synth('f32'), '--json'])), bytes = readFileSync(synth('f32'));
  const { offset, shape } = tensors.find(({ name }) => name === 'output_norm.weight');
  for (let at = offset; at < offset + 4 * shape[0]; at += 4) bytes.writeFloatLE(1e6 * bytes.readFloatLE(at), at);
  const loud = temporary('loud.gguf', bytes);
  assert.equal(JSON.parse(await output(['perplexity', loud, text, '--ctx', '48', '--json'])).perplexity, null);
});

test('perplexity prints a readable report', async () => {
  const out = await output(['perplexity', synth('f32'), text, ...exact, '--kl', `${vectors}/q4_0.base`]);
  assert.match(out, /^perplexity +5634\.32\d\d \+\/- 1346\.21\d\d   115 tokens of 5 chunks of 48\n/);
  assert.match(out, /^KL divergence +7\.08 \+\/- 0\.165   median 6\.85, 99 % 11\.6, largest/m);
  assert.match(out, /^same top token +0\.8696 \+\/- 0\.8696 %\n$/m);
});

const base = readFileSync(`${vectors}/q4_0.base`);
const changed = (at, value) => {
  const bytes = Buffer.from(base);
  bytes.writeUInt32LE(value, at);
  return bytes;
};
const start = 20 + 4 * 48 * 5, n_record = 8 + 2 * 260;
/* name, the saved run, status, text of the line */
const bad = [
  ['no run', Buffer.from('GGUF and more'), 'MAGIC', '_logits_'],
  ['a cut header', base.subarray(0, 15), 'TRUNCATED', '15'],
  ['chunks of none', changed(8, 0), 'METADATA', 'tokens, found 0'],
  ['chunks beyond reason', changed(8, 0xffffffff), 'METADATA', '4294967295'],
  ['another vocabulary', changed(12, 261), 'METADATA', '261 tokens, but the model\'s has 260'],
  ['chunks by the billion', changed(16, 0xffffffff), 'METADATA', '206158430160 tokens, but the text has 280'],
  ['no chunks', changed(16, 0), 'METADATA', '0 tokens'],
  ['another text', changed(20 + 4 * 70, 5), 'METADATA', 'token 70'],
  ['cut in the tokens', base.subarray(0, 20 + 4 * 3 + 2), 'TRUNCATED', 'token 3 of 240'],
  ['cut in a position', base.subarray(0, start + 2 * n_record + 9), 'TRUNCATED', 'position 2 of 115'],
  ['a scale that is NaN', changed(start + n_record, 0x7fc00000), 'METADATA', 'position 1'],
];
test('perplexity --kl: a saved position may have the same probability for all tokens', async () => {
  const bytes = changed(start + n_record, 0);   // a scale of 0
  bytes.writeFloatLE(-Math.log(260), start + n_record + 4);
  const { code, err } = await plumb(['perplexity', synth('f32'), text, '--kl', temporary('uniform.base', bytes)]);
  assert.deepEqual([code, err.match(/PLUMB_ERROR\w*/)], [0, null]);
});
test('perplexity --kl: an invalid saved run exits 1 and says why', async t => {
  for (const [name, bytes, status, says] of bad) {
    await t.test(name, async () => {
      const path = temporary(`${name.replaceAll(' ', '-')}.base`, bytes);
      const { code, out, err } = await plumb(['perplexity', synth('f32'), text, '--kl', path]);
      assert.deepEqual([code, out], [1, '']);
      assert.ok(err.startsWith(`plumb: ${path}: PLUMB_ERROR_${status}: `) && err.includes(says), err);
    });
  }
});

test('perplexity: failures exit 1 with one line', async () => {
  const cases = [
    [[synth('f32'), 'none.txt'], /^plumb: none\.txt: PLUMB_ERROR_IO: [^\n]+\n$/],
    [[synth('f32'), text, '--ctx', '400'],
      /text\.txt: the text has 2\d\d tokens, but a chunk has 400; use --ctx for smaller chunks\n$/],
    [[synth('f32'), text, '--ctx', '64', '--kl', `${vectors}/q4_0.base`], /chunks of 48 tokens, but --ctx is 64\n$/],
    [[synth('f32'), text, '--ctx', '48', '--save', 'none/x'], /^plumb: none\/x: PLUMB_ERROR_IO: [^\n]+\n$/],
    [[synth('f32'), text, '--kl', 'none.base'], /^plumb: none\.base: PLUMB_ERROR_IO: [^\n]+\n$/],
  ];
  for (const [args, says] of cases) {
    const { code, out, err } = await plumb(['perplexity', ...args]);
    assert.deepEqual([code, out], [1, ''], args.join(' '));
    assert.match(err, says);
  }
});

test('perplexity: a GGUF file in place of the text is refused', async () => {
  const { code, out, err } = await plumb(['perplexity', synth('f32'), synth('f32'), '--ctx', '16']);
  assert.deepEqual([code, out, err], [1, '', `plumb: ${synth('f32')}: expected a text, found a GGUF file\n`]);
});

test('perplexity --kl: small divergences are not rounded to zero', async () => {
  const printed = await output(['perplexity', synth('f32'), text, '--ctx', '48', '--kl', 'reference']);
  const { kl } = await perplexity('f32', '--ctx', '48', '--kl', 'reference');
  const [, mean, error] = printed.match(/^KL divergence +(\S+) \+\/- (\S+) /m).map(Number);
  assert.ok(kl.mean > 0 && kl.mean < 1e-6);
  near(mean, kl.mean, 0.01, 'KL divergence');
  near(error, kl.error, 0.01, 'its error');
});

const hasProc = existsSync('/proc/self/status');
/** Whether a process catches SIGINT, by the mask of proc_pid_status(5). @param {number | undefined} pid */
const catchesInterrupt = pid => (Number.parseInt(/^SigCgt:\s*([0-9a-f]+)$/m.exec(
  readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]?.slice(-1) ?? '0', 16) & 2) !== 0;
const until = async condition => {
  while (!condition()) await new Promise(resolve => setTimeout(resolve, 2));
};

nativeTest('perplexity: Ctrl-C ends it while it tokenizes', { skip: !hasProc }, async () => {
  const long = temporary('long.txt', '3.14159 26535 89793 23846 '.repeat(1500000));   // takes about 5 s
  const child = begin(['perplexity', smol, long]);
  const end = new Promise(resolve => child.on('close', (code, signal) => resolve([code, signal])));
  // The command catches the signal while it loads the model, but not while it tokenizes, which cannot be interrupted.
  await until(() => catchesInterrupt(child.pid));
  await until(() => !catchesInterrupt(child.pid));
  child.kill('SIGINT');
  assert.deepEqual(await end, [null, 'SIGINT']);   // killed by the signal; a handler would exit with 130
});
