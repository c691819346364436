/** Several sessions of one model: their answers are those that they give alone, whatever the others do. */
import test from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import assert from 'node:assert/strict';
import { Plumb } from '../../web/node/index.js';
import { MOST_SESSIONS, SessionPool } from '../../web/api/pool.js';
import { Engine } from '../../web/engine/engine.js';
import { Session } from '../../web/engine/session.js';
import { fails, realPath, textOf } from './helpers.mjs';
import { smallPath } from './small.mjs';

const SYSTEM = 'You are a careful assistant, and answer in one short sentence. '.repeat(12);
const QUESTIONS = ['What is the capital of France?', 'Name a fruit.', 'Who wrote Faust?', 'Name a planet.'];
const ask = question => [{ role: 'system', content: SYSTEM }, { role: 'user', content: question }];
const GREEDY = { temperature: 0, maxTokens: 20 };

const model = await Plumb.load(smallPath, { threads: 1, worker: false, contextLength: 1024 });
/** @type {string[]} */
const alone = [];
for (const question of QUESTIONS) {
  await model.rewind(0);
  alone.push(await model.generate(ask(question), GREEDY));
}
test.after(() => model.close());

test('sessions answer at the same time what they answer alone, and share the beginning of their prompts', async t => {
  const feeds = [], { feedTogether } = Engine.prototype;
  t.mock.method(Engine.prototype, 'feedTogether', function (/** @type {any[]} */ all) {
    feeds.push(all.length);
    return feedTogether.call(this, all);
  });
  const sessions = await Promise.all(QUESTIONS.map(() => model.session()));
  const texts = await Promise.all(sessions.map((session, i) => session.generate(ask(QUESTIONS[i]), GREEDY)));
  assert.deepEqual(texts, alone);
  assert.ok(feeds.filter(n => n === QUESTIONS.length).length >= 5, `batches of ${feeds.join()} sessions`);
  for (const { lastStats } of sessions) assert.ok(lastStats.reusedTokens > 100, `${lastStats.reusedTokens} reused`);
  assert.equal(model.lastStats.promptTokens, (await model.tokenizeChat(ask(QUESTIONS[3]))).length, 'of its own answer');
  await Promise.all(sessions.map(session => session.close()));
  await fails(textOf(sessions[0].generate('a')), 'PLUMB_ERROR_STATE', /^the session is closed$/);
});

test('a fork goes on from what its session holds, and both are independent', async () => {
  const first = await model.session({ contextLength: 512 });
  const ids = await model.tokenizeChat(ask(QUESTIONS[1]));
  await first.feed(ids);
  const fork = await first.fork();
  assert.equal((await fork.info()).contextLength, 512);
  assert.deepEqual(await fork.step(5), await first.step(5));
  assert.notDeepEqual(await fork.step(6), await first.step(7));
  await first.close();
  await fork.rewind(ids.length);
  assert.equal(await fork.generate(ids, GREEDY), alone[1]);
  assert.equal(fork.lastStats.reusedTokens, ids.length - 1);
  await fork[Symbol.asyncDispose]();   // what `await using` calls
});

test('one answer that is stopped, one that fails and one that is closed leave the others alone', async () => {
  const [stopped, failing, closed, last] = await Promise.all([1, 2, 3, 4].map(() => model.session()));
  const abort = new AbortController();
  const answers = [
    textOf(stopped.generate(ask(QUESTIONS[0]), { ...GREEDY, maxTokens: 200, signal: abort.signal,
      onToken: () => abort.abort() })),
    failing.feed(Int32Array.of(1, 2 ** 30)).then(() => '', error => error.code),
    textOf(closed.generate(ask(QUESTIONS[2]), { ...GREEDY, maxTokens: 200, onToken: () => { closed.close(); } })),
    textOf(last.generate(ask(QUESTIONS[3]), GREEDY)),
  ];
  const texts = await Promise.all(answers);
  assert.ok(alone[0].startsWith(texts[0]) && texts[0].length < alone[0].length, texts[0]);
  assert.equal(texts[1], 'PLUMB_ERROR_TOKEN');
  assert.equal(texts[3], alone[3]);
  assert.equal(closed.lastStats.finishReason, 'abort');
  await Promise.all([stopped, failing, last].map(session => session.close()));
});

test('if memory ends, what an idle session holds leaves the engine, and comes back with the same bits', async t => {
  const { Memory } = WebAssembly;
  t.after(() => { WebAssembly.Memory = Memory; });
  // The memory of an engine with threads, of as many pages as the model, its session and two others take.
  WebAssembly.Memory = class extends Memory {
    constructor(/** @type {WebAssembly.MemoryDescriptor} */ options) { super({ ...options, maximum: 2800 }); }
  };
  const small = await Plumb.load(realPath, { threads: 2, worker: false, contextLength: 1024 });
  const { save } = Session.prototype;
  let saved = 0;
  t.mock.method(Session.prototype, 'save', function () {
    saved++;
    return save.call(this);
  });
  const sessions = await Promise.all(QUESTIONS.map(() => small.session()));
  const prompts = await Promise.all(['Dogs are', 'Cats are', 'Trees are', 'Stones are'].map((text, i) =>
    small.tokenize(text.repeat(i + 3))));   // nothing that sessions share
  /** @type {Float32Array[]} */
  const logits = [];
  for (const [i, session] of sessions.entries()) logits.push(await session.feed(prompts[i]));
  assert.ok(saved > 0, 'there was memory for all');
  for (const [i, session] of sessions.entries()) {
    await session.rewind(prompts[i].length - 1);
    assert.deepEqual(await session.step(prompts[i].at(-1) ?? 0), logits[i], `session ${i}`);
  }
  assert.ok(saved >= 4, `${saved} times`);
  await small.close();
});

test('chats that take turns compute nothing again, and go on after a restart from what they saved', async () => {
  const chats = [0, 1, 2].map(() => model.chat({ system: SYSTEM, temperature: 0, maxTokens: 10 }));
  for (const [i, chat] of chats.entries()) await chat.send(QUESTIONS[i]);
  await Promise.all(chats.map(async (chat, i) => {
    await chat.send(QUESTIONS[i + 1]);
    const { promptTokens = 0, reusedTokens = 0 } = chat.lastStats ?? {};
    assert.ok(promptTokens - reusedTokens < 30, `chat ${i}: ${reusedTokens} of ${promptTokens} reused`);
  }));
  const [, chat] = chats, { messages } = chat, saved = await chat.save();
  const expected = await chat.send('Why?');
  const other = await Plumb.load(smallPath, { threads: 1, worker: false, contextLength: 1024 });
  const restored = other.chat({ messages, temperature: 0, maxTokens: 10 });
  await restored.restore(saved);
  assert.equal(await restored.send('Why?'), expected);
  const { promptTokens = 0, reusedTokens = 0 } = restored.lastStats ?? {};
  assert.ok(promptTokens - reusedTokens < 30, `${reusedTokens} of ${promptTokens} reused`);
  await other.close();
  for (const one of chats) await one.send('So?');   // others use the session
  assert.equal((await chat.save()).length > 0, true);
});

test('sessions that nobody can use are freed, also those of chats which drop tokens', async t => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc'), closed = [], { closeSession } = Engine.prototype;
  t.mock.method(Engine.prototype, 'closeSession', function (session) {
    closed.push(session);
    return closeSession.call(this, session);
  });
  await (async () => {
    await (await model.session()).feed([1, 2]);
    await model.chat({ contextEnd: 'shift' }).send('Hi', { maxTokens: 1 });
  })();
  for (let i = 0; closed.length < 2 && i < 100; i++) {
    collect();
    await new Promise(resolve => { setTimeout(resolve, 10); });
  }
  assert.equal(closed.length, 2);
});

test('chats that drop tokens take nothing from others: their sessions are their own', async () => {
  const chats = Array.from({ length: MOST_SESSIONS + 1 }, () => model.chat({ contextEnd: 'shift', maxTokens: 1 }));
  for (const chat of chats) await chat.send('Hi');
  assert.equal((await model.chat.completions.create({ messages: ask('Hi'), max_tokens: 1 })).choices.length, 1);
});

test('a chat saves what was computed of it, whatever its model has computed since', async () => {
  const chat = model.chat({ system: SYSTEM, temperature: 0, maxTokens: 4 });
  await chat.send(QUESTIONS[0]);
  await model.generate('Something else, which nobody but its owner may read.', { maxTokens: 2 });
  const saved = await chat.save(), session = await model.session();
  await session.restore(saved);
  const ids = await model.tokenizeChat(chat.messages, { addGenerationPrompt: false });
  await session.generate(ids, { maxTokens: 1 });
  assert.ok(session.lastStats.promptTokens - session.lastStats.reusedTokens < 5, `${session.lastStats.reusedTokens}`);
  await session.close();
});

test('a load with reserve: false takes the memory of its session when tokens come', async () => {
  const sizes = [];
  for (const reserve of [true, false]) {
    const one = await Plumb.load(smallPath, { threads: 1, worker: false, contextLength: 4096, reserve });
    const { sessionBytes } = await one.info();
    assert.equal(await one.generate(ask(QUESTIONS[0]), { ...GREEDY, speculate: false }), alone[0]);
    sizes.push(sessionBytes, (await one.info()).sessionBytes);
    await one.close();
  }
  const [reserved, same, grown, after] = sizes, kv = 4096 * 2 * 2 * 32 * 2;   // tokens, layers, K and V, rows of i16
  assert.equal(reserved, same);
  assert.ok(reserved - grown >= kv, `${reserved} and ${grown} bytes`);
  assert.ok(after > grown && after < grown + kv / 2, `${grown} and ${after} bytes`);
});

/** A pool of numbers instead of sessions. */
function numbered(context = 1000) {
  let opened = 0;
  return new SessionPool(async () => /** @type {any} */ (++opened), async () => context);
}
const prompt = (...ids) => Int32Array.from(ids);

test('a prompt goes on in the session whose last prompt it continues, another one in a new session', async () => {
  const pool = numbered();
  const [a] = await pool.take(prompt(1, 2)), [b] = await pool.take(prompt(1, 2));
  assert.deepEqual([a, b], [1, 2]);
  pool.give(a, prompt(1, 2));
  pool.give(b, prompt(1, 2, 3));
  assert.deepEqual(await pool.take(prompt(1, 2, 3, 4)), [b], 'the longest beginning');
  pool.give(b, prompt(1, 2, 3, 4));
  assert.deepEqual(await pool.take(prompt(1, 5)), [3], 'it continues none');
  assert.deepEqual(await pool.take(prompt(1, 2, 5)), [a]);
  const small = numbered(5);
  const [first] = await small.take(prompt(1, 2)), [second] = await small.take(prompt(3));
  small.give(first, prompt(1, 2));
  small.give(second, prompt(3));
  assert.equal(small.find(prompt(3)), second);
  assert.equal(small.find(prompt(1)), undefined);
  assert.deepEqual(await small.take(prompt(4, 5, 6)), [first], 'with another prompt they were more than one context');
});

test('a pool has its most sessions, and who waits for several gets them in turn', async () => {
  const pool = numbered();
  const all = await pool.take(prompt(1), MOST_SESSIONS);
  /** @type {string[]} */
  const order = [];
  const abort = new AbortController();
  const waiting = [['three', 3], ['gone', 1], ['one', 1]].map(async ([name, n]) => {
    const taken = await pool.take(prompt(2), Number(n), name === 'gone' ? abort.signal : undefined);
    order.push(`${name}: ${taken.join()}`);
  });
  const gone = assert.rejects(waiting[1], /enough/);
  for (const session of all.slice(0, 2)) pool.give(session, prompt(1));
  await new Promise(resolve => { setImmediate(resolve); });
  assert.deepEqual(order, [], 'three are not free');
  abort.abort(new Error('enough'));
  await gone;
  for (const session of all.slice(2, 4)) pool.give(session, prompt(1));
  await Promise.all([waiting[0], waiting[2]]);
  assert.deepEqual(order, ['three: 1,2,3', 'one: 4'], 'the one that was not used for longest comes first');
});

test('a session that cannot be opened takes no place in the pool', async () => {
  let fails = 3;
  const pool = new SessionPool(async () => {
    if (fails-- > 0) throw new Error('no memory');
    return /** @type {any} */ (fails);
  }, async () => 1000);
  await assert.rejects(pool.take(prompt(1), 2), /no memory/);
  await assert.rejects(pool.take(prompt(1), 2), /no memory/);
  assert.equal((await pool.take(prompt(1), MOST_SESSIONS)).length, MOST_SESSIONS);
});
