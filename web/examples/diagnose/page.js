/* Finds the mistake of another engine: the reader brings a model and a dump of its activations, or takes a sample that
 * tests/reference/samples.py has made. */
import { acceptDrops } from '../../chat/drop.js';
import { element, make } from '../../chat/dom.js';
import { ExplainedError } from '../../chat/explain.js';
import { checkDump } from '../../chat/inspect/check.js';
import { addRunButton } from '../../chat/inspect/run-button.js';
import { isolate, keepPage } from '../../chat/offline.js';
import { Plumb } from '../../index.js';

const SAMPLES = [
  { file: 'nibbles.json', name: 'An engine for Q4_0', about: 'Its first product with a matrix is wrong.' },
  { file: 'rope.json', name: 'An engine for GPT-NeoX', about: 'It runs this Llama like the models that it knows.' },
  { file: 'mask.json', name: 'An engine with one wrong layer', about: 'Three of four layers are right.' },
  { file: 'right.json', name: 'A right engine', about: 'There is nothing to find.' },
];

/** What is diagnosed; a text is the address of a sample.
 * @type {{model?: File | string, dump?: File | string}} */
const chosen = {};

/** @param {string} path */
const sampleUrl = path => new URL(`samples/${path}`, import.meta.url).href;

const run = addRunButton(element('result', 'section'), 'Diagnose and compare', async (place, signal, show) => {
  const { model: source, dump: given } = chosen;
  if (!source || !given) {
    throw new ExplainedError(`There is no ${source ? 'dump' : 'model'} yet`, 'Choose one above, or a sample.', '');
  }
  const dump = typeof given === 'string' ? await fileOf(given, signal) : given;
  const model = await Plumb.load(source, { cache: 'no-store', signal });
  try {
    await checkDump({ model, source }, dump, place, signal, show);
  } finally {
    await model.close();
  }
});

/** @param {string} url @param {AbortSignal} signal */
async function fileOf(url, signal) {
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  return new File([await response.blob()], url.slice(url.lastIndexOf('/') + 1));
}

/** A zone for a file. @param {string} label @param {string} accept */
function zoneOf(label, accept) {
  const name = make('span', {}, label);
  const input = make('input', { type: 'file', className: 'hidden', accept, 'aria-label': label });
  input.addEventListener('change', () => {
    const [file] = input.files ?? [];
    input.value = '';   // the same file can be chosen again when it has changed
    if (file) take(file);
  });
  element('zones', 'div').append(make('label', { className: 'zone' }, input, name));
  return (/** @type {string} */ text) => { name.textContent = text || label; };
}
const show = {
  model: zoneOf('Choose a model (GGUF)', '.gguf'),
  dump: zoneOf('Choose a dump', '.npz,.json,.txt,.log'),
};

/** Takes a file for what its name says, and diagnoses once there are both. @param {File} file */
function take(file) {
  const what = /\.gguf$/i.test(file.name) ? 'model' : 'dump';
  if (typeof chosen.model === 'string') Object.assign(chosen, { model: undefined, dump: undefined });   // a sample's
  if (what === 'model') chosen.model = file;
  else chosen.dump = file;
  show[what](file.name);
  press();
  if (chosen.model && chosen.dump) void start();
}

/** Marks a sample as chosen, and no other. @param {number} [at] */
function press(at) {
  for (const [i, button] of element('samples', 'ul').querySelectorAll('button').entries()) {
    button.setAttribute('aria-pressed', String(i === at));
  }
}

/** Starts, and shows where the result comes. */
async function start() {
  element('result', 'section').scrollIntoView({ block: 'start' });
  await run();
}

element('samples', 'ul').replaceChildren(...SAMPLES.map(({ file, name, about }, i) => make('li', {},
  make('button', { type: 'button', 'aria-pressed': 'false', onclick() {
    press(i);
    Object.assign(chosen, { model: sampleUrl('model.gguf'), dump: sampleUrl(file) });
    show.model('');
    show.dump('');
    void start();
  } }, name, make('span', { className: 'figures' }, about)))));
acceptDrops(files => files.forEach(take));
await isolate().catch(() => {});
element('scroll', 'main').inert = false;
void keepPage();
