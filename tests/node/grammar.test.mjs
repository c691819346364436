/** Answers within a grammar. Ground truth: JSON.parse and regular expressions of JavaScript on the answers, and the
 * model's own logits for which allowed token is the likeliest. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, prompts, realPath, repeats, textOf } from './helpers.mjs';

let model;
before(async () => { model = await Plumb.load(realPath); });
after(() => model.close());

const PERSON = String.raw`
root ::= "{\"name\": " string ", \"age\": " [1-9] [0-9]? ", \"tags\": [" (string (", " string){0,2})? "]}"
string ::= "\"" ([^"\\\x00-\x1f\x7f] | "\\" ["\\nt]){1,12} "\""
`;
const { messages } = prompts.find(prompt => prompt.messages);

test('answers at temperature 1.5 are JSON of the grammar, with every seed', async () => {
  for (let seed = 0; seed < 12; seed++) {
    if (!repeats(seed)) continue;
    const text = await textOf(model.generate(messages, { grammar: PERSON, temperature: 1.5, topP: 1, minP: 0, seed }));
    assert.equal(model.lastStats.finishReason, 'stop');
    const { name, age, tags, ...rest } = JSON.parse(text);
    assert.deepEqual(rest, {});
    assert.ok([name, ...tags].every(one => [...one].length >= 1 && [...one].length <= 12), text);
    assert.ok(age >= 1 && age <= 99 && tags.length <= 3, text);
  }
});

test('greedy takes the likeliest token that the grammar allows, and penalties apply', async () => {
  const grammar = 'root ::= [0-9]{3} ("a" | "b")';
  const ids = await model.tokenizeChat(messages);
  const tokens = [];
  const text = await textOf(model.generate(ids, { grammar, temperature: 0, onToken: token => tokens.push(token) }));
  assert.match(text, /^[0-9]{3}[ab]$/);
  await model.rewind();
  const logits = await model.feed(ids);
  const digits = await Promise.all([...'0123456789'].map(digit => model.tokenize(digit)));
  assert.ok(digits.every(({ length }) => length === 1));   // this vocabulary has no tokens of several digits
  const best = digits.map(([id]) => id).reduce((a, b) => (logits[b] > logits[a] ? b : a));
  assert.equal(tokens[0].id, best);
  const varied = await textOf(model.generate(ids, {
    grammar: 'root ::= [ab]{4}', temperature: 0, presencePenalty: 1000, logitBias: {},
  }));
  assert.match(varied, /^[ab]{4}$/);
});

test('without a grammar nothing changes after one was used; an unfinished answer can go on', async () => {
  const { ids, f32 } = prompts[1];
  const greedy = { temperature: 0, maxTokens: 8 };
  const before = await textOf(model.generate(ids, greedy));
  assert.match(await textOf(model.generate(ids, { ...greedy, maxTokens: 3, grammar: 'root ::= [A-Z]+' })), /^[A-Z]+$/);
  assert.equal(await textOf(model.generate(ids, greedy)), before);
  assert.equal(before, await model.detokenize(f32.ids.slice(0, 8)));
});

test('a grammar with a mistake is an error with its place, and many grammars can be used in turn', async () => {
  await fails(() => textOf(model.generate('a', { grammar: 'root ::= "a\n' })), 'PLUMB_ERROR_ARGUMENT',
    /line 1, column 10: a literal has no closing quote/);
  await fails(() => textOf(model.generate('a', { grammar: 'root ::= x\nx ::= y "a"\ny ::= x?' })),
    'PLUMB_ERROR_ARGUMENT', /left recursion: x -> y -> x/);
  await fails(() => textOf(model.generate('a', { grammar: 7 })), 'PLUMB_ERROR_ARGUMENT', /grammar/);
  for (let i = 0; i < 12; i++) {
    const text = await textOf(model.generate('a', { grammar: `root ::= "n${i % 10}"`, temperature: 0 }));
    assert.equal(text, `n${i % 10}`);
  }
});

test('text that the grammar forces is not sampled: its tokens are the text\'s own, and described or not', async () => {
  const long = '{"the only member of this object": [true, false, null], "état": "';
  const grammar = `root ::= ${JSON.stringify(long)} [a-z]{5} "\\"}"`;
  for (const temperature of [0, 1.5]) {
    const options = { grammar, temperature, seed: 3 };
    const text = await textOf(model.generate(messages, options));
    assert.equal(text.slice(0, long.length), long);
    assert.match(text.slice(long.length), /^[a-z]{5}"}$/);
    const { forcedTokens, tokens } = model.lastStats;
    // All but the last, which could be merged with what follows.
    const own = [...await model.tokenize(long, { addSpecial: false })].slice(0, -1);
    assert.equal(forcedTokens, own.length);
    assert.ok(tokens > forcedTokens && own.length > 15);
    const ids = [];
    assert.equal(await textOf(model.generate(messages, { ...options, onToken: ({ id }) => ids.push(id) })), text);
    assert.deepEqual(ids.slice(0, own.length), own);
    assert.equal(model.lastStats.forcedTokens, own.length);
  }
  const own = await model.tokenize(long, { addSpecial: false });
  const cut = await textOf(model.generate(messages, { grammar, temperature: 0, maxTokens: 7 }));
  assert.equal(cut, await model.detokenize(own.slice(0, 7)));
  assert.deepEqual([model.lastStats.forcedTokens, model.lastStats.tokens], [7, 7]);
});

test('token elements match control tokens', async () => {
  const text = await textOf(model.generate('a', { grammar: 'root ::= "x" <|im_start|> "y"', temperature: 0 }));
  assert.equal(text, 'xy');
});

test('a cut answer is the beginning of a text of the grammar', async () => {
  const grammar = readFileSync(new URL('../vectors/grammar/json.gbnf', import.meta.url), 'utf8');
  const text = await textOf(model.generate(messages, { grammar, temperature: 1.2, seed: 5, maxTokens: 40 }));
  assert.match(text, /^\s*\{/);
  if (model.lastStats.finishReason === 'stop') JSON.parse(text);
});
