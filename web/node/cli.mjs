#!/usr/bin/env node
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { run } from '../wasi.js';
import { files } from './files.js';

const file = fileURLToPath(new URL('../dist/plumb-cli.wasm', import.meta.url));
if (!existsSync(file)) {
  console.error(`plumb: ${file} is not there; in a checkout \`make wasm\` builds it`);
  process.exit(1);
}
process.exitCode = run(new WebAssembly.Module(readFileSync(file)), process.argv.slice(2), process.cwd(), files);
