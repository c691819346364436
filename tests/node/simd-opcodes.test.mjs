/**
 * The shipped modules: their imports and exports, and that they contain the SIMD kernels.  A build whose compiler
 * silently fell back to scalar code would pass every other test; this has happened to a well-known peer.  The opcodes
 * are from wabt's disassembly.
 */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import test from 'node:test';
import wabt from 'wabt';

const features = { simd: true, bulk_memory: true, sign_extension: true, mutable_globals: true, sat_float_to_int: true,
  threads: true, relaxed_simd: true, memory64: true };
const hosts = (process.env.HOSTS || 'native node chromium wasmtime').split(/\s+/);
const variants = ['plumb', 'plumb-mt', 'plumb-relaxed', 'plumb-mt-relaxed'].map((name) => `web/dist/${name}.wasm`);
/** Those with 64-bit addresses, with relaxed SIMD. */
const wide = ['plumb-64', 'plumb-mt-64'].map((name) => `web/dist/${name}.wasm`);
const { readWasm } = await wabt();
/** The module in wabt's text. */
const textOf = (file) => readWasm(readFileSync(file), features).toText({});

/** How often each opcode on vectors occurs. @returns {Map<string, number>} */
function vectorOpcodes(text) {
  const count = new Map();
  for (const [name] of text.matchAll(/(?<=^\s*)(?:v128|i8x16|i16x8|i32x4|i64x2|f32x4|f64x2)\.\w+/gm))
    count.set(name, (count.get(name) ?? 0) + 1);
  return count;
}

for (const file of [...variants, ...wide,
  ...hosts.includes('wasmtime') ? ['build/wasi/plumb.wasm', 'build/wasm64/plumb.wasm'] : []])
  test(`module: ${file} contains the SIMD kernels`, () => {
    const count = vectorOpcodes(textOf(file));
    const all = [...count.values()].reduce((a, b) => a + b, 0);
    const dots = count.get('i32x4.dot_i16x8_s') ?? 0;
    assert.ok(dots >= 24, `${dots} i32x4.dot_i16x8_s, expected 24 or more`);
    assert.ok(all >= 1500, `${all} opcodes on vectors, expected 1500 or more`);
  });

/** The bytes of a section: its number is 9 for functions in tables, 10 for code, 11 for data. */
function section(file, wanted) {
  const bytes = readFileSync(file);
  for (let at = 8; at < bytes.length;) {
    const id = bytes[at++];
    let size = 0, shift = 0, byte;
    do {
      byte = bytes[at++];
      size += (byte & 127) * 2 ** shift;
      shift += 7;
    } while (byte & 128);
    if (id === wanted) return bytes.subarray(at, at + size);
    at += size;
  }
}

for (const file of variants) {
  test(`module: ${file} equals build/emcc/named/${basename(file)} without the names`, () => {
    for (const id of [9, 10, 11]) {
      const shipped = section(file, id);
      assert.ok(shipped?.length > 100 && shipped.equals(section(`build/emcc/named/${basename(file)}`, id)), `${id}`);
    }
  });
}

for (const file of [...variants, ...wide]) {
  const text = textOf(file), threads = file.includes('-mt'), is64 = wide.includes(file);
  const most = is64 ? 555 : 490;   // larger constants, and all addresses are widened

  test(`module: ${file} is a download of at most ${most} kB`, () => {
    assert.ok(statSync(file).size <= 1000 * most, `${statSync(file).size} bytes`);
  });

  const needs = [threads && 'a shared memory', 'a clock', !is64 && 'the news that memory grew',
    'a reader of taps', 'a reader and a writer of sessions'].filter(Boolean);
  test(`module: ${file} imports only ${needs.join(', ')}`, () => {
    const imports = [...text.matchAll(/^  \(import "(\w+)" "(\w+)" \((\w+)/gm)].map(([, ...what]) => what.join(' '));
    assert.deepEqual(imports.sort(), [...is64 ? [] : ['env emscripten_notify_memory_growth func'],
      ...threads ? ['env memory memory'] : [], 'env plumb_now func', 'env plumb_on_read func',
      'env plumb_on_tap func', 'env plumb_on_write func']);
    // The numbers of web/engine/threads.js.
    const limits = is64 ? 'i64 256 262144' : '256 65535';
    if (threads) assert.ok(text.includes(`(import "env" "memory" (memory (;0;) ${limits} shared))`));
    else if (is64) assert.ok(text.includes(`(memory (;0;) ${limits})`));
    assert.equal(/\.atomic\./.test(text), threads, 'atomics');
  });

  test(`module: ${file} exports the functions in wasm/exports.txt and no other function of plumb`, () => {
    const listed = readFileSync('wasm/exports.txt', 'utf8').match(/^[a-z]\w*/gm);
    const shown = [...text.matchAll(/^  \(export "(\w+)"/gm)].map(([, name]) => name);
    assert.deepEqual(listed.filter((name) => !shown.includes(name)), []);
    // Emscripten adds its own: _initialize, __errno_location, stack helpers, memory, a table.
    const own = /^_|^stack|^emscripten_stack|^memory$/;
    assert.deepEqual(shown.filter((name) => !listed.includes(name) && !own.test(name)), []);
    assert.equal(shown.includes('__stack_pointer'), threads);
  });
}

for (const [name, limit, ...own] of [['grammar', 200, 'plumb_find_token'], ['template', 150],
  ['trace', 45, 'plumb_piece']]) {
  const file = `web/dist/plumb-${name}.wasm`;
  test(`module: ${file} has at most ${limit} kB, and exactly the imports and exports that it should have`, () => {
    assert.ok(statSync(file).size <= 1000 * limit, `${statSync(file).size} bytes`);
    const text = textOf(file);
    assert.deepEqual([...text.matchAll(/^  \(import "env" "(\w+)" \(func/gm)].map(([, name]) => name).sort(),
      ['emscripten_notify_memory_growth', ...own]);
    const listed = readFileSync(`wasm/${name}.txt`, 'utf8').match(/^[a-z]\w*/gm);
    const shown = [...text.matchAll(/^  \(export "(\w+)"/gm)].map(([, name]) => name);
    assert.deepEqual(shown.filter(name => !/^_|^stack|^emscripten_stack|^memory$/.test(name)).sort(), listed.sort());
  });
}

for (const file of wide) {
  test(`module: ${file} says which arguments are addresses`, () => {
    const bytes = readFileSync(file);   // this section is the last one
    const { exports, imports } = JSON.parse(bytes.subarray(bytes.lastIndexOf('addresses{') + 9).toString());
    const listed = readFileSync('wasm/exports.txt', 'utf8').match(/^[a-z]\w*/gm);
    assert.deepEqual(listed.filter(name => !exports[name]), []);
    assert.deepEqual([exports.malloc, exports.free, exports.plumb_model_begin, exports.plumb_session_n_past],
      ['aa', 'a-', 'a--', 'a-']);
    assert.deepEqual([imports.plumb_on_read, imports.plumb_on_write], ['aaa', 'aa-']);
  });
}
