/** Reasoning in the chat page: folded, kept, and within its budget.  The model is tests/vectors/synth's tiny one with a
 * template that opens the reasoning unless it is told not to; its texts are random. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { root, tiny, withTemplate } from '../node/helpers.mjs';
import { LOOKS, answer, open, screenshot, setUp, state, stored } from './chat-page.mjs';

const where = await setUp();
const THINKING = '/build/chat/thinking.gguf';
writeFileSync(`${root}${THINKING}`, withTemplate(tiny,
  '{% for m in messages %}{{ m.reasoning_content or "" }}{{ m.content }}{% endfor %}'
  + '{% if add_generation_prompt and (enable_thinking is not defined or enable_thinking) %}<think>{% endif %}'));
const settings = more => page => page.addInitScript(text => { localStorage['plumb.settings'] = text; },
  JSON.stringify({ seed: 1, maxTokens: 60, ...more }));

for (const { colorScheme, width, height } of LOOKS) {
  test(`reasoning is folded above the answer and kept (${width} px, ${colorScheme})`, async () => {
    const use = { colorScheme, viewport: { width, height } };
    const page = await open(where, `?model=${THINKING}`, use, settings({ reasoningBudget: 20 }));
    await state(page, 'ready');
    const said = await answer(page, 'Hi');
    const details = page.locator('#log details.reasoning');
    assert.equal(await details.locator('summary').textContent(), 'Reasoning');
    const thought = await details.locator('div').textContent() ?? '';
    assert.ok(thought.length > 5 && said.length > 5, `${thought} | ${said}`);
    assert.ok(!said.includes(thought) && !said.includes('</think>'));
    assert.equal(await details.locator('div').isVisible(), false);
    await details.locator('summary').click();
    assert.equal(await details.locator('div').isVisible(), true);
    const box = await details.boundingBox(), text = await page.locator('#log .assistant .text').boundingBox();
    assert.ok(box && text && box.y + box.height <= text.y && box.x + box.width <= width);
    await screenshot(page, `reasoning-${width}-${colorScheme}`);
    const [{ messages }] = await stored(page);
    assert.equal(messages[1].reasoning, thought);
    await page.reload();
    await state(page, 'ready');
    assert.equal(await details.locator('div').textContent(), thought);
    await page.close();
  });
}

test('a budget of 0 turns reasoning off; without a budget an answer may be nothing but reasoning', async () => {
  const page = await open(where, `?model=${THINKING}`, {}, settings({ reasoningBudget: 0 }));
  await state(page, 'ready');
  assert.ok((await answer(page, 'Hi')).length > 5);
  assert.equal(await page.locator('details.reasoning').count(), 0);
  await page.close();
  const free = await open(where, `?model=${THINKING}`, {}, settings({}));
  await state(free, 'ready');
  await free.evaluate(() => {
    globalThis.seen = [];
    new MutationObserver(changes => changes.flatMap(({ addedNodes }) => [...addedNodes]).forEach(node => {
      const details = node.nodeName === 'DETAILS' ? node : node.querySelector?.('details');
      if (details) globalThis.seen.push([details.textContent.startsWith('Thinking'), details.open]);
    })).observe(document.querySelector('#log'), { childList: true, subtree: true });
  });
  assert.equal(await answer(free, 'Hi'), '');
  assert.deepEqual(await free.evaluate(() => globalThis.seen), [[true, false], [false, false]],
    'it was folded while the model was thinking, and afterwards');
  assert.equal(await free.locator('details.reasoning summary').textContent(), 'Reasoning');
  const thought = free.locator('details.reasoning div'), before = await thought.textContent() ?? '';
  await free.getByRole('button', { name: 'Continue' }).click();
  await free.waitForFunction(n => document.querySelector('details.reasoning div').textContent.length > n,
    before.length);
  await state(free, 'ready');
  assert.ok((await thought.textContent() ?? '').startsWith(before), 'reasoning that was cut off goes on');
  await free.close();
});
