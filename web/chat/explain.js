/* Explains failures to the reader: what happened, and what to do. */
import { PlumbError } from '../index.js';

/** An error that brings its own title and advice. */
export class ExplainedError extends Error {
  /** @param {string} title @param {string} advice @param {string} detail */
  constructor(title, advice, detail) {
    super(detail);
    this.explanation = { title, advice };
  }
}

/** @param {unknown} error
 * @returns {{title: string, advice: string, detail: string, code?: string}}  code: that of a PlumbError */
export function explain(error) {
  const detail = error instanceof PlumbError ? `${error.message} (${error.code})`
    : error instanceof Error && error.name !== 'AbortError' ? error.message : '';
  return { ...titleAndAdvice(error), detail, ...error instanceof PlumbError && { code: error.code } };
}

/** @param {unknown} error @returns {{title: string, advice: string}} */
function titleAndAdvice(error) {
  if (error instanceof ExplainedError) return error.explanation;
  if (error instanceof DOMException && error.name === 'AbortError') {
    return { title: 'Loading was cancelled', advice: 'Try again, or choose another model.' };
  }
  const code = error instanceof PlumbError ? error.code : '';
  const status = error instanceof PlumbError ? Number(error.details.status) : 0;
  if (status === 401 || status === 403) {
    return { title: 'The server denied access to this model', advice: 'It may require a login. Download the file, then '
      + 'open it from your computer.' };
  }
  if (status === 404 || status === 410) {
    return { title: 'The model was not found', advice: 'Check its address, or open a GGUF file from your computer.' };
  }
  switch (code) {
    case 'PLUMB_ERROR_IO':
      return { title: 'The model could not be loaded', advice: 'Check the connection and the address, then try '
        + 'again.' };
    case 'PLUMB_ERROR_CHECKSUM':
      return { title: 'The file does not match its checksum', advice: 'Its bytes are damaged or have changed. Load '
        + 'it again.' };
    case 'PLUMB_ERROR_MEMORY':
      return { title: 'There is not enough memory', advice: 'Choose a smaller model or a shorter context, or close '
        + 'other tabs.' };
    case 'PLUMB_ERROR_UNSUPPORTED':
      return { title: 'This model is not supported', advice: 'Choose a supported model; the reason is below.' };
    case 'PLUMB_ERROR_TRUNCATED':
      return { title: 'The file is incomplete', advice: 'Download it again, or open another file.' };
    case 'PLUMB_ERROR_MAGIC': case 'PLUMB_ERROR_VERSION': case 'PLUMB_ERROR_METADATA':
    case 'PLUMB_ERROR_TENSOR': case 'PLUMB_ERROR_TOKENIZER':
      return { title: 'This is not a valid model file', advice: 'Open a GGUF file; its name usually ends in .gguf.' };
    case 'PLUMB_ERROR_CONTEXT':
      return { title: 'This is too long for the context', advice: 'Shorten the message, or set a longer context in '
        + 'the settings.' };
    case 'PLUMB_ERROR_TEMPLATE':
      return { title: 'The model’s chat template failed', advice: 'It rejected this chat, or was stopped because it '
        + 'exceeded a limit; the reason is below. Start a new chat, or choose another model.' };
    case 'PLUMB_ERROR_STATE':
      return { title: 'The engine stopped', advice: 'Load the model again.' };
  }
  return { title: 'Something went wrong', advice: 'Reload the page. If it happens again, report the line below.' };
}
