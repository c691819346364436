/** The settings of the chat page: invalid input is named and kept; colours; precision. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { afterEach, test } from 'node:test';
import { root } from '../node/helpers.mjs';
import { TINY, open, setUp, state } from './chat-page.mjs';

const where = await setUp();
let page;
afterEach(async () => {
  assert.deepEqual(page.problems, []);
  await page.close();
});
const kept = () => page.evaluate(() => JSON.parse(localStorage.getItem('plumb.settings')));
const done = () => page.getByRole('button', { name: 'Done' }).click();

test('Done with invalid settings names each of them, keeps the input, and focuses the first', async () => {
  page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#open-settings');
  await page.fill('#set-temperature', '0.7');
  const wrong = { maxTokens: ['0', 'Longest answer must be a whole number from 1 to 1,000,000.'],
    topP: ['3', 'Top p must be from 0 to 1.'], topK: ['', 'Top k must be a whole number from 0 to 2,147,483,647.'],
    contextLength: ['1.5', 'Context length must be a whole number from 1 to 16,777,216, or empty.'],
    threads: ['65', 'Threads must be a whole number from 1 to 64, or empty.'] };
  for (const [name, [text, why]] of Object.entries(wrong)) {
    await page.fill(`#set-${name}`, text);
    assert.equal(await page.textContent(`#about-${name}`), why);
    assert.equal(await page.getAttribute(`#set-${name}`, 'aria-invalid'), 'true');
    assert.match(await page.getAttribute(`#set-${name}`, 'aria-describedby'), new RegExp(`about-${name}`));
  }
  await done();
  assert.ok(await page.isVisible('#settings'));
  assert.equal(await page.textContent('#settings-note'),
    'Correct these values: Longest answer, Top k, Top p, Context length, Threads');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'set-maxTokens');
  for (const [name, [text]] of Object.entries(wrong)) assert.equal(await page.inputValue(`#set-${name}`), text);
  const { temperature, topP, threads } = await kept();
  assert.deepEqual([temperature, topP, threads], [0.7, 0.95, '']);
  for (const name of Object.keys(wrong)) await page.fill(`#set-${name}`, name === 'topP' ? '0.5' : '20');
  assert.equal(await page.textContent('#settings-note'), '', 'nothing is left to say');
  await done();
  assert.ok(await page.isHidden('#settings'));
  assert.deepEqual([(await kept()).topP, (await kept()).threads], [0.5, 20]);
});

test('closing the dialog by Escape with an invalid setting says which setting was not changed', async () => {
  page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#open-settings');
  await page.fill('#set-topP', '3');
  await page.keyboard.press('Escape');
  await page.getByText('Not changed, because the value is not valid: Top p').waitFor();
  await page.click('#open-settings');
  assert.equal(await page.inputValue('#set-topP'), '0.95');
  assert.equal(await page.textContent('#about-topP'), '');
});

test('precision is exact unless the switch is on; the switch says what it costs and gains', async () => {
  page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  const runs = async precision => {
    await page.click('#model');
    await page.locator('#facts dt:text-is("Engine") + dd', { hasText: `precision ${precision}` }).waitFor();
    await page.keyboard.press('Escape');
  };
  await runs('exact16');
  await page.click('#open-settings');
  const toggle = page.getByRole('switch', { name: 'Fast 8-bit arithmetic' });
  assert.equal(await toggle.isChecked(), false);
  const about = await page.textContent('#hint-precision');
  assert.match(about, /This is faster on some new processors: .*\. It is no faster on others: .* It costs accuracy/);
  await toggle.focus();
  await page.keyboard.press('Space');
  await done();
  await runs('fast8');
  await page.reload();   // the setting is restored
  await state(page, 'ready');
  await runs('fast8');
  await page.click('#open-settings');
  await page.getByRole('button', { name: 'Reset to defaults' }).click();
  await done();
  await runs('exact16');
});

test('a precision stored by an older version of the page becomes the exact one', async () => {
  page = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(() =>
    localStorage.setItem('plumb.settings', '{"precision":"auto"}')));
  await state(page, 'ready');
  await page.click('#open-settings');
  assert.equal(await page.isChecked('#set-precision'), false);
});

/** The background colour of the page, and the colour scheme of the browser's own controls. */
const shown = page => page.evaluate(() => [getComputedStyle(document.body).backgroundColor,
  getComputedStyle(document.documentElement).colorScheme, getComputedStyle(document.querySelector('#prompt')).color]);
const LIGHT = 'rgb(250, 249, 246)', DARK = 'rgb(22, 21, 20)';

test('the colour scheme is the system\'s or the chosen one; the choice is stored and reaches other tabs',
  async () => {
    page = await open(where, `?model=${TINY}`, { colorScheme: 'light' });
    await state(page, 'ready');
    const other = await page.context().newPage();
    await other.goto(page.url());
    await state(other, 'ready');
    const is = colour => page.waitForFunction(colour =>
      getComputedStyle(document.body).backgroundColor === colour, colour);
    await is(LIGHT);
    await page.emulateMedia({ colorScheme: 'dark' });
    await is(DARK);
    await page.click('#open-settings');
    await page.selectOption('#set-theme', 'light');
    await is(LIGHT);
    await page.selectOption('#set-theme', 'dark');
    await page.emulateMedia({ colorScheme: 'light' });
    await is(DARK);
    await other.waitForFunction(dark => getComputedStyle(document.body).backgroundColor === dark, DARK);
    await done();
    assert.equal(await page.getAttribute('body', 'data-state'), 'ready', 'no model is loaded for that');
    await page.reload();
    await is(DARK);
    await page.click('#open-settings');
    await page.selectOption('#set-theme', 'system');
    await is(LIGHT);
    await page.selectOption('#set-theme', 'dark');
    await page.getByRole('button', { name: 'Reset to defaults' }).click();
    await is(LIGHT);
  });

for (const [chosen, system, colour] of [['dark', 'light', DARK], ['light', 'dark', LIGHT]]) {
  test(`a page set to ${chosen} on a ${system} system has its colours from the first frame on`, async () => {
    page = await open(where, `?model=${TINY}`, { colorScheme: system }, async page => {
      await page.addInitScript(theme => {
        localStorage.setItem('plumb.settings', JSON.stringify({ theme }));
        globalThis.seen = new Set();
        const look = () => {
          if (document.body) globalThis.seen.add(getComputedStyle(document.body).backgroundColor);
          requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      }, chosen);
      // The page's modules are delayed, so the first frames use only the markup and the style sheets.
      await page.route('**/chat/page.js', async route => {
        await new Promise(resolve => setTimeout(resolve, 500));
        await route.continue();
      });
    });
    await state(page, 'ready');
    assert.deepEqual(await page.evaluate(() => [...globalThis.seen]), [colour]);
    assert.equal((await shown(page))[1], chosen);
  });
}

test('with a chosen colour scheme axe finds no contrast violation in any dialog', async () => {
  const axe = readFileSync(`${root}node_modules/axe-core/axe.min.js`, 'utf8');
  for (const theme of ['light', 'dark']) {
    page = await open(where, `?model=${TINY}`, { colorScheme: theme === 'dark' ? 'light' : 'dark' }, async page => {
      await page.addInitScript({ content: axe });
      await page.addInitScript(theme => localStorage.setItem('plumb.settings', JSON.stringify({ theme })), theme);
    });
    await state(page, 'ready');
    for (const button of [undefined, '#open-settings', '#model']) {
      if (button) await page.click(button);
      const { violations, passes } = await page.evaluate(() =>
        globalThis.axe.run(document, { runOnly: ['color-contrast'] }));
      assert.ok(passes.length > 0, 'it looked at something');
      assert.deepEqual(violations.map(({ nodes }) => nodes.map(({ html }) => html)), [], `${theme}, ${button}`);
      await page.keyboard.press('Escape');
    }
    if (theme === 'light') await page.close();
  }
});

test('a step up or down from the default of a setting is one of its steps', async () => {
  page = await open(where, `?model=${TINY}`);
  await state(page, 'ready');
  await page.click('#open-settings');
  const stepped = (name, way) => page.$eval(`#set-${name}`, (input, way) => {
    input[way]();
    return input.value;
  }, way);
  assert.equal(await stepped('repeatPenalty', 'stepUp'), '1.05');
  assert.equal(await stepped('repeatPenalty', 'stepDown'), '1');
  assert.equal(await stepped('temperature', 'stepDown'), '0.75');
  assert.equal(await stepped('presencePenalty', 'stepDown'), '-0.1');
});
