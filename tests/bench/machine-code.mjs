/**
 * `node tests/bench/machine-code.mjs MODULE.wasm [FUNCTION [CPU]]`: the machine code that this Node's V8 generates for
 * the inner loops of kernels, on x86-64.  Prints a line for the hot loop of every kernel, the one with the most
 * products. For a given function it prints a line for each loop and its instructions, and with a CPU (znver3,
 * icelake-server, ...) the cycles per iteration by llvm-mca's model, if all data are in the L1 cache and nothing else
 * runs.
 *
 *   loops          loops of the function with as many products
 *   instructions   instructions of one iteration, without those of inner loops and without padding
 *   dots           instructions that multiply and add integers: one for each dot in the source
 *   f32            multiplications of floats
 *   loads          instructions that read memory, whatever else they do
 *   stack          reads and writes of the stack: spilled values
 *   addresses      address computations (lea) and zero-extensions of addresses
 *
 * MODULE must contain function names: build/bench/kernels-relaxed.wasm, build/emcc/named/plumb-relaxed.wasm.
 */
import { spawnSync } from 'node:child_process';
import { cpus } from 'node:os';

/** @typedef {{address: number, name: string, operands: string}} Instruction */

/** The optimized code of a module's functions, as V8 disassembles it.
 * @param {string} file @returns {{name: string, code: Instruction[]}[]} */
function compile(file) {
  const flags = ['--print-wasm-code', '--no-liftoff', '--no-wasm-lazy-compilation', '--single-threaded'];
  const script = `new WebAssembly.Module(require('node:fs').readFileSync(${JSON.stringify(file)}))`;
  const { stdout, stderr, status } = spawnSync(process.execPath, [...flags, '-e', script],
    { encoding: 'utf8', maxBuffer: 2 ** 30 });
  if (status !== 0) throw new Error(stderr.trim());
  return stdout.split('--- WebAssembly code ---').slice(1).map(text => ({
    name: /^name: (\S+)/m.exec(text)?.[1] ?? '',
    code: [...text.matchAll(/^0x([0-9a-f]+) +[0-9a-f]+ +[0-9a-f]+ +(?:REX\.W )?([a-z]\w*) *(.*)$/gm)]
      .map(([, address, name, operands]) => ({ address: parseInt(address, 16), name, operands }))
      .filter(({ name }) => name !== 'nop'),
  }));
}

/**
 * A loop is the code between a backward jump and its target; V8 keeps its blocks together.  The code after the last
 * return seldom runs (stack overflow, traps), and its jumps back into the function are not loops.
 * @param {Instruction[]} code @returns {Instruction[][]}  the own instructions of each loop, inner loops first
 */
function loopsOf(code) {
  const end = code.findLastIndex(({ name }) => name.startsWith('ret'));
  /** @type {Map<number, number>} */
  const lasts = new Map();   // of each first instruction; a loop may be continued from several places
  for (const [i, { name, operands, address }] of code.slice(0, end).entries()) {
    const target = name.startsWith('j') ? parseInt(operands, 16) : NaN;
    if (target >= code[0].address && target <= address) lasts.set(code.findIndex(to => to.address === target), i);
  }
  const taken = new Set();
  return [...lasts].sort(([a, b], [c, d]) => b - a - (d - c)).map(([first, last]) => {
    const own = code.slice(first, last + 1).filter(instruction => !taken.has(instruction));
    own.forEach(instruction => taken.add(instruction));
    return own;
  });
}

/** The counted instructions, by name.  A relaxed dot is one vpdpbusd, or else vpmaddubsw, vpmaddwd and vpaddd. */
const COUNTS = /** @type {Record<string, (instruction: Instruction) => boolean>} */ ({
  instructions: () => true,
  dots: ({ name }) => /^v?pmaddwd$|^vpdp/.test(name),
  f32: ({ name }) => /^v?mulps$|^vfn?m\w+ps$/.test(name),
  loads: ({ name, operands }) => /,\[(?!r[bs]p)/.test(operands) && !name.startsWith('lea') && !name.startsWith('cmp'),
  stack: ({ operands }) => /\[r[bs]p/.test(operands),
  addresses: ({ name, operands }) => /^lea/.test(name) || (/^movl$/.test(name) && /^r\w+,r\w+$/.test(operands)),
});

/** @type {Record<string, string>} */
const WIDTHS = { vmovdqu: 'xmmword', vmovups: 'xmmword', vbroadcastss: 'dword' };

/** Cycles per iteration of a loop that runs many times.  V8 writes Intel's syntax with the suffixes of AT&T's.
 * @param {Instruction[]} loop @param {string} cpu  as llvm-mca -mcpu names it */
function cyclesOf(loop, cpu) {
  const code = loop.filter(({ name }) => !name.startsWith('j')).map(({ name, operands }) => {
    const plain = /^(mov|lea|add|sub|cmp|and|shl)[lq]$/.exec(name)?.[1] ?? name;
    const from = operands.replace(/\*1\b/g, '').replace(/\[rip\+\w+\]/, '[rip]')
      .replace('[', WIDTHS[name] ? `${WIDTHS[name]} ptr [` : '[');
    return `${plain === 'mov' && /0x[0-9a-f]{9,}/.test(from) ? 'movabs' : plain} ${from}`;
  });
  const turns = 100;
  const { stdout, stderr, error } = spawnSync('llvm-mca',
    ['-mtriple=x86_64', `-mcpu=${cpu}`, `-iterations=${turns}`, '-'],
    { input: `.intel_syntax noprefix\n${code.join('\n')}\n`, encoding: 'utf8' });
  const cycles = /^Total Cycles: +(\d+)/m.exec(stdout ?? '')?.[1];
  if (!cycles) throw new Error(`llvm-mca (apt package llvm) says: ${error?.message ?? stderr.trim()}`);
  return Number(cycles) / turns;
}

const [file, wanted, cpu] = process.argv.slice(2);
if (!file) throw new Error('usage: node tests/bench/machine-code.mjs MODULE.wasm [FUNCTION [CPU]]');
const isKernel = (/** @type {string} */ name) =>
  /__(simd128|relaxed\d+)$|^ceiling_/.test(name) && !name.includes('_unpack_');
const functions = compile(file).filter(({ name }) => wanted ? name === wanted : isKernel(name))
  .sort((a, b) => a.name < b.name ? -1 : 1);
if (functions.length === 0) {
  throw new Error(`no code of ${wanted ?? 'kernels'}: is the name in ${file}, and has this Node V8's disassembler?`);
}
const line = (/** @type {string} */ name, /** @type {any[]} */ numbers) =>
  console.log(name.padEnd(24) + numbers.map((n, i) => String(n).padStart(i === 1 ? 14 : 10)).join(''));
console.log(`${file} by V8 ${process.versions.v8} (Node ${process.versions.node}) for ${cpus()[0].model}\n`);
line('', ['loops', ...Object.keys(COUNTS)]);
for (const { name, code } of functions) {
  const loops = loopsOf(code).map(own => {
    const counts = Object.values(COUNTS).map(is => own.filter(is).length);
    return { own, counts, products: counts[1] || counts[2] / 100 };   // dots before floats
  });
  if (wanted) {
    for (const { own, counts } of loops) {
      line(name, [1, ...counts]);
      if (cpu) console.log(`    ${cyclesOf(own, cpu)} cycles (llvm-mca -mcpu=${cpu})`);
      for (const { name, operands } of own) console.log(`    ${name} ${operands}`);
    }
    continue;
  }
  const most = Math.max(...loops.map(({ products }) => products));
  const hot = loops.filter(({ products }) => products === most && most > 0);
  if (hot.length > 0) line(name, [hot.length, ...hot[0].counts]);
}
