/** `node tests/hosts/node.mjs MODULE [threads]`: the C test program in Node, or only its cases that compute with
 * several threads; TAP on stdout. */
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
