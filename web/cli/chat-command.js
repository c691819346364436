/* plumb chat: a conversation in the terminal.  Without a terminal, it answers each line of standard input.
 *
 * Input reads messages and keeps a history of lines; Talk holds the chat and its commands; chat() joins them. */
import { appendFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { PlumbError, reasonOf } from '../base/errors.js';
import { pick, Refusal, SAMPLING, valueOf } from './arguments.js';
import { interruptible, load } from './run-command.js';
import { complain, jsonLine, printable, report, shown, styled, watchOutput } from './terminal.js';

export const HELP = `usage: plumb chat MODEL [options]

Talks with a model; MODEL is a GGUF file or a URL. A line is a message; a
backslash at its end, or """ before and after, makes it several lines. Ctrl-C
stops an answer, Ctrl-D leaves. /help lists what else can be said, Tab completes
it. What you type is kept in plumb/chat-history in $XDG_STATE_HOME or
~/.local/state. When the context is full the oldest turns are left out.

Where standard input is no terminal each of its lines is a message, and commands
are not obeyed.

  --system TEXT         a system message before the chat
  --json                one line of JSON for each answer: text, finishReason,
                        stats, module, threads, seed
  -n N                  tokens of an answer at most (until the context is full)
  --seed N              the same seed gives the same answers (a random one)
  --help                this text
  --temp, --top-k, --top-p, --min-p, --typical, --repeat-penalty,
  --presence-penalty, --frequency-penalty, --repeat-last-n, --ctx, --threads,
  --precision, --kv-type   as of plumb run, see plumb run --help

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
`;

const COMMANDS = `  /again            answers the last question anew
  /edit             brings the last question back, to be changed
  /new              begins a new chat, with the same system message
  /system [TEXT]    shows the system message, or begins a new chat with another
  /set [NAME X]     shows how tokens are drawn, or changes it: /set temp 0.5
  /stats            speeds, memory, how full the context is
  /save FILE        writes the chat as JSON
  /load FILE        goes on with a chat that was saved
  /back             returns to the chat before /new, /system or /load
  /exit             leaves, as Ctrl-D does
A backslash at the end of a line, or """ before and after, makes a message of
several lines. // begins one with a slash. Ctrl-C stops an answer.
`;
const NAMES = [...COMMANDS.matchAll(/^ {2}(\/\w+)/gm)].map(([, name]) => name).concat('/help');

const HISTORY = 1000;
/** Upper bound on the bytes of a chat that /load reads. */
const LARGEST = 16 << 20;
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
  #begun = [];
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
        output: screen, history: readHistory(), historySize: HISTORY, removeHistoryDuplicates: true,
        completer: complete,
      },
    });
    this.#rl.on('line', line => this.#take(line));
    this.#rl.on('close', () => {
      if (this.#begun.length > 0 && !isTerminal) this.#finish();
      this.#give(null);
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

  /** Returns the next message; null at the end. @param {string} [begun]  text put into the line for editing
   * @returns {Promise<string | null>} */
  async next(begun = '') {
    const isAhead = this.#ready.length > 0;
    if (!isAhead && this.isTerminal) {
      this.#isMuted = false;
      this.#rl.setPrompt(this.#prompt);
      this.#rl.prompt(true);
      if (begun) this.#rl.write(begun);
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

  get #prompt() { return styled('1;36', this.#begun.length > 0 ? '\u2026 ' : '> '); }

  /** @param {string | null} message */
  #give(message) {
    this.#ready.push(message);
    this.#wake();
  }

  /** @param {string} line */
  #take(line) {
    this.#lastInterrupt = '';
    if (this.isTerminal) keep(line);
    const isFirst = this.#begun.length === 0;
    if (isFirst && !this.#isPasting && line.startsWith('"""')) {
      this.#isQuoted = true;
      line = line.slice(3);
    }
    const goesOn = this.#isPasting || (this.#isQuoted ? !line.endsWith('"""') : line.endsWith('\\'));
    if (this.#isQuoted && !goesOn) line = line.slice(0, -3);
    else if (!this.#isQuoted && !this.#isPasting && goesOn) line = line.slice(0, -1);
    this.#begun.push(line);
    if (!goesOn) return this.#finish();
    if (this.isTerminal && !this.#isPasting) {
      this.#rl.setPrompt(this.#prompt);
      this.#rl.prompt();
    }
  }

  #finish() {
    const message = this.#begun.splice(0).join('\n').replace(/^\n|\n$/g, this.#isQuoted ? '' : '$&');
    this.#isQuoted = false;
    this.#give(message);
  }

  /** Handles Ctrl-C at a prompt: it drops what was typed and gives an empty message.  If nothing was typed, it explains
   * how to leave, and the next Ctrl-C leaves. */
  #interrupt() {
    const isEmpty = this.#rl.line === '' && this.#begun.length === 0;
    if (isEmpty && this.#lastInterrupt === 'empty') {
      this.#rl.close();
      return;
    }
    this.#lastInterrupt = isEmpty ? 'empty' : 'line';
    this.#begun = [];
    this.#isQuoted = this.#isPasting = false;
    process.stdout.write(`\n${isEmpty ? styled('2', 'Ctrl-C once more leaves, as Ctrl-D and /exit do\n') : ''}`);
    this.#isMuted = true;
    for (const name of ['e', 'u']) this.#rl.write(null, { ctrl: true, name });
    this.#give('');
  }
}

/** Returns the history, newest line first. @returns {string[]} */
function readHistory() {
  try {
    return readFileSync(historyPath(), 'utf8').split('\n').filter(Boolean).slice(-HISTORY).reverse();
  } catch {
    return [];   // there is no history yet
  }
}

/** Completes the names of commands on Tab. @param {string} line @returns {[string[], string]} */
const complete = line => [line.startsWith('/') ? NAMES.filter(name => name.startsWith(line)) : [], line];

let isKept = true;
/** Adds a line to the history, which only the user may read. @param {string} line */
function keep(line) {
  if (!isKept || line.trim() === '') return;
  try {
    mkdirSync(join(historyPath(), '..'), { recursive: true, mode: 0o700 });
    appendFileSync(historyPath(), `${line}\n`, { mode: 0o600 });
  } catch (error) {
    isKept = false;
    complain(`the history is not kept: ${reasonOf(error)}`);
  }
}

/** A chat and its commands. */
class Talk {
  /** The file that the chat was saved to or loaded from.  Only this file may be overwritten. */
  #file = '';
  #trimmed = 0;
  /** Chats that were replaced.  /back takes the one at the end, and puts the current chat at the front.
   * @type {{chat: import('../api/chat.js').Chat, file: string}[]} */
  #left = [];
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
    this.chat = this.#newChat(values.system);
  }

  /** @param {string | undefined} system @param {import('../api/plumb.js').Message[]} [messages] */
  #newChat(system, messages) { return this.model.chat({ system, messages, contextEnd: 'trim' }); }

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
  #begin(chat, file = '') {
    this.#left.push(...this.#current);
    this.#enter(chat, file);
  }

  /** Says that a chat began, and how to return to the one before. @param {string} text */
  #sayBegun(text) { this.#say(`${text}${this.#left.length > 0 ? '; /back returns to the one before' : ''}`); }

  /** Shows the last messages of a chat that continues. */
  #sayLast() {
    const { messages } = this.chat;
    for (const { role, content } of messages.slice(-4)) this.#say(printable(`${role}: ${content}`));
    this.#sayBegun(`${messages.length} messages; say something`);
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
  async hear(message) {
    const command = /^\/(?!\/)(\S*)\s*([^\n]*)$/.exec(message.trimEnd());
    const { editing } = this;
    this.editing = undefined;
    if (command) {
      const [, name, rest] = command;
      if (!Object.hasOwn(this.#commands, name)) {
        return complain(`/${name} is no command; /help lists them, // begins a message with a slash`);
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
      const end = { stop: '', length: ', cut at the limit', abort: ', stopped' }[stats.finishReason];
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
    new: () => {
      this.#begin(this.#newChat(this.#system));
      this.#sayBegun('a new chat');
    },
    system: text => {
      if (!text) return this.#say(`system: ${printable(this.#system ?? 'none')}`);
      this.#begin(this.#newChat(text));
      this.#sayBegun(`system: ${printable(text)}; a new chat`);
    },
    back: () => {
      const last = this.#left.pop();
      if (!last) return complain('there is no other chat');
      this.#left.unshift(...this.#current);
      this.#enter(last.chat, last.file);
      this.#sayLast();
    },
    again: () => this.#show(options => this.chat.regenerate(options)),
    edit: () => {
      const index = this.#lastQuestion;
      if (index < 0) return complain('there is no question yet');
      this.editing = { index, text: printable(String(this.chat.messages[index].content))
        .replaceAll('\n', LINE_END).replaceAll('\t', ' ') };
    },
    set: rest => this.#set(rest),
    stats: () => this.#stats(),
    save: file => this.#save(file),
    load: file => this.#load(file),
  };

  /** @param {string} text */
  #say(text) { process.stdout.write(`${styled('2', text)}\n`); }

  /** @param {string} rest */
  #set(rest) {
    const [word, value] = rest.split(/\s+/), name = word.replace(/^-+/, '');
    const names = SAMPLING.map(({ key }) => key).join(', ');
    const option = SAMPLING.find(one => one.key === name || one.name.replace(/^-+/, '') === name);
    if (!name) {
      const set = Object.entries(this.sampling).filter(([, value]) => value !== undefined)
        .map(([key, value]) => `${key} ${value}`).join(', ');
      this.#say(`${set || 'all as by default'}; there are ${names}`);
    } else if (!option) {
      complain(`/set: there is no ${name}, but ${names}`);
    } else {
      this.sampling[option.key] = value === undefined ? undefined : valueOf(`/set ${name}`, option, value);
      this.#say(`${option.key} ${value ?? 'as by default'}`);
    }
  }

  async #stats() {
    const { module, threads, kernels, precision, contextLength, memoryBytes } = await this.model.info();
    const { lastStats: last, messages } = this.chat;
    this.#say(`${messages.length} messages${this.chat.trimmed ? `, the oldest ${this.chat.trimmed} left out` : ''}${
      last ? `, ${last.promptTokens + last.tokens} of ${contextLength} tokens` : `, context ${contextLength}`}`);
    if (last) {
      this.#say(`prefill ${last.prefillRate.toFixed(1)} tokens/s (${last.promptTokens} tokens, ${
        last.reusedTokens} reused), decode ${last.decodeRate.toFixed(1)} tokens/s (${last.tokens} tokens), seed ${
        last.seed}`);
    }
    this.#say(`${module}, ${threads} thread${threads === 1 ? '' : 's'}, kernels ${kernels}, ${precision}, ${
      (memoryBytes / 1e6).toFixed(0)} MB`);
  }

  /** @param {string} file */
  #save(file) {
    if (!file) return complain('/save: which FILE?');
    const chat = { model: this.name, messages: this.chat.messages };
    // A file is overwritten only if this chat is in it.
    attempt('/save', () => writeFileSync(file, `${JSON.stringify(chat, null, 2)}\n`,
      { flag: file === this.#file ? 'w' : 'wx' }), () => {
      this.#file = file;
      this.#say(`${chat.messages.length} messages are in ${printable(file)}`);
    });
  }

  /** @param {string} file */
  #load(file) {
    if (!file) return complain('/load: which FILE?');
    attempt('/load', () => {
      if (statSync(file).size > LARGEST) throw new Error(`${file} is no chat: it has more than ${LARGEST} bytes`);
      const saved = parseJson(file, readFileSync(file, 'utf8'));
      const messages = saved?.messages ?? saved;
      const isChat = Array.isArray(messages) && messages.every(message => typeof message?.content === 'string'
        && ['system', 'user', 'assistant', 'tool'].includes(message.role));
      if (!isChat) throw new Error(`${file} is no chat: it has no messages {role, content}`);
      return messages;
    }, messages => {
      this.#begin(this.#newChat(undefined, messages), file);
      this.#sayLast();
    });
  }
}

/** @param {string} file @param {string} text  of it */
function parseJson(file, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${file} is no chat: it is no JSON`, { cause: error });
  }
}

/** Runs action, and then `then` with its result.  Reports the error if action fails.
 * @template T @param {string} where @param {() => T} action @param {(result: T) => void} then */
function attempt(where, action, then) {
  let result;
  try {
    result = action();
  } catch (error) {
    return complain(`${where}: ${reasonOf(error)}`);
  }
  then(result);
}

/** @param {string[]} files @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function chat(files, values) {
  const isTerminal = Boolean(process.stdin.isTTY && process.stdout.isTTY) && !values.json;
  const where = files.at(-1) ?? '';
  const stop = interruptible();
  /** @type {Talk | undefined} */
  let talk;
  const failedOutput = watchOutput(() => {
    stop.abort();
    talk?.stop();
  });
  try {
    const { model } = await load('chat', files, values, stop.signal);
    if (!model.metadata['tokenizer.chat_template']) {
      throw new PlumbError('PLUMB_ERROR_TEMPLATE', 'the file has no chat template; plumb run --raw continues a text');
    }
    const name = basename(where);
    const { threads, module, contextLength } = await model.info();
    stop.signal.throwIfAborted();   // Ctrl-C may have come too late to stop the load
    talk = new Talk(model, values, name);
    const code = isTerminal ? await converse(talk, `${printable(name)}, ${threads} thread${
      threads === 1 ? '' : 's'}, context ${contextLength}\n/help lists commands, Ctrl-D leaves`)
      : await answerLines(talk, stop.signal, values.json ? { module, threads } : undefined);
    await model.close();
    return failedOutput() ?? code;
  } catch (error) {
    if (stop.signal.aborted) return failedOutput() ?? 130;
    return report(error, where, values.json);
  }
}

/** Converses at a terminal. @param {Talk} talk @param {string} greeting */
async function converse(talk, greeting) {
  const input = new Input(true, () => void talk.stop());
  process.stdout.write(`${styled('2', greeting)}\n\n`);
  for (let message; (message = await input.next(talk.editing?.text)) !== null;) {
    if (/^\/exit\s*$/.test(message)) break;
    try {
      await talk.hear(message);
    } catch (error) {
      if (!(error instanceof PlumbError || error instanceof Refusal)) throw error;
      complain(error.message);
    }
  }
  input.close();
  return 0;
}

/** Answers every line of an input that is not a terminal.
 * @param {Talk} talk @param {AbortSignal} signal @param {{module: string, threads: number}} [json]  print JSON that
 *   includes these values */
async function answerLines(talk, signal, json) {
  const input = new Input(false, () => {});
  signal.addEventListener('abort', () => {
    talk.stop();
    input.close();
  });
  let code = 0;
  for (let message; !signal.aborted && (message = await input.next()) !== null;) {
    if (!message.trim()) continue;
    let text = '';
    try {
      const stats = await talk.answer(message, json && (piece => { text += piece; }));
      if (json) {
        const { finishReason, seed, ...rest } = stats;
        process.stdout.write(jsonLine({ text, finishReason, stats: rest, ...json, seed }));
      } else {
        process.stdout.write('\n');
      }
    } catch (error) {
      code = report(error, talk.name, Boolean(json));
    }
  }
  input.close();
  return signal.aborted ? 130 : code;
}
