/** For any JSON chat.completions.create answers, or refuses with a PlumbError that names the parameter. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { Plumb, PlumbError } from '../../web/node/index.js';
import { COMPLETION } from '../../web/base/options.js';
import { tinyPath } from './helpers.mjs';

let model;
before(async () => {
  model = await Plumb.load(tinyPath, { worker: false, threads: 1 });
  model.metadata['tokenizer.chat_template'] = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}'
    + '{% if tools %}{{ tools | tojson }}{% endif %}';
});
after(() => model.close());

const RUNS = { numRuns: Number(process.env.RUNS ?? 600), seed: Number(process.env.SEED ?? 1) };
const json = fc.jsonValue({ maxDepth: 3 });
const number = fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer(), fc.maxSafeInteger(),
  fc.constantFrom(0, 1, -1, 2, 0.5, -0, 2 ** 31, 2 ** 32, 2 ** 53, 1e300, 5e-324));
const text = fc.oneof(fc.string({ maxLength: 20 }), fc.constantFrom('', 'auto', 'none', 'text', '\ud800', '</s>'));
const some = fc.oneof(number, text, fc.boolean(), fc.constant(null), json);
const part = fc.record({ type: fc.oneof(fc.constant('text'), text), text });
const content = fc.oneof(text, fc.array(part, { maxLength: 3 }), some);
const message = fc.oneof(fc.record({
  role: fc.oneof({ weight: 6, arbitrary: fc.constantFrom('system', 'developer', 'user', 'assistant', 'tool') }, some),
  content, tool_calls: fc.oneof(json, fc.array(json, { maxLength: 2 })), tool_call_id: some, name: some,
}, { requiredKeys: ['role', 'content'] }), some);
const valid = fc.array(fc.record({ role: fc.constantFrom('user', 'assistant'), content: text }), { minLength: 1,
  maxLength: 3 });
const tool = fc.oneof(fc.record({ type: fc.oneof(fc.constant('function'), some),
  function: fc.oneof(fc.record({ name: fc.oneof(text, some), parameters: json }), json) }), some);
/** Generators for each parameter: often valid values, else anything. */
const parameter = Object.fromEntries(Object.keys(COMPLETION).map(name => [name, fc.oneof(some, number,
  name === 'tools' ? fc.array(tool, { maxLength: 2 }) : name === 'logit_bias' ? fc.dictionary(text, number)
    : name === 'stop' ? fc.array(text, { maxLength: 3 }) : fc.boolean())]));
const messages = fc.oneof({ weight: 5, arbitrary: valid },
  { weight: 3, arbitrary: fc.array(message, { maxLength: 3 }) }, { weight: 1, arbitrary: some });
const parameters = fc.record({ ...parameter, messages }, { requiredKeys: [] })
  .chain(given => fc.subarray(Object.keys(given), { maxLength: 3 }).map(left => Object.fromEntries(
    Object.entries(given).filter(([name]) => name === 'messages' || left.includes(name)))));

let answers = 0;

/** The result must be an answer, or an error that names the parameter or the prompt's problem. @param {any} given */
async function check(given) {
  const abort = new AbortController();
  try {
    const result = await model.chat.completions.create(
      typeof given === 'object' && given !== null && !Array.isArray(given) && given.max_tokens === undefined
        && given.max_completion_tokens === undefined ? { ...given, max_tokens: 2 } : given, { signal: abort.signal });
    answers++;
    if (result?.object === 'chat.completion') assert.equal(result.choices.length, 1);
    else for await (const chunk of result) assert.equal(chunk.object, 'chat.completion.chunk');
  } catch (error) {
    assert.ok(error instanceof PlumbError, `${error?.stack ?? error} of ${JSON.stringify(given)}`);
    if (['PLUMB_ERROR_CONTEXT', 'PLUMB_ERROR_TEMPLATE'].includes(error.code)) return;
    assert.equal(error.code, 'PLUMB_ERROR_ARGUMENT', `${error.message} of ${JSON.stringify(given)}`);
    const names = [...Object.keys(COMPLETION), 'unknown option', 'expected {messages'];
    const camel = (/** @type {string} */ name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
    assert.ok(names.some(name => error.message.includes(name) || error.message.includes(camel(name))),
      `${error.message} of ${JSON.stringify(given)}`);
    assert.ok(error.message.length < 2000, error.message.slice(0, 200));
  }
}

test('any JSON as the parameters is answered or refused', () =>
  fc.assert(fc.asyncProperty(fc.jsonValue(), check), RUNS));
test('any JSON as the value of any parameter is answered or refused', async () => {
  answers = 0;
  await fc.assert(fc.asyncProperty(parameters, check), RUNS);
  assert.ok(answers > RUNS.numRuns / 10, `only ${answers} of ${RUNS.numRuns} were answered`);
});
