/**
 * `node tests/bench/streams.mjs [MODEL] [N,N...]`: how many tokens per second sessions of one model generate together,
 * in this thread, and how that compares with what the kernels gain from several tokens at once.
 *
 * N streams have prompts of 200 tokens, which differ, and answers of 48 tokens.  "one batch" is the time of a step of N
 * tokens in one session, whose matrices are multiplied as often, but whose attention is that of one text and whose
 * logits are those of one token: N of its tokens per step are the most that N streams can reach.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Engine } from '../../web/engine/engine.js';
import { Plumb } from '../../web/node/index.js';
import { median } from './median.mjs';

const PROMPT = 200, ANSWER = 48, ROUNDS = 3;
const [path = fileURLToPath(new URL('../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url)),
  counts = '1,2,4,8,16'] = process.argv.slice(2);
const text = readFileSync('/usr/share/common-licenses/GPL-3', 'utf8');
const model = await Plumb.load(path, { threads: 1, worker: false, contextLength: 512 });
const ids = await model.tokenize(text), seconds = (/** @type {number} */ start) => (performance.now() - start) / 1000;

/** The steps of engines, in seconds, by how many sessions they feed. @type {Map<number, number[]>} */
const steps = new Map();
const { feedTogether } = Engine.prototype;
Engine.prototype.feedTogether = function (feeds) {
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

await model.feed(ids.subarray(0, PROMPT));
console.log('| streams | tokens/s together | of a step | one batch | share | answers are those alone |');
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
      session.generate(ids.subarray(i * 50, i * 50 + PROMPT), { temperature: 0, maxTokens: ANSWER, seed: 1 })));
    rates.push(sessions.reduce((sum, { lastStats }) => sum + (lastStats?.tokens ?? 0), 0) / seconds(start));
    texts.forEach((one, i) => { same &&= (alone[i] ??= one) === one; });
  }
  const step = median(steps.get(n) ?? [NaN]), most = n / await batch(n);
  console.log(`| ${[n, median(rates).toFixed(1), (n / step).toFixed(1), most.toFixed(1), (n / step / most).toFixed(2),
    same].join(' | ')} |`);
  await Promise.all(sessions.map(session => session.close()));
  await model.feed(ids.subarray(0, 1)).catch(() => {});
  await model.rewind();
  await model.feed(ids.subarray(0, PROMPT));
}
await model.close();
