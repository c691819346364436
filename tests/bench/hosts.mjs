/**
 * `node tests/bench/hosts.mjs MODEL`: prefill of 128 tokens and decode of 64 natively, in Node and under wasmtime, one
 * after the other in one run: median of 3 after one to warm up.  The same work as `plumb bench`, which two hosts run.
 */
import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import { basename } from 'node:path';
import { Plumb } from '../../web/node/index.js';
import { wasmtime } from '../hosts/wasmtime.mjs';

const N_PREFILL = 128, N_DECODE = 64, N_REPEAT = 3;
const model = process.argv[2];

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

function commandLine(program, ...args) {
  const { prefill, decode, kernels } = JSON.parse(execFileSync(program, [...args, 'bench', model, '--json',
    '-p', N_PREFILL, '-n', N_DECODE, '-r', N_REPEAT], { encoding: 'utf8' }));
  return { prefill: median(prefill), decode: median(decode), kernels };
}

async function inNode() {
  const plumb = await Plumb.load(model);
  const nVocab = (await plumb.feed([0])).length;
  const ids = Int32Array.from({ length: N_PREFILL }, (_, i) => (Math.imul(i, 2654435761) >>> 0) % nVocab);
  const speed = async (n, work) => {
    await plumb.rewind();
    const start = performance.now();
    await work();
    return n / (performance.now() - start) * 1000;
  };
  const prefill = [], decode = [];
  for (let i = 0; i <= N_REPEAT; i++) {
    prefill[i] = await speed(N_PREFILL, () => plumb.feed(ids));
    decode[i] = await speed(N_DECODE, async () => {
      for (const id of ids.subarray(0, N_DECODE)) await plumb.step(id);
    });
  }
  await plumb.close();
  return { prefill: median(prefill.slice(1)), decode: median(decode.slice(1)) };
}

const hosts = [
  ['native', () => commandLine('build/native/plumb')],
  [`Node ${process.versions.node}`, inNode],
  ['wasmtime', () => commandLine(wasmtime(), 'run', '--dir=.', 'build/wasi/plumb.wasm')],
];
console.log(`${basename(model)} on ${cpus()[0].model}, 1 thread, tokens/s (median of ${N_REPEAT})`);
console.log(`${'host'.padEnd(16)} prefill ${N_PREFILL}  decode ${N_DECODE}`);
for (const [name, run] of hosts) {
  const { prefill, decode, kernels = '' } = await run();
  console.log(`${name.padEnd(16)} ${prefill.toFixed(1).padStart(11)} ${decode.toFixed(1).padStart(10)}  ${kernels}`);
}
