/* HTTP's side of the endpoints: reads the JSON of requests, and writes JSON, streams of events and errors. */
import { yieldToEventLoop } from '../base/async.js';
import { PlumbError, reasonOf } from '../base/errors.js';
import { jsonPieces, parseJson } from '../base/json.js';

/** What an error of HTTP is: its status, and a code for programs. */
export class HttpError extends Error {
  /** @param {number} status @param {string} message @param {string | null} [code]
   * @param {Record<string, string>} [headers]  further headers of the response */
  constructor(status, message, code = null, headers = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

/** Status and code of the errors of plumb that a request can cause; all others are 500.
 * @type {Partial<Record<import('../base/errors.js').ErrorCode, [number, string | null]>>} */
const STATUS = {
  PLUMB_ERROR_ARGUMENT: [400, null], PLUMB_ERROR_CONTEXT: [400, 'context_length_exceeded'],
  PLUMB_ERROR_TEMPLATE: [400, null], PLUMB_ERROR_TOKEN: [400, null], PLUMB_ERROR_UNSUPPORTED: [400, null],
  PLUMB_ERROR_STATE: [503, null], PLUMB_ERROR_MEMORY: [503, 'out_of_memory'],
};

/** The error as HTTP has it. @param {unknown} error @returns {HttpError} */
export function httpError(error) {
  if (error instanceof HttpError) return error;
  const [status, code] = error instanceof PlumbError ? STATUS[error.code] ?? [500, error.code] : [500, null];
  const { model, models } = error instanceof PlumbError ? error.details : {};
  if (models === undefined) return new HttpError(status, reasonOf(error), code);
  const names = models.map((/** @type {string} */ name) => JSON.stringify(name)).join(', ') || 'there are none';
  return new HttpError(404, `there is no model ${JSON.stringify(model)}; the models are: ${names}`, 'model_not_found');
}

/** The body of an error, as OpenAI's service has it, or as Ollama has it. @param {HttpError} error
 * @param {string} [path]  of the request */
export const errorBody = ({ status, message, code }, path = '') => path.startsWith('/api/') ? { error: message } : ({
  error: {
    message, param: null, code,
    type: status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'server_error',
  },
});

/** A response with JSON, which is written as it is read.
 * @param {unknown} value @param {number} [status] @param {Record<string, string>} [headers] */
export function json(value, status = 200, headers = {}) {
  const { body } = streamed(jsonPieces(value), 'application/json', error => { throw error; });
  return new Response(body, { status, headers: { 'Content-Type': 'application/json', ...headers } });
}

/** Bytes of a body that is copied in a task of its own. */
const LARGE = 1 << 20;

/** Reads the JSON of a request.
 * @param {Request} request @param {number} most  bytes @returns {Promise<any>} */
export async function bodyOf(request, most) {
  const tooLong = () => new HttpError(413, `the body has more than ${most} bytes`, 'body_too_large');
  if (Number(request.headers.get('Content-Length') ?? 0) > most) throw tooLong();
  /** @type {string[]} */
  const pieces = [], decoder = new TextDecoder();
  let length = 0;
  const reader = request.body?.getReader();
  for (let step = await reader?.read(); step && !step.done; step = await reader?.read()) {
    length += step.value.length;
    if (length > most) {
      reader?.cancel().catch(() => {});
      throw tooLong();
    }
    pieces.push(decoder.decode(step.value, { stream: true }));
  }
  const text = pieces.join('') + decoder.decode();
  if (length > LARGE) await yieldToEventLoop();
  if (text.trim() === '') throw new HttpError(400, 'the body is empty, expected JSON');
  try {
    const value = await parseJson(text);
    if (length > LARGE) await yieldToEventLoop();
    return value;
  } catch (error) {
    throw new HttpError(400, `the body is no JSON: ${reasonOf(error)}`);
  }
}

/** A response that is written as its parts come.  Leaving it ends the parts.
 * @param {AsyncIterator<string, unknown, void>} parts @param {string} type  of the content
 * @param {(error: HttpError) => string} failed  the last part, if there is an error */
function streamed(parts, type, failed) {
  const encoder = new TextEncoder();
  /** Begun at once, because only a generator that was begun frees what it uses when it is left.
   * @type {Promise<IteratorResult<string>> | undefined} */
  let first = parts.next();
  first.catch(() => {});
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await (first ?? parts.next());
        first = undefined;
        if (done) controller.close();
        else controller.enqueue(encoder.encode(value));
      } catch (error) {
        controller.enqueue(encoder.encode(failed(httpError(error))));
        controller.close();
      }
    },
    async cancel() { await parts.return?.(); },
  });
  return new Response(body, { headers: { 'Content-Type': type, 'Cache-Control': 'no-cache' } });
}

/** What comes before the data of an event. @param {string} [name] */
const headOf = name => `${name ? `event: ${name}\n` : ''}data: `;

/** Server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html.  done: the data of a last event
 * behind all others; nameOf: the name of an event.
 * @param {AsyncIterable<any>} values @param {{done?: string, nameOf?: (value: any) => string}} [options] */
export function eventStream(values, { done, nameOf } = {}) {
  const parts = (async function* () {
    for await (const value of values) yield* jsonPieces(value, headOf(nameOf?.(value)), '\n\n');
    if (done) yield `data: ${done}\n\n`;
  })();
  return streamed(parts, 'text/event-stream', error =>
    `${headOf(nameOf && 'error')}${JSON.stringify(errorBody(error))}\n\n`);
}

/** Lines of JSON. @param {AsyncIterable<any>} values */
export function lineStream(values) {
  const parts = (async function* () {
    for await (const value of values) yield* jsonPieces(value, '', '\n');
  })();
  return streamed(parts, 'application/x-ndjson', ({ message }) => `${JSON.stringify({ error: message })}\n`);
}
