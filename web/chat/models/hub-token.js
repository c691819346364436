/* The reader's token for the hub.  It is kept in memory, or on this device if the reader wants so.  It goes only to the
 * hub, and no message shows it. */
import { HUB } from '../../loader/hub.js';
import { make, paragraph, recall, remember } from '../dom.js';
import { isName } from './model-files.js';

const KEY = 'hub-token';
/** What a token looks like. */
const TOKEN = /^[\w-]{8,200}$/;

/** @type {string | undefined} */
let token = TOKEN.test(recall(KEY)) ? recall(KEY) : undefined;

export const hasToken = () => token !== undefined;

/** The headers of requests for a model: with the token if it is on the hub. @param {unknown} source
 * @returns {{headers?: Record<string, string>}} */
export function headersFor(source) {
  const isThere = typeof source === 'string' && (isName(source) || source.startsWith(`${HUB}/`));
  return token !== undefined && isThere ? { headers: { Authorization: `Bearer ${token}` } } : {};
}

/** What to do if the hub asks who wants a model. @param {string} page  of the model at the hub
 * @param {() => void} then  called when there is a token */
export function tokenForm(page, then) {
  const link = (/** @type {string} */ href, /** @type {string} */ text) =>
    make('a', { href, target: '_blank', rel: 'noreferrer' }, text);
  const input = make('input', { type: 'password', id: 'hub-token', autocomplete: 'off', spellcheck: false });
  const keep = make('input', { type: 'checkbox', checked: recall(KEY) !== undefined });
  const note = make('p', { className: 'figures', role: 'status' });
  return make('form', { className: 'access', onsubmit: (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!TOKEN.test(text)) return void (note.textContent = 'That is not a token. It begins with “hf_”.');
    token = text;
    input.value = '';
    remember(KEY, keep.checked ? text : undefined);
    then();
  } },
  make('p', {}, 'With a browser that is logged in to the hub, accept the conditions on ', link(page, 'its page'),
    ', and make a ', link(`${HUB}/settings/tokens`, 'token that may read'), '.'),
  make('label', { htmlFor: 'hub-token' }, 'Token of your account'),
  make('div', { className: 'row' }, input, make('button', { type: 'submit' }, 'Use it')),
  make('label', { className: 'check' }, keep, 'Keep it on this device'),
  paragraph('It is sent only to huggingface.co. Otherwise it is forgotten when this page is closed.'), note);
}
