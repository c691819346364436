/* OpenAI's Decisions and System One with a model on this machine: typed questions about an input, answered with
 * probabilities.  The shapes are those of openai 7.59 (https://platform.openai.com/docs/api-reference/decisions) and
 * of @typesafe-ai/sdk 0.6 (https://docs.typesafe.ai/api), whose System One llama.cpp's server has too. */
import { argumentError } from '../base/errors.js';
import * as known from '../base/options.js';
import { givenOf, nameOf } from './answering.js';
import { messagesOf, textOf } from './items.js';

/** @typedef {import('../answers/messages.js').Message} Message
 * @typedef {import('../answers/decisions.js').DecisionQuestion} DecisionQuestion
 * @typedef {import('../answers/decisions.js').Calibration} Calibration */
/** @typedef {{type: string, text?: string, data?: object, [more: string]: any}} DecisionPart  {type: 'input_text',
 *   text} or {type: 'input_json', data}; images are refused
 * @typedef {{type?: string, role?: string, content?: string | DecisionPart[], [more: string]: any}} DecisionItem
 *   a message, or a call of a function or a custom tool and its output */
/** @typedef {object} DecisionQuestionParam
 * @property {'predicate' | 'choice' | 'score'} type  predicate: how likely it is that a statement is true
 * @property {string | DecisionPart[]} instructions
 * @property {string} [name]
 * @property {{value: string | boolean, description?: string}[]} [choices]  of a choice: 2 to 255
 * @property {{label: string, description?: string}[]} [levels]  of a score: the lowest first
 * @property {Calibration} [calibration]  plumb's own: as in model.decide */
/** @typedef {object} DecisionParameters  null is the same as absent
 * @property {string} [model]  as in chat.completions.create
 * @property {string | DecisionItem[]} input
 * @property {DecisionQuestionParam[]} questions  1 to 400
 * @property {string | null} [safety_identifier]  ignored, as are the options of OpenAI's prompt cache
 * @property {string | null} [prompt_cache_key]
 * @property {object | null} [prompt_cache_options]
 * @property {boolean | null} [content_free]  plumb's own: as in model.decide */
/** @typedef {{type: 'predicate', name: string | null, probability: number}
 *   | {type: 'choice', name: string | null, choice: string | boolean, confidence: number,
 *     probabilities: {value: string | boolean, probability: number}[]}
 *   | {type: 'score', name: string | null, score: number, confidence: number,
 *     probabilities: {label: string, value: number, probability: number}[]}} OpenAIAnswer */
/** @typedef {object} Decision
 * @property {OpenAIAnswer[]} answers  in the order of the questions
 * @property {string} model
 * @property {{input_tokens: number, input_tokens_details: {cached_tokens: number, cache_write_tokens: number},
 *   output_tokens: number, output_tokens_details: {reasoning_tokens: number}, total_tokens: number}} usage */
/** @typedef {string | {[key: string]: any} | any[] | null} Entry  a text, or JSON
 * @typedef {object} SystemOneQuestion
 * @property {'noul' | 'choice' | 'score'} type  noul: a yes/no question
 * @property {Entry} [instructions]
 * @property {any} [criteria]  of noul {true, false}, of choice descriptions by label, of score a list of descriptions;
 *   each is an Entry
 * @property {Calibration} [calibration]  plumb's own: as in model.decide
 * @typedef {object} SystemOneParameters
 * @property {string} [model]  as in chat.completions.create
 * @property {Entry} state  what is asked about
 * @property {Record<string, SystemOneQuestion>} questions
 * @property {boolean} [content_free]  plumb's own: as in model.decide
 * @typedef {{type: 'noul', noul: number}
 *   | {type: 'choice', choice: string, confidence: number, probabilities: Record<string, number>}
 *   | {type: 'score', score: number, confidence: number, legend: Record<string, Entry>,
 *     probabilities: Record<string, number>}} SystemOneAnswer
 * @typedef {object} SystemOneResponse
 * @property {string} model
 * @property {Record<string, SystemOneAnswer>} answers
 * @property {{input_tokens: number, output_tokens: number}} usage */
/** @typedef {object} DecisionModel  the model that decides
 * @property {Record<string, import('../engine/engine.js').MetadataValue>} metadata
 * @property {(context: any, questions: Record<string, DecisionQuestion>, options?: {contentFree?: boolean,
 *   signal?: AbortSignal}) => Promise<{answers: Record<string, any>,
 *   stats: import('../engine/decide.js').DecideStats}>} decide */

/** `model.decisions`, and `decisions` of the client of plumb-llm/openai. */
export class Decisions {
  #hold;

  /** @param {(where: string, name?: string, signal?: AbortSignal) =>
   *   Promise<{model: DecisionModel, free: () => void}>} hold  as for Completions */
  constructor(hold) {
    this.#hold = hold;
  }

  /** Answers questions, as model.decide does: OpenAI's POST /v1/decisions.
   * @param {DecisionParameters} params
   * @param {{signal?: AbortSignal}} [options]  signal: makes the call reject with its reason
   * @returns {Promise<Decision>} */
  async create(params, options = {}) {
    const where = 'decisions.create', given = givenOf(where, params, known.DECISION, '{input, questions}');
    known.checkOptions(where, options, known.FEED);
    known.checkNesting(where, given);
    const { input, questions } = given;
    if (input === undefined) throw argumentError(`${where}: input is missing`);
    const asked = (questions ?? []).map((/** @type {any} */ one, /** @type {number} */ i) =>
      questionOf(`${where}: questions[${i}]`, one));
    const context = typeof input === 'string' ? input : messagesOf(where, input);
    const { answers, stats, model } = await this.#decide(where, given, options, context,
      Object.fromEntries(Object.entries(asked)));
    const tokens = tokensOf(stats);
    return {
      answers: Object.values(answers).map((answer, i) => openaiAnswer(questions[i], answer)), model,
      usage: {
        input_tokens: tokens, input_tokens_details: { cached_tokens: stats.reusedTokens, cache_write_tokens: 0 },
        output_tokens: 0, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: tokens,
      },
    };
  }

  /** Answers questions, as model.decide does: POST /v1/systemone of System One.
   * @param {SystemOneParameters} params
   * @param {{signal?: AbortSignal}} [options]  signal: makes the call reject with its reason
   * @returns {Promise<SystemOneResponse>} */
  async systemOne(params, options = {}) {
    const where = 'decisions.systemOne', given = givenOf(where, params, known.SYSTEM_ONE, '{state, questions}');
    known.checkOptions(where, options, known.FEED);
    known.checkNesting(where, given);
    const questions = Object.entries(given.questions ?? {}), { state = '' } = given;
    const asked = Object.fromEntries(questions.map(([name, one]) =>
      [name, systemOneQuestion(`${where}: questions[${JSON.stringify(name)}]`, one)]));
    const context = entryText(`${where}: state`, state);
    const { answers, stats, model } = await this.#decide(where, given, options, context, asked);
    return {
      model, answers: Object.fromEntries(questions.map(([name, one]) => [name, systemOneAnswer(one, answers[name])])),
      usage: { input_tokens: tokensOf(stats), output_tokens: 0 },
    };
  }

  /** @param {string} where @param {any} given @param {{signal?: AbortSignal}} options
   * @param {string | Message[]} context @param {Record<string, DecisionQuestion>} questions */
  async #decide(where, given, { signal }, context, questions) {
    signal?.throwIfAborted();
    const { model, free } = await this.#hold(where, given.model, signal);
    const result = await model.decide(context, questions, { contentFree: given.content_free ?? false, signal })
      .finally(free);
    return { ...result, model: nameOf(model, given.model) };
  }
}

/** How many tokens there were, each counted once. @param {import('../engine/decide.js').DecideStats} stats */
const tokensOf = ({ reusedTokens, computedTokens }) => reusedTokens + computedTokens;

/** @param {string} where @param {any} value @returns {string} */
function entryText(where, value) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  if (text === undefined) throw argumentError(`${where} is ${typeof value}, expected a text, an object or an array`);
  return text;
}

/** @param {string} where @param {any} question @returns {DecisionQuestion} */
function questionOf(where, question) {
  const { type, name, instructions, choices, levels, calibration, ...more } = Object(question);
  if (!['predicate', 'choice', 'score'].includes(type)) {
    throw argumentError(`${where}: type is ${JSON.stringify(type)}, expected "predicate", "choice" or "score"`);
  }
  if (!['string', 'undefined'].includes(typeof name)) throw argumentError(`${where}: name is no string`);
  const asked = {
    instructions: textOf(`${where}: instructions`, instructions), ...calibration && { calibration },
  };
  const labels = (/** @type {any} */ list, /** @type {string} */ key) => !Array.isArray(list) ? list : list.map(one => {
    const { [key]: value, description, ...more } = Object(one);
    const isLabel = typeof value === 'string' || key === 'value' && typeof value === 'boolean';
    if (!isLabel) throw argumentError(`${where}: ${key} of a ${type} is ${JSON.stringify(value)}, expected a string`);
    return { value: String(value), ...(description ?? null) !== null && { description }, ...more };
  });
  const converted = type === 'predicate' ? { ...more, ...asked, type: 'boolean' }
    : type === 'choice' ? { ...more, ...asked, type, choices: labels(choices, 'value') }
      : { ...more, ...asked, type, levels: labels(levels, 'label') };
  known.checkQuestion(where, converted);
  return converted;
}

/** @param {DecisionQuestionParam} question @param {any} answer @returns {OpenAIAnswer} */
function openaiAnswer({ type, name: given, choices = [], levels = [] }, answer) {
  const { value, probability, confidence, probabilities } = answer, name = given ?? null;
  if (type === 'predicate') return { type, name, probability };
  if (type === 'score') {
    return { type, name, score: value, confidence, probabilities: levels.map(({ label }, i) =>
      ({ label, value: i, probability: probabilities[label] })) };
  }
  return {
    type, name, choice: choices.find(one => String(one.value) === value)?.value ?? value, confidence,
    probabilities: choices.map(one => ({ value: one.value, probability: probabilities[String(one.value)] })),
  };
}

/** @param {string} where @param {any} question @returns {DecisionQuestion} */
function systemOneQuestion(where, question) {
  const { type, instructions, criteria, calibration, ...more } = Object(question), list = criteria ?? undefined;
  const text = (/** @type {any} */ value) => (value ?? null) === null ? undefined : entryText(where, value);
  const asked = { ...more, ...calibration && { calibration }, instructions: text(instructions) };
  /** @type {any} */
  let converted;
  if (type === 'noul') {
    const { true: yes, false: no } = Object(list);
    converted = { ...asked, type: 'boolean', criteria: { true: text(yes), false: text(no) } };
  } else if (type === 'choice') {
    converted = { ...asked, type, choices: list && Object.entries(list).map(([value, description]) =>
      ({ value, description: text(description) })) };
  } else if (type === 'score') {
    converted = { ...asked, type, levels: Array.isArray(list) ? list.map((description, i) =>
      ({ value: String(i), description: text(description) })) : list };
  } else throw argumentError(`${where}: type is ${JSON.stringify(type)}, expected "noul", "choice" or "score"`);
  known.checkQuestion(where, converted);
  return converted;
}

/** @param {SystemOneQuestion} question @param {any} answer @returns {SystemOneAnswer} */
function systemOneAnswer({ type, criteria }, { value, probability, confidence, probabilities }) {
  if (type === 'noul') return { type, noul: probability };
  if (type === 'choice') return { type, choice: value, confidence, probabilities };
  return { type, score: value, confidence, legend: { ...criteria }, probabilities };
}
