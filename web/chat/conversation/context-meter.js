/* Measures how much of the model's context the conversation and the draft take, and whether a message fits. */
import { count, dotted, element, integer, worseBeyond } from '../dom.js';

/** @typedef {import('../../api/plumb.js').Model} Model
 * @typedef {import('../../api/plumb.js').Message} Message */

/** Milliseconds after the last key until the draft is measured. */
const DEBOUNCE = 200;
/** Upper bound on the tokens of a UTF-16 unit: it has at most three bytes of UTF-8, and a token has at least one. */
const MAX_TOKENS = 3;
/** A generous upper bound on the tokens that a chat template writes around a message. */
const TEMPLATE_TOKENS = 256;

/** @typedef {object} Page
 * @property {() => Model | undefined} model
 * @property {() => boolean} busy
 * @property {() => Message[]} conversation  its messages that the model would be given
 * @property {() => Message[]} system  the system message, if any
 * @property {() => boolean} hasTools  whether the model is told about tools
 * @property {() => Promise<{tools: object[]} | undefined>} told  those */

export class ContextMeter {
  #page;
  #changed;
  #text = element('context-used', 'p');
  #note = element('draft-note', 'p');
  #draft = element('prompt', 'textarea');
  /** Numbers of tokens: of the conversation, of the context, and of the context that the model was trained for. */
  #used = 0;
  #context = 0;
  #trained = 0;
  /** The last measurement. @type {{text: string, tokens: number, problem: string} | undefined} */
  #measured;

  /** @param {Page} page @param {(fits: boolean) => void} changed  called with whether the draft can be sent */
  constructor(page, changed) {
    this.#page = page;
    this.#changed = changed;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    this.#draft.addEventListener('input', () => {
      clearTimeout(timer);
      // Removes what was said about another draft at once.
      if (this.#draft.value === '' || this.#measured?.problem) this.#show();
      timer = setTimeout(() => this.measureDraft(), DEBOUNCE);
    });
  }

  #show() {
    const { tokens = 0, problem = '' } = this.#measured?.text === this.#draft.value ? this.#measured : {};
    const used = this.#used, context = this.#context, trained = this.#trained;
    this.#text.textContent = context === 0 ? ''
      : dotted([tokens > 0 && `draft ${integer(tokens)}`, `${integer(used)} of ${count(context, 'token')}`]);
    const beyond = used + tokens > trained && context > trained && trained > 0;
    this.#note.classList.toggle('problem', problem !== '');
    this.#note.textContent = problem || (beyond ? worseBeyond(trained) : '');
    this.#draft.setAttribute('aria-invalid', String(problem !== ''));
    this.#changed(problem === '');
  }

  /** @param {{contextLength: number, trainedContext: number}} info */
  #setContext({ contextLength, trainedContext }) { [this.#context, this.#trained] = [contextLength, trainedContext]; }

  /** Why a message cannot be sent, as a sentence; empty if it can.
   * @param {string} message @returns {Promise<string>} */
  async problemOf(message) {
    const model = this.#page.model();
    if (!model || message === '') return '';
    if (this.#measured?.text === message) return this.#measured.problem;
    this.#setContext(await model.info());
    const { length: tokens } = await model.tokenize(message, { addSpecial: false });
    const { length: all } = await model.tokenizeChat([...this.#page.system(), { role: 'user', content: message }],
      await this.#page.told());
    const problem = all <= this.#context ? '' : `This message is too long: it takes ${count(all, 'token')}, and the `
      + `context holds ${integer(this.#context)}. Shorten it, ${this.#page.hasTools() ? 'turn tools off, '
      : ''}or set a longer context in the settings.`;
    if (model === this.#page.model()) this.#measured = { text: message, tokens, problem };
    return problem;
  }

  /** Measures the draft, unless an answer is running. */
  async measureDraft() {
    const message = this.#draft.value;
    try {
      if (!this.#page.busy() && message !== this.#measured?.text) await this.problemOf(message);
    } catch {
      // For instance, the chat template refuses it: sending a message shows that.
    }
    if (message === this.#draft.value) this.#show();
  }

  /** Measures the conversation and the draft. */
  async measure() {
    const { model: current, busy, conversation, told } = this.#page, model = current();
    if (!model || busy()) return;
    const messages = conversation();
    this.#measured = undefined;
    try {
      const info = await model.info();
      const ids = messages.length === 0 ? [] : await model.tokenizeChat(messages,
        { addGenerationPrompt: false, ...await told() });
      if (model !== current() || busy()) return;
      this.#setContext(info);
      this.#used = ids.length;
      await this.measureDraft();
    } catch {
      this.#context = 0;
      this.#show();
    }
  }

  /** Shows the tokens of the conversation, which are known without asking the model. @param {number} tokens */
  async set(tokens) {
    this.#used = tokens;
    this.#show();
    await this.measureDraft();
  }

  /** Shows nothing while an answer is running. */
  clear() {
    this.#text.textContent = '';
    this.#note.textContent = '';
  }

  /** Whether a message certainly fits, without counting its tokens. @param {string} message */
  isShort(message) {
    if (!this.#page.model()) return true;
    if (this.#page.hasTools()) return false;
    const units = this.#page.system().reduce((sum, { content }) => sum + (content?.length ?? 0), message.length);
    return this.#context > 0 && units * MAX_TOKENS + TEMPLATE_TOKENS <= this.#context;
  }
}
