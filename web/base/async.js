/* What code that waits shares. */

/** The name of the method that `await using` calls; on hosts without it, of one that nobody calls.
 * @type {typeof Symbol.asyncDispose} */
export const ASYNC_DISPOSE = Symbol.asyncDispose ?? Symbol('asyncDispose');

/** Yields to the event loop once; setTimeout would wait 4 ms each time.
 * @type {() => Promise<void>} */
export const yieldToEventLoop = typeof setImmediate === 'function' ? () => new Promise(resolve => setImmediate(resolve))
  : (() => {
    const { port1, port2 } = new MessageChannel();
    /** @type {(() => void)[]} */
    const waiting = [];
    port1.onmessage = () => waiting.shift()?.();
    return () => new Promise(resolve => {
      waiting.push(resolve);
      port2.postMessage(0);
    });
  })();

/** The values of a list, for work that takes long in all: when a task has worked for some milliseconds, the next value
 * comes in another task. @template T @param {Iterable<T>} values @returns {AsyncGenerator<T, void, void>} */
export async function* inSlices(values) {
  let end = performance.now() + 8;
  for (const value of values) {
    if (performance.now() > end) {
      await yieldToEventLoop();
      end = performance.now() + 8;
    }
    yield value;
  }
}

/** Calls a function with the reason when a signal is aborted, or at once if it is.
 * @param {AbortSignal | undefined} signal @param {(reason: any) => void} call @returns {() => void}  stops waiting */
export function onAbort(signal, call) {
  const abort = () => call(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  return () => signal?.removeEventListener('abort', abort);
}

/** The result of a promise, or a value.  Rejects with the reason of the signal if that is aborted before, even if the
 * result never comes.
 * @template T @param {T | PromiseLike<T>} result @param {AbortSignal} [signal] @returns {Promise<T>} */
export function unlessAborted(result, signal) {
  return new Promise((resolve, reject) => {
    const unfollow = onAbort(signal, reject);
    Promise.resolve(result).then(resolve, reject).finally(unfollow);
  });
}

/** Yields what use makes of the values of a generator, and returns its result.  Ends it if the loop is left.
 * @template T, U, R @param {AsyncIterator<T, R, void>} values @param {(value: T) => Iterable<U>} use
 * @returns {AsyncGenerator<U, R, void>} */
export async function* mapped(values, use) {
  try {
    for (;;) {
      const { done, value } = await values.next();
      if (done) return value;
      for (const one of use(value)) yield one;   // yield* would pass throw() on to an array, which has no such method
    }
  } finally {
    await values.return?.();
  }
}

/** Yields the values of several generators as they come, each with the index of its generator, and undefined when that
 * one has ended.  Ends them all if the loop is left.
 * @template T @param {AsyncGenerator<T, void, void>[]} generators
 * @returns {AsyncGenerator<[number, T | undefined], void, void>} */
export async function* merged(generators) {
  const next = async (/** @type {number} */ index) => ({ index, step: await generators[index].next() });
  const pending = new Map(generators.map((_, index) => [index, next(index)]));
  try {
    while (pending.size > 0) {
      const { index, step } = await Promise.race(pending.values());
      if (step.done) pending.delete(index);
      else pending.set(index, next(index));
      yield [index, step.done ? undefined : step.value];
    }
  } finally {
    for (const one of pending.values()) one.catch(() => {});
    await Promise.all(generators.map(one => one.return()));
  }
}
