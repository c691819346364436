/* The command line's checks, in the page: what can be checked in a model's file without a reference, which mistake
 * another engine's activations show, and where they diverge from this model's. */
import { Plumb } from '../../index.js';
import { showDiagnosis } from './diagnosis.js';
import { make, paragraph, problem } from '../dom.js';
import { ExplainedError, explain } from '../explain.js';
import { partsOf } from '../models/model-files.js';
import { addRunButton } from './run-button.js';

/** @typedef {object} Subject
 * @property {import('../../api/plumb.js').Model} model
 * @property {import('../../loader/source.js').Source} source */

/** How many of the first values of each row our own trace has.  A dump of whole tensors is compared by these. */
const VALUES = 32;

/** @param {HTMLElement} view @param {Subject} subject */
export function showCheck(view, { model, source }) {
  view.append(make('h3', {}, 'This model'), paragraph('Checks the tensors (names, shapes, values) and the '
    + 'tokenizer. Compares prefill with single steps, SIMD kernels with portable ones, and the fast pass with the '
    + 'reference pass.', 'about'));
  addRunButton(view, 'Run the self-check', async (place, signal) => {
    const files = await filesOf(source, signal);
    const { out, err } = await Plumb.command(['selfcheck', ...Object.keys(files), '--json'], { files, signal });
    if (!out.trim()) throw new Error(err);
    const { checks } = JSON.parse(out);
    place.append(make('ul', { className: 'checks' }, ...checks.map((/** @type {any} */ { what, verdict, why }) =>
      make('li', { 'data-verdict': verdict }, make('strong', {}, verdict), make('span', {}, what), paragraph(why)))));
  });

  view.append(make('h3', {}, 'Another engine'), paragraph('Choose its activations as .npz, JSON or the text of '
    + 'llama-eval-callback. This model computes the same tokens. The verdict names the mistake that explains their '
    + 'numbers, and a report shows where the two diverge.', 'about'));
  let dump = /** @type {File | undefined} */ (undefined);
  const name = make('span', {}, 'Choose or drop a file');
  const input = make('input', { type: 'file', className: 'hidden', accept: '.npz,.json,.txt,.log,.gguf',
    'aria-label': 'Dump of another engine' });
  const zone = make('label', { className: 'zone' }, input, name);
  view.append(zone);
  const run = addRunButton(view, 'Diagnose and compare', async (place, signal, show) => {
    if (!dump) throw new Error('No file is selected. Choose one above.');
    await checkDump({ model, source }, dump, place, signal, show);
  });
  const take = (/** @type {File | undefined} */ file) => {
    if (!file) return;
    dump = file;
    name.textContent = file.name;
    void run();
  };
  input.addEventListener('change', () => {
    const [file] = input.files ?? [];
    input.value = '';   // the same file can be chosen again when it has changed
    take(file);
  });
  zone.addEventListener('drop', event => {
    event.preventDefault();
    take(event.dataTransfer?.files[0]);
  });
}

/** Diagnoses a dump of another engine, and shows where it parts from a model.
 * @param {Subject} subject @param {File} dump @param {HTMLElement} place  gets both
 * @param {AbortSignal} signal @param {() => void} show  called when the place has something to show */
export async function checkDump({ model, source }, dump, place, signal, show) {
  const tokens = await tokensOf(dump, signal);
  const diagnosis = make('div', { className: 'diagnosis' });
  const comparison = make('div', { className: 'result' }, paragraph('Comparing…'));
  place.append(diagnosis, comparison);
  show();
  await Promise.all([
    showDiagnosis(diagnosis, () => filesOf(source, signal), dump, signal),
    compare(model, dump, tokens, signal).catch(error => {
      if (signal.aborted) throw error;
      return problem({ ...explain(error), title: 'This dump cannot be compared',
        advice: 'Choose a dump of the same model.' });
    }).then(report => comparison.replaceChildren(report)),
  ]);
}

/** The tokens that a dump lists; an error says what is wrong with the file. @param {File} dump
 * @param {AbortSignal} signal @returns {Promise<number[]>} */
async function tokensOf(dump, signal) {
  // The dump agrees with itself; the command's output lists its tokens.
  const itself = await Plumb.command(['diff', 'theirs', 'theirs', '--json'], { files: { theirs: dump }, signal });
  const refuse = (/** @type {string} */ why) => new ExplainedError('This file cannot be compared',
    'Choose a dump of another engine that contains the token ids.', why.trim());
  if (!itself.out.trim()) throw refuse(itself.err.replace(/^plumb: theirs:/, `${dump.name}:`));
  const { tokens } = JSON.parse(itself.out).a;
  if (!tokens?.length) throw refuse(`${dump.name} contains no token ids`);
  return tokens;
}

/** @param {import('../../api/plumb.js').Model} model @param {File} dump @param {number[]} tokens
 * @param {AbortSignal} signal @returns {Promise<HTMLElement>} */
async function compare(model, dump, tokens, signal) {
  const ours = JSON.stringify(await model.trace(tokens, { values: VALUES, signal }));
  const { err, files } = await Plumb.command(['diff', 'theirs', 'ours', '--html', 'report.html'],
    { files: { theirs: dump, ours }, signal });
  const report = files['report.html'];
  if (!report) throw new Error(err);
  return frame(new TextDecoder().decode(report));
}

/** Shows the report in a frame in which no scripts run.  The frame inherits this page's policy, which forbids styles in
 * the document's text, so they are set through the DOM. @param {string} html */
function frame(html) {
  const made = make('iframe', { title: 'Report', srcdoc: html.replace(/(<\/?)style>/g, '$1template>')
    .replaceAll(' style="', ' data-style="') });
  made.setAttribute('sandbox', 'allow-same-origin');
  made.addEventListener('load', () => {
    const { contentDocument: inside, contentWindow } = made;
    if (!inside || !contentWindow) return;
    inside.adoptedStyleSheets = [...inside.querySelectorAll('template')].map(({ content }) => {
      const sheet = new /** @type {any} */ (contentWindow).CSSStyleSheet();
      // The report follows this page's theme, which the reader may have chosen.
      const dark = document.documentElement.dataset.theme === 'dark';
      sheet.replaceSync(content.textContent?.replace(/@media ?\(prefers-color-scheme: ?dark\)/g,
        dark ? '@media all' : '@media not all'));
      return sheet;
    });
    for (const one of inside.querySelectorAll('[data-style]')) {
      /** @type {HTMLElement} */ (one).style.cssText = one.getAttribute('data-style') ?? '';
    }
  });
  return made;
}

/** The model's files in order, under new names. @param {import('../../loader/source.js').Source} source
 * @param {AbortSignal} signal @returns {Promise<Record<string, Blob>>} */
async function filesOf(source, signal) {
  const parts = await partsOf(source);
  return Object.fromEntries(await Promise.all(parts.map(async (part, i) =>
    [`model-${i + 1}.gguf`, typeof part === 'string' ? await blobOf(part, signal) : part])));
}

/** The local copy, or else a new download. @param {string} url @param {AbortSignal} signal */
async function blobOf(url, signal) {
  const kept = await Plumb.openCached(url);
  if (kept) return kept;
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  return response.blob();
}
