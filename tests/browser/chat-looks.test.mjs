/** The appearance and accessibility of the chat page: narrow and wide, light and dark, in every state. Ground truth:
 * axe-core, and WCAG 2's contrast. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  FAILING, LONG, LOOKS, TINY, answer, ask, examine, open, put, setUp, stallingServer, state,
} from './chat-page.mjs';

const where = await setUp();

const MARKDOWN = `## Heights

1. **First**, a list
2. then \`code\`

\`\`\`js
console.log('a long line of code that has to scroll, as it is wider than any telephone', 1 + 1);
\`\`\`

| What | How much |
|---|---|
| a table | with cells |

> And a [link](https://example.com/).`;

for (const { colorScheme, width, height } of LOOKS) {
  describe(`${width} px, ${colorScheme}`, () => {
    const named = name => `${name}-${width}-${colorScheme}`;
    const use = { colorScheme, viewport: { width, height }, hasTouch: width < 500, reducedMotion: 'reduce' };

    test('with a model that continues texts axe finds no violations and nothing overflows the page', async () => {
      const page = await open(where, `?model=${TINY}`, use);
      await state(page, 'ready');
      await examine(page, named('continues'));
      await page.click('#model');
      await page.locator('#facts dd').first().waitFor();
      await examine(page, named('models-continues'));
      await page.close();
    });

    const isExtreme = (width < 500) === (colorScheme === 'dark');   // two of the four are enough for these pages
    if (isExtreme) test('the same holds for the box that compares texts and for the search page', async () => {
      const page = await open(where, '?model=/models/all-MiniLM-L6-v2.Q8_0.gguf', use);
      await page.getByRole('button', { name: 'Example' }).click();
      await page.waitForSelector('.ranking li');
      await examine(page, named('compare-query'));
      await page.getByLabel('Texts with each other').check();
      await page.getByRole('button', { name: 'Compare', exact: true }).click();
      await page.getByText('As a table').click();
      await examine(page, named('compare-pairs'));
      await page.goto(`${where.url}web/examples/search/`);
      await state(page, 'ready');
      await page.click('#example');
      await page.fill('#prompt', 'When is the car checked?');
      await page.waitForSelector('#results li');
      await examine(page, named('search'));
      await page.locator('#results button').first().click();
      await examine(page, named('search-note'));
      await page.close();
    });

    test('from the load to the inspector axe finds no violations and nothing overflows the page', async t => {
      // The server stalls once the plan is shown, so the load lasts as long as axe needs.
      const { url, stall } = await stallingServer(t);
      const page = await open({ ...where, also: url }, `?model=${encodeURIComponent(`${url}m.gguf`)}`, use);
      await page.locator('.plan').waitFor();
      await examine(page, named('plan'));
      stall();
      await page.locator('.plan').getByRole('button').click();
      await page.waitForFunction(() => Number(document.querySelector('#bar').getAttribute('value')) > 0);
      await examine(page, named('loading'));
      assert.equal(await page.getAttribute('body', 'data-state'), 'loading');
      await page.goto(`${where.url}web/chat/?model=/models/SmolLM2-135M-Instruct.Q4_1.gguf`);
      await state(page, 'ready');
      await examine(page, named('welcome'));
      await page.click('#open-settings');
      await page.fill('#set-topP', '3');
      await page.getByRole('button', { name: 'Done' }).click();
      await examine(page, named('settings'));
      await page.fill('#set-topP', '0.9');
      await page.locator('#set-theme').scrollIntoViewIfNeeded();
      await examine(page, named('settings-end'));
      await page.fill('#set-maxTokens', '600');   // which takes longer than axe does
      await page.keyboard.press('Escape');
      await ask(page, LONG);
      await page.waitForFunction(() => document.querySelector('#log > .assistant .text').textContent.length > 60);
      await examine(page, named('answering'));
      assert.equal(await page.getAttribute('body', 'data-state'), 'answering');
      await page.click('#stop');
      await state(page, 'ready');
      await page.click('#open-settings');
      await page.fill('#set-maxTokens', '8');
      await page.getByRole('button', { name: 'Done' }).click();
      await page.getByRole('button', { name: 'Regenerate' }).click();
      await page.getByRole('button', { name: 'Continue' }).waitFor();
      await page.fill('#prompt', 'many words '.repeat(5000));
      await page.getByText('This message is too long').waitFor();
      await examine(page, named('limits'));
      await page.fill('#prompt', '');
      await page.click('#model');
      await page.locator('#facts dd').first().waitFor();
      await examine(page, named('models'));
      await page.keyboard.press('Escape');
      await page.click('#open-inspect');
      // The strongest colour of a token, which is rare in an answer.
      await page.locator('.token').nth(3).evaluate(token => token.style.setProperty('--doubt', '1'));
      await examine(page, named('tokens'));
      await page.click('#tab-layers');
      await page.getByRole('button', { name: 'Trace the conversation' }).click();
      await page.locator('#view-layers canvas').first().waitFor();
      await examine(page, named('layers'));
      await page.click('#tab-check');
      await examine(page, named('check'));
      await page.keyboard.press('Escape');
      await page.close();
    });

    test('the same holds for conversations, Markdown and errors', async () => {
      const page = await open(where, `?model=${FAILING}`, use);
      await state(page, 'ready');
      await put(page, [{ messages: [{ role: 'user', content: 'Show me' },
        { role: 'assistant', content: MARKDOWN }] }]);
      if (width < 500) await page.click('#menu');
      await examine(page, named('conversations'));
      await page.fill('#search', 'table');
      await page.locator('#chats mark').waitFor();
      await page.getByRole('button', { name: 'Delete Show me' }).focus();
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Undo' }).waitFor();
      await examine(page, named('deleted'));
      await page.getByRole('button', { name: 'Undo' }).click();
      await page.locator('#chats mark').waitFor();
      await examine(page, named('found'));
      if (width < 500) await page.keyboard.press('Escape');
      await page.fill('#prompt', 'A'.repeat(300));
      await page.keyboard.press('Enter');
      await page.waitForSelector('#log .problem');
      await examine(page, named('problem'));
      await page.goto(`${where.url}web/chat/?model=/models/none.gguf`);
      await state(page, 'failed');
      await examine(page, named('failed'));
      await page.close();
    });
  });
}

test('text has the contrast that WCAG requires on every background, and the dark scheme is dark', async () => {
  const luminance = color => {
    const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, blue] = color.match(/[\d.]+/g).map(n => linear(n / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * blue;
  };
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(where, `?model=${TINY}`, {}, page => page.addInitScript(theme => {
      localStorage['plumb.settings'] = JSON.stringify({ theme });
    }, colorScheme));
    const colors = await page.evaluate(() => {
      const box = document.body.appendChild(document.createElement('p'));
      const shown = name => {
        box.style.color = `var(--${name})`;
        return getComputedStyle(box).color;
      };
      const all = names => Object.fromEntries(names.map(name => [name, shown(name)]));
      return { inks: all(['ink', 'quiet', 'alarm', 'fine', 'accent']),
        grounds: all(['ground', 'raised', 'sunken', 'fill']) };
    });
    assert.equal(luminance(colors.grounds.ground) < 0.1, colorScheme === 'dark');
    for (const [ink, a] of Object.entries(colors.inks)) {
      for (const [ground, b] of Object.entries(colors.grounds)) {
        const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x), contrast = (high + 0.05) / (low + 0.05);
        assert.ok(contrast >= 4.5, `${colorScheme}: ${ink} on ${ground}: ${contrast.toFixed(2)} : 1`);
      }
    }
    await page.close();
  }
});

test('earlier text does not move while an answer grows', async () => {
  const page = await open(where, '', { viewport: { width: 1000, height: 800 } });
  await state(page, 'ready');
  await page.evaluate(() => {
    globalThis.shift = 0;
    new PerformanceObserver(list => list.getEntries().forEach(({ value }) => { globalThis.shift += value; }))
      .observe({ type: 'layout-shift', buffered: false });
  });
  const frames = () => page.evaluate(() => new Promise(done => {
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)));
  }));
  await page.click('#open-settings');
  await page.fill('#set-maxTokens', '120');
  await page.keyboard.press('Escape');
  await answer(page, 'Explain rain in four short paragraphs.');
  await frames();
  const shift = await page.evaluate(() => globalThis.shift);
  assert.ok(shift < 0.02, `a layout shift of ${shift}`);
  // The browser reports layout shifts: here an element is pushed down.
  await page.evaluate(() => {
    const box = document.createElement('li');
    box.style.height = '200px';
    document.querySelector('#log').prepend(box);
  });
  await frames();
  const pushed = await page.evaluate(() => globalThis.shift);
  assert.ok(pushed > shift + 0.02, `${pushed} after something was pushed down`);
  await page.close();
});

test('everything works by keyboard: the focus order is right, and panels and dialogs return the focus', async () => {
  const page = await open(where, `?model=${TINY}`, { viewport: { width: 800, height: 700 } });
  await state(page, 'ready');
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.ariaLabel
    || document.activeElement.textContent.trim());
  assert.equal(await focused(), 'prompt');
  await page.focus('#menu');
  const order = [];
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press('Tab');
    order.push(await focused());
  }
  assert.deepEqual(order, ['model', 'open-inspect', 'open-settings']);
  for (const [button, dialog] of [['model', 'models'], ['open-settings', 'settings']]) {
    await page.focus(`#${button}`);
    await page.keyboard.press('Enter');
    assert.ok(await page.isVisible(`#${dialog}`));
    await page.keyboard.press('Escape');
    assert.ok(!await page.isVisible(`#${dialog}`));
    assert.equal(await focused(), button);
  }
  await page.focus('#menu');
  await page.keyboard.press('Enter');
  assert.ok(await page.isVisible('#side'));
  assert.ok(await page.evaluate(() => document.querySelector('#side').contains(document.activeElement)));
  assert.equal(await page.evaluate(() => document.querySelector('#page').inert), true);
  await page.keyboard.press('Escape');
  assert.ok(!await page.isVisible('#side'));
  assert.equal(await focused(), 'menu');
  await page.close();
});
