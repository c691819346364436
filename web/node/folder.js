/* Files of a folder, for copies of models: $PLUMB_CACHE, or plumb in $XDG_CACHE_HOME or ~/.cache.  NAME.lock beside a
 * file that is written says which process does it. */
import { randomUUID } from 'node:crypto';
import { closeSync, fstatSync, fsyncSync, ftruncateSync, linkSync, mkdirSync, openAsBlob, openSync, readFileSync,
  readSync, renameSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { access, readFile, readdir, rm, statfs } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Busy } from '../loader/store.js';

/** At most this much is read at once, so that aborts and progress have their turn. */
const READ = 8 << 20;

/** Where copies lie. */
export function folderPath() {
  const { PLUMB_CACHE, XDG_CACHE_HOME } = process.env;
  return PLUMB_CACHE || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'plumb');
}

/** @returns {Promise<import('../loader/store.js').Folder>} */
export async function folder() {
  const root = folderPath();
  const path = (/** @type {string} */ name) => join(root, name);
  return {
    writes: true,
    names: async () => await attempt(() => readdir(root)) ?? [],
    file: name => attempt(async () => {
      await access(path(name));   // openAsBlob does not say whether there is none
      return openAsBlob(path(name));
    }),
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
      if (isHeld(path(`${name}.lock`))) throw new Busy();
      return await attempt(async () => {
        await rm(path(name), { recursive: true });   // whatever has the name
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

/** A lock without the time at which its process began is no longer one after this many milliseconds. */
const LOCK_AGE = 24 * 3600 * 1000;

/** Takes a lock; returns what gives it back.  It comes to be with its text in it, by a link, which fails where there is
 * one; one that is stale is replaced by who has the lock of doing that. @param {string} path @returns {() => void} */
function lock(path) {
  const text = `${process.pid} ${beginning(process.pid) ?? ''}`, own = `${path}.${randomUUID()}`;
  writeFileSync(own, text);
  try {
    if (!link(own, path, text)) {
      if (isHeld(path)) throw new Busy();
      const unlock = lock(`${path}.steal`);
      try {
        if (isHeld(path)) throw new Busy();
        renameSync(own, path);
      } finally {
        unlock();
      }
    }
  } finally {
    rmSync(own, { force: true });
  }
  return () => rmSync(path, { force: true });
}

/** False where there is a lock. @param {string} own  file with its text @param {string} path @param {string} text */
function link(own, path, text) {
  try {
    try {
      linkSync(own, path);
    } catch (error) {
      if (/** @type {any} */ (error).code === 'EEXIST') return false;
      writeFileSync(path, text, { flag: 'wx' });   // a file system without links
    }
    return true;
  } catch (error) {
    if (/** @type {any} */ (error).code === 'EEXIST') return false;
    throw error;
  }
}

/** Whether the process that wrote a lock lives. @param {string} path */
function isHeld(path) {
  try {
    const [, pid, began] = /^([1-9]\d*) (\d*)$/.exec(readFileSync(path, 'utf8')) ?? [];
    if (!pid || !lives(Number(pid))) return false;
    const now = beginning(Number(pid));
    return now && began ? began === now : Date.now() - statSync(path).mtimeMs < LOCK_AGE;
  } catch {
    return false;   // it cannot be read, or is gone meanwhile
  }
}

/** @param {number} pid */
function lives(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return /** @type {any} */ (error).code === 'EPERM';
  }
}

/** When a process began, in the system's ticks: one of the same number that began at another time is another one.
 * Undefined where the system does not say it. @param {number} pid */
function beginning(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];   // field 22; the name before may hold anything
  } catch {
    return undefined;
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
