/* Both generations of wllama as engines of the bench in a page, with the interface of engine-plumb.js.
 *
 * 2.x has decode(tokens), which is timed from outside like plumb.  3.x only takes text and runs llama.cpp's server
 * inside: the bench uses its own clock around llama.cpp's work, which excludes the cost of its JavaScript.  Everything
 * not named here has its default. */

import { stepping } from './steps.js';

const quiet = { debug() {}, log() {}, warn() {}, error: console.error };
const modules = new URL('node_modules/', import.meta.url);

export async function openWllama(generation, url, contextLength, threads) {
  const start = performance.now();
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
  const blob = await response.blob();
  const open = generation === 2 ? open2 : open3;
  const engine = await open(blob, { n_ctx: contextLength, n_threads: threads });
  const running = engine.wllama.isMultithread() ? engine.wllama.getNumThreads() : 1;
  if (running !== threads) {
    await engine.wllama.exit();
    throw new Error(`asked for ${threads} threads, runs with ${running}`);
  }
  return { ...engine, loadSeconds: (performance.now() - start) / 1000, close: () => engine.wllama.exit() };
}

async function open2(blob, options) {
  const { Wllama } = await import(new URL('wllama-2/esm/index.js', modules).href);
  const wllama = new Wllama({
    'single-thread/wllama.wasm': new URL('wllama-2/esm/single-thread/wllama.wasm', modules).href,
    'multi-thread/wllama.wasm': new URL('wllama-2/esm/multi-thread/wllama.wasm', modules).href,
  }, { suppressNativeLog: true, logger: quiet });
  await wllama.loadModel([blob], options);
  const rewind = async (position) => {
    if (position === 0) await wllama.kvClear();
    else await wllama.kvRemove(position, -1);   // below 0: all that follows
    wllama.nCachedTokens = position;            // its own count goes wrong there
  };
  const feed = tokens => wllama.decode(tokens, {});
  return { wllama, about: '', ...stepping({ rewind, feed }) };
}

async function open3(blob, options) {
  const { Wllama } = await import(new URL('@wllama/wllama/esm/index.js', modules).href);
  const wllama = new Wllama({ default: new URL('@wllama/wllama/esm/wasm/wllama.wasm', modules).href },
    { suppressNativeLog: true, logger: quiet });
  await wllama.loadModel([blob], { ...options, n_gpu_layers: 0, n_parallel: 1 });
  let texts = {};
  /** n prompt tokens in all, of which the server computed prompt_n anew. */
  const complete = async (n, cache, steps) => {
    if (texts[n] === undefined) throw new Error(`no text of ${n} tokens`);
    const { timings } = await wllama.createCompletion({
      prompt: texts[n], cache_prompt: cache, max_tokens: steps + 1, ignore_eos: true, temperature: 0, samplers: [],
    });
    if (timings.cache_n + timings.prompt_n !== n || timings.predicted_n !== steps + 1) {
      throw new Error(`asked for ${n} + ${steps + 1} tokens, got ${JSON.stringify(timings)}`);
    }
    return timings;
  };
  return {
    wllama, about: Wllama.getLibllamaVersion(),
    async setPrompt(_, given) { texts = given; },
    async prefill(n) {
      const timings = await complete(n, false, 0);
      return timings.prompt_ms / 1000;
    },
    async decode(context, steps) {
      const timings = await complete(context, true, steps);
      return timings.predicted_ms / 1000;
    },
  };
}
