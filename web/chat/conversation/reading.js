/* Shows how much of a long prompt the model has read, in the place where its answer will be. */
import { dotted, duration, integer, make } from '../dom.js';

/** @typedef {import('../../index.js').PromptProgress} PromptProgress */

/** Prompts with fewer tokens to compute are read at once, by most models. */
const LEAST = 128;

export class Reading {
  #text;
  #bar = make('progress', { max: 1, 'aria-label': 'Reading the conversation' });
  #figures = make('p', { className: 'figures' });
  #box = make('div', { className: 'reading' }, this.#bar, this.#figures);

  /** @param {HTMLElement} text  of the answer */
  constructor(text) {
    this.#text = text;
  }

  /** @param {PromptProgress} progress */
  show({ promptTokens, reusedTokens, computedTokens, rate }) {
    const all = promptTokens - reusedTokens, left = all - computedTokens;
    if (all < LEAST) return;
    const part = computedTokens / all;
    this.#bar.value = part;
    this.#figures.textContent = dotted([`Reading ${Math.floor(100 * part)}%`,
      `${integer(computedTokens)} of ${integer(all)} tokens`, rate > 0 && `${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`,
      rate > 0 && left > rate && `${duration(left / rate)} left`]);
    if (!this.#box.isConnected) this.#text.before(this.#box);
  }

  remove() { this.#box.remove(); }
}
