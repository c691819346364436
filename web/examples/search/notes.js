/* The notes and their index, stored in the browser's database.  Stored data is not trusted: another version of this
 * page, or an extension, may have written it.  A record that is not a note is skipped, and a wrong index is made
 * again. */
import { openDatabase } from '../../chat/database.js';

/** @typedef {object} Note
 * @property {string} id
 * @property {string} name
 * @property {string} text
 * @property {Index} [index]  undefined: it is not made yet */
/** model: identifies the bytes of the model, and the prefix of passages.
 * @typedef {import('../../chat/documents/search.js').Index & {model: string}} Index */

/** Upper bounds: of the characters of a note, and of a name. */
export const MAX_TEXT = 5e6;
const MAX_NAME = 200;

/** @param {any} value @returns {Note | undefined} */
function noteOf(value) {
  const { id, name, text } = value ?? {};
  if (![id, name, text].every(one => typeof one === 'string')) return undefined;
  if (id.length > 100 || name.length > MAX_NAME || text.length > MAX_TEXT) return undefined;
  return { id, name, text, ...isIndex(value.index, text) && { index: value.index } };
}

/** @param {any} index @param {string} text @returns {index is Index} */
function isIndex(index, text) {
  const { model, bounds, vectors } = index ?? {};
  if (typeof model !== 'string' || !(bounds instanceof Uint32Array) || !(vectors instanceof Float32Array)) return false;
  const n = bounds.length / 2;
  return Number.isInteger(n) && (n === 0 ? vectors.length === 0 : vectors.length > 0 && vectors.length % n === 0)
    && bounds.every((bound, i) => bound <= text.length && (i % 2 === 0 || bound > bounds[i - 1]))
    && vectors.every(Number.isFinite);
}

/** Opens the notes of this browser, which are all in memory too.  Without a database they last as long as the page.
 * @param {(saved: boolean) => void} saving  called when the browser fails to store a note, or succeeds again */
export async function openNotes(saving) {
  /** @type {Map<string, Note>} */
  const all = new Map();
  const database = await openDatabase('plumb-search', 'notes').catch(() => undefined);
  for (const record of await database?.read().catch(() => []) ?? []) {
    const note = noteOf(record);
    if (note) all.set(note.id, note);
  }
  let saved = true;
  /** @param {(store: IDBObjectStore) => void} change */
  async function write(change) {
    const written = database ? await database.write(change).then(() => true, () => false) : false;
    if (written !== saved) saving(saved = written);
  }
  return {
    all,
    /** Adds a note, or stores one that has changed. @param {Note} note */
    put(note) {
      all.set(note.id, note);
      return write(store => void store.put(note));
    },
    /** @param {string} id */
    remove(id) {
      all.delete(id);
      return write(store => void store.delete(id));
    },
    /** Removes all notes, also those that another tab has added. */
    clear() {
      all.clear();
      return write(store => void store.clear());
    },
  };
}
