/**
 * The dots of each kernel, counted in the modules with names (build/emcc/named; simd-opcodes.test.mjs says that what
 * ships is the same without).  One dot of 16 bits makes 8 products, a relaxed one of 8 bits 16: so 8 rows of a block of
 * 32 weights are 32 of the one or 16 of the other, or 32 again where activations are two bytes, and the loops of
 * superblocks, as far as the compiler unrolls them, multiples of 8.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import wabt from 'wabt';

const features = { simd: true, bulk_memory: true, sign_extension: true, mutable_globals: true, sat_float_to_int: true,
  threads: true, relaxed_simd: true };
const DOT = 'i32x4.dot_i16x8_s', RELAXED_DOT = 'i32x4.relaxed_dot_i8x16_i7x16_add_s';
const BLOCKS = ['q4_0', 'q4_1', 'q5_0', 'q5_1'], SUPERBLOCKS = ['q4_K', 'q5_K', 'q6_K'];
/** Those that relaxed dots of 8 bits are not for. */
const MORE_BLOCKS = ['iq4_nl', 'q8_0'], MORE_SUPERBLOCKS = ['iq4_xs', 'q2_K', 'q3_K'];
const { readWasm } = await wabt();

/** Of each function with a name its opcodes on vectors, in order. @returns {Map<string, string[]>} */
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

  test(`${module}: dots of 16 bits, kernel by kernel`, () => {
    // Groups of 32 and of 16: 32 dots for each 8 codes of 4 tokens.
    assert.deepEqual(countOf(functions, /^(q\d_\d|iq4_nl|panel)_dot(_x4)?__simd128$/, DOT), {
      ...expected([...BLOCKS, ...MORE_BLOCKS], 'simd128', 32), panel_dot__simd128: 8, panel_dot_x4__simd128: 192 });
    checkSuperblocks(countOf(functions, /^(q\d_K|iq4_xs)_dot__simd128$/, DOT), [...MORE_SUPERBLOCKS, ...SUPERBLOCKS],
      'simd128');
  });

  const what = relaxed ? 'relaxed dots, kernel by kernel, and no other relaxed opcode' : 'nothing relaxed';
  test(`${module}: ${what}`, () => {
    const found = [...functions].flatMap(([name, opcodes]) =>
      opcodes.filter((opcode) => opcode.includes('relaxed')).map((opcode) => `${opcode} ${name}`));
    if (!relaxed) return assert.deepEqual(found, []);
    assert.deepEqual(found.filter((one) => !one.startsWith(RELAXED_DOT) || !/__relaxed(8|16)$/.test(one)), []);
    assert.deepEqual(countOf(functions, /^(q\d_\d|bytes)_dot(_x4)?__relaxed8$/, RELAXED_DOT), {
      ...expected(BLOCKS, 'relaxed8', 16), bytes_dot__relaxed8: 8, bytes_dot_x4__relaxed8: 32 });
    // Groups of 32 and of 16: 16 dots for each 8 codes of 2 tokens.
    assert.deepEqual(countOf(functions, /^(q\d_\d|q8_0_signed|bytes)_dot(_x4)?__relaxed16$/, RELAXED_DOT), {
      ...expected([...BLOCKS, 'q8_0', 'q8_0_signed'], 'relaxed16', 32),
      bytes_dot__relaxed16: 48, bytes_dot_x4__relaxed16: 96 });
    checkSuperblocks(countOf(functions, /^q\d_K\w*_dot__relaxed8$/, RELAXED_DOT), SUPERBLOCKS, 'relaxed8');
    checkSuperblocks(countOf(functions, /^q\d_K\w*_dot__relaxed16$/, RELAXED_DOT),
      [...SUPERBLOCKS, 'q4_K_unshifted'].sort(), 'relaxed16');
  });

  test(`${module}: every kernel named after an instruction set uses it`, () => {
    const kernels = [...functions].filter(([name]) => /__(simd128|relaxed8|relaxed16)$/.test(name));
    assert.ok(kernels.length >= (relaxed ? 60 : 40), `${kernels.length} kernels`);
    // The least is two splats, a sum, a product and a lane of it.
    for (const [name, opcodes] of kernels) assert.ok(opcodes.length >= 4, `${name}: ${opcodes.length} on vectors`);
  });
}
