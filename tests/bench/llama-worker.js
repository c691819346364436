/* The worker of engine-llama.js in a page: calls its methods and answers in order. */
import { moduleOf, openLlama } from './engine-llama.js';

let create, engine;

const methods = {
  async open(url, contextLength, threads, isPlain) {
    const urlOf = name => new URL(`../../build/bench/${name}`, import.meta.url).href;
    create ??= (await import(urlOf(`${moduleOf(threads)}.mjs`))).default;
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    engine = await openLlama(create, bytes, contextLength, threads, isPlain,
      { locateFile: urlOf, mainScriptUrlOrBlob: urlOf(`${moduleOf(threads)}.js`) });
    return { loadSeconds: engine.loadSeconds, about: engine.about };
  },
  setPrompt: ids => engine.setPrompt(ids),
  prefill: n => engine.prefill(n),
  decode: (context, steps) => engine.decode(context, steps),
};

self.onmessage = async ({ data: [method, ...args] }) => {
  try {
    self.postMessage({ value: await methods[method](...args) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
