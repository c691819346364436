/* What messages, warnings and the list of copies must not show: passwords in URLs, the queries of URLs, which may sign
 * a request or hold a key, and the headers that the caller gives. */
import { PlumbError } from '../base/errors.js';
import { hex } from '../base/hex.js';

/** @param {string} text @param {string} [base] @returns {URL | undefined} */
export function urlOf(text, base) {
  try {
    return new URL(text, base);
  } catch {
    return undefined;
  }
}

/** What precedes a user name in a text that is no URL, and all up to the last "@". */
const CREDENTIALS = /^(\s*(?:[a-z][\w+.-]*:[/\\]*|[/\\]{2,})).*@/is;
/** What a message shows in the place of a query, or of another secret. */
const HIDDEN = '...';

/** What a message shows of a text that may be a URL: no user name, no password and no query.  In a text that is no URL,
 * the first two may be all that stands before the last "@". @param {string} text */
export function shownUrl(text) {
  const url = urlOf(text);
  if (!url) return text.replace(CREDENTIALS, '$1');
  if (!url.username && !url.password && !url.search) return text;
  url.username = url.password = '';
  const hasQuery = url.search !== '' && /^https?:$/.test(url.protocol);
  if (hasQuery) url.search = '';
  return `${url.href}${hasQuery ? `?${HIDDEN}` : ''}`;
}

/** Stands for a query in the name of a copy. */
const HASHED = /^\?copy=[0-9a-f]{16}$/;

/** The name of the copy of a URL: the URL, with a hash in the place of its query.  A name is its own name.
 * @param {string} text  a URL, or a cacheKey */
export async function copyName(text) {
  const url = urlOf(text);
  if (!url || !/^https?:$/.test(url.protocol)) return text;
  url.username = url.password = url.hash = '';
  if (!url.search || HASHED.test(url.search)) return url.href;
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(url.search));
  url.search = `copy=${hex(new Uint8Array(hash, 0, 8))}`;
  return url.href;
}

/** Values that are shorter are not replaced: they may be parts of words. */
const SHORTEST = 6;

/** Returns a function that replaces in a text all that requests keep secret, such as a token that a server repeats in
 * its answer. @param {{url: string, headers?: Record<string, string>}[]} targets @returns {(text: string) => string} */
export function concealer(targets) {
  const secrets = targets.flatMap(({ url, headers = {} }) => [
    urlOf(url)?.search.slice(1) ?? '', ...Object.values(headers).flatMap(value => [value, value.replace(/^\S+ +/, '')]),
  ]).filter(secret => secret.length >= SHORTEST).sort((a, b) => b.length - a.length);
  return text => secrets.reduce((shown, secret) => shown.replaceAll(secret, HIDDEN), text);
}

/** An error without what requests keep secret. @template E @param {E} error
 * @param {Parameters<typeof concealer>[0]} targets @returns {E} */
export function concealed(error, targets) {
  if (!(error instanceof Error)) return error;
  const conceal = concealer(targets);
  const shown = conceal(error.message);
  if (shown !== error.message) {
    error.stack = error.stack && conceal(error.stack);
    error.message = shown;
  }
  if (error instanceof PlumbError) {
    for (const [name, value] of Object.entries(error.details)) {
      if (typeof value === 'string') error.details[name] = conceal(value);
    }
  }
  return error;
}
