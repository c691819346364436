/* What the commands write: text for a terminal, progress, and error messages. */
import { PlumbError, reasonOf } from '../base/errors.js';
import { CommandError } from './arguments.js';

/** Replaces characters that could control a terminal with visible ones: all control characters except newline and tab.
 * The output of a model is not trusted, and neither is the text in a file. @param {string} text */
export const printable = text => text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, control => {
  const code = control.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);   // U+241B is the symbol for escape
  return code === 0x7f ? '\u2421' : `\\x${code.toString(16)}`;
});

/** Applies printable if the stream is a terminal.  Files and pipes get the text unchanged.
 * @param {NodeJS.WriteStream} stream @param {string} text */
export const shown = (stream, text) => stream.isTTY ? printable(text) : text;

/** Returns a line of JSON without characters that could control a terminal.  Bigints become strings.
 * @param {object} value */
export const jsonLine = value =>
  `${JSON.stringify(value, (_, one) => typeof one === 'bigint' ? String(one) : one)
    .replace(/[\x7f-\x9f]/g, control => `\\u00${control.charCodeAt(0).toString(16)}`)}\n`;

/** Styles a text if standard output is a terminal that supports colours (https://no-color.org).
 * @param {string} style  the parameter of the escape sequence, such as "2" for dim @param {string} text */
export const styled = (style, text) =>
  process.stdout.isTTY && !process.env.NO_COLOR && process.env.TERM !== 'dumb' ? `\x1b[${style}m${text}\x1b[0m` : text;

/** Writes one line to standard error, whatever the text contains. @param {string} text */
export const printError = text =>
  void process.stderr.write(`plumb: ${text.replace(/[\0-\x1f\x7f-\x9f]/g, '?')}\n`);

/** Reports an error, with json also on standard output, and returns its exit code.
 * @param {unknown} error @param {string} where  the file, if the error does not name one @param {boolean} [json] */
export function report(error, where, json = false) {
  const printJson = (/** @type {string} */ code, /** @type {string} */ message) =>
    void (json && process.stdout.write(jsonLine({ error: { code, message } })));
  if (error instanceof CommandError) {
    printJson('PLUMB_ERROR_ARGUMENT', error.message);
    printError(error.message);
    return error.code;
  }
  if (!(error instanceof PlumbError)) throw error;
  const { code, message } = error;
  printJson(code, message);
  const place = error.details.path ?? error.details.url ?? where;
  const what = message.startsWith(`${place}: `) ? message.slice(`${place}: `.length) : message;
  // The option's name here differs from its name in JavaScript.
  const hint = code === 'PLUMB_ERROR_CONTEXT' ? '; use --ctx to enlarge it' : '';
  printError(`${place}: ${code}: ${hint ? what.replace(/;[^;]*contextLength$/, '') : what}${hint}`);
  return 1;
}

const PHASES = { read: 'reading', download: 'downloading', wait: 'waiting for the server', prepare: 'preparing' };
const BAR = 20;
const mb = (/** @type {number} */ bytes) => (bytes / 1e6).toFixed(0);

/** Shows the progress of a load on one line of standard error, if that is a terminal and the load takes over a second.
 */
export class ProgressLine {
  #start = performance.now();
  #isShown = false;

  /** @param {import('../loader/progress.js').Progress} progress */
  show = ({ phase, bytes, total, rate, secondsLeft }) => {
    if (!process.stderr.isTTY || phase === 'ready' || performance.now() - this.#start < 1000) return;
    this.#isShown = true;
    const n = total ? Math.round(BAR * Math.min(1, bytes / total)) : 0;
    const bar = total ? ` ${'█'.repeat(n)}${'░'.repeat(BAR - n)}` : '';
    const left = secondsLeft === undefined ? '' : `, ${secondsLeft.toFixed(0)} s left`;
    const line = `${PHASES[/** @type {keyof typeof PHASES} */ (phase)] ?? 'loading'}${bar} ${mb(bytes)}${
      total === undefined ? '' : ` of ${mb(total)}`} MB, ${mb(rate)} MB/s${left}`;
    process.stderr.write(`\r\x1b[K${line.slice(0, (process.stderr.columns || 80) - 1)}`);
  };

  end() {
    if (this.#isShown) process.stderr.write('\r\x1b[K');
    this.#isShown = false;
  }
}

/** Watches standard output, whose reader may go away.  That ends the command, but is not a failure.
 * @param {() => void} end */
export function watchOutput(end) {
  let code = /** @type {number | undefined} */ (undefined);
  process.stdout.on('error', error => {
    const gone = /** @type {NodeJS.ErrnoException} */ (error).code === 'EPIPE';
    if (!gone && code === undefined) printError(`standard output: PLUMB_ERROR_IO: ${reasonOf(error)}`);
    code ??= gone ? 0 : 1;
    end();
  });
  /** Returns the exit code if writing failed. */
  return () => code;
}

/** All of standard input, as text. */
export async function readInput() {
  /** @type {Buffer[]} */
  const pieces = [];
  for await (const piece of process.stdin) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}
