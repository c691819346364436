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
import { createDialog } from '../../chat/panels.js';
import { digestOf } from './digest.js';
import { MAX_NAME, MAX_TEXT, openNotes } from './notes.js';
import { passagesOf } from '../../chat/documents/passages.js';

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
createDialog('note');

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

/** The passages that are nearest to a vector, the nearest first. @param {Float32Array} vector */
function nearest(vector) {
  /** @type {{note: Note, start: number, end: number, score: number}[]} */
  const all = [];
  for (const note of notes.all.values()) {
    const { model, bounds, vectors } = note.index ?? {}, n = vector.length;
    if (model !== maker || !bounds || !vectors || vectors.length !== bounds.length / 2 * n) continue;
    for (let i = 0; 2 * i < bounds.length; i++) {
      let score = 0;
      for (let j = 0; j < n; j++) score += vector[j] * vectors[i * n + j];
      all.push({ note, start: bounds[2 * i], end: bounds[2 * i + 1], score });
    }
  }
  return all.sort((a, b) => b.score - a.score).slice(0, RESULTS);
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
        make('button', { type: 'button', title: 'Show the note', onclick: () => showNote(note, start, end) },
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

/** Shows a note with a marked passage. @param {Note} note @param {number} start @param {number} end */
function showNote({ name, text }, start, end) {
  const passage = make('mark', {}, text.slice(start, end));
  element('note-title', 'h2').textContent = name;
  element('note-body', 'p').replaceChildren(text.slice(0, start), passage, text.slice(end));
  element('note', 'dialog').showModal();
  passage.scrollIntoView({ block: 'center' });
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
query.addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(search, DEBOUNCE);
});
element('search-form', 'form').addEventListener('submit', event => {
  event.preventDefault();
  clearTimeout(timer);
  void search();
});
element('pause', 'button').addEventListener('click', () => {
  indexing?.abort();
  toast('Notes that are not read yet are not found', 'Go on', () => void makeIndex());
});

// ---- the notes ----

function showNotes() {
  const all = [...notes.all.values()].sort((a, b) => a.name.localeCompare(b.name));
  element('notes', 'ul').replaceChildren(...all.map(note => make('li', {},
    make('button', { type: 'button', className: 'title', title: 'Show the note', onclick: () => showNote(note, 0, 0) },
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

/** Adds text files, and says which files are none. @param {File[]} files */
async function addFiles(files) {
  const texts = [], refused = [];
  for (const file of files) {
    const text = file.size > 4 * MAX_TEXT ? undefined : await file.text().catch(() => undefined);
    if (text?.trim() && text.length <= MAX_TEXT && !text.includes('\0')) {
      texts.push({ name: file.name.slice(0, MAX_NAME), text });
    } else refused.push(file.name);
  }
  if (refused.length > 0) {
    toast(`Not added: ${refused.join(', ')}. Only text files of at most ${MAX_TEXT / 1e6} million characters can be `
      + 'searched.', 'Close', () => {});
  }
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
