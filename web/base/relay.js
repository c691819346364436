/* Lets a worker use threads that its page starts; their messages pass through a port between the page and the worker.
 * The worker does not start threads itself.  In Chromium a worker that is terminated while its own workers are ending
 * may never end.  In Firefox `new Worker` in a worker may never return while another worker that it started is still
 * starting. */

/** @typedef {import('./protocol.js').WorkerLike} WorkerLike */

/** The worker's side: asks the page for a thread.  The port carries {message} in both directions, {death} to the worker
 * and {terminate} to the page.  A message to the thread may come with further ports.
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

/** The page's side: starts the threads that the worker asks for.
 * @param {WorkerLike} worker @param {() => WorkerLike} startThread
 * @returns {WorkerLike} the worker; terminating it also terminates its threads */
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
