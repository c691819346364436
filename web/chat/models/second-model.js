/* A model that runs beside that of the page: in a strip, the reader is asked about it, and sees how it is loaded. */
import { Plumb } from '../../index.js';
import { make, paragraph } from '../dom.js';
import { isFatal } from '../explain.js';
import { openModel } from './loading.js';
import { placeOf } from './models-dialog.js';

/** @typedef {{anchor: HTMLElement, signal: AbortSignal}} Where  anchor: the strip is before it; signal: ends both */

/** @param {Where} where @param {string} title @param {...Node} parts */
function strip({ anchor }, title, ...parts) {
  const made = make('section', { className: 'strip', 'aria-labelledby': 'second-model-title' },
    make('h2', { id: 'second-model-title' }, title), ...parts);
  anchor.before(made);
  return made;
}

/** Asks a question, and returns the value of the button that the reader takes; the first one is the usual choice.
 * Rejects if the signal is aborted. @template T @param {Where} where @param {string} title @param {string} about
 * @param {{text: string, value: T}[]} choices @returns {Promise<T>} */
export async function askAbout(where, title, about, choices) {
  const { signal } = where;
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const buttons = choices.map(({ text, value }, i) => make('button', { type: 'button', className: i ? '' : 'primary',
      onclick() {
        end();
        resolve(value);
      } }, text));
    const abort = () => {
      end();
      reject(signal.reason);
    };
    const shown = strip(where, title, paragraph(about), make('div', { className: 'row' }, ...buttons));
    const end = () => {
      shown.remove();
      signal.removeEventListener('abort', abort);
    };
    signal.addEventListener('abort', abort);
    buttons[0].focus();
  });
}

/** @typedef {typeof import('./offered.js').OFFERED[number]} Offered */

/** Loads an offered model, which the page need not share.  A host of the page may lack its file; then it comes from the
 * hub.
 * @param {Offered} offered @param {Where} where @param {string} [title]
 * @param {import('../../api/plumb.js').LoadOptions} [options] */
export async function loadOffered({ url, hub, name }, where, title = `Loading ${name}`, options = {}) {
  const source = await placeOf(url) === 'nowhere' ? hub : url;
  const bar = make('progress', { max: 1, 'aria-labelledby': 'second-model-title' }), line = paragraph('Connecting');
  const shown = strip(where, title, bar, line);
  try {
    return await openModel(source, { ...options, reserve: false, signal: where.signal }, bar, line);
  } finally {
    shown.remove();
  }
}

/** The offered model that a page has loaded: one at a time, as two would take much memory. */
export class SecondModel {
  /** @type {{url: string, model: import('../../api/plumb.js').Model} | undefined} */
  #loaded;

  get isLoaded() { return this.#loaded !== undefined; }

  /** Whether it is this one. @param {Offered} offered */
  is({ url }) { return this.#loaded?.url === url; }

  /** Loads a model in place of another one, unless it is loaded. @param {Offered} offered @param {Where} where */
  async load(offered, where) {
    if (this.#loaded?.url === offered.url) return this.#loaded.model;
    await this.#loaded?.model.close();
    this.#loaded = undefined;
    const model = await loadOffered(offered, where);
    this.#loaded = { url: offered.url, model };
    return model;
  }

  /** After an error with which it broke down, it is loaded again for the next answer. @param {unknown} error */
  failed(error) {
    if (!isFatal(error)) return;
    void this.#loaded?.model.close().catch(() => {});
    this.#loaded = undefined;
  }
}

/** Whether this browser keeps an offered model, so that it need not be downloaded. @param {Offered} offered */
export async function isKept({ url, hub }) {
  const kept = await Promise.all([url, hub].map(source => Plumb.openCached(source).then(Boolean, () => false)));
  return kept.includes(true);
}
