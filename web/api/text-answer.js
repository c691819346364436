/* What functions that generate text return: a generator of the pieces, which can also be awaited for the whole text. */
import { PlumbError } from '../base/errors.js';

/** An answer in pieces.  A loop `for await` gives the pieces while they are generated, and `await` gives the text of
 * the whole answer, or of what there was when its loop was left.  The answer begins with the first of them.
 * @template Piece, Result
 * @implements {PromiseLike<string>} */
export class TextAnswer {
  #pieces;
  #add;
  #text = '';
  /** How the pieces are read: by `await`, or in a loop. @type {'await' | 'loop' | undefined} */
  #reader;
  /** Settles when there are no more pieces. @type {Promise<string>} */
  #whole;
  /** @type {(text: string) => void} */
  #resolve = () => {};
  /** @type {(error: unknown) => void} */
  #reject = () => {};

  /** @param {AsyncGenerator<Piece, Result, void>} pieces
   * @param {(text: string, piece: Piece) => string} [add]  the text with one more piece */
  constructor(pieces, add = (text, piece) => text + piece) {
    this.#pieces = pieces;
    this.#add = add;
    this.#whole = new Promise((resolve, reject) => { [this.#resolve, this.#reject] = [resolve, reject]; });
    this.#whole.catch(() => {});
  }

  /** @param {() => Promise<IteratorResult<Piece, Result>>} read */
  async #step(read) {
    try {
      const step = await read();
      if (step.done) this.#resolve(this.#text);
      else this.#text = this.#add(this.#text, step.value);
      return step;
    } catch (error) {
      this.#reject(error);
      throw error;
    }
  }

  /** The next piece. @returns {Promise<IteratorResult<Piece, Result>>} */
  next() { return this.#step(() => this.#pieces.next()); }

  /** Stops the answer. @param {Result | PromiseLike<Result>} [value]
   * @returns {Promise<IteratorResult<Piece, Result>>} */
  return(value) { return this.#step(() => this.#pieces.return(/** @type {Result} */ (value))); }

  /** Stops the answer with an error. @param {unknown} error @returns {Promise<IteratorResult<Piece, Result>>} */
  throw(error) { return this.#step(() => this.#pieces.throw(error)); }

  /** @returns {this} */
  [Symbol.asyncIterator]() {
    if (this.#reader === 'await') throw new PlumbError('PLUMB_ERROR_STATE', 'the answer was already read by await');
    this.#reader = 'loop';
    return this;
  }

  /** @template A, B
   * @param {((text: string) => A | PromiseLike<A>) | null} [onText]
   * @param {((error: any) => B | PromiseLike<B>) | null} [onError] @returns {Promise<A | B>} */
  then(onText, onError) {
    if (!this.#reader) {
      this.#reader = 'await';
      this.#readAll().catch(() => {});   // #whole has the error
    }
    return /** @type {Promise<any>} */ (this.#whole.then(onText, onError));
  }

  async #readAll() {
    while (!(await this.next()).done);
  }
}
