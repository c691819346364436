/**
 * `node tests/bench/streams.mjs [MODEL] [N,N...]`: how many tokens per second sessions of one model generate together,
 * in this thread, and how that compares with what the kernels gain from several tokens at once.
 *
 * N streams have prompts of 200 tokens, which differ, and answers of 48 tokens.  Two rates: that of the tokens of all
 * answers, from the first prompt to the last token, and that of the steps in which all N answer.  What the kernels
 * allow: a prompt of 400 tokens takes as long as it does alone; a step takes as long as a batch of N tokens of one
 * text, whose matrices are multiplied as often, and N - 1 rows of logits, each of which takes the time of one alone: a
 * batch has the logits of its last token only.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Engine } from '../../web/engine/engine.js';
import { Plumb } from '../../web/node/index.js';
import { median } from './median.mjs';

const PROMPT = 200, ANSWER = 48, ROUNDS = 3;
/** No answer ends before the others. */
const OPTIONS = { temperature: 0, maxTokens: ANSWER, logitBias: { 0: -Infinity, 2: -Infinity } };
const [path = fileURLToPath(new URL('../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url)),
  counts = '1,2,4,8,16'] = process.argv.slice(2);
const text = readFileSync('/usr/share/common-licenses/GPL-3', 'utf8');
const model = await Plumb.load(path, { threads: 1, worker: false, contextLength: 512 });
const ids = await model.tokenize(text), seconds = (/** @type {number} */ start) => (performance.now() - start) / 1000;

/** The steps of engines, in seconds, by how many sessions they feed. @type {Map<number, number[]>} */
const steps = new Map();
const { feedTogether } = Engine.prototype;
/** The last step of several sessions. @type {{engine: Engine, feeds: any[]} | undefined} */
let last;
Engine.prototype.feedTogether = function (feeds) {
  last = { engine: this, feeds };
  const start = performance.now(), result = feedTogether.call(this, feeds);
  if (feeds.every(one => one.ids.length === 1)) {
    const all = steps.get(feeds.length) ?? [];
    steps.set(feeds.length, [...all, seconds(start)]);
  }
  return result;
};

/** The median time of feeding n tokens at once behind a prompt. @param {number} n */
async function batch(n) {
  const times = [];
  for (let i = 0; i < 12; i++) {
    await model.rewind(PROMPT);
    const start = performance.now();
    await model.feed(ids.subarray(PROMPT + i, PROMPT + i + n));
    times.push(seconds(start));
  }
  return median(times);
}

/** The time of a row of logits: what a step of one session takes longer with logits than without. */
async function row() {
  const session = await model.session(), times = [true, false].map(() => /** @type {number[]} */ ([]));
  await session.feed(ids.subarray(0, PROMPT));
  const { engine, feeds } = /** @type {NonNullable<typeof last>} */ (last);
  for (let i = 0; i < 24; i++) {
    const start = performance.now();
    feedTogether.call(engine, [{ ...feeds[0], ids: Int32Array.of(ids[i]), wantsLogits: i % 2 === 0 }]);
    times[i % 2].push(seconds(start));
  }
  await session.close();
  return median(times[0]) - median(times[1]);
}

/** The time of a token of a prompt. */
async function token() {
  const session = await model.session(), times = [];
  for (let i = 0; i < 5; i++) {
    await session.rewind();
    const start = performance.now();
    await session.feed(ids.subarray(1000 + 400 * i, 1400 + 400 * i));
    times.push(seconds(start) / 400);
  }
  await session.close();
  return median(times);
}

await model.feed(ids.subarray(0, PROMPT));
console.log('| streams | tokens/s together | kernels allow | share | tokens/s of steps | kernels allow | share '
  + '| answers are those alone |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |');
/** @type {string[]} */
const alone = [];
const prompts = Array.from({ length: 16 }, (_, i) => ids.subarray(3000 + i * 50, 3000 + i * 50 + PROMPT));
for (const n of counts.split(',').map(Number)) {
  const sessions = await Promise.all(Array.from({ length: n }, () => model.session()));
  const rates = [];
  let same = true;
  for (let round = 0; round < ROUNDS; round++) {
    for (const session of sessions) await session.rewind();
    steps.clear();
    const start = performance.now();
    const texts = await Promise.all(sessions.map((session, i) => session.generate(prompts[i], OPTIONS)));
    rates.push(sessions.reduce((sum, { lastStats }) => sum + (lastStats?.tokens ?? 0), 0) / seconds(start));
    texts.forEach((one, i) => { same &&= (alone[i] ??= one) === one; });
  }
  await Promise.all(sessions.map(session => session.close()));
  const step = median(steps.get(n) ?? [NaN]), least = await batch(n) + (n - 1) * await row();
  const together = median(rates), most = n * ANSWER / (n * PROMPT * await token() + ANSWER * least);
  console.log(`| ${[n, together.toFixed(1), most.toFixed(1), (together / most).toFixed(2), (n / step).toFixed(1),
    (n / least).toFixed(1), (least / step).toFixed(2), same].join(' | ')} |`);
}
await model.close();
