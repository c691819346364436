/* The list of conversations: choose, search, rename, delete with undo, export, import. */
import { find, fromJson, titleOf, toJson, toMarkdown, wordsOf } from './conversation-store.js';
import { count, downloadText, element, iconButton, integer, make, toast } from './dom.js';

/** @typedef {import('./conversation-store.js').Conversation} Conversation */

/** Milliseconds after the last key until the list is searched. */
const DEBOUNCE = 100;

/** @param {import('./conversation-store.js').Store} store
 * @param {{current: () => Conversation, choose: (conversation: Conversation | undefined) => void,
 *   onChosen: () => void}} page  choose: undefined means a new one; onChosen: is called when one was chosen from the
 *   list */
export function createConversationList(store, { current, choose, onChosen }) {
  const list = element('chats', 'ul'), file = element('import-file', 'input'), search = element('search', 'input');
  if (!store.isPersistent) {
    element('chats-note', 'p').textContent = 'This browser stores no data here: conversations are lost when you close '
      + 'the page.';
  }

  /** @param {Conversation} conversation @param {ReturnType<typeof find>} [passage]  the result of the search */
  function entry(conversation, passage) {
    const title = titleOf(conversation);
    const open = make('button', { type: 'button', className: 'title',
      title: new Date(conversation.updated).toDateString(),   // Intl would take 40 ms
      'aria-describedby': 'chats-keys', 'aria-keyshortcuts': 'F2 Delete',
      onclick: () => {
        if (conversation.id !== current().id) choose(store.get(conversation.id));   // choosing stops an answer
        onChosen();
      } }, title);
    if (passage?.match) {
      open.append(make('span', { className: 'figures' }, passage.before, make('mark', {}, passage.match),
        passage.after));
    }
    if (conversation.id === current().id) open.setAttribute('aria-current', 'true');
    const item = make('li', { 'data-id': conversation.id }, open,
      iconButton('edit', `Rename ${title}`, () => rename(conversation, item)),
      iconButton('delete', `Delete ${title}`, () => remove(conversation)));
    // Each conversation is one stop of the Tab key; arrow keys lead to its buttons.
    for (const button of item.querySelectorAll('button')) button.tabIndex = button === open ? 0 : -1;
    return item;
  }

  list.addEventListener('keydown', event => {
    const { target } = event;
    if (!(target instanceof HTMLButtonElement) || event.altKey || event.ctrlKey || event.metaKey) return;
    const item = /** @type {HTMLElement} */ (target.closest('li'));
    const at = [...item.children].indexOf(target), right = document.dir === 'rtl' ? -1 : 1;
    const conversation = store.get(item.dataset.id ?? '');
    const next = {
      ArrowRight: item.children[at + right], ArrowLeft: item.children[at - right],
      ArrowDown: item.nextElementSibling?.children[at], ArrowUp: item.previousElementSibling?.children[at],
      Home: list.firstElementChild?.children[at], End: list.lastElementChild?.children[at],
    }[event.key];
    if (next instanceof HTMLElement) next.focus();
    else if (event.key === 'F2' && conversation) rename(conversation, item);
    else if (event.key === 'Delete' && conversation) remove(conversation);
    else return;
    event.preventDefault();
  });

  /** @param {Conversation} conversation @param {HTMLElement} item */
  function rename(conversation, item) {
    const field = make('input', { value: titleOf(conversation), maxLength: 200,
      'aria-label': 'Name of the conversation' });
    let ended = false;
    /** @param {boolean} keep */
    const end = keep => {
      if (ended) return;
      ended = true;
      const latest = store.get(conversation.id) ?? conversation;
      if (keep) void store.rename(latest, field.value.trim());
      const fresh = entry(latest), typing = document.activeElement === field;   // otherwise the focus is elsewhere
      item.replaceWith(fresh);
      if (typing) fresh.querySelector('button')?.focus();
    };
    field.addEventListener('keydown', event => {
      if (event.isComposing || event.key !== 'Escape' && event.key !== 'Enter') return;
      event.preventDefault();
      end(event.key === 'Enter');
      show();
    });
    field.addEventListener('blur', () => end(true));
    item.replaceChildren(field);
    field.select();
  }

  /** The conversations that Undo restores. @type {Conversation[]} */
  let deleted = [];
  /** Removes the line with Undo. */
  let dismissUndo = () => {};

  /** @param {Conversation} conversation */
  function remove(conversation) {
    const item = [...list.children].findIndex(one => /** @type {HTMLElement} */ (one).dataset.id === conversation.id);
    deleted.push(store.get(conversation.id) ?? conversation);
    void store.remove(conversation.id);
    if (conversation.id === current().id) choose(undefined);
    else show();
    dismissUndo();
    dismissUndo = toast(deleted.length === 1 ? `Deleted “${titleOf(conversation)}”`
      : `Deleted ${count(deleted.length, 'conversation')}`, 'Undo', () => {
      const back = deleted;
      deleted = [];
      for (const one of back) void store.put(one);
      choose(back.at(-1));
    }, () => { deleted = []; });
    const next = list.children[Math.min(item, list.children.length - 1)];
    (next?.querySelector('button') ?? element('new-chat', 'button')).focus();
  }

  /** Updates the list.  The focus stays where it was, and a name that is being typed is not disturbed. */
  function show() {
    if (list.querySelector('input')) return;
    const focused = document.activeElement, item = /** @type {HTMLElement | null} */ (focused?.closest('#chats li'));
    const n = item && focused ? [...item.children].indexOf(focused) : -1;
    const all = store.list(), words = wordsOf(search.value);
    const items = all.flatMap(conversation => {
      const passage = find(conversation, words);
      return passage ? [entry(conversation, passage)] : [];
    });
    list.replaceChildren(...items);
    element('found', 'p').textContent = words.length === 0 ? ''
      : items.length === 0 ? 'No conversation contains these words'
      : `${integer(items.length)} of ${integer(all.length)}`;
    const again = items.find(one => one.dataset.id === item?.dataset.id);
    /** @type {HTMLElement | undefined} */ (again?.children[n])?.focus();
  }

  /** Ends the search and shows all conversations. */
  function showAll() {
    search.value = '';
    show();
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(show, DEBOUNCE);
  });
  search.addEventListener('keydown', event => {
    if (event.isComposing) return;
    if (event.key === 'ArrowDown') list.querySelector('button')?.focus();
    else if (event.key === 'Escape' && search.value) showAll();   // the next Escape closes the panel
    else return;
    event.preventDefault();
  });

  /** @param {Iterable<File>} files */
  async function importFiles(files) {
    let added = 0, known = 0, refused = 0, last = /** @type {Conversation | undefined} */ (undefined);
    for (const one of files) {
      try {
        const read = fromJson(await one.text(), store.list());
        for (const conversation of read.fresh) void store.put(last = conversation);
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
    search.value = '';
    if (last) choose(last);
  }

  element('export-json', 'button').addEventListener('click', () =>
    downloadText('plumb-chats.json', 'application/json', toJson(store.list())));
  element('export-markdown', 'button').addEventListener('click', () =>
    downloadText(`${titleOf(current()).replace(/[^\p{L}\p{N} -]/gu, '').trim() || 'chat'}.md`, 'text/markdown',
      toMarkdown(current())));
  element('import', 'button').addEventListener('click', () => file.click());
  file.addEventListener('change', async () => {
    await importFiles([...file.files ?? []]);
    file.value = '';
  });
  return { show, showAll, importFiles };
}
