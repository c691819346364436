/* The list of conversations: choose, search, rename, delete with undo, export, import. */
import { find, fromJson, titleOf, toJson, toMarkdown, wordsOf } from './conversation-store.js';
import { inSlices } from '../../base/async.js';
import { count, downloadText, element, iconButton, integer, make, toast } from '../dom.js';

/** @typedef {import('./conversation-store.js').Conversation} Conversation */

/** Milliseconds after the last key until the list is searched. */
const DEBOUNCE = 100;

/** @typedef {{current: () => Conversation, choose: (conversation: Conversation | undefined) => void,
 *   onChosen: () => void}} Page  choose: undefined means a new one; onChosen: is called when one was chosen from the
 *   list */

export class ConversationList {
  #store;
  #page;
  #list = element('chats', 'ul');
  #search = element('search', 'input');
  /** The conversations that Undo restores. @type {Conversation[]} */
  #deleted = [];
  /** Removes the line with Undo. */
  #dismissUndo = () => {};

  /** @param {import('./conversation-store.js').Store} store @param {Page} page */
  constructor(store, page) {
    this.#store = store;
    this.#page = page;
    if (!store.isPersistent) {
      element('chats-note', 'p').textContent = 'This browser stores no data here: conversations are lost when you '
        + 'close the page.';
    }
    this.#list.addEventListener('keydown', event => this.#onKey(event));
    this.#listenToSearch();
    this.#listenToFiles();
  }

  /** @param {Conversation} conversation @param {ReturnType<typeof find>} [passage]  the result of the search */
  #entry(conversation, passage) {
    const title = titleOf(conversation), { current, choose, onChosen } = this.#page;
    const open = make('button', { type: 'button', className: 'title',
      title: new Date(conversation.updated).toDateString(),   // Intl would take 40 ms
      'aria-describedby': 'chats-keys', 'aria-keyshortcuts': 'F2 Delete',
      onclick: () => {
        if (conversation.id !== current().id) choose(this.#store.get(conversation.id));   // choosing stops an answer
        onChosen();
      } }, title);
    if (passage?.match) {
      open.append(make('span', { className: 'figures' }, passage.before, make('mark', {}, passage.match),
        passage.after));
    }
    if (conversation.id === current().id) open.setAttribute('aria-current', 'true');
    const item = make('li', { 'data-id': conversation.id }, open,
      iconButton('edit', `Rename ${title}`, () => this.#rename(conversation, item)),
      iconButton('delete', `Delete ${title}`, () => this.#remove(conversation)));
    // Each conversation is one stop of the Tab key; arrow keys lead to its buttons.
    for (const button of item.querySelectorAll('button')) button.tabIndex = button === open ? 0 : -1;
    return item;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const { target } = event, list = this.#list;
    if (!(target instanceof HTMLButtonElement) || event.altKey || event.ctrlKey || event.metaKey) return;
    const item = /** @type {HTMLElement} */ (target.closest('li'));
    const at = [...item.children].indexOf(target), right = document.dir === 'rtl' ? -1 : 1;
    const conversation = this.#store.get(item.dataset.id ?? '');
    const next = {
      ArrowRight: item.children[at + right], ArrowLeft: item.children[at - right],
      ArrowDown: item.nextElementSibling?.children[at], ArrowUp: item.previousElementSibling?.children[at],
      Home: list.firstElementChild?.children[at], End: list.lastElementChild?.children[at],
    }[event.key];
    if (next instanceof HTMLElement) next.focus();
    else if (event.key === 'F2' && conversation) this.#rename(conversation, item);
    else if (event.key === 'Delete' && conversation) this.#remove(conversation);
    else return;
    event.preventDefault();
  }

  /** @param {Conversation} conversation @param {HTMLElement} item */
  #rename(conversation, item) {
    const field = make('input', { value: titleOf(conversation), maxLength: 200,
      'aria-label': 'Name of the conversation' });
    let ended = false;
    /** @param {boolean} keep */
    const end = keep => {
      if (ended) return;
      ended = true;
      const latest = this.#store.get(conversation.id) ?? conversation;
      if (keep) void this.#store.rename(latest, field.value.trim());
      const fresh = this.#entry(latest), typing = document.activeElement === field;   // else the focus is elsewhere
      item.replaceWith(fresh);
      if (typing) fresh.querySelector('button')?.focus();
    };
    field.addEventListener('keydown', event => {
      if (event.isComposing || event.key !== 'Escape' && event.key !== 'Enter') return;
      event.preventDefault();
      end(event.key === 'Enter');
      this.show();
    });
    field.addEventListener('blur', () => end(true));
    item.replaceChildren(field);
    field.select();
  }

  /** @param {Conversation} conversation */
  #remove(conversation) {
    const store = this.#store, { current, choose } = this.#page, list = this.#list;
    const item = [...list.children].findIndex(one => /** @type {HTMLElement} */ (one).dataset.id === conversation.id);
    const deleted = this.#deleted;
    deleted.push(store.get(conversation.id) ?? conversation);
    void store.remove(conversation.id);
    if (conversation.id === current().id) choose(undefined);
    else this.show();
    this.#dismissUndo();
    this.#dismissUndo = toast(deleted.length === 1 ? `Deleted “${titleOf(conversation)}”`
      : `Deleted ${count(deleted.length, 'conversation')}`, 'Undo', () => {
      this.#deleted = [];
      for (const one of deleted) void store.put(one);
      choose(deleted.at(-1));
    }, () => { this.#deleted = []; });
    const next = list.children[Math.min(item, list.children.length - 1)];
    (next?.querySelector('button') ?? element('new-chat', 'button')).focus();
  }

  /** Updates the list.  The focus stays where it was, and a name that is being typed is not disturbed. */
  show() {
    const list = this.#list;
    if (list.querySelector('input')) return;
    const focused = document.activeElement, item = /** @type {HTMLElement | null} */ (focused?.closest('#chats li'));
    const n = item && focused ? [...item.children].indexOf(focused) : -1;
    const all = this.#store.list(), words = wordsOf(this.#search.value);
    const items = all.flatMap(conversation => {
      const passage = find(conversation, words);
      return passage ? [this.#entry(conversation, passage)] : [];
    });
    list.replaceChildren(...items);
    element('found', 'p').textContent = words.length === 0 ? ''
      : items.length === 0 ? 'No conversation contains these words'
      : `${integer(items.length)} of ${integer(all.length)}`;
    const again = items.find(one => one.dataset.id === item?.dataset.id);
    /** @type {HTMLElement | undefined} */ (again?.children[n])?.focus();
  }

  /** Ends the search and shows all conversations. */
  showAll() {
    this.#search.value = '';
    this.show();
  }

  #listenToSearch() {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    this.#search.addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.show(), DEBOUNCE);
    });
    this.#search.addEventListener('keydown', event => {
      if (event.isComposing) return;
      if (event.key === 'ArrowDown') this.#list.querySelector('button')?.focus();
      else if (event.key === 'Escape' && this.#search.value) this.showAll();   // the next Escape closes the panel
      else return;
      event.preventDefault();
    });
  }

  /** @param {Iterable<File>} files */
  async importFiles(files) {
    let added = 0, known = 0, refused = 0, last = /** @type {Conversation | undefined} */ (undefined);
    for (const one of files) {
      try {
        const read = await fromJson(await one.text(), this.#store.list());
        for await (const conversation of inSlices(read.fresh)) void this.#store.put(last = conversation);
        last ??= read.known.at(-1);
        added += read.fresh.length;
        known += read.known.length;
        refused += read.refused;
      } catch {
        // The file is not JSON: it has no conversations.
      }
    }
    toast(added + known === 0 ? 'That file contains no conversations' : [
      added > 0 || known === 0 ? `Imported ${integer(added)}` : '',
      known > 0 ? `${integer(known)} already ${known === 1 ? 'exists' : 'exist'}` : '',
      refused > 0 ? `${integer(refused)} could not be read` : ''].filter(Boolean).join('; '));
    this.#search.value = '';
    if (last) this.#page.choose(last);
  }

  #listenToFiles() {
    const { current } = this.#page, file = element('import-file', 'input');
    element('export-json', 'button').addEventListener('click', () =>
      downloadText('plumb-chats.json', 'application/json', toJson(this.#store.list())));
    element('export-markdown', 'button').addEventListener('click', () =>
      downloadText(`${titleOf(current()).replace(/[^\p{L}\p{N} -]/gu, '').trim() || 'chat'}.md`, 'text/markdown',
        toMarkdown(current())));
    element('import', 'button').addEventListener('click', () => file.click());
    file.addEventListener('change', async () => {
      await this.importFiles([...file.files ?? []]);
      file.value = '';
    });
  }
}
