/* The model that compares texts, which runs beside the chat model.  The reader is asked before it is downloaded; who
 * does not want it gets a search by words. */
import { element, recall, remember, toast } from '../dom.js';
import { explain } from '../explain.js';
import { OFFERED } from '../models/offered.js';
import { askAbout, isKept, loadOffered } from '../models/second-model.js';

/** @typedef {import('../../api/plumb.js').Model} Model */

const OFFER = /** @type {typeof OFFERED[number]} */ (OFFERED.find(({ url }) => url.includes('MiniLM')));
const SIZE = `${OFFER.size} MB`;
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
  if (!await isKept(OFFER) && (recall(BY_WORDS) === true || !await isWanted(signal))) return undefined;
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

/** @param {AbortSignal} signal */
const where = signal => ({ anchor: element('attached', 'ul'), signal });

/** Asks whether the model may be downloaded. @param {AbortSignal} signal */
async function isWanted(signal) {
  const wanted = await askAbout(where(signal), 'Search this document by meaning?', 'It is too long to be read as a '
    + `whole. ${OFFER.name}, a small model, finds the passages that may answer. It is downloaded once: ${SIZE}. `
    + 'Nothing of the document is sent.', [{ text: `Download ${SIZE}`, value: true },
    { text: 'Search by words only', value: false }]);
  if (!wanted) remember(BY_WORDS, true);
  return wanted;
}

/** @param {AbortSignal} signal @param {import('../../api/plumb.js').LoadOptions} options */
async function load(signal, options) {
  try {
    return await loadOffered(OFFER, where(signal), 'Loading the model that searches',
      { ...options, contextLength: undefined });
  } catch (error) {
    if (!signal.aborted) {
      const { title, advice } = explain(error);
      toast(`The search is by words only. ${title}. ${advice}`);
    }
    throw error;
  }
}
