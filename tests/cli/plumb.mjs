/* Runs the command line under test: $PLUMB, a JSON array of words before its arguments (default: the native build). */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { test as add } from 'node:test';
import { fileURLToPath } from 'node:url';

process.chdir(fileURLToPath(new URL('../..', import.meta.url)));   // wasmtime sees the checkout only, by relative paths

export const command = JSON.parse(process.env.PLUMB ?? '["build/native/plumb"]');
export const isNative = command.length === 1, isNode = command.at(-1).endsWith('.mjs');
const every = isNative || process.env.WHOLE ? 1 : isNode ? 2 : 3;
let n = 0;
/** test() for a command line that every host can run.  Under wasmtime it is the same program from another compiler, and
 * in Node (tests/node/cli.test.mjs has what is Node's own) its module, so that a third and a half of the tests run
 * there; with WHOLE=1 all.
 * @type {(name: string, run: (t: import('node:test').TestContext) => unknown) => void} */
export const test = (name, run) => {
  if (n++ % every === 0) add(name, run);
};
/** test() for features that WASI or wasmtime lacks: signals, /dev/stdin, files as standard output. */
export const nativeTest = isNative ? add : () => {};
/** The native command line to compare another host's with; undefined natively or if HOSTS leaves it out. */
export const native = !isNative && (process.env.HOSTS ?? 'native').includes('native') ? ['build/native/plumb']
  : undefined;
/** Whether to make the i-th of the proofs in a test that differ in their data only: natively all, elsewhere, where the
 * same code runs, every ninth. @param {number} i */
export const repeats = i => isNative || !!process.env.WHOLE || i % 9 === 0;
export const smol = 'models/SmolLM2-135M-Instruct.Q4_1.gguf';

/** Starts it. @param {string[]} args @param {string[]} [words]  of another host */
export function start(args, [program, ...first] = command) {
  return spawn(program, [...first, ...args]);
}

/** Runs it to its end. @param {string[]} args @param {string | Uint8Array} [input] of standard input
 * @param {string[]} [words]  of another host
 * @returns {Promise<{code: number | null, signal: string | null, out: string, err: string}>} */
export function plumb(args, input = '', words = command) {
  return new Promise((resolve, reject) => {
    const child = start(args, words);
    const out = [], err = [];
    child.stdout.on('data', piece => out.push(piece));
    child.stderr.on('data', piece => err.push(piece));
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({
      code, signal, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString(),
    }));
    child.stdin.on('error', () => {});   // it may end before it has read everything
    child.stdin.end(input);
  });
}

/** Runs it and throws unless it succeeds. @returns its standard output */
export async function output(args, input, words) {
  const { code, out, err } = await plumb(args, input, words);
  if (code !== 0) throw new Error(`plumb ${args.join(' ')}: exit code ${code}: ${err}`);
  return out;
}

/** Numbers of a line "1 2 3". */
export const ids = text => text.trim().split(' ').map(Number);

let directory;
/** Makes a file in the checkout's build directory, removed after the tests. @returns its path */
export function temporary(name, bytes) {
  if (!directory) {
    mkdirSync('build', { recursive: true });
    directory = mkdtempSync('build/cli-test-');
    process.on('exit', () => rmSync(directory, { recursive: true }));
  }
  writeFileSync(`${directory}/${name}`, bytes);
  return `${directory}/${name}`;
}
