/* The files of a model that the page has loaded, and the names of models that the page can load. */
import { Plumb } from '../../index.js';
import { nameOf, resolve } from '../../loader/resolve.js';
import { urlPart } from '../../loader/source.js';

/** What resolve needs of the page. */
const places = {
  locate: (/** @type {string | URL} */ source) => urlPart(String(source), location.href), postsBlobs: true,
  store: { list: () => Plumb.listCached() },
};

/** Whether a text is meant as the name of a model: of the hub, or a short one. @param {unknown} text */
export function isName(text) {
  try {
    return nameOf(text, {}) !== undefined;
  } catch {
    return true;   // a wrong one; the load says why
  }
}

/** The files in order, or their URLs. @param {import('../../loader/source.js').Source} source  a URL, a name, or files
 * @returns {Promise<(File | string)[]>} */
export async function partsOf(source) {
  const all = await Promise.all([source].flat().map(async one => {
    if (one instanceof File) return [one];
    const { parts } = await resolve(String(one), places);
    return parts.map(({ part }) => part.kind === 'url' ? part.url : part.name);
  }));
  return all.flat();
}
