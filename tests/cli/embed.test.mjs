/* embed and rank.  Ground truth: llama.cpp's embeddings and scores in tests/vectors/embed and tests/vectors/archs. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { command, native, output, plumb, test } from './plumb.mjs';

const folder = 'tests/vectors/embed', file = `${folder}/texts.txt`;
const model = name => `${folder}/${name}.gguf`;
const texts = readFileSync(file, 'utf8').trimEnd().split('\n');
const lines = out => out.trimEnd().split('\n').map(line => JSON.parse(line));
const expected = name => lines(readFileSync(`${folder}/${name}.jsonl`, 'utf8'));
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const distance = (a, b) => 1 - dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
const embed = async (...args) => lines(await output(['embed', ...args]));

for (const name of ['bert', 'modern-bert', 'nomic-bert-moe', 'gemma-embedding', 'qwen3']) {
  test(`embed ${name}: each line has llama.cpp's vector, in both passes`, async () => {
    for (const [flags, most] of [[[], 1e-6], [['--reference'], 1e-11]]) {
      const vectors = await embed(model(name), file, '--parse-special', ...flags);
      assert.equal(vectors.length, texts.length);
      for (const [i, { vector }] of expected(name).entries()) {
        assert.ok(distance(vectors[i], vector) <= most, `line ${i + 1}: ${distance(vectors[i], vector)}`);
        assert.ok(Math.abs(dot(vectors[i], vectors[i]) - 1) < 1e-6);
      }
    }
    const raw = await embed(model(name), file, '--no-normalize');
    for (const [i, { vector }] of expected(name).entries()) {
      assert.ok(Math.abs(Math.sqrt(dot(raw[i], raw[i]) / dot(vector, vector)) - 1) < 1e-3);
    }
  });
}

for (const [name, query] of [['rank-bert', 'the {document} in it'], ['rank-bert-eos', 'the {document} in it'],
  ['rank-xlm', 'the {document} in it'], ['rank-qwen3', 'the thin one']]) {
  test(`rank ${name}: scores are llama.cpp's, the best first`, async () => {
    const scores = expected(name).map(({ vector }) => vector[0]);
    const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
    const ranks = JSON.parse(await output(['rank', model(name), '-q', query, file, '--json']));
    assert.deepEqual(ranks.map(({ line }) => line - 1), order);
    for (const { line, score, text } of ranks) {
      assert.equal(text, texts[line - 1]);
      assert.ok(Math.abs(score - scores[line - 1]) < 5e-4, `line ${line}: ${score}, llama.cpp ${scores[line - 1]}`);
    }
    const plain = (await output(['rank', model(name), '-q', query, file])).trimEnd().split('\n');
    assert.deepEqual(plain.map(line => line.slice(11)), order.map(i => texts[i]));
  });
}

test('rank without a reranker: scores are cosine similarities', async () => {
  const [wanted, ...vectors] = lines(await output(['embed', model('bert'), '-'], ['q: a cat', ...texts].join('\n')));
  const args = ['rank', model('bert'), '-q', 'a cat', file, '--query-prefix', 'q: ', '--json'];
  const ranks = JSON.parse(await output(args));
  assert.equal(ranks.length, texts.length);
  for (const [i, { line, score }] of ranks.entries()) {
    assert.ok(Math.abs(score - dot(wanted, vectors[line - 1])) < 1e-6);
    assert.ok(i === 0 || score <= ranks[i - 1].score);
  }
  assert.equal(await output(['rank', model('bert'), '-q', 'a', '-', '--json'], ''), '[]\n');
});

test('embed: options', async () => {
  const of = async (text, ...args) => lines(await output(['embed', model('bert'), '-', ...args], text));
  assert.deepEqual(await of('cat\n', '--prefix', 'a '), await of('a cat'));
  assert.deepEqual(await of('a\n\nb'), [await of('a'), await of('\n'), await of('b')].flat());
  const [short] = await of('cat', '--dimensions', '5', '--no-normalize'), [whole] = await of('cat', '--no-normalize');
  assert.deepEqual(short, whole.slice(0, 5));
  const [all] = await of('cat', '--pooling', 'none');
  assert.equal(all.length, 5);   // [CLS] c a t [SEP]
  assert.deepEqual(await of('cat'), [all[0]]);
  assert.deepEqual(await of('cat', '--pooling', 'last'), [all[4]]);
  assert.deepEqual(await of('[SEP]', '--parse-special'), await embed(model('bert'), '--tokens', '2,3,3'));
  assert.notDeepEqual(await of('[SEP]'), await of('[SEP]', '--parse-special'));
  assert.deepEqual(await of('a'.repeat(100), '--truncate'), await of('a'.repeat(62)));
  assert.equal(await output(['embed', model('bert'), '-'], ''), '');
  const [program, ...first] = command;
  const raw = spawnSync(program, [...first, 'embed', model('bert'), file, '--raw']);
  const values = new Float32Array(new Uint8Array(raw.stdout).buffer);
  assert.deepEqual([...values], (await embed(model('bert'), file)).flat().map(Math.fround));
});

test('embed: what fails says where', async () => {
  const fails = async (args, input, says) => {
    const { code, err } = await plumb(args, input);
    assert.equal(code, 1, err);
    assert.match(err, says);
  };
  await fails(['embed', model('bert'), '-'], `cat\n${'a'.repeat(100)}`,
    /^plumb: embed: line 2 has 102 tokens, but 1 to 64 are possible; --truncate leaves out the end, --ctx enlarges/);
  await fails(['embed', model('bert'), '--tokens', '2,3', '--dimensions', '33'], '',
    /^plumb: embed: --dimensions is 33, but the model's vectors have 32 elements\n$/);
  await fails(['embed', model('rank-bert'), file], '',
    /the model is a reranker, for plumb rank; choose one with --pooling/);
  await fails(['rank', 'tests/vectors/synth/f32.gguf', '-q', 'x', file], '',
    /the file does not say how the vectors of the tokens become one; choose one with --pooling/);
  await fails(['rank', model('bert'), '-q', 'a'.repeat(100), file], '', /rank: the text has 102 tokens/);
  await fails(['embed', model('bert'), 'nowhere.txt'], '', /nowhere.txt: PLUMB_ERROR_IO/);
});

test('embed takes all-MiniLM-L6-v2 without MODEL, and near sentences are near', async () => {
  const input = 'The cat sleeps on the sofa.\nA kitten is napping on a couch.\nStock prices fell sharply today.\n';
  const [cat, kitten, stocks] = lines(await output(['embed', '-'], input));
  assert.equal(cat.length, 384);
  assert.ok(dot(cat, kitten) > 0.5 && dot(cat, stocks) < 0.2, `${dot(cat, kitten)}, ${dot(cat, stocks)}`);
  const ranked = await output(['rank', '-q', 'Where is my pet?', '-'], input);
  assert.match(ranked.trimEnd().split('\n').at(-1), /Stock prices/);
});

if (native) {
  test('the vectors have the bits of the native command line', async () => {
    for (const name of ['bert', 'nomic-bert-moe', 'gemma-embedding']) {
      assert.equal(await output(['embed', model(name), file]), await output(['embed', model(name), file], '', native));
    }
  });
}
