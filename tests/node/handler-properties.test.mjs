/** Whatever JSON a request has, the handler answers it or says what is wrong: never a status of 500, never a hang. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import * as known from '../../web/base/options.js';
import { createHandler } from '../../web/node/fetch.js';
import { root, tiny, withTemplate } from './helpers.mjs';

const TEMPLATE = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}'
  + '{% if tools %}{{ tools | tojson }}{% endif %}';
const handler = createHandler({
  models: { tiny: new Uint8Array(withTemplate(tiny, TEMPLATE)), mini: `${root}models/all-MiniLM-L6-v2.Q8_0.gguf` },
  load: { worker: false, threads: 1 },
});
after(() => handler.close());

const RUNS = { numRuns: Number(process.env.RUNS ?? 300), seed: Number(process.env.SEED ?? 1),
  includeErrorInReport: true };
const text = fc.oneof(fc.string({ maxLength: 12 }),
  fc.constantFrom('', 'auto', 'text', 'json', '5m', '\ud800', '</s>'));
const TYPES = ['message', 'function_call', 'function_call_output', 'reasoning', 'item_reference'];
const number = fc.oneof(fc.integer(), fc.constantFrom(0, 1, -1, 0.5, 2 ** 31, 2 ** 53, 1e300));
const some = fc.oneof(text, number, fc.boolean(), fc.constant(null), fc.jsonValue({ maxDepth: 3 }));
const part = fc.record({ type: fc.oneof(fc.constantFrom('input_text', 'output_text', 'text'), some), text },
  { requiredKeys: [] });
const content = fc.oneof(text, fc.array(fc.oneof(part, some), { maxLength: 2 }), some);
const call = fc.record({ id: some, type: fc.constant('function'),
  function: fc.oneof(fc.record({ name: text, arguments: fc.oneof(fc.constant('{}'), fc.object(), some) }), some) },
{ requiredKeys: ['function'] });
const message = fc.record({
  type: fc.oneof(fc.constantFrom(...TYPES), some),
  role: fc.oneof({ weight: 5, arbitrary: fc.constantFrom('system', 'user', 'assistant', 'tool') }, some),
  content, output: content, summary: content, call_id: fc.oneof(text, some), name: text, arguments: text, id: some,
  tool_calls: fc.oneof(fc.array(call, { maxLength: 2 }), some), images: some, thinking: some, tool_name: some,
}, { requiredKeys: ['role', 'content'] });
const messages = fc.array(fc.oneof({ weight: 6, arbitrary: message }, { weight: 1, arbitrary: some }),
  { maxLength: 3 });
const about = { name: text, description: some, parameters: some, strict: some };
const tool = fc.oneof(fc.record({ type: fc.constant('function'), ...about }, { requiredKeys: ['type', 'name'] }),
  fc.record({ type: fc.constant('function'), function: fc.record(about, { requiredKeys: ['name'] }) }), some);
/** What a parameter may be, by its name; all others are anything. */
const VALUES = {
  messages, input: fc.oneof(text, messages, some), tools: fc.array(tool, { maxLength: 2 }), stream: fc.boolean(),
  prompt: fc.oneof(text, some), query: text, documents: fc.array(fc.oneof(text, some), { maxLength: 3 }), content: text,
  text: fc.oneof(fc.record({ format: fc.record({ type: text, name: text, schema: some }) }), some),
  format: fc.oneof(fc.object(), fc.constant('json'), some), tokens: fc.array(fc.oneof(number, some), { maxLength: 3 }),
  options: fc.oneof(fc.dictionary(fc.constantFrom(...Object.keys(known.OLLAMA_OPTIONS)), some, { maxKeys: 3 }), some),
  keep_alive: fc.oneof(fc.constantFrom('1m', -1, '10s', 300), some),
};
/** The endpoints, each with its parameters, what keeps its answers short, a request that it answers, and its model. */
const ENDPOINTS = {
  '/v1/responses': [known.RESPONSE, { max_output_tokens: 2 }, { input: 'a' }],
  '/v1/completions': [known.TEXT_COMPLETION, { max_tokens: 2 }, { prompt: 'a' }],
  '/v1/embeddings': [known.EMBEDDING, {}, { input: 'a' }, 'mini'],
  '/rerank': [known.RERANK, {}, { query: 'a', documents: ['b'] }, 'mini'],
  '/tokenize': [known.TOKENIZE_REQUEST, {}, { content: 'a' }],
  '/api/chat': [known.OLLAMA_CHAT, { options: { num_predict: 2 } }, { messages: [{ role: 'user', content: 'a' }] }],
  '/api/generate': [known.OLLAMA_GENERATE, { options: { num_predict: 2 } }, { prompt: 'a' }],
  '/api/embed': [known.OLLAMA_EMBED, {}, { input: 'a' }, 'mini'],
};
for (const [path, [table, short, good, model = 'tiny']] of Object.entries(ENDPOINTS)) {
  test(`${path} answers any JSON, or says what is wrong`, async () => {
    const parameters = fc.record(Object.fromEntries(Object.keys(table).map(name => [name, VALUES[name] ?? some])),
      { requiredKeys: [] }).chain(given => {
      const names = Object.keys(given);
      return fc.subarray(names, { maxLength: Math.min(4, names.length) })
        .map(left => Object.fromEntries(left.map(name => [name, given[name]])));
    });
    let answers = 0;
    /** @param {any} given */
    const check = async given => {
      const isObject = typeof given === 'object' && given !== null && !Array.isArray(given);
      const body = isObject ? { ...good, ...short, ...given, model } : given;
      const abort = new AbortController(), timer = setTimeout(() => abort.abort(new Error('it hangs')), 20_000);
      const response = await handler(`http://plumb.invalid${path}`, {
        method: 'POST', body: JSON.stringify(body), signal: abort.signal,
      });
      const answer = await response.text();
      clearTimeout(timer);
      if (response.ok) answers++;
      assert.ok(response.status === 200 || response.status === 400 || response.status === 404,
        `${response.status} ${answer} of ${JSON.stringify(body)}`);
      if (response.status !== 200) {
        const { error } = JSON.parse(answer), said = error.message ?? error;
        assert.ok(said.length > 10 && said.length < 3000, `${said} of ${JSON.stringify(body)}`);
        assert.doesNotMatch(said, /is not a function|undefined \(|Cannot (read|destructure|convert)|not iterable/);
      }
    };
    await fc.assert(fc.asyncProperty(fc.oneof({ weight: 1, arbitrary: some }, { weight: 9, arbitrary: parameters }),
      check), RUNS);
    assert.ok(answers > RUNS.numRuns / 20, `only ${answers} of ${RUNS.numRuns} were answered`);
    assert.equal(handler.turns.running, 0);
  });
}
