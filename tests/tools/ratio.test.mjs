/** What `make bench COMPARE=COMMIT` says of pairs of measurements, with made-up ones whose truth is known. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { ratioOf, verdictOf } from '../bench/ratio.mjs';
import { randomOf } from '../random.mjs';

/** Pairs of a machine with other load: both are slower by the same, and each by something of its own, now and then by a
 * multiple. @param {number} n @param {number} faster @param {number} seed @returns {[number, number][]} */
function pairsOf(n, faster, seed) {
  const random = randomOf(seed);
  const noise = () => 1 + 0.05 * random() + (random() < 0.1 ? 2 * random() : 0);
  return Array.from({ length: n }, () => {
    const load = 1 + random();
    return [load * noise() * faster, load * noise()];
  });
}

test('ratio: a program compared with itself is called faster or slower in at most 3 of 100 runs', () => {
  const verdicts = Array.from({ length: 100 }, (_, i) => verdictOf(ratioOf(pairsOf(40, 1, i + 1))));
  const wrong = verdicts.filter(verdict => verdict !== 'no change is shown');
  assert.ok(wrong.length <= 3, `${wrong.length} of 100: ${wrong}`);
});

test('ratio: 5 % are seen in 95 of 100 runs of 60 pairs, in both directions', () => {
  for (const [faster, verdict] of /** @type {const} */ ([[1.05, 'faster'], [1 / 1.05, 'slower']])) {
    const seen = Array.from({ length: 100 }, (_, i) => verdictOf(ratioOf(pairsOf(60, faster, 1000 + i))));
    assert.ok(seen.filter(one => one === verdict).length >= 95, `${verdict}: ${seen}`);
  }
});

test('ratio: the interval holds the truth', () => {
  const { ratio, low, high } = ratioOf(pairsOf(200, 1.3, 5));
  assert.ok(low < 1.3 && 1.3 < high && high - low < 0.03, `${low} to ${high}`);
  assert.ok(low <= ratio && ratio <= high);
});

test('ratio: fewer than 8 pairs say nothing', () => {
  assert.deepEqual(ratioOf([[2, 1], [2, 1]]), { ratio: 2, low: 0, high: Infinity });
  assert.equal(verdictOf(ratioOf(pairsOf(7, 100, 1))), 'no change is shown');
  assert.equal(verdictOf(ratioOf([])), 'no change is shown');
});
