/* Help with writing a message: the up arrow recalls earlier ones, "/" lists the prompts of the library, and Ctrl-K or
 * Cmd-K opens the palette.  The palette and the library are loaded when they are first opened. */
import { element, make, toast } from '../dom.js';
import { prompts } from './prompts.js';

/** @typedef {Omit<import('./palette.js').Page, 'write' | 'openLibrary'>} Page */

/** How many earlier messages can be recalled. */
const MOST_RECALLED = 100;
/** How many prompts are listed below each other. */
const MOST_LISTED = 8;

const field = element('prompt', 'textarea');

/** Puts a text in the place of the draft, with the caret at its end. @param {string} text */
function write(text) {
  field.value = text;
  field.setSelectionRange(text.length, text.length);
  field.dispatchEvent(new Event('input'));
  field.focus();
}

/** @param {Page} page */
export function helpWithWriting(page) {
  recallMessages(page);
  listPrompts();
  document.addEventListener('keydown', event => {
    const isPalette = event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey) && !event.shiftKey
      && !event.altKey;
    if (!isPalette || document.querySelector('dialog[open]:not(#palette)')) return;
    event.preventDefault();
    void openPalette(page);
  });
}

/** @param {Page} page */
async function openPalette(page) {
  const loaded = await import('./palette.js').catch(() => undefined);
  if (loaded) loaded.openPalette({ ...page, write, openLibrary });
  else toast('The palette could not be loaded. Reload the page.');
}

/** @param {string} [name]  of a prompt that is edited @param {string} [text]  of a new one */
async function openLibrary(name, text) {
  const loaded = await import('./library.js').catch(() => undefined);
  if (loaded) loaded.openLibrary(name, text);
  else toast('The prompts could not be loaded. Reload the page.');
}

/** In the empty message box the up arrow recalls the last message, and again the one before it.
 * @param {Page} page */
function recallMessages({ all, current }) {
  /** @type {string[]} */
  let recalled = [];
  let at = -1;
  field.addEventListener('keydown', event => {
    if (event.isComposing || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey
      || event.key !== 'ArrowUp' && event.key !== 'ArrowDown') return;
    const isRecalled = at >= 0 && field.value === recalled[at];
    if (!isRecalled) {
      if (field.value !== '' || event.key === 'ArrowDown') return;
      const chats = [current(), ...all().filter(({ id }) => id !== current().id)];
      recalled = [...new Set(chats.flatMap(({ messages }) => messages.filter(({ role }) => role === 'user').reverse()
        .map(({ content }) => content)))].slice(0, MOST_RECALLED);
      at = -1;
    }
    const next = at + (event.key === 'ArrowUp' ? 1 : -1);
    if (next >= recalled.length) return;
    event.preventDefault();
    at = next;
    write(recalled[at] ?? '');
  });
}

/** While the draft is "/" and the beginning of a name, the prompts with that name are listed above the message box. */
function listPrompts() {
  const list = make('ul', { id: 'slash', role: 'listbox', 'aria-label': 'Prompts', hidden: true });
  field.closest('.box')?.before(list);
  let at = 0;
  const options = () => /** @type {HTMLElement[]} */ ([...list.children]);
  const mark = () => {
    options().forEach((option, i) => option.setAttribute('aria-selected', String(i === at)));
    field.setAttribute('aria-activedescendant', options()[at].id);
  };
  const close = () => {
    list.hidden = true;
    field.removeAttribute('aria-activedescendant');
    field.removeAttribute('aria-controls');
  };
  const update = () => {
    const [, typed] = /^\/([\p{L}\p{N}_-]*)$/u.exec(field.value) ?? [];
    const found = typed === undefined ? [] : prompts().filter(({ name }) => name.startsWith(typed.toLowerCase()));
    if (typed === undefined) return close();
    const entries = [...found.slice(0, MOST_LISTED).map(({ name, text }) =>
      ({ label: `/${name}`, about: text, run: () => write(text) })),
    { label: 'Edit the prompts', about: 'Save, change and delete your own', run: () => {
      write('');
      void openLibrary();
    } }];
    list.replaceChildren(...entries.map(({ label, about, run }, i) =>
      make('li', { id: `slash-${i}`, role: 'option', onclick: run, onpointerdown: (/** @type {Event} */ event) =>
        event.preventDefault() }, make('b', {}, label), make('span', { className: 'figures' }, about))));
    at = 0;
    list.hidden = false;
    field.setAttribute('aria-controls', list.id);
    mark();
  };
  field.setAttribute('aria-autocomplete', 'list');
  field.addEventListener('input', update);
  field.addEventListener('blur', close);
  field.addEventListener('focus', update);
  field.addEventListener('keydown', event => {
    if (list.hidden || event.isComposing) return;
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key], n = options().length;
    if (step) {
      at = (at + step + n) % n;
      mark();
    } else if (['Enter', 'Tab'].includes(event.key) && !event.shiftKey) options()[at].click();
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, { capture: true });
}
