/* The dialog that changes the settings. */
import { element, make, paragraph, toast, worseBeyond } from './dom.js';
import { createDialog } from './panels.js';
import { expected, isValid, SETTINGS } from './settings.js';

/** @typedef {import('./settings.js').Settings} Settings */

/** Milliseconds after the last key until a schema is checked. */
const DEBOUNCE = 300;
/** How many problems of a schema are shown. */
const MOST_PROBLEMS = 5;

/** The input of a setting. @param {import('./settings.js').Setting} setting @param {Record<string, string>} about
 * @returns {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} */
function inputOf({ min, max, step, choices, toggle, value, example, optional, whole }, about) {
  if (choices) {
    return make('select', about, ...Object.entries(choices).map(([value, label]) => make('option', { value }, label)));
  }
  if (toggle) return make('input', { ...about, type: 'checkbox', role: 'switch' });
  if (example) return make('textarea', { ...about, rows: 5, className: 'source', spellcheck: false });
  if (value === '' && !optional) return make('textarea', { ...about, rows: 3 });
  // Browsers count steps from the attribute min, so it is there only if the steps from 0 meet it; isValid checks all.
  const meets = min !== undefined && Number.isInteger(min / (step ?? 1));
  return make('input', { ...about, type: 'number', ...meets && { min: String(min) },
    ...max !== undefined && { max: String(max) }, step: whole ? '1' : String(step ?? 'any') });
}

/** What fields show and keep. @typedef {Pick<Settings, 'values' | 'keep'>} Values */

/** The field of a setting. */
class Field {
  /** When the value that was entered is checked. */
  ends = Promise.resolve();

  /** @param {string} name @param {Values} settings @param {() => void} changed  called when a value was looked at
   * @param {() => number | undefined} trained  as in createSettingsDialog @param {string} prefix  of ids */
  constructor(name, settings, changed, trained, prefix) {
    this.name = name;
    this.settings = settings;
    this.changed = changed;
    this.trained = trained;
    this.setting = SETTINGS[name];
    const { label, hint = '', toggle } = this.setting, id = `${prefix}set-${name}`;
    const hintId = `${prefix}hint-${name}`, aboutId = `${prefix}about-${name}`;
    this.input = inputOf(this.setting, { id, 'aria-describedby': `${hintId} ${aboutId}` });
    this.input.addEventListener('input', () => this.take());
    this.about = make('p', { className: 'about', id: aboutId });
    this.box = make('div', { className: toggle ? 'field switch' : 'field' }, make('label', { htmlFor: id }, label),
      this.input, make('p', { className: 'figures', id: hintId }, hint), this.about);
  }

  /** The value in the field; undefined if the setting does not allow it. @returns {string | number | undefined} */
  get value() {
    const { value, toggle, optional } = this.setting, text = this.input.value.trim();
    const entered = toggle ? /** @type {HTMLInputElement} */ (this.input).checked ? toggle : value
      : typeof value === 'string' && !optional || text === '' && optional ? this.input.value
      : text === '' ? NaN : Number(text);
    return !this.input.validity.badInput && isValid(this.setting, entered) ? entered : undefined;
  }

  /** Takes what was entered. */
  take() {
    this.showAdvice();
    this.keep();
  }

  /** Keeps the value, if the setting allows it. */
  keep() {
    const { value } = this;
    if (value !== undefined) this.settings.keep(this.name, value);
  }

  /** Fills the field with the setting's value. */
  fill() {
    const { toggle } = this.setting, value = this.settings.values[this.name];
    if (toggle) /** @type {HTMLInputElement} */ (this.input).checked = value === toggle;
    else this.input.value = String(value);
    this.showAdvice();
  }

  /** Shows below the field what is wrong with its value, or what follows from it. */
  showAdvice() {
    const { value, input, about } = this, limit = this.name === 'contextLength' && this.trained();
    input.setAttribute('aria-invalid', String(value === undefined));
    about.classList.toggle('problem', value === undefined);
    about.textContent = value === undefined ? this.problem : limit && Number(value) > limit ? worseBeyond(limit) : '';
    this.changed();
  }

  /** What is wrong with a value that is not allowed. */
  get problem() { return `${this.setting.label} ${expected(this.setting)}.`; }
}

/** The field of a JSON Schema, which is kept when it was checked. */
class SchemaField extends Field {
  /** What was checked last, and what is wrong with it. @type {{text: string, problems: string[]}} */
  #checked = { text: '', problems: [] };
  /** The check that runs. @type {AbortController | undefined} */
  #checking;

  /** @param {ConstructorParameters<typeof Field>} args */
  constructor(...args) {
    super(...args);
    const { input, setting } = this;
    this.example = make('button', { type: 'button', id: input.id.replace('set-', 'example-'), onclick: () => {
      input.value = setting.example ?? '';
      input.dispatchEvent(new Event('input'));
      input.focus();
    } }, 'Begin with an example');
    this.about.before(this.example);
  }

  /** @override */
  get value() {
    const { text, problems } = this.#checked;
    return problems.length > 0 && text === this.input.value ? undefined : super.value;
  }

  /** @override */
  take() {
    this.ends = this.#check(this.input.value);
    this.showAdvice();
  }

  /** Checks a schema, some time after the last key, and keeps it if nothing is wrong with it. @param {string} text */
  async #check(text) {
    this.#checking?.abort();
    const { signal } = this.#checking = new AbortController();
    /** @type {string[]} */
    let problems = [];
    if (text.trim() !== '') {
      await new Promise(resolve => setTimeout(resolve, DEBOUNCE));
      if (signal.aborted) return;
      // If the check itself fails, an answer will say what is wrong.
      problems = await import('./schema-check.js').then(({ problemsOf }) => problemsOf(text, signal)).catch(() => []);
    }
    if (signal.aborted) return;
    this.#checked = { text, problems };
    this.keep();
    this.showAdvice();
  }

  /** @override */
  showAdvice() {
    const { value } = this.input;
    this.example.hidden = value.trim() !== '';
    const isChecked = value === this.#checked.text || value === this.settings.values[this.name];
    if (isChecked) super.showAdvice();
  }

  /** @override */
  get problem() { return this.#checked.problems.slice(0, MOST_PROBLEMS).join('\n') || super.problem; }
}

/** The field of a setting, of the kind that it needs. @param {ConstructorParameters<typeof Field>} args */
export const fieldOf = (...args) => new (SETTINGS[args[0]].example ? SchemaField : Field)(...args);

/** @param {Settings} settings
 * @param {(changed: boolean) => void} onDone  called when the dialog closes; changed: the model must be loaded again
 * @param {() => number | undefined} trained  the number of tokens for which the model was trained, if there is one */
export function createSettingsDialog(settings, onDone, trained) {
  const dialog = createDialog('settings'), form = element('settings-form', 'form');
  const note = element('settings-note', 'p');
  /** @type {Field[]} */
  const fields = [];
  const broken = () => fields.filter(({ value }) => value === undefined);
  const labels = () => broken().map(({ setting }) => setting.label).join(', ');
  const modelOptions = () => JSON.stringify(settings.loading());
  let loaded = '';

  const changed = () => {
    if (broken().length === 0) note.textContent = '';
  };
  /** Builds the form when it is first opened, because a page that loads has enough to do. */
  function build() {
    for (const group of new Set(Object.values(SETTINGS).map(setting => setting.group))) {
      const names = Object.keys(SETTINGS).filter(name => SETTINGS[name].group === group);
      const own = names.map(name => fieldOf(name, settings, changed, trained, ''));
      fields.push(...own);
      form.append(make('fieldset', {}, make('legend', {}, group), ...own.map(({ box }) => box),
        ...group === 'Model' ? [paragraph('Changes here load the model again when you are done.')] : []));
    }
  }
  function fill() {
    for (const field of fields) field.fill();
    note.textContent = '';
  }

  element('open-settings', 'button').addEventListener('click', () => {
    loaded = modelOptions();
    if (fields.length === 0) build();
    fill();
    dialog.showModal();
  });
  element('settings-done', 'button').addEventListener('click', async () => {
    await Promise.all(fields.map(field => field.ends));
    const [first] = broken();
    if (!first) return dialog.close();
    note.textContent = `Correct these values: ${labels()}`;
    first.input.focus();
  });
  element('defaults', 'button').addEventListener('click', () => {
    settings.reset();
    fill();
    note.textContent = 'All settings have their defaults.';
  });
  dialog.addEventListener('close', () => {
    if (broken().length > 0) toast(`Not changed, because the value is not valid: ${labels()}`);
    onDone(modelOptions() !== loaded);
  });
}
