/* The dialog with the values that one conversation has of its own.  A field that has the page's value is not kept, so
 * that it follows the page's settings. */
import { iconButton, make } from '../dom.js';
import { createDialog } from '../panels.js';
import { fieldOf } from '../settings-dialog.js';
import { OWN_GROUPS, SETTINGS } from '../settings.js';

/** @typedef {object} Subject
 * @property {import('./conversation-store.js').Conversation} chat
 * @property {import('../settings.js').Settings} settings
 * @property {string} setting  that gets the focus
 * @property {() => void} onDone */

/** @type {Subject} */
let subject;
const values = {
  get values() { return { ...subject.settings.values, ...subject.chat.own }; },
  /** @param {string} name @param {any} value */
  keep(name, value) {
    const { chat, settings } = subject, { [name]: _, ...others } = chat.own ?? {};
    const own = value === settings.values[name] ? others : { ...others, [name]: value };
    if (Object.keys(own).length > 0) chat.own = own;
    else delete chat.own;
  },
};
const note = make('p', { className: 'figures', role: 'status' });
const fields = OWN_GROUPS.map(group => ({ group, own: Object.keys(SETTINGS).filter(name =>
  SETTINGS[name].group === group).map(name => fieldOf(name, values, () => { note.textContent = ''; },
  () => undefined, 'own-')) }));
const all = fields.flatMap(({ own }) => own);
const close = iconButton('close', 'Close the settings of this conversation', () => {});
close.dataset.close = 'own';
const form = make('form', { className: 'body', method: 'dialog', noValidate: true }, ...fields.map(({ group, own }) =>
  make('fieldset', {}, make('legend', {}, group), ...own.map(({ box }) => box))));
document.body.append(make('dialog', { id: 'own', 'aria-labelledby': 'own-title' },
  make('div', { className: 'bar' }, make('h2', { id: 'own-title' }, 'This conversation'), close),
  form,
  make('div', { className: 'foot' }, note,
    make('button', { type: 'button', onclick: () => {
      delete subject.chat.own;
      for (const field of all) field.fill();
      note.textContent = 'This conversation has the page’s settings.';
    } }, 'Same as the page'),
    make('button', { type: 'button', className: 'primary', onclick: done }, 'Done'))));
const dialog = createDialog('own');
dialog.addEventListener('close', () => subject.onDone());

async function done() {
  await Promise.all(all.map(field => field.ends));
  const broken = all.find(({ value }) => value === undefined);
  if (!broken) return dialog.close();
  note.textContent = `Correct this value: ${broken.setting.label}`;
  broken.input.focus();
}

/** @param {Subject} of */
export function openOwnSettings(of) {
  subject = of;
  for (const field of all) field.fill();
  note.textContent = '';
  dialog.showModal();
  all.find(({ name }) => name === of.setting)?.input.focus();
}
