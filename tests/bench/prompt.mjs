/**
 * The tokens that every engine is fed: the GPL-3, cut so that the text of its first n tokens gives the same n tokens
 * again, for every requested n.  wllama 3 takes prompts as text, so it gets the same tokens too.
 */
import { readFileSync } from 'node:fs';
import { Plumb } from '../../web/node/index.js';

export const TEXT = process.env.BENCH_TEXT ?? '/usr/share/common-licenses/GPL-3';

/** @param {string} model @param {number[]} lengths  of prompts @param {number} most  tokens that are needed
 * @returns {Promise<{ids: number[], texts: Record<number, string>}>} */
export async function promptOf(model, lengths, most) {
  const text = readFileSync(TEXT, 'utf8');
  const plumb = await Plumb.load(model, { contextLength: 16, threads: 1 });
  const tokenize = (some) => plumb.tokenize(some, { parseSpecial: true });
  try {
    for (let at = 0; at >= 0; at = text.indexOf('\n', at) + 1 || -1) {
      const ids = [...(await tokenize(text.slice(at))).subarray(0, most)];
      if (ids.length < most) break;
      const texts = {};
      for (const n of lengths) {
        const whole = await plumb.detokenize(ids.slice(0, n));
        // Some vocabularies prepend a space, which stays in the text after a BOS.
        for (const some of [whole, whole.slice(1)]) {
          const again = await tokenize(some);
          if (again.length === n && again.every((id, i) => id === ids[i])) texts[n] = some;
        }
      }
      if (lengths.every(n => n in texts)) return { ids, texts };
    }
  } finally {
    await plumb.close();
  }
  throw new Error(`${TEXT}: no ${most} tokens with prompts of ${lengths.join(', ')}; BENCH_TEXT names another text`);
}
