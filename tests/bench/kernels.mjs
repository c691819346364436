/**
 * `node tests/bench/kernels.mjs FOR_V8.wasm FOR_WASMTIME.wasm [TYPE...]`: tests/bench/kernels.c in this Node, in
 * Chromium (with another V8) and under wasmtime, one after the other.  First it measures the memory bandwidth of one
 * reader and of two at once, which is what two threads share.
 */
import { readFileSync, writeSync } from 'node:fs';
import { execFile, spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { promisify } from 'node:util';
import { serve } from '../../web/site/serve.mjs';
import { launchChrome } from '../hosts/chrome.mjs';
import { wasmtime } from '../hosts/wasmtime.mjs';
import { runProgram } from './wasi.js';

const print = (/** @type {string} */ text) => void writeSync(1, text);

/** @param {string} file @param {string[]} args */
function inNode(file, args) {
  const bytes = readFileSync(file);
  if (!WebAssembly.validate(bytes)) return print('this Node cannot compile it: it has no relaxed SIMD\n'), 0;
  return runProgram(new WebAssembly.Module(bytes), [file, ...args], print);
}

/** @param {string} program @param {string[]} args */
function run(program, args) {
  const { status, error } = spawnSync(program, args, { stdio: 'inherit' });
  if (error) throw error;
  return status ?? 1;
}

const args = process.argv.slice(2);
if (args[0] === '--node') process.exit(inNode(args[1], args.slice(2)));

const [forV8, forWasmtime, ...types] = args;
const again = (/** @type {string[]} */ ...args) => [import.meta.filename, '--node', ...args];
const readers = (/** @type {number} */ n) => Promise.all(Array.from({ length: n }, () =>
  promisify(execFile)(process.execPath, again(forV8, 'memory'))));
const [[one], two] = [await readers(1), await readers(2)];
print(`${cpus()[0].model}, memory read by one: ${one.stdout.trim()} GB/s, by two at once: ${
  two.map(({ stdout }) => stdout.trim()).join(' + ')}\n\nAll that follows: one thread\n`);

const server = await serve({ root: '.', port: 0, host: '127.0.0.1' });
const browser = await launchChrome();
try {
  const page = await browser.newPage();
  await page.exposeFunction('print', print);
  await page.goto(new URL('tests/hosts/page.html', server.url).href);
  const inChromium = () => page.evaluate(({ file, types }) => new Promise((resolve, reject) => {
    const worker = new Worker('/tests/bench/wasi.js', { type: 'module' });
    let printed = Promise.resolve();
    worker.onmessage = ({ data }) => {
      if (data.text !== undefined) printed = printed.then(() => /** @type {any} */ (window).print(data.text));
      else printed.then(() => resolve(data.status), reject);
    };
    worker.onerror = event => reject(new Error(event.message));
    worker.postMessage({ url: `/${file}`, args: [file, ...types] });
  }), { file: forV8, types });
  /** @type {[string, () => number | Promise<number>][]} */
  const hosts = [
    [`Node ${process.versions.node}`, () => run(process.execPath, again(forV8, ...types))],
    [`Chromium ${browser.version()}`, inChromium],
    ['wasmtime', () => run(wasmtime(), ['run', forWasmtime, ...types])],
  ];
  for (const [name, measure] of hosts) {
    print(`\n${name}\n`);
    process.exitCode = await measure();
    if (process.exitCode !== 0) break;
  }
} finally {
  await browser.close();
  await server.close();
}
