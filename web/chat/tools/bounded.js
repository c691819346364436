/* Reads answers of servers that are not trusted: in pieces, and only so many bytes of them. */
import { ExplainedError } from '../explain.js';

/** Requests carry no cookies and no referrer.  A redirect is an error, because the reader has allowed only this
 * address. @type {RequestInit} */
const PLAIN = { credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error', cache: 'no-store' };

/** The address that a text names, if a page can send requests to it.  Throws an ExplainedError otherwise.
 * @param {string} text */
export function addressOf(text) {
  const url = text.length <= 2000 && URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw new ExplainedError('This is not an address', 'It begins with http:// or https://.', '');
  }
  if (url.username || url.password) {
    throw new ExplainedError('The address has a password', 'Leave it out: no credentials are sent.', '');
  }
  url.hash = '';
  return url;
}

/** Sends a request.  A failure is explained.
 * @param {URL} address @param {RequestInit & {signal: AbortSignal}} options @param {string} advice  if a page cannot
 *   reach the server */
export async function send(address, options, advice) {
  try {
    return await fetch(address, { ...PLAIN, ...options });
  } catch (error) {
    options.signal.throwIfAborted();
    const isMixed = address.protocol === 'http:' && globalThis.location?.protocol === 'https:';
    throw new ExplainedError('The request failed', isMixed ? 'A page of https cannot reach every address of http.'
      : advice, error instanceof Error ? error.message : '');
  }
}

/** The pieces of a body, as texts.  Throws an ExplainedError if it has too many bytes.
 * @param {Response} response @param {number} most  bytes @param {AbortSignal} signal
 * @param {string} [encoding]  default: UTF-8
 * @returns {AsyncGenerator<string, void, void>} */
export async function* textsOf(response, most, signal, encoding) {
  const reader = response.body?.getReader(), decoder = new TextDecoder(encoding);
  const cancel = () => void reader?.cancel().catch(() => {});
  signal.addEventListener('abort', cancel);
  try {
    for (let bytes = 0; reader;) {
      const { done, value } = await reader.read();
      signal.throwIfAborted();
      if (done) break;
      bytes += value.length;
      if (bytes > most) {
        throw new ExplainedError('The answer is too large', `At most ${most / 1e6} MB are read.`, '');
      }
      yield decoder.decode(value, { stream: true });
    }
    yield decoder.decode();
  } finally {
    signal.removeEventListener('abort', cancel);
    cancel();
  }
}

/** The whole text of a body. @param {Parameters<typeof textsOf>} args */
export async function textOf(...args) {
  let text = '';
  for await (const piece of textsOf(...args)) text += piece;
  return text;
}

/** A signal that is aborted with another one, or after some time with an error that says so.
 * @param {number} seconds @param {AbortSignal} [signal] @returns {{signal: AbortSignal, done: () => void}}  done: to be
 *   called at the end */
export function within(seconds, signal) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new ExplainedError('The server is too slow',
    'Try again later.', `no answer within ${seconds} s`)), 1000 * seconds);
  return { signal: signal ? AbortSignal.any([signal, controller.signal]) : controller.signal,
    done: () => clearTimeout(timer) };
}

/** Characters that cannot be seen, or that change the direction of what follows.  Those that join or part letters, or
 * choose how a symbol looks, are parts of words, if they are behind a letter or a symbol. */
const JOINING = '(?<=[\\p{L}\\p{M}\\p{So}])[\\u200c\\u200d\\ufe0e\\ufe0f]|(?<=\\ufe0f)\\u200d';
const UNSEEN = new RegExp(`${JOINING}|([^\\S\\n\\t ]|(?![\\n\\t])[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{DI}])`, 'gu');

/** A text from a server without characters that cannot be seen, and not too long; '' if it is no text or number.
 * @param {unknown} text @param {number} most  characters */
export const visible = (text, most) => ['string', 'number'].includes(typeof text)
  ? String(text).slice(0, most).replace(/\r\n?/g, '\n').replaceAll('\u00ad', '')
    .replace(UNSEEN, (same, unseen) => unseen === undefined ? same : ' ').trim() : '';
