/**
 * `node tests/bench/kernels.mjs MODULE.wasm... [TYPE...]`: tests/bench/kernels.c in this Node and under wasmtime, one
 * after the other; before that, what memory gives to one reader and to two at once: so much two threads share.
 *
 * The program takes its arguments, prints and asks for the time; these few WASI calls are all it needs.  (node:wasi of
 * Node 20 crashes when memory grows.)
 */
import { readFileSync, writeSync } from 'node:fs';
import { execFile, spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { promisify } from 'node:util';
import { wasmtime } from '../hosts/wasmtime.mjs';

/** @param {string} file @param {string[]} args */
function inNode(file, args) {
  const bytes = readFileSync(file);
  if (!WebAssembly.validate(bytes)) {
    console.log('this Node cannot compile it: it has no relaxed SIMD');
    return;
  }
  const module = new WebAssembly.Module(bytes);
  const strings = [file, ...args].map(text => Buffer.from(`${text}\0`));
  /** @type {WebAssembly.Memory} */
  let memory;
  const view = () => new DataView(memory.buffer);
  const calls = {
    args_sizes_get(n, size) {
      view().setUint32(n, strings.length, true);
      view().setUint32(size, Buffer.concat(strings).length, true);
    },
    args_get(list, at) {
      for (const [i, text] of strings.entries()) {
        view().setUint32(list + 4 * i, at, true);
        new Uint8Array(memory.buffer).set(text, at);
        at += text.length;
      }
    },
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

const args = process.argv.slice(2);
if (args[0] === '--node') {
  inNode(args[1], args.slice(2));
} else {
  const files = args.filter(arg => arg.endsWith('.wasm')), types = args.filter(arg => !arg.endsWith('.wasm'));
  const readers = n => Promise.all(Array.from({ length: n }, () =>
    promisify(execFile)(process.execPath, [import.meta.filename, '--node', files[0], 'memory'])));
  const [[one], two] = [await readers(1), await readers(2)];
  console.log(`${cpus()[0].model}, memory read by one: ${one.stdout.trim()} GB/s, by two at once: ${
    two.map(({ stdout }) => stdout.trim()).join(' + ')}\n\nAll that follows: one thread`);
  for (const file of files) {
    const hosts = [[`Node ${process.versions.node}`, process.execPath, [import.meta.filename, '--node', file]],
      ['wasmtime', wasmtime(), ['run', '-W', 'relaxed-simd=y', file]]];
    for (const [name, program, start] of hosts) {
      console.log(`\n${name}, ${file}`);
      const { status, error } = spawnSync(program, [...start, ...types], { stdio: 'inherit' });
      if (status !== 0) process.exit(error ? (console.error(error.message), 1) : status ?? 1);
    }
  }
}
