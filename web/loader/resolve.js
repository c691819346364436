/* Turns what a caller names into the parts of a model.  Names of the hub need a question to its API, unless the model
 * is on this machine; everything else is described at once. */
import { PlumbError, argumentError } from '../base/errors.js';
import {
  candidates, fileUrl, filesOf, HUB, hubName, isPreferred, modelsAmong, modelsHere, refusal, shownName,
} from './hub.js';
import { isLikeName, named, nearest } from './names.js';
import { concealed, shownUrl, urlOf } from './secrets.js';
import { describe } from './source.js';

/** @typedef {import('./hub.js').HubName} HubName */
/** @typedef {import('./source.js').Sites & {
 *   hub?: () => import('./hub.js').HubSite,
 *   exists?: (text: string) => boolean,
 *   store?: Pick<import('./copy-store.js').Store, 'list'>,
 *   pause?: import('./download.js').DownloadOptions['pause']}} Places  hub: the server of the hub, and a token; exists:
 *   whether a text is the path of a file */
/** @typedef {import('./request.js').RequestOptions & {
 *   signal?: AbortSignal,
 *   cache?: import('./download.js').CacheMode,
 *   origin?: string,
 *   isAdapter?: boolean,
 *   fits?: (parts: import('./source.js').Described[], bytes: number, wide: boolean) => Promise<boolean>}}
 *   ResolveOptions  fits: whether this machine has memory for a model; wide: although it needs 64-bit addresses */
/** @typedef {{parts: import('./source.js').Described[], sha256?: (string | undefined)[], hub?: HubName}} Resolved
 *   sha256: of each part, as the hub states it */

/** Where the hub is, without a slash at its end. @param {Places} places */
export function siteOf(places) {
  const text = places.hub?.().url ?? HUB, url = urlOf(text);
  if (url && /^https?:$/.test(url.protocol) && !url.username && !url.password && !url.search) {
    return url.href.replace(/[/#]+$/, '');
  }
  throw argumentError(`HF_ENDPOINT is ${shownUrl(text)}, expected the URL of a server, without a password`);
}

/** The name of the hub that a source is: one in the syntax of the hub, or a short name.  In Node, a path that exists is
 * no name. @param {unknown} source @param {Pick<Places, 'exists'>} places @returns {HubName | undefined} */
export function nameOf(source, { exists }) {
  if (Array.isArray(source) && source.length === 1) return nameOf(source[0], { exists });
  if (typeof source !== 'string' && !(source instanceof URL)) return undefined;
  const text = String(source);
  if (/^\s*(data|blob|file):/i.test(text) || exists?.(text)) return undefined;
  const onHub = hubName(text), short = onHub ? undefined : named(text);
  if (short) return { repository: short.model.repository, revision: 'main', ...short.type && { type: short.type } };
  if (onHub || !isLikeName(text)) return onHub;
  throw argumentError(`${text}: no model has this name; the nearest are ${nearest(text).join(', ')}`);
}

/** @param {import('./source.js').Source} source @param {Places} places @param {ResolveOptions} [options]
 * @returns {Promise<Resolved>} */
export async function resolve(source, places, options = {}) {
  const { headers, cache = 'default', origin, fits = async () => true, isAdapter = false } = options;
  const name = nameOf(source, places);
  if (!name) return { parts: withToken(describe(source, places, options), places) };
  const site = siteOf(places);
  const described = (/** @type {import('./hub.js').HubModel} */ { parts }) => {
    const all = withToken(describe(parts.map(({ path }) => fileUrl(site, name, path)), places, options), places);
    for (const [i, { part }] of all.entries()) part.size = parts[i].size;
    return all;
  };
  const here = cache === 'default' ? modelsHere(site, name, await places.store?.list() ?? []) : [];
  const isNamed = name.file !== undefined || name.type !== undefined;
  const found = here.length > 0 ? attempt(() => candidates(name, here, isAdapter)) : undefined;
  if (found && (isNamed || isPreferred(found[0]))) return { parts: described(found[0]), hub: name };
  const home = new URL(site).origin, token = tokenFor(places, home);
  const given = (origin ?? home) === home ? headers : undefined;   // the headers may be for another server
  const own = { ...token, ...given && Object.fromEntries(new Headers(given)) };
  const { credentials, fetch, signal } = options;
  const files = await filesOf(site, name, { credentials, fetch, signal, pause: places.pause, headers: own })
    .catch(error => {
      if (found && error?.details?.unreachable) return undefined;
      throw concealed(error, [{ url: site, headers: own }]);
    });
  if (!files && found) return { parts: described(found[0]), hub: name };
  const all = candidates(name, modelsAmong(files ?? []), isAdapter);
  // A file that needs 64-bit addresses is slower, so it is taken only if there is no other.
  for (const wide of [false, true]) {
    for (const one of all) {
      const parts = described(one);
      if (!isNamed && !isAdapter && !await fits(parts, one.size, wide)) continue;
      return { parts, hub: name, sha256: one.parts.map(({ sha256 }) => sha256) };
    }
  }
  const { path, size } = all.reduce((least, one) => one.size < least.size ? one : least);
  throw new PlumbError('PLUMB_ERROR_MEMORY', `${shownName(name)}: there is no memory here for any file: the smallest, ${
    path}, has ${(size / 1e6).toFixed(0)} MB; name a file to load it nevertheless`, { bytes: size });
}

/** The result of an action, or undefined if it throws. @template T @param {() => T} action */
function attempt(action) {
  try {
    return action();
  } catch {
    return undefined;
  }
}

/** The header with the token of this host, for requests to the hub. @param {Places} places @param {string} origin
 * @returns {Record<string, string> | undefined} */
function tokenFor(places, origin) {
  const { token } = places.hub?.() ?? {};
  return token && origin === new URL(siteOf(places)).origin ? { authorization: `Bearer ${token}` } : undefined;
}

/** Adds the token of this host to the requests to the hub, unless the caller has given another.
 * @param {import('./source.js').Described[]} parts @param {Places} places */
function withToken(parts, places) {
  for (const { part } of parts) {
    const token = part.kind === 'url' ? tokenFor(places, new URL(part.url).origin) : undefined;
    if (part.kind === 'url' && token) part.headers = { ...token, ...part.headers };
  }
  return parts;
}

/** Whether a source is at a server: a URL, or the name of a model. @param {string} source
 * @param {Pick<Places, 'exists'>} places */
export const isRemote = (source, places) =>
  /^https?:\/\//i.test(source) || attempt(() => nameOf(source, places)) !== undefined;

/** Explains an error of a load: the hub's refusal to send a file. @param {unknown} error @param {Resolved} resolved
 * @param {Places} places */
export function explained(error, { hub, parts }, places) {
  const { status, code } = error instanceof PlumbError ? error.details : {};
  const [{ part }] = parts;
  if (!hub || part.kind !== 'url' || ![401, 403, 404].includes(status)) return error;
  return refusal(shownName(hub), { status, code }, { site: siteOf(places), name: hub, headers: part.headers });
}

/** The names of the copies that a source stands for: of a name of the hub, of a URL, or of a cacheKey.
 * @param {string | URL} source @param {Places} places @param {(source: string | URL) => string[]} urlsOf
 * @returns {Promise<string[]>} */
export async function copiesOf(source, places, urlsOf) {
  const text = String(source), name = nameOf(source, places);
  if (!name && /^\s*https?:/i.test(text)) return urlsOf(source);
  const copies = await places.store?.list() ?? [];
  const keyed = copies.map(({ url }) => url).filter(url => url === text
    || url.startsWith(`${text}#`) && /^\d+$/.test(url.slice(text.length + 1)));
  if (keyed.length > 0) return keyed;
  if (!name) return urlsOf(source);
  const site = siteOf(places), here = modelsHere(site, name, copies, false);
  const found = attempt(() => candidates(name, here, true)) ?? [];
  if (found.length > 1) {
    const all = found.map(({ path }) => shownName({ ...name, file: path })).join(', ');
    throw argumentError(`${text}: there are copies of ${found.length} files: ${all}; name one of them`);
  }
  return found.flatMap(({ parts }) => parts.map(({ path }) => fileUrl(site, name, path)));
}
