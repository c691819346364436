/* What the open conversation has of its own, above the message box: its model, system prompt, schema, tools and
 * settings.  Each is a button that opens what it names.  If another model is loaded than the one that gave the last
 * answer, the page says so, and gives no answer before the reader has decided. */
import { count, element, make, toast } from '../dom.js';
import { countChosen } from '../tools/kept.js';

/** @typedef {import('./conversation-store.js').Conversation} Conversation */
/** @typedef {object} Page
 * @property {() => Conversation} current
 * @property {import('../settings.js').Settings} settings
 * @property {() => string | undefined} loaded  the name of the model that is loaded
 * @property {(source: string) => void} load  loads a model, or shows what it needs
 * @property {(conversation: Conversation) => void} changed  the conversation has other values now
 * @property {() => void} accept  the conversation goes on with the model that is loaded */

export class Chips {
  #page;
  #row = make('div', { id: 'chips', role: 'group', 'aria-label': 'This conversation' });
  #other = make('section', { id: 'other-model', className: 'strip', role: 'status', hidden: true });

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
    document.querySelector('#composer .box')?.before(this.#other, this.#row);
  }

  /** Whether another model is loaded than the one of the conversation. */
  get isOther() {
    const { current, loaded } = this.#page, { model } = current(), name = loaded();
    return model !== undefined && name !== undefined && model.name !== name;
  }

  show() {
    const { settings, current, loaded } = this.#page, { own = {}, tools } = current();
    settings.own = own;
    const { system, schema, ...others } = own, n = Object.keys(others).length;
    const nTools = countChosen(tools);
    const name = loaded() ?? current().model?.name;
    const chip = (/** @type {string} */ id, /** @type {string} */ label, /** @type {boolean} */ isSet,
      /** @type {() => void} */ open) => make('button', { type: 'button', id, 'data-set': String(isSet), onclick: open,
      'aria-haspopup': 'dialog', title: isSet ? `${label}: set` : label }, label);
    const open = (/** @type {string} */ setting) => void this.#open(setting);
    const focused = this.#row.contains(document.activeElement) && document.activeElement?.id;
    this.#row.replaceChildren(
      ...name ? [chip('chip-model', name, false, () => element('model', 'button').click())] : [],
      chip('chip-system', 'System prompt', settings.system() !== '', () => open('system')),
      chip('chip-schema', 'Schema', settings.schema() !== undefined, () => open('schema')),
      chip('chip-tools', nTools > 0 ? `Tools (${nTools})` : 'Tools', nTools > 0, () => void this.#openTools()),
      chip('chip-own', n > 0 ? count(n, 'option') : 'Options', n > 0, () => open('temperature')));
    if (focused) /** @type {HTMLElement | null} */ (this.#row.querySelector(`#${focused}`))?.focus();
    this.#showOther();
  }

  /** Says that another model is loaded. */
  #showOther() {
    const { current, loaded, load, accept } = this.#page, { model } = current(), name = loaded();
    this.#other.hidden = !this.isOther;
    if (!model || !name || !this.isOther) return;
    const { source } = model;
    this.#other.replaceChildren(
      make('p', {}, `The last answer is from ${model.name}. Now ${name} is loaded, and would give the next one.`),
      make('div', { className: 'row' },
        ...source ? [make('button', { type: 'button', className: 'primary', onclick: () => load(source) },
          `Load ${model.name}`)] : [],
        make('button', { type: 'button', onclick: accept }, `Go on with ${name}`)));
  }

  /** @param {string} setting  that gets the focus */
  async #open(setting) {
    const loaded = await import('./own-settings.js').catch(() => undefined);
    if (!loaded) return void toast('The settings could not be loaded. Reload the page.');
    const { current, settings } = this.#page, chat = current();
    loaded.openOwnSettings({ chat, settings, setting, onDone: () => this.#done(chat) });
  }

  async #openTools() {
    const loaded = await import('../tools/tools-dialog.js').catch(() => undefined);
    if (!loaded) return void toast('The tools could not be loaded. Reload the page.');
    const { current, settings } = this.#page, chat = current();
    loaded.openTools({ chat, hasSchema: settings.schema() !== undefined, onDone: () => this.#done(chat) });
  }

  /** @param {Conversation} chat  whose values may have changed */
  #done(chat) {
    this.#page.changed(chat);
    this.show();
  }
}
