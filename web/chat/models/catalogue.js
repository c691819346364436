/* The catalogue: what is known of the models that have a short name (loader/names.js, which has their repositories and
 * the numbers of their weights).  Facts change after DATE: the dialog asks the hub before it downloads anything. */
import { NAMES } from '../../loader/names.js';

/** When the facts were collected. */
export const DATE = '2026-11-29';

/** @typedef {'chat' | 'code' | 'reason' | 'tools' | 'continue' | 'search' | 'rank'} Use
 * @typedef {object} Facts
 * @property {string} title
 * @property {string} family
 * @property {string} architecture  general.architecture of the file
 * @property {string} type  of the weights that are chosen if the name asks for none
 * @property {number} bytes  of that file: exact if verified, else as lists of the hub's files state them
 * @property {string} licence  an SPDX identifier, or a key of LICENCES
 * @property {string} languages  codes of ISO 639-1, or "*" for more than fifty
 * @property {Use[]} uses
 * @property {string} about  what it is good for
 * @property {number} [active]  millions of weights that are read for each token, if not all are
 * @property {boolean} [gated]  whether the hub asks for an account that has accepted its conditions
 * @property {boolean} [verified]  whether plumb has run these weights, which models/manifest.json has
 * @typedef {Facts & import('../../loader/names.js').NamedModel} Entry */

/** What the uses are called. @type {Record<Use, string>} */
export const USES = {
  chat: 'Chat', code: 'Code', reason: 'Reasoning', tools: 'Tools', continue: 'Continues texts',
  search: 'Search by meaning', rank: 'Ranking of texts',
};

/** The names of licences that have no SPDX identifier. @type {Record<string, string>} */
export const LICENCES = {
  Gemma: 'Gemma Terms of Use', Llama: 'Llama 3.2 Community License', LFM: 'LFM Open License',
  Qwen: 'Qwen Research License, not for commercial use',
};

const EUROPEAN = 'en de es fr it pt nl', GRANITE = 'en de es fr ja pt ar cs it ko nl zh';
const LFM = 'en ar zh fr de ja ko es', QWEN = 'en zh fr es pt de it ru ja ko vi th ar';

/** @type {Record<string, Facts>} */
const FACTS = {
  'smollm2:135m': { title: 'SmolLM2 135M', family: 'SmolLM', architecture: 'llama', type: 'Q4_1', bytes: 98362432,
    licence: 'Apache-2.0', languages: 'en', uses: ['chat'], about: 'For the first second, and to try things out.',
    verified: true },
  'smollm2:360m': { title: 'SmolLM2 360M', family: 'SmolLM', architecture: 'llama', type: 'Q4_K_M', bytes: 271e6,
    licence: 'Apache-2.0', languages: 'en', uses: ['chat'], about: 'Short answers and rewriting.' },
  'smollm2:1.7b': { title: 'SmolLM2 1.7B', family: 'SmolLM', architecture: 'llama', type: 'Q4_K_M', bytes: 1056e6,
    licence: 'Apache-2.0', languages: 'en', uses: ['chat', 'tools'], about: 'Answers, summaries and rewriting.' },
  'smollm3:3b': { title: 'SmolLM3 3B', family: 'SmolLM', architecture: 'smollm3', type: 'Q4_K_M', bytes: 1915e6,
    licence: 'Apache-2.0', languages: 'en fr es de it pt', uses: ['chat', 'reason', 'tools'],
    about: 'Answers with or without thinking before.' },
  'qwen2.5:0.5b': { title: 'Qwen2.5 0.5B', family: 'Qwen', architecture: 'qwen2', type: 'Q4_K_M', bytes: 491e6,
    licence: 'Apache-2.0', languages: QWEN, uses: ['chat'], about: 'A small model for many languages.' },
  'qwen2.5:1.5b': { title: 'Qwen2.5 1.5B', family: 'Qwen', architecture: 'qwen2', type: 'Q4_K_M', bytes: 1117e6,
    licence: 'Apache-2.0', languages: QWEN, uses: ['chat', 'tools'], about: 'Answers, JSON and calls of functions.' },
  'qwen2.5:3b': { title: 'Qwen2.5 3B', family: 'Qwen', architecture: 'qwen2', type: 'Q4_K_M', bytes: 2105e6,
    licence: 'Qwen', languages: QWEN, uses: ['chat', 'tools'], about: 'Answers, JSON and calls of functions.' },
  'qwen2.5-coder:0.5b': { title: 'Qwen2.5-Coder 0.5B', family: 'Qwen', architecture: 'qwen2', type: 'Q4_K_M',
    bytes: 491400064, licence: 'Apache-2.0', languages: QWEN, uses: ['chat', 'code'],
    about: 'For real answers: writes text and code.', verified: true },
  'qwen2.5-coder:1.5b': { title: 'Qwen2.5-Coder 1.5B', family: 'Qwen', architecture: 'qwen2', type: 'Q4_K_M',
    bytes: 1117320768, licence: 'Apache-2.0', languages: QWEN, uses: ['chat', 'code'],
    about: 'Writes and explains code.', verified: true },
  'qwen2.5-coder:3b': { title: 'Qwen2.5-Coder 3B', family: 'Qwen', architecture: 'qwen2', type: 'Q4_K_M',
    bytes: 2105e6, licence: 'Qwen', languages: QWEN, uses: ['chat', 'code'], about: 'Writes and explains code.' },
  'qwen3:0.6b': { title: 'Qwen3 0.6B', family: 'Qwen', architecture: 'qwen3', type: 'Q4_K_M', bytes: 397e6,
    licence: 'Apache-2.0', languages: '*', uses: ['chat', 'reason', 'tools'], about: 'Small, and can think first.' },
  'qwen3:1.7b': { title: 'Qwen3 1.7B', family: 'Qwen', architecture: 'qwen3', type: 'Q4_K_M', bytes: 1107e6,
    licence: 'Apache-2.0', languages: '*', uses: ['chat', 'reason', 'tools'], about: 'Thinks before it answers.' },
  'qwen3:4b': { title: 'Qwen3 4B 2507', family: 'Qwen', architecture: 'qwen3', type: 'Q4_K_M', bytes: 2497e6,
    licence: 'Apache-2.0', languages: '*', uses: ['chat', 'code', 'tools'],
    about: 'Careful answers without thinking before.' },
  'qwen3.5:0.8b': { title: 'Qwen3.5 0.8B', family: 'Qwen', architecture: 'qwen35', type: 'Q4_K_M', bytes: 532517120,
    licence: 'Apache-2.0', languages: '*', uses: ['chat', 'tools'], about: 'Long conversations take little memory.' },
  'qwen3.5:2b': { title: 'Qwen3.5 2B', family: 'Qwen', architecture: 'qwen35', type: 'Q4_K_M', bytes: 1280835840,
    licence: 'Apache-2.0', languages: '*', uses: ['chat', 'reason', 'tools'],
    about: 'Long conversations take little memory.' },
  'qwen3.5:4b': { title: 'Qwen3.5 4B', family: 'Qwen', architecture: 'qwen35', type: 'Q4_K_M', bytes: 2740937888,
    licence: 'Apache-2.0', languages: '*', uses: ['chat', 'code', 'reason', 'tools'],
    about: 'The largest Qwen3.5 for a page.' },
  'llama3.2:1b': { title: 'Llama 3.2 1B', family: 'Llama', architecture: 'llama', type: 'Q4_K_M', bytes: 808e6,
    licence: 'Llama', languages: 'en de fr it pt hi es th', uses: ['chat'],
    about: 'Answers, summaries and rewriting.' },
  'llama3.2:3b': { title: 'Llama 3.2 3B', family: 'Llama', architecture: 'llama', type: 'Q4_K_M', bytes: 2019e6,
    licence: 'Llama', languages: 'en de fr it pt hi es th', uses: ['chat', 'tools'],
    about: 'Answers, summaries and calls of functions.' },
  'gemma3:270m': { title: 'Gemma 3 270M', family: 'Gemma', architecture: 'gemma3', type: 'Q4_K_M', bytes: 253e6,
    licence: 'Gemma', languages: '*', uses: ['chat'], about: 'Meant to be trained further for one task.' },
  'gemma3:270m-base': { title: 'Gemma 3 270M base', family: 'Gemma', architecture: 'gemma3', type: 'Q4_K_M',
    bytes: 253113024, licence: 'Gemma', languages: '*', uses: ['continue'],
    about: 'Continues a text, and shows what a base model is.', verified: true },
  'gemma3:1b': { title: 'Gemma 3 1B', family: 'Gemma', architecture: 'gemma3', type: 'Q4_K_M', bytes: 806e6,
    licence: 'Gemma', languages: 'en', uses: ['chat'], about: 'Answers and stories; little memory for long ones.' },
  'gemma3:1b-qat': { title: 'Gemma 3 1B QAT', family: 'Gemma', architecture: 'gemma3', type: 'Q4_0', bytes: 1e9,
    licence: 'Gemma', languages: 'en', uses: ['chat'], about: 'Trained for weights of 4 bits; Google’s own file.',
    gated: true },
  'gemma3:4b': { title: 'Gemma 3 4B', family: 'Gemma', architecture: 'gemma3', type: 'Q4_K_M', bytes: 2490e6,
    licence: 'Gemma', languages: '*', uses: ['chat'], about: 'Answers and translations in many languages.' },
  'gemma4:e2b': { title: 'Gemma 4 E2B', family: 'Gemma', architecture: 'gemma4', type: 'Q4_K_M', bytes: 3106736256,
    active: 2300, licence: 'Apache-2.0', languages: '*', uses: ['chat', 'reason', 'tools'],
    about: 'A large file of which each token reads a half.' },
  'lfm2:700m': { title: 'LFM2 700M', family: 'LFM', architecture: 'lfm2', type: 'Q4_K_M', bytes: 468624320,
    licence: 'LFM', languages: LFM, uses: ['chat'], about: 'Fast for its size; little memory for long texts.' },
  'lfm2:2.6b': { title: 'LFM2 2.6B', family: 'LFM', architecture: 'lfm2', type: 'Q4_K_M', bytes: 1563668704,
    licence: 'LFM', languages: LFM, uses: ['chat', 'tools'],
    about: 'Fast for its size; little memory for long texts.' },
  'lfm2.5:350m': { title: 'LFM2.5 350M', family: 'LFM', architecture: 'lfm2', type: 'Q4_K_M', bytes: 229312224,
    licence: 'LFM', languages: LFM, uses: ['chat', 'tools'], about: 'Fast; extracts data and calls functions.' },
  'lfm2.5:1.2b': { title: 'LFM2.5 1.2B', family: 'LFM', architecture: 'lfm2', type: 'Q4_K_M', bytes: 730895168,
    licence: 'LFM', languages: LFM, uses: ['chat', 'tools'], about: 'Answers, extracts data and calls functions.' },
  'granite4:350m': { title: 'Granite 4.0 350M', family: 'Granite', architecture: 'granitehybrid', type: 'Q4_K_M',
    bytes: 236985760, licence: 'Apache-2.0', languages: GRANITE, uses: ['chat', 'tools'],
    about: 'Small tasks: extracts, sorts, calls functions.' },
  'granite4:350m-h': { title: 'Granite 4.0 H 350M', family: 'Granite', architecture: 'granitehybrid', type: 'Q4_K_M',
    bytes: 222662560, licence: 'Apache-2.0', languages: GRANITE, uses: ['chat', 'tools'],
    about: 'As Granite 350M; little memory for long texts.' },
  'granite4:1b-h': { title: 'Granite 4.0 H 1B', family: 'Granite', architecture: 'granitehybrid', type: 'Q4_K_M',
    bytes: 901162208, licence: 'Apache-2.0', languages: GRANITE, uses: ['chat', 'tools'],
    about: 'Follows instructions, calls functions.' },
  'granite4:3b-h': { title: 'Granite 4.0 H Micro', family: 'Granite', architecture: 'granitehybrid', type: 'Q4_K_M',
    bytes: 1942564512, licence: 'Apache-2.0', languages: GRANITE, uses: ['chat', 'code', 'tools'],
    about: 'Follows instructions, calls functions.' },
  'phi4-mini:3.8b': { title: 'Phi-4-mini 3.8B', family: 'Phi', architecture: 'phi3', type: 'Q4_K_M', bytes: 2492e6,
    licence: 'MIT', languages: `${EUROPEAN} ar zh cs da fi he hu ja ko no pl ru sv th tr uk`, uses: ['chat', 'code',
      'tools'], about: 'Mathematics and careful answers.' },
  'ministral3:3b': { title: 'Ministral 3 3B', family: 'Ministral', architecture: 'mistral3', type: 'Q4_K_M',
    bytes: 2147023008, licence: 'Apache-2.0', languages: `${EUROPEAN} zh ja ko ar`, uses: ['chat', 'tools'],
    about: 'Answers in European languages, calls functions.' },
  'minicpm5:1b': { title: 'MiniCPM5 1B', family: 'MiniCPM', architecture: 'llama', type: 'Q4_K_M', bytes: 688065920,
    licence: 'Apache-2.0', languages: 'en zh', uses: ['chat', 'code', 'reason', 'tools'],
    about: 'Thinks before it answers, or not.' },
  'bonsai:1.7b': { title: 'Bonsai 1.7B', family: 'Bonsai', architecture: 'qwen3', type: 'Q1_0', bytes: 248e6,
    licence: 'Apache-2.0', languages: 'en', uses: ['chat'], about: 'Weights of one bit: small for what it knows.' },
  'bonsai:4b': { title: 'Bonsai 4B', family: 'Bonsai', architecture: 'qwen3', type: 'Q1_0', bytes: 57e7,
    licence: 'Apache-2.0', languages: 'en', uses: ['chat'], about: 'Weights of one bit: small for what it knows.' },
  'all-minilm:22m': { title: 'MiniLM L6', family: 'Embeddings', architecture: 'bert', type: 'Q8_0', bytes: 25285408,
    licence: 'Apache-2.0', languages: 'en', uses: ['search'], about: 'Finds passages by meaning, very fast.',
    verified: true },
  'embeddinggemma:300m': { title: 'EmbeddingGemma 300M', family: 'Embeddings', architecture: 'gemma-embedding',
    type: 'Q8_0', bytes: 329e6, licence: 'Gemma', languages: '*', uses: ['search'],
    about: 'Finds passages by meaning in many languages.' },
  'qwen3-embedding:0.6b': { title: 'Qwen3 Embedding 0.6B', family: 'Embeddings', architecture: 'qwen3', type: 'Q8_0',
    bytes: 639e6, licence: 'Apache-2.0', languages: '*', uses: ['search'],
    about: 'Finds passages and code by meaning in many languages.' },
  'qwen3-reranker:0.6b': { title: 'Qwen3 Reranker 0.6B', family: 'Rerankers', architecture: 'qwen3', type: 'Q8_0',
    bytes: 64e7, licence: 'Apache-2.0', languages: '*', uses: ['rank'],
    about: 'Says which texts answer a question.' },
  'gte-reranker:149m': { title: 'GTE Reranker ModernBERT', family: 'Rerankers', architecture: 'modern-bert',
    type: 'Q4_K_M', bytes: 106340352, licence: 'Apache-2.0', languages: 'en', uses: ['rank'],
    about: 'Says which texts answer a question, fast.' },
};

/** All models of the catalogue: by family as above, the smallest of a family first. @type {Entry[]} */
export const CATALOGUE = Object.entries(FACTS).flatMap(([name, facts]) => {
  const model = NAMES.find(one => one.name === name);
  return model ? [{ ...facts, ...model }] : [];
});

/** Whether a model has one of these uses: it answers or continues texts, so that it has tokens in a second.
 * @param {Entry} entry */
export const writes = ({ uses }) => !uses.includes('search') && !uses.includes('rank');

/** Bytes of K and V that a session takes at most unless the settings say otherwise, and of all else. */
const SESSION = 512 * 2 ** 20, REST = 64 * 2 ** 20;

/** The memory that a model needs at most; a preflight says how much exactly. @param {Entry} entry */
export const memoryOf = entry => entry.bytes * 1.05 + (writes(entry) ? SESSION : 0) + REST;

/** The expected tokens per second: reading the weights takes nearly all of the time.
 * @param {Entry} entry @param {number} rate  bytes of weights per second, which this machine has shown */
export const speedOf = ({ bytes, active, parameters }, rate) => rate / (bytes * (active ?? parameters) / parameters);
