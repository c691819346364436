/** The chat page's client of servers of tools, against the server of the protocol's authors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { visible } from '../../web/chat/tools/bounded.js';
import { McpServer } from '../../web/chat/tools/mcp.js';
import { mcpServer } from './mcp-server.mjs';

const methodOf = ({ method, body }) => body ? JSON.parse(body).method : method;
const all = ['get_weather', 'fail', 'slow', 'wait', 'more_0', 'more_1', 'more_2'];

for (const [kind, version] of /** @type {const} */ ([['modern', '2026-07-28'], ['sessions', '2025-11-25'],
  ['json', '2025-11-25']])) {
  test(`mcp: a server (${kind}) lists its tools and answers calls`, async t => {
    const server = await mcpServer(t, kind), client = new McpServer(server.url);
    const known = await client.connect();
    assert.equal(known.version, version);
    assert.deepEqual(known.tools.map(({ name, problem }) => [name, problem]), all.map(name => [name, undefined]));
    const [weather, fail, slow] = known.tools;
    assert.equal(weather.description, 'Tells the weather of a city.');
    const call = client.prepare(weather, { city: 'Oslo' });
    assert.equal(await client.call(call), 'It is sunny in Oslo.');
    assert.equal(server.seen.at(-1).body, call.body, 'what was sent is what was shown');
    assert.equal(server.seen.at(-1).headers['mcp-protocol-version'], version);
    await assert.rejects(client.call(client.prepare(fail, {})), { message: 'the fuse is blown' });
    assert.equal(await client.call(client.prepare(slow, {})), 'done\n(image, which is not shown)');
    const again = new McpServer(server.url, known.version);   // in a later visit
    assert.equal(await again.call(again.prepare(weather, { city: 'Rome' })), 'It is sunny in Rome.');
    await client.close();
    assert.deepEqual(server.seen.map(methodOf), kind === 'modern'
      ? ['server/discover', 'tools/list', ...Array(4).fill('tools/call')]
      : ['server/discover', 'initialize', 'notifications/initialized', 'tools/list', ...Array(3).fill('tools/call'),
        'initialize', 'notifications/initialized', 'tools/call', 'DELETE']);
    for (const { headers } of server.seen) {
      for (const name of ['cookie', 'authorization', 'referer']) assert.equal(headers[name], undefined);
    }
  });
}

test('mcp: a session that has expired begins anew, and the call is sent once more', async t => {
  const server = await mcpServer(t, 'sessions'), client = new McpServer(server.url);
  const { tools: [weather] } = await client.connect();
  server.expire();
  assert.equal(await client.call(client.prepare(weather, { city: 'Rome' })), 'It is sunny in Rome.');
  assert.deepEqual(server.seen.slice(4).map(methodOf), ['tools/call', 'initialize', 'notifications/initialized',
    'tools/call']);
});

test('mcp: calls at the same time begin one session, at first and when it has expired', async t => {
  const server = await mcpServer(t, 'sessions'), known = await new McpServer(server.url).connect();
  const client = new McpServer(server.url, known.version), [weather] = known.tools;
  const three = () => Promise.all(['Rome', 'Oslo', 'Rome'].map(city =>
    client.call(client.prepare(weather, { city }))));
  for (const how of ['at first', 'expired']) {
    const before = server.seen.length;
    assert.deepEqual(await three(), ['Rome', 'Oslo', 'Rome'].map(city => `It is sunny in ${city}.`), how);
    const begun = server.seen.slice(before).map(methodOf).filter(method => method === 'initialize');
    assert.equal(begun.length, 1, how);
    server.expire();
  }
});

test('mcp: of a text from a server words stay whole, and what cannot be seen is a space', () => {
  for (const [text, shown] of [['Donau\u00addampf', 'Donaudampf'],
    ['\u0645\u06cc\u200c\u062e', '\u0645\u06cc\u200c\u062e'],
    ['👩\u200d👧 ❤\ufe0f\u200d🔥', '👩\u200d👧 ❤\ufe0f\u200d🔥'], ['a\u202eb', 'a b'], ['a\u200d\u200db', 'a\u200d b'],
    ['a\u{e0041}b\r\nc', 'a b\nc'], [7, '7'], [{ toString: 7 }, ''], [null, ''], [['x'], '']]) {
    assert.equal(visible(text, 100), shown);
  }
});

test('mcp: characters that cannot be seen are sent as escapes, so that the reader sees what is sent', () => {
  const { body } = new McpServer('https://example.com/mcp').prepare({ name: 'a', description: '', parameters: {} },
    { city: 'Oslo\u202e\u200b\u3164\u{e0041}\ufe0f ö世😀' });
  assert.match(body, /"Oslo\\u202e\\u200b\\u3164\\udb40\\udc41\\ufe0f ö世😀"/);
  assert.equal(JSON.parse(body).params.arguments.city, 'Oslo\u202e\u200b\u3164\u{e0041}\ufe0f ö世😀');
});

test('mcp: arguments go into headers as a schema asks, and names that are no plain text are encoded', () => {
  const client = new McpServer('https://example.com/mcp');
  const parameters = { type: 'object', properties: { where: { type: 'object', properties: {
    region: { type: 'string', 'x-mcp-header': 'Region' }, n: { type: 'integer', 'x-mcp-header': 'N' } } } } };
  const header = region => client.prepare({ name: 'a', description: '', parameters }, { where: { region } })
    .headers['Mcp-Param-Region'];
  // The examples of the specification.
  for (const [value, encoded] of [['us-west1', 'us-west1'], ['Hello, 世界', '=?base64?SGVsbG8sIOS4lueVjA==?='],
    [' padded ', '=?base64?IHBhZGRlZCA=?='], ['line1\nline2', '=?base64?bGluZTEKbGluZTI=?='],
    ['=?base64?literal?=', '=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=']]) assert.equal(header(value), encoded);
  assert.equal(client.prepare({ name: 'a', description: '', parameters }, {}).headers['Mcp-Param-N'], undefined);
});
