/* The model that compares texts, which runs beside the chat model.  The reader is asked before it is downloaded; who
 * does not want it gets a search by words. */
import { Plumb } from '../../index.js';
import { element, make, megabytes, paragraph, recall, remember, toast } from '../dom.js';
import { explain } from '../explain.js';
import { OFFERED } from '../models/offered.js';

/** @typedef {import('../../api/plumb.js').Model} Model */

const { url: URL_OF_MODEL } = /** @type {{url: string}} */ (OFFERED.find(({ url }) => url.includes('MiniLM')));
const NAME = 'MiniLM', SIZE = '25 MB';
/** The key in local storage for the choice not to download it. */
const BY_WORDS = 'documents.by-words';

/** @type {Promise<Model | undefined> | undefined} */
let loading;

/** The model, loaded once; undefined: the search is by words only.  Rejects if the signal is aborted.
 * @param {AbortSignal} signal @param {import('../../api/plumb.js').LoadOptions} options
 * @returns {Promise<import('./library.js').Embedder | undefined>} */
export async function searchModel(signal, options) {
  const before = await loading?.catch(() => undefined);
  if (before) return embedderOf(before);
  const isHere = await Plumb.openCached(URL_OF_MODEL).then(Boolean, () => false);
  if (!isHere && (recall(BY_WORDS) === true || !await ask(signal))) return undefined;
  loading = load(signal, options);
  const model = await loading.catch(error => {
    loading = undefined;
    if (signal.aborted) throw error;
    return undefined;
  });
  return model && embedderOf(model);
}

/** @param {Model} model @returns {import('./library.js').Embedder} */
const embedderOf = model => ({ embed: (texts, signal) => model.embed(texts, { truncate: true, signal }) });

/** @param {string} title @param {...Node} parts */
function strip(title, ...parts) {
  const made = make('section', { className: 'strip', 'aria-labelledby': 'search-model-title' },
    make('h2', { id: 'search-model-title' }, title), ...parts);
  element('attached', 'ul').before(made);
  return made;
}

/** Asks whether the model may be downloaded. @param {AbortSignal} signal @returns {Promise<boolean>} */
function ask(signal) {
  return new Promise((resolve, reject) => {
    /** @param {boolean} wanted */
    const button = (wanted, /** @type {string} */ text) => make('button', { type: 'button',
      className: wanted ? 'primary' : '', onclick: () => {
        if (!wanted) remember(BY_WORDS, true);
        end();
        resolve(wanted);
      } }, text);
    const download = button(true, `Download ${SIZE}`);
    const shown = strip('Search this document by meaning?', paragraph(`It is too long to be read as a whole. ${NAME}, `
      + `a small model, finds the passages that may answer. It is downloaded once: ${SIZE}. Nothing of the document `
      + 'is sent.'), make('div', { className: 'row' }, download, button(false, 'Search by words only')));
    const abort = () => {
      end();
      reject(signal.reason);
    };
    const end = () => {
      shown.remove();
      signal.removeEventListener('abort', abort);
    };
    signal.addEventListener('abort', abort);
    download.focus();
  });
}

/** @param {AbortSignal} signal @param {import('../../api/plumb.js').LoadOptions} options */
async function load(signal, options) {
  const bar = make('progress', { max: 1, 'aria-labelledby': 'search-model-title' }), text = paragraph('Connecting');
  const shown = strip('Loading the model that searches', bar, text);
  try {
    return await Plumb.load(URL_OF_MODEL, { ...options, contextLength: undefined, persist: true, reserve: false, signal,
      onProgress({ bytes, total }) {
        if (total) bar.value = bytes / total;
        text.textContent = `${megabytes(bytes)}${total ? ` of ${megabytes(total)}` : ''} MB`;
      } });
  } catch (error) {
    if (!signal.aborted) {
      const { title, advice } = explain(error);
      toast(`The search is by words only. ${title}. ${advice}`);
    }
    throw error;
  } finally {
    shown.remove();
  }
}
