/** What is timed of an engine that takes tokens: setPrompt, prefill and decode over its rewind(position) and
 * feed(tokens).  Seconds around the calls that a user would make; of an engine that can, these are generate(prompt,
 * steps), which tells the seconds from the first token on. */
export function stepping({ rewind, feed, generate }) {
  let ids = [];
  let past = 0;
  const goTo = async (position) => {
    await rewind(position);
    past = position;
  };
  const advance = async (n) => {
    await feed(ids.slice(past, past + n));
    past += n;
  };
  const timed = async (work) => {
    const from = performance.now();
    await work();
    return (performance.now() - from) / 1000;
  };
  return {
    async setPrompt(given) {
      ids = [...given];
      await goTo(0);
    },
    async prefill(n) {
      await goTo(0);
      return timed(() => advance(n));
    },
    async decode(context, steps) {
      if (past > context) await goTo(context);
      if (past < context) await advance(context - past);
      const seconds = generate ? await generate(ids.slice(0, context), steps) : await timed(async () => {
        for (let i = 0; i < steps; i++) await advance(1);
      });
      await goTo(context);
      return seconds;
    },
  };
}
