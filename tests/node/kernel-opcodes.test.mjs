/**
 * The dots of each kernel, counted in the modules with names (build/emcc/named; simd-opcodes.test.mjs checks that the
 * shipped modules are the same without names).  A 16-bit dot makes 8 products, a relaxed 8-bit dot 16.  So 8 rows of a
 * block of 32 weights take 32 16-bit dots, 16 relaxed dots, or 32 relaxed dots if activations are two bytes.  The loops
 * of superblocks have multiples of 8, depending on unrolling.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import wabt from 'wabt';

const features = { simd: true, bulk_memory: true, sign_extension: true, mutable_globals: true, sat_float_to_int: true,
  threads: true, relaxed_simd: true };
const DOT = 'i32x4.dot_i16x8_s', RELAXED_DOT = 'i32x4.relaxed_dot_i8x16_i7x16_add_s';
const PAIRS = 'i16x8.relaxed_dot_i8x16_i7x16_s';
const BLOCKS = ['mxfp4', 'q4_0', 'q4_1', 'q5_0', 'q5_1'], SUPERBLOCKS = ['q4_K', 'q5_K', 'q6_K'];
/** The types without relaxed 8-bit dots. */
const MORE_BLOCKS = ['iq4_nl', 'q8_0'], MORE_SUPERBLOCKS = ['iq4_xs', 'nvfp4', 'q2_K', 'q3_K'];
/** These kernels only call two_bits_dot_of, two_bits_unpack or grid_unpack. */
const CALLERS = /^(t?q[12]_0_(dot|unpack)|iq[123]_\w+_unpack)__/;
/** Their indexes are below 16, so that every engine gives the same bytes (src/engine/kernels/grids_simd128.c). */
const SWIZZLES = /^i8x16\.relaxed_swizzle (iq[123]_\w+_dot__simd128|grid_unpack)$/;
const { readWasm } = await wabt();

/** The vector opcodes of each named function, in order. @returns {Map<string, string[]>} */
function functionsOf(name) {
  const module = readWasm(readFileSync(`build/emcc/named/${name}.wasm`), { ...features, readDebugNames: true });
  module.applyNames();
  return new Map(module.toText({}).split('\n  (func $').slice(1).map((text) => [
    /^[^\s)]+/.exec(text)[0],
    [...text.matchAll(/^\s+((?:v128|[if]\d+x\d+)\.\w+)/gm)].map(([, opcode]) => opcode),
  ]));
}

/** Kernels whose names match, with how many of an opcode they have.
 * @param {Map<string, string[]>} functions @param {RegExp} names @param {string} opcode */
const countOf = (functions, names, opcode) => Object.fromEntries([...functions].filter(([name]) => names.test(name))
  .map(([name, opcodes]) => [name, opcodes.filter((one) => one === opcode).length]).sort());

/** @param {string[]} types @param {string} isa @param {number} n @returns {Record<string, number>} */
const expected = (types, isa, n) => Object.fromEntries(types.map((type) => [`${type}_dot__${isa}`, n]));

/** @param {Record<string, number>} count @param {string[]} types @param {string} isa */
function checkSuperblocks(count, types, isa) {
  assert.deepEqual(Object.keys(count), types.map((type) => `${type}_dot__${isa}`));
  for (const [name, n] of Object.entries(count)) assert.ok(n > 0 && n % 8 === 0, `${name}: ${n}`);
}

for (const module of ['plumb', 'plumb-mt', 'plumb-relaxed', 'plumb-mt-relaxed']) {
  const functions = functionsOf(module), relaxed = module.endsWith('-relaxed');

  test(`${module}: every kernel has the expected number of 16-bit dots`, () => {
    // Groups of 32 and of 16: 32 dots for each 8 codes of 4 tokens.
    assert.deepEqual(countOf(functions, /^(q[458]_\d|iq4_nl|mxfp4|panel)_dot(_x4)?__simd128$/, DOT), {
      ...expected([...BLOCKS, ...MORE_BLOCKS], 'simd128', 32), panel_dot__simd128: 8, panel_dot_x4__simd128: 192 });
    checkSuperblocks(countOf(functions, /^(q\d_K|iq4_xs|nvfp4)_dot__simd128$/, DOT),
      [...MORE_SUPERBLOCKS, ...SUPERBLOCKS], 'simd128');
    assert.deepEqual(countOf(functions, /^two_bits_dot/, DOT), { two_bits_dot_of: 32 });
  });

  const what = relaxed ? 'relaxed dots, kernel by kernel; swizzles of grids; no other relaxed opcode'
    : 'nothing relaxed';
  test(`${module}: ${what}`, () => {
    const found = [...functions].flatMap(([name, opcodes]) =>
      opcodes.filter((opcode) => opcode.includes('relaxed')).map((opcode) => `${opcode} ${name}`));
    if (!relaxed) return assert.deepEqual(found, []);
    const others = found.filter((one) => !SWIZZLES.test(one));
    assert.deepEqual(others.filter((one) => !one.endsWith('__pairs8') || !one.startsWith(PAIRS))
      .filter((one) => !one.startsWith(RELAXED_DOT) || !/__relaxed(8|16)$/.test(one)), []);
    // Pairs of products: the same numbers, but there is no dot of groups of 16, and three of panels.
    assert.deepEqual(countOf(functions, /^(q[458]_\d|mxfp4|panel)_dot(_x4)?__pairs8$/, PAIRS), {
      ...expected(BLOCKS, 'pairs8', 16), panel_dot_x4__pairs8: 192 });
    checkSuperblocks(countOf(functions, /^q\d_K\w*_dot__pairs8$/, PAIRS), ['q4_K', 'q5_K'], 'pairs8');
    assert.deepEqual(countOf(functions, /^(q[458]_\d|mxfp4|bytes)_dot(_x4)?__relaxed8$/, RELAXED_DOT), {
      ...expected(BLOCKS, 'relaxed8', 16), bytes_dot__relaxed8: 8, bytes_dot_x4__relaxed8: 32 });
    // Groups of 32 and of 16: 16 dots for each 8 codes of 2 tokens.
    assert.deepEqual(countOf(functions, /^(q[458]_\d|q8_0_signed|mxfp4|bytes)_dot(_x4)?__relaxed16$/, RELAXED_DOT), {
      ...expected([...BLOCKS, 'q8_0', 'q8_0_signed'], 'relaxed16', 32),
      bytes_dot__relaxed16: 48, bytes_dot_x4__relaxed16: 96 });
    checkSuperblocks(countOf(functions, /^q\d_K\w*_dot__relaxed8$/, RELAXED_DOT), SUPERBLOCKS, 'relaxed8');
    checkSuperblocks(countOf(functions, /^q\d_K\w*_dot__relaxed16$/, RELAXED_DOT),
      [...SUPERBLOCKS, 'q4_K_unshifted'].sort(), 'relaxed16');
  });

  test(`${module}: every kernel named after an instruction set uses it`, () => {
    const kernels = [...functions].filter(([name]) => /__(simd128|relaxed8|relaxed16|pairs8)$/.test(name)
      && !CALLERS.test(name));
    assert.ok(kernels.length >= (relaxed ? 60 : 40), `${kernels.length} kernels`);
    // The minimum is two splats, a sum, a product and an extracted lane.
    for (const [name, opcodes] of kernels) assert.ok(opcodes.length >= 4, `${name}: ${opcodes.length} on vectors`);
  });
}
