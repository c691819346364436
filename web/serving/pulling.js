/* Ollama's /api/pull: downloads a model of the hub and tells how far it is, in lines as Ollama writes them.  Only names
 * of the hub and short names are taken, so that nobody makes the server ask for another address. */
import { argumentError, reasonOf } from '../base/errors.js';
import { nameOf } from '../loader/resolve.js';
import { HttpError } from './answers.js';

/** @typedef {{status: string, digest?: string, total?: number, completed?: number}} PullLine */

/** @param {import('./models.js').Models} models @param {string} where  who asks, for messages
 * @param {string} name @param {AbortSignal} signal @returns {AsyncGenerator<PullLine, void, void>} */
export async function* pullLines(models, where, name, signal) {
  if (!models.list().some(one => one.name === name)) {
    if (!models.mayPull) {
      throw new HttpError(403, 'this server does not download models for its clients; start it with --pull, or '
        + `run "plumb pull ${name}" and start it again`);
    }
    if (!nameOf(name, {})) throw argumentError(`${where}: ${JSON.stringify(name)} is no name of a model on the hub`);
    yield { status: 'pulling manifest' };
    yield* progress(models, where, name, signal);
  }
  yield { status: 'success' };
}

/** Downloads, and yields what was last reported whenever the line before was taken.
 * @param {import('./models.js').Models} models @param {string} where @param {string} name @param {AbortSignal} signal
 * @returns {AsyncGenerator<PullLine, void, void>} */
async function* progress(models, where, name, signal) {
  /** @type {import('../loader/progress.js').Progress | undefined} */
  let last;
  let wake = () => {}, isEnded = false;
  const left = new AbortController();
  const pull = models.pull(name, {
    signal: AbortSignal.any([signal, left.signal]),
    onProgress(/** @type {import('../loader/progress.js').Progress} */ one) {
      last = one;
      wake();
    },
  }).finally(() => {
    isEnded = true;
    wake();
  });
  pull.catch(() => {});
  try {
    while (!isEnded) {
      if (!last) await new Promise(resolve => { wake = () => resolve(undefined); });
      if (last) yield { status: `pulling ${name}`, digest: name, total: last.total, completed: last.bytes };
      last = undefined;
    }
    await pull;
  } catch (error) {
    signal.throwIfAborted();
    throw new HttpError(500, `${where}: ${reasonOf(error)}`);
  } finally {
    left.abort();
  }
}
