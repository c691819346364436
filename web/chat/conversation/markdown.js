/* Shows answers as Markdown while they grow.  The model's output is not trusted: HTML in it is shown as text, images
 * become links, links lead only to http, https and mailto, and the output of the Markdown library goes through
 * DOMPurify, which allows only the few elements that Markdown needs.  Formulas and code are shown as they are written
 * until they are typeset (../typeset).
 *
 * A text that grows is cut into blocks.  All but the last two are final and never touched again, so the end of a long
 * answer costs as little as its beginning. */
import DOMPurify from '../../dist/vendor/dompurify/purify.es.mjs';
import { copy, make } from '../dom.js';
import { languageOf as highlightedAs } from '../typeset/languages.js';
import { blocksOf, htmlOf, LINK, texOf } from './markdown-blocks.js';

/** @typedef {import('./markdown-blocks.js').Block} Block
 * @typedef {(change: () => void) => void} Follow  makes a change of the page, and keeps the end in view */

/** A block longer than this is shown as plain text: it would cost too much, and no answer means to have one.  So is a
 * text, or the part of it that is not final, that is longer than LONGEST_TEXT. */
const LONGEST_BLOCK = 20000, LONGEST_TEXT = 4 * LONGEST_BLOCK;
/** Renderings of a growing text are at least INTERVAL milliseconds apart, and at least COST_FACTOR times as long as the
 * last one took. */
const INTERVAL = 80, COST_FACTOR = 5;
/** The most formulas of a block that are typeset: the page's thread adds them at once. */
const MOST_FORMULAS = 200;

/** Loaded when the first text needs it. @type {Promise<typeof import('../typeset/typesetter.js')> | undefined} */
let loading;
/** @type {typeof import('../typeset/typesetter.js') | undefined} */
let typesetter;

/** Typesets the text of an element, at once if it was done before.
 * @param {Parameters<typeof import('../typeset/typesetter.js').typeset>} args */
function typeset(...args) {
  if (typesetter) return typesetter.typeset(...args);
  loading ??= import('../typeset/typesetter.js').then(module => typesetter = module);
  loading.then(module => module.typeset(...args), () => { loading = undefined; });
}

const purify = DOMPurify();
const CLEAN = {
  ALLOWED_TAGS: ['p', 'br', 'hr', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre', 'code', 'em', 'strong',
    'del', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'span', '#text'],
  ALLOWED_ATTR: ['href', 'start', 'align', 'class'],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: LINK,
  ADD_URI_SAFE_ATTR: ['align', 'start'],
  RETURN_DOM_FRAGMENT: true,
};

/** @param {Block} block @param {string} raw  its text @param {boolean} isGrowing  its code is not highlighted yet
 * @param {Follow} follow @returns {Node} */
function rendered(block, raw, isGrowing, follow) {
  const [{ type, content, info }] = block.tokens;
  if (block.isDeep || raw.length > LONGEST_BLOCK) return plain(raw);
  if (isCode(type)) return codeBlock(withoutLineEnd(content), info, isGrowing ? undefined : follow);
  /** @type {DocumentFragment} */
  const clean = /** @type {any} */ (purify.sanitize(htmlOf(block), CLEAN));
  for (const link of clean.querySelectorAll('a')) {
    if (!link.getAttribute('href')) {   // [a]()
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = '_blank';
    link.rel = 'noopener noreferrer nofollow';
  }
  for (const place of [.../** @type {NodeListOf<HTMLElement>} */ (clean.querySelectorAll('.formula'))]
    .slice(0, MOST_FORMULAS)) {
    const { tex, isBlock } = texOf(place.textContent ?? '');
    typeset(place, 'formula', tex, isBlock ? 'block' : 'inline', follow);
  }
  for (const styled of clean.querySelectorAll('[class]:not(pre > code, .formula)')) styled.removeAttribute('class');
  for (const pre of clean.querySelectorAll('pre')) {   // those inside lists and quotes
    const language = /^language-(\S+)$/.exec(pre.firstElementChild?.className ?? '')?.[1] ?? '';
    pre.replaceWith(codeBlock(withoutLineEnd(pre.textContent ?? ''), language, isGrowing ? undefined : follow));
  }
  for (const table of clean.querySelectorAll('table')) {
    const frame = make('div', { className: 'wide', tabIndex: 0, role: 'group', 'aria-label': 'Table' });
    table.replaceWith(frame);
    frame.append(table);
  }
  return clean;
}

/** Whether a block of code has its end. @param {Block} block @param {string} raw */
const isClosed = ({ tokens: [{ type, markup }] }, raw) => type === 'fence'
  && raw.trimEnd().endsWith(markup) && raw.trimEnd().length > 2 * markup.length;

/** @param {string} raw */
const plain = raw => make('p', { className: 'plain' }, raw.trimEnd());

/** @param {string} type */
const isCode = type => type === 'fence' || type === 'code_block';

/** @param {string} code */
const withoutLineEnd = code => code.replace(/\n$/, '');

/** @param {string} [info]  the text after the opening fence */
const languageOf = info => /^[\w+#.-]{1,20}/.exec(info ?? '')?.[0] ?? '';

/** @param {string} text @param {string} [info]  the text after the opening fence
 * @param {Follow} [follow]  undefined: it is not highlighted yet */
function codeBlock(text, info, follow) {
  const language = languageOf(info);
  const code = make('code', {}, text);
  const block = make('div', { className: 'code' },
    make('div', { className: 'bar' }, make('span', {}, language || 'text'),
      make('button', { type: 'button', className: 'quiet', 'aria-label': 'Copy the code',
        onclick: () => copy(code.textContent ?? '') }, 'Copy')),
    make('pre', { tabIndex: 0, role: 'group', 'aria-label': language ? `Code, ${language}` : 'Code' }, code));
  if (follow) highlight(block, follow);
  return block;
}

/** Highlights a block of code, if its language is known. @param {Element} block @param {Follow} follow */
function highlight(block, follow) {
  const language = highlightedAs(block.querySelector('.bar span')?.textContent ?? '');
  const code = block.querySelector('code'), text = code?.textContent;
  if (code && language && text && code.childElementCount === 0) typeset(code, 'code', text, language, follow);
}

export class Markdown {
  #element;
  /** Characters of the text that are in final blocks. */
  #done = 0;
  /** @type {Node[]} */
  #open = [];
  /** The text of the open blocks, which are not final. */
  #openRaw = '';
  /** Levels of the headings above the open blocks, from the outermost to the innermost. @type {number[]} */
  #above = [];

  #follow;

  /** @param {HTMLElement} element  shows the text @param {Follow} [follow] */
  constructor(element, follow = change => change()) {
    this.#element = element;
    this.#follow = follow;
  }

  /** Shows a text that begins with the one shown before. @param {string} text */
  show(text) {
    const rest = text.replace(/\r\n?/g, '\n').slice(this.#done);
    if (rest === this.#openRaw) return;
    this.#openRaw = rest;
    const blocks = rest.length > LONGEST_TEXT ? undefined : tried(() => blocksOf(rest));
    if (!blocks) return this.#replaceOpen([plain(rest)]);
    const texts = blocks.map(({ start, end }) => rest.slice(start, end));
    // Two stay open, because "2" after a list is a paragraph until "2." makes it an item.
    const final = Math.max(0, blocks.length - 2);
    const keep = this.#growCode(blocks.at(-1), texts.at(-1));
    const above = [...this.#above], follow = this.#follow;
    const nodes = blocks.map((block, i) => {
      const raw = texts[i];
      if (block.tokens[0].type === 'heading_open') setLevel(block, above);
      if (i < final) this.#above = [...above];
      return keep && i === blocks.length - 1 ? [keep] : nodesOf(tried(() =>
        rendered(block, raw, i === blocks.length - 1 && !isClosed(block, raw), follow)) ?? plain(raw));
    });
    this.#replaceOpen(nodes.flat(), keep);
    this.#open = nodes.slice(final).flat();
    if (final === 0) return;
    this.#done += blocks[final].start;
    this.#openRaw = rest.slice(blocks[final].start);
  }

  /** Highlights code that was still open: the text does not grow any more. */
  end() {
    for (const node of this.#open) {
      if (!(node instanceof Element)) continue;
      for (const block of [node, ...node.querySelectorAll('.code')]) {
        if (block.className === 'code') highlight(block, this.#follow);
      }
    }
  }

  /** Shows nodes in place of the open ones. @param {Node[]} nodes @param {Node} [keep]  the last one, if it is there */
  #replaceOpen(nodes, keep) {
    for (const node of this.#open) if (node !== keep) /** @type {ChildNode} */ (node).remove();
    for (const node of nodes) if (node !== keep) this.#element.insertBefore(node, keep ?? null);
    this.#open = nodes;
  }

  /** The element of the last block, if it is code that only grew.  Replacing it would lose the reader's selection.
   * @param {Block} [block] @param {string} [raw]  its text @returns {Node | undefined} */
  #growCode(block, raw = '') {
    const last = this.#open.at(-1), [{ type, content, info }] = block?.tokens ?? [{ type: '', content: '', info: '' }];
    if (!isCode(type) || !(last instanceof HTMLElement) || last.className !== 'code') return undefined;
    const code = last.querySelector('code'), text = code?.firstChild, grown = withoutLineEnd(content);
    const shown = text?.nodeValue ?? '';
    if (!(text instanceof Text) || raw.length > LONGEST_BLOCK || !grown.startsWith(shown)) return undefined;
    if (last.querySelector('span')?.textContent !== (languageOf(info) || 'text')) return undefined;
    text.appendData(grown.slice(shown.length));
    return last;
  }
}

/** The result of a function; undefined if it throws: no text may keep the page from showing the others.
 * @template T @param {() => T} make @returns {T | undefined} */
function tried(make) {
  try {
    return make();
  } catch {
    return undefined;
  }
}

/** @param {Node} node */
const nodesOf = node => node instanceof DocumentFragment ? [...node.childNodes] : [node];

/** Sets a heading's level to one below the heading that it belongs to.  Models often begin with the third level, and
 * skipped levels mislead readers who navigate by headings. @param {Block} block @param {number[]} above */
function setLevel({ tokens }, above) {
  const depth = Number(tokens[0].tag.slice(1));
  while (above.length > 0 && above[above.length - 1] >= depth) above.pop();
  above.push(depth);
  for (const token of [tokens[0], tokens[tokens.length - 1]]) token.tag = `h${above.length}`;
}

/** Shows a growing text at intervals.
 * @param {(text: string) => void} show @param {string} [text]  the text at the start */
export function throttled(show, text = '') {
  let shown = 0, cost = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const flush = () => {
    clearTimeout(timer);
    timer = undefined;
    shown = performance.now();
    show(text);
    cost = performance.now() - shown;
  };
  return {
    /** @param {string} more */
    push(more) {
      text += more;
      timer ??= setTimeout(flush, Math.max(0, shown + Math.max(INTERVAL, COST_FACTOR * cost) - performance.now()));
    },
    flush,
  };
}
