/* Code for OpenAI's package compiles with plumb-llm/openai, and the results have its types. */
import Theirs from 'openai';
import OpenAI from '../../web/openai.js';
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
