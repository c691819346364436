/* The settings, the dialog that changes them, and how they are stored. */
import { count, element, integer, make, recall, remember, toast } from './dom.js';

/** @typedef {{label: string, group: string, hint?: string, value: number | string, min?: number, max?: number,
 *   step?: number, choices?: Record<string, string>, toggle?: string, optional?: boolean, whole?: boolean,
 *   example?: string}} Setting
 *   value: the default; choices: each value with its label; toggle: the value when the switch is on; optional: whether
 *   the field may be empty; example: of a JSON Schema, which the field takes */

const SCHEMA = `{
  "type": "object",
  "properties": {
    "title": { "type": "string", "maxLength": 60 },
    "mood": { "enum": ["happy", "neutral", "sad"] },
    "keywords": {
      "type": "array", "minItems": 1, "maxItems": 4,
      "items": { "type": "string", "maxLength": 20 }
    }
  },
  "required": ["title", "mood", "keywords"],
  "additionalProperties": false
}`;
/** Milliseconds after the last key until a schema is checked. */
const DEBOUNCE = 300;
/** How many problems of a schema are shown. */
const MOST_PROBLEMS = 5;

/** The settings.  Except for maxTokens, their defaults are those of the package and of the command line.
 * @type {Record<string, Setting>} */
const SETTINGS = {
  system: { group: 'Answers', label: 'System prompt', hint: 'Instructions before every conversation', value: '' },
  maxTokens: { group: 'Answers', label: 'Longest answer', hint: 'tokens', value: 1024, min: 1, max: 1e6, whole: true },
  reasoningBudget: { group: 'Answers', label: 'Longest reasoning', hint: 'tokens; 0: none; empty: any number',
    value: '', min: 0, max: 1e6, whole: true, optional: true },
  schema: { group: 'Answers', label: 'JSON Schema', hint: 'Answers are JSON that is valid by it, without reasoning; '
    + 'empty: they are text', value: '', example: SCHEMA },
  temperature: { group: 'Sampling', label: 'Temperature', hint: '0: always the likeliest', value: 0.8, min: 0, max: 5,
    step: 0.05 },
  topK: { group: 'Sampling', label: 'Top k', hint: '0: off', value: 40, min: 0, max: 1e6, whole: true },
  topP: { group: 'Sampling', label: 'Top p', hint: '1: off', value: 0.95, min: 0, max: 1, step: 0.01 },
  minP: { group: 'Sampling', label: 'Min p', hint: '0: off', value: 0.05, min: 0, max: 1, step: 0.01 },
  typicalP: { group: 'Sampling', label: 'Typical p', hint: '1: off', value: 1, min: 0, max: 1, step: 0.01 },
  seed: { group: 'Sampling', label: 'Seed', hint: 'empty: a new one each time', value: '', min: 0,
    max: Number.MAX_SAFE_INTEGER, whole: true, optional: true },
  repeatPenalty: { group: 'Penalties', label: 'Repetition', hint: '1: off', value: 1, min: 0.1, max: 10, step: 0.05 },
  presencePenalty: { group: 'Penalties', label: 'Presence', hint: '0: off', value: 0, min: -10, max: 10, step: 0.1 },
  frequencyPenalty: { group: 'Penalties', label: 'Frequency', hint: '0: off', value: 0, min: -10, max: 10, step: 0.1 },
  contextLength: { group: 'Model', label: 'Context length', hint: 'tokens; empty: the model’s own, at most 2048',
    value: '', min: 16, max: 1e6, whole: true, optional: true },
  threads: { group: 'Model', label: 'Threads', hint: 'empty: one for each processor', value: '', min: 1, max: 64,
    whole: true, optional: true },
  kvType: { group: 'Model', label: 'KV cache', hint: 'format of the stored keys and values', value: 'i16',
    choices: { i16: '16 bits', q8: '8 bits: half the memory', f32: '32 bits: twice the memory, slow' } },
  precision: { group: 'Model', label: 'Fast 8-bit arithmetic', value: 'exact16', toggle: 'fast8',
    hint: 'Rounds activations to 8 bits instead of 16. This is faster on some new processors: on a Zen 5 the '
      + 'multiplications alone are 1.1 to 1.7 times as fast. It is no faster on others: on a Zen 4 prompts and '
      + 'answers are 0.8 to 1.1 times as fast. It costs accuracy: at 2 or 3 of 100 positions another token becomes '
      + 'the likeliest.' },
  theme: { group: 'Appearance', label: 'Colours', hint: '', value: 'system',
    choices: { system: 'Same as the system', light: 'Light', dark: 'Dark' } },
};
const NOTES = { Model: 'Changes here load the model again when you are done.' };

/** @param {Setting} setting @param {unknown} value @returns {boolean} */
function isValid({ value: defaultValue, min = -Infinity, max = Infinity, choices, toggle, optional, whole, example },
  value) {
  if (example && typeof value === 'string' && value.trim() !== '' && schemaOf(value) === undefined) return false;
  if (optional && value === '') return true;
  if (choices) return Object.hasOwn(choices, String(value));
  if (toggle) return value === defaultValue || value === toggle;
  if (typeof defaultValue === 'string' && !optional) return typeof value === 'string' && value.length < 1e5;
  return typeof value === 'number' && value >= min && value <= max && (!whole || Number.isInteger(value));
}

/** The JSON Schema in a text; undefined if it is none. @param {string} text @returns {object | boolean | undefined} */
function schemaOf(text) {
  try {
    const value = JSON.parse(text);
    const isSchema = typeof value === 'boolean' || typeof value === 'object' && value && !Array.isArray(value);
    return isSchema ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The values that a setting allows, as the end of a sentence. @param {Setting} setting */
function expected({ min, max, whole: isWhole, optional, example }) {
  if (example) return 'must be a JSON Schema, or empty';
  if (min === undefined || max === undefined) return 'must be shorter';
  const range = [min, max].map(n => Number.isInteger(n) ? integer(n) : String(n)).join(' to ');
  return `must be ${isWhole ? 'a whole number ' : ''}from ${range}${optional ? ', or empty' : ''}`;
}

/** @param {(changed: boolean) => void} onDone  called when the dialog closes; changed: the model must be loaded again
 * @param {() => number | undefined} trained  the number of tokens for which the model was trained, if there is one */
export function createSettings(onDone, trained) {
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
  /** The schema that was checked last, and what is wrong with it. @type {{text: string, problems: string[]}} */
  let checked = { text: '', problems: [] };
  /** The check that runs. @type {AbortController | undefined} */
  let checking;
  /** The end of the check that runs. */
  let checkEnds = Promise.resolve();
  const modelOptions = () => JSON.stringify(loading());

  /** Builds the form when it is first opened, because a page that loads has enough to do. */
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
    const { label, hint = '', min, max, step, choices, toggle, value, example } = setting;
    const about = { id: `set-${name}`, 'aria-describedby': `hint-${name} about-${name}` };
    const input = fields[name] = choices
      ? make('select', about, ...Object.entries(choices).map(([value, label]) => make('option', { value }, label)))
      : toggle ? make('input', { ...about, type: 'checkbox', role: 'switch' })
      : value === '' && !setting.optional ? make('textarea', { ...about, rows: example ? 5 : 3,
        ...example && { className: 'source', spellcheck: false } })
      : make('input', { ...about, type: 'number', ...min !== undefined && { min: String(min) },
        ...max !== undefined && { max: String(max) }, step: setting.whole ? '1' : String(step ?? 'any') });
    input.addEventListener('input', () => {
      if (example) checkEnds = check(name, input.value);
      showAdvice(name);
      if (example) return;   // it is kept when it was checked
      const entered = keep(name);
      if (name === 'theme') dispatchEvent(new CustomEvent('plumb-theme', { detail: entered }));
    });
    return make('div', { className: toggle ? 'field switch' : 'field' },
      make('label', { htmlFor: about.id }, label), input,
      make('p', { className: 'figures', id: `hint-${name}` }, hint),
      ...example ? [make('button', { type: 'button', id: `example-${name}`, onclick: () => {
        input.value = example;
        input.dispatchEvent(new Event('input'));
        input.focus();
      } }, 'Begin with an example')] : [],
      make('p', { className: 'about', id: `about-${name}` }));
  }

  /** Keeps the value in a field, and returns it, if its setting allows it. @param {string} name */
  function keep(name) {
    const entered = valueIn(name);
    if (entered === undefined) return undefined;
    values[name] = entered;
    remember('settings', values);
    return entered;
  }

  /** Checks a schema, some time after the last key, and keeps it if nothing is wrong with it.
   * @param {string} name @param {string} text */
  async function check(name, text) {
    checking?.abort();
    const { signal } = checking = new AbortController();
    /** @type {string[]} */
    let problems = [];
    if (text.trim() !== '') {
      await new Promise(resolve => setTimeout(resolve, DEBOUNCE));
      if (signal.aborted) return;
      // If the check itself fails, an answer will say what is wrong.
      problems = await import('./schema-check.js').then(({ problemsOf }) => problemsOf(text, signal)).catch(() => []);
    }
    if (signal.aborted) return;
    checked = { text, problems };
    keep(name);
    showAdvice(name);
  }

  /** The value in a field; undefined if its setting does not allow it. @param {string} name */
  function valueIn(name) {
    const input = fields[name], setting = SETTINGS[name], { value, toggle, optional } = setting;
    const text = input.value.trim();
    const entered = toggle ? /** @type {HTMLInputElement} */ (input).checked ? toggle : value
      : typeof value === 'string' && !optional || text === '' && optional ? input.value
      : text === '' ? NaN : Number(text);
    const isBroken = setting.example && checked.problems.length > 0 && checked.text === input.value;
    return !isBroken && !input.validity.badInput && isValid(setting, entered) ? entered : undefined;
  }

  /** Shows below a field what is wrong with its value, or what follows from it. @param {string} name */
  function showAdvice(name) {
    const entered = valueIn(name), about = element(`about-${name}`, 'p');
    if (SETTINGS[name].example) {
      const { value } = fields[name];
      element(`example-${name}`, 'button').hidden = value.trim() !== '';
      if (value !== checked.text && value !== values[name]) return;   // its check runs
    }
    fields[name].setAttribute('aria-invalid', String(entered === undefined));
    about.classList.toggle('problem', entered === undefined);
    const limit = trained();
    about.textContent = entered === undefined && SETTINGS[name].example && checked.problems.length > 0
      ? checked.problems.slice(0, MOST_PROBLEMS).join('\n')
      : entered === undefined ? `${SETTINGS[name].label} ${expected(SETTINGS[name])}.`
      : name === 'contextLength' && limit && Number(entered) > limit
      ? `The model was trained for ${count(limit, 'token')}. Its answers get worse beyond that.` : '';
    if (invalidNames().length === 0) element('settings-note', 'p').textContent = '';
  }

  /** Names of the settings whose fields have values that are not allowed. */
  const invalidNames = () => Object.keys(fields).filter(name => valueIn(name) === undefined);
  /** @param {string[]} names */
  const labels = names => names.map(name => SETTINGS[name].label).join(', ');

  function fill() {
    for (const [name, input] of Object.entries(fields)) {
      const { toggle } = SETTINGS[name];
      if (toggle) /** @type {HTMLInputElement} */ (input).checked = values[name] === toggle;
      else input.value = String(values[name]);
      showAdvice(name);
    }
    element('settings-note', 'p').textContent = '';
  }

  element('open-settings', 'button').addEventListener('click', () => {
    loaded = modelOptions();
    if (form.childElementCount === 0) build();
    fill();
    dialog.showModal();
  });
  element('settings-done', 'button').addEventListener('click', async () => {
    await checkEnds;
    const names = invalidNames();
    if (names.length === 0) return dialog.close();
    element('settings-note', 'p').textContent = `Correct these values: ${labels(names)}`;
    fields[names[0]].focus();
  });
  element('defaults', 'button').addEventListener('click', () => {
    for (const [name, { value }] of Object.entries(SETTINGS)) values[name] = value;
    remember('settings', undefined);
    dispatchEvent(new CustomEvent('plumb-theme', { detail: values.theme }));
    fill();
    element('settings-note', 'p').textContent = 'All settings have their defaults.';
  });
  dialog.addEventListener('close', () => {
    const names = invalidNames();
    if (names.length > 0) toast(`Not changed, because the value is not valid: ${labels(names)}`);
    onDone(modelOptions() !== loaded);
  });

  /** @param {string[]} groups */
  const valuesOf = groups => Object.fromEntries(Object.entries(values).filter(([name]) =>
    groups.includes(SETTINGS[name].group) && values[name] !== '' && name !== 'system' && name !== 'schema'));
  /** The options of Plumb.load. */
  function loading() { return valuesOf(['Model']); }
  return {
    loading,
    /** The options of generate. */
    sampling: () => valuesOf(['Answers', 'Sampling', 'Penalties']),
    /** @returns {string} */
    system: () => values.system.trim(),
    /** The JSON Schema of the answers; undefined: they are text. */
    schema: () => schemaOf(values.schema),
  };
}
