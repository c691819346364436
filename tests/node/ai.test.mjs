/** plumb-llm/ai.  Ground truth: the AI SDK itself, with whose functions users call it, and its types. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  embedMany, experimental_decide as decide, generateText, isStepCount, jsonSchema, Output, streamText, tool,
} from 'ai';
import { createPlumb } from '../../web/node/ai.js';
import { Plumb } from '../../web/node/index.js';
import { fails, realPath, root } from './helpers.mjs';

const LOAD = { threads: 1, worker: false, contextLength: 512 };
const plumb = createPlumb({ models: { smol: realPath, mini: `${root}models/all-MiniLM-L6-v2.Q8_0.gguf` }, load: LOAD });
const model = await Plumb.load(realPath, LOAD);
test.after(() => Promise.all([plumb.close(), model.close()]));
const ONE = { seed: 1, maxOutputTokens: 200, providerOptions: { plumb: { parallel_tool_calls: false } } };
const ask = content => [{ role: 'user', content }];
const city = jsonSchema({ type: 'object', additionalProperties: false, required: ['name', 'big'],
  properties: { name: { enum: ['Rome', 'Paris'] }, big: { type: 'boolean' } } });

test('generateText and streamText give the text, usage and finish reason of chat.completions', async () => {
  const prompt = 'Name three colours.', options = { model: plumb('smol'), prompt, temperature: 0, maxOutputTokens: 12 };
  const { choices: [choice], usage } = await model.chat.completions.create({ messages: ask(prompt), temperature: 0,
    max_tokens: 12 });
  const whole = await generateText(options);
  assert.equal(whole.text, choice.message.content);
  assert.equal(whole.finishReason, 'length');
  assert.deepEqual([whole.usage.inputTokens, whole.usage.outputTokens, whole.usage.totalTokens],
    [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]);
  const streamed = streamText(options), pieces = [];
  for await (const piece of streamed.textStream) pieces.push(piece);
  assert.equal(pieces.join(''), whole.text);
  assert.ok(pieces.length > 3);
  assert.equal(await streamed.finishReason, 'length');
  assert.equal((await streamed.usage).outputTokens, 12);
  const short = await generateText({ ...options, system: 'Be brief.', stopSequences: [' '], seed: 1,
    providerOptions: { plumb: { min_p: 0.1 } } });
  assert.ok(!short.text.includes(' ') && short.finishReason === 'stop');
});

test('Output.object binds the answer to the schema', async () => {
  const options = { model: plumb('smol'), prompt: 'Describe a city as JSON.', output: Output.object({ schema: city }) };
  const { output } = await generateText({ ...options, ...ONE });
  assert.ok(['Rome', 'Paris'].includes(output.name) && typeof output.big === 'boolean');
  const streamed = streamText({ ...options, ...ONE });
  assert.equal(typeof (await streamed.output).big, 'boolean');
});

test('tools are called, and their results come back to the model', async () => {
  const given = [];
  const weather = tool({ description: 'Says the weather of a city.', inputSchema: city,
    execute: async input => { given.push(input); return { degrees: 21 }; } });
  for (const toolChoice of ['required', { type: 'tool', toolName: 'weather' }]) {
    const { toolCalls, toolResults } = await generateText({ model: plumb('smol'), tools: { weather }, toolChoice,
      prompt: 'The weather of Rome?', ...ONE });
    assert.ok(toolCalls.length > 0 && toolCalls.every(({ toolName }) => toolName === 'weather'));
    assert.ok(toolCalls.every(({ input }) => ['Rome', 'Paris'].includes(input.name)));
    assert.deepEqual(toolResults[0].output, { degrees: 21 });
  }
  assert.equal(given.length, 2);
  const streamed = streamText({ model: plumb('smol'), tools: { weather }, toolChoice: 'required',
    prompt: 'The weather of Rome?', ...ONE });
  assert.equal((await streamed.toolCalls)[0].toolName, 'weather');
  assert.equal(await streamed.finishReason, 'tool-calls');
  const { text, steps } = await generateText({ model: plumb('smol'), tools: { weather }, ...ONE,
    prompt: 'The weather of Rome?', stopWhen: isStepCount(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }) });
  assert.equal(steps.length, 2);
  assert.ok(text.length > 0);
});

test('embedMany gives the vectors of model.embed', async () => {
  const values = ['a cat', 'a dog'];
  const { embeddings, usage } = await embedMany({ model: plumb.embeddingModel('mini'), values });
  const encoder = await Plumb.load(`${root}models/all-MiniLM-L6-v2.Q8_0.gguf`, LOAD);
  assert.deepEqual(embeddings, (await encoder.embed(values)).map(vector => [...vector]));
  assert.equal(usage.tokens, 8);
  await encoder.close();
});

test('decide gives the numbers of model.decide', async () => {
  const questions = {
    refund: { type: 'boolean', instructions: 'Does the customer ask for a refund?' },
    team: { type: 'choice', instructions: 'Which team?', criteria: { billing: null, technical: 'errors' } },
    anger: { type: 'score', instructions: 'How angry?', criteria: ['calm', 'angry'] },
  };
  const { answers } = await decide({ model: plumb.decisionModel('smol'), state: 'I want my money back.', questions });
  const expected = (await model.decide('I want my money back.', {
    refund: questions.refund,
    team: { type: 'choice', instructions: 'Which team?', choices: ['billing',
      { value: 'technical', description: 'errors' }] },
    anger: { type: 'score', instructions: 'How angry?', levels: [{ value: '0', description: 'calm' },
      { value: '1', description: 'angry' }] },
  })).answers;
  assert.equal(answers.refund.probability, expected.refund.probability);
  assert.deepEqual(answers.team.probabilities, expected.team.probabilities);
  assert.equal(answers.team.choice, expected.team.value);
  assert.equal(answers.anger.score, expected.anger.value);
});

test('a signal ends an answer, and what models cannot do is an error', async () => {
  const abort = new AbortController();
  const { textStream } = streamText({ model: plumb('smol'), prompt: 'Count to a thousand.', abortSignal: abort.signal,
    onError() {} });
  let n = 0;
  for await (const _ of textStream) if (++n === 3) abort.abort();
  assert.ok(n < 30, `${n} pieces`);
  const image = [{ role: 'user', content: [{ type: 'file', mediaType: 'image/png', data: new Uint8Array(4) }] }];
  await fails(() => generateText({ model: plumb('smol'), messages: image, maxRetries: 0 }), 'PLUMB_ERROR_ARGUMENT',
    /^ai: a message has a part of type file; models read text only$/);
  assert.throws(() => plumb.imageModel('x'), /^PlumbError: ai: x is no model of images/);
});

test('the example of the guide answers', async t => {
  const guide = readFileSync(`${root}web/README.md`, 'utf8');
  const [, code] = /## The AI SDK\n\n```ts\n([^]*?)```/.exec(guide);
  const folder = mkdtempSync(join(root, 'build', 'ai-example-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'example.mjs'), `${code.replace('plumb-llm/ai', '../../web/node/ai.js')
    .replace('models/', realPath.replace(/[^/]*$/, ''))}\nexport { text, plumb };\n`);
  const { text, plumb } = await import(join(folder, 'example.mjs'));
  assert.ok(text.length > 0);
  await plumb.close();
});
