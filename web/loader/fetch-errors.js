/* Explains why a file could not be fetched.  A browser only says "Failed to fetch", whatever the cause, and some
 * servers answer every request with a web page. */
import { reasonOf } from '../base/errors.js';

/** Milliseconds to wait for the browser's report that it has blocked a response. */
const REPORT = 1000;

/** The origin of an http or https URL if it differs from the page's.  Otherwise, and where there is no page, undefined.
 * @param {string} url */
function otherOrigin(url) {
  const here = globalThis.location?.origin;
  if (here === undefined || !/^https?:/.test(url)) return undefined;
  const { origin } = new URL(url);
  return origin === here ? undefined : origin;
}

/** Says that a fetch has failed because the page may not read responses of the server (CORS), if that is the reason.
 * Returns undefined if it is not: the URL is of the page's own origin, or the server does not answer.  To find out, it
 * sends a no-cors request, which succeeds if the server answers at all, although its response cannot be read.  On a
 * page that is isolated by "require-corp" the browser may block even that response, but then it reports so.
 * @param {string} url  a URL whose fetch has failed @param {AbortSignal} [signal]
 * @returns {Promise<string | undefined>} */
export async function corsProblem(url, signal) {
  if (otherOrigin(url) === undefined) return undefined;
  const blocked = watchBlocked(url);
  try {
    await fetch(url, { mode: 'no-cors', method: 'HEAD', cache: 'no-store', signal });
  } catch {
    if (!await blocked.isReported()) return undefined;
  } finally {
    blocked.end();
  }
  const { origin } = globalThis.location;
  return `the server answers, but does not allow pages of ${origin} to read the answer (CORS): the answer, or the one `
    + `that it redirects to, lacks the header "Access-Control-Allow-Origin: ${origin}" (or "*")`;
}

/** Observes whether the browser reports that it has blocked a URL's response because that has no
 * "Cross-Origin-Resource-Policy". @param {string} url */
function watchBlocked(url) {
  const Observer = /** @type {any} */ (globalThis).ReportingObserver;
  let blocked = false, wake = () => {};
  const observer = Observer && new Observer((/** @type {any[]} */ reports) => {
    // The body of the report itself has no members; the body of its JSON form has them.
    const blocks = reports.map(report => report.toJSON()).filter(({ type }) => type === 'coep');
    if (!blocks.some(({ body }) => body?.blockedURL === url)) return;
    blocked = true;
    wake();
  });
  observer?.observe();
  return {
    async isReported() {
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

/** The message for a failed fetch of which nothing more is known.  On an isolated page, in a browser that does not
 * report what it blocks, a missing connection looks the same as a missing header. @param {string} url
 * @param {unknown} error */
export const noConnection = (url, error) => `no connection: ${reasonOf(error)}${corsHint(url)}`;

/** @param {string} url */
function corsHint(url) {
  return otherOrigin(url) !== undefined && globalThis.crossOriginIsolated && !('ReportingObserver' in globalThis)
    ? '; or the server answers without the header "Access-Control-Allow-Origin", which pages of other sites need'
    : '';
}

/** The message for a response that is a web page, or undefined for any other response.  Some servers answer requests
 * for files that they do not have with a web page and status 200.
 * @param {Response} response @param {string} wanted  what was requested: "a GGUF file" */
export function webPage({ headers }, wanted) {
  const type = headers.get('Content-Type') ?? '';
  return type.includes('text/html') ? `the server sent a web page (${type}), not ${wanted}` : undefined;
}
