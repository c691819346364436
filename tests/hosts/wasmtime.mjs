/** The wasmtime that the tests use: $WASMTIME, the one that tools/setup.sh put into the tree, or one on PATH. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export function wasmtime() {
  const own = fileURLToPath(new URL('../../build/setup/py/wasmtime_cli/wasmtime', import.meta.url));
  return process.env.WASMTIME ?? (existsSync(own) ? own : 'wasmtime');
}
