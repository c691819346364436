/* The settings and how they are stored.  settings-dialog.js changes them. */
import { MAX_CTX, MAX_THREADS, PARAMETERS } from '../base/parameters.js';
import { integer, recall, remember } from './dom.js';

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

/** The parameters of sampling that have a label. @type {Record<string, Setting>} */
const SAMPLING = Object.fromEntries(PARAMETERS.flatMap(({ name, isInteger, low, high, standard, label, step, hint }) =>
  label ? [[name, { group: name.endsWith('Penalty') ? 'Penalties' : 'Sampling', label, hint, value: standard, min: low,
    max: high, step, whole: isInteger }]] : []));
/** The settings.  Except for maxTokens, their defaults are those of the package and of the command line.
 * @type {Record<string, Setting>} */
export const SETTINGS = {
  system: { group: 'Answers', label: 'System prompt', hint: 'Instructions before every conversation', value: '' },
  maxTokens: { group: 'Answers', label: 'Longest answer', hint: 'tokens', value: 1024, min: 1, max: 1e6, whole: true },
  reasoningBudget: { group: 'Answers', label: 'Longest reasoning', hint: 'tokens; 0: none; empty: any number',
    value: '', min: 0, max: 1e6, whole: true, optional: true },
  schema: { group: 'Answers', label: 'JSON Schema', hint: 'Answers are JSON that is valid by it, without reasoning; '
    + 'empty: they are text', value: '', example: SCHEMA },
  ...SAMPLING,
  seed: { group: 'Sampling', label: 'Seed', hint: 'empty: a new one each time', value: '', min: 0,
    max: Number.MAX_SAFE_INTEGER, whole: true, optional: true },
  contextLength: { group: 'Model', label: 'Context length',
    hint: 'tokens; empty: the model’s own, with at most 512 MiB of keys and values', value: '', min: 1, max: MAX_CTX,
    whole: true, optional: true },
  threads: { group: 'Model', label: 'Threads', hint: 'empty: one for each processor', value: '', min: 1,
    max: MAX_THREADS, whole: true, optional: true },
  kvType: { group: 'Model', label: 'KV cache', hint: 'format of the stored keys and values', value: 'i16',
    choices: { i16: '16 bits', q8_0: '8 bits: half the memory', q4_0: '4 bits: a quarter, less precise',
      f32: '32 bits: twice the memory, slow' } },
  precision: { group: 'Model', label: 'Fast 8-bit arithmetic', value: 'exact16', toggle: 'fast8',
    hint: 'Rounds activations to 8 bits instead of 16. This is faster on some new processors: on a Zen 5 the '
      + 'multiplications alone are 1.1 to 1.7 times as fast. It is no faster on others: on a Zen 4 prompts and '
      + 'answers are 0.8 to 1.1 times as fast. It costs accuracy: at 2 or 3 of 100 positions another token becomes '
      + 'the likeliest.' },
  dictation: { group: 'Voice', label: 'Dictation', hint: 'A microphone beside the message box writes what you say',
    value: 'off', choices: { off: 'Off', local: 'Recognized on this machine',
      service: 'Recognized by the browser’s service, which gets your voice' } },
  aloud: { group: 'Voice', label: 'Read answers aloud',
    hint: 'A button below each answer; the voice is one of this machine', value: 'off', toggle: 'on' },
  theme: { group: 'Appearance', label: 'Colours', hint: '', value: 'system',
    choices: { system: 'Same as the system', light: 'Light', dark: 'Dark' } },
};

/** @param {Setting} setting @param {unknown} value @returns {boolean} */
export function isValid({ value: defaultValue, min = -Infinity, max = Infinity, choices, toggle, optional, whole,
  example }, value) {
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
export function expected({ min, max, whole: isWhole, optional, example }) {
  if (example) return 'must be a JSON Schema, or empty';
  if (min === undefined || max === undefined) return 'must be shorter';
  const range = [min, max].map(n => Number.isInteger(n) ? integer(n) : String(n)).join(' to ');
  return `must be ${isWhole ? 'a whole number ' : ''}from ${range}${optional ? ', or empty' : ''}`;
}

/** The groups of settings that a conversation may have values of its own for. */
export const OWN_GROUPS = ['Answers', 'Sampling', 'Penalties'];

/** The values that a conversation has of its own, of untrusted ones.
 * @param {any} values @returns {Record<string, string | number> | undefined}  undefined: none */
export function ownValues(values) {
  const valid = Object.entries(SETTINGS).filter(([name, setting]) => OWN_GROUPS.includes(setting.group)
    && values !== null && typeof values === 'object' && Object.hasOwn(values, name) && isValid(setting, values[name]));
  return valid.length > 0 ? Object.fromEntries(valid.map(([name]) => [name, values[name]])) : undefined;
}

/** The values of the settings. */
export class Settings {
  /** @type {Record<string, any>} */
  values = {};
  /** Those that the conversation has of its own. @type {Record<string, any>} */
  own = {};

  constructor() {
    const kept = recall('settings');
    for (const [name, setting] of Object.entries(SETTINGS)) {
      this.values[name] = isValid(setting, kept?.[name]) ? kept[name] : setting.value;
    }
  }

  /** Keeps a value that its setting allows. @param {string} name @param {any} value */
  keep(name, value) {
    this.values[name] = value;
    remember('settings', this.values);
    if (name === 'theme') this.#showTheme();
  }

  /** Gives all settings their defaults. */
  reset() {
    for (const [name, { value }] of Object.entries(SETTINGS)) this.values[name] = value;
    remember('settings', undefined);
    this.#showTheme();
  }

  #showTheme() { dispatchEvent(new CustomEvent('plumb-theme', { detail: this.values.theme })); }

  /** @param {...string} groups */
  #of(...groups) {
    return Object.fromEntries(Object.entries({ ...this.values, ...this.own }).filter(([name, value]) =>
      groups.includes(SETTINGS[name].group) && value !== '' && name !== 'system' && name !== 'schema'));
  }

  /** The options of Plumb.load. */
  loading = () => this.#of('Model');
  /** The options of generate. */
  sampling() { return this.#of(...OWN_GROUPS); }
  /** @returns {string} */
  system() { return (this.own.system ?? this.values.system).trim(); }
  /** The JSON Schema of the answers; undefined: they are text. */
  schema() { return schemaOf(this.own.schema ?? this.values.schema); }
}
