/* What opens and closes: the side panels, which lie over the page where it is narrow, and dialogs. */
import { element } from './dom.js';

/** As in panels.css: from here on a panel lies beside the conversation. */
const BESIDE = { side: matchMedia('(min-width: 64rem)'), inspect: matchMedia('(min-width: 75rem)') };

/** What a panel lies over is out of reach. */
function cover() {
  for (const part of document.querySelectorAll('#side, #page, #inspect')) {
    /** @type {HTMLElement} */ (part).inert = Object.entries(BESIDE).some(([id, beside]) =>
      id !== part.id && !beside.matches && !element(id, 'aside').hidden);
  }
}

/** @param {'side' | 'inspect'} id @param {string} button  that opens and closes it
 * @param {(open: boolean) => void} [changed] */
export function createPanel(id, button, changed) {
  const panel = element(id, 'aside'), opener = element(button, 'button');
  const beside = BESIDE[id];
  /** @param {boolean} open */
  function set(open) {
    panel.hidden = !open;
    document.body.classList.toggle(`with-${id}`, open);
    opener.setAttribute('aria-expanded', String(open));
    cover();
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
    if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented) return;
    event.preventDefault();
    close();
  });
  // Nothing has the focus, for instance after a note whose button was clicked: the panel that lies over all is meant.
  document.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || event.defaultPrevented || event.target !== document.body) return;
    if (panel.hidden || beside.matches || document.querySelector('dialog[open]')) return;
    event.preventDefault();
    close();
  });
  panel.querySelector('[data-close]')?.addEventListener('click', close);
  // The shade around a panel that lies over the page: what is under it is inert, so that the body gets the click.
  document.body.addEventListener('click', event => {
    if (event.target === document.body && !panel.hidden && !beside.matches) close();
  });
  beside.addEventListener('change', () => id === 'side' ? set(beside.matches) : cover());
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
