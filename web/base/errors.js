/** @typedef {'PLUMB_ERROR' | 'PLUMB_ERROR_ARGUMENT' | 'PLUMB_ERROR_STATE' | 'PLUMB_ERROR_MEMORY' | 'PLUMB_ERROR_IO'
 *   | 'PLUMB_ERROR_CHECKSUM' | 'PLUMB_ERROR_MAGIC' | 'PLUMB_ERROR_VERSION' | 'PLUMB_ERROR_TRUNCATED'
 *   | 'PLUMB_ERROR_METADATA' | 'PLUMB_ERROR_TENSOR' | 'PLUMB_ERROR_UNSUPPORTED' | 'PLUMB_ERROR_TOKENIZER'
 *   | 'PLUMB_ERROR_TEMPLATE' | 'PLUMB_ERROR_CONTEXT' | 'PLUMB_ERROR_TOKEN'} ErrorCode  what each means: PlumbError */

/** The one class of errors.  What a signal ends is not of it: that rejects with the signal's reason.
 *
 * `code` is one of these.  The caller: PLUMB_ERROR_ARGUMENT (an option, a parameter), PLUMB_ERROR_STATE (a closed
 * model, a dead worker, a call at the wrong time).  Resources: PLUMB_ERROR_MEMORY, PLUMB_ERROR_IO (network, file),
 * PLUMB_ERROR_CHECKSUM (a file is not the one that was asked for).  The file: PLUMB_ERROR_MAGIC (no GGUF),
 * PLUMB_ERROR_VERSION, PLUMB_ERROR_TRUNCATED, PLUMB_ERROR_METADATA (a key), PLUMB_ERROR_TENSOR.  What cannot run:
 * PLUMB_ERROR_UNSUPPORTED (architecture, type, tokenizer), PLUMB_ERROR_TOKENIZER (the vocabulary contradicts itself),
 * PLUMB_ERROR_TEMPLATE (the chat template).  Running: PLUMB_ERROR_CONTEXT (more tokens than the context holds),
 * PLUMB_ERROR_TOKEN (an id that is none).  PLUMB_ERROR: the engine broke down; load the model again. */
export class PlumbError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message  one sentence with the place and the numbers
   * @param {Record<string, string | number>} [details]  the numbers, e.g. {url, status} or {bytes, total}
   */
  constructor(code, message, details = {}) {
    super(message);
    this.name = 'PlumbError';
    /** "PLUMB_ERROR_MAGIC" and so on. @type {ErrorCode} */
    this.code = code;
    /** Numbers of the message where a program can do something with them, e.g. {url, status} or {bytes, total}.
     * @type {Record<string, string | number>} */
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
