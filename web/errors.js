/** The one class of errors.  What a signal ends is not of it: that rejects with the signal's reason.
 *
 * `code` is the name of a status of include/plumb.h, or one of these, which only JavaScript has: PLUMB_ERROR_ARGUMENT
 * (an option), PLUMB_ERROR_STATE (a closed model, a dead worker), PLUMB_ERROR_IO (network, file), PLUMB_ERROR_TEMPLATE
 * (the chat template), PLUMB_ERROR_CHECKSUM (a file is not the one that was asked for). */
export class PlumbError extends Error {
  /**
   * @param {string} code  "PLUMB_ERROR_MAGIC" and so on, see include/plumb.h
   * @param {string} message  one sentence with the place and the numbers
   * @param {Record<string, string | number>} [details]  the numbers, e.g. {url, status} or {bytes, total}
   */
  constructor(code, message, details = {}) {
    super(message);
    this.name = 'PlumbError';
    /** "PLUMB_ERROR_MAGIC" and so on. @type {string} */
    this.code = code;
    /** The numbers of the message, e.g. {url, status} or {bytes, total}. @type {Record<string, string | number>} */
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
