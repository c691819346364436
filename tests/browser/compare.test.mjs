/** The chat page with models that compute embeddings: a box to compare texts.  Ground truth: the vectors that
 * sentence-transformers computes from the original weights (tests/vectors/minilm). */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { root } from '../node/helpers.mjs';
import { open, screenshot, setUp, state, whole } from './chat-page.mjs';

const MINILM = '/models/all-MiniLM-L6-v2.Q8_0.gguf';
const lines = readFileSync(`${root}tests/vectors/minilm/texts.txt`, 'utf8').trimEnd().split('\n');
const bytes = readFileSync(`${root}tests/vectors/minilm/vectors.bin`);
const vectors = lines.map((_, i) => Array.from({ length: 384 }, (_, j) => bytes.readFloatLE(4 * (384 * i + j))));
const cosine = (a, b) => vectors[a].reduce((sum, x, i) => sum + x * vectors[b][i], 0);
/** How far a cosine of the Q8_0 file may be from that of the original weights: each vector turns by at most
 * acos(0.999) = 0.045. */
const NEAR = 0.05;

const where = await setUp();
let page;
before(async () => {
  page = await open(where, `?model=${MINILM}`, { viewport: { width: 1300, height: 900 } });
  await state(page, 'ready');
  await page.waitForSelector('#compare-query:focus');
});
after(() => page.close());

test('texts are compared with a query, the nearest first, and the page shows no conversation', async () => {
  assert.equal(await page.getByText(/384 dimensions.*pooling: mean over the tokens/).count(), 1);
  for (const id of ['prompt', 'welcome', 'new-chat']) assert.ok(await page.locator(`#${id}`).isHidden(), id);
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await page.getByText('There is no query').waitFor();
  const some = [1, 2, 5, 14, 23];
  await page.fill('#compare-query', lines[0]);
  await page.fill('#compare-texts', some.map(i => lines[i]).join('\n'));
  await page.press('#compare-query', 'Enter');
  await page.waitForSelector('.ranking li');
  const shown = await page.locator('.ranking li').evaluateAll(all =>
    all.map(({ firstChild, lastChild }) => [firstChild.textContent, Number(lastChild.textContent)]));
  const expected = some.map(i => [lines[i], cosine(0, i)]).sort(([, a], [, b]) => b - a);
  assert.deepEqual(shown.slice(0, 3).map(([text]) => text), expected.slice(0, 3).map(([text]) => text));
  for (const [text, score] of shown) {
    const [, original] = expected.find(([one]) => one === text);
    assert.ok(Math.abs(score - original) <= NEAR, `${text}: ${score}, ${original}`);
  }
  await screenshot(page, 'compare-query');
});

test('texts are compared with each other as a picture and a table', async () => {
  await page.getByLabel('Texts with each other').check();
  assert.ok(await page.locator('#compare-query').isHidden());
  await page.fill('#compare-texts', lines.slice(0, 9).join('\n'));
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await page.waitForSelector('#compare canvas');
  const rows = await page.locator('#compare tbody tr').evaluateAll(rows =>
    rows.map(row => [...row.cells].map(cell => cell.textContent)));
  for (const [i, [text, nearest, value]] of rows.entries()) {
    const others = [0, 1, 2, 3, 4, 5, 6, 7, 8].filter(j => j !== i).sort((a, b) => cosine(i, b) - cosine(i, a));
    assert.equal(text, lines[i]);
    if (cosine(i, others[0]) - cosine(i, others[1]) > 2 * NEAR) assert.equal(nearest, lines[others[0]]);
    assert.ok(Math.abs(Number(value) - cosine(i, lines.indexOf(nearest))) <= NEAR, `${text}: ${value}`);
  }
  await page.focus('#compare canvas');
  await page.keyboard.press('ArrowRight');
  assert.match(await page.textContent('#compare output'), /^text “A man is eating food.”, and “A man is eating a p/);
  await screenshot(page, 'compare-pairs');
});

test('the inspector traces the text, and the facts and the check know what the model is', async () => {
  await page.click('#open-inspect');
  await page.getByText('This model gives no answers').waitFor();
  await page.click('#tab-layers');
  await page.getByRole('button', { name: 'Trace the text' }).click();
  await page.locator('#view-layers canvas').first().waitFor();
  assert.equal(await page.locator('#view-layers tbody tr').first().locator('td').count(), 3);
  await page.click('#tab-check');
  await page.getByRole('button', { name: 'Run the self-check' }).click();
  await page.getByText('the model computes embeddings, and no logits').waitFor();
  await page.click('[data-close=inspect]');
  await page.click('#model');
  await page.getByText('The model computes embeddings. It does not answer messages').waitFor();
  await page.fill('#url', MINILM);
  await page.click('#look');
  await page.getByRole('button', { name: 'Start' }).waitFor();
  assert.match(await page.textContent('#plan'), /Speedabout \d+ tokens\/s.*The model computes embeddings/s);
  await page.click('[data-close=models]');
  assert.deepEqual(page.problems, []);
});

test('a question that waits for a model is answered by the next one that answers', async () => {
  const other = await open(where, '?model=/build/chat/none.gguf');
  const load = async model => {
    await other.click('#model');
    await other.fill('#url', model);
    await other.click('#look');
    await other.getByRole('button', { name: 'Start' }).click();
  };
  await state(other, 'failed');
  await other.evaluate(url => import(url).then(() => {}), `${where.url}web/chat/page.js`);   // until it has run
  await other.getByRole('button', { name: 'Why is the sky blue?' }).click();
  await other.getByText('Waiting for the model').waitFor();
  await load(MINILM);
  await other.waitForSelector('#compare h2');
  await load('/tests/vectors/synth/f32.gguf');
  await whole(other, 2);
  assert.ok(await other.locator('#compare').isHidden());
  assert.deepEqual(other.problems, []);
  await other.close();
});

/** MiniLM with the classifier of a reranker, whose score is the first element of the mean. */
function reranker() {
  const file = readFileSync(`${root}${MINILM}`), name = Buffer.from('cls.output.weight');
  const numbers = (bits, ...all) => Buffer.concat(all.map(n => {
    const buffer = Buffer.alloc(8);
    buffer.writeBigUInt64LE(BigInt(n));
    return buffer.subarray(0, bits / 8);
  }));
  const infoOf = tensor => file.indexOf(Buffer.concat([numbers(64, tensor.length), Buffer.from(tensor)]));
  const pooling = file.indexOf('bert.pooling_type') + 'bert.pooling_type'.length + 4;
  const first = infoOf('token_embd_norm.bias'), last = 'blk.5.ffn_down.weight';
  const end = infoOf(last) + 8 + last.length + 4 + 16 + 4 + 8;   // after its name: dimensions, shape, type, offset
  const data = file.subarray(Math.ceil(end / 32) * 32), space = n => Buffer.alloc((32 - n % 32) % 32);
  const info = Buffer.concat([numbers(64, name.length), name, numbers(32, 2), numbers(64, 384, 1), numbers(32, 0),
    numbers(64, Math.ceil(data.length / 32) * 32)]);
  const head = Buffer.concat([file.subarray(0, first), info, file.subarray(first, end)]);
  head.writeBigUInt64LE(102n, 8);
  head.writeUInt32LE(4, pooling);
  const weights = Buffer.alloc(384 * 4);
  weights.writeFloatLE(1, 0);
  return Buffer.concat([head, space(head.length), data, space(data.length), weights]);
}

test('a reranker ranks texts, with a query only', async () => {
  mkdirSync(`${root}build/chat`, { recursive: true });
  writeFileSync(`${root}build/chat/reranker.gguf`, reranker());
  const other = await open(where, '?model=/build/chat/reranker.gguf');
  await state(other, 'ready');
  await other.getByText('Which text answers the query?').waitFor();
  assert.equal(await other.getByLabel('Texts with each other').count(), 0);
  await other.fill('#compare-query', lines[0]);
  await other.fill('#compare-texts', lines.slice(1, 5).join('\n'));
  await other.press('#compare-query', 'Enter');
  await other.waitForSelector('.ranking li');
  const scores = await other.locator('.ranking .figures').allTextContents();
  assert.equal(scores.length, 4);
  assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
  await other.getByText('scores of a classifier').waitFor();
  assert.deepEqual(other.problems, []);
  await other.close();
});
