/** Activations of 16 and of 8 bits: the same bits from every module, with relaxed SIMD or without. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import { test } from 'node:test';
import { argmax, prompts, realPath, root } from './helpers.mjs';

const { ids } = prompts[0];
/** Runs Node with these flags: for each precision the kernels that ran, and the logits of a batch and of a next token.
 * @param {string[]} flags @param {string} [first] code that it runs before
 * @returns {Record<string, {module: string, ran: string, logits: number[][]}>} */
const run = (flags, first = '') => JSON.parse(execFileSync(process.execPath, [...flags, '--input-type=module', '-e', `
  ${first}
  import { Plumb } from '${root}web/node/index.js';
  const all = {};
  for (const precision of ['exact16', 'fast8']) {
    const model = await Plumb.load(${JSON.stringify(realPath)}, { precision, threads: 1 });
    const { module, kernels, precision: named } = await model.info();
    const logits = [await model.feed(${JSON.stringify(ids)}), await model.step(${ids[0]})].map(row => [...row]);
    all[precision] = { module, ran: kernels + ' ' + named, logits };
    await model.close();
  }
  console.log(JSON.stringify(all));`], { maxBuffer: 1 << 28, encoding: 'utf8' }));

const old = Number(process.versions.node.split('.')[0]) < 22;
/** Node 20 needs these flags: it has relaxed SIMD off by default, and its first compiler is wrong.  Later versions have
 * no flag to turn it off. */
const withRelaxed = old ? ['--experimental-wasm-relaxed-simd', '--no-liftoff'] : [];
const plain = run([], 'WebAssembly.validate = () => false;');

test('each precision gives the same bits with and without relaxed SIMD; 8 bits are less accurate', () => {
  const relaxed = run(withRelaxed);
  assert.match(relaxed.exact16.ran, /^(simd128|relaxed) exact16$/);   // whichever is faster here
  assert.match(relaxed.fast8.ran, /^relaxed(-pairs)? fast8$/);   // pairs: a CPU without AVX-VNNI
  assert.equal(relaxed.fast8.module, 'plumb-relaxed');
  assert.deepEqual([plain.exact16.ran, plain.fast8.ran], ['simd128 exact16', 'simd128 fast8']);
  for (const precision of ['exact16', 'fast8']) {
    assert.deepEqual(relaxed[precision].logits, plain[precision].logits, precision);
  }
  for (const [i, exact] of plain.exact16.logits.entries()) {
    const coarse = plain.fast8.logits[i], square = exact.reduce((sum, x) => sum + x * x, 0);
    const error = Math.sqrt(exact.reduce((sum, x, at) => sum + (x - coarse[at]) ** 2, 0) / square);
    // Codes are wrong by up to 1/254 of a block's largest value, 30 layers long.
    assert.ok(error > 1e-3 && error < 0.2, `relative error ${error}`);
    assert.equal(argmax(Float32Array.from(coarse)), argmax(Float32Array.from(exact)));
  }
});

test('if relaxed dots give wrong results, they never run, even for 8 bits', () => {
  // Replaces every dot by a lane select, an instruction that takes three vectors too.
  const wrong = run(withRelaxed, `
    const { compile } = WebAssembly;
    WebAssembly.compile = (bytes) => {
      const patched = Uint8Array.from(bytes), dot = [0xfd, 0x93, 0x02];
      let n = 0;
      for (let i = 0; i < patched.length; i++) {
        if (dot.every((byte, k) => patched[i + k] === byte)) patched[i + 1] = 0x89, n++;
      }
      if (n < 100) throw new Error(n + ' dots');
      return compile(patched);
    };`);
  for (const precision of ['exact16', 'fast8']) {
    assert.equal(wrong[precision].module, 'plumb-relaxed');
    assert.equal(wrong[precision].ran, `simd128 ${precision}`);
    assert.deepEqual(wrong[precision].logits, plain[precision].logits, precision);
  }
});

test('loads on a busy machine have the same precision and give the same tokens', async t => {
  const loops = [1, 2].map(() => spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
  t.after(() => loops.forEach(loop => loop.kill('SIGKILL')));
  const LOADS = 4;
  const seen = JSON.parse(execFileSync(process.execPath, [...withRelaxed, '--input-type=module', '-e', `
    import { Plumb } from '${root}web/node/index.js';
    const seen = [];
    for (let i = 0; i < ${LOADS}; i++) {
      const model = await Plumb.load(${JSON.stringify(realPath)}, { threads: 1, worker: false });
      const tokens = [];
      for await (const _ of model.generate(${JSON.stringify(ids)}, {
        temperature: 0, maxTokens: 8, onToken: ({ id }) => tokens.push(id),
      }));
      seen.push({ precision: (await model.info()).precision, tokens });
      await model.close();
    }
    console.log(JSON.stringify(seen));`], { encoding: 'utf8' }));
  assert.equal(seen.length, LOADS);
  for (const one of seen) assert.deepEqual(one, { precision: 'exact16', tokens: prompts[0].f32.ids.slice(0, 8) });
});

test('if the relaxed module does not load, the plain one runs, and a warning says which and why', () => {
  const { module, warnings, logits, plan } = JSON.parse(execFileSync(process.execPath, [...withRelaxed,
    '--input-type=module', '-e', `
    import { platform } from '${root}web/node/platform.js';
    import { createPlumb } from '${root}web/api/plumb.js';
    console.warn = () => {};
    const plumb = createPlumb({
      ...platform, worker: false, postsBlobs: false,
      locate: path => ({ kind: 'file', name: path, size: ${statSync(realPath).size}, path }),
      compile: name => name.endsWith('-relaxed') ? Promise.reject(new Error('https://a.site/' + name + '.wasm: gone'))
        : platform.compile(name),
    });
    const model = await plumb.load(${JSON.stringify(realPath)}, { threads: 1 });
    const logits = [await model.feed(${JSON.stringify(ids)}), await model.step(${ids[0]})].map(row => [...row]);
    const plan = await plumb.preflight(${JSON.stringify(realPath)}, { threads: 1, measure: false });
    console.log(JSON.stringify({ module: (await model.info()).module, warnings: model.warnings, logits, plan }));
    await model.close();`], { maxBuffer: 1 << 28, encoding: 'utf8' }));
  const message = 'plumb runs instead of plumb-relaxed: https://a.site/plumb-relaxed.wasm: gone';
  assert.equal(module, 'plumb');
  assert.deepEqual(warnings, [{ code: 'module', message }]);
  assert.deepEqual([plan.module, plan.moduleNote], ['plumb', message]);
  assert.deepEqual(logits, plain.exact16.logits);
});
