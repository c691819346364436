/* tokenize, run, score and bench with the default model.  Ground truth: llama.cpp's ids, greedy answers and logits
 * (tests/vectors/llama), and the draws of a second sampler from its logits (tests/vectors/cli/make.py). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { withTemplate } from '../node/helpers.mjs';
import { ids, isNative, isNode, nativeTest, output, plumb, smol, start, temporary, test } from './plumb.mjs';

const { prompts } = JSON.parse(readFileSync('tests/vectors/llama/prompts.json', 'utf8'));
const { draws } = JSON.parse(readFileSync('tests/vectors/cli/facts.json', 'utf8'));
const capital = 'The capital of France is', capitalIds = prompts.find(prompt => prompt.name === 'capital').ids;
const end = 2;   // <|im_end|>
/** For what does not depend on the model: options that reach their place. */
const small = 'tests/vectors/synth/f32.gguf';

/** The tokens of a greedy answer of llama.cpp, its end included. */
function greedy(name) {
  const { f32 } = prompts.find(prompt => prompt.name === name);
  return f32.first_end === null ? f32.ids : f32.ids.slice(0, f32.first_end + 1);
}

/* ---- tokenize ---- */

test('tokenize prints llama.cpp\'s ids', async () => {
  for (const { text_file, parse_special, ids: expected } of prompts) {
    const text = readFileSync(`tests/vectors/llama/${text_file}`);
    const args = ['tokenize', smol, '-', '--ids', ...parse_special ? ['--parse-special'] : []];
    assert.deepEqual(ids(await output(args, text)), expected, text_file);
  }
});

test('tokenize prints ids and escaped pieces', async () => {
  assert.equal(await output(['tokenize', smol, capital]),
    '   504  "The"\n  3575  " capital"\n   282  " of"\n  4649  " France"\n   314  " is"\n');
  const lines = (await output(['tokenize', smol, '-'], 'a\n"\\\t\x00\u{1f389}')).split('\n');
  assert.equal(lines.map(line => line.slice(8)).join('').replaceAll('""', ''),
    String.raw`"a\n\"\\\t\x00\xf0\x9f\x8e\x89"`);
});

test('tokenize --json prints JSON', async () => {
  const text = 'a\n"\\\t\u{1f389}', listed = ids(await output(['tokenize', smol, '-', '--ids'], text));
  const tokens = JSON.parse(await output(['tokenize', smol, '-', '--json'], text));
  assert.deepEqual(tokens.map(({ id }) => id), listed);
  assert.equal(tokens[0].piece, 'a');
  assert.ok(tokens.some(({ piece }) => piece.includes('\ufffd')), 'a part of a character');
  assert.deepEqual(JSON.parse(await output(['tokenize', smol, '-', '--ids', '--json'], text)), listed);
  assert.deepEqual(JSON.parse(await output(['tokenize', smol, '', '--json'])), []);
});

test('tokenize: special tokens are parsed on request, and BOS is added if the file says so', async () => {
  assert.deepEqual(ids(await output(['tokenize', smol, '<|im_end|>', '--parse-special', '--ids'])), [end]);
  assert.ok(!ids(await output(['tokenize', smol, '<|im_end|>', '--ids'])).includes(end));
  const spm = 'models/ggml-vocab-llama-spm.gguf';   // llama-tokenize: 1 22172, without BOS 22172
  assert.deepEqual(ids(await output(['tokenize', spm, 'hello', '--ids'])), [1, 22172]);
  assert.deepEqual(ids(await output(['tokenize', spm, 'hello', '--ids', '--no-special'])), [22172]);
});

test('tokenize of an empty text prints nothing', async () => {
  assert.equal(await output(['tokenize', smol, '']), '');
  assert.equal(await output(['tokenize', smol, '', '--ids']), '\n');
});

/* ---- run ---- */

const stats = new RegExp('^load ([\\d.]+) s, prefill (\\d+) tokens at [\\d.]+ tokens/s, '
  + 'decode (\\d+) tokens at [\\d.]+ tokens/s(?:, \\d+ of \\d+ drafted tokens accepted)?(?:, seed \\d+)?\n$');

test('run: the greedy continuation of a text equals llama.cpp\'s', async () => {
  const expected = greedy('capital'), begun = performance.now();
  const { code, out, err } = await plumb(['run', smol, '-p', capital, '--raw', '--temp', '0', '-n', '64', '--ids']);
  assert.equal(code, 0, err);
  assert.deepEqual(ids(out), expected);
  assert.match(err, stats);
  const [, load, ...counts] = err.match(stats);
  assert.deepEqual(counts, [`${capitalIds.length}`, `${expected.length - 1}`]);
  assert.ok(Number(load) <= (performance.now() - begun) / 1000 + 0.005, `${load} s of all that it took`);
});

test('run: the greedy answer in a chat equals llama.cpp\'s', async () => {
  const args = ['run', smol, '-p', 'What is gravity? Answer in two sentences.', '--temp', '0', '-n', '64'];
  assert.deepEqual(ids(await output([...args, '--ids', '-n', '8'])), greedy('chat').slice(0, 8));
  /* The text of llama.cpp's ids up to the end-of-turn token, which has no text. */
  assert.equal(await output(args), 'Gravity is a fundamental concept in physics that describes the force of gravity, '
    + 'which is a result of the curvature of spacetime caused by the presence of mass.\n');
});

test('run: standard input gives the prompt, with or without a final newline', async () => {
  const args = ['run', smol, '--raw', '--temp', '0', '-n', '4', '--ids'];
  const expected = await output([...args, '-p', capital]);
  assert.equal(await output([...args, '-p', '-'], `${capital}\n`), expected);
  assert.equal(await output([...args, '-p', '-'], capital), expected);
  assert.notEqual(await output([...args, '-p', '-'], `${capital}\n\n`), expected);
});

test('run: --reference and --scalar give the same tokens as the fast pass', async () => {
  for (const pass of [['--reference'], ['--scalar'], ['--batch', '1'], ['--batch=3']]) {
    const out = await output(['run', smol, '-p', capital, '--raw', '--temp=0', '-n', '6', '--ids', ...pass]);
    assert.deepEqual(ids(out), greedy('capital').slice(0, 6), pass.join(' '));
  }
});

test('run: a seed draws the same token as an independent sampler on llama.cpp\'s logits', async () => {
  const flags = { temperature: '--temp', top_k: '--top-k', top_p: '--top-p', min_p: '--min-p' };
  assert.ok(new Set(draws.map(draw => draw.id)).size >= 5);
  // The sampler is the same program on every host.
  for (const { options, seed, id } of draws.filter((_, i) => isNative || i % 3 === 0)) {
    const set = ['--seed', seed, ...Object.entries(options).flatMap(([name, value]) => [flags[name], String(value)])];
    const out = await output(['run', smol, '-p', capital, '--raw', '--reference', '-n', '1', '--ids', ...set]);
    assert.deepEqual(ids(out), [id], set.join(' '));
  }
});

test('run: words after the model are the prompt, like -p; a single - means standard input', async () => {
  const args = ['--raw', '--temp', '0', '-n', '4', '--ids'];
  const expected = await output(['run', small, '-p', capital, ...args]);
  assert.equal(await output(['run', small, ...capital.split(' '), ...args]), expected);
  assert.equal(await output(['run', small, capital, ...args]), expected);
  assert.equal(await output(['run', ...args, small, '--', ...capital.split(' ')]), expected);
  assert.equal(await output(['run', small, '-', ...args], capital), expected);
  const dash = await output(['run', small, '-p', 'one - two', ...args]);
  assert.equal(await output(['run', small, 'one', '-', 'two', ...args]), dash);
  const long = Array(200).fill('a');   // more than the largest number of files of a command
  const whole = await output(['run', small, '-p', long.join(' '), ...args]);
  assert.equal(await output(['run', small, ...long, ...args]), whole);
});

test('run: leading words that end in .gguf are further files of the model', async () => {
  const bytes = readFileSync(smol), half = 50000000;
  const parts = [temporary('one.gguf', bytes.subarray(0, half)), temporary('two.gguf', bytes.subarray(half))];
  const args = ['--raw', '--temp', '0', '-n', '2', '--ids'];
  assert.equal(await output(['run', ...parts, 'The', 'file', 'x.gguf', ...args]),
    await output(['run', smol, '-p', 'The file x.gguf', ...args]));
});

test('run: an answer cut by the default limit says so; an answer cut by -n does not', async () => {
  const args = ['run', 'tests/vectors/synth/f32.gguf', '-p', 'Once', '--raw', '--temp', '0', '--ids'];
  const { code, out, err } = await plumb(args);
  assert.deepEqual([code, ids(out).length], [0, 256], err);
  assert.match(err, /^plumb: stopped after 256 tokens, the default limit; use -n to raise it\nload [^\n]+\n$/);
  const asked = await plumb([...args, '-n', '256']);
  assert.equal(asked.out, out);
  assert.match(asked.err, /^load [^\n]+\n$/);
  const short = await plumb([...args, '--ctx', '20']);
  assert.match(short.err, /^plumb: the context of 20 tokens is full; use --ctx to enlarge it\nload [^\n]+\n$/);
});

test('run: without --seed each run prints its own seed, and that seed reproduces the text', async () => {
  /* Nearly every token of the vocabulary is as likely as the others, so two texts differ. */
  const args = ['run', small, '-p', 'Write about the sea.', '--raw', '-n', '12', '--temp', '8', '--top-k', '0',
    '--top-p', '1', '--min-p', '0'];
  const runs = await Promise.all([0, 1].map(() => plumb(args)));
  const seeds = runs.map(({ err }) => /, seed (\d+)\n$/.exec(err)?.[1] ?? assert.fail(err));
  assert.notEqual(seeds[0], seeds[1]);
  assert.notEqual(runs[0].out, runs[1].out);
  assert.equal(await output([...args, '--seed', seeds[0]]), runs[0].out);
  assert.match((await plumb([...args, '--seed', '7'])).err, /, seed 7\n$/);
});

test('run: the same seed gives the same text, another seed gives another text', async () => {
  const args = ['run', small, '-p', 'Write about the sea.', '--raw', '-n', '6', '--temp', '1.5'];
  const zero = await output([...args, '--seed', '0']);
  assert.equal(await output([...args, '--seed', '0']), zero);
  assert.notEqual(await output([...args, '--seed', '1']), zero);
});

test('run: every sampling option reaches the sampler', async () => {
  const of = model => ['run', model, '-p', capital, '--raw', '-n', '4', '--ids', '--temp', '5', '--top-k', '0',
    '--top-p', '1', '--min-p', '0', '--seed', '5'];
  const wild = await output(of(small)), expected = await output([...of(small), '--temp', '0']);
  assert.notEqual(wild, expected);
  /* Each of these leaves one candidate. */
  for (const set of [['--temp', '1e-9'], ['--top-k', '1'], ['--top-p', '0'], ['--min-p', '1']]) {
    assert.equal(await output([...of(small), ...set]), expected, set.join(' '));
  }
  assert.notEqual(await output([...of(small), '--typical', '0.1']), wild);
  /* Greedily the model continues counting; a penalty larger than any difference of logits forbids repeated tokens. */
  const count = '1 2 1 2', counted = ids(await output(['tokenize', smol, count, '--ids']));
  const next = async (...set) =>
    ids(await output([...of(smol), '-p', count, '--temp', '0', '-n', '1', ...set]))[0];
  assert.ok(counted.includes(await next()));
  for (const set of [['--repeat-penalty', '1000'], ['--presence-penalty', '1000'], ['--frequency-penalty', '1000']]) {
    assert.ok(!counted.includes(await next(...set)), set.join(' '));
    assert.ok(counted.includes(await next(...set, '--repeat-last-n', '0')), `${set.join(' ')}, looking at no token`);
  }
});

test('run: a prompt longer than the context is an error; a full context ends the answer', async () => {
  const args = ['run', smol, '-p', capital, '--raw', '--temp', '0', '-n', '64', '--ids'];
  const long = await plumb([...args, '--ctx', '4']);
  assert.deepEqual([long.code, long.out], [1, '']);
  assert.match(long.err,
    /^plumb: prompt: PLUMB_ERROR_CONTEXT: [^\n]*\b5\b[^\n]*\b4\b[^\n]*; use --ctx to enlarge it\n$/);
  const full = await plumb([...args, '--ctx', '8']);
  assert.equal(full.code, 0);
  assert.deepEqual(ids(full.out), greedy('capital').slice(0, 4));   // three fit, and the fourth is their prediction
  assert.match(full.err, /^plumb: the context of 8 tokens is full; use --ctx to enlarge it\nload /);
});

test('run: an empty prompt is refused', async () => {
  const empty = await plumb(['run', smol, '-p', '', '--raw']);
  assert.deepEqual([empty.code, empty.out], [1, '']);
  assert.match(empty.err, /^plumb: run: the prompt has no tokens\n$/);
});

test('run: an answer ends at the stop text of the template\'s family, which may be cut into tokens', async () => {
  // The model repeats token 241.  Its text has two bytes in the file, and the new one has a multiple of 32 more.
  const file = withTemplate(readFileSync('tests/vectors/synth/f32.gguf'),
    '{#laguna_glm_thinking#}{{ messages[0].content }}');
  const text = `ssistant>${'x'.repeat(22)}</a`;
  let at = file.indexOf('tokenizer.ggml.tokens') + 'tokenizer.ggml.tokens'.length + 16;
  const length = () => Number(file.readBigUInt64LE(at));
  for (let id = 0; id < 241; id++) at += 8 + length();
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  const path = temporary('stops.gguf', Buffer.concat([file.subarray(0, at), size, Buffer.from(text),
    file.subarray(at + 8 + length())]));
  const args = ['run', path, 'Hello', '--temp', '0', '-n', '4'];
  assert.equal(await output(args), `ssistant>${'x'.repeat(22)}\n`);
  assert.equal(await output([...args, '--raw']), `${text.repeat(4)}\n`);
  assert.deepEqual(ids(await output([...args, '--ids'])), [241, 241]);
});

test('run: --tools tells the model the tools in a file', async () => {
  const template = '{% for t in tools %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}';
  const tiny = readFileSync('tests/vectors/synth/f32.gguf');
  const path = temporary('tools.gguf', withTemplate(tiny, template));
  const file = text => temporary('tools.json', text);
  const tools = JSON.stringify(['fun', 'go'].map(name =>
    ({ type: 'function', function: { name, description: 'x', parameters: { type: 'object', properties: {} } } })));
  const args = ['run', path, 'Hello', '--temp', '0', '-n', '1'];
  for (const [more, n] of [[[], 5], [['--tools', file(tools)], 10]]) {   // each letter is a token
    const { code, err } = await plumb([...args, ...more]);
    assert.equal(code, 0, err);
    assert.match(err, new RegExp(`prefill ${n} tokens`));
  }
  for (const wrong of ['', '{}', '[1', '"x"', '[{}] x']) {
    const { code, out, err } = await plumb([...args, '--tools', file(wrong)]);
    assert.deepEqual([code, out], [1, ''], wrong);
    assert.match(err, /^plumb: build\S+tools\.json: PLUMB_ERROR_ARGUMENT: [^\n]+\n$/, wrong);
  }
  const missing = await plumb([...args, '--tools', 'build/none.json']);
  assert.deepEqual([missing.code, missing.out], [1, '']);
  assert.match(missing.err, /^plumb: build\/none\.json: PLUMB_ERROR_IO: /);
});

test('run: a system message tells a model the tools that its template does not', async () => {
  const tools = temporary('tools.json', '[{"type":"function","function":{"name":"f"}}]');
  const { code, err } = await plumb(['run', smol, 'Hello', '--tools', tools, '-n', '1']);
  assert.equal(code, 0, err);
  assert.match(err, /prefill 1[0-9]{2} tokens/);
});

test('run: a model without weights or without a template is an error that says so', async () => {
  const { code, out, err } = await plumb(['run', 'models/ggml-vocab-qwen2.gguf', '-p', 'x']);
  assert.deepEqual([code, out], [1, '']);
  assert.match(err, /^plumb: models\/ggml-vocab-qwen2\.gguf: PLUMB_ERROR_[A-Z]+: [^\n]+\n$/);
});

/** An answer that does not end by itself before 2,000 tokens, however busy the machine is. */
const ENDLESS = ['run', smol, '-p', 'Count.', '-n', '2000', '--temp', '0', '--regex', '[0-9]{3000}'];

nativeTest('run: text comes as it is made, Ctrl-C ends it', async () => {
  const child = start([...ENDLESS, '--ids']);
  let out = '', err = '';
  child.stderr.on('data', piece => err += piece);
  child.stdout.on('data', piece => {
    out += piece;
    if (!child.killed && ids(out).length >= 5) child.kill('SIGINT');
  });
  const [code, signal] = await new Promise(resolve => child.on('close', (...end) => resolve(end)));
  assert.deepEqual([code, signal], [130, null]);
  assert.match(out, /^(\d+ ){4,}\d+\n$/);
  assert.ok(ids(out).length < 2000, 'it went on');
  assert.match(err, stats);
});

if (isNode) {
  test('run: Ctrl-C ends it', async () => {
    const child = start([...ENDLESS, '--ids']);
    child.stdout.once('data', () => child.kill('SIGINT'));
    const [code, signal] = await new Promise(resolve => child.on('close', (...end) => resolve(end)));
    assert.deepEqual([code, signal], [null, 'SIGINT']);
  });
}

test('run: a closed output pipe ends it', async () => {
  const child = start(ENDLESS), err = [];
  child.stdout.once('data', () => child.stdout.destroy());
  child.stderr.on('data', piece => err.push(piece));
  const [code, signal] = await new Promise(resolve => child.on('close', (...end) => resolve(end)));
  const failed = !isNative && !isNode;   // wasmtime: EIO, as with inspect
  assert.deepEqual([code, signal, `${Buffer.concat(err)}`.includes('standard output')], [failed ? 1 : 0, null, failed]);
});

/* ---- score ---- */

/** tests/vectors/llama/*.bin, in the layout of logits.c. */
function vectors(name) {
  const data = readFileSync(`tests/vectors/llama/${name}.bin`);
  const [, n_token, n_record, , n_sample, n_top] = [0, 1, 2, 3, 4, 5].map(i => data.readUInt32LE(8 + 4 * i));
  const tokens = Array.from({ length: n_token }, (_, i) => data.readUInt32LE(32 + 4 * i));
  const words = 1 + n_sample + 2 * n_top;
  const records = Array.from({ length: n_record }, (_, k) => {
    const at = 32 + 4 * (n_token + k * words), top = at + 4 * (1 + n_sample);
    return { logsumexp: data.readFloatLE(at), top: data.readUInt32LE(top), logit: data.readFloatLE(top + 4 * n_top),
      margin: data.readFloatLE(top + 4 * n_top) - data.readFloatLE(top + 4 * n_top + 4),
      of: id => [...Array(n_top).keys()].filter(i => data.readUInt32LE(top + 4 * i) === id)
        .map(i => data.readFloatLE(top + 4 * (n_top + i)))[0] };
  });
  return { tokens, records };
}

/** Largest differences from llama.cpp at the positions that score printed. */
function compare(scores, { tokens, records }) {
  let logit = 0, logsumexp = 0, next = 0, n_next = 0, other = 0;
  scores.forEach((score, i) => {
    assert.equal(score.id, tokens[i]);
    if (score.top !== records[i].top) other++;
    else logit = Math.max(logit, Math.abs(score.logit - records[i].logit));
    logsumexp = Math.max(logsumexp, Math.abs(score.logsumexp - records[i].logsumexp));
    const theirs = i + 1 < scores.length ? records[i].of(tokens[i + 1]) : undefined;
    if (theirs !== undefined) {
      n_next++;
      next = Math.max(next, Math.abs(score.next_logprob - (theirs - records[i].logsumexp)));
    }
  });
  return { logit, logsumexp, next, n_next, other };
}

test('score: the reference pass equals llama.cpp at the first ten positions', async () => {
  const truth = vectors('mixed.f32');
  const first = truth.tokens.slice(0, 10).join();
  const scores = JSON.parse(await output(['score', smol, '--reference', '--json', '--ids', first]));
  assert.equal(scores.length, 10);
  const far = compare(scores, truth);
  assert.ok(far.other === 0 && far.logit < 0.01 && far.logsumexp < 0.01 && far.next < 0.01, JSON.stringify(far));
  assert.ok(far.n_next > 0);
  assert.equal(scores[9].next_logprob, null);
});

test('score: the fast pass is close to llama.cpp at 64 positions', async () => {
  const truth = vectors('mixed.f32');
  const scores = JSON.parse(await output(['score', smol, '--json', '--ids', truth.tokens.join()]));
  assert.equal(scores.length, 64);
  const far = compare(scores, truth);
  assert.ok(far.n_next > 0, 'no probability of a next token was compared');
  assert.ok(far.other === 0 && far.logit < 0.01 && far.logsumexp < 0.01 && far.next < 0.01, JSON.stringify(far));
});

test('score: hashes distinguish logits, and do not depend on the batch size', async () => {
  const args = ['score', smol, '--ids', '504,3575,282,504'];
  const score = async (...more) => JSON.parse(await output([...args, '--json', ...more]));
  const whole = await score();
  for (const { hash } of whole) assert.match(hash, /^[0-9a-f]{16}$/);
  assert.equal(new Set(whole.map(({ hash }) => hash)).size, 4);
  assert.deepEqual(await score('--batch', '1'), whole);
  const [head, ...lines] = (await output(args)).trimEnd().split('\n');
  assert.deepEqual(head.trim().split(/ +/), ['pos', 'id', 'top', 'logit', 'logsumexp', 'next', 'hash']);
  assert.deepEqual(lines.map(line => line.trim().split(/ +/).filter((_, i) => i < 3 || i === 6)),
    whole.map(({ id, top, hash }, i) => [`${i}`, `${id}`, `${top}`, hash]));
});

test('score: more ids than the context holds are an error', async () => {
  const { code, out, err } = await plumb(['score', smol, '--json', '--ids', '1,2,3', '--ctx', '2']);
  assert.deepEqual([code, out], [1, '']);
  assert.match(err, /^plumb: score: PLUMB_ERROR_CONTEXT: [^\n]+\n$/);
});

/* ---- bench ---- */

test('bench prints what it ran and how fast it was', async () => {
  const args = ['bench', smol, '-p', '4', '-n', '2', '-r', '3'];
  const text = await output(args);
  const [what, how] = text.split('\n');
  assert.match(what, /^llama, 134\.5 M parameters, 96\.6 MB of weights, [\d.]+ MB for the session$/);
  assert.match(how, /^kernels \w+, exact16, context 8192, batch 128, \d+ threads?, loaded in [\d.]+ s$/);
  for (const name of ['prefill', 'decode']) {
    const line = text.split('\n').find(line => line.startsWith(name));
    assert.match(line, /^\w+ +\d+ tokens  min +[\d.]+  median +[\d.]+  max +[\d.]+ tokens\/s$/);
    const [n, min, median, max] = line.match(/[\d.]+/g).map(Number);
    assert.equal(n, name === 'prefill' ? 4 : 2);
    assert.ok(0 < min && min <= median && median <= max, line);
  }
  const json = JSON.parse(await output([...args, '--json', '--scalar', '--ctx', '64', '--batch', '4']));
  assert.deepEqual([json.architecture, json.parameters, json.weight_bytes, json.kernels, json.context, json.batch],
    ['llama', 134515008, 96576768, 'scalar', 64, 4]);
  assert.ok(json.prefill.length === 3 && json.decode.length === 3);
  for (const speed of [...json.prefill, ...json.decode]) assert.ok(speed > 0, `${speed}`);
  const coarse = await output(['bench', smol, '-p', '1', '-n', '1', '-r', '1', '--precision', 'fast8', '--json']);
  assert.deepEqual([json.precision, JSON.parse(coarse).precision], ['exact16', 'fast8']);
  const slow = await output(['bench', smol, '-p', '1', '-n', '1', '-r', '1', '--reference', '--json']);
  assert.equal(JSON.parse(slow).kernels, 'reference');
});
