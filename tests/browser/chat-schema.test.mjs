/** Answers of the chat page under a JSON Schema.  The model is tests/vectors/synth's tiny one: its texts are random,
 * and the grammar binds them.  Ground truth: JSON.parse in Node, and the page's DOM. */
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { LOOKS, TINY, answer, answers, begin, open, put, screenshot, setUp, state, stored } from './chat-page.mjs';

const where = await setUp([]);
let page;
afterEach(async () => {
  assert.deepEqual(page.problems, []);
  await page.close();
});
const SCHEMA = {
  type: 'object', additionalProperties: false, required: ['who', 'tags', 'at'],
  properties: {
    who: { enum: ['Ada <b>', 'Bob <b>'] },
    tags: { type: 'array', minItems: 2, maxItems: 2, items: { enum: [7, true, null] } },
    at: { type: 'object', additionalProperties: false, required: ['__proto__'],
      properties: { ['__proto__']: { enum: ['x'] } } },
  },
};
const settings = more => page => page.addInitScript(text => { localStorage['plumb.settings'] = text; },
  JSON.stringify({ seed: 1, contextLength: 2048, ...more }));
const kept = () => page.evaluate(() => JSON.parse(localStorage.getItem('plumb.settings')).schema);

test('the box of the schema names the line and column of what is not JSON, and the keywords that cannot be kept',
  async () => {
    page = await open(where, `?model=${TINY}`);
    await state(page, 'ready');
    await page.click('#open-settings');
    const about = text => page.locator('#about-schema').getByText(text, { exact: true }).waitFor();
    const example = page.getByRole('button', { name: 'Begin with an example' });
    await page.fill('#set-schema', '{\n  "type": "strïng",\n  "x": tru\n}');
    await about("Line 3, column 8: expected a value, found 'tru\\x0a}'");
    assert.ok(await example.isHidden());
    assert.equal(await page.getAttribute('#set-schema', 'aria-invalid'), 'true');
    await page.fill('#set-schema', JSON.stringify({ properties: { a: { items: {}, uniqueItems: true },
      b: { type: 'string', format: 'idn-email' } } }));
    await page.locator('#about-schema').getByText('/properties/a/uniqueItems: ').waitFor();
    assert.match(await page.textContent('#about-schema'), /^\/properties\/b\/format: /m);
    await page.getByRole('button', { name: 'Done' }).click();
    await page.locator('#settings-note').getByText('Correct these values: JSON Schema').waitFor();
    assert.equal(await kept(), undefined, 'a schema with problems is not kept');
    await page.fill('#set-schema', '');
    await page.locator('#about-schema').waitFor({ state: 'hidden' });
    await example.click();
    await page.waitForFunction(() => JSON.parse(localStorage['plumb.settings']).schema?.includes('properties'));
    await page.getByRole('button', { name: 'Done' }).click();
    await page.locator('#settings').waitFor({ state: 'hidden' });
    const value = JSON.parse(await answer(page, 'Hi').then(() => page.textContent('.text pre')));
    assert.deepEqual(Object.keys(value), ['title', 'mood', 'keywords']);
  });

test('an answer under a schema that was cut off shows what is known of it, and continues under it', async () => {
  page = await open(where, `?model=${TINY}`, {}, settings({ schema: JSON.stringify(SCHEMA), maxTokens: 20 }));
  await state(page, 'ready');
  await answer(page, 'Hi');
  await page.getByText('The answer was cut off at the length limit').waitFor();
  const text = await page.textContent('.text pre');
  assert.throws(() => JSON.parse(text), 'it is the beginning of the JSON');
  const [, who] = /^\{"who":"([^"]*)/.exec(text);
  assert.deepEqual(await page.locator('.tree > li').allTextContents(), [`who "${who}"`]);
  for (let i = 0, before = text; await page.locator('.cut').count(); i++) {
    assert.ok(i < 20, `${before} has no end`);
    await begin(page, () => page.getByRole('button', { name: 'Continue' }).click());
    await state(page, 'ready');
    const longer = await page.textContent('.text pre');
    assert.ok(longer.startsWith(before) && longer.length > before.length, `${longer} behind ${before}`);
    before = longer;
  }
  const member = '(?:7|true|null)';
  assert.match(await page.textContent('.text pre'),
    new RegExp(`^\\{"who":"(?:Ada|Bob) <b>","tags":\\[${member},${member}\\],"at":\\{"__proto__":"x"\\}\\}$`));
});

test('the inspector strikes through what the schema ruled out, and says how many tokens it allowed', async () => {
  page = await open(where, `?model=${TINY}`, { viewport: { width: 1440, height: 900 } },
    settings({ schema: JSON.stringify(SCHEMA), temperature: 0 }));
  await state(page, 'ready');
  await answer(page, 'Hi');
  await page.click('#open-inspect');
  const first = page.locator('.token').first();
  await first.focus();
  assert.equal(await first.textContent(), '{', 'the schema leaves no other beginning');
  assert.match(await page.textContent('.chosen > p'), /· {2}\d tokens? allowed$/);
  const shown = await page.locator('.chosen li').evaluateAll(items => items.map(item => [
    item.querySelector('code').textContent, item.querySelector('s .hidden')?.textContent]));
  assert.equal(shown.length, 5);
  for (const [piece, said] of shown) assert.equal(said, '{"who'.startsWith(piece) ? undefined : ' (ruled out)', piece);
  assert.ok(shown.some(([, said]) => said));
  await screenshot(page, 'inspect-schema');
});

for (const { colorScheme, width, height } of LOOKS) {
  test(`an answer under a schema is a tree, with its text below (${width} px, ${colorScheme})`, async () => {
    page = await open(where, `?model=${TINY}`, { colorScheme, viewport: { width, height },
      permissions: ['clipboard-read', 'clipboard-write'] }, settings({ schema: JSON.stringify(SCHEMA) }));
    await state(page, 'ready');
    await answer(page, 'Hi');
    const raw = page.locator('.text > details'), text = await raw.locator('pre').textContent();
    const { who, tags, at } = JSON.parse(text);
    assert.deepEqual([who.slice(3), tags.length, Object.keys(at)], [' <b>', 2, ['__proto__']], text);
    const tree = page.locator('.tree');
    assert.deepEqual(await tree.locator('b').allTextContents(), ['who', 'tags', '0', '1', 'at', '__proto__']);
    assert.deepEqual(await tree.locator('span').allTextContents(),
      [`"${who}"`, '2 elements', ...tags.map(String), '1 member', '"x"']);
    assert.equal(await raw.locator('pre').isVisible(), false);
    await tree.locator('summary').first().focus();
    await page.keyboard.press('Enter');
    assert.equal(await tree.getByText('0', { exact: true }).isVisible(), false, 'it is folded');
    await raw.locator('summary').click();
    assert.ok(await raw.locator('pre').isVisible());
    // The context is longer than the training: a warning that stays until it is dismissed.
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await page.getByRole('button', { name: 'Copy as JSON' }).click();
    await page.getByText('Copied').waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
    const box = await page.locator('#log .assistant').boundingBox();
    assert.ok(box && box.x >= 0 && box.x + box.width <= width);
    await screenshot(page, `schema-${width}-${colorScheme}`);
    const [{ messages }] = await stored(page);
    assert.deepEqual([messages[1].content, messages[1].json], [text, true]);
    await page.reload();
    await state(page, 'ready');
    assert.deepEqual(await page.locator('.tree > li > b, .tree > li > details > summary > b').allTextContents(),
      ['who', 'tags', 'at']);
  });
}
