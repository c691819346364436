#!/usr/bin/env node
/* The command line in Node.  `run` and `bench` use the package's own engine (run-command.js); `chat` is in
 * chat-command.js; `pull`, `list`, `rm` and `preflight` are in model-commands.js.  All other commands are the C program
 * (src/cli/main.c): the same module that wasmtime runs, on wasi.js.  In the C program, Ctrl-C ends the process at
 * once, as the system does by default. */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PlumbError } from '../base/errors.js';
import { run } from '../command/wasi.js';
import { NAMES } from '../loader/names.js';
import { isRemote } from '../loader/resolve.js';
import { files } from '../node/wasi-files.js';
import { CommandError, inC, nameIn, nearest, parse } from './arguments.js';
import { C_COMMANDS } from './names.js';
import { printError, report, watchOutput } from './terminal.js';

/** What --help prints after the C program's help. @type {Record<string, string>} */
const NOTES = {
  '': `
In Node there are these commands too:

  plumb serve [MODEL...]   answers requests on a port, as OpenAI's service does
  plumb preflight MODEL    prints, from the header alone, whether the model can
                           run, how much memory it needs and how fast it is
  plumb pull NAME          downloads a model, such as smollm2:135m
  plumb list               lists the models that are on this machine
  plumb rm NAME            removes one of them
  plumb ps                 lists the models that plumb serve has loaded

MODEL of run, bench, chat, preflight and inspect can be a URL or the name of a
model, as in pull. With --json the commands run, chat, pull, list, rm and
preflight also print an error as JSON, on standard output: {"error": {"code",
"message"}}. So does bench, unless an option selects what only the native
program has, such as --batch.
`,
  run: `
In Node MODEL can be a URL or a name, as in plumb pull. The command runs the
package's fastest module with threads. With these options it runs the C program
on one thread:
${inC('run').join(' ')}
`,
  inspect: `
In Node MODEL can be a URL or a name, as in plumb pull. Only the header of its
file is fetched.
`,
  bench: `
In Node MODEL can be a URL or a name, as in plumb pull, and the JSON also
contains the module's name. The command runs the package's fastest module with
threads. With --batch, --reference, --scalar it runs the C program on one
thread.
`,
};

/** The short names in columns. */
function named() {
  const rows = Math.ceil(NAMES.length / 3);
  return Array.from({ length: rows }, (_, row) => [0, 1, 2].map(column => NAMES[row + column * rows]?.name ?? '')
    .map(name => name.padEnd(26)).join('').trimEnd()).map(line => `  ${line}`).join('\n');
}

/** The whole help of the commands that the C program does not have. @type {Record<string, string>} */
const USAGE = {
  pull: `pull NAME... [--json]

Downloads models, without running them. The next command that names one finds
it on this machine. NAME is

  hf:org/repo              a repository on the hub of Hugging Face: the best
                           file that fits into the memory of this machine
  hf:org/repo:Q4_K_M       its file of this type
  hf:org/repo:file.gguf    this file; a split file is all of its parts
  hf:org/repo@main:...     in this branch or commit
  https://...              a URL
  smollm2:135m             a short name, also with a type: smollm2:135m-q8_0

$HF_TOKEN is sent to the hub, for gated and private models. $HF_ENDPOINT is the
URL of another hub. The short names are

${named()}`,
  list: `list [--json]

Lists the models that are on this machine, the most recently used first. They
are stored in $PLUMB_CACHE, or else in the folder plumb of $XDG_CACHE_HOME or
~/.cache. If they would take more than $PLUMB_CACHE_SIZE, such as 20G, a
download removes those that were not used for longest.`,
  rm: `rm NAME... [--json]

Removes models from this machine. NAME is a name as in plumb list or plumb pull.`,
  ps: `ps [--host NAME] [--port N] [--api-key KEY] [--json]

Lists the models that plumb serve has loaded, with their memory and context.`,
  preflight: `preflight MODEL [options]

Prints, from the header alone, whether a model can run here, how much memory it
needs and how fast it is. The options are --json, and --ctx, --threads,
--precision and --kv-type as in plumb run.

Exit codes: 0 the model can run, 1 it cannot run or an error occurred.`,
};

/** The commands that are written in JavaScript.
 * @type {Record<string, (...args: [string[], Record<string, any>]) => Promise<number>>} */
const COMMANDS = {
  run: async (files, values) => {
    const prompt = await (await import('./input.js')).promptOf(files, values), all = { ...values, prompt };
    if (prompt === undefined || values.interactive) return COMMANDS.chat(files, all);
    return (await import('./run-command.js')).run(files, all);
  },
  bench: async (...args) => (await import('./run-command.js')).bench(...args),
  serve: async (...args) => (await import('./serve-command.js')).serve(...args),
  ps: async (...args) => (await import('./serve-command.js')).ps(...args),
  chat: async (...args) => (await import('./chat-command.js')).chat(...args),
  pull: async (...args) => (await import('./model-commands.js')).pull(...args),
  list: async (...args) => (await import('./model-commands.js')).list(...args),
  rm: async (...args) => (await import('./model-commands.js')).rm(...args),
  preflight: async (...args) => (await import('./model-commands.js')).preflight(...args),
};

/** Runs the C program. @param {string[]} args @returns {number} its exit code */
function runInC(args) {
  const file = fileURLToPath(new URL('../dist/plumb-cli.wasm', import.meta.url));
  if (existsSync(file)) return run(new WebAssembly.Module(readFileSync(file)), args, process.cwd(), files);
  throw new PlumbError('PLUMB_ERROR_IO', 'no such file; in a checkout `make wasm` builds it', { path: file });
}

/** @param {string} name  of a command; '' for the help of all @returns {Promise<number>} the exit code */
async function help(name) {
  watchOutput(() => {});
  if (name === 'chat') process.stdout.write((await import('./chat-command.js')).HELP);
  else if (name === 'serve') process.stdout.write((await import('./serve-command.js')).HELP);
  else if (Object.hasOwn(USAGE, name)) process.stdout.write(`usage: plumb ${USAGE[name]}\n`);
  else runInC(name ? ['help', name] : ['help']);
  if (Object.hasOwn(NOTES, name)) process.stdout.write(NOTES[name]);
  return 0;
}

/** @param {string[]} args @returns {Promise<number>} the exit code */
async function main([name, ...words]) {
  if (name === 'help' && words.length === 0 || name === '--help' || name === '-h') return help('');
  if (name === 'help' && Object.hasOwn(COMMANDS, words[0])) return help(words[0]);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  const isInC = words.some(word => inC(name).includes(nameIn(word)));
  // The C program reads only files.
  const url = (name === 'inspect' ? words : words.slice(0, 1)).find(word => isRemote(word, { exists: existsSync }));
  if (name === 'inspect' && url) return (await import('./model-commands.js')).inspect(words);
  if (!command && url) {
    const how = /^https?:/i.test(url) ? `download it first: curl -LO '${url}'` : 'download it first';
    throw new CommandError(`${name}: ${url}: ${how}; only run, bench, chat, preflight and inspect take URLs and names`);
  }
  if (!command && name !== undefined && !name.startsWith('-') && name !== 'help' && !C_COMMANDS.includes(name)) {
    throw new CommandError(`unknown command ${name}${nearest(name, [...Object.keys(COMMANDS), ...C_COMMANDS])}; see `
      + 'plumb --help');
  }
  if (!command || isInC) return runInC(name === undefined ? [] : [name, ...words]);
  const parsed = parse(name, words, printError);
  return parsed ? command(parsed.files, parsed.values) : help(name);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.exitCode = report(error, '', process.argv.includes('--json'));
}
