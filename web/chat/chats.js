/* The list of conversations: choose, rename, delete with a way back, export, import. */
import { element, iconButton, make, save, toast } from './dom.js';
import { fromJson, titleOf, toJson, toMarkdown } from './store.js';

/** @typedef {import('./store.js').Conversation} Conversation */

/** @param {import('./store.js').Store} store
 * @param {{current: () => Conversation, choose: (conversation: Conversation | undefined) => void,
 *   leave: () => void}} page  choose: undefined: a new one; leave: one was chosen from the list */
export function createChats(store, { current, choose, leave }) {
  const list = element('chats', 'ul'), file = element('import-file', 'input');
  if (!store.lasting) {
    element('chats-note', 'p').textContent = 'This browser keeps no data here: conversations last as long as the page.';
  }

  /** @param {Conversation} conversation */
  function entry(conversation) {
    const open = make('button', { type: 'button', className: 'title',
      title: new Date(conversation.updated).toDateString(),   // Intl would take 40 ms
      onclick: () => {
        if (conversation.id !== current().id) choose(conversation);   // which ends an answer
        leave();
      } }, titleOf(conversation));
    if (conversation.id === current().id) open.setAttribute('aria-current', 'true');
    const item = make('li', { 'data-id': conversation.id }, open,
      iconButton('edit', `Rename ${titleOf(conversation)}`, () => rename(conversation, item)),
      iconButton('delete', `Delete ${titleOf(conversation)}`, () => remove(conversation)));
    return item;
  }

  /** @param {Conversation} conversation @param {HTMLElement} item */
  function rename(conversation, item) {
    const field = make('input', { value: titleOf(conversation), maxLength: 200,
      'aria-label': 'Name of the conversation' });
    let ended = false;
    /** @param {boolean} keep */
    const end = keep => {
      if (ended) return;
      ended = true;
      if (keep) {
        conversation.title = field.value.trim();
        void store.put(conversation);
      }
      const fresh = entry(conversation), typing = document.activeElement === field;   // else it was left for another
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

  /** @param {Conversation} conversation */
  function remove(conversation) {
    void store.remove(conversation.id);
    if (conversation.id === current().id) choose(undefined);
    else show();
    toast(`Deleted “${titleOf(conversation)}”`, 'Undo', () => {
      void store.put(conversation);
      choose(conversation);
    });
    (list.querySelector('button') ?? element('fresh', 'button')).focus();
  }

  /** Shows them as they are now; the focus stays where it was, and a name that is being typed is not disturbed. */
  function show() {
    if (list.querySelector('input')) return;
    const focused = document.activeElement, item = /** @type {HTMLElement | null} */ (focused?.closest('#chats li'));
    const n = item && focused ? [...item.children].indexOf(focused) : -1;
    list.replaceChildren(...store.list().map(entry));
    const again = [...list.children].find(one => /** @type {HTMLElement} */ (one).dataset.id === item?.dataset.id);
    /** @type {HTMLElement | undefined} */ (again?.children[n])?.focus();
  }

  /** @param {Iterable<File>} files */
  async function importFiles(files) {
    let found = 0, refused = 0, last = /** @type {Conversation | undefined} */ (undefined);
    for (const one of files) {
      try {
        const read = fromJson(await one.text());
        for (const conversation of read.conversations) void store.put(last = conversation);
        found += read.conversations.length;
        refused += read.refused;
      } catch {
        // Not JSON: counted as none.
      }
    }
    toast(found === 0 ? 'There is no conversation in that file'
      : `Imported ${found}${refused > 0 ? `; ${refused} could not be read` : ''}`);
    if (last) choose(last);
  }

  element('export-json', 'button').addEventListener('click', () =>
    save('plumb-chats.json', 'application/json', toJson(store.list())));
  element('export-markdown', 'button').addEventListener('click', () =>
    save(`${titleOf(current()).replace(/[^\p{L}\p{N} -]/gu, '').trim() || 'chat'}.md`, 'text/markdown',
      toMarkdown(current())));
  element('import', 'button').addEventListener('click', () => file.click());
  file.addEventListener('change', async () => {
    await importFiles([...file.files ?? []]);
    file.value = '';
  });
  return { show, importFiles };
}
