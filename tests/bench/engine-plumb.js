/* plumb's package as an engine of the bench, in a page or in Node, like driver.h in C.  Times are the seconds of the
 * calls that a user would make. */
import { stepping } from './steps.js';

/** @param {typeof import('../../web/index.js').Plumb} Plumb
 * @param {string} kind  plumb, or with 8-bit activations: plumb8, or with 64-bit addresses: plumb64 */
export async function openPlumb(Plumb, kind, source, contextLength, threads) {
  const start = performance.now();
  const precision = kind === 'plumb8' ? 'fast8' : 'exact16';
  const memory64 = kind === 'plumb64';
  const model = await Plumb.load(source, { contextLength, threads, precision, memory64, cache: 'no-store' });
  const loadSeconds = (performance.now() - start) / 1000;
  const info = await model.info();
  if (info.threads !== threads) {
    await model.close();
    throw new Error(`asked for ${threads} threads, runs with ${info.threads}`);
  }
  return {
    loadSeconds, info,
    about: [info.module, info.kernels, info.precision].filter(Boolean).join(' '),
    ...stepping({
      rewind: position => model.rewind(position),
      feed: tokens => model.feed(tokens),
      /** Decodes greedily, token by token; the session holds the prompt except for its last token. */
      async generate(prompt, steps) {
        const text = model.generate(prompt, { maxTokens: steps + 1, temperature: 0 });
        let first = 0;
        for await (const _ of text) first ||= performance.now();
        const seconds = (performance.now() - first) / 1000;
        if (model.lastStats?.tokens !== steps + 1) {
          throw new Error(`asked for ${steps} + 1 tokens, got ${model.lastStats?.tokens}`);
        }
        return seconds;
      },
    }),
    close: () => model.close(),
  };
}
