/**
 * `node tests/bench/grammar.mjs [--repeats N]` after `make wasm`: how long it takes to find the tokens that a JSON
 * Schema allows next, in plumb and in @mlc-ai/web-xgrammar, in this Node.  The vocabularies have 49, 152 and 262
 * thousand tokens.  Documents that fit their schema are followed token by token, by one engine and then by the other.
 *
 * `first` is the first document of a schema after it was compiled, when nothing is in a cache; `later` are three more;
 * `all` are the masks of these four documents.
 * At each token both must allow the token that follows, and the numbers of tokens that they allow are compared.  They
 * differ where XGrammar allows an exponent after any digits of a number (plumb writes numbers as JavaScript does), and
 * bytes that are never part of UTF-8 (0xC0, 0xC1, 0xF5 to 0xFF).
 */
import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import { plumb, shareOf } from './matcher.mjs';

/* The package is a script for bundlers: it expects what CommonJS has, and leaves its exports on globalThis. */
Object.assign(globalThis, { require: createRequire(import.meta.url), __filename: import.meta.filename,
  __dirname: import.meta.dirname });
await import('@mlc-ai/web-xgrammar');
const { xgrammar } = /** @type {any} */ (globalThis);

const { values: { repeats } } = parseArgs({ options: { repeats: { type: 'string', default: '5' } } });
const VOCABULARIES = [
  ['SmolLM2', 'models/SmolLM2-135M-Instruct.Q4_1.gguf'], ['Qwen 2.5', 'models/ggml-vocab-qwen2.gguf'],
  ['Gemma 4', 'models/ggml-vocab-gemma-4.gguf'],
];
const object = properties =>
  ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });
const text = { type: 'string' }, whole = { type: 'integer' }, number = { type: 'number' };
const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) =>
  [`property_${i}`, [text, whole, number, { type: 'boolean' }, { type: 'array', items: text }][i % 5]]));
/** A name, a schema, and a value that fits it. */
const CASES = [
  ['person', object({ name: text, age: whole, email: text, tags: { type: 'array', items: text } }),
    { name: 'Grace Hopper', age: 85, email: 'grace@example.org', tags: ['navy', 'compilers', 'naïve café', '数学'] }],
  ['enum', object({ kind: { enum: ['invoice', 'receipt', 'reminder', 'offer'] }, paid: { type: 'boolean' },
    amount: number, currency: { enum: ['EUR', 'USD', 'JPY'] } }),
  { kind: 'reminder', paid: false, amount: 1249.95, currency: 'EUR' }],
  ['nested', { $defs: { node: object({ label: text, children: { type: 'array', items: { $ref: '#/$defs/node' } } }) },
    $ref: '#/$defs/node' },
  { label: 'root', children: [{ label: 'left leaf', children: [] }, { label: 'right', children: [
    { label: 'a longer text, with commas and "quotes" in it', children: [] }] }] }],
  ['choice', { type: 'array', items: { anyOf: [object({ tool: { const: 'weather' }, city: text }),
    object({ tool: { const: 'search' }, query: text, limit: whole })] } },
  [{ tool: 'weather', city: 'Paris' }, { tool: 'search', query: 'how do grammars mask tokens', limit: 10 }]],
  ['100 properties', object(many), Object.fromEntries(Object.keys(many).map((key, i) =>
    [key, [`text ${i}`, i * 31, i / 8, i % 2 === 0, [`one ${i}`, 'two']][i % 5]]))],
];
// ---- the engines: open(file) once, then compile(schema), begin(), mask(), accept(id) --------------------------------

/** The text by which GPT-2's tokenizers write bytes, which is how XGrammar takes vocabularies of any bytes. */
const letters = (() => {
  const shown = b => b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(shown(b) ? b : next++));
})();

/** @param {Awaited<ReturnType<typeof plumb>>} vocabulary */
async function xgrammarOf({ pieces, isEnd, n }) {
  const encoded = pieces().map(bytes => Array.from(bytes, b => letters[b]).join(''));
  const stops = Array.from({ length: n }, (_, id) => id).filter(isEnd);
  const info = await xgrammar.TokenizerInfo.createTokenizerInfo(encoded, 'byte_level', false, n, stops);
  let compiler, compiled, matcher;
  return {
    name: 'web-xgrammar',
    async compile(schema) {
      matcher?.dispose();
      compiled?.dispose();
      compiler?.dispose();
      matcher = compiled = null;
      compiler = await xgrammar.GrammarCompiler.createGrammarCompiler(info, false);
      compiled = await compiler.compileJSONSchema(JSON.stringify(schema), false, -1, [',', ':'], true);
    },
    async begin() {
      matcher?.dispose();
      matcher = await xgrammar.GrammarMatcher.createGrammarMatcher(compiled);
    },
    mask: () => matcher.getNextTokenBitmask(),
    accept: id => matcher.acceptToken(id),
  };
}

// ---- the race -------------------------------------------------------------------------------------------------------

const isSet = (mask, id) => Boolean(mask[id >> 5] >> (id & 31) & 1);
const count = mask => mask.reduce((sum, bits) => {
  for (; bits; bits &= bits - 1) sum++;
  return sum;
}, 0);

/** Follows the tokens of a document; returns the milliseconds of each mask and the number of tokens it allows. */
async function follow(engine, ids, name) {
  const times = [], counts = [];
  await engine.begin();
  for (const id of ids) {
    const start = performance.now();
    const mask = await engine.mask();
    times.push(performance.now() - start);
    counts.push(count(mask));
    if (!isSet(mask, id) || !engine.accept(id)) {
      throw new Error(`${engine.name} refuses token ${id}, number ${times.length}, of ${name}`);
    }
  }
  return { times, counts };
}

const us = ms => (1000 * ms).toFixed(ms < 0.0095 ? 1 : 0);
writeSync(1, '| vocabulary | engine | compile, ms: 100 properties, others | first mask of a schema, µs: median, 99 % | '
  + 'later: median, 99 % | all: median, 99 % | masks that allow other tokens |\n|---|---|---:|---:|---:|---:|---:|\n');
for (const [title, file] of VOCABULARIES) {
  const ours = await plumb(file), engines = [ours, await xgrammarOf(ours)];
  const results = engines.map(() => ({ first: [], later: [], compile: [], large: [] }));
  let nDifferent = 0, nMask = 0;
  for (let i = 0; i < Number(repeats); i++) {
    for (const [name, schema, value] of CASES) {
      const ids = ours.tokenize(JSON.stringify(value));
      const counts = [];
      for (const [k, engine] of engines.entries()) {
        const start = performance.now();
        await engine.compile(schema);
        results[k][name === '100 properties' ? 'large' : 'compile'].push(performance.now() - start);
        const one = await follow(engine, ids, name);
        results[k].first.push(...one.times);
        counts.push(one.counts);
        for (let j = 0; j < 3; j++) results[k].later.push(...(await follow(engine, ids, name)).times);
      }
      nDifferent += counts[0].filter((n, at) => n !== counts[1][at]).length;
      nMask += counts[0].length;
    }
  }
  for (const [k, { name }] of engines.entries()) {
    const { first, later, compile, large } = results[k];
    const cells = [`${title}, ${ours.n} tokens`, name, `${shareOf(large).toFixed(1)}, ${shareOf(compile).toFixed(1)}`,
      ...[first, later, [...first, ...later]].map(times => `${us(shareOf(times))}, ${us(shareOf(times, 0.99))}`),
      k === 0 ? `${nDifferent} of ${nMask}` : ''];
    writeSync(1, `| ${cells.join(' | ')} |\n`);
  }
}
