/* The folder with copies of models: $PLUMB_CACHE, or plumb in $XDG_CACHE_HOME or ~/.cache.  Several processes may share
 * the folder, even if they cannot see each other, as in two containers with one volume.  Besides the files that
 * copy-store.js describes, it has:
 *
 *   NAME.lock      names the process that writes the copy, which touches it while it is alive (lock.js)
 *   NAME.ID.part   the bytes that this process has written; NAME.ID.sums has their slots.  A process that takes over
 *                  the lock of a dead one renames both to an ID of its own and continues.  A complete file becomes
 *                  NAME.gguf after its metadata says so: a process that is killed between the two leaves all that the
 *                  next one needs
 *
 * A complete copy is never written to: a rename creates it and a removal ends it, so its readers are not disturbed.
 * $PLUMB_CACHE_SIZE is how many bytes the copies of all models may take.
 *
 * plumb of an older version wrote an incomplete file as NAME.gguf, without slots. */
import { randomUUID } from 'node:crypto';
import { closeSync, existsSync, fstatSync, ftruncateSync, mkdirSync, openAsBlob, openSync, readFileSync, readSync,
  readdirSync, renameSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { access, readFile, readdir, statfs } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { EXPECTED_SIZE, parseSize } from '../base/sizes.js';
import { Busy } from '../loader/busy.js';
import { parseSlots, slotBytes } from '../loader/sums.js';
import { isHeld, take } from './lock.js';

/** The maximum bytes that are read at once, so that aborts and progress are not delayed. */
const READ = 8 << 20;

/** The path of the folder with the copies. */
export function folderPath() {
  const { PLUMB_CACHE, XDG_CACHE_HOME } = process.env;
  return PLUMB_CACHE || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'plumb');
}

/** @returns {Promise<import('../loader/copy-store.js').Folder>} */
export async function folder() {
  const root = folderPath();
  const path = (/** @type {string} */ name) => join(root, name);
  return {
    writes: true,
    names: async () => await attempt(() => readdir(root)) ?? [],
    file: name => attempt(async () => {
      await access(path(name));   // openAsBlob does not say whether the file exists
      return openAsBlob(path(name));
    }),
    text: name => attempt(() => readFile(path(name), 'utf8')),
    async put(name, text) {
      const own = path(`${name}.${randomUUID()}`);
      try {
        writeFileSync(own, text);
        renameSync(own, path(name));
      } catch (error) {
        rmSync(own, { force: true });
        throw error;
      }
    },
    read: name => attempt(async () => openFile(path(name))),
    async partial(name) {
      const best = bestPart(root, name);
      if (best) return { size: best.size, slots: best.slots };
      return attempt(async () => ({ size: statSync(path(`${name}.gguf`)).size, slots: new Uint8Array() }));
    },
    async lock(name) {
      mkdirSync(root, { recursive: true });
      const lock = await take(path(`${name}.lock`));
      try {
        return new FolderLock(root, name, lock);
      } catch (error) {
        lock.release();
        throw error;
      }
    },
    async remove(name) {
      if (isHeld(path(`${name}.lock`))) throw new Busy();
      const names = (await attempt(() => readdir(root)) ?? []).filter(one => one.startsWith(`${name}.`));
      // This removes all files with this name, a stale lock too.
      for (const one of names) rmSync(path(one), { recursive: true, force: true });
      return names.some(one => /\.(gguf|json)$/.test(one));
    },
    async room() {
      mkdirSync(root, { recursive: true });
      const { bavail, bsize } = await statfs(root);
      return bavail * bsize;
    },
    async limit() {
      const { PLUMB_CACHE_SIZE: text } = process.env;
      const limit = text ? parseSize(text) : Infinity;
      if (limit !== undefined) return limit;
      throw new Error(`PLUMB_CACHE_SIZE is "${text}", expected ${EXPECTED_SIZE}`);
    },
  };
}

/** Among the incomplete files that writers left, the one with the most proved bytes (`at`).
 * @param {string} root @param {string} name */
function bestPart(root, name) {
  const all = readdirSync(root).filter(one => one.startsWith(`${name}.`) && one.endsWith('.part')).map(one => {
    const path = join(root, one), size = statSync(path).size;
    const slots = new Uint8Array(readOrEmpty(path.replace(/part$/, 'sums')));
    return { path, size, slots, at: parseSlots(slots, size).at };
  });
  return all.sort((a, b) => b.at - a.at)[0];
}

/** The bytes of a file, none if it cannot be read. @param {string} path */
function readOrEmpty(path) {
  try {
    return readFileSync(path);
  } catch {
    return Buffer.alloc(0);
  }
}

/** @typedef {import('../loader/copy-store.js').Lock} Lock */

/** @implements {Lock} */
class FolderLock {
  #root;
  #name;
  /** The lock's file. */
  #lock;
  /** The path of NAME.gguf. */
  #whole;
  /** The paths of this writer's own part and its slots. */
  #part = '';
  #sums = '';
  /** The descriptor of #part, or of #whole for reading if there was no part. @type {number | undefined} */
  #file;
  /** The descriptor of #sums; undefined as long as #part is not open. @type {number | undefined} */
  #slotFile;

  /** @param {string} root @param {string} name @param {import('./lock.js').Held} lock */
  constructor(root, name, lock) {
    this.#root = root;
    this.#name = name;
    this.#lock = lock;
    this.#whole = join(root, `${name}.gguf`);
    const best = bestPart(root, name);
    this.slots = best?.slots ?? new Uint8Array();
    this.#renew();
    if (best) {
      renameSync(best.path, this.#part);
      if (existsSync(best.path.replace(/part$/, 'sums'))) renameSync(best.path.replace(/part$/, 'sums'), this.#sums);
      this.#open('r+');
    } else if (existsSync(this.#whole)) {
      // It is complete and may be replaced, or incomplete and of an older version, or does not fit its metadata.
      this.#file = openSync(this.#whole, 'r');
    }
  }

  size() { return this.#file === undefined ? 0 : fstatSync(this.#file).size; }

  /** @type {import('../loader/copy-store.js').Handle['read']} */
  read = (target, at) => readSync(/** @type {number} */ (this.#file), target, 0, Math.min(target.length, READ), at);

  /** @param {number} at */
  begin(at) {
    this.#lock.check(true);
    if (at > 0) {
      if (this.#slotFile === undefined) {   // an incomplete file of an older version
        this.#shut();
        renameSync(this.#whole, this.#part);
        this.#open('r+');
      }
      ftruncateSync(/** @type {number} */ (this.#file), at);
      ftruncateSync(/** @type {number} */ (this.#slotFile), slotBytes(at));
      return;
    }
    this.#shut();
    this.#removeParts();
    rmSync(this.#whole, { force: true });
    this.#renew();
    this.#open('w+');
  }

  /** Reserves nothing; a write fails when there is no more room. */
  reserve() {}

  /** @type {Lock['write']} */
  write(bytes, at, slots, slotsAt) {
    this.#lock.check();
    writeAll(/** @type {number} */ (this.#file), bytes, at);
    writeAll(/** @type {number} */ (this.#slotFile), slots, slotsAt);
  }

  /** @type {Lock['publish']} */
  async publish(_, writeMeta) {
    this.#lock.check(true);
    await writeMeta();
    renameSync(this.#part, this.#whole);
    this.#shut();
    this.#removeParts();
  }

  discard() {
    this.#shut();
    for (const path of [this.#part, this.#sums]) rmSync(path, { force: true });
    try {
      this.#lock.check(true);   // throws if the rest belongs to another writer
      for (const kind of ['gguf', 'json']) rmSync(join(this.#root, `${this.#name}.${kind}`), { force: true });
    } finally {
      this.#lock.release();
    }
  }

  close() {
    this.#shut();
    this.#lock.release();
  }

  /** Removes the parts and slots of all writers, also those that dead ones left. */
  #removeParts() {
    for (const one of readdirSync(this.#root)) {
      const isPart = one.startsWith(`${this.#name}.`) && /\.(part|sums)$/.test(one);
      if (isPart) rmSync(join(this.#root, one), { force: true });
    }
  }

  /** Chooses paths with a new ID.  A process that was stopped and has lost the lock still knows the old ones, so it can
   * neither publish nor remove the files of the process that took over. */
  #renew() {
    const own = join(this.#root, `${this.#name}.${randomUUID()}`);
    this.#part = `${own}.part`;
    this.#sums = `${own}.sums`;
  }

  /** Opens the part and its slots. @param {string} flags  'w+': both are new; 'r+': the part exists, the slots perhaps
   * not */
  #open(flags) {
    this.#file = openSync(this.#part, flags);
    this.#slotFile = openSync(this.#sums, flags === 'w+' || !existsSync(this.#sums) ? 'w+' : 'r+');
  }

  #shut() {
    for (const file of [this.#file, this.#slotFile]) if (file !== undefined) closeSync(file);
    this.#file = this.#slotFile = undefined;
  }
}

/** Writes all bytes, in several steps if the system writes fewer at once.
 * @param {number} file  its descriptor @param {Uint8Array} bytes @param {number} at */
function writeAll(file, bytes, at) {
  for (let n = 0; n < bytes.length;) n += writeSync(file, bytes, n, bytes.length - n, at + n);
}

/** @param {string} path @returns {import('../loader/copy-store.js').Handle} */
export function openFile(path) {
  const file = openSync(path, 'r');
  return {
    size: () => fstatSync(file).size,
    read: (target, at) => readSync(file, target, 0, Math.min(target.length, READ), at),
    close: () => closeSync(file),
  };
}

/** Returns undefined if the file does not exist. @template T @param {() => Promise<T>} action */
async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') return undefined;
    throw error;
  }
}
