/* What models have computed of the latest conversations, in the private file system of the page (OPFS), so that a long
 * conversation goes on at once after a reload.  Nothing depends on it: what is not there is computed again.  The bytes
 * are not trusted; the engine checks them, and that they are of the same model and settings. */

/** @typedef {import('../../api/chat.js').Chat} Chat */

const FOLDER = 'plumb-chats';
/** Tokens that a conversation must have, and must have gained since it was last kept: fewer are computed quickly. */
const LEAST = 256;
/** The most bytes of all of them, and the most of the browser's quota for this origin. */
const MOST = 2 ** 29, SHARE = 0.1;

export class SavedStates {
  /** How many tokens of each conversation are kept, or were computed by the model that is loaded, by id.
   * @type {Map<string, number>} */
  #tokens = new Map();
  /** The last change, which never rejects. @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** Another model is loaded: what was computed is no longer in memory. */
  forget() { this.#tokens.clear(); }

  /** Gives a chat what is kept of its conversation, unless the model that is loaded has computed it.
   * @param {string} id  of the conversation @param {Chat} chat  with its messages */
  async restore(id, chat) {
    if (this.#tokens.has(id)) return;
    this.#tokens.set(id, 0);
    try {
      const folder = await folderOf(), file = await (await folder?.getFileHandle(nameOf(id)))?.getFile();
      if (file) await chat.restore(await file.arrayBuffer());
    } catch {
      // There is none, or it is of another model, or damaged.
    }
  }

  /** Keeps what was computed of a conversation. @param {string} id @param {Chat} chat @param {number} tokens */
  keep(id, chat, tokens) {
    if (tokens < (this.#tokens.get(id) ?? 0) + LEAST) return;
    this.#tokens.set(id, tokens);
    this.#change(async folder => {
      const bytes = await chat.save();
      await makeRoom(folder, bytes.length);
      const file = /** @type {any} */ (await folder.getFileHandle(nameOf(id), { create: true }));
      const writable = await file.createWritable();
      await writable.write(bytes);
      await writable.close();
    });
  }

  /** Removes what is kept of a conversation. @param {string} id */
  remove(id) {
    this.#tokens.delete(id);
    this.#change(folder => folder.removeEntry(nameOf(id)));
  }

  /** @param {(folder: FileSystemDirectoryHandle) => Promise<void>} change */
  #change(change) {
    this.#last = this.#last.then(async () => {
      const folder = await folderOf();
      if (folder) await change(folder);
    }).catch(() => {});   // without a place for it, it is computed again
  }
}

/** @param {string} id  which an imported file may have given */
const nameOf = id => `${encodeURIComponent(id)}.state`;

/** The folder; undefined: this browser has none, or cannot write to it from a page. */
async function folderOf() {
  const canWrite = 'createWritable' in (globalThis.FileSystemFileHandle?.prototype ?? {});
  const root = canWrite ? await navigator.storage?.getDirectory?.() : undefined;
  return root?.getDirectoryHandle(FOLDER, { create: true });
}

/** Removes the oldest files until there is room for so many bytes.
 * @param {FileSystemDirectoryHandle} folder @param {number} bytes */
async function makeRoom(folder, bytes) {
  const { quota = 0 } = await navigator.storage.estimate();
  let free = Math.min(MOST, SHARE * quota) - bytes;
  if (free < 0) throw new Error('it is larger than all that is kept may be');
  /** @type {File[]} */
  const files = [];
  for await (const handle of /** @type {any} */ (folder).values()) files.push(await handle.getFile());
  for (const { name, size } of files.sort((a, b) => b.lastModified - a.lastModified)) {
    free -= size;
    if (free < 0) await folder.removeEntry(name);
  }
}
