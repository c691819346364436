/** Calls a function with the reason when a signal is aborted, or at once if it is.
 * @param {AbortSignal | undefined} signal @param {(reason: any) => void} call @returns {() => void}  stops waiting */
export function onAbort(signal, call) {
  const abort = () => call(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  return () => signal?.removeEventListener('abort', abort);
}
