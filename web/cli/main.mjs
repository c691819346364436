#!/usr/bin/env node
/* The command line in Node.  `run` and `bench` use the package's own engine (run-command.js); `chat` is in
 * chat-command.js, `cache` and `preflight` are in model-commands.js.  All other commands are the C program
 * (src/cli/main.c): the same module that wasmtime runs, on wasi.js.  In the C program, Ctrl-C ends the process at
 * once, as the system does by default. */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PlumbError } from '../base/errors.js';
import { run } from '../command/wasi.js';
import { files } from '../node/wasi-files.js';
import { parse, Refusal } from './arguments.js';
import { report, watchOutput } from './terminal.js';

/** Flags of run and bench that only the C program has.  With one of them, the C program runs the whole command. */
const IN_C = ['--ids', '--batch', '--reference', '--scalar'];

/** What --help prints after the C program's help. @type {Record<string, string>} */
const NOTES = {
  '': `
In Node there are also

  plumb chat MODEL         talks with a model in the terminal
  plumb preflight MODEL    tells from the header whether it can run, in what
                           memory and how fast
  plumb cache              lists the copies of URLs, with their sizes
  plumb cache remove URL   removes one

and MODEL of run, bench, chat, preflight and inspect may be a URL. With --json a
failure of these is JSON too, on standard output:
{"error": {"code", "message"}}.
`,
  run: `
In Node also
  --json                print one JSON object: text, finishReason, stats,
                        module, threads, seed
MODEL may be a URL. The package's fastest module computes, with threads; with
${IN_C.join(', ')} the C program does, with one thread.
`,
  inspect: `
In Node MODEL may be a URL: no more of it is fetched than the header takes.
`,
  bench: `
In Node MODEL may be a URL, and JSON has the module's name too. The package's
fastest module computes, with threads; with --batch, --reference, --scalar the C
program does, with one thread.
`,
};

/** The whole help of the commands that the C program does not have. @type {Record<string, string>} */
const USAGE = {
  cache: `cache [remove URL] [--json]

Lists the copies of URLs, or removes one. They lie in $PLUMB_CACHE, or else in
plumb in $XDG_CACHE_HOME or ~/.cache.`,
  preflight: `preflight MODEL [options]

Its options are --json and run's --ctx, --threads, --precision and --kv-type.
Exit codes: 0 it can run, 1 it cannot, or failed.`,
};

/** The commands that are written in JavaScript.
 * @type {Record<string, (...args: [string[], Record<string, any>]) => Promise<number>>} */
const COMMANDS = {
  run: async (...args) => (await import('./run-command.js')).run(...args),
  bench: async (...args) => (await import('./run-command.js')).bench(...args),
  chat: async (...args) => (await import('./chat-command.js')).chat(...args),
  cache: async (...args) => (await import('./model-commands.js')).cache(...args),
  preflight: async (...args) => (await import('./model-commands.js')).preflight(...args),
};

/** Runs the C program. @param {string[]} args @returns {number} its exit code */
function inC(args) {
  const file = fileURLToPath(new URL('../dist/plumb-cli.wasm', import.meta.url));
  if (existsSync(file)) return run(new WebAssembly.Module(readFileSync(file)), args, process.cwd(), files);
  throw new PlumbError('PLUMB_ERROR_IO', 'it is not there; in a checkout `make wasm` builds it', { path: file });
}

/** @param {string} name  of a command; '' for the help of all @returns {Promise<number>} the exit code */
async function help(name) {
  watchOutput(() => {});
  if (name === 'chat') process.stdout.write((await import('./chat-command.js')).HELP);
  else if (name in USAGE) process.stdout.write(`usage: plumb ${USAGE[name]}\n`);
  else inC(name ? ['help', name] : ['help']);
  process.stdout.write(NOTES[name] ?? '');
  return 0;
}

/** @param {string[]} args @returns {Promise<number>} the exit code */
async function main([name, ...words]) {
  if (name === 'help' && words.length === 0 || name === '--help' || name === '-h') return help('');
  if (name === 'help' && words[0] in COMMANDS) return help(words[0]);
  const command = COMMANDS[name];
  const isInC = name !== 'chat' && words.some(word => IN_C.includes(word.replace(/=.*/s, '')));
  // The C program reads only files.
  const url = (name === 'inspect' ? words : words.slice(0, 1)).find(word => /^https?:\/\//i.test(word));
  if (name === 'inspect' && url) return (await import('./model-commands.js')).inspect(words);
  if (!command && url) {
    throw new Refusal(`${name}: ${url}: download it first; run, bench, chat, preflight and inspect take URLs`);
  }
  if (!command || isInC) return inC(name === undefined ? [] : [name, ...words]);
  const parsed = parse(name, words);
  return parsed ? command(parsed.files, parsed.values) : help(name);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.exitCode = report(error, '', process.argv.includes('--json'));
}
