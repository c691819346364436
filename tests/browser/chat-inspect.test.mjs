/** The inspector of the chat page.  Ground truth: the package's own logits and trace, computed outside the page, and
 * the output of the command line for the same file. */
import assert from 'node:assert/strict';
import { openAsBlob } from 'node:fs';
import { after, before, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { dump, tokens, valuesOf } from '../cli/dump.mjs';
import { realPath, tinyPath } from '../node/helpers.mjs';
import { answer, open, screenshot, setUp, state, TINY } from './chat-page.mjs';

const QUESTION = 'Name a colour of the sky.';
const where = await setUp();
let page, model, text;
before(async () => {
  const settings = JSON.stringify({ temperature: 0, maxTokens: 10, theme: 'dark' });
  page = await open(where, '', { viewport: { width: 1440, height: 900 } }, page =>
    page.addInitScript(settings => localStorage.setItem('plumb.settings', settings), settings));
  await state(page, 'ready');
  text = await answer(page, QUESTION);
  model = await Plumb.load(realPath, { precision: 'exact16' });
});
after(async () => {
  await model.close();
  await page.close();
});

/** Natural logarithms of the softmax. @param {Float32Array} logits */
function logSoftmax(logits) {
  const max = logits.reduce((a, b) => Math.max(a, b)), sum = logits.reduce((s, x) => s + Math.exp(x - max), 0);
  return Array.from(logits, x => x - max - Math.log(sum));
}

test('before the first answer of a visit the inspector says what to do', async () => {
  const other = await open(where, '?model=/tests/vectors/synth/f32.gguf');
  await state(other, 'ready');
  await other.click('#open-inspect');
  await other.getByText('Ask a question first').first().waitFor();
  await other.close();
});

test('each token of the answer shows its probability by the logits, and its likeliest alternatives', async () => {
  await page.click('#open-inspect');
  const tokens = page.locator('.token');
  await tokens.first().waitFor();
  const labels = await tokens.evaluateAll(all => all.map(one => one.ariaLabel));
  const prompt = await model.applyChatTemplate([{ role: 'user', content: QUESTION }]);
  let logits = await model.feed(await model.tokenize(prompt, { addSpecial: false, parseSpecial: true }));
  let said = '';
  for (const [i, label] of labels.entries()) {
    const logprobs = logSoftmax(logits);
    const order = [...logprobs.keys()].sort((a, b) => logprobs[b] - logprobs[a]).slice(0, 5);
    const best = await model.detokenize([order[0]], { special: true });
    const percent = /^(".*"), (?:< )?([\d.]+) %$/s.exec(label);
    assert.equal(JSON.parse(percent[1]), best, label);
    const p = 100 * Math.exp(logprobs[order[0]]);
    assert.ok(Math.abs(Number(percent[2]) - p) < 0.06, `${label}, ${p}`);
    await tokens.nth(i).focus();
    const shown = await page.locator('.chosen li .figures').evaluateAll(all => all.map(({ textContent }) =>
      Number.parseFloat(textContent.replace('< ', ''))));
    assert.equal(shown.length, 5);
    for (const [j, id] of order.entries()) {
      assert.ok(Math.abs(shown[j] - 100 * Math.exp(logprobs[id])) < 0.06, `${label}: ${shown[j]}`);
    }
    said += best;
    logits = await model.step(order[0]);
  }
  assert.ok(said.trim().startsWith(text.trim()), said);
  await screenshot(page, 'inspect-tokens');
});

test('hovering over a token shows its alternatives', async () => {
  const tokens = page.locator('.token');
  for (const i of [3, 1]) {
    await tokens.nth(i).hover();
    const label = await tokens.nth(i).getAttribute('aria-label');
    const [, percent] = /, ((?:< )?[\d.]+ %)$/.exec(label);
    await page.locator('.chosen li[aria-current] .figures').getByText(percent, { exact: true }).waitFor();
    assert.equal(await page.textContent('.chosen > p > code'), await tokens.nth(i).textContent());
    assert.equal(await page.locator('.chosen li').count(), 5);
    assert.deepEqual(await page.locator('.chosen li').first().evaluate(item =>
      [...item.children].map(({ localName, className }) => className || localName)), ['code', 'bar', 'figures']);
  }
});

test('arrow keys move from token to token', async () => {
  await page.locator('.token').first().focus();
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => [...document.querySelectorAll('.token')].indexOf(document.activeElement)), 1);
});

/** The trace of the conversation, computed by the package in Node. */
async function trace(options) {
  const messages = [{ role: 'user', content: QUESTION }, { role: 'assistant', content: text.trim() }];
  return model.trace(messages, { ...options, template: { addGenerationPrompt: false } });
}

test('layers: arrow keys and a table give the RMS and the entropy of a trace', async () => {
  await page.click('#tab-layers');
  await page.getByRole('button', { name: 'Trace the conversation' }).click();
  const canvas = page.locator('#view-layers canvas').first();
  await canvas.waitFor();
  const { taps, pieces } = await trace({ taps: 'l_out-*,kq_soft_max-*', values: 0 });
  assert.doesNotMatch(await page.textContent('#view-layers'), /Shows the first/, 'all tokens are shown');
  await canvas.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  const told = await page.locator('#view-layers output').first().textContent();
  const { rms } = taps.find(({ name, token }) => name === 'l_out-1' && token === 1);
  assert.equal(told, `layer 1, token “${pieces[1].replaceAll('\n', '↵')}”: ${Number(rms.toPrecision(3))}`);
  const { width, height } = await canvas.boundingBox();
  await canvas.hover({ position: { x: 4.5 / pieces.length * width, y: 20.5 / 30 * height } });   // layer 20, token 4
  const far = taps.find(({ name, token }) => name === 'l_out-20' && token === 4);
  assert.equal(await page.locator('#view-layers output').first().textContent(),
    `layer 20, token “${pieces[4].replaceAll('\n', '↵')}”: ${Number(far.rms.toPrecision(3))}`);
  const rows = await page.locator('#view-layers tbody tr').evaluateAll(rows =>
    rows.map(row => [...row.cells].map(cell => cell.textContent)));
  assert.equal(rows.length, 30);
  const mean = values => values.reduce((a, b) => a + b) / values.length;
  const entropy = mean(taps.filter(({ name }) => name === 'kq_soft_max-7').map(({ entropy }) => mean(entropy)));
  assert.ok(Math.abs(Number(rows[7][2]) - entropy) < 0.02 * entropy, `${rows[7]}, ${entropy}`);
  // A change of colours repaints the existing canvas.
  const paint = () => canvas.evaluate(canvas => [...canvas.getContext('2d').getImageData(0, 5, 1, 1).data].slice(0, 3));
  const dark = await paint();
  await page.click('#open-settings');
  await page.selectOption('#set-theme', 'light');
  await page.keyboard.press('Escape');
  assert.notDeepEqual(await paint(), dark);
  await page.click('#open-settings');
  await page.selectOption('#set-theme', 'dark');
  await page.keyboard.press('Escape');
  assert.deepEqual(await paint(), dark);
  await screenshot(page, 'inspect-layers');
});

test('attention: the weights of a layer and a head are shown', async () => {
  await page.click('#tab-attention');
  await page.selectOption('#layer', '3');
  await page.selectOption('#head', '2');
  await page.getByText('Attention of layer 3, head 2').waitFor();
  const { taps, pieces } = await trace({ taps: 'kq_soft_max-3', values: Infinity });
  const n = pieces.length, at = 5;
  const weights = taps.find(({ token }) => token === at).values.slice(2 * n, 2 * n + at + 1);
  const cells = await page.locator('#view-attention tbody tr').nth(at).locator('td').allTextContents();
  const most = weights.indexOf(Math.max(...weights));
  assert.deepEqual(cells.slice(0, 2), [JSON.stringify(pieces[at]), JSON.stringify(pieces[most])]);
  assert.ok(Math.abs(Number(cells[2]) - weights[most]) < 0.01);
  await screenshot(page, 'inspect-attention');
});

test('the self-check reports the same as the command line does for the file', async () => {
  const other = await open(where, `?model=${TINY}`, { viewport: { width: 1300, height: 900 } });
  await state(other, 'ready');
  await other.click('#open-inspect');
  await other.click('#tab-check');
  await other.getByRole('button', { name: 'Run the self-check' }).click();
  await other.locator('.checks li').first().waitFor();
  const shown = await other.locator('.checks li').evaluateAll(items => items.map(item => [item.dataset.verdict,
    item.querySelector('span').textContent]));
  const { out } = await Plumb.command(['selfcheck', 'm', '--json'], { files: { m: await openAsBlob(tinyPath) } });
  const { checks } = JSON.parse(out);
  assert.deepEqual(shown, checks.map(({ verdict, what }) => [verdict, what]));
  assert.ok(shown.every(([verdict]) => /^(OK|SKIP)$/.test(verdict)), JSON.stringify(shown));
  await other.close();
});

test('a dump of another engine is compared with this model\'s trace; the report runs no scripts', async () => {
  await page.click('#tab-check');
  const ours = await model.trace([504, 3575, 282, 4649, 314], { values: 8 });
  const tap = ours.taps.find(({ name, token }) => name === 'Vcur-4' && token === 2);
  tap.values = tap.values.map(value => value + 1);
  delete tap.rms;
  ours.program = '<script>parent.ran = true</script>';
  // Dropped on the inspector's zone, as a file manager does; the rest of the page accepts models.
  const transfer = await page.evaluateHandle(dump => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([dump], 'theirs.json'));
    return transfer;
  }, JSON.stringify(ours));
  for (const type of ['dragenter', 'dragover', 'drop']) {
    await page.dispatchEvent('.zone', type, { dataTransfer: transfer });
  }
  assert.equal(await page.textContent('.zone'), 'theirs.json');
  const frame = page.frameLocator('iframe');
  await frame.getByRole('heading', { level: 1 }).waitFor();
  assert.match(await frame.getByRole('heading', { level: 1 }).textContent(), /Vcur-4/);
  assert.equal(await page.evaluate(() => globalThis.ran), undefined);
  assert.equal(await page.locator('iframe').getAttribute('sandbox'), 'allow-same-origin');
  // It has the style of the file itself.
  const ground = await frame.locator('html').evaluate(html => getComputedStyle(html).getPropertyValue('--ground'));
  assert.equal(ground.trim(), '#161514', 'the colours that were chosen for the page');
  const width = await frame.locator('main').evaluate(main => getComputedStyle(main).display);
  assert.equal(width, 'grid');
  // The diagnosis takes longer than the comparison: it shows its progress, and can be stopped alone.
  const progress = page.locator('.diagnosis [role=status]').getByText(/^Looking for the mistake: \d+ %/);
  await progress.waitFor();
  const bar = page.getByRole('progressbar', { name: 'Diagnosis' });
  assert.ok(await bar.evaluate(({ value }) => value >= 0 && value <= 100));
  await page.locator('.diagnosis').getByRole('button', { name: 'Stop' }).click();
  await page.getByText('The diagnosis was stopped.').waitFor();
  assert.equal(await page.locator('iframe').count(), 1, 'the comparison stays');
  assert.deepEqual(page.problems, []);
  await page.locator('iframe').scrollIntoViewIfNeeded();
  await screenshot(page, 'inspect-diff');
});

test('a file that is not a dump is refused with a message', async () => {
  await page.setInputFiles('.zone input', { name: 'x.npz', mimeType: '', buffer: Buffer.from('nothing') });
  await page.locator('#view-check .problem').waitFor();
  assert.match(await page.textContent('#view-check .problem'),
    /^This file cannot be compared\. Choose a dump.*x\.npz: PLUMB_ERROR_METADATA: not a trace/);
});

/** What an engine would dump: llama.cpp's activations for TINY, with a mistake. */
function dumpOf(change = (values, _name, _token) => values) {
  const taps = [...dump.keys()].filter(name => !name.startsWith('result')).flatMap(name => tokens.map((_, token) =>
    ({ name, token, values: change(valuesOf(name, token), name, token) })));
  return { name: 'theirs.json', mimeType: '', buffer: Buffer.from(JSON.stringify({ tokens, taps })) };
}

test('the verdict of diagnose comes before the comparison, as the command line words it', async () => {
  const other = await open(where, `?model=${TINY}`, { viewport: { width: 1300, height: 900 } });
  await state(other, 'ready');
  await other.click('#open-inspect');
  await other.getByText('Ask a question first').first().waitFor();
  await other.click('#tab-check');
  const file = dumpOf((values, name, token) => name === 'l_out-1' ? valuesOf('ffn_out-1', token) : values);
  await other.setInputFiles('.zone input', file);
  const verdict = other.locator('.verdict');
  await verdict.waitFor();
  const files = { m: await openAsBlob(tinyPath), theirs: new Blob([file.buffer]) };
  const { out } = await Plumb.command(['diagnose', 'm', '--against', 'theirs'], { files });
  assert.equal(await verdict.textContent(), 'residual.ffn=missing in layer 1 alone reproduces their numbers');
  assert.match(out, new RegExp(`^verdict: ${await verdict.textContent()}$`, 'm'));
  assert.equal(await verdict.getAttribute('data-agree'), 'false');
  const evidence = await other.locator('.evidence li').allTextContents();
  assert.ok(evidence.some(line => line.startsWith('their l_out-1 (residual after the layer): ')), evidence.join('\n'));
  for (const line of evidence) assert.ok(out.includes(line), line);
  await other.getByText('The whole report').click();
  assert.equal(await other.locator('.diagnosis pre').textContent(), out.trim());
  await other.frameLocator('iframe').getByRole('heading', { level: 1 }).waitFor();
  assert.ok(await other.evaluate(() => document.querySelector('.verdict').compareDocumentPosition(
    document.querySelector('iframe')) & Node.DOCUMENT_POSITION_FOLLOWING));
  for (const theme of ['light', 'dark']) {
    for (const [size, width] of [['wide', 1300], ['narrow', 390]]) {
      await other.emulateMedia({ colorScheme: theme });
      await other.setViewportSize({ width, height: 900 });
      await other.locator('.diagnosis').scrollIntoViewIfNeeded();
      assert.ok(await other.evaluate(() => {
        const panel = document.querySelector('#view-check');
        return panel.scrollWidth <= panel.clientWidth;
      }), `nothing is wider than the panel: ${theme}, ${size}`);
      await screenshot(other, `inspect-diagnosis-${theme}-${size}`);
    }
  }
  await other.setInputFiles('.zone input', { ...dumpOf(), name: 'right.json' });
  await other.locator('.verdict[data-agree=true]').getByText(/^agrees with the truth; largest relative error /)
    .waitFor();
  assert.deepEqual(other.problems, []);
  await other.close();
});

test('a dump of another model is refused where its verdict and its comparison would be', async () => {
  const other = await open(where, `?model=${TINY}`);
  await state(other, 'ready');
  await other.click('#open-inspect');
  await other.getByText('Ask a question first').first().waitFor();
  await other.click('#tab-check');
  const taps = [{ name: 'l_out-0', token: 0, values: [1, 2, 3] }];
  await other.setInputFiles('.zone input', { name: 'odd.json', mimeType: '',
    buffer: Buffer.from(JSON.stringify({ tokens: [1, 9999999], taps })) });
  const told = other.locator('#view-check .problem');
  await told.nth(1).waitFor();
  const [diagnosis, comparison] = await told.allTextContents();
  assert.match(diagnosis, /^This dump cannot be diagnosed\. .*odd\.json: PLUMB_ERROR_TOKEN: token 9999999 /);
  assert.match(comparison, /^This dump cannot be compared\. .*token 9999999 at index 1 is not in 0\.\.259/);
  assert.deepEqual(other.problems, []);
  await other.close();
});

test('Escape closes the inspector and returns the focus', async () => {
  await page.locator('#tab-check').focus();
  await page.keyboard.press('Escape');
  assert.ok(!await page.isVisible('#inspect'));
  assert.equal(await page.evaluate(() => document.activeElement.id), 'open-inspect');
});
