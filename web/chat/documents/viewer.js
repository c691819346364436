/* The dialog that shows the text of a document, as plain text, with a place marked.  It shows a part of a long one at a
 * time. */
import { element, iconButton, make, paragraph } from '../dom.js';
import { createDialog } from '../panels.js';

/** @typedef {import('./stored.js').Document} Document
 * @typedef {Pick<import('./stored.js').Place, 'name' | 'text' | 'start'>} Place */

/** Characters of a part: more would take the browser too long to lay out. */
const PART = 30000;

/** @type {HTMLDialogElement | undefined} */
let dialog;

function create() {
  const close = iconButton('close', 'Close the document', () => {});
  close.dataset.close = 'document';
  document.body.append(make('dialog', { id: 'document', 'aria-labelledby': 'document-title' },
    make('div', { className: 'bar' }, make('h2', { id: 'document-title' }), close),
    make('div', { className: 'body', tabIndex: 0, role: 'group', 'aria-label': 'Text of the document' })));
  return createDialog('document');
}

/** Shows a document. @param {Pick<Document, 'name' | 'text'> | undefined} shown  undefined: it is unknown
 * @param {Place} [place]  in it */
export function showDocument(shown, place) {
  dialog ??= create();
  const body = /** @type {HTMLElement} */ (dialog.querySelector('.body'));
  element('document-title', 'h2').replaceChildren(make('bdi', {}, place?.name ?? shown?.name ?? 'Document'));
  const { text } = shown ?? {}, start = place?.start ?? 0;
  const fits = text !== undefined && (!place || text.slice(start, start + place.text.length) === place.text);
  if (text !== undefined && fits) showPart(body, text, Math.max(0, start - PART / 3), place);
  else {
    body.replaceChildren(paragraph('The whole text is not stored with this conversation. Attach the document again to '
      + 'search in it.'), ...place ? [textOf(...marked(place.text, 0, place))] : []);
  }
  if (!dialog.open) dialog.showModal();
  const mark = body.querySelector('mark');
  if (mark) mark.scrollIntoView({ block: 'center' });
  else body.scrollTop = 0;
}

/** @param {...(Node | string)} parts */
const textOf = (...parts) => make('p', { className: 'plain', dir: 'auto' }, ...parts);

/** A text with the place marked. @param {string} text @param {number} offset  of the text in the document, relative to
 * the place @param {Place} place */
function marked(text, offset, { text: { length } }) {
  const from = Math.max(0, -offset), to = Math.min(text.length, length - offset);
  return from >= to ? [text] : [text.slice(0, from), make('mark', {}, text.slice(from, to)), text.slice(to)];
}

/** @param {HTMLElement} body @param {string} text @param {number} from @param {Place} [place] */
function showPart(body, text, from, place) {
  const start = lineStart(text, from), end = Math.min(text.length, start + PART), part = text.slice(start, end);
  const turn = (/** @type {string} */ label, /** @type {number} */ to) => make('button', { type: 'button', onclick() {
    showPart(body, text, Math.max(0, to), place);
    body.scrollTop = 0;
    body.focus();
  } }, label);
  body.replaceChildren(...start > 0 ? [turn('Earlier part', start - PART)] : [],
    textOf(...place ? marked(part, start - place.start, place) : [part]),
    ...end < text.length ? [turn('Later part', end)] : []);
}

/** The start of a line near a position, so that no character and no line is cut. @param {string} text
 * @param {number} at */
function lineStart(text, at) {
  const line = text.lastIndexOf('\n', at) + 1;
  return at - line < PART / 10 ? line : at;
}
