/* Conversations, kept in the browser's database.  What is read back is not trusted: another version of this page, an
 * extension or an imported file wrote it.  A record that is no conversation is passed over. */

/** @typedef {object} Message
 * @property {'user' | 'assistant'} role
 * @property {string} content
 * @property {string} [figures]  of an answer: how many tokens, how fast, how it ended
 * @property {{title: string, advice: string, detail: string, code?: string}} [problem]  of an answer that failed;
 *   code: as in PlumbError
 * @property {{by: 'limit' | 'context', tokens: number}} [cut]  of an answer that was cut off: by the longest answer
 *   that is set, or by the end of the context; tokens: how many it has */
/** @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} updated  milliseconds since 1970
 * @property {string} [origin]  of an imported one: its id in the file
 * @property {Message[]} messages */

import { recall, remember } from './dom.js';

const DATABASE = 'plumb-chat', STORE = 'conversations';
/** What the browser remembers of an answer that was left, by the id of its conversation. @param {string} id */
const left = id => `left.${id}`;
/** Of an imported conversation: more would not be shown in any useful time. */
const MOST_MESSAGES = 10000;
/** The last moment that a Date can tell, in milliseconds since 1970. */
const LAST_TIME = 8.64e15;

/** @param {unknown} value @param {number} most @returns {value is string} */
const isText = (value, most) => typeof value === 'string' && value.length <= most;

/** @param {any} value @returns {Conversation | undefined} */
function conversationOf(value) {
  if (!isText(value?.id, 100) || !Array.isArray(value.messages)) return undefined;
  const messages = value.messages.map(messageOf);
  if (messages.some((/** @type {unknown} */ message) => !message)) return undefined;
  return {
    id: value.id,
    title: isText(value.title, 1000) ? value.title.slice(0, 200) : '',
    updated: Number.isFinite(value.updated) && value.updated >= 0 && value.updated <= LAST_TIME ? value.updated : 0,
    ...isText(value.origin, 100) && { origin: value.origin },
    messages,
  };
}

/** @param {any} value @returns {Message | undefined} */
function messageOf(value) {
  if (!['user', 'assistant'].includes(value?.role) || typeof value.content !== 'string') return undefined;
  const { title, advice, detail, code } = value.problem ?? {}, { by, tokens } = value.cut ?? {};
  return {
    role: value.role,
    content: value.content,
    ...isText(value.figures, 1000) && { figures: value.figures },
    ...[title, advice, detail].every(text => isText(text, 10000))
      && { problem: { title, advice, detail, ...isText(code, 100) && { code } } },
    ...['limit', 'context'].includes(by) && Number.isSafeInteger(tokens) && tokens >= 0 && { cut: { by, tokens } },
  };
}

/** crypto.randomUUID is not there on pages without https. */
const newId = () => [...crypto.getRandomValues(new Uint32Array(4))].map(n => n.toString(36)).join('-');

/** @returns {Conversation} */
export function newConversation() {
  return { id: newId(), title: '', updated: Date.now(), messages: [] };
}

/** @param {Conversation} conversation */
export function titleOf({ title, messages }) {
  const first = messages[0]?.content.trim().split('\n')[0] ?? '';
  return title || (first.length > 60 ? `${first.slice(0, 59)}…` : first) || 'New chat';
}

/** Where the words of a search stand in a conversation.
 * @param {Conversation} conversation @param {RegExp[]} words  each has to be somewhere
 * @returns {{before: string, match: string, after: string} | undefined}  a passage with the first of them that is not
 *   in the title; empty if all are there; undefined: a word is nowhere */
export function find(conversation, words) {
  const title = titleOf(conversation);
  let passage;
  for (const word of words) {
    if (word.test(title)) continue;
    const text = conversation.messages.find(({ content }) => word.test(content))?.content;
    if (text === undefined) return undefined;
    if (passage) continue;
    const { 0: match, index = 0 } = /** @type {RegExpExecArray} */ (word.exec(text));
    const start = text.slice(Math.max(0, index - 20), index);
    passage = { before: index > 20 ? start.replace(/^\S*\s/, '… ') : start, match,
      after: text.slice(index + match.length, index + match.length + 80) };
  }
  return passage ?? { before: '', match: '', after: '' };
}

/** @param {string} text  what is searched for */
export const wordsOf = text => text.split(/\s+/).filter(Boolean)
  .map(word => new RegExp(word.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'iu'));

/** @typedef {Awaited<ReturnType<typeof openStore>>} Store */
/** @typedef {object} Listener
 * @property {(saved: boolean) => void} saving  the browser refuses to keep a conversation, or keeps them again
 * @property {(conversation: Conversation) => void} parted  another tab has changed this conversation, so it is a copy
 *   now, with an id and a title of its own
 * @property {() => void} changed  another tab has added, changed or removed conversations */

/** Milliseconds between a notice of another tab and the look at what it wrote: an answer that grows sends several
 * notices a second, an import one for each conversation. */
const LOOK = 50;

/** The conversations of this browser, all in memory too.  Where there is no database they last as long as the page.
 *
 * Several tabs may have the same conversation open.  Each record has a revision, which is new with every write.  A tab
 * that writes a conversation whose record has another revision than the one it knows does not overwrite the record: it
 * writes a copy.  After each write it sends the id to the other tabs, which read the record again.
 * @param {Listener} listener */
export async function openStore(listener) {
  /** @type {Map<string, Conversation>} */
  const all = new Map();
  /** The revision that this tab last read or wrote of each. @type {WeakMap<Conversation, unknown>} */
  const revisions = new WeakMap();
  /** Ids of those that this tab has removed. @type {Set<string>} */
  const removed = new Set();
  const database = await open().catch(() => undefined);
  for (const record of await database?.read().catch(() => []) ?? []) take(record);
  const channel = database && 'BroadcastChannel' in globalThis ? new BroadcastChannel(DATABASE) : undefined;
  let saving = true;

  /** Holds a record of the database as a conversation, if it is one. @param {any} record */
  function take(record) {
    const conversation = conversationOf(record);
    if (!conversation) return;
    removed.delete(conversation.id);
    all.set(conversation.id, conversation);
    revisions.set(conversation, record.revision);
  }

  /** @param {Promise<void> | undefined} change */
  async function finish(change) {
    const saved = await change?.then(() => true, () => false) ?? true;
    if (saved !== saving) listener.saving(saving = saved);
  }

  /** Writes a conversation over the record that this tab knows, or else as a copy.
   * @param {Conversation} conversation */
  async function write(conversation) {
    const revision = newId();
    let parted = false;
    await database?.write(store => {
      const look = () => {
        const { id } = conversation;
        const asking = store.get(id);
        asking.onsuccess = () => {
          if (conversation.id !== id) return look();   // the write before this one has made it a copy
          const record = asking.result;
          parted = record !== undefined && record.revision !== revisions.get(conversation);
          if (parted) {
            conversation.title = `${titleOf(conversation)} (copy)`;
            conversation.id = newId();
            all.delete(id);
            take(record);
            all.set(conversation.id, conversation);
          }
          store.put({ ...conversation, revision });
        };
      };
      look();
    });
    revisions.set(conversation, revision);
    channel?.postMessage(conversation.id);
    if (parted) listener.parted(conversation);
  }

  // Answers that were growing when the page was left: what was said since their last saving.
  for (const conversation of all.values()) {
    const { id, messages } = conversation, { n, content } = recall(left(id)) ?? {}, last = messages.at(-1);
    if (n === undefined) continue;
    remember(left(id), undefined);
    if (n !== messages.length || last?.role !== 'assistant' || typeof content !== 'string') continue;
    if (!content.startsWith(last.content) || content === last.content) continue;
    last.content = content;
    void finish(write(conversation));
  }

  /** Ids that other tabs have written. @type {Set<string>} */
  const written = new Set();
  channel?.addEventListener('message', ({ data: id }) => {
    if (written.size === 0) setTimeout(follow, LOOK);
    written.add(id);
  });

  /** Reads again what other tabs have written. */
  async function follow() {
    const ids = [...written];
    written.clear();
    const records = await database?.get(ids).catch(() => undefined);
    records?.forEach((record, i) => {
      const known = all.get(ids[i]);
      if (record === undefined) all.delete(ids[i]);
      else if (known && revisions.get(known) === record.revision) known.title = conversationOf(record)?.title ?? '';
      else take(record);
    });
    if (records) listener.changed();
  }

  return {
    /** Whether they outlast the page. */
    lasting: database !== undefined,
    /** Latest first. */
    list: () => [...all.values()].sort((a, b) => b.updated - a.updated),
    /** @param {string} id */
    get: id => all.get(id),
    /** Whether this tab has removed it. @param {string} id */
    isRemoved: id => removed.has(id),
    /** @param {Conversation} conversation */
    put(conversation) {
      removed.delete(conversation.id);
      all.set(conversation.id, conversation);
      return finish(write(conversation));
    },
    /** Keeps the last message of a conversation at once: a page that is left has no time for the database.
     * @param {Conversation} conversation */
    leave({ id, messages }) {
      remember(left(id), { n: messages.length, content: messages.at(-1)?.content });
    },
    /** Gives it another title.  The revision stays, so that a tab that goes on with the conversation does not part
     * from it. @param {Conversation} conversation @param {string} title */
    rename(conversation, title) {
      const { id } = conversation;
      conversation.title = title;
      return finish(database?.write(store => {
        const asking = store.get(id);
        asking.onsuccess = () => asking.result && store.put({ ...asking.result, title });
      }).then(() => channel?.postMessage(id)));
    },
    /** @param {string} id */
    remove(id) {
      removed.add(id);
      all.delete(id);
      remember(left(id), undefined);
      return finish(database?.write(store => void store.delete(id)).then(() => channel?.postMessage(id)));
    },
  };
}

async function open() {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: 'id' });
  const database = await done(opening);
  database.onversionchange = () => database.close();
  return {
    /** @returns {Promise<any[]>} */
    read: () => done(database.transaction(STORE).objectStore(STORE).getAll()),
    /** Undefined where there is none. @param {string[]} ids @returns {Promise<any[]>} */
    get(ids) {
      const store = database.transaction(STORE).objectStore(STORE);
      return Promise.all(ids.map(id => done(store.get(id))));
    },
    /** Done when it is written: a full disk is told at the end. @param {(store: IDBObjectStore) => void} change
     * @returns {Promise<void>} */
    write: change => new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, 'readwrite');
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
      change(transaction.objectStore(STORE));
    }),
  };
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// ---- files ----

/** @param {Conversation[]} conversations */
export const toJson = conversations => JSON.stringify({ plumb_chat: 1, conversations }, null, 1);

/** @param {string} text  of a file @param {Conversation[]} here  the conversations that there are already
 * @returns {{fresh: Conversation[], known: Conversation[], refused: number}}  fresh: with ids of their own, so that
 *   none is overwritten; known: those of `here` that already hold one of the file; refused: how many are no
 *   conversations */
export function fromJson(text, here) {
  /** @type {{fresh: Conversation[], known: Conversation[], refused: number}} */
  const read = { fresh: [], known: [], refused: 0 };
  const found = JSON.parse(text)?.conversations;
  if (!Array.isArray(found)) return read;
  for (const value of found) {
    const { id } = value ?? {}, origin = isText(id, 100) ? id : undefined;
    const conversation = conversationOf({ ...value, id: newId() });
    if (!conversation || conversation.messages.length > MOST_MESSAGES) {
      read.refused++;
      continue;
    }
    const known = here.find(one => holds(one, conversation, [origin, conversation.origin]));
    if (known) {
      read.known.push(known);
      continue;
    }
    if (origin !== undefined) conversation.origin = origin;
    const { messages } = conversation;
    // Else the page would answer it at once: a last question waits for a model.
    if (messages.at(-1)?.role === 'user') messages.push({ role: 'assistant', content: '', figures: 'not answered' });
    read.fresh.push(conversation);
  }
  return read;
}

/** Whether an import would add nothing: one has all that the other says.  If they have an id in common it may have
 * gone on since, else both must be the same.
 * @param {Conversation} one @param {Conversation} other @param {(string | undefined)[]} ids  of the other */
function holds(one, other, ids) {
  const n = other.messages.length;
  const related = ids.some(id => id !== undefined && (id === one.id || id === one.origin));
  if (!related && (one.title !== other.title || one.messages.length !== n)) return false;
  return other.messages.every(({ role, content }, i) => {
    const message = one.messages[i];
    if (message?.role !== role) return false;
    return related && i === n - 1 ? message.content.startsWith(content) : message.content === content;
  });
}

/** @param {Conversation} conversation */
export function toMarkdown(conversation) {
  const turns = conversation.messages.map(({ role, content, problem }) =>
    `## ${role === 'user' ? 'You' : 'Model'}\n\n${content || problem?.title || ''}\n`);
  return `# ${titleOf(conversation)}\n\n${turns.join('\n')}`;
}
