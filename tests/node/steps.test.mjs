/** The calls of tools that conversations keep: whatever is stored, only what has their form is read of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromJson, toJson } from '../../web/chat/conversation/conversation-store.js';
import { chosenOf, messagesOf } from '../../web/chat/tools/kept.js';

const call = { id: 'i', name: 'calculate', arguments: '{"expression":"1+1"}', at: 'https://a/mcp?key=secret',
  result: '2', failed: true };
const read = async steps => (await fromJson(JSON.stringify({ conversations: [{ id: 'x', tools: { on: ['calculate'] },
  messages: [{ role: 'user', content: 'a' }, { role: 'assistant', content: 'b', steps }] }] }), [])).fresh[0];

test('steps are kept by an export and an import, which turns no tool on and has no address with a key', async () => {
  const steps = [{ reasoning: 'r', content: 'c', calls: [call, { id: 'j', name: 'n', arguments: '{}' }] }];
  const conversation = await read(steps);
  assert.deepEqual(conversation.messages[1].steps, steps);
  assert.equal(conversation.tools, undefined);
  const text = toJson([{ ...conversation, tools: { on: ['calculate'], servers: [], steps: 8 } }]);
  assert.doesNotMatch(text, /secret|"servers"/);
  const { fresh: [again] } = await fromJson(text, []);
  const shared = [{ ...steps[0], calls: [{ ...call, at: 'https://a' }, steps[0].calls[1]] }];
  assert.deepEqual([again.messages[1].steps, again.tools], [shared, undefined]);
  const own = { ...conversation, origin: again.origin };
  assert.deepEqual((await fromJson(text, [own])).known, [own], 'it is the same conversation');
  own.messages = [own.messages[0], { ...own.messages[1], steps: undefined }];
  assert.equal((await fromJson(text, [own])).known.length, 0, 'without its calls it is another one');
  assert.deepEqual(messagesOf(conversation.messages[1]).map(({ role, content, tool_calls: calls, tool_call_id: id }) =>
    [role, content, calls?.length, id]), [['assistant', 'c', 2, undefined], ['tool', '2', undefined, 'i'],
    ['tool', 'Error: the call was aborted', undefined, 'j']]);
});

test('steps that are none do no harm, and there is a bound on their number', async () => {
  const deep = `${'{"a":'.repeat(60)}1${'}'.repeat(60)}`;
  for (const steps of [null, 7, {}, [7], [{}], [{ calls: 7 }], [{ calls: [] }], [{ calls: [{ ...call, id: 7 }] }],
    [{ calls: [{ ...call, arguments: 'x' }] }], [{ calls: [{ ...call, arguments: '[]' }] }],
    [{ calls: [{ ...call, arguments: deep }] }], [{ calls: [{ ...call, name: 'x'.repeat(101) }] }],
    { length: 1e9 }]) assert.equal((await read(steps)).messages[1].steps, undefined, JSON.stringify(steps));
  const odd = { ...call, result: { toString: 7 }, at: 7, failed: 1 };
  const [{ calls }] = (await read([{ calls: [odd] }])).messages[1].steps;
  assert.deepEqual(calls, [{ id: 'i', name: 'calculate', arguments: call.arguments }]);
  const many = (await read(Array(1000).fill({ calls: Array(7).fill(call) }))).messages[1].steps;
  assert.equal(many.flatMap(one => one.calls).length, 500);
});

test('which tools are on is read only as it is written', () => {
  const chosen = { on: ['calculate'], servers: ['https://a/mcp'], steps: 3 };
  assert.deepEqual(chosenOf({ tools: chosen }), { tools: chosen });
  assert.deepEqual(chosenOf({ tools: { on: [7, 'a'], servers: 'x', steps: 1e9 } }),
    { tools: { on: ['a'], servers: [], steps: 8 } });
  for (const tools of [undefined, null, 7, [], { on: 'calculate' }, { steps: 8 }]) {
    assert.deepEqual(chosenOf({ tools }), {});
  }
});
