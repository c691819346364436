/* Grammars of answers that may call tools: what stands between the texts of a format (formats.js) is bound to the
 * tools' JSON Schemas.
 *
 *   auto       free text, in which a text that begins a call is followed by one
 *   required   reasoning, if the format has it, and then calls
 *
 * Free text is itself a regular language: the texts that do not contain the beginning of a call.  So the grammar needs
 * no state beside it.  Control tokens are matched by their ids, everything else by its text.
 *
 * A keyword of a schema that cannot be kept is left out with a warning, or is an error if the tool has strict: true. */
import { PlumbError } from '../base/errors.js';
import { branchesOf, typesOf } from './answer.js';
import { begunIn, CHANNEL, MINIMAX, opensOf, PLACEHOLDER } from './formats.js';
import { either, escaped, isPlain, literal, quoted, without } from './gbnf.js';

/** @typedef {import('./messages.js').Tool} Tool
 * @typedef {import('./formats.js').Format} Format
 * @typedef {import('../engine/engine.js').Grammar} Grammar
 * @typedef {NonNullable<Grammar['rules']>[number]} Rule */
/** @typedef {object} CallOptions
 * @property {boolean} [required]  the answer is calls
 * @property {boolean} [parallel]  several calls; default true
 * @property {string} [prompt]  how the prompt ends, because it may open the reasoning
 * @property {import('./gbnf.js').Controls} [controls]  the control tokens in the format's texts */
/** How a format writes members and lists, by the field of its pattern that has the arguments.
 * @typedef {object} Syntax
 * @property {string} [open] @property {string} [separator] @property {string} [close]  around and between members
 * @property {string} [pair]  the pattern of a member; default: the format's
 * @property {[string, string]} [quotes]  around a text, which ends at the second of them
 * @property {Record<string, string>} [words]  GBNF of further texts of values, by their types
 * @property {boolean} [isJson]  values are JSON
 * @property {[string, string, string]} [list]  what opens, separates and closes a list
 * @property {string} [item]  the pattern of an element, which may be an element's value alone */

/** Flags of a schema (wasm/grammar.c): unknown keywords are ignored; members in any order; any white space; objects
 * with `properties`, even if these are empty, have no others. */
const LENIENT = 1, ANY_ORDER = 2, FREE_SPACE = 8, CLOSED = 16;
/** The most members of an object that may come in any order: in JSON, and in other syntaxes. */
const FREE_JSON = 8, FREE_MEMBERS = 7;
/** The largest minItems and maxItems in a syntax other than JSON. */
const MAX_ITEMS = 10000;
const WORDS = { boolean: '("True" | "False")', null: '"None"' };
/** @type {Record<string, Syntax>} */
const SYNTAXES = {
  args: { isJson: true },
  python: { separator: ',', pair: '{key}={value}', isJson: true, words: WORDS },
  gemma: {
    open: '{', separator: ',', close: '}', pair: '{key}:{value}', quotes: ['<|"|>', '<|"|>'], list: ['[', ',', ']'],
    item: '{value}',
  },
  nested: {
    pair: `${MINIMAX}<{key}>{value}${MINIMAX}</{key}>`, quotes: ['', MINIMAX], list: ['', '', ''],
    item: `${MINIMAX}<item>{value}${MINIMAX}</item>`,
  },
};
/** Keywords that do not restrict values. */
const NOTES = ['title', 'description', 'default', 'examples', 'example', 'deprecated', 'readOnly', 'writeOnly',
  '$comment', '$schema', '$id', '$defs', 'definitions', 'nullable'];
/** Keywords of texts, which become a regular expression. */
const OF_TEXTS = ['type', 'enum', 'const', 'pattern', 'minLength', 'maxLength', ...NOTES];
const OF_OBJECTS = ['type', 'properties', 'required', 'additionalProperties', ...NOTES];
const OF_LISTS = ['type', 'items', 'minItems', 'maxItems', ...NOTES];
/** The keys of calls in JSON. */
const NAMES = '"\\"name\\"" | "\\"tool_name\\"" | "\\"function\\""';
const ARGUMENTS = '"\\"arguments\\"" | "\\"parameters\\""';
const ABOUT = '"\\"type\\"" ws ":" ws "\\"function\\"" | ("\\"id\\"" | "\\"tool_call_id\\"" | "\\"call_id\\"") ws ":" '
  + 'ws ("\\"" [-a-zA-Z0-9_:.]{0,64} "\\"" | "0" | [1-9] [0-9]{0,8})';

/** @param {Format} format @param {Tool[]} tools @param {CallOptions} [options]
 * @returns {{grammar: Grammar, warnings: string[]}} */
export function callGrammar(format, tools, options = {}) {
  const { think, ...rest } = format;
  // A required call comes behind reasoning only if the template knows it; other models would not end it.
  const mayReason = think && (!options.required || format.named.includes(think.start));
  const writer = new CallGrammar(mayReason ? format : rest, tools, options);
  return { grammar: writer.grammar(), warnings: writer.warnings };
}

class CallGrammar {
  #format;
  #tools;
  #required;
  #parallel;
  #prompt;
  #controls;
  /** @type {Rule[]} */
  #rules = [];
  /** GBNF, by the names of the rules. @type {Map<string, string>} */
  #gbnf = new Map();
  /** Names of rules, by what they are. @type {Map<string, string>} */
  #names = new Map();
  /** @type {string[]} */
  warnings = [];
  /** The tool whose arguments are written. */
  #tool = 0;

  /** @param {Format} format @param {Tool[]} tools @param {CallOptions} options */
  constructor(format, tools, { required = false, parallel = true, prompt = '', controls = new Map() }) {
    this.#format = format;
    this.#tools = tools;
    this.#required = required;
    this.#parallel = parallel;
    this.#prompt = prompt;
    this.#controls = controls;
  }

  /** @returns {Grammar} */
  grammar() {
    this.#gbnf.set('ws', '[ \\t\\r\\n]{0,12}');
    this.#gbnf.set('root', this.#format.channels ? this.#channels() : this.#answer());
    const text = [...this.#gbnf].map(([name, rule]) => `${name} ::= ${rule}\n`).join('');
    return { language: 'gbnf', text, flags: 0, rules: this.#rules };
  }

  // ---- rules ----

  /** The name of a rule of GBNF. @param {string} gbnf */
  #rule(gbnf) {
    const known = this.#names.get(gbnf), name = known ?? `g-${this.#names.size}`;
    this.#names.set(gbnf, name);
    this.#gbnf.set(name, gbnf);
    return name;
  }

  /** The name of a rule that is written in another language.
   * @param {Omit<Rule, 'name'>} rule */
  #define(rule) {
    const key = JSON.stringify(rule), known = this.#names.get(key);
    if (known) return known;
    const name = `tool${this.#tool}x${this.#names.size}`;
    this.#names.set(key, name);
    this.#rules.push({ name, ...rule });
    return name;
  }

  /** @param {string} text */
  #regex(text) { return this.#define({ language: 'regex', text, flags: 0 }); }

  /** What messages call a place in the schema of the tool. @param {string} pointer */
  #label(pointer) { return `tool ${this.#tools[this.#tool].function.name}${pointer}`; }

  /** One of some texts, of which there may be many thousands. @param {string[]} texts @param {string} pointer */
  #oneOf(texts, pointer) {
    const text = texts.map(escaped).join('|');
    return this.#define({ language: 'regex', text, flags: 0, label: this.#label(pointer) });
  }

  /** A text of the format. @param {string} text */
  #literal(text) { return literal(text, this.#controls); }

  /** Texts without any of some marks. @param {string[]} marks @param {string} [more]  lookaheads */
  #until(marks, more) { return this.#regex(without(marks, this.#controls, more)); }

  // ---- the answer ----

  #answer() {
    const { think, marks = [], call = '' } = this.#format;
    const begins = opensOf(this.#format).filter(open => open.length > 1);
    const begun = begunIn(this.#format, this.#prompt), opened = think && begun === think.start;
    const ends = think?.ends.filter(end => !begins.includes(end)) ?? [];
    const skipped = [...marks, ...think ? [think.start, ...ends] : []].filter(mark => !begins.includes(mark));
    // What opens reasoning is no mark beside calls, or a call would be part of the reasoning.
    const beside = skipped.filter(text => text !== think?.start);
    const texts = (/** @type {string[]} */ all) => either(all.map(text => this.#literal(text)));
    const calls = this.#rule(this.#calls()), mark = texts(skipped);
    const body = think && this.#until(think.ends), end = texts(ends);
    const open = think && `${this.#literal(think.start)} ${body}`;
    const around = beside.length > 0 ? `ws (${texts(beside)} ws)*` : 'ws';
    const again = this.#parallel ? ` (${around} ${calls})* ${around}` : ` ${around}`;
    const first = begun && call.startsWith(begun) ? this.#rule(this.#calls(begun)) : '';
    if (this.#required) {
      if (first) return `(${first} | ${quoted('all\n')} ${this.#until(begins)} ${calls})${again}`;
      const close = think && think.ends.length > ends.length ? `(${end})?` : end;   // a call may end it
      const before = !think ? '' : opened ? `${body} ${close} ` : `gap (${open} ${close} | ${end})? `;
      // A model that would rather write something else must not write white space or marks instead.
      this.#gbnf.set('gap', '[ \\t\\r\\n]{0,2}');
      return `${before}gap ${beside.length > 0 ? `(${texts(beside)} gap){0,2} ` : ''}${calls}${again}`;
    }
    const plain = this.#until(begins);
    const isMarked = skipped.some(text => !isPlain(text, this.#controls));
    const free = isMarked ? this.#rule(`${plain} (${mark} ${plain})*`) : plain;
    const more = this.#parallel ? `(${calls} ${free})*` : `(${calls} ${around})?`;
    const bare = this.#bare(begins);
    const text = bare.free === plain ? `${free} ${more}` : free === plain ? `(${bare.free} ${more} | ${bare.calls})`
      : `(${bare.free} (${mark} ${plain})* ${more} | ${bare.calls})`;
    if (first) return `${first} ${free} ${more} | ${quoted('all\n')} ${free} ${more}`;
    if (!think) return text;
    return opened ? `${body} (${end} ${text} | ${more})` : `ws ${open} (${end} ${text} | ${more}) | ${text}`;
  }

  /** What an answer without the format's tags may be: a call in JSON, or text that does not begin as one.
   * @param {string[]} begins */
  #bare(begins) {
    const names = this.#tools.map(tool => escaped(JSON.stringify(tool.function.name)));
    const name = `"(?:name|tool_name|function)"\\s*:\\s*(?:${names.join('|')})`;
    // Where JSON alone is the format, the name need not come first.
    const begin = `\\s*(?:\`\`\`\\w*\\s*)?(?:\\[\\s*)?\\{{1,2}${this.#format.first ? '[^]*' : '\\s*'}${name}`;
    const one = this.#jsonCall(false), calls = `(${one} | "{" ${one} "}" | ${this.#listed(one)})`;
    return {
      free: this.#until(begins, `(?!${begin})`),
      calls: this.#rule(`ws (${calls} | "\`\`\`" "json"? ws ${calls} ws "\`\`\`") ws`),
    };
  }

  /** All calls of a section, or one after the other. @param {string} [begun]  what the prompt has of the first */
  #calls(begun = '') {
    const { section, call = '', opens = [] } = this.#format;
    const one = this.#call(call.slice(begun.length));
    const several = this.#parallel && section ? `${one} (ws ${one})*` : one;
    if (!section) return one;
    const start = `${this.#literal(section[0])} ws`, end = `ws ${this.#literal(section[1])}`;
    const mayLack = opens.some(open => call.startsWith(open));
    return mayLack ? `(${start})? ${several} (${end})?` : `${start} ${several} ${end}`;
  }

  /** @param {string} pattern */
  #call(pattern) {
    if (/\{(call|python)\}/.test(pattern)) return this.#pattern(pattern);
    return this.#rule(either(this.#tools.map((_, i) => {
      this.#tool = i;
      return this.#pattern(pattern);
    })));
  }

  /** GBNF of a pattern (formats.js), for the tool that is being written.
   * @param {string} pattern @param {Record<string, string>} [fields]  what is known of its fields */
  #pattern(pattern, fields = {}) {
    const parts = pattern.split(PLACEHOLDER), exact = /^(?:name|function|id:.*|key|type|value)$/;
    /** @type {string[]} */
    const gbnf = [];
    for (let i = 0; i < parts.length; i++) {
      if (i % 2 === 1) {
        gbnf.push(fields[parts[i]] ?? this.#field(parts[i]));
        continue;
      }
      const before = parts[i - 1] ?? 'value', behind = parts[i + 1] ?? 'value';
      let text = parts[i];
      if (!exact.test(before) || parts[i] === '' && i > 0 && !exact.test(behind)) gbnf.push('ws');
      const begin = before === 'value' ? /^\n/.exec(text)?.[0] ?? '' : '';
      const end = behind === 'value' && text.length > begin.length ? /\n$/.exec(text)?.[0] ?? '' : '';
      text = text.slice(begin.length, text.length - end.length);
      if (begin && i > 0) gbnf.push('"\\n"');
      const lines = text.split('\n').map(line => line.trim());
      if (text !== '') gbnf.push(lines.map(line => line && this.#literal(line)).join(' ws ').trim());
      if (end && i < parts.length - 1) gbnf.push('"\\n"');
      if (!exact.test(behind) && text !== '') gbnf.push('ws');
    }
    return gbnf.join(' ');
  }

  /** @param {string} field @returns {string} */
  #field(field) {
    const { name } = this.#tools[this.#tool].function;
    if (field === 'name') return quoted(name);
    if (field === 'function') return `${quoted(`functions.${name}:`)} [0-9]{1,4}`;
    if (field.startsWith('id:')) return `(${this.#literal(field.slice(3))} [-a-zA-Z0-9_]{1,64})?`;
    if (field === 'call') return this.#jsonCalls();
    if (field === 'python') return this.#pythonCalls();
    if (field === 'json') return this.#json(this.#parameters, '');
    return this.#members(this.#parameters, SYNTAXES[field], '');
  }

  /** One of something, or a list in brackets. @param {string} one */
  #listed(one) {
    const more = this.#parallel ? ` (ws "," ws ${one})*` : '';
    return `"[" ws ${one}${more} ws "]"`;
  }

  #jsonCalls() {
    const one = this.#jsonCall(true);
    return `(${one} | ${this.#listed(one)})`;
  }

  /** The name of the rule of a call. @param {boolean} isMarked  it stands between the format's tags */
  #jsonCall(isMarked) {
    const { keyed } = this.#format, about = `(${this.#rule(ABOUT)} ws "," ws){0,2}`;
    return this.#rule(either(this.#tools.map(({ function: { name } }, i) => {
      this.#tool = i;
      const args = this.#json(this.#parameters, ''), key = quoted(JSON.stringify(name));
      return keyed && isMarked ? `"{" ws ${key} ws ":" ws ${args} ws "}"`
        : `"{" ws ${isMarked ? about : ''} (${NAMES}) ws ":" ws ${key} ws "," ws ${about} (${ARGUMENTS}) ws ":" ws `
          + `${args} (ws "," ws ${this.#rule(ABOUT)})? ws "}"`;
    })));
  }

  #pythonCalls() {
    const one = this.#rule(either(this.#tools.map(({ function: { name } }, i) => {
      this.#tool = i;
      return `${quoted(name)} ws "(" ws ${this.#members(this.#parameters, SYNTAXES.python, '')} ws ")"`;
    })));
    return this.#listed(one);
  }

  // ---- answers that are messages with headers ----

  #channels() {
    const { channels, section, call, headers } = /** @type {Required<Format>} */ (this.#format);
    const message = this.#literal(CHANNEL.message), start = this.#literal(CHANNEL.start);
    const end = either(CHANNEL.ends.map(text => this.#literal(text))), body = this.#until(['<|']);
    const self = headers.text.filter(text => text.includes(channels.self)).map(text => this.#literal(text));
    const others = headers.text.map(text => this.#literal(text));
    const isSection = Array.isArray(section);
    const called = this.#rule(either(this.#tools.map((tool, i) => {
      this.#tool = i;
      const { name } = tool.function;
      const header = either(headers.calls.map(pattern => pattern.split('{name}').map(text => text
        && this.#literal(text)).join(` ${quoted(name)} `)));
      const args = this.#pattern(call);
      const body = isSection ? `${this.#literal(section[0])} ws ${args} ws ${this.#literal(section[1])}` : args;
      const kind = isSection ? '' : `(" json" | " "? ${this.#literal(CHANNEL.constrain)} "json")?`;
      return `${header} ${kind} ws ${message} ws ${body}`;
    })));
    const said = (/** @type {string[]} */ kinds) => this.#rule(`${either(kinds)} ${message} ${body}`);
    const another = `${end}? ${start}`;
    const calls = this.#parallel ? `${called} (ws ${another} ${called})* ws ${end}?` : called;
    if (this.#required) return `(${said(self)} ${another})* ${calls}`;
    return `(${said(others)} ${another})* (${said(others)} ${end}? | ${calls})`;
  }

  // ---- arguments ----

  /** The schema of the arguments.  A tool without parameters takes none. @returns {any} */
  get #parameters() {
    const parameters = this.#tools[this.#tool].function.parameters ?? {};
    return Object.keys(parameters).length > 0 ? { type: 'object', ...parameters } : { type: 'object', properties: {} };
  }

  /** @param {string} pointer @param {string} what */
  #refuse(pointer, what) {
    const { name, strict } = this.#tools[this.#tool].function;
    if (strict === true) throw new PlumbError('PLUMB_ERROR_UNSUPPORTED', `tool ${name}${pointer}: ${what}`);
    const warning = `tool ${name}${pointer}: ${what}`;
    if (!this.warnings.includes(warning)) this.warnings.push(warning);
  }

  /** @param {any} schema @param {string[]} known @param {string} pointer */
  #refuseOthers(schema, known, pointer) {
    for (const key of Object.keys(Object(schema))) {
      if (!known.includes(key)) this.#refuse(`${pointer}/${key}`, 'not enforced in this model\'s format of calls');
    }
  }

  /** JSON texts of a schema's values. @param {any} schema @param {string} pointer */
  #json(schema, pointer) {
    const strict = this.#tools[this.#tool].function.strict === true;
    const { $defs, definitions } = this.#parameters;
    const whole = pointer === '' ? schema : { ...$defs && { $defs }, ...definitions && { definitions }, ...schema };
    const order = membersOf(whole) <= FREE_JSON ? ANY_ORDER : 0;
    return this.#define({
      language: 'schema', text: JSON.stringify(whole), flags: (strict ? 0 : LENIENT) + order + FREE_SPACE + CLOSED,
      label: this.#label(pointer),
      ...!strict && { otherwise: pointer === '' ? '{"type":"object"}' : 'true' },
    });
  }

  /** A schema without references at its top. @param {any} schema @returns {any} */
  #resolved(schema) {
    for (let n = 0; n < 20 && typeof schema?.$ref === 'string' && schema.$ref.startsWith('#'); n++) {
      const { $ref, ...rest } = schema;
      const found = $ref.slice(1).split('/').slice(1).reduce((/** @type {any} */ value, /** @type {string} */ key) =>
        value?.[decoded(key).replace(/~1/g, '/').replace(/~0/g, '~')], this.#parameters);
      schema = typeof found === 'object' && found !== null ? { ...found, ...rest } : rest;
    }
    return schema ?? {};
  }

  /** The members of an object. @param {any} given @param {Syntax} syntax @param {string} pointer @returns {string} */
  #members(given, syntax, pointer) {
    const schema = this.#resolved(given), properties = Object.entries(Object(schema.properties));
    const { open = '', separator = '', close = '', pair: pattern = this.#format.arg ?? '' } = syntax;
    this.#refuseOthers(schema, OF_OBJECTS, pointer);
    const around = (/** @type {string} */ members) => [open && quoted(open), members, close && quoted(close)]
      .filter(Boolean).join(' ws ');
    const comma = separator ? `ws ${quoted(separator)} ws` : 'ws';
    if (properties.length === 0) {
      if (schema.properties ? !schema.additionalProperties : schema.additionalProperties === false) return around('""');
      const any = this.#rule(this.#pair(pattern, '[a-zA-Z_] [-a-zA-Z0-9_]{0,63}', {}, syntax, `${pointer}/*`));
      return around(`(${any} (${comma} ${any})*)?`);
    }
    const required = properties.map(([key]) => Array.isArray(schema.required) && schema.required.includes(key));
    const pairs = properties.map(([key, value]) =>
      this.#rule(this.#pair(pattern, quoted(key), value, syntax, `${pointer}/properties/${key}`)));
    const inAnyOrder = pairs.length <= FREE_MEMBERS;
    // A rule for each state: in any order, the set of members that are there; otherwise, how many are behind.
    /** @type {Map<string, string>} */
    const states = new Map();
    const state = (/** @type {number} */ at, /** @type {boolean} */ isFirst) => {
      const key = `${at} ${isFirst}`, known = states.get(key);
      if (known !== undefined) return known;
      const before = isFirst ? '' : `${comma} `;
      const open = pairs.map((_, k) => k).filter(k => inAnyOrder ? !(at >> k & 1) : k === at);
      const options = open.map(k => `${before}${pairs[k]} ${state(inAnyOrder ? at | 1 << k : k + 1, false)}`);
      if (!inAnyOrder && at < pairs.length && !required[at]) options.push(state(at + 1, isFirst));
      if (inAnyOrder ? open.every(k => !required[k]) : at === pairs.length) options.push('""');
      const name = this.#rule(either(options));
      states.set(key, name);
      return name;
    };
    return around(state(0, true));
  }

  /** A member. @param {string} pattern @param {string} key  GBNF @param {any} given @param {Syntax} syntax
   * @param {string} pointer */
  #pair(pattern, key, given, syntax, pointer) {
    const schema = this.#resolved(given);
    if (!syntax.isJson) return this.#pattern(pattern, { key, value: this.#value(schema, syntax, pointer) });
    if (syntax.words) {
      const isSimple = Object.keys(Object(schema)).every(name => name === 'type' || NOTES.includes(name));
      const words = Object.entries(syntax.words).filter(([type]) => isSimple
        && [schema.type ?? type].flat().includes(type)).map(([, word]) => word);
      return this.#pattern(pattern, { key, value: either([this.#json(schema, pointer), ...words]) });
    }
    const types = typesOf(schema), [, end = ''] = pattern.split('{value}'), isMixed = types.size > 1;
    const options = [];
    if (types.has('string')) {
      if (isMixed) this.#refuseOthers(schema, ['type', ...NOTES], pointer);
      const value = this.#text(isMixed ? {} : schema, end, pointer);
      const isCdata = this.#format.cdata && !isMixed && !schema.enum && schema.const === undefined;
      options.push(this.#pattern(pattern, { key, type: '("true" | "string")', value: !isCdata ? value
        : `(${value} | "<![CDATA[" ${this.#text(schema, ']]>', pointer)} "]]>")` }));
    }
    if (isMixed || !types.has('string')) {
      const value = this.#json(isMixed ? { allOf: [schema], not: { type: 'string' } } : schema, pointer);
      const type = '("false" | "number" | "integer" | "boolean" | "object" | "array" | "null")';
      options.push(this.#pattern(pattern, { key, type, value }));
    }
    return either(options);
  }

  /** Texts of a schema that end before a text. @param {any} schema @param {string} end @param {string} pointer */
  #text(schema, end, pointer) {
    const values = schema.const !== undefined ? [schema.const] : schema.enum;
    this.#refuseOthers(schema, OF_TEXTS, pointer);
    if (Array.isArray(values)) {
      const texts = values.filter(value => typeof value === 'string' && (end === '' || !value.includes(end)));
      if (texts.length > 0) return this.#oneOf(texts, pointer);
    }
    const { pattern, minLength = 0, maxLength } = schema;
    const plain = this.#format.cdata ? '(?!<!\\[CDATA\\[)' : '';
    let more = plain;
    if (typeof pattern === 'string') more += `(?=[^]*(?:${pattern}))`;
    if (minLength > 0 || maxLength !== undefined) more += `(?=[^]{${minLength},${maxLength ?? ''}}$)`;
    if (more === plain) return this.#until([end], plain);
    return this.#define({
      language: 'regex', text: without([end], this.#controls, more), flags: 0, label: this.#label(pointer),
      ...this.#tools[this.#tool].function.strict !== true && { otherwise: without([end], this.#controls, plain) },
    });
  }

  /** How many elements a list may have: the least, and the most or Infinity. @param {any} schema
   * @param {string} pointer @returns {[number, number]} */
  #counts({ minItems: least = 0, maxItems: most = Infinity }, pointer) {
    const isCount = (/** @type {unknown} */ n) => Number.isInteger(n) && Number(n) >= 0 && Number(n) <= MAX_ITEMS;
    if (isCount(least) && (most === Infinity || isCount(most)) && least <= most) return [least, most];
    this.#refuse(pointer, `minItems or maxItems is no integer from 0 to ${MAX_ITEMS}, or minItems is the larger`);
    return [0, Infinity];
  }

  /** Values in a syntax of their own. @param {any} given @param {Syntax} syntax @param {string} pointer
   * @returns {string} */
  #value(given, syntax, pointer) {
    const key = `${this.#tool} ${JSON.stringify(given)} in ${syntax.pair}`, known = this.#names.get(key);
    if (known) return known;
    const name = `v-${this.#names.size}`;
    this.#names.set(key, name);
    this.#gbnf.set(name, this.#valueOf(this.#resolved(given), syntax, pointer));
    return name;
  }

  /** @param {any} schema @param {Syntax} syntax @param {string} pointer @returns {string} */
  #valueOf(schema, syntax, pointer) {
    const { quotes: [before, behind] = ['', ''], list: [open, separator, close] = ['', '', ''], item = '' } = syntax;
    const branches = schema.anyOf ?? schema.oneOf;
    if (Array.isArray(branches)) {
      this.#refuseOthers(schema, ['anyOf', 'oneOf', 'type', ...NOTES], pointer);
      return either(branches.map((one, i) => this.#value(one, syntax, `${pointer}/anyOf/${i}`)));
    }
    const values = schema.const !== undefined ? [schema.const] : schema.enum;
    if (Array.isArray(values) && values.every(value => typeof value !== 'object' || value === null)) {
      const texts = values.filter(value => typeof value === 'string');
      const others = values.filter(value => typeof value !== 'string').map(value => JSON.stringify(value));
      return either([...others.length > 0 ? [this.#oneOf(others, pointer)] : [], ...texts.length > 0
        ? [`${this.#literal(before)} ${this.#oneOf(texts, pointer)} ${before && this.#literal(behind)}`] : []]);
    }
    const isAny = !branchesOf(schema).some(({ type }) => type !== undefined);
    const types = isAny && !schema.properties && !schema.items
      ? ['string', 'number', 'boolean', 'null', ...syntax.open ? ['object', 'array'] : []]
      : schema.type !== undefined ? [schema.type, schema.nullable === true ? 'null' : []].flat()
        : [schema.properties ? 'object' : 'array'];
    return either(types.map(type => {
      if (type === 'string') {
        const text = this.#text(isAny ? {} : schema, behind, pointer);
        return `${this.#literal(before)} ${text} ${before && this.#literal(behind)}`;
      }
      if (type === 'object') {
        const members = this.#members(schema, syntax, pointer);
        return syntax.open ? members : `(ws ${members} ws | "{}")`;
      }
      if (type !== 'array') return this.#json({ ...isAny ? {} : schema, type }, `${pointer}/`);
      this.#refuseOthers(schema, OF_LISTS, pointer);
      const [least, most] = this.#counts(schema, pointer), comma = separator ? `ws ${quoted(separator)} ws` : 'ws';
      const value = this.#value(schema.items ?? {}, syntax, `${pointer}/items`);
      const one = this.#rule(this.#pattern(item, { value }));
      const more = `{${Math.max(0, least - 1)},${most === Infinity ? '' : Math.max(0, most - 1)}}`;
      const some = `${one} (${comma} ${one})${more}`;
      const filled = open ? `${quoted(open)} ws ${some} ws ${quoted(close)}` : `ws ${some} ws`;
      return either([...most === 0 ? [] : [filled], ...least === 0 ? ['"[]"'] : []]);
    }));
  }
}

/** A text without escapes of URIs; as it is if they are malformed. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The most members that an object of a schema names. @param {unknown} schema */
function membersOf(schema) {
  let most = 0;
  JSON.stringify(schema, (key, value) => {
    if (key === 'properties') most = Math.max(most, Object.keys(Object(value)).length);
    return value;
  });
  return most;
}
