/** Two real models on any host that runs JavaScript: their greedy ids, and the output of every layer.  Ground truth:
 * llama.cpp on the same weights in F32 (tests/vectors/llama, tests/vectors/layers).  The C tests do the same natively
 * and under wasmtime (tests/truth_test.c, tests/layers_test.c). */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { serve } from '../../web/site/serve.mjs';
import { models, root } from '../node/helpers.mjs';

/** @typedef {object} Host
 * @property {(run: (value: any) => any, value?: any) => Promise<any>} evaluate  runs a function that sees only globals,
 *   Plumb among them, and its argument; arguments and results are JSON
 * @property {(file: string) => string} locate  where it finds a file of the checkout
 * @property {() => Promise<void>} close */

/** A page of the package's origin. @param {() => Promise<import('./browser.mjs').Browser>} launch */
export async function pageOf(launch) {
  const site = await serve({ root });
  const browser = await launch();
  await browser.open(`${site.url}README.md`);
  await browser.evaluate(async () => { globalThis.Plumb = (await import('/web/index.js')).Plumb; });
  return {
    evaluate: browser.evaluate,
    locate: file => `/${file}`,
    async close() {
      await browser.close();
      await site.close();
    },
  };
}

/** How far the outputs of each layer are from llama.cpp's: relative RMS, the root mean square over the tokens.
 * @param {{name: string, token: number, rms: number, values: number[]}[]} ours
 * @param {{name: string, token: number, rms: number, values: number[]}[]} theirs */
function errorsOf(ours, theirs) {
  const norm = values => Math.hypot(...values), errors = {};
  for (const { name, token, rms, values } of ours) {
    const truth = theirs.find(one => one.name === name && one.token === token);
    const error = Math.max(norm(values.map((x, i) => x - truth.values[i])) / norm(truth.values),
      Math.abs(rms - truth.rms) / truth.rms);
    (errors[name] ??= []).push(error);
  }
  return Object.entries(errors).map(([name, all]) => ({ name, error: norm(all) / Math.sqrt(all.length) }));
}

/** @param {string} name @param {() => Promise<Host>} start */
export function truth(name, start) {
  describe(`${name}, real models`, () => {
    /** @type {Host} */
    let host;
    before(async () => { host = await start(); });
    after(() => host?.close());

    for (const { name, file, prompts, layers } of models) {
      test(`${name} loads`, async () => {
        await host.evaluate(async url => {
          await globalThis.model?.close();
          globalThis.model = await Plumb.load(url, { threads: 2, precision: 'exact16', cache: 'no-store' });
        }, host.locate(file));
      });

      for (const prompt of prompts) {
        const { length } = prompt.ids;
        test(`greedy ids of ${name} are llama.cpp's: 64 after ${length} tokens (${prompt.name})`, async () => {
          const chosen = await host.evaluate(async ids => {
            await model.rewind();
            const chosen = [];
            // `all` is `logits`: once WebKitGTK 2.50 has compiled a callback that reads the loop's variable, the
            // callback reads the array of an earlier iteration.
            for (let logits = await model.feed(ids); ; logits = await model.step(chosen.at(-1))) {
              chosen.push(logits.reduce((best, value, i, all) => value > all[best] ? i : best, 0));
              if (chosen.length === 64) return chosen;
            }
          }, prompt.ids);
          assert.deepEqual(chosen, prompt.f32.ids);
        });
      }

      test(`the output of every layer of ${name} is llama.cpp's: within 1e-2, of the first within 1e-3`, async t => {
        const theirs = layers.taps.filter(tap => tap.name.startsWith('l_out-'));
        const ours = await host.evaluate(async ({ ids, places }) => {
          const { taps } = await model.trace(ids, { taps: 'l_out', values: Infinity });
          return taps.map(({ values, ...tap }) => ({ ...tap, values: places.map(place => values[place]) }));
        }, { ids: layers.tokens, places: theirs[0].places });
        const errors = errorsOf(ours, theirs);
        t.diagnostic(errors.map(({ name, error }) => `${name} ${error.toExponential(1)}`).join(', '));
        assert.deepEqual(errors.map(({ name }) => name), [...new Set(theirs.map(({ name }) => name))]);
        for (const { name, error } of errors) {
          assert.ok(error > 0 && error <= (name === 'l_out-0' ? 1e-3 : 1e-2), `${name}: relative RMS ${error}`);
        }
      });
    }
  });
}
