/* e^x and ln x with the same bits in every engine: JavaScript leaves the last bits of Math.exp and Math.log to the
 * engine.  These are math_exp and math_log of src/engine/base/math.c, which says how they work, with the same
 * operations in the same order, so their results are those of the engine's, too. */

const LN2_HIGH = 0.6931471803691238, LN2_LOW = 1.9082149292705877e-10, INVERSE_LN2 = 1.4426950408889634;
const ROUND = 6755399441055744;   // 1.5 * 2^52
const FACTORIALS = [479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2];

const float = new Float64Array(1), bits = new BigUint64Array(float.buffer);

/** 2^k, -1022 <= k <= 1023. @param {number} k */
function powerOfTwo(k) {
  bits[0] = BigInt(k + 1023) << 52n;
  return float[0];
}

/** e^x, for any x. @param {number} x */
export function exp(x) {
  if (Number.isNaN(x)) return x;
  if (x > 709.782712893384) return Infinity;
  if (x < -745.1332191019412) return 0;
  const k = x * INVERSE_LN2 + ROUND - ROUND;
  const high = x - k * LN2_HIGH, low = k * LN2_LOW, r = high - low;
  const sum = FACTORIALS.reduce((sum, n) => sum * r + 1 / n, 1 / 6227020800);
  const y = 1 + (high + (r * r * sum - low));
  if (k > 1023) return y * powerOfTwo(1023) * 2;
  return k < -1021 ? y * powerOfTwo(k + 100) * powerOfTwo(-100) : y * powerOfTwo(k);
}

/** ln x; NaN for x < 0. @param {number} x */
export function log(x) {
  if (Number.isNaN(x) || x < 0) return NaN;
  if (x === 0) return -Infinity;
  if (x === Infinity) return x;
  const isSubnormal = x < 2.2250738585072014e-308;
  float[0] = isSubnormal ? x * 18014398509481984 : x;   // 2^54
  let k = Number(bits[0] >> 52n) - 1023 - (isSubnormal ? 54 : 0);
  bits[0] = bits[0] & 0xfffffffffffffn | 1023n << 52n;
  let [m] = float;
  if (m > 1.4142135623730951) {
    m *= 0.5;
    k++;
  }
  const f = m - 1, s = f / (2 + f), z = s * s;
  let sum = 0;
  for (let n = 23; n >= 3; n -= 2) sum = (sum + 2 / n) * z;
  const half = 0.5 * f * f;
  return k * LN2_HIGH - ((half - (s * (half + sum) + k * LN2_LOW)) - f);
}

/** ln(e^x + e^y + ...), which does not depend on the order of the values; -Infinity for none of them, or if all are.
 * @param {number[]} values */
export function logSum(values) {
  const sorted = [...values].sort((a, b) => a - b), max = sorted[sorted.length - 1] ?? -Infinity;
  if (!Number.isFinite(max)) return max;
  return max + log(sorted.reduce((sum, x) => sum + exp(x - max), 0));
}
