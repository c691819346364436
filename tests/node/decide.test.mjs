/** Decisions.  Ground truth: log-softmax in JavaScript over the logits of feed and step, one label and one token after
 * the other; embed and rank; calibrations that scipy has fitted (tests/vectors/decisions). */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { exp, log, logSum } from '../../web/base/math.js';
import { Engine } from '../../web/engine/engine.js';
import { fitCalibration, Plumb } from '../../web/node/index.js';
import { bits, COMPLAINT, CASES, examplesOf, QUESTIONS, SUM } from './decisions.mjs';
import { fails, random, realPath, root, textOf, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';

const OPTIONS = { threads: 1, worker: false, contextLength: 1024 };
const model = await Plumb.load(smallPath, OPTIONS);
test.after(() => model.close());

/** What a user's message says of each question. */
const ASKED = {
  refund: 'Does the customer ask for a refund?\nAnswer yes or no.',
  team: 'Which team should answer?\n- billing\n- technical support: errors and outages\n- sales\n- sales abroad\n'
    + 'Answer with one of these names: billing, technical support, sales, sales abroad.',
  urgency: 'How urgent is it?\nAnswer with one of these: not urgent, urgent, very urgent.',
  stars: 'How many stars would the customer give?\nAnswer with an integer from 1 to 5.',
};

/** ln of the probability of each token. @param {Float32Array} logits */
function logSoftmax(logits) {
  const max = logits.reduce((a, b) => Math.max(a, b));
  const sum = max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
  return id => logits[id] - sum;
}

/** ln of the probability that a text begins with each label behind a prompt, and does not go on with another one. */
async function logprobsAlone(ids, labels) {
  const tokens = await Promise.all(labels.map(label => model.tokenize(label, { addSpecial: false })));
  const results = [];
  await model.rewind(0);
  const first = (await model.feed(ids)).slice();
  for (const own of tokens) {
    await model.rewind(ids.length);
    let of = logSoftmax(first), sum = 0;
    for (const id of own) {
      sum += of(id);
      of = logSoftmax(await model.step(id));
    }
    const longer = tokens.filter(other => other.length > own.length && own.every((id, i) => other[i] === id));
    const next = new Set(longer.map(other => other[own.length]));
    results.push(sum + Math.log(1 - [...next].reduce((sum, id) => sum + Math.exp(of(id)), 0)));
  }
  return results;
}

/** The same of each of some labels in both of its forms. @param {string} [before]  what is between prompt and label */
async function scoresAlone(ids, labels, before = '') {
  const forms = labels.map(label => [...new Set([label, ...[label[0].toUpperCase(), label[0].toLowerCase()]
    .map(first => first + label.slice(1)).filter(form => !labels.includes(form))])]);
  const all = await logprobsAlone(ids, forms.flat().map(form => before + form));
  return forms.map(own => Math.log(own.reduce(sum => sum + Math.exp(all.shift()), 0)));
}

function assertNear(actual, expected, tolerance, what) {
  assert.equal(actual.length, expected.length, what);
  actual.forEach((x, i) => assert.ok(Math.abs(x - expected[i]) <= tolerance, `${what} ${i}: ${x}, not ${expected[i]}`));
}

const labelsOf = ({ type, choices, levels, min, max }) => type === 'boolean' ? ['yes', 'no']
  : (choices ?? levels)?.map(one => one.value ?? one)
    ?? Array.from({ length: max - min + 1 }, (_, i) => String(min + i));

test('scores are the log-probabilities of the labels, as one token after the other gives them', async () => {
  for (const [prompt, promptOf, before] of [
    ['chat', text => model.tokenizeChat([{ role: 'user', content: `${COMPLAINT}\n\n${text}` }]), ''],
    ['text', text => model.tokenize(`${COMPLAINT}\n\nQuestion: ${text}\nAnswer:`), ' '],
  ]) {
    const { answers } = await model.decide(COMPLAINT, QUESTIONS, prompt === 'chat' ? {} : { prompt });
    assert.deepEqual(Object.keys(answers), Object.keys(QUESTIONS));
    for (const [name, question] of Object.entries(QUESTIONS)) {
      const { scores, probabilities, mass, confidence } = answers[name];
      const expected = await scoresAlone(await promptOf(ASKED[name]), labelsOf(question), before);
      assertNear(Object.values(scores), expected, 1e-9, `${prompt}, ${name}`);
      const weights = expected.map(Math.exp), sum = weights.reduce((a, b) => a + b), n = weights.length;
      assertNear(Object.values(probabilities), weights.map(weight => weight / sum), 1e-9, name);
      assertNear([mass], [sum], 1e-9, name);
      assertNear([confidence], [(n * Math.max(...weights) / sum - 1) / (n - 1)], 1e-9, name);
    }
  }
});

test('the answer of each type follows from its probabilities', async () => {
  const { refund, team, urgency, stars } = (await model.decide(COMPLAINT, QUESTIONS)).answers;
  assert.deepEqual(Object.keys(refund.probabilities), ['true', 'false']);
  assert.equal(refund.probability, refund.probabilities.true);
  assert.equal(refund.value, refund.probability > 0.5);
  assert.equal(team.probabilities[team.value], Math.max(...Object.values(team.probabilities)));
  const mean = (all, from) => all.reduce((sum, share, i) => sum + share * (from + i), 0);
  assertNear([urgency.value], [mean(Object.values(urgency.probabilities), 0)], 1e-12, 'urgency');
  assertNear([stars.value], [mean(Object.values(stars.probabilities), 1)], 1e-12, 'stars');
  assert.deepEqual(Object.keys(stars.probabilities), ['1', '2', '3', '4', '5']);
});

test('labels of any length may begin alike, and follow token ids as they are', async () => {
  const labels = ['Paris', 'Lyon', 'New York', 'New York City', 'New York City Hall', 'New Orleans', 'Newark', 'N'];
  const ids = await model.tokenize('The city that never sleeps is'), choices = labels.map(label => ` ${label}`);
  const { answers, stats } = await model.decide(ids, { city: { type: 'choice', choices } });
  const expected = await logprobsAlone(ids, choices);
  assertNear(Object.values(answers.city.scores), expected, 1e-9, 'city');
  assert.ok(answers.city.mass <= 1);
  assert.equal(stats.promptTokens, ids.length);
});

/** How many tokens were fed in each batch, and to how many sessions. */
function spy(t) {
  const feeds = [], { feedTogether } = Engine.prototype;
  t.mock.method(Engine.prototype, 'feedTogether', function (/** @type {any[]} */ all) {
    feeds.push(all.map(({ ids }) => ids.length));
    return feedTogether.call(this, all);
  });
  return feeds;
}

test('what prompts and labels have in common is computed once, and each level of labels in one batch', async t => {
  await model.rewind(0);
  const feeds = spy(t), { stats } = await model.decide(COMPLAINT, QUESTIONS);
  const fed = feeds.flat().reduce((a, b) => a + b, 0);
  assert.equal(stats.computedTokens, fed);
  assert.equal(stats.reusedTokens, 0);
  // The tree of all prompts and labels, node by node.
  const nodes = new Set(), prompts = new Set();
  for (const [name, question] of Object.entries(QUESTIONS)) {
    const prompt = [...await model.tokenizeChat([{ role: 'user', content: `${COMPLAINT}\n\n${ASKED[name]}` }])];
    prompt.forEach((_, i) => prompts.add(prompt.slice(0, i + 1).join()));
    for (const label of labelsOf(question).flatMap(one => [one, one[0].toUpperCase() + one.slice(1)])) {
      const ids = [...await model.tokenize(label, { addSpecial: false })];
      for (let i = 1; i < ids.length; i++) nodes.add([...prompt, ...ids.slice(0, i)].join());   // the last is only read
    }
  }
  // A label that begins another one is read one token further: "sales" and "sales abroad".
  const read = [...nodes].filter(node => !prompts.has(node)).length;
  assert.equal(fed, prompts.size + read);
  assert.ok(fed < 0.7 * stats.promptTokens, `${fed} of ${stats.promptTokens}`);
  const levels = feeds.map(batch => batch.length);
  assert.ok(levels.length <= 5 && levels[0] === 1 && Math.max(...levels) >= 6, JSON.stringify(feeds));

  feeds.length = 0;
  const again = await model.decide(COMPLAINT, QUESTIONS);
  assert.ok(again.stats.reusedTokens > 30 && again.stats.reusedTokens + again.stats.computedTokens === fed);
});

test('no bit depends on the order of questions and labels, on threads, workers, or what else is computed', async () => {
  const { answers } = await model.decide(COMPLAINT, QUESTIONS), expected = bits(answers);
  const { refund, team, urgency, stars } = QUESTIONS;
  for (const choices of [[3, 1, 0, 2], [2, 3, 1, 0]].map(order => order.map(i => team.choices[i]))) {
    const other = await model.decide(COMPLAINT, { stars, urgency, team: { ...team, choices }, refund });
    // The prompt lists the choices, so only those of the same order are compared.
    assert.equal(bits({ ...other.answers, team: answers.team }), expected);
    const raw = async all => (await model.decide('The team is', { q: { type: 'choice', choices: all } },
      { prompt: 'none' })).answers;
    assert.equal(bits(await raw(choices)), bits(await raw(team.choices)));
  }
  for (const [name, question] of Object.entries(QUESTIONS)) {
    const one = await model.decide(COMPLAINT, { [name]: question });
    assert.equal(bits(one.answers), bits({ [name]: answers[name] }), name);
  }
  const session = await model.session();
  const busy = textOf(session.generate('Once upon a time', { maxTokens: 20, seed: 1 }));
  const both = await Promise.all([session.fork(), model.session()].map(async opened => (await opened)
    .decide(COMPLAINT, QUESTIONS)));
  for (const one of both) assert.equal(bits(one.answers), expected);
  await busy;
  for (const options of [{ ...OPTIONS, threads: 2, worker: true }, { ...OPTIONS, contextLength: 300 }]) {
    const other = await Plumb.load(smallPath, options);
    assert.equal(bits((await other.decide(COMPLAINT, QUESTIONS)).answers), expected);
    await other.close();
  }
});

test('255 labels of several tokens are computed in parts, with the same bits', async t => {
  const choices = Array.from({ length: 255 }, (_, i) => ` ${'abcdefghijklmnop'[i >> 4]}${i % 16}`);
  const ids = await model.tokenize('The number is'), feeds = spy(t);
  const { answers } = await model.decide(ids, { q: { type: 'choice', choices } });
  assert.ok(feeds.every(batch => batch.length <= 32), JSON.stringify(feeds));
  const some = [0, 100, 254];
  const few = await model.decide(ids, { q: { type: 'choice', choices: some.map(i => choices[i]) } });
  for (const i of some) assert.equal(answers.q.scores[choices[i]], few.answers.q.scores[choices[i]]);
  assertNear([Object.values(answers.q.probabilities).reduce((a, b) => a + b)], [1], 1e-12, 'sum');
});

test('messages are a conversation, to whose end the question is added', async () => {
  const messages = [{ role: 'system', content: 'You judge.' }, { role: 'user', content: COMPLAINT }];
  const question = { refund: QUESTIONS.refund };
  const scores = async context => (await model.decide(context, question)).answers.refund.scores;
  assert.deepEqual(await scores(messages), await scores([messages[0], { role: 'user', content: `${COMPLAINT}` }]));
  const asked = async all => Object.values(await scores(all));
  const added = [messages[0], { role: 'user', content: `${COMPLAINT}\n\n${ASKED.refund}` }];
  assertNear(await asked(messages), await scoresAlone(await model.tokenizeChat(added), ['yes', 'no']), 1e-9, 'user');
  const answered = [...messages, { role: 'assistant', content: 'We are sorry.' }];
  const behind = [...answered, { role: 'user', content: ASKED.refund }];
  assertNear(await asked(answered), await scoresAlone(await model.tokenizeChat(behind), ['yes', 'no']), 1e-9, 'other');
  const parts = [messages[0], { role: 'user', content: [{ type: 'text', text: COMPLAINT }] }];
  assert.equal((await asked(parts)).length, 2);
});

test('a session holds the beginning that the prompts share, and its answers are as before', async () => {
  const prompt = [{ role: 'user', content: 'Name a fruit.' }], greedy = { temperature: 0, maxTokens: 10 };
  const session = await model.session();
  const before = await session.generate(prompt, greedy);
  await session.decide(COMPLAINT, QUESTIONS);
  assert.equal(await session.generate(prompt, greedy), before);
  const memory = (await model.info()).memoryBytes;
  for (let i = 0; i < 5; i++) await session.decide(COMPLAINT, QUESTIONS);
  assert.equal((await model.info()).memoryBytes, memory, 'forks were not freed');
  await session.close();
  await fails(() => session.decide(COMPLAINT, QUESTIONS), 'PLUMB_ERROR_STATE', /^the session is closed$/);
});

test('a signal and close end a decision, and nothing is left behind', async () => {
  const other = await Plumb.load(realPath, OPTIONS), long = 'word '.repeat(800), reason = new Error('enough');
  const abort = new AbortController(), running = other.decide(long, QUESTIONS, { signal: abort.signal });
  setTimeout(() => abort.abort(reason), 50);
  await assert.rejects(running, reason);
  await assert.rejects(other.decide(long, QUESTIONS, { signal: AbortSignal.abort(reason) }), reason);
  assert.equal((await other.decide('Hello', QUESTIONS)).answers.refund.type, 'boolean');
  const closing = other.decide(long, QUESTIONS);
  setTimeout(() => other.close(), 50);
  await fails(() => closing, 'PLUMB_ERROR_STATE', /^the (model|session) is closed$/);
});

test('arguments that cannot be decided are errors that say why', async () => {
  const { refund, team } = QUESTIONS, boolean = { type: 'boolean' };
  for (const [context, questions, options, code, message] of [
    [COMPLAINT, undefined, {}, 'ARGUMENT', /questions are undefined, expected an object of 1 to 400 questions/],
    [COMPLAINT, {}, {}, 'ARGUMENT', /questions are an object, expected an object of 1 to 400/],
    [COMPLAINT, [refund], {}, 'ARGUMENT', /questions are an array/],
    [COMPLAINT, Object.fromEntries(Array.from({ length: 401 }, (_, i) => [i, boolean])), {}, 'ARGUMENT',
      /questions are 401 questions/],
    [COMPLAINT, { a: { type: 'noul' } }, {}, 'ARGUMENT', /question "a": type is "noul", expected 'boolean', 'choice'/],
    [COMPLAINT, { a: { type: '__proto__' } }, {}, 'ARGUMENT', /type is "__proto__"/],
    [COMPLAINT, { a: null }, {}, 'ARGUMENT', /question "a": type is undefined/],
    [COMPLAINT, { a: { ...refund, choices: ['a', 'b'] } }, {}, 'ARGUMENT', /unknown option "choices"/],
    [COMPLAINT, { a: { type: 'choice' } }, {}, 'ARGUMENT', /question "a": choices are missing/],
    ...[['a'], ['a', 'a'], ['a', ''], ['a', 7], ['a', { value: 'a' }], ['a', { value: 'b', more: 1 }], 'ab',
      Array.from({ length: 256 }, (_, i) => `${i}`)].map(choices => [COMPLAINT, { a: { type: 'choice', choices } }, {},
      'ARGUMENT', /choices is .*, expected an array of 2 to 255 different labels/]),
    [COMPLAINT, { a: { type: 'score' } }, {}, 'ARGUMENT', /expected either levels, or min and max/],
    [COMPLAINT, { a: { type: 'score', min: 1 } }, {}, 'ARGUMENT', /expected either levels, or min and max/],
    [COMPLAINT, { a: { type: 'score', levels: ['a', 'b'], max: 1 } }, {}, 'ARGUMENT', /levels and max exclude/],
    [COMPLAINT, { a: { type: 'score', min: 3, max: 3 } }, {}, 'ARGUMENT', /from 3 to 3 there are not 2 to 255/],
    [COMPLAINT, { a: { type: 'score', min: 0, max: 2 ** 40 } }, {}, 'ARGUMENT', /there are not 2 to 255 integers/],
    [COMPLAINT, { a: { type: 'score', min: 0, max: NaN } }, {}, 'ARGUMENT', /max is NaN, expected an integer/],
    [COMPLAINT, { a: { ...refund, calibration: { temperature: 0 } } }, {}, 'ARGUMENT', /temperature is 0, expected/],
    [COMPLAINT, { a: { ...refund, calibration: { bias: { true: NaN } } } }, {}, 'ARGUMENT', /bias of "true" is NaN/],
    [COMPLAINT, { a: { ...refund, criteria: { yes: 'x' } } }, {}, 'ARGUMENT', /criteria: unknown option "yes"/],
    [COMPLAINT, { refund }, { prompt: 'none' }, 'ARGUMENT', /question "refund" has instructions, but prompt is 'none'/],
    [Int32Array.of(1, 2), { refund }, {}, 'ARGUMENT', /question "refund" has instructions, but prompt is 'none'/],
    [[1, 2], { a: boolean }, { prompt: 'chat' }, 'ARGUMENT', /is token ids, but prompt is 'chat'/],
    [[{ role: 'user', content: 'x' }], { refund }, { prompt: 'text' }, 'ARGUMENT', /messages need prompt 'chat'/],
    [[{ role: 'x', content: 'x' }], { refund }, {}, 'ARGUMENT', /role is "x"/],
    [7, { refund }, { prompt: 'text' }, 'ARGUMENT', /context is number, but prompt is 'text', which takes a text/],
    [undefined, { refund }, {}, 'ARGUMENT', /./],
    ['', { a: boolean }, { prompt: 'none' }, 'ARGUMENT', /the context is empty/],
    [Int32Array.of(2 ** 30), { a: boolean }, {}, 'TOKEN', /1073741824/],
    ['word '.repeat(2000), { team }, {}, 'CONTEXT', /question "team" has \d+ tokens with its labels, but the context/],
    [[1, 2], { a: boolean }, { contentFree: true }, 'ARGUMENT', /contentFree asks .* so it needs a prompt/],
    [COMPLAINT, { refund }, { maxTokens: 7 }, 'ARGUMENT', /unknown option "maxTokens"/],
  ]) await fails(() => model.decide(context, questions, options), `PLUMB_ERROR_${code}`, message);
  const named = JSON.parse('{"__proto__": {"type": "choice", "choices": ["__proto__", "constructor"]}}');
  const { answers } = await model.decide('Hello', named);
  assert.deepEqual(Object.keys(answers), ['__proto__']);
  assert.equal(Object.keys(Object.getOwnPropertyDescriptor(answers, '__proto__').value.probabilities).length, 2);
});

test('models with states, and an encoder with a decoder, decide too', async t => {
  // These files have no vocabulary.
  t.mock.method(Engine.prototype, 'tokenize', (/** @type {string} */ text) =>
    Int32Array.from(Buffer.from(text), byte => byte % 64));
  for (const name of ['mamba', 'lfm2', 'gemma3', 'rwkv7', 't5']) {
    const toy = await Plumb.load(`${root}tests/vectors/archs/${name}.gguf`, OPTIONS);
    const ids = Int32Array.of(7, 1, 33, 33, 60, 2, 19, 48), choices = ['ab', 'abc', 'b'];
    const decide = async all => (await toy.decide(ids, { q: { type: 'choice', choices: all } })).answers.q.scores;
    const scores = await decide(choices), reversed = await decide([...choices].reverse());
    for (const label of choices) assert.equal(scores[label], reversed[label], `${name}, ${label}`);
    assert.ok(Object.values(scores).every(score => score < 0), name);
    await toy.close();
  }
});

test('an embedding model compares the context with the labels, and a reranker scores them', async () => {
  const encoder = await Plumb.load(`${root}models/all-MiniLM-L6-v2.Q8_0.gguf`, { threads: 1 });
  const descriptions = ['payments, invoices and refunds', 'technical support', 'sales'];
  const questions = {
    team: { type: 'choice', choices: [{ value: 'billing', description: descriptions[0] }, ...descriptions.slice(1)] },
    angry: { type: 'boolean', criteria: { true: 'an angry customer', false: 'a happy customer' } },
    mood: { type: 'score', levels: ['a bad mood', 'a good mood'] },
  };
  const { answers, stats } = await encoder.decide(COMPLAINT, questions);
  const texts = [...descriptions, 'an angry customer', 'a happy customer', 'a bad mood', 'a good mood'];
  const [context, ...vectors] = await encoder.embed([COMPLAINT, ...texts]);
  const cosines = vectors.map(vector => vector.reduce((sum, x, i) => sum + x * context[i], 0));
  const scores = Object.values(answers).flatMap(answer => Object.values(answer.scores));
  assertNear(scores, cosines.map(x => 20 * x), 1e-12, 'cosine');
  assert.equal(answers.team.value, 'billing');
  assert.equal(answers.angry.value, true);
  assert.equal(answers.team.mass, undefined);
  assert.ok(stats.computedTokens > 40);
  await fails(() => encoder.decide(COMPLAINT, { refund: QUESTIONS.refund }), 'PLUMB_ERROR_ARGUMENT',
    /"refund" needs criteria.true and criteria.false: an embedding model compares/);
  await fails(() => encoder.decide(COMPLAINT, { stars: QUESTIONS.stars }), 'PLUMB_ERROR_ARGUMENT', /needs levels/);
  await fails(() => encoder.decide(COMPLAINT, questions, { prompt: 'chat' }), 'PLUMB_ERROR_ARGUMENT', /an encoder/);
  await fails(() => encoder.decide([1], questions), 'PLUMB_ERROR_ARGUMENT', /context of an encoder is a text/);
  await encoder.close();

  const reranker = await Plumb.load(`${root}tests/vectors/embed/rank-bert.gguf`, { threads: 1 });
  const ranked = await reranker.decide('abc', { is: { type: 'boolean', instructions: 'ab' },
    which: { type: 'choice', instructions: 'a', choices: ['b', 'c'] } });
  const score = async query => (await reranker.rank(query, ['abc']))[0].score;
  assert.deepEqual(ranked.answers.is.scores, { true: await score('ab'), false: 0 });
  assert.deepEqual(ranked.answers.which.scores, { b: await score('a b'), c: await score('a c') });
  await fails(() => reranker.decide('abc', { is: { type: 'boolean' } }), 'PLUMB_ERROR_ARGUMENT', /has no instructions/);
  await reranker.close();
});

// ---- calibration ----

test('fitCalibration finds what scipy finds', () => {
  for (const one of CASES) {
    for (const [name, bias] of [['temperature', false], ['both', true]]) {
      const fitted = fitCalibration(examplesOf(one), { bias }), expected = one[name];
      assertNear([fitted.temperature], [expected.temperature], 1e-5 * expected.temperature, name);
      assertNear(Object.values(fitted.bias ?? {}), expected.bias, 1e-5, name);
    }
    assert.deepEqual(fitCalibration(examplesOf(one)), fitCalibration(examplesOf(one), { bias: true }));
  }
});

test('a calibration divides the scores by its temperature, and adds its bias', async () => {
  const question = QUESTIONS.stars, calibration = { temperature: 2, bias: { 2: 1, 5: -0.5, other: 9 } };
  const { answers: { plain, calibrated } } = await model.decide(COMPLAINT, { plain: question,
    calibrated: { ...question, calibration } });
  assert.deepEqual(calibrated.scores, plain.scores);
  const weights = Object.entries(plain.scores).map(([label, score]) =>
    Math.exp(score / 2 + (calibration.bias[label] ?? 0)));
  const sum = weights.reduce((a, b) => a + b);
  assertNear(Object.values(calibrated.probabilities), weights.map(weight => weight / sum), 1e-12, 'calibrated');
});

test('contentFree subtracts the scores of a text that says nothing', async () => {
  const free = await model.decide('N/A', QUESTIONS), plain = await model.decide(COMPLAINT, QUESTIONS);
  const { answers, stats } = await model.decide(COMPLAINT, QUESTIONS, { contentFree: true });
  for (const name of Object.keys(QUESTIONS)) {
    const difference = Object.entries(plain.answers[name].scores)
      .map(([label, score]) => score - free.answers[name].scores[label]);
    assert.deepEqual(Object.values(answers[name].scores), difference);
    assert.equal(answers[name].mass, plain.answers[name].mass);
  }
  assert.equal(stats.promptTokens, free.stats.promptTokens + plain.stats.promptTokens);
});

test('examples without a mistake, useless ones and impossible labels give finite calibrations', () => {
  const example = (scores, value) => ({ answer: { type: 'choice', scores }, value });
  const right = Array.from({ length: 9 }, () => example({ a: 3, b: 0 }, 'a'));
  const wrong = Array.from({ length: 200 }, () => example({ a: 3, b: 0 }, 'b'));
  const impossible = [example({ a: -Infinity, b: -2 }, 'a'), example({ a: -1, b: -2 }, 'b')];
  for (const examples of [right, wrong, impossible, [example({ a: 1e300, b: -1e300 }, 'b')], right.slice(0, 1)]) {
    for (const bias of [true, false]) {
      const fitted = fitCalibration(examples, { bias });
      assert.ok(fitted.temperature > 0 && fitted.temperature <= 1000, JSON.stringify(fitted));
      assert.ok(Object.values(fitted.bias ?? {}).every(Number.isFinite));
    }
  }
  assert.equal(fitCalibration(wrong, { bias: false }).temperature, 1000);
  const mixed = [...right, example({ a: 1, c: 2 }, 'c')];
  assert.equal(fitCalibration(mixed).bias, undefined);
  const booleans = [{ answer: { type: 'boolean', scores: { true: 1, false: 0 } }, value: true }];
  assert.deepEqual(Object.keys(fitCalibration(booleans).bias), ['true', 'false']);
  const level = { answer: { type: 'score', scores: { low: 1, high: 0 } }, value: 1 };
  assert.ok(fitCalibration([level]).bias.high > 0);
});

test('examples that are none are errors', async () => {
  const good = { answer: { type: 'choice', scores: { a: 1, b: 2 } }, value: 'a' };
  for (const [examples, options, message] of [
    [[], {}, /expected a non-empty array/], ['x', {}, /expected a non-empty array/],
    [[null], {}, /example 0: answer is no answer of decide/], [[good, {}], {}, /example 1: answer is no answer/],
    [[{ answer: { scores: { a: 1, b: NaN } }, value: 'a' }], {}, /no answer of decide/],
    [[{ ...good, value: 'c' }], {}, /example 0: value "c" is none of the labels/],
    [[good], { bias: 1 }, /bias is 1, expected true or false/], [[good], { prior: 1 }, /unknown option "prior"/],
    [[good, { answer: { scores: { a: 1, c: 2 } }, value: 'a' }], { bias: true }, /that all have the same labels/],
  ]) await fails(async () => fitCalibration(examples, options), 'PLUMB_ERROR_ARGUMENT', message);
});

test('exp and log are within 2 ulp, and have the bits of the engine\'s', async t => {
  const next = random(3), engines = [], { openSession } = Engine.prototype;
  t.mock.method(Engine.prototype, 'openSession', function (/** @type {any} */ args) {
    engines.push(this);
    return openSession.call(this, args);
  });
  const toy = await Plumb.load(tinyPath, OPTIONS), [engine] = engines;
  for (let i = 0; i < 20000; i++) {
    const [a, b] = Float32Array.of((next(2e6) - 1e6) / 1e4, (next(2e6) - 1e6) / 1e4);
    const theirs = engine.withBytes(8, (/** @type {number} */ ptr) => {
      engine.view.setFloat32(ptr, a, true);
      engine.view.setFloat32(ptr + 4, b, true);
      return engine.c.plumb_logits_top(ptr, 2, 0, engine.out);
    });
    assert.ok(Object.is(logSum([a, b]), theirs), `${a}, ${b}: ${logSum([a, b])}, not ${theirs}`);
    const x = (next(2e6) - 1e6) / 1500, y = exp(x);
    assert.ok(Math.abs(y - Math.exp(x)) <= 4 * Number.EPSILON * y, `exp(${x}) is ${y}`);
    assert.ok(Math.abs(log(y) - Math.log(y)) <= 4 * Number.EPSILON * Math.abs(x) + 1e-300, `log(${y}) is ${log(y)}`);
  }
  await toy.close();
  assert.deepEqual([exp(0), exp(-0), exp(710), exp(-746), exp(-745), exp(NaN), exp(-Infinity)],
    [1, 1, Infinity, 0, 5e-324, NaN, 0]);
  assert.deepEqual([log(1), log(0), log(-1), log(Infinity), log(NaN)], [0, -Infinity, NaN, Infinity, NaN]);
  assertNear([log(5e-324)], [Math.log(5e-324)], 1e-12, 'log of a subnormal number');
});

test('the numbers are those of every host', async () => {
  const real = await Plumb.load(realPath, OPTIONS);
  const { answers } = await real.decide(COMPLAINT, QUESTIONS);
  await real.close();
  const fitted = CASES.map(one => fitCalibration(examplesOf(one)));
  const sum = createHash('sha256').update(bits(answers) + JSON.stringify(fitted)).digest('hex');
  assert.equal(sum, SUM);
});
