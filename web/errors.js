/* The one error class.  `code` is the C status name for failures of the engine; failures that only JavaScript can
 * have use the same names: PLUMB_ERROR_ARGUMENT (an option), PLUMB_ERROR_STATE (closed model, dead worker),
 * PLUMB_ERROR_IO (network, file), PLUMB_ERROR_TEMPLATE (chat template).  Aborts are not errors of this class: what a
 * signal aborts rejects with the signal's reason. */

export class PlumbError extends Error {
  /**
   * @param {string} code  "PLUMB_ERROR_MAGIC" and so on, see include/plumb.h
   * @param {string} message  one sentence with the place and the numbers
   * @param {Record<string, string | number>} [details]  the numbers, e.g. {url, status} or {bytes, total}
   */
  constructor(code, message, details = {}) {
    super(message);
    this.name = 'PlumbError';
    this.code = code;
    this.details = details;
  }
}

/** @param {string} message @param {Record<string, string | number>} [details] */
export const argumentError = (message, details) => new PlumbError('PLUMB_ERROR_ARGUMENT', message, details);

/** The text of whatever was thrown, with its cause: "fetch failed: connect ECONNREFUSED".
 * @param {unknown} error @returns {string} */
export function reasonOf(error) {
  if (!(error instanceof Error)) return String(error);
  return error.cause ? `${error.message}: ${reasonOf(error.cause)}` : error.message;
}
