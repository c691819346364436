/* The folder "plumb" of the browser's private file system (OPFS).  Only workers write to it, because only they have
 * synchronous access handles.  Such a handle locks its file for all tabs, and so locks the copy.  NAME.gguf is written
 * in place, with its slots in NAME.sums.  The file has its full length from the start, because in a private window each
 * growth costs as much as all that is there.  The slots say how much of it was written. */
import { Busy } from '../loader/busy.js';
import { slotBytes } from '../loader/sums.js';
import { Writer, serveWriter, writeAll } from './opfs-writer.js';

const FOLDER = 'plumb';
/** How much of the site's quota the copies of models may take; the rest is the site's. */
const OF_QUOTA = 0.8;
/** The maximum bytes that are read at once, so that aborts and progress are not delayed. */
const READ = 8 << 20;

/** @returns {Promise<import('../loader/copy-store.js').Folder>} */
export async function opfs() {
  if (!globalThis.isSecureContext) {
    throw new Error('the page is not a secure context; serve it over https: or from localhost');
  }
  const { storage } = navigator;
  if (!storage?.getDirectory) throw new Error('this browser has no private file system for pages (OPFS)');
  const folder = await openFolder();
  const fileHandle = (/** @type {string} */ name) => keepAlive(folder, () => folder.getFileHandle(name));
  const file = (/** @type {string} */ name) => attempt(async () => {
    const handle = await fileHandle(name);
    return keepAlive(handle, () => handle.getFile());
  });
  const remove = async (/** @type {string} */ name) => await attempt(async () => {
    await keepAlive(folder, () => folder.removeEntry(name));
    return true;
  }) ?? false;
  const slotsOf = async (/** @type {string} */ name) =>
    new Uint8Array(await (await file(`${name}.sums`))?.arrayBuffer() ?? new ArrayBuffer(0));
  return {
    writes: 'createSyncAccessHandle' in FileSystemFileHandle.prototype,
    async names() {
      const names = [];
      for await (const name of /** @type {any} */ (folder).keys()) names.push(name);
      return names;
    },
    file,
    text: async name => (await file(name))?.text(),
    async put(name, text) {
      const bytes = new TextEncoder().encode(text), handle = await open(folder, name);
      try {
        await writeAll(handle, bytes, 0);   // before it is truncated, so that it is never empty
        handle.truncate(bytes.length);
        handle.flush();
      } finally {
        handle.close();
      }
    },
    // A browser that does not know this mode lets only one tab read at a time; the others then read a Blob.
    read: name => attempt(async () => readerOf(await accessTo(await fileHandle(name), 'read-only'))),
    async partial(name) {
      const size = (await file(`${name}.gguf`))?.size;
      return size === undefined ? undefined : { size, slots: await slotsOf(name) };
    },
    async lock(name, startThread) {
      const handle = await open(folder, `${name}.gguf`);
      return new OpfsLock(folder, name, handle, await slotsOf(name), startThread, remove);
    },
    async remove(name) {
      const removed = await remove(`${name}.gguf`);
      await remove(`${name}.sums`);
      return await remove(`${name}.json`) || removed;
    },
    async room() {
      const { quota = 0, usage = 0 } = await storage.estimate();
      return quota - usage;
    },
    async limit() { return OF_QUOTA * ((await storage.estimate()).quota ?? 0); },
  };
}

/** @typedef {import('../loader/copy-store.js').Lock} Lock */

/** @implements {Lock} */
class OpfsLock {
  /** The handle of NAME.gguf, which holds the lock until the writer opens the file. @type {any} */
  #handle;
  /** @type {Writer | undefined} */
  #writer;
  /** Whether begin was called; without it the file is left as it was found. */
  #begun = false;
  /** A worker for the writer, until there is a writer. @type {import('../base/protocol.js').WorkerLike | undefined} */
  #worker;

  /** @param {FileSystemDirectoryHandle} folder @param {string} name @param {any} handle @param {Uint8Array} slots
   * @param {(() => import('../base/protocol.js').WorkerLike) | undefined} startThread
   * @param {(name: string) => Promise<boolean>} remove  removes a file */
  constructor(folder, name, handle, slots, startThread, remove) {
    this.folder = folder;
    this.name = name;
    this.#handle = handle;
    this.slots = slots;
    this.startThread = startThread ?? startHere;
    this.remove = remove;
    this.read = readerOf(handle).read;   // only until the first write, after which nothing is read again
  }

  size() { return this.#handle.getSize(); }

  /** @param {number} at */
  async begin(at) {
    const slots = await openSlots(this.folder, this.name);
    slots.truncate(slotBytes(at));
    slots.close();
    this.#handle.truncate(at);
    this.#begun = true;
    this.#worker = this.startThread();   // it starts while the first bytes arrive
  }

  /** @param {number} size */
  reserve(size) { this.#handle.truncate(size); }

  /** @type {Lock['write']} */
  write(bytes, at, slots, slotsAt) {
    if (!this.#writer) {
      // The worker opens the file itself.  If another tab locks it in between, the writer fails with Busy.
      this.#handle.close();
      this.#writer = new Writer(/** @type {import('../base/protocol.js').WorkerLike} */ (this.#worker), this.name);
      this.#worker = undefined;
    }
    return this.#writer.write(bytes, at, slots, slotsAt);
  }

  /** @type {Lock['publish']} */
  async publish(size, writeMeta) {
    if (this.#writer) await this.#writer.settle();
    else this.#handle.truncate(size);
    await writeMeta();
    await this.close(size);
    await this.remove(`${this.name}.sums`);
  }

  async discard() {
    await this.close(0).catch(() => {});
    for (const kind of ['gguf', 'sums', 'json']) await this.remove(`${this.name}.${kind}`);
  }

  /** @param {number} size */
  async close(size) {
    const writer = this.#writer, handle = this.#handle;
    this.#writer = this.#handle = undefined;
    this.#worker?.terminate();
    if (writer) await writer.end(size);
    else if (handle) {
      if (this.#begun && handle.getSize() !== size) handle.truncate(size);
      handle.close();
    }
  }
}

/** The handles with pending calls.  In Chromium a call never settles if its handle is garbage-collected meanwhile. */
const inUse = new Set();

/** Keeps a handle alive during an action. @template T @param {object} handle  the handle that action uses
 * @param {() => Promise<T>} action @returns {Promise<T>} */
async function keepAlive(handle, action) {
  const one = { handle };   // one entry for each call, because a handle may have several pending calls
  inUse.add(one);
  try {
    return await action();
  } finally {
    inUse.delete(one);
  }
}

async function openFolder() {
  const root = await navigator.storage.getDirectory();
  return keepAlive(root, () => root.getDirectoryHandle(FOLDER, { create: true }));
}

/** @param {any} file  a FileSystemFileHandle @param {string} mode */
const accessTo = (file, mode) => keepAlive(file, () => file.createSyncAccessHandle({ mode }));

/** Opens or creates a file with a handle that locks it for all others; throws Busy.
 * @param {FileSystemDirectoryHandle} folder @param {string} name @param {string} [mode] */
async function open(folder, name, mode = 'readwrite') {
  return attempt(async () =>
    accessTo(await keepAlive(folder, () => folder.getFileHandle(name, { create: true })), mode));
}

/** Opens the slots without a lock, because that of NAME.gguf is enough.  With a lock of their own they could still be
 * locked when the file no longer is: when a worker has ended, a browser may release its handles one after the other.
 * @param {FileSystemDirectoryHandle} folder @param {string} name */
const openSlots = (folder, name) => open(folder, `${name}.sums`, 'readwrite-unsafe');

/** The worker's side of a Writer. @param {MessagePort} port */
export const serveOpfs = port => serveWriter(port, async name => {
  const folder = await openFolder(), file = await open(folder, `${name}.gguf`);
  try {
    return { file, slots: await openSlots(folder, name) };
  } catch (error) {
    file.close();
    throw error;
  }
});

/** Replaces startThread where no worker can be started: the worker's side of the Writer then runs in this thread. */
const startHere = () => ({
  post: (/** @type {{write: MessagePort}} */ { write }) => serveOpfs(write),
  onMessage() {},
  onDeath() {},
  terminate() {},
});

/** @param {any} handle  a FileSystemSyncAccessHandle @returns {import('../loader/copy-store.js').Handle} */
const readerOf = handle => ({
  size: () => handle.getSize(),
  read: (target, at) => handle.read(target.subarray(0, READ), { at }),
  close: () => handle.close(),
});

/** Returns undefined if the file does not exist; throws Busy if it is locked. @template T
 * @param {() => Promise<T>} action */
async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    const { name } = /** @type {Error} */ (error);
    if (name === 'NotFoundError') return undefined;
    if (name === 'NoModificationAllowedError' || name === 'InvalidStateError') throw new Busy();
    throw error;
  }
}
