/* Measures model.decide on texts that people have rated, before and after a calibration that is fitted on half of them
 * and measured on the other half.  Prints the accuracy, the mean log loss and the expected calibration error.
 * "Content-free" is the bias of Zhao et al. 2021 ("Calibrate Before Use"), which needs no examples: it makes the labels
 * equally likely for the text "N/A".
 *
 *   pip download --no-deps --no-binary :all: --dest build vaderSentiment==3.3.2
 *   nice node tests/bench/decisions.mjs build/vaderSentiment-3.3.2.tar.gz MODEL.gguf...
 *
 * The texts are those of Hutto & Gilbert 2014, "VADER", which that package has (MIT), with the mean of 20 people's
 * ratings from -4 to 4:
 *   yes/no  200 sentences of reviews of films and products with a rating of at least 1 or at most -1, half of each: is
 *           the review positive?
 *   choice  200 texts, 50 of each source: a film review, a product review, a newspaper article, a tweet */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fitCalibration, Plumb } from '../../web/node/index.js';

const SHA256 = '5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9';
const SOURCES = { 'movie review': 'movieReview', 'product review': 'amazonReview', 'newspaper article': 'nytEditorial',
  tweet: 'tweets' };
const QUESTIONS = {
  'yes/no': { type: 'boolean', instructions: 'Is this review positive?',
    criteria: { true: 'a positive review', false: 'a negative review' } },
  choice: { type: 'choice', instructions: 'What kind of text is this?', choices: Object.keys(SOURCES) },
};

/** A small generator that gives the same numbers in every run. */
let seed = 1;
const below = n => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return Math.floor(seed / 2 ** 32 * n);
};
/** n of some elements, in a random order. */
function draw(all, n) {
  const rest = [...all];
  return Array.from({ length: n }, () => rest.splice(below(rest.length), 1)[0]);
}

function readTexts(archive) {
  const bytes = readFileSync(archive), sum = createHash('sha256').update(bytes).digest('hex');
  if (sum !== SHA256) throw new Error(`${archive}: sha256 ${sum}, expected ${SHA256}`);
  const folder = mkdtempSync(join(tmpdir(), 'plumb-decisions-'));
  try {
    execFileSync('tar', ['xzf', archive, '-C', folder]);
    execFileSync('tar', ['xzf', 'hutto_ICWSM_2014.tar.gz'], {
      cwd: join(folder, 'vaderSentiment-3.3.2/additional_resources') });
    return Object.fromEntries(Object.entries(SOURCES).map(([kind, name]) => {
      const file = `hutto_ICWSM_2014/${name}${name === 'tweets' ? '' : 'Snippets'}_GroundTruth.txt`;
      const lines = readFileSync(join(folder, 'vaderSentiment-3.3.2/additional_resources', file), 'utf8').split('\r\n');
      return [kind, lines.map(line => line.split('\t')).filter(([, , text]) => text?.length >= 20 && text.length <= 300)
        .map(([, rating, text]) => ({ rating: Number(rating), text }))];
    }));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function tasksOf(texts) {
  const rated = (kind, low, high) => draw(texts[kind].filter(({ rating }) => rating >= low && rating <= high), 50);
  const reviews = ['movie review', 'product review'].flatMap(kind => [
    ...rated(kind, 1, 4).map(({ text }) => ({ text, value: true })),
    ...rated(kind, -4, -1).map(({ text }) => ({ text, value: false }))]);
  const kinds = Object.keys(SOURCES).flatMap(value => draw(texts[value], 50).map(({ text }) => ({ text, value })));
  return { 'yes/no': draw(reviews, 200), choice: draw(kinds, 200) };
}

/** The mean distance of confidence and accuracy over ten bins of confidence (Guo et al. 2017). */
function calibrationError(results) {
  const bins = Array.from({ length: 10 }, () => []);
  for (const one of results) bins[Math.min(9, Math.floor(one.confidence * 10))].push(one);
  const mean = (all, of) => all.reduce((sum, one) => sum + of(one), 0) / all.length;
  return bins.filter(bin => bin.length > 0).reduce((sum, bin) => sum + bin.length / results.length
    * Math.abs(mean(bin, ({ confidence }) => confidence) - mean(bin, ({ isRight }) => Number(isRight))), 0);
}

function measure(examples) {
  const results = examples.map(({ answer, value }) => ({
    isRight: answer.value === value, confidence: Math.max(...Object.values(answer.probabilities)),
    loss: -Math.log(answer.probabilities[value]),
  }));
  const mean = of => results.reduce((sum, one) => sum + of(one), 0) / results.length;
  return [mean(({ isRight }) => Number(isRight)), mean(({ loss }) => loss), calibrationError(results)]
    .map(x => x.toFixed(3)).join('  ');
}

/** The answers as they are with a calibration. */
function calibrated(examples, { temperature = 1, bias = {} }) {
  return examples.map(({ answer, value }) => {
    const weights = Object.entries(answer.scores)
      .map(([label, score]) => [label, Math.exp(score / temperature + (bias[label] ?? 0))]);
    const sum = weights.reduce((sum, [, weight]) => sum + weight, 0);
    const [best] = weights.reduce((best, one) => one[1] > best[1] ? one : best);
    const probabilities = Object.fromEntries(weights.map(([label, weight]) => [label, weight / sum]));
    return { answer: { value: answer.type === 'boolean' ? best === 'true' : best, probabilities }, value };
  });
}

const [archive, ...files] = process.argv.slice(2);
const tasks = tasksOf(readTexts(archive));
for (const file of files) {
  const model = await Plumb.load(file, { contextLength: 512 });
  for (const [name, question] of Object.entries(QUESTIONS)) {
    const decide = async text => (await model.decide(text, { question })).answers.question;
    const start = performance.now(), examples = [];
    for (const { text, value } of tasks[name]) examples.push({ answer: await decide(text), value });
    const time = (performance.now() - start) / examples.length;
    const first = examples.slice(0, 100), rest = examples.slice(100);
    const mass = examples.reduce((sum, { answer }) => sum + (answer.mass ?? 0), 0) / examples.length;
    console.log(`${basename(file)}, ${name}: ${time.toFixed(0)} ms each; labels have ${mass.toFixed(3)} of the `
      + 'probability\n                         accuracy  log loss  calibration error');
    const { scores } = await decide('N/A');
    for (const [how, calibration] of Object.entries({
      'as it is': {},
      'content-free bias': { bias: Object.fromEntries(Object.entries(scores).map(([label, x]) => [label, -x])) },
      'temperature': fitCalibration(first, { bias: false }),
      'temperature and bias': fitCalibration(first, { bias: true }),
    })) {
      console.log(`  ${how.padEnd(22)} ${measure(calibrated(rest, calibration))}   ${JSON.stringify(calibration)}`);
    }
  }
  await model.close();
}
