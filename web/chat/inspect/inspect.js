/* The inspector shows how the model computed its last answer: tokens with their probabilities, activations by layer
 * and attention from a trace of the conversation, and the command line's checks of the model's file. */
import { showCheck } from './check.js';
import { element, make, paragraph, problem } from '../dom.js';
import { explain } from '../explain.js';
import { heatmap, shown, table } from './heatmap.js';
import { addRunButton, stopRuns } from './run-button.js';
import { showTokens } from './tokens.js';

/** @typedef {import('../../engine/engine.js').GeneratedToken} Token */
/** @typedef {object} Subject
 * @property {import('../../api/plumb.js').Model} model
 * @property {import('../../loader/source.js').Source} source
 * @property {() => Promise<Int32Array>} [ids]  tokens of the conversation up to the last answer, or of the text that
 *   was compared; undefined: there is none
 * @property {boolean} embeds  whether the model compares texts, so that it gives no answers
 * @property {Token[]} [tokens]  tokens of the last answer, if it was given since the page was opened */

/** Upper bounds on the tokens of a trace: by layer, and of attention, where the values grow with their square. */
const MAX_TOKENS = 256, MAX_ATTENTION_TOKENS = 96;
const NAMES = /** @type {const} */ (['tokens', 'layers', 'attention', 'check']);
const tabs = NAMES.map(name => ({ name, tab: element(`tab-${name}`, 'button'), view: element(`view-${name}`, 'div') }));
const show = { tokens: showTokens, layers: showLayers, attention: showAttention, check: showCheck };

/** @type {Subject | undefined} */
let subject;
/** Names of the views that already show the subject. @type {Set<string>} */
const current = new Set();

/** @param {Subject | undefined} next  undefined: an answer is running, or there is no model */
export function inspect(next) {
  stopRuns();   // an answer would wait for them
  if (!next) return;
  subject = next;
  current.clear();
  fill();
}

/** @param {typeof NAMES[number]} [chosen] */
function fill(chosen = tabs.find(({ tab }) => tab.ariaSelected === 'true')?.name) {
  for (const { name, tab, view } of tabs) {
    tab.ariaSelected = String(name === chosen);
    tab.tabIndex = name === chosen ? 0 : -1;
    view.hidden = name !== chosen;
  }
  const { name, view } = tabs.find(({ name }) => name === chosen) ?? tabs[0];
  if (!subject || current.has(name)) return;
  current.add(name);
  view.replaceChildren();
  if (name === 'tokens' && subject.embeds) {
    view.append(paragraph('This model gives no answers, so there are no probabilities. The other tabs show how it '
      + 'computes.'));
  } else if (name !== 'check' && !subject.ids) {
    view.append(paragraph(subject.embeds ? 'Compare texts first. The inspector shows the query or the first text.'
      : 'Ask a question first. The inspector shows the last answer.'));
  } else show[name](view, subject);
}

for (const [i, { name, tab }] of tabs.entries()) {
  tab.addEventListener('click', () => fill(name));
  tab.addEventListener('keydown', event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(i + step + tabs.length) % tabs.length];
    fill(next.name);
    next.tab.focus();
  });
}
// A click before this module is there would do nothing.
tabs[0].tab.closest('[inert]')?.removeAttribute('inert');

/** The first tokens of the conversation or text. @param {Subject} subject @param {number} limit */
async function idsOf(subject, limit) {
  const ids = await subject.ids?.() ?? new Int32Array();
  return { ids: ids.subarray(0, limit), omitted: Math.max(0, ids.length - limit) };
}

/** @param {HTMLElement} view @param {Subject} subject */
function showLayers(view, subject) {
  view.append(paragraph('Shows for each layer and token how large the activations after the layer are (l_out), and how '
    + 'widely its attention spreads (entropy, mean over all heads).', 'about'));
  addRunButton(view, subject.embeds ? 'Trace the text' : 'Trace the conversation', async (place, signal) => {
    const { ids, omitted } = await idsOf(subject, MAX_TOKENS);
    const { layers } = await subject.model.info();
    const rms = grid(layers, ids.length), entropy = grid(layers, ids.length);
    const { pieces } = await subject.model.trace(ids, { taps: 'l_out-*,kq_soft_max-*', values: 0, signal, onTap(tap) {
      const layer = Number(tap.name.split('-')[1]);
      if (tap.name.startsWith('l_out')) rms[layer][tap.token] = tap.rms;
      else if (tap.entropy) entropy[layer][tap.token] = mean(tap.entropy);
    } });
    if (omitted > 0) place.append(paragraph(`Shows the first ${ids.length} tokens, not the other ${omitted}.`));
    const axes = { row: 'layer', rows: rms.map((_, i) => String(i)), column: 'token', columns: pieces };
    place.append(heatmap({ ...axes, title: 'RMS of l_out', values: rms, log: true }),
      heatmap({ ...axes, title: 'Entropy of attention, in nats', values: entropy }),
      table(['Layer', 'RMS', 'Entropy'], rms.map((row, i) => [String(i), shown(mean(row)), shown(mean(entropy[i]))])));
  });
}

/** @param {HTMLElement} view @param {Subject} requested */
async function showAttention(view, requested) {
  view.append(paragraph('Shows how much each token attends to the tokens before it: rows attend to columns.', 'about'));
  /** @type {import('../../api/plumb.js').ModelInfo} */
  let info;
  try {
    info = await requested.model.info();
  } catch (error) {
    if (requested === subject) view.append(problem(explain(error)));
    return;
  }
  if (requested !== subject) return;   // the view shows another subject by now
  const { layers, heads } = info;
  const numbers = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) =>
    make('option', { value: String(i) }, String(i)));
  const layer = make('select', { id: 'layer' }, ...numbers(layers));
  const head = make('select', { id: 'head' }, make('option', { value: 'mean' }, 'mean'), ...numbers(heads));
  view.append(make('div', { className: 'row choose' }, make('label', { htmlFor: 'layer' }, 'Layer'), layer,
    make('label', { htmlFor: 'head' }, 'Head'), head));
  const run = addRunButton(view, 'Show the attention', async (place, signal) => {
    const { value: at } = layer, { value: which } = head;   // the selection at this moment
    const { ids, omitted } = await idsOf(requested, MAX_ATTENTION_TOKENS);
    const n = ids.length, values = grid(n, n);
    const { pieces, taps } = await requested.model.trace(ids, { taps: `kq_soft_max-${at}`, values: Infinity, signal });
    for (const { token, values: all = [] } of taps) {
      for (let key = 0; key <= token; key++) {
        values[token][key] = which !== 'mean' ? Number(all[Number(which) * n + key])
          : mean(Array.from({ length: heads }, (_, h) => Number(all[h * n + key])));
      }
    }
    if (omitted > 0) place.append(paragraph(`Shows the first ${n} tokens, not the other ${omitted}.`));
    const whose = which === 'mean' ? 'mean of all heads' : `head ${which}`;
    place.append(heatmap({ title: `Attention of layer ${at}, ${whose}`,
      values, square: true, range: [0, 1], row: 'from', rows: pieces, column: 'to', columns: pieces }),
    table(['Token', 'Attends most to', 'Weight'], values.map((row, i) => {
      const strongest = row.reduce((best, value, j) => value > row[best] ? j : best, 0);
      return [JSON.stringify(pieces[i]), JSON.stringify(pieces[strongest]), shown(row[strongest])];
    })));
  });
  for (const select of [layer, head]) select.addEventListener('change', () => void run());
}

/** @param {number} rows @param {number} columns @returns {number[][]} */
const grid = (rows, columns) => Array.from({ length: rows }, () => Array(columns).fill(NaN));

/** The mean of the finite values. @param {number[]} values */
function mean(values) {
  const numbers = values.filter(Number.isFinite);
  return numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
}
