/* Shows answers as Markdown while they grow.  The model's output is not trusted: HTML in it is shown as text, images
 * become links, links lead only to http, https and mailto, and the output of the Markdown library goes through
 * DOMPurify, which allows only the few elements that Markdown needs.
 *
 * A text that grows is cut into blocks.  All but the last two are final and never touched again, so the end of a long
 * answer costs as little as its beginning. */
import DOMPurify from '../dist/vendor/dompurify/purify.es.mjs';
import { Marked } from '../dist/vendor/marked/marked.esm.js';
import { copy, make } from './dom.js';

/** A block longer than this is shown as plain text: it would cost too much, and no answer means to have one. */
const LONGEST_BLOCK = 20000;
/** Renderings of a growing text are at least INTERVAL milliseconds apart, and at least COST_FACTOR times as long as the
 * last one took. */
const INTERVAL = 80, COST_FACTOR = 5;

/** @param {string} text */
const escape = text => text.replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    checkbox: ({ checked }) => checked ? '☑ ' : '☐ ',
    heading({ tokens, depth }) {   // below the page's own headings
      const tag = `h${Math.min(depth + 2, 6)}`;
      return `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`;
    },
  },
});

const purify = DOMPurify();
const CLEAN = {
  ALLOWED_TAGS: ['p', 'br', 'hr', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre', 'code', 'em', 'strong',
    'del', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td', '#text'],
  ALLOWED_ATTR: ['href', 'start', 'align', 'class'],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ['align', 'start'],
  RETURN_DOM_FRAGMENT: true,
};

/** @param {import('../dist/vendor/marked/marked.esm.js').Token} token @returns {Node} */
function block(token) {
  if (token.raw.length > LONGEST_BLOCK) return make('p', { className: 'plain' }, token.raw);
  if (token.type === 'code') return codeBlock(token.text, token.lang);
  /** @type {DocumentFragment} */
  const clean = /** @type {any} */ (purify.sanitize(marked.parser([token]), CLEAN));
  for (const link of clean.querySelectorAll('a')) {
    if (!link.hasAttribute('href')) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = '_blank';
    link.rel = 'noopener noreferrer nofollow';
  }
  for (const styled of clean.querySelectorAll('[class]:not(pre > code)')) styled.removeAttribute('class');
    for (const pre of clean.querySelectorAll('pre')) {   // those inside lists and quotes
    const language = /^language-(\S+)$/.exec(pre.firstElementChild?.className ?? '')?.[1] ?? '';
    pre.replaceWith(codeBlock(pre.textContent?.replace(/\n$/, '') ?? '', language));
  }
  for (const table of clean.querySelectorAll('table')) {
    const frame = make('div', { className: 'wide', tabIndex: 0, role: 'group', 'aria-label': 'Table' });
    table.replaceWith(frame);
    frame.append(table);
  }
  return clean;
}

/** @param {string} [info]  the text after the opening fence */
const languageOf = info => /^[\w+#.-]{1,20}/.exec(info ?? '')?.[0] ?? '';

/** @param {string} text @param {string} [info]  the text after the opening fence */
function codeBlock(text, info) {
  const language = languageOf(info);
  const code = make('code', {}, text);
  return make('div', { className: 'code' },
    make('div', { className: 'bar' }, make('span', {}, language || 'text'),
      make('button', { type: 'button', className: 'quiet', 'aria-label': 'Copy the code',
        onclick: () => copy(code.textContent ?? '') }, 'Copy')),
    make('pre', { tabIndex: 0, role: 'group', 'aria-label': language ? `Code, ${language}` : 'Code' }, code));
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

  /** @param {HTMLElement} element  shows the text */
  constructor(element) {
    this.#element = element;
  }

  /** Shows a text that begins with the one shown before. @param {string} text */
  show(text) {
    const rest = text.replace(/\r\n?/g, '\n').slice(this.#done);
    if (rest === this.#openRaw) return;
    this.#openRaw = rest;
    /** @type {import('../dist/vendor/marked/marked.esm.js').Token[]} */
    let tokens;
    try {
      tokens = rest.length > 4 * LONGEST_BLOCK ? [plain(rest)] : marked.lexer(rest);
    } catch {
      tokens = [plain(rest)];   // nested too deep for the stack
    }
    const solid = tokens.flatMap((token, i) => token.type === 'space' ? [] : [i]);
    const final = solid.at(-2) ?? 0;   // two, because "2" after a list is a paragraph until "2." makes it an item
    const keep = this.#growCode(tokens.at(-1));
    for (const node of this.#open) if (node !== keep) /** @type {ChildNode} */ (node).remove();
    this.#open = [];
    const above = [...this.#above];
    for (const [i, token] of tokens.entries()) {
      if (token.type === 'heading') setLevel(token, above);
      if (i < final) {
        this.#done += token.raw.length;
        this.#openRaw = this.#openRaw.slice(token.raw.length);
        this.#above = [...above];
      }
      if (token.type === 'space' || token.type === 'def') continue;
      const made = keep && i === tokens.length - 1 ? keep : rendered(token);
      const nodes = made instanceof DocumentFragment ? [...made.childNodes] : [made];
      if (made !== keep) this.#element.insertBefore(made, keep ?? null);
      if (i >= final) this.#open.push(...nodes);
    }
  }

  /** The element of the last block, if it is code that only grew.  Replacing it would lose the reader's selection.
   * @param {import('../dist/vendor/marked/marked.esm.js').Token | undefined} token @returns {Node | undefined} */
  #growCode(token) {
    const last = this.#open.at(-1);
    if (token?.type !== 'code' || !(last instanceof HTMLElement) || last.className !== 'code') return undefined;
    const code = last.querySelector('code'), text = code?.firstChild;
    const shown = text?.nodeValue ?? '';
    if (!(text instanceof Text) || token.raw.length > LONGEST_BLOCK || !token.text.startsWith(shown)) return undefined;
    if (last.querySelector('span')?.textContent !== (languageOf(token.lang) || 'text')) return undefined;
    text.appendData(token.text.slice(shown.length));
    return last;
  }
}

/** Sets a heading's level to one below the heading that it belongs to.  Models often begin with the third level, and
 * skipped levels mislead readers who navigate by headings. @param {any} token @param {number[]} above */
function setLevel(token, above) {
  while (above.length > 0 && above[above.length - 1] >= token.depth) above.pop();
  above.push(token.depth);
  token.depth = above.length;
}

/** @param {string} raw @returns {any} */
const plain = raw => ({ type: 'paragraph', raw, text: raw, tokens: [{ type: 'text', raw, text: raw }] });

/** @param {import('../dist/vendor/marked/marked.esm.js').Token} token */
function rendered(token) {
  try {
    return block(token);
  } catch {
    return make('p', { className: 'plain' }, token.raw);
  }
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
