/** Servers of tools made with the SDK of the Model Context Protocol's authors, of each kind that clients meet. */
import { randomUUID } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { McpServer, WebStandardStreamableHTTPServerTransport, createMcpHandler } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { server } from './helpers.mjs';

/** What answers to pages of other origins need. */
const CORS = { 'access-control-allow-origin': '*', 'access-control-allow-headers': '*',
  'access-control-allow-methods': '*', 'access-control-expose-headers': 'mcp-session-id' };

/** A server with tools of several kinds. */
function tools() {
  const made = new McpServer({ name: 'tests', version: '1.0.0' }, { capabilities: { logging: {} } });
  made.registerTool('get_weather', { description: 'Tells the weather of a city.',
    inputSchema: z.object({ city: z.enum(['Rome', 'Oslo']) }) },
  async ({ city }) => ({ content: [{ type: 'text', text: `It is sunny in ${city}.` }] }));
  made.registerTool('fail', { inputSchema: z.object({}) },
    async () => ({ content: [{ type: 'text', text: 'the fuse is blown' }], isError: true }));
  made.registerTool('slow', { description: 'Reports its progress.', inputSchema: z.object({}) }, async (_, context) => {
    for (let i = 0; i < 3; i++) {
      await context.mcpReq.notify({ method: 'notifications/message', params: { level: 'info', data: `${i}` } });
    }
    return { content: [{ type: 'text', text: 'done' }, { type: 'image', data: 'AAAA', mimeType: 'image/png' }] };
  });
  made.registerTool('wait', { inputSchema: z.object({}) }, () => new Promise(() => {}));
  for (let i = 0; i < 3; i++) {
    made.registerTool(`more_${i}`, { inputSchema: z.object({}) }, async () => ({ content: [] }));
  }
  return made;
}

/** The answers of a server to requests, by its kind: the modern revision; the one before, with sessions and streams; or
 * that one with answers as JSON.
 * @param {'modern' | 'sessions' | 'json'} kind */
function answers(kind) {
  if (kind === 'modern') {
    const { fetch } = createMcpHandler(tools, { legacy: 'reject' });
    return { fetch, expire() {} };
  }
  /** @type {Map<string, WebStandardStreamableHTTPServerTransport>} */
  const sessions = new Map();
  const gone = () => Response.json({ jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null },
    { status: 404 });
  return {
    expire: () => sessions.clear(),
    /** @param {Request} request */
    async fetch(request) {
      const id = request.headers.get('mcp-session-id');
      if (id !== null) return sessions.get(id)?.handleRequest(request) ?? gone();
      const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID,
        enableJsonResponse: kind === 'json', onsessioninitialized: made => void sessions.set(made, transport),
        onsessionclosed: made => void sessions.delete(made) });
      await tools().connect(transport);
      return transport.handleRequest(request);
    },
  };
}

/** Starts a server on this machine.  `seen` has each request as its method and what it says of its purpose.
 * @param {import('node:test').TestContext} t @param {'modern' | 'sessions' | 'json'} kind */
export async function mcpServer(t, kind) {
  const { fetch, expire } = answers(kind), seen = [];
  const url = await server(t, async (request, response) => {
    const { method, headers } = request, body = await buffer(request);
    if (method === 'OPTIONS') return void response.writeHead(204, CORS).end();
    seen.push({ method, headers, body: body.toString() });
    const answer = await fetch(new Request(`http://127.0.0.1${request.url}`, { method,
      headers: /** @type {any} */ (headers), ...body.length > 0 && { body } }));
    response.writeHead(answer.status, { ...Object.fromEntries(answer.headers), ...CORS });
    for await (const piece of answer.body ?? []) response.write(piece);
    response.end();
  });
  return { url: `${url}mcp`, seen, expire };
}
