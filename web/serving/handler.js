/* A function from a Request to a Response that answers as OpenAI's service does, with models on this machine.  The same
 * function is behind plumb serve, in a service worker, and in a program that has no port. */
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { MOST_SESSIONS } from '../api/pool.js';
import { Completions } from '../openai/completions.js';
import { Embeddings } from '../openai/embeddings.js';
import { Reranking } from '../openai/reranking.js';
import { TextCompletions } from '../openai/text-completions.js';
import { bodyOf, errorBody, eventStream, httpError, HttpError, json } from './answers.js';
import { Models } from './models.js';
import { Turns } from './turns.js';

/** @typedef {object} OwnHandlerOptions
 * @property {number} [parallel]  how many requests are answered at the same time, 1 to 16; default 4
 * @property {number} [queue]  how many wait for their turn; more are refused with status 429; default 64
 * @property {'embeddings'} [only]  answers only requests for embeddings, reranking and tokens
 * @property {number} [maxBody]  the most bytes of a request's body; default 16 MiB
 * @typedef {import('./models.js').ModelsOptions & OwnHandlerOptions} HandlerOptions */
/** @typedef {object} Call
 * @property {any} body  the JSON of the request
 * @property {string[]} names  the parts of the path that the route names
 * @property {{signal: AbortSignal}} options */
/** @typedef {(call: Call) => Promise<Response | object> | Response | object} Endpoint  an object is answered as JSON */
/** @typedef {import('../engine/generation.js').Stats} Stats */
/** @typedef {object} Served  what a handler has besides answering
 * @property {Models} models
 * @property {Turns} turns
 * @property {(path: string) => string | undefined} routeOf  the route of a path, as in /v1/models/*
 * @property {(call: (stats: Stats) => void) => void} onStats  call receives the statistics of each answer that ends
 * @property {() => Promise<void>} close  ends all answers, and frees the models; the next request loads again
 * @typedef {((request: Request) => Promise<Response>) & Served} Handler */

/** @param {import('./models.js').Loader} plumb @param {HandlerOptions} [options] @returns {Handler} */
export function createHandler(plumb, options = {}) {
  known.checkOptions('createHandler', options, known.HANDLER);
  const { parallel = 4, queue = 64, maxBody = 2 ** 24, only, ...rest } = options;
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
  const routes = [...only ? [] : generating(hold), ...measuring(hold), ...telling(models)];
  /** @param {Request} request */
  const respond = async request => {
    const { pathname } = new URL(request.url), path = pathname.replace(/(.)\/+$/, '$1');
    const found = routes.filter(route => route.pattern.test(path));
    if (found.length === 0) throw new HttpError(404, `there is no ${path}`, 'not_found');
    const wanted = request.method === 'HEAD' ? 'GET' : request.method;
    const route = found.find(({ method }) => method === wanted);
    if (!route) {
      const methods = found.map(({ method }) => method).join(', ');
      throw new HttpError(405, `${path} takes ${methods}, not ${request.method}`, null, { Allow: methods });
    }
    const names = (route.pattern.exec(path) ?? []).slice(1).map(decodeURIComponent);
    const options = { signal: request.signal };
    if (route.method !== 'POST') return responseOf(await route.endpoint({ body: undefined, names, options }));
    const body = await bodyOf(request, maxBody), end = await turns.take(request.signal);
    try {
      return ending(responseOf(await route.endpoint({ body, names, options })), end);
    } catch (error) {
      end();
      throw error;
    }
  };
  const handler = async (/** @type {Request} */ request) => {
    try {
      return await respond(request);
    } catch (error) {
      const failure = httpError(error);
      return json(errorBody(failure), failure.status, failure.headers);
    }
  };
  return Object.assign(handler, {
    models, turns, routeOf: (/** @type {string} */ path) => routes.find(({ pattern }) => pattern.test(path))?.path,
    onStats: (/** @type {(stats: Stats) => void} */ call) => void listeners.push(call),
    close: () => models.close(),
  });
}

/** @param {Response | object} answer */
const responseOf = answer => answer instanceof Response ? answer : json(answer);

/** The response, which calls end when its body was read, or is left. @param {Response} response
 * @param {() => void} end */
function ending(response, end) {
  const isStream = response.headers.get('Content-Type') !== 'application/json';
  if (!isStream || !response.body) {
    end();
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (!done) return controller.enqueue(value);
      end();
      controller.close();
    },
    async cancel(reason) {
      await reader.cancel(reason);
      end();
    },
  });
  return new Response(body, response);
}

/** @param {'GET' | 'POST'} method @param {string} path  in which * stands for any text @param {Endpoint} endpoint */
const route = (method, path, endpoint) => ({
  method, path, endpoint, pattern: new RegExp(`^${path.replaceAll('.', '\\.').replaceAll('*', '(.+)')}$`),
});

/** @typedef {(where: string, name?: string, signal?: AbortSignal) =>
 *   Promise<{model: import('../api/plumb.js').Model, free: (stats?: Stats[]) => void}>} Hold  as Models.hold */

/** The routes that generate texts. @param {Hold} hold */
function generating(hold) {
  const chats = new Completions(hold), texts = new TextCompletions(hold);
  /** @param {AsyncIterable<any> | object} result */
  const answerOf = result => Symbol.asyncIterator in result ? eventStream(result, { done: '[DONE]' }) : result;
  return [
    route('POST', '/v1/chat/completions', async ({ body, options }) => answerOf(await chats.create(body, options))),
    route('POST', '/v1/completions', async ({ body, options }) => answerOf(await texts.create(body, options))),
  ];
}

/** The routes that compute without generating. @param {Hold} hold */
function measuring(hold) {
  const embeddings = new Embeddings(hold), reranking = new Reranking(hold);
  return [
    route('POST', '/v1/embeddings', ({ body, options }) => embeddings.create(body, options)),
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
    const tokens = with_pieces ? await Promise.all(Array.from(ids, async id =>
      ({ id, piece: await model.detokenize([id], { special: true }) }))) : [...ids];
    return { tokens, count: ids.length, max_model_len: contextLength };
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
