/* Loads models, and shows the progress or the reason of a failure in a strip above the message box. */
import { Plumb, PlumbError } from '../../index.js';
import { dotted, duration, element, megabytes } from '../dom.js';
import { explain } from '../explain.js';
import { ChooseFile, filesOf, isFileKey, keyOf, reopen } from './file-models.js';
import { headersFor } from './hub-token.js';
import { OFFERED, prepare } from './offered.js';

/** @typedef {import('../../api/plumb.js').Model} Model
 * @typedef {import('../../loader/source.js').Source} Source */

export class Loader {
  #options;
  #changed;
  #bar = element('bar', 'progress');
  #text = element('loading-text', 'p');
  /** @type {AbortController | undefined} */
  #running;
  /** Resolves when earlier models are closed: two are never in memory at once. @type {Promise<unknown>} */
  #closing = Promise.resolve();
  /** @type {Model | undefined} */
  model;
  /** What the model does. @type {import('./offered.js').Kind} */
  kind = 'answers';
  /** The model that is loaded, or that was to be loaded. @type {Source} */
  source = '';
  /** What the button of a failure does. */
  #retry = () => {};

  /** @param {() => import('../../api/plumb.js').LoadOptions} options  the current settings
   * @param {(state: 'loading' | 'failed' | 'ready') => void} changed */
  constructor(options, changed) {
    this.#options = options;
    this.#changed = changed;
    element('cancel', 'button').addEventListener('click', () => this.#running?.abort());
    element('retry', 'button').addEventListener('click', () => this.#retry());
  }

  /** The name under which the model is found again: that of the source, or the key of its files. */
  get key() {
    const files = filesOf(this.source);
    return files ? keyOf(files) : String(this.source);
  }

  /** Replaces the model with this one. @param {Source} source  also the key of files (file-models.js) */
  async load(source) {
    this.#running?.abort();
    const controller = this.#running = new AbortController(), { signal } = controller;
    this.#close(this.model);
    this.model = undefined;
    this.source = source;
    this.#bar.removeAttribute('value');
    this.#text.textContent = 'Connecting';
    this.#show('loading');
    await this.#closing;
    const isReplaced = () => this.#running !== controller;
    if (isReplaced()) return;
    try {
      if (isFileKey(source)) {
        const files = await reopen(source);
        if (isReplaced()) return;
        this.source = source = files.length === 1 ? files[0] : files;
      }
      const loaded = await openModel(source, { ...this.#options(), reserve: false, signal,
        shared: typeof source === 'string' || source instanceof URL }, this.#bar, this.#text);
      const kind = await prepare(loaded);
      if (isReplaced()) return this.#close(loaded);
      this.kind = kind;
      this.model = loaded;
      this.#running = undefined;
      this.#show('ready');
    } catch (error) {
      if (isReplaced()) return;
      this.#running = undefined;
      const offered = OFFERED.find(({ url }) => url === String(source));
      if (offered && isAbsent(error)) return this.fail(offered.hub, elsewhere(offered));
      this.fail(source, explain(error), error instanceof ChooseFile);
    }
  }

  /** Shows why there is no model, and offers to load this one.
   * @param {Source} source @param {ReturnType<typeof explain>} why @param {boolean} [mustChoose]  whether the reader
   *   must choose its file */
  fail(source, { title, advice, detail }, mustChoose = false) {
    const isNew = this.source !== source || isFileKey(source);   // not tried yet
    element('retry', 'button').textContent = mustChoose ? 'Choose the file…' : isNew ? 'Load it' : 'Try again';
    this.#retry = () => mustChoose ? element('open', 'button').click() : void this.load(source);
    this.source = source;
    element('failure-title', 'h2').textContent = title;
    element('failure-advice', 'p').textContent = advice;
    element('failure-detail', 'p').textContent = detail;
    this.#show('failed');
  }

  /** @param {Model | undefined} old */
  #close(old) {
    // A model that broke down is gone, too.
    this.#closing = Promise.all([this.#closing, old?.close().catch(() => {})]);
  }

  /** @param {'loading' | 'failed' | 'ready'} state */
  #show(state) {
    element('loading', 'section').hidden = state !== 'loading';
    element('failure', 'section').hidden = state !== 'failed';
    this.#changed(state);
  }
}

/** Whether a load failed because the server does not have the file. @param {unknown} error */
const isAbsent = error => error instanceof PlumbError && error.details.status === 404;

/** What is said of an offered model that is not beside the page. @param {typeof OFFERED[number]} offered */
const elsewhere = ({ name, size, licence, hub }) => ({
  title: `This server does not have ${name}`, detail: `${hub} (${licence})`,
  advice: `Its ${size} MB can come from the hub, huggingface.co, and are then kept in this browser. Or choose another `
    + 'model, or open a GGUF file.',
});

/** Loads a model, and shows the progress in a bar and a line.  If this server has not got the model yet, but fetches
 * models, it fetches it first.
 * @param {Source} source @param {import('../../api/plumb.js').LoadOptions & {signal: AbortSignal}} options
 * @param {HTMLProgressElement} bar @param {HTMLElement} line */
export async function openModel(source, options, bar, line) {
  const { signal } = options, load = () => Plumb.load(source, { ...options, ...headersFor(source), persist: true,
    onProgress: progress => signal.aborted || showProgress(progress, bar, line) });
  try {
    return await load();
  } catch (error) {
    if (!isAbsent(error) || typeof source !== 'string') throw error;
    const { fetchAtServer } = await import('./server-models.js');
    const isFetched = await fetchAtServer(source, { signal, onProgress({ bytes, total }) {
      if (signal.aborted) return;
      if (total) bar.value = bytes / total;
      line.textContent = `The server of this page fetches the model: ${megabytes(bytes)}`
        + `${total ? ` of ${megabytes(total)}` : ''} MB`;
    } });
    if (!isFetched) throw error;
    return load();
  }
}

/** @param {import('../../loader/progress.js').Progress} progress @param {HTMLProgressElement} bar
 * @param {HTMLElement} line */
function showProgress({ phase, bytes, total, rate, secondsLeft, attempt = 0 }, bar, line) {
  if (phase === 'prepare' || phase === 'ready') {
    bar.removeAttribute('value');
    line.textContent = `${megabytes(bytes)} MB loaded, getting ready`;
    return;
  }
  if (total) bar.value = bytes / total;
  const amount = total ? `${megabytes(bytes)} of ${megabytes(total)} MB` : `${megabytes(bytes)} MB`;
  line.textContent = phase === 'wait'
    ? dotted([amount, `connection lost; trying again${attempt > 1 ? ` (${attempt})` : ''}`])
    : dotted([amount, phase === 'read' && 'from this device', `${megabytes(rate)} MB/s`,
      secondsLeft !== undefined && `${duration(secondsLeft)} left`]);
}
