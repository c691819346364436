/* Prepares a question about documents before the model is asked: decides which documents the model gets as a whole, and
 * finds the passages of the others. */
import { count } from '../dom.js';
import { withDocuments } from './given.js';
import { Finder } from './library.js';
import { searchModel } from './search-model.js';

/** @typedef {import('./stored.js').Document} Document
 * @typedef {import('../conversation/conversation-store.js').Message} Message
 * @typedef {import('../../api/plumb.js').Model} Model */
/** @typedef {object} Asked
 * @property {Message[]} messages  up to and including the question, which gets its places
 * @property {Model} model  answers it
 * @property {(messages: Message[]) => import('../../api/plumb.js').Message[]} prompt
 * @property {(digest: string) => Document | undefined} find  the document with its text, if that is known
 * @property {import('../../api/plumb.js').LoadOptions} options  for the model that searches
 * @property {AbortSignal} signal
 * @property {(text: string) => void} status */

/** What is said instead of an answer if nothing in the documents is near the question. */
const NOT_FOUND = 'Not found in the documents.';
/** The share of the context that the conversation with whole documents may take, since the rest is for answers; and the
 * tokens that it may have in any case, since reading more takes longer than searching. */
const SHARE = 0.5, MOST_TOKENS = 1536;
/** A document with more characters than this for each token of the context is not counted, since it cannot fit. */
const MOST_PER_TOKEN = 8;

const finder = new Finder();

/** Returns what is said instead of asking the model, if nothing was found. @param {Asked} asked
 * @returns {Promise<string | undefined>} */
export async function prepareQuestion(asked) {
  const { messages, find, options, signal, status } = asked, question = messages[messages.length - 1];
  for (const document of question.documents ?? []) {
    document.whole ??= await fits(asked, document);
    if (!document.whole) delete document.whole;
  }
  const all = messages.flatMap(({ documents = [] }) => documents);
  const searched = all.filter(({ whole }) => !whole), whole = all.filter(({ whole }) => whole);
  const known = searched.flatMap(({ digest }) => find(digest) ?? []).filter(({ text }) => text !== undefined);
  const missing = searched.length - known.length;
  if (known.length === 0 && searched.length > 0 && question.places) return undefined;   // found in an earlier visit
  question.places = [];
  if (searched.length > 0 && known.length === 0 && whole.length === 0) {
    return `The text of ${missing === 1 ? 'the document is' : 'the documents is'} not stored with this conversation. `
      + 'Attach it again to ask about it.';
  }
  if (known.length > 0) {
    status('Searching');
    const embedder = await searchModel(signal, options);
    status('Searching');
    question.places = await finder.find(question.content, known, { embedder, signal,
      onProgress: (done, total) => status(`Searching, ${done} of ${count(total, 'passage')}`) });
  }
  if (whole.length > 0) {
    const places = await finder.find(question.content, whole, { signal });
    question.places.push(...places.map(place => ({ ...place, whole: true })));
  }
  return known.length > 0 && whole.length === 0 && question.places.length === 0 ? NOT_FOUND : undefined;
}

/** Whether the model can read a document as a whole, together with the conversation. @param {Asked} asked
 * @param {Document} document */
async function fits({ messages, model, prompt }, document) {
  const { text } = document, { contextLength } = await model.info();
  if (text === undefined || text.length > MOST_PER_TOKEN * contextLength) return false;
  const question = messages[messages.length - 1];
  const tried = { ...question, content: withDocuments({ ...question, documents: question.documents?.map(one =>
    one === document ? { ...one, whole: true } : one) }), documents: [] };
  const { length } = await model.tokenizeChat(prompt([...messages.slice(0, -1), tried]));
  return length <= Math.min(MOST_TOKENS, SHARE * contextLength);
}
