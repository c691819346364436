/* Files of the browser's private file system (OPFS), in its folder "plumb".  Only workers write there: only they have
 * handles that do it at once.  Such a handle locks its file for all tabs. */
import { Busy } from './store.js';

const FOLDER = 'plumb';
/** At most this much is read at once, so that aborts and progress have their turn. */
const READ = 8 << 20;

/** @returns {Promise<import('./store.js').Folder>} */
export async function opfs() {
  if (!globalThis.isSecureContext) throw new Error('the page is no secure context, which https: or localhost make it');
  const { storage } = navigator;
  if (!storage?.getDirectory) throw new Error('this browser has no private file system for pages (OPFS)');
  const folder = await (await storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  const file = (/** @type {string} */ name) => attempt(async () => (await folder.getFileHandle(name)).getFile());
  /** @param {string} name @param {{create: boolean, mode: 'read-only' | 'readwrite'}} options */
  const open = (name, { create, mode }) => attempt(async () => {
    const file = /** @type {any} */ (await folder.getFileHandle(name, { create }));
    return handleOf(await file.createSyncAccessHandle({ mode }));
  });
  return {
    writes: 'createSyncAccessHandle' in FileSystemFileHandle.prototype,
    async names() {
      const names = [];
      for await (const name of /** @type {any} */ (folder).keys()) names.push(name);
      return names;
    },
    file,
    text: async name => (await file(name))?.text(),
    // A browser that does not know the mode lets one tab read at a time.
    read: name => open(name, { create: false, mode: 'read-only' }),
    lock: async name => /** @type {import('./store.js').Handle} */ (await open(name, { create: true,
      mode: 'readwrite' })),
    remove: async name => await attempt(async () => {
      await folder.removeEntry(name);
      return true;
    }) ?? false,
    async room() {
      const { quota = 0, usage = 0 } = await storage.estimate();
      return quota - usage;
    },
  };
}

/** @param {any} handle  a FileSystemSyncAccessHandle @returns {import('./store.js').Handle} */
const handleOf = handle => ({
  size: () => handle.getSize(),
  read: (target, at) => handle.read(target.subarray(0, READ), { at }),
  write(bytes, at) {
    // In a private window of Chromium a full one throws nothing, but says that it wrote 4294967288 bytes.
    if (handle.write(bytes, { at }) !== bytes.length) throw new Error('the storage has no more room');
  },
  truncate: size => handle.truncate(size),
  flush: () => handle.flush(),
  close: () => handle.close(),
});

/** Undefined where there is no such file. @template T @param {() => Promise<T>} action */
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
