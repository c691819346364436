/* Help, version, and wrong usage: exit code 2, one line on standard error, nothing else. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { PARAMETERS } from '../../web/base/parameters.js';
import { isNode, plumb, repeats, smol, test } from './plumb.mjs';

const adapters = ['--lora', '--control-vector', '--control-vector-layer-range'];
const compute = ['--batch', '--threads', '--precision', '--kv-type', '--snapshots', ...adapters, '--reference',
  '--scalar'];
const schema = ['--json-schema', '--regex', '--no-strict', '--any-order', '--whitespace'];
const text = ['-p', '--file', '--tokens'], model = ['--model', '-hf'];
const template = ['--chat-template', '--chat-template-file'];
const answers = ['-n', ...PARAMETERS.map(({ option }) => option), '--seed', '--stop', '--system', '--ctx', '--shift',
  '--speculate', '--model-draft', '--draft-max', '--draft-min', '--json', ...model, ...template, ...compute];
const options = {
  run: ['-p', ...answers, '--file', '--interactive', '--raw', '--save-state', '--load-state', '--grammar', '--gbnf',
    '--format', ...schema, '--tools', '--ids', '--parse-special'],
  ...isNode ? {} : { chat: answers },   // Node has a chat of its own, with a help of its own
  inspect: [...model, '--json'],
  tokenize: [...model, '-p', '--no-special', '--parse-special', '--ids', '--json'],
  score: [...model, '--ids', ...compute, '--json', '--ctx'],
  trace: [...model, ...template, ...text, '--chat', '--parse-special', '--n-prompt', '--taps', '--layers', '--values',
    '-o', '--profile', ...compute, '--json'],
  logits: [...model, ...template, ...text, '--chat', '--parse-special', '--top', ...compute, '--json'],
  perplexity: [...model, '--file', '--ctx', '--chunks', '--kl', '--save', ...compute, '--json'],
  embed: [...model, '--file', '--prefix', '--tokens', '--pooling', '--dimensions', '--no-normalize', '--truncate',
    '--raw', '--parse-special', '--ctx', ...compute],
  rank: [...model, '--file', '-q', '--prefix', '--query-prefix', '--pooling', '--dimensions', '--truncate',
    '--parse-special', '--ctx', ...compute, '--json'],
  grammar: ['-n', '--seed', '--model', ...schema],
  diff: ['--model', '--tolerance', '--html', '--json'],
  selfcheck: [...model, '--json'],
  weights: ['--tolerance', '--all', '--json'],
  diagnose: [...model, ...template, '--against', '--tokens', '-p', '--file', '--chat', '--parse-special', '--n-prompt',
    '--max', '--list', '--tolerance', '--json'],
  bench: [...model, '-p', '-n', '-r', '--ctx', ...compute, '--json'],
};

test('--help names every command', async () => {
  const { code, out, err } = await plumb(['--help']);
  assert.deepEqual([code, err], [0, '']);
  for (const name of Object.keys(options)) assert.match(out, new RegExp(`^  plumb ${name} `, 'm'));
  for (const line of out.split('\n')) assert.ok(line.length <= 80, line);
  assert.equal((await plumb(['help'])).out, out);
});

for (const [name, names] of Object.entries(options)) {
  test(`${name} --help names its options, and no others`, async () => {
    const { code, out, err } = await plumb([name, '--help']);
    assert.deepEqual([code, err], [0, '']);
    assert.match(out, new RegExp(`^usage: plumb ${name} (\\[?MODEL|A|check).*\n\n[A-Z][^]*\\.\n\n  -`));
    const listed = [...out.matchAll(/^  (-\S+)/gm)].map(match => match[1]);
    assert.deepEqual(listed.sort(), [...names, '--help'].sort());
    for (const line of out.split('\n')) assert.ok(line.length <= 80, line);
    for (const line of out.matchAll(/\b(run|tokenize|diff|weights|diagnose):/g)) assert.fail(`of another: ${line[0]}`);
    assert.equal((await plumb(['help', name])).out, out);
  });
}

test('--help also works after wrong options', async () => {
  assert.equal((await plumb(['run', smol, '--help', '--nonsense'])).code, 0);
});

test('--version prints the version of plumb.h', async () => {
  const [, version] = readFileSync('include/plumb.h', 'utf8').match(/#define PLUMB_VERSION "(.*)"/);
  assert.deepEqual(await plumb(['--version']), { code: 0, signal: null, out: `plumb ${version}\n`, err: '' });
});

/* arguments, and the text of the line */
const wrong = [
  [[], 'no command'],
  [['walk'], 'unknown command walk'],
  [['--nonsense'], 'unknown command --nonsense'],
  [['help', 'walk'], 'unknown command walk'],
  [['run'], 'MODEL is needed'],
  [['run', smol], 'a prompt is needed, as words after MODEL, with -p TEXT or through a pipe'],
  [['run', '-p', 'x'], 'MODEL is needed'],
  [['run', smol, '-p'], '-p needs a value'],
  [['run', smol, '-p', 'x', '--nonsense'], 'unknown option --nonsense'],
  [['run', smol, '-p', 'x', '-x'], 'unknown option -x'],
  [['run', smol, '-p', 'x', '--te', '1'], 'unknown option --te'],
  [['runn', smol], 'unknown command runn; the nearest is run; see plumb --help'],
  ...isNode ? [[['servee', smol], 'unknown command servee; the nearest is serve; see plumb --help']] : [],
  ...[['--tempreature', '--temperature'], ['--ctx-sise=9', '--ctx-size'], ['--jsn', '--json'], ['--batchs', '--batch'],
    ['--top_k', '--top-k'], ['-nn', '-n'], ['--ctz', '--ctx'], ['--sed', '--seed'], ['--mirostat-learning-rate', '']]
    .map(([word, nearest]) => [['run', smol, '-p', 'x', word],
      `run: unknown option ${word.replace(/=.*/, '')}${nearest && `; the nearest is ${nearest}`}; see plumb run --`]),
  [['run', smol, '-i', '--raw'], 'a chat cannot be combined with --raw'],
  [['run', smol, '-i', '--regex', 'x'], 'a chat cannot be combined with a grammar or schema'],
  [['run', smol, '-p', 'x', '--stop', ''], '--stop: the text is empty'],
  [['run', smol, '-p', 'x', '--format', 'yaml'], '--format: "yaml" is neither json nor a JSON Schema'],
  [['run', smol, 'x', '--chat-template', 'chatml', '--chat-template-file', 'y'], 'exclude each other'],
  [['run', '-m', smol, '-f', '-', '--json-schema', '-'], 'only one input can be - (standard input)'],
  [['chat'], 'MODEL is needed'],
  [['trace', smol, '-p', 'x', '--chat-template', 'chatml'], '--chat-template needs --chat'],
  [['trace', smol, '-p', 'x', '-f', 'y'], '-p and --file cannot be combined'],
  [['tokenize', 'https://x.org/a/b.gguf', 'x'], 'curl -L'],
  [['run', smol, '-p', 'x', '--raw=1'], '--raw takes no value'],
  [['run', smol, '-p', 'x', '--raw', '--system', 'y'], '--raw'],
  [['run', smol, '-p', 'x', '--raw', '--tools', 'y'], '--tools'],
  [['run', smol, '-p', 'x', '--reference', '--scalar'], 'cannot be combined'],
  [['run', smol, '-p', 'x', '--precision', 'fast'], '--precision: "fast" is not exact16 or fast8'],
  [['run', smol, '-p', 'x', '--precision', 'fast8', '--reference'], '--precision applies only to the fast pass'],
  [['run', smol, '-p', 'x', '--temp'], '--temp needs a value'],
  [['run', smol, '-p', 'x', '--grammar', 'README.md', '--gbnf', 'x'], '--grammar, --gbnf, --json-schema and --regex'],
  [['run', smol, '-p', 'x', '--json-schema', '{}', '--regex', 'x'], '--json-schema and --regex exclude each other'],
  ...[['--no-strict'], ['--any-order'], ['--whitespace', 'free']].map(words => [
    ['run', smol, '-p', 'x', '--regex', 'x', ...words],
    '--no-strict, --any-order and --whitespace need --json-schema']),
  [['run', smol, '-p', 'x', '--json-schema', '{}', '--whitespace', 'none'],
    '--whitespace: "none" is not compact, pretty or free'],
  [['run', smol, '-p', '-', '--json-schema', '-'], 'only one input can be - (standard input)'],
  [['grammar'], 'check, sample or match is needed'],
  [['grammar', 'parse', 'x'], 'the first word is check, sample or match'],
  [['grammar', 'match', 'x'], 'FILE and TEXT are needed'],
  [['grammar', 'check', 'x', 'y'], 'one FILE is needed'],
  [['grammar', 'check', 'x', '--regex', 'y'], 'there is no FILE beside --json-schema or --regex'],
  [['grammar', 'match', '--regex', 'x'], 'TEXT is needed, and no FILE'],
  [['grammar', 'check', '--json-schema', '{}', '--regex', 'x'], 'exclude each other'],
  [['grammar', 'match', '-', '-'], 'only one input can be - (standard input)'],
  ...['', ' 1', '1 ', 'abc', '1x', '0x1', 'nan', 'inf', '-1', '1e9', '--raw', '1,5', '1..2', 'e', '.']
    .map(word => [['run', smol, '-p', 'x', '--temp', word], `--temp: "${word}" is not a number from 0 to 1e+06`]),
  [['run', smol, '-p', 'x', '--temp='], '--temp: "" is not a number'],
  [['run', smol, '-p', 'x', '--top-p', '1.01'], '--top-p: "1.01" is not a number from 0 to 1'],
  [['run', smol, '-p', 'x', '--min-p', '-0.1'], '--min-p: "-0.1"'],
  [['run', smol, '-p', 'x', '--typical', '2'], '--typical: "2"'],
  [['run', smol, '-p', 'x', '--repeat-penalty', '0'], '--repeat-penalty: "0" is not a number from 1e-06 to 1e+06'],
  [['run', smol, '-p', 'x', '--repeat-last-n', '16777217'], '--repeat-last-n: "16777217" is not an integer from 0'],
  ...['presence', 'frequency'].map(name => [['run', smol, '-p', 'x', `--${name}-penalty`, '-1000001'],
    `--${name}-penalty: "-1000001" is not a number from -1e+06 to 1e+06`]),
  ...['', '-1', '+1', '1.0', ' 1', '1e3', '0x10', '4294967296', '99999999999999999999999']
    .map(word => [['run', smol, '-p', 'x', '--top-k', word], `"${word}" is not an integer from 0 to 2147483647`]),
  [['run', smol, '-p', 'x', '--seed', '18446744073709551616'], '--seed: "18446744073709551616"'],
  [['run', smol, '-p', 'x', '--seed', '-1'], '--seed: "-1"'],
  [['run', smol, '-p', 'x', '--shift', '0'], '--shift: "0"'],
  [['run', smol, '-p', 'x', '-n', '0'], '-n: "0" is not an integer from 1'],
  [['run', smol, '-p', 'x', '--ctx', '0'], '--ctx: "0"'],
  [['run', smol, '-p', 'x', '--batch', '65537'], '--batch: "65537"'],
  [['inspect'], 'MODEL is needed'],
  [['inspect', smol, '--ids'], 'unknown option --ids'],
  [['tokenize'], 'MODEL and TEXT are needed'],
  [['tokenize', smol], 'MODEL and TEXT are needed'],
  [['score', smol], '--ids is needed'],
  [['bench', smol, '-r', '0'], '-r: "0" is not an integer from 1 to 1000'],
  [['bench', smol, '-r', '1001'], '-r: "1001"'],
  [['trace', smol], '-p TEXT or --tokens is needed'],
  [['trace', smol, '-p', 'x', '--tokens', '1'], '-p and --tokens cannot be combined'],
  [['trace', smol, '--tokens', '1', '--chat'], '--chat and --parse-special need -p, not --tokens'],
  [['trace', smol, '-p', 'x', '-o', 'x.gguf'], '-o FILE.gguf needs --values all'],
  [['trace', smol, '-p', 'x', '-o', '-', '--profile'], '-o - and --profile would both write to standard output'],
  ...['', 'a', '3-', '-3', '3-2', '1-2-3', '1..2', '4294967296', ' 1', '11111111111111-2']
    .map(word => [['trace', smol, '-p', 'x', '--layers', word], `--layers: "${word}" is not a range such as 0-3 or 2`]),
  ...['', 'some', '-1', 'all '].map(word => [['trace', smol, '-p', 'x', '--values', word],
    `--values: "${word}" is not an integer from 0 to 4294967295 or "all"`]),
  [['logits', smol], '-p TEXT or --tokens is needed'],
  [['logits', smol, '-p', 'x', '--top', '0'], '--top: "0" is not an integer from 1'],
  [['perplexity', smol], 'MODEL and FILE are needed'],
  [['perplexity', smol, 'README.md', '--ctx', '3'], '--ctx: "3" is not an integer from 4'],
  [['embed'], 'FILE is needed'],
  [['embed', smol], 'FILE is needed'],
  [['embed', smol, 'x', '--pooling', 'rank'], '--pooling: "rank" is not none, mean, cls or last'],
  [['embed', smol, 'x', '--dimensions', '0'], '--dimensions: "0" is not an integer from 1'],
  [['embed', smol, 'x', '--json'], 'unknown option --json'],
  [['rank', smol, 'x'], '-q TEXT is needed'],
  [['rank', smol, '-q', 'x'], 'FILE is needed'],
  [['rank', smol, '-q', 'x', 'x', '--pooling', 'none'], '--pooling none leaves no vectors to compare'],
  ...['diff', 'weights'].flatMap(name => [[], ['a'], ['a', 'b', 'c']]
    .map(files => [[name, ...files], 'exactly two files, A and B, are needed'])),
  ...['0', '-1', 'nan', ''].map(word => [['diff', 'a', 'b', '--tolerance', word], `--tolerance: "${word}"`]),
  [['selfcheck'], 'MODEL is needed'],
  [['diagnose', smol], '--against THEIRS is needed'],
  [['diagnose', '--against', 'x'], 'MODEL is needed'],
  [['diagnose', smol, '--against', 'x', '--chat'], '-p TEXT or --tokens is needed'],
  [['diagnose', smol, '--against', 'x', '--max', '4'], '--max: "4" is not an integer from 1 to 3'],
  [['diagnose', smol, '--list', '--against', 'x'], '--list cannot be combined'],
  [['inspect', ...Array(65).fill(smol)], 'at most 64 files'],
];
test('wrong usage exits 2 with one line', async t => {
  for (const [args, says] of wrong.filter((_, i) => repeats(i))) {
    await t.test(`plumb ${args.slice(0, 8).join(' ')}`, async () => {
      const { code, out, err } = await plumb(args);
      assert.deepEqual([code, out], [2, '']);
      assert.match(err, /^plumb: [^\n]*\n$/);
      assert.ok(err.includes(says), `${err.trim()} -- says nothing of: ${says}`);
    });
  }
});

test('run takes the limits of each parameter that JavaScript takes', async () => {
  for (const { option, low, high } of PARAMETERS.filter((_, i) => repeats(i))) {
    for (const value of [low, high]) {
      const { code, err } = await plumb(['run', 'none.gguf', '-p', 'x', `${option}=${value}`]);
      assert.equal(code, 1, err);   // there is no such file
    }
  }
});

for (const [word, place] of [['', 0], ['1,', 2], ['1,,2', 2], ['a', 0], ['1 2', 0], ['-1', 0], ['1,49152', 2],
  ['99999999999999999999', 0]]) {
  test(`score --ids "${word}" exits 2 and says where`, async () => {
    const { code, out, err } = await plumb(['score', smol, '--ids', word]);
    assert.deepEqual([code, out], [2, '']);
    const expected = 'expected token ids from 0 to 49151, separated by commas';
    assert.equal(err, `plumb: score: --ids: at byte ${place}: ${expected}\n`);
  });
}
