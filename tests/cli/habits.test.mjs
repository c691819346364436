/* Habits of llama.cpp and ollama: their names of options, pipes, chats, names of models on servers.  Ground truth: the
 * same command with plumb's own names, llama.cpp's greedy answers, and what ollama's `run` does with standard input. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { command, ids, isNative, isNode, output, plumb, smol, temporary, test } from './plumb.mjs';

const { prompts } = JSON.parse(readFileSync('tests/vectors/llama/prompts.json', 'utf8'));
const gravity = prompts[1], question = gravity.messages[0].content;
const EXACT = ['--temp', '0', '--precision', 'exact16'];
const small = 'tests/vectors/synth/f32.gguf';

/** Runs it in a shell, with "$@" as the program and its arguments. @param {string} line @param {string[]} args */
function shell(line, args) {
  const { status, stdout, stderr } = spawnSync('sh', ['-c', line, 'sh', ...command, ...args], { encoding: 'utf8' });
  return { code: status, out: stdout, err: stderr };
}

test('run takes the names of llama.cpp and ollama', async () => {
  const own = ['run', small, '-p', 'Once upon', '--raw', '-n', '12', '--temp', '1.5', '--top-k', '50', '--seed', '7',
    '--ctx', '64', '--threads', '1'];
  const expected = await output(own);
  assert.ok(expected.length > 5);
  const file = temporary('prompt.txt', 'Once upon\n');
  for (const words of [
    ['-m', small, '-p', 'Once upon', '-no-cnv', '--n-predict', '12', '--temperature', '1.5', '--top-k', '50', '-s', '7',
      '-c', '64', '-t', '1', '-ngl', '99', '--no-mmap'],
    ['--model', small, '--prompt=Once upon', '--raw', '--predict=12', '--temp', '1.5', '--top-k', '50', '--seed', '7',
      '--ctx-size', '64', '-t', '1', '--n-gpu-layers=99', '--mlock'],
    ['-m', small, '-f', file, '--raw', '-n', '12', '--temp', '1.5', '--top-k', '50', '-s', '7', '-c', '64', '-t', '1'],
    [small, 'Once', 'upon', '--verbose', '--raw', '-n', '12', '--temp', '1.5', '--top-k', '50', '-s', '7', '-c', '64',
      '-t', '1'],
    ['-m', small, 'Once', 'upon', '--raw', '-n', '12', '--temp', '1.5', '--top-k', '50', '-s', '7', '-c', '64', '-t',
      '1'],
  ]) assert.equal(await output(['run', ...words]), expected, words.join(' '));
  const { err } = await plumb(['run', ...own.slice(1), '-ngl', '99']);
  assert.match(err, /^plumb: run: -ngl has no effect: plumb computes on the CPU\nload /);
});

test('the name that a command has itself is meant, not the other one', async () => {
  const { out } = await plumb(['bench', small, '-r', '1', '-p', '4', '-n', '2', '-t', '1', '-c', '32']);
  assert.match(out, /context 32, .* 1 thread,.*\nprefill +4 tokens/s);
  assert.equal(await output(['tokenize', '-m', smol, '-p', question, '--ids']),
    await output(['tokenize', smol, question, '--ids']));
});

test('run --stop ends the answer before the first of several texts', async () => {
  const args = ['run', smol, question, '-n', '24', ...EXACT], whole = (await output(args)).trimEnd();
  const comma = whole.indexOf(' is '), word = whole.split(' ')[3];
  assert.ok(comma > 0);
  assert.equal(await output([...args, '--stop', ' is ', '-r', 'nowhere']), `${whole.slice(0, comma)}\n`);
  assert.equal(await output([...args, '-r', word, '--stop', `${word} of`]), `${whole.slice(0, whole.indexOf(word))}\n`);
  assert.equal(await output([...args, '--stop', `${whole.slice(-9)} and no more`]), `${whole}\n`, 'only its beginning');
});

test('run --json prints the text, why it ended, and figures', async () => {
  const args = ['run', smol, '-p', question, '-n', '24', ...EXACT, '--seed', '18446744073709551615'];
  const [first, second] = [JSON.parse(await output([...args, '--json'])), await output(args)];
  assert.equal(`${first.text}\n`, second);
  assert.deepEqual([first.finishReason, first.seed, first.stats.promptTokens, first.stats.tokens],
    ['length', '18446744073709551615', 39, 24]);
  assert.ok(first.stats.loadSeconds > 0 && first.threads >= 1 && first.stats.decodeRate > 0);
  const none = await plumb(['run', 'none.gguf', 'x', '--json']);
  assert.equal(JSON.parse(none.out).error.code, 'PLUMB_ERROR_IO');
  const wrong = await plumb(['run', 'none.gguf', 'x', '--nope', '--json']);
  assert.deepEqual([wrong.code, JSON.parse(wrong.out).error.code], [2, 'PLUMB_ERROR_ARGUMENT']);
  const stopped = JSON.parse(await output([...args, '--json', '--stop', ' is ']));
  assert.deepEqual([stopped.finishReason, second.startsWith(stopped.text)], ['stop', true]);
});

test('--format json makes a JSON object, and --grammar takes a grammar itself', async () => {
  const args = ['run', smol, 'A city as JSON.', '-n', '60', ...EXACT];
  assert.equal(typeof JSON.parse((await output([...args, '--format', '{"type": "boolean"}']))), 'boolean');
  assert.match(await output([...args, '--format', 'json']), /^\{/);
  assert.match(await output([...args, '--grammar', 'root ::= "yes" | "no"']), /^(yes|no)\n$/);
});

test('a pipe needs no -, and comes before a prompt, as in ollama', async () => {
  const args = ['run', smol, '-n', '8', ...EXACT], alone = await output([...args, '-p', question]);
  assert.equal(await output(args, `${question}\n`), alone);
  assert.equal(await output([...args, '-p', '-'], `${question}\n`), alone);
  const both = await output([...args, '-p', 'The cat sat.\n\nRepeat this.']);
  if (isNative || isNode) {   // wasmtime does not say what standard input is
    const file = temporary('cat.txt', 'The cat sat.\n');
    for (const line of [`cat ${file} | "$@"`, `"$@" < ${file}`]) {
      assert.equal(shell(line, [...args, 'Repeat this.']).out, both, line);
    }
    assert.equal(shell('"$@" < /dev/null', [...args, question]).out, alone);
  }
  assert.equal(await output([...args, '-f', temporary('sat.txt', 'The cat sat.\n'), 'Repeat this.']), both);
  const none = await plumb(args, '');
  assert.deepEqual([none.code, none.out], [2, '']);
  assert.match(none.err, /^plumb: run: a prompt is needed, as words after MODEL, with -p TEXT or through a pipe;/);
});

test('the other commands that read a text need no - either', async () => {
  const tokens = await output(['tokenize', smol, question, '--ids']);
  assert.equal(await output(['tokenize', smol, '--ids'], question), tokens);
  assert.equal(await output(['tokenize', '-m', smol, '--ids'], question), tokens);
  assert.equal(await output(['logits', smol, '--top', '3'], 'The capital of'),
    await output(['logits', smol, '-p', 'The capital of', '--top', '3']));
  const grammar = 'root ::= "a" [0-9]';
  assert.equal(await output(['grammar', 'sample', '--seed', '1'], grammar),
    await output(['grammar', 'sample', '-', '--seed', '1'], grammar));
  assert.equal(await output(['embed', smol, '--pooling', 'mean'], 'a\nb\n'),
    await output(['embed', smol, '-', '--pooling', 'mean'], 'a\nb\n'));
});

test('a name on a server is no file: the message says how to get it', async () => {
  for (const [words, says] of [
    [['tokenize', 'https://example.org/a/m.gguf?download=true', 'x'], /curl -L/],
    ...isNode ? [] : [
      [['run', 'https://example.org/a/m.gguf?download=true', 'x'],
        /plumb of the package plumb-llm .*: curl -L -o m\.gguf 'https:\/\/example\.org\/a\/m\.gguf\?download=true'/],
      [['run', 'https://huggingface.co/owner/repo/resolve/main/m.gguf', 'x'],
        /curl -L -o m\.gguf 'https:\/\/huggingface\.co\/owner\/repo\/resolve\/main\/m\.gguf'/],
      ...['hf:owner/repo:sub/m.gguf', 'hf.co/owner/repo:sub/m.gguf', 'hf:owner/repo/sub/m.gguf'].map(name => [
        ['run', name, 'x'], /curl -LO 'https:\/\/huggingface\.co\/owner\/repo\/resolve\/main\/sub\/m\.gguf'/]),
      [['run', 'hf:owner/repo@v2:m.gguf', 'x'], /huggingface\.co\/owner\/repo\/resolve\/v2\/m\.gguf'/],
      [['run', '-hf', 'owner/repo:Q4_K_M', 'x'],
        /hf:owner\/repo:Q4_K_M: .* at https:\/\/huggingface\.co\/owner\/repo\/tree\/main and download it: curl -LO/],
      [['run', 'https://huggingface.co/owner/repo', 'x'], /at https:\/\/huggingface\.co\/owner\/repo\/tree\/main and/],
      [['run', 'smollm2:135m', 'x'], /there is no such file; .* plumb of the package plumb-llm takes such names/],
      [['run', 'https://', 'x'], /curl -L -o model\.gguf 'https:\/\/'/],
      [['run', 'hf:', 'x'], /no such file/],
    ],
  ]) {
    const { code, out, err } = await plumb(words);
    assert.deepEqual([code, out], [2, ''], err);
    assert.match(err, says);
    assert.match(err, /^plumb: [^\n]*\n$/);
  }
});

test('--chat-template is used instead of the file\'s; a file without one has ChatML, and a note says so', async () => {
  const args = ['-n', '8', ...EXACT], template = 'Q: {{ messages[0].content }} A:';
  const expected = await output(['run', smol, '--raw', '-p', 'Q: Why? A:', ...args]);
  const file = temporary('own.jinja', template);
  for (const words of [['--chat-template', template], ['--chat-template', file], ['--chat-template-file', file]]) {
    assert.equal(await output(['run', smol, 'Why?', ...words, ...args]), expected, words[0]);
  }
  assert.equal(await output(['chat', smol, '--chat-template', template, ...args], 'Why?\n'), expected);
  const wrong = await plumb(['run', smol, 'x', '--chat-template', '{% if x is nothing %}']);
  assert.deepEqual([wrong.code, wrong.out], [1, '']);
  assert.match(wrong.err, /PLUMB_ERROR_TEMPLATE: /);
  const { out, err } = await plumb(['run', small, 'Hi', '--json', '-n', '1']);
  assert.match(err, /^plumb: \S+f32\.gguf: the file has no chat template: ChatML is used, as in llama\.cpp; use --raw/);
  const chatml = '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n';
  assert.equal(JSON.parse(out).stats.promptTokens,
    ids(await output(['tokenize', small, chatml, '--ids', '--parse-special'])).length);
});

/* ---- chat ---- */

test('chat answers each line and remembers the earlier ones, as the package\'s chat does', async () => {
  const args = ['chat', smol, ...EXACT, '-n', '24'];
  const input = `${question}\n\n"""What is\nmy name?"""\nAnd \\\nyours?\n/exit\n`;
  const lines = (await output([...args, '--json'], input)).trimEnd().split('\n').map(JSON.parse);
  assert.equal(lines.length, 4, 'commands are obeyed at a terminal only');
  assert.ok(lines[1].stats.reusedTokens >= 39 + lines[0].stats.tokens - 1, JSON.stringify(lines[1].stats));
  assert.equal(await output(args, input), lines.map(({ text }) => `${text}\n`).join(''));
  const greedy = await output(['run', smol, question, '-n', '24', ...EXACT]);
  assert.equal(`${lines[0].text}\n`, greedy);
  assert.deepEqual(ids(await output(['run', smol, question, '-n', '24', '--ids', ...EXACT])),
    gravity.f32.ids.slice(0, 24));
});

test('run -i answers the prompt, and then each line', async () => {
  const args = ['-n', '12', ...EXACT];
  assert.equal(await output(['run', smol, '-i', question, ...args], 'And then?\n'),
    await output(['chat', smol, ...args], `${question}\nAnd then?\n`));
  assert.equal(await output(['run', '-m', smol, '-cnv', '-sys', 'Be brief.', '-p', question, ...args], ''),
    await output(['run', smol, question, '--system', 'Be brief.', ...args]));
});

test('chat: a line that fails is reported, and the next one is answered', async () => {
  const input = `${'far too long '.repeat(200)}\n${question}\n`;
  const args = ['chat', smol, ...EXACT, '-n', '24', '--ctx', '128'];
  const { code, out, err } = await plumb(args, input);
  assert.deepEqual([code, out], [1, await output(['run', smol, question, '-n', '24', ...EXACT])]);
  assert.match(err, /^plumb: [^\n]*: PLUMB_ERROR_CONTEXT: [^\n]*\n$/);
  const [first, second] = (await plumb([...args, '--json'], input)).out.trimEnd().split('\n').map(JSON.parse);
  assert.deepEqual([first.error.code, `${second.text}\n`], ['PLUMB_ERROR_CONTEXT', out]);
});

test('chat leaves out the oldest turns when they no longer fit', async () => {
  const args = ['chat', smol, ...EXACT, '-n', '16', '--ctx', '128', '--json'];
  const input = Array(6).fill(`${question}\n`).join('');
  const lines = (await output(args, input)).trimEnd().split('\n').map(JSON.parse);
  assert.equal(lines.length, 6);
  const sizes = lines.map(({ stats }) => stats.promptTokens);
  assert.ok(sizes.every(n => n <= 128 - 16), String(sizes));
  assert.ok(lines.at(-1).stats.promptTokens > 39);
});

/** Plays the steps [expected, answer] in a terminal. @param {string[][]} steps @param {string[]} args */
function play(steps, args) {
  const words = ['tests/node/terminal.py', JSON.stringify(steps), ...command, ...args];
  const { stdout, stderr } = spawnSync('python3', words,
    { encoding: 'utf8', env: { ...process.env, TERM: 'xterm', NO_COLOR: '1', XDG_STATE_HOME: temporary('x', '') } });
  assert.ok(stdout, stderr);
  const { screen, code, left } = JSON.parse(stdout);
  assert.deepEqual(left, [], screen);
  return { screen, code };
}

if (isNative || isNode) {
  test('run without a prompt in a terminal is a chat; Ctrl-C ends an answer, and commands are obeyed', () => {
    const { screen, code } = play([
      ['> ', 'Write a long story about the sea.\r'], ['The sea', '\x03'], ['stopped', '/system Be brief.\r'],
      ['started a new chat', `${question}\r`], ['tokens/s', '/again\r'], ['tokens/s', '/clear\r'],
      ['started a new chat', '/nonsense\r'], ['is not a command; /help lists', '//slash\r'], ['tokens/s', '/bye\r'],
    ], ['run', smol, '-n', '30', ...EXACT]);
    assert.equal(code, 0, screen);
    assert.match(screen, /\/help lists the commands, Ctrl-D exits/);
  });
}
