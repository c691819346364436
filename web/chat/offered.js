/* The models that the page offers, and what it does with a model that was not trained to answer messages. */

/** @typedef {import('../api/plumb.js').Model} Model */

/** @param {string} file */
const urlOf = file => new URL(`../../models/${file}`, import.meta.url).href;

/** The first one is the default. */
export const OFFERED = [
  { url: urlOf('SmolLM2-135M-Instruct.Q4_1.gguf'), name: 'SmolLM2 135M', about: 'answers messages, 98 MB, Apache 2.0' },
  { url: urlOf('gemma-3-270m.Q4_K_M.gguf'), name: 'Gemma 3 270M', about: 'continues a text, 253 MB, Gemma licence' },
];

const TEMPLATE = 'tokenizer.chat_template';
/** A chat template for base models: the texts one after the other.  A text that the user adds begins a line. */
const TEXTS = `{%- for message in messages -%}
  {%- if message.role == 'user' and not loop.first %}{{ '\\n' }}{% endif -%}
  {{- message.content -}}
{%- endfor -%}`;

/** Lets a model without a chat template, such as a base model, continue the text of the conversation.
 * @param {Model} model */
export function continueTexts(model) {
  model.metadata[TEMPLATE] ??= TEXTS;
}

/** Whether the model continues texts instead of answering messages. @param {Model | undefined} model */
export const continuesTexts = model => model?.metadata[TEMPLATE] === TEXTS;
