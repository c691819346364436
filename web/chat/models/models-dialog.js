/* The dialog of models: the one that runs, others to open, what a model would need, and the copies on this machine. */
import { Plumb, PlumbError } from '../../index.js';
import { modelsOf } from '../../loader/copy-store.js';
import { splitOf } from '../../loader/split.js';
import {
  count, dotted, element, fileName, iconButton, integer, make, nameOf, paragraph, problem, recall, remember, size,
  tidy, toast,
} from '../dom.js';
import { explain } from '../explain.js';
import { HUB, hubName } from '../../loader/hub.js';
import { named } from '../../loader/names.js';
import { differenceOf, filesOf, isFileKey, keepFiles, keyOf, nameOfKey } from './file-models.js';
import { hasToken, headersFor, tokenForm } from './hub-token.js';
import { isName } from './model-files.js';
import { describedOffer, kindOf, USE } from './offered.js';
import { keepRate } from './rate.js';
import { createDialog } from '../panels.js';

/** @typedef {import('./loading.js').Source} Source */

/** Short forms of a model's warnings; the dialog has their full text. @type {Record<string, string>} */
const SHORT = { threads: 'The model runs with one thread only', cache: 'The model is not stored for the next visit' };

/** Adds the dialog to the page. @param {string} another  the heading of the section that opens other models */
function addDialog(another) {
  const close = iconButton('close', 'Close the models', () => {});
  close.dataset.close = 'models';
  const section = (/** @type {string} */ id, /** @type {string} */ title, /** @type {Node[]} */ ...parts) =>
    make('section', { id, 'aria-labelledby': `${id}-title` }, make('h3', { id: `${id}-title` }, title), ...parts);
  document.body.append(make('dialog', { id: 'models', 'aria-labelledby': 'models-title' },
    make('div', { className: 'bar' }, make('h2', { id: 'models-title' }, 'Model'), close),
    make('div', { className: 'body' },
      section('running', 'Running now', make('dl', { id: 'facts' })),
      section('offer', 'Offered here', make('ul', { id: 'offered' })),
      section('another', another,
        make('form', { id: 'address', className: 'row' },
          make('label', { htmlFor: 'url', className: 'hidden' }, 'Address of a GGUF file, or a name on the hub'),
          make('input', { type: 'text', inputMode: 'url', id: 'url', placeholder: 'hf:org/repo or https://…/model.gguf',
            spellcheck: false, required: true }),
          make('button', { type: 'submit', id: 'look' }, 'Check')),
        make('div', { className: 'row' }, make('button', { type: 'button', id: 'open' }, 'Open files…'),
          make('span', { className: 'figures' }, 'You can also drop GGUF files anywhere on the page.')),
        make('div', { id: 'plan', role: 'status' })),
      section('stored', 'Stored on this device', make('ul', { id: 'kept' })),
      section('more', 'More models')),
    make('input', { type: 'file', id: 'file', accept: '.gguf', multiple: true, hidden: true })));
  return createDialog('models');
}

/** @typedef {object} Page
 * @property {import('./loading.js').Loader} loader
 * @property {() => import('../../api/plumb.js').LoadOptions} options
 * @property {typeof import('./offered.js').OFFERED} offered  the first one is the default
 * @property {string} [key]  of the last chosen model in local storage
 * @property {import('./catalogue.js').Use} [use]  the use of the models that the catalogue shows first
 * @property {string} [another]  the heading of the section that opens models which are not offered */

export class ModelsDialog {
  #page;
  #default;
  #dialog;
  #plan;
  #url;
  #name = element('model-name', 'span');
  /** @type {AbortController | undefined} */
  #lookup;
  /** Those of the files that were chosen or dropped last. @type {Promise<import('./file-models.js').Handle[]>} */
  #handles = Promise.resolve([]);
  /** The list of more models, once the dialog was open.
   * @type {Promise<ReturnType<typeof import('./catalogue-list.js').fillCatalogue>> | undefined} */
  #catalogue;

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
    this.#default = page.offered[0].url;
    this.#dialog = addDialog(page.another ?? 'Open another');
    this.#plan = element('plan', 'div');
    this.#url = element('url', 'input');
    this.#listen();
  }

  #listen() {
    const file = element('file', 'input');
    element('model', 'button').addEventListener('click', () => this.#open());
    element('other', 'button').addEventListener('click', () => this.#open());
    element('address', 'form').addEventListener('submit', event => {
      event.preventDefault();
      const address = addressOf(this.#url.value);
      if (address) void this.#showPlan(address);
      else this.#plan.replaceChildren(paragraph('That is not the address of a file.', 'problem'));
    });
    element('offered', 'ul').replaceChildren(...this.#page.offered.map(one => {
      const item = make('li', {}, make('button', { type: 'button', className: 'title',
        onclick: () => void this.#choose(one, item) }, one.name,
      make('span', { className: 'figures' }, describedOffer(one)),
      make('span', { className: 'figures' })));
      return item;
    }));
    element('open', 'button').addEventListener('click', () => void this.#pick(file));
    file.addEventListener('change', () => {
      const files = [...file.files ?? []];
      file.value = '';
      if (files.length > 0) this.openFiles(files);
    });
    // The handles of dropped files, which must be taken before the event ends.
    addEventListener('drop', ({ dataTransfer }) => {
      const items = [...dataTransfer?.items ?? []].filter(({ kind }) => kind === 'file');
      this.#handles = Promise.all(items.map(item => /** @type {any} */ (item).getAsFileSystemHandle?.()))
        .then(handles => handles.filter(handle => handle?.kind === 'file'), () => []);
    }, true);
    this.#dialog.addEventListener('close', () => {
      this.#lookup?.abort();
      void this.#catalogue?.then(({ stop }) => stop());
    });
  }

  #open() {
    this.#clearPlan();
    void this.#showPlaces();
    void this.#showCatalogue();
    void this.#showFacts();
    void this.#showStored();
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  /** Loads a model.  One that the reader has chosen is remembered, if the next visit can find it again; one that a link
   * asks for is loaded for this visit. @param {Source} source @param {{isChosen?: boolean}} [how] */
  #load(source, { isChosen = true } = {}) {
    const { key = 'model', loader } = this.#page;
    this.#lookup?.abort();
    if (this.#dialog.open) this.#dialog.close();
    // Files are remembered once they are a model that runs.
    if (isChosen && typeof source === 'string') remember(key, source !== this.#default ? source : undefined);
    const address = new URL(location.href);
    const requested = address.searchParams.get('model');
    if (requested !== null && source !== addressOf(requested)) {
      address.searchParams.delete('model');
      history.replaceState(null, '', address);
    }
    this.#name.textContent = nameOfSource(source);
    void loader.load(source);
  }

  /** Loads the first model of a page that was just opened.  If a link asks for a model of another server, and no part
   * of it is on this machine, the model is shown first: opening a link is not consent to a download of gigabytes. */
  async start() {
    const { key = 'model', loader } = this.#page, requested = new URLSearchParams(location.search).get('model');
    const kept = requested ? undefined : recall(key);
    const source = isFileKey(kept) ? kept : addressOf(requested || kept || this.#default);
    if (!source) {
      return loader.fail(this.#default, { title: 'That is not the address of a file',
        detail: String(requested || recall(key)),
        advice: 'Check the link to this page. You can load the default model or choose another.' });
    }
    this.#name.textContent = nameOfSource(source);
    if (isFileKey(source)) return loader.load(source);
    const isHere = !isName(source) && new URL(source).origin === location.origin;
    if (!requested || isHere || await isStored(source)) return loader.load(source);
    loader.fail(source, { title: 'This model is not downloaded yet', detail: source,
      advice: 'The link to this page asks for it. See what it needs, then download it or choose another.' });
    this.#open();
    await this.#showPlan(source, { isChosen: false });
  }

  /** Chooses a model that is offered here, as a click on it does. @param {number} index  of those that are offered */
  chooseOffered(index) {
    this.#open();
    element('offered', 'ul').children[index].querySelector('button')?.click();
  }

  /** Loads the model of a conversation if it is on this machine; else shows its address: a conversation may come from
   * others. @param {string} text  its address or name */
  async offer(text) {
    const source = addressOf(text);
    if (source && (!isName(source) && new URL(source).origin === location.origin || await isStored(source))) {
      return this.#load(source);
    }
    this.#open();
    if (source) {
      this.#url.value = source;
      this.#plan.replaceChildren(paragraph('Nothing was sent yet. “Check” reads the header of the file there.'));
      this.#url.focus();
    } else {
      this.#plan.replaceChildren(paragraph('That is not the address of a file.', 'problem'));
    }
  }

  /** Shows what a model would need, and offers to load it.  With atOnce, loads it if it fits.
   * @param {Source} source @param {{atOnce?: boolean, isChosen?: boolean, isGated?: boolean, at?: HTMLElement}} [how]
   *   isChosen: not by a link; isGated: whether the hub asks who wants it; at: where to show it */
  async #showPlan(source, { atOnce = false, isChosen = true, isGated = false, at } = {}) {
    this.#clearPlan();
    at?.append(this.#plan);
    const controller = this.#lookup = new AbortController();
    const askForToken = () => tokenForm(pageOf(source), () => void this.#showPlan(source, { at, isChosen }));
    if (isGated && !hasToken()) {
      const form = askForToken();
      this.#plan.replaceChildren(make('div', { className: 'plan' },
        make('p', {}, 'The hub gives this model only to accounts that have accepted its conditions.'), form));
      form.querySelector('input')?.focus();
      return;
    }
    this.#plan.replaceChildren(paragraph('Reading the header of the file…'));
    try {
      const { contextLength, kvType, precision, threads } = this.#page.options();
      const found = await Plumb.preflight(source, { contextLength, kvType, precision, threads, measure: !atOnce,
        signal: controller.signal, ...headersFor(source) });
      if (controller.signal.aborted) return;
      if (found.speed?.decode && found.memory) keepRate(found.speed.decode, found.memory.weights);
      if (atOnce && found.fits) return this.#load(source);
      if (!this.#dialog.open) this.#open();
      this.#plan.replaceChildren(planOf(found, source, () => this.#load(source, { isChosen })));
      // If the reader is still typing an address, Enter must not load this model.
      if (document.activeElement !== this.#url) this.#plan.querySelector('button')?.focus();
    } catch (error) {
      if (controller.signal.aborted) return;
      if (!this.#dialog.open) this.#open();
      const isRefused = error instanceof PlumbError && [401, 403].includes(error.details.status) && isName(source);
      this.#plan.replaceChildren(problem(explain(error), ...isRefused ? [askForToken()] : []));
    }
  }

  async #showFacts() {
    const { loader } = this.#page, { model } = loader;
    element('running', 'section').hidden = !model;
    if (!model) return;
    const info = await model.info().catch(() => undefined);
    if (model !== loader.model) return;
    element('running', 'section').hidden = !info;
    if (!info) return;   // the engine stopped
    const why = (/** @type {string} */ code) => model.warnings.find(warning => warning.code === code)?.message;
    element('facts', 'dl').replaceChildren(...facts({
      Model: `${nameOf(model.metadata)}, ${info.architecture}, ${count(info.layers, 'layer')}`,
      Weights: `${(info.parameters / 1e6).toFixed(0)} million, ${size(info.weightBytes)}`,
      Memory: `${size(info.memoryBytes)}, including ${size(info.sessionBytes)} for the conversation`,
      Context: `${count(info.contextLength, 'token')}; trained for ${integer(info.trainedContext)}`
        + (info.contextLength > info.trainedContext ? '; its answers get worse beyond that' : ''),
      Threads: why('threads') ?? String(info.threads),
      Engine: `${info.module}, kernels ${info.kernels}, precision ${info.precision}`,
      ...why('cache') && { Copy: why('cache') ?? '' },
      ...USE[loader.kind] && { Use: USE[loader.kind] },
    }));
  }

  async #showStored() {
    const kept = modelsOf(await Plumb.listCached().catch(() => []));
    const list = element('kept', 'ul');
    list.replaceChildren(...kept.map(one => {
      const amount = one.complete ? size(one.bytes)
        : `${size(one.bytes)} of ${one.size ? size(one.size) : 'an unknown size'}, incomplete`;
      return make('li', {},
        make('button', { type: 'button', className: 'title', title: one.url, onclick: () => this.#load(one.url) },
          fileName(one.url), make('span', { className: 'figures' }, amount)),
        iconButton('delete', `Delete ${fileName(one.url)}`, async () => {
          try {
            await Plumb.removeCached(one.url);
            this.#plan.replaceChildren(paragraph(`Deleted the copy of ${fileName(one.url)}`));
          } catch (error) {
            const { title, detail } = explain(error);   // such as: another tab uses it
            this.#plan.replaceChildren(paragraph(detail || title, 'problem'));
          }
          await this.#showStored();
          (list.querySelector('button') ?? this.#url).focus();
        }));
    }));
    if (kept.length === 0) list.append(make('li', { className: 'figures' }, 'Nothing yet.'));
  }

  /** Ends the look at a model, and moves its place back to the form for addresses. */
  #clearPlan() {
    this.#lookup?.abort();
    this.#plan.replaceChildren();
    element('another', 'section').append(this.#plan);
  }

  async #showCatalogue() {
    if (this.#catalogue) return (await this.#catalogue).show();
    const filling = this.#catalogue = import('./catalogue-list.js').then(({ fillCatalogue }) => fillCatalogue(
      element('more', 'section'), { use: this.#page.use, without: this.#page.offered.map(({ hub }) => hub),
        choose: (source, at, isGated = false) => void this.#showPlan(source, { at, isGated }),
        cancel: () => element('more', 'section').contains(this.#plan) && this.#clearPlan() }));
    filling.catch(() => {
      this.#catalogue = undefined;
      element('more', 'section').append(paragraph('The list could not be loaded. Open this dialog again.'));
    });
  }

  /** Keeps how fast an answer was, from which the speed of other models is expected.
   * @param {number} tokensPerSecond */
  async measured(tokensPerSecond) {
    const info = await this.#page.loader.model?.info().catch(() => undefined);
    if (info) keepRate(tokensPerSecond, info.weightBytes);
  }

  /** Says of each offered model whether it must still be fetched. */
  async #showPlaces() {
    for (const [i, one] of this.#page.offered.entries()) {
      const note = element('offered', 'ul').querySelectorAll('button')[i].lastElementChild;
      const where = await placeOf(one.url);
      if (note) note.textContent = where === 'fetched' ? 'Not here yet: the server of this page fetches it.'
        : where === 'nowhere' ? 'This server does not have it. It is on the hub.' : '';
    }
  }

  /** Loads an offered model.  A host of the page may lack its file; then it comes from the hub, after a question.
   * @param {Page['offered'][number]} one @param {HTMLElement} at */
  async #choose({ url, hub }, at) {
    if (await placeOf(url) === 'nowhere') void this.#showPlan(hub, { at });
    else this.#load(url);
  }

  /** @param {File[]} files */
  openFiles(files) {
    const parts = files.sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
    void this.#openParts(parts);
  }

  /** Opens files, unless the reader was asked for others. @param {File[]} parts */
  async #openParts(parts) {
    const { loader } = this.#page, source = parts.length === 1 ? parts[0] : parts, { source: wanted } = loader;
    const difference = isFileKey(wanted) ? await differenceOf(wanted, parts) : undefined;
    if (difference === undefined) return this.#showPlan(source, { atOnce: true });
    if (this.#dialog.open) this.#dialog.close();
    loader.fail(source, { title: 'This is another file', detail: difference,
      advice: 'Load it nevertheless, or choose the one that was used before.' });
  }

  /** Lets the reader choose files: with handles, if the browser has some, to find the files again.
   * @param {HTMLInputElement} file */
  async #pick(file) {
    const { showOpenFilePicker } = /** @type {any} */ (globalThis);
    if (!showOpenFilePicker) return file.click();
    const handles = /** @type {import('./file-models.js').Handle[]} */ (await showOpenFilePicker({ multiple: true,
      types: [{ description: 'GGUF models', accept: { 'application/octet-stream': ['.gguf'] } }] }).catch(() => []));
    this.#handles = Promise.resolve(handles);
    if (handles.length > 0) this.openFiles(await Promise.all(handles.map(handle => handle.getFile())));
  }

  /** Called when a model is loaded: shows its name in the header. */
  loaded() {
    const { key = 'model', loader: { model, source } } = this.#page, files = filesOf(source);
    if (!model) return;
    this.#name.textContent = nameOf(model.metadata);
    if (files) void this.#handles.then(handles => keepFiles(files, handles)).then(() => remember(key, keyOf(files)))
      .catch(() => remember(key, keyOf(files)));   // without a database the reader is asked for the file
    if (this.#dialog.open) void this.#showFacts();
    else if (model.warnings.length > 0) {
      const [{ code, message }] = model.warnings;
      toast(SHORT[code] ?? message, 'Why?', () => this.#open());
    }
  }
}

/** Whether there is a whole or partial copy of a model, of a name only a whole one. @param {string} source */
const isStored = async source => isName(source) ? Boolean(await Plumb.openCached(source).catch(() => undefined))
  : (await Plumb.listCached().catch(() => [])).some(one => splitOf(one.url).first === splitOf(source).first);

/** Where the file of an offered model is. @param {string} url */
export const placeOf = async url => await isStored(url) ? 'here' : (await import('./server-models.js')).whereIs(url);

/** The URL or the name that a text is. @param {unknown} text @returns {string | undefined} */
function addressOf(text) {
  const trimmed = String(text).trim();
  if (isName(trimmed)) return trimmed;
  const full = /^[\w-]+(\.[\w-]+)+\//.test(trimmed) ? `https://${trimmed}` : trimmed;
  try {
    const url = new URL(full, location.href);
    url.username = url.password = '';   // fetch refuses them
    decodeURIComponent(url.pathname);   // throws if its name cannot be decoded
    return /^https?:$/.test(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** @param {Source} source */
function nameOfSource(source) {
  const one = Array.isArray(source) ? source[0] : source;
  if (one instanceof File) return tidy(one.name.replace(/\.gguf$/i, ''));
  if (isFileKey(one)) return nameOfKey(one);
  return typeof one !== 'string' ? 'Model' : isName(one) ? one : fileName(one).replace(/\.gguf$/i, '');
}

/** The page of a model at the hub. @param {Source} source */
function pageOf(source) {
  const text = String(source), repository = named(text)?.model.repository ?? hubName(text)?.repository;
  return `${HUB}/${repository ?? ''}`;
}

/** @param {Record<string, string>} entries */
const facts = entries =>
  Object.entries(entries).flatMap(([term, text]) => [make('dt', {}, term), make('dd', {}, text)]);

/** @param {Awaited<ReturnType<typeof Plumb.preflight>>} found @param {Source} source @param {() => void} load */
function planOf(found, source, load) {
  const { supported, name, architecture = '', parameters = 0, memory, fits, speed, cached, storage } = found;
  const { fileBytes } = found, kind = kindOf(found);
  const problems = found.problems.map(({ code, message }) =>
    ({ ...explain(new PlumbError(/** @type {import('../../base/errors.js').ErrorCode} */ (code), message)),
      detail: message }));
  if (memory && !fits) {
    const least = memory.total < memory.limit ? 'more than ' : '';   // a lower bound if no session could be opened
    problems.push({ ...explain(new PlumbError('PLUMB_ERROR_MEMORY', '')),
      detail: `It needs ${least}${size(memory.total)}; the limit here is ${size(memory.limit)}.` });
  }
  if (storage && !storage.fits) {
    problems.push({ title: 'There is no storage left for it', advice: 'Each visit would download it again.',
      detail: '' });
  }
  const missing = typeof source !== 'string' || cached?.complete ? 0 : (fileBytes ?? NaN) - (cached?.bytes ?? 0);
  const download = missing > 0 ? `Download ${size(missing)}` : Number.isNaN(missing) && 'Download';
  return make('div', { className: 'plan' },
    make('h4', {}, dotted([tidy(name || nameOfSource(source)), fileBytes !== undefined && size(fileBytes)])),
    ...problems.map(why => problem(why)),
    ...memory ? [make('dl', {}, ...facts({
      Kind: dotted([architecture, `${(parameters / 1e6).toFixed(0)} million weights`,
        found.types.map(({ type }) => type).join(' ')]),
      Memory: `${size(memory.total)} of ${size(memory.limit)}: weights ${size(memory.weights)}, context of `
        + `${count(found.contextLength ?? 0, 'token')} ${size(memory.kv)}, `
        + `the rest ${size(memory.scratch + memory.module)}`,
      Threads: `${found.threads}${found.threadsNote ? `: ${found.threadsNote}` : ''}`,
      ...speed && { Speed: speed.decode === undefined ? `about ${speed.prefill.toFixed(0)} tokens/s`
        : `about ${speed.decode.toFixed(0)} tokens/s, prompt ${speed.prefill.toFixed(0)} tokens/s` },
      ...USE[kind] && { Use: USE[kind] },
    }))] : [],
    ...supported ? [make('button', { type: 'button', className: fits ? 'primary' : '', onclick: load },
      dotted([download, fits ? 'Start' : 'Try anyway']))] : []);
}
