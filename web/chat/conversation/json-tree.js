/* Shows a JSON text as a tree while it grows, with the text itself folded below.  The text is a model's and not
 * trusted: all of it becomes text nodes. */
import { partialValue } from '../../api/object.js';
import { count, make } from '../dom.js';

/** Characters of a text, levels, and members or elements of one value.  What is beyond is only in the JSON text,
 * because a tree of it would cost too much. */
const LONGEST = 20000, DEEPEST = 32, MOST = 500;

export class JsonTree {
  #tree = make('ul', { className: 'tree' });
  #text = make('pre', { tabIndex: 0, role: 'group', 'aria-label': 'JSON text' });
  #folded = make('details', {}, make('summary', {}, 'JSON text'), this.#text);
  #element;

  /** @param {HTMLElement} element  gets the tree */
  constructor(element) { this.#element = element; }

  /** Shows a text that begins with the one shown before.  If it is not JSON, there is only the text.
   * @param {string} text */
  show(text) {
    if (!this.#tree.isConnected) this.#element.append(this.#tree, this.#folded);
    this.#text.textContent = text;
    const value = text.length > LONGEST ? undefined : valueOf(text);
    this.#tree.hidden = value === undefined;
    if (value === undefined) this.#folded.open = true;
    else fillList(this.#tree, isNested(value) ? membersOf(value) : [[undefined, value]], DEEPEST);
  }
}

/** The value of a JSON text or of its beginning; undefined if it has none. @param {string} text */
function valueOf(text) {
  for (const read of [JSON.parse, partialValue]) {
    try {
      return read(text);
    } catch {
      // Not complete, or not JSON.
    }
  }
  return undefined;
}

/** @param {unknown} value @returns {value is object} */
const isNested = value => typeof value === 'object' && value !== null && Object.keys(value).length > 0;

/** @param {object} value @returns {[string, unknown][]} */
const membersOf = value => Object.entries(value);

/** Makes a list show members or elements.  Items that show them already stay, so what the reader has folded stays so.
 * @param {HTMLElement} list @param {[string | undefined, unknown][]} members  undefined: a value alone
 * @param {number} levels  that may follow */
function fillList(list, members, levels) {
  const shown = members.slice(0, MOST);
  for (const [i, [name, value]] of shown.entries()) {
    const items = /** @type {HTMLElement[]} */ ([...list.children].slice(i));
    const item = items.find(item => item.dataset.name === (name ?? '')) ?? make('li', { 'data-name': name ?? '' });
    if (item !== items[0]) list.insertBefore(item, items[0] ?? null);
    fillItem(item, name, value, levels);
  }
  while (list.children.length > shown.length) list.lastElementChild?.remove();
  if (members.length > MOST) list.append(make('li', {}, `… ${count(members.length - MOST, 'more')}`));
}

/** @param {HTMLElement} item @param {string | undefined} name @param {unknown} value @param {number} levels */
function fillItem(item, name, value, levels) {
  const kind = isNested(value) && levels > 0 ? 'nested' : typeof value;
  if (item.dataset.kind !== kind) {
    item.dataset.kind = kind;
    const label = name === undefined ? [] : [make('b', {}, name || '""'), ' '];
    item.replaceChildren(...kind === 'nested'
      ? [make('details', { open: true }, make('summary', {}, ...label, make('span', {})), make('ul'))]
      : [...label, make('span')]);
  }
  const about = /** @type {HTMLElement} */ (item.querySelector('span'));
  const text = !isNested(value) ? typeof value === 'string' ? `"${value}"` : JSON.stringify(value)
    : levels > 0 ? count(membersOf(value).length, Array.isArray(value) ? 'element' : 'member') : '…';
  if (about.textContent !== text) about.textContent = text;
  const list = item.querySelector('ul');
  if (list && isNested(value)) fillList(list, membersOf(value), levels - 1);
}
