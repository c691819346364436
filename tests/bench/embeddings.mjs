/**
 * `node tests/bench/bench.mjs --embeddings` measures embeddings per second: 256 texts of 5 to 200 tokens, on one thread
 * in one Chromium, with plumb, wllama and transformers.js (q8), on all-MiniLM-L6-v2 and on random weights in the shape
 * of EmbeddingGemma 300M.  Every engine gets the texts in the way its users pass them, and its time includes the
 * tokenizer.  Prints a table, and writes every run to bench/results.
 *
 * wllama 2.3.1, which has kernels of SIMD, does not know gemma-embedding; it computes gemma3 of the same shape.
 * transformers.js is measured with one text a call and with 16, which it pads to the longest one.  Engines take turns,
 * one run each.  Rates are by the processor time of the browser's renderers, as Linux counts it, because other programs
 * may run too; the file of results also has the seconds by the clock.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { chromium, closeChromium, reason, within } from './engines.mjs';
import { describe, slug } from './machine.mjs';
import { median } from './median.mjs';

const MINILM = 'models/all-MiniLM-L6-v2.Q8_0.gguf', FOLDER = 'models/bench';
const GEMMA = `${FOLDER}/gemma-embedding.Q8_0.gguf`, GEMMA3 = `${FOLDER}/gemma3-like-embedding.Q8_0.gguf`;
const ONNX = { minilm: `${FOLDER}/minilm-onnx`, gemma: `${FOLDER}/gemma-embedding-onnx` };
const SHORTEST = 5, LONGEST = 200;
/** Seconds until an engine must have embedded the first 16 texts, and all of them. */
const WARM_LIMIT = 90, LIMIT = 1200;
const MODELS = [
  { title: 'all-MiniLM-L6-v2 Q8_0', engines: [
    ['plumb', MINILM], ['wllama 2.3.1', MINILM], ['wllama 3.8.1', MINILM], ['transformers.js', ONNX.minilm, 1],
    ['transformers.js', ONNX.minilm, 16],
  ] },
  { title: 'EmbeddingGemma-shaped Q8_0', engines: [
    ['plumb', GEMMA], ['wllama 2.3.1', GEMMA3], ['wllama 3.8.1', GEMMA], ['transformers.js', ONNX.gemma, 1],
    ['transformers.js', ONNX.gemma, 16],
  ] },
];
const python = (...args) => execFileSync('python3', ['tests/bench/encoder_onnx.py', ...args], {
  env: { ...process.env, PYTHONPATH: 'build/setup/py' }, stdio: ['ignore', 'inherit', 'inherit'],
});

function makeFiles() {
  mkdirSync(FOLDER, { recursive: true });
  if (!existsSync(MINILM)) execFileSync('python3', ['models/fetch.py', 'all-minilm-l6-v2'], { stdio: 'inherit' });
  if (!existsSync(GEMMA)) python('gguf', 'gemma-embedding', MINILM, GEMMA);
  if (!existsSync(GEMMA3)) python('gguf', 'gemma3', MINILM, GEMMA3);
  if (!existsSync(`${ONNX.minilm}/onnx`)) python('onnx', MINILM, ONNX.minilm);
  if (!existsSync(`${ONNX.gemma}/onnx`)) python('onnx', GEMMA, ONNX.gemma);
}

/** Texts of words that are one token each, with 5 to 200 tokens including the two that are added. @param {number} n */
function textsOf(n) {
  const { model: { vocab } } = JSON.parse(readFileSync(`${ONNX.minilm}/tokenizer.json`, 'utf8'));
  const words = Object.keys(vocab).filter(word => /^[a-z]{3,}$/.test(word));
  let state = 1;
  const random = below => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor((state >>> 8) / 2 ** 24 * below);
  };
  return Array.from({ length: n }, () => Array.from({ length: SHORTEST - 2 + random(LONGEST - SHORTEST + 1) },
    () => words[random(words.length)]).join(' '));
}

/** Seconds of processor time that the renderers of this program's browser have used, of which one computes. */
function rendererSeconds() {
  const all = new Map();
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/.*\) /s, '').split(' ').map(Number);
      const isRenderer = readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('--type=renderer');
      all.set(Number(pid), { parent: fields[1], ticks: isRenderer ? fields[11] + fields[12] : 0 });
    } catch { /* the process has ended */ }
  }
  const isOurs = pid => pid === process.pid || all.has(pid) && isOurs(all.get(pid).parent);
  return [...all].reduce((sum, [pid, { ticks }]) => isOurs(pid) ? sum + ticks : sum, 0) / 100;
}

const cosine = (a, b) => {
  const dot = (x, y) => x.reduce((sum, z, i) => sum + z * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
};

/** @param {{engines?: string, models?: string, repeats?: string, texts?: string, out?: string}} options
 *   engines: parts of names, separated by commas; models: a part of a name */
export async function embeddings({ engines = '', models = '', repeats = '3', texts: count = '256', out }) {
  makeFiles();
  const results = { ...describe(), command: ['node', 'tests/bench/bench.mjs', ...process.argv.slice(2)].join(' '),
    runs: [] };
  const file = out ?? `bench/results/${results.date}-${slug(results.machine)}-embeddings.json`;
  const { browser, url } = await chromium();
  const n = Number(count);
  for (const { title, engines: all } of MODELS.filter(({ title }) => title.includes(models))) {
    const texts = textsOf(n), open = [];
    for (const [name, source, batch] of all.filter(([name]) =>
      name === 'plumb' || engines.split(',').some(part => name.includes(part)))) {
      const engine = batch ? `${name} q8, ${batch} a call` : name;
      const run = { model: title, engine, texts: n, seconds: [], wallSeconds: [] };
      results.runs.push(run);
      const page = await (await browser.newContext()).newPage();
      try {
        await page.goto(new URL('tests/bench/embeddings.html', url).href);
        await page.waitForFunction(() => window.bench);
        const address = new URL(source, url).href;
        await within(LIMIT, page.evaluate(args => window.bench.open(...args), [name, address, batch]));
        await within(WARM_LIMIT, page.evaluate(some => window.bench.embed(some), texts.slice(0, 16)));
        open.push({ run, page });
      } catch (error) {
        run.error = reason(error);
        await page.close();
      }
    }
    let ours;
    for (let i = 0; i < Number(repeats); i++) {
      for (const { run, page } of open) {
        if (run.error) continue;
        try {
          const before = rendererSeconds();
          const { seconds, vectors } = await within(LIMIT, page.evaluate(all => window.bench.embed(all), texts));
          run.seconds.push(rendererSeconds() - before);
          run.wallSeconds.push(seconds);
          ours ??= vectors;
          run.cosine ??= vectors.reduce((sum, vector, k) => sum + cosine(vector, ours[k]), 0) / vectors.length;
        } catch (error) {
          run.error = reason(error);
        }
      }
    }
    for (const { page } of open) await page.close();
  }
  await closeChromium();
  mkdirSync(file.replace(/[^/]*$/, './'), { recursive: true });
  writeFileSync(file, `${JSON.stringify(results, null, 1)}\n`);
  console.log('| model | engine | embeddings/s | plumb is faster by | mean cosine to plumb\'s |');
  console.log('|---|---|---|---|---|');
  for (const run of results.runs) {
    const rate = run.texts / median(run.seconds);
    const plumb = results.runs.find(({ model, engine }) => model === run.model && engine === 'plumb');
    console.log(`| ${run.model} | ${run.engine} | ${run.error ?? [rate.toFixed(1),
      `${(plumb.texts / median(plumb.seconds) / rate).toFixed(2)}x`, run.cosine.toFixed(4)].join(' | ')} |`);
  }
  console.log(`\nwritten to ${file}`);
}
