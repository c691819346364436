/* Bounds how many tokens of an answer are reasoning. */
import { begunAt } from './stop.js';

/** @typedef {object} Budget
 * @property {string} start  the tag that begins reasoning
 * @property {string[]} ends  the tags that end it; the first one is fed when the budget is used up
 * @property {number} limit  how many tokens of reasoning there may be
 * @property {boolean} isOpen  whether the prompt has begun the reasoning
 * @property {boolean} [isFirst]  there is reasoning only at the beginning, and what follows is a text with any tags
 * @property {string[]} [calls]  the texts that begin a call, in which there may be any tags, too */

export class ReasoningMeter {
  #budget;
  #isOpen;
  #used = 0;
  /** The end of the text, as long as the longest tag. */
  #tail = '';
  #isOver = false;

  /** @param {Budget} budget */
  constructor(budget) {
    this.#budget = budget;
    this.#isOpen = budget.isOpen;
  }

  /** Whether the reasoning must end now.  A tag that has begun may be completed. */
  get isSpent() {
    const { ends, limit } = this.#budget;
    return this.#isOpen && this.#used >= limit
      && (this.#used > limit + 8 || begunAt(this.#tail, ends) === this.#tail.length);
  }

  /** What ends the reasoning. */
  get end() { return this.#budget.ends[0]; }

  /** Adds a token's text. @param {string} text */
  push(text) {
    if (this.#isOver) return;
    const { start, ends, isFirst = false, calls = [] } = this.#budget;
    this.#tail += text;
    const tags = this.#isOpen ? ends : [...calls, start], found = tags.find(tag => this.#tail.includes(tag));
    if (found !== undefined && calls.includes(found)) {
      this.#isOver = true;
      this.#isOpen = false;
    } else if (found !== undefined) {
      this.#tail = this.#tail.slice(this.#tail.indexOf(found) + found.length);
      this.#isOpen = !this.#isOpen;
      this.#isOver = isFirst && !this.#isOpen;
    } else if (isFirst && !this.#isOpen) this.#isOver = !start.startsWith(this.#tail.trimStart());
    else if (this.#isOpen) this.#used++;
    this.#tail = this.#tail.slice(-Math.max(...[start, ...ends, ...calls].map(tag => tag.length)));
  }
}
