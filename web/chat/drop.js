/* Files that are dropped anywhere on the page. */
import { element } from './dom.js';

/** @param {(files: File[]) => void} take
 * @returns {{cancel: () => boolean}}  cancel: forgets files that are held over the page; false if there are none */
export function acceptDrops(take) {
  let over = 0;
  /** @param {DragEvent} event */
  const hasFiles = event => event.dataTransfer?.types.includes('Files') ?? false;
  /** @param {number} change */
  const hover = change => {
    over = Math.max(0, over + change);
    element('drop', 'div').hidden = over === 0;
  };
  addEventListener('dragenter', event => hasFiles(event) && hover(1));
  addEventListener('dragleave', event => hasFiles(event) && hover(-1));
  element('drop', 'div').addEventListener('click', () => hover(-over));   // in case a dragleave never came
  addEventListener('dragover', event => hasFiles(event) && event.preventDefault());
  addEventListener('drop', event => {
    if (!hasFiles(event)) return;
    hover(-over);
    if (event.defaultPrevented) return;   // a part of the page took it
    event.preventDefault();
    const files = [...event.dataTransfer?.files ?? []];
    if (files.length > 0) take(files);
  });
  return {
    cancel() {
      const held = over > 0;
      hover(-over);
      return held;
    },
  };
}
