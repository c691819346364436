/* Answers that are bound to a grammar from the start: what comes before the bound text.  A model that thinks does so
 * first, and some formats have a header or a mark before each text. */
import { begunIn, CHANNEL, endsWith, FORMAT, opensOf, promptOf } from './formats.js';
import { either, literal, quoted, without } from './gbnf.js';

/** @typedef {import('../engine/engine.js').Grammar} Grammar
 * @typedef {import('./formats.js').Format} Format */
/** @typedef {object} Head  what comes before a bound text
 * @property {Format['think']} think  reasoning may come; undefined: none
 * @property {boolean} isOpen  the prompt has begun the reasoning
 * @property {string[]} marks  there may be some of these
 * @property {string} skip  what has the bound text come at once, if it follows the prompt
 * @property {boolean} isEmpty  nothing comes before a bound text */

/** The header of a text for the user. @param {Format} format */
const finalHeader = ({ headers, channels }) => headers?.text.find(text => text.includes(String(channels?.user))) ?? '';

/** @param {Format} format @param {string} prompt  how the prompt ends
 * @param {import('./formats.js').Continued} [continued]  the text with which it ends @returns {Head} */
export function headOf(format, prompt, continued) {
  if (continued === 'content') return { think: undefined, isOpen: false, marks: [], skip: '', isEmpty: true };
  const { think, marks = [], channels, named } = format, begun = begunIn(format, prompt);
  const isOpen = begun !== undefined && begun === think?.start;
  const isOver = think?.ends.some(end => endsWith(prompt, end));
  const mayReason = isOpen || !isOver && think && named.includes(think.start);
  const begunMark = begun === undefined || isOpen || channels ? '' : marks.find(mark => mark.startsWith(begun)) ?? '';
  const skip = channels ? begun && `${finalHeader(format)}${CHANNEL.message}` : isOpen ? `${think.ends[0]}\n\n`
    : begunMark.slice(begun?.length);
  const head = {
    think: channels || mayReason ? think : undefined, isOpen, skip: skip ?? '',
    marks: channels ? [] : marks.filter(mark => mark !== begunMark && named.includes(mark)),
  };
  return { ...head, isEmpty: !channels && !head.think && head.skip === '' && head.marks.length === 0 };
}

/** A prompt behind which a bound text comes at once, without reasoning.
 * @param {import('./gbnf.js').Vocabulary & import('./formats.js').Continuing
 *   & Record<typeof FORMAT, () => Promise<Format>>} model
 * @param {Int32Array} ids  the prompt of a chat */
export async function withoutReasoning(model, ids) {
  const format = await model[FORMAT](), { prompt, continued } = await promptOf(model, ids, format);
  const { skip } = headOf(format, prompt, continued);
  if (!skip) return ids;
  return Int32Array.of(...ids, ...await model.tokenize(skip, { addSpecial: false, parseSpecial: true }));
}

/** The grammar of a bound text with what comes before it.
 * @param {Format} format @param {Head} head @param {Grammar} grammar
 * @param {import('./gbnf.js').Controls} controls @returns {Grammar} */
export function withHead(format, head, grammar, controls) {
  if (head.isEmpty) return grammar;
  const texts = (/** @type {string[]} */ all) => either(all.map(text => literal(text, controls)));
  const { think, isOpen, marks, skip } = head;
  if (format.channels) {
    const { channels, headers } = format, start = literal(CHANNEL.start, controls);
    const self = headers?.text.filter(text => text.includes(channels.self)) ?? [];
    const message = literal(CHANNEL.message, controls), end = texts(CHANNEL.ends.slice(0, 3));
    const { constrain } = CHANNEL;
    const kind = format.marks?.includes(constrain) ? `(" "? ${literal(constrain, controls)} "json")?` : '';
    const begin = skip ? '' : `${start}? `, final = literal(finalHeader(format), controls);
    return behind(grammar, thought => `${begin}(${texts(self)} ${message} ${thought} ${end}? ${start})? `
      + `${final} ${kind} ${message}`, without(['<|'], controls));
  }
  const gap = '[\\n]{0,2}', ends = think?.ends.filter(end => !opensOf(format).includes(end)) ?? [];
  const marked = marks.length > 0 ? `(${texts(marks)} ${gap}){0,2}` : '';
  return behind(grammar, thought => {
    if (!think) return `${skip && quoted(skip)} ${marked}`;
    const closed = `${thought} ${texts(ends)} ${gap}`;
    return `${isOpen ? closed : `(${gap} ${literal(think.start, controls)} ${closed})?`} ${marked}`;
  }, without(think?.ends ?? [], controls));
}

/** The symbols of GBNF, so that names of rules are not found elsewhere. */
const SYMBOLS = /"(?:[^"\\]|\\[^])*"|\[(?:[^\]\\]|\\[^])*\]|#[^\n]*|<[^>]*>|[-a-zA-Z0-9]+/g;

/** A grammar whose texts come behind others.
 * @param {Grammar} grammar @param {(name: string) => string} before  GBNF of the others, with the name of a rule
 * @param {string} regex  that rule @param {(inner: string) => string} [use]  how the grammar's own texts are used
 * @returns {Grammar} */
export function behind({ language, text, flags, rules = [] }, before, regex, use = inner => inner) {
  const taken = `${text} ${rules.map(({ name }) => name).join(' ')}`;
  // No name of the grammar begins with these, as they have one x more than any.
  const [inner, name] = ['root', 'before'].map(word => word + 'x'.repeat(1 + mostAfter(taken, word)));
  const root = `root ::= ${before(name)} ${use(inner)}`;
  const all = [...rules, { name, language: /** @type {const} */ ('regex'), text: regex, flags: 0 }];
  if (language !== 'gbnf') {
    const own = { name: inner, language, text, flags, label: '' };
    return { language: 'gbnf', flags: 0, text: root, rules: [...all, own] };
  }
  const renamed = text.replace(SYMBOLS, symbol => symbol === 'root' ? inner : symbol);
  return { language, flags, text: `${renamed}\n${root}`, rules: all };
}

/** How many x follow a word at most. @param {string} text @param {string} word */
const mostAfter = (text, word) => text.match(new RegExp(`${word}x*`, 'g'))
  ?.reduce((most, found) => Math.max(most, found.length - word.length), 0) ?? 0;
