/** onPromptProgress says how much of a prompt is computed.  Ground truth: the number of its tokens, and of those that a
 * prompt before had in common with it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, textOf } from './helpers.mjs';
import { smallPath } from './small.mjs';

for (const worker of [false, true]) {
  test(`the progress of a prompt goes up to all of its tokens, and a second one begins after the first (worker: ${
    worker})`, async t => {
    const model = await Plumb.load(smallPath, { threads: 1, worker, contextLength: 1024 });
    t.after(() => model.close());
    const ids = await model.tokenize('One, two, three, four. '.repeat(60));
    const progress = async prompt => {
      const seen = [];
      await model.generate(prompt, { maxTokens: 1, onPromptProgress: one => seen.push(one) });
      return seen;
    };
    const seen = await progress(ids.subarray(0, 300));
    assert.ok(seen.length >= 3, `${seen.length} calls`);
    assert.deepEqual([seen[0].computedTokens, seen[0].rate], [0, 0]);
    for (const [i, { promptTokens, reusedTokens, computedTokens, rate }] of seen.entries()) {
      assert.deepEqual([promptTokens, reusedTokens], [300, 0]);
      if (i > 0) assert.ok(computedTokens > seen[i - 1].computedTokens && rate > 0);
    }
    assert.equal(seen.at(-1).computedTokens, 300);
    const second = await progress(ids.subarray(0, 400));
    assert.deepEqual([second[0].reusedTokens, second.at(-1).computedTokens], [300, 100]);
    const texts = [];
    await model.chat().send('Hello', { maxTokens: 1, onPromptProgress: one => texts.push(one) });
    assert.ok(texts.length >= 2, 'a chat passes it on');
  });
}

test('an onPromptProgress that is not a function is refused', async t => {
  const model = await Plumb.load(smallPath, { threads: 1, worker: false, contextLength: 64 });
  t.after(() => model.close());
  await fails(textOf(model.generate('x', { onPromptProgress: true })), 'PLUMB_ERROR_ARGUMENT',
    /onPromptProgress is true/);
});
