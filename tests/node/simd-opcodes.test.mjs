/**
 * The modules as they ship: what they import and show, and that the SIMD kernels are in them.  A build whose compiler
 * quietly fell back to scalar code passes every other test; it has happened to a well-known peer.  The opcodes are
 * those of wabt's disassembly.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import wabt from 'wabt';

const features = { simd: true, bulk_memory: true, sign_extension: true, mutable_globals: true, sat_float_to_int: true };
const hosts = (process.env.HOSTS || 'native node chromium wasmtime').split(/\s+/);
const { readWasm } = await wabt();

/** How often each opcode on vectors occurs. @returns {Map<string, number>} */
function vectorOpcodes(file) {
  const text = readWasm(readFileSync(file), features).toText({});
  const count = new Map();
  for (const [name] of text.matchAll(/(?<=^\s*)(?:v128|i8x16|i16x8|i32x4|i64x2|f32x4|f64x2)\.\w+/gm))
    count.set(name, (count.get(name) ?? 0) + 1);
  return count;
}

for (const file of ['web/dist/plumb.wasm', ...hosts.includes('wasmtime') ? ['build/wasi/plumb.wasm'] : []])
  test(`module: ${file} holds the SIMD kernels`, () => {
    const count = vectorOpcodes(file);
    const all = [...count.values()].reduce((a, b) => a + b, 0);
    const dots = count.get('i32x4.dot_i16x8_s') ?? 0;
    assert.ok(dots >= 24, `${dots} i32x4.dot_i16x8_s, expected 24 or more`);
    assert.ok(all >= 1500, `${all} opcodes on vectors, expected 1500 or more`);
  });

const shipped = new WebAssembly.Module(readFileSync('web/dist/plumb.wasm'));

test('module: web/dist/plumb.wasm needs nothing but the news that memory grew', () => {
  assert.deepEqual(WebAssembly.Module.imports(shipped),
    [{ module: 'env', name: 'emscripten_notify_memory_growth', kind: 'function' }]);
});

test('module: web/dist/plumb.wasm shows what wasm/exports.txt lists, and no other function of plumb', () => {
  const listed = readFileSync('wasm/exports.txt', 'utf8').match(/^[a-z]\w*/gm);
  const shown = WebAssembly.Module.exports(shipped).map(({ name }) => name);
  assert.deepEqual(listed.filter((name) => !shown.includes(name)), []);
  // Emscripten adds its own: _initialize, __errno_location, stack helpers, memory, a table.
  const own = /^_|^stack|^emscripten_stack|^memory$/;
  assert.deepEqual(shown.filter((name) => !listed.includes(name) && !own.test(name)), []);
});
