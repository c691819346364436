/* A client of servers of tools: the Model Context Protocol over HTTP ("Streamable HTTP").  It speaks revision
 * 2026-07-28, in which every request stands for itself, and the three before it, which begin a session by a handshake.
 * server/discover says which one a server speaks.
 *
 * The server is not trusted.  Its answers are read up to a number of bytes and within a time, and of them only the
 * fields that are named here, each within limits.  What it asks of the page is not answered.  Its texts are data. */
import { createParser } from '../../dist/vendor/eventsource-parser/index.js';
import { ExplainedError } from '../explain.js';
import { addressOf, send, textOf, textsOf, visible, within } from './bounded.js';
import { describedTool, headersOf } from './mcp-tools.js';

/** @typedef {import('./mcp-tools.js').Described} Described */
/** What is known of a server.
 * @typedef {object} Known
 * @property {string} address
 * @property {string} version  of the protocol
 * @property {Described[]} tools */
/** A call that is ready to be sent.
 * @typedef {{id: string, body: string, headers: Record<string, string>}} Call */

const MODERN = '2026-07-28', LEGACY = ['2025-11-25', '2025-06-18', '2025-03-26'];
export const VERSIONS = [MODERN, ...LEGACY];
/** Errors by which a server shows that it speaks the modern revision: wrong headers, a capability that is missing, and
 * another version. */
const MODERN_ERRORS = [-32020, -32021, -32022];
/** Bytes of an answer, messages before it, pages of the list of tools, tools, and characters of all their schemas. */
const MAX_BYTES = 1e6, MAX_MESSAGES = 1000, MAX_PAGES = 10, MAX_SCHEMAS = 1e5;
export const MOST_TOOLS = 100;
/** Seconds for an answer to the page's own requests, and for one of a tool. */
const PATIENCE = 20, CALL_PATIENCE = 120;
const CLIENT = { name: 'plumb', version: '0.1.0' };
const PREFIX = 'io.modelcontextprotocol/';
const CORS = 'The address may be wrong, or the server does not allow this page: its answers need the header '
  + 'Access-Control-Allow-Origin, it must allow the headers Content-Type, Mcp-Method, Mcp-Name, Mcp-Protocol-Version '
  + 'and Mcp-Session-Id, and let pages read Mcp-Session-Id (Access-Control-Expose-Headers).';

/** An error that a server has answered with. */
class ServerError extends ExplainedError {
  /** @param {number} status  of HTTP @param {any} [error]  of JSON-RPC */
  constructor(status, error) {
    const advice = status === 401 || status === 403 ? 'It may ask for a login, which this page does not have.'
      : 'Check the address; what it says is below.';
    super(error ? 'The server answered with an error' : `The server answered with status ${status}`, advice,
      error ? visible(error.message ?? '', 500) : '');
    this.status = status;
    this.code = Number.isSafeInteger(error?.code) ? error.code : undefined;
    /** Versions that it speaks, if it says so. @type {unknown[]} */
    this.supported = Array.isArray(error?.data?.supported) ? error.data.supported.slice(0, 20) : [];
  }
}

export class McpServer {
  #url;
  #version;
  /** Of a server with sessions. @type {string | undefined} */
  #session;
  /** Whether a session has begun. */
  #begun = false;
  /** The handshake that runs, if one does. @type {Promise<void> | undefined} */
  #beginning;

  /** @param {string} address @param {string} [version]  if it is known */
  constructor(address, version = MODERN) {
    this.#url = addressOf(address);
    this.#version = version;
  }

  get address() { return this.#url.href; }

  /** Asks the server for its tools. @param {AbortSignal} [abort] @returns {Promise<Known>} */
  async connect(abort) {
    const { signal, done } = within(PATIENCE, abort);
    try {
      if (!await this.#isModern(signal)) await this.#begin(signal);
      /** @type {Described[]} */
      const tools = [];
      let cursor;
      for (let page = 0; page < MAX_PAGES && tools.length < MOST_TOOLS; page++) {
        const result = await this.#request('tools/list', cursor === undefined ? {} : { cursor }, signal);
        if (!Array.isArray(result.tools)) throw wrong('its list of tools is not a list');
        for (const one of result.tools.slice(0, MOST_TOOLS - tools.length)) tools.push(describedTool(one));
        cursor = result.nextCursor;
        if (typeof cursor !== 'string' || cursor.length > 1000) break;
      }
      return { address: this.address, version: this.#version, tools: withinBudget(tools) };
    } finally {
      done();
    }
  }

  /** A call of a tool, as it would be sent. @param {Described} tool @param {Record<string, any>} args
   * @returns {Call} */
  prepare({ name, parameters }, args) {
    const { id, body, headers } = this.#message('tools/call', { name, arguments: args });
    return { id, body, headers: this.#version === MODERN
      ? { ...headers, 'Mcp-Name': headerText(name), ...headersOf(parameters, args, headerText) } : headers };
  }

  /** Sends a call, and returns the text of its result.  Throws what the tool calls an error.
   * @param {Call} call @param {AbortSignal} [abort] */
  async call({ id, body, headers }, abort) {
    const { signal, done } = within(CALL_PATIENCE, abort);
    try {
      if (this.#version !== MODERN && !this.#begun) await this.#begin(signal);
      const session = this.#session;
      const result = await this.#post(id, body, headers, signal).catch(async error => {
        if (error.status !== 404 || session === undefined) throw error;
        // The session has expired.  Another call may have begun a new one, or be about to.
        if (this.#session === session || this.#beginning) await this.#begin(signal);
        return this.#post(id, body, headers, signal);
      });
      return resultText(result);
    } finally {
      done();
    }
  }

  /** Ends the session, if there is one. */
  async close() {
    const session = this.#session;
    this.#begun = false;
    this.#session = undefined;
    if (session === undefined) return;
    const { signal, done } = within(PATIENCE);
    const headers = { 'Mcp-Session-Id': session, 'Mcp-Protocol-Version': this.#version };
    const response = await send(this.#url, { method: 'DELETE', headers, signal, keepalive: true }, '').catch(() => {});
    void response?.body?.cancel().catch(() => {});
    done();
  }

  /** Whether the server speaks the modern revision. @param {AbortSignal} signal */
  async #isModern(signal) {
    this.#version = MODERN;
    let supported;
    try {
      supported = (await this.#request('server/discover', {}, signal)).supportedVersions;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ServerError && MODERN_ERRORS.includes(error.code))) return false;
      ({ supported } = error);
    }
    if (!Array.isArray(supported) || supported.includes(MODERN)) return Array.isArray(supported);
    if (supported.some(one => LEGACY.includes(one))) return false;
    const theirs = supported.slice(0, 5).map(one => visible(one, 20)).join(', ');
    throw wrong(`it speaks the versions ${theirs} of the protocol, this page ${VERSIONS.join(', ')}`);
  }

  /** Begins a session: one for all calls that need it at the same time. @param {AbortSignal} signal */
  #begin(signal) {
    return this.#beginning ??= this.#handshake(signal).finally(() => { this.#beginning = undefined; });
  }

  /** @param {AbortSignal} signal */
  async #handshake(signal) {
    this.#session = undefined;
    [this.#version] = LEGACY;
    const { id, body, headers } = this.#message('initialize', { protocolVersion: this.#version, capabilities: {},
      clientInfo: CLIENT });
    delete headers['Mcp-Protocol-Version'];   // it is agreed on only now
    const { protocolVersion } = await this.#post(id, body, headers, signal, response => {
      const session = response.headers.get('mcp-session-id');
      if (session !== null && /^[\x21-\x7e]{1,500}$/.test(session)) this.#session = session;
    });
    if (!LEGACY.includes(protocolVersion)) {
      throw wrong(`it speaks version ${visible(protocolVersion, 50)} of the protocol, this page `
        + VERSIONS.join(', '));
    }
    this.#version = protocolVersion;
    this.#begun = true;
    const note = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' });
    const response = await this.#send(note, this.#message('', {}).headers, signal);
    void response.body?.cancel().catch(() => {});
  }

  /** @param {string} method @param {Record<string, any>} params @param {AbortSignal} signal @returns {Promise<any>} */
  #request(method, params, signal) {
    const { id, body, headers } = this.#message(method, params);
    return this.#post(id, body, headers, signal);
  }

  /** @param {string} method @param {Record<string, any>} params @returns {Call} */
  #message(method, params) {
    const id = crypto.getRandomValues(new Uint32Array(2)).join('-'), isModern = this.#version === MODERN;
    const all = !isModern ? params : { ...params, _meta: { [`${PREFIX}protocolVersion`]: MODERN,
      [`${PREFIX}clientInfo`]: CLIENT, [`${PREFIX}clientCapabilities`]: {} } };
    return { id, body: asSeen(JSON.stringify({ jsonrpc: '2.0', id, method, params: all })), headers: {
      'Content-Type': 'application/json', Accept: 'application/json, text/event-stream',
      'Mcp-Protocol-Version': this.#version, ...isModern && { 'Mcp-Method': method },
    } };
  }

  /** @param {string} body @param {Record<string, string>} headers @param {AbortSignal} signal */
  async #send(body, headers, signal) {
    const all = this.#session === undefined ? headers : { ...headers, 'Mcp-Session-Id': this.#session };
    return send(this.#url, { method: 'POST', body, headers: all, signal }, CORS);
  }

  /** Sends a request, and returns its result.
   * @param {string} id @param {string} body @param {Record<string, string>} headers @param {AbortSignal} signal
   * @param {(response: Response) => void} [onResponse] @returns {Promise<any>} */
  async #post(id, body, headers, signal, onResponse) {
    const response = await this.#send(body, headers, signal);
    onResponse?.(response);
    const type = response.headers.get('content-type')?.split(';')[0].trim().toLowerCase() ?? '';
    const isStream = type === 'text/event-stream' && response.ok;
    if (!isStream && !/^application\/([\w.-]+\+)?json$/.test(type)) {
      void response.body?.cancel().catch(() => {});
      throw response.ok ? wrong(`it answers with ${visible(type, 50) || 'nothing'} instead of JSON`)
        : new ServerError(response.status);
    }
    const answer = isStream ? await inStream(response, id, signal)
      : parsed(await textOf(response, MAX_BYTES, signal));
    if (answer?.error) throw new ServerError(response.status, answer.error);
    if (!response.ok) throw new ServerError(response.status);
    if (answer?.id !== id || !isObject(answer.result)) throw wrong('it did not answer the request');
    return answer.result;
  }
}

/** Tools of which the first ones can be used, as many as have room in the browser's storage beside other things.
 * @param {Described[]} tools */
function withinBudget(tools) {
  let left = MAX_SCHEMAS;
  return tools.map(tool => {
    left -= JSON.stringify(tool.parameters).length;
    return left >= 0 || tool.problem ? tool
      : { ...tool, parameters: {}, problem: `the server has more than ${MAX_SCHEMAS} characters of schemas` };
  });
}

/** The answer to a request in a stream of messages.
 * @param {Response} response @param {string} id @param {AbortSignal} signal @returns {Promise<any>} */
async function inStream(response, id, signal) {
  /** @type {any} */
  let answer;
  let count = 0;
  const parser = createParser({ onEvent({ data }) {
    if (answer !== undefined || data === '') return;
    if (++count > MAX_MESSAGES) throw wrong(`it sends more than ${MAX_MESSAGES} messages before its answer`);
    const message = parsed(data);
    if (message?.id === id && ('result' in message || 'error' in message)) answer = message;
  } });
  for await (const text of textsOf(response, MAX_BYTES, signal)) {
    parser.feed(text);
    if (answer !== undefined) return answer;
  }
  throw wrong('its stream ended without an answer');
}

/** @param {string} text @returns {any} */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw wrong('its answer is not JSON');
  }
}

/** What a tool has answered, as a text. @param {any} result */
function resultText({ content, isError, resultType = 'complete' }) {
  if (resultType !== 'complete') throw new Error('the server asks for something that this page cannot give');
  const parts = !Array.isArray(content) ? [] : content.slice(0, 1000).map(part =>
    typeof part?.text === 'string' ? part.text : typeof part?.resource?.text === 'string' ? part.resource.text
    : `(${visible(part?.type ?? 'something', 30)}, which is not shown)`);
  const text = visible(parts.join('\n'), MAX_BYTES);
  if (isError === true) throw new Error(text || 'the tool failed');
  return text;
}

/** JSON with escapes for the characters that cannot be seen, or that change the direction of others: the reader sees
 * all that is sent. @param {string} json */
const asSeen = json => json.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{DI}]/gu, character =>
  Array.from({ length: character.length }, (_, i) =>
    `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''));

/** A text as the value of a header. @param {string | number | boolean} value */
function headerText(value) {
  const text = String(value);
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !/^=\?base64\?.*\?=$/.test(text)) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

/** @param {unknown} value @returns {value is Record<string, any>} */
const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value);

/** @param {string} detail */
const wrong = detail => new ExplainedError('This is not an MCP server', 'It must speak the Model Context Protocol '
  + 'over HTTP; the reason is below.', detail);
