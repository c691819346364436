/* The functions that chromium.mjs calls in the page of one engine. */
import { Plumb } from '../../web/index.js';
import { openPlumb } from './engine-plumb.js';
import { openWllama } from './engine-wllama.js';

let engine;

async function bytesOfPage() {
  const { bytes, breakdown } = await performance.measureUserAgentSpecificMemory();
  return { bytes, breakdown: breakdown.filter(part => part.bytes > 0).map(({ bytes, types }) => ({ bytes, types })) };
}

window.bench = {
  async open(kind, url, contextLength, threads) {
    engine = kind.startsWith('plumb') ? await openPlumb(Plumb, kind, url, contextLength, threads)
      : await openWllama(Number(kind.slice('wllama-'.length)), url, contextLength, threads);
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
