/**
 * `node tests/bench/streams.mjs [MODEL] [N,N...]`: how many tokens per second sessions of one model generate together,
 * in this thread, and how that compares with what the kernels gain from several tokens at once.
 *
 * N streams have prompts of 200 tokens, which differ, and answers of 48 tokens.  What the kernels allow is a batch of N
 * tokens of one text, whose matrices are multiplied as often, and the logits of N - 1 more tokens: a batch has those of
 * its last one.  A row of logits takes the Nth part of what a step takes longer with logits than without.
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

/** The time of a step of the sessions that were fed last, with logits or without. @param {boolean} wantsLogits */
function step(wantsLogits) {
  const { engine, feeds } = /** @type {NonNullable<typeof last>} */ (last), times = [];
  for (let i = 0; i < 12; i++) {
    const positions = feeds.map(({ session }) => session.position), start = performance.now();
    feedTogether.call(engine, feeds.map(({ session }) => ({ session, ids: Int32Array.of(ids[i]), wantsLogits })));
    times.push(seconds(start));
    feeds.forEach(({ session }, k) => session.rewind(positions[k]));
  }
  return median(times);
}

await model.feed(ids.subarray(0, PROMPT));
console.log('| streams | tokens/s together | of a step | kernels allow | share | answers are those alone |');
console.log('| ---: | ---: | ---: | ---: | ---: | --- |');
/** @type {string[]} */
const alone = [];
for (const n of counts.split(',').map(Number)) {
  const sessions = await Promise.all(Array.from({ length: n }, () => model.session()));
  const rates = [];
  let same = true;
  for (let round = 0; round < ROUNDS; round++) {
    for (const session of sessions) await session.rewind();
    steps.clear();
    const start = performance.now();
    const texts = await Promise.all(sessions.map((session, i) =>
      session.generate(ids.subarray(i * 50, i * 50 + PROMPT), OPTIONS)));
    rates.push(sessions.reduce((sum, { lastStats }) => sum + (lastStats?.tokens ?? 0), 0) / seconds(start));
    texts.forEach((one, i) => { same &&= (alone[i] ??= one) === one; });
  }
  const rows = n > 1 ? (step(true) - step(false)) * (n - 1) / n : 0;
  const time = median(steps.get(n) ?? [NaN]), most = n / (await batch(n) + rows);
  console.log(`| ${[n, median(rates).toFixed(1), (n / time).toFixed(1), most.toFixed(1), (n / time / most).toFixed(2),
    same].join(' | ')} |`);
  await Promise.all(sessions.map(session => session.close()));
  await model.feed(ids.subarray(0, 1)).catch(() => {});
  await model.rewind();
  await model.feed(ids.subarray(0, PROMPT));
}
await model.close();
