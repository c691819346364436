/** Ground truth: OpenAI's own package.  Our results must have its types, and its client, which checks and joins chunks,
 * must read our streams. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Theirs from 'openai';
import Ours from '../../web/node/openai.js';
import { prompts, realPath } from './helpers.mjs';

test('OpenAI\'s client joins our chunks to our complete answer', async t => {
  const ours = new Ours({ models: { smol: realPath }, load: { precision: 'exact16' } });
  t.after(() => ours.close());
  const params = { model: 'smol', messages: prompts[1].messages, temperature: 0, max_tokens: 20, logprobs: true };
  const whole = await ours.chat.completions.create({ ...params, top_logprobs: 2 });
  const theirs = new Theirs({
    apiKey: 'none',
    /** Replaces the server: it answers with our chunks. @type {typeof fetch} */
    fetch: async (_, request) => {
      const stream = await ours.chat.completions.create(JSON.parse(String(request?.body)));
      const lines = [];
      for await (const chunk of stream) lines.push(`data: ${JSON.stringify(chunk)}\n\n`);
      const headers = { 'content-type': 'text/event-stream' };
      return new Response([...lines, 'data: [DONE]\n\n'].join(''), { headers });
    },
  });
  const joined = await theirs.chat.completions.stream({
    ...params, top_logprobs: 2, stream_options: { include_usage: true },
  }).finalChatCompletion();
  const [{ message: { parsed, ...message }, ...choice }] = joined.choices;
  assert.equal(parsed, null);
  assert.deepEqual([{ ...choice, message }], whole.choices);
  assert.deepEqual({ ...joined.usage, prompt_tokens_details: {} }, { ...whole.usage, prompt_tokens_details: {} });
  assert.deepEqual([joined.object, joined.model, joined.system_fingerprint],
    [whole.object, whole.model, whole.system_fingerprint]);
});
