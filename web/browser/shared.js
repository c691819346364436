/* One engine for all pages of an origin that load the same model with shared: true.
 *
 * The pages of a model queue for one Web Lock.  The page that holds it loads the model and is the provider: it answers
 * the calls of all pages, each of which has its own sessions.  When its page ends, the browser gives the lock to the
 * next one, which loads the model again from the copy on this machine, and the other pages repeat the calls that have
 * not ended.  The same seed gives the same bits, so a text that was being written goes on where it was.  What cannot be
 * repeated is what a session held between two calls; see LOST.
 *
 * Each page and each provider also holds a lock of its own, by which the others notice its end.  All pages of a model
 * talk on one channel, and the calls of a page have a channel of their own, with the messages of protocol.js.
 *
 *   on the channel of the model:
 *   page -> provider      { hello }                         the page wants the engine
 *   provider -> pages     { progress }                      of the load
 *                         { provider }                      there is a new one: say hello again
 *                         { provider, page, loaded }        the provider now listens to this page
 *
 * A page that is the provider and closes its model goes on serving the others until it ends itself.  A provider whose
 * engine has crashed ends, and the next page loads the model. */
import { onAbort, unlessAborted } from '../base/async.js';
import { PlumbError, argumentError } from '../base/errors.js';
import { Local, Remote, serve } from '../base/protocol.js';

/** @typedef {import('../base/protocol.js').Transport} Transport
 * @typedef {import('../base/protocol.js').Methods} Methods
 * @typedef {import('../api/plumb.js').Opened} Opened
 * @typedef {import('../api/plumb.js').ShareOptions} ShareOptions */

/** Pages with another version of this file, or from another folder, have an engine of their own. */
const VERSION = `plumb 1 ${import.meta.url} `;
/** The calls that are passed on as they are, but for the numbers of sessions. */
const PASSED = ['info', 'tokenize', 'detokenize', 'pieces', 'format', 'render', 'renderTokens', 'feed', 'trace', 'save',
  'restore', 'rewind', 'embed', 'rank', 'decide', 'generate'];
/** The calls that need what the session holds; the others bring all of their tokens. */
const NEEDS_TOKENS = ['feed', 'rewind', 'save', 'forkSession'];
const LOST = 'the page that held the engine was closed, and what this session held is lost with it; feed it again '
  + 'after rewind()';

/** Why pages cannot share an engine here; undefined: they can. */
export function unsharedReason() {
  if (!('BroadcastChannel' in globalThis)) return 'this browser has no BroadcastChannel';
  if (globalThis.navigator?.locks) return undefined;
  return globalThis.isSecureContext ? 'this browser has no Web Locks'
    : 'Web Locks need a page that was loaded by https: or from this machine';
}

/** Uses the engine of another page, or loads the model in this one. @param {ShareOptions} options
 * @returns {Promise<Opened>} */
export async function share(options) {
  const page = new SharingPage(options);
  return { transport: page, result: await page.start(options.signal) };
}

/** @param {string} name @param {AbortSignal} signal  gives the lock back
 * @returns {Promise<void>} resolves when the lock is held */
function hold(name, signal) {
  return new Promise((resolve, reject) => {
    navigator.locks.request(name, { signal }, () => new Promise(end => {
      resolve();
      onAbort(signal, end);
    })).catch(reject);
  });
}

/** The channel with the calls of a page, as protocol.js takes it. @param {string} page */
function callsOf(page) {
  const channel = new BroadcastChannel(`${VERSION}calls ${page}`);
  return {
    post: (/** @type {any} */ message) => channel.postMessage(message),
    onMessage: (/** @type {(message: any) => void} */ handler) => {
      channel.onmessage = ({ data }) => handler(data);
    },
    close: () => channel.close(),
  };
}

/** The lock of a page or a provider. @param {string} id */
const lockOf = id => `${VERSION}life ${id}`;

/** Calls a function when a page or a provider has ended. @param {string} id @param {AbortSignal} signal  stops waiting
 * @param {() => void} call */
function whenEnded(id, signal, call) {
  navigator.locks.request(lockOf(id), { signal }, call).catch(() => {});
}

/** The engine's side, in the page that has it. */
class Provider {
  #opened; #compile; #ended = new AbortController();
  /** The pages that use it: their sessions' numbers, and the numbers that these have in the engine.
   * @type {Map<string, Map<number, number>>} */
  #pages = new Map();
  #lastSession = 0;

  id = crypto.randomUUID();

  /** @param {Opened} opened @param {ShareOptions['compile']} compile */
  constructor(opened, compile) {
    this.#opened = opened;
    this.#compile = compile;
    /** Resolves when the engine is freed, as no page uses it any more, or it has crashed. @type {Promise<void>} */
    this.ended = new Promise(resolve => this.#ended.signal.addEventListener('abort', async () => {
      await opened.transport.call('close').catch(() => {});
      await opened.transport.terminate();
      resolve();
    }));
    /** Resolves when others can notice its end. */
    this.ready = hold(lockOf(this.id), this.#ended.signal);
  }

  /** The result of the load. */
  get loaded() { return this.#opened.result; }

  /** The methods for a page. @param {string} page @returns {Methods} */
  join(page) {
    /** @type {Map<number, number>} */
    const numbers = new Map();
    this.#pages.set(page, numbers);
    const numberOf = (/** @type {number} */ id) => {
      const number = numbers.get(id);
      if (number === undefined) throw new PlumbError('PLUMB_ERROR_STATE', 'the session is closed');
      return number;
    };
    /** @param {string} method @param {any} args @param {import('../base/protocol.js').Call} call */
    const pass = async (method, { session, ...args }, { signal, emit }) => {
      const given = session === undefined ? args : { ...args, session: numberOf(session) };
      try {
        return await this.#opened.transport.call(method, given,
          { signal, onEvent: emit, onPull: part => this.#compile(String(part)) });
      } catch (error) {
        this.#opened.transport.call('info').catch(() => this.#ended.abort());   // it has crashed
        throw error;
      }
    };
    /** @type {(method: string) => Methods[string]} */
    const opening = method => async ({ id, ...args }, call) => {
      const number = ++this.#lastSession;
      await pass(method, { ...args, id: number }, call);
      if (this.#pages.get(page) === numbers) numbers.set(id, number);
      else await this.#close(number);   // the page has ended meanwhile
    };
    return {
      ...Object.fromEntries(PASSED.map(method => [method, (args, call) => pass(method, args, call)])),
      openSession: opening('openSession'),
      forkSession: opening('forkSession'),
      closeSession: async ({ id }) => {
        const number = numberOf(id);
        numbers.delete(id);
        await this.#close(number);
      },
      close: async () => {},   // Local.terminate calls it
    };
  }

  /** Lets a page use the engine through its channel, until it ends. @param {string} page */
  attach(page) {
    if (this.#pages.has(page)) return;
    const channel = callsOf(page);
    serve(channel, this.join(page));
    whenEnded(page, this.#ended.signal, () => {
      channel.close();
      this.leave(page);
    });
  }

  /** @param {number} number */
  #close(number) { return this.#opened.transport.call('closeSession', { id: number }).catch(() => {}); }

  /** Frees the sessions of a page, and the engine if it was the last one. @param {string} page */
  leave(page) {
    const numbers = this.#pages.get(page);
    this.#pages.delete(page);
    for (const number of numbers?.values() ?? []) this.#close(number);
    if (this.#pages.size === 0) this.#ended.abort();
  }
}

/** A session of this page.
 * @typedef {object} SharedSession
 * @property {object} args  with which it is opened
 * @property {Link} [link]  by which it was opened
 * @property {Promise<unknown>} [opening]
 * @property {boolean} holdsTokens */
/** A way to the engine.
 * @typedef {{provider: string, transport: Transport, isDead: boolean}} Link */

/** The user's side. @implements {Transport} */
class SharingPage {
  #id = crypto.randomUUID();
  #options; #channel;
  /** Ends this page's use of the engine. */
  #left = new AbortController();
  /** @type {Provider | undefined} */
  #provider;
  /** @type {Link | undefined} */
  #link;
  /** Why there will be no link any more. @type {unknown} */
  #failure;
  /** Those who wait for a link, or for its failure. @type {Set<() => void>} */
  #waiting = new Set();
  /** @type {any} */
  #loaded;
  /** By their numbers; 0 is the model's own. @type {Map<number, SharedSession>} */
  #sessions = new Map();

  /** @param {ShareOptions} options */
  constructor(options) {
    this.#options = options;
    this.#channel = new BroadcastChannel(VERSION + options.key);
    this.#sessions.set(0, { args: options.session, holdsTokens: false });
  }

  /** @param {AbortSignal} [signal] @returns {Promise<any>}  the result of the load */
  async start(signal) {
    try {
      await hold(lockOf(this.#id), this.#left.signal);
      this.#channel.onmessage = ({ data }) => this.#hear(data);
      this.#queue();
      await unlessAborted(this.#linked(), signal);
      return this.#loaded;
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  /** Asks for the engine, and queues for providing it. */
  #queue() {
    navigator.locks.request(`${VERSION}engine ${this.#options.key}`, { signal: this.#left.signal },
      () => this.#provide()).then(() => this.#provided(), () => this.#channel.close());   // left, or no longer a page
    this.#channel.postMessage({ hello: this.#id });
  }

  /** @param {any} message */
  #hear({ hello, progress, provider, page, loaded }) {
    if (hello) this.#welcome(hello);
    else if (progress && !this.#link) this.#options.onProgress?.(progress);
    else if (provider && page === undefined) this.#channel.postMessage({ hello: this.#id });
    else if (provider && page === this.#id) this.#follow(provider, loaded);
  }

  /** @param {string} page */
  #welcome(page) {
    if (!this.#provider) return;
    this.#provider.attach(page);
    this.#channel.postMessage({ provider: this.#provider.id, page, loaded: this.#provider.loaded });
  }

  /** Loads the model, and serves all pages until the last one has left it, or it crashes. */
  async #provide() {
    if (this.#left.signal.aborted) return;
    try {
      const provider = new Provider(await this.#options.open(progress => {
        if (!this.#loaded) this.#options.onProgress?.(progress);
        this.#channel.postMessage({ progress });
      }, this.#loaded ? undefined : this.#options.signal), this.#options.compile);
      await provider.ready;
      const link = { provider: provider.id, transport: new Local(provider.join(this.#id)), isDead: false };
      this.#provider = provider;
      this.#use(link, provider.loaded);
      if (this.#left.signal.aborted) provider.leave(this.#id);
      this.#channel.postMessage({ provider: provider.id });
      await provider.ended;
      this.#lose(link);
    } catch (error) {
      this.#failure = error;
      this.#wake();
    }
    this.#provider = undefined;
  }

  /** This page no longer provides the engine, but may use that of the next one. */
  #provided() {
    if (this.#left.signal.aborted || this.#failure) this.#channel.close();
    else this.#queue();
  }

  /** Sends calls to a provider from now on. @param {string} provider @param {any} loaded */
  #follow(provider, loaded) {
    if (this.#link?.provider === provider || this.#left.signal.aborted) return;
    const channel = callsOf(this.#id);
    let die = (/** @type {string} */ _) => {};
    const transport = new Remote({ ...channel, onDeath: handler => { die = handler; }, terminate: channel.close });
    const link = { provider, transport, isDead: false };
    whenEnded(provider, this.#left.signal, () => {
      this.#lose(link);
      die('its page was closed');
    });
    this.#use(link, loaded);
  }

  /** @param {Link} link @param {any} loaded */
  #use(link, loaded) {
    this.#link = link;
    this.#loaded ??= loaded;
    this.#wake();
  }

  /** @param {Link} link */
  #lose(link) {
    link.isDead = true;
    if (this.#link === link) this.#link = undefined;
  }

  #wake() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /** Resolves when there is a way to the engine. @returns {Promise<Link>} */
  async #linked() {
    for (;;) {
      if (this.#left.signal.aborted) throw new PlumbError('PLUMB_ERROR_STATE', 'the model is closed');
      if (this.#failure) throw this.#failure;
      if (this.#link) return this.#link;
      await new Promise(resolve => { this.#waiting.add(() => resolve(undefined)); });
    }
  }

  /** @type {Transport['call']} */
  async call(method, args = {}, options = {}) {
    if (method === 'close') return this.#leave();
    const given = repeatable(method, args), held = this.#sessionOf(method, given)?.holdsTokens ?? false;
    let seen = 0;
    for (;;) {
      const link = await unlessAborted(this.#linked(), options.signal);
      let at = 0;
      const onEvent = (/** @type {string} */ event, /** @type {any} */ data) => {
        if (++at <= seen) return;
        seen = at;
        options.onEvent?.(event, data);
      };
      try {
        return await this.#callBy(link, method, given, held, { signal: options.signal, onEvent });
      } catch (error) {
        if (!link.isDead) throw error;
      }
    }
  }

  /** The session that a call uses. @param {string} method @param {any} args */
  #sessionOf(method, { id, session }) {
    return method === 'closeSession' ? this.#sessions.get(id)
      : session === undefined ? undefined : this.#sessions.get(session);
  }

  /** @param {Link} link @param {string} method @param {any} args @param {boolean} held  whether the session held tokens
   *   before this call @param {import('../base/protocol.js').CallOptions} options */
  async #callBy(link, method, args, held, options) {
    const pass = () => link.transport.call(method, args, options);
    if (method === 'openSession') {
      const { id, ...own } = args;
      await pass();
      this.#sessions.set(id, { args: own, link, holdsTokens: false });
      return undefined;
    }
    const session = this.#sessionOf(method, args);
    if (method === 'closeSession') {
      this.#sessions.delete(args.id);
      return session?.link === link ? pass() : undefined;
    }
    if (!session) return pass();
    if (session.link !== link) {
      if (held && NEEDS_TOKENS.includes(method) && args.position !== 0) {
        throw new PlumbError('PLUMB_ERROR_STATE', LOST);
      }
      await this.#open(session, args.session, link);
    }
    if (method !== 'info') session.holdsTokens = true;
    const result = await pass();
    if (method === 'rewind' && args.position === 0) session.holdsTokens = false;
    if (method === 'forkSession') this.#sessions.set(args.id, { args: session.args, link, holdsTokens: true });
    return result;
  }

  /** Opens a session by a link, once. @param {SharedSession} session @param {number} id @param {Link} link */
  async #open(session, id, link) {
    session.opening ??= link.transport.call('openSession', { id, ...session.args }).then(() => {
      session.link = link;
    }).finally(() => { session.opening = undefined; });
    await session.opening;
  }

  /** Ends this page's use of the engine.  If it provides it, it goes on doing so while others use it. */
  #leave() {
    if (this.#left.signal.aborted) return;
    this.#left.abort();
    this.#wake();
    if (this.#provider) this.#provider.leave(this.#id);
    else this.#link?.transport.terminate();
  }

  terminate() { this.#leave(); }
}

/** The arguments of a call, so that another engine gives the same results. @param {string} method @param {any} args */
function repeatable(method, args) {
  if (/Adapters?$/.test(method)) {
    throw argumentError('adapters: all pages share the engine, so each would change the answers of the others; load '
      + 'the model without shared: true');
  }
  if (method !== 'generate' || args.options.seed !== undefined) return args;
  return { ...args, options: { ...args.options, seed: crypto.getRandomValues(new Uint32Array(1))[0] } };
}
