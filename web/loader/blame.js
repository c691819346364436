/* Why a file did not come, in words that help: a browser says "Failed to fetch" of every fetch that fails, whatever the
 * cause, and some servers answer every request with their start page. */
import { reasonOf } from '../base/errors.js';

/** Milliseconds in which a browser reports that it has blocked an answer. */
const REPORT = 1000;

/** The origin of a URL if it is another than the page's. @param {string} url */
export function otherOrigin(url) {
  const here = globalThis.location?.origin;
  if (here === undefined || !/^https?:/.test(url)) return undefined;
  const { origin } = new URL(url);
  return origin === here ? undefined : origin;
}

/** Says what keeps a page from reading an answer of another site, or undefined if the server does not answer.  A
 * request without CORS succeeds wherever a server answers, though nobody may read what it says.  A page that is
 * isolated by "require-corp" may not even have that answer, but the browser then reports that it has blocked it.
 * @param {string} url  a fetch of which failed @param {AbortSignal} [signal] @returns {Promise<string | undefined>} */
export async function corsProblem(url, signal) {
  if (otherOrigin(url) === undefined) return undefined;
  const report = watchBlocked(url);
  try {
    await fetch(url, { mode: 'no-cors', method: 'HEAD', cache: 'no-store', signal });
  } catch {
    if (!await report.seen()) return undefined;
  } finally {
    report.end();
  }
  const { origin } = globalThis.location;
  return `the server answers, but lets no page of ${origin} read it (CORS): its answer lacks the header `
    + `"Access-Control-Allow-Origin: ${origin}" (or "*"), or leads to an address whose answer lacks it`;
}

/** Hears whether the browser reports that it has blocked a URL's answer for its missing
 * "Cross-Origin-Resource-Policy". @param {string} url */
function watchBlocked(url) {
  const Observer = /** @type {any} */ (globalThis).ReportingObserver;
  let blocked = false, wake = () => {};
  const observer = Observer && new Observer((/** @type {any[]} */ reports) => {
    // The body of a report itself has no members.
    const blocks = reports.map(report => report.toJSON()).filter(({ type }) => type === 'coep');
    if (!blocks.some(({ body }) => body?.blockedURL === url)) return;
    blocked = true;
    wake();
  });
  observer?.observe();
  return {
    async seen() {
      if (observer && !blocked) {
        await new Promise(resolve => {
          wake = () => resolve(undefined);
          setTimeout(resolve, REPORT);
        });
      }
      return blocked;
    },
    end: () => observer?.disconnect(),
  };
}

/** Says why a fetch failed that nothing more is known of.  A page that is isolated, in a browser that does not report
 * what it blocks, cannot tell a missing connection from a missing header. @param {string} url @param {unknown} error */
export const noConnection = (url, error) => `no connection: ${reasonOf(error)}${blind(url)}`;

/** @param {string} url */
function blind(url) {
  return otherOrigin(url) !== undefined && globalThis.crossOriginIsolated && !('ReportingObserver' in globalThis)
    ? '; or the server answers without the header "Access-Control-Allow-Origin", which a page of another site needs'
    : '';
}

/** Says that an answer is a web page, which a server that answers everything with its start page is fond of sending.
 * @param {Response} response @param {string} wanted  what was asked for: "a GGUF file" */
export function webPage({ headers }, wanted) {
  const type = headers.get('Content-Type') ?? '';
  return type.includes('text/html') ? `the server sent a web page (${type}), not ${wanted}` : undefined;
}
