/* The functions that chromium.mjs calls in the page of one engine. */
import { Plumb } from '../../web/index.js';
import { openPlumb } from './engine-plumb.js';
import { openWllama } from './engine-wllama.js';

let engine;

/** An engine in a worker of its own: see llama-worker.js. */
async function openInWorker(file, ...args) {
  const worker = new Worker(new URL(file, import.meta.url), { type: 'module' });
  const call = (...message) => new Promise((resolve, reject) => {
    worker.onerror = event => reject(new Error(event.message));
    worker.onmessage = ({ data }) => data.error ? reject(new Error(data.error)) : resolve(data.value);
    worker.postMessage(message);
  });
  return {
    ...await call('open', ...args),
    setPrompt: ids => call('setPrompt', ids),
    prefill: n => call('prefill', n),
    decode: (context, steps) => call('decode', context, steps),
  };
}

const open = (kind, url, contextLength, threads) => {
  if (kind.startsWith('plumb')) return openPlumb(Plumb, kind, url, contextLength, threads);
  if (kind.startsWith('wllama')) return openWllama(Number(kind.slice('wllama-'.length)), url, contextLength, threads);
  return openInWorker('llama-worker.js', url, contextLength, threads, kind === 'llama.cpp-wasm-plain');
};

async function bytesOfPage() {
  const { bytes, breakdown } = await performance.measureUserAgentSpecificMemory();
  return { bytes, breakdown: breakdown.filter(part => part.bytes > 0).map(({ bytes, types }) => ({ bytes, types })) };
}

window.bench = {
  async open(kind, url, contextLength, threads) {
    engine = await open(kind, url, contextLength, threads);
    const { loadSeconds, info, about } = engine;
    return { loadSeconds, info, about };
  },
  setPrompt: (ids, texts) => engine.setPrompt(ids, texts),
  prefill: n => engine.prefill(n),
  decode: (context, steps) => engine.decode(context, steps),
  memory: bytesOfPage,
  /** Seconds from the URL to the first logits, and the seconds of the prefill in them. */
  async firstToken(kind, url, contextLength, threads, { ids, texts }, n) {
    const start = performance.now();
    const { info } = await this.open(kind, url, contextLength, threads);
    await engine.setPrompt(ids, texts);
    const prefillSeconds = await engine.prefill(n);
    return { seconds: (performance.now() - start) / 1000, prefillSeconds, info };
  },
  /** Seconds that a bare download of the bytes takes. */
  async fetchOnly(url) {
    const start = performance.now();
    const reader = (await fetch(url)).body.getReader();
    let bytes = 0;
    for (let chunk; !(chunk = await reader.read()).done;) bytes += chunk.value.length;
    return { seconds: (performance.now() - start) / 1000, bytes };
  },
};
