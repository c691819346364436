/**
 * Compares plumb's package with its peers for a developer, in one Chromium, on the same model: the size of the
 * packages, the time a visitor waits, and how they handle the problems that people report in issues.
 *
 * Every measurement has its own browser profile.  `make bench-peers` installs what it needs.
 */
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { launchProfile } from '../hosts/chrome.mjs';
import { Plumb } from '../../web/node/index.js';
import { serve } from '../../web/site/serve.mjs';
import { reason, within } from './engines.mjs';
import { describe, slug } from './machine.mjs';
import { median } from './median.mjs';
import { make } from './models.mjs';
import { openProxy } from './proxy.mjs';
import { origin, table, writeTables } from './report.mjs';

process.chdir(fileURLToPath(new URL('../..', import.meta.url)));

const GGUF = '/models/SmolLM2-135M-Instruct.Q4_1.gguf';
/** The folder that tests/bench/to_onnx.py makes from the model. */
const ONNX = '/build/bench/onnx/SmolLM2-135M-Instruct';
/** In the order of the table.  model: the requested URL, weights: its largest file; rows: the only rows measured;
 * without: rows that are not measured. */
const PACKAGES = {
  plumb: { model: GGUF, weights: GGUF },
  'wllama-3': { model: GGUF, weights: GGUF },
  'wllama-2': { model: GGUF, weights: GGUF },
  'transformers.js q8': { model: ONNX, weights: `${ONNX}/onnx/model_quantized.onnx`, without: ['large'] },
  'transformers.js q4': {
    model: ONNX, weights: `${ONNX}/onnx/model_q4.onnx`, rows: ['first', 'again', 'decode', 'greedy'],
  },
  'web-llm': { rows: ['weight'] },   // without the module of its model and WebGPU it does nothing more
};
/** llama.cpp's answer to a chat; END: the token that ends a turn. */
const CHAT = JSON.parse(readFileSync('tests/vectors/llama/prompts.json', 'utf8')).prompts
    .find(({ name }) => name === 'chat'), END = 2;
/** Its text, computed on first use. @type {Promise<string> | undefined} */
let llamas;
const ISOLATED = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
const STRICT = { ...ISOLATED, 'Content-Security-Policy':
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:" };
const QUESTION = 'Why is the sky blue?', STORY = 'Tell a long story about a lighthouse keeper.';
const REPEATS = 3, DECODED = 64;
/** Time limit of one measurement in seconds. */
const TIMEOUT = 180;
/** Characters of an error message that fit in a table; the record has all. */
const SHOWN = 150;

const HELP = `usage: node tests/bench/peers.mjs [--only ROW,ROW] [--packages NAME,NAME] [--docs docs/peers.md]

Prints a Markdown table; --docs writes it between the two markers of that page, and the whole record to bench/results.
Packages: ${Object.keys(PACKAGES).join(', ')}.`;

const { values } = parseArgs({ options: {
  only: { type: 'string' }, packages: { type: 'string' }, docs: { type: 'string' }, help: { type: 'boolean' },
} });
if (values.help) {
  console.log(HELP);
  process.exit();
}
const inner = await serve({ root: '.' });

/** Opens a page with a package, with its own profile and its own proxy.
 * @template T @param {string} name @param {(visit: Awaited<ReturnType<typeof begin>>) => Promise<T>} use */
async function visit(name, use, headers = ISOLATED) {
  const one = await begin(name, headers);
  try {
    return await use(one);
  } finally {
    await one.context.close();
    await one.proxy.close();
  }
}

async function begin(name, headers) {
  const proxy = await openProxy(inner.url, headers), context = await launchProfile(), said = [];
  const page = await context.newPage();
  page.setDefaultTimeout(0);
  page.on('console', message => said.push(message.text()));
  const call = (method, ...args) => within(TIMEOUT,
    page.evaluate(([of, given]) => window.peers[of](...given), [method, args]));
  const go = async () => {
    const start = performance.timeOrigin + performance.now();
    await page.goto(new URL('tests/bench/peers.html', proxy.url).href);
    await page.waitForFunction(() => window.peers);
    await call('open', name);
    return start;
  };
  const { model, weights } = PACKAGES[name];
  /** The page with its model. */
  const ready = async threads => {
    await go();
    return call('load', model, threads);
  };
  /** Bytes sent of a file since a given answer; by default of the model's largest file. */
  const bytesSent = (from = 0, file = weights) => proxy.sent.slice(from)
    .reduce((sum, { path, bytes }) => sum + (path === file ? bytes : 0), 0);
  return { model, weights, proxy, context, page, said, call, go, ready, bytesSent };
}

/** Of the largest file. */
const fileSize = ({ weights }) => statSync(`.${weights}`).size;
const MB = bytes => `${(bytes / 1e6).toFixed(1)} MB`;
const seconds = all => `${median(all.map(({ wait }) => wait)).toFixed(1)} s`;
/** The error message, or the result. */
const attempt = work => work().then(value => ({ value }), error => ({ error: reason(error) }));
const quoted = text => `"${text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text}"`;
const failed = ({ error }) => `fails: ${quoted(error)}`;

/** The rows of the table: a name, the measurement of one package as {cell: text of the table, ...the record}, and for
 * measurements that all packages repeat REPEATS times in rotation, a function from all records to the text. */
const ROWS = {
  weight: ['What a page fetches before the model', name => visit(name, async ({ proxy, go, call, model }) => {
    await go();
    if (model) await call('load', model);
    const files = proxy.sent.filter(({ path, bytes }) => bytes && /^\/build\/package\/|\/node_modules\//.test(path))
      .map(({ path, bytes }) => ({ path, bytes }));
    const once = [...new Map(files.map(file => [file.path, file])).values()];
    const zipped = once.reduce((sum, { path }) => sum + gzipSync(readFileSync(`.${path}`)).length, 0);
    const total = once.reduce((sum, { bytes }) => sum + bytes, 0);
    return { cell: `${MB(total)}, ${MB(zipped)} by gzip, ${once.length} file${once.length > 1 ? 's' : ''}`, files: once,
      zipped };
  })],
  first: ['First visit: time to the first token of an answer (the file is on this machine)',
    name => visit(name, waited), all => seconds(all)],
  again: ['Reload: time to the first token of an answer', name => visit(name, async one => {
    await waited(one);
    const from = one.proxy.sent.length, { wait } = await waited(one);
    return { wait, sent: one.bytesSent(from) };
  }), all => `${seconds(all)}, ${MB(all[0].sent)} of the model sent`],
  decode: [`Tokens per second, ${DECODED} in a greedy answer`,
    async name => [await decoded(name, 1), await decoded(name, 2)],
    all => ['1 thread', '2 threads'].map((threads, i) =>
      `${median(all.map(rates => rates[i])).toFixed(0)} with ${threads}`).join(', ')],
  greedy: ['A greedy answer compared with llama.cpp’s with weights in F32', async name => {
    const { messages: [{ content }], f32: { ids } } = CHAT, told = await (llamas ??= llamaText(ids));
    const { text } = await visit(name, async ({ ready, call }) => {
      await ready();
      return call('answer', content, ids.length, { temperature: 0 });
    });
    const said = text.replace('<|im_end|>', '').trim();
    let same = 0;
    while (same < told.length && said[same] === told[same]) same++;
    return { cell: said === told ? 'the same' : `diverges after ${same} of ${told.length} characters`, said, told };
  }],
  cut: ['The connection breaks at 60 %, once', name => visit(name, async one => {
    await one.go();
    one.proxy.breakAt(one.weights, Math.floor(0.6 * fileSize(one)), 'close');
    const first = await attempt(() => one.call('load', one.model)), sent = one.bytesSent() / fileSize(one);
    if (!first.error) return { cell: `loads; ${sent.toFixed(2)} times the file was sent`, sent };
    const from = one.proxy.sent.length;
    const second = await attempt(() => one.call('load', one.model)), more = one.bytesSent(from) / fileSize(one);
    const then = second.error ? failed(second) : `sent ${more.toFixed(2)} times the file`;
    return { cell: `${failed(first)}; the next load ${then}`, first, second, sent, more };
  })],
  reload: ['The page is reloaded at 60 % of the download', name => visit(name, async one => {
    await one.go();
    one.proxy.breakAt(one.weights, Math.floor(0.6 * fileSize(one)), 'stall');
    void one.call('load', one.model).catch(() => {});
    const most = async () => {
      while (one.bytesSent() < 0.59 * fileSize(one)) await one.page.waitForTimeout(100);
    };
    await within(TIMEOUT, most());
    await one.page.waitForTimeout(1000);
    const from = one.proxy.sent.length;
    await one.go();
    const second = await attempt(() => one.call('load', one.model)), more = one.bytesSent(from) / fileSize(one);
    return { cell: second.error ? failed(second) : `the reload sent ${more.toFixed(2)} times the file`, second, more };
  })],
  large: ['A model of 4.4 GB, more than a 32-bit module can address', name => visit(name, async one => {
    await one.go();
    const { file } = make('1.1B-F32');
    const start = performance.now();
    const first = await attempt(async () => {
      await one.call('load', `/${file}`);
      return one.call('answer', QUESTION, 2);
    });
    const after = (performance.now() - start) / 1000;
    const sent = one.bytesSent(0, `/${file}`);
    const second = await attempt(async () => {
      await one.call('open', name);
      await one.call('load', one.model);
    });
    const then = second.error ? `then cannot load another one: ${quoted(second.error)}` : 'then loads another one';
    return { cell: `${first.error ? failed(first) : 'answers'} after ${after.toFixed(1)} s and ${MB(sent)}; the page `
      + then, first, second, after, sent };
  })],
  threads: ['A server without COOP and COEP', name => visit(name, async ({ go, call, model, said }) => {
    await go();
    const { value, error } = await attempt(() => call('load', model));
    if (error) return { cell: failed({ error }) };
    const told = said.filter(text => /thread|isolat|SharedArrayBuffer/i.test(text));
    return { cell: `${value.threads} thread; ${value.note ? quoted(value.note)
      : told.length ? `in the console: ${quoted(told[0])}` : 'no reason is given'}`, ...value, told };
  }, {})],
  csp: ["A strict Content-Security-Policy (scripts and workers of 'self', wasm-unsafe-eval)", name =>
    visit(name, async ({ ready, call }) => {
      const { error } = await attempt(async () => {
        await ready();
        await call('answer', QUESTION, 4);
      });
      const violations = await call('violations');
      return { cell: !error && violations.length === 0 ? 'answers'
        : `${error ? failed({ error }) : 'answers'}; refused: ${violations.join(', ')}`, error, violations };
    }, STRICT)],
  topP: ['Three answers with `top_p` of nearly 0 and temperature 2', name => visit(name, async ({ ready, call }) => {
    await ready();
    const texts = [];
    for (const seed of [1, 2, 3]) {
      texts.push((await call('answer', QUESTION, 12, { temperature: 2, top_p: 1e-6, top_k: 0, min_p: 0, seed })).text);
    }
    return { cell: new Set(texts).size === 1 ? 'the same: it is used' : 'differ: it is ignored', texts };
  })],
  unknown: ['An option that does not exist (`top_pp`)', name => visit(name, async ({ ready, call }) => {
    await ready();
    const { error } = await attempt(() => call('answer', QUESTION, 4, { top_pp: 0.5 }));
    return { cell: error ? `refused: ${quoted(error)}` : 'ignored', error };
  })],
  byHand: ['Access to tokens and logits from one’s own code', name => visit(name, async ({ ready, call }) => {
    await ready();
    const names = await call('byHand');
    return { cell: names.length ? names.map(one => `\`${one}\``).join(', ') : 'no', names };
  })],
};

/** Seconds from the address to the first token of an answer. @param {Awaited<ReturnType<typeof begin>>} one */
async function waited({ go, call, model }) {
  const start = await go();
  await call('load', model);
  return { wait: ((await call('answer', QUESTION, 1)).first - start) / 1000 };
}

/** The first turn in them. @param {number[]} ids */
async function llamaText(ids) {
  const model = await Plumb.load(`.${GGUF}`);
  const text = await model.detokenize(ids.slice(0, ids.indexOf(END)));
  await model.close();
  return text.trim();
}

/** Tokens per second. @param {string} name @param {number} threads */
const decoded = (name, threads) => visit(name, async ({ ready, call }) => {
  const runs = (await ready(threads)).threads;
  if (runs !== threads) throw new Error(`asked for ${threads} threads, runs with ${runs}`);
  await call('answer', QUESTION, 8, { temperature: 0 });   // warm
  const { first, last, pieces } = await call('answer', STORY, DECODED, { temperature: 0 });
  return (pieces - 1) / (last - first) * 1000;
});

const names = values.packages?.split(',') ?? Object.keys(PACKAGES);
const rows = values.only?.split(',') ?? Object.keys(ROWS);
const record = {}, started = Date.now();
try {
  for (const [i, row] of rows.entries()) {
    const [title, measure, cellOf] = ROWS[row];
    const measured = names.filter(name => PACKAGES[name].rows?.includes(row) ?? !PACKAGES[name].without?.includes(row));
    const runs = Object.fromEntries(measured.map(name => [name, []]));
    for (let repeat = 0; repeat < (cellOf ? REPEATS : 1); repeat++) {
      for (const name of measured) runs[name].push(await attempt(() => measure(name)));
    }
    record[row] = { title, cells: {}, runs };
    for (const [name, all] of Object.entries(runs)) {
      const bad = all.find(({ error }) => error), values = all.map(({ value }) => value);
      record[row].cells[name] = bad ? failed(bad) : cellOf?.(values) ?? values[0].cell;
      console.error(`${row} ${name}: ${record[row].cells[name]}`);
    }
    const left = (Date.now() - started) / 60000 / (i + 1) * (rows.length - i - 1);
    console.error(`${i + 1} of ${rows.length} rows, about ${left.toFixed(0)} min left`);
  }
} finally {
  await inner.close();
}

const about = { ...describe(), command: ['node tests/bench/peers.mjs', ...process.argv.slice(2)].join(' '), record };
const head = names.map(name => {
  const [of, form] = name.split(' ');
  return `${of.replace(/-\d$/, '')} ${about.versions[of]}${form ? `, ${form}` : ''}`;
});
const tables = `${origin(about)}\n\n${table(['', ...head], Object.values(record).map(({ title, cells }) =>
  [title, ...names.map(name => (cells[name] ?? '').replaceAll('|', '\\|'))]), '---')}`;
if (values.docs) {
  writeTables(values.docs, 'tests/bench/peers.mjs', tables);
  const file = `bench/results/${about.date}-${slug(about.machine)}-peers.json`;
  writeFileSync(file, `${JSON.stringify(about, null, 1)}\n`);
  console.error(`${values.docs} and ${file} are of this run`);
} else {
  console.log(tables);
}
