/* Long work lets other events in between its pieces. */

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
