/** plumb-llm/prompt-api.  Ground truth: the types of the Prompt API (@types/dom-chromium-ai), and a chat of a model. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { Plumb } from '../../web/node/index.js';
import { createLanguageModel } from '../../web/node/prompt-api.js';
import { realPath, tiny } from './helpers.mjs';

const LOAD = { threads: 1, worker: false, contextLength: 512 };
const LanguageModel = createLanguageModel(realPath, LOAD);
const GREEDY = { samplingMode: 'most-predictable' };
const rejects = (action, name, message) => assert.rejects(action, error => {
  assert.deepEqual([error.name, message.test(error.message)], [name, true], `${error.name}: ${error.message}`);
  return true;
});
/** The first n pieces of a stream. */
async function some(stream, n) {
  const reader = stream.getReader(), pieces = [];
  while (pieces.length < n) pieces.push((await reader.read()).value);
  await reader.cancel();
  return pieces.join('');
}
const short = { responseConstraint: /[A-Za-z ,.!?']{1,40}/, };

test('a model is available, and its load is reported', async () => {
  assert.equal(await LanguageModel.availability(), 'available');
  assert.equal(await LanguageModel.availability({ expectedInputs: [{ type: 'image' }] }), 'unavailable');
  assert.equal(await createLanguageModel(new Blob(['no model'])).availability(), 'unavailable');
  assert.equal(await createLanguageModel('http://127.0.0.1:1/none.gguf').availability(), 'unavailable');
  const seen = [], other = createLanguageModel(new Blob([tiny]), LOAD);
  const session = await other.create({ monitor: monitor => {
    monitor.addEventListener('downloadprogress', ({ loaded, total }) => seen.push([loaded, total]));
    monitor.ondownloadprogress = ({ loaded }) => seen.push([loaded, 1]);
  } });
  assert.deepEqual([seen[0], seen.at(-1)], [[0, 1], [1, 1]]);
  assert.ok(seen.every(([loaded], i) => i < 2 || loaded >= seen[i - 2][0]));
  session.destroy();
});

test('answers are those of a chat, which each prompt goes on with', async () => {
  const initialPrompts = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Hello!' },
    { role: 'assistant', content: 'Hi.' }];
  const session = await LanguageModel.create({ ...GREEDY, initialPrompts });
  const model = await Plumb.load(realPath, LOAD), chat = model.chat({ messages: initialPrompts, temperature: 0 });
  const usage = await model.tokenizeChat(initialPrompts, { addGenerationPrompt: false, continueFinalMessage: false });
  assert.equal(session.contextUsage, usage.length);
  assert.equal(session.contextWindow, 512);
  const regex = short.responseConstraint.source;
  const expected = await chat.send('Name a fruit.', { regex });
  const measured = await session.measureContextUsage('Name a fruit.');
  assert.ok(measured > 5 && measured < 30, `${measured}`);
  assert.equal(await session.prompt('Name a fruit.', short), expected);
  assert.ok(session.contextUsage > usage.length + measured);

  await session.append([{ role: 'user', content: [{ type: 'text', value: 'I like it.' }] }]);
  const copy = await session.clone(), second = await session.prompt('Another?', short);
  assert.equal(await copy.prompt('Another?', short), second);
  const pieces = [];
  for await (const piece of copy.promptStreaming('And a colour?', short)) pieces.push(piece);
  assert.equal(pieces.join(''), await session.prompt('And a colour?', short));
  assert.ok(pieces.length > 1);
  copy.destroy();
  session.destroy();
  await model.close();
});

test('constraints bind an answer, which may be begun', async () => {
  const session = await LanguageModel.create();
  const schema = { type: 'object', required: ['city'], properties: { city: { enum: ['Rome', 'Paris'] } },
    additionalProperties: false };
  for (const omitResponseConstraintInput of [false, true]) {
    const text = await session.prompt('A city as JSON.', { responseConstraint: schema, omitResponseConstraintInput });
    assert.ok(['Rome', 'Paris'].includes(JSON.parse(text).city), text);
  }
  assert.match(await session.prompt('Yes or no?', { responseConstraint: /yes|no/ }), /^(yes|no)$/);
  const begun = [{ role: 'user', content: 'A fruit?' }, { role: 'assistant', content: 'A fruit is an', prefix: true }];
  assert.match(await session.prompt(begun, { responseConstraint: / (apple|orange)/ }), /^ (apple|orange)$/);
  assert.equal(await session.measureContextUsage([]), 0);
  session.destroy();
});

test('signals and destroy end what is running, and the session is as before', async () => {
  const session = await LanguageModel.create(GREEDY), reason = new Error('enough'), abort = new AbortController();
  const running = session.prompt('Count to a thousand.', { signal: abort.signal });
  setTimeout(() => abort.abort(reason), 100);
  await assert.rejects(running, reason);
  assert.equal(session.contextUsage, 0);
  await assert.rejects(session.prompt('a', { signal: AbortSignal.abort(reason) }), reason);
  await assert.rejects(LanguageModel.create({ signal: AbortSignal.abort(reason) }), reason);
  assert.ok((await some(session.promptStreaming('Tell a story.'), 3)).length > 0);
  assert.equal(session.contextUsage, 0, 'a stream that was cancelled leaves nothing');
  const both = await Promise.all([session.prompt('A?', short), session.prompt('B?', short)]);
  assert.equal(both.length, 2);
  const last = session.prompt('Count to a thousand.');
  setTimeout(() => session.destroy(), 50);
  await rejects(last, 'AbortError', /destroyed/);
  await rejects(session.prompt('a'), 'InvalidStateError', /destroyed/);
  await rejects(session.clone(), 'InvalidStateError', /destroyed/);
});

test('a full context drops the oldest messages but the initial ones, with an event', async () => {
  const session = await LanguageModel.create({ initialPrompts: [{ role: 'system', content: 'Be brief.' }] });
  let events = 0, calls = 0;
  session.addEventListener('contextoverflow', () => events++);
  session.oncontextoverflow = () => calls++;
  for (let i = 0; i < 4; i++) await session.append('word '.repeat(150));
  assert.ok(events > 0 && calls === events);
  assert.ok(session.contextUsage < 512 && session.contextUsage > 300);
  const before = session.contextUsage;
  await rejects(session.append('word '.repeat(600)), 'QuotaExceededError', /needs 6\d\d tokens, .* holds 512/);
  await rejects(session.prompt('word '.repeat(600)), 'QuotaExceededError', /tokens/);
  assert.equal(session.contextUsage, before);
  session.destroy();
});

test('what the API forbids or models cannot do is refused', async () => {
  await rejects(LanguageModel.create({ samplingMode: 'balanced', topK: 3 }), 'TypeError', /samplingMode excludes/);
  await rejects(LanguageModel.create({ tools: [{ name: 'a' }] }), 'NotSupportedError', /without tools/);
  await rejects(LanguageModel.create({ expectedOutputs: [{ type: 'audio' }] }), 'NotSupportedError', /text/);
  const late = [{ role: 'user', content: 'a' }, { role: 'system', content: 'b' }];
  await rejects(LanguageModel.create({ initialPrompts: late }), 'TypeError', /must be the first/);
  const session = await LanguageModel.create({ temperature: 0.5, topK: 3 });
  await rejects(session.prompt([{ role: 'system', content: 'b' }]), 'NotSupportedError', /use initialPrompts/);
  await rejects(session.prompt([{ role: 'x', content: 'b' }]), 'TypeError', /unknown role x/);
  await rejects(session.prompt([{ role: 'user', content: [{ type: 'image', value: new Blob() }] }]),
    'NotSupportedError', /not image/);
  assert.ok((await session.prompt({}, short)).length > 0, 'anything else is a string');
  session.destroy();
});

test('the last session frees the model, and the next one loads it again', async () => {
  const Other = createLanguageModel(new Blob([tiny]), LOAD);
  const first = await Other.create(), second = await first.clone();
  first.destroy();
  first.destroy();
  await second.append('abc');
  second.destroy();
  await wait(50);
  const third = await Other.create();
  await third.append('abc');
  third.destroy();
  // Nothing of it keeps this process alive: a worker that is not ended would.
  const Threaded = createLanguageModel(new Blob([tiny]), { threads: 1 });
  (await Threaded.create()).destroy();
});
