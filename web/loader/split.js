/* The names of the files of a split model: NAME-00001-of-00003.gguf and so on. */
import { argumentError } from '../base/errors.js';
import { shownUrl } from './secrets.js';

/** Matches the number of a file of a split model, and the name of the first one. */
const NUMBER = /-(\d{5})-of-(\d{5})\.gguf(?=$|[?#])/i;
const SPLIT = /-00001-of-(\d{5})\.gguf(?=$|[?#])/;
/** The most files that one name may represent. */
const MAX_PARTS = 999;

/** What the name or URL of a file says: the one that stands for all files of the model, the name without what only a
 * file has, and which one of how many files it is.
 * @param {string} name @returns {{first: string, stem: string, number: number, count: number}} */
export function splitOf(name) {
  const [whole, number = 1, count = 1] = NUMBER.exec(name) ?? ['.gguf'];
  return {
    first: name.replace(NUMBER, '-00001-of-$2.gguf'), number: Number(number), count: Number(count),
    stem: name.toLowerCase().endsWith(whole.toLowerCase()) ? name.slice(0, -whole.length) : name,
  };
}

/** All files of a model: the name of the first file of a split model represents them all. @param {string | URL} source
 * @returns {(string | URL)[]} */
export function expand(source) {
  const count = Number(SPLIT.exec(String(source))?.[1] ?? 1);
  if (count <= 1) return [source];
  if (count > MAX_PARTS) {
    throw argumentError(`${shownUrl(String(source))}: the name says that the model has ${count} parts; at most `
      + `${MAX_PARTS} are loaded`, { parts: count, limit: MAX_PARTS });
  }
  return Array.from({ length: count }, (_, i) =>
    String(source).replace(SPLIT, `-${String(i + 1).padStart(5, '0')}-of-$1.gguf`));
}
