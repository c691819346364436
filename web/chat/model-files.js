/* The files of a model that the page has loaded. */
import { expand } from '../loader/source.js';

/** The files in order, or their URLs. @param {import('../loader/source.js').Source} source  a URL or files
 * @returns {(File | string)[]} */
export function partsOf(source) {
  /** @param {unknown} part @returns {(File | string)[]} */
  const files = part => part instanceof File ? [part]
    : expand(String(part)).map(one => new URL(String(one), location.href).href);
  return [source].flat().flatMap(files);
}
