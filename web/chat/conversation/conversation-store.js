/* Conversations, stored in the browser's database.  Stored data is not trusted: another version of this page, an
 * extension or an imported file may have written it.  A record that is not a conversation is skipped. */

/** @typedef {object} Message
 * @property {'user' | 'assistant'} role
 * @property {string} content
 * @property {string} [reasoning]  for an answer: what the model thought before it
 * @property {true} [json]  for an answer: a schema binds it to JSON
 * @property {string} [figures]  for an answer: how many tokens it has, how fast it was, and how it ended
 * @property {{title: string, advice: string, detail: string, code?: string}} [problem]  why an answer failed;
 *   code: as in PlumbError
 * @property {{by: 'limit' | 'context' | 'stop' | 'failure' | 'steps', tokens: number}} [cut]  for an answer that was
 *   cut off: by the setting for the longest answer, the end of the context, the reader, who stopped it or left the
 *   page, a failure, or the budget of steps; tokens: how many tokens it has
 * @property {import('../tools/kept.js').Step[]} [steps]  for an answer: its calls of tools, before its content
 * @property {import('../documents/stored.js').Document[]} [documents]  for a question: what was attached to it
 * @property {import('../documents/stored.js').Place[]} [places]  for a question: what was found for it in the documents
 * @property {import('./versions.js').Versions} [versions]  other versions of this message and of those after it */
/** @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} updated  milliseconds since 1970
 * @property {{name: string, source?: string}} [model]  that gave the last answer; source: its address or name, if it is
 *   no file
 * @property {Record<string, string | number>} [own]  the settings that are not those of the page
 * @property {import('../tools/kept.js').Chosen} [tools]  those that the reader has turned on
 * @property {string} [origin]  for an imported conversation: its id in the file
 * @property {Message[]} messages */

import { inSlices } from '../../base/async.js';
import { openDatabase } from '../database.js';
import { bounded } from '../documents/given.js';
import { documentsOf } from '../documents/stored.js';
import { recall, remember } from '../dom.js';
import { ownValues } from '../settings.js';
import { chosenOf, isText, stepsOf } from '../tools/kept.js';
import { everyMessage, placeOf, walk, withAnswer } from './versions.js';

const DATABASE = 'plumb-chat', STORE = 'conversations';
/** The key in local storage for an answer that was growing when the page was left. @param {string} id */
const unsavedKey = id => `left.${id}`;
/** Upper bound on the messages of an imported conversation: more could not be shown in reasonable time. */
const MAX_MESSAGES = 10000;
/** Upper bound on versions within versions: what is nested deeper could not be copied. */
const MAX_DEPTH = 200;
/** The last time that a Date can represent, in milliseconds since 1970. */
const MAX_TIME = 8.64e15;

/** @param {any} value @returns {Conversation | undefined} */
function conversationOf(value) {
  if (!isText(value?.id, 100) || !Array.isArray(value.messages)) return undefined;
  const messages = messagesOf(value.messages, 0);
  if (!messages) return undefined;
  const { name, source } = value.model ?? {}, own = ownValues(value.own);
  return {
    id: value.id,
    title: isText(value.title, 1000) ? value.title.slice(0, 200) : '',
    updated: Number.isFinite(value.updated) && value.updated >= 0 && value.updated <= MAX_TIME ? value.updated : 0,
    ...isText(value.origin, 100) && { origin: value.origin },
    ...isText(name, 200) && { model: { name, ...isText(source, 2000) && { source } } },
    ...own && { own },
    messages,
  };
}

/** @param {any[]} values @param {number} depth  of the versions @returns {Message[] | undefined} */
function messagesOf(values, depth) {
  const messages = values.flatMap(value => messageOf(value, depth) ?? []);
  return messages.length === values.length ? messages : undefined;
}

/** @param {any} value  of a message @param {number} depth @returns {import('./versions.js').Versions | undefined} */
function versionsOf({ role, versions }, depth) {
  if (depth === MAX_DEPTH) return undefined;
  const [before, after] = [versions?.before, versions?.after].map(list => !Array.isArray(list) ? []
    : list.flatMap(values => {
      const messages = Array.isArray(values) ? messagesOf(values, depth + 1) : undefined;
      if (!messages || messages[0]?.role !== role) return [];
      delete messages[0].versions;
      return [withAnswer(messages)];
    }));
  return before.length + after.length > 0 ? { before, after } : undefined;
}

/** @param {any} value @param {number} depth @returns {Message | undefined} */
function messageOf(value, depth) {
  if (!['user', 'assistant'].includes(value?.role) || typeof value.content !== 'string') return undefined;
  const { title, advice, detail, code } = value.problem ?? {}, { by, tokens } = value.cut ?? {};
  const versions = versionsOf(value, depth);
  return {
    role: value.role,
    content: value.content,
    ...isText(value.reasoning, Infinity) && { reasoning: value.reasoning },
    ...value.json === true && { json: true },
    ...isText(value.figures, 1000) && { figures: value.figures },
    ...[title, advice, detail].every(text => isText(text, 10000))
      && { problem: { title, advice, detail, ...isText(code, 100) && { code } } },
    ...['limit', 'context', 'stop', 'failure', 'steps'].includes(by) && Number.isSafeInteger(tokens) && tokens >= 0
      && { cut: { by, tokens } },
    ...value.role === 'user' ? documentsOf(value) : stepsOf(value),
    ...versions && { versions },
  };
}

/** A random id.  crypto.randomUUID does not exist on pages without https. */
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

/** Finds the words of a search in a conversation.
 * @param {Conversation} conversation @param {RegExp[]} words  all of them must occur
 * @returns {{before: string, match: string, after: string} | undefined}  a passage with the first of them that is not
 *   in the title; empty if the title has all of them; undefined if a word does not occur */
export function find(conversation, words) {
  const title = titleOf(conversation), messages = everyMessage(conversation.messages);
  let passage;
  for (const word of words) {
    if (word.test(title)) continue;
    const text = messages.find(({ content }) => word.test(content))?.content;
    if (text === undefined) return undefined;
    if (passage) continue;
    const { 0: match, index = 0 } = /** @type {RegExpExecArray} */ (word.exec(text));
    const start = text.slice(Math.max(0, index - 20), index);
    passage = { before: index > 20 ? start.replace(/^\S*\s/, '… ') : start, match,
      after: text.slice(index + match.length, index + match.length + 80) };
  }
  return passage ?? { before: '', match: '', after: '' };
}

/** @param {string} text  the text of a search */
export const wordsOf = text => text.split(/\s+/).filter(Boolean)
  .map(word => new RegExp(word.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'iu'));

/** @typedef {object} Listener
 * @property {(saved: boolean) => void} saving  called when the browser fails to store a conversation, or succeeds again
 * @property {(conversation: Conversation) => void} diverged  another tab has changed this conversation, so this tab's
 *   version is now a copy, with its own id and title
 * @property {(id: string) => void} removed  this tab has removed a conversation
 * @property {() => void} changed  another tab has added, changed or removed conversations */

/** Milliseconds from another tab's notice until this tab reads what was written: a growing answer sends several notices
 * a second, and an import sends one for each conversation. */
const READ_DELAY = 50;

/** Opens the conversations of this browser. @param {Listener} listener */
export async function openStore(listener) {
  const database = await openDatabase(DATABASE, STORE).catch(() => undefined);
  return new Store(listener, database, await database?.read().catch(() => []) ?? []);
}

/** The conversations of this browser, which are all in memory too.  Without a database they last as long as the page.
 *
 * Several tabs may have the same conversation open.  Each record has a revision, and every write gives it a new one.
 * If the record's revision is not the one that this tab knows, a write does not overwrite the record but adds a copy.
 * After each write the tab sends the id to the other tabs, which read the record again. */
export class Store {
  #listener;
  #database;
  #channel;
  /** @type {Map<string, Conversation>} */
  #all = new Map();
  /** The revision of each conversation that this tab last read or wrote. @type {WeakMap<Conversation, unknown>} */
  #revisions = new WeakMap();
  /** Ids of the conversations that this tab has removed. @type {Set<string>} */
  #removed = new Set();
  /** Ids of the conversations that other tabs have written. @type {Set<string>} */
  #written = new Set();
  #saving = true;

  /** @param {Listener} listener @param {Awaited<ReturnType<typeof openDatabase>> | undefined} database
   * @param {unknown[]} records */
  constructor(listener, database, records) {
    this.#listener = listener;
    this.#database = database;
    for (const record of records) this.#addRecord(record);
    this.#channel = database && 'BroadcastChannel' in globalThis ? new BroadcastChannel(DATABASE) : undefined;
    this.#restore();
    this.#channel?.addEventListener('message', ({ data: id }) => {
      if (this.#written.size === 0) setTimeout(() => this.#readWritten(), READ_DELAY);
      this.#written.add(id);
    });
  }

  /** Adds a record of the database, if it is a conversation. @param {any} record */
  #addRecord(record) {
    const conversation = conversationOf(record);
    if (!conversation) return;
    Object.assign(conversation, chosenOf(record));   // only the reader turns tools on: files cannot
    this.#removed.delete(conversation.id);
    this.#all.set(conversation.id, conversation);
    this.#revisions.set(conversation, record.revision);
  }

  /** @param {Promise<void> | undefined} change */
  async #finish(change) {
    const saved = await change?.then(() => true, () => false) ?? true;
    if (saved !== this.#saving) this.#listener.saving(this.#saving = saved);
  }

  /** Overwrites a conversation's record if this tab knows its revision, or else adds a copy.
   * @param {Conversation} conversation */
  async #write(conversation) {
    const revision = newId();
    let diverged = false;
    await this.#database?.write(store => {
      const putRecord = () => {
        const { id } = conversation;
        const request = store.get(id);
        request.onsuccess = () => {
          if (conversation.id !== id) return putRecord();   // the write before this one has made it a copy
          const record = request.result;
          diverged = record !== undefined && record.revision !== this.#revisions.get(conversation);
          if (diverged) {
            conversation.title = `${titleOf(conversation)} (copy)`;
            conversation.id = newId();
            this.#all.delete(id);
            this.#addRecord(record);
            this.#all.set(conversation.id, conversation);
          }
          store.put({ ...conversation, revision });
        };
      };
      putRecord();
    });
    this.#revisions.set(conversation, revision);
    this.#channel?.postMessage(conversation.id);
    if (diverged) this.#listener.diverged(conversation);
  }

  /** Restores answers that were growing when the page was left, including the text since their last save. */
  #restore() {
    for (const conversation of this.#all.values()) {
      const { id, messages } = conversation, { n, content } = recall(unsavedKey(id)) ?? {}, last = messages.at(-1);
      if (n === undefined) continue;
      remember(unsavedKey(id), undefined);
      if (n !== messages.length || last?.role !== 'assistant' || typeof content !== 'string') continue;
      if (!content.startsWith(last.content) || content === last.content) continue;
      last.content = content;
      void this.#finish(this.#write(conversation));
    }
  }

  /** Reads what other tabs have written. */
  async #readWritten() {
    const ids = [...this.#written];
    this.#written.clear();
    const records = await this.#database?.get(ids).catch(() => undefined);
    records?.forEach((record, i) => {
      const known = this.#all.get(ids[i]);
      if (record === undefined) this.#all.delete(ids[i]);
      else if (known && this.#revisions.get(known) === record.revision) {
        known.title = conversationOf(record)?.title ?? '';
      } else this.#addRecord(record);
    });
    if (records) this.#listener.changed();
  }

  /** Whether the conversations outlast the page. */
  get isPersistent() { return this.#database !== undefined; }

  /** The conversations, the latest first. */
  list() { return [...this.#all.values()].sort((a, b) => b.updated - a.updated); }

  /** @param {string} id */
  get(id) { return this.#all.get(id); }

  /** Whether this tab has removed a conversation. @param {string} id */
  isRemoved(id) { return this.#removed.has(id); }

  /** @param {Conversation} conversation */
  put(conversation) {
    this.#removed.delete(conversation.id);
    this.#all.set(conversation.id, conversation);
    return this.#finish(this.#write(conversation));
  }

  /** Stores the last message of a conversation at once, because a page that is left has no time for the database.
   * @param {Conversation} conversation */
  saveNow({ id, messages }) {
    remember(unsavedKey(id), { n: messages.length, content: messages.at(-1)?.content });
  }

  /** Changes a conversation's title.  The revision stays the same, so a tab that continues the conversation does not
   * make a copy. @param {Conversation} conversation @param {string} title */
  rename(conversation, title) {
    const { id } = conversation;
    conversation.title = title;
    return this.#finish(this.#database?.write(store => {
      const request = store.get(id);
      request.onsuccess = () => request.result && store.put({ ...request.result, title });
    }).then(() => this.#channel?.postMessage(id)));
  }

  /** @param {string} id */
  remove(id) {
    this.#removed.add(id);
    this.#all.delete(id);
    this.#listener.removed(id);
    remember(unsavedKey(id), undefined);
    return this.#finish(this.#database?.write(store => void store.delete(id))
      .then(() => this.#channel?.postMessage(id)));
  }
}

// ---- files ----

/** A file of conversations, without the tools that are on: the address of a server may have a key.
 * @param {Conversation[]} conversations */
export const toJson = conversations => JSON.stringify({ plumb_chat: 1, conversations }, withoutTools, 1);

/** @param {string} name @param {any} value */
const withoutTools = (name, value) => name === 'tools' ? undefined
  : name !== 'at' || typeof value !== 'string' ? value : URL.canParse(value) ? new URL(value).origin : undefined;

/** @param {string} text  of a file @param {Conversation[]} here  the conversations that already exist
 * @returns {Promise<{fresh: Conversation[], known: Conversation[], refused: number}>}  fresh: new conversations with
 *   new ids, so that none is overwritten; known: conversations of `here` that already contain one of the file; refused:
 *   how many entries are not conversations */
export async function fromJson(text, here) {
  /** @type {{fresh: Conversation[], known: Conversation[], refused: number}} */
  const read = { fresh: [], known: [], refused: 0 };
  const found = JSON.parse(text)?.conversations;
  if (!Array.isArray(found)) return read;
  for await (const value of inSlices(found)) {
    const { id } = value ?? {}, origin = isText(id, 100) ? id : undefined;
    const conversation = conversationOf({ ...value, id: newId() });
    if (!conversation || everyMessage(conversation.messages).length > MAX_MESSAGES) {
      read.refused++;
      continue;
    }
    const known = here.find(one => contains(one, conversation, [origin, conversation.origin]));
    if (known) {
      read.known.push(known);
      continue;
    }
    if (origin !== undefined) conversation.origin = origin;
    withAnswer(conversation.messages);
    read.fresh.push(conversation);
  }
  return read;
}

/** Whether importing `other` would add nothing, because `one` has all of its messages, in all versions.  If they share
 * an id, `one` may have continued; if not, both must be the same.
 * @param {Conversation} one @param {Conversation} other @param {(string | undefined)[]} ids  the ids of other */
function contains(one, other, ids) {
  const related = ids.some(id => id !== undefined && (id === one.id || id === one.origin));
  const [ours, theirs] = [one, other].map(({ messages }) => everyMessage(messages));
  if (!related && (one.title !== other.title || ours.length !== theirs.length)) return false;
  /** The number of each message of `one`, by the number of the one before it and what it says; and what the last
   * messages say. @type {Map<string, number>} */
  const numbers = new Map(), last = new Map();
  const textOf = (/** @type {Message} */ { content, steps = [] }) => steps.flatMap(({ calls }) =>
    calls.map(({ name, arguments: given, result = '' }) => `${name} ${given} ${result}\n`)).join('') + content;
  const keyOf = (/** @type {Message} */ message, /** @type {number} */ before) =>
    `${before} ${message.role} ${textOf(message)}`;
  walk(one.messages, 0, (message, before) => {
    const key = keyOf(message, before), number = numbers.get(key) ?? numbers.size + 1;
    numbers.set(key, number);
    last.set(`${before} ${message.role}`, textOf(message));
    return number;
  });
  let hasAll = true;
  walk(other.messages, 0, (message, before, isLast) => {
    const number = numbers.get(keyOf(message, before));
    const hasGrown = related && isLast && last.get(`${before} ${message.role}`)?.startsWith(textOf(message));
    hasAll &&= number !== undefined || hasGrown;
    return number ?? -1;
  });
  return hasAll;
}

/** The conversation as it is shown; a heading says which version of how many it is.
 * @param {Conversation} conversation */
export function toMarkdown(conversation) {
  const turns = conversation.messages.map(message => {
    const { role, content, problem } = message, { at, of } = placeOf(message);
    const version = of > 1 ? ` (version ${at} of ${of})` : '';
    const calls = message.steps?.flatMap(step => [step.content ? `${step.content}\n\n` : '',
      ...step.calls.map(({ name, arguments: given, result = '' }) =>
        `${bounded(`${name} ${given}`, '`')}\n\n${bounded(result, '`')}\n\n`)]) ?? [];
    return `## ${role === 'user' ? 'You' : 'Model'}${version}\n\n${calls.join('')}${content || problem?.title || ''}\n`;
  });
  return `# ${titleOf(conversation)}\n\n${turns.join('\n')}`;
}
