/* The last answer token by token: less likely tokens have more colour, and each one shows its alternatives.  Those
 * that a grammar ruled out are struck through. */
import { count, dotted, make, paragraph } from '../dom.js';

/** @typedef {import('../../engine/engine.js').GeneratedToken} Token */

/** @param {HTMLElement} view @param {{tokens?: Token[]}} subject */
export function showTokens(view, { tokens }) {
  if (!tokens || tokens.length === 0) {
    view.append(paragraph('Probabilities are recorded while an answer is generated. Regenerate the last answer to see '
      + 'its tokens.'));
    return;
  }
  const about = make('div', { className: 'chosen', role: 'status' });
  const buttons = tokens.map((token, i) => {
    const button = make('button', { type: 'button', className: 'token', tabIndex: i === 0 ? 0 : -1,
      'aria-label': `${JSON.stringify(token.piece)}, ${percent(token.logprob)}` }, visible(token.piece));
    button.style.setProperty('--doubt', (1 - Math.exp(token.logprob)).toFixed(3));
    button.addEventListener('pointerenter', () => describe(about, token));
    button.addEventListener('focus', () => describe(about, token));
    return button;
  });
  const text = make('div', { className: 'tokens', role: 'group',
    'aria-label': 'Tokens; arrow keys move between them' });
  buttons.forEach((button, i) => {
    text.append(button);
    if (tokens[i].piece.includes('\n')) text.append(make('br'));
  });
  text.addEventListener('keydown', event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const next = step && buttons[at + step];
    if (!next) return;
    event.preventDefault();
    buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const mean = tokens.reduce((sum, { logprob }) => sum + logprob, 0) / tokens.length;
  view.append(paragraph(dotted([count(tokens.length, 'token'), `perplexity ${Math.exp(-mean).toFixed(2)}`,
    'more colour: less likely', tokens.some(({ allowedTokens }) => allowedTokens !== undefined)
      && 'struck through: ruled out by the schema'])), text, about);
  describe(about, tokens[0]);
}

/** @param {HTMLElement} about @param {Token} token */
function describe(about, token) {
  const others = token.top.map(one => {
    const bar = make('span', { className: 'bar', 'aria-hidden': 'true' });
    bar.style.setProperty('--part', Math.exp(one.logprob).toFixed(4));
    const piece = make('code', {}, visible(one.piece));
    return make('li', one.id === token.id ? { 'aria-current': 'true' } : {},
      one.allowed === false ? make('s', {}, piece, make('span', { className: 'hidden' }, ' (ruled out)')) : piece, bar,
      make('span', { className: 'figures' }, percent(one.logprob)));
  });
  about.replaceChildren(make('p', {}, make('code', {}, visible(token.piece)), ` ${percent(token.logprob)}`,
    make('span', { className: 'figures' }, dotted([`  token ${token.id}`, token.allowedTokens !== undefined
      && `${count(token.allowedTokens, 'token')} allowed`]))), make('ol', {}, ...others));
}

/** The probability before penalties, temperature and the other sampling steps. @param {number} logprob */
export function percent(logprob) {
  const p = 100 * Math.exp(logprob);
  return `${p < 0.01 ? '< 0.01' : p.toFixed(p < 10 ? 2 : 1)} %`;
}

/** @param {string} piece */
const visible = piece => piece === '' ? '∅' : piece.replaceAll('\n', '↵').replaceAll('\t', '⇥');
