/** Tokens that are computed ahead change no answer.  Ground truth: the same call with speculate: false.  Drafts of at
 * least some tokens are computed whether they pay or not, so that nothing here depends on a clock. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import { Plumb } from '../../web/node/index.js';
import { fails, realPath, root, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';

const RUNS = Number(process.env.RUNS ?? 30), seed = Number(process.env.SEED ?? 1);
const model = await Plumb.load(smallPath, { threads: 1, worker: false, contextLength: 512 });
after(() => model.close());

/** All that an answer shows. @param {any} session @param {any} prompt @param {object} options */
async function shownOf(session, prompt, options) {
  const tokens = [], pieces = [];
  for await (const piece of session.generate(prompt, { ...options, onToken: token => tokens.push(token) })) {
    pieces.push(piece);
  }
  const { tokens: n, forcedTokens, finishReason, droppedTokens, draftedTokens, acceptedTokens } = session.lastStats;
  return { shown: { tokens, text: pieces.join(''), n, forcedTokens, finishReason, droppedTokens,
    position: (await session.info()).position }, draftedTokens, acceptedTokens };
}

/** A text in which words come back, in part of the cases in the same order. */
const prompts = fc.array(fc.constantFrom('one two three four five. ', 'one two three six. ', 'the cat ', 'a', '{ "a"'),
  { minLength: 1, maxLength: 14 }).map(words => words.join(''));
/** Drafts: as many tokens as pay, or at least some. */
const drafts = fc.oneof(fc.constant('lookup'), fc.tuple(fc.nat(15), fc.nat(15)).map(([a, b]) =>
  ({ least: Math.min(a, b), most: Math.max(a, b, 1) })));
const sampling = fc.oneof(
  fc.constant({ temperature: 0 }),
  fc.record({ temperature: fc.constantFrom(0.01, 0.3, 1), seed: fc.nat(1000), topK: fc.constantFrom(0, 2, 40) }),
  fc.record({ temperature: fc.constantFrom(0, 1), repeatPenalty: fc.constantFrom(1.1, 3), seed: fc.nat(9),
    frequencyPenalty: fc.constantFrom(0, 0.01), penaltyLastN: fc.constantFrom(2, 64) }),
  fc.record({ temperature: fc.constantFrom(0, 1), typicalP: fc.constantFrom(0.3, 0.9), topP: fc.constantFrom(0.5, 1),
    seed: fc.nat(9) }),
  // Few tokens are possible, so that texts repeat themselves.
  fc.record({ temperature: fc.constantFrom(0, 0.5), seed: fc.nat(9),
    logitBias: fc.constant(Object.fromEntries([280, 281, 282, 283].map(id => [id, 50]))) }),
);
const SCHEMA = { type: 'array', items: { type: 'object', required: ['name', 'on'], additionalProperties: false,
  properties: { name: { enum: ['aa', 'ab', 'b'] }, on: { type: 'boolean' } } }, minItems: 3, maxItems: 6 };
const bounds = fc.oneof({ weight: 3, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: fc.constantFrom(
  { schema: SCHEMA }, { regex: '(ab|cd){4,12}' }, { grammar: 'root ::= ("one " | "two " | "three ")+' },
  { stop: ['t', 'e '] }, { stop: 'zzzz' }) });
const lengths = fc.constantFrom({}, { logprobs: 5 }, { sinks: 4, maxTokens: 300 }, { maxTokens: 3 });

test('every option gives the same tokens, probabilities and texts', async () => {
  const total = { drafted: 0, accepted: 0 };
  await fc.assert(fc.asyncProperty(prompts, drafts, sampling, bounds, lengths, async (prompt, speculate, ...given) => {
    const all = { maxTokens: 40, seed: 1, ...Object.assign({}, ...given) };
    await model.rewind(0);
    const plain = await shownOf(model, prompt, { ...all, speculate: false });
    await model.rewind(0);
    const ahead = await shownOf(model, prompt, { ...all, speculate });
    assert.deepEqual(ahead.shown, plain.shown);
    assert.equal(plain.draftedTokens, 0);
    total.drafted += ahead.draftedTokens;
    total.accepted += ahead.acceptedTokens;
  }), { numRuns: RUNS, seed });
  assert.ok(total.accepted > 100 && total.accepted < total.drafted, JSON.stringify(total));
});

test('sessions that answer at the same time and compute ahead give the answers that they give alone', async () => {
  const texts = Array.from({ length: 5 }, (_, i) => `${'one two three four. '.repeat(4)}${'five six. '.repeat(i)}one`);
  const options = { maxTokens: 40, temperature: 0, logitBias: { 280: 40, 281: 40, 282: 40 }, logprobs: 2 };
  const sessions = await Promise.all(texts.map(() => model.session({ contextLength: 400 })));
  const alone = [];
  for (const text of texts) {
    await model.rewind(0);
    alone.push((await shownOf(model, text, { ...options, speculate: false })).shown);
  }
  for (const [least, most] of [[4, 4], [1, 15], [0, 15]]) {
    const together = await Promise.all(sessions.map((session, i) => shownOf(session, texts[i],
      { ...options, speculate: i === 2 ? false : { least, most } })));
    assert.deepEqual(together.map(({ shown }) => shown), alone);
    if (least > 0) assert.ok(together.some(({ acceptedTokens }) => acceptedTokens > 10));
    assert.equal(together[2].draftedTokens, 0);
  }
  await Promise.all(sessions.map(session => session.close()));
});

test('what comes after an answer that computed ahead is what comes after one that did not', async () => {
  const prompt = 'one two three four five. '.repeat(6), options = { maxTokens: 11, temperature: 0 };
  const after = async (/** @type {any} */ speculate) => {
    await model.rewind(0);
    const first = await model.generate(prompt, { ...options, speculate });
    const saved = await model.save(), fork = await model.fork(), logits = [await fork.step(5), await model.step(6)];
    await fork.close();
    await model.rewind(20);
    const again = await model.generate(`${prompt}${first} one`, { ...options, speculate });
    return { first, saved, logits, again, reused: model.lastStats.reusedTokens };
  };
  assert.deepEqual(await after({ least: 8 }), await after(false));
});

test('an answer that is left while tokens are ahead leaves the session as one that was not', async () => {
  const ids = await model.tokenize('one two three four five. '.repeat(6));
  const left = async (/** @type {any} */ speculate) => {
    await model.rewind(0);
    let n = 0;
    for await (const _ of model.generate(ids, { temperature: 0, speculate })) if (++n === 4) break;
    return model.generate(ids, { maxTokens: 12, temperature: 0, speculate });
  };
  assert.equal(await left({ least: 6 }), await left(false));
});

/** @param {string} file */
const small = file =>
  Plumb.load(`${root}tests/vectors/archs/${file}.gguf`, { threads: 1, worker: false, contextLength: 400 });

for (const [kind, file, drafts] of [['windows', 'gemma3', true], ['chunks', 'llama4', true],
  ['shared keys and values', 'gemma3n', true], ['latent attention', 'deepseek2', true], ['experts', 'olmoe', true],
  ['adapters inside the file', 'graniteswitch', true], ['an encoder and a decoder', 't5', true],
  ['recurrent layers', 'mamba', false], ['recurrent layers beside attention', 'granitehybrid', false]]) {
  test(`${kind}: the same tokens${drafts ? '' : ', none of them ahead'}`, async () => {
    const one = await small(/** @type {string} */ (file)), { vocabulary } = await one.info();
    const ids = Int32Array.from({ length: 80 }, (_, i) => i % 9 * 7 % vocabulary);
    const options = { maxTokens: 60, temperature: 1, seed: 3, logitBias: { 7: 9, 14: 9, 21: 9, 28: 9 } };
    const plain = await shownOf(one, ids, { ...options, speculate: false });
    await one.rewind(0);
    const ahead = await shownOf(one, ids, { ...options, speculate: { least: 5 } });
    assert.deepEqual(ahead.shown, plain.shown);
    if (drafts) assert.ok(ahead.acceptedTokens > 0, `${ahead.acceptedTokens} of ${ahead.draftedTokens}`);
    else assert.equal(ahead.draftedTokens, 0);
    await one.close();
  });
}

test('a draft model changes no token, of several sessions at once either', async () => {
  const args = { threads: 1, worker: false, contextLength: 400 };
  const drafted = await Plumb.load(smallPath, { ...args, draft: smallPath });
  const sessions = [drafted, await drafted.session(), await drafted.session()];
  const samplings = [{ temperature: 0 }, { temperature: 1, seed: 4, topK: 3 }, { temperature: 0, schema: SCHEMA }];
  for (const options of samplings) {
    const all = { ...options, maxTokens: 30, logprobs: 1 }, texts = ['The cat', 'One two three', 'A list: '];
    const alone = [];
    for (const text of texts) {
      await model.rewind(0);
      alone.push((await shownOf(model, text, { ...all, speculate: false })).shown);
    }
    const together = await Promise.all(sessions.map((one, i) => shownOf(one, texts[i],
      { ...all, speculate: { least: 4 } })));
    assert.deepEqual(together.map(({ shown }) => shown), alone);
    if ('schema' in options || options.temperature > 0) continue;
    for (const [i, text] of texts.entries()) {
      await model.rewind(0);
      const { acceptedTokens: byLookup } = await shownOf(model, text, { ...all, speculate: { least: 4 } });
      const { acceptedTokens } = together[i];
      assert.ok(acceptedTokens > 15 && acceptedTokens > byLookup, `${acceptedTokens}, ${byLookup} without the model`);
    }
  }
  await sessions[1].close();
  assert.equal(typeof await drafted.generate('a', { maxTokens: 2 }), 'string');
  await drafted.close();
  await fails(Plumb.load(smallPath, { ...args, draft: tinyPath }), 'PLUMB_ERROR_ARGUMENT',
    /^the draft model has another vocabulary: 260 tokens, not 49152; take a smaller model of the same family$/);
  await fails(Plumb.load(tinyPath, { ...args, draft: `${root}package.json` }), 'PLUMB_ERROR_MAGIC', /GGUF/);
});

test('a text that is copied is computed ahead by default, and not with speculate: false in the load', async () => {
  const text = 'The quick brown fox jumps over the lazy dog near the river bank. '.repeat(8);
  const options = { maxTokens: 60, temperature: 0 };
  /** @type {string[]} */
  const answers = [];
  for (const speculate of [undefined, false]) {
    const real = await Plumb.load(realPath, { threads: 1, worker: false, contextLength: 512, speculate });
    answers.push(await real.generate(text, options));
    const { draftedTokens, acceptedTokens } = real.lastStats;
    assert.ok(speculate === false ? draftedTokens === 0 : acceptedTokens <= draftedTokens);
    if (speculate !== false) {
      answers.push(await real.generate(text, { ...options, speculate: { least: 8, most: 8 } }));
      const { acceptedTokens, tokens } = real.lastStats;
      assert.ok(acceptedTokens > tokens / 2, `${acceptedTokens} of ${tokens} tokens`);
    }
    await real.close();
  }
  assert.equal(new Set(answers).size, 1);
});

test('options that are none are refused', async () => {
  const wrong = [true, 'draft', { least: 16 }, { least: 5, most: 4 }, { most: 1.5 }, { most: 0 }, { n: 3 }, null];
  for (const speculate of wrong) {
    await fails(async () => { await model.generate('a', { speculate }); }, 'PLUMB_ERROR_ARGUMENT',
      /^generate: speculate is .*, expected 'lookup', false, or an object of least, from 0, and most, from 1, int/);
  }
});
