/* What a chat template can do, found out as llama.cpp finds it out (common/jinja/caps.cpp): the template renders small
 * conversations, and what it reads of them shows what it supports. */
import { keptReasoning } from './inputs.js';
import { probe } from './jinja.js';

/** @typedef {import('./inputs.js').Capabilities} Capabilities */

const user = { role: 'user', content: 'User message' };
const answer = { role: 'assistant', content: "The tool response was 'tool response'" };
const TOOLS = [{
  name: 'tool', type: 'function', function: {
    name: 'tool1', description: 'Tool description', parameters: {
      type: 'object', properties: { arg: { type: 'string', description: 'Arg description' } }, required: ['arg'],
    },
  },
}];
const MARKER = 'STRING_MARKER', REASONING = '<REASONING_CONTENT_PLACEHOLDER>';

/** A conversation with calls of a tool. @param {number} n  calls @param {unknown} args */
const called = (n, args) => [
  user, {
    role: 'assistant', content: '', tool_calls: Array.from({ length: n }, (_, i) =>
      ({ id: `call0000${i + 1}`, type: 'function', function: { name: 'tool1', arguments: args } })),
  }, { role: 'tool', content: 'Tool response', tool_call_id: 'call00001' }, answer, user,
];

/** @param {string} source  of a template; one that cannot be parsed has no capabilities but those of every template
 * @returns {Capabilities} */
export function capabilitiesOf(source) {
  const found = {
    string: true, typed: false, system: true, tools: true, calls: true, parallel: true, objects: false,
    reasoning: false, effort: false,
  };
  const run = (/** @type {any[]} */ messages, /** @type {any} */ more = {}) =>
    probe(source, { messages, tools: [], bos_token: '', eos_token: '', add_generation_prompt: true, ...more });

  const text = run([{ role: 'user', content: MARKER }]), content = text.at('messages', 0, 'content');
  const isRead = (/** @type {typeof text} */ seen, /** @type {any} */ value) =>
    seen.has(value, 'selectattr') || seen.has(value, 'array_access');
  found.typed = isRead(text, content);
  found.string = text.ok && !(found.typed && !text.output.includes(MARKER));
  if (text.has(content, 'test_is_string')) {
    const parts = run([{ role: 'user', content: [] }]);
    if (parts.ok && isRead(parts, parts.at('messages', 0, 'content'))) found.typed = true;
  }

  const system = run([{ role: 'system', content: 'System message' }, user]);
  found.system = system.used(system.at('messages', 0, 'content'));

  const tools = { tools: TOOLS }, args = { arg: 'value' };
  const single = run(called(1, args), tools);
  /** Sets what a conversation with calls shows. @param {typeof text} seen */
  const showsCalls = seen => {
    if (!seen.used(seen.at('tools', 0, 'function', 'name'))) found.tools = false;
    if (!seen.used(seen.at('messages', 1, 'tool_calls'))) found.calls = false;
  };
  if (single.ok) {
    showsCalls(single);
    found.objects = found.calls
      && single.used(single.at('messages', 1, 'tool_calls', 0, 'function', 'arguments', 'arg'));
  }
  if (!found.objects) {
    const written = run(called(1, '{"arg": "value"}'), tools);
    if (written.ok) showsCalls(written);
    else found.tools = found.calls = false;
  }
  const parallel = run(called(2, found.objects ? args : '{"arg": "value"}'), tools);
  found.parallel = parallel.ok && parallel.used(parallel.at('messages', 1, 'tool_calls', 1, 'function'));

  const thought = (/** @type {string} */ reasoning) =>
    ({ role: 'assistant', content: 'Assistant message', reasoning_content: reasoning });
  found.reasoning = run([user, thought(REASONING), user, thought('Reasoning content'), user],
    { enable_thinking: true, ...keptReasoning(true) }).output.includes(REASONING);
  const effort = run([user], { enable_thinking: true, reasoning_effort: 'low', reasoning_strength: 'low' });
  found.effort = effort.used(effort.at('reasoning_effort')) || effort.used(effort.at('reasoning_strength'));
  return found;
}
