/* Renders chat templates within bounds.  A template is a program by whoever made the file, and @huggingface/jinja, with
 * the dialect of dialect.js, runs it without any limit.  This module counts the interpreter's steps and its work.  Work
 * is the number of characters that are read or written; an element of a list counts as ELEMENT characters, because it
 * takes about as many bytes.  Everything that a template creates is written once, so the same count bounds the memory
 * that it takes.  The cost of an operation is counted before the operation runs.
 *
 * The counts depend only on the template and its variables, so every host refuses the same templates.  template.js
 * runs this module in a worker and adds a deadline. */
import { PlumbError } from '../base/errors.js';
import { Environment, Interpreter, Template } from '../dist/vendor/jinja/index.js';
import { formatTime } from './clock.js';
import {
  counting, Dialect, Dict, isList, isText, List, Namespace, note, Text, watched,
} from './dialect.js';
import { LIMITS, limitsFor } from './limits.js';

/** @typedef {{type: string, value: any, toString: () => string}} Value  a RuntimeValue of the library
 * @typedef {{type: string, [more: string]: any}} Node  of its syntax tree
 * @typedef {{parent?: Scope, variables: Map<string, Value>}} Scope
 * @typedef {(args: Value[], scope: Scope) => Value} Callable
 * @typedef {import('./limits.js').Limits} Limits */

/** Upper bounds: characters of a string, which is more than a context holds; characters of a template; numbers of a
 * range. */
const MAX_TEXT = 1 << 24, MAX_SOURCE = 1 << 20, MAX_RANGE = 1e4;
/** Upper bounds: nesting of expressions, statements and macro calls; nesting of values that are printed. */
const MAX_DEPTH = 250, MAX_NESTING = 100;
/** Upper bound on the characters of an error message. */
const MAX_MESSAGE = 500;

/* Costs, in characters.  LOOK: visiting a value.  ELEMENT: making one.  ITERATION: an iteration of a loop.  METHODS:
 * the methods of a value, which the library makes anew for each value.  JUMP: break and continue, which are
 * exceptions. */
const LOOK = 8, ELEMENT = 64, ITERATION = 256, METHODS = 512, JUMP = 512;

/** Counts of the current render.  Rendering is synchronous, so there is only one. */
let limits = LIMITS, steps = 0, work = 0, depth = 0;

/** Counts work, and throws if the render takes too much. @param {number} n */
function charge(n) {
  work += n;
  if (!(work <= limits.work)) throw new Error(`it processes more than ${limits.work} characters`);   // also if NaN
}

const lengthOf = (/** @type {Value | undefined} */ value) => isText(value) ? value?.value.length : 0;
/** The value as a number of characters; 0 if it is not a positive number, which the library refuses. */
const countOf = (/** @type {Value | undefined} */ value, /** @type {number} */ otherwise) =>
  value === undefined ? otherwise : typeof value.value === 'number' && value.value > 0 ? value.value : 0;
const sum = (/** @type {number[]} */ numbers) => numbers.reduce((total, n) => total + n, 0);

/** Counts the characters of a value that is printed.  A value that occurs twice in it is counted twice.
 * @param {Value} value
 * @param {{each?: number, indent?: number, escaped?: number, sorted?: boolean}} [how]  each: characters between two
 *   elements; indent: characters of one level of indentation; escaped: the cost of one character of a string;
 *   sorted: whether the names of properties are sorted
 * @param {number} [level] */
function chargePrint(value, how = {}, level = 0) {
  const { each = 4, indent = 0, escaped = 1, sorted = false } = how, { value: inner } = value;
  if (level > MAX_NESTING) throw new Error(`it prints values that are nested more than ${MAX_NESTING} levels deep`);
  charge(LOOK);
  const one = LOOK + each + indent * (level + 1);
  if (typeof inner === 'string') charge(escaped * inner.length);
  else if (Array.isArray(inner)) {
    for (const item of inner) {
      charge(one);
      chargePrint(item, how, level + 1);
    }
  } else if (inner instanceof Map) {
    if (sorted) chargeSort(inner.keys(), inner.size);
    for (const [name, item] of inner) {
      charge(one + escaped * String(name).length);
      chargePrint(item, how, level + 1);
    }
  } else charge(typeof inner === 'function' ? 1 << 12 : 32);   // a function prints as its source text
}

/** Counts a sort, in which each comparison may read the longest key.
 * @param {Iterable<string | Value>} keys @param {number} n @param {number} [more]  the cost of finding a key */
function chargeSort(keys, n, more = 0) {
  let longest = 0;
  for (const key of keys) {
    const before = work;
    if (typeof key === 'string') charge(LOOK + key.length);
    else chargePrint(key);
    longest = Math.max(longest, work - before);
  }
  charge(n * Math.ceil(Math.log2(n + 1)) * (ELEMENT + 4 * longest + more));
}

/** Counts a search, which in the worst case takes the product of both lengths.
 * @param {string} text @param {string} pattern */
const chargeSearch = (text, pattern) =>
  charge(text.length + Math.max(0, text.length - pattern.length) * pattern.length);

/** Counts a search for all occurrences of a pattern, and a cost for each occurrence.
 * @param {string} text @param {string} pattern @param {number} cost */
function chargePlaces(text, pattern, cost) {
  chargeSearch(text, pattern);
  charge(cost);
  if (pattern === '') return charge(cost * text.length);
  for (let at = text.indexOf(pattern); at >= 0; at = text.indexOf(pattern, at + pattern.length)) charge(cost);
}

/** The number of nodes in the syntax tree of a node. @type {WeakMap<object, number>} */
const sizes = new WeakMap();

/** @param {Node} node */
function nodesOf(node) {
  let n = sizes.get(node) ?? 0;
  if (n > 0) return n;
  /** @type {any[]} */
  const open = [node];
  while (open.length > 0) {
    const next = open.pop();
    n++;
    if (typeof next !== 'object' || next === null) continue;
    for (const child of next instanceof Map ? [...next].flat() : Object.values(next)) open.push(child);
  }
  sizes.set(node, n);
  return n;
}

/** Strings known to be contiguous.  Engines store a concatenation as its parts until it is read.
 * @type {WeakSet<Value>} */
const flat = new WeakSet();

/** Counts the reading of one character, which makes the string contiguous. @param {Value} text */
function chargeFlat(text) {
  if (flat.has(text)) return;
  charge(text.value.length);
  flat.add(text);
}

// --- What filters and methods cost ----------------------------------------------------------------------------------

/** The costs of filters by name.  A filter that is not listed costs its operand once.
 * @type {Record<string, (operand: Value, args: Value[], named: Map<string, Value>, node: Node) => void>} */
const FILTERS = {
  safe() {},
  default() {},
  first() {},
  last() {},
  list() {},
  length() {},
  tojson(operand, _, named) {
    const separators = named.get('separators');
    chargePrint(operand, {
      each: isList(separators) ? sum(separators?.value.map(lengthOf)) : 4,
      indent: countOf(named.get('indent'), 0),
      escaped: named.get('ensure_ascii')?.value ? 24 : 6,
      sorted: Boolean(named.get('sort_keys')?.value),
    });
  },
  string: operand => chargePrint(operand, { escaped: 6 }),
  join(operand, args, named) {
    const each = 1 + lengthOf(args[0] ?? named.get('separator'));
    if (isText(operand)) charge(operand.value.length * (LOOK + each));
    else chargePrint(operand, { each });
  },
  sort(operand, args, named) {
    const path = args[2] ?? named.get('attribute');
    if (isList(operand)) chargeSort(operand.value, operand.value.length, LOOK * lengthOf(path));
  },
  unique(operand) {
    if (isList(operand)) for (const item of operand.value) charge(ELEMENT + lengthOf(item));
  },
  indent(operand, args, named) {
    const width = countOf(args[0] ?? named.get('width'), 4);
    if (isText(operand)) chargePlaces(operand.value, '\n', ELEMENT + width);
  },
  dictsort: (operand, args, named) => operand.value instanceof Map
    && MAP_METHODS.dictsort(operand.value, [...args, ...named.values()]),
  min: chargeEach,
  max: chargeEach,
  map(operand, _, named) {
    if (isList(operand)) charge(operand.value.length * (ELEMENT + LOOK * lengthOf(named.get('attribute'))));
  },
  select: chargeEach,
  reject: chargeEach,
  selectattr: chargeEach,
  rejectattr: chargeEach,
};

/** Counts the visit of each item, and the reading of all arguments for it. @type {typeof FILTERS[string]} */
function chargeEach(operand, args) {
  if (!isList(operand)) return;
  const each = ELEMENT + sum(args.map(lengthOf));
  for (const item of operand.value) charge(each + lengthOf(item));
}

/** The costs of string methods by name.  A method that is not listed costs the text once.
 * @type {Record<string, (text: string, args: Value[]) => void>} */
const TEXT_METHODS = {
  title: text => charge(16 * text.length),
  split(text, [separator]) {
    if (isText(separator)) return chargePlaces(text, separator.value, ELEMENT);
    charge(text.length);
    for (const _ of text.matchAll(/\S+/g)) charge(ELEMENT);
  },
  replace(text, [old, by]) {
    if (!isText(old) || !isText(by)) return;   // the library refuses it
    charge(ELEMENT * old.value.length);
    chargePlaces(text, old.value, ELEMENT + by.value.length);
  },
  rsplit: (text, args) => TEXT_METHODS.split(text, args),
  startswith: chargeAffix,
  endswith: chargeAffix,
};

/** @type {typeof TEXT_METHODS[string]} */
function chargeAffix(text, [affix]) {
  for (const one of isList(affix) ? affix.value : [affix]) charge(ELEMENT + Math.min(text.length, lengthOf(one)));
}

/** The costs of object methods by name.  A method that is not listed costs ELEMENT.
 * @type {Record<string, (map: Map<string, Value>, args: Value[]) => void>} */
const MAP_METHODS = {
  get: (_, [name]) => charge(LOOK + lengthOf(name)),
  dictsort(map, args) {
    charge(ITERATION * map.size);
    // Whether it sorts by key or by value is an argument.  Keyword arguments are in a Map.
    const values = args.flatMap(({ value }) => value instanceof Map ? [...value.values()] : []).concat(args);
    chargeSort(values.some(({ value }) => value === 'value') ? map.values() : map.keys(), map.size);
  },
  items: map => charge(ITERATION * map.size),
  keys: map => charge(ITERATION * map.size),
  values: map => charge(ITERATION * map.size),
};

/** Makes the methods of a type count their cost.
 * @param {any} type  a class of the library
 * @param {(self: any, name: string, args: Value[]) => void} count */
function countMethods(type, count) {
  const made = new WeakMap();
  const { get } = /** @type {{get: () => Map<string, Value>}} */ (
    Object.getOwnPropertyDescriptor(type.prototype, 'builtins'));
  Object.defineProperty(type.prototype, 'builtins', {
    get() {
      let methods = made.get(this);
      if (methods) return methods;
      charge(METHODS);
      methods = get.call(this);
      made.set(this, methods);
      for (const [name, method] of methods) {
        if (method.type !== 'FunctionValue') continue;
        const call = /** @type {Callable} */ (method.value);
        method.value = (/** @type {Value[]} */ args, /** @type {Scope} */ scope) => {
          count(this.value, name, args);
          return call(args, scope);
        };
      }
      return methods;
    },
  });
}

/** Makes a type's toString count its cost. @param {any} type */
function countPrinting(type) {
  const { toString } = type.prototype;
  type.prototype.toString = function () {
    chargePrint(this, { escaped: 6 });
    return toString.call(this);
  };
}

// --- The interpreter that counts ------------------------------------------------------------------------------------

/** A node whose value is already known. */
const given = (/** @type {Value} */ value) => ({ type: 'Given', value });

const Base = /** @type {any} */ (Dialect), Scoped = /** @type {any} */ (Environment);

/** The library's methods evaluate operands and compute with them.  The methods whose computation costs are overridden:
 * they evaluate the operands, count, and pass the values to the library's method. */
class Counting extends Base {
  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluate(node, scope) {
    if (node?.type === 'Given') return node.value;
    if (node?.type === 'Body') {
      depth = node.depth;   // restores it after an exception, too
      return super.evaluateBlock(node.body, scope);
    }
    if (++steps > limits.steps) throw new Error(`it takes more than ${limits.steps} steps`);
    const before = depth;
    if (++depth > MAX_DEPTH) throw new Error(`it is nested more than ${MAX_DEPTH} levels deep`);
    if (node?.type === 'Break' || node?.type === 'Continue') charge(JUMP + ELEMENT * depth);
    const result = super.evaluate(node, scope);
    if (typeof result?.value === 'string' && result.value.length > MAX_TEXT) {
      throw new Error(`it produces a text of more than ${MAX_TEXT} characters`);
    }
    depth = before;
    return result;
  }

  /** Avoids the exception that the library throws and catches for each missing variable.
   * @param {Node} node @param {Scope} scope */
  evaluateIdentifier(node, scope) {
    for (let at = /** @type {Scope | undefined} */ (scope); at; at = at.parent) {
      charge(LOOK);
      if (!at.variables.has(node.value)) continue;
      const value = /** @type {Value} */ (at.variables.get(node.value));
      note(value);
      return value;
    }
    return super.evaluate(undefined, scope);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateBinaryExpression(node, scope) {
    const { operator } = node, name = operator.value;
    if (name === 'and' || name === 'or') return super.evaluateBinaryExpression(node, scope);
    const left = this.evaluate(node.left, scope), right = this.evaluate(node.right, scope);
    for (const one of [left, right]) {
      // A list is printed by ~, and beside a text.  Adding two lists takes time linear in their lengths.
      if (isList(one) && (name === '~' || !isList(left) || !isList(right))) chargePrint(one);
      else charge(isList(one) ? LOOK * one.value.length : LOOK);
    }
    if (name !== '+' && name !== '~') charge(lengthOf(left) + lengthOf(right));
    if (isList(right)) for (const item of right.value) charge(LOOK + Math.min(lengthOf(item), lengthOf(left)));
    else if (isText(left) && isText(right) && /in$/.test(name)) chargeSearch(right.value, left.value);
    return super.evaluateBinaryExpression({ operator, left: given(left), right: given(right) }, scope);
  }

  /** @param {Node[]} nodes @param {Scope} scope @returns {[Value[], Map<string, Value>]} */
  evaluateArguments(nodes, scope) {
    const [args, named] = super.evaluateArguments(nodes, scope);
    charge(LOOK * args.length + ELEMENT * named.size);   // includes those of *list and **object
    return [args, named];
  }

  /** @param {Value} operand @param {Node} node @param {Scope} scope */
  applyFilter(operand, node, scope) {
    const isCall = node.type === 'CallExpression', name = String(isCall ? node.callee.value : node.value);
    /** @type {[Value[], Map<string, Value>]} */
    const [args, named] = isCall ? this.evaluateArguments(node.args, scope) : [[], new Map()];
    if (Object.hasOwn(FILTERS, name)) FILTERS[name](operand, args, named, node);
    if (isText(operand) && !Object.hasOwn(FILTERS, name)) charge(operand.value.length);
    if (isList(operand)) charge(LOOK * operand.value.length);
    if (operand.value instanceof Map) charge(LOOK * operand.value.size);
    if (name === 'items' && operand.value instanceof Map) charge(ITERATION * operand.value.size);
    if (!isCall) return super.applyFilter(operand, node, scope);
    const keywords = Array.from(named, ([key, value]) =>
      ({ type: 'KeywordArgumentExpression', key: { value: key }, value: given(value) }));
    return super.applyFilter(operand, { ...node, args: [...args.map(given), ...keywords] }, scope);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateTestExpression(node, scope) {
    const operand = this.evaluate(node.operand, scope);
    charge(lengthOf(operand));
    return super.evaluateTestExpression({ ...node, operand: given(operand) }, scope);
  }

  /** @param {Value} object @param {Node} node @param {Scope} scope */
  evaluateSliceExpression(object, node, scope) {
    charge(LOOK * (isList(object) ? object.value.length : lengthOf(object)));
    return super.evaluateSliceExpression(object, node, scope);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateMemberExpression(node, scope) {
    const object = this.evaluate(node.object, scope);
    if (isText(object) && (node.computed || node.property.type === 'IntegerLiteral')) chargeFlat(object);
    return super.evaluateMemberExpression({ ...node, object: { ...given(object), from: node.object } }, scope);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateSet(node, scope) {
    if (node.assignee.type === 'TupleLiteral') charge(ELEMENT * node.assignee.value.length);
    return super.evaluateSet(node, scope);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateFor(node, scope) {
    const { iterable, loopvar } = node, selects = iterable.type === 'SelectExpression';
    const value = this.evaluate(selects ? iterable.lhs : iterable, new Scoped(scope));
    const n = isList(value) ? value.value.length : value.value instanceof Map ? 2 * value.value.size : 0;
    charge(n * (ITERATION + ELEMENT * (loopvar.type === 'TupleLiteral' ? loopvar.value.length : 1)));
    const known = selects ? { ...iterable, lhs: given(value) } : given(value);
    const body = [{ type: 'Body', body: node.body, depth }], defaultBlock = [{ ...body[0], body: node.defaultBlock }];
    return super.evaluateFor({ ...node, iterable: known, body, defaultBlock }, scope);
  }

  /** Counts a macro or a call block: the library searches the syntax tree for the names of its arguments.
   * @param {Node} node @param {Scope} scope */
  evaluateMacro(node, scope) {
    charge(LOOK * nodesOf(node));
    return super.evaluateMacro(node, scope);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateCallStatement(node, scope) {
    charge(LOOK * nodesOf(node));
    return super.evaluateCallStatement(node, scope);
  }

  /** @param {string} name @param {Node[]} parameters @param {any} special @param {Value[]} args @param {Scope} scope */
  bindMacroArguments(name, parameters, special, args, scope) {
    charge(ELEMENT * (1 + parameters.length + args.length));
    return super.bindMacroArguments(name, parameters, special, args, scope);
  }
}

/** The same class without a type, because its base has none. @type {any} */
const Interpreting = Counting;

/** The variables of a watched render, before the template assigns others. @type {Map<string, Value>} */
let variablesAtStart = new Map();

/** Installs the counts in the library, once. */
function install() {
  Object.assign(counting, { charge, search: chargeSearch });
  countMethods(Text, (self, name, args) =>
    Object.hasOwn(TEXT_METHODS, name) ? TEXT_METHODS[name](self, args) : charge(self.length));
  countMethods(Dict, (self, name, args) =>
    Object.hasOwn(MAP_METHODS, name) ? MAP_METHODS[name](self, args) : charge(ELEMENT));
  for (const type of [List, Dict, Namespace]) countPrinting(type);

  Interpreter.prototype.run = function (/** @type {Node} */ program) {
    if (watched.reads) variablesAtStart = new Map(this.global.variables);
    return new Interpreting(this.global).evaluate(program, this.global);
  };
  const { set } = Scoped.prototype;
  /** @type {Record<string, (...args: any[]) => void>} */
  const globals = {
    range(start, stop, step) {
      const n = Math.abs((stop === undefined ? start : stop - start) / (step ?? 1));
      if (n > MAX_RANGE) throw new Error(`it makes a range of more than ${MAX_RANGE} numbers`);
      if (!(n >= 0)) throw new Error('it makes a range whose bounds are not numbers');
      charge(ELEMENT * n);
    },
    strftime_now: format => charge(ITERATION + ELEMENT * String(format).length),
  };
  Scoped.prototype.set = function (/** @type {string} */ name, /** @type {any} */ value) {
    const count = Object.hasOwn(globals, name) && typeof value === 'function' ? globals[name] : undefined;
    // The library's own takes the names of months from the language of the host.
    if (count && name === 'strftime_now') value = (/** @type {unknown} */ format) => formatTime(format, new Date());
    return set.call(this, name, count ? (/** @type {any[]} */ ...args) => {
      count(...args);
      return value(...args);
    } : value);
  };
}
install();

// --- Parsing and rendering ------------------------------------------------------------------------------------------

/** Templates already parsed, the most recently used last.  A model has one. @type {Map<string, Template>} */
const parsed = new Map();
const MAX_PARSED = 4;

/** @param {string} text  of a template, perhaps with line ends of another system */
function parse(text) {
  const source = text.replace(/\r\n?/g, '\n');
  if (source.length > MAX_SOURCE) throw new Error(`it has ${source.length} characters; the limit is ${MAX_SOURCE}`);
  // A regular expression of the library's lexer tries each start of a run of white space with each of its ends, and
  // with those of the runs after it.
  let white = 0, longest = 0;
  for (const [run] of source.matchAll(/\s+/g)) {
    white += run.length;
    longest = Math.max(longest, run.length);
  }
  charge(source.length + 3 * white * longest);
  const template = parsed.get(source) ?? new Template(source);
  parsed.delete(source);
  parsed.set(source, template);
  for (const oldest of parsed.keys()) if (parsed.size > MAX_PARSED) parsed.delete(oldest);
  return template;
}

/** Renders a template.  PLUMB_ERROR_TEMPLATE if it fails or takes too much.
 * @param {string} source  tokenizer.chat_template
 * @param {Record<string, any>} variables
 * @param {Limits} [bounds]  other limits than those of limits.js, for tests
 * @returns {string} */
export function renderBounded(source, variables, bounds = limitsFor(variables)) {
  limits = bounds;
  steps = work = depth = 0;
  try {
    return parse(source).render(variables);
  } catch (error) {
    throw new PlumbError('PLUMB_ERROR_TEMPLATE', `tokenizer.chat_template: ${sentence(error)}`);
  }
}

/** The bounds of a render that only finds out what a template can do. @type {Limits} */
const PROBE = { steps: 3e4, work: 1 << 22 };

/** Renders a template and tells what it reads of its variables.
 * @param {string} source @param {Record<string, any>} variables */
export function probe(source, variables) {
  const reads = watched.reads = new Map();
  variablesAtStart = new Map();
  let output = '', ok = true;
  try {
    output = renderBounded(source, variables, PROBE);
  } catch {
    ok = false;
  } finally {
    watched.reads = undefined;
  }
  return {
    ok, output,
    /** The value at the end of a path of names and numbers. @param {string} name @param {(string | number)[]} path */
    at: (name, ...path) => path.reduce((value, step) =>
      value?.value instanceof Map ? value.value.get(step) : value?.value?.[step], variablesAtStart.get(name)),
    used: (/** @type {any} */ value) => reads.has(value),
    has: (/** @type {any} */ value, /** @type {string} */ action) => reads.get(value)?.has(action) === true,
  };
}

/** The counts of the last render. @returns {Limits} */
export const counted = () => ({ steps, work });

/** @param {unknown} error */
function sentence(error) {
  const { name, message } = error instanceof Error ? error : { name: '', message: String(error) };
  // Engines report it differently: V8 and WebKit throw a RangeError, Firefox throws an InternalError.
  if (/call stack|recursion/.test(message)) return 'it is nested too deeply';
  if (name === 'RangeError' && /string/.test(message)) return `it produces a text of more than ${MAX_TEXT} characters`;
  return message.length <= MAX_MESSAGE ? message : `${message.slice(0, MAX_MESSAGE)}...`;
}
