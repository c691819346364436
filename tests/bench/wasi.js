/**
 * Runs a WASI program in any JavaScript host with the few calls that tests/bench/kernels.c needs: arguments, output and
 * the time.  (node:wasi of Node 20 crashes when memory grows.)
 *
 * @param {WebAssembly.Module} module
 * @param {string[]} args   the program's name first
 * @param {(text: string) => void} print   what it writes, to either stream
 * @returns {number}   its exit status
 */
export function runProgram(module, args, print) {
  const strings = args.map(text => new TextEncoder().encode(`${text}\0`)), status = Symbol('status');
  /** @type {WebAssembly.Memory} */
  let memory;
  const view = () => new DataView(memory.buffer);
  /** @type {Record<string, (...args: any[]) => number | void>} */
  const calls = {
    args_sizes_get(n, size) {
      view().setUint32(n, strings.length, true);
      view().setUint32(size, strings.reduce((sum, text) => sum + text.length, 0), true);
    },
    args_get(list, at) {
      for (const [i, text] of strings.entries()) {
        view().setUint32(list + 4 * i, at, true);
        new Uint8Array(memory.buffer).set(text, at);
        at += text.length;
      }
    },
    clock_time_get(_clock, _precision, at) {
      view().setBigUint64(at, BigInt(Math.round(1e6 * (performance.timeOrigin + performance.now()))), true);
    },
    fd_write(_fd, list, n, written) {
      let total = 0;
      for (let i = 0; i < n; i++) {
        const [at, length] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
        print(new TextDecoder().decode(new Uint8Array(memory.buffer, at, length)));
        total += length;
      }
      view().setUint32(written, total, true);
    },
    proc_exit(code) {
      throw { [status]: code };
    },
  };
  const imports = WebAssembly.Module.imports(module)
    .map(({ name }) => [name, (...args) => calls[name] ? calls[name](...args) ?? 0 : 52]);   // 52: not supported
  const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: Object.fromEntries(imports) });
  memory = /** @type {WebAssembly.Memory} */ (instance.exports.memory);
  try {
    /** @type {() => void} */ (instance.exports._start)();
    return 0;
  } catch (thrown) {
    if (thrown?.[status] === undefined) throw thrown;
    return thrown[status];
  }
}

/* As a worker it runs the module it receives, and posts { text } and finally { status }. */
if (typeof WorkerGlobalScope !== 'undefined') {
  self.onmessage = async ({ data: { url, args } }) => {
    try {
      const module = await WebAssembly.compileStreaming(fetch(url));
      postMessage({ status: runProgram(module, args, text => postMessage({ text })) });
    } catch (error) {
      postMessage({ text: `${error}\n` });
      postMessage({ status: 1 });
    }
  };
}
