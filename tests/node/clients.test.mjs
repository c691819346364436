/** Real clients of OpenAI's API and of Ollama's, with the same tasks for each: those from npm by a function in this
 * process and by the port of plumb serve, those in Python and curl by the port.  Ground truth: what plumb's own model
 * answers to the same messages. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { after, before, describe, test } from 'node:test';
import Ajv from 'ajv';
import { Plumb } from '../../web/node/index.js';
import { createHandler } from '../../web/node/fetch.js';
import { ENCODER, MODEL, npm, others } from './clients.mjs';
import { realPath, root } from './helpers.mjs';

const encoderPath = `${root}models/all-MiniLM-L6-v2.Q8_0.gguf`;
const user = content => ({ role: 'user', content });
const PLAIN = [user('What is the capital of France?')], MOST = 12;
const SYSTEM = [{ role: 'system', content: 'You speak Spanish only.' }, ...PLAIN];
const TURNS = [...PLAIN, { role: 'assistant', content: 'Paris.' }, user('And of Italy?')];
const STORY = [user('Write a long story about a dog.')];
const JSON_PROMPT = [user('Repeat: {"name": "Ann", "age": 5}')];
const SCHEMA = {
  type: 'object', additionalProperties: false, required: ['name', 'age'],
  properties: { name: { enum: ['Ann', 'Bob'] }, age: { type: 'integer', minimum: 0, maximum: 9 } },
};
const parameters = {
  type: 'object', required: ['a', 'b'], properties: { a: { type: 'integer' }, b: { type: 'integer' } },
};
const TOOLS = [{ type: 'function', function: { name: 'add', description: 'Adds two numbers.', parameters } }];
const CALL = '{"a":4,"b":7}';
const ASK_CALL = [user(`Repeat: <tool_call>\n{"name": "add", "arguments": ${CALL}}\n</tool_call>`)];
const RESULT = [
  ...ASK_CALL, { role: 'assistant', content: null, tool_calls: [
    { id: 'call_1', type: 'function', function: { name: 'add', arguments: CALL } },
  ] }, { role: 'tool', tool_call_id: 'call_1', content: '11' },
];
const TEXTS = ['The cat sleeps.', 'Stock prices fell.'];
const isThing = new Ajv().compile(SCHEMA);

/** What plumb's own models say. @type {Record<string, any>} */
const right = {};
before(async () => {
  const model = await Plumb.load(realPath, { threads: 1 }), encoder = await Plumb.load(encoderPath, { threads: 1 });
  const textOf = async (messages, more) => {
    const { choices: [{ message }] } = await model.chat.completions.create({
      messages, temperature: 0, max_tokens: MOST, ...more,
    });
    return message.content;
  };
  right.plain = await textOf(PLAIN);
  right.system = await textOf(SYSTEM);
  right.turns = await textOf(TURNS);
  right.short = await textOf(PLAIN, { max_tokens: 3 });
  right.seed = await textOf(STORY, { temperature: 1, seed: 7 });
  right.result = await textOf(RESULT, { tools: TOOLS });
  right.vectors = (await encoder.embed(TEXTS)).map(vector => [...vector]);
  await model.close();
  await encoder.close();
  assert.notEqual(right.system, right.plain);
});

/** The tasks: each asks a client, and judges the answer.
 * @type {Record<string, (client: import('./clients.mjs').Client, idle: () => Promise<boolean>) => Promise<void>>} */
const TASKS = {
  async 'a plain answer'(client) {
    const { text, reason } = await client.ask({ messages: PLAIN, max: MOST });
    assert.deepEqual([text, reason], [right.plain, 'stop']);
  },
  async 'a stream'(client) {
    const pieces = [];
    for await (const piece of client.stream({ messages: PLAIN, max: MOST }, new AbortController().signal)) {
      pieces.push(piece);
    }
    assert.equal(pieces.join(''), right.plain);
    assert.ok(pieces.length > 3, `${pieces.length} pieces`);
  },
  async 'a system message'(client) {
    assert.equal((await client.ask({ messages: SYSTEM, max: MOST })).text, right.system);
  },
  async 'a conversation'(client) {
    assert.equal((await client.ask({ messages: TURNS, max: MOST })).text, right.turns);
  },
  async 'a text that ends the answer'(client) {
    const [before] = right.plain.split(' France'), { text } = await client.ask({ messages: PLAIN, stop: ' France' });
    assert.ok(before.length < right.plain.length);
    assert.equal(text, before);
  },
  async 'the most tokens'(client) {
    const { text, reason, tokens } = await client.ask({ messages: PLAIN, max: 3 });
    assert.deepEqual([text, reason, tokens], [right.short, 'length', 3]);
  },
  async 'a seed'(client) {
    const { text } = await client.ask({ messages: STORY, max: MOST, temperature: 1, seed: 7 });
    assert.equal(text, right.seed);
  },
  async 'any JSON'(client) {
    const { text } = await client.ask({ messages: JSON_PROMPT, max: 40, json: true }), value = JSON.parse(text);
    assert.ok(typeof value === 'object' && !Array.isArray(value), text);
  },
  async 'a schema'(client) {
    const { text } = await client.ask({ messages: JSON_PROMPT, max: 40, schema: SCHEMA });
    assert.ok(isThing(JSON.parse(text)), text);
  },
  async 'a call of a tool'(client) {
    const { calls } = await client.ask({ messages: ASK_CALL, max: 40, tools: TOOLS });
    assert.deepEqual(calls?.map(({ name, arguments: args }) => ({ name, arguments: args })),
      [{ name: 'add', arguments: JSON.parse(CALL) }]);
  },
  async 'the result of a tool'(client) {
    assert.equal((await client.ask({ messages: RESULT, max: MOST, tools: TOOLS })).text, right.result);
  },
  async embeddings(client) {
    const vectors = await client.embed(TEXTS);
    for (const [i, vector] of vectors.entries()) {
      assert.equal(vector.length, right.vectors[i].length);
      assert.ok(vector.every((value, k) => Math.abs(value - right.vectors[i][k]) < 1e-7));
    }
  },
  async 'a model that is not there'(client) {
    await assert.rejects(client.ask({ messages: PLAIN, model: 'gpt' }), error => {
      assert.match(error.message, /there is no model "gpt"; the models are: "smol", "mini"/);
      const { status, statusCode, status_code } = error;
      assert.equal(status ?? statusCode ?? status_code, 404);
      return true;
    });
  },
  async 'an answer that is left'(client, idle) {
    if (client.reads) return;
    const abort = new AbortController();
    let pieces = 0;
    const loop = async () => {
      for await (const _ of client.stream({ messages: STORY, max: 400 }, abort.signal)) {
        if (++pieces < 3) continue;
        abort.abort();
        break;
      }
    };
    await loop().catch(error => assert.match(String(error), /abort/i));
    assert.equal(pieces, 3);
    for (let i = 0; !await idle(); i++) {
      assert.ok(i < 100, 'it is still computed');
      await wait(20);
    }
  },
  async 'the list of models'(client) {
    if (client.models) assert.deepEqual(await client.models(), [MODEL, ENCODER]);
  },
};

/** @param {string} where @param {Record<string, (url: string, fetch: any) => import('./clients.mjs').Client>} clients
 * @param {() => {url: string, fetch: any, idle: () => Promise<boolean>}} host
 * @param {[string, (client: any, idle: () => Promise<boolean>) => Promise<void>][]} [tasks] */
function tasksOf(where, clients, host, tasks = Object.entries(TASKS)) {
  for (const [name, create] of Object.entries(clients)) {
    describe(`${name}, ${where}`, () => {
      /** @type {import('./clients.mjs').Client} */
      let client;
      before(() => { client = create(host().url, host().fetch); });
      after(() => client.close?.());
      for (const [task, run] of tasks) test(task, () => run(client, host().idle));
    });
  }
}

describe('without a port', () => {
  const models = { [MODEL]: realPath, [ENCODER]: encoderPath };
  const handler = createHandler({ models, load: { threads: 1 } });
  after(() => handler.close());
  // By a port the same handler does every task.
  tasksOf('in this process', npm, () => ({
    url: 'http://plumb.invalid', fetch: handler, idle: async () => handler.turns.running === 0,
  }), Object.entries(TASKS).filter((_, i) => process.env.WHOLE || i % 2 === 0));
});

describe('plumb serve', () => {
  /** @type {import('node:child_process').ChildProcess} */
  let server;
  let url = '';
  before(async () => {
    server = spawn(process.execPath, [`${root}web/cli/main.mjs`, 'serve', `${MODEL}=${realPath}`,
      `${ENCODER}=${encoderPath}`, '--port', '0', '--log', 'none', '--threads', '1'],
    { stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const text of server.stdout.setEncoding('utf8')) {
      url = String(/http:\S+/.exec(text) ?? '');
      if (url) break;
    }
  });
  after(async () => {
    server.kill();
    await once(server, 'exit');
  });
  const idle = async () => /^plumb_requests_running 0$/m.test(await (await fetch(`${url}/metrics`)).text());
  tasksOf('by a port', { ...npm, ...others }, () => ({ url, fetch, idle }));
});
