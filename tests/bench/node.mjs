/**
 * `node tests/bench/node.mjs KIND MODEL N_CTX N_THREAD`: plumb's package in Node, or llama.cpp compiled to WebAssembly,
 * behind the commands of driver.h.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Plumb } from '../../web/node/index.js';
import { moduleOf, openLlama } from './engine-llama.js';
import { openPlumb } from './engine-plumb.js';

const [kind, path, contextLength, threads] = process.argv.slice(2);
/** The module's glue expects a script's variables. */
async function openModule() {
  const folder = new URL('../../build/bench/', import.meta.url), module = moduleOf(Number(threads));
  Object.assign(globalThis, { require: createRequire(import.meta.url), __dirname: folder.pathname });
  const { default: create } = await import(new URL(`${module}.mjs`, folder).href);
  return openLlama(create, readFileSync(path), Number(contextLength), Number(threads), kind === 'llama.cpp-wasm-plain',
    { wasmBinary: readFileSync(new URL(`${module}.wasm`, folder)), locateFile: name => `${folder.pathname}${name}`,
      mainScriptUrlOrBlob: `${folder.pathname}${module}.js` });
}
const answer = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);
try {
  const engine = kind.startsWith('llama') ? await openModule()
    : await openPlumb(Plumb, kind, path, Number(contextLength), Number(threads));
  answer({ load_seconds: engine.loadSeconds, about: engine.about, info: engine.info });
  for await (const line of createInterface({ input: process.stdin })) {
    const [order, ...numbers] = line.trim().split(' ');
    const [n, steps] = numbers.map(Number);
    try {
      if (order === 'ids') {
        await engine.setPrompt(numbers.slice(1).map(Number));
        answer({ n });
      } else if (order === 'prefill') answer({ seconds: await engine.prefill(n) });
      else if (order === 'decode') answer({ seconds: await engine.decode(n, steps) });
      else throw new Error(`no order ${order}`);
    } catch (error) {
      answer({ error: error.message });
    }
  }
  await engine.close();
} catch (error) {
  answer({ error: error.message });
}
