/* plumb's package as an engine of the bench, in a page or in Node: what driver.h is in C.  Times are seconds around the
 * calls that a user would make. */

/** @param {typeof import('../../web/index.js').Plumb} Plumb
 * @param {string} kind  plumb, or plumb16: precision exact16 */
export async function openPlumb(Plumb, kind, source, contextLength, threads) {
  const start = performance.now();
  const precision = kind === 'plumb16' ? 'exact16' : 'auto';
  const model = await Plumb.load(source, { contextLength, threads, precision });
  const loadSeconds = (performance.now() - start) / 1000;
  const info = await model.info();
  if (info.threads !== threads) {
    await model.close();
    throw new Error(`asked for ${threads} threads, runs with ${info.threads}`);
  }
  let ids = new Int32Array();
  let past = 0;
  const rewind = async (position) => {
    await model.rewind(position);
    past = position;
  };
  const feed = async (n) => {
    await model.feed(ids.subarray(past, past + n));
    past += n;
  };
  const timed = async (work) => {
    const from = performance.now();
    await work();
    return (performance.now() - from) / 1000;
  };
  return {
    loadSeconds, info,
    about: [info.module, info.kernels, info.precision].filter(Boolean).join(' '),
    async setPrompt(given) {
      ids = Int32Array.from(given);
      await rewind(0);
    },
    async prefill(n) {
      await rewind(0);
      return timed(() => feed(n));
    },
    async decode(context, steps) {
      if (past > context) await rewind(context);
      if (past < context) await feed(context - past);
      const seconds = await timed(async () => {
        for (let i = 0; i < steps; i++) await feed(1);
      });
      await rewind(context);
      return seconds;
    },
    close: () => model.close(),
  };
}
