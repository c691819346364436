/* Files of a folder, for copies of models: $PLUMB_CACHE, or plumb in $XDG_CACHE_HOME or ~/.cache.  NAME.lock beside a
 * file that is written says which process does it. */
import { closeSync, fstatSync, fsyncSync, ftruncateSync, mkdirSync, openAsBlob, openSync, readFileSync, readSync,
  rmSync, writeSync } from 'node:fs';
import { readFile, readdir, rm, statfs } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Busy } from '../loader/store.js';

/** At most this much is read at once, so that aborts and progress have their turn. */
const READ = 8 << 20;

/** @returns {Promise<import('../loader/store.js').Folder>} */
export async function folder() {
  const { PLUMB_CACHE, XDG_CACHE_HOME } = process.env;
  const root = PLUMB_CACHE || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'plumb');
  const path = (/** @type {string} */ name) => join(root, name);
  return {
    writes: true,
    names: async () => await attempt(() => readdir(root)) ?? [],
    file: name => attempt(() => openAsBlob(path(name))),
    text: name => attempt(() => readFile(path(name), 'utf8')),
    read: name => attempt(async () => openFile(path(name))),
    async lock(name) {
      mkdirSync(root, { recursive: true });
      const unlock = lock(path(`${name}.lock`));
      try {
        const handle = openFile(path(name), 'a+');
        handle.close();
        return openFile(path(name), 'r+', unlock);
      } catch (error) {
        unlock();
        throw error;
      }
    },
    async remove(name) {
      if (holder(path(`${name}.lock`))) throw new Busy();
      return await attempt(async () => {
        await rm(path(name));
        return true;
      }) ?? false;
    },
    async room() {
      mkdirSync(root, { recursive: true });
      const { bavail, bsize } = await statfs(root);
      return bavail * bsize;
    },
  };
}

/** @param {string} path @param {string} [flags] @param {() => void} [closed]
 * @returns {import('../loader/store.js').Handle} */
export function openFile(path, flags = 'r', closed = () => {}) {
  const file = openSync(path, flags);
  return {
    size: () => fstatSync(file).size,
    read: (target, at) => readSync(file, target, 0, Math.min(target.length, READ), at),
    write(bytes, at) {
      for (let n = 0; n < bytes.length;) n += writeSync(file, bytes, n, bytes.length - n, at + n);
    },
    truncate: size => ftruncateSync(file, size),
    flush: () => fsyncSync(file),
    close() {
      closeSync(file);
      closed();
    },
  };
}

/** When this process began, in whole seconds of the machine's own clock: a process of the same number that began at
 * another time is another one. */
const began = Math.round(Number(process.hrtime.bigint()) / 1e9 - process.uptime());

/** Takes a lock; returns what gives it back. @param {string} path */
function lock(path) {
  if (holder(path)) throw new Busy();
  rmSync(path, { force: true });
  try {
    const file = openSync(path, 'wx');
    writeSync(file, `${process.pid} ${began}`);
    closeSync(file);
  } catch (error) {
    throw /** @type {any} */ (error).code === 'EEXIST' ? new Busy() : error;
  }
  return () => rmSync(path, { force: true });
}

/** Whether a process that lives holds a lock. @param {string} path */
function holder(path) {
  try {
    const [pid, since] = readFileSync(path, 'utf8').split(' ').map(Number);
    if (pid === process.pid) return Math.abs(since - began) <= 1;
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {any} */ (error).code === 'EPERM';
  }
}

/** Undefined where there is no such file. @template T @param {() => Promise<T>} action */
async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') return undefined;
    throw error;
  }
}
