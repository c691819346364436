/* fitCalibration: what makes probabilities out of the scores of labels, found from examples whose right answers are
 * known. */
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { log } from '../base/math.js';
import { softmax } from './decisions.js';

/** @typedef {import('./decisions.js').DecisionAnswer} DecisionAnswer
 * @typedef {{answer: DecisionAnswer, value: boolean | string | number}} DecisionExample  answer: what decide answered;
 *   value: what is right: true or false, a label, or the number of a level of a score */

/** How far an example must move a number from what it is without calibration (temperature 1 and no bias): the weight of
 * the squares of both, in examples.  It keeps them finite if the examples have no mistake. */
const PRIOR = 1;
/** The least of 1 / temperature: scores that say nothing, or the opposite, end here. */
const LEAST = 1e-3;
/** How often the fit improves its solution; it needs about 10 steps. */
const STEPS = 100;

/** Finds the calibration with which answers have the least log loss on examples.  It is the temperature of Guo et al.
 * 2017 ("On Calibration of Modern Neural Networks") and, with bias, a number for each label, which for two labels is
 * the scaling of Platt 1999.  The numbers have the same bits on every host.
 * @param {DecisionExample[]} examples  of one question, asked of many contexts, or of several questions of one kind
 * @param {{bias?: boolean}} [options]  bias: default true if all examples have the same labels, which it needs
 * @returns {import('./decisions.js').Calibration & {temperature: number}} */
export function fitCalibration(examples, options = {}) {
  known.checkOptions('fitCalibration', options, known.FIT);
  if (!Array.isArray(examples) || examples.length === 0) {
    throw argumentError('fitCalibration: expected a non-empty array of {answer, value}');
  }
  const rows = examples.map(rowOf), names = rows[0].names.join('\n');
  const isSame = rows.every(row => row.names.join('\n') === names), { bias = isSame } = options;
  if (bias && !isSame) throw argumentError('fitCalibration: a bias needs examples that all have the same labels');
  const n = 1 + (bias ? rows[0].names.length : 0);
  const start = Array.from({ length: n }, (_, i) => i === 0 ? 1 : 0);
  let found = minimize(rows, start, start.map(() => true));
  if (found[0] < LEAST) found = minimize(rows, [LEAST, ...start.slice(1)], start.map((_, i) => i > 0));
  return {
    temperature: 1 / found[0],
    ...bias && { bias: Object.fromEntries(rows[0].names.map((name, i) => [name, found[i + 1]])) },
  };
}

/** @typedef {{names: string[], scores: number[], right: number}} Row  scores: relative to the largest */

/** @param {any} example @param {number} i @returns {Row} */
function rowOf(example, i) {
  const { answer, value } = Object(example), { scores, type } = Object(answer), where = `fitCalibration: example ${i}`;
  const names = Object.keys(Object(scores)), values = names.map(name => scores[name]);
  if (names.length < 2 || !values.every(score => typeof score === 'number' && score < Infinity)
    || !values.some(score => score > -Infinity)) {
    throw argumentError(`${where}: answer is no answer of decide, with scores`);
  }
  const isLevel = type === 'score' && !names.includes(String(value));
  const right = names.indexOf(isLevel ? names[Number(value)] : String(value));
  if (right < 0) throw argumentError(`${where}: value ${JSON.stringify(value)} is none of the labels`);
  // A score of -Infinity (a label that cannot be) would make the loss infinite.
  const most = values.reduce((a, b) => Math.max(a, b));
  return { names, scores: values.map(score => Math.max(score - most, -1000)), right };
}

/** The log loss of a calibration, its gradient and its Hessian, with the prior.
 * @param {Row[]} rows @param {number[]} at  1 / temperature, and the bias of each label */
function lossAt(rows, at) {
  const n = at.length, [scale, ...bias] = at;
  const zeros = () => new Array(n).fill(0);
  let loss = 0;
  const gradient = zeros(), hessian = at.map(zeros);
  for (const { scores, right } of rows) {
    const shares = softmax(scores.map((score, i) => score * scale + (bias[i] ?? 0)));
    loss -= log(shares[right]);
    const mean = shares.reduce((sum, share, i) => sum + share * scores[i], 0);
    gradient[0] += mean - scores[right];
    for (const [i, share] of shares.entries()) {
      hessian[0][0] += share * (scores[i] - mean) * (scores[i] - mean);
      if (bias.length === 0) continue;
      gradient[1 + i] += share - Number(i === right);
      hessian[0][1 + i] += share * (scores[i] - mean);
      for (const [k, other] of shares.entries()) hessian[1 + i][1 + k] += share * (Number(i === k) - other);
    }
  }
  for (let i = 0; i < n; i++) {
    const off = at[i] - Number(i === 0);
    loss += PRIOR / 2 * off * off;
    gradient[i] += PRIOR * off;
    hessian[i][i] += PRIOR;
    hessian[i][0] = hessian[0][i];
  }
  return { loss, gradient, hessian };
}

/** Newton's method on the loss, which is convex.  Halves a step that does not improve it.
 * @param {Row[]} rows @param {number[]} start @param {boolean[]} isFree  which numbers may change */
function minimize(rows, start, isFree) {
  let at = start, now = lossAt(rows, at);
  for (let i = 0; i < STEPS; i++) {
    const free = start.flatMap((_, k) => isFree[k] ? k : []);
    const step = solve(free.map(k => free.map(l => now.hessian[k][l])), free.map(k => now.gradient[k]));
    let next = at, then = now;
    for (let size = 1; size > 1e-9; size /= 2) {
      next = at.map((x, k) => isFree[k] ? x - size * step[free.indexOf(k)] : x);
      then = lossAt(rows, next);
      if (then.loss < now.loss) break;
    }
    if (!(then.loss < now.loss)) break;
    [at, now] = [next, then];
  }
  return at;
}

/** The solution of a x = b, of a positive definite matrix. @param {number[][]} a @param {number[]} b */
function solve(a, b) {
  const n = b.length, rows = a.map((row, i) => [...row, b[i]]);
  for (let i = 0; i < n; i++) {
    for (let k = i + 1; k < n; k++) {
      const factor = rows[k][i] / rows[i][i];
      for (let j = i; j <= n; j++) rows[k][j] -= factor * rows[i][j];
    }
  }
  const x = new Array(n).fill(0);
  for (let i = n - 1; i >= 0; i--) {
    x[i] = rows[i].slice(i + 1, n).reduce((rest, value, k) => rest - value * x[i + 1 + k], rows[i][n]) / rows[i][i];
  }
  return x;
}
