/* The list of more models in the dialog of models: the catalogue with its filters, and search in the hub. */
import { memoryLimit } from '../../engine/variant.js';
import { deviceMemory } from '../../engine/preflight.js';
import { HUB } from '../../loader/hub.js';
import { chosenOf, searchHub } from '../../loader/hub-search.js';
import { dotted, integer, make, problem, size, tidy } from '../dom.js';
import { explain } from '../explain.js';
import { CATALOGUE, DATE, LICENCES, memoryOf, speedOf, USES, writes } from './catalogue.js';
import { headersFor } from './hub-token.js';
import { isName } from './model-files.js';
import { keptRate } from './rate.js';

/** @typedef {import('./catalogue.js').Entry} Entry
 * @typedef {import('../../loader/hub-search.js').Found} Found
 * @typedef {(source: string, at: HTMLElement, gated?: boolean) => void} Choose */

/** How much of the memory that the browser tells a model may take. */
const OF_MEMORY = 0.8;
/** The most memory that a model can have here. */
const limit = Math.min(memoryLimit(), (deviceMemory() ?? Infinity) * OF_MEMORY);
/** The most bytes of a file on the hub that fits, as the memory of a conversation comes to it. */
const LARGEST = limit * 0.8;
/** Milliseconds that the hub has to say how large a model is. */
const TIMEOUT = 10000;

const languageName = new Intl.DisplayNames(['en'], { type: 'language' });
const SPECIAL = '*';
const LANGUAGES = [...new Set(CATALOGUE.flatMap(({ languages }) => languages.split(' ')))]
  .filter(code => code !== SPECIAL).map(code => ({ code, name: languageName.of(code) ?? code }))
  .sort((a, b) => a.name.localeCompare(b.name, 'en'));

/** @param {number} speed */
const shownSpeed = speed => `about ${speed < 10 ? speed.toFixed(1) : speed.toFixed(0)} tokens/s`;

/** @param {Entry} entry */
function described(entry) {
  const { bytes, type, licence, languages, uses, gated, verified } = entry;
  const speed = keptRate(), memory = memoryOf(entry);
  return [
    dotted([size(bytes), type, `memory up to ${size(memory)}`, memory > limit && 'too large for this browser',
      memory <= limit && speed !== undefined && writes(entry) && shownSpeed(speedOf(entry, speed))]),
    dotted([uses.map(use => USES[use]).join(', '), LICENCES[licence] ?? licence.replace('-', ' '),
      languages === SPECIAL ? 'more than 50 languages'
        : languages.split(' ').map(code => languageName.of(code)).join(', '),
      gated && 'the hub asks for an account', verified && 'tried with plumb']),
  ];
}

/** Fills a section of the dialog. @param {HTMLElement} section
 * @param {{choose: Choose, cancel: () => void, without: string[], use?: import('./catalogue.js').Use}} how
 *   cancel: ends a look at a model; without: the models that are not listed; use: the use that is chosen at first */
export function fillCatalogue(section, { choose, cancel, without, use: first }) {
  const all = CATALOGUE.filter(({ name }) => !without.includes(name));
  const find = make('input', { type: 'search', id: 'find', placeholder: 'Name or use, or hf:org/repo',
    spellcheck: false, maxLength: 200, 'aria-describedby': 'find-about' });
  const option = (/** @type {string} */ value, /** @type {string} */ label) => make('option', { value }, label);
  const use = make('select', { 'aria-label': 'Use' }, option('', 'Any use'),
    ...Object.entries(USES).map(([value, label]) => option(value, label)));
  use.value = first ?? '';
  const language = make('select', { 'aria-label': 'Language' }, option('', 'Any language'),
    ...LANGUAGES.map(({ code, name }) => option(code, name)));
  const fits = make('input', { type: 'checkbox', checked: true });
  const count = make('p', { className: 'figures', role: 'status', id: 'find-count' });
  const list = make('div', { id: 'catalogue' });
  const search = new HubSearch(choose);
  const show = () => {
    const wanted = find.value.trim().toLowerCase().split(/\s+/);
    const shown = all.filter(one => {
      const text = [one.name, one.title, one.family, one.about, one.licence, one.repository,
        ...one.uses.map(use => USES[use])].join(' ').toLowerCase();
      return wanted.every(word => text.includes(word)) && (!fits.checked || memoryOf(one) <= limit)
        && (!use.value || one.uses.some(own => own === use.value))
        && (!language.value || one.languages === SPECIAL || one.languages.split(' ').includes(language.value));
    });
    cancel();
    const itemOf = (/** @type {Entry} */ one) => {
      const item = make('li', {}, make('button', { type: 'button', className: 'title',
        onclick: () => choose(one.name, item, one.gated) }, make('span', {}, one.title),
      make('span', {}, one.about), ...described(one).map(text => make('span', { className: 'figures' }, text))));
      return item;
    };
    const families = [...new Set(shown.map(({ family }) => family))];
    list.replaceChildren(...families.flatMap(family => [make('h4', {}, family),
      make('ul', { className: 'models' }, ...shown.filter(one => one.family === family).map(itemOf))]));
    count.textContent = `${shown.length} of ${all.length} models, as of ${DATE}`;
  };
  find.addEventListener('input', show);
  for (const filter of [use, language, fits]) filter.addEventListener('change', show);
  /** @param {SubmitEvent} event */
  const onsubmit = event => {
    event.preventDefault();
    const words = find.value.trim();
    if (words !== '' && isName(words)) choose(words, search.box);
    else if (words !== '') void search.start(words);
    else find.focus();
  };
  section.append(make('form', { className: 'row nowrap', role: 'search', onsubmit },
    make('label', { htmlFor: 'find', className: 'hidden' }, 'Find a model'), find,
    make('button', { type: 'submit', id: 'search-hub' }, 'Search the hub')),
  make('p', { className: 'figures', id: 'find-about' }, 'What you type filters the list below, on this device. '
    + '“Search the hub”, or Enter, sends the words to huggingface.co.'),
  search.box,
  make('div', { className: 'row filters' }, use, language, make('label', { className: 'check' }, fits, 'Fits here')),
  count, list);
  show();
  return { show, stop: () => search.stop() };
}

/** The results of a search in the hub. */
class HubSearch {
  box = make('div', { id: 'hub-results' });
  #choose;
  /** @type {AbortController | undefined} */
  #running;

  /** @param {Choose} choose */
  constructor(choose) {
    this.#choose = choose;
  }

  stop() { this.#running?.abort(); }

  /** @param {string} words */
  async start(words) {
    this.stop();
    const { signal } = this.#running = new AbortController();
    const list = make('ul', { className: 'models' }), note = make('p', { className: 'figures', role: 'status' });
    this.box.replaceChildren(make('h4', {}, 'On the hub'), note, list);
    await this.#page(words, undefined, { list, note, signal });
  }

  /** Adds a page of results. @param {string} words @param {string | undefined} page
   * @param {{list: HTMLUListElement, note: HTMLElement, signal: AbortSignal}} where */
  async #page(words, page, where) {
    const { list, note, signal } = where;
    note.textContent = 'Asking the hub…';
    try {
      const { found, next } = await searchHub(HUB, words, { ...headersFor(`${HUB}/`), signal }, page);
      const items = found.map(one => this.#item(one));
      list.append(...items.map(({ item }) => item));
      const n = list.childElementCount;
      note.textContent = n === 0 ? 'No repository with GGUF files has these words in its name.'
        : `The ${n} most downloaded${n === 1 ? '' : ' ones'}, by number of downloads. Nobody has checked them.`;
      this.box.querySelector('.more')?.remove();
      if (next !== undefined && found.length > 0) {
        const more = make('button', { type: 'button', className: 'more', onclick: () => {
          more.disabled = true;
          void this.#page(words, next, where);
        } }, 'More results');
        this.box.append(more);
      }
      for (const { about, one } of items) await this.#measure(one, about, signal);
    } catch (error) {
      if (!signal.aborted) note.replaceChildren(problem(explain(error)));
    }
  }

  /** @param {Found} one */
  #item(one) {
    const { repository, downloads, gated, updated } = one;
    const about = make('span', { className: 'figures' });
    const item = make('li', {}, make('button', { type: 'button', className: 'title',
      onclick: () => this.#choose(`hf:${repository}`, item, gated) }, make('span', {}, repository),
    make('span', { className: 'figures' }, dotted([
      downloads !== undefined && `${integer(downloads)} downloads a month`, updated && `changed ${updated}`,
      gated && 'the hub asks for an account'])), about));
    return { item, about, one };
  }

  /** Says how large the file is that would be chosen. @param {Found} one @param {HTMLElement} about
   * @param {AbortSignal} signal  of the search */
  async #measure({ repository }, about, signal) {
    const own = new AbortController(), stop = () => own.abort(), timer = setTimeout(stop, TIMEOUT);
    signal.addEventListener('abort', stop);
    try {
      const chosen = await chosenOf(HUB, repository, LARGEST, { ...headersFor(`${HUB}/`), signal: own.signal });
      about.textContent = dotted([size(chosen.size), tidy(chosen.path.split('/').at(-1)),
        chosen.size > LARGEST && 'too large for this browser']);
    } catch {
      about.textContent = signal.aborted ? '' : 'Its files could not be listed.';
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
    }
  }
}
