/** The versions of messages: nothing that was written is lost, whatever one edits, and stored or imported conversations
 * keep them.  Ground truth: a list of all texts that were ever written. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { find, fromJson, newConversation, toJson, toMarkdown, wordsOf } from
  '../../web/chat/conversation/conversation-store.js';
import { everyMessage, placeOf, setAside, turn } from '../../web/chat/conversation/versions.js';

/** A generator of random numbers below n. @param {number} seed */
function random(seed) {
  return n => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor(seed / 2 ** 32 * n);
  };
}
const said = messages => messages.map(({ content }) => content);
const all = messages => said(everyMessage(messages)).sort();

/** Edits, answers and turns at random; returns the conversation and the texts that were written. */
function written(seed, steps = 60) {
  const below = random(seed), texts = [], conversation = newConversation(), { messages } = conversation;
  const add = (role, versions) => {
    const content = `${role} ${texts.length}`;
    texts.push(content);
    messages.push({ role, content, ...versions && { versions } });
  };
  for (let i = 0; i < steps; i++) {
    const index = below(messages.length), { role } = messages[index] ?? {};
    if (!role || below(3) === 0) {
      add('user');
      add('assistant');
    } else if (below(2) === 0) {
      add(role, setAside(messages, index));
      if (role === 'user') add('assistant');
    } else turn(messages, index, below(2) ? 1 : -1);
  }
  return { conversation, texts: texts.sort() };
}

test('whatever is edited, answered again and turned, all texts are there, also after an import', async () => {
  for (let seed = 0; seed < 300; seed++) {
    const { conversation, texts } = written(seed);
    assert.deepEqual(all(conversation.messages), texts, `seed ${seed}`);
    const { fresh: [again], refused } = await fromJson(toJson([conversation]), []);
    assert.equal(refused, 0);
    assert.deepEqual(again.messages, conversation.messages, `seed ${seed}`);
    const { fresh, known } = await fromJson(toJson([conversation]), [again]);
    assert.deepEqual([fresh.length, known], [0, [again]], 'it is there already');
  }
});

test('turning back and forth shows the same messages, and each version keeps those after it', () => {
  const { messages } = newConversation();
  messages.push({ role: 'user', content: 'a' }, { role: 'assistant', content: 'b' }, { role: 'user', content: 'c' });
  const versions = setAside(messages, 0);
  messages.push({ role: 'user', content: 'A', versions }, { role: 'assistant', content: 'B' });
  assert.deepEqual(placeOf(messages[0]), { at: 2, of: 2 });
  turn(messages, 0, -1);
  assert.deepEqual(said(messages), ['a', 'b', 'c', ''], 'a question without an answer has an empty one');
  assert.deepEqual(placeOf(messages[0]), { at: 1, of: 2 });
  turn(messages, 0, -1);
  assert.equal(messages[0].content, 'a', 'there is none before the first');
  turn(messages, 0, 1);
  assert.deepEqual(said(messages), ['A', 'B']);
});

test('an answer without text is no version', () => {
  const messages = [{ role: 'user', content: 'a' }, { role: 'assistant', content: '' }];
  assert.equal(setAside(messages, 1), undefined);
  assert.equal(messages.length, 1);
  messages.push({ role: 'assistant', content: '', steps: [{ calls: [] }] });
  assert.equal(setAside(messages, 1).before.length, 1, 'calls of tools are kept');
});

test('the search finds words of other versions; Markdown has the shown one and says which it is', () => {
  const conversation = newConversation(), { messages } = conversation;
  messages.push({ role: 'user', content: 'first' }, { role: 'assistant', content: 'walrus' });
  messages.push({ role: 'assistant', content: 'otter', versions: setAside(messages, 1) });
  assert.equal(find(conversation, wordsOf('walrus')).match, 'walrus');
  assert.match(toMarkdown(conversation), /## Model \(version 2 of 2\)\n\notter/);
});

test('an import that has a version more than the conversation here is not taken for the same', async () => {
  const { conversation } = written(7), here = structuredClone(conversation);
  const { messages } = conversation, role = 'assistant', index = messages.findLastIndex(one => one.role === role);
  messages.push({ role, content: 'one more', versions: setAside(messages, index) });
  assert.equal((await fromJson(toJson([conversation]), [here])).fresh.length, 1);
  assert.equal((await fromJson(toJson([here]), [conversation])).known.length, 1);
});

test('versions that are none, or nested without end, do no harm', async () => {
  const good = { role: 'assistant', content: 'b' };
  const read = async versions => (await fromJson(JSON.stringify({ conversations: [{ id: 'x', title: 't', messages: [
    { role: 'user', content: 'a' }, { ...good, versions }] }] }), [])).fresh[0].messages[1].versions;
  for (const versions of [null, 7, 'x', [], { before: 7 }, { before: [7, null, [], [7], [{ role: 'assistant' }]] },
    { after: [[{ role: 'user', content: 'a question in the place of an answer' }]] },
    { before: { length: 1e9 } }]) assert.equal(await read(versions), undefined, JSON.stringify(versions));
  assert.deepEqual(await read({ before: [[{ ...good, versions: { before: [[good]] } }]], after: [[{ role: 'root' }]] }),
    { before: [[good]], after: [] }, 'the versions of a first message are beside it');
  let text = '[]';
  for (let i = 0; i < 3000; i++) {
    text = `[[{"role":"user","content":"q"},{"role":"assistant","content":"b","versions":{"before":${text}}}]]`;
  }
  text = `{"conversations":[{"id":"x","messages":[{"role":"user","content":"q","versions":{"before":${text}}}]}]}`;
  const { fresh: [deep] } = await fromJson(text, []);
  structuredClone(deep);
  assert.ok(everyMessage(deep.messages).length < 1000);
});
