/** T5: an encoder that reads the prompt, and a decoder that writes about it.  Ground truth: llama.cpp's greedy tokens
 * of tests/vectors/archs. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { fails, root } from './helpers.mjs';

const archs = `${root}tests/vectors/archs/`, PROMPT = 'the cat, sat on a mat?';
const EOS = 1;

/** The prompt's tokens and the choices of t5-gated.greedy (tests/vectors/llama/logits.c has the layout). */
function truth() {
  const file = readFileSync(`${archs}t5-gated.greedy`), word = i => file.readUInt32LE(4 * i);
  const [tokens, records, top] = [word(3), word(4), word(7)], at = 8 + tokens;
  const choices = Array.from({ length: records }, (_, i) => word(at + i * (1 + 2 * top) + 1));
  return { prompt: Array.from({ length: tokens - records + 1 }, (_, i) => word(8 + i)), choices };
}

describe('a decoder writes about the prompt that an encoder reads', () => {
  const { prompt, choices } = truth(), text = choices.slice(0, choices.indexOf(EOS));
  for (const worker of [true, false]) {
    describe(worker ? 'in a worker' : 'in the caller\'s thread', () => {
      /** @type {Plumb} */
      let model;
      before(async () => { model = await Plumb.load(`${archs}t5-gated.gguf`, { worker }); });
      after(() => model?.close());

      test('the prompt ends in EOS, and the greedy text is llama.cpp\'s', async () => {
        assert.deepEqual([...await model.tokenize(PROMPT, { addSpecial: true })], prompt);
        assert.equal(prompt.at(-1), EOS);
        let written = '';
        for await (const piece of model.generate(PROMPT, { temperature: 0 })) written += piece;
        assert.equal(written, await model.detokenize(text));
        const { promptTokens, reusedTokens, tokens, finishReason } = model.lastStats;
        assert.deepEqual({ promptTokens, reusedTokens, tokens, finishReason },
          { promptTokens: prompt.length, reusedTokens: 0, tokens: text.length, finishReason: 'stop' });
      });

      test('the encoder reads a prompt once, and another one anew', async () => {
        const write = async (/** @type {string | Int32Array} */ input) => {
          let written = '';
          for await (const piece of model.generate(input, { temperature: 0, maxTokens: 20 })) written += piece;
          return { written, reused: model.lastStats.reusedTokens };
        };
        const first = await write(Int32Array.from(prompt));
        assert.deepEqual(first, { written: await model.detokenize(text), reused: prompt.length });
        const other = await write('a hat');
        assert.ok(other.reused === 0 && other.written !== first.written);
        assert.deepEqual(await write(PROMPT), { ...first, reused: 0 });
        await model.embed(PROMPT, { pooling: 'mean' });
        assert.deepEqual(await write(PROMPT), { ...first, reused: 0 });
      });

      test('a trace has the steps of the encoder and of the decoder, which read the same tokens', async () => {
        const { taps } = await model.trace(PROMPT);
        const names = new Set(taps.map(({ name, layer }) => layer >= 0 ? `${name}-${layer}` : name));
        for (const name of ['enc_embd', 'embd', 'attn_norm-0', 'enc_result_norm-2', 'kqv_out-3', 'Kcur-4', 'ffn_out-6',
          'result_output']) assert.ok(names.has(name), name);
        assert.ok(!names.has('ffn_out-3'));   // attention of the decoder to itself
      });

      test('what it cannot do is said', async () => {
        const { hasEncoder, decoderStart, layers } = await model.info();
        assert.deepEqual({ hasEncoder, decoderStart, layers }, { hasEncoder: true, decoderStart: 3, layers: 7 });
        await fails(() => model.generate([{ role: 'user', content: 'hello' }]).next(), 'PLUMB_ERROR_TEMPLATE',
          /the file has no tokenizer.chat_template; use a string prompt instead/);
        await fails(() => model.generate(new Int32Array(65).fill(7)).next(), 'PLUMB_ERROR_CONTEXT',
          /the prompt has 65 tokens, but the context holds 64/);
      });
    });
  }

  test('preflight measures the encoder and the decoder', async () => {
    const plan = await Plumb.preflight(`${archs}t5-gated.gguf`);
    assert.ok(plan.supported && plan.hasLogits && plan.speed.prefill > 0 && plan.speed.decode > 0);
  });
});
