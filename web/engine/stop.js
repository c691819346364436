/* Finds stop strings in a stream of pieces.  Text that may still become a stop string is held back.  The stop string
 * that is complete first ends the text (the longest one, if several end there); neither it nor what follows is
 * returned.  The result depends only on the text, not on how it is cut into pieces.  Lengths and positions count UTF-16
 * code units, as String does.  Pieces consist of whole characters, so a pair of surrogates is cut only if a stop string
 * begins or ends with half of one. */

/** Where the beginning of one of some marks begins at the end of a text, which lacks the rest of it; the text's length
 * if there is none. @param {string} text @param {readonly string[]} marks @param {number} [from]  looks from here on */
export function begunAt(text, marks, from = 0) {
  const longest = Math.max(0, ...marks.map(({ length }) => length - 1));
  for (let at = Math.max(from, text.length - longest); at < text.length; at++) {
    const rest = text.slice(at);
    if (marks.some(mark => mark.length > rest.length && mark.startsWith(rest))) return at;
  }
  return text.length;
}

export class StopFilter {
  #held = '';

  /** @param {string[]} stops  none empty */
  constructor(stops) {
    this.stops = stops;
    /** True once a stop string was found.  push must not be called after that. */
    this.stopped = false;
  }

  /** Adds a piece, and returns the text that is now certain. @param {string} piece @returns {string} */
  push(piece) {
    this.#held += piece;
    // The bounds of the stop string that ends first.  If several end at one place, it is the one that begins first.
    let start = -1, end = Infinity;
    for (const stop of this.stops) {
      const at = this.#held.indexOf(stop);
      if (at < 0 || at + stop.length > end) continue;
      start = at + stop.length < end ? at : Math.min(start, at);
      end = at + stop.length;
    }
    this.stopped = start >= 0;
    return this.#cut(this.stopped ? start : begunAt(this.#held, this.stops));
  }

  /** The text that is still held back at the end of the stream. @returns {string} */
  flush() {
    return this.#cut(this.stopped ? 0 : this.#held.length);
  }

  /** Returns the first n code units of the held text.  Keeps holding the others, or drops them if the text has ended.
   * @param {number} n */
  #cut(n) {
    const text = this.#held.slice(0, n);
    this.#held = this.stopped ? '' : this.#held.slice(n);
    return text;
  }
}
