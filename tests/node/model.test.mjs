/** A model in use. Ground truth: llama.cpp's token ids and logits in tests/vectors, jinja2's rendering of the chat
 * (chat.txt), and the definitions of the options. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, realPath, prompts, root, textOf, tinyPath } from './helpers.mjs';

const vectors = `${root}tests/vectors/`;
const [capital, chat, long] = prompts;
const GREEDY = { temperature: 0 };
/** Ids of llama.cpp's greedy answer, up to the first token that ends a turn. */
const answerIds = ({ f32 }) => f32.ids.slice(0, f32.first_end < 0 ? undefined : f32.first_end);

describe('the default model', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(realPath, { precision: 'exact16' }); });
  after(() => model.close());

  test('linear memory holds the file, the session and at most 32 MB more', async () => {
    const { memoryBytes, sessionBytes, weightBytes } = await model.info();
    const file = statSync(realPath).size;
    assert.ok(weightBytes < file && weightBytes > 0.97 * file, `${weightBytes} bytes of weights`);
    assert.ok(memoryBytes > weightBytes + sessionBytes && memoryBytes <= file + sessionBytes + 32 * 2 ** 20,
      `${memoryBytes} bytes, of which ${file} file, ${sessionBytes} session`);
  });

  test('info and metadata equal the keys of the file', async () => {
    const info = await model.info();
    const varying = { weightBytes: 0, sessionBytes: 0, memoryBytes: 0, module: '', kernels: '', precision: '' };
    assert.ok(info.savedBytes > 0 && info.savedBytes < 1000, `a session without tokens takes ${info.savedBytes} bytes`);
    assert.deepEqual({ ...info, ...varying }, {
      architecture: 'llama', parameters: 134515008, layers: 30, embedding: 576, heads: 9, headsKV: 3, headDim: 64,
      feedForward: 1536, vocabulary: 49152, trainedContext: 8192, contextLength: 8192, position: 0,
      batch: 128,
      dimensions: 576, hasLogits: true, hasEncoder: false, decoderStart: -1, pooling: 'none',
      threads: Math.min(8, availableParallelism()), savedBytes: info.savedBytes, ...varying,
    });
    assert.match(`${info.kernels} ${info.precision}`, /^(simd128|relaxed) exact16$/);
    assert.match(info.module, info.threads > 1 ? /^plumb-mt(-relaxed)?$/ : /^plumb(-relaxed)?$/);
    assert.equal(model.metadata['general.architecture'], 'llama');
    assert.equal(model.metadata['llama.rope.freq_base'], 100000);
    assert.equal(model.metadata['tokenizer.ggml.add_bos_token'], false);
    assert.deepEqual(model.metadata['general.languages'], ['en']);
    assert.deepEqual(model.metadata['tokenizer.ggml.tokens'], { type: 'array of string', count: 49152 });
  });

  test('tokens of the reference prompts are llama.cpp\'s, and detokenize to the same text', async () => {
    for (const { ids, text_file, parse_special: parseSpecial } of [capital, chat, long]) {
      const text = readFileSync(`${vectors}llama/${text_file}`, 'utf8');
      const tokens = await model.tokenize(text, { parseSpecial });
      assert.deepEqual([...tokens], ids);
      assert.equal(await model.detokenize(tokens, { special: true }), text);
    }
    assert.deepEqual([...await model.tokenize('')], []);
    assert.equal(await model.detokenize([]), '');
    assert.equal(await model.detokenize([1, 9690, 2]), 'system');
  });

  test('the chat template renders as in jinja2', async () => {
    const text = readFileSync(`${vectors}llama/chat.txt`, 'utf8');
    assert.equal(await model.applyChatTemplate(chat.messages), text);
    const brief = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Hi' }];
    assert.equal(await model.applyChatTemplate(brief, { addGenerationPrompt: false }),
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n');
    const messages = [...chat.messages], rendering = model.applyChatTemplate(messages);
    messages.length = 0;
    assert.equal(await rendering, text, 'messages that change afterwards');
  });

  test('a text is continued as by llama.cpp, greedily', async () => {
    const ids = answerIds(capital);
    const text = await textOf(model.generate('The capital of France is', { ...GREEDY, maxTokens: 64 }));
    assert.equal(text, await model.detokenize(ids));
    const { tokens, promptTokens, finishReason } = /** @type {any} */ (model.lastStats);
    assert.deepEqual([tokens, promptTokens, finishReason], [ids.length, 5, 'stop']);
  });

  test('a chat is answered as by llama.cpp, in pieces, with statistics', async () => {
    await model.rewind();
    const ids = answerIds(chat).slice(0, 30);
    const answer = model.generate(chat.messages, { ...GREEDY, maxTokens: 30 });
    const pieces = [];
    let step;
    while (!(step = await answer.next()).done) pieces.push(step.value);
    assert.equal(pieces.join(''), await model.detokenize(ids));
    assert.ok(pieces.length > 20, `${pieces.length} pieces`);
    const stats = step.value;
    assert.equal(stats, model.lastStats);
    assert.deepEqual([stats.promptTokens, stats.reusedTokens, stats.tokens], [39, 0, ids.length]);
    assert.ok(stats.prefillRate > 1 && stats.decodeRate > 1 && stats.decodeSeconds > 0);
    assert.equal(stats.prefillRate, 39 / stats.prefillSeconds);
    assert.equal(stats.decodeRate, (ids.length - 1) / stats.decodeSeconds);
  });

  test('a prompt of 600 tokens is continued as by llama.cpp', async () => {
    const text = await textOf(model.generate(long.ids, { ...GREEDY, maxTokens: 16 }));
    assert.equal(text, await model.detokenize(long.f32.ids.slice(0, 16)));
  });

  test('a second turn computes only what is new, and gives the same text as a fresh session', async () => {
    const first = await textOf(model.generate(chat.messages, { ...GREEDY, maxTokens: 12 }));
    const messages = [...chat.messages, { role: 'assistant', content: first }, { role: 'user', content: 'And mass?' }];
    const again = await textOf(model.generate(messages, { ...GREEDY, maxTokens: 12 }));
    const { reusedTokens, promptTokens } = /** @type {any} */ (model.lastStats);
    assert.ok(reusedTokens >= 39 + 11, `${reusedTokens} of ${promptTokens} reused`);
    await model.rewind();
    assert.equal(await textOf(model.generate(messages, { ...GREEDY, maxTokens: 12 })), again);
    assert.equal(model.lastStats?.reusedTokens, 0);
  });

  test('whole characters only: an emoji of several tokens comes in one piece', async () => {
    const ids = [...await model.tokenize('🦜語é')];
    assert.equal(new Set(ids).size, ids.length);
    // Biases and a presence penalty force the model to generate exactly these tokens, in this order.
    const logitBias = new Map(ids.map((id, i) => [id, 1e6 - 1e4 * i]));
    const pieces = [];
    const forced = { ...GREEDY, logitBias, presencePenalty: 1e6 };
    for await (const piece of model.generate('A parrot: ', { ...forced, maxTokens: ids.length })) pieces.push(piece);
    assert.equal(pieces.join(''), '🦜語é');
    assert.ok(ids.length > 5 && pieces.length === 3, `${pieces.length} pieces of ${ids.length} tokens`);
    // A character that is cut in the middle is left out, wherever it is cut.
    for (let maxTokens = 1; maxTokens < ids.length; maxTokens++) {
      const text = await model.generate('A parrot: ', { ...forced, maxTokens });
      assert.ok('🦜語é'.startsWith(text) && !/[\uFFFD\uD83E]$/.test(text), text);
    }
    const chat = model.chat({ ...forced, maxTokens: 2 });
    assert.equal(await chat.send('A parrot, please.'), '');
    assert.equal(chat.messages.at(-1)?.content, '');
  });

  test('a stop string ends the text before the string', async () => {
    const full = await textOf(model.generate(chat.messages, { ...GREEDY, maxTokens: 30 }));
    const stop = full.slice(20, 27);
    assert.equal(await textOf(model.generate(chat.messages, { ...GREEDY, maxTokens: 30, stop: ['@@@', stop] })),
      full.slice(0, full.indexOf(stop)));
    assert.equal(model.lastStats?.finishReason, 'stop');
  });

  test('the same seed gives the same text, another seed another; a random seed is reported', async () => {
    const say = async seed => textOf(model.generate('Once upon a time', { temperature: 1.5, topK: 0, topP: 1, minP: 0,
      maxTokens: 16, seed }));
    const one = await say(42);
    assert.equal(await say(42), one);
    assert.equal(await say(42n), one);
    assert.notEqual(await say(43), one);
    const drawn = await say(undefined);
    assert.equal(await say(model.lastStats?.seed), drawn);
  });

  test('a bias forbids and forces tokens', async () => {
    const [first] = capital.f32.ids;
    const say = (maxTokens, logitBias) => textOf(model.generate(capital.ids, { ...GREEDY, maxTokens, logitBias }));
    assert.notEqual(await say(1, { [first]: -Infinity }), await model.detokenize([first]));
    assert.equal(await say(3, new Map([[504, 1000]])), await model.detokenize([504, 504, 504]));
    const none = new Map(Array.from({ length: 49152 }, (_, id) => [id, -Infinity]));
    await fails(() => say(1, none), 'PLUMB_ERROR_ARGUMENT', /no token can be sampled: logitBias forbids all of them/);
  });

  test('leaving the loop and a signal end a text; the model remains usable', async () => {
    let pieces = 0;
    for await (const _ of model.generate('Once upon a time', GREEDY)) if (++pieces === 3) break;
    assert.equal(model.lastStats?.finishReason, 'abort');
    assert.ok(Number(model.lastStats?.tokens) < 20);

    const stop = new AbortController();
    const text = await textOf((async function* () {
      for await (const piece of model.generate('Once upon a time', { ...GREEDY, signal: stop.signal })) {
        yield piece;
        if (++pieces === 8) stop.abort();
      }
    })());
    assert.equal(model.lastStats?.finishReason, 'abort');
    assert.ok(text.length > 0);
    const after = await textOf(model.generate(capital.ids, { ...GREEDY, maxTokens: 1 }));
    assert.equal(after, await model.detokenize([capital.f32.ids[0]]));
  });

  test('leaving the loop after the last piece still reports the statistics of the text', async () => {
    const text = model.generate('Once upon a time', { ...GREEDY, maxTokens: 5 });
    await text.next();
    await model.rewind();   // comes after the text
    await text.return(undefined);
    assert.deepEqual([model.lastStats?.finishReason, model.lastStats?.tokens], ['length', 5]);
  });

  test('a signal ends a long prompt between batches', async () => {
    await model.rewind();
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 50);
    assert.equal(await textOf(model.generate([...long.ids, ...long.ids], { ...GREEDY, signal: stop.signal })), '');
    const stats = /** @type {any} */ (model.lastStats);
    assert.deepEqual([stats.finishReason, stats.tokens, stats.promptTokens], ['abort', 0, 1200]);
    const computed = Math.round(stats.prefillRate * stats.prefillSeconds);
    assert.ok(computed < 1200 && computed % 64 === 0, `${computed} tokens were computed, in batches of 64`);

    const already = model.generate('Hello', { signal: AbortSignal.abort() });
    assert.deepEqual([(await already.next()).done, model.lastStats?.finishReason], [true, 'abort']);
    await assert.rejects(model.feed(long.ids, { signal: AbortSignal.abort(new Error('no')) }), /no/);
  });

  test('the error for a prompt that is too long gives both lengths', async () => {
    const ids = Array.from({ length: 8193 }, (_, i) => i % 100 + 300);
    await fails(model.generate(ids).next(), 'PLUMB_ERROR_CONTEXT',
      /the prompt has 8193 tokens, but the context holds 8192; shorten it or load .* with a larger contextLength/);
  });
});

test('a model with windows goes back by any distance, and holds K and V of few positions', async t => {
  const path = `${vectors}archs/gemma3.gguf`;
  const { memory } = await Plumb.preflight(path, { contextLength: 4096 });
  // A position takes 2 heads of 16 + 16 codes and 2 scales.  6 of the 7 layers have a window of 3.
  assert.equal(memory.kv, (6 * 1024 + 4096) * 2 * ((16 + 16) * 2 + 2 * 4));

  const model = await Plumb.load(path, { contextLength: 4096 });
  t.after(() => model.close());
  const ids = Array.from({ length: 3500 }, (_, i) => (i * 37 + 5) % 64);
  const early = await model.feed(ids.slice(0, 2400)), late = await model.feed(ids.slice(2400, 3300));
  await model.feed(ids.slice(3300));
  for (const [position, logits] of /** @type {const} */ ([[3299, late], [2399, early], [2399, early]])) {
    await model.rewind(position);
    assert.deepEqual(await model.step(ids[position]), logits);
  }

  await model.feed(ids.slice(2400));
  const stop = new AbortController(), stopped = model.rewind(2399, { signal: stop.signal });
  stop.abort();
  await assert.rejects(stopped, { name: 'AbortError' });
  await fails(model.rewind(2399), 'PLUMB_ERROR_ARGUMENT', /only \d+ are in the cache/);
  await fails(model.rewind(0, /** @type {any} */ ({ signal: 1 })), 'PLUMB_ERROR_ARGUMENT', /rewind: signal is 1/);
});

describe('a tiny model', () => {
  /** @type {import('../../web/api/plumb.js').Model} */
  let model;
  before(async () => { model = await Plumb.load(tinyPath, { contextLength: 40 }); });
  after(() => model.close());
  const ids = [72, 101, 13, 255, 0, 97, 97, 32, 259, 199, 3, 128, 64, 250, 17, 77, 140, 201, 88, 5, 222, 33, 111, 60];

  test('24 steps give llama.cpp\'s logits', async () => {
    const words = readFileSync(tinyPath.replace('.gguf', '.bin'));
    const floats = new Float32Array(words.buffer, words.byteOffset, words.byteLength / 4);
    const header = floats.length - ids.length * 261;
    for (const [i, id] of ids.entries()) {
      const logits = await model.step(id);
      const expected = floats.subarray(header + 261 * i + 1, header + 261 * (i + 1));   // after the logsumexp
      const sum = (/** @type {(i: number) => number} */ f) => logits.reduce((total, _, j) => total + f(j) ** 2, 0);
      const rms = Math.sqrt(sum(j => logits[j] - expected[j]) / sum(j => expected[j]));
      assert.ok(rms < 1e-3, `token ${i}: relative RMS ${rms}`);
    }
  });

  test('after rewind the same step gives the same logits', async () => {
    await model.rewind();
    const straight = await model.feed(ids);
    await model.rewind(10);
    assert.deepEqual(await model.feed(ids.slice(10)), straight);
    await fails(model.rewind(25), 'PLUMB_ERROR_ARGUMENT', /25/);
    for (const position of [-1, 1.5, NaN]) await fails(model.rewind(position), 'PLUMB_ERROR_ARGUMENT', /position is/);
  });

  test('in a full context the text ends with reason length, and a step is an error', async () => {
    await model.rewind();
    const text = model.generate(ids, { temperature: 0, logitBias: { 256: -Infinity } });
    await textOf(text);
    assert.deepEqual([model.lastStats?.finishReason, model.lastStats?.tokens], ['length', 40 - ids.length + 1]);
    await fails(model.step(1), 'PLUMB_ERROR_CONTEXT', /40/);
  });

  test('without a template a chat is put into ChatML, and a warning says so', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    await textOf(model.generate('Hi', { maxTokens: 2 }));
    assert.deepEqual(model.warnings.filter(({ code }) => code === 'template'), []);
    assert.equal(await model.applyChatTemplate(messages), '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n');
    await fails(model.generate(messages).next(), 'PLUMB_ERROR_CONTEXT', /the prompt has 52 tokens/);
    const [{ message }] = model.warnings.filter(({ code }) => code === 'template');
    assert.match(message, /no tokenizer\.chat_template, so that chats are put into ChatML, as in llama\.cpp/);
  });

  test('invalid arguments are refused', async () => {
    const generate = (prompt, options) => model.generate(prompt, options).next();
    for (const [action, message, code = 'PLUMB_ERROR_ARGUMENT'] of [
      [() => generate('Hi', { maxtokens: 3 }), /unknown option "maxtokens"/],
      [() => generate('Hi', { maxTokens: 0 }), /maxTokens is 0/],
      [() => generate('Hi', { temperature: '1' }), /temperature is "1", expected a number/],
      [() => generate('Hi', { temperature: NaN }), /temperature/],
      [() => generate('Hi', { topP: 1.5 }), /topP is 1.5/],
      [() => generate('Hi', { topK: -1 }), /topK is -1/],
      [() => generate('Hi', { stop: '' }), /stop is ""/],
      [() => generate('Hi', { stop: [1] }), /stop is an array/],
      [() => generate('Hi', { seed: -1 }), /seed is -1/],
      [() => generate('Hi', { logitBias: { x: 1 } }), /logitBias/],
      [() => generate('Hi', { logitBias: { 260: 1 } }), /bias token is outside the vocabulary/],
      [() => generate(''), /the prompt is empty/],
      [() => generate([]), /expected messages|messages\[0\].* expected/],
      [() => generate([{ content: 'Hi' }]), /expected messages|messages\[0\].* expected/],
      [() => generate(undefined), /expected messages|messages\[0\].* expected/],
      [() => generate([1, 1.5]), /token 1 is 1.5/],
      [() => generate([260]), /260/, 'PLUMB_ERROR_TOKEN'],
      [() => model.feed([260]), /260/, 'PLUMB_ERROR_TOKEN'],
      [() => model.feed([]), /no tokens/],
      [() => model.feed([-1]), /token 0 is -1/],
      [() => model.feed([2 ** 31]), /token 0 is 2147483648, expected an integer from 0 to 2\^31 - 1/],
      [() => model.feed([2 ** 31 - 1]), /token 2147483647 at index 0 is not in 0\.\.259/, 'PLUMB_ERROR_TOKEN'],
      [() => model.tokenize(5), /number/],
      [() => model.tokenize('', { special: true }), /unknown option "special"/],
      [() => model.detokenize([300]), /300/, 'PLUMB_ERROR_TOKEN'],
    ]) await fails(action, code, message);
  });

  test('calls wait for each other', async () => {
    await model.rewind();
    const alone = await model.feed(ids.slice(0, 8));
    await model.rewind();
    const halves = [ids.slice(0, 4), ids.slice(4, 8)];
    const [, logits] = await Promise.all([...halves.map(half => model.feed(half)), model.tokenize('Hi')]);
    assert.deepEqual(logits, alone);
  });

  test('many calls at once cause no warning of Node', async t => {
    const said = [];
    const listen = warning => said.push(warning.message);
    process.on('warning', listen);
    t.after(() => process.off('warning', listen));
    await Promise.all(Array.from({ length: 20 }, () => model.tokenize('Hi')));
    await new Promise(resolve => setImmediate(resolve));
    assert.deepEqual(said, []);
  });
});

for (const worker of [false, true]) {
  test(`closing ${worker ? 'a worker' : 'in this thread'} ends running calls; later calls say so`, async () => {
    const model = await Plumb.load(tinyPath, { worker });
    const text = model.generate('Hello', { logitBias: { 256: -Infinity } });
    await text.next();
    await model.close();
    await model.close();
    await textOf(text);
    assert.equal(model.lastStats?.finishReason, 'abort');
    await fails(model.tokenize('Hi'), 'PLUMB_ERROR_STATE', /the model is closed/);
    await fails(model.generate('Hi').next(), 'PLUMB_ERROR_STATE', /the model is closed/);
  });
}

test('an embedding model loads, and says what it is where logits are needed', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-embedding-')), path = join(folder, 'bert.gguf');
  t.after(() => rmSync(folder, { recursive: true }));
  // The file of the model begins after two bytes of checks.
  writeFileSync(path, readFileSync(`${root}tests/fuzz/corpus/model/bert`).subarray(2));
  const model = await Plumb.load(path);
  t.after(() => model.close());
  assert.equal((await model.info()).architecture, 'bert');
  const says = /bert is an embedding model: it computes embeddings of texts, and no logits/;
  await fails(model.generate('ab').next(), 'PLUMB_ERROR_UNSUPPORTED', says);
  await fails(model.feed([1, 2]), 'PLUMB_ERROR_UNSUPPORTED', says);
  assert.equal((await Plumb.preflight(path)).hasLogits, false);
  const { taps } = await model.trace('ab');
  assert.ok(taps.some(tap => tap.name === 'result_norm') && !taps.some(tap => tap.name === 'result_output'));
});

test('the README\'s code for the likeliest token works for any vocabulary size', () => {
  const line = /const best = (.*);/.exec(readFileSync(`${root}web/README.md`, 'utf8'))?.[1];
  const logits = new Float32Array(2 ** 18).fill(-1);
  logits[200000] = 3;
  assert.equal(new Function('logits', `return ${line};`)(logits), 200000);
});

test('every option out of its range is refused with the range, by each call that takes it', async t => {
  const model = await Plumb.load(tinyPath);
  t.after(() => model.close());
  const chat = model.chat(), user = { role: 'user', content: 'x' };
  const ROLES = '"system", "developer", "user", "assistant", "tool"';
  /** Values that no number option accepts, and values out of its range. */
  const none = [NaN, Infinity, -Infinity, '1', null, {}];
  const ranges = {
    temperature: [[-1, -1e-9, 1e7], 'a number from 0 to 1000000'],
    topK: [[-1, 1.5, 2 ** 31], 'an integer from 0 to 2147483647'],
    topP: [[-0.1, 1.1], 'a number from 0 to 1'],
    minP: [[-0.1, 1.1], 'a number from 0 to 1'],
    typicalP: [[-0.1, 1.1], 'a number from 0 to 1'],
    repeatPenalty: [[0, -1, 1e7], 'a number from 0.000001 to 1000000'],
    presencePenalty: [[-1e7, 1e7], 'a number from -1000000 to 1000000'],
    frequencyPenalty: [[-1e7, 1e7], 'a number from -1000000 to 1000000'],
    penaltyLastN: [[-1, 0.5, 2 ** 24 + 1], 'an integer from 0 to 16777216'],
    seed: [[-1, 0.5, 2 ** 53, -1n, 1n << 64n], 'an integer from 0 to 2\\^53 - 1, or a BigInt from 0 to 2\\^64 - 1'],
    maxTokens: [[0, -1, 1.5], 'a positive integer'],
    logprobs: [[-1, 0.5, 21], 'an integer from 0 to 20'],
    logitBias: [[5, 'x', { 5: NaN }, { 5: Infinity }, { '-1': 0 }, { 2147483648: 0 }],
      'an object or Map that maps token'],
  };
  for (const [name, [wrong, range]] of Object.entries(ranges)) {
    for (const value of [...wrong, ...none.filter(one => name !== 'logitBias' || typeof one !== 'object' || !one)]) {
      const options = { [name]: value }, message = new RegExp(`${name} is .*, expected ${range}`);
      await fails(model.generate('x', options).next(), 'PLUMB_ERROR_ARGUMENT', message);
      await fails(chat.send('x', options).next(), 'PLUMB_ERROR_ARGUMENT', message);
      await fails(async () => model.chat(options), 'PLUMB_ERROR_ARGUMENT', message);
    }
  }
  for (const [name, high] of [['top_p', 1], ['min_p', 1], ['typical_p', 1], ['temperature', 2], ['repeat_penalty', 1e6],
    ['presence_penalty', 2], ['frequency_penalty', 2]]) {
    for (const value of [high + 0.5, -3, NaN, Infinity, '1']) {
      await fails(model.chat.completions.create({ messages: [user], [name]: value }), 'PLUMB_ERROR_ARGUMENT',
        new RegExp(`${name} is .*, expected a number from .* to ${high}`));
    }
  }
  for (const value of [-1, 1.5, 2 ** 31]) {
    await fails(model.chat.completions.create({ messages: [user], top_k: value }), 'PLUMB_ERROR_ARGUMENT',
      /top_k is .*, expected an integer from 0 to 2147483647/);
  }
  for (const role of ['banana', '', 'User', 5, undefined, null]) {
    const messages = [user, { role, content: 'x' }];
    const message = new RegExp(`messages\\[1\\].role is .*, expected one of ${ROLES}`);
    await fails(model.generate(messages).next(), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(model.trace(messages), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(model.applyChatTemplate(messages), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(model.tokenizeChat(messages), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(chat.send(messages).next(), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(async () => model.chat({ messages }), 'PLUMB_ERROR_ARGUMENT', message);
    await fails(model.chat.completions.create({ messages }), 'PLUMB_ERROR_ARGUMENT', message);
  }
  for (const [options, message] of [
    [{ values: -1 }, /values is -1, expected an integer from 0 to 2\^32 - 1, or Infinity/],
    [{ values: 2 ** 32 }, /values is 4294967296, expected an integer from 0 to 2\^32 - 1/],
    [{ layers: [0, 2 ** 32] }, /layers is an array, expected a pair of layers/],
    [{ layers: [2, 1] }, /layers is an array, expected a pair of layers/],
    [{ template: { addGenerationPrompt: 1 } }, /template is an object, expected .* is true or false/],
  ]) await fails(model.trace('x', options), 'PLUMB_ERROR_ARGUMENT', message);
  await fails(model.tokenizeChat([user], { addGenerationPrompt: 'no' }), 'PLUMB_ERROR_ARGUMENT', /true or false/);
  await fails(model.tokenize('x', { addSpecial: 1 }), 'PLUMB_ERROR_ARGUMENT', /addSpecial is 1, expected true/);
  for (const position of [-1, 0.5, NaN, 2 ** 31, 2 ** 32 + 1]) {
    await fails(model.rewind(position), 'PLUMB_ERROR_ARGUMENT', /position is .*, expected .* 0 to 2147483647/);
  }
});
