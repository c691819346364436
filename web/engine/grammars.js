/* Grammars, in an instance of plumb-grammar.wasm: text of a grammar -> matcher -> the set of tokens that may follow.
 * It knows the vocabulary of one model, which it copies from the engine's memory. */
import { PlumbError } from '../base/errors.js';
import { importsOf, Instance } from './instance.js';

/** How many compiled grammars are kept. */
const KEPT = 8;
/** PLUMB_ERROR_UNSUPPORTED of include/plumb.h. */
const UNSUPPORTED = -30;
/** The longest text that `forced` returns, in bytes. */
const FORCED = 4096;

/** @typedef {{name: string, language: 'regex' | 'schema', text: string, flags: number, label?: string,
 *   otherwise?: string}} Rule  a rule that GBNF can refer to; label: what messages call it; otherwise: what replaces
 *   the text, with a warning, if it cannot be compiled
 * @typedef {{language: 'gbnf' | 'regex' | 'schema', text: string, flags: number, rules?: Rule[],
 *   begun?: string}} Grammar  a text to compile, and rules that it can use if it is GBNF; flags of
 *   plumb_wasm_grammar_schema; begun: the beginning of a text of the grammar, behind which what is sampled comes */
/** @typedef {{ends: Uint32Array, kinds: Uint8Array, texts: Uint8Array}} Vocabulary  as wasm/vocabulary.h has it */

/** The text without an incomplete last character. @param {Uint8Array} bytes */
const wholeCharacters = bytes => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: true });
/** @typedef {{grammar: number, warnings: string[], matchers: number, isKept: boolean}} Made  a compiled grammar;
 *   matchers: how many use it */

export class Grammars extends Instance {
  /** Pointer to the copy of the vocabulary. */
  #copy;
  #vocabularySize;
  /** Pointers to compiled grammars, and what was ignored in them, by what they were made of; the last used one last.
   * @type {Map<string, Made>} */
  #kept = new Map();

  /** @param {WebAssembly.Module} module @param {Vocabulary} vocabulary
   * @param {(text: string) => number} findToken  the only token of a text; -1 if it has none or several */
  static async create(module, vocabulary, findToken) {
    /** @type {Grammars | undefined} */
    let created;
    const imports = importsOf(module, undefined, {
      plumb_find_token: (/** @type {number} */ ptr, /** @type {number} */ n) =>
        findToken(/** @type {Grammars} */ (created).text(ptr, n)),
    });
    created = new Grammars(await WebAssembly.instantiate(module, imports), vocabulary);
    return created;
  }

  /** @param {WebAssembly.Instance} instance @param {Vocabulary} vocabulary */
  constructor(instance, { ends, kinds, texts }) {
    super(instance);
    const [endsAt, kindsAt, textsAt] = [ends, kinds, texts].map(({ byteLength }) => this.malloc(byteLength || 1));
    new Uint32Array(this.memory.buffer, endsAt, ends.length).set(ends);
    this.u8.set(kinds, kindsAt);
    this.u8.set(texts, textsAt);
    this.#vocabularySize = ends.length;
    this.#copy = this.c.plumb_wasm_copy_create(ends.length, endsAt, kindsAt, textsAt);
    if (!this.#copy) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for grammars');
  }

  /** Compiles a grammar, unless it is among those that are kept. @param {Grammar} given */
  #grammar(given) {
    const key = JSON.stringify(given), made = this.#kept.get(key) ?? this.#compile(given);
    this.#kept.delete(key);
    this.#kept.set(key, made);
    for (const [oldest, one] of this.#kept) {
      if (this.#kept.size <= KEPT) break;
      this.#kept.delete(oldest);
      one.isKept = false;
      this.#freeUnused(one);
    }
    return made;
  }

  /** @param {Made} made */
  #freeUnused({ grammar, matchers, isKept }) {
    if (!isKept && matchers === 0) this.c.plumb_grammar_free(grammar);
  }

  /** @param {Grammar} given @returns {Made} */
  #compile({ language, text, flags, rules = [] }) {
    const { c } = this, grammar = c.plumb_wasm_grammar_create(this.#copy);
    if (!grammar) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for a grammar');
    const labels = new Map(rules.map(({ name, label }) => [name, label]));
    const labelled = (/** @type {string} */ message) =>
      message.replace(/^[a-zA-Z0-9]+(?=[:/])/, name => labels.get(name) ?? name);
    const failed = (/** @type {number} */ status) =>
      status !== 0 && this.error(status, labelled(this.string(c.plumb_grammar_error(grammar))));
    /** @type {string[]} */
    const replaced = [];
    try {
      for (const { name, label, otherwise, ...rule } of rules) {
        const define = (/** @type {string} */ one) => failed(this.withText(name, ptr => this.withText(one, (chars, n) =>
          rule.language === 'schema' ? c.plumb_wasm_grammar_schema(grammar, ptr, chars, n, rule.flags)
            : c.plumb_grammar_define_regex(grammar, ptr, chars, n))));
        let error = define(rule.text);
        if (error && label && rule.language === 'regex' && !error.message.startsWith(label)) {
          error.message = `${label}: ${error.message}`;
        }
        if (error && otherwise !== undefined) {
          replaced.push(error.message);
          error = define(otherwise);
        }
        if (error) throw error;
      }
      const error = failed(this.withText(text, (chars, n) =>
        language === 'schema' ? c.plumb_wasm_grammar_schema(grammar, 0, chars, n, flags)
          : language === 'regex' ? c.plumb_grammar_parse_regex(grammar, chars, n)
            : c.plumb_grammar_parse(grammar, chars, n)));
      if (error) throw error;
    } catch (error) {
      c.plumb_grammar_free(grammar);
      throw error;
    }
    const warnings = this.string(c.plumb_grammar_warnings(grammar)).split('\n').filter(Boolean).map(labelled);
    return { grammar, warnings: [...replaced, ...warnings], matchers: 0, isKept: true };
  }

  /** Follows a text through a grammar.
   * @param {Grammar} given @param {boolean} keepsSets  whether there will be `sets` */
  createMatcher({ begun, ...given }, keepsSets) {
    const { c } = this, made = this.#grammar(given), { grammar, warnings } = made;
    const failed = (/** @type {number} */ status) => this.error(status, this.string(c.plumb_grammar_error(grammar)));
    const status = c.plumb_matcher_create(this.out, grammar);
    if (status !== 0) throw failed(status);
    const matcher = this.result(0);
    made.matchers++;
    const free = () => {
      c.plumb_matcher_free(matcher);
      made.matchers--;
      this.#freeUnused(made);
    };
    const refused = begun ? this.withText(begun, (ptr, n) => c.plumb_matcher_accept_text(matcher, ptr, n)) : 0;
    if (refused !== 0) {
      const error = failed(refused);
      free();
      throw error;
    }
    /** @type {Uint8Array[]} */
    const sets = [];
    const mask = () => {
      const mask = c.plumb_matcher_mask(matcher) >>> 0;
      if (!mask) throw failed(UNSUPPORTED);
      return this.u8.subarray(mask, mask + 4 * Math.ceil(this.#vocabularySize / 32));
    };
    /** @param {number} ptr  to a token @returns {number}  a status */
    const accept = ptr => {
      const set = keepsSets ? mask().slice() : undefined;
      const status = c.plumb_matcher_accept(matcher, ptr, 1);
      if (status === 0 && set) sets.push(set);
      return status;
    };
    return {
      /** What the compiler of a schema ignored. */
      warnings,
      /** The tokens that may follow, as plumb_sampler_sample_allowed takes them; valid until the next call. */
      mask,
      /** What mask was before each token that was accepted. */
      sets,
      /** @param {number} id */
      accept: id => {
        const refused = this.withIds([id], accept);
        if (refused !== 0) throw failed(refused);
      },
      /** Accepts the first of these tokens, as far as they are allowed, and returns how many.
       * @param {ArrayLike<number>} ids */
      acceptAll: ids => this.withIds(ids, (ptr, n) => {
        for (let i = 0; i < n; i++) if (accept(ptr + 4 * i) !== 0) return i;
        return n;
      }),
      /** The text that must follow: its whole characters within the first FORCED bytes; '' if it begins inside a
       * character. @returns {string} */
      forced: () => {
        const ptr = this.buffer(FORCED), n = Number(c.plumb_matcher_forced(matcher, ptr, FORCED));
        if (n < 0) throw failed(n);
        const text = n > 0 ? wholeCharacters(this.u8.slice(ptr, ptr + n)) : '';
        return text.startsWith('\ufffd') ? '' : text;
      },
      mayEnd: () => Boolean(c.plumb_matcher_may_end(matcher)),
      free,
    };
  }
}
