/** Runs the C test program of the Emscripten host (build/emcc/tests.wasm), in Node and in a browser's worker alike. */

/**
 * @param {WebAssembly.Module} module
 * @param {(text: string) => void} print  takes the TAP output as it comes
 * @param {(path: string, offset: number, n: number) => Uint8Array | null} read  up to n bytes of a file of the
 *     checkout, null if there is no such file
 * @returns {number} the exit status: 0 if every case passed
 */
export function runTests(module, print, read) {
  const utf8 = new TextDecoder();
  // Taken anew for every call: memory grows, and addresses above 2 GB arrive as negative numbers.
  const bytes = (at, n) => new Uint8Array(instance.exports.memory.buffer, at >>> 0, n >>> 0);
  const env = {
    emscripten_notify_memory_growth() {},
    test_print: (at, n) => print(utf8.decode(bytes(at, n))),
    test_read(path, pathLen, offset, dst, n) {
      const got = read(utf8.decode(bytes(path, pathLen)), Number(offset), n >>> 0);
      if (!got) return -1n;
      bytes(dst, got.length).set(got);
      return BigInt(got.length);
    },
  };
  // The libc of a debug build imports these for a failing assert.
  const wasi = new Proxy({}, {
    get: (_, name) => () => { throw new Error(`the test program called ${String(name)}`); },
  });
  const instance = new WebAssembly.Instance(module, { env, wasi_snapshot_preview1: wasi });
  instance.exports._initialize();
  return instance.exports.test_main();
}
