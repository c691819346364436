/* A calculator for the model: reads an expression from left to right, as a recursive descent parser does, and computes
 * with numbers of 64 bits.  Nothing is evaluated as code.
 *
 *   sum      product (("+" | "-") product)*
 *   product  sign (("*" | "/" | "%") sign)*           a % b has the sign of b, as in Python
 *   sign     ("+" | "-") sign | power
 *   power    value (("^" | "**") sign)?               -2^2 is -4, and 2^3^2 is 2^9
 *   value    NUMBER | CONSTANT | FUNCTION "(" sum ("," sum)* ")" | "(" sum ")" */

/** Characters of an expression, and how deep it may nest. */
const MAX_LENGTH = 1000, MAX_DEPTH = 100;
const CONSTANTS = { pi: Math.PI, e: Math.E };
/** Functions with the least and the largest number of their arguments.
 * @type {Record<string, [number, number, (...args: number[]) => number]>} */
const FUNCTIONS = {
  ...Object.fromEntries(/** @type {const} */ (['sqrt', 'cbrt', 'abs', 'floor', 'ceil', 'round', 'exp', 'log2', 'log10',
    'sin', 'cos', 'tan', 'asin', 'acos', 'atan']).map(name => [name, [1, 1, Math[name]]])),
  ln: [1, 1, Math.log], min: [1, 100, Math.min], max: [1, 100, Math.max],
};
const TOKEN = /\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([A-Za-z]\w*)|(\*\*|[-+*/%^(),×÷−]))/y;
/** Other ways to write an operator. */
const SAME = new Map([['**', '^'], ['×', '*'], ['÷', '/'], ['−', '-']]);
/** The value has this many significant digits, so that 0.1 + 0.2 is 0.3. */
const DIGITS = 15;

/** The value of an expression as a text.  Throws an Error that says what is wrong with the expression.
 * @param {string} expression */
export function calculate(expression) {
  if (expression.length > MAX_LENGTH) throw new Error(`an expression has at most ${MAX_LENGTH} characters`);
  const rounded = Number(checked(new Parser(expression).value()).toPrecision(DIGITS));
  return Math.abs(rounded) < 10 ** DIGITS ? String(rounded) : rounded.toExponential();
}

/** @param {number} value */
function checked(value) {
  if (Number.isNaN(value)) throw new Error('the result is not a real number');
  if (!Number.isFinite(value)) throw new Error('the result is too large');
  return value;
}

class Parser {
  /** The tokens that are left, the first at the end: a number, a name or an operator, and its place from 1.
   * @type {{text: string, kind: 'number' | 'name' | 'operator' | 'end', at: number}[]} */
  #tokens = [];
  #depth = 0;

  /** @param {string} text */
  constructor(text) {
    TOKEN.lastIndex = 0;
    let at = 0;
    for (let found; (found = TOKEN.exec(text)); at = TOKEN.lastIndex) {
      const [all, number, name, operator] = found, own = number ?? name ?? operator;
      this.#tokens.push({ text: SAME.get(own) ?? own, at: at + all.length - own.length + 1,
        kind: number ? 'number' : name ? 'name' : 'operator' });
    }
    const rest = text.slice(at), left = rest.trim();
    if (left !== '') {
      throw new Error(`"${[...left][0]}" at character ${at + rest.indexOf(left) + 1} has no meaning here`);
    }
    this.#tokens.push({ text: 'the end', kind: 'end', at: text.length + 1 });
    this.#tokens.reverse();
  }

  value() {
    const value = this.#sum();
    if (this.#next.kind !== 'end') this.#expected('an operator');
    return value;
  }

  get #next() { return this.#tokens[this.#tokens.length - 1]; }

  /** Takes the next token if it is one of some operators. @param {...string} operators */
  #take(...operators) {
    const { kind, text } = this.#next;
    if (kind !== 'operator' || !operators.includes(text)) return undefined;
    this.#tokens.pop();
    return text;
  }

  /** @param {string} what @returns {never} */
  #expected(what) {
    const { text, kind, at } = this.#next;
    throw new Error(`expected ${what} at character ${at}, found ${kind === 'end' ? text : `"${text}"`}`);
  }

  /** @returns {number} */
  #sum() {
    let value = this.#product();
    for (let operator; (operator = this.#take('+', '-'));) value += (operator === '+' ? 1 : -1) * this.#product();
    return value;
  }

  #product() {
    let value = this.#sign();
    for (let operator; (operator = this.#take('*', '/', '%'));) {
      const other = this.#sign();
      if (operator === '*') {
        value *= other;
        continue;
      }
      if (other === 0) throw new Error('division by zero');
      if (operator === '/') value /= other;
      else {
        value %= other;
        if (value !== 0 && value < 0 !== other < 0) value += other;
      }
    }
    return value;
  }

  /** @returns {number} */
  #sign() {
    if (++this.#depth > MAX_DEPTH) throw new Error(`it nests deeper than ${MAX_DEPTH} levels`);
    const sign = this.#take('+', '-'), value = sign ? this.#sign() : this.#power();
    this.#depth--;
    return sign === '-' ? -value : value;
  }

  #power() {
    const base = this.#value();
    if (!this.#take('^')) return base;
    const exponent = this.#sign();
    if (base === 0 && exponent < 0) throw new Error('division by zero');
    return checked(base ** exponent);
  }

  #value() {
    const { text, kind } = this.#next;
    if (this.#take('(')) return this.#closed(this.#sum());
    if (kind !== 'number' && kind !== 'name') this.#expected('a number');
    this.#tokens.pop();
    if (kind === 'number') return Number(text);
    if (Object.hasOwn(CONSTANTS, text)) return CONSTANTS[/** @type {keyof typeof CONSTANTS} */ (text)];
    if (!Object.hasOwn(FUNCTIONS, text)) {
      throw new Error(text === 'log' ? 'log has two meanings: write ln or log10' : `${text} is not known; the `
        + `functions are ${Object.keys(FUNCTIONS).join(', ')}, and the constants ${Object.keys(CONSTANTS).join(', ')}`);
    }
    if (!this.#take('(')) this.#expected(`"(" after ${text}`);
    const [least, most, compute] = FUNCTIONS[text], args = [this.#sum()];
    while (this.#take(',')) args.push(this.#sum());
    if (args.length < least || args.length > most) throw new Error(`${text} takes ${least} to ${most} numbers`);
    return this.#closed(checked(compute(...args)));
  }

  /** @param {number} value */
  #closed(value) {
    if (!this.#take(')')) this.#expected('")"');
    return value;
  }
}
