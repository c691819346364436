/* model.decide: typed questions about a context, answered with probabilities.  A model that generates text is asked as
 * in a chat, and the answer is the probability that it would answer with each label; an encoder compares the context
 * with each label. */
import { argumentError } from '../base/errors.js';
import { logSum } from '../base/math.js';
import * as known from '../base/options.js';
import { withoutReasoning } from '../answers/bound.js';
import { answerOf, formsOf, labelsOf, textOf } from '../answers/decisions.js';

/** @typedef {import('../answers/messages.js').Message} Message
 * @typedef {string | Message[] | Int32Array | number[]} Context
 * @typedef {import('../answers/messages.js').ChatModel} ChatModel
 * @typedef {import('../answers/messages.js').TemplateOptions} TemplateOptions
 * @typedef {import('../answers/decisions.js').DecisionQuestion} DecisionQuestion
 * @typedef {import('../answers/decisions.js').Label} Label */
/** @typedef {import('../engine/decide.js').DecideStats} DecideStats */
/** @typedef {object} DecideOptions
 * @property {'chat' | 'text' | 'none'} [prompt]  how the questions are asked.  'chat': as the end of a user's message,
 *   through the file's chat template.  'text': as a text that ends in "Answer:".  'none': labels follow the context as
 *   they are, and the questions have no instructions.  Default: 'chat' if the file has a template, otherwise 'text';
 *   'none' for a context of token ids
 * @property {TemplateOptions} [template]  for 'chat'
 * @property {boolean} [contentFree]  asks the questions about the text "N/A", too, and subtracts those scores, so that
 *   no label is preferred where there is nothing to say (Zhao et al. 2021, "Calibrate Before Use").  Takes as long as
 *   one more decision
 * @property {AbortSignal} [signal]  makes the call reject with its reason */
/** @template Q @typedef {{answers: {[K in keyof Q]: import('../answers/decisions.js').AnswerTo<Q[K]>},
 *   stats: DecideStats}} DecideResult */
/** What the cosine similarity of an embedding model is multiplied with: the scale with which sentence-transformers
 * trains models such as MiniLM (MultipleNegativesRankingLoss). */
const COSINE_SCALE = 20;

/** The text that says nothing, one of those of Zhao et al. */
const CONTENT_FREE = 'N/A';

/** @typedef {object} Asked  a session that is asked
 * @property {ChatModel} model  it and its model
 * @property {(method: string, args: object, options?: import('../base/protocol.js').CallOptions) => Promise<any>} call
 *   of the session
 * @property {(prompt: Context, template: TemplateOptions) => Promise<Int32Array>} promptIds  without special tokens in
 *   a text
 * @typedef {{name: string, question: DecisionQuestion, labels: Label[]}} Named
 * @typedef {{scores: number[][], stats: DecideStats}} Scored  scores: of each label of each question */

/** @param {Asked} asked @param {Context} context @param {Record<string, DecisionQuestion>} questions
 * @param {DecideOptions} options @returns {Promise<DecideResult<any>>} */
export async function decide(asked, context, questions, options) {
  known.checkOptions('decide', options, known.DECIDE);
  known.checkQuestions('decide', questions);
  options.signal?.throwIfAborted();
  const { hasLogits, pooling } = await asked.call('info', {}), generates = hasLogits && pooling !== 'rank';
  const all = Object.entries(questions).map(([name, question]) => ({ name, question, labels: labelsOf(question) }));
  const score = (/** @type {Context} */ context) =>
    (generates ? generating : comparing)(asked, context, all, options, pooling);
  if (options.contentFree && (options.prompt === 'none' || typeof context !== 'string' && !isMessages(context))) {
    throw argumentError('decide: contentFree asks the questions about another text, so it needs a prompt');
  }
  const free = options.contentFree ? await score(CONTENT_FREE) : undefined;
  const { scores, stats } = await score(context);
  return {
    answers: Object.fromEntries(all.map(({ name, question, labels }, i) =>
      [name, answerOf(question, labels, scores[i], { generates, free: free?.scores[i] })])),
    stats: free ? sum(stats, free.stats) : stats,
  };
}

/** @param {DecideStats} a @param {DecideStats} b @returns {DecideStats} */
const sum = (a, b) => /** @type {any} */ (Object.fromEntries(Object.entries(a).map(([name, n]) =>
  [name, n + b[/** @type {keyof DecideStats} */ (name)]])));

/** @param {Context} context */
const isMessages = context => Array.isArray(context) && typeof context[0] === 'object';

/** @param {Asked} asked @param {Context} context @param {Named[]} all @param {DecideOptions} options
 * @returns {Promise<Scored>} */
async function generating(asked, context, all, { prompt: given, template = {}, signal }) {
  const { model } = asked, isText = typeof context === 'string';
  const hasTemplate = model.chatTemplate !== '';
  const kind = given ?? (!isText && !isMessages(context) ? 'none' : hasTemplate || !isText ? 'chat' : 'text');
  if (kind !== 'none' && !isText && !isMessages(context)) {
    const given = context && typeof context === 'object' ? 'token ids' : typeof context;
    throw argumentError(`decide: the context is ${given}, but prompt is '${kind}', which takes a text`
      + `${kind === 'chat' ? ' or messages' : ''}`);
  }
  if (kind !== 'chat' && isMessages(context)) throw argumentError(`decide: messages need prompt 'chat', not '${kind}'`);
  const prompts = await Promise.all(all.map(async ({ name, question, labels }) => {
    const { instructions } = question, place = `question ${JSON.stringify(name)}`;
    if (kind === 'none' && instructions !== undefined) {
      throw argumentError(`decide: ${place} has instructions, but prompt is 'none': the labels follow the context as `
        + 'it is');
    }
    const text = textOf(question, labels);
    const ids = await asked.promptIds(kind === 'none' ? context : kind === 'chat' ? asMessages(context, text)
      : `${context}${context && '\n\n'}Question: ${text}\nAnswer:`, template);
    if (ids.length === 0) throw argumentError('decide: the context is empty');
    const forms = formsOf(labels);
    return {
      name: place, ids: kind === 'chat' ? await withoutReasoning(model, ids) : ids, forms,
      labels: forms.flat().map(form => kind === 'text' ? ` ${form}` : form),
    };
  }));
  const { logprobs, stats } = await asked.call('decide', {
    prompts: prompts.map(({ forms: _, ...prompt }) => prompt),
  }, { signal });
  return {
    scores: prompts.map(({ forms }, i) => forms.map(all => logSum(logprobs[i].splice(0, all.length)))), stats,
  };
}

/** The messages of a context, with a text at their end.
 * @param {any} context @param {string} text @returns {Message[]} */
function asMessages(context, text) {
  if (typeof context === 'string') return [{ role: 'user', content: `${context}${context && '\n\n'}${text}` }];
  const last = context[context.length - 1];
  if (last?.role !== 'user') return [...context, { role: 'user', content: text }];
  const content = Array.isArray(last.content) ? [...last.content, { type: 'text', text }]
    : `${last.content}\n\n${text}`;
  return [...context.slice(0, -1), { ...last, content }];
}

/** @param {Asked} asked @param {Context} context @param {Named[]} all @param {DecideOptions} options
 * @param {string} pooling @returns {Promise<Scored>} */
async function comparing({ call }, context, all, { prompt, signal }, pooling) {
  if (typeof context !== 'string') throw argumentError('decide: the context of an encoder is a text');
  if (prompt !== undefined) throw argumentError('decide: prompt: an encoder compares the context with the labels');
  const start = performance.now();
  let tokens = 0;
  /** @param {string} method @param {object} args */
  const compute = async (method, args) => {
    let done = 0;
    const result = await call(method, args, { signal, onEvent: (_, progress) => { done = progress.tokens; } });
    tokens += done;
    return result;
  };
  const texts = all.map(({ name, question, labels }) => labels.map(label => {
    const { type, instructions } = question, text = label.description ?? (type === 'boolean' ? undefined : label.text);
    if (pooling === 'rank') return [instructions, text].flatMap(one => one ?? []).join(' ');
    if (text !== undefined && (type !== 'score' || question.levels)) return text;
    throw argumentError(`decide: question ${JSON.stringify(name)} needs ${type === 'boolean'
      ? 'criteria.true and criteria.false' : 'levels'}: an embedding model compares the context with them`);
  }));
  /** @type {number[][]} */
  const scores = [];
  if (pooling === 'rank') {
    for (const [i, { name, question: { type } }] of all.entries()) {
      /** @type {number[]} */
      const own = [];
      for (const [k, query] of texts[i].entries()) {
        // Without a description of "no" there is nothing to compare with: the classifier's 0 is as likely as not.
        const isAbsent = type === 'boolean' && k === 1 && all[i].labels[1].description === undefined;
        if (!query && !isAbsent) throw argumentError(`decide: question ${JSON.stringify(name)} has no instructions`);
        own.push(isAbsent ? 0 : (await compute('rank', { query, texts: [context], options: {} }))[0].score);
      }
      scores.push(own);
    }
  } else {
    const labels = [...new Set(texts.flat())];
    const [vector, ...others] = await compute('embed', { texts: [context, ...labels], options: {} });
    const near = new Map(labels.map((text, i) => [text, COSINE_SCALE * dot(vector, others[i])]));
    scores.push(...texts.map(own => own.map(text => near.get(text) ?? 0)));
  }
  const seconds = (performance.now() - start) / 1000;
  return { scores, stats: { promptTokens: tokens, labelTokens: 0, reusedTokens: 0, computedTokens: tokens, seconds } };
}

/** @param {Float32Array} a @param {Float32Array} b */
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
