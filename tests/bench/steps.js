/** The timed operations of an engine that takes tokens: setPrompt, prefill and decode, built on its rewind(position)
 * and feed(tokens).  rewind may say that fewer tokens are left, as states of recurrent models can't go back.  Times
 * are the seconds of calls that a user would make.  If the engine has generate(prompt, steps), that reports the seconds
 * from the first token on. */
export function stepping({ rewind, feed, generate }) {
  let ids = [];
  let past = 0;
  const goTo = async (position) => {
    past = await rewind(position) ?? position;
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
