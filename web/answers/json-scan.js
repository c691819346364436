/* Finds the end of a JSON value in a text that arrives in pieces, and refuses what is not JSON as soon as it shows. */

const WORD = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;
const SPACE = ' \t\n\r', WORD_CHARACTER = /[-+.\w]/, HEX = /[0-9a-fA-F]/;

/** What may come next: a value, the key or the end of an object... */
const VALUE = 0, VALUE_OR_END = 1, KEY = 2, KEY_OR_END = 3, COLON = 4, COMMA_OR_END = 5, DONE = 6;

export class JsonScan {
  #expected = VALUE;
  /** The closing brackets of what is open, the innermost last. @type {string[]} */
  #open = [];
  /** 0: not in a string; 1: in a string; 2: after its backslash; 6 to 3: so many digits of \u less 2 are missing. */
  #string = 0;
  /** Whether the string is the key of an object. */
  #isKey = false;
  /** A number, true, false or null so far. */
  #word = '';
  /** Whether the text is not JSON. */
  bad = false;

  /** Whether the value is complete. */
  get done() { return this.#expected === DONE; }

  /** Reads a text from an index on, and returns the index behind what belongs to the value: of its end, of the first
   * character that is not JSON, or of the end of the text.  Nothing may be read once it is done or bad.
   * @param {string} text @param {number} at */
  read(text, at) {
    for (; at < text.length && !this.done; at++) {
      const c = text[at];
      if (this.#string > 0) this.#inString(c);
      else if (WORD_CHARACTER.test(c) && (this.#word !== '' || this.#wantsValue())) this.#word += c;
      else {
        if (this.#word !== '') this.end();
        if (this.done || this.bad) return at;
        if (!SPACE.includes(c)) this.#sign(c);
      }
      if (this.bad) return at;
    }
    return at;
  }

  /** Ends a number, true, false or null, at whose end nothing shows that it is complete. */
  end() {
    if (!WORD.test(this.#word)) this.bad = true;
    else this.#afterValue();
    this.#word = '';
  }

  #wantsValue() { return this.#expected === VALUE || this.#expected === VALUE_OR_END; }

  #afterValue() { this.#expected = this.#open.length > 0 ? COMMA_OR_END : DONE; }

  /** @param {string} c */
  #inString(c) {
    if (this.#string > 2) {
      if (HEX.test(c)) this.#string = this.#string === 3 ? 1 : this.#string - 1;
      else this.bad = true;
    } else if (this.#string === 2) {
      if ('"\\/bfnrt'.includes(c)) this.#string = 1;
      else if (c === 'u') this.#string = 6;
      else this.bad = true;
    } else if (c === '\\') this.#string = 2;
    else if (c < ' ') this.bad = true;
    else if (c === '"') {
      this.#string = 0;
      if (this.#isKey) this.#expected = COLON;
      else this.#afterValue();
    }
  }

  /** @param {string} c  a character outside of strings and words that is not white space */
  #sign(c) {
    const expected = this.#expected, closes = this.#open.at(-1);
    if (c === '"' && (this.#wantsValue() || expected === KEY || expected === KEY_OR_END)) {
      this.#string = 1;
      this.#isKey = !this.#wantsValue();
    } else if ((c === '{' || c === '[') && this.#wantsValue()) {
      this.#open.push(c === '{' ? '}' : ']');
      this.#expected = c === '{' ? KEY_OR_END : VALUE_OR_END;
    } else if (c === ':' && expected === COLON) this.#expected = VALUE;
    else if (c === ',' && expected === COMMA_OR_END) this.#expected = closes === '}' ? KEY : VALUE;
    else if (c === closes && (expected === COMMA_OR_END || expected === (c === '}' ? KEY_OR_END : VALUE_OR_END))) {
      this.#open.pop();
      this.#afterValue();
    } else this.bad = true;
  }
}
