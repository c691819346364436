/* Chat templates, in an instance of plumb-template.wasm: a chat -> its prompt, and how the models of a template write
 * their answers. */
import { PlumbError } from '../base/errors.js';
import { importsOf, Instance, PAGE } from './instance.js';

/** Pages of memory that an instance may keep.  Memory cannot shrink, so one with more is replaced. */
const KEPT = 512;

/** @typedef {{text: Uint8Array, marks: Uint8Array}} Prompt  its bytes in UTF-8; the mark of a byte is 1 if it comes
 *   from the chat and is part of no control token */
/** @typedef {{source: string, bos: string, eos: string}} About  the template's source, and its variables bos_token and
 *   eos_token */

/** @typedef {object} Format  how models write reasoning and calls of tools: a row of src/answers/template/families.c
 * @property {{start: string, ends: string[], again?: boolean}} [think]  the tags of reasoning.  An end that begins a
 *   call is not skipped.  again: there may be reasoning behind a text, too
 * @property {[string, string]} [section]  what surrounds all calls of an answer
 * @property {string} [call]  the pattern of a call
 * @property {string[]} [opens]  texts with which a call may begin, if they are not those of section and call
 * @property {string} [arg]  the pattern of an argument
 * @property {boolean} [cdata]  a value may stand between <![CDATA[ and ]]>
 * @property {boolean} [keyed]  {call} is an object whose only key is the name
 * @property {boolean} [first]  calls come at the start of an answer, not behind a text
 * @property {string[]} [marks]  texts that surround the answer, which are not part of it
 * @property {string[]} [prompts]  texts of a prompt's end that are part of the answer's format, besides think.start
 * @property {{user: string, self: string, tool: string}} [channels]  an answer is a sequence of messages with headers
 * @property {{text: string[], calls: string[]}} [headers]  how the headers of such messages are written, of reasoning
 *   first, and then of other texts and of calls
 * @property {string} [stop]  a text that ends an answer, besides the tokens that do
 * @property {boolean} [describesTools]  whether the template tells the model about tools
 * @property {string[]} named  which of think.start and marks are in the template */

/** One template. */
export class Template extends Instance {
  #template;

  /** @param {WebAssembly.Module} module @param {About} about */
  static async create(module, about) {
    return new Template(await WebAssembly.instantiate(module, importsOf(module)), about);
  }

  /** @param {WebAssembly.Instance} instance @param {About} about */
  constructor(instance, { source, bos, eos }) {
    super(instance);
    const texts = [source, bos, eos].flatMap(text => this.withText(text, (ptr, n) => {
      const copy = this.malloc(n || 1);   // which outlives this call
      this.u8.copyWithin(copy, ptr, ptr + n);
      return [copy, n];
    }));
    this.#template = this.c.plumb_wasm_template_create(...texts);
    if (!this.#template) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for the chat template');
  }

  /** @returns {Format} */
  get format() {
    const ptr = this.c.plumb_wasm_template_family(this.#template);
    if (!ptr) throw new PlumbError('PLUMB_ERROR_MEMORY', 'no memory for the chat template');
    const json = this.string(ptr);
    this.c.free(ptr);
    return JSON.parse(json);
  }

  /** Whether it should be replaced, because it has taken much memory. */
  get isLarge() { return this.memory.buffer.byteLength > KEPT * PAGE; }

  /** Renders a chat. @param {string} json  its variables @param {Date} [now] @returns {Prompt} */
  render(json, now = new Date()) {
    const seconds = Math.floor(now.getTime() / 1000) - 60 * now.getTimezoneOffset();
    return this.withText(json, (chars, length) => {
      const n = Number(this.c.plumb_wasm_template_render(this.#template, chars, length, true, seconds, this.out));
      if (n < 0) throw this.error(n, this.string(this.c.plumb_wasm_template_error(this.#template)));
      const text = this.result(0), marks = text + n + 1;
      const prompt = { text: this.u8.slice(text, text + n), marks: this.u8.slice(marks, marks + n) };
      this.c.free(text);
      return prompt;
    });
  }
}

/** The template that was used last, which most calls use again. */
export class Templates {
  /** @type {{source: string, made: Promise<Template>, isBroken?: boolean} | undefined} */
  #last;

  /** Calls use with a template.  What it throws has the code PLUMB_ERROR_TEMPLATE if the module crashes.
   * @template T @param {About} about @param {() => Promise<WebAssembly.Module>} module  gets plumb-template
   * @param {(template: Template) => T} use @returns {Promise<T>} */
  async use(about, module, use) {
    if (this.#last?.source !== about.source) {
      this.#last = { source: about.source, made: module().then(code => Template.create(code, about)) };
    }
    const last = this.#last;
    const forget = () => {
      if (this.#last === last) this.#last = undefined;
    };
    try {
      const template = await last.made;
      if (last.isBroken) return this.use(about, module, use);   // by a call that waited, too
      const result = use(template);
      if (template.isLarge) forget();
      return result;
    } catch (error) {
      if (!(error instanceof PlumbError) || error.code !== 'PLUMB_ERROR_TEMPLATE') forget();
      if (!(error instanceof WebAssembly.RuntimeError) && !(error instanceof RangeError)) throw error;
      last.isBroken = true;
      throw new PlumbError('PLUMB_ERROR_TEMPLATE', `tokenizer.chat_template: its code crashed: ${error.message}`);
    }
  }
}
