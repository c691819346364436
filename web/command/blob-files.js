/* The command line in a worker (command-worker.js), and its files.  The files that it reads are Blobs, read piece by
 * piece; the files that it writes are in memory.
 *
 * Names are paths.  All paths are below one root, whatever they begin with.  The bytes that the program writes are
 * bounded, because a trace may have more values than a page has memory.
 *
 * The program shows its progress on a terminal only.  If the caller wants to see it, standard error says that it is
 * one: the program then writes "\r", a line and "\x1b[K" (erase the rest), and an empty line at the end. */
import { PlumbError } from '../base/errors.js';
import { fail, run } from './wasi.js';

/** Bytes of a Blob that are read at once even if fewer are asked for: each read is a message to another process. */
const BLOCK = 1 << 20;
/** Upper bound on the bytes that the program may write, for all files together. */
const LIMIT = 2 ** 30;

/** @typedef {{size: number}} Source  a Blob, or its substitute in this thread
 * @typedef {(source: any, from: number, to: number) => Uint8Array} ReadSync  returns bytes [from, to) of a Source; if
 *   they cannot be read, it throws an error with a code, as all functions of Files do */

/** Written: a file or a stream that the program writes.  Given: a file that it can only read.
 * @typedef {{ino: bigint, bytes: Uint8Array, size: number}} Written
 * @typedef {{ino: bigint, source: Source, size: number}} Given */

export class BlobFiles {
  /** @type {Map<string, Given | Written>} */
  #entries = new Map();
  #left;
  #last = 2n;
  #readSync;
  #out = this.#empty();
  #err = this.#empty();

  /** @param {Record<string, Source>} files
   * @param {ReadSync} readSync
   * @param {(text: string) => void} [onError]  receives what is written to standard error
   * @param {number} [limit]
   * @param {(line: string) => void} [onProgress]  receives lines of progress, which are then no part of standard error
   */
  constructor(files, readSync, onError = () => {}, limit = LIMIT, onProgress = undefined) {
    this.#readSync = readSync;
    this.#left = limit;
    for (const [name, source] of Object.entries(files)) {
      this.#entries.set(normal(name), { ino: ++this.#last, source, size: source.size });
    }
    const stat = () => ({ type: /** @type {const} */ ('unknown') });
    const terminal = () => ({ type: /** @type {const} */ ('terminal') });
    const text = new TextDecoder(), encoder = new TextEncoder();
    let shown = '';   // the line that is not complete yet
    /** Returns what is no progress. @param {string} piece */
    const withoutProgress = piece => {
      const rest = (shown + piece).replace(/\r([^\x1b]*)\x1b\[K/g, (_, line) => {
        if (line) onProgress?.(line.trim());
        return '';
      });
      const at = rest.indexOf('\r');
      shown = at < 0 ? '' : rest.slice(at);
      return at < 0 ? rest : rest.slice(0, at);
    };
    /** @type {import('./wasi.js').Files['streams']} */
    this.streams = [
      { stat, read: () => 0, write: () => fail('EBADF') },
      { stat, read: () => fail('EBADF'), write: bytes => this.#write(this.#out, bytes, this.#out.size) },
      { stat: onProgress ? terminal : stat, read: () => fail('EBADF'), write: bytes => {
        const piece = text.decode(bytes, { stream: true });
        const message = onProgress ? withoutProgress(piece) : piece;
        if (message) onError(message);
        this.#write(this.#err, message === piece ? bytes : encoder.encode(message), this.#err.size);
        return bytes.length;
      } },
    ];
  }

  /** Returns what there is at the end: the text of the streams, and the files that the program wrote. */
  result() {
    const text = (/** @type {Written} */ { bytes, size }) => new TextDecoder().decode(bytes.subarray(0, size));
    const files = [...this.#entries].flatMap(([path, entry]) =>
      'bytes' in entry ? [[path.slice(1), entry.bytes.slice(0, entry.size)]] : []);
    return { out: text(this.#out), err: text(this.#err), files: Object.fromEntries(files) };   // also "__proto__"
  }

  /** @param {string} name @param {import('./wasi.js').OpenFlags} flags @returns {import('./wasi.js').Open} */
  open(name, { write, create, exclusive, truncate, append, directory }) {
    const path = normal(name);
    if (this.#isFolder(path)) {
      if (write || create) fail('EISDIR');
      const stat = () => this.stat(path);
      return { stat, read: () => fail('EISDIR'), write: () => fail('EBADF') };
    }
    let entry = this.#entries.get(path);
    if (!entry && !create) fail('ENOENT');
    if (entry && exclusive) fail('EEXIST');
    if (directory) fail('ENOTDIR');
    if (!entry || (write && truncate)) {
      entry = this.#empty();
      this.#entries.set(path, entry);
    }
    const file = entry;
    return {
      seeks: true,
      stat: () => statOf(file),
      read: 'source' in file ? this.#reader(file) : (target, position) => {
        const bytes = file.bytes.subarray(Number(position), Math.min(Number(position) + target.length, file.size));
        target.set(bytes);
        return bytes.length;
      },
      write: (bytes, position) => !write ? fail('EBADF') : 'source' in file ? fail('EROFS')
        : this.#write(file, bytes, append ? file.size : Number(position)),
    };
  }

  /** @param {string} name @returns {import('./wasi.js').Stat} */
  stat(name) {
    const path = normal(name), entry = this.#entries.get(path);
    if (entry) return statOf(entry);
    return this.#isFolder(path) ? { type: 'directory', ino: 1n } : fail('ENOENT');
  }

  /** @param {string} name */
  unlink(name) {
    const entry = this.#entries.get(normal(name)) ?? fail('ENOENT');
    if ('bytes' in entry) this.#left += entry.bytes.length;
    this.#entries.delete(normal(name));
  }

  /** @param {string} from @param {string} to */
  rename(from, to) {
    const entry = this.#entries.get(normal(from)) ?? fail('ENOENT');
    this.#entries.delete(normal(from));
    this.#entries.set(normal(to), entry);
  }

  /** @returns {Written} */
  #empty() { return { ino: ++this.#last, bytes: new Uint8Array(), size: 0 }; }

  /** @param {string} path */
  #isFolder(path) {
    const inside = path === '/' ? path : `${path}/`;
    return path === '/' || [...this.#entries.keys()].some(one => one.startsWith(inside));
  }

  /** Reads ahead if few bytes are asked for. @param {Given} file @returns {import('./wasi.js').Open['read']} */
  #reader({ source, size }) {
    let start = 0;
    /** @type {Uint8Array} */
    let block = new Uint8Array();
    return (target, position) => {
      const from = Math.min(Number(position), size);
      if (from < start || from >= start + block.length) {
        start = from;
        block = this.#readSync(source, from, Math.min(from + Math.max(target.length, BLOCK), size));
      }
      const bytes = block.subarray(from - start, from - start + target.length);
      target.set(bytes);
      return bytes.length;
    };
  }

  /** @param {Written} file @param {Uint8Array} bytes @param {number} position */
  #write(file, bytes, position) {
    const end = position + bytes.length, capacity = file.bytes.length;
    if (end > capacity) {
      const grown = Math.max(end, Math.min(2 * capacity, capacity + this.#left));
      if (grown - capacity > this.#left) fail('ENOSPC');
      const larger = new Uint8Array(grown);
      larger.set(file.bytes.subarray(0, file.size));
      file.bytes = larger;
      this.#left -= grown - capacity;
    }
    file.bytes.set(bytes, position);
    file.size = Math.max(file.size, end);
    return bytes.length;
  }
}

/** @param {Given | Written} entry @returns {import('./wasi.js').Stat} */
const statOf = ({ ino, size }) => ({ type: 'file', ino, size: BigInt(size) });

/** Normalizes a path, so that each file has one name: "/a/b" for "a/./c/../b". @param {string} name */
function normal(name) {
  /** @type {string[]} */
  const parts = [];
  for (const part of name.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
}

/** The methods that the worker serves (protocol.js).
 * @param {(name: string) => Promise<WebAssembly.Module>} compile  compiles dist/NAME.wasm
 * @param {ReadSync} readSync @returns {import('../base/protocol.js').Methods} */
export const createCommand = (compile, readSync) => ({
  /** @param {{args: string[], files: Record<string, Source>, shows: boolean}} what  shows: the progress */
  async command({ args, files, shows }, { emit }) {
    const module = await compile('plumb-cli');
    const host = new BlobFiles(files, readSync, text => emit('error', text), LIMIT,
      shows ? line => emit('progress', line) : undefined);
    try {
      const code = run(module, args, '/', host);
      return { code, ...host.result() };
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError || error instanceof RangeError)) throw error;
      throw new PlumbError('PLUMB_ERROR', `plumb ${args[0]}: the program crashed (${error.message})`);
    }
  },
});
