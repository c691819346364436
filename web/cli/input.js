/* What the commands read: files, standard input, and the prompt of run. */
import { fstatSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { CommandError } from './arguments.js';
import { printError, readInput } from './terminal.js';

/** @param {string} where @param {string} code @param {unknown} why */
export const failure = (where, code, why) =>
  new CommandError(`${where}: ${code}: ${why instanceof Error ? why.message : why}`, 1);

/** @param {string} path  - is standard input */
export const fileText = path => path === '-' ? readInput() : readFile(path, 'utf8').catch(error => {
  throw failure(path, 'PLUMB_ERROR_IO', error);
});

/** The template of --chat-template or --chat-template-file.
 * @param {string} command @param {Record<string, any>} values */
export async function templateOf(command, { chatTemplate: given, templateFile: file }) {
  if (given !== undefined && file !== undefined) {
    throw new CommandError(`${command}: --chat-template and --chat-template-file exclude each other; see plumb ${
      command} --help`);
  }
  return file !== undefined ? fileText(file)
    : given === undefined || given === 'chatml' || /\{[{%]/.test(given) ? given : fileText(given);
}

/** Says which option of run a chat cannot have; undefined if none is given. @param {Record<string, any>} values */
function notOfChat(values) {
  const { raw, grammarFile, gbnf, jsonSchema, regex, tools } = values;
  const what = raw ? '--raw' : (grammarFile ?? gbnf ?? jsonSchema ?? regex) !== undefined ? 'a grammar or schema'
    : tools !== undefined && '--tools';
  return what ? `a chat cannot be combined with ${what}` : undefined;
}

/** Whether a path is standard input: "-", or the same pipe or file. @param {string} path */
function isStandardInput(path) {
  if (path === '-') return true;
  try {
    const { dev, ino } = statSync(path), input = fstatSync(0);
    return ino === input.ino && dev === input.dev;
  } catch {
    return false;   // there is no such file
  }
}

/** Whether standard input has been piped in: it is a pipe or a file. */
function isPiped() {
  try {
    const input = fstatSync(0);
    return input.isFIFO() || input.isFile();
  } catch {
    return false;   // it is closed
  }
}

/** The whole prompt: that of the words or -p, with --file or standard input before it, as src/cli/model.c has it;
 * undefined: a chat is to begin. @param {string[]} files @param {Record<string, any>} values */
export async function promptOf(files, values) {
  if (files.length === 0) throw new CommandError('run: MODEL is needed; see plumb run --help');
  const usage = (/** @type {string} */ text) => new CommandError(`run: ${text}; see plumb run --help`);
  const { grammarFile, jsonSchema, tools, templateFile, chatTemplate, given: adapters = [], interactive } = values;
  const given = values.prompt === '-' ? undefined : values.prompt;
  const isDash = values.prompt === '-' && values.input === undefined;
  const inputs = [grammarFile, jsonSchema, isDash ? '-' : undefined, tools, values.input];
  if (inputs.filter(input => input === '-').length > 1) throw usage('only one input can be - (standard input)');
  for (const needs of ['system', 'tools']) {
    if (!values.raw || values[needs] === undefined) continue;
    throw usage(`--${needs} needs the chat template, which --raw omits`);
  }
  const wrong = notOfChat(values), isTerminal = Boolean(process.stdin.isTTY && process.stdout.isTTY);
  if (interactive && wrong) throw usage(wrong);
  const others = [grammarFile, jsonSchema, tools, templateFile, chatTemplate, ...files,
    ...adapters.map((/** @type {any} */ { source }) => source)].filter(path => path !== undefined);
  let path = values.input ?? (isDash ? '-' : undefined);
  const mayRead = path === undefined && !interactive && (given === undefined ? !process.stdin.isTTY : isPiped());
  if (mayRead && !others.some(isStandardInput)) path = '-';
  const late = path === '-' && given !== undefined && !process.stdin.isTTY ? setTimeout(() => printError('waiting for '
    + 'standard input, which comes before the prompt; add < /dev/null if there is none'), 1000) : undefined;
  const input = path === undefined ? '' : (await fileText(path)).replace(/\n$/, '');
  clearTimeout(late);
  const prompt = given === undefined ? (input || isDash || values.input !== undefined ? input : undefined)
    : input ? `${input}\n\n${given}` : given;
  if (prompt === undefined && !interactive && (!isTerminal || wrong)) {
    throw usage('a prompt is needed, as words after MODEL, with -p TEXT or through a pipe');
  }
  if (!values.raw && prompt?.includes('\0')) {
    throw new CommandError('run: a chat message cannot contain a zero byte; see --help');
  }
  return prompt;
}
