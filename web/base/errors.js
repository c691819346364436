/** @typedef {'PLUMB_ERROR' | 'PLUMB_ERROR_ARGUMENT' | 'PLUMB_ERROR_STATE' | 'PLUMB_ERROR_MEMORY' | 'PLUMB_ERROR_IO'
 *   | 'PLUMB_ERROR_CHECKSUM' | 'PLUMB_ERROR_MAGIC' | 'PLUMB_ERROR_VERSION' | 'PLUMB_ERROR_TRUNCATED'
 *   | 'PLUMB_ERROR_METADATA' | 'PLUMB_ERROR_TENSOR' | 'PLUMB_ERROR_UNSUPPORTED' | 'PLUMB_ERROR_TOKENIZER'
 *   | 'PLUMB_ERROR_TEMPLATE' | 'PLUMB_ERROR_CONTEXT' | 'PLUMB_ERROR_TOKEN'} ErrorCode  PlumbError describes each */

/** The class of all errors of this package.  A call that a signal ends rejects with the signal's reason instead.
 *
 * `code` is one of the following.  Mistakes of the caller: PLUMB_ERROR_ARGUMENT (an option or a parameter),
 * PLUMB_ERROR_STATE (a closed model, a dead worker, a call at the wrong time).  Resources: PLUMB_ERROR_MEMORY,
 * PLUMB_ERROR_IO (network, file), PLUMB_ERROR_CHECKSUM (a file is not the expected one).  Broken files:
 * PLUMB_ERROR_MAGIC (not a GGUF file), PLUMB_ERROR_VERSION, PLUMB_ERROR_TRUNCATED, PLUMB_ERROR_METADATA (a key),
 * PLUMB_ERROR_TENSOR.  Models that cannot run: PLUMB_ERROR_UNSUPPORTED (architecture, type, tokenizer),
 * PLUMB_ERROR_TOKENIZER (the vocabulary contradicts itself), PLUMB_ERROR_TEMPLATE (the chat template).  At run time:
 * PLUMB_ERROR_CONTEXT (more tokens than the context holds), PLUMB_ERROR_TOKEN (an id outside the vocabulary).
 * PLUMB_ERROR: something unexpected has failed.  If the engine crashed, the model must be loaded again. */
export class PlumbError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message  one sentence that names the place and the numbers
   * @param {Record<string, any>} [details]  values from the message: {url, status}, {bytes, total}, {partial}
   */
  constructor(code, message, details = {}) {
    super(message);
    this.name = 'PlumbError';
    /** "PLUMB_ERROR_MAGIC" and so on. @type {ErrorCode} */
    this.code = code;
    /** Values from the message that a program can use, such as {url, status} or {bytes, total}.
     * @type {Record<string, any>} */
    this.details = details;
  }
}

/** @param {string} message @param {Record<string, any>} [details] */
export const argumentError = (message, details) => new PlumbError('PLUMB_ERROR_ARGUMENT', message, details);

/** The message of whatever was thrown, followed by its cause: "fetch failed: connect ECONNREFUSED".
 * @param {unknown} error @returns {string} */
export function reasonOf(error) {
  if (!(error instanceof Error)) return String(error);
  return error.cause ? `${error.message}: ${reasonOf(error.cause)}` : error.message;
}
