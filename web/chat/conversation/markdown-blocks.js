/* Cuts Markdown into blocks and writes each as HTML.  The library takes time in proportion to a text's length, whatever
 * the text is: an answer may be hostile.  Formulas are left as they are written, in elements of their own, because
 * Markdown would take backslashes, stars and underscores out of them. */
import MarkdownIt from '../../dist/vendor/markdown-it/markdown-it.esm.min.mjs';

/** @typedef {import('../../dist/vendor/markdown-it/markdown-it.esm.min.mjs').Token} Token */
/** A block of the outermost level.
 * @typedef {object} Block
 * @property {number} start  the place of its first character in the text
 * @property {number} end  the place of the next block's first character, or the end of the text
 * @property {boolean} isDeep  it is nested too deep, so that tokens lack some of its text
 * @property {Token[]} tokens
 * @property {import('../../dist/vendor/markdown-it/markdown-it.esm.min.mjs').Env} env */

/** An address that may be a link.  Without a host or a mailbox it is relative to this page: "", "https:", "#a". */
export const LINK = /^(?:https?:\/\/[^/]|mailto:.)/i;
/** Levels of quotes and lists; the library leaves out what is nested deeper. */
const DEEPEST = 100;
/** Upper bounds on one formula, so that formulas without an end do not cost a search of the whole text each. */
const LONGEST_FORMULA = 2000, MOST_LINES = 50;
/** What begins and ends a formula, and whether it takes lines of its own. */
const FORMULAS = [
  { open: '\\(', close: '\\)', end: /\\\)/, hasLines: false },
  { open: '\\[', close: '\\]', end: /\\\]/, hasLines: true },
  { open: '$$', close: '$$', end: /\$\$/, hasLines: true },
  { open: '$', close: '$', end: /(?<!\\)\$/, hasLines: false },
];

const markdown = new MarkdownIt({ linkify: true, breaks: true, maxNesting: DEEPEST });
const { escapeHtml } = markdown.utils;
markdown.validateLink = (/** @type {string} */ url) => LINK.test(url);
markdown.linkify.set({ fuzzyLink: false });   // "page.js" is no address
Object.assign(markdown.renderer.rules, {
  image: (/** @type {Token[]} */ tokens, /** @type {number} */ i) => {
    const url = String(tokens[i].attrGet('src'));
    return `<a href="${escapeHtml(url)}">${escapeHtml(tokens[i].content || url)}</a>`;
  },
  // Below the page's own headings.
  heading_open: (/** @type {Token[]} */ tokens, /** @type {number} */ i) => `<${headingOf(tokens[i])}>`,
  heading_close: (/** @type {Token[]} */ tokens, /** @type {number} */ i) => `</${headingOf(tokens[i])}>`,
  s_open: () => '<del>',
  s_close: () => '</del>',
  formula: (/** @type {Token[]} */ tokens, /** @type {number} */ i) => formulaOf(tokens[i]),
  formula_block: (/** @type {Token[]} */ tokens, /** @type {number} */ i) => `<p>${formulaOf(tokens[i])}</p>\n`,
});

/** @param {Token} token */
const headingOf = ({ tag }) => `h${Math.min(Number(tag.slice(1)) + 2, 6)}`;

/** @param {Token} token */
const formulaOf = ({ content }) => `<span class="formula">${escapeHtml(content.trim())}</span>`;

/** The LaTeX of a formula, and whether it takes lines of its own. @param {string} text  of its element */
export function texOf(text) {
  const { open, close, hasLines } = FORMULAS.find(one => text.startsWith(one.open)) ?? FORMULAS[0];
  return { tex: text.slice(open.length, text.endsWith(close) ? -close.length : undefined), isBlock: hasLines };
}

markdown.inline.ruler.before('escape', 'formula', (state, silent) => {
  const { src, pos, posMax } = state, formula = FORMULAS.find(({ open }) => src.startsWith(open, pos));
  if (!formula) return false;
  const { open, close } = formula, from = pos + open.length;
  const text = src.slice(from, Math.min(posMax, from + LONGEST_FORMULA)), length = text.search(formula.end);
  const end = from + length + close.length;
  if (length < 1 || open === '$' && !isFormula(text.slice(0, length), src[pos - 1], src[end])) return false;
  if (!silent) state.push('formula', '', 0).content = src.slice(pos, end);
  state.pos = end;
  return true;
});

/** Whether a text between two "$" is a formula.  Prices ($5 and $10), variables of a shell ($HOME:$PATH) and sentences
 * are none. @param {string} text @param {string} [before]  the character before the first "$"
 * @param {string} [after]  the one after the second */
const isFormula = (text, before = '', after = '') => !/^\s|\s$|\n/.test(text)
  && (text.includes('\\') || !/[a-z]{2,} [a-z]{2,}/i.test(text)) && !/[\w$]/.test(before) && !/\w/.test(after);

/** Formulas that begin and end with a line, whose lines could also begin a list or a heading.  Like code, a formula
 * without an end goes to the end of the text, which may still grow; but it has no empty lines. */
markdown.block.ruler.before('fence', 'formula', (state, startLine, endLine, silent) => {
  const first = lineOf(state, startLine);
  const formula = FORMULAS.find(({ open, hasLines }) => hasLines && first.startsWith(open));
  if (!formula || state.sCount[startLine] - state.blkIndent >= 4) return false;
  let next = startLine, isClosed = false;
  while (!isClosed && next < endLine) {
    const text = lineOf(state, next).slice(next === startLine ? formula.open.length : 0);
    const isOutside = next > startLine && !text || state.sCount[next] < state.blkIndent;
    if (isOutside || next - startLine > MOST_LINES) return false;
    isClosed = text.endsWith(formula.close);
    next++;
  }
  if (silent) return true;
  const token = state.push('formula_block', '', 0);
  token.content = state.getLines(startLine, next, state.blkIndent, false);
  token.map = [startLine, next];
  state.line = next;
  return true;
}, { alt: ['paragraph', 'reference', 'blockquote', 'list'] });

/** @param {import('../../dist/vendor/markdown-it/markdown-it.esm.min.mjs').StateBlock} state @param {number} line */
const lineOf = (state, line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]).trimEnd();

markdown.core.ruler.push('github', ({ tokens }) => {
  for (const [i, { type, content, children }] of tokens.entries()) {
    if (/^t[hd]_open$/.test(type)) {
      const [, align] = /:(.*)/.exec(String(tokens[i].attrGet('style'))) ?? [];
      tokens[i].attrs = align ? [['align', align]] : [];
    }
    const task = tokens[i - 2]?.type === 'list_item_open' && children?.[0]?.type === 'text'
      && /^\[([ xX])\](?=\s)/.exec(content);
    if (task) children[0].content = (task[1] === ' ' ? '☐' : '☑') + children[0].content.slice(3);
  }
});

/** @param {string} text  with line ends "\n" @returns {Block[]} */
export function blocksOf(text) {
  const starts = lineStarts(text);
  /** @type {Block['env']} */
  const env = {};
  /** @type {Block[]} */
  const blocks = [];
  for (const token of markdown.parse(text, env)) {
    if (token.level === 0 && token.nesting >= 0) {
      const start = starts[token.map?.[0] ?? 0];
      for (const before of blocks.slice(-1)) before.end = start;
      blocks.push({ start, end: text.length, isDeep: false, tokens: [], env });
    }
    const block = blocks[blocks.length - 1];
    block.isDeep ||= token.level >= DEEPEST - 1;
    block.tokens.push(token);
  }
  return blocks;
}

/** @param {string} text */
function lineStarts(text) {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return starts;
}

/** @param {Block} block @returns {string} */
export const htmlOf = ({ tokens, env }) => markdown.renderer.render(tokens, markdown.options, env);
