/** What the tests of decisions in Node and in a browser share. */
import { readFileSync } from 'node:fs';
import { root } from './helpers.mjs';

export const COMPLAINT = 'I was charged twice for my order, and nobody answers my letters. I want my money back now.';
export const QUESTIONS = {
  refund: { type: 'boolean', instructions: 'Does the customer ask for a refund?' },
  team: {
    type: 'choice', instructions: 'Which team should answer?',
    choices: ['billing', { value: 'technical support', description: 'errors and outages' }, 'sales', 'sales abroad'],
  },
  urgency: { type: 'score', instructions: 'How urgent is it?', levels: ['not urgent', 'urgent', 'very urgent'] },
  stars: { type: 'score', instructions: 'How many stars would the customer give?', min: 1, max: 5 },
};
/** All numbers of some answers, as a text that does not depend on the order of questions and labels. */
export const bits = answers => JSON.stringify(Object.entries(answers).sort().map(([name, { value, ...rest }]) =>
  [name, value, rest.confidence, rest.mass, Object.entries(rest.probabilities).sort(),
    Object.entries(rest.scores).sort()]));

/** Examples of scores, and the calibrations that scipy has fitted. */
export const CASES = JSON.parse(readFileSync(`${root}tests/vectors/decisions/calibration.json`, 'utf8'));
export const examplesOf = ({ labels, scores, right }) => scores.map((row, i) => ({
  answer: { type: 'choice', scores: Object.fromEntries(labels.map((label, k) => [label, row[k]])) },
  value: labels[right[i]],
}));

/** The sha256 of the bits of the answers to QUESTIONS about COMPLAINT by the default model, and of the calibrations of
 * CASES, on every host. */
export const SUM = 'ca87b3fe3461c99f6a857b73276eebd82976526ed0f8ce17287c0eda5c1c50b2';
