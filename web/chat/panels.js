/* What opens and closes: the side panels, which lie over the page where it is narrow, and dialogs. */
import { element } from './dom.js';

/** As in panels.css: from here on a panel lies beside the conversation. */
const BESIDE = { side: matchMedia('(min-width: 64rem)'), inspect: matchMedia('(min-width: 75rem)') };

/** @param {'side' | 'inspect'} id @param {string} button  that opens and closes it
 * @param {(open: boolean) => void} [changed] */
export function createPanel(id, button, changed) {
  const panel = element(id, 'aside'), opener = element(button, 'button');
  const beside = BESIDE[id];
  const others = [...document.body.children].filter(child => child !== panel && ['ASIDE', 'DIV'].includes(child.tagName)
    && !['toast', 'live', 'drop'].includes(child.id));
  /** @param {boolean} open */
  function set(open) {
    panel.hidden = !open;
    document.body.classList.toggle(`with-${id}`, open);
    opener.setAttribute('aria-expanded', String(open));
    const over = open && !beside.matches;
    for (const other of others) /** @type {HTMLElement} */ (other).inert = over;
    changed?.(open);
  }
  const close = () => {
    set(false);
    opener.focus();
  };
  opener.addEventListener('click', () => {
    if (!panel.hidden) return close();
    set(true);
    panel.querySelector('button')?.focus();
  });
  panel.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || event.defaultPrevented) return;
    event.preventDefault();
    close();
  });
  panel.querySelector('[data-close]')?.addEventListener('click', close);
  // The shade around a panel that lies over the page: what is under it is inert, so that the body gets the click.
  document.body.addEventListener('click', event => {
    if (event.target === document.body && !panel.hidden && !beside.matches) close();
  });
  beside.addEventListener('change', () => set(id === 'side' ? beside.matches : !panel.hidden));
  set(id === 'side' && beside.matches);
  return {
    close,
    /** After a choice: away with it where it lies over what was chosen. */
    leave() {
      if (!beside.matches && !panel.hidden) close();
    },
  };
}

/** Close buttons, and a click beside a dialog. @param {string} id */
export function createDialog(id) {
  const dialog = element(id, 'dialog');
  for (const button of dialog.querySelectorAll('[data-close]')) button.addEventListener('click', () => dialog.close());
  dialog.addEventListener('pointerdown', event => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}
