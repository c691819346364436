/** Reading of answers: reasoning, text and calls.  Ground truth: the cases of llama.cpp's tests/test-chat.cpp, each
 * with
 * what llama.cpp's own parsers make of it (tests/vectors/toolcalls). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { AnswerReader } from '../../web/answers/answer.js';
import { textsOf } from '../../web/answers/formats.js';
import { JsonScan } from '../../web/answers/json-scan.js';
import { callGrammar } from '../../web/answers/call-grammar.js';
import { byteGrammars, randomText } from './byte-grammars.mjs';
import { random, root } from './helpers.mjs';
import { formatOf, TEMPLATES } from './templates.mjs';

const { tools: TOOLS, cases } = JSON.parse(readFileSync(`${root}tests/vectors/toolcalls/cases.json`, 'utf8'));
const sourceOf = name => readFileSync(`${root}tests/vectors/templates/sources/${name}.jinja`, 'utf8');
const value = json => {
  try {
    return JSON.parse(json);
  } catch {
    return json.trim();
  }
};

/** What the deltas of an answer add up to, and its message. */
function read({ template, input, prompt, tools, partial }, cuts, options = {}) {
  const reader = new AnswerReader(formatOf(sourceOf(template)), tools.map(i => TOOLS[i]), { prompt, ...options });
  const deltas = [];
  let at = 0;
  for (const cut of [...cuts, input.length]) {
    deltas.push(...reader.push(input.slice(at, cut)));
    at = cut;
  }
  deltas.push(...reader.end({ cut: partial }));
  const all = { content: '', reasoning: '', calls: /** @type {any[]} */ ([]) };
  for (const { content = '', reasoning = '', call } of deltas) {
    all.content += content;
    all.reasoning += reasoning;
    if (!call) continue;
    if (call.name !== undefined) {
      assert.equal(call.index, all.calls.push([call.name, '']) - 1);
      assert.ok(call.id && call.arguments === '');
    }
    all.calls[call.index][1] += call.arguments;
  }
  return { ...all, message: reader.message };
}
const said = ({ content, reasoning, calls }) =>
  [content.trim(), reasoning.trim(), calls.map(([name, given]) => [name, value(given)])];
/** What llama.cpp's parser makes of a case.  The last call of one that is cut off goes. */
const expectedOf = ({ parsed, partial }) => said(partial ? { ...parsed, calls: parsed.calls.slice(0, -1) } : parsed);

/** Where plumb differs on purpose, with its answer. */
const OTHERWISE = [
  // The parts of a value have tags of their own, too.
  ['MiniMax-M3', '<mm:think>Union string</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="union_args">'
    + ']<]minimax[>[<label>]<]minimax[>[<text>hi]<]minimax[>[</text>]<]minimax[>[</label>]<]minimax[>[</invoke>\n'
    + ']<]minimax[>[</tool_call>', ['', 'Union string', [['union_args', { label: { text: 'hi' } }]]]],
  // The prompt's words that open the reasoning are not part of it.
  ['Apriel-1.6-15b-Thinker-fixed', 'I\'m\nthinking\n[BEGIN FINAL RESPONSE]\nHello, world!\nWhat\'s up?',
    ['Hello, world!\nWhat\'s up?', 'I\'m\nthinking', []]],
  ['Apriel-1.6-15b-Thinker-fixed', 'I\'m\nthinking\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{"name": "special_function", '
    + '"arguments": {"arg1": 1}}]</tool_calls>', ['', 'I\'m\nthinking', [['special_function', { arg1: 1 }]]]],
  // A call that nobody asked for is text, where llama.cpp drops it.
  ...['<|start|>assistant to=container.exec<|channel|>commentary<|message|>python3 -c \'print("hello")\'',
    '<|start|>assistant<|channel|>commentary to=python <|constrain|>code<|message|>print("hello")'].map(text =>
    ['openai-gpt-oss-120b', `<|channel|>analysis<|message|>I will execute python to say hello<|end|>${text}`,
      [text, 'I will execute python to say hello', []]]),
];

describe('llama.cpp\'s cases: the same reasoning, text and calls, wherever the answer is split', () => {
  // The others continue a message of the caller's, or bind the answer to a schema.
  const own = cases.filter(one => !one.continues && !one.schema);
  const used = new Set();
  for (const template of new Set(own.map(one => one.template))) {
    test(template, () => {
      for (const one of own.filter(one => one.template === template)) {
        const whole = read(one, []), other = OTHERWISE.find(([name, text]) => name === template && text === one.input);
        const expected = other ? other[2] : expectedOf(one);
        if (other) used.add(other);
        assert.deepEqual(said(whole), expected, one.input);
        const all = Array.from({ length: one.input.length - 1 }, (_, i) => i + 1);
        for (const cuts of [...all.map(cut => [cut]), all]) {
          const { message: { tool_calls: _, ...message }, ...rest } = read(one, cuts);
          const { message: { tool_calls: calls = [], ...same }, ...wholeRest } = whole;
          assert.deepEqual(rest, wholeRest, `${one.input} in pieces ${cuts}`);
          assert.deepEqual(message, same);
          assert.deepEqual(calls.map(({ function: f }) => [f.name, f.arguments]), rest.calls);
        }
      }
    });
  }

  test('there are 382 cases of 58 templates, and every exception is one', () => {
    assert.equal(own.length, 382);
    assert.equal(new Set(own.map(one => one.template)).size, 58);
    assert.equal(used.size, OTHERWISE.length);
  });

  test('ids that come before the arguments are kept', () => {
    for (const one of own) {
      const ids = one.parsed.calls.map(([, , id]) => id);
      if (one.partial || ids.every(id => id === '') || one.input.endsWith(`"id": "${ids[0]}"}]`)) continue;
      assert.deepEqual(read(one, []).message.tool_calls?.map(({ id }) => id), ids, one.input);
    }
  });
});

const STEP = process.env.WHOLE ? 1 : 3;
describe('an answer that is cut off has the whole calls and no part of another; its stream says the same', () => {
  /** Checks an answer that is cut off at each of its characters, or at every third unless WHOLE=1 is set. */
  function check(one) {
    const whole = read(one, []), plain = text => text.replace(/\s/g, '');
    let most = 0;
    for (let at = 0; at <= one.input.length; at = at + STEP < one.input.length ? at + STEP : at + 1) {
      const input = one.input.slice(0, at), shown = `${one.template}: ${input}`;
      const { message, ...cut } = read({ ...one, input, partial: true }, [at >> 1]);
      const { message: _, ...same } = read({ ...one, input, partial: true }, []);
      assert.deepEqual(same, cut, shown);
      assert.deepEqual([message.content, message.reasoning_content ?? ''], [cut.content, cut.reasoning], shown);
      assert.deepEqual((message.tool_calls ?? []).map(({ function: f }) => [f.name, f.arguments]), cut.calls, shown);
      assert.deepEqual(cut.calls, whole.calls.slice(0, cut.calls.length), shown);
      assert.ok(plain(whole.content).startsWith(plain(cut.content)), `${shown}\n${cut.content}`);
      assert.ok(plain(whole.reasoning).startsWith(plain(cut.reasoning)), `${shown}\n${cut.reasoning}`);
      assert.ok(cut.calls.length >= most, shown);
      most = cut.calls.length;
    }
    assert.equal(most, whole.calls.length, one.input);
  }

  const called = cases.filter(one => !one.continues && !one.schema && !one.partial && one.tools.length > 0
    && !OTHERWISE.some(([name, text]) => name === one.template && text === one.input));
  for (const template of new Set(called.map(one => one.template))) {
    test(`llama.cpp's cases of ${template}`, () => called.filter(one => one.template === template).forEach(check));
  }

  test('random calls in the format of each of llama.cpp\'s 70 templates', async () => {
    const grammars = await byteGrammars();
    for (const [template, source] of TEMPLATES) {
      const tools = TOOLS.slice(0, 2).map((_, i) => i), pick = random(9);
      const { grammar } = callGrammar(formatOf(source), tools.map(i => TOOLS[i]), { required: true });
      let n = 0;
      for (let i = 0; i < 100 && n < 1; i++) {
        const input = randomText(grammars, grammar, pick, 250), one = { template, input, prompt: '', tools };
        if (input === undefined || read(one, []).content.trim() !== '') continue;
        check(one);
        n++;
      }
      assert.equal(n, 1, template);
    }
  });
});

/** Words that only belong to a format. */
const FORMAT_WORD = new RegExp(`^(?:name|tool|parameters|arguments|functions?|call|index|string|number|type|json|item|
  final|
  commentary|analysis|assistant|user|self|CDATA|none|true|false|thought|message)`.replaceAll(/\s/g, ''), 'i');

test('random changes of these texts never lose text, and the pieces never matter', () => {
  const pick = random(5);
  for (const one of cases.filter(({ continues, schema }) => !continues && !schema)) {
    const at = pick(one.input.length), length = pick(6);
    const input = one.input.slice(0, at) + (pick(2) ? one.input.slice(pick(one.input.length)) : '')
      + one.input.slice(at + length);
    const whole = read({ ...one, input, partial: false }, []);
    const cuts = Array.from({ length: input.length }, (_, i) => i + 1);
    const { message: _, ...pieces } = read({ ...one, input, partial: false }, cuts);
    const { message, ...all } = whole;
    assert.deepEqual(pieces, all, input);
    for (const { function: { arguments: given } } of message.tool_calls ?? []) {
      assert.equal(typeof JSON.parse(given), 'object', input);
    }
    if (formatOf(sourceOf(one.template)).channels) continue;   // the headers of messages are not part of an answer
    // Every word of the input is somewhere in the answer.
    const found = JSON.stringify([message, whole.calls]);
    for (const word of input.match(/[a-z]{4,}/gi) ?? []) {
      const isFormat = textsOf(formatOf(sourceOf(one.template))).join(' ').includes(word)
        || FORMAT_WORD.test(word);
      assert.ok(isFormat || found.includes(word), `${word} of ${input}\n${found}`);
    }
  }
});

describe('the incremental scanner accepts exactly what JSON.parse does', () => {
  const isJson = text => {
    const scan = new JsonScan();
    let at = 0;
    for (const c of text) {
      if (scan.done) return /^[ \t\n\r]*$/.test(text.slice(at));
      at += scan.read(c, 0);
      if (scan.bad) return false;
      if (scan.done && at < text.length && text[at - 1] !== c) at--;
    }
    if (!scan.done) scan.end();
    return scan.done && !scan.bad;
  };
  const parses = text => {
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  };

  test('on texts that are close to JSON', () => {
    const pick = random(1), parts = ['{', '}', '[', ']', ',', ':', '"a"', '"\\u00e9"', '"\\x"', '"', ' ', '1',
      '-0.5e+3', '01', 'true', 'nul', 'null', '\n', '"\n"', '{"a":1}', '[1,2]'];
    let valid = 0;
    for (let i = 0; i < 100000; i++) {
      const inner = Array.from({ length: pick(5) }, () => parts[pick(parts.length)]).join('');
      const text = pick(2) ? `{"k":${inner}}` : `[${inner}]`;
      const expected = parses(text);
      valid += Number(expected);
      assert.equal(isJson(text), expected, text);
    }
    assert.ok(valid > 5000, `${valid} of them are valid`);
  });
});
