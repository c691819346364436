/* Plumb.command: the command line (src/cli/main.c) as a function.  Each call runs in its own worker. */
import { onAbort } from '../base/async.js';
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { Remote } from '../base/protocol.js';

/** @typedef {object} CommandOptions
 * @property {Record<string, Blob | Uint8Array | string>} [files]  the files that the program sees, by the names that
 *   args use for them; a string is a file's text.  A Blob, such as a File of a page or the result of fs.openAsBlob in
 *   Node, is read piece by piece
 * @property {AbortSignal} [signal]  ends the program at once
 * @property {(text: string) => void} [onError]  receives messages, which are the standard error, as they are written.
 *   If it throws, the program ends and the call rejects with that error
 * @property {(line: string) => void} [onProgress]  receives the line of progress that a terminal would show, such as
 *   "diagnose 40 %, 3 s left", each time it changes; it is no part of `err`.  If it throws, that is as for onError
 * @property {string | URL} [workerUrl]  as in Plumb.load
 * @typedef {object} CommandResult
 * @property {number} code  the exit code: `plumb --help` says what each means
 * @property {string} out  standard output
 * @property {string} err  standard error
 * @property {Record<string, Uint8Array>} files  the files that the program wrote with -o, --html or --save.  These and
 *   its output together may take at most a gigabyte */
/** @typedef {(files: Record<string, Blob>, workerUrl?: string | URL) => {
 *   worker: import('../base/protocol.js').WorkerLike,
 *   files: Record<string, import('./blob-files.js').Source>}} StartCommand
 *   starts command-worker.js; files is what is posted to it in place of the Blobs */

/** Implements Plumb.command.
 * @param {StartCommand} startCommand @param {string[]} args @param {CommandOptions} options
 * @returns {Promise<CommandResult>} */
export async function runCommand(startCommand, args, options) {
  known.checkOptions('Plumb.command', options, known.COMMAND);
  if (!Array.isArray(args) || !args.every(word => typeof word === 'string' && !word.includes('\0'))) {
    throw argumentError('Plumb.command: expected the words of a command as an array of strings');
  }
  const { files = {}, signal, onError, onProgress, workerUrl } = options;
  signal?.throwIfAborted();
  const blobs = Object.entries(files).map(([name, file]) =>
    [name, file instanceof Blob ? file : new Blob([/** @type {BlobPart} */ (file)])]);
  // The program would read "-a.gguf" as an option.
  const words = args.map(word => word.startsWith('-') && Object.hasOwn(files, word) ? `./${word}` : word);
  const { worker, files: posted } = startCommand(Object.fromEntries(blobs), workerUrl);
  const transport = new Remote(worker);
  // The program receives no messages while it runs, so stopping it means ending its worker.
  let stop = (/** @type {unknown} */ _reason) => {};
  const stopped = new Promise((_, reject) => { stop = reject; });
  const unfollow = onAbort(signal, reason => stop(reason));
  const forward = (/** @type {string} */ event, /** @type {string} */ text) => {
    try {
      (event === 'progress' ? onProgress : onError)?.(text);
    } catch (error) {
      stop(error);
    }
  };
  const call = { args: words, files: posted, shows: Boolean(onProgress) };
  const result = transport.call('command', call, { onEvent: forward });
  try {
    return await Promise.race([stopped, result]);
  } finally {
    unfollow();
    result.catch(() => {});   // rejects if the program was stopped
    transport.terminate();
  }
}
