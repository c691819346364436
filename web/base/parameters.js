/* tools/tables.mjs writes this file from include/plumb.h: change that, then `make docs`. */

/** @typedef {object} SamplingParameters
 * @property {number} [temperature]  temperature, 0 is greedy; 0 to 1e6; default 0.8
 * @property {number} [topK]  keep the N likeliest tokens, 0 is off; 0 to 2147483647; default 40
 * @property {number} [topP]  keep the likeliest tokens whose probabilities add up to X, 1 is off; 0 to 1; default
 *   0.95
 * @property {number} [minP]  keep tokens at least X times as likely as the likeliest, 0 is off; 0 to 1; default 0.05
 * @property {number} [typicalP]  locally typical sampling, 1 is off; 0 to 1; default 1
 * @property {number} [repeatPenalty]  divide the logits of recent tokens, 1 is off; 1e-6 to 1e6; default 1
 * @property {number} [presencePenalty]  subtract from the logits of recent tokens; -1e6 to 1e6; default 0
 * @property {number} [frequencyPenalty]  the same, once for each occurrence; -1e6 to 1e6; default 0
 * @property {number} [penaltyLastN]  how many tokens the penalties look at; 0 to 16777216; default 64 */
/** @typedef {object} CompletionSampling
 * @property {number | null} [temperature]  temperature, 0 is greedy; 0 to 2; default 0.8
 * @property {number | null} [top_k]  keep the N likeliest tokens, 0 is off; 0 to 2147483647; default 40
 * @property {number | null} [top_p]  keep the likeliest tokens whose probabilities add up to X, 1 is off; 0 to 1;
 *   default 0.95
 * @property {number | null} [min_p]  keep tokens at least X times as likely as the likeliest, 0 is off; 0 to 1;
 *   default 0.05
 * @property {number | null} [typical_p]  locally typical sampling, 1 is off; 0 to 1; default 1
 * @property {number | null} [repeat_penalty]  divide the logits of recent tokens, 1 is off; 1e-6 to 1e6; default 1
 * @property {number | null} [presence_penalty]  subtract from the logits of recent tokens; -2 to 2; default 0
 * @property {number | null} [frequency_penalty]  the same, once for each occurrence; -2 to 2; default 0
 * @property {number | null} [penalty_last_n]  how many tokens the penalties look at; 0 to 16777216; default 64 */

/** The parameters of sampling, in the order of plumb_sampling.  field: the name in C and in OpenAI's API; openai: its
 * range there; option: on the command line; label, step, hint: on the chat page, if it is there. */
export const PARAMETERS = [
  { name: 'temperature', field: 'temperature', isInteger: false, low: 0, high: 1e6, standard: 0.8,
    openai: [0, 2], option: '--temp', label: 'Temperature', step: 0.05, hint: '0: always the likeliest' },
  { name: 'topK', field: 'top_k', isInteger: true, low: 0, high: 2147483647, standard: 40,
    openai: [0, 2147483647], option: '--top-k', label: 'Top k', step: 1, hint: '0: off' },
  { name: 'topP', field: 'top_p', isInteger: false, low: 0, high: 1, standard: 0.95,
    openai: [0, 1], option: '--top-p', label: 'Top p', step: 0.01, hint: '1: off' },
  { name: 'minP', field: 'min_p', isInteger: false, low: 0, high: 1, standard: 0.05,
    openai: [0, 1], option: '--min-p', label: 'Min p', step: 0.01, hint: '0: off' },
  { name: 'typicalP', field: 'typical_p', isInteger: false, low: 0, high: 1, standard: 1,
    openai: [0, 1], option: '--typical', label: 'Typical p', step: 0.01, hint: '1: off' },
  { name: 'repeatPenalty', field: 'repeat_penalty', isInteger: false, low: 1e-6, high: 1e6, standard: 1,
    openai: [1e-6, 1e6], option: '--repeat-penalty', label: 'Repetition', step: 0.05, hint: '1: off' },
  { name: 'presencePenalty', field: 'presence_penalty', isInteger: false, low: -1e6, high: 1e6, standard: 0,
    openai: [-2, 2], option: '--presence-penalty', label: 'Presence', step: 0.1, hint: '0: off' },
  { name: 'frequencyPenalty', field: 'frequency_penalty', isInteger: false, low: -1e6, high: 1e6, standard: 0,
    openai: [-2, 2], option: '--frequency-penalty', label: 'Frequency', step: 0.1, hint: '0: off' },
  { name: 'penaltyLastN', field: 'penalty_last_n', isInteger: true, low: 0, high: 16777216, standard: 64,
    openai: [0, 16777216], option: '--repeat-last-n', label: undefined, step: 1, hint: undefined },
];

export const MAX_CTX = 16777216;
export const MAX_THREADS = 64;
export const MAX_SNAPSHOTS = 64;
export const MAX_DRAFT = 15;

/* The names of the values of enums, from 0 on. */
export const PRECISIONS = /** @type {const} */ (['exact16', 'fast8']);
export const KV_TYPES = /** @type {const} */ (['i16', 'q8_0', 'q4_0', 'f32']);
export const POOLINGS = /** @type {const} */ (['none', 'mean', 'cls', 'last', 'rank']);
export const JSON_SPACES = /** @type {const} */ (['compact', 'pretty', 'free']);
