/** Runs the C test program of the Emscripten host (build/emcc/tests*.wasm), in Node and in a browser's worker alike. */
import { importsOf } from '../../web/engine/instance.js';
import { Threads, takeMemory } from '../../web/engine/threads.js';

/** Threads of a module with threads: more than the machine may have, so that they are suspended at times. */
const THREADS = 4;

/** What tests/main.c's test_main calls them.
 * @typedef {'all' | 'sample' | 'sample 1/3' | 'numbers sample' | 'threads sample'} Wanted */
const WANTED = ['all', 'sample', 'sample 1/3', 'numbers sample', 'threads sample'];

/**
 * @param {WebAssembly.Module} module
 * @param {(text: string) => void} print  takes the TAP output as it comes
 * @param {(path: string, offset: number, n: number) => Uint8Array | null} read  up to n bytes of a file of the
 *     checkout, null if there is no such file
 * @param {() => import('../../web/base/protocol.js').WorkerLike} startThread
 * @param {Wanted} [wanted]  the cases that run
 * @returns {Promise<number>} the exit status: 0 if every case passed
 */
export async function runTests(module, print, read, startThread, wanted = 'all') {
  const cases = WANTED.indexOf(wanted);
  if (cases < 0) throw new Error(`no cases are called ${wanted}`);
  const utf8 = new TextDecoder();
  const shared = WebAssembly.Module.imports(module).some(({ kind }) => kind === 'memory');
  const memory = shared ? takeMemory().memory : undefined;
  // Views are re-created for every call, because memory grows.  Addresses above 2 GB arrive as negative numbers.
  const bytes = (at, n) => new Uint8Array((memory ?? c.memory).buffer, at >>> 0, n >>> 0);
  const imports = importsOf(module, memory);
  Object.assign(imports.env, {
    test_print: (at, n) => print(utf8.decode(bytes(at, n).slice())),
    test_read(path, pathLen, offset, dst, n) {
      const got = read(utf8.decode(bytes(path, pathLen).slice()), Number(offset), n >>> 0);
      if (!got) return -1n;
      bytes(dst, got.length).set(got);
      return BigInt(got.length);
    },
  });
  // The C library's dates ask for environment variables, of which there are none, and for the time.
  const wasi = imports.wasi_snapshot_preview1 ??= {};
  wasi.environ_sizes_get = (n, size) => {
    for (const at of [n, size]) bytes(at, 4).fill(0);
    return 0;
  };
  wasi.environ_get = () => 0;
  wasi.clock_time_get = (...args) => {
    const at = bytes(args.at(-1), 8);
    new DataView(at.buffer, at.byteOffset, 8).setBigUint64(0, BigInt(Date.now()) * 1_000_000n, true);
    return 0;
  };
  const c = new WebAssembly.Instance(module, imports).exports;
  c._initialize();
  if (!memory) return c.test_main(cases);
  const stack = 1 << 18;
  const setups = Array.from({ length: THREADS - 1 }, (_, i) =>
    ({ module, memory, stack: (c.malloc(stack) + stack) & -16, thread: i + 1 }));
  const threads = new Threads(startThread, setups);
  const failure = await threads.failure;
  if (failure) throw new Error(failure);
  threads.serve();
  c.plumb_threads_ready(THREADS);
  try {
    return c.test_main(cases);
  } finally {
    c.plumb_threads_dismiss();
    threads.terminate();
  }
}
