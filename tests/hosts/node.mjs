/** `node tests/hosts/node.mjs MODULE [CASES]`: the C test program in Node; TAP on stdout.  CASES: one word of
 * tests/main.c, such as threads. */
import { closeSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { platform } from '../../web/node/platform.js';
import { runTests } from './module.js';

function read(path, offset, n) {
  let file;
  try {
    file = openSync(path);
  } catch {
    return null;
  }
  try {
    const data = new Uint8Array(n);
    return data.subarray(0, readSync(file, data, 0, n, offset));
  } finally {
    closeSync(file);
  }
}

const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const print = (text) => writeSync(1, text);
process.exitCode = await runTests(module, print, read, platform.startThread, process.argv[3]);
