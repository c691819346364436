/* Search in one's own notes: the model turns passages and the query into vectors, and the passages whose vectors are
 * nearest are found.  Everything happens in this tab; the index is in the browser's database.
 *
 *   ?model=URL   loads this model instead of the last chosen one or the default one */
import {
  announce, count, dotted, duration, element, focusPrompt, iconButton, make, recall, remember, toast,
} from '../../chat/dom.js';
import { acceptDrops } from '../../chat/drop.js';
import { explain } from '../../chat/explain.js';
import { Loader } from '../../chat/models/loading.js';
import { ModelsDialog } from '../../chat/models/models-dialog.js';
import { OFFERED } from '../../chat/models/offered.js';
import { isolate, keepPage } from '../../chat/offline.js';
import { Finder, readDocument } from '../../chat/documents/library.js';
import { passagesOf } from '../../chat/documents/passages.js';
import { cosine } from '../../chat/documents/ranking.js';
import { passagesIn } from '../../chat/documents/search.js';
import { showDocument } from '../../chat/documents/viewer.js';
import { Answers } from './answer.js';
import { digestOf } from './digest.js';
import { MAX_TEXT, openNotes } from './notes.js';

/** @typedef {import('./notes.js').Note} Note
 * @typedef {import('../../api/plumb.js').Model} Model */

/** RESULTS: how many passages are shown.  BATCH: passages between two updates of the progress.  DEBOUNCE: milliseconds
 * after the last key until the search begins. */
const RESULTS = 10, BATCH = 16, DEBOUNCE = 300;
const EXAMPLE = `Sourdough

Feed the starter with equal parts of flour and water in the evening. It has doubled by the morning.

Bake the loaf for forty minutes in a very hot oven, the first half of the time with a lid on.

The garden

The tomatoes want to be watered every other day, in the morning and not on the leaves.

Prune the apple tree in February, before the buds open.

The car

The winter tyres are in the cellar behind the bicycles. The next inspection is due in October.`;

const notes = await openNotes(saved => {
  element('notes-problem', 'p').textContent = saved ? ''
    : 'Not saved: the browser cannot store the notes. They last as long as this page is open.';
});
const query = element('prompt', 'input'), results = element('results', 'ol');
const searchNote = element('search-note', 'p');
const prefixes = { query: element('query-prefix', 'input'), passage: element('passage-prefix', 'input') };
const answers = new Answers(placesFor, (id, place) => showDocument(notes.all.get(id), place));

const loader = new Loader(() => ({}), state => {
  document.body.dataset.state = state;
  indexing?.abort();
  if (state === 'ready') void ready();
});
const models = new ModelsDialog({ loader, options: () => ({}), key: 'search.model',
  another: 'Open another that computes embeddings',
  offered: OFFERED.filter(({ url }) => url.includes('MiniLM')), use: 'search' });
/** Ends the indexing that is running. @type {AbortController | undefined} */
let indexing;
/** Identifies what makes the vectors; empty: no model for it is loaded. */
let maker = '';
/** Finds places in notes, with vectors of the maker. @type {{finder: Finder, maker: string} | undefined} */
let finding;
/** What identifies the bytes of a model. @type {WeakMap<Model, Promise<string>>} */
const digests = new WeakMap();
/** @typedef {import('../../chat/documents/passages.js').Passage} Passage */
/** Passages of notes that have no index yet, and the vectors of the first of them by this model.
 * @type {WeakMap<Note, {model: string, passages: Passage[], vectors: Float32Array[]}>} */
const begun = new WeakMap();

for (const [name, input] of Object.entries(prefixes)) {
  const kept = recall(`search.${name}-prefix`);
  if (typeof kept === 'string' && kept.length < 1000) input.value = kept;
  input.addEventListener('change', () => {
    remember(`search.${name}-prefix`, input.value || undefined);
    if (loader.model) void ready();
  });
}

// ---- the model and the index ----

async function ready() {
  const { model, kind } = loader;
  if (!model) return;
  models.loaded();
  maker = '';
  if (kind !== 'compares') {
    return loader.fail(loader.source, { title: 'This model cannot search notes', detail: '',
      advice: 'Choose one that computes embeddings, such as MiniLM.' });
  }
  const digest = digests.get(model) ?? digestOf(loader.source);
  digests.set(model, digest);
  const made = JSON.stringify([await digest, prefixes.passage.value]);
  if (model !== loader.model) return;
  maker = made;
  if (document.activeElement === document.body) focusPrompt();
  await makeIndex();
}

/** The options of embed. @param {Model} model @param {string} prefix */
const howTo = async (model, prefix) => ({
  prefix, truncate: true, ...(await model.info()).pooling === 'none' && { pooling: /** @type {'mean'} */ ('mean') },
});

/** The passages of a note, and the vectors that a run which was interrupted has made of the first of them.
 * @param {Note} note */
function workOn(note) {
  let work = begun.get(note);
  if (work?.model !== maker) {
    work = { model: maker, passages: work?.passages ?? passagesOf(note.text), vectors: [] };
    begun.set(note, work);
  }
  return { note, ...work };
}

/** Makes the index of each note that has none by this model. */
async function makeIndex() {
  indexing?.abort();
  showNotes();
  const { model } = loader, own = maker;
  const pending = [...notes.all.values()].filter(({ index }) => index?.model !== own);
  if (!model || own === '' || pending.length === 0) return search();
  const controller = indexing = new AbortController(), { signal } = controller;
  const work = pending.map(workOn);
  const sizeOf = (/** @type {{start: number, end: number}[]} */ some) =>
    some.reduce((sum, { start, end }) => sum + end - start, 0);
  const total = work.reduce((sum, { passages }) => sum + sizeOf(passages), 0);
  const n = work.reduce((sum, { passages }) => sum + passages.length, 0), began = performance.now();
  let done = work.reduce((sum, { vectors }) => sum + vectors.length, 0);
  let read = work.reduce((sum, { passages, vectors }) => sum + sizeOf(passages.slice(0, vectors.length)), 0);
  const readBefore = read;
  const progress = () => {
    element('indexing-bar', 'progress').value = total ? read / total : 1;
    const seconds = (performance.now() - began) / 1000;
    element('indexing-text', 'p').textContent = dotted([`${done} of ${count(n, 'passage')}`,
      read > readBefore && `${duration(seconds * (total - read) / (read - readBefore))} left`]);
  };
  showIndexing(true);
  progress();
  try {
    const options = { ...await howTo(model, prefixes.passage.value), signal };
    for (const { note, passages, vectors } of work) {
      while (vectors.length < passages.length) {
        const some = passages.slice(vectors.length, vectors.length + BATCH);
        const more = await model.embed(some.map(({ start, end }) => note.text.slice(start, end)), options);
        signal.throwIfAborted();   // another run may go on with the note
        vectors.push(...more);
        done += some.length;
        read += sizeOf(some);
        progress();
      }
      if (notes.all.get(note.id) !== note) continue;   // it was deleted meanwhile
      note.index = { model: own, bounds: Uint32Array.from(passages.flatMap(({ start, end }) => [start, end])),
        vectors: joined(vectors) };
      begun.delete(note);
      await notes.put(note);
    }
    announce('All notes are read');
  } catch (error) {
    if (controller === indexing && !signal.aborted) {
      const { title, advice } = explain(error);
      toast(`The notes could not be read. ${title}. ${advice}`, 'Try again', () => void makeIndex());
    }
  }
  if (controller !== indexing) return;
  showIndexing(false);
  showNotes();
  await search();
}

/** @param {Float32Array[]} vectors */
function joined(vectors) {
  const all = new Float32Array(vectors.reduce((sum, { length }) => sum + length, 0));
  vectors.reduce((at, vector) => (all.set(vector, at), at + vector.length), 0);
  return all;
}

/** @param {boolean} running */
function showIndexing(running) {
  element('indexing', 'section').hidden = !running;
  document.body.dataset.indexing = running ? 'running' : 'done';
}

// ---- searching ----

/** The notes that have an index by this model. */
const readNotes = () => [...notes.all.values()].filter(({ index }) => index?.model === maker);

/** The passages that are nearest to a vector, the nearest first. @param {Float32Array} vector */
const nearest = vector => readNotes().flatMap(note => note.index ? passagesIn(note.index)
  .map(({ vector: own, ...place }) => ({ note, ...place, score: cosine(vector, own) })) : [])
  .sort((a, b) => b.score - a.score).slice(0, RESULTS);

/** The places that may answer a question, by words and meaning; without a model by words only.  Notes that are not read
 * yet are searched, too.
 * @param {string} question @param {AbortSignal} signal */
async function placesFor(question, signal) {
  const { model } = loader, known = [...notes.all.values()];
  if (finding?.maker !== maker) {
    finding?.finder.close();
    finding = { finder: new Finder(), maker };
  }
  const options = model && maker !== '' ? await howTo(model, prefixes.query.value) : undefined;
  const embedder = model && options && { embed: (/** @type {string[]} */ texts) =>
    model.embed(texts, { ...options, signal }) };
  const documents = known.map(({ id, name, text, index }) =>
    ({ digest: id, name, size: text.length, text, ...options && index?.model === maker && { index } }));
  return documents.length === 0 ? [] : finding.finder.find(question, documents, { embedder, signal });
}

async function search() {
  const { model } = loader, text = query.value.trim();
  if (!model || maker === '' || text === '' || notes.all.size === 0) {
    results.replaceChildren();
    searchNote.textContent = text === '' ? '' : notes.all.size === 0 ? 'Add notes first.' : 'Waiting for the model';
    return;
  }
  try {
    const vector = await model.embed(text, await howTo(model, prefixes.query.value));
    if (query.value.trim() !== text || model !== loader.model) return;   // another search has begun
    const best = nearest(vector), all = [...notes.all.values()];
    const hidden = all.filter(({ index }) => index?.model !== maker).length;
    searchNote.textContent = dotted([best.length === 0 ? 'Nothing was found'
      : `The nearest ${best.length === 1 ? 'passage' : `${best.length} passages`}, with the cosine of the angle`,
    hidden > 0 && `${count(hidden, 'note')} not read yet`]);
    results.replaceChildren(...best.map(({ note, start, end, score }) => {
      const bar = make('span', { className: 'bar', 'aria-hidden': 'true' });
      bar.style.setProperty('--part', String(Math.max(0, score)));
      return make('li', {},
        make('button', { type: 'button', title: 'Show the note',
          onclick: () => showDocument(note, { name: note.name, text: note.text.slice(start, end), start }) },
        note.name),
        bar, make('span', { className: 'figures' }, score.toFixed(3)),
        make('p', {}, note.text.slice(start, end).replace(/\n\s*\n/g, '\n')));
    }));
  } catch (error) {
    if (query.value.trim() !== text || model !== loader.model) return;
    const { title, advice, detail } = explain(error);
    results.replaceChildren();
    searchNote.textContent = `The search failed. ${title}. ${advice} ${detail}`;
  }
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
query.addEventListener('input', () => {
  answers.clear();
  clearTimeout(timer);
  timer = setTimeout(search, DEBOUNCE);
});
element('search-form', 'form').addEventListener('submit', event => {
  event.preventDefault();
  clearTimeout(timer);
  void search();
});
element('ask', 'button').addEventListener('click', () => {
  const question = query.value.trim();
  if (question === '') return query.focus();
  if (notes.all.size === 0) return void search();   // it says so
  void answers.ask(question);
});
element('pause', 'button').addEventListener('click', () => {
  indexing?.abort();
  toast('Notes that are not read yet are not found', 'Go on', () => void makeIndex());
});

// ---- the notes ----

function showNotes() {
  const all = [...notes.all.values()].sort((a, b) => a.name.localeCompare(b.name));
  element('notes', 'ul').replaceChildren(...all.map(note => make('li', {},
    make('button', { type: 'button', className: 'title', title: 'Show the note', onclick: () => showDocument(note) },
      make('span', {}, note.name), make('span', { className: 'figures' }, note.index?.model === maker
        ? count(note.index.bounds.length / 2, 'passage') : 'not read yet')),
    iconButton('delete', `Delete ${note.name}`, () => void remove([note])))));
  element('notes-figures', 'p').textContent = all.length === 0 ? 'There are no notes yet.' : '';
  element('clear', 'button').hidden = all.length === 0;
}

/** Adds texts, without those that are notes already. @param {{name: string, text: string}[]} texts */
async function add(texts) {
  const known = new Set([...notes.all.values()].map(({ name, text }) => JSON.stringify([name, text])));
  const fresh = texts.filter(({ name, text }) => !known.has(JSON.stringify([name, text])));
  // crypto.randomUUID does not exist on pages without https.
  await Promise.all(fresh.map(note =>
    notes.put({ id: [...crypto.getRandomValues(new Uint32Array(4))].join('-'), ...note })));
  toast(fresh.length === texts.length ? `Added ${count(fresh.length, 'note')}`
    : `Added ${count(fresh.length, 'note')}; the others are there already`);
  await makeIndex();
}

/** @param {Note[]} some  one note, or all of them @param {boolean} [all] */
async function remove(some, all = false) {
  await (all ? notes.clear() : notes.remove(some[0].id));
  showNotes();
  await search();
  toast(all ? 'Deleted all notes' : `Deleted “${some[0].name}”`, 'Undo', async () => {
    for (const note of some) await notes.put(note);
    await makeIndex();
  });
}

/** The first line of a text, as its name. @param {string} text */
const nameOfText = text => text.trim().split('\n')[0].replace(/^#+\s*/, '').trim().slice(0, 80) || 'Note';

/** Adds files, and says which cannot be read. @param {File[]} files */
async function addFiles(files) {
  const texts = [], refused = [];
  for (const file of files) {
    try {
      const { name, text } = await readDocument(file);
      if (text.length > MAX_TEXT) throw new Error(`It has more than ${MAX_TEXT / 1e6} million characters`);
      texts.push({ name, text });
    } catch (error) {
      refused.push(`${file.name}. ${/** @type {Error} */ (error).message}.`);
    }
  }
  if (refused.length > 0) toast(`Not added: ${refused.join(' ')}`, 'Close', () => {});
  if (texts.length > 0) await add(texts);
}

element('add-form', 'form').addEventListener('submit', event => {
  event.preventDefault();
  const box = element('note-text', 'textarea'), text = box.value;
  if (!text.trim()) return box.focus();
  if (text.length > MAX_TEXT) return void toast(`A note has at most ${MAX_TEXT / 1e6} million characters`);
  box.value = '';
  void add([{ name: nameOfText(text), text }]);
});
element('example', 'button').addEventListener('click', () => void add([{ name: 'Example', text: EXAMPLE }]));
element('clear', 'button').addEventListener('click', () => void remove([...notes.all.values()], true));
const fileInput = element('note-files', 'input');
element('open-notes', 'button').addEventListener('click', () => fileInput.click());
fileInput.addEventListener('change', () => {
  const files = [...fileInput.files ?? []];
  fileInput.value = '';
  void addFiles(files);
});
const drops = acceptDrops(files => {
  if (files.every(({ name }) => /\.gguf$/i.test(name))) models.openFiles(files);
  else void addFiles(files);
});
document.addEventListener('keydown', event => {
  if (event.key === 'Escape') drops.cancel();
});

showNotes();
element('scroll', 'main').inert = false;
void isolate().catch(() => {}).then(() => models.start()).then(keepPage);
