/* The models that the page offers, and what it does with each kind of model. */

/** @typedef {import('../../api/plumb.js').Model} Model */

/** @param {string} file */
const urlOf = file => new URL(`../../../models/${file}`, import.meta.url).href;

/** The first one is the default, and the second one is suggested in its place.  hub: the short name of a model, as a
 * host of the page may lack its file; size: megabytes.
 * @type {{url: string, name: string, about: string, size: number, licence: string, hub: string}[]} */
export const OFFERED = [
  { url: urlOf('SmolLM2-135M-Instruct.Q4_1.gguf'), name: 'SmolLM2 135M', hub: 'smollm2:135m',
    about: 'for the first second: answers messages', size: 98, licence: 'Apache 2.0' },
  { url: urlOf('qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'), name: 'Qwen2.5-Coder 0.5B', hub: 'qwen2.5-coder:0.5b',
    about: 'for real answers: writes text and code', size: 491, licence: 'Apache 2.0' },
  { url: urlOf('gemma-3-270m.Q4_K_M.gguf'), name: 'Gemma 3 270M', hub: 'gemma3:270m-base',
    about: 'continues a text', size: 253, licence: 'Gemma licence' },
  { url: urlOf('all-MiniLM-L6-v2.Q8_0.gguf'), name: 'MiniLM L6', hub: 'all-minilm:22m',
    about: 'compares texts', size: 25, licence: 'Apache 2.0' },
];

/** What is said of an offered model. @param {typeof OFFERED[number]} offered */
export const describedOffer = ({ about, size, licence }) => `${about}, ${size} MB, ${licence}`;

const TEMPLATE = 'tokenizer.chat_template';
/** A chat template for base models: the texts one after the other.  A text that the user adds begins a line. */
const TEXTS = `{%- for message in messages -%}
  {%- if message.role == 'user' and not loop.first %}{{ '\\n' }}{% endif -%}
  {{- message.content -}}
{%- endfor -%}`;

/** What a model does in the page.  compares: it computes embeddings; ranks: it is a reranker.
 * @typedef {'answers' | 'continues' | 'compares' | 'ranks'} Kind */

/** What the reader is told of the kinds that do not answer messages. @type {Record<Kind, string>} */
export const USE = {
  answers: '',
  continues: 'The model has no chat template. It does not answer messages but continues a text.',
  compares: 'The model computes embeddings. It does not answer messages but shows how near texts are to each other.',
  ranks: 'The model is a reranker. It does not answer messages but says which texts answer a query.',
};

/** @param {{pooling?: string, hasLogits?: boolean, chat?: boolean}} facts  of preflight, or of a model
 * @returns {Kind} */
export function kindOf({ pooling = 'none', hasLogits = true, chat = true }) {
  if (pooling === 'rank') return 'ranks';
  return pooling !== 'none' || !hasLogits ? 'compares' : chat ? 'answers' : 'continues';
}

/** The kind of a loaded model.  Lets one without a chat template, such as a base model, continue the text of the
 * conversation. @param {Model} model */
export async function prepare(model) {
  const kind = kindOf({ ...await model.info(), chat: typeof model.metadata[TEMPLATE] === 'string' });
  if (kind === 'continues') model.metadata[TEMPLATE] = TEXTS;
  return kind;
}
