/**
 * `node tests/bench/masks.mjs [--native] [--passes N] [--vocabulary NAME]` after `make wasm`, and with --native after
 * `make build/bench/masks`: the times of the masks of real schemas.  Valid instances of the schemas that npm packages
 * ship (tests/vectors/grammar/suite-real.txt) are followed token by token.  Each pass compiles each schema again, so
 * that nothing is in a cache.  The time of a mask is the least of all passes, on the CPU.  The slowest ones are listed
 * below the table.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { plumb, shareOf } from './matcher.mjs';

const { values: { native, passes, vocabulary } } = parseArgs({ options: { native: { type: 'boolean', default: false },
  passes: { type: 'string', default: '5' }, vocabulary: { type: 'string', default: '' } } });
const SUITE = 'tests/vectors/grammar/suite-real.txt', N_SLOW = 3;
/** A flag of plumb_wasm_grammar_schema (wasm/grammar.c). */
const LENIENT = 1;
const VOCABULARIES = [
  ['SmolLM2', 'models/SmolLM2-135M-Instruct.Q4_1.gguf'], ['Qwen 2.5', 'models/ggml-vocab-qwen2.gguf'],
  ['Gemma 4', 'models/ggml-vocab-gemma-4.gguf'],
];

/** @typedef {{us: number, where: string}} Mask */

/** @param {string} file @returns {Mask[]} */
function nativeMasks(file) {
  const output = execFileSync('build/bench/masks', [file, SUITE, passes], { maxBuffer: 1 << 28 }).toString();
  const masks = [];
  let name = '';
  for (const line of output.split('\n')) {
    const schema = /^= \S+ \S+ (.*)/.exec(line), mask = /^(\S+) \d+ \d+ (.*)/.exec(line);
    if (schema) [, name] = schema;
    else if (mask) masks.push({ us: Number(mask[1]), where: `${name}: ${mask[2]}` });
  }
  return masks;
}

/** @returns {{name: string, schema: any, instances: string[]}[]} */
function readSuite() {
  const suite = [];
  let name = '';
  for (const line of readFileSync(SUITE, 'utf8').split('\n')) {
    const text = line.slice(2);
    if (line.startsWith('# ')) name = text;
    else if (line.startsWith('= ')) suite.push({ name, schema: JSON.parse(text), instances: [] });
    else if (line.startsWith('+ ')) suite.at(-1)?.instances.push(text);
  }
  return suite;
}

/** @param {string} file @returns {Promise<Mask[]>} */
async function masksInNode(file) {
  const engine = await plumb(file), masks = [];
  for (const { name, schema, instances } of readSuite()) {
    const texts = instances.map(text => ({ text, ids: engine.tokenize(text) })), first = masks.length;
    for (let pass = 0; pass < Number(passes); pass++) {
      let at = first;
      try {
        await engine.compile(schema, LENIENT);
      } catch {
        break;   // it is refused by name
      }
      for (const { text, ids } of texts) {
        await engine.begin();
        for (let i = 0; i <= ids.length; i++, at++) {
          const start = process.cpuUsage();
          engine.ownMask();
          const us = process.cpuUsage(start).user;
          if (pass === 0) masks.push({ us, where: `${name}: token ${i} of ${text.slice(0, 60)}` });
          else masks[at].us = Math.min(masks[at].us, us);
          if (i < ids.length) engine.accept(ids[i]);
        }
      }
    }
  }
  return masks;
}

writeSync(1, '| vocabulary | masks | µs: median | 99 % | 99.9 % | most |\n|---|---:|---:|---:|---:|---:|\n');
let slowest = '';
for (const [title, file] of VOCABULARIES) {
  if (!title.includes(vocabulary)) continue;
  const masks = native ? nativeMasks(file) : await masksInNode(file), times = masks.map(({ us }) => us);
  const shown = [shareOf(times), shareOf(times, 0.99), shareOf(times, 0.999), Math.max(...times)];
  writeSync(1, `| ${[title, times.length, ...shown.map(us => us.toFixed(us < 9.5 ? 1 : 0))].join(' | ')} |\n`);
  for (const { us, where } of masks.toSorted((a, b) => b.us - a.us).slice(0, N_SLOW)) {
    slowest += `${title}: ${us.toFixed(0)} µs, ${where}\n`;
  }
}
writeSync(1, `\n${slowest}`);
