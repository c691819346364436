/** An answer goes on after whatever has cut it off: the reader, a reload, a page that is left, a failed engine.  The
 * page shows how far a prompt is read.  chat-limits.test.mjs has the limits of tokens. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { afterEach, test } from 'node:test';
import { afterReasoning } from '../../web/chat/conversation/continuation.js';
import { Plumb } from '../../web/node/index.js';
import { root, tiny, withTemplate } from '../node/helpers.mjs';
import { LONG, TINY, ask, begin, open, put, reload, setUp, state, stored } from './chat-page.mjs';

const where = await setUp();
let page;
const said = () => page.textContent('#log > .assistant .text').then(text => text.trim());
const grown = n => page.waitForFunction(n =>
  document.querySelector('#log > .assistant .text').textContent.length > n, n);
const withSettings = values => page => page.addInitScript(text => { localStorage['plumb.settings'] = text; },
  JSON.stringify(values));
const settings = withSettings({ temperature: 0, maxTokens: 1000 });
afterEach(async () => {
  assert.deepEqual(page?.problems ?? [], []);
  await page?.context().close();
  page = undefined;
});

/** Continues the answer, and checks that it has kept its text. */
async function goesOn() {
  const before = await said();
  await page.getByRole('button', { name: 'Continue' }).click();
  await grown(before.length + 20);
  assert.ok((await said()).startsWith(before), `${await said()}, begun as ${before}`);
}

test('after Stop, a reload, another page and a failed engine an answer continues', async () => {
  page = await open(where, '', {}, settings);
  await state(page, 'ready');
  await ask(page, LONG);
  await grown(40);
  await page.keyboard.press('Escape');
  await state(page, 'ready');
  assert.match(await page.textContent('#log .cut'), /^The answer was stopped\./);
  await goesOn();
  await reload(page);
  await state(page, 'ready');
  await goesOn();
  await page.goto(`${where.url}README.md`);
  await page.goto(`${where.url}web/chat/`);
  await state(page, 'ready');
  await goesOn();
  for (const worker of page.workers()) {
    await worker.evaluate(() => void setTimeout(() => { throw new Error('the engine broke'); })).catch(() => {});
  }
  await page.getByText('The answer could not be continued.').waitFor();
  await state(page, 'ready');   // it has been reloaded
  await goesOn();
  const [{ messages }] = await stored(page);
  assert.equal(messages.length, 2);
  assert.ok(messages[1].cut.tokens > 20);
});

test('an answer whose engine fails shows why, and continues', async () => {
  page = await open(where, '', {}, settings);
  await state(page, 'ready');
  await ask(page, LONG);
  await grown(40);
  for (const worker of page.workers()) {
    await worker.evaluate(() => void setTimeout(() => { throw new Error('the engine broke'); })).catch(() => {});
  }
  await page.locator('#log .problem', { hasText: 'The engine stopped' }).waitFor();
  await state(page, 'ready');
  await goesOn();
  assert.equal(await page.locator('#log .problem').count(), 0);
});

/** Shows messages with their calls. */
const TEMPLATE = '{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %} '
  + '{{ c.function.name }} {{ c.function.arguments }}{% endfor %}; {% endfor %}assistant: ';

test('a text behind calls continues, with the calls before it', async () => {
  const calls = [{ id: 'c1', name: 'calculate', arguments: '{"expression":"12*7"}', result: '84' }];
  const cut = { by: 'limit', tokens: 2 };
  const file = withTemplate(tiny, TEMPLATE);
  writeFileSync(`${root}build/chat/calls.gguf`, file);
  page = await open(where, '?model=/build/chat/calls.gguf', {}, withSettings({ temperature: 0, maxTokens: 6 }));
  await state(page, 'ready');
  await put(page, [{ messages: [{ role: 'user', content: 'How much is 12 times 7?' },
    { role: 'assistant', content: 'It is', steps: [{ content: 'Let me see.', calls }], cut }] }]);
  await begin(page, () => page.getByRole('button', { name: 'Continue' }).click());
  await state(page, 'ready');
  const [{ messages: [, { content, steps, cut: after }] }] = await stored(page);
  assert.ok(content.startsWith('It is') && content.length > 5, content);
  assert.deepEqual(steps, [{ content: 'Let me see.', calls }]);
  assert.deepEqual(after, { by: 'limit', tokens: 8 });
  // The model continues what it is given by the template: the call, its result, and the beginning of the text.
  const model = await Plumb.load(new Blob([file]), { threads: 1 });
  const { id, name, arguments: given, result } = calls[0];
  const prompt = await model.tokenizeChat([{ role: 'user', content: 'How much is 12 times 7?' },
    { role: 'assistant', content: 'Let me see.', tool_calls: [{ id, type: 'function',
      function: { name, arguments: given } }] }, { role: 'tool', content: result, tool_call_id: id }]);
  const begun = await model.tokenize('It is', { addSpecial: false });
  const more = await model.generate([...prompt, ...begun], { temperature: 0, maxTokens: 6 });
  await model.close();
  assert.equal(content, `It is${more}`);
});

test('while a long prompt is read, a bar in the place of the answer shows how far and how fast', async () => {
  page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.evaluate(() => {
    globalThis.seen = [];
    new MutationObserver(() => {
      const bar = document.querySelector('#log .assistant progress');
      if (bar) globalThis.seen.push([bar.value, bar.getAttribute('aria-label'), bar.nextSibling.textContent]);
    }).observe(document.querySelector('#log'), { childList: true, subtree: true, attributes: true });
  });
  await ask(page, 'many words '.repeat(40));
  await state(page, 'ready');
  const seen = await page.evaluate(() => globalThis.seen);
  assert.ok(seen.length > 0);
  const [, name, text] = seen[0];
  assert.equal(name, 'Reading the conversation');
  assert.match(text, /^Reading \d+% {2}· {2}\d+ of \d+ tokens/);
  assert.match(seen.at(-1)[2], /^Reading \d+% {2}· {2}\d+ of \d+ tokens {2}· {2}[\d.]+ tokens\/s/);
  assert.equal(await page.locator('#log progress').count(), 0, 'it is gone when the answer is there');
});

test('reasoning that goes on ends where its tag is, in however many pieces it comes', async () => {
  const text = 'so it is</think>\n\nYes </think> it is', end = '</think>';
  for (let step = 1; step <= text.length; step++) {
    const pieces = (async function* () {
      for (let i = 0; i < text.length; i += step) yield text.slice(i, i + step);
    })();
    let thought = '', answer = '';
    for await (const piece of afterReasoning(pieces, end, more => { thought += more; })) answer += piece;
    assert.deepEqual([thought, answer], ['so it is', 'Yes </think> it is']);
  }
});
