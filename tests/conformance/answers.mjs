/**
 * `node tests/conformance/answers.mjs [--schemas N] [--seeds N] [--record FILE]` after
 * `make wasm native`: SmolLM2 answers N
 * (200) schemas at temperature 1.5 with N (20) seeds each.  Nothing but the grammar limits the choice of tokens: top-k,
 * top-p and min-p are off.  answers-schemas.mjs has the schemas; one that plumb refuses is counted, and its kind
 * makes another.
 *
 * A whole answer must be JSON and valid by ajv.  An answer that the token limit cuts is counted apart, and the matcher
 * of the native command line, which follows its text byte by byte, must accept it.  Answers go to a file in
 * build/answers as they come, one line for each schema.  A run that was interrupted goes on after the last of them.
 * When all are there, --record writes the counts (tests/conformance/answers.json has a run).  The status is 1 if an
 * answer is not valid.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import Ajv07 from 'ajv';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { Plumb } from '../../web/node/index.js';
import { KINDS, random, real } from './answers-schemas.mjs';

const { values: given } = parseArgs({ options: { schemas: { type: 'string', default: '200' },
  seeds: { type: 'string', default: '20' }, record: { type: 'string' } } });
const nSchema = Number(given.schemas), nSeed = Number(given.seeds);
const file = 'models/SmolLM2-135M-Instruct.Q4_1.gguf';
const options = { temperature: 1.5, topK: 0, topP: 1, minP: 0, maxTokens: 64 };
const WHITESPACE = ['compact', 'pretty', 'free'];

// ---- the judge --------------------------------------------------------------------------------------------------

/* ajv divides doubles: without a precision, 0.07 is no multiple of 0.01 for it. */
const judges = [Ajv, Ajv07].map(Judge =>
  addFormats(new Judge({ strict: false, logger: false, multipleOfPrecision: 9 })));
const judgeOf = schema => judges[schema.$schema?.includes('draft-07') ? 1 : 0].compile(schema);
/** @returns {string | undefined} what is wrong with a whole answer */
function faultOf(isValid, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return error.message;
  }
  return isValid(value) ? undefined : judges[0].errorsText(isValid.errors);
}

// ---- the schemas ------------------------------------------------------------------------------------------------

/** `plumb grammar ACTION` with a schema. */
const grammar = (action, schema, { whitespace, order }, ...more) =>
  spawnSync('build/native/plumb', ['grammar', action, '--json-schema', JSON.stringify(schema), '--whitespace',
    whitespace, ...(order === 'any' ? ['--any-order'] : []), ...more.slice(0, 1)],
  { input: more[1], encoding: 'utf8' });
const accepts = (schema, schemaOptions, text) =>
  /^(matches|incomplete)\n/.test(grammar('match', schema, schemaOptions, '-', text).stdout);
/** A tenth of the schemas are those of other programs, if there are so many.  The kinds take turns.
 * @returns {{list: {name: string, schema: any, schemaOptions: any}[], refused: {name: string, message: string}[]}} */
function choose() {
  const list = [], refused = [], names = Object.keys(KINDS), foreign = real();
  for (let attempt = 0; list.length < nSchema; attempt++) {
    const kind = names[list.length % names.length], next = list.length % 10 === 9 && foreign.shift();
    const { name, schema } = next || { name: kind, schema: KINDS[kind](random(attempt)) };
    const schemaOptions = { whitespace: WHITESPACE[list.length % 3], order: list.length % 4 === 3 ? 'any' : 'schema' };
    const { status, stderr } = grammar('check', schema, schemaOptions);
    if (status === 0) list.push({ name, schema, schemaOptions });
    else refused.push({ name, message: stderr.trim() });
  }
  return { list, refused };
}
const { list, refused } = choose();
const sha256 = data => createHash('sha256').update(data).digest('hex');
const key = sha256(JSON.stringify([list, nSeed, options])).slice(0, 12);

// ---- the run ----------------------------------------------------------------------------------------------------

mkdirSync('build/answers', { recursive: true });
const lines = `build/answers/${key}.jsonl`;
const done = (existsSync(lines) ? readFileSync(lines, 'utf8') : '').split('\n').filter(Boolean)
  .map(line => JSON.parse(line));
const start = performance.now(), nDone = done.length;
const model = await Plumb.load(file, { threads: 1 });
for (const { name, schema, schemaOptions } of list.slice(nDone)) {
  const begin = performance.now(), isValid = judgeOf(schema), answers = [];
  const settings = { ...options, schema, schemaOptions };
  const content = `Write an example of JSON that fits this schema: ${JSON.stringify(schema).slice(0, 400)}`;
  for (let seed = 0; seed < nSeed; seed++) {
    let text = '';
    for await (const piece of model.generate([{ role: 'user', content }], { ...settings, seed })) {
      text += piece;
    }
    const { finishReason } = model.lastStats;
    const fault = finishReason === 'stop' ? faultOf(isValid, text)
      : finishReason !== 'length' ? `it ended by ${finishReason}`
        : accepts(schema, schemaOptions, text) ? undefined : 'its grammar does not accept it';
    answers.push({ text, finishReason, ...(fault && { fault }) });
    if (fault) {
      console.log(`schema ${done.length} (${name}), seed ${seed}: ${fault}\n  ${JSON.stringify(schema)}\n  ${text}`);
    }
  }
  done.push({ name, schema, schemaOptions, answers, seconds: Math.round((performance.now() - begin) / 10) / 100 });
  appendFileSync(lines, `${JSON.stringify(done.at(-1))}\n`);
  const left = (performance.now() - start) / (done.length - nDone) * (nSchema - done.length) / 60000;
  console.log(`${done.length} of ${nSchema} schemas, ${left.toFixed(0)} min left: ${name}, ${
    answers.filter(one => one.finishReason === 'stop').length} of ${nSeed} are whole`);
}
await model.close();

// ---- the counts -------------------------------------------------------------------------------------------------

const counted = all => {
  const answers = all.flatMap(one => one.answers), whole = answers.filter(one => one.finishReason === 'stop');
  return { schemas: all.length, answers: answers.length,
    whole_and_valid: whole.filter(one => !one.fault).length, whole_and_not_valid: whole.filter(one => one.fault).length,
    cut_and_accepted: answers.filter(one => one.finishReason === 'length' && !one.fault).length,
    other: answers.filter(one => one.finishReason !== 'stop' && one.fault).length,
    different: new Set(answers.map(one => one.text)).size };
};
const kindOf = name => name.replace(/ .*\.json$/, '');
const versions = Object.fromEntries(['ajv', 'ajv-formats', 'webpack'].map(name =>
  [name, createRequire(import.meta.url)(`${name}/package.json`).version]));
const counts = counted(done);
const record = {
  command: 'node tests/conformance/answers.mjs', date: new Date().toISOString().slice(0, 10),
  versions: { plumb: execFileSync('git', ['describe', '--always', '--dirty'], { encoding: 'utf8' }).trim(),
    node: process.version, ...versions },
  model: { file, sha256: sha256(readFileSync(file)) }, options, seeds: nSeed,
  seconds: Math.round(done.reduce((sum, one) => sum + one.seconds, 0)),
  answers_sha256: sha256(JSON.stringify(done.map(one => one.answers.map(({ text }) => text)))),
  counts,
  by_kind: Object.fromEntries([...new Set(done.map(one => kindOf(one.name)))].map(kind =>
    [kind, counted(done.filter(one => kindOf(one.name) === kind))])),
  refused_schemas: refused,
};
console.log(JSON.stringify(counts, null, 1));
if (given.record) writeFileSync(given.record, `${JSON.stringify(record, null, 1)}\n`);
process.exitCode = counts.whole_and_not_valid + counts.other > 0 ? 1 : 0;
