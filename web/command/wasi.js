/* WASI preview 1, as far as the command line (dist/plumb-cli.wasm) uses it: the side that reads and writes its memory.
 * The host supplies the files: node/wasi-files.js has the system's files, blob-files.js has a page's.  Everything is
 * synchronous, as WASI's calls are.  Node's own node:wasi is not used, because that of Node 20 crashes when the memory
 * grows during a read.
 * The numbers are from https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md */

/** What every host tells about a file; times are in nanoseconds.
 * @typedef {{type: keyof typeof TYPE, size?: bigint, dev?: bigint, ino?: bigint, nlink?: bigint, atime?: bigint,
 *   mtime?: bigint, ctime?: bigint}} Stat */
/** An open file.  position is an offset in bytes; null: the current position of the host's file, as for pipes.  read
 * and write return how many bytes they moved.
 * @typedef {object} Open
 * @property {boolean} [seeks]  whether the file has positions
 * @property {() => Stat} stat
 * @property {(target: Uint8Array, position: number | null) => number} read  returns 0 at the end
 * @property {(bytes: Uint8Array, position: number | null) => number} write
 * @property {() => void} [close] */
/** @typedef {{read: boolean, write: boolean, create: boolean, exclusive: boolean, truncate: boolean, append: boolean,
 *   directory: boolean}} OpenFlags */
/** A host's files.  A function that fails throws an object whose `code` is the system's name of the error, as in Node:
 * ENOENT.  Paths are absolute and may contain "." and "..".
 * @typedef {object} Files
 * @property {[Open, Open, Open]} streams  standard input, output, error
 * @property {(path: string, flags: OpenFlags) => Open} open
 * @property {(path: string, follow: boolean) => Stat} stat
 * @property {(path: string) => void} unlink
 * @property {(from: string, to: string) => void} rename */

/* WASI's numbers for the errors that hosts report by name.  All others become EIO. */
const ERRNO = { EACCES: 2, EAGAIN: 6, EBADF: 8, EEXIST: 20, EINVAL: 28, EIO: 29, EISDIR: 31, EMFILE: 33,
  ENAMETOOLONG: 37, ENOENT: 44, ENOMEM: 48, ENOSPC: 51, ENOTDIR: 54, EPERM: 63, EPIPE: 64, EROFS: 69, ESPIPE: 70 };
const ENOTSUP = 58;
const TYPE = { unknown: 0, terminal: 2, directory: 3, file: 4 };
const RIGHT_READ = 2n, RIGHT_SEEK_TELL = 0x24n, RIGHT_WRITE = 0x40n, ALL_RIGHTS = 0x1fffffffn;
const O_CREAT = 1, O_DIRECTORY = 2, O_EXCL = 4, O_TRUNC = 8, FD_APPEND = 1;
/** The descriptor of the root, the only folder that is open from the start. */
const ROOT = 3;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });
const bytesOf = new TextEncoder();

class Exit {
  /** @param {number} code */
  constructor(code) {
    this.code = code;
  }
}

/** @typedef {Record<string, (...args: any[]) => void>} Calls  calls of WASI; each throws the error that it returns */

/** Runs the command line to its end.
 * @param {WebAssembly.Module} module
 * @param {string[]} args  the arguments after the program's name
 * @param {string} directory  the working directory
 * @param {Files} host
 * @returns {number} the exit code */
export function run(module, args, directory, host) {
  const program = new Program(host);
  const calls = {
    ...programCalls(program, ['plumb', ...args], directory), ...descriptorCalls(program), ...pathCalls(program),
  };
  const imports = WebAssembly.Module.imports(module).map(({ name }) => [name, guarded(calls[name])]);
  const { exports } = new WebAssembly.Instance(module, { wasi_snapshot_preview1: Object.fromEntries(imports) });
  program.memory = /** @type {WebAssembly.Memory} */ (exports.memory);
  try {
    /** @type {() => void} */ (exports._start)();
    return 0;
  } catch (error) {
    if (error instanceof Exit) return error.code;
    throw error;
  }
}

/** The program's memory and what it has open. */
class Program {
  memory = /** @type {WebAssembly.Memory} */ (/** @type {unknown} */ (undefined));
  /** @type {Map<number, {file: Open, position: number | null} | {path: string}>} */
  open = new Map([[ROOT, { path: '/' }]]);

  /** @param {Files} host */
  constructor(host) {
    this.host = host;
    for (const [fd, file] of host.streams.entries()) this.open.set(fd, { file, position: null });
  }

  /* Views are created anew for every call, because a buffer is detached when the memory grows. */
  get view() { return new DataView(this.memory.buffer); }

  /** @param {number} at @param {number} n */
  bytes(at, n) { return new Uint8Array(this.memory.buffer, at >>> 0, n >>> 0); }

  /** @param {number} fd */
  opened(fd) { return this.open.get(fd) ?? fail('EBADF'); }

  /** @param {number} fd */
  file(fd) {
    const one = this.opened(fd);
    return 'file' in one ? one : fail('EISDIR');
  }

  /** @param {number} fd */
  folder(fd) {
    const one = this.opened(fd);
    return 'path' in one ? one.path : fail('EBADF');
  }

  /** @param {number} fd @param {number} at @param {number} n */
  path(fd, at, n) { return `${this.folder(fd)}${utf8.decode(this.bytes(at, n))}`; }
}

/** @param {Program} program @param {string[]} args @param {string} directory @returns {Calls} */
function programCalls(program, args, directory) {
  /** Makes two calls that pass strings as in C: the first stores their number and total length, the second stores
   * pointers to them and their bytes. @param {string[]} words */
  const strings = words => {
    const list = words.map(word => bytesOf.encode(`${word}\0`));
    return [(/** @type {number} */ count, /** @type {number} */ size) => {
      program.view.setUint32(count, list.length, true);
      program.view.setUint32(size, list.reduce((sum, { length }) => sum + length, 0), true);
    }, (/** @type {number} */ pointers, /** @type {number} */ at) => {
      for (const [i, word] of list.entries()) {
        program.view.setUint32(pointers + 4 * i, at, true);
        program.bytes(at, word.length).set(word);
        at += word.length;
      }
    }];
  };
  const [args_sizes_get, args_get] = strings(args);
  // The C library passes paths without their first slash, so the program makes relative paths absolute itself, from
  // PWD (src/cli/io.c).
  const [environ_sizes_get, environ_get] = strings([`PWD=${directory}`]);
  return {
    args_sizes_get, args_get, environ_sizes_get, environ_get,
    clock_time_get(clock, _precision, at) {
      const time = clock === 0 ? BigInt(Date.now()) * 1000000n : BigInt(Math.round(performance.now() * 1e6));
      program.view.setBigUint64(at, time, true);
    },
    random_get(at, n) {
      for (let done = 0; done < n; done += 65536) {
        crypto.getRandomValues(program.bytes(at + done, Math.min(n - done, 65536)));
      }
    },
    proc_exit(code) {
      throw new Exit(code);
    },
  };
}

/** Reads or writes the buffers of a list one after the other, until one is not filled or written completely.
 * @param {Program} program @param {'read' | 'write'} method
 * @returns {(fd: number, list: number, n: number, moved: number) => void} */
const transfer = (program, method) => (fd, list, n, moved) => {
  const one = program.file(fd);
  let total = 0;
  for (let i = 0; i < n; i++) {
    const { view } = program, at = list + 8 * i;
    const data = program.bytes(view.getUint32(at, true), view.getUint32(at + 4, true));
    if (!data.length) continue;
    const count = one.file[method](data, one.position);
    if (one.position !== null) one.position += count;
    total += count;
    if (count < data.length) break;
  }
  program.view.setUint32(moved, total, true);
};

/** @param {DataView} to @param {number} at @param {Stat} stat */
function writeStat(to, at, { type, size = 0n, dev = 0n, ino = 0n, nlink = 1n, atime = 0n, mtime = 0n, ctime = 0n }) {
  to.setUint8(at + 16, TYPE[type]);
  for (const [i, value] of [dev, ino, undefined, nlink, size, atime, mtime, ctime].entries()) {
    if (value !== undefined) to.setBigUint64(at + 8 * i, value, true);
  }
}

/** @param {Program} program @returns {Calls} */
const descriptorCalls = program => ({
  fd_prestat_get(fd, at) {
    const path = program.folder(fd);
    program.view.setUint32(at, 0, true);
    program.view.setUint32(at + 4, bytesOf.encode(path).length, true);
  },
  fd_prestat_dir_name(fd, at, n) {
    program.bytes(at, n).set(bytesOf.encode(program.folder(fd)).subarray(0, n));
  },
  fd_fdstat_get(fd, at) {
    const one = program.opened(fd), type = 'file' in one ? one.file.stat().type : 'directory', { view } = program;
    view.setUint8(at, TYPE[type]);
    view.setUint16(at + 2, 0, true);
    // The C library takes a descriptor that can seek for a file, not for a terminal.
    view.setBigUint64(at + 8, type === 'terminal' ? ALL_RIGHTS & ~RIGHT_SEEK_TELL : ALL_RIGHTS, true);
    view.setBigUint64(at + 16, ALL_RIGHTS, true);
  },
  fd_fdstat_set_flags() {},
  fd_close(fd) {
    const one = program.opened(fd);
    program.open.delete(fd);
    if ('file' in one) one.file.close?.();
  },
  fd_read: transfer(program, 'read'),
  fd_write: transfer(program, 'write'),
  fd_seek(fd, offset, whence, at) {
    const one = program.file(fd);
    if (one.position === null) fail('ESPIPE');
    const from = whence === 0 ? 0 : whence === 1 ? one.position : Number(one.file.stat().size ?? 0n);
    const position = from + Number(offset);
    if (position < 0) fail('EINVAL');
    program.view.setBigUint64(at, BigInt(one.position = position), true);
  },
  fd_filestat_get(fd, to) {
    const one = program.opened(fd), stat = 'file' in one ? one.file.stat() : program.host.stat(one.path, true);
    writeStat(program.view, to, stat);
  },
});

/** @param {Program} program @returns {Calls} */
const pathCalls = program => ({
  path_open(folder, _follow, at, n, create, rights, _inheriting, fdFlags, to) {
    const file = program.host.open(program.path(folder, at, n), {
      read: Boolean(rights & RIGHT_READ), write: Boolean(rights & RIGHT_WRITE), create: Boolean(create & O_CREAT),
      exclusive: Boolean(create & O_EXCL), truncate: Boolean(create & O_TRUNC),
      append: Boolean(fdFlags & FD_APPEND), directory: Boolean(create & O_DIRECTORY),
    });
    let fd = ROOT + 1;
    while (program.open.has(fd)) fd++;
    program.open.set(fd, { file, position: file.seeks ? 0 : null });
    program.view.setUint32(to, fd, true);
  },
  path_filestat_get(folder, follow, at, n, to) {
    writeStat(program.view, to, program.host.stat(program.path(folder, at, n), Boolean(follow)));
  },
  path_unlink_file(folder, at, n) {
    program.host.unlink(program.path(folder, at, n));
  },
  path_rename(folder, at, n, toFolder, to, nTo) {
    program.host.rename(program.path(folder, at, n), program.path(toFolder, to, nTo));
  },
});

/** @param {keyof typeof ERRNO} code @returns {never} */
export function fail(code) {
  throw Object.assign(new Error(code), { code });
}

/** @param {((...args: any[]) => void) | undefined} call */
const guarded = call => (/** @type {any[]} */ ...args) => {
  if (!call) return ENOTSUP;
  try {
    call(...args);
    return 0;
  } catch (error) {
    const { code } = /** @type {{code?: unknown}} */ (error);
    if (typeof code !== 'string') throw error;   // Exit, or a bug in this file
    return ERRNO[/** @type {keyof typeof ERRNO} */ (code)] ?? ERRNO.EIO;
  }
};
