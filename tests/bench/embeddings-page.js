/* The functions that embeddings.mjs calls in the page of one engine.  Each engine embeds texts with the call that its
 * users make, on one thread. */
import { Plumb } from '../../web/index.js';

const CONTEXT = 512, modules = new URL('node_modules/', import.meta.url);
const at = path => new URL(path, modules).href;
const quiet = { debug() {}, log() {}, warn() {}, error: console.error };
const blobOf = async url => (await fetch(url)).blob();

const engines = {
  async plumb(url) {
    const model = await Plumb.load(url, { threads: 1, contextLength: CONTEXT, cache: 'no-store' });
    return texts => model.embed(texts);
  },
  async 'wllama 2.3.1'(url) {
    const { Wllama } = await import(at('wllama-2/esm/index.js'));
    const wllama = new Wllama({ 'single-thread/wllama.wasm': at('wllama-2/esm/single-thread/wllama.wasm') },
      { suppressNativeLog: true, logger: quiet });
    await wllama.loadModel([await blobOf(url)], {
      n_ctx: CONTEXT, n_batch: CONTEXT, n_threads: 1, embeddings: true, pooling_type: 'LLAMA_POOLING_TYPE_MEAN',
    });
    return async texts => {
      const vectors = [];
      for (const text of texts) vectors.push(await wllama.createEmbedding(text));
      return vectors;
    };
  },
  async 'wllama 3.8.1'(url) {
    const { Wllama } = await import(at('@wllama/wllama/esm/index.js'));
    const wllama = new Wllama({ default: at('@wllama/wllama/esm/wasm/wllama.wasm') },
      { suppressNativeLog: true, logger: quiet });
    await wllama.loadModel([await blobOf(url)], {
      n_ctx: CONTEXT, n_batch: CONTEXT, n_threads: 1, n_gpu_layers: 0, n_parallel: 1, embeddings: true,
      pooling_type: 'mean',
    });
    return async texts => {
      const vectors = [];
      for (const input of texts) vectors.push((await wllama.createEmbedding({ input })).data[0].embedding);
      return vectors;
    };
  },
  /** @param {string} folder @param {number} batch  texts that one call gets, padded to the longest of them */
  async 'transformers.js'(folder, batch) {
    const { env, pipeline } = await import(at('@huggingface/transformers/dist/transformers.min.js'));
    const { wasm } = env.backends.onnx;
    env.allowLocalModels = true;
    env.allowRemoteModels = false;
    wasm.wasmPaths = at('onnxruntime-web/dist/');
    wasm.numThreads = 1;
    const { pathname } = new URL(folder), slash = pathname.lastIndexOf('/') + 1;
    env.localModelPath = pathname.slice(0, slash);
    const extract = await pipeline('feature-extraction', pathname.slice(slash), { dtype: 'q8', device: 'wasm' });
    return async texts => {
      const vectors = [];
      for (let i = 0; i < texts.length; i += batch) {
        const output = await extract(texts.slice(i, i + batch), { pooling: 'mean', normalize: true });
        vectors.push(...output.tolist());
      }
      return vectors;
    };
  },
};

let embed;

window.bench = {
  async open(name, url, batch) { embed = await engines[name](new URL(url, location.href).href, batch); },
  /** Seconds for all texts, and their vectors. */
  async embed(texts) {
    const start = performance.now();
    const vectors = await embed(texts);
    return { seconds: (performance.now() - start) / 1000, vectors: vectors.map(vector => [...vector]) };
  },
};
