/* Measures how much of the model's context the conversation and the draft take, and whether a message fits. */
import { count, dotted, element, integer, worseBeyond } from './dom.js';

/** @typedef {import('../api/plumb.js').Model} Model
 * @typedef {import('../api/plumb.js').Message} Message */

/** Milliseconds after the last key until the draft is measured. */
const DEBOUNCE = 200;
/** Upper bound on the tokens of a UTF-16 unit: it has at most three bytes of UTF-8, and a token has at least one. */
const MAX_TOKENS = 3;
/** A generous upper bound on the tokens that a chat template writes around a message. */
const TEMPLATE_TOKENS = 256;

/** @param {{model: () => Model | undefined, busy: () => boolean, conversation: () => Message[],
 *   system: () => Message[]}} page
 *   conversation: the messages of the conversation that the model would be given; system: the system message, if any
 * @param {(fits: boolean) => void} changed  called with whether the draft can be sent */
export function createContextMeter({ model: current, busy, conversation, system }, changed) {
  const text = element('context-used', 'p'), note = element('draft-note', 'p'), draft = element('prompt', 'textarea');
  /** Numbers of tokens: of the conversation, of the context, and of the context that the model was trained for. */
  let used = 0, context = 0, trained = 0;
  /** The last measurement. @type {{text: string, tokens: number, problem: string} | undefined} */
  let measured;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  /** @param {Model} model @param {Message[]} messages @param {boolean} [addGenerationPrompt] */
  const tokensOf = async (model, messages, addGenerationPrompt = true) =>
    messages.length === 0 ? 0 : (await model.tokenizeChat(messages, { addGenerationPrompt })).length;

  function show() {
    const tokens = measured && measured.text === draft.value ? measured.tokens : 0;
    const problem = measured && measured.text === draft.value ? measured.problem : '';
    text.textContent = context === 0 ? ''
      : dotted([tokens > 0 && `draft ${integer(tokens)}`, `${integer(used)} of ${count(context, 'token')}`]);
    const beyond = used + tokens > trained && context > trained && trained > 0;
    note.classList.toggle('problem', problem !== '');
    note.textContent = problem || (beyond ? worseBeyond(trained) : '');
    draft.setAttribute('aria-invalid', String(problem !== ''));
    changed(problem === '');
  }

  /** Why a message cannot be sent, as a sentence; empty if it can.
   * @param {string} message @returns {Promise<string>} */
  async function problemOf(message) {
    const model = current();
    if (!model || message === '') return '';
    if (measured?.text === message) return measured.problem;
    ({ contextLength: context, trainedContext: trained } = await model.info());
    const { length: tokens } = await model.tokenize(message, { addSpecial: false });
    const all = await tokensOf(model, [...system(), { role: 'user', content: message }]);
    const problem = all <= context ? '' : `This message is too long: it takes ${count(all, 'token')}, and the context `
      + `holds ${integer(context)}. Shorten it, or set a longer context in the settings.`;
    if (model === current()) measured = { text: message, tokens, problem };
    return problem;
  }

  /** Measures the draft, unless an answer is running. */
  async function measureDraft() {
    const message = draft.value;
    try {
      if (!busy() && message !== measured?.text) await problemOf(message);
    } catch {
      // For instance, the chat template refuses it: sending a message shows that.
    }
    if (message === draft.value) show();
  }

  draft.addEventListener('input', () => {
    clearTimeout(timer);
    if (draft.value === '' || measured?.problem) show();   // removes what was said about another draft at once
    timer = setTimeout(measureDraft, DEBOUNCE);
  });

  return {
    /** Measures the conversation and the draft. */
    async measure() {
      const model = current();
      if (!model || busy()) return;
      const messages = conversation();
      measured = undefined;
      try {
        const info = await model.info(), tokens = await tokensOf(model, messages, false);
        if (model !== current() || busy()) return;
        used = tokens;
        ({ contextLength: context, trainedContext: trained } = info);
        await measureDraft();
      } catch {
        context = 0;
        show();
      }
    },
    /** Shows the tokens of the conversation, which are known without asking the model. @param {number} tokens */
    async set(tokens) {
      used = tokens;
      show();
      await measureDraft();
    },
    /** Shows nothing while an answer is running. */
    clear() {
      text.textContent = '';
      note.textContent = '';
    },
    measureDraft,
    problemOf,
    /** Whether a message certainly fits, without counting its tokens. @param {string} message */
    isShort: message => !current() || context > 0 && message.length * MAX_TOKENS + TEMPLATE_TOKENS
      + system().reduce((sum, { content }) => sum + MAX_TOKENS * (content?.length ?? 0), 0) <= context,
  };
}
