/* The dialog of the prompt library: lists the prompts, and saves, changes and deletes one's own. */
import { iconButton, make } from '../dom.js';
import { createDialog } from '../panels.js';
import { keepPrompt, prompts, removePrompt } from './prompts.js';

/** The name of the prompt that is changed; undefined: a new one. @type {string | undefined} */
let edited;
const list = make('ul', { id: 'library-list' });
const name = make('input', { type: 'text', id: 'library-name', required: true, maxLength: 30, spellcheck: false,
  'aria-describedby': 'library-note' });
const text = make('textarea', { id: 'library-text', rows: 4, required: true });
const note = make('p', { className: 'about', id: 'library-note', role: 'status' });
const title = make('h3', {});
const fresh = make('button', { type: 'button', onclick: () => edit(undefined, '') }, 'New prompt');
const close = iconButton('close', 'Close the prompts', () => {});
close.dataset.close = 'library';
const form = make('form', { id: 'library-form', novalidate: true, onsubmit: (/** @type {Event} */ event) => {
  event.preventDefault();
  const problem = keepPrompt(name.value.trim(), text.value, edited);
  note.classList.toggle('problem', problem !== '');
  note.textContent = problem || `Saved. Write /${name.value.trim()} to use it.`;
  if (problem) return name.focus();
  edited = name.value.trim();
  show();
} }, title, make('div', { className: 'field' }, make('label', { htmlFor: 'library-name' }, 'Name'), name),
make('div', { className: 'field' }, make('label', { htmlFor: 'library-text' }, 'Text'), text), note,
make('div', { className: 'row' }, make('button', { type: 'submit', className: 'primary' }, 'Save'), fresh));
document.body.append(make('dialog', { id: 'library', 'aria-labelledby': 'library-title' },
  make('div', { className: 'bar' }, make('h2', { id: 'library-title' }, 'Prompts'), close),
  make('div', { className: 'body' }, list, form)));
const dialog = createDialog('library');

/** @param {string} [old]  the name of the prompt @param {string} [content]  of a new one */
export function openLibrary(old, content = '') {
  show();
  edit(old, prompts().find(one => one.name === old)?.text ?? content);
  if (!dialog.open) dialog.showModal();
  name.focus();
}

/** @param {string | undefined} old @param {string} content */
function edit(old, content) {
  edited = old;
  title.textContent = old === undefined ? 'New prompt' : `Change /${old}`;
  [name.value, text.value, note.textContent] = [old ?? '', content, ''];
  note.classList.remove('problem');
  (old === undefined ? name : text).focus();
}

function show() {
  list.replaceChildren(...prompts().map(one => make('li', {},
    make('button', { type: 'button', className: 'title', onclick: () => edit(one.name, one.text) }, `/${one.name}`,
      make('span', { className: 'figures' }, one.text.trim().replace(/\s+/g, ' '))),
    ...one.isOwn ? [iconButton('delete', `Delete /${one.name}`, () => {
      removePrompt(one.name);
      if (edited === one.name) edited = undefined;
      show();
      note.textContent = `Deleted /${one.name}`;
      (list.querySelector('button') ?? name).focus();
    })] : [])));
}
