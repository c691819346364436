/* A function from a Request to a Response that answers as OpenAI's service does, with models on this machine.  The same
 * function is behind plumb serve, in a service worker, and in a program that has no port. */
import { onAbort } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { MOST_SESSIONS } from '../api/pool.js';
import { CALL } from '../api/session.js';
import { Completions } from '../openai/completions.js';
import { Decisions } from '../openai/decisions.js';
import { Embeddings } from '../openai/embeddings.js';
import { Reranking } from '../openai/reranking.js';
import { Responses } from '../openai/responses.js';
import { TextCompletions } from '../openai/text-completions.js';
import { bodyOf, errorBody, eventStream, httpError, HttpError, json } from './answers.js';
import { Models } from './models.js';
import { Ollama } from './ollama.js';
import { route } from './route.js';
import { Turns } from './turns.js';

/** @typedef {object} OwnHandlerOptions
 * @property {number} [parallel]  how many requests are answered at the same time, 1 to 16; default 4
 * @property {number} [queue]  how many wait for their turn; more are refused with status 429; default 64
 * @property {'embeddings'} [only]  answers only requests for embeddings, reranking and tokens
 * @property {number} [maxBody]  the most bytes of a request's body; default 8 MiB
 * @property {number} [stalled]  seconds after which a stream that nobody reads is ended; default 60
 * @typedef {import('./models.js').ModelsOptions & OwnHandlerOptions} HandlerOptions */
/** @typedef {import('../engine/generation.js').Stats} Stats
 * @typedef {import('./route.js').Hold} Hold */
/** @typedef {(input: Request | string | URL, init?: RequestInit) => Promise<Response>} Fetch */
/** @typedef {object} Served  what a handler has besides answering
 * @property {{list: () => {name: string, model?: import('../api/plumb.js').Model, users: number}[]}} models  list: all
 *   names, each with its model if it is loaded, and how many use it
 * @property {{readonly running: number, readonly waiting: number}} turns  how many requests are being answered, and how
 *   many wait
 * @property {(path: string) => string | undefined} routeOf  the route of a path, as in /v1/models/*
 * @property {(path: string) => boolean} has  whether a path is one of the API, with or without a route
 * @property {(call: (stats: Stats) => void) => void} onStats  call receives the statistics of each answer that ends
 * @property {() => Promise<void>} close  ends all answers, and frees the models; the next request loads again
 * @typedef {Fetch & Served} Handler  a function that answers a request.  It has the arguments of the platform's fetch,
 *   and rejects with the reason of the request's signal, if that is aborted */

/** How many tokens the engine is asked for their texts at once. */
const PIECES = 4096;

/** @param {import('./models.js').Loader} plumb @param {HandlerOptions} [options] @returns {Handler} */
export function createHandler(plumb, options = {}) {
  known.checkOptions('createHandler', options, known.HANDLER);
  const { parallel = 4, queue = 64, maxBody = 2 ** 23, stalled = 60, only, ...rest } = options;
  const models = new Models('createHandler', plumb, rest), turns = new Turns(Math.min(parallel, MOST_SESSIONS), queue);
  /** @type {((stats: Stats) => void)[]} */
  const listeners = [];
  /** @type {Hold} */
  const hold = async (where, name, signal) => {
    const { model, free } = await models.hold(where, name, signal);
    return {
      model,
      free(stats = []) {
        free();
        for (const listener of listeners) stats.forEach(one => listener(one));
      },
    };
  };
  const ollama = new Ollama(models, hold);
  const routes = [
    ...only ? [] : [...generating(hold), ...ollama.generating], ...measuring(hold), ...ollama.measuring,
    ...telling(models), ...ollama.telling,
  ];
  /** The first parts of all paths. */
  const firsts = new Set(routes.map(({ path }) => firstOf(path)));
  /** @param {Request} request @param {string} path @param {AbortSignal} signal */
  const respond = async (request, path, signal) => {
    const found = routes.filter(route => route.pattern.test(path));
    if (found.length === 0) throw new HttpError(404, `there is no ${path}`, 'not_found');
    const wanted = request.method === 'HEAD' ? 'GET' : request.method;
    const route = found.find(({ method }) => method === wanted);
    if (!route) {
      const methods = found.map(({ method }) => method).join(', ');
      throw new HttpError(405, `${path} takes ${methods}, not ${request.method}`, null, { Allow: methods });
    }
    const names = (route.pattern.exec(path) ?? []).slice(1).map(decoded), options = { signal };
    if (route.method !== 'POST') return responseOf(await route.endpoint({ body: undefined, names, options }));
    const body = await bodyOf(request, maxBody), end = route.waits ? await turns.take(signal) : () => {};
    try {
      const response = ending(responseOf(await route.endpoint({ body, names, options })), { end, signal, stalled });
      signal.throwIfAborted();
      return response;
    } catch (error) {
      end();
      throw error;
    }
  };
  /** @type {Fetch} */
  const handler = async (input, init) => {
    // Servers give a second argument of their own, which is no plain object.
    const isServed = input instanceof Request && Object.getPrototypeOf(Object(init)) !== Object.prototype;
    const request = isServed || input instanceof Request && !init ? input : new Request(input, init);
    const signal = !isServed && init?.signal || request.signal;
    const path = withoutSlashes(new URL(request.url).pathname);
    try {
      return await respond(request, path, signal);
    } catch (error) {
      signal.throwIfAborted();
      const failure = httpError(error);
      return json(errorBody(failure, path), failure.status, failure.headers);
    }
  };
  return Object.assign(handler, {
    models, turns, routeOf: (/** @type {string} */ path) => routes.find(({ pattern }) => pattern.test(path))?.path,
    has: (/** @type {string} */ path) => firsts.has(firstOf(path)),
    onStats: (/** @type {(stats: Stats) => void} */ call) => void listeners.push(call),
    close: () => models.close(),
  });
}

/** The first part of a path. @param {string} path */
const firstOf = path => path.split('/', 2)[1];

/** A path without slashes at its end. @param {string} path */
function withoutSlashes(path) {
  let end = path.length;
  while (end > 1 && path[end - 1] === '/') end--;
  return path.slice(0, end);
}

/** @param {Response | object} answer */
const responseOf = answer => answer instanceof Response ? answer : json(answer);

/** @param {string} part  of a path */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new HttpError(400, `${JSON.stringify(part)} in the path is not percent-encoded UTF-8`);
  }
}

/** The response, which calls end when its body was read, or is left, or nobody reads it, or the signal is aborted.
 * @param {Response} response @param {{end: () => void, signal: AbortSignal, stalled: number}} how */
function ending(response, { end, signal, stalled }) {
  const isStream = response.headers.get('Content-Type') !== 'application/json';
  if (!isStream || !response.body) {
    end();
    return response;
  }
  const reader = response.body.getReader();
  let unfollow = () => {};
  /** @type {any} */
  let timer;
  const done = () => {
    unfollow();
    clearTimeout(timer);
    end();
  };
  const leave = (/** @type {any} */ reason) => reader.cancel(reason).catch(() => {}).finally(done);
  const body = new ReadableStream({
    start(controller) {
      unfollow = onAbort(signal, reason => {
        controller.error(reason);
        leave(reason);
      });
    },
    async pull(controller) {
      clearTimeout(timer);
      const { done: isEnd, value } = await reader.read();
      if (signal.aborted) return;
      if (isEnd) {
        done();
        return controller.close();
      }
      controller.enqueue(value);
      timer = setTimeout(() => {
        const error = new HttpError(408, `nobody has read the answer for ${stalled} s`);
        controller.error(error);
        leave(error);
      }, 1000 * stalled);
      timer.unref?.();
    },
    cancel: leave,
  });
  return new Response(body, response);
}

/** The routes that generate texts. @param {Hold} hold */
function generating(hold) {
  const chats = new Completions(hold), texts = new TextCompletions(hold), responses = new Responses(hold);
  /** @param {AsyncIterable<any> | object} result @param {Parameters<typeof eventStream>[1]} [how] */
  const answerOf = (result, how = { done: '[DONE]' }) =>
    Symbol.asyncIterator in result ? eventStream(result, how) : result;
  const nameOf = (/** @type {{type: string}} */ { type }) => type;
  /** @template T @param {T | false | undefined} found @param {string} id @returns {T} */
  const there = (found, id) => {
    if (!found) throw new HttpError(404, `there is no response ${JSON.stringify(id)}`, 'not_found');
    return found;
  };
  return [
    route('POST', '/v1/chat/completions', async ({ body, options }) => answerOf(await chats.create(body, options))),
    route('POST', '/v1/completions', async ({ body, options }) => answerOf(await texts.create(body, options))),
    route('POST', '/v1/responses', async ({ body, options }) =>
      answerOf(await responses.create(body, options), { nameOf })),
    route('GET', '/v1/responses/*', ({ names: [id] }) => there(responses.retrieve(id), id)),
    route('DELETE', '/v1/responses/*', ({ names: [id] }) =>
      ({ id, object: 'response', deleted: there(responses.delete(id), id) })),
  ];
}

/** The routes that compute without generating. @param {Hold} hold */
function measuring(hold) {
  const embeddings = new Embeddings(hold), reranking = new Reranking(hold), decisions = new Decisions(hold);
  return [
    route('POST', '/v1/embeddings', ({ body, options }) => embeddings.create(body, options)),
    route('POST', '/v1/decisions', ({ body, options }) => decisions.create(body, options)),
    route('POST', '/v1/systemone', ({ body, options }) => decisions.systemOne(body, options)),
    ...['/rerank', '/v1/rerank'].map(path =>
      route('POST', path, ({ body, options }) => reranking.create(body, options))),
    route('POST', '/tokenize', ({ body, options: { signal } }) => tokenize(hold, body, signal)),
    route('POST', '/detokenize', ({ body, options: { signal } }) => detokenize(hold, body, signal)),
  ];
}

/** The routes that only tell something. @param {Models} models */
function telling(models) {
  const created = Math.floor(Date.now() / 1000);
  const about = (/** @type {string} */ id) => ({ id, object: 'model', created, owned_by: 'plumb' });
  return [
    route('GET', '/health', () => ({ status: 'ok' })),
    route('GET', '/v1/models', () => ({ object: 'list', data: models.list().map(({ name }) => about(name)) })),
    route('GET', '/v1/models/*', ({ names: [name] }) => {
      if (models.list().some(one => one.name === name)) return about(name);
      throw new HttpError(404, `there is no model ${JSON.stringify(name)}`, 'model_not_found');
    }),
  ];
}

/** The tokens of a text or of a chat, in the shapes of llama.cpp's server (content, tokens) and of vLLM's (prompt or
 * messages, count). @param {Hold} hold @param {any} body @param {AbortSignal} signal */
async function tokenize(hold, body, signal) {
  const where = 'tokenize';
  known.checkOptions(where, body, known.TOKENIZE_REQUEST);
  const { model: name, content, prompt, messages, add_special = true, parse_special = true, with_pieces } = body;
  const text = content ?? prompt;
  if ((text === undefined) === (messages === undefined)) {
    throw argumentError(`${where}: expected one of content, prompt and messages`);
  }
  const { model, free } = await hold(where, name, signal);
  try {
    const ids = messages ? await model.tokenizeChat(messages)
      : await model.tokenize(text, { addSpecial: add_special, parseSpecial: parse_special });
    const { contextLength } = await model.info();
    const tokens = [];
    for (let at = 0; with_pieces && at < ids.length; at += PIECES) {
      signal.throwIfAborted();
      const pieces = await model[CALL]('pieces', { ids: ids.slice(at, at + PIECES) });
      for (const piece of pieces) tokens.push({ id: ids[tokens.length], piece });
    }
    return { tokens: with_pieces ? tokens : ids, count: ids.length, max_model_len: contextLength };
  } finally {
    free();
  }
}

/** The text of tokens. @param {Hold} hold @param {any} body @param {AbortSignal} signal */
async function detokenize(hold, body, signal) {
  const where = 'detokenize';
  known.checkOptions(where, body, known.DETOKENIZE_REQUEST);
  if (!body.tokens) throw argumentError(`${where}: tokens is missing`);
  const { model, free } = await hold(where, body.model, signal);
  try {
    const text = await model.detokenize(body.tokens, { special: true });
    return { content: text, prompt: text };
  } finally {
    free();
  }
}
