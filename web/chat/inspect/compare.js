/* What the page shows instead of a conversation if the model computes embeddings: a box in which texts are compared
 * with a query or with each other.  A reranker only compares texts with a query. */
import { announce, count, dotted, make, nameOf, paragraph } from '../dom.js';
import { ExplainedError } from '../explain.js';
import { heatmap, shown, table } from './heatmap.js';
import { addRunButton, stopRuns } from './run-button.js';

/** @typedef {import('../../api/plumb.js').Model} Model
 * @typedef {import('../models/offered.js').Kind} Kind */

/** Upper bounds on the texts: of a query, and of a picture, which has a cell for each pair. */
const MAX_TEXTS = 1000, MAX_PAIRED = 64;
const EXAMPLE = {
  query: 'How long does bread stay in the oven?',
  texts: ['Preheat the oven and bake the dough for forty minutes.', 'The oven of the bakery is from 1890.',
    'Someone eats a slice of bread.', 'The central bank raised interest rates.'].join('\n'),
};
const POOLINGS = { none: 'mean over the tokens, as the file names none', mean: 'mean over the tokens',
  cls: 'that of the first token', last: 'that of the last token', rank: 'a classifier' };

const query = make('input', { id: 'compare-query', type: 'text' });
const texts = make('textarea', { id: 'compare-texts', rows: 6, placeholder: 'One text on each line' });
const withQuery = make('input', { type: 'radio', name: 'compare', value: 'query', checked: true });
const withOthers = make('input', { type: 'radio', name: 'compare', value: 'pairs' });
const queryField = make('div', { className: 'field' }, make('label', { htmlFor: query.id }, 'Query'), query);
for (const radio of [withQuery, withOthers]) {
  radio.addEventListener('change', () => { queryField.hidden = withOthers.checked; });
}

/** Shows the box for a model, with the texts that were entered for the one before.
 * @param {HTMLElement} view @param {Model} model @param {Kind} kind  compares or ranks
 * @param {() => void} [done]  called when texts were compared */
export async function showComparison(view, model, kind, done = () => {}) {
  stopRuns();
  const { pooling, dimensions } = await model.info();
  const ranks = kind === 'ranks';
  if (ranks) withQuery.checked = true;
  queryField.hidden = withOthers.checked;
  const how = pooling === 'none' ? /** @type {const} */ ({ pooling: 'mean' }) : {};
  view.replaceChildren(
    make('h2', { id: 'compare-title' }, ranks ? 'Which text answers the query?' : 'How near are these texts?'),
    make('p', {}, ranks
      ? 'This model does not answer messages. It reads a query with each text, and its score says how well they fit.'
      : 'This model does not answer messages. It turns each text into a vector; the vectors of texts that mean about '
        + 'the same are near. Everything happens inside this tab.'),
    ...ranks ? [] : [make('fieldset', {}, make('legend', { className: 'hidden' }, 'What to compare'),
      make('label', {}, withQuery, 'Texts with a query'), make('label', {}, withOthers, 'Texts with each other'))],
    queryField, make('div', { className: 'field' }, make('label', { htmlFor: texts.id }, 'Texts'), texts));
  const box = make('div', { className: 'row' });
  view.append(box);
  const run = addRunButton(box, ranks ? 'Rank' : 'Compare', async (place, signal) => {
    const all = texts.value.split('\n').map(text => text.trim()).filter(Boolean);
    const paired = withOthers.checked, least = paired ? 2 : 1, most = paired ? MAX_PAIRED : MAX_TEXTS;
    if (!paired && !query.value.trim()) throw new ExplainedError('There is no query', 'Write one above the texts.', '');
    if (all.length < least || all.length > most) {
      throw new ExplainedError(all.length < least ? 'There are too few texts' : 'There are too many texts',
        `Write ${least} to ${most} texts, one on each line.`, `There ${all.length === 1 ? 'is' : 'are'} `
        + `${count(all.length, 'text')}.`);
    }
    if (paired) place.append(...picture(all, await model.embed(all, { ...how, signal })));
    else place.append(...ranking(all, await model.rank(query.value, all, { ...how, signal }), ranks));
    announce(`Compared ${count(all.length, 'text')}`);
    done();
  });
  query.onkeydown = event => {
    if (event.key === 'Enter' && !event.isComposing) void run();
  };
  box.querySelector('button')?.after(make('button', { type: 'button', onclick() {
    query.value = EXAMPLE.query;
    texts.value = EXAMPLE.texts;
    void run();
  } }, 'Example'));
  view.append(paragraph(dotted([nameOf(model.metadata), ranks ? `scores of ${POOLINGS.rank}`
    : `${count(dimensions, 'dimension')}, pooling: ${POOLINGS[pooling]}`])));
}

/** The texts that the box has, for the inspector. */
export const comparedText = () => withOthers.checked ? texts.value.trim().split('\n')[0].trim() : query.value.trim();

/** @param {string[]} all @param {{index: number, score: number}[]} ranked @param {boolean} ranks */
function ranking(all, ranked, ranks) {
  const scores = ranked.map(({ score }) => score);
  const high = Math.max(...scores), low = Math.min(...scores);
  const partOf = (/** @type {number} */ score) => ranks ? (score - low) / (high - low || 1) : Math.max(0, score);
  const list = make('ol', { className: 'ranking' }, ...ranked.map(({ index, score }) => {
    const bar = make('span', { className: 'bar', 'aria-hidden': 'true' });
    bar.style.setProperty('--part', String(partOf(score)));
    return make('li', {}, make('span', {}, all[index]), bar, make('span', { className: 'figures' }, score.toFixed(3)));
  }));
  return [list, paragraph(ranks ? 'The scores of the model’s classifier; the bars go from the lowest to the highest.'
    : 'The cosine of the angle between the vectors: 1 for the same direction, near 0 for unrelated texts.')];
}

/** @param {string[]} all @param {Float32Array[]} vectors  of length 1 */
function picture(all, vectors) {
  const values = vectors.map(a => vectors.map(b => a.reduce((sum, value, i) => sum + value * b[i], 0)));
  const nearest = values.map((row, i) =>
    row.reduce((best, value, j) => j !== i && (best < 0 || value > row[best]) ? j : best, -1));
  return [
    heatmap({ title: 'Cosine of each pair', values, square: true, range: [0, 1], row: 'text', rows: all,
      column: 'and', columns: all }),
    table(['Text', 'Nearest other text', 'Cosine'], all.map((text, i) =>
      [text, all[nearest[i]], shown(values[i][nearest[i]])])),
  ];
}
