/* Decisions: how a question is asked, and what the scores of its labels mean.  The names of questions and answers are
 * those that the APIs for decisions have in common (OpenAI's Decisions, System One, the AI SDK's). */
import { exp, logSum } from '../base/math.js';
import { PlumbError } from '../base/errors.js';

/** @typedef {object} BooleanQuestion  yes or no
 * @property {'boolean'} type
 * @property {string} [instructions]  the question
 * @property {{true?: string, false?: string}} [criteria]  what the two answers mean.  An embedding model needs both,
 *   because it compares the context with them
 * @property {Calibration} [calibration]
 * @typedef {object} ChoiceQuestion  one of some labels
 * @property {'choice'} type
 * @property {string} [instructions]  the question
 * @property {(string | {value: string, description?: string})[]} choices  2 to 255
 * @property {Calibration} [calibration]
 * @typedef {object} ScoreQuestion  a place on a scale, which has levels, or min and max
 * @property {'score'} type
 * @property {string} [instructions]  the question
 * @property {(string | {value: string, description?: string})[]} [levels]  2 to 255, the lowest first.  The score is a
 *   position among them: 0 is the first, 1 the second
 * @property {number} [min]  the least of at most 255 integers
 * @property {number} [max]  the largest
 * @property {Calibration} [calibration]
 * @typedef {BooleanQuestion | ChoiceQuestion | ScoreQuestion} DecisionQuestion */
/** @typedef {object} Calibration  makes probabilities of scores: softmax(score / temperature + bias).  fitCalibration
 *   finds it
 * @property {number} [temperature]  default 1
 * @property {Record<string, number>} [bias]  of each label; default 0 */
/** @typedef {object} OwnAnswer
 * @property {Record<string, number>} probabilities  of each label; they add up to 1
 * @property {number} confidence  how far the largest of n probabilities is above 1 / n: 0 if all are the same, 1 if one
 *   is 1
 * @property {Record<string, number>} scores  what the probabilities are made of.  Of a model that generates: the
 *   log-probability of each label, whose first letter may be large or small; of an embedding model: 20 times the cosine
 *   similarity; of a reranker: its score.  With contentFree the same of "N/A" is subtracted
 * @property {number} [mass]  of a model that generates: the probability that its answer begins with one of the labels.
 *   If it is small, the model would rather say something else, and the question should be asked in another way
 * @typedef {{type: 'boolean', value: boolean, probability: number} & OwnAnswer} BooleanAnswer  probability: of true
 * @typedef {{type: 'choice', value: string} & OwnAnswer} ChoiceAnswer  value: the likeliest label
 * @typedef {{type: 'score', value: number} & OwnAnswer} ScoreAnswer  value: the mean of the levels by their
 *   probabilities
 * @typedef {BooleanAnswer | ChoiceAnswer | ScoreAnswer} DecisionAnswer */
/** @template Q @typedef {Q extends {type: 'boolean'} ? BooleanAnswer : Q extends {type: 'choice'} ? ChoiceAnswer
 *   : Q extends {type: 'score'} ? ScoreAnswer : DecisionAnswer} AnswerTo */
/** The least score for a context that says nothing: one of -Infinity would make a label certain. */
const LEAST = -1000;

/** @typedef {object} Label
 * @property {string} name  the key of its probability
 * @property {string} text  what the model would say
 * @property {string} [description] */

/** The labels of a question. @param {DecisionQuestion} question @returns {Label[]} */
export function labelsOf(question) {
  if (question.type === 'boolean') {
    const { criteria = {} } = question;
    return [{ name: 'true', text: 'yes', description: criteria.true },
      { name: 'false', text: 'no', description: criteria.false }];
  }
  const { min = 0, max = 0, levels = undefined } = question.type === 'score' ? question : {};
  const given = question.type === 'choice' ? question.choices
    : levels ?? Array.from({ length: max - min + 1 }, (_, i) => String(min + i));
  return given.map(one => {
    const { value, description } = typeof one === 'string' ? { value: one, description: undefined } : one;
    return { name: value, text: value, description };
  });
}

/** How a model may write each label: as it is, or with its first letter large or small, unless that is another label.
 * @param {Label[]} labels @returns {string[][]} */
export function formsOf(labels) {
  const all = new Set(labels.map(({ text }) => text));
  return labels.map(({ text }) => {
    const [first] = text, rest = text.slice(first.length);
    const others = [first.toUpperCase(), first.toLowerCase()].map(letter => letter + rest);
    return [text, ...others.filter(form => !all.has(form))];
  });
}

/** The question as a text. @param {DecisionQuestion} question @param {Label[]} labels */
export function textOf(question, labels) {
  const { type, instructions } = question, isRange = type === 'score' && !question.levels;
  const described = labels.some(({ description }) => description);
  const list = labels.map(({ text, description }) => `- ${text}${description ? `: ${description}` : ''}`).join('\n');
  const ask = type === 'boolean' ? `${instructions?.endsWith('?') ?? true ? '' : 'Is this true? '}Answer yes or no.`
    : isRange ? `Answer with an integer from ${question.min} to ${question.max}.`
      : `Answer with one of these${described ? ' names' : ''}: ${labels.map(({ text }) => text).join(', ')}.`;
  return [...instructions ? [instructions] : [], ...described ? [list] : [], ask].join('\n');
}

/** What the scores of the labels of a question say.
 * @param {DecisionQuestion} question @param {Label[]} labels @param {number[]} all  the scores
 * @param {{generates: boolean, free?: number[]}} how  generates: they are log-probabilities; free: the scores for a
 *   context that says nothing
 * @returns {DecisionAnswer} */
export function answerOf(question, labels, all, { generates, free }) {
  if (!all.some(score => score > -Infinity)) {
    throw new PlumbError('PLUMB_ERROR_TENSOR', 'decide: no label has a probability: all logits are NaN or -infinity, '
      + 'so the weights are damaged; run plumb selfcheck to find where');
  }
  const scores = all.map((score, i) => free ? score - Math.max(free[i], LEAST) : score);
  const shares = softmax(calibrated(labels.map(({ name }) => name), scores, question.calibration));
  const keyed = (/** @type {number[]} */ values) =>
    Object.fromEntries(labels.map(({ name }, i) => [name, values[i]]));
  const best = shares.indexOf(Math.max(...shares)), n = shares.length;
  const more = {
    probabilities: keyed(shares), confidence: Math.max(0, (n * shares[best] - 1) / (n - 1)), scores: keyed(scores),
    ...generates && { mass: Math.min(exp(logSum(all)), 1) },
  };
  if (question.type === 'boolean') {
    return { type: 'boolean', value: shares[0] > shares[1], probability: shares[0], ...more };
  }
  if (question.type === 'choice') return { type: 'choice', value: labels[best].name, ...more };
  const { min = 0 } = question;
  return { type: 'score', value: shares.reduce((sum, share, i) => sum + share * (min + i), 0), ...more };
}

/** @param {string[]} names @param {number[]} scores @param {Calibration} [calibration] */
function calibrated(names, scores, { temperature = 1, bias = {} } = {}) {
  return scores.map((score, i) => score / temperature + (Object.hasOwn(bias, names[i]) ? bias[names[i]] : 0));
}

/** Probabilities, whose bits do not depend on the order of the values. @param {number[]} values */
export function softmax(values) {
  const sum = logSum(values);
  return values.map(value => exp(value - sum));
}
