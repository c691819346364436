/* What opens and closes: the side panels, which cover the page if it is narrow, and the dialogs. */
import { element } from './dom.js';

/** From this width on, a panel is beside the conversation.  panels.css has the same widths. */
const BESIDE = { side: matchMedia('(min-width: 64rem)'), inspect: matchMedia('(min-width: 75rem)') };

/** Makes inert what a panel covers. */
function cover() {
  for (const part of document.querySelectorAll('#side, #page, #inspect')) {
    /** @type {HTMLElement} */ (part).inert = Object.entries(BESIDE).some(([id, beside]) =>
      id !== part.id && !beside.matches && !element(id, 'aside').hidden);
  }
}

/** @param {'side' | 'inspect'} id @param {string} button  the button that opens and closes it
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
    // It stops a growing answer first, if the panel does not cover it.
    if (beside.matches && document.body.dataset.state === 'answering') return;
    event.preventDefault();
    close();
  });
  // If nothing has the focus, for instance after a click on a note's button, Escape closes the panel over the page.
  document.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || event.defaultPrevented || event.target !== document.body) return;
    if (panel.hidden || beside.matches || document.querySelector('dialog[open]')) return;
    event.preventDefault();
    close();
  });
  panel.querySelector('[data-close]')?.addEventListener('click', close);
  // A click on the shade around a panel goes to the body, because the page under the shade is inert.
  document.body.addEventListener('click', event => {
    if (event.target === document.body && !panel.hidden && !beside.matches) close();
  });
  beside.addEventListener('change', () => id === 'side' ? set(beside.matches && !opener.hidden) : cover());
  set(id === 'side' && beside.matches);
  return {
    close,
    /** Shows the panel's button, or hides it with the panel. @param {boolean} offered */
    offer(offered) {
      if (offered !== opener.hidden) return;
      opener.hidden = !offered;
      set(offered && id === 'side' && beside.matches);
    },
    /** Closes the panel after a choice, if it covers what was chosen. */
    closeIfCovering() {
      if (!beside.matches && !panel.hidden) close();
    },
  };
}

/** Makes a dialog close on its close buttons and on a click beside it. @param {string} id */
export function createDialog(id) {
  const dialog = element(id, 'dialog');
  for (const button of dialog.querySelectorAll('[data-close]')) button.addEventListener('click', () => dialog.close());
  dialog.addEventListener('pointerdown', event => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}
