/* The system's files, for wasi.js: everything that Node may open; nothing is hidden. */
import * as fs from 'node:fs';

/** @param {fs.BigIntStats} stats @returns {import('../command/wasi.js').Stat} */
function statOf(stats) {
  const { size, dev, ino, nlink, atimeNs: atime, mtimeNs: mtime, ctimeNs: ctime } = stats;
  const type = stats.isFile() ? 'file' : stats.isDirectory() ? 'directory' : stats.isCharacterDevice() ? 'terminal'
    : 'unknown';
  return { type, size, dev, ino, nlink, atime, mtime, ctime };
}

/** Repeats a call while a pipe is not ready (EAGAIN): a terminal or another Node process may have made it non-blocking.
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

/** @param {number} fd @returns {import('../command/wasi.js').Open} */
const opened = fd => ({
  stat: () => statOf(fs.fstatSync(fd, { bigint: true })),
  read: (target, position) => waiting(() => fs.readSync(fd, target, 0, target.length, position)),
  write: (bytes, position) => waiting(() => fs.writeSync(fd, bytes, 0, bytes.length, position)),
});

/** @type {import('../command/wasi.js').Files} */
export const files = {
  streams: [opened(0), opened(1), opened(2)],
  open(path, { read, write, create, exclusive, truncate, append, directory }) {
    const flags = fs.constants;
    const fd = fs.openSync(path, (!write ? flags.O_RDONLY : read ? flags.O_RDWR : flags.O_WRONLY)
      | (create ? flags.O_CREAT : 0) | (exclusive ? flags.O_EXCL : 0) | (truncate ? flags.O_TRUNC : 0)
      | (directory ? flags.O_DIRECTORY : 0) | (append ? flags.O_APPEND : 0));
    return { ...opened(fd), seeks: fs.fstatSync(fd).isFile() && !append, close: () => fs.closeSync(fd) };
  },
  stat: (path, follow) => statOf((follow ? fs.statSync : fs.lstatSync)(path, { bigint: true })),
  unlink: fs.unlinkSync,
  rename: fs.renameSync,
};
