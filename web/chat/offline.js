/* The service worker (../sw.js): the page without a network, and threads on hosts that send no headers for them. */
import { toast } from './dom.js';

const RELOADED = 'plumb.reloaded';
const container = /** @type {ServiceWorkerContainer | undefined} */ (navigator.serviceWorker);
/** Milliseconds that it may take to start. */
const PATIENCE = 10000;

/** Resolves when a model may be loaded.  A page that is not cross-origin isolated first starts the service worker and
 * reloads itself, once, as the worker adds the headers; where that is not to be had it goes on with one thread. */
export async function isolate() {
  if (crossOriginIsolated) return sessionStorage.removeItem(RELOADED);
  if (!container || !isSecureContext || sessionStorage.getItem(RELOADED)) return;
  const late = new Promise(resolve => setTimeout(resolve, PATIENCE, undefined));
  const started = register().then(({ installing }) => Promise.race([container.ready, refused(installing)]))
    .catch(() => undefined);
  if (!await Promise.race([late, started])) return;
  sessionStorage.setItem(RELOADED, 'yes');
  location.reload();
  await new Promise(() => {});
}

/** Resolves when a worker could not be installed. @param {ServiceWorker | null} worker @returns {Promise<undefined>} */
const refused = worker => new Promise(resolve => worker?.addEventListener('statechange', () => {
  if (worker.state === 'redundant') resolve(undefined);
}));

/** Keeps the page for later visits, and says when there is a new version of it. */
export async function keepPage() {
  if (!container || !isSecureContext) return;
  let { controller } = container, asked = false;
  container.addEventListener('controllerchange', () => {
    if (asked) location.reload();
    // Another tab has taken the new version, whose files do not belong with the modules that run here.
    else if (controller) toast('This page is of an old version by now', 'Reload', () => location.reload());
    ({ controller } = container);
  });
  try {
    const registration = await register();
    const offer = () => {
      const { waiting } = registration;
      if (!waiting) return;
      toast('There is a new version of this page', 'Reload', () => {
        asked = true;
        waiting.postMessage('take over');
      });
    };
    offer();
    registration.addEventListener('updatefound', () => {
      const { installing } = registration;
      installing?.addEventListener('statechange', () => {
        if (installing.state === 'installed' && container.controller) offer();
      });
    });
  } catch {
    // Private mode, or a host that does not have it: the page works while there is a network.
  }
}

const register = () => /** @type {ServiceWorkerContainer} */ (container)
  .register(new URL('../sw.js', import.meta.url), { updateViaCache: 'none' });
