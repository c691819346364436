/* Fetches a page for the model, and makes plain text of it.  The page is not trusted: its tags are left out as text, so
 * nothing is ever made of them that could run or load something. */
import { yieldToEventLoop } from '../../base/async.js';
import { ExplainedError } from '../explain.js';
import { addressOf, send, textsOf, visible, within } from './bounded.js';

/** Bytes of an answer, characters of text that are taken of it, and seconds for all of it. */
const MAX_BYTES = 2e6, MAX_TEXT = 1e5, PATIENCE = 30;
/** Tags that are read at once: about 5 ms. */
const MARKS = 5000;
const TAG = /<(\/)?([a-z][^\s/>]{0,30})/iy;
/** Elements that stand on lines of their own. */
const BLOCKS = new Set(['address', 'article', 'aside', 'blockquote', 'br', 'dd', 'div', 'dt', 'figcaption', 'footer',
  'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'header', 'hr', 'li', 'main', 'nav', 'ol', 'option', 'p', 'pre', 'section',
  'summary', 'table', 'title', 'tr', 'ul']);
/** Elements that have no text to read, with their ends. */
const PROGRAMS = new Map(['script', 'style', 'template', 'noscript', 'svg', 'math', 'iframe', 'object'].map(name =>
  [name, new RegExp(`</${name}[\\s/>]`, 'gi')]));

/** What a request for a page sends. @param {string} text  the address */
export function pageRequest(text) {
  const address = addressOf(text);
  return { address: address.href, sent: `GET ${address.href}`, bytes: 0 };
}

/** The text of a page. @param {string} text  its address @param {AbortSignal} [abort] */
export async function fetchPage(text, abort) {
  const { signal, done } = within(PATIENCE, abort);
  try {
    const response = await send(addressOf(text), { signal }, 'The address may be wrong, it may redirect to another '
      + 'one, or its server does not allow pages of other sites to read it.');
    const type = response.headers.get('content-type')?.toLowerCase() ?? '', [kind] = type.split(';');
    if (!response.ok) throw new ExplainedError(`The server answered with status ${response.status}`, '', '');
    if (!/^text\/|[/+](json|xml)$|^application\/(javascript|yaml)$/.test(kind.trim())) {
      throw new ExplainedError(`It is ${visible(kind, 50) || 'of an unknown type'}, not text`, '', '');
    }
    const pieces = textsOf(response, MAX_BYTES, signal, encodingOf(type));
    return await (/html/.test(kind) ? ofHtml(pieces, signal) : whole(pieces));
  } finally {
    done();
  }
}

/** @param {string} type */
function encodingOf(type) {
  const [, name] = /charset="?([\w.:-]{1,40})/.exec(type) ?? [];
  try {
    return name && new TextDecoder(name).encoding;
  } catch {
    return undefined;
  }
}

/** @param {AsyncIterable<string>} pieces */
async function whole(pieces) {
  let text = '';
  for await (const piece of pieces) text += piece;
  return visible(text, MAX_TEXT);
}

/** What one reads of a page. @param {AsyncIterable<string>} pieces @param {AbortSignal} signal */
async function ofHtml(pieces, signal) {
  let html = '', text = '';
  for await (const piece of pieces) html += piece;
  for (let at = 0, n = 1; at < html.length && text.length < MAX_TEXT; n++) {
    const open = html.indexOf('<', at), end = open < 0 ? html.length : open;
    text += html.slice(at, Math.min(end, at + MAX_TEXT)).replace(/\s+/g, ' ');
    const mark = markAt(html, end);
    text += mark.isBlock ? '\n' : mark.text;
    at = mark.end;
    if (n % MARKS > 0) continue;
    await yieldToEventLoop();
    signal.throwIfAborted();
  }
  // There are no tags left, so the parser makes nothing but one text; it knows all names of characters.
  const plain = new DOMParser().parseFromString(text.slice(0, MAX_TEXT), 'text/html').body.textContent ?? '';
  return visible(plain, MAX_TEXT).replace(/ {2,}/g, ' ').replace(/ ?\n ?/g, '\n').replace(/\n{3,}/g, '\n\n');
}

/** The mark at a place of HTML: where what follows it begins, whether it stands on a line of its own, and what is read
 * in its place. @param {string} html @param {number} at */
function markAt(html, at) {
  const after = (/** @type {number} */ found, /** @type {number} */ length) => found < 0 ? html.length : found + length;
  if (html.startsWith('<!--', at)) return { end: after(html.indexOf('-->', at + 4), 3), isBlock: false, text: '' };
  if (/[!?]/.test(html.charAt(at + 1))) return { end: after(html.indexOf('>', at), 1), isBlock: false, text: '' };
  TAG.lastIndex = at;
  const [, slash, given = ''] = TAG.exec(html) ?? [], name = given.toLowerCase();
  if (name === '') return { end: at + 1, isBlock: false, text: at < html.length ? '&lt;' : '' };
  const end = endOfTag(html, at), program = slash ? undefined : PROGRAMS.get(name);
  if (program) program.lastIndex = end;
  return { end: program ? program.exec(html)?.index ?? html.length : end, isBlock: BLOCKS.has(name), text: '' };
}

/** Where a tag ends.  A quote counts only behind "=". @param {string} html @param {number} at */
function endOfTag(html, at) {
  const next = /[>"']/g;
  for (next.lastIndex = at; ;) {
    const found = next.exec(html);
    if (!found) return html.length;
    if (found[0] === '>') return next.lastIndex;
    if (!html.slice(Math.max(0, found.index - 50), found.index).trimEnd().endsWith('=')) continue;
    next.lastIndex = html.indexOf(found[0], next.lastIndex) + 1 || html.length;
  }
}
