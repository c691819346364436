#!/usr/bin/env node
/* The command line in Node: the very module that wasmtime runs, on a small WASI host of our own.
 *
 *   node web/node/cli.mjs COMMAND ...   as `plumb COMMAND ...`; `--help` lists the commands
 *
 * It knows just the calls that this module makes (WASI preview 1), and files are what Node may open: relative paths
 * begin in the current directory, nothing is hidden.  Everything is synchronous, so Ctrl-C ends the process as the
 * system would.  Node's own node:wasi is not used: that of Node 20 crashes when the memory grows during reads.
 * WASI's numbers: https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md */
import * as fs from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/* WASI's numbers of the errors that Node knows by name; all others are EIO. */
const ERRNO = { EACCES: 2, EAGAIN: 6, EBADF: 8, EEXIST: 20, EINVAL: 28, EISDIR: 31, EMFILE: 33, ENAMETOOLONG: 37,
  ENOENT: 44, ENOMEM: 48, ENOSPC: 51, ENOTDIR: 54, EPERM: 63, EPIPE: 64, EROFS: 69, ESPIPE: 70 };
const EBADF = 8, EINVAL = 28, EIO = 29, ENOTSUP = 58;
const TYPE = { unknown: 0, terminal: 2, directory: 3, file: 4 };
const RIGHT_READ = 2n, RIGHT_SEEK_TELL = 0x24n, RIGHT_WRITE = 0x40n, ALL_RIGHTS = 0x1fffffffn;
const O_CREAT = 1, O_DIRECTORY = 2, O_EXCL = 4, O_TRUNC = 8, FD_APPEND = 1;

/** What an open descriptor is.  path: of a directory that the program may open files below.
 * @typedef {{fd: number, path?: string, position: bigint | null}} Open  position null: the system keeps it */
/** @type {Map<number, Open>} */
const files = new Map([0, 1, 2].map((fd) => [fd, { fd, position: null }]));
files.set(3, { fd: -1, path: '/', position: null });

/** @type {WebAssembly.Memory} */
let memory;
/* Taken anew for every call: a buffer is detached when the memory grows. */
const view = () => new DataView(memory.buffer);
const bytes = (/** @type {number} */ at, /** @type {number} */ n) => new Uint8Array(memory.buffer, at >>> 0, n >>> 0);
const string = (/** @type {number} */ at, /** @type {number} */ n) => Buffer.from(bytes(at, n)).toString();

/** Strings in C's manner: how many and how long together, and their pointers and bytes.
 * @param {string[]} words @returns {((...at: number[]) => void)[]} */
function strings(words) {
  const list = words.map((word) => Buffer.from(`${word}\0`));
  return [(count, size) => {
    view().setUint32(count, list.length, true);
    view().setUint32(size, list.reduce((sum, { length }) => sum + length, 0), true);
  }, (pointers, at) => {
    for (const word of list) {
      view().setUint32(pointers, at, true);
      bytes(at, word.length).set(word);
      pointers += 4;
      at += word.length;
    }
  }];
}
const [args_sizes_get, args_get] = strings(['plumb', ...process.argv.slice(2)]);
// The C library hands us paths without the first slash: it must make relative ones absolute before.
const [environ_sizes_get, environ_get] = strings([`PWD=${process.cwd()}`]);

/** @param {number} number */
function open(number) {
  const file = files.get(number);
  if (!file) throw EBADF;
  return file;
}

/** A pipe that is not ready, as a terminal's or another Node's may be set up, is waited for.
 * @template T @param {() => T} call @returns {T} */
function waiting(call) {
  for (;;) {
    try {
      return call();
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
    }
  }
}

/** Reads or writes the pieces one after the other, up to the first that comes short.
 * @param {number} number @param {number} list @param {number} n
 * @param {(fd: number, data: Uint8Array, position: bigint | null) => number} move @param {number} moved */
function transfer(number, list, n, move, moved) {
  const file = open(number);
  let total = 0;
  for (let i = 0; i < n; i++) {
    const data = bytes(view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true));
    if (!data.length) continue;
    const count = waiting(() => move(file.fd, data, file.position));
    if (file.position !== null) file.position += BigInt(count);
    total += count;
    if (count < data.length) break;
  }
  view().setUint32(moved, total, true);
}

/** @param {fs.BigIntStats} stats */
function type(stats) {
  return stats.isFile() ? TYPE.file : stats.isDirectory() ? TYPE.directory : stats.isCharacterDevice() ? TYPE.terminal
    : TYPE.unknown;
}

/** @param {number} directory @param {number} at @param {number} n */
function path(directory, at, n) {
  const base = open(directory).path;
  if (base === undefined) throw EBADF;
  return resolve(base, string(at, n));
}

/** The calls; what they throw becomes the number that they return, 0 if they return.
 * @type {Record<string, (...args: any[]) => void>} */
const calls = {
  args_sizes_get,
  args_get,
  environ_sizes_get,
  environ_get,
  clock_time_get(clock, _precision, at) {
    const time = clock === 0 ? BigInt(Date.now()) * 1000000n : process.hrtime.bigint();
    view().setBigUint64(at, time, true);
  },
  random_get(at, n) {
    for (let done = 0; done < n; done += 65536) crypto.getRandomValues(bytes(at + done, Math.min(n - done, 65536)));
  },
  proc_exit(code) {
    process.exit(code);
  },
  fd_prestat_get(number, at) {
    const { path } = open(number);
    if (path === undefined) throw EBADF;
    view().setUint32(at, 0, true);
    view().setUint32(at + 4, Buffer.byteLength(path), true);
  },
  fd_prestat_dir_name(number, at, n) {
    bytes(at, n).set(Buffer.from(open(number).path ?? '').subarray(0, n));
  },
  fd_fdstat_get(number, at) {
    const { fd, path } = open(number);
    const what = path === undefined ? type(fs.fstatSync(fd, { bigint: true })) : TYPE.directory;
    view().setUint8(at, what);
    view().setUint16(at + 2, 0, true);
    // A descriptor that can seek is no terminal to the C library.
    view().setBigUint64(at + 8, what === TYPE.terminal ? ALL_RIGHTS & ~RIGHT_SEEK_TELL : ALL_RIGHTS, true);
    view().setBigUint64(at + 16, ALL_RIGHTS, true);
  },
  fd_fdstat_set_flags() {},
  fd_close(number) {
    const { fd } = open(number);
    files.delete(number);
    if (fd > 2) fs.closeSync(fd);
  },
  fd_read(number, list, n, moved) {
    transfer(number, list, n, (fd, data, position) =>
      fs.readSync(fd, data, 0, data.length, position === null ? null : Number(position)), moved);
  },
  fd_write(number, list, n, moved) {
    transfer(number, list, n, (fd, data, position) =>
      fs.writeSync(fd, data, 0, data.length, position === null ? null : Number(position)), moved);
  },
  fd_seek(number, offset, whence, at) {
    const file = open(number);
    if (file.position === null) throw ERRNO.ESPIPE;
    const from = whence === 0 ? 0n : whence === 1 ? file.position : fs.fstatSync(file.fd, { bigint: true }).size;
    if (from + offset < 0n) throw EINVAL;
    view().setBigUint64(at, file.position = from + offset, true);
  },
  path_open(directory, _follow, at, n, create, rights, _inheriting, fdFlags, opened) {
    const { O_RDONLY, O_WRONLY, O_RDWR, ...flags } = fs.constants;
    const access = !(rights & RIGHT_WRITE) ? O_RDONLY : rights & RIGHT_READ ? O_RDWR : O_WRONLY;
    const fd = fs.openSync(path(directory, at, n), access | (create & O_CREAT && flags.O_CREAT)
      | (create & O_EXCL && flags.O_EXCL) | (create & O_TRUNC && flags.O_TRUNC)
      | (create & O_DIRECTORY && flags.O_DIRECTORY) | (fdFlags & FD_APPEND && flags.O_APPEND));
    const kept = fs.fstatSync(fd).isFile() && !(fdFlags & FD_APPEND) ? 0n : null;
    let number = 3;
    while (files.has(number)) number++;
    files.set(number, { fd, position: kept });
    view().setUint32(opened, number, true);
  },
  path_filestat_get(directory, follow, at, n, to) {
    stat((follow ? fs.statSync : fs.lstatSync)(path(directory, at, n), { bigint: true }), to);
  },
  fd_filestat_get(number, to) {
    const { fd, path } = open(number);
    stat(path === undefined ? fs.fstatSync(fd, { bigint: true }) : fs.statSync(path, { bigint: true }), to);
  },
  path_unlink_file(directory, at, n) {
    fs.unlinkSync(path(directory, at, n));
  },
  path_rename(directory, at, n, toDirectory, to, nTo) {
    fs.renameSync(path(directory, at, n), path(toDirectory, to, nTo));
  },
};

/** @param {fs.BigIntStats} stats @param {number} at */
function stat(stats, at) {
  const to = view();
  to.setBigUint64(at, stats.dev, true);
  to.setBigUint64(at + 8, stats.ino, true);
  to.setUint8(at + 16, type(stats));
  to.setBigUint64(at + 24, stats.nlink, true);
  to.setBigUint64(at + 32, stats.size, true);
  to.setBigUint64(at + 40, stats.atimeNs, true);
  to.setBigUint64(at + 48, stats.mtimeNs, true);
  to.setBigUint64(at + 56, stats.ctimeNs, true);
}

/** @param {(...args: any[]) => void} call */
const guarded = (call) => (/** @type {any[]} */ ...args) => {
  try {
    call(...args);
    return 0;
  } catch (error) {
    if (typeof error === 'number') return error;
    const { code } = /** @type {{code?: keyof typeof ERRNO}} */ (error);
    if (code === undefined) throw error;   // a mistake of this file's
    return ERRNO[code] ?? EIO;
  }
};

const file = fileURLToPath(new URL('../dist/plumb-cli.wasm', import.meta.url));
if (!fs.existsSync(file)) {
  console.error(`plumb: ${file} is not there; in a checkout \`make wasi\` builds it`);
  process.exit(1);
}
const module = new WebAssembly.Module(fs.readFileSync(file));
const imports = WebAssembly.Module.imports(module).map(({ name }) => [name, guarded(calls[name] ?? (() => {
  throw ENOTSUP;
}))]);
const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: Object.fromEntries(imports) });
memory = /** @type {WebAssembly.Memory} */ (instance.exports.memory);
/** @type {() => void} */ (instance.exports._start)();
