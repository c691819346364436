/* The modules of dist/, by name.  Each URL is spelt out, so that bundlers, and tools that list the files that a server
 * needs, find the file. */

/** @type {Record<string, URL>} */
export const MODULES = {
  'plumb': new URL('../dist/plumb.wasm', import.meta.url),
  'plumb-mt': new URL('../dist/plumb-mt.wasm', import.meta.url),
  'plumb-relaxed': new URL('../dist/plumb-relaxed.wasm', import.meta.url),
  'plumb-mt-relaxed': new URL('../dist/plumb-mt-relaxed.wasm', import.meta.url),
  'plumb-64': new URL('../dist/plumb-64.wasm', import.meta.url),   // if a model does not fit into the others
  'plumb-mt-64': new URL('../dist/plumb-mt-64.wasm', import.meta.url),
  'plumb-grammar': new URL('../dist/plumb-grammar.wasm', import.meta.url),   // if a call has a grammar
  'plumb-template': new URL('../dist/plumb-template.wasm', import.meta.url),   // if a call has messages
  'plumb-trace': new URL('../dist/plumb-trace.wasm', import.meta.url),   // if a call traces
  'plumb-cli': new URL('../dist/plumb-cli.wasm', import.meta.url),   // of command-worker.js
};
