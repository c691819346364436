/** The tokens and probabilities that generate reports. Ground truth: a softmax in JavaScript over the logits of feed
 * for the same tokens, and llama.cpp's greedy ids. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, prompts, realPath, textOf } from './helpers.mjs';

let model;
before(async () => { model = await Plumb.load(realPath, { precision: 'exact16' }); });
after(() => model.close());

/** Ids by descending logit, lower ids first among equals, and their log-probabilities. */
function ranked(logits) {
  const max = logits.reduce((a, b) => Math.max(a, b));
  const logSum = max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
  const ids = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);
  return ids.map(id => ({ id, logprob: logits[id] - logSum }));
}

async function tokensOf(prompt, options) {
  const tokens = [];
  const text = await textOf(model.generate(prompt, { ...options, onToken: token => tokens.push(token) }));
  return { tokens, text };
}

test('log-probabilities and alternatives equal the softmax of the logits; greedy ids are llama.cpp\'s', async () => {
  const { ids, f32 } = prompts[1];
  const { tokens, text } = await tokensOf(ids, { temperature: 0, maxTokens: 12, logprobs: 20 });
  assert.deepEqual(tokens.map(({ id }) => id), f32.ids.slice(0, 12));
  assert.equal(text, await model.detokenize(f32.ids.slice(0, 12)));
  await model.rewind();
  let logits = await model.feed(ids);
  for (const token of tokens) {
    const expected = ranked(logits).slice(0, 20);
    assert.deepEqual(token.top.map(({ id }) => id), expected.map(({ id }) => id));
    token.top.forEach(({ logprob }, i) => assert.ok(Math.abs(logprob - expected[i].logprob) < 1e-9));
    assert.deepEqual(token.top[0], { id: token.id, piece: token.piece, bytes: token.bytes, logprob: token.logprob });
    assert.equal(Buffer.from(token.bytes).toString(), token.piece);
    logits = await model.step(token.id);
  }
});

test('sampled tokens have the probability that the model gave them, independent of the sampler', async () => {
  const { ids } = prompts[0];
  const options = { temperature: 1.5, repeatPenalty: 1.3, seed: 7, maxTokens: 10, logprobs: 3 };
  const { tokens } = await tokensOf(ids, options);
  await model.rewind();
  let logits = await model.feed(ids);
  assert.ok(tokens.some(({ id, top }) => id !== top[0].id), 'never another than the likeliest');
  for (const token of tokens) {
    const expected = ranked(logits);
    assert.equal(token.top.length, 3);
    assert.ok(Math.abs(token.logprob - expected.find(({ id }) => id === token.id).logprob) < 1e-9);
    logits = await model.step(token.id);
  }
});

test('the token that ends a turn is reported with its text, which is not part of the answer', async () => {
  const { messages, f32 } = prompts.find(({ messages, f32 }) => messages && f32.first_end >= 0);
  const { tokens, text } = await tokensOf(messages, { temperature: 0 });
  assert.deepEqual(tokens.map(({ id }) => id), f32.ids.slice(0, f32.first_end + 1));
  assert.deepEqual([tokens.at(-1).piece, tokens.at(-1).top], ['<|im_end|>', []]);
  assert.equal(text, await model.detokenize(f32.ids.slice(0, f32.first_end)));
  assert.deepEqual([model.lastStats.finishReason, model.lastStats.tokens], ['stop', tokens.length - 1]);
});

test('a worker reports each token before its text', async () => {
  const other = await Plumb.load(realPath, { worker: true });
  let told = '', text = '';
  for await (const piece of other.generate('Once upon a time', { temperature: 0, maxTokens: 20,
    onToken: token => { told += token.piece; } })) {
    text += piece;
    assert.ok(told.startsWith(text), `${told}: ${text}`);
  }
  assert.ok(text.length > 20);
  await other.close();
});

test('logprobs out of range and an onToken that is not a function are refused', async () => {
  for (const logprobs of [-1, 21, 1.5, '3']) {
    await fails(textOf(model.generate('x', { logprobs })), 'PLUMB_ERROR_ARGUMENT', /logprobs is .*from 0 to 20/);
  }
  await fails(textOf(model.generate('x', { onToken: true })), 'PLUMB_ERROR_ARGUMENT', /onToken is true/);
});
