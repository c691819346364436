/**
 * `node tests/bench/schedule.mjs`: simulates how threads share the loops of a layer (src/engine/threads/pool.c), on
 * machines with more cores than the one at hand, and prints the speed of each schedule as a share of what the cores
 * could do without waiting.
 *
 * A schedule says how many indices a claim takes when some are left:
 *   chunks K   n / (K threads), always the same
 *   part P M   what is left / (P threads), but at least what takes M microseconds for each thread
 */
import { parseArgs } from 'node:util';
import { randomOf } from '../random.mjs';

const HELP = `node tests/bench/schedule.mjs [--seeds N]
  --seeds N   starts of the threads that are tried for each cell (200)`;
const { values } = parseArgs({ options: { seeds: { type: 'string', default: '200' }, help: { type: 'boolean' } } });
if (values.help) {
  console.log(HELP);
  process.exit();
}

/** Microseconds.  claim: of one thread, while the others wait for the word; late: until a thread that spins has begun;
 * asleep: until one that slept has, which happens in one of SLEEPS loops.  Those of pool.c on Zen 3 to 5. */
const TIMES = { claim: 0.1, late: 0.3, asleep: 8 };
const SLEEPS = 20;

/** Loops: n indices of so many microseconds each, tiles of 8 rows at the speed of tests/bench/kernels.mjs. */
const LOOPS = [
  { name: 'prefill, 576 rows', n: 72, time: 10 },
  { name: 'prefill, 3,072 rows', n: 384, time: 10 },
  { name: 'prefill, 1.5B', n: 2240, time: 70 },
  { name: 'decode, 576 rows', n: 72, time: 0.23 },
  { name: 'decode, 3,072 rows', n: 384, time: 0.23 },
  { name: 'decode, 1.5B', n: 2240, time: 0.6 },
  { name: 'norms', n: 128, time: 0.4 },
  { name: 'heads', n: 9, time: 30 },
];

/** The relative speeds of the cores. */
const MACHINES = [
  ...[2, 4, 8, 16].map(n => ({ name: `${n} cores`, speeds: Array(n).fill(1) })),
  ...[4, 8, 16].map(n => ({ name: `${n} cores, 2 slow`, speeds: [...Array(n - 2).fill(1), 0.4, 0.4] })),
];

const chunks = share => (left, n, threads) => Math.max(1, Math.floor(n / (share * threads)));
const parts = (part, micros) => (left, n, threads, time) =>
  Math.max(1, Math.floor(left / (part * threads)), Math.ceil(micros * threads / time));
const SCHEDULES = [
  ...[1, 2, 4, 8, 16, 32].map(share => ({ name: `chunks ${share}`, take: chunks(share) })),
  ...[0.05, 0.1, 0.2, 0.4].flatMap(micros => [1.5, 2, 3].map(part =>
    ({ name: `part ${part} ${micros}`, take: parts(part, micros) }))),
];

/** Microseconds until all n indices are done.  Thread 0 is the caller's, on any of the cores. */
function simulate({ n, time }, speeds, take, seed) {
  const next = randomOf(seed);
  const first = Math.floor(next() * speeds.length);
  const free = speeds.map((_, i) => i === first ? 0 : next() * SLEEPS < 1 ? TIMES.asleep : TIMES.late * (0.5 + next()));
  let left = n, word = 0, end = 0;   // word: when the next claim may change it
  while (left > 0) {
    const thread = free.indexOf(Math.min(...free));
    word = Math.max(word, free[thread]) + TIMES.claim;
    const some = Math.min(left, take(left, n, speeds.length, time));
    left -= some;
    // A core that is shared with other programs is slower now and then.
    free[thread] = word + some * time / speeds[thread] * (next() < 0.02 ? 1.5 : 1);
    end = Math.max(end, free[thread]);
  }
  return end;
}

const seeds = Number(values.seeds);
console.log(`| schedule | ${LOOPS.map(({ name }) => name).join(' | ')} | mean | least |`);
console.log(`|---|${'---|'.repeat(LOOPS.length + 2)}`);
for (const { name, take } of SCHEDULES) {
  const all = [];
  const cells = LOOPS.map(loop => {
    const shares = MACHINES.map(({ speeds }) => {
      const ideal = loop.n * loop.time / speeds.reduce((sum, speed) => sum + speed, 0);
      let sum = 0;
      for (let seed = 1; seed <= seeds; seed++) sum += simulate(loop, speeds, take, seed);
      return ideal / (sum / seeds);
    });
    all.push(...shares);
    return shares.map(share => share.toFixed(2).replace(/^0/, '')).join(' ');
  });
  const mean = all.reduce((sum, share) => sum + share, 0) / all.length;
  console.log(`| ${name} | ${cells.join(' | ')} | ${mean.toFixed(3)} | ${Math.min(...all).toFixed(2)} |`);
}
console.log(`\nEach cell: ${MACHINES.map(({ name }) => name).join('; ')}.`);
