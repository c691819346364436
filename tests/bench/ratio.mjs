/** What pairs of measurements say of a ratio: its median, and an interval by the bootstrap (Efron 1979). */
import { randomOf } from '../random.mjs';
import { median } from './median.mjs';

const N_RESAMPLE = 4000;

/** The median of before / after, and the interval that holds it with the given confidence: pairs are drawn from those
 * that were measured, with replacement, N_RESAMPLE times.  As one median is drawn from few values, the interval of less
 * than 8 pairs says nothing; it is then from 0 to infinity.
 * @param {[before: number, after: number][]} pairs  seconds, measured one after the other
 * @param {{confidence?: number, seed?: number}} [options]
 * @returns {{ratio: number, low: number, high: number}}  above 1: `after` is faster */
export function ratioOf(pairs, { confidence = 0.99, seed = 1 } = {}) {
  const ratios = pairs.map(([before, after]) => before / after), random = randomOf(seed);
  if (ratios.length < 8) return { ratio: ratios.length > 0 ? median(ratios) : NaN, low: 0, high: Infinity };
  const medians = Array.from({ length: N_RESAMPLE }, () =>
    median(ratios.map(() => ratios[Math.floor(random() * ratios.length)]))).sort((a, b) => a - b);
  const tail = Math.floor((1 - confidence) / 2 * N_RESAMPLE);
  return { ratio: median(ratios), low: medians[tail], high: medians[N_RESAMPLE - 1 - tail] };
}

/** What the interval says. @param {{low: number, high: number}} interval */
export const verdictOf = ({ low, high }) => low > 1 ? 'faster' : high < 1 ? 'slower' : 'no change is shown';
