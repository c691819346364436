/* Asks the reader before a call sends anything: shows the tool, the address and what would be sent.  The question
 * is above the message box.  It takes the focus only from an empty box, so that nobody answers it by typing. */
import { announce, count, element, focusPrompt, make, paragraph } from '../dom.js';

/** The last question that is asked, or waits for it. @type {Promise<unknown>} */
let last = Promise.resolve();

/** Whether the reader allows a call.  Rejects if the signal is aborted first.
 * @param {{label: string}} tool @param {import('./builtin.js').Request} request @param {AbortSignal} [signal] */
export function mayCall(tool, request, signal) {
  const turn = last.then(() => {
    signal?.throwIfAborted();
    return asked(tool, request, signal);
  });
  last = turn.catch(() => {});   // the calls of one step are asked about one after the other
  return turn;
}

/** @param {{label: string}} tool @param {import('./builtin.js').Request} request @param {AbortSignal} [signal]
 * @returns {Promise<boolean>} */
function asked({ label }, { address, sent, bytes }, signal) {
  return new Promise((resolve, reject) => {
    const title = make('h2', { id: 'ask-title', tabIndex: -1 }, `May “${label}” send this?`);
    const button = (/** @type {string} */ text, /** @type {boolean} */ answer, className = '') =>
      make('button', { type: 'button', className, onclick: (/** @type {MouseEvent} */ event) => {
        if (event.detail > 1) return;   // the second click of two that were meant for the question before
        end();
        resolve(answer);
      } }, text);
    const box = make('section', { id: 'ask', className: 'strip', 'aria-labelledby': 'ask-title' }, title,
      make('p', {}, 'To ', make('bdi', {}, address)),
      paragraph(bytes > 0 ? `${count(bytes, 'byte')}, these headers, the number of the server's session if it has one, `
        + 'and the headers that the browser adds:'
        : 'This line, and what the browser adds to every request:'),
      make('pre', { tabIndex: 0, role: 'group', 'aria-label': 'What is sent' }, sent),
      make('div', { className: 'row' }, button('Refuse', false), button('Allow', true, 'primary')));
    const abort = () => {
      end();
      reject(signal?.reason);
    };
    function end() {
      const hadFocus = box.contains(document.activeElement);
      box.remove();
      signal?.removeEventListener('abort', abort);
      if (hadFocus) focusPrompt();
    }
    signal?.addEventListener('abort', abort);
    document.querySelector('#composer .box')?.before(box);
    announce(`A tool asks whether it may send something to ${address}`);
    const prompt = element('prompt', 'textarea');
    const isFree = document.activeElement === prompt ? prompt.value === ''
      : document.activeElement === document.body || document.activeElement === element('stop', 'button');
    if (isFree) title.focus();
  });
}
