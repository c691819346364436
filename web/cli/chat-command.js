/* plumb chat: a conversation in the terminal.  Without a terminal, it answers each line of standard input.
 *
 * Input reads messages and keeps a history of lines; ChatSession holds the chat and its commands; chat() joins them. */
import { appendFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { PlumbError, reasonOf } from '../base/errors.js';
import { PARAMETERS } from '../base/parameters.js';
import { ADAPTERS, CommandError, DRAFTS, LOAD, pick, SAMPLING, valueOf } from './arguments.js';
import { interruptible, load, noteTemplate } from './run-command.js';
import { jsonLine, printable, printError, report, shown, styled, watchOutput } from './terminal.js';

/** The names of options, in lines of at most 80 columns. */
const AS_IN_RUN = [...PARAMETERS.map(({ option }) => option),
  ...[...LOAD, ...DRAFTS, ...ADAPTERS].map(({ name }) => name), '--stop', '--chat-template', '--chat-template-file',
  '--model', '-hf'].join(', ')
  .concat('   as in plumb run; see plumb run --help').replace(/(.{1,78})(?: |$)/g, '  $1\n');
export const HELP = `usage: plumb chat MODEL [options]

Starts a chat with a model. MODEL is a GGUF file or a URL. Each line is one
message. For a message of several lines, end each line but the last with a
backslash, or put """ before and after the message. Ctrl-C stops an answer, and
Ctrl-D exits. /help lists the commands, and Tab completes their names. The lines
that you type are saved in plumb/chat-history in $XDG_STATE_HOME or
~/.local/state. When the context is full, the oldest turns are left out, or with
--shift tokens are dropped as in plumb run.

If standard input is not a terminal, each of its lines is a message, even if it
starts with a slash.

  --system TEXT         start the chat with this system message
  --json                print one line of JSON for each answer: text,
                        finishReason, stats, module, threads, seed
  -n N                  generate at most N tokens for each answer (until the
                        context is full)
  --seed N              the same seed gives the same answers (a random one)
  --shift N             when the context is full, keep its first N tokens, drop
                        the older half of the others, and go on
  --help                this text
${AS_IN_RUN}
Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
`;

const COMMANDS = `  /again            answers the last question again
  /edit             lets you change the last question
  /new              starts a new chat with the same system message
  /system [TEXT]    shows the system message, or starts a new chat with TEXT
  /set [NAME X]     shows the sampling options, or sets one: /set temp 0.5
  /stats            shows speeds, memory, and how full the context is
  /save FILE        writes the chat as JSON
  /load FILE        continues a saved chat
  /back             returns to the chat before /new, /system or /load
  /exit             exits, as Ctrl-D does
For a message of several lines, end each line but the last with a backslash, or
put """ before and after the message. To send a message that starts with a
slash, type // instead. Ctrl-C stops an answer.
`;
const NAMES = [...COMMANDS.matchAll(/^ {2}(\/\w+)/gm)].map(([, name]) => name).concat('/help');

const HISTORY_LINES = 1000;
/** Upper bound on the bytes of a chat that /load reads. */
const MAX_CHAT_BYTES = 16 << 20;
/** Replaces newlines in a question that is being edited, because the terminal edits a single line. */
const LINE_END = '\u23ce';
const PASTE_MARKS = ['\x1b[?2004h', '\x1b[?2004l'];

/** The path of the history file. */
const historyPath = () =>
  join(process.env.XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'plumb', 'chat-history');

/** Reads messages that are typed or piped. */
class Input {
  /** Messages that are not yet taken; null: the end. @type {(string | null)[]} */
  #ready = [];
  #wake = () => {};
  /** Lines of a message that is not complete. @type {string[]} */
  #lines = [];
  #isQuoted = false;
  #isPasting = false;
  #isMuted = true;
  #lastInterrupt = '';
  #rl;

  /** @param {boolean} isTerminal @param {() => void} interrupt  called on Ctrl-C during an answer */
  constructor(isTerminal, interrupt) {
    this.isTerminal = isTerminal;
    // Text typed during an answer is not shown until the next prompt.
    const screen = new Writable({
      write: (chunk, _, done) => void (this.#isMuted ? done() : process.stdout.write(chunk, done)),
    });
    Object.defineProperty(screen, 'columns', { get: () => process.stdout.columns });
    process.stdout.on('resize', () => screen.emit('resize'));
    this.#rl = createInterface({
      input: process.stdin, terminal: isTerminal, ...isTerminal && {
        output: screen, history: readHistory(), historySize: HISTORY_LINES, removeHistoryDuplicates: true,
        completer: complete,
      },
    });
    this.#rl.on('line', line => this.#addLine(line));
    this.#rl.on('close', () => {
      if (this.#lines.length > 0 && !isTerminal) this.#finish();
      this.#push(null);
      if (!this.#isMuted) process.stdout.write('\n');
      else interrupt();
    });
    if (!isTerminal) return;
    process.stdout.write(PASTE_MARKS[0]);
    process.on('exit', () => process.stdout.write(PASTE_MARKS[1]));
    process.stdin.on('keypress', (_, key) => {
      if (key?.name === 'paste-start') this.#isPasting = true;
      if (key?.name === 'paste-end') this.#isPasting = false;
    });
    this.#rl.on('SIGINT', () => this.#isMuted ? interrupt() : this.#interrupt());
  }

  /** Returns the next message; null at the end. @param {string} [text]  text put into the line for editing
   * @returns {Promise<string | null>} */
  async next(text = '') {
    const isAhead = this.#ready.length > 0;
    if (!isAhead && this.isTerminal) {
      this.#isMuted = false;
      this.#rl.setPrompt(this.#prompt);
      this.#rl.prompt(true);
      if (text) this.#rl.write(text);
    }
    while (this.#ready.length === 0) await new Promise(resolve => { this.#wake = () => resolve(undefined); });
    const message = /** @type {string | null} */ (this.#ready.shift());
    if (isAhead && this.isTerminal && message !== null) {
      process.stdout.write(`${this.#prompt}${printable(message)}\n`);
    }
    this.#isMuted = true;
    return message;
  }

  close() { this.#rl.close(); }

  get #prompt() { return styled('1;36', this.#lines.length > 0 ? '\u2026 ' : '> '); }

  /** @param {string | null} message */
  #push(message) {
    this.#ready.push(message);
    this.#wake();
  }

  /** @param {string} line */
  #addLine(line) {
    this.#lastInterrupt = '';
    if (this.isTerminal) addToHistory(line);
    const isFirst = this.#lines.length === 0;
    if (isFirst && !this.#isPasting && line.startsWith('"""')) {
      this.#isQuoted = true;
      line = line.slice(3);
    }
    const continues = this.#isPasting || (this.#isQuoted ? !line.endsWith('"""') : line.endsWith('\\'));
    if (this.#isQuoted && !continues) line = line.slice(0, -3);
    else if (!this.#isQuoted && !this.#isPasting && continues) line = line.slice(0, -1);
    this.#lines.push(line);
    if (!continues) return this.#finish();
    if (this.isTerminal && !this.#isPasting) {
      this.#rl.setPrompt(this.#prompt);
      this.#rl.prompt();
    }
  }

  #finish() {
    const message = this.#lines.splice(0).join('\n').replace(/^\n|\n$/g, this.#isQuoted ? '' : '$&');
    this.#isQuoted = false;
    this.#push(message);
  }

  /** Handles Ctrl-C at a prompt: it drops what was typed and gives an empty message.  If nothing was typed, it explains
   * how to leave, and the next Ctrl-C leaves. */
  #interrupt() {
    const isEmpty = this.#rl.line === '' && this.#lines.length === 0;
    if (isEmpty && this.#lastInterrupt === 'empty') {
      this.#rl.close();
      return;
    }
    this.#lastInterrupt = isEmpty ? 'empty' : 'line';
    this.#lines = [];
    this.#isQuoted = this.#isPasting = false;
    process.stdout.write(`\n${isEmpty ? styled('2', 'press Ctrl-C again to exit, or use Ctrl-D or /exit\n') : ''}`);
    this.#isMuted = true;
    for (const name of ['e', 'u']) this.#rl.write(null, { ctrl: true, name });
    this.#push('');
  }
}

/** Returns the history, newest line first. @returns {string[]} */
function readHistory() {
  try {
    return readFileSync(historyPath(), 'utf8').split('\n').filter(Boolean).slice(-HISTORY_LINES).reverse();
  } catch {
    return [];   // there is no history yet
  }
}

/** @param {unknown[]} messages */
const countOf = messages => messages.length === 1 ? '1 message' : `${messages.length} messages`;

/** Completes the names of commands on Tab. @param {string} line @returns {[string[], string]} */
const complete = line => [line.startsWith('/') ? NAMES.filter(name => name.startsWith(line)) : [], line];

let isHistoryWritable = true;
/** Adds a line to the history, which only the user may read. @param {string} line */
function addToHistory(line) {
  if (!isHistoryWritable || line.trim() === '') return;
  try {
    mkdirSync(join(historyPath(), '..'), { recursive: true, mode: 0o700 });
    appendFileSync(historyPath(), `${line}\n`, { mode: 0o600 });
  } catch (error) {
    isHistoryWritable = false;
    printError(`the history cannot be saved: ${reasonOf(error)}`);
  }
}

/** A chat and its commands. */
class ChatSession {
  /** The file that the chat was saved to or loaded from.  Only this file may be overwritten. */
  #file = '';
  #trimmed = 0;
  /** Chats that were replaced.  /back takes the one at the end, and puts the current chat at the front.
   * @type {{chat: import('../api/chat.js').Chat, file: string}[]} */
  #replaced = [];
  /** @type {AbortController | undefined} */
  #running;
  /** The question that the next message replaces. @type {{index: number, text: string} | undefined} */
  editing;

  /** @param {import('../api/plumb.js').Model} model @param {Record<string, any>} values @param {string} name */
  constructor(model, values, name) {
    this.model = model;
    this.name = name;
    /** The sampling options. @type {Record<string, any>} */
    this.sampling = pick(values, SAMPLING);
    this.contextEnd = values.sinks === undefined ? { contextEnd: /** @type {const} */ ('trim') }
      : { contextEnd: /** @type {const} */ ('shift'), sinks: values.sinks };
    this.chat = this.#newChat(values.system);
  }

  /** @param {string | undefined} system @param {import('../api/plumb.js').Message[]} [messages] */
  #newChat(system, messages) { return this.model.chat({ system, messages, ...this.contextEnd }); }

  /** The chat as a list to push; empty if no question was asked in it. */
  get #current() { return this.#lastQuestion < 0 ? [] : [{ chat: this.chat, file: this.#file }]; }

  /** Makes a chat the current one. @param {import('../api/chat.js').Chat} chat @param {string} file  its file, or '' */
  #enter(chat, file) {
    this.chat = chat;
    this.#file = file;
    this.#trimmed = chat.trimmed;
  }

  /** Makes another chat the current one, and keeps this one for /back.
   * @param {import('../api/chat.js').Chat} chat @param {string} [file] */
  #replace(chat, file = '') {
    this.#replaced.push(...this.#current);
    this.#enter(chat, file);
  }

  /** Says that a chat began, and how to return to the one before. @param {string} text */
  #reportNewChat(text) {
    this.#print(`${text}${this.#replaced.length > 0 ? '; /back returns to the previous one' : ''}`);
  }

  /** Shows the last messages of a chat that continues. */
  #printLastMessages() {
    const { messages } = this.chat;
    for (const { role, content } of messages.slice(-4)) this.#print(printable(`${role}: ${content}`));
    this.#reportNewChat(`${countOf(messages)}; type a message to continue`);
  }

  /** @returns {string | undefined} */
  get #system() {
    const [first] = this.chat.messages;
    return first?.role === 'system' ? String(first.content) : undefined;
  }

  get #lastQuestion() { return this.chat.messages.findLastIndex(({ role }) => role === 'user'); }

  /** Stops the answer; false if there is none. */
  stop() {
    this.#running?.abort();
    return this.#running !== undefined;
  }

  /** Answers a message or runs the command in it. @param {string} message */
  async handle(message) {
    const command = /^\/(?!\/)(\S*)\s*([^\n]*)$/.exec(message.trimEnd());
    const { editing } = this;
    this.editing = undefined;
    if (command) {
      const [, name, rest] = command;
      if (!Object.hasOwn(this.#commands, name)) {
        return printError(`/${name} is not a command; /help lists the commands, and // starts a message with a slash`);
      }
      await this.#commands[name](rest);
    } else if (message.trim() && editing) {
      const edited = message.replaceAll(LINE_END, '\n');
      await this.#show(options => this.chat.edit(editing.index, edited, options));
    } else if (message.trim()) {
      await this.answer(message.replace(/^\/\//, '/'));
    }
  }

  /** @param {string} message @param {(piece: string) => void} [write] */
  answer(message, write) {
    return this.#show(options => this.chat.send(message, options), write);
  }

  /** Streams an answer and says how fast it was.
   * @param {(options: import('../api/plumb.js').GenerateOptions) => AsyncGenerator<string, any>} ask
   * @param {(piece: string) => void} [write] */
  async #show(ask, write = piece => void process.stdout.write(shown(process.stdout, piece))) {
    const running = this.#running = new AbortController();
    try {
      for await (const piece of ask({ ...this.sampling, signal: running.signal })) write(piece);
    } finally {
      this.#running = undefined;
    }
    const stats = /** @type {import('../api/plumb.js').Stats} */ (this.chat.lastStats);
    if (process.stdin.isTTY && process.stdout.isTTY) {
      const end = { stop: '', length: ', cut off at the limit', abort: ', stopped' }[stats.finishReason];
      const left = this.chat.trimmed === this.#trimmed ? ''
        : `; the oldest ${this.chat.trimmed} messages no longer fit and are left out`;
      this.#trimmed = this.chat.trimmed;
      process.stdout.write(`\n${styled('2', `${stats.tokens} tokens, ${stats.decodeRate.toFixed(1)} tokens/s${end}${
        left}`)}\n\n`);
    }
    return stats;
  }

  /** @type {Record<string, (rest: string) => unknown>} */
  #commands = {
    help: () => process.stdout.write(COMMANDS),
    clear: () => this.#commands.new(''),   // as ollama calls it
    new: () => {
      this.#replace(this.#newChat(this.#system));
      this.#reportNewChat('started a new chat');
    },
    system: text => {
      if (!text) return this.#print(`system: ${printable(this.#system ?? 'none')}`);
      this.#replace(this.#newChat(text));
      this.#reportNewChat(`system: ${printable(text)}; started a new chat`);
    },
    back: () => {
      const last = this.#replaced.pop();
      if (!last) return printError('there is no other chat');
      this.#replaced.unshift(...this.#current);
      this.#enter(last.chat, last.file);
      this.#printLastMessages();
    },
    again: () => this.#show(options => this.chat.regenerate(options)),
    edit: () => {
      const index = this.#lastQuestion;
      if (index < 0) return printError('there is no question yet');
      this.editing = { index, text: printable(String(this.chat.messages[index].content))
        .replaceAll('\n', LINE_END).replaceAll('\t', ' ') };
    },
    set: rest => this.#set(rest),
    stats: () => this.#stats(),
    save: file => this.#save(file),
    load: file => this.#load(file),
  };

  /** @param {string} text */
  #print(text) { process.stdout.write(`${styled('2', text)}\n`); }

  /** @param {string} rest */
  #set(rest) {
    const [word, value] = rest.split(/\s+/), name = word.replace(/^-+/, '');
    const names = SAMPLING.map(({ key }) => key).join(', ');
    const option = SAMPLING.find(one => one.key === name || one.name.replace(/^-+/, '') === name);
    if (!name) {
      const set = Object.entries(this.sampling).filter(([, value]) => value !== undefined)
        .map(([key, value]) => `${key} ${value}`).join(', ');
      this.#print(`${set || 'all options have their defaults'}; the options are ${names}`);
    } else if (!option) {
      printError(`/set: unknown option ${name}; the options are ${names}`);
    } else {
      this.sampling[option.key] = value === undefined ? undefined : valueOf(`/set ${name}`, option, value);
      this.#print(`${option.key} ${value ?? 'has its default value'}`);
    }
  }

  async #stats() {
    const { module, threads, kernels, precision, contextLength, memoryBytes } = await this.model.info();
    const { lastStats: last, messages } = this.chat;
    this.#print(`${messages.length} messages${this.chat.trimmed ? `, the oldest ${this.chat.trimmed} left out` : ''}${
      last ? `, ${last.promptTokens + last.tokens} of ${contextLength} tokens` : `, context ${contextLength}`}`);
    if (last) {
      this.#print(`prefill ${last.prefillRate.toFixed(1)} tokens/s (${last.promptTokens} tokens, ${
        last.reusedTokens} reused), decode ${last.decodeRate.toFixed(1)} tokens/s (${last.tokens} tokens), seed ${
        last.seed}`);
    }
    this.#print(`${module}, ${threads} thread${threads === 1 ? '' : 's'}, kernels ${kernels}, ${precision}, ${
      (memoryBytes / 1e6).toFixed(0)} MB`);
  }

  /** @param {string} file */
  #save(file) {
    if (!file) return printError('/save: FILE is needed');
    const chat = { model: this.name, messages: this.chat.messages };
    // A file is overwritten only if this chat is in it.
    attempt('/save', () => writeFileSync(file, `${JSON.stringify(chat, null, 2)}\n`,
      { flag: file === this.#file ? 'w' : 'wx' }), () => {
      this.#file = file;
      this.#print(`saved ${countOf(chat.messages)} to ${printable(file)}`);
    });
  }

  /** @param {string} file */
  #load(file) {
    if (!file) return printError('/load: FILE is needed');
    attempt('/load', () => {
      if (statSync(file).size > MAX_CHAT_BYTES) {
        throw new Error(`${file} is not a chat: it has more than ${MAX_CHAT_BYTES} bytes`);
      }
      const saved = parseJson(file, readFileSync(file, 'utf8'));
      const messages = saved?.messages ?? saved;
      const isChat = Array.isArray(messages) && messages.every(message => typeof message?.content === 'string'
        && ['system', 'user', 'assistant', 'tool'].includes(message.role));
      if (!isChat) throw new Error(`${file} is not a chat: expected messages {role, content}`);
      return messages;
    }, messages => {
      this.#replace(this.#newChat(undefined, messages), file);
      this.#printLastMessages();
    });
  }
}

/** @param {string} file @param {string} text  of it */
function parseJson(file, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${file} is not a chat: it is not JSON`, { cause: error });
  }
}

/** Runs action, and then `then` with its result.  Reports the error if action fails.
 * @template T @param {string} where @param {() => T} action @param {(result: T) => void} then */
function attempt(where, action, then) {
  let result;
  try {
    result = action();
  } catch (error) {
    return printError(`${where}: ${reasonOf(error)}`);
  }
  then(result);
}

/** @param {string[]} files @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function chat(files, values) {
  const isTerminal = Boolean(process.stdin.isTTY && process.stdout.isTTY) && !values.json;
  const where = files.at(-1) ?? '';
  const stop = interruptible();
  /** @type {ChatSession | undefined} */
  let session;
  const failedOutput = watchOutput(() => {
    stop.abort();
    session?.stop();
  });
  try {
    const { model } = await load('chat', files, values, stop.signal);
    noteTemplate(model, where);
    const name = basename(where);
    const { threads, module, contextLength } = await model.info();
    stop.signal.throwIfAborted();   // Ctrl-C may have come too late to stop the load
    session = new ChatSession(model, values, name);
    const code = isTerminal ? await converse(session, `${printable(name)}, ${threads} thread${
      threads === 1 ? '' : 's'}, context ${contextLength}\n/help lists the commands, Ctrl-D exits`, values.prompt)
      : await answerLines(session, stop.signal, values.json ? { module, threads } : undefined, values.prompt);
    await model.close();
    return failedOutput() ?? code;
  } catch (error) {
    if (stop.signal.aborted) return failedOutput() ?? 130;
    return report(error, where, values.json);
  }
}

/** Converses at a terminal. @param {ChatSession} session @param {string} greeting
 * @param {string} [prompt]  the first message */
async function converse(session, greeting, prompt) {
  const input = new Input(true, () => void session.stop());
  process.stdout.write(`${styled('2', greeting)}\n\n`);
  let first = prompt;
  for (let message; (message = first ?? await input.next(session.editing?.text)) !== null; first = undefined) {
    if (/^\/(exit|bye)\s*$/.test(message) && first === undefined) break;
    try {
      await (first === undefined ? session.handle(message) : session.answer(message));
    } catch (error) {
      if (!(error instanceof PlumbError || error instanceof CommandError)) throw error;
      printError(error.message);
    }
  }
  input.close();
  return 0;
}

/** Answers every line of an input that is not a terminal.
 * @param {ChatSession} session @param {AbortSignal} signal
 * @param {{module: string, threads: number}} [json]  print JSON that includes these values
 * @param {string} [prompt]  the first message */
async function answerLines(session, signal, json, prompt) {
  const input = new Input(false, () => {});
  signal.addEventListener('abort', () => {
    session.stop();
    input.close();
  });
  let code = 0;
  let first = prompt;
  for (let message; !signal.aborted && (message = first ?? await input.next()) !== null; first = undefined) {
    if (!message.trim()) continue;
    let text = '';
    try {
      const stats = await session.answer(message, json && (piece => { text += piece; }));
      if (json) {
        const { finishReason, seed, ...rest } = stats;
        process.stdout.write(jsonLine({ text, finishReason, stats: rest, ...json, seed }));
      } else {
        process.stdout.write('\n');
      }
    } catch (error) {
      code = report(error, session.name, Boolean(json));
    }
  }
  input.close();
  return signal.aborted ? 130 : code;
}
