/* The dialect of Jinja that chat templates are written in, where @huggingface/jinja lacks a part of it or differs from
 * llama.cpp's engine (common/jinja) and from jinja2:
 *
 *   - values are printed as Python prints them: True, [1, 'a'], {'a': None}
 *   - text + nothing, which jinja2 refuses: none and undefined variables are empty beside a text
 *   - what a block has printed before break and continue stays; an iteration does not see the variables of the one
 *     before; a macro sees those of the place where it is defined
 *   - an undefined variable is empty for loops and filters
 *   - filters: count, d, first, last, min, max, string, join, dictsort, map, select, reject and their likes for
 *     attributes, with any test; filters of text take any value
 *   - methods: strip, lstrip and rstrip with characters; format, rsplit; append and pop of lists; the methods of an
 *     object come before its properties of the same name, unless it is indexed
 *   - text * number, comparisons of texts, equality of lists and objects, integers as keys of objects
 *
 * jinja.js bounds what all of this costs.  `counting` has the functions that count, which it sets. */
import { Environment, Interpreter } from '../dist/vendor/jinja/index.js';

/** @typedef {{type: string, value: any, toString: () => string, [more: string]: any}} Value  of the library
 * @typedef {{type: string, [more: string]: any}} Node  of its syntax tree */

const plain = new Interpreter(new Environment()), scope = /** @type {any} */ (new Environment());
const classOf = (/** @type {any} */ node) => /** @type {any} */ (plain.evaluate(node, scope)).constructor;

/** The classes of values, which the library does not export. */
export const Text = classOf({ type: 'StringLiteral', value: '' });
export const List = classOf({ type: 'ArrayLiteral', value: [] });
export const Dict = classOf({ type: 'ObjectLiteral', value: new Map() });
export const Namespace = scope.variables.get('namespace').value([]).constructor;
const Integer = classOf({ type: 'IntegerLiteral', value: 0 }), Float = classOf({ type: 'FloatLiteral', value: 0 });
const Bool = scope.set('a', true).constructor, None = scope.set('b', null).constructor, Undefined = classOf(undefined);
const Callable = scope.variables.get('namespace').constructor;

export const isText = (/** @type {Value | undefined} */ value) => value instanceof Text;
export const isList = (/** @type {Value | undefined} */ value) => value instanceof List;
const isNumber = (/** @type {Value} */ value) => value instanceof Integer || value instanceof Float;
const isNothing = (/** @type {Value} */ value) => value instanceof None || value instanceof Undefined;
const truth = (/** @type {Value} */ value) => value.__bool__().value;
const undefinedValue = new Undefined();

/** Counts what an operation reads or writes, in characters, and the search of one text in another. */
export const counting = {
  charge: (/** @type {number} */ _) => {}, search: (/** @type {string} */ _, /** @type {string} */ __) => {},
};
/* Costs, in characters: visiting a value, making one, making the methods of one. */
const LOOK = 8, ELEMENT = 64, METHODS_OF_ONE = 512;

/** What a template reads of its variables, while it is watched: values, and the names of what is done with each.
 * @type {{reads?: Map<Value, Set<string>>}} */
export const watched = {};

/** Notes that a value is read. @param {Value} value @param {string} [action] @param {boolean} [deep]  with all in it */
export function note(value, action, deep) {
  const { reads } = watched;
  if (!reads) return;
  if (!reads.has(value)) reads.set(value, new Set());
  if (action) reads.get(value)?.add(action);
  if (!deep) return;
  if (isList(value)) for (const item of value.value) note(item, undefined, true);
  if (value.value instanceof Map) for (const item of value.value.values()) note(item, undefined, true);
}

// --- Printing and comparing -----------------------------------------------------------------------------------------

const ESCAPES = new Map([['\n', '\\n'], ['\r', '\\r'], ['\t', '\\t'], ['\\', '\\\\']]);

/** A text as Python's repr shows it. @param {string} text */
function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = text.replaceAll(/[\\\p{C}\p{Zl}\p{Zp}\p{Zs}]/gu, character => {
    const code = Number(character.codePointAt(0)), hex = code.toString(16);
    if (character === ' ') return character;
    return ESCAPES.get(character) ?? (code < 0x100 ? `\\x${hex.padStart(2, '0')}`
      : code < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`);
  });
  return quote + (quote === "'" ? inner.replaceAll("'", "\\'") : inner) + quote;
}

/** @param {Value | string | number} value @returns {string} */
function repr(value) {
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return quoted(value);
  if (isText(value)) return quoted(value.value);
  if (isList(value)) return `[${value.value.map(repr).join(', ')}]`;
  if (value.value instanceof Map) {
    return `{${Array.from(value.value, ([key, item]) => `${repr(key)}: ${repr(item)}`).join(', ')}}`;
  }
  return value instanceof Undefined ? 'Undefined' : value.toString();
}
Bool.prototype.toString = /** @this {Value} */ function () { return this.value ? 'True' : 'False'; };
None.prototype.toString = () => 'None';
Undefined.prototype.toString = () => '';
for (const type of [List, Dict, Namespace]) {
  type.prototype.toString = /** @this {Value} */ function () { return repr(this); };
}

/** @param {Value} a @param {Value} b @returns {boolean} */
function equal(a, b) {
  counting.charge(LOOK);
  if (isList(a) && isList(b)) {
    return a.value.length === b.value.length && a.value.every((/** @type {Value} */ item, /** @type {number} */ i) =>
      equal(item, b.value[i]));
  }
  if (a.value instanceof Map && b.value instanceof Map) {
    counting.charge(ELEMENT * a.value.size);
    return a.value.size === b.value.size && [...a.value].every(([key, item]) =>
      b.value.has(key) && equal(item, b.value.get(key)));
  }
  if (isText(a) && isText(b)) counting.charge(Math.min(a.value.length, b.value.length));
  if (isText(a) || isText(b) || isNothing(a) || isNothing(b)) {
    return a.type === b.type && a.value === b.value;
  }
  return Number(a.value) === Number(b.value) && typeof a.value !== 'object' && typeof b.value !== 'object';
}

/** Less than 0 if a comes before b. @param {Value} a @param {Value} b */
function compare(a, b) {
  if (isText(a) && isText(b)) return a.value < b.value ? -1 : a.value > b.value ? 1 : 0;
  if (!(isNumber(a) || a instanceof Bool) || !(isNumber(b) || b instanceof Bool)) {
    throw new Error(`cannot compare ${a.type} with ${b.type}`);
  }
  return Number(a.value) - Number(b.value);
}

/** @type {Record<string, (order: number) => boolean>} */
const ORDERS = {
  '<': order => order < 0, '<=': order => order <= 0, '>': order => order > 0, '>=': order => order >= 0,
};

/** @param {Value} item @param {Value} container */
function isIn(item, container) {
  if (container instanceof Undefined) return false;
  if (isList(container)) return container.value.some((/** @type {Value} */ one) => equal(item, one));
  if (container.value instanceof Map) return container.value.has(item.value);
  if (isText(container) && isText(item)) {
    counting.search(container.value, item.value);
    return container.value.includes(item.value);
  }
  throw new Error(`'in' does not apply to ${item.type} and ${container.type}`);
}

/** Tests beyond those of the library. @type {Map<string, (...values: any[]) => boolean>} */
const tests = scope.tests;
for (const [name, test] of /** @type {[string, (a: Value, b: Value) => boolean][]} */ ([
  ['float', a => a instanceof Float], ['in', isIn],
  ...['iterable', 'sequence'].map(name => [name, (/** @type {Value} */ a) =>
    isList(a) || isText(a) || a instanceof Dict || a instanceof Undefined]),
  ['eq', equal], ['equalto', equal], ['==', equal], ['ne', (a, b) => !equal(a, b)], ['!=', (a, b) => !equal(a, b)],
  ...[['lt', '<'], ['lessthan', '<'], ['le', '<='], ['gt', '>'], ['greaterthan', '>'], ['ge', '>=']].map(
    ([name, sign]) => [name, (/** @type {Value} */ a, /** @type {Value} */ b) => ORDERS[sign](compare(a, b))]),
])) tests.set(name, test);

// --- Objects --------------------------------------------------------------------------------------------------------

/** The key of a property as a value. @param {string | number} key */
const keyValue = key => typeof key === 'number' ? new Integer(key) : new Text(key);
Dict.prototype.keys = /** @this {Value} */ function () { return new List(Array.from(this.value.keys(), keyValue)); };
Dict.prototype.items = /** @this {Value} */ function () {
  return new List(Array.from(this.value, ([key, item]) => new List([keyValue(key), item])));
};

/** @param {Value} dict @param {Value[]} args @param {Map<string, Value>} named */
function dictsort(dict, args, named) {
  const byValue = (args[1] ?? named.get('by'))?.value === 'value';
  const sign = (args[2] ?? named.get('reverse'))?.value ? -1 : 1;
  const sensitive = (args[0] ?? named.get('case_sensitive'))?.value;
  const folded = (/** @type {Value} */ value) =>
    isText(value) && !sensitive ? new Text(value.value.toLowerCase()) : value;
  return new List(dict.items().value.map((/** @type {Value} */ pair) => [folded(pair.value[byValue ? 1 : 0]), pair])
    .sort((/** @type {Value[]} */ [a], /** @type {Value[]} */ [b]) => sign * compare(a, b))
    .map((/** @type {Value[]} */ [, pair]) => pair));
}

/** The value that a path of attributes leads to, such as "a.b" or 0. @param {Value} item @param {Value} path */
function attribute(item, path) {
  counting.charge(LOOK + (isText(path) ? path.value.length : 0));
  let at = item;
  for (const name of isText(path) ? path.value.split('.') : [path.value]) {
    const found = at.value instanceof Map ? at.value.get(name)
      : isList(at) && /^\d+$/.test(String(name)) ? at.value[name] : undefined;
    at = found ?? undefinedValue;
  }
  return at;
}

// --- Methods --------------------------------------------------------------------------------------------------------

/** @param {string} text @param {Value | undefined} chars @param {boolean} left @param {boolean} right */
function stripped(text, chars, left, right) {
  if (!chars || isNothing(chars)) return left ? right ? text.trim() : text.trimStart() : text.trimEnd();
  if (!isText(chars)) throw new Error(`strip: the characters are of type ${chars.type}, expected a text`);
  counting.charge(chars.value.length);
  const set = new Set(chars.value);
  let begin = 0, end = text.length;
  while (left && begin < end && set.has(text[begin])) begin++;
  while (right && end > begin && set.has(text[end - 1])) end--;
  return text.slice(begin, end);
}

/** @param {string} text */
const capitalized = text => text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase();

/** Methods beyond those of the library, by type.
 * @type {[any, Record<string, (self: any, args: Value[]) => Value>][]} */
const METHODS = [
  [Text, {
    capitalize: self => new Text(capitalized(self)),
    title: self => new Text(self.replaceAll(/\p{L}+/gu, capitalized)),
    strip: (self, [chars]) => new Text(stripped(self, chars, true, true)),
    lstrip: (self, [chars]) => new Text(stripped(self, chars, true, false)),
    rstrip: (self, [chars]) => new Text(stripped(self, chars, false, true)),
    format(self, args) {
      let at = 0;
      const text = self.replaceAll(/\{[^{}]*\}?/g, (/** @type {string} */ place) => {
        if (place !== '{}') throw new Error(`format: ${place} is not supported`);
        if (at >= args.length) throw new Error('format: there are fewer arguments than {}');
        return args[at++].toString();
      });
      counting.charge(text.length);
      return new Text(text);
    },
    rsplit(self, [separator, most]) {
      if (!isText(separator) || separator.value === '') throw new Error('rsplit: the separator must be a text');
      const parts = self.split(separator.value), n = most instanceof Integer ? most.value : -1;
      const head = n >= 0 && parts.length > n + 1 ? parts.splice(0, parts.length - n) : [];
      if (head.length > 0) parts.unshift(head.join(separator.value));
      return new List(parts.map((/** @type {string} */ part) => new Text(part)));
    },
  }],
  [List, {
    append(self, [item]) {
      counting.charge(ELEMENT);
      self.push(item ?? undefinedValue);
      return new None(null);
    },
    pop(self, [index]) {
      const at = index instanceof Integer ? index.value : -1, n = self.length;
      counting.charge(n);
      if (at >= n || at < -n) throw new Error(`pop: index ${at} is outside a list of ${n}`);
      return self.splice(at, 1)[0];
    },
  }],
  [Dict, {
    dictsort: (self, args) => dictsort(new Dict(self), args.filter(({ type }) => type !== 'KeywordArgumentsValue'),
      args.find(({ type }) => type === 'KeywordArgumentsValue')?.value ?? new Map()),
  }],
];
/** Methods that come before a property of the same name. */
const FIRST = new Set(['get', 'items', 'keys', 'values']);

for (const [type, methods] of METHODS) {
  const { get } = /** @type {{get: () => Map<string, Value>}} */ (
    Object.getOwnPropertyDescriptor(type.prototype, 'builtins'));
  Object.defineProperty(type.prototype, 'builtins', {
    configurable: true,
    /** @this {Value} */
    get() {
      counting.charge(METHODS_OF_ONE);
      const all = get.call(this);
      if (type === List) all.set('length', new Integer(this.value.length));   // append and pop may have changed it
      for (const [name, method] of Object.entries(methods)) {
        all.set(name, new Callable((/** @type {Value[]} */ args) => method(this.value, args)));
      }
      return all;
    },
  });
}

// --- Filters --------------------------------------------------------------------------------------------------------

/** Other names of filters. @type {Record<string, string>} */
const ALIASES = { count: 'length', d: 'default' };
/** Filters of text, which take any value as its text. */
const OF_TEXT = new Set(['capitalize', 'lower', 'replace', 'title', 'trim', 'upper']);
/** What filters make of an undefined variable. */
const EMPTY_LISTS = new Set(['items', 'list', 'map', 'reject', 'rejectattr', 'reverse', 'select', 'selectattr', 'sort',
  'unique']);

/** Keeps the items of a list for which a test holds.
 * @param {boolean} ofAttribute  of an attribute instead of the item @param {boolean} wanted */
const select = (ofAttribute, wanted) => (/** @type {Value} */ operand, /** @type {Value[]} */ args) => {
  const [path, named, ...more] = ofAttribute ? args : [undefinedValue, ...args];
  if (ofAttribute && !path) throw new Error('a filter of attributes needs the name of one');
  /** @type {((...values: any[]) => boolean) | undefined} */
  const test = named === undefined ? truth : tests.get(String(named.value));
  if (!test) throw new Error(`unknown test: ${named?.value}`);
  return new List(operand.value.filter((/** @type {Value} */ item) => {
    counting.charge(ELEMENT);
    return Boolean(test(ofAttribute ? attribute(item, path) : item, ...more)) === wanted;
  }));
};

/** @param {number} sign */
const extreme = sign => (/** @type {Value} */ operand) => operand.value.length === 0 ? undefinedValue
  : operand.value.reduce((/** @type {Value} */ best, /** @type {Value} */ item) =>
    sign * compare(item, best) > 0 ? item : best);

/** @type {Record<string, (operand: Value, args: Value[], named: Map<string, Value>) => Value>} */
const LIST_FILTERS = {
  select: select(false, true), reject: select(false, false),
  selectattr: select(true, true), rejectattr: select(true, false),
  min: extreme(-1), max: extreme(1),
  first: operand => operand.value.at(0) ?? undefinedValue, last: operand => operand.value.at(-1) ?? undefinedValue,
  join(operand, args, named) {
    const separator = args[0] ?? named.get('d') ?? named.get('separator'), path = args[1] ?? named.get('attribute');
    return new Text(operand.value.map((/** @type {Value} */ item) => (path ? attribute(item, path) : item).toString())
      .join(separator === undefined || isNothing(separator) ? '' : separator.toString()));
  },
};

const Base = /** @type {any} */ (Interpreter);

export class Dialect extends Base {
  /** @param {Node} node @param {any} scope @returns {Value} */
  evaluate(node, scope) {
    if (node?.type === 'Break' || node?.type === 'Continue') throw new Jump(node.type === 'Break');
    if (node?.type === 'TupleLiteral') return super.evaluate({ ...node, type: 'ArrayLiteral' }, scope);
    if (node?.type !== 'ObjectLiteral') return super.evaluate(node, scope);
    const made = new Map();
    for (const [key, item] of node.value) {
      const { value, type } = this.evaluate(key, scope);
      if (type !== 'StringValue' && type !== 'IntegerValue') throw new Error(`a key of an object is of type ${type}`);
      made.set(value, this.evaluate(item, scope));
    }
    return new Dict(made);
  }

  /** @param {Node} node @param {any} scope */
  evaluateBinaryExpression(node, scope) {
    const { operator: { value: sign } } = node;
    if (sign === 'and' || sign === 'or') return super.evaluateBinaryExpression(node, scope);
    const left = this.evaluate(node.left, scope), right = this.evaluate(node.right, scope);
    if (sign === '==' || sign === '!=') return new Bool(equal(left, right) === (sign === '=='));
    if (sign === 'in' || sign === 'not in') return new Bool(isIn(left, right) === (sign === 'in'));
    if (isText(left) || isText(right)) {
      if (sign === '~') return new Text(left.toString() + right.toString());
      if (sign === '+') {
        return new Text((isNothing(left) ? '' : left.toString()) + (isNothing(right) ? '' : right.toString()));
      }
      if (sign === '*' && (left instanceof Integer || right instanceof Integer)) {
        const [text, n] = isText(left) ? [left, right] : [right, left];
        counting.charge(text.value.length * Math.max(0, n.value));
        return new Text(text.value.repeat(Math.max(0, n.value)));
      }
      if (isText(left) && isText(right) && sign in ORDERS) return new Bool(ORDERS[sign](compare(left, right)));
    } else if (sign === '~') {
      return new Text(left.toString() + right.toString());
    } else if (sign === '%' && left instanceof Integer && right instanceof Integer && right.value !== 0) {
      return new Integer(left.value - right.value * Math.floor(left.value / right.value));   // as Python's
    }
    return super.evaluateBinaryExpression(
      { ...node, left: { type: 'Given', value: left }, right: { type: 'Given', value: right } }, scope);
  }

  /** @param {Value} operand @param {Node} node @param {any} scope */
  applyFilter(operand, node, scope) {
    const isCall = node.type === 'CallExpression', written = String(isCall ? node.callee.value : node.value);
    const name = Object.hasOwn(ALIASES, written) ? ALIASES[written] : written;
    note(operand, name, name === 'tojson' || name === 'string');
    if (operand instanceof Undefined) {
      if (EMPTY_LISTS.has(name)) return new List([]);
      if (OF_TEXT.has(name) || name === 'join' || name === 'string') return new Text('');
      if (name === 'length') return new Integer(0);
      if (name === 'first' || name === 'last' || name === 'min' || name === 'max') return operand;
    }
    if (operand instanceof None && EMPTY_LISTS.has(name)) return new List([]);
    if (name === 'string') return new Text(operand.toString());
    if (name === 'list' && operand instanceof Dict) return operand.keys();
    if (OF_TEXT.has(name) && !isText(operand)) operand = new Text(operand.toString());
    const own = isList(operand) && Object.hasOwn(LIST_FILTERS, name) ? LIST_FILTERS[name] : undefined;
    if (own || name === 'dictsort' || name === 'map') {
      const [args, named] = isCall ? this.evaluateArguments(node.args, scope) : [[], new Map()];
      if (own) return own(operand, args, named);
      if (name === 'dictsort' && operand instanceof Dict) return dictsort(operand, args, named);
      if (name === 'map' && isList(operand) && isText(args[0])) {   // the name of a filter
        const filter = { type: 'Identifier', value: args[0].value };
        return new List(operand.value.map((/** @type {Value} */ item) => this.applyFilter(item, filter, scope)));
      }
    }
    if (name === 'capitalize') return new Text(capitalized(operand.value));
    if (name === 'title') {   // words begin behind white space, - and brackets
      return new Text(operand.value.replaceAll(/[^-\s({[<]+/g, capitalized));
    }
    if (name === 'trim' && isCall) {
      const [args] = this.evaluateArguments(node.args, scope);
      return METHODS[0][1].strip(operand.value, args);
    }
    return super.applyFilter(operand,
      isCall ? { ...node, callee: { ...node.callee, value: name } } : { ...node, value: name }, scope);
  }

  /** @param {Node} node @param {any} scope */
  evaluateMemberExpression(node, scope) {
    const object = this.evaluate(node.object, scope);
    if (object instanceof Callable) throw new Error(`${named(node.object)} is a function: it has no properties`);
    note(object, node.computed ? 'object_access' : String(node.property.value));
    if (object instanceof Dict && !node.computed && FIRST.has(node.property.value)) {
      return object.builtins.get(node.property.value);
    }
    if (node.computed && node.property.type !== 'SliceExpression') {
      const key = this.evaluate(node.property, scope);
      if (key instanceof Undefined) return key;
      if (key instanceof Integer) note(object, 'array_access');
      if (object instanceof Dict && key instanceof Integer) return object.value.get(key.value) ?? undefinedValue;
      node = { ...node, property: { type: 'Given', value: key } };
    }
    const value = super.evaluateMemberExpression({ ...node, object: { type: 'Given', value: object } }, scope);
    note(value);
    return value;
  }

  /** @param {Node} node @param {any} scope */
  evaluateTestExpression(node, scope) {
    const operand = this.evaluate(node.operand, scope);
    note(operand, `test_is_${node.test.value}`);
    return super.evaluateTestExpression({ ...node, operand: { type: 'Given', value: operand } }, scope);
  }

  /** @param {Node} node @param {any} scope */
  evaluateCallExpression(node, scope) {
    const called = this.evaluate(node.callee, scope);
    if (!(called instanceof Callable)) throw new Error(`${named(node.callee)}() is not a function that plumb knows`);
    return super.evaluateCallExpression({ ...node, callee: { type: 'Given', value: called } }, scope);
  }

  /** Each iteration has a scope of its own: it does not see the variables of the one before.
   * @param {Node} node @param {any} scope */
  evaluateFor(node, scope) {
    const { iterable, loopvar, body, defaultBlock } = node, selects = iterable.type === 'SelectExpression';
    const value = this.evaluate(selects ? iterable.lhs : iterable, scope);
    note(value, 'array_access');
    const inScope = (/** @type {Value} */ item) => {
      const inner = /** @type {any} */ (new Environment(scope));
      assign(inner, loopvar, item);
      return inner;
    };
    const items = [];
    const all = itemsOf(value, loopvar.type === 'TupleLiteral');
    for (let i = 0; i < all.length; i++) {   // the condition may make the list longer
      if (!selects || truth(this.evaluate(iterable.test, inScope(all[i])))) items.push(all[i]);
    }
    let text = '', isComplete = false;
    for (const [i, item] of items.entries()) {
      const inner = inScope(item);
      inner.setVariable('loop', loopVariable(items, i));
      try {
        text += this.evaluateBlock(body, inner).value;
        isComplete = true;
      } catch (error) {
        if (!(error instanceof Jump)) throw error;
        text += error.text;
        if (error.ends) break;
      }
    }
    // As in Jinja 2, else also follows a loop whose iterations all ended early.
    if (!isComplete) text += this.evaluateBlock(defaultBlock, new Environment(scope)).value;
    return new Text(text);
  }

  /** What a block has printed before break or continue stays.
   * @param {Node[]} nodes @param {any} scope */
  evaluateBlock(nodes, scope) {
    let text = '';
    for (const node of nodes) {
      try {
        const value = this.evaluate(node, scope);
        if (!SILENT.has(node.type)) text += value.toString();
      } catch (error) {
        if (error instanceof Jump) error.text = text + error.text;
        throw error;
      }
    }
    return new Text(text);
  }

  /** A macro sees the variables of the place where it is defined.
   * @param {Node} node @param {any} scope */
  evaluateMacro(node, scope) {
    const none = super.evaluateMacro(node, scope);
    const macro = scope.variables.get(node.name.value), { value: call } = macro;
    macro.value = (/** @type {Value[]} */ args, /** @type {any} */ at) => {
      const caller = at.variables.get('caller'), around = /** @type {any} */ (new Environment(scope));
      if (caller) around.setVariable('caller', caller);
      return call(args, around);
    };
    return none;
  }

  /** @param {Node} node @param {any} scope */
  evaluateFilterStatement(node, scope) {
    return super.evaluateFilterStatement(node, new Environment(scope));
  }

  /** @param {Node} node @param {any} scope */
  evaluateSet(node, scope) {
    if (node.value) return super.evaluateSet(node, scope);
    const value = this.evaluateBlock(node.body, new Environment(scope));
    return super.evaluateSet({ ...node, value: { type: 'Given', value } }, scope);
  }
}

/** Statements that print nothing. */
const SILENT = new Set(['Set', 'Macro', 'Comment']);

/** break or continue. */
class Jump extends Error {
  /** @param {boolean} ends  the loop */
  constructor(ends) {
    super(`${ends ? 'break' : 'continue'} outside of a loop`);
    this.ends = ends;
    /** What has been printed since the iteration began. */
    this.text = '';
  }
}

/** The items that a loop visits. @param {Value} value @param {boolean} pairs @returns {Value[]} */
function itemsOf(value, pairs) {
  if (value instanceof Undefined) return [];
  if (isText(value)) return [...value.value].map(character => new Text(character));
  if (value instanceof Dict) return (pairs ? value.items() : value.keys()).value;
  if (!isList(value)) throw new Error(`for: expected a list or an object, found ${value.type}`);
  return value.value;
}

/** Sets a variable, or several to the items of a list. @param {any} scope @param {Node} target @param {Value} value */
function assign(scope, target, value) {
  if (target.type === 'Identifier') return scope.setVariable(target.value, value);
  if (target.type !== 'TupleLiteral') throw new Error(`a loop cannot set ${target.type}`);
  const items = itemsOf(value, false);
  if (items.length !== target.value.length) {
    throw new Error(`${target.value.length} variables of a loop cannot be set to ${items.length} items`);
  }
  for (const [i, one] of target.value.entries()) assign(scope, one, items[i]);
}

/** The variable loop of an iteration. @param {Value[]} items @param {number} i */
function loopVariable(items, i) {
  const n = items.length;
  return new Dict(new Map(/** @type {[string, Value][]} */ ([
    ['index', new Integer(i + 1)], ['index0', new Integer(i)], ['revindex', new Integer(n - i)],
    ['revindex0', new Integer(n - i - 1)], ['first', new Bool(i === 0)], ['last', new Bool(i === n - 1)],
    ['length', new Integer(n)], ['previtem', items[i - 1] ?? undefinedValue],
    ['nextitem', items[i + 1] ?? undefinedValue], ['cycle', new Callable((/** @type {Value[]} */ args) => {
      if (args.length === 0) throw new Error('loop.cycle: expected at least one value');
      return args[i % args.length];
    })],
  ])));
}

/** An expression as it is written in the template, as far as it is names.
 * @param {Node} node  a value that is already known has the node it came from @returns {string} */
function named(node) {
  if (node.from) return named(node.from);
  if (node.type === 'Identifier') return node.value;
  if (node.type !== 'MemberExpression') return '(...)';
  return node.computed ? `${named(node.object)}[...]` : `${named(node.object)}.${node.property.value}`;
}
