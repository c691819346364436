/* The palette: finds an action, a conversation or a prompt by typing.  A combobox with a listbox in a dialog, as in the
 * ARIA Authoring Practices: the focus stays in the field, and arrow keys move through the list. */
import { find, titleOf, wordsOf } from '../conversation/conversation-store.js';
import { count, element, make } from '../dom.js';
import { createDialog } from '../panels.js';
import { prompts } from './prompts.js';

/** @typedef {{label: string, kind: string, about?: string, run: () => void}} Entry */
/** @typedef {import('../conversation/conversation-store.js').Conversation} Conversation */
/** @typedef {object} Page
 * @property {() => Conversation[]} all  the latest first
 * @property {() => Conversation} current
 * @property {(conversation: Conversation | undefined) => void} choose
 * @property {(text: string) => void} write  puts a text in the place of the draft
 * @property {(name?: string, text?: string) => Promise<void>} openLibrary  text: of a new prompt */

/** What the page's buttons do, by their ids. */
const ACTIONS = {
  'new-chat': 'New chat', model: 'Models', 'open-settings': 'Settings', 'open-inspect': 'Inspect the last answer',
  menu: 'Show or hide the conversations', import: 'Import conversations', 'export-json': 'Export all conversations',
  'export-markdown': 'Export this conversation as Markdown', stop: 'Stop the answer',
};
/** How many entries are shown. */
const MOST = 50;

const WHAT = 'Find an action, a conversation or a prompt';
const field = make('input', { type: 'text', id: 'palette-field', role: 'combobox', 'aria-expanded': 'true',
  'aria-controls': 'palette-list', 'aria-autocomplete': 'list', 'aria-label': WHAT,
  placeholder: WHAT, spellcheck: false, autocomplete: 'off' });
const list = make('ul', { id: 'palette-list', role: 'listbox', 'aria-label': 'Found' });
const status = make('p', { className: 'figures', role: 'status' });
document.body.append(make('dialog', { id: 'palette', 'aria-label': 'Palette' }, field, list, status));
const dialog = createDialog('palette');
/** @type {Page} */
let page;
/** @type {Entry[]} */
let shown = [];
let at = 0;

/** @param {Page} where */
export function openPalette(where) {
  page = where;
  if (dialog.open) return dialog.close();
  field.value = '';
  update();
  dialog.showModal();
  field.focus();
}

/** @returns {Entry[]} */
function entries() {
  const words = wordsOf(field.value), draft = element('prompt', 'textarea').value;
  const matches = (/** @type {Entry} */ { label, about = '' }) => words.every(word => word.test(`${label} ${about}`));
  const actions = Object.entries(ACTIONS).flatMap(([id, label]) => {
    const button = element(id, 'button');
    const isThere = button.checkVisibility() || button.closest('#chats-foot');
    return isThere && !button.disabled ? [{ label, kind: 'Action', run: () => button.click() }] : [];
  });
  const texts = [
    { label: 'Edit the prompts', kind: 'Action', run: () => void page.openLibrary() },
    ...draft.trim() ? [{ label: 'Save the draft as a prompt', kind: 'Action',
      run: () => void page.openLibrary(undefined, draft) }] : [],
    ...prompts().map(({ name, text }) =>
      ({ label: `/${name}`, kind: 'Prompt', about: text, run: () => page.write(text) })),
  ];
  const chats = page.all().flatMap(chat => {
    const passage = find(chat, words);
    if (!passage) return [];
    const { before, match, after } = passage;
    return [{ label: titleOf(chat), kind: 'Conversation', about: `${before}${match}${after}`, run: () => {
      if (chat.id !== page.current().id) page.choose(chat);
      element('prompt', 'textarea').focus();
    } }];
  });
  return [...actions.filter(matches), ...texts.filter(matches), ...chats];
}

function update() {
  const all = entries();
  shown = all.slice(0, MOST);
  at = 0;
  list.replaceChildren(...shown.map(({ label, kind, about = '' }, i) =>
    make('li', { id: `palette-${i}`, role: 'option', onclick: () => run(i) }, make('b', {}, label),
      make('span', { className: 'figures' }, about.replace(/\s+/g, ' ').slice(0, 120)),
      make('span', { className: 'figures kind' }, kind))));
  status.textContent = all.length === 0 ? 'Nothing is found' : all.length > MOST ? `${count(all.length, 'entry')
    .replace('entrys', 'entries')}, of which ${MOST} are shown` : '';
  mark();
}

function mark() {
  [...list.children].forEach((option, i) => option.setAttribute('aria-selected', String(i === at)));
  if (shown.length > 0) field.setAttribute('aria-activedescendant', `palette-${at}`);
  else field.removeAttribute('aria-activedescendant');
  list.children[at]?.scrollIntoView({ block: 'nearest' });
}

/** @param {number} i */
function run(i) {
  dialog.close();
  shown[i]?.run();
}

field.addEventListener('input', update);
field.addEventListener('keydown', event => {
  if (event.isComposing) return;
  const n = shown.length, next = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: Math.min(at + 8, n - 1),
    PageUp: Math.max(at - 8, 0) }[event.key];
  if (event.key === 'Enter') run(at);
  else if (next === undefined || n === 0) return;
  else {
    at = (next + n) % n;
    mark();
  }
  event.preventDefault();
});
