/* Splits a text into passages, each of which gets a vector: paragraphs, or as many sentences of a long one as fit. */

/** In UTF-8 bytes.  LONGEST: some 200 tokens of English, which is what small encoders were trained for.  SHORT: a
 * line that has no more and does not end like a sentence, such as a heading, continues with the next paragraph. */
const LONGEST = 900, SHORT = 120;

/** @typedef {{start: number, end: number}} Passage  positions in the text */

/** @param {string} text @returns {Passage[]} in order, without white space at their ends */
export function passagesOf(text) {
  /** @type {(Passage & {bytes: number})[]} */
  const found = [];
  let afterHeading = false;
  for (const paragraph of piecesOf(text, 0, text.length, /\n[^\S\n]*\n\s*/g)) {
    const isLong = bytesOf(text, paragraph.start, paragraph.end) > LONGEST;
    const pieces = isLong ? piecesOf(text, paragraph.start, paragraph.end, /(?<=[.!?…])\s+|(?<=[。！？])|\n/g)
      : [paragraph];
    for (const [i, sentence] of pieces.entries()) {
      for (const { start, end, bytes } of cut(text, sentence)) {
        const last = found.at(-1);
        const joins = last && (i > 0 || afterHeading) && end - last.start <= LONGEST;
        const joined = joins ? last.bytes + bytesOf(text, last.end, start) + bytes : Infinity;
        if (joins && joined <= LONGEST) {
          last.end = end;
          last.bytes = joined;
        } else found.push({ start, end, bytes });
        afterHeading = false;
      }
    }
    const shown = text.slice(paragraph.start, paragraph.end);
    afterHeading = shown.length <= SHORT && !/\n|[.!?…。！？]$/.test(shown);
  }
  return found.map(({ start, end }) => ({ start, end }));
}

/** What lies between the matches of a pattern. @param {string} text @param {number} from @param {number} to
 * @param {RegExp} pattern @returns {Passage[]} */
function piecesOf(text, from, to, pattern) {
  const part = text.slice(from, to), pieces = [];
  let start = 0;
  for (const { 0: gap, index } of [...part.matchAll(pattern), { 0: '', index: part.length }]) {
    const piece = trimmed(text, from + start, from + index);
    if (piece.end > piece.start) pieces.push(piece);
    start = index + gap.length;
  }
  return pieces;
}

/** @param {string} text @param {number} start @param {number} end */
function trimmed(text, start, end) {
  const part = text.slice(start, end);
  return { start: start + part.length - part.trimStart().length, end: end - part.length + part.trimEnd().length };
}

/** Cuts a sentence that is too long, after a space if there is one in the second half. @param {string} text
 * @param {Passage} sentence */
function* cut(text, { start, end }) {
  const whole = bytesOf(text, start, end);
  if (whole <= LONGEST) {
    yield { start, end, bytes: whole };
    return;
  }
  while (start < end) {
    let at = start, bytes = 0, space = 0;
    for (let next; at < end; at += next.length) {
      next = String.fromCodePoint(/** @type {number} */ (text.codePointAt(at)));
      const more = bytesOf(next, 0, next.length);
      if (bytes + more > LONGEST) break;
      bytes += more;
      if (next === ' ' && bytes > LONGEST / 2) space = at;
    }
    const stop = at < end && space > 0 ? space : at, piece = trimmed(text, start, stop);
    if (piece.end > piece.start) yield { ...piece, bytes: bytesOf(text, piece.start, piece.end) };
    start = stop;
  }
}

/** @param {string} text @param {number} start @param {number} end */
function bytesOf(text, start, end) {
  let bytes = 0;
  for (let i = start; i < end; i++) {
    const unit = text.charCodeAt(i);
    bytes += unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit >= 0xd800 && unit < 0xe000 ? 2 : 3;   // half of a pair
  }
  return bytes;
}
