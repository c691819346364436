/* Settings: what they are, the dialog that changes them, and where they are kept. */
import { element, make, recall, remember } from './dom.js';

/** @typedef {{label: string, group: string, hint?: string, value: number | string, min?: number, max?: number,
 *   step?: number, choices?: string[], optional?: boolean, whole?: boolean}} Setting
 *   value: the default; optional: may be left empty */

/** What the makers of SmolLM2 advise for it; a model this small wanders off at higher temperatures.
 * @type {Record<string, Setting>} */
const SETTINGS = {
  system: { group: 'Answers', label: 'System prompt', hint: 'What the model is told before all else', value: '' },
  maxTokens: { group: 'Answers', label: 'Longest answer', hint: 'tokens', value: 1024, min: 1, max: 1e6, whole: true },
  temperature: { group: 'Sampling', label: 'Temperature', hint: '0: always the likeliest', value: 0.2, min: 0, max: 5,
    step: 0.05 },
  topK: { group: 'Sampling', label: 'Top k', hint: '0: off', value: 40, min: 0, max: 1e6, whole: true },
  topP: { group: 'Sampling', label: 'Top p', hint: '1: off', value: 0.9, min: 0, max: 1, step: 0.01 },
  minP: { group: 'Sampling', label: 'Min p', hint: '0: off', value: 0.05, min: 0, max: 1, step: 0.01 },
  typicalP: { group: 'Sampling', label: 'Typical p', hint: '1: off', value: 1, min: 0, max: 1, step: 0.01 },
  seed: { group: 'Sampling', label: 'Seed', hint: 'empty: a new one each time', value: '', min: 0,
    max: Number.MAX_SAFE_INTEGER, whole: true, optional: true },
  repeatPenalty: { group: 'Penalties', label: 'Repetition', hint: '1: off', value: 1, min: 0.1, max: 10, step: 0.05 },
  presencePenalty: { group: 'Penalties', label: 'Presence', hint: '0: off', value: 0, min: -10, max: 10, step: 0.1 },
  frequencyPenalty: { group: 'Penalties', label: 'Frequency', hint: '0: off', value: 0, min: -10, max: 10, step: 0.1 },
  contextLength: { group: 'Model', label: 'Context length', hint: 'tokens; empty: the model’s own, 2048 at most',
    value: '', min: 16, max: 1e6, whole: true, optional: true },
  threads: { group: 'Model', label: 'Threads', hint: 'empty: one for each processor', value: '', min: 1, max: 64,
    whole: true, optional: true },
  precision: { group: 'Model', label: 'Precision', hint: 'of activations', value: 'auto',
    choices: ['auto', 'exact16', 'fast8'] },
  kvType: { group: 'Model', label: 'Keys and values', hint: 'q8: half the memory', value: 'i16',
    choices: ['i16', 'q8', 'f32'] },
};
const NOTES = { Model: 'These load the model again when you are done.' };

/** @param {Setting} setting @param {unknown} value @returns {boolean} */
function isValid({ value: usual, min = -Infinity, max = Infinity, choices, optional, whole }, value) {
  if (optional && value === '') return true;
  if (choices) return choices.includes(/** @type {string} */ (value));
  if (typeof usual === 'string' && !optional) return typeof value === 'string' && value.length < 1e5;
  return typeof value === 'number' && value >= min && value <= max && (!whole || Number.isInteger(value));
}

/** @param {(changed: boolean) => void} onDone  the dialog is closed; whether the model has to be loaded again */
export function createSettings(onDone) {
  const dialog = element('settings', 'dialog'), form = element('settings-form', 'form');
  const kept = recall('settings');
  /** @type {Record<string, any>} */
  const values = {};
  for (const [name, setting] of Object.entries(SETTINGS)) {
    values[name] = isValid(setting, kept?.[name]) ? kept[name] : setting.value;
  }
  /** @type {Record<string, HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>} */
  const fields = {};
  let loaded = '';
  const ofModel = () => JSON.stringify(loading());

  /** When it is first opened: a page that loads has enough to do. */
  function build() {
    for (const group of new Set(Object.values(SETTINGS).map(setting => setting.group))) {
      const box = make('fieldset', {}, make('legend', {}, group));
      for (const [name, setting] of Object.entries(SETTINGS)) {
        if (setting.group === group) box.append(field(name, setting));
      }
      if (group in NOTES) box.append(make('p', { className: 'figures' }, NOTES[/** @type {'Model'} */ (group)]));
      form.append(box);
    }
  }

  /** @param {string} name @param {Setting} setting */
  function field(name, setting) {
    const { label, hint = '', min, max, step, choices, value } = setting;
    const about = { id: `set-${name}`, 'aria-describedby': `hint-${name}` };
    const input = fields[name] = choices
      ? make('select', about, ...choices.map(choice => make('option', { value: choice }, choice)))
      : value === '' && !setting.optional ? make('textarea', { ...about, rows: 3 })
      : make('input', { ...about, type: 'number', ...min !== undefined && { min: String(min) },
        ...max !== undefined && { max: String(max) }, step: setting.whole ? '1' : String(step ?? 'any') });
    input.addEventListener('input', () => {
      const said = input.value.trim();
      const meant = typeof value === 'string' && !setting.optional || said === '' && setting.optional ? input.value
        : said === '' ? NaN : Number(said);
      const valid = !input.validity.badInput && isValid(setting, meant);
      input.setAttribute('aria-invalid', String(!valid));
      const range = `${setting.whole ? 'a whole number ' : ''}from ${min} to ${max}`;
      element('settings-note', 'p').textContent = valid ? '' : `${label}: ${min === undefined ? 'too long' : range}`;
      if (!valid) return;
      values[name] = meant;
      remember('settings', values);
    });
    return make('div', { className: 'field' }, make('label', { htmlFor: about.id }, label), input,
      make('p', { className: 'figures', id: about['aria-describedby'] }, hint));
  }

  function fill() {
    for (const [name, input] of Object.entries(fields)) {
      input.value = String(values[name]);
      input.removeAttribute('aria-invalid');
    }
    element('settings-note', 'p').textContent = '';
  }

  element('open-settings', 'button').addEventListener('click', () => {
    loaded = ofModel();
    if (form.childElementCount === 0) build();
    fill();
    dialog.showModal();
  });
  element('defaults', 'button').addEventListener('click', () => {
    for (const [name, { value }] of Object.entries(SETTINGS)) values[name] = value;
    remember('settings', undefined);
    fill();
    element('settings-note', 'p').textContent = 'All settings are the defaults.';
  });
  dialog.addEventListener('close', () => onDone(ofModel() !== loaded));

  /** @param {string[]} groups */
  const given = groups => Object.fromEntries(Object.entries(values).filter(([name]) =>
    groups.includes(SETTINGS[name].group) && values[name] !== '' && name !== 'system'));
  /** Options of Plumb.load. */
  function loading() { return given(['Model']); }
  return {
    loading,
    /** Options of generate. */
    sampling: () => given(['Answers', 'Sampling', 'Penalties']),
    /** @returns {string} */
    system: () => values.system.trim(),
  };
}
