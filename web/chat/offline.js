/* The service worker (../sw.js): it keeps the page for use without a network, and enables threads on hosts that do not
 * send the headers for them. */
import { toast } from './dom.js';

const RELOADED = 'plumb.reloaded';
const container = /** @type {ServiceWorkerContainer | undefined} */ (navigator.serviceWorker);
/** Milliseconds that the service worker may take to start. */
const START_TIMEOUT = 10000;

/** Resolves when a model may be loaded.  If the page is not cross-origin isolated, it starts the service worker, which
 * adds the headers, and reloads itself once.  If that is not possible, the page goes on with one thread. */
export async function isolate() {
  if (crossOriginIsolated) return sessionStorage.removeItem(RELOADED);
  if (!container || !isSecureContext || sessionStorage.getItem(RELOADED)) return;
  const timeout = new Promise(resolve => setTimeout(resolve, START_TIMEOUT, undefined));
  const started = register().then(({ installing }) => Promise.race([container.ready, installFailed(installing)]))
    .catch(() => undefined);
  if (!await Promise.race([timeout, started])) return;
  sessionStorage.setItem(RELOADED, 'yes');
  location.reload();
  await new Promise(() => {});
}

/** Resolves if a worker cannot be installed. @param {ServiceWorker | null} worker @returns {Promise<undefined>} */
const installFailed = worker => new Promise(resolve => worker?.addEventListener('statechange', () => {
  if (worker.state === 'redundant') resolve(undefined);
}));

/** Keeps the page for later visits, and tells the reader when there is a new version of it. */
export async function keepPage() {
  if (!container || !isSecureContext) return;
  let { controller } = container, reloadRequested = false;
  container.addEventListener('controllerchange', () => {
    if (reloadRequested) location.reload();
    // Another tab has activated the new version, whose files do not match the modules that run here.
    else if (controller) toast('This page is out of date', 'Reload', () => location.reload());
    ({ controller } = container);
  });
  try {
    const registration = await register();
    const offer = () => {
      const { waiting } = registration;
      if (!waiting) return;
      toast('A new version of this page is available', 'Reload', () => {
        reloadRequested = true;
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
    // In private mode, or on a host without sw.js, the page works only with a network.
  }
}

const register = () => /** @type {ServiceWorkerContainer} */ (container)
  .register(new URL('../sw.js', import.meta.url), { updateViaCache: 'none' });
