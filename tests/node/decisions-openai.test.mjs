/** Decisions in the forms of OpenAI and System One.  Ground truth: their own packages, whose types our results must
 * have and whose clients must send what we take, and model.decide. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choice, noul, score, TypeSafeClient } from '@typesafe-ai/sdk';
import fc from 'fast-check';
import Theirs from 'openai';
import { Plumb, PlumbError } from '../../web/node/index.js';
import { createHandler } from '../../web/node/fetch.js';
import Ours from '../../web/node/openai.js';
import { fails, tinyPath } from './helpers.mjs';
import { smallPath } from './small.mjs';

const OPTIONS = { threads: 1, worker: false, contextLength: 1024 };
const model = await Plumb.load(smallPath, OPTIONS);
test.after(() => model.close());

const TICKET = 'I was charged twice, and nobody answers.';
const PARAMS = {
  model: 'smol', input: TICKET,
  questions: [
    { type: 'predicate', name: 'double', instructions: 'The customer was charged twice.' },
    { type: 'choice', instructions: [{ type: 'input_text', text: 'Which team?' }], name: 'team',
      choices: [{ value: 'billing' }, { value: 'technical', description: 'errors and outages' }] },
    { type: 'choice', instructions: 'Is it urgent?', choices: [{ value: true }, { value: false }] },
    { type: 'score', name: 'anger', instructions: 'How angry is the customer?',
      levels: [{ label: 'calm' }, { label: 'angry', description: 'complains' }, { label: 'furious' }] },
  ],
};
/** The same, as model.decide takes them. */
const SAME = {
  0: { type: 'boolean', instructions: 'The customer was charged twice.' },
  1: { type: 'choice', instructions: 'Which team?', choices: ['billing',
    { value: 'technical', description: 'errors and outages' }] },
  2: { type: 'choice', instructions: 'Is it urgent?', choices: ['true', 'false'] },
  3: { type: 'score', instructions: 'How angry is the customer?', levels: ['calm',
    { value: 'angry', description: 'complains' }, 'furious'] },
};

test('OpenAI\'s client asks and gets the numbers of model.decide', async t => {
  const ours = new Ours({ models: { smol: smallPath }, load: OPTIONS });
  t.after(() => ours.close());
  const handler = createHandler({ models: { smol: smallPath }, load: OPTIONS });
  t.after(() => handler.close());
  const theirs = new Theirs({ apiKey: 'none', maxRetries: 0, baseURL: 'http://localhost/v1',
    fetch: (url, request) => handler(new Request(url, request)) });
  const decision = await theirs.decisions.create(PARAMS), { answers, stats } = await model.decide(TICKET, SAME);
  assert.deepEqual(decision.answers, [
    { type: 'predicate', name: 'double', probability: answers[0].probability },
    { type: 'choice', name: 'team', choice: answers[1].value, confidence: answers[1].confidence, probabilities:
      ['billing', 'technical'].map(value => ({ value, probability: answers[1].probabilities[value] })) },
    { type: 'choice', name: null, choice: answers[2].value === 'true', confidence: answers[2].confidence, probabilities:
      [true, false].map(value => ({ value, probability: answers[2].probabilities[String(value)] })) },
    { type: 'score', name: 'anger', score: answers[3].value, confidence: answers[3].confidence, probabilities:
      ['calm', 'angry', 'furious'].map((label, value) =>
        ({ label, value, probability: answers[3].probabilities[label] })) },
  ]);
  assert.equal(decision.model, 'smol');
  assert.deepEqual(decision.usage, {
    input_tokens: stats.computedTokens, input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
    output_tokens: 0, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: stats.computedTokens,
  });
  const again = await theirs.decisions.create({ ...PARAMS, safety_identifier: 'me', prompt_cache_key: null });
  assert.deepEqual(again.answers, decision.answers);
  assert.ok(again.usage.input_tokens_details.cached_tokens > 30);
  const free = await ours.decisions.create({ ...PARAMS, content_free: true });
  assert.equal(free.answers[0].probability,
    (await model.decide(TICKET, SAME, { contentFree: true })).answers[0].probability);
});

test('an input of messages, JSON and calls is a conversation', async () => {
  const questions = PARAMS.questions.slice(0, 1), same = { q: SAME[0] };
  for (const [input, messages] of [
    [[{ role: 'developer', content: 'Be strict.' }, { role: 'user', content: TICKET }],
      [{ role: 'developer', content: 'Be strict.' }, { role: 'user', content: TICKET }]],
    [[{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'a' },
      { type: 'input_json', data: { b: [1] } }] }],
    [{ role: 'user', content: 'a\n{\n  "b": [\n    1\n  ]\n}' }]],
    [[{ role: 'user', content: 'Look.' }, { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{"a":1}' },
      { type: 'function_call_output', call_id: 'c1', output: 'nothing' },
      { role: 'assistant', content: [{ type: 'output_text', text: 'I see nothing.' }] }],
    [{ role: 'user', content: 'Look.' }, { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function',
      function: { name: 'look', arguments: '{"a":1}' } }] }, { role: 'tool', tool_call_id: 'c1', content: 'nothing' },
    { role: 'assistant', content: 'I see nothing.' }]],
  ]) {
    const { answers: [answer] } = await model.decisions.create({ input, questions });
    assert.equal(answer.probability, (await model.decide(messages, same)).answers.q.probability);
  }
});

test('TypeSafe\'s client asks and gets the numbers of model.decide', async t => {
  const handler = createHandler({ models: { smol: smallPath }, load: OPTIONS });
  t.after(() => handler.close());
  const client = new TypeSafeClient({ apiKey: 'none', baseURL: 'http://localhost', timeout: 60000,
    fetch: (url, request) => handler(new Request(url, request)) });
  const state = { ticket: TICKET, tags: ['new'] };
  const { answers, usage } = await client.systemOne({ state, model: 'smol', questions: {
    double: noul('Was the customer charged twice?', { true: 'charged twice', false: 'charged once' }),
    team: choice('Which team?', { billing: null, technical: { covers: 'errors' } }),
    anger: score('How angry?', ['calm', null, 'furious']),
  } });
  const expected = (await model.decide(JSON.stringify(state, null, 2), {
    double: { type: 'boolean', instructions: 'Was the customer charged twice?',
      criteria: { true: 'charged twice', false: 'charged once' } },
    team: { type: 'choice', instructions: 'Which team?', choices: ['billing',
      { value: 'technical', description: '{\n  "covers": "errors"\n}' }] },
    anger: { type: 'score', instructions: 'How angry?', levels: [{ value: '0', description: 'calm' }, '1',
      { value: '2', description: 'furious' }] },
  })).answers;
  const { team, anger } = expected;
  assert.deepEqual(answers, {
    double: { type: 'noul', noul: expected.double.probability },
    team: { type: 'choice', choice: team.value, confidence: team.confidence, probabilities: team.probabilities },
    anger: { type: 'score', score: anger.value, confidence: anger.confidence, probabilities: anger.probabilities,
      legend: { 0: 'calm', 1: null, 2: 'furious' } },
  });
  assert.ok(usage.input_tokens > 100 && usage.output_tokens === 0);
});

test('requests that cannot be answered are errors that name the place', async () => {
  const question = PARAMS.questions[0], ask = (more, questions = [question]) =>
    model.decisions.create({ input: 'a', questions, ...more });
  for (const [action, message] of [
    [() => ask({ input: null }), /^decisions.create: input is missing$/],
    [() => ask({ input: [] }), /input is an array, expected a string or a non-empty array/],
    [() => ask({ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] }),
      /input\[0\].content\[0\] has type "input_image", expected .* models read text only$/],
    [() => ask({ input: [{ type: 'web_search_call' }] }), /input\[0\] has type "web_search_call", expected "message"/],
    [() => ask({ input: [{ role: 'user' }] }), /input\[0\].content is undefined, expected a string or an array/],
    [() => ask({ temperature: 1 }), /unknown option "temperature"/],
    [() => ask({}, []), /expected an object of 1 to 400 questions/],
    [() => ask({}, [{ ...question, type: 'boolean' }]), /questions\[0\]: type is "boolean", expected "predicate"/],
    [() => ask({}, [question, { ...question, extra: 1 }]), /questions\[1\]: unknown option "extra"/],
    [() => ask({}, [{ type: 'choice', instructions: 'a', choices: [{ value: 1 }, { value: 2 }] }]),
      /questions\[0\]: value of a choice is 1, expected a string/],
    [() => ask({}, [{ type: 'choice', instructions: 'a', choices: [{ value: true }, { value: 'true' }] }]),
      /2 to 255 different labels/],
    [() => ask({}, [{ type: 'score', instructions: 'a', levels: [{ label: 'a' }] }]), /levels is an array, expected/],
    [() => model.decisions.create(null), /expected {input, questions}/],
    [() => model.decisions.systemOne({ state: 'a', questions: {} }), /expected an object of 1 to 400 questions/],
    [() => model.decisions.systemOne({ state: 'a', questions: { a: { type: 'box' } } }),
      /questions\["a"\]: type is "box"/],
    [() => model.decisions.systemOne({ state: 'a', questions: { a: { type: 'score', criteria: ['x'] } } }),
      /questions\["a"\]: levels is an array/],
    [() => model.decisions.systemOne({ state: 'a', questions: { a: { type: 'choice' } } }), /choices are missing/],
  ]) await fails(action, 'PLUMB_ERROR_ARGUMENT', message);
  await fails(() => ask({ input: 'word '.repeat(2000) }), 'PLUMB_ERROR_CONTEXT', /question "0" has \d+ tokens/);
});

test('any JSON is answered or refused', async t => {
  const tiny = await Plumb.load(tinyPath, { worker: false, threads: 1 });
  t.after(() => tiny.close());
  const text = fc.oneof(fc.string({ maxLength: 8 }), fc.constantFrom('', 'a', '__proto__', '\ud800'));
  const some = fc.oneof(text, fc.jsonValue({ maxDepth: 2 }));
  const label = fc.oneof(some, fc.record({ value: text, label: text, description: some }, { requiredKeys: [] }));
  const labels = fc.oneof({ weight: 4, arbitrary: fc.array(label, { maxLength: 4 }) }, { weight: 1, arbitrary: some });
  const good = fc.string({ minLength: 1, maxLength: 8 });
  const list = (/** @type {string} */ key) => fc.uniqueArray(fc.record({ [key]: good }), { minLength: 2, maxLength: 4,
    selector: one => one[key] });
  const valid = fc.oneof(fc.record({ type: fc.constantFrom('predicate', 'noul'), instructions: good }),
    fc.record({ type: fc.constant('choice'), instructions: good, choices: list('value') }),
    fc.record({ type: fc.constant('score'), instructions: good, levels: list('label') }),
    fc.record({ type: fc.constant('score'), instructions: some, criteria: fc.array(some, { minLength: 2 }) }),
    fc.record({ type: fc.constant('choice'), criteria: fc.dictionary(good, some, { minKeys: 2 }) }));
  const question = fc.oneof({ weight: 5, arbitrary: valid }, { weight: 1, arbitrary: fc.record({
    type: fc.oneof({ weight: 5, arbitrary: fc.constantFrom('predicate', 'noul', 'choice', 'score') }, some),
    instructions: some, name: some, choices: labels, levels: labels,
    criteria: fc.oneof(fc.dictionary(text, some, { maxKeys: 4 }), fc.array(some, { maxLength: 4 }), some),
    calibration: fc.oneof(fc.constant(undefined), some, fc.record({ temperature: some, bias: some })),
  }, { requiredKeys: ['type'] }) });
  let answers = 0;
  const check = async ask => {
    try {
      const { answers: all } = await ask();
      for (const one of Object.values(all)) {
        const shares = Object.values(one.probabilities ?? {}).map(share => share.probability ?? share);
        assert.ok(shares.every(share => share >= 0 && share <= 1), JSON.stringify(one));
      }
      answers++;
    } catch (error) {
      assert.ok(error instanceof PlumbError, `${error?.stack ?? error}`);
      assert.match(error.code, /^PLUMB_ERROR_(ARGUMENT|CONTEXT|TEMPLATE)$/);
    }
  };
  await fc.assert(fc.asyncProperty(fc.oneof(text, fc.array(some)), fc.array(question, { maxLength: 2 }), some,
    async (input, questions, anything) => {
      await check(() => tiny.decisions.create({ input, questions }));
      const named = Object.fromEntries(questions.entries());
      await check(() => tiny.decisions.systemOne({ state: anything, questions: named }));
      await check(() => tiny.decisions.create(anything));
      await check(() => tiny.decisions.systemOne(anything));
    }), { numRuns: Number(process.env.RUNS ?? 200), seed: 1 });
  assert.ok(answers > 20, `only ${answers} were answered`);
});
