/** The parts of the command line that only Node has: run and bench on the package's engine, and chat.  tests/cli
 * compares the rest with the native program.  Ground truth: llama.cpp's greedy answers. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createReadStream, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { prompts, realPath, root, server, tiny, tinyPath, withTemplate } from './helpers.mjs';
import { printable } from '../../web/cli/terminal.js';
import { Plumb } from '../../web/node/index.js';

const script = `${root}web/cli/main.mjs`;
const folder = mkdtempSync(join(tmpdir(), 'plumb-cli-'));
after(() => rmSync(folder, { recursive: true }));
/** @param {string[]} args @param {string} [input] @param {NodeJS.ProcessEnv} [env] */
const plumb = (args, input = '', env = process.env) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { encoding: 'utf8', input, env });
  return { code: status, out: stdout, err: stderr };
};
/** @param {{f32: {ids: number[]}}} prompt @param {number} n */
async function answerOf({ f32 }, n) {
  const model = await Plumb.load(realPath);
  const answer = await model.detokenize(f32.ids.slice(0, n));
  await model.close();
  return answer;
}
const chatPrompt = prompts[1], question = chatPrompt.messages[0].content;
const EXACT = ['--temp', '0', '--precision', 'exact16'];

test('the text of --help fits 80 columns', () => {
  for (const name of ['', 'run', 'bench', 'chat', 'pull', 'list', 'rm', 'preflight']) {
    const lines = plumb(['help', ...name ? [name] : []]).out.split('\n');
    assert.ok(lines.length > 3);
    assert.deepEqual(lines.filter(line => line.length > 80), []);
  }
});

/* ---- run, bench ---- */

test('run reads a model from standard input, if that is a pipe, a socket or a file', () => {
  const words = ['run', '/dev/stdin', '-p', 'Hello', '--raw', '-n', '4', '--temp', '0'];
  const file = plumb(words.map(word => word === '/dev/stdin' ? tinyPath : word));
  assert.equal(file.code, 0, file.err);
  const socket = plumb(words, readFileSync(tinyPath));
  assert.deepEqual([socket.code, socket.out], [0, file.out], socket.err);
  for (const shell of ['cat "$1" | "$@"', '"$@" < "$1"']) {
    const line = shell.replaceAll('"$@"', '"$0" "$2" "$3" "$4" "$5" "$6" "$7" "$8" "$9" "${10}" "${11}"');
    const { status, stdout, stderr } = spawnSync('sh', ['-c', line, process.execPath, tinyPath, script, ...words],
      { encoding: 'utf8' });
    assert.deepEqual([status, stdout], [0, file.out], `${shell}: ${stderr}`);
  }
});

test('run streams llama.cpp\'s answer as it is generated, then prints the speed', async () => {
  const answer = await answerOf(chatPrompt, 24);
  const child = spawn(process.execPath, [script, 'run', realPath, '-p', question, ...EXACT, '-n', '24']);
  let out = '', err = '', pieces = 0;
  child.stdout.setEncoding('utf8').on('data', data => {
    assert.equal(err, '', 'the figures come behind the answer');
    pieces++;
    out += data;
  });
  child.stderr.setEncoding('utf8').on('data', data => { err += data; });
  assert.equal(await new Promise(resolve => child.on('close', resolve)), 0);
  assert.ok(pieces > 10, `${pieces} pieces`);
  assert.equal(out, `${answer}\n`);
  assert.match(err,
    /^load \d+\.\d\d s, prefill 39 tokens at [\d.]+ tokens\/s, decode 23 tokens at [\d.]+ tokens\/s\n$/);
});

test('run loads a URL and prints JSON', async t => {
  const url = await server(t, (request, response) => {
    response.writeHead(200, { 'Content-Length': statSync(realPath).size });
    createReadStream(realPath).pipe(response);
  });
  const args = ['run', `${url}model.gguf`, '-p', question, ...EXACT, '-n', '24', '--json', '--threads', '2'];
  const child = spawn(process.execPath, [script, ...args], { env: { ...process.env, XDG_CACHE_HOME: folder } });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', data => { out += data; });
  assert.equal(await new Promise(resolve => child.on('close', resolve)), 0);
  const { text, finishReason, stats, module, threads, seed } = JSON.parse(out);
  assert.deepEqual([text, finishReason, threads], [await answerOf(chatPrompt, 24), 'length', 2]);
  assert.ok(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32, `seed ${seed}`);
  assert.match(module, /^plumb-mt/);
  assert.deepEqual([stats.promptTokens, stats.tokens], [39, 24]);
  const other = (...words) => spawnSync(process.execPath, [script, ...words],
    { encoding: 'utf8', env: { ...process.env, XDG_CACHE_HOME: folder } });
  const copy = JSON.parse(other('list', '--json').stdout);
  assert.deepEqual([copy.name, copy.url, copy.bytes, copy.complete], [args[1], args[1], statSync(realPath).size, true]);
  assert.equal(other('list').stdout, `     98.4 MB  ${args[1]}\n`.replace('98.4', (copy.bytes / 1e6).toFixed(1)));
  assert.equal(other('rm', args[1]).status, 0);
  assert.deepEqual([other('list').stdout, other('rm', args[1]).status], ['', 1]);
  assert.equal(other('list').stderr, `plumb: list: there are no copies in ${process.env.PLUMB_CACHE}\n`);
  assert.match(plumb(['list', '--help']).out, /\$PLUMB_CACHE/);
});

test('inspect of a URL fetches only the header, and prints the same as for the file', async t => {
  let sent = 0, ranges = true;
  const size = statSync(realPath).size;
  const url = await server(t, (request, response) => {
    const [, from, to] = ranges && /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') || [];
    if (request.url === '/none.gguf') return void response.writeHead(404).end();
    const end = to === undefined ? size - 1 : Math.min(Number(to), size - 1);
    response.writeHead(to === undefined ? 200 : 206, { 'Content-Length': end - Number(from ?? 0) + 1,
      ...to !== undefined && { 'Content-Range': `bytes ${from}-${end}/${size}` } });
    const stream = createReadStream(realPath, { start: Number(from ?? 0), end });
    stream.on('data', data => { sent += data.length; });
    stream.pipe(response);
    response.on('close', () => stream.destroy());
  });
  const inspect = (...words) => new Promise(resolve => {
    const child = spawn(process.execPath, [script, 'inspect', ...words]);
    let out = '', err = '';
    child.stdout.setEncoding('utf8').on('data', data => { out += data; });
    child.stderr.setEncoding('utf8').on('data', data => { err += data; });
    child.on('close', code => resolve({ code, out, err }));
  });
  const name = `${url}model.gguf`;
  for (const how of [[], ['--json']]) {
    for (ranges of [true, false]) {
      sent = 0;
      const local = plumb(['inspect', realPath, ...how]).out.replace(realPath, name);
      assert.deepEqual(await inspect(name, ...how), { code: 0, out: local, err: '' });
      assert.ok(sent > 1e6 && sent < 2e7, `${sent} bytes`);
    }
  }
  const { code, out, err } = await inspect(`${url}none.gguf`);
  assert.deepEqual([code, out, err], [1, '', `plumb: ${url}none.gguf: PLUMB_ERROR_IO: the server answered 404\n`]);
});

test('inspect of a URL reads a header of 100 MB in time, and no more of a range than it requested', async t => {
  const u32 = n => Buffer.from(new Uint32Array([n]).buffer), u64 = n => Buffer.from(new BigUint64Array([n]).buffer);
  const string = text => Buffer.concat([u64(BigInt(text.length)), Buffer.from(text)]), n = 100e6;
  const header = Buffer.concat([Buffer.from('GGUF'), u32(3), u64(0n), u64(2n), string('general.architecture'), u32(8),
    string('llama'), string('x'), u32(8), u64(BigInt(n)), Buffer.alloc(n + 32, 'a')]);
  let sent = 0;
  const url = await server(t, async (request, response) => {
    if (request.url === '/whole') {
      response.writeHead(200, { 'Content-Length': header.length });
      return void response.end(header);
    }
    const from = Number(/\d+/.exec(request.headers.range)[0]), piece = header.subarray(0, 1 << 20);
    const isFirst = from === 0 && request.url === '/second';
    response.writeHead(206, { 'Content-Range': `bytes ${from}-${from + piece.length - 1}/${header.length}` });
    for (sent = 0; sent < 1e9 && !response.destroyed; sent += piece.length) {
      if (!response.write(piece)) await new Promise(resolve => response.once('drain', resolve).once('close', resolve));
      if (isFirst) break;
    }
    response.end();
  });
  const inspect = name => new Promise(resolve => {
    const child = spawn(process.execPath, [script, 'inspect', `${url}${name}`], { timeout: 30000 });
    let err = '';
    child.stderr.setEncoding('utf8').on('data', data => { err += data; });
    child.on('close', code => resolve({ code, err }));
  });
  assert.deepEqual(await inspect('whole'), { code: 0, err: '' });
  for (const [name, at] of [['first', 0], ['second', 1 << 20]]) {
    const err = `plumb: ${url}${name}: PLUMB_ERROR_IO: the server sends more than the 1048576 bytes requested `
      + `from byte ${at}\n`;
    assert.deepEqual(await inspect(name), { code: 1, err });
    assert.ok(sent < 5e7, `${sent} bytes sent`);
  }
});

test('run and bench compute what the C program computes', () => {
  const args = ['run', tinyPath, '-p', 'Once', '--raw', '-n', '40', '--seed', '18446744073709551615'];
  const { code, out, err } = plumb([...args, '--temp', '1.5']);
  assert.equal(code, 0, err);
  assert.equal(out, plumb([...args, '--temp', '1.5', '--batch', '128']).out);
  assert.equal(JSON.parse(plumb([...args, '--json']).out).seed, '18446744073709551615');
  const shape = json => Object.fromEntries(Object.entries(JSON.parse(json)).filter(([name]) => name !== 'module')
    .map(([name, value]) => [name, Array.isArray(value) ? value.length : /seconds|threads|bytes/.test(name) || value]));
  const bench = ['bench', tinyPath, '-p', '8', '-n', '4', '-r', '2', '--json', '--precision', 'exact16'];
  assert.deepEqual(shape(plumb(bench).out), shape(plumb([...bench, '--batch', '128']).out));
});

test('run: Ctrl-C ends the answer, exit code 130', async () => {
  const child = spawn(process.execPath, [script, 'run', realPath, '-p', 'Count.', '-n', '2000',
    '--regex', '[0-9]{3000}']);   // which does not end by itself
  let err = '';
  child.stderr.setEncoding('utf8').on('data', data => { err += data; });
  child.stdout.once('data', () => child.kill('SIGINT'));
  assert.deepEqual(await new Promise(resolve => child.on('close', (...end) => resolve(end))), [130, null]);
  assert.match(err, /^load .* tokens\/s, seed \d+\n$/);
});

test('a failure prints one line and sets the exit code', () => {
  for (const [args, code, message] of [
    [['run', tinyPath, '-p', 'Hi', '--chat-template', '{{ x'], 1,
      /f32\.gguf: PLUMB_ERROR_TEMPLATE: tokenizer\.chat_template, line 1/],
    [['run', tinyPath, '-p', 'Hi!', '--ctx', '2', '--raw'], 1,
      new RegExp('^plumb: prompt: PLUMB_ERROR_CONTEXT: the prompt has 3 tokens, but the context holds 2; '
        + 'use --ctx to enlarge it\n$')],
    [['run', 'http://127.0.0.1:1/x.gguf', '-p', 'Hi'], 1, /http:\/\/127\.0\.0\.1:1\/x\.gguf: PLUMB_ERROR_IO: /],
    [['inspect', 'http://127.0.0.1:1/x.gguf'], 1, /^plumb: http:\/\/127\.0\.0\.1:1\/x\.gguf: PLUMB_ERROR_IO: /],
    [['tokenize', 'http://127.0.0.1:1/x.gguf', 'x'], 2,
      /x\.gguf: download it first: curl -LO 'http:\S+x\.gguf'; only run, .* and inspect take URLs and names\n$/],
    [['rm', 'foo'], 1, /^plumb: rm: there is no copy of foo\n$/],
    [['run', 'smolm2:135m', '-p', 'x'], 1,
      /^plumb: smolm2:135m: PLUMB_ERROR_ARGUMENT: no model has this name; the nearest are smollm2:135m, /],
    [['pull'], 2, /^plumb: pull: NAME is needed; see plumb pull --help\n$/],
    [['list', 'x'], 2, /^plumb: list: expected no words/],
    [['chat'], 2, /^plumb: chat: MODEL is needed; see plumb chat --help\n$/],
    [['chat', 'none\x1b.gguf'], 1, /^plumb: none\?\.gguf: PLUMB_ERROR_IO: ENOENT/],
    [['chat', tinyPath, '-p', 'x'], 2, /chat: unknown option -p/],
    [['chat', tinyPath, '--ids'], 2, /chat: unknown option --ids/],
    [['chat', tinyPath, '--temp', 'x'], 2, /chat: --temp: "x" is not a number from 0 to 1e\+06/],
  ]) {
    const { code: got, out, err } = plumb(args);
    assert.match(err, message);
    assert.match(err, /^plumb: [^\n]*\n$/);
    assert.deepEqual([out, got], ['', code]);
  }
});

test('preflight says whether a model can run, and so does its exit code', () => {
  const { code, out, err } = plumb(['preflight', realPath]);
  assert.equal(code, 0, err);
  assert.match(out, /: llama, 134\.5 M parameters, [\d.]+ MB\nmemory .* weights 96\.6, 8192 tokens of context /);
  const small = plumb(['preflight', realPath, '--ctx', '64', '--json', '--threads', '1']);
  const { supported, contextLength, threads } = JSON.parse(small.out);
  assert.deepEqual([small.code, supported, contextLength, threads], [0, true, 64, 1]);
  const none = plumb(['preflight', `${root}README.md`]);
  assert.equal(none.code, 1);
  assert.match(none.out, /\nnot supported: PLUMB_ERROR_MAGIC: /);
  const missing = plumb(['preflight', 'none.gguf']);
  assert.deepEqual([missing.code, missing.out], [1, '']);
  assert.match(missing.err, /^plumb: none\.gguf: PLUMB_ERROR_IO: [^\n]+\n$/);
});

/* ---- chat ---- */

test('terminal control sequences are escaped', () => {
  assert.equal(printable('a\x1b[2J\x07\r\x7f\x9b1mä\n\t\u{1f389}\0'), 'a␛[2J␇␍␡\\x9b1mä\n\t\u{1f389}␀');
  for (let code = 0; code < 256; code++) {
    assert.doesNotMatch(printable(String.fromCharCode(code)), /[\0-\x08\x0b-\x1f\x7f-\x9f]/);
  }
});

test('chat without a terminal answers each line and remembers the earlier ones; """ joins lines', () => {
  const input = `${question}\n\n"""What is\nmy name?"""\n/exit\n`;
  const { out: answers } = plumb(['chat', realPath, ...EXACT, '-n', '24', '--json'], input);
  const lines = answers.trimEnd().split('\n').map(JSON.parse);
  assert.equal(lines.length, 3, 'commands are obeyed at a terminal only');
  assert.equal(lines[0].stats.promptTokens, 39);
  assert.ok(lines[1].stats.reusedTokens >= 39 + lines[0].stats.tokens - 1, JSON.stringify(lines[1]));
  const { code, out } = plumb(['chat', realPath, ...EXACT, '-n', '24'], input);
  assert.equal(code, 0);
  assert.equal(out, lines.map(({ text }) => `${text}\n`).join(''));
});

test('chat without a terminal: the first answer is llama.cpp\'s; without input there is no answer', async () => {
  assert.equal(plumb(['chat', realPath, ...EXACT, '-n', '24'], question).out, `${await answerOf(chatPrompt, 24)}\n`);
  assert.deepEqual(plumb(['chat', realPath], ''), { code: 0, out: '', err: '' });
});

test('chat without a terminal: a line that fails is reported, and the next one is answered', async () => {
  const input = `${'far too long '.repeat(200)}\n${question}\n`;
  const args = ['chat', realPath, ...EXACT, '-n', '24', '--ctx', '128'];
  const answer = await answerOf(chatPrompt, 24);
  const { code, out, err } = plumb(args, input);
  assert.deepEqual([code, out], [1, `${answer}\n`]);
  assert.match(err, /^plumb: [^\n]*: PLUMB_ERROR_CONTEXT: [^\n]*\n$/);
  const json = plumb([...args, '--json'], input);
  const [first, second] = json.out.trimEnd().split('\n').map(JSON.parse);
  assert.deepEqual([json.code, json.err, first.error.code, second.text], [1, err, 'PLUMB_ERROR_CONTEXT', answer]);
});

test('with --json a failure is JSON too', () => {
  const env = { ...process.env, PLUMB_CACHE: tinyPath };   // which is not a folder
  for (const args of [
    ['run', 'none.gguf', '-p', 'x'], ['chat', 'none.gguf'], ['preflight', 'none.gguf'], ['bench', 'none.gguf'],
    ['list'],
  ]) {
    const { code, out, err } = plumb([...args, '--json'], '', env);
    const { error } = JSON.parse(out);
    assert.deepEqual([code, error.code], [1, 'PLUMB_ERROR_IO']);
    assert.match(error.message, args.length > 1 ? /ENOENT/ : /ENOTDIR/);
    assert.match(err, /^plumb: [^\n]*: PLUMB_ERROR_IO: [^\n]*\n$/);
  }
  for (const [args, code] of [
    [['run', 'none.gguf'], 2], [['bench'], 2], [['chat', '--nope'], 2], [['preflight', 'x', '--ctx', 'y'], 2],
    [['list', 'what'], 2], [['rm', 'http://127.0.0.1:1/none'], 1], [['rm'], 2],
  ]) {
    const { code: got, out, err } = plumb([...args, '--json']);
    const { error } = JSON.parse(out);
    assert.deepEqual([got, error.code, err], [code, 'PLUMB_ERROR_ARGUMENT', `plumb: ${error.message}\n`]);
  }
});

test('chat without a terminal: Ctrl-C exits while it waits for a line', async () => {
  const child = spawn(process.execPath, [script, 'chat', realPath, ...EXACT, '-n', '4']);
  child.stdin.write('Hello\n');   // and standard input stays open
  let out = '';
  child.stdout.setEncoding('utf8').on('data', data => {
    out += data;
    if (data.endsWith('\n')) setTimeout(() => child.kill('SIGINT'), 200);   // by then it waits
  });
  const late = setTimeout(() => child.kill('SIGKILL'), 20000);
  assert.deepEqual(await new Promise(resolve => child.on('close', (...end) => resolve(end))), [130, null], out);
  clearTimeout(late);
});

/** The command line in a terminal that plays the steps [expected, answer]: arguments of python3. */
const terminal = (steps, args) =>
  [`${root}tests/node/terminal.py`, JSON.stringify(steps), process.execPath, script, ...args];
/** Plays the steps in a terminal. */
function play(steps, args, env = {}) {
  const { stdout, stderr } = spawnSync('python3', terminal(steps, args),
    { encoding: 'utf8', env: { ...process.env, TERM: 'xterm', XDG_STATE_HOME: folder, NO_COLOR: '', ...env } });
  assert.ok(stdout, stderr);
  const { screen, code, left } = JSON.parse(stdout);
  assert.deepEqual(left, [], `steps that never came; the screen was\n${screen}`);
  return { code, screen };
}
const CHAT = ['chat', realPath, ...EXACT];

test('chat in a terminal: Ctrl-C stops an answer, the next question is answered, Ctrl-D exits', () => {
  const { code, screen } = play([['> ', 'Write a long story about the sea.\r'], ['The sea', '\x03'],
    [', stopped', `${question}\r`], [' tokens/s', '\x03'], ['press Ctrl-C again to exit', '\x04']], CHAT);
  assert.equal(code, 0);
  assert.match(screen, /\x1b\[2m\d+ tokens, [\d.]+ tokens\/s, stopped/);
  assert.match(screen, /gravity.*Ctrl-C again/is);
});

test('chat in a terminal: Ctrl-C twice at an empty prompt exits; NO_COLOR turns colours off', () => {
  const { code, screen } = play([['> ', 'abandoned\x03'], ['> ', '\x03'], ['Ctrl-C again', '\x03']], CHAT,
    { NO_COLOR: '1' });
  assert.equal(code, 0);
  assert.doesNotMatch(screen, /\x1b\[[\d;]*m/);
  assert.doesNotMatch(screen, /tokens\/s/);
});

test('chat in a terminal: the history is kept between sessions, readable by its owner only', () => {
  const state = mkdtempSync(join(folder, 'state-'));
  play([['> ', '/set temperature 0.25\r'], ['temperature 0.25', '\x04']], CHAT, { XDG_STATE_HOME: state });
  assert.equal(statSync(join(state, 'plumb/chat-history')).mode & 0o777, 0o600);
  play([['> ', '\x1b[A'], ['/set temperature 0.25', '\r'], ['temperature 0.25\x1b[0m', '\x04']], CHAT,
    { XDG_STATE_HOME: state });
});

test('chat in a terminal: the commands work', () => {
  const file = join(folder, 'chat.json'), other = join(folder, 'other.json');
  writeFileSync(other, 'precious');
  const hostile = join(folder, 'hostile.json');
  writeFileSync(hostile, JSON.stringify([{ role: 'user', content: 'x\x1b]0;owned\x07\r/save y\ny' }]));
  const steps = [
    ['> ', '/system Answer briefly.\r'], ['started a new chat', 'Say \\\r'], ['… ', 'hello.\r'],
    ['tokens/s', '/again\r'], ['tokens/s', '/edit\r'], ['Say ⏎hello.', '\x15Say bye.\r'],
    ['tokens/s', `/save ${file}\r`],
    ['saved 3 messages to', `/save ${file}\r`], ['saved 3 messages to', `/save ${other}\r`], ['EEXIST', '/new\r'],
    ['started a new chat', `/load ${file}\r`], ['3 messages; type', '/stats\r'], ['3 messages', `/load ${other}\r`],
    [`/load: ${other} is not a chat: it is not JSON`, '/set -n 9\r'], ['maxTokens 9', '/set top-k 1e9\r'],
    ['is not an integer', '/nonsense\r'],
    ['is not a command; /help lists', '/hel\t'], ['/help', '\r'],
    ['/exit    ', `/load ${hostile}\r`], ['1 message;', '/edit\r'], ['␛]0;owned␇␍/save y⏎y', '\x03'],
    ['> ', '\x1b[200~one\ntwo\x1b[201~\r'], ['tokens/s', '/exit\r'],
  ];
  const { code, screen } = play(steps, [...CHAT, '-n', '8']);
  assert.equal(code, 0);
  const { messages } = JSON.parse(readFileSync(file, 'utf8'));
  assert.deepEqual(messages.map(({ role }) => role), ['system', 'user', 'assistant']);
  assert.deepEqual(messages.slice(0, 2).map(({ content }) => content), ['Answer briefly.', 'Say bye.']);
  assert.equal(readFileSync(other, 'utf8'), 'precious');
  assert.doesNotMatch(screen, /\x1b\]0/);
  assert.ok(!existsSync('y'));
  const help = screen.match(/ {2}\/again .*? stops an answer\./s)?.[0].split('\r\n') ?? [];
  assert.ok(help.length > 10);
  assert.deepEqual(help.filter(line => line.length > 80), []);
});

test('chat in a terminal: /new, /system and /load lose nothing, and /back returns; a file belongs to its chat', () => {
  const file = join(folder, 'one.json');
  const { code } = play([
    ['> ', '/back\r'], ['there is no other chat', 'One.\r'], ['tokens/s', `/save ${file}\r`],
    ['saved 2 messages to', '/new\r'], ['started a new chat; /back returns to the previous one', 'Two.\r'],
    ['tokens/s', `/save ${file}\r`], ['EEXIST', '/system Three.\r'],
    ['system: Three.; started a new chat; /back returns to the previous one', '/back\r'],
    ['user: Two.', ''], ['2 messages; type a message to continue; /back returns to the previous one', 'More.\r'],
    ['tokens/s', `/load ${file}\r`], ['user: One.', ''],
    ['2 messages; type a message to continue; /back returns', '/back\r'], ['user: Two.', ''],
    ['user: More.', ''], ['4 messages; type a message', '/back\r'],
    ['user: One.', `/save ${file}\r`], ['saved 2 messages to', '/exit\r'],
  ], [...CHAT, '-n', '3']);
  assert.equal(code, 0);
  assert.equal(JSON.parse(readFileSync(file, 'utf8')).messages[0].content, 'One.');
});

test('in a terminal a load of more than a second shows its progress in a line that is erased afterwards', async t => {
  const PIECES = 16;
  const url = await server(t, async (_, response) => {
    response.writeHead(200, { 'Content-Length': tiny.length });
    for (let i = 0; i < PIECES; i++) {
      response.write(tiny.subarray(i * tiny.length / PIECES, (i + 1) * tiny.length / PIECES));
      await new Promise(resolve => setTimeout(resolve, 200));
    }
    response.end();
  });
  const args = ['run', `${url}m.gguf`, '-p', 'x', '--raw', '-n', '3', '--temp', '0'];
  const child = spawn('python3', terminal([], args), { env: { ...process.env, TERM: 'xterm' } });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', data => { out += data; });
  await new Promise(resolve => child.on('close', resolve));
  const { screen, code } = JSON.parse(out);
  assert.equal(code, 0, screen);
  const [before, ...lines] = screen.split('\r\x1b[K'), after = lines.pop();
  assert.equal(before, '');
  const full = lines.filter(line => line.startsWith('downloading')).map(line => {
    assert.match(line, /^downloading █*░* 0 of 0 MB, 0 MB\/s(, \d+ s left)?$/);
    assert.equal(line.replace(/[^█░]/g, '').length, 20);
    return line.replace(/[^█]/g, '').length;
  });
  assert.ok(full.length >= 3 && full[0] < full.at(-1), screen);
  assert.ok(full.every((n, i) => n >= (full[i - 1] ?? 0)), screen);
  assert.equal(after.split('load ')[0].replaceAll('\r\n', '\n'),
    printable(plumb(['run', tinyPath, ...args.slice(2)]).out));
});

test('escape sequences in the output of a model do not reach the terminal', () => {
  const wild = ['-n', '400', '--temp', '1000', '--top-k', '0', '--top-p', '1', '--min-p', '0', '--seed', '1'];
  const args = ['run', tinyPath, '-p', 'x', '--raw', ...wild];
  const said = plumb(args).out;
  assert.match(said, /\x1b/, 'or this is no test');
  const { screen } = play([], args);
  const end = screen.lastIndexOf('load ');
  assert.equal(screen.slice(0, end).replaceAll('\r\n', '\n'), printable(said));
  // The same bytes in a chat: the file with a template in it.
  const path = join(folder, 'tiny-chat.gguf');
  writeFileSync(path, withTemplate(tiny, '{% for m in messages %}{{ m.content }}{% endfor %}'));
  const seeded = ['chat', path, ...wild];
  assert.match(plumb(seeded, 'x').out, /\x1b/, 'or this is no test');
  const chat = play([['> ', 'x\r'], ['tokens/s', '\x04']], seeded, { NO_COLOR: '1' }).screen;
  const answer = chat.slice(chat.indexOf('x\r\r\n') + 4, chat.lastIndexOf(' tokens, '));
  assert.ok(answer.length > 300);
  assert.doesNotMatch(answer.replaceAll('\r\n', ''), /[\0-\x08\x0b-\x1f\x7f-\x9f]/);
});
