/* Puts the pieces of text on a page into reading order: pieces into lines, lines into columns, columns into paragraphs.
 * Lengths are in points, and y grows downwards. */

/** @typedef {{text: string, left: number, right: number, y: number, size: number}} Line
 *   a line, or the part of one that is in one column; y: of its baseline; size: of its letters */

/** In sizes of letters: how far baselines of one line differ, the gap that separates words, and the one that may
 * separate columns. */
const SAME_LINE = 0.4, WORD_GAP = 0.15, COLUMN_GAP = 1;
/** What a gap between columns needs: lines on each side, the width of a column in sizes of letters, how full its lines
 * are (cells of a table are not), and the share of all lines that may cross the gap, such as titles. */
const LEAST_LINES = 4, LEAST_WIDTH = 8, LEAST_FULL = 0.5, MOST_CROSSING = 0.4;
/** A line ends a paragraph if it is shorter than this share of its column; a paragraph begins where the distance to the
 * line above is this many times the usual one, or where the size of letters changes by this factor. */
const SHORT = 0.8, FAR = 1.35, OTHER_SIZE = 1.15;

/** The lines of a page, from pdf.js's pieces of text.
 * @param {{str?: string, transform?: number[], width?: number, height?: number}[]} items
 * @param {number[]} view  from the page's coordinates to those of what is seen @returns {Line[]} */
export function linesOf(items, view) {
  /** @type {Line[]} */
  const pieces = [];
  for (const { str = '', transform, width = 0 } of items) {
    if (!transform || str.trim() === '' || !transform.every(Number.isFinite)) continue;
    const [a, b, c, d, e, f] = view, [p, q, r, s, x, y] = transform;
    const size = Math.hypot(a * r + c * s, b * r + d * s) || Math.hypot(a * p + c * q, b * p + d * q) || 1;
    const left = a * x + c * y + e;
    pieces.push({ text: str, left, right: left + Math.abs(width), y: b * x + d * y + f, size });
  }
  pieces.sort((one, other) => one.y - other.y || one.left - other.left);
  /** @type {Line[]} */
  const lines = [];
  for (let i = 0, end; i < pieces.length; i = end) {
    for (end = i + 1; end < pieces.length; end++) {
      const { y, size } = pieces[end], first = pieces[i];
      if (y - first.y > SAME_LINE * Math.max(size, first.size)) break;
    }
    lines.push(...joined(pieces.slice(i, end).sort((one, other) => one.left - other.left)));
  }
  return lines;
}

/** Joins the pieces of one line that are near to each other. @param {Line[]} pieces  from left to right */
function joined(pieces) {
  /** @type {Line[]} */
  const lines = [];
  for (const piece of pieces) {
    const last = lines.at(-1), gap = last ? piece.left - last.right : 0, { size } = piece;
    if (!last || gap > COLUMN_GAP * size) {
      lines.push({ ...piece });
      continue;
    }
    const isSpaced = /\s$/.test(last.text) || /^\s/.test(piece.text);
    last.text += (gap > WORD_GAP * size && !isSpaced ? ' ' : '') + piece.text;
    last.right = Math.max(last.right, piece.right);
    last.size = Math.max(last.size, size);
  }
  return lines;
}

/** The text of a page. @param {Line[]} lines */
export function textOfPage(lines) {
  let text = '';
  for (const column of columnsOf(lines)) {
    const next = textOfColumn(column);
    // A sentence may go on at the top of the next column.
    const goesOn = /[\p{L},]$/u.test(text) && /^\p{Ll}/u.test(next);
    text += (text === '' ? '' : goesOn ? ' ' : '\n\n') + next;
  }
  return text;
}

/** Splits lines into columns in reading order.  Lines that cross the gap, such as titles, divide the page into bands,
 * in each of which the left column is before the right one. @param {Line[]} lines @returns {Line[][]} */
function columnsOf(lines) {
  const gap = gapOf(lines);
  if (gap === undefined) return lines.length > 0 ? [lines] : [];
  /** @type {Line[][]} */
  const columns = [];
  /** @type {{left: Line[], right: Line[], across: Line[]}} */
  let band = { left: [], right: [], across: [] };
  const end = () => {
    if (band.across.length > 0) columns.push(band.across);
    columns.push(...columnsOf(band.left), ...columnsOf(band.right));
    band = { left: [], right: [], across: [] };
  };
  for (const line of lines) {
    if (line.left < gap && line.right > gap) {
      if (band.left.length + band.right.length > 0) end();
      band.across.push(line);
    } else (line.right <= gap ? band.left : band.right).push(line);
  }
  end();
  return columns;
}

/** The middle of the gap between two columns, if there is one that few lines cross. @param {Line[]} lines */
function gapOf(lines) {
  if (lines.length < 2 * LEAST_LINES) return undefined;
  const size = median(lines.map(line => line.size));
  const starts = Math.min(...lines.map(({ left }) => left)), ends = Math.max(...lines.map(({ right }) => right));
  const bins = Math.min(2000, Math.max(1, Math.ceil(ends - starts)));
  const step = (ends - starts) / bins || 1, covering = new Int32Array(bins + 1);
  for (const { left, right } of lines) {
    covering[Math.max(0, Math.floor((left - starts) / step))]++;
    covering[Math.min(bins, Math.ceil((right - starts) / step))]--;
  }
  for (let i = 1; i <= bins; i++) covering[i] += covering[i - 1];
  let best, fewest = MOST_CROSSING * lines.length;
  for (let i = 0; i < bins; i++) {
    if (covering[i] >= fewest) continue;
    let end = i;
    while (end < bins && covering[end] <= covering[i]) end++;
    const middle = starts + (i + end) / 2 * step;
    if ((end - i) * step < COLUMN_GAP * size / 2 || !isGap(lines, middle, size)) continue;
    [best, fewest] = [middle, covering[i]];
  }
  return best;
}

/** Whether both sides of a place look like columns of text. @param {Line[]} lines @param {number} place
 * @param {number} size  of letters */
function isGap(lines, place, size) {
  return [lines.filter(({ right }) => right <= place), lines.filter(({ left }) => left >= place)].every(side => {
    if (side.length < LEAST_LINES) return false;
    const width = Math.max(...side.map(({ right }) => right)) - Math.min(...side.map(({ left }) => left));
    const full = side.reduce((sum, { left, right }) => sum + right - left, 0) / side.length;
    return width >= LEAST_WIDTH * size && full >= LEAST_FULL * width;
  });
}

/** @param {Line[]} lines  of one column */
function textOfColumn(lines) {
  const rows = [];   // a column of a page without other columns may have lines of several parts, such as tables
  for (const line of lines) {
    const last = rows.at(-1);
    if (last && Math.abs(line.y - last.y) <= SAME_LINE * line.size) {
      last.text += ` ${line.text.trim()}`;
      last.right = Math.max(last.right, line.right);
    } else rows.push({ ...line, text: line.text.trim() });
  }
  for (const row of rows) row.text = row.text.replace(/[^\S\n]+/g, ' ');
  const distances = rows.slice(1).map((row, i) => row.y - rows[i].y).filter(distance => distance > 0);
  const usual = median(distances), left = Math.min(...rows.map(row => row.left));
  const width = Math.max(...rows.map(({ right }) => right)) - left;
  let text = '';
  for (const [i, row] of rows.entries()) {
    const above = rows[i - 1];
    if (!above) {
      text = row.text;
      continue;
    }
    const ratio = row.size / above.size, isFar = row.y - above.y > FAR * usual && usual > 0;
    const indented = row.left - above.left > row.size * 0.8 && row.left - above.left < row.size * 4
      && above.left - left < row.size * 0.5;
    if (isFar || ratio > OTHER_SIZE || ratio < 1 / OTHER_SIZE) text += `\n\n${row.text}`;
    else if (/\p{L}-$/u.test(text) && /^\p{Ll}/u.test(row.text)) text = text.slice(0, -1) + row.text;
    else text += (above.right - left < SHORT * width || indented ? '\n' : ' ') + row.text;
  }
  return text;
}

/** @param {number[]} numbers */
function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? 0;
}
