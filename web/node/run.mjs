/* What `make run` runs: streams an answer to the terminal and says how fast it was.
 *
 *   node web/node/run.mjs --model MODEL.gguf --prompt TEXT [--max-tokens N] [--temperature T] [--seed N] [--threads N]
 *     [--precision auto|exact16|fast8] [--raw]
 *
 * --threads N computes with N threads instead of one for each processor.  --raw continues TEXT as it is instead of
 * answering it as a chat. */
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { Plumb, PlumbError } from './index.js';

const started = performance.now();
const seconds = (/** @type {number} */ since) => (performance.now() - since) / 1000;

try {
  const { model: path, prompt, raw, 'max-tokens': maxTokens, temperature, seed, threads, precision } = options();
  const model = await Plumb.load(path, {
    onProgress: progress, threads: number('--threads', threads),
    precision: /** @type {import('../options.js').PRECISIONS[number]} */ (precision),
  });
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  const loadSeconds = seconds(started);

  const leave = new AbortController();
  process.once('SIGINT', () => leave.abort());
  for await (const piece of model.generate(raw ? prompt : [{ role: 'user', content: prompt }], {
    maxTokens: number('--max-tokens', maxTokens) ?? 400,
    temperature: number('--temperature', temperature),
    seed: number('--seed', seed),
    signal: leave.signal,
  })) process.stdout.write(piece);

  const stats = /** @type {import('../plumb.js').Stats} */ (model.lastStats);
  const { threads: used } = await model.info();
  const rate = (/** @type {number} */ n) => n.toFixed(1);
  console.log(`\n
${basename(path)}, ${process.release.name} ${process.versions.node}, ${used} thread${used === 1 ? '' : 's'}
  load     ${loadSeconds.toFixed(2)} s
  prefill  ${rate(stats.prefillRate)} tokens/s (${stats.promptTokens} tokens)
  decode   ${rate(stats.decodeRate)} tokens/s (${stats.tokens} tokens${
    stats.finishReason === 'length' ? ', cut at the limit' : ''})
In a browser: make serve`);
  await model.close();
} catch (error) {
  if (!(error instanceof PlumbError)) throw error;
  console.error(`plumb: ${error.message} (${error.code})`);
  process.exitCode = 1;
}

function options() {
  try {
    const { values } = parseArgs({
      options: {
        model: { type: 'string' }, prompt: { type: 'string' }, raw: { type: 'boolean' },
        'max-tokens': { type: 'string' }, temperature: { type: 'string' }, seed: { type: 'string' },
        threads: { type: 'string' }, precision: { type: 'string' },
      },
    });
    const { model, prompt } = values;
    if (!model || !prompt) throw new Error('--model and --prompt are needed');
    return { ...values, model, prompt };
  } catch (error) {
    console.error(`run.mjs: ${error instanceof Error ? error.message : error}`);
    process.exit(2);
  }
}

/** @param {string} name @param {string | undefined} text */
function number(name, text) {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() !== '' && !Number.isNaN(value)) return value;
  console.error(`run.mjs: ${name} ${JSON.stringify(text)} is no number`);
  process.exit(2);
}

/** A line that replaces itself, once loading has taken a second.
 * @param {import('../loader/progress.js').Progress} progress */
function progress({ bytes, total, rate, secondsLeft }) {
  if (!process.stderr.isTTY || seconds(started) < 1) return;
  const mb = (/** @type {number} */ n) => (n / 1e6).toFixed(0);
  const of = total === undefined ? '' : ` of ${mb(total)}`;
  const left = secondsLeft === undefined ? '' : `, ${secondsLeft.toFixed(0)} s left`;
  process.stderr.write(`\r\x1b[Kloading: ${mb(bytes)}${of} MB, ${mb(rate)} MB/s${left}`);
}
