/* A picture of numbers in rows and columns.  The pointer and the arrow keys show each value. */
import { make } from '../dom.js';

/** @typedef {object} Picture
 * @property {string} title
 * @property {number[][]} values  NaN: no value
 * @property {boolean} [log]  whether the shades are logarithmic
 * @property {boolean} [square]  whether cells are as high as wide
 * @property {[number, number]} [range]  the values of the weakest and the strongest shade; default: the lowest and the
 *   highest value
 * @property {string} row  what a row is, such as "layer"
 * @property {string[]} rows
 * @property {string} column
 * @property {string[]} columns */

/** @param {Picture} picture */
export function heatmap({ title, values, log, square, range, row, rows, column, columns }) {
  const scale = log ? Math.log : (/** @type {number} */ value) => value;
  const finite = values.flat().map(scale).filter(Number.isFinite);
  const low = range?.[0] ?? finite.reduce((a, b) => Math.min(a, b), Infinity);
  const high = range?.[1] ?? finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const [height, width] = [values.length, columns.length];
  const canvas = make('canvas', { width, height, tabIndex: 0, role: 'img' });
  canvas.style.aspectRatio = square ? '1' : `${width} / ${Math.max(height, width / 2.5)}`;
  canvas.setAttribute('aria-label', `${title}: ${height} × ${width}, from ${shown(unscale(low, log))} to `
    + `${shown(unscale(high, log))}. Arrow keys show each value.`);
  const repaint = () => paint(canvas, values, value => (scale(value) - low) / (high - low || 1));
  repaint();
  addEventListener('plumb-theme', function onTheme() {
    if (canvas.isConnected) repaint();
    else removeEventListener('plumb-theme', onTheme);
  });

  const output = make('output', { className: 'figures' }, '\u00a0');
  let at = [0, 0];
  /** @param {number} y @param {number} x */
  const showValue = (y, x) => {
    at = [Math.max(0, Math.min(height - 1, y)), Math.max(0, Math.min(width - 1, x))];
    const value = values[at[0]][at[1]];
    output.textContent = `${row} ${visible(rows[at[0]])}, ${column} ${visible(columns[at[1]])}: `
      + `${Number.isNaN(value) ? 'none' : shown(value)}`;
  };
  canvas.addEventListener('pointermove', event => showValue(Math.floor(event.offsetY / canvas.clientHeight * height),
    Math.floor(event.offsetX / canvas.clientWidth * width)));
  canvas.addEventListener('focus', () => showValue(at[0], at[1]));
  canvas.addEventListener('keydown', event => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    showValue(at[0] + step[0], at[1] + step[1]);
  });
  const span = `  ${shown(unscale(low, log))} to ${shown(unscale(high, log))}`;
  return make('figure', {}, make('figcaption', {}, title, make('span', { className: 'figures' }, span)), canvas,
    output);
}

/** @param {number} value @param {boolean} [log] */
const unscale = (value, log) => log ? Math.exp(value) : value;

/** @param {number} value */
export const shown = value => Number.isFinite(value) ? String(Number(value.toPrecision(3))) : 'none';

/** The same data as a table, for readers who cannot see the picture. @param {string[]} head @param {string[][]} rows */
export function table(head, rows) {
  const cells = make('table', {}, make('thead', {}, make('tr', {}, ...head.map(text =>
    make('th', { scope: 'col' }, text)))),
  make('tbody', {}, ...rows.map(row => make('tr', {}, ...row.map(text => make('td', {}, text))))));
  return make('details', {}, make('summary', {}, 'As a table'),
    make('div', { className: 'wide', tabIndex: 0, role: 'region', 'aria-label': 'Table' }, cells));
}

/** @param {string} text */
const visible = text => /^\d+$/.test(text) ? text : `“${text.replaceAll('\n', '↵')}”`;

/** Paints in the accent colour, from transparent to opaque.
 * @param {HTMLCanvasElement} canvas @param {number[][]} values
 * @param {(value: number) => number} shadeOf  0 to 1 */
function paint(canvas, values, shadeOf) {
  const context = canvas.getContext('2d');
  if (!context) return;
  const { width, height } = canvas;
  const colour = getComputedStyle(document.documentElement).getPropertyValue('--likely').trim().split(' ').map(Number);
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const shade = shadeOf(values[y][x]);
      if (Number.isNaN(shade)) continue;
      image.data.set([...colour, 255 * Math.sqrt(Math.max(0, Math.min(1, shade)))], 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
}
