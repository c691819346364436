/**
 * Measures how far probabilities are from those of plumb's reference pass on the same weights, for plumb's fast pass,
 * the same with 8-bit activations (Q8_0 does not use them: only the rounding of the saved reference remains), and
 * llama.cpp.  Prints the mean Kullback-Leibler divergence and how often the likeliest token agrees, over the later
 * halves of chunks of 512 tokens of the GPL-3 text.
 * `make bench BENCH="--accuracy --no-speed --no-load"` runs this alone.
 */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { TEXT } from './prompt.mjs';

const run = promisify(execFile);
const plumb = 'build/native/plumb', llama = 'build/bench/llama';

/** @param {{name: string, file: string}} model @param {(text: string) => void} log
 * @param {{chunks?: number}} [options] */
export async function accuracyOf(model, log, { chunks = 4 } = {}) {
  const base = `build/bench/${model.name}.base`;
  const sized = ['perplexity', model.file, TEXT, '--ctx', '512', '--chunks', `${chunks}`];
  const found = { model: model.name, chunks };
  log(`${model.name}: the reference pass, ${chunks} x 512 tokens`);
  const ours = async (precision, from) => {
    const options = ['--precision', precision, '--kl', from, '--json'];
    const { kl, same_top: sameTop } = JSON.parse((await run(plumb, [...sized, ...options])).stdout);
    return { kl: kl.mean, sameTop: sameTop.mean };
  };
  const theirs = async () => {
    const { kl, same_top: sameTop } = JSON.parse((await run(llama, ['kl', model.file, base, '2'])).stdout);
    return { kl, sameTop };
  };
  const or = (work) => work.catch(error => ({ error: (error.stderr || error.message).trim().split('\n').at(-1) }));
  const saved = run(plumb, [...sized, '--reference', '--save', base]);
  // A saved run stores 16-bit probabilities: enough to measure 8-bit activations, not 16-bit ones.
  [found.plumb, found.fast8, found['llama.cpp']] = await Promise.all([
    or(ours('exact16', 'reference')), or(saved.then(() => ours('fast8', base))), or(saved.then(theirs))]);
  await rm(base, { force: true });
  const show = ({ kl, sameTop, error }) => error ?? `${kl.toExponential(1)}, ${(100 * sameTop).toFixed(2)} %`;
  log(`${model.name}, divergence, same top token: plumb ${show(found.plumb)}; fast8 ${show(found.fast8)}; llama.cpp ${
    show(found['llama.cpp'])}`);
  return found;
}
