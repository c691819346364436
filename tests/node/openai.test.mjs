/** Ground truth: OpenAI's own package.  Our results must have its types, and its client, which checks and joins chunks,
 * must read our streams. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Theirs from 'openai';
import Ours from '../../web/node/openai.js';
import { compiles, prompts, realPath } from './helpers.mjs';

/** Code as users write it, except for the import. */
const SAMPLE = `
const client = new OpenAI();
const tools: Theirs.ChatCompletionTool[] = [{ type: 'function', function: { name: 'now', parameters: {} } }];
const messages: Theirs.ChatCompletionMessageParam[] = [{ role: 'user', content: 'Hi' }];
const params = { model: 'm', messages: [{ role: 'user' as const, content: 'Hi' }], temperature: 0, seed: 1,
  max_completion_tokens: 5, logprobs: true, top_logprobs: 2, stop: ['x'], logit_bias: { '5': 1 }, n: 1 as const,
  tool_choice: 'auto' as const, response_format: { type: 'text' as const } };
const whole: Theirs.ChatCompletion = await client.chat.completions.create(params);
const text: string | null = whole.choices[0].message.content;
const signal = new AbortController().signal;
const streamed = { ...params, stream: true as const, stream_options: { include_usage: true } };
const stream = await client.chat.completions.create(streamed, { signal });
for await (const chunk of stream) {
  const one: Theirs.ChatCompletionChunk = chunk;
  const piece: string | null | undefined = chunk.choices[0]?.delta?.content;
  if (!one || !piece) stream.controller.abort();
}
messages.push(whole.choices[0].message);
for (const call of whole.choices[0].message.tool_calls ?? []) {
  if (call.type !== 'function') continue;
  messages.push({ role: 'tool', tool_call_id: call.id, content: call.function.arguments });
}
export { text, tools };
`;

test('code for OpenAI\'s package compiles with plumb-llm/openai, and the results have its types', t => {
  compiles(t, Object.fromEntries([['theirs', 'openai'], ['ours', '../../web/openai.js']].map(([name, from]) =>
    [`${name}.mts`, `import Theirs from 'openai';\nimport OpenAI from '${from}';\n${SAMPLE}`])));
});

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
