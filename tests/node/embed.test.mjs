/** Embeddings and ranks.  Ground truth: llama.cpp's embeddings of tests/vectors/archs, which a dump of taps ends in. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import OpenAI from '../../web/node/openai.js';
import { fails, root, textOf, tinyPath } from './helpers.mjs';

const archs = `${root}tests/vectors/archs/`;
/** The ids of tests/vectors/archs/make.sh. */
const IDS = Int32Array.from([7, 1, 33, 33, 60, 2, 19, 48]);

/** The last record of a dump with this name (tests/vectors/llama/logits.c has the layout). */
function record(dump, name) {
  const view = new DataView(dump.buffer, dump.byteOffset, dump.length);
  let found;
  for (let at = 0; at < dump.length;) {
    const ne = [24, 28, 32, 36].map(offset => view.getUint32(at + offset, true)), n = ne[0] * ne[1] * ne[2] * ne[3];
    if (dump.toString('latin1', at, at + 24).replace(/\0.*/s, '') === name) {
      found = Float32Array.from({ length: n }, (_, i) => view.getFloat32(at + 40 + 4 * i, true));
    }
    at += 40 + 4 * n;
  }
  return found;
}

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const cosineDistance = (a, b) => 1 - dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

describe('embeddings of each architecture equal llama.cpp\'s', () => {
  const encoders = ['bert', 'nomic-bert', 'nomic-bert-moe', 'jina-bert-v2', 'jina-bert-v3', 'modern-bert', 'neo-bert',
    'eurobert', 'gemma-embedding', 'llama-embed', 't5encoder', 'qwen3'];
  for (const name of encoders) {
    for (const worker of [true, false]) {
      test(`${name}, ${worker ? 'in a worker' : 'in the caller\'s thread'}`, async () => {
        const dump = readFileSync(`${archs}${name}.taps`);
        const model = await Plumb.load(`${archs}${name}.gguf`, { worker });
        const { dimensions, embedding, pooling, hasLogits } = await model.info();
        assert.equal(hasLogits, name === 'qwen3');
        for (const pooling of ['none', 'mean', 'cls', 'last']) {
          const theirs = record(dump, pooling), raw = await model.embed(IDS, { pooling, normalize: false });
          assert.equal(raw.length, theirs.length);
          assert.ok(cosineDistance(raw, theirs) < 1e-6, `${pooling}: ${cosineDistance(raw, theirs)}`);
          const unit = await model.embed(IDS, { pooling });
          const n = pooling === 'none' ? theirs.length / IDS.length : theirs.length;
          for (let row = 0; row < unit.length; row += n) {
            const vector = unit.subarray(row, row + n), length = Math.sqrt(dot(vector, vector));
            assert.ok(Math.abs(length - 1) < 1e-6, `${pooling}: a vector of length ${length}`);
            assert.ok(cosineDistance(vector, raw.subarray(row, row + n)) < 1e-7);
          }
        }
        if (pooling === 'rank') {
          assert.equal(dimensions, record(dump, 'rank').length);
          await fails(() => model.embed(IDS), 'PLUMB_ERROR_ARGUMENT',
            /^embed: the model is a reranker; use model.rank, or pass a pooling: 'mean', 'cls' or 'last'$/);
        } else {
          assert.equal(dimensions, record(dump, 'mean').length);
          assert.deepEqual(await model.embed(IDS), await model.embed(IDS, { pooling }));
          assert.ok(dimensions === embedding || name === 'gemma-embedding');
        }
        await model.close();
      });
    }
  }
});

/** 40 texts of 1 to 60 bytes, of which each is a token. */
const SENTENCE = 'the quick brown fox jumps over the lazy dog; he does not mind at all';
const texts = Array.from({ length: 40 }, (_, i) => SENTENCE.slice(i % 7, i % 7 + 1 + i * 37 % 60));
/** So many that a call can be interrupted. */
const many = Array.from({ length: 2000 }, () => texts[7]);
const MEAN = { pooling: 'mean' };

describe('a model with a vocabulary', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(tinyPath, { contextLength: 80 }); });
  after(() => model.close());

  test('a text has the same vector alone, with others and as token ids', async () => {
    const all = await model.embed(texts, MEAN);
    assert.equal(all.length, texts.length);
    for (const [i, text] of texts.entries()) {
      assert.deepEqual(await model.embed(text, MEAN), all[i]);
      assert.deepEqual(await model.embed([await model.tokenize(text)], MEAN), [all[i]]);
    }
    assert.deepEqual(await model.embed([], MEAN), []);
  });

  test('a prefix is a part of the text, but not of token ids', async () => {
    assert.deepEqual(await model.embed('fox', { ...MEAN, prefix: 'the ' }), await model.embed('the fox', MEAN));
    const ids = await model.tokenize('fox');
    assert.deepEqual(await model.embed(ids, { ...MEAN, prefix: 'the ' }), await model.embed('fox', MEAN));
  });

  test('dimensions keeps the first elements, and normalizes what is left', async () => {
    const whole = await model.embed('fox', { ...MEAN, normalize: false });
    const first = await model.embed('fox', { ...MEAN, dimensions: 5, normalize: false });
    assert.deepEqual(first, whole.slice(0, 5));
    const unit = await model.embed('fox', { ...MEAN, dimensions: 5 });
    assert.ok(Math.abs(dot(unit, unit) - 1) < 1e-6 && cosineDistance(unit, first) < 1e-7);
    const all = await model.embed('fox', { pooling: 'none', dimensions: 5 });
    assert.equal(all.length, 5 * (await model.tokenize('fox')).length);
    await fails(() => model.embed('fox', { ...MEAN, dimensions: 33 }), 'PLUMB_ERROR_ARGUMENT',
      /^embed: dimensions is 33, but the model's vectors have 32 elements$/);
    await fails(() => model.rank('fox', ['dog'], { ...MEAN, dimensions: 33 }), 'PLUMB_ERROR_ARGUMENT',
      /^rank: dimensions is 33, but the model's vectors have 32 elements$/);
  });

  test('texts that do not fit are an error that says which, or lose their end', async () => {
    const long = 'x'.repeat(100);
    await fails(() => model.embed(['fox', long], MEAN), 'PLUMB_ERROR_CONTEXT', new RegExp('^embed: text 1 has 10\\d '
      + 'tokens, but the context holds 80; shorten it, pass truncate: true, or load the model with a larger '
      + 'contextLength$'));
    const [, vector] = await model.embed(['fox', long], { ...MEAN, truncate: true });
    assert.deepEqual(vector, await model.embed((await model.tokenize(long)).slice(0, 80), MEAN));
    assert.deepEqual(await model.embed(await model.tokenize(long), { ...MEAN, truncate: true }), vector);
  });

  test('the file must say how tokens are pooled, or the caller', async () => {
    assert.equal((await model.info()).pooling, 'none');
    await fails(() => model.embed('fox'), 'PLUMB_ERROR_ARGUMENT',
      /^embed: the file does not say how the vectors of the tokens become one; pass a pooling: 'mean', 'cls' or 'l/);
    await fails(() => model.rank('fox', ['dog']), 'PLUMB_ERROR_ARGUMENT',
      /^rank: the file does not say .*; pass a pooling: 'mean', 'cls' or 'last'$/);
    await fails(() => model.rank('fox', ['dog'], { pooling: 'none' }), 'PLUMB_ERROR_ARGUMENT',
      /^rank: pooling is "none", expected "mean" or "cls" or "last"$/);
    await fails(() => model.rank('fox', ['dog', 'x'.repeat(100)], MEAN), 'PLUMB_ERROR_CONTEXT', /^rank: text 1 has 10/);
    await fails(() => model.rank('x'.repeat(100), ['dog'], MEAN), 'PLUMB_ERROR_CONTEXT', /^rank: the query has 10/);
  });

  test('wrong arguments are named', async () => {
    await fails(() => model.embed(5), 'PLUMB_ERROR_ARGUMENT', /^embed: expected a text or an array of texts$/);
    await fails(() => model.embed(['a', 5]), 'PLUMB_ERROR_ARGUMENT',
      /^embed: text 1 is number, expected a string or an Int32Array$/);
    await fails(() => model.embed('a', { pooling: 'rank' }), 'PLUMB_ERROR_ARGUMENT',
      /^embed: pooling is "rank", expected "mean" or "cls" or "last" or "none"$/);
    await fails(() => model.embed('a', { normalise: true }), 'PLUMB_ERROR_ARGUMENT', /unknown option "normalise"/);
    await fails(() => model.embed(new Int32Array(0), MEAN), 'PLUMB_ERROR_ARGUMENT', /^embed: text 0 has no tokens$/);
    await fails(() => model.embed(Int32Array.of(5, 9999), MEAN), 'PLUMB_ERROR_TOKEN', /^token 9999 at index 1/);
    await fails(() => model.rank(5, ['a']), 'PLUMB_ERROR_ARGUMENT', /^rank: the query is not a string$/);
    await fails(() => model.rank('a', ['a', Int32Array.of(5)]), 'PLUMB_ERROR_ARGUMENT',
      /^rank: text 1 is not a string$/);
    await fails(() => model.rank('a', 'b'), 'PLUMB_ERROR_ARGUMENT', /^rank: expected an array of texts$/);
    await fails(() => model.rank('a', ['b'], { normalize: true }), 'PLUMB_ERROR_ARGUMENT',
      /unknown option "normalize"/);
  });

  test('ranks are in the order of the cosine similarity, equal ones in the order of the texts', async () => {
    const query = 'a lazy fox', options = { ...MEAN, queryPrefix: 'quick ', prefix: 'brown ' };
    const twice = [...texts, ...texts];
    const wanted = await model.embed('quick a lazy fox', MEAN);
    const vectors = await model.embed(twice, { ...MEAN, prefix: 'brown ' });
    const scores = vectors.map(vector => dot(vector, wanted));
    const ranks = await model.rank(query, twice, options);
    assert.deepEqual(ranks.map(({ index }) => index), scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]));
    assert.ok(ranks.every(({ index, score }) => Math.abs(score - scores[index]) < 1e-12));
    assert.deepEqual(await model.rank(query, [], options), []);
  });

  test('progress counts finished texts and their tokens', async () => {
    const seen = [];
    await model.embed(texts, { ...MEAN, onProgress: progress => seen.push(progress) });
    const tokens = (await Promise.all(texts.map(text => model.tokenize(text)))).reduce((n, ids) => n + ids.length, 0);
    assert.deepEqual(seen.at(-1), { done: texts.length, total: texts.length, tokens });
    assert.ok(seen.length > 2 && seen.every(({ done }, i) => i === 0 || done > seen[i - 1].done));
    const ranked = [];
    await model.rank('fox', texts, { ...MEAN, onProgress: progress => ranked.push(progress) });
    assert.equal(ranked.at(-1).done, texts.length);
  });

  test('an abort ends it with the signal\'s reason, and the model goes on', async () => {
    const abort = new AbortController(), reason = new Error('enough');
    const { signal } = abort;
    const first = model.embed(many, MEAN), waiting = model.embed(texts, { ...MEAN, signal });
    abort.abort(reason);
    await assert.rejects(waiting, reason);
    await first;
    await assert.rejects(model.embed('fox', { ...MEAN, signal }), reason);
    await assert.rejects(model.rank('fox', texts, { ...MEAN, signal }), reason);
    assert.equal((await model.embed('fox', MEAN)).length, 32);
  });

  test('an abort between two texts ends it in the caller\'s thread', async () => {
    const own = await Plumb.load(tinyPath, { contextLength: 80, worker: false });
    const abort = new AbortController(), reason = new Error('enough');
    await assert.rejects(own.embed(texts, { ...MEAN, signal: abort.signal, onProgress: () => abort.abort(reason) }),
      reason);
    assert.equal((await own.embed('fox', MEAN)).length, 32);
    await own.close();
  });

  test('generate begins anew after embed', async () => {
    const ids = await model.tokenize('the quick'), options = { temperature: 0, maxTokens: 3 };
    const answer = await textOf(model.generate(ids, options));
    await model.embed(texts, MEAN);
    assert.equal(await textOf(model.generate(ids, options)), answer);
    assert.equal(model.lastStats.reusedTokens, 0);
  });
});

for (const worker of [true, false]) {
  test(`close ends it${worker ? '' : ' in the caller\'s thread'}`, async () => {
    const model = await Plumb.load(tinyPath, { worker });
    const embedding = model.embed(many, MEAN), closed = model.close();
    await fails(() => embedding, 'PLUMB_ERROR_STATE', /^the model (is|was) closed$/);
    await closed;
    await fails(() => model.embed('fox', MEAN), 'PLUMB_ERROR_STATE', /^the model is closed$/);
  });
}

test('an encoder cannot generate, and says so', async () => {
  const model = await Plumb.load(`${archs}nomic-bert.gguf`);
  await fails(() => textOf(model.generate([7, 1])), 'PLUMB_ERROR_UNSUPPORTED', /is an embedding model/);
  await model.close();
});

/** Objects of tests/vectors/embed, which has llama.cpp's vector for each text. */
const folder = `${root}tests/vectors/embed/`;
const lines = readFileSync(`${folder}texts.txt`, 'utf8').trimEnd().split('\n');
const expected = name =>
  readFileSync(`${folder}${name}.jsonl`, 'utf8').trimEnd().split('\n').map(line => JSON.parse(line));

for (const name of ['bert', 'modern-bert', 'nomic-bert-moe', 'gemma-embedding', 'qwen3']) {
  test(`texts have llama.cpp's embeddings: ${name}`, async () => {
    const model = await Plumb.load(`${folder}${name}.gguf`);
    for (const [i, vector] of (await model.embed(lines)).entries()) {
      const theirs = expected(name)[i].vector;
      assert.ok(cosineDistance(vector, theirs) < 1e-6, `${i}: ${cosineDistance(vector, theirs)}`);
    }
    await model.close();
  });
}

for (const [name, query] of [['rank-bert', 'the {document} in it'], ['rank-xlm', 'the {document} in it'],
  ['rank-qwen3', 'the thin one']]) {
  test(`texts have llama.cpp's scores: ${name}`, async () => {
    const model = await Plumb.load(`${folder}${name}.gguf`);
    assert.equal((await model.info()).pooling, 'rank');
    const scores = expected(name).map(({ vector }) => vector[0]);
    const ranks = await model.rank(query, lines);
    assert.deepEqual(ranks.map(({ index }) => index), scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]));
    for (const { index, score } of ranks) assert.ok(Math.abs(score - scores[index]) < 5e-4, `${index}: ${score}`);
    const both = ['a', 'a'.repeat(200)];
    await fails(() => model.rank(query, both), 'PLUMB_ERROR_CONTEXT', /^rank: text 1 has 2\d\d tokens/);
    assert.equal((await model.rank(query, ['a'.repeat(200)], { truncate: true })).length, 1);
    await model.close();
  });
}

test('the text of a special token stays text unless parseSpecial is set', async () => {
  const model = await Plumb.load(`${folder}bert.gguf`);
  assert.deepEqual(await model.embed('[SEP]', { parseSpecial: true }), await model.embed(Int32Array.of(2, 3, 3)));
  assert.deepEqual(await model.embed('[SEP]'), await model.embed(await model.tokenize('[SEP]')));
  assert.ok((await model.tokenize('[SEP]')).length > 3);
  await model.close();
});

describe('OpenAI\'s embeddings', () => {
  const params = { model: 'nomic', input: [[...IDS], [7, 1]] };
  test('have its parameters and shape', async () => {
    const nomic = `${archs}nomic-bert.gguf`, client = new OpenAI({ models: { nomic, other: nomic } });
    const model = await Plumb.load(`${archs}nomic-bert.gguf`);
    const vectors = (await model.embed([IDS, Int32Array.of(7, 1)])).map(vector => [...vector]);
    const data = vectors.map((embedding, index) => ({ object: 'embedding', index, embedding }));
    const whole = { object: 'list', model: 'nomic', data, usage: { prompt_tokens: 10, total_tokens: 10 } };
    assert.deepEqual(await client.embeddings.create(params), whole);
    const coded = { model: 'nomic', input: [...IDS], encoding_format: 'base64', user: 'me' };
    const one = await client.embeddings.create(coded);
    const bytes = Buffer.from(one.data[0].embedding, 'base64');
    assert.deepEqual([...new Float32Array(new Uint8Array(bytes).buffer)], vectors[0]);
    const short = await model.embeddings.create({ input: [...IDS], dimensions: 3 });
    assert.equal(short.data[0].embedding.length, 3);
    assert.equal(short.model, 'plumb');
    const first = await model.embeddings.create({ input: [...IDS], pooling: 'cls' });
    assert.deepEqual(first.data[0].embedding, [...await model.embed(IDS, { pooling: 'cls' })]);
    for (const [wrong, message] of [
      [{}, /^embeddings.create: input is missing$/], [null, /expected \{input, ...\}/],
      [{ input: [], model: 5 }, /model is 5/], [{ input: [[]] }, /input is an array, expected a string, an array/],
      [{ input: ['a', 5] }, /input is an array/], [{ input: 'a', pooling: 'none' }, /pooling is "none"/],
      [{ input: 'a', encoding_format: 'int8' }, /encoding_format is "int8"/],
    ]) await fails(() => model.embeddings.create(wrong), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(() => client.embeddings.create({ input: 'a' }), 'PLUMB_ERROR_ARGUMENT',
      /^embeddings.create: model is missing$/);
    await client.close();
    await model.close();
  });
});
