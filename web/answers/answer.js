/* Separates the reasoning, the text and the calls of an answer while it arrives.  What was handed out is never taken
 * back, it adds up to the message, and the pieces in which the answer arrives make no difference.
 *
 * The model's output is not trusted.  A call is handed out once it is whole and names a tool that was given.  What
 * turns out not to be a call is text.  If the answer was cut off, the beginning of a call is left out, and so is the
 * beginning of a tag.
 *
 * The reader is a coroutine: its methods read the answer from left to right as a recursive parser does, and yield where
 * more of it must arrive. */
import { randomHex } from '../base/hex.js';
import { begunAt } from '../engine/stop.js';
import { headOf } from './bound.js';
import { begunIn, CHANNEL, MINIMAX, opensOf, PLACEHOLDER } from './formats.js';
import { JsonScan } from './json-scan.js';
import { problemOf } from './schema.js';

/** @typedef {import('./messages.js').Tool} Tool
 * @typedef {import('./messages.js').ToolCall} ToolCall
 * @typedef {import('./formats.js').Format} Format
 * @typedef {Generator<undefined, any, void>} Reading */
/** @typedef {object} AnswerDelta  a part of an answer; one of the properties is there
 * @property {string} [content]
 * @property {string} [reasoning]
 * @property {{index: number, id?: string, name?: string, arguments: string}} [call]  the first of a call has its id and
 *   name and no arguments, and the second has all arguments */
/** @typedef {{content: string, reasoning_content?: string, tool_calls?: ToolCall[]}} Answer */
/** @typedef {{id: string, name: string, arguments: string}} Call */

/** How deep the arguments of a call may nest. */
const MAX_NESTING = 100;
const NAME = /[^\s<>"'`()[\]{}|:,=｜]/, SPACE = /\s/;
const NAMES = ['name', 'tool_name'], ARGUMENTS = ['arguments', 'parameters'], IDS = ['id', 'tool_call_id', 'call_id'];
/** The beginning of an answer that may be a call without tags, and one whose name is complete. */
const MAYBE_BARE =
  /^\s*(?:`{0,2}|(?:```\w*\s*)?(?:\[\s*)?(?:\{{1,2}\s*(?:"\w{0,20}(?:"\s*(?::\s*(?:"[^"\\]*)?)?)?)?)?)$/;
const BARE = /^\s*(?:```\w*\s*)?(?:\[\s*)?\{{1,2}\s*"(?:name|tool_name|function)"\s*:\s*"([^"\\]*)"/;

/** Thrown when the answer has all that it may have. */
class Complete extends Error {}
/** Thrown where the text is no call. */
class NotACall extends Error {}
const notACall = () => { throw new NotACall(); };

/** Reads one answer. */
export class AnswerReader {
  #format;
  /** The tools that may be called, by name. @type {Map<string, Tool>} */
  #tools;
  #anyName;
  #parallel;
  #isBound;
  /** The answer so far, with what the prompt has begun of it. */
  #text;
  #at = 0;
  #ended = false;
  /** Whether something other than the model ended the answer. */
  #isCut = false;
  /** Whether the reading of a section came to the end of the answer. */
  #ranOut = false;
  #reading;
  /** @type {AnswerDelta[]} */
  #deltas = [];
  /** The text and the calls in their order. @type {(string | Call)[]} */
  #parts = [];
  #reasoning = '';
  #isThinking = false;
  /** Whether the prompt has begun the reasoning with a text, so that white space belongs to it. */
  #isContinued;
  /** White space that is handed out if the same kind of text follows. */
  #space = '';
  /** Whether white space at the beginning of a text is left out, because something was before it. */
  #trims = false;
  /** The call that is being read; its arguments have begun. @type {Call | undefined} */
  #call;
  /** Whether what may be a call has a member that calls do not have. */
  #isForeign = false;
  /** Where the section or call that is being read begins. */
  #mark = 0;

  /** @param {Format} format
   * @param {Tool[]} [tools]  the tools that the model was given
   * @param {{prompt?: string, continued?: import('./formats.js').Continued, anyName?: boolean, parallel?: boolean,
   *   isBound?: boolean}} [options]  prompt: how the prompt ends, because it may open the reasoning; continued: the
   *   text with which it ends; anyName: a call between tags may name a tool that does not exist; parallel: several
   *   calls (default true), or only the first; isBound: a grammar binds the answer behind its reasoning (bound.js), so
   *   that it is text, whatever tags are in it */
  constructor(format, tools = [], { prompt = '', continued, anyName = false, parallel = true, isBound = false } = {}) {
    this.#format = format;
    this.#tools = new Map(tools.map(tool => [tool.function.name, tool]));
    this.#anyName = anyName && tools.length > 0;
    this.#parallel = parallel;
    this.#text = begunIn(format, prompt) ?? '';
    this.#isBound = isBound;
    this.#isContinued = continued === 'reasoning_content';
    this.#reading = format.channels ? this.#channels()
      : isBound ? this.#boundAnswer(headOf(format, prompt, continued)) : this.#answer();
  }

  /** Adds a piece. @param {string} piece @returns {AnswerDelta[]} */
  push(piece) {
    if (this.isComplete) return [];
    this.#text += piece;
    this.#read();
    return this.#deltas.splice(0);
  }

  /** Ends the answer. @param {{cut?: boolean}} [options]  cut: something other than the model ended it
   * @returns {AnswerDelta[]} */
  end({ cut = false } = {}) {
    this.#ended = true;
    this.#isCut = cut;
    if (!this.isComplete) this.#read();
    return this.#deltas.splice(0);
  }

  #read() {
    try {
      this.#reading.next();
    } catch (error) {
      if (!(error instanceof Complete)) throw error;
    }
  }

  /** Whether the answer has all calls that it may have. */
  get isComplete() { return !this.#parallel && this.#calls.length > 0; }

  /** What was read.  After end() it is the whole answer. @returns {Answer} */
  get message() {
    const calls = this.#calls, content = this.#parts.filter(part => typeof part === 'string').join('');
    return {
      content, ...this.#reasoning && { reasoning_content: this.#reasoning },
      ...calls.length > 0 && { tool_calls: calls.map(asToolCall) },
    };
  }

  // ---- what is handed out ----

  /** @param {'content' | 'reasoning'} kind @param {string} text */
  #say(kind, text) {
    if (this.#trims) text = text.trimStart();
    if (text === '') return;
    this.#trims = false;
    const all = this.#space + text;
    const end = kind === 'content' && this.#tools.size === 0 ? all.length : all.trimEnd().length;
    this.#space = all.slice(end);
    this.#emit(kind, all.slice(0, end));
  }

  /** @param {'content' | 'reasoning'} kind @param {string} text */
  #emit(kind, text) {
    if (text === '') return;
    if (kind === 'reasoning') this.#reasoning += text;
    else this.#parts.push(text);
    this.#deltas.push({ [kind]: text });
  }

  #content = (/** @type {string} */ text) => this.#say('content', text);

  /** Begins another part of the answer. @param {boolean} [trims]  whether it begins without white space */
  #turn(trims = !this.#parts.some(part => typeof part === 'string')) {
    this.#space = '';
    this.#trims = trims;
  }

  /** Begins a call. @param {string} name @param {string} [id] */
  #begin(name, id) {
    if (this.#call) notACall();
    if (!this.#tools.has(name) && !this.#anyName) notACall();
    this.#call = { id: id || `call_${randomHex(12)}`, name, arguments: '' };
  }

  get #calls() { return /** @type {Call[]} */ (this.#parts.filter(part => typeof part !== 'string')); }

  /** @param {string} text */
  #argue(text) {
    if (this.#call) this.#call.arguments += text;
  }

  /** Hands out a call whose arguments are complete. */
  #finish() {
    if (!this.#call) return;
    const index = this.#calls.length, { id, name, arguments: given } = this.#call;
    this.#turn();
    this.#parts.push(this.#call);
    this.#deltas.push({ call: { index, id, name, arguments: '' } }, { call: { index, arguments: given } });
    this.#call = undefined;
    this.#mark = this.#at;
    if (!this.#parallel) throw new Complete();
  }

  // ---- the text as it arrives ----

  /** Whether the text goes on. @returns {Generator<undefined, boolean, void>} */
  *#more() {
    while (this.#at >= this.#text.length) {
      if (this.#ended) return !(this.#ranOut = true);
      yield;
    }
    return true;
  }

  /** Whether anything but white space comes. @returns {Generator<undefined, boolean, void>} */
  *#hasMore() {
    yield* this.#blank();
    return yield* this.#more();
  }

  /** Whether the answer so far ends in the beginning of one of some texts, which may come next.
   * @param {readonly string[]} options */
  #isBegun(options) {
    const rest = this.#text.slice(this.#at, this.#at + 1 + Math.max(0, ...options.map(one => one.length)));
    return options.some(one => one.length > rest.length && one.startsWith(rest));
  }

  /** Which of some texts comes next, the longest if several do; '' if none.
   * @param {readonly string[]} options @returns {Generator<undefined, string, void>} */
  *#peek(options) {
    while (!this.#ended && this.#isBegun(options)) yield;
    const found = options.filter(one => this.#text.startsWith(one, this.#at));
    this.#ranOut ||= found.length === 0 && this.#isBegun(options);
    return found.reduce((best, one) => one.length > best.length ? one : best, '');
  }

  /** Skips a text if it comes next, or the beginning of one if the answer was cut off there.
   * @param {string[]} options @returns {Generator<undefined, string, void>} */
  *#take(...options) {
    const found = yield* this.#peek(options);
    this.#at += found.length;
    if (!found && this.#isCut && this.#isBegun(options)) this.#at = this.#text.length;
    return found;
  }

  /** Skips a text and the white space before it if it comes next. @param {string} text
   * @returns {Generator<undefined, string, void>} */
  *#takeBehindSpace(text) {
    const begin = this.#at;
    yield* this.#blank();
    const found = yield* this.#take(text);
    if (!found && !(this.#isCut && this.#at >= this.#text.length)) this.#at = begin;
    return found;
  }

  /** Skips white space. @returns {Reading} */
  *#blank() {
    while ((yield* this.#more()) && SPACE.test(this.#text[this.#at])) this.#at++;
  }

  /** Skips white space and then a text that must come. @param {string} text @returns {Reading} */
  *#expect(text) {
    const wanted = text.trim();
    if (wanted === '') return;
    yield* this.#blank();
    if (!(yield* this.#take(wanted))) notACall();
  }

  /** Hands out the text up to the first of some marks, and returns that mark; '' if there is none.
   * @param {readonly string[]} marks @param {(text: string) => void} use
   * @returns {Generator<undefined, string, void>} */
  *#until(marks, use) {
    for (;;) {
      let end = this.#text.length, found = '';
      for (const mark of marks) {
        const at = this.#text.indexOf(mark, this.#at);
        if (at >= 0 && (at < end || at === end && mark.length > found.length)) [end, found] = [at, mark];
      }
      if (!found && (!this.#ended || this.#leavesOutTags)) end = begunAt(this.#text, marks, this.#at);
      else if (found && (!this.#ended || this.#leavesOutTags)) {   // a longer mark may begin here or before
        const safe = begunAt(this.#text, marks, this.#at);
        if (safe <= end && marks.some(mark => mark.length > this.#text.length - safe)) [end, found] = [safe, ''];
      }
      use(this.#text.slice(this.#at, end));
      this.#at = end;
      if (found) return found;
      if (this.#ended) {
        this.#ranOut = true;
        if (end < this.#text.length) this.#leaveOutRest();
        return '';
      }
      yield;
    }
  }

  #leaveOutRest() {
    this.#at = this.#text.length;
    this.#space = '';
  }

  /** Whether the beginning of a tag is left out at the end of the answer.  Without tools, it may well be text. */
  get #leavesOutTags() { return this.#isCut && (this.#tools.size > 0 || this.#isThinking); }

  /** The text up to a mark, which must come. @param {string} mark @returns {Generator<undefined, string, void>} */
  *#textUntil(mark) {
    let text = '';
    if (!(yield* this.#until([mark], part => { text += part; }))) notACall();
    return text;
  }

  /** Reads elements with commas between them, up to a closing text. @param {string} close
   * @param {(n: number) => Reading} read  reads element n */
  *#elements(close, read) {
    yield* this.#blank();
    for (let n = 0; !(yield* this.#take(close)); n++) {
      yield* read(n);
      yield* this.#blank();
      if (!(yield* this.#take(','))) return yield* this.#expect(close);
      yield* this.#blank();
    }
  }

  // ---- JSON ----

  /** Reads a JSON value. @param {(text: string) => void} [use]
   * @returns {Generator<undefined, string, void>}  its text */
  *#json(use = () => {}) {
    const scan = new JsonScan();
    let text = '';
    while (!scan.done) {
      if (!(yield* this.#more())) {
        scan.end();
        if (!scan.done) notACall();
        break;
      }
      const end = scan.read(this.#text, this.#at), part = this.#text.slice(this.#at, end);
      use(part);
      text += part;
      this.#at = end;
      if (scan.bad) notACall();
    }
    return text;
  }

  /** Reads the object that has the arguments of a call, and hands it out.
   * @param {string} name @param {string} [id] @returns {Reading} */
  *#arguments(name, id) {
    yield* this.#blank();
    if ((yield* this.#peek(['{'])) !== '{') notACall();
    this.#begin(name, id);
    yield* this.#json(text => this.#argue(text));
  }

  /** Reads one call or a list of calls in JSON. @returns {Reading} */
  *#jsonCalls() {
    yield* this.#blank();
    if (!(yield* this.#take('['))) return yield* this.#jsonCall();
    do {
      yield* this.#blank();
      yield* this.#jsonCall();
      yield* this.#blank();
    } while (yield* this.#take(','));
    yield* this.#take(']');
    this.#mark = this.#at;
  }

  /** Reads {"name": ..., "arguments": {...}}. @param {number} [depth] @returns {Reading} */
  *#jsonCall(depth = 0) {
    let name = /** @type {string | undefined} */ (undefined), id = /** @type {string | undefined} */ (undefined);
    let held = '';
    const self = this;
    yield* this.#expect('{');
    yield* this.#elements('}', function* () {
      const key = JSON.parse(yield* self.#string());
      yield* self.#expect(':');
      yield* self.#blank();
      const isObject = (yield* self.#peek(['{'])) === '{';
      if (ARGUMENTS.includes(key) && name !== undefined) yield* self.#arguments(name, id);
      else if (key === 'function' && isObject && depth === 0) yield* self.#jsonCall(1);
      else if (self.#format.keyed && isObject && !self.#call) yield* self.#arguments(key);
      else {
        const value = yield* self.#json();
        if (NAMES.includes(key) || key === 'function') name = asText(value);
        else if (ARGUMENTS.includes(key)) held = value;
        else if (IDS.includes(key)) id = String(JSON.parse(value));
        else self.#isForeign ||= key !== 'type';
      }
    });
    if (name !== undefined && !this.#call) {
      if (held && !held.startsWith('{')) notACall();
      this.#begin(name, id);
      this.#argue(held || '{}');
    }
    if (!this.#call && depth === 0) notACall();
    if (depth === 0) this.#finish();
  }

  /** Reads a JSON string. @returns {Generator<undefined, string, void>} */
  *#string() {
    if ((yield* this.#peek(['"'])) !== '"') notACall();
    return yield* this.#json();
  }

  // ---- calls by patterns ----

  /** Reads what a pattern describes.
   * @param {string} pattern @param {(field: string, next: string) => Reading} read  reads a field, which ends at next
   *   */
  *#pattern(pattern, read) {
    const parts = pattern.split(PLACEHOLDER);
    for (let i = 0; i < parts.length; i++) {
      const text = parts[i];
      if (i % 2 === 1) yield* read(text, parts[i + 1] ?? '');
      else if (text === '') continue;
      else if (parts[i - 1] === 'value') this.#at += text.length;   // its end was found
      else if (i === 0 && this.#format.first) yield* this.#take(text);   // a model may leave it out
      else if (i === parts.length - 1 && !this.#call) {   // a call is complete without its end
        yield* this.#takeBehindSpace(text.trim());
      } else {
        for (const line of text.split('\n')) yield* this.#expect(line);
        if (parts[i + 1] === 'value' && text.endsWith('\n') && !(yield* this.#take('\n'))) notACall();
      }
    }
  }

  /** Reads a call by the format's pattern. @returns {Reading} */
  *#patternCall() {
    let name = '', id = '';
    const { call = '', arg = '' } = this.#format;
    yield* this.#pattern(call, (/** @type {string} */ field, next) => (function* (/** @type {AnswerReader} */ self) {
      if (field === 'name') name = yield* self.#name();
      else if (field === 'function') {
        id = (yield* self.#textUntil(next)).trim();
        name = id.replace(/^functions\./, '').replace(/:\d+$/, '');
      } else if (field.startsWith('id:')) id = yield* self.#id(field.slice(3), next);
      else if (field === 'call') yield* self.#jsonCalls();
      else if (field === 'json') {
        yield* self.#arguments(name, id);
        self.#finish();
      } else if (field === 'python') yield* self.#pythonCalls();
      else {
        if (field === 'args') yield* self.#args(name, id, arg, next);
        else if (field === 'gemma') {
          yield* self.#blank();
          if ((yield* self.#peek(['{'])) !== '{') notACall();
          self.#begin(name, id);
          yield* self.#loose(GEMMA);
        } else yield* self.#nestedArgs(name);
        self.#finish();
      }
    })(this));
  }

  /** @returns {Generator<undefined, string, void>} */
  *#name() {
    yield* this.#blank();
    const begin = this.#at;
    while ((yield* this.#more()) && NAME.test(this.#text[this.#at])) this.#at++;
    return this.#text.slice(begin, this.#at) || notACall();
  }

  /** @param {string} prefix @param {string} next @returns {Generator<undefined, string, void>} */
  *#id(prefix, next) {
    if (!(yield* this.#take(prefix))) return '';
    let id = '';
    yield* this.#until([next], text => { id += text; });
    return id.trim();
  }

  /** Reads arguments one by one. @param {string} name @param {string} id @param {string} arg @param {string} end
   * @returns {Reading} */
  *#args(name, id, arg, end) {
    const [open] = arg.split('{');
    /** @type {string[]} */
    const keys = [];
    let key = '', type = '';
    yield* this.#blank();
    if (!(yield* this.#peek([open.trim(), end]))) notACall();
    this.#begin(name, id);
    this.#argue('{');
    for (;;) {
      yield* this.#blank();
      if ((yield* this.#peek([open.trim(), end])) !== open.trim()) break;
      yield* this.#pattern(arg, (/** @type {string} */ field, next) => (function* (/** @type {AnswerReader} */ self) {
        if (field === 'value') yield* self.#value(self.#schemaOf(name, key), type, next);
        else {
          const text = yield* self.#textUntil(next.trim().split('\n')[0]);
          if (field === 'type') type = text;
          else key = text.trim();
          if (field === 'key' && keys.includes(key)) notACall();
          if (field === 'key') self.#argue(`${keys.push(key) > 1 ? ', ' : ''}${JSON.stringify(key)}: `);
        }
      })(this));
    }
    yield* this.#blank();
    if (!(yield* this.#peek([end]))) notACall();
    this.#argue('}');
  }

  /** Reads a value that ends at a text, and hands it out as JSON.
   * @param {any} schema @param {string} type @param {string} end @returns {Reading} */
  *#value(schema, type, end) {
    if (this.#format.cdata && (yield* this.#take('<![CDATA['))) {
      yield* this.#value(schema, type, ']]>');
      this.#at += ']]>'.length;
      yield* this.#blank();
      if (!(yield* this.#peek([end]))) notACall();
      return;
    }
    const types = type === '' ? typesOf(schema) : new Set([type === 'true' || type === 'string' ? 'string' : 'other']);
    if (types.size === 1 && types.has('string')) {
      this.#argue('"');
      if (!(yield* this.#until([end], text => this.#argue(JSON.stringify(text).slice(1, -1))))) notACall();
      return this.#argue('"');
    }
    const text = yield* this.#textUntil(end);
    this.#argue(fitting(text, types) !== undefined ? text.trim() : JSON.stringify(text));
  }

  /** The schema of an argument; undefined if it has none. @param {string} name @param {string} key @returns {any} */
  #schemaOf(name, key) {
    const { properties = {} } = /** @type {any} */ (this.#tools.get(name)?.function.parameters ?? {});
    return Object.hasOwn(properties, key) ? properties[key] : undefined;
  }

  /** Reads arguments in which each part has a tag of its own. @param {string} name @returns {Reading} */
  *#nestedArgs(name) {
    this.#begin(name);
    const parameters = this.#tools.get(name)?.function.parameters ?? {};
    yield* this.#blank();
    this.#argue(JSON.stringify((yield* this.#nested(parameters)) || {}));
  }

  /** Reads tags up to a closing one: an object, or a list if they are <item>. @param {any} schema
   * @param {number} [depth]
   * @returns {Generator<undefined, any, void>} */
  *#nested(schema, depth = 0) {
    const tag = MINIMAX;
    if (depth > MAX_NESTING) notACall();
    /** @type {[string, any][]} */
    const entries = [];
    for (;;) {
      yield* this.#blank();
      if (yield* this.#peek([`${tag}</`])) break;
      yield* this.#expect(`${tag}<`);
      const key = yield* this.#textUntil('>');
      this.#at++;
      const branches = branchesOf(schema), own = branches.flatMap(one => key === 'item' && one.items !== undefined
        ? [one.items] : Object.hasOwn(one.properties ?? {}, key) ? [one.properties[key]] : []);
      const inner = own.length > 1 ? { anyOf: own } : own[0];
      /** @type {any} */
      let value;
      const begin = this.#at;
      yield* this.#blank();
      const types = typesOf(inner), mayNest = inner === undefined || types.has('object') || types.has('array');
      if (mayNest && (yield* this.#peek([`${tag}<`])) && !(yield* this.#peek([`${tag}</`]))) {
        value = yield* this.#nested(inner, depth + 1);
      } else {
        this.#at = begin;
        const text = yield* this.#textUntil(`${tag}</${key}>`);
        const isNothing = text.trim() === '' && !types.has('string');
        value = isNothing && types.has('object') ? {} : isNothing && types.has('array') ? [] : typedText(text, types);
      }
      yield* this.#expect(`${tag}</${key}>`);
      entries.push([key, value]);
    }
    const isList = entries.length > 0 && entries.every(([key]) => key === 'item')
      && (depth > 0) && (branchesOf(schema).some(one => one.type === 'array') || entries.length > 1);
    return isList ? entries.map(([, value]) => value) : Object.fromEntries(entries);
  }

  // ---- Python and Gemma ----

  /** Reads [f(a=1), g()], or f(a=1). @returns {Reading} */
  *#pythonCalls() {
    yield* this.#blank();
    const isList = yield* this.#take('['), self = this;
    do {
      const name = yield* this.#name();
      yield* this.#expect('(');
      this.#begin(name);
      this.#argue('{');
      yield* this.#elements(')', function* (n) {
        const key = yield* self.#name();
        yield* self.#expect('=');
        self.#argue(`${n > 0 ? ', ' : ''}${JSON.stringify(key)}: `);
        yield* self.#loose(PYTHON);
      });
      this.#argue('}');
      this.#finish();
      yield* this.#blank();
    } while (isList && (yield* this.#take(',')));
    if (isList) yield* this.#take(']');
    this.#mark = this.#at;
  }

  /** Reads a value in a dialect and hands it out as JSON. @param {Dialect} dialect @param {number} [depth]
   * @returns {Reading} */
  *#loose(dialect, depth = 0) {
    if (depth > MAX_NESTING) notACall();
    yield* this.#blank();
    const quote = yield* this.#take(...dialect.quotes);
    if (quote) return yield* this.#quoted(quote, dialect);
    const open = yield* this.#take('{', '[');
    if (!open) {
      const begin = this.#at;
      while ((yield* this.#more()) && /[-+.\w]/.test(this.#text[this.#at])) this.#at++;
      const word = this.#text.slice(begin, this.#at), value = dialect.words[word] ?? word;
      if (parsed(value) === undefined) notACall();
      return this.#argue(value);
    }
    const close = open === '{' ? '}' : ']', self = this;
    this.#argue(open);
    yield* this.#elements(close, function* (n) {
      if (n > 0) self.#argue(', ');
      if (open === '{') {
        const opened = yield* self.#take(...dialect.quotes);
        if (opened) yield* self.#quoted(opened, dialect);
        else if (dialect.bareKeys) self.#argue(JSON.stringify((yield* self.#textUntil(':')).trim()));
        else notACall();
        yield* self.#expect(':');
        self.#argue(': ');
      }
      yield* self.#loose(dialect, depth + 1);
    });
    this.#argue(close);
  }

  /** Reads a string behind its opening quote. @param {string} quote @param {Dialect} dialect @returns {Reading} */
  *#quoted(quote, { escapes }) {
    this.#argue('"');
    for (;;) {
      const found = yield* this.#until(escapes ? [quote, '\\'] : [quote], text =>
        this.#argue(JSON.stringify(text).slice(1, -1)));
      if (!found) notACall();
      this.#at += found.length;
      if (found === quote) return this.#argue('"');
      if (!(yield* this.#more())) notACall();
      const escaped = this.#text[this.#at++];
      const length = { x: 2, u: 4, U: 8 }[escaped] ?? 0;
      let digits = '';
      while (digits.length < length && (yield* this.#more())) digits += this.#text[this.#at++];
      const code = /^[0-9a-fA-F]+$/.test(digits) ? parseInt(digits, 16) : NaN;
      const text = length > 0 ? code <= 0x10FFFF ? String.fromCodePoint(code) : notACall()
        : ESCAPES[escaped] ?? `\\${escaped}`;
      this.#argue(JSON.stringify(text).slice(1, -1));
    }
  }

  // ---- the whole answer ----

  /** The texts with which a call may begin; none if there are no tools. */
  get #opens() { return this.#tools.size === 0 ? [] : opensOf(this.#format); }

  /** @returns {Reading} */
  *#answer() {
    const { think, marks = [], first } = this.#format, opens = this.#opens;
    do yield* this.#blank();
    while (marks.length > 0 && !first && (yield* this.#peek(marks)) && (yield* this.#take(...marks)));
    if (think && (yield* this.#take(think.start))) yield* this.#think(think);
    else if (think && (yield* this.#take(...think.ends.filter(end => !opens.includes(end))))) this.#turn();
    else if (!this.#leavesOutTags || this.#at < this.#text.length) this.#at = 0;
    const begin = this.#at;
    yield* this.#blank();
    if (first && (yield* this.#peek(opens))) {
      this.#content(this.#text.slice(begin, this.#at));
      yield* this.#section(opens);
    } else if (this.#tools.size === 0 || (yield* this.#peek([...opens, ...marks])) || !(yield* this.#bare())) {
      this.#at = begin;
    }
    const seen = this.#tools.size === 0 ? marks : [...marks, ...first ? opens.filter(open => open.length > 1) : opens];
    for (;;) {
      const found = yield* this.#until(think ? [...seen, think.start] : seen, this.#content);
      if (!found) break;
      if (marks.includes(found) && !opens.includes(found)) this.#at += found.length;
      else if (found === think?.start) {
        this.#at += found.length;
        const isBehindCall = typeof this.#parts.at(-1) === 'object';
        if (isBehindCall || think.again) yield* this.#think(think);
        else this.#content(found);
      } else yield* this.#section(opens);
    }
    if (this.#calls.length === 0) this.#emit('content', this.#space);
    this.#space = '';
    yield;
  }

  /** Reads an answer that a grammar binds. @param {import('./bound.js').Head} head @returns {Reading} */
  *#boundAnswer({ think, marks, skip, isEmpty }) {
    if (!isEmpty) yield* this.#gap();
    if (think && (yield* this.#take(think.start))) {
      yield* this.#think(think);
      yield* this.#gap();
    } else if (skip) yield* this.#take(skip, ...(this.#format.prompts ?? []).map(text => text + skip));
    while (!isEmpty && (yield* this.#take(...marks))) yield* this.#gap();
    this.#turn(false);
    yield* this.#verbatim();
    yield;
  }

  /** Skips line breaks. @returns {Reading} */
  *#gap() {
    while ((yield* this.#more()) && this.#text[this.#at] === '\n') this.#at++;
  }

  /** Hands out the rest as it is. @returns {Reading} */
  *#verbatim() {
    for (; yield* this.#more(); this.#at = this.#text.length) this.#emit('content', this.#text.slice(this.#at));
  }

  /** Reads reasoning behind its opening tag. @param {NonNullable<Format['think']>} think @returns {Reading} */
  *#think({ ends }) {
    this.#turn(!this.#isContinued);
    this.#isContinued = false;
    this.#isThinking = true;
    const end = yield* this.#until(ends, text => this.#say('reasoning', text));
    this.#isThinking = false;
    if (!this.#opens.includes(end)) this.#at += end.length;
    this.#turn();
  }

  /** Reads calls, or hands out as text what is none. @param {string[]} opens @returns {Reading} */
  *#section(opens) {
    const { section } = this.#format;
    const begin = this.#mark = this.#at;
    this.#ranOut = this.#isForeign = false;
    try {
      if (section) yield* this.#take(section[0]);
      do {
        yield* this.#patternCall();
        this.#mark = this.#at;
      } while (section && !(yield* this.#takeBehindSpace(section[1])) && (yield* this.#hasMore()));
    } catch (error) {
      if (!(error instanceof NotACall) && !(error instanceof SyntaxError)) throw error;
      this.#giveUp(begin, opens);
    }
  }

  /** Goes on with text after what is not a call. @param {number} begin @param {string[]} opens */
  #giveUp(begin, opens) {
    const [open = ''] = opens.filter(one => this.#text.startsWith(one, begin)), hasBegun = this.#call !== undefined;
    this.#call = undefined;
    if (this.#isCut && this.#ranOut && !(this.#isForeign && open.length === 1)) {
      this.#leaveOutRest();
    } else if (hasBegun) this.#content(this.#text.slice(this.#mark, this.#at));
    else {
      this.#at = this.#mark;
      if (this.#mark > begin) return;   // a call came before
      this.#content(open);
      this.#at += open.length;
    }
  }

  /** Reads an answer that is nothing but calls in JSON, without the format's tags.  Such a call must fit its tool's
   * schema.  Returns false without having read anything if it is not one.
   * @returns {Generator<undefined, boolean, void>} */
  *#bare() {
    const begin = this.#at;
    for (;;) {
      const rest = this.#text.slice(begin), found = BARE.exec(rest);
      if (found ? !this.#tools.has(found[1]) : !MAYBE_BARE.test(rest) || rest.length > 400) return false;
      if (this.#ended) break;
      yield;
    }
    const text = this.#text.slice(begin);
    const calls = this.#isCut ? wholeCalls(text).filter(call => this.#fits(call)) : bareCalls(text);
    if (this.#isCut ? !this.#beginsBare(text) : !calls?.every(call => this.#fits(call))) return false;
    for (const { name, tool_name: other, function: third, arguments: args, parameters } of calls ?? []) {
      this.#begin(name ?? other ?? third);
      this.#argue(JSON.stringify(args ?? parameters ?? {}));
      this.#finish();
    }
    this.#at = this.#text.length;
    return true;
  }

  /** Whether a text that was cut off may be the beginning of a call without tags. @param {string} text */
  #beginsBare(text) {
    const [, key, end, name = ''] = /\{\s*"?(\w*)("?)(?:\s*:\s*"?([^"\\]*))?/.exec(text) ?? [];
    return key !== undefined && [...NAMES, 'function'].some(one => end ? one === key : one.startsWith(key))
      && [...this.#tools.keys()].some(one => one.startsWith(name));
  }

  /** @param {any} call */
  #fits(call) {
    const name = call?.name ?? call?.tool_name ?? call?.function, given = call?.arguments ?? call?.parameters ?? {};
    const tool = typeof name === 'string' ? this.#tools.get(name) : undefined;
    const known = [...NAMES, ...ARGUMENTS, ...IDS, 'function', 'type'];
    return tool !== undefined && typeof given === 'object' && given !== null && !Array.isArray(given)
      && Object.keys(call).every(key => known.includes(key))
      && problemOf(tool.function.parameters, given) === undefined;
  }

  /** Reads messages with headers: gpt-oss writes <|start|>assistant<|channel|>NAME to=RECIPIENT<|message|>.
   * @returns {Reading} */
  *#channels() {
    const { channels, section } = this.#format;
    const { user, self, tool } = /** @type {NonNullable<Format['channels']>} */ (channels);
    const { start, message, constrain } = CHANNEL, heads = ['to=', '<|channel|>', constrain, message];
    const ends = [...CHANNEL.ends, '<|start|>'];
    while (yield* this.#more()) {
      const begin = this.#mark = this.#at;
      yield* this.#take(start);
      yield* this.#blank();
      if (!(yield* this.#peek(heads))) {   // it has no header
        if (this.#isCut && this.#isBegun(heads)) break;
        this.#at = begin;
        yield* this.#take(start);
        if ((yield* this.#until(ends, this.#content)) && !(yield* this.#peek([start]))) yield* this.#take(...ends);
        continue;
      }
      let header = '';
      if (!(yield* this.#until([message], text => { header += text; }))) {
        if (this.#isCut) break;
        if (begin > 0 || !this.#text.startsWith(start)) this.#content(this.#text.slice(begin));
        else this.#content(this.#text.slice(start.length));
        break;
      }
      this.#at += message.length;
      const names = [...header.matchAll(/<\|channel\|>\s*(\w+)/g)];
      const [, to = ''] = /to=(?!assistant\b)([^\s<]+)/.exec(header) ?? [];
      const channel = names.at(-1)?.[1] ?? '', name = to.startsWith(tool) ? to.slice(tool.length) : '';
      const isCall = name !== '' && to !== user && to !== self && (this.#tools.has(name) || this.#anyName);
      if (isCall) {
        this.#ranOut = false;
        try {
          if (section) yield* this.#section([section[0]]);
          else {
            yield* this.#arguments(name);
            this.#finish();
          }
        } catch (error) {
          if (!(error instanceof NotACall)) throw error;
          if (this.#call || this.#isCut && this.#ranOut) this.#giveUp(begin, []);
          else this.#content(this.#text.slice(begin, this.#at));
        }
        this.#turn();
      }
      const isReasoning = !isCall && (to === '' && channel === self || to === self);
      if (!isCall) this.#turn();
      if (this.#isBound && !isReasoning) yield* this.#verbatim();
      if (!isCall && to !== '' && to !== user && to !== self) this.#content(this.#text.slice(begin, this.#at));
      const say = (/** @type {string} */ text) => this.#say(isReasoning ? 'reasoning' : 'content', text);
      const end = yield* this.#until(ends, say);
      if (end && end !== '<|start|>') this.#at += end.length;
    }
    this.#space = '';
    yield;
  }
}

/** @typedef {{quotes: string[], words: Record<string, string>, escapes: boolean, bareKeys: boolean}} Dialect */
/** @type {Dialect} */
const PYTHON = {
  quotes: ['"', "'"], words: { True: 'true', False: 'false', None: 'null' }, escapes: true, bareKeys: false,
};
/** @type {Dialect} */
const GEMMA = { quotes: ['<|"|>', '"'], words: {}, escapes: false, bareKeys: true };
/** @type {Record<string, string>} */
const ESCAPES = { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f', v: '\v', 0: '\0', a: '\x07', '\\': '\\', "'": "'",
  '"': '"', '\n': '' };

/** @param {Call} call @returns {ToolCall} */
const asToolCall = ({ id, name, arguments: args }) => ({ id, type: 'function', function: { name, arguments: args } });

/** The value of a JSON text; undefined if it is not JSON. @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {string} json */
function asText(json) {
  const value = JSON.parse(json);
  return typeof value === 'string' ? value : notACall();
}

/** @param {any} value */
const typeOf = value => value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;

/** A schema and its alternatives. @param {any} schema @returns {any[]} */
export const branchesOf = schema => typeof schema !== 'object' || schema === null ? []
  : [schema, ...[schema.anyOf, schema.oneOf, schema.allOf].flatMap(list => Array.isArray(list) ? list : [])];

/** The types that a schema may accept, by what it says itself; 'string' if it says nothing.
 * @param {any} schema @returns {Set<string>} */
export function typesOf(schema) {
  const types = branchesOf(schema).flatMap(({ type, nullable, enum: values, const: value }) =>
    type !== undefined ? [type, nullable === true ? 'null' : []].flat() : Array.isArray(values) ? values.map(typeOf)
      : value !== undefined ? [typeOf(value)] : []);
  return new Set(types.length > 0 ? types : ['string']);
}

/** The value of a JSON text, if it is of one of the types, or of any where no text is allowed; otherwise undefined.
 * @param {string} text @param {Set<string>} types */
function fitting(text, types) {
  const value = parsed(text), type = typeOf(value);
  return !types.has('string') || types.has(type) || type === 'number' && types.has('integer') ? value : undefined;
}

/** The value that a text stands for. @param {string} text @param {Set<string>} types */
function typedText(text, types) {
  const value = types.size === 1 && types.has('string') ? undefined : fitting(text, types);
  return value === undefined ? text : value;
}

/** The calls that a text in JSON consists of, with or without a fence around it; undefined if it is anything else.  The
 * braces of a call may be doubled: Qwen2.5-Coder copies them from the example in its template.
 * @param {string} text @returns {any[] | undefined} */
function bareCalls(text) {
  const [, fenced] = /^\s*```\w*\s*\n([^]*?)\n?\s*```\s*$/.exec(text) ?? [];
  const given = fenced ?? text, [, inner] = /^\s*\{(\{[^]*\})\}\s*$/.exec(given) ?? [];
  const value = parsed(inner ?? given);
  return value === undefined ? undefined : [value].flat();
}

/** The first of these calls that are whole, in a text that was cut off. @param {string} text @returns {any[]} */
function wholeCalls(text) {
  const inner = text.replace(/^\s*(?:```\w*\s*)?(?:\[\s*|\{(?=\{))?/, ''), calls = [];
  for (let at = 0; inner[at] === '{';) {
    const scan = new JsonScan(), end = scan.read(inner, at);
    if (!scan.done) break;
    calls.push(parsed(inner.slice(at, end)));
    at = end + (/^[\s,]*/.exec(inner.slice(end))?.[0].length ?? 0);
  }
  return calls;
}
