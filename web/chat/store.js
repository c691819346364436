/* Conversations, kept in the browser's database.  What is read back is not trusted: another version of this page, an
 * extension or an imported file wrote it.  A record that is no conversation is passed over. */

/** @typedef {object} Message
 * @property {'user' | 'assistant'} role
 * @property {string} content
 * @property {string} [figures]  of an answer: how many tokens, how fast, how it ended
 * @property {{title: string, advice: string, detail: string}} [problem]  of an answer that failed */
/** @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} updated  milliseconds since 1970
 * @property {Message[]} messages */

const DATABASE = 'plumb-chat', STORE = 'conversations';
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
    messages,
  };
}

/** @param {any} value @returns {Message | undefined} */
function messageOf(value) {
  if (!['user', 'assistant'].includes(value?.role) || typeof value.content !== 'string') return undefined;
  const { title, advice, detail } = value.problem ?? {};
  return {
    role: value.role,
    content: value.content,
    ...isText(value.figures, 1000) && { figures: value.figures },
    ...[title, advice, detail].every(text => isText(text, 10000)) && { problem: { title, advice, detail } },
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

/** @typedef {Awaited<ReturnType<typeof openStore>>} Store */

/** The conversations of this browser, all in memory too.  Where there is no database they last as long as the page.
 * A conversation that another tab has changed since is not overwritten: this tab's becomes one of its own.
 * @param {(what: 'saved' | 'unsaved' | 'parted') => void} tell  unsaved: the browser refused to keep one; saved: it
 *   does again; parted: a conversation has another id now */
export async function openStore(tell) {
  /** @type {Map<string, Conversation>} */
  const all = new Map();
  /** What this tab last read or wrote of each. @type {Map<string, unknown>} */
  const revisions = new Map();
  const database = await open().catch(() => undefined);
  for (const record of await database?.read().catch(() => []) ?? []) {
    const conversation = conversationOf(record);
    if (!conversation) continue;
    all.set(conversation.id, conversation);
    revisions.set(conversation.id, record.revision);
  }
  let saving = true;
  /** @param {Promise<void> | undefined} change */
  async function finish(change) {
    const saved = await change?.then(() => true, () => false) ?? true;
    if (saved !== saving) tell((saving = saved) ? 'saved' : 'unsaved');
  }

  /** Writes a conversation over the one that this tab knows. @param {Conversation} conversation */
  async function write(conversation) {
    const revision = newId();
    let parted = false;
    await database?.write(store => {
      const asking = store.get(conversation.id);
      asking.onsuccess = () => {
        const theirs = asking.result;
        parted = theirs !== undefined && theirs.revision !== revisions.get(conversation.id);
        if (parted) {
          const other = conversationOf(theirs);
          if (other) all.set(other.id, other);
          else all.delete(conversation.id);
          revisions.set(conversation.id, theirs.revision);
          conversation.id = newId();
          all.set(conversation.id, conversation);
        }
        store.put({ ...conversation, revision });
      };
    });
    revisions.set(conversation.id, revision);
    if (parted) tell('parted');
  }
  return {
    /** Whether they outlast the page. */
    lasting: database !== undefined,
    /** Latest first. */
    list: () => [...all.values()].sort((a, b) => b.updated - a.updated),
    /** @param {string} id */
    get: id => all.get(id),
    /** @param {Conversation} conversation */
    put(conversation) {
      all.set(conversation.id, conversation);
      return finish(write(conversation));
    },
    /** @param {string} id */
    remove(id) {
      all.delete(id);
      return finish(database?.write(store => void store.delete(id)));
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

/** @param {string} text  of a file
 * @returns {{conversations: Conversation[], refused: number}}  with ids of their own, so that none is overwritten;
 *   refused: how many are no conversations */
export function fromJson(text) {
  const found = JSON.parse(text)?.conversations;
  if (!Array.isArray(found)) return { conversations: [], refused: 0 };
  const conversations = found.flatMap(value => conversationOf({ ...value, id: newId() }) ?? [])
    .filter(({ messages }) => messages.length <= MOST_MESSAGES);
  for (const { messages } of conversations) {
    // Else the page would answer it at once: a last question waits for a model.
    if (messages.at(-1)?.role === 'user') messages.push({ role: 'assistant', content: '', figures: 'not answered' });
  }
  return { conversations, refused: found.length - conversations.length };
}

/** @param {Conversation} conversation */
export function toMarkdown(conversation) {
  const turns = conversation.messages.map(({ role, content, problem }) =>
    `## ${role === 'user' ? 'You' : 'Model'}\n\n${content || problem?.title || ''}\n`);
  return `# ${titleOf(conversation)}\n\n${turns.join('\n')}`;
}
