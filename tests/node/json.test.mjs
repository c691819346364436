/** Large bodies and answers are read and written in pieces, between which the event loop turns.  Ground truth:
 * JSON.parse and JSON.stringify. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonPieces, parseJson } from '../../web/base/json.js';
import { createHandler } from '../../web/node/fetch.js';
import { json } from '../../web/serving/answers.js';
import { random } from './helpers.mjs';

/** The most characters that are read or written in one turn of the event loop: a piece, and what ends it. */
const AT_ONCE = 2 * 65536;
const TEXTS = ['', 'plain', 'a "quoted" \\ back\\\\slash', 'line\nbreak\t\u0001', '\u{1F600}é', '\ud83d',
  '[{]},:', '__proto__'];

/** A value of about so many characters. @param {ReturnType<typeof random>} pick @param {number} size */
function valueOf(pick, size) {
  const leaves = [pick(1e6), -pick(1e6) / 7, pick(9) * 1e-9, true, false, null, ...TEXTS];
  if (size < 40) return leaves[pick(leaves.length)];
  if (pick(5) === 0) return TEXTS[1 + pick(TEXTS.length - 1)].repeat(size / 5);
  const length = Math.min([2, 3, 50, 1000][pick(4)], size / 20);
  const values = Array.from({ length }, () => valueOf(pick, size / length));
  return pick(2) ? values : JSON.parse(`{${values.map((one, i) =>
    `${JSON.stringify(`${TEXTS[pick(TEXTS.length)]}${i % 3 ? i : ''}`)}: ${JSON.stringify(one)}`).join(',')}}`);
}

/** What a function makes of a text. */
const outcome = async (parse, text) => {
  try {
    return { value: await parse(text) };
  } catch (error) {
    assert(error instanceof SyntaxError, `${error}`);
    return {};
  }
};

/** Counts turns of the event loop until it is stopped. */
function turns() {
  let count = 0, handle = setImmediate(function turn() {
    count++;
    handle = setImmediate(turn);
  });
  return { get count() { return count; }, stop: () => clearImmediate(handle) };
}

test('large texts are read and written as by JSON.parse and JSON.stringify', async () => {
  const rng = random(36);
  for (let i = 0; i < 30; i++) {
    const value = valueOf(rng, [50, 5000, 3e5, 1e6][i % 4]), text = JSON.stringify(value);
    const spaced = JSON.stringify(value, null, i % 5), pieces = [];
    assert.deepEqual(await parseJson(spaced), JSON.parse(spaced));
    for await (const piece of jsonPieces(value, 'data: ', '\n\n')) pieces.push(piece);
    assert.equal(pieces.join(''), `data: ${text}\n\n`);
    assert(pieces.every(piece => piece.length <= AT_ONCE));
  }
  const prototype = await parseJson(`{"__proto__": 1${' '.repeat(1e5)}, "a": "${'a'.repeat(1e5)}"}`);
  assert.equal(Object.getOwnPropertyDescriptor(prototype, '__proto__')?.value, 1);
});

test('large texts that are no JSON are refused, as by JSON.parse', async () => {
  const rng = random(63), whole = JSON.stringify({ a: valueOf(rng, 1e5), list: Array.from({ length: 30 }, (_, i) => ({
    text: '"\\é\n'.repeat(5000), numbers: Array.from({ length: 3000 }, (_, j) => i * j / 7), empty: [[], {}],
  })) }, null, 1);
  const marks = [',', ']', '}', '[', '{', '"', '\\', ':', ' ', '1', 'e', '\n'];
  for (let i = 0; i < 100; i++) {
    const at = rng(70000) + 65000, mark = marks[i % marks.length];
    // Near the place of a mark, so that structures break too.
    const place = i % 2 ? at : whole.indexOf(mark, at), end = i % 3 ? place + 1 : place;
    const text = i % 7 ? whole.slice(0, place) + marks[rng(marks.length)] + whole.slice(end)
      : whole.slice(0, place);
    assert.deepEqual(await outcome(parseJson, text), await outcome(JSON.parse, text), `change ${i}`);
  }
  const space = ' '.repeat(70000);
  for (const text of [`[1,${space}]`, `[${space}1, ]`, `[${space}`, `{"a": 1,${space}}`, `{${space}1: 2}`,
    `[${space}1 2]`, `"${space}`, `[1]${space}2`, `[${'1'.repeat(70000)}.]`, `{"a"${space} 1}`, `[1${space}}`, space,
    `["${space}\\u12"]`]) {
    await assert.rejects(parseJson(text), SyntaxError, text.trim());
  }
  await assert.rejects(parseJson('{"a": ['.repeat(1e5)), /more than 64 levels/);
  await assert.rejects(parseJson(`[${'{},'.repeat(1e5)}1]`), /more than 65536 arrays/);
});

test('the event loop turns while a large answer is written, and while a large body is read', async () => {
  const vectors = Array.from({ length: 1024 }, (_, i) => Array.from({ length: 384 }, (_, j) => Math.sin(i + j)));
  const loop = turns();
  const { body } = json({ data: vectors });
  let bytes = 0, last = loop.count;
  for await (const piece of /** @type {any} */ (body)) {
    bytes += piece.length;
    assert(piece.length <= AT_ONCE, `${piece.length} bytes at once`);
    assert(bytes < AT_ONCE || loop.count > last, `no turn before byte ${bytes}`);
    last = loop.count;
  }
  assert.equal(bytes, JSON.stringify({ data: vectors }).length);

  const handler = createHandler({ models: {} });
  for (const input of ['word '.repeat(1e6), vectors.map(vector => vector.map((_, i) => 30000 + i))]) {
    const text = JSON.stringify({ model: 'none', input }), before = loop.count;
    const response = await handler('http://localhost/v1/embeddings', { method: 'POST', body: text });
    assert.equal(response.status, 404);
    const least = Math.floor(text.length / AT_ONCE);
    assert(loop.count - before >= least, `${loop.count - before} turns, expected ${least}`);
  }
  loop.stop();
});
