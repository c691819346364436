/* Threads for a worker, started by its page: messages go through a port between the two.  A worker does not start them
 * itself.  In Chromium one that is terminated while workers of its own are ending may never end, and in Firefox
 * `new Worker` inside a worker may never return while another one that it started is still starting. */

/** @typedef {import('./protocol.js').WorkerLike} WorkerLike */

/** The worker's side.  The port carries {message} in both directions, {death} to here and {terminate} from here; with a
 * message to the thread also other ports.
 * @param {any} scope  the worker's global object @returns {WorkerLike} */
export function askForThread(scope) {
  const { port1, port2 } = new MessageChannel();
  scope.postMessage({ thread: port2 }, [port2]);
  port1.start();
  const on = (/** @type {'message' | 'death'} */ kind) => (/** @type {(data: any) => void} */ handler) =>
    port1.addEventListener('message', ({ data }) => kind in data && handler(data[kind]));
  return {
    post: (message, transfer = []) => port1.postMessage({ message }, transfer),
    onMessage: on('message'),
    onDeath: on('death'),
    terminate: () => port1.postMessage({ terminate: true }),
  };
}

/** The page's side: gives the worker the threads that it asks for.
 * @param {WorkerLike} worker @param {() => WorkerLike} startThread
 * @returns {WorkerLike} the worker, whose end is the end of its threads */
export function giveThreads(worker, startThread) {
  /** @type {WorkerLike[]} */
  const threads = [];
  worker.onMessage((/** @type {{thread?: MessagePort}} */ { thread: port }) => {
    if (!port) return;
    const thread = startThread();
    threads.push(thread);
    thread.onMessage(message => port.postMessage({ message }));
    thread.onDeath(death => port.postMessage({ death }));
    port.onmessage = ({ data: { message, terminate }, ports }) =>
      terminate ? thread.terminate() : thread.post(message, [...ports]);
  });
  return { ...worker, terminate: () => [worker, ...threads].forEach(one => one.terminate()) };
}
