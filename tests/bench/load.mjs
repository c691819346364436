/**
 * The cost of a load in Chromium: seconds from the URL to the first token, compared with a bare fetch of the same
 * bytes, and peak memory.  Each run has its own page; the kinds rotate.
 */
import { chromium, closeChromium, openPage, reason } from './engines.mjs';
import { median } from './median.mjs';
import { held } from './memory.mjs';
import { promptOf } from './prompt.mjs';

const KINDS = [['plumb', 1], ['plumb', 2], ['wllama-2', 1], ['wllama-3', 1]];
const PROMPT = 32, CONTEXT = 2048;
/** The peers take long and are far from the target, so they run less often. */
const REPEATS = 5, REPEATS_OF_PEERS = 2;
const POLL = 100;
let nth = 0;
/** A URL that is in no cache. */
const fresh = (file) => `/${file}?bench=${Date.now()}-${nth++}`;

/** Peak memory during the work, above the value before. */
async function peakOf(session, work) {
  const before = await held(session);
  let peak = before, done = false;
  const watch = (async () => {
    while (!done) {
      peak = Math.max(peak, await held(session));
      await new Promise(resolve => setTimeout(resolve, POLL));
    }
  })();
  const result = await work().finally(() => { done = true; });
  await watch;
  return { result, bytes: peak - before };
}

async function inPage(use) {
  const page = await openPage();
  try {
    return await use(page.call);
  } finally {
    await page.close();
  }
}

/** @param {{name: string, file: string}} model @param {(text: string) => void} log */
export async function loadsOf(model, log) {
  await closeChromium();   // memory of earlier measurements must not count
  const prompt = await promptOf(model.file, [PROMPT], PROMPT);
  const bare = { model: model.name, kind: 'fetch', threads: 1, seconds: [] };
  const loads = KINDS.map(([kind, threads]) =>
    ({ model: model.name, kind, threads, seconds: [], prefillSeconds: [], context: CONTEXT }));
  const first = (call, { kind, threads }) =>
    call('firstToken', kind, fresh(model.file), CONTEXT, threads, prompt, PROMPT);
  const attempt = async (load, work) => {
    if (load.error) return;
    try {
      await inPage(work);
    } catch (error) {
      load.error = reason(error);
    }
  };
  for (let i = 0; i < REPEATS; i++) {
    await inPage(async call => void bare.seconds.push((await call('fetchOnly', fresh(model.file))).seconds));
    for (const load of loads) {
      if (load.kind !== 'plumb' && i >= REPEATS_OF_PEERS) continue;
      await attempt(load, async call => {
        const { seconds, prefillSeconds } = await first(call, load);
        load.seconds.push(seconds);
        load.prefillSeconds.push(prefillSeconds);
      });
    }
  }
  const { browser } = await chromium();
  const session = await browser.newBrowserCDPSession();
  for (const load of loads) {   // sampling memory costs time, so these runs are not timed
    await attempt(load, async call => {
      const { result, bytes } = await peakOf(session, () => first(call, load));
      Object.assign(load, { processBytes: bytes, info: result.info, page: await call('memory') });
    });
  }
  log(`${model.name}, load to the first token, s: fetch alone ${median(bare.seconds).toFixed(2)}, `
    + loads.map(({ kind, threads, seconds, error }) =>
      `${kind}/${threads} ${error ? `failed (${error})` : median(seconds).toFixed(2)}`).join(', '));
  return [bare, ...loads];
}
