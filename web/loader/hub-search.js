/* Search in the hub: the repositories with GGUF files whose names have some words, the most downloaded ones first, and
 * the size of what each would load.  All answers of the server are untrusted: what is no name of a repository is left
 * out, and numbers that are none are not shown. */
import { ask, candidates, filesOf, listIn, modelsAmong, REPOSITORY, strange } from './hub.js';

/** @typedef {{repository: string, downloads?: number, likes?: number, gated: boolean, updated?: string}} Found
 *   updated: a date such as 2026-11-29 */

/** How many repositories a page of results has, and the longest text that is sent. */
const RESULTS = 10, LONGEST = 100;
/** The most bytes of an answer. */
const MOST = 1 << 20;

/** @param {string} site  the hub's address, without a slash at its end @param {string} words
 * @param {import('./hub.js').HubOptions} options @param {string} [page]  the next page of an earlier answer
 * @returns {Promise<{found: Found[], next?: string}>} */
export async function searchHub(site, words, options, page) {
  const query = new URLSearchParams({ search: words.trim().slice(0, LONGEST), filter: 'gguf', sort: 'downloads',
    direction: '-1', limit: String(RESULTS) });
  const where = 'the search', { entries, next } = await ask(page ?? `${site}/api/models?${query}`,
    { site, where, parse, most: MOST }, options);
  if (next !== undefined && new URL(next).origin !== new URL(site).origin) {
    throw strange(where, 'the next page of the results is on another server');
  }
  return { found: entries.slice(0, RESULTS), next: next === page ? undefined : next };
}

/** @param {string} where @param {string} text @returns {Found[]} */
function parse(where, text) {
  return listIn(where, text).flatMap(one => {
    const repository = one?.id ?? one?.modelId;
    if (typeof repository !== 'string' || repository.length > LONGEST || !REPOSITORY.test(repository)) return [];
    const [, updated] = typeof one.lastModified === 'string' ? /^(\d{4}-\d\d-\d\d)T/.exec(one.lastModified) ?? [] : [];
    return [{ repository, gated: Boolean(one.gated), ...updated && { updated },
      ...isCount(one.downloads) && { downloads: one.downloads }, ...isCount(one.likes) && { likes: one.likes } }];
  });
}

/** @param {unknown} number */
const isCount = number => Number.isSafeInteger(number) && Number(number) >= 0;

/** The file that a load of a repository would choose: the best one of at most so many bytes, else the smallest.
 * @param {string} site @param {string} repository @param {number} most @param {import('./hub.js').HubOptions} options
 * @returns {Promise<{path: string, size: number}>} */
export async function chosenOf(site, repository, most, options) {
  const name = { repository, revision: 'main' };
  const all = candidates(name, modelsAmong(await filesOf(site, name, options)));
  return all.find(({ size }) => size <= most) ?? all.reduce((least, one) => one.size < least.size ? one : least);
}
