/** tests/bench/machine-code.mjs, which docs/speed.md quotes, finds the loops and counts their instructions. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { root } from './helpers.mjs';

const hasDisassembler = spawnSync(process.execPath, ['--print-wasm-code', '--no-liftoff', '--no-wasm-lazy-compilation',
  '-e', `new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 10, 4, 1, 2,
    0, 11]))`], { encoding: 'utf8' }).stdout.includes('retl');

test('the machine code of kernel loops has as many dots as 8 rows of 32 weights need',
  { skip: !hasDisassembler && 'needs x86-64, and a V8 with its disassembler' }, () => {
    const { stdout, stderr, status } = spawnSync(process.execPath, ['tests/bench/machine-code.mjs',
      'build/emcc/named/plumb.wasm'], { cwd: root, encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    const [, ...titles] = stdout.split('\n').find(line => line.includes('loops')).split(/ +/);
    const of = name => Object.fromEntries(stdout.split('\n').find(line => line.startsWith(name)).split(/ +/).slice(1)
      .map((count, i) => [titles[i], Number(count)]));
    // A block is 256 products, 8 per dot; an iteration of the loop handles some blocks.
    for (const name of ['q4_0_dot__simd128', 'q8_0_dot__simd128']) {
      const { loops, instructions, dots } = of(name);
      assert.ok(loops === 1 && dots > 0 && dots % 32 === 0, `${name}: ${loops} loops of ${dots} dots`);
      assert.ok(instructions > 2 * dots && instructions < 12 * dots, `${name}: ${instructions} instructions`);
    }
    assert.equal(of('dot_f32__simd128').dots, 0);
  });
