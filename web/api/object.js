/* chat.object: an answer that is a value of a schema, and what is known of the value while the answer is generated. */
import { mapped } from '../base/async.js';
import { argumentError, PlumbError } from '../base/errors.js';
import { standardCheck } from '../answers/schema.js';

/** Deeper arrays and objects of an answer are not in its partial values: functions that call themselves for each level,
 * such as JSON.stringify, would fail. */
const MAX_LEVELS = 1000;
const STRING = /"(?:[^"\\]|\\(?:[^u]|u[0-9a-fA-F]{4}))*/y;

/** The value of the beginning of a JSON text, with the strings, arrays and objects that it has begun: the last member
 * or element is missing while only its name, or a part of a number, true, false or null is there.  undefined if there
 * is no value yet.
 * @param {string} text  @returns {unknown} */
export function partialValue(text) {
  /** The brackets that close what is open, the innermost first. */
  let closing = '';
  let isName = false, whole = '';
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (c === '"') {
      STRING.lastIndex = at;
      const string = /** @type {RegExpExecArray} */ (STRING.exec(text))[0];
      at += string.length;
      if (text[at] !== '"') {   // not complete; half of a character in escapes is left out, too
        const known = text.slice(0, at).replace(/\\u[dD][89abAB][0-9a-fA-F]{2}$/, '');
        if (!isName) whole = `${known}"${closing}`;
        break;
      }
      if (!isName) whole = text.slice(0, at + 1) + closing;
    } else if (c === '{' || c === '[') {
      if (closing.length === MAX_LEVELS) break;
      closing = (c === '{' ? '}' : ']') + closing;
      isName = c === '{';
      whole = text.slice(0, at + 1) + closing;
    } else if (c === '}' || c === ']') {
      closing = closing.slice(1);
      isName = false;
      whole = text.slice(0, at + 1) + closing;
    } else if (c === ',') {
      whole = text.slice(0, at) + closing;
      isName = closing[0] === '}';
    } else if (c === ':') isName = false;
  }
  return whole === '' ? undefined : JSON.parse(whole);
}

/** The answer of chat.object.  `await` gives the whole value; a loop `for await` gives partial values while it grows,
 * after which `value` is the whole.  The answer begins with the first of them.
 * @template T
 * @implements {AsyncIterable<import('./infer.js').DeepPartial<T>>}
 * @implements {PromiseLike<T>} */
export class ObjectAnswer {
  #partials;
  /** @type {Promise<T> | undefined} */
  #value;

  /** @param {AsyncGenerator<any, T, void>} partials */
  constructor(partials) { this.#partials = partials; }

  /** The whole value. @returns {Promise<T>} */
  get value() {
    this.#value ??= (async () => {
      for (;;) {
        const { done, value } = await this.#partials.next();
        if (done) return value;
      }
    })();
    return this.#value;
  }

  /** @template A, B
   * @param {((value: T) => A | PromiseLike<A>) | null} [onValue]
   * @param {((error: any) => B | PromiseLike<B>) | null} [onError] @returns {Promise<A | B>} */
  then(onValue, onError) { return /** @type {Promise<any>} */ (this.value.then(onValue, onError)); }

  /** @returns {AsyncGenerator<import('./infer.js').DeepPartial<T>, void, void>} */
  async *[Symbol.asyncIterator]() {
    if (this.#value) throw new PlumbError('PLUMB_ERROR_STATE', 'chat.object: the answer was already read');
    /** @type {(value: T) => void} */
    let resolve = () => {};
    /** @type {(error: unknown) => void} */
    let reject = () => {};
    this.#value = new Promise((...both) => { [resolve, reject] = both; });
    this.#value.catch(() => {});
    try {
      for (;;) {
        const { done, value } = await this.#partials.next();
        if (done) return resolve(value);
        yield value;
      }
    } catch (error) {
      reject(error);
      throw error;
    } finally {   // runs too if the caller leaves the loop
      reject(new PlumbError('PLUMB_ERROR_STATE', 'chat.object: the loop was left before the value was complete'));
      await this.#partials.return(/** @type {any} */ (undefined));
    }
  }
}

/** Yields the partial values of an answer that is JSON, each other than the one before, and returns its value.
 * @param {any} schema @param {AsyncGenerator<string, import('../engine/generation.js').Stats, void>} pieces
 * @returns {AsyncGenerator<any, any, void>} */
export async function* valuesOf(schema, pieces) {
  let text = '', shown = '';
  const { finishReason } = yield* mapped(pieces, piece => {
    text += piece;
    const partial = partialValue(text), before = shown;
    shown = JSON.stringify(partial);
    return partial !== undefined && shown !== before ? [partial] : [];
  });
  return validated(schema, whole(text, finishReason));
}

/** @param {string} text @param {string} reason  why it ended */
function whole(text, reason) {
  try {
    return JSON.parse(text);
  } catch {
    const why = reason === 'length' ? 'maxTokens or the context cut it off; allow more tokens'
      : reason === 'abort' ? 'it was aborted' : 'a stop text ended it';
    throw new PlumbError('PLUMB_ERROR_TRUNCATED', `chat.object: the answer is not complete: ${why}`,
      { partial: partialValue(text), text, finishReason: reason });
  }
}

/** What the schema's own check makes of a value, if there is one. @param {any} schema @param {unknown} given */
async function validated(schema, given) {
  const { value, problem, issues } = await standardCheck(schema, given) ?? { value: given };
  if (problem === undefined) return value;
  throw Object.assign(argumentError(`chat.object: the value does not fit the schema: ${problem}`),
    { details: { value, issues } });
}
