/** Servers of tools as attackers would write them: whatever they answer, the chat page's client ends in time with a
 * result or a reason, reads only so much, and asks no other address.  SEED and RUNS make other answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { explain } from '../../web/chat/explain.js';
import { McpServer } from '../../web/chat/tools/mcp.js';
import { describedTool } from '../../web/chat/tools/mcp-tools.js';
import { server } from './helpers.mjs';

const RUNS = { numRuns: Number(process.env.RUNS ?? 300), seed: Number(process.env.SEED ?? 1),
  includeErrorInReport: true };
const JSON_TYPE = 'application/json', STREAM = 'text/event-stream';
/** What a server answers that means no harm, by the method. */
const RIGHT = {
  'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } },
  initialize: { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'a', version: '1' } },
  'tools/list': { tools: [{ name: 'a', description: 'b', inputSchema: { type: 'object', properties: {
    c: { type: 'string', 'x-mcp-header': 'C' } }, required: ['c'] } }], nextCursor: '2' },
  'tools/call': { content: [{ type: 'text', text: 'd' }, { type: 'resource', resource: { text: 'e' } }] },
};
const HOSTILE = ['', '__proto__', 'constructor', '\u0000', '\u202e', '<img src=x onerror=alert(1)>', '\r\nX: y', '2',
  'https://evil.example/', '{{7*7}}', '<|im_end|>', '\ud800', 'x'.repeat(5000)];
const some = fc.oneof(fc.constantFrom(...HOSTILE), fc.integer(), fc.boolean(), fc.constant(null),
  fc.constantFrom(1e300, -0, [], { toString: 7 }), fc.jsonValue({ maxDepth: 3 }));

/** A value with changes at random places. @param {any} value @param {[number, any][]} edits */
function changed(value, edits) {
  const copy = structuredClone({ value });
  for (const [n, to] of edits) {
    /** @type {[any, string][]} */
    const places = [];
    const visit = (/** @type {any} */ one) => Object.keys(Object(one)).forEach(key => {
      places.push([one, key]);
      if (typeof one[key] === 'object') visit(one[key]);
    });
    visit(copy);
    if (places.length === 0) break;
    const [object, key] = places[n % places.length];
    if (n % 7 === 0) delete object[key];
    else if (n % 7 === 1 && !Array.isArray(object)) object[JSON.stringify(to) ?? ''] = object[key];
    else if (n % 7 === 2) object[key] = [object[key], object[key]];
    else object[key] = to;
  }
  return copy.value;
}

const answerOf = fc.record({
  status: fc.oneof({ weight: 8, arbitrary: fc.constant(200) }, fc.constantFrom(204, 302, 400, 401, 404, 500)),
  type: fc.oneof({ weight: 8, arbitrary: fc.constantFrom(JSON_TYPE, STREAM) }, fc.constantFrom('text/html', '', 'a/b')),
  session: fc.constantFrom(undefined, 'abc', 'a b', 'é', 'x'.repeat(1000)),
  edits: fc.array(fc.tuple(fc.nat(1000), some), { maxLength: 3 }),
  before: fc.constantFrom('', ': hello\n\n', 'data: {"id":1,"result":{}}\n\n', 'data: nonsense\n\n', '\n', '[', '{}'),
  breaks: fc.oneof({ weight: 8, arbitrary: fc.constant(false) }, fc.constant(true)),
});
const scenario = fc.record(Object.fromEntries(Object.keys(RIGHT).map(method => [method, answerOf])));

test('mcp: whatever a server answers, there is a result or a reason, and no other request', async t => {
  /** @type {any} */
  let answers;
  /** @type {string[]} */
  let seen = [];
  const url = await server(t, async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    seen.push(`${request.method} ${request.url}`);
    const { id, method } = body ? JSON.parse(body) : {};
    const answer = Object.hasOwn(RIGHT, method) ? answers[method] : undefined;
    if (!answer) return void response.writeHead(202).end();
    const { status, type, session, edits, before, breaks } = answer;
    const message = JSON.stringify(changed({ jsonrpc: '2.0', id, result: RIGHT[method] }, edits));
    const text = before + (type === STREAM ? `data: ${message}\n\n` : message);
    try {
      response.writeHead(status, { 'Content-Type': type, Location: '/elsewhere',
        ...session !== undefined && { 'Mcp-Session-Id': session } });
    } catch {
      response.writeHead(status, { 'Content-Type': type });   // a header that Node does not send
    }
    response.write(text.slice(0, text.length / 2));
    if (breaks) response.destroy();
    else response.end(text.slice(text.length / 2));
  });
  const reasoned = (/** @type {any} */ error) => {
    assert.ok(error instanceof Error && !(error instanceof TypeError), error.stack);
    const { title, advice, detail } = explain(error);
    assert.equal(typeof (title + advice + detail), 'string');
  };
  await fc.assert(fc.asyncProperty(scenario, async given => {
    [answers, seen] = [given, []];
    const client = new McpServer(`${url}mcp`);
    const known = await client.connect(AbortSignal.timeout(5000)).catch(reasoned);
    for (const tool of known?.tools ?? []) {
      assert.deepEqual(describedTool(tool), tool, 'what is kept of a tool is itself a tool');
      if (tool.problem !== undefined) continue;
      const text = await new Promise(resolve => resolve(client.prepare(tool, { c: '\r\n' })))
        .then(call => client.call(call, AbortSignal.timeout(5000))).catch(reasoned);
      assert.ok(text === undefined || typeof text === 'string');
    }
    await client.close();
    assert.deepEqual(seen.filter(one => !/^(POST|DELETE) \/mcp$/.test(one)), []);
    assert.ok(seen.length < 40, `${seen.length} requests`);
    assert.deepEqual(Object.keys(Object.prototype), []);
  }), RUNS);
});

/** @param {string | (() => string)} piece @param {string} type */
const endless = (piece, type) => async (/** @type {import('node:http').ServerResponse} */ response) => {
  response.writeHead(200, { 'Content-Type': type });
  let sent = 0;
  while (!response.destroyed && sent < 2e8) {
    const text = typeof piece === 'string' ? piece : piece();
    sent += text.length;
    if (!response.write(text)) {
      await new Promise(resolve => { response.once('drain', resolve); response.once('close', resolve); });
    }
  }
  return sent;
};
const message = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: {} });

for (const [what, answer, why] of /** @type {const} */ ([
  ['an endless text', endless('x'.repeat(1e5), JSON_TYPE), /too large/],
  ['endless comments', endless(': x\n'.repeat(1e4), STREAM), /too large/],
  ['an endless line', endless('data: '.repeat(1e4), STREAM), /too large/],
  ['endless messages', endless(`data: ${message}\n\n`.repeat(10), STREAM), /more than 1000 messages/],
  ['endless messages with other ids', endless('data: {"id":"7","result":{}}\n\n'.repeat(10), STREAM), /1000 messages/],
])) {
  test(`mcp: ${what} ends after a megabyte`, async t => {
    /** @type {Promise<number>[]} */
    const sent = [];
    const url = await server(t, (_, response) => void sent.push(answer(response)));
    const client = new McpServer(`${url}mcp`, '2026-07-28');
    const call = client.prepare({ name: 'a', description: '', parameters: {} }, {});
    const { title, detail } = explain(await client.call(call).then(() => assert.fail(), error => error));
    assert.match(title + detail, why);
    assert.equal(sent.length, 1);
    assert.ok(await sent[0] < 3e7, `${await sent[0]} bytes`);   // most of it waits in the system's buffers
  });
}

test('mcp: a server that says nothing, or one byte at a time, is given up', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  for (const drips of [false, true]) {
    let begun = () => {};
    const waits = new Promise(resolve => { begun = () => resolve(undefined); });
    const url = await server(t, (_, response) => {
      if (drips) response.writeHead(200, { 'Content-Type': JSON_TYPE }).write('{');
      begun();
    });
    const ends = assert.rejects(new McpServer(`${url}mcp`).connect(), { message: 'no answer within 20 s' });
    await waits;
    t.mock.timers.tick(20000);
    await ends;
  }
});

test('mcp: redirects are not followed, lists without end are cut, and deep or long JSON is refused', async t => {
  const seen = [];
  const other = await server(t, (request, response) => {
    seen.push(request.url);
    response.end('{}');
  });
  const away = await server(t, (_, response) => void response.writeHead(307, { Location: other }).end());
  await assert.rejects(new McpServer(away).connect());
  assert.deepEqual(seen, []);
  const tool = i => ({ name: `t${i}`, inputSchema: { type: 'object' } }), pages = [];
  const long = await server(t, async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    const { id, method } = JSON.parse(body);
    if (method === 'tools/list') pages.push(1);
    response.writeHead(200, { 'Content-Type': JSON_TYPE }).end(JSON.stringify({ jsonrpc: '2.0', id,
      result: method === 'tools/list' ? { tools: Array.from({ length: 30 }, (_, i) => tool(30 * pages.length + i)),
        nextCursor: 'more' } : RIGHT['server/discover'] }));
  });
  const { tools } = await new McpServer(long).connect();
  assert.deepEqual([tools.length, pages.length], [100, 4]);
  for (const text of ['['.repeat(900000), '{"a":'.repeat(150000), '"'.repeat(900000), '\u0000']) {
    const odd = await server(t, (_, response) => void response.writeHead(200, { 'Content-Type': JSON_TYPE }).end(text));
    await assert.rejects(new McpServer(odd).connect());
  }
});

test('mcp: a tool with a name, a schema or headers that cannot be is listed with the reason', () => {
  let deep = { type: 'object' };
  for (let i = 0; i < 40; i++) deep = { type: 'object', properties: { a: deep } };
  const header = (/** @type {any} */ one) => ({ type: 'object', properties: { a: one } });
  for (const [name, inputSchema, why] of [
    ['<b>', { type: 'object' }, /its name/], ['__proto__', { type: 'object' }, /its name/], [7, {}, /its name/],
    ['constructor', { type: 'object' }, /its name/], ['a', null, /of an object/], ['a', [], /of an object/],
    ['a', { type: 'string' }, /of an object/], ['a', deep, /nests deeper/],
    ['a', { type: 'object', enum: Array(3000).fill(0) }, /more than 2000 values/],
    ['a', { type: 'object', title: 'x'.repeat(20000) }, /16000 characters/],
    ['a', header({ type: 'string', 'x-mcp-header': 'A\r\nB' }), /HTTP headers/],
    ['a', header({ type: 'number', 'x-mcp-header': 'A' }), /HTTP headers/],
    ['a', header({ items: { type: 'string', 'x-mcp-header': 'A' } }), /HTTP headers/],
  ]) assert.match(describedTool({ name, inputSchema }).problem ?? '', why);
});
