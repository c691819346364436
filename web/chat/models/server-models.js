/* Models that the server of this page does not have yet, but fetches when the page asks: that of `make serve`
 * (site/model-fetches.mjs).  A host of static files has what it has. */
import { PlumbError } from '../../index.js';
import { urlOf } from '../../loader/secrets.js';
import { streamChunks } from '../../loader/stream.js';

/** Where a model is: here, or fetched by the server on demand, or not at the server; undefined: it does not answer.
 * @param {string} url @param {AbortSignal} [signal] @returns {Promise<'here' | 'fetched' | 'nowhere' | undefined>} */
export async function whereIs(url, signal) {
  const response = await fetch(url, { method: 'HEAD', signal }).catch(() => undefined);
  if (!response) return undefined;
  return response.ok ? 'here' : response.headers.get('Plumb-Model') === 'absent' ? 'fetched' : 'nowhere';
}

/** Lets the server fetch a model.  False if it does not do so. @param {string} url
 * @param {{signal: AbortSignal, onProgress: (progress: {bytes: number, total?: number}) => void}} options */
export async function fetchAtServer(url, { signal, onProgress }) {
  if (urlOf(url)?.origin !== location.origin || await whereIs(url, signal) !== 'fetched') return false;
  const response = await fetch(url, { method: 'POST', signal });
  if (!response.ok || !response.body) return false;
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of streamChunks(response.body)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const { bytes, total, done, error } = JSON.parse(line);
      if (done) return true;
      if (error !== undefined) throw new PlumbError('PLUMB_ERROR_IO', `the server could not fetch the model: ${error}`);
      onProgress({ bytes, total: total ?? undefined });
    }
  }
  signal.throwIfAborted();
  throw new PlumbError('PLUMB_ERROR_IO', 'the server stopped while it fetched the model');
}
