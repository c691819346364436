/* llama.cpp compiled to WebAssembly with its own SIMD kernels (build-llama-wasm.sh) as an engine of the bench, with the
 * interface of engine-plumb.js.  It computes in the thread of its caller: of a worker in pages. */
import { stepping } from './steps.js';

/** The module for so many threads, in the folder build/bench. @param {number} threads */
export const moduleOf = threads => threads > 1 ? 'llama-mt' : 'llama';

/** @param {(options: object) => Promise<any>} create  the factory of moduleOf(threads)
 * @param {Uint8Array} bytes  the model
 * @param {boolean} isPlain  K and V in F32 and no flash attention, instead of its defaults
 * @param {object} options  of the factory: where its files are */
export async function openLlama(create, bytes, contextLength, threads, isPlain, options) {
  const start = performance.now();
  const module = await create({ print() {}, printErr() {}, ...options });
  module.FS.writeFile('/model.gguf', bytes, { canOwn: true });
  const failed = (pointer) => {
    if (pointer) throw new Error(module.UTF8ToString(pointer).trim());
  };
  failed(module.ccall('bench_open', 'number', ['string', 'number', 'number', 'boolean'],
    ['/model.gguf', contextLength, threads, isPlain]));
  module.FS.unlink('/model.gguf');
  return {
    loadSeconds: (performance.now() - start) / 1000, about: module.ccall('bench_about', 'string', [], []),
    ...stepping({
      rewind: async position => module._bench_rewind(position),
      async feed(tokens) {
        const ids = module._malloc(4 * tokens.length);
        new Int32Array(module.HEAPU8.buffer, ids, tokens.length).set(tokens);
        const error = module._bench_feed(ids, tokens.length);
        module._free(ids);
        failed(error);
      },
    }),
    close: async () => {},
  };
}
