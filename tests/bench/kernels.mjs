/**
 * `node tests/bench/kernels.mjs MODULE...`: tests/bench/kernels.c in Node and under wasmtime, one after the other.
 *
 * The program prints and asks for the time; these few WASI calls are all it needs.  (node:wasi of Node 20 crashes when
 * memory grows.)
 */
import { readFileSync, writeSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import { wasmtime } from '../hosts/wasmtime.mjs';

/** @param {string} file */
function inNode(file) {
  const module = new WebAssembly.Module(readFileSync(file));
  /** @type {WebAssembly.Memory} */
  let memory;
  const view = () => new DataView(memory.buffer);
  const calls = {
    clock_time_get(_clock, _precision, at) {
      view().setBigUint64(at, process.hrtime.bigint(), true);
    },
    fd_write(fd, list, n, written) {
      let total = 0;
      for (let i = 0; i < n; i++) {
        const [at, length] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
        total += writeSync(fd, new Uint8Array(memory.buffer, at, length));
      }
      view().setUint32(written, total, true);
    },
    proc_exit(code) {
      process.exit(code);
    },
  };
  const imports = WebAssembly.Module.imports(module)
    .map(({ name }) => [name, (...args) => calls[name] ? calls[name](...args) ?? 0 : 52]);   // 52: not supported
  const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: Object.fromEntries(imports) });
  memory = instance.exports.memory;
  instance.exports._start();
}

const files = process.argv.slice(2);
if (files[0] === '--node') {
  inNode(files[1]);
} else {
  console.log(`${cpus()[0].model}, one thread`);
  for (const file of files) {
    const hosts = [[`Node ${process.versions.node}`, process.execPath, [import.meta.filename, '--node', file]],
      ['wasmtime', wasmtime(), ['run', file]]];
    for (const [name, program, args] of hosts) {
      console.log(`\n${name}, ${file}`);
      execFileSync(program, args, { stdio: 'inherit' });
    }
  }
}
