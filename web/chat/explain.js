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

/** Errors after which a model cannot answer any more: its engine broke down, or its worker is gone. */
const FATAL = ['PLUMB_ERROR', 'PLUMB_ERROR_STATE'];
/** Whether a model must be loaded again after an error. @param {unknown} error */
export const isFatal = error => error instanceof PlumbError && FATAL.includes(error.code);

/** @param {unknown} error
 * @returns {{title: string, advice: string, detail: string, code?: string}}  code: that of a PlumbError */
export function explain(error) {
  const detail = error instanceof PlumbError ? `${error.message} (${error.code})`
    : error instanceof Error && error.name !== 'AbortError' ? error.message : '';
  return { ...titleAndAdvice(error), detail, ...error instanceof PlumbError && { code: error.code } };
}

/** Titles and advice by the HTTP status, or by the code of a PlumbError. @type {Record<string, [string, string]>} */
const EXPLANATIONS = {
  401: ['The server denied access to this model',
    'It may require a login. Download the file, then open it from your computer.'],
  404: ['The model was not found', 'Check its address, or open a GGUF file from your computer.'],
  PLUMB_ERROR_ARGUMENT: ['There is no such model', 'Check its name or address; the reason is below.'],
  PLUMB_ERROR_IO: ['The model could not be loaded', 'Check the connection and the address, then try again.'],
  PLUMB_ERROR_CHECKSUM: ['The file does not match its checksum',
    'Its bytes are damaged or have changed. Load it again.'],
  PLUMB_ERROR_MEMORY: ['There is not enough memory',
    'Choose a smaller model or a shorter context, or close other tabs.'],
  PLUMB_ERROR_UNSUPPORTED: ['This model is not supported', 'Choose a supported model; the reason is below.'],
  PLUMB_ERROR_TRUNCATED: ['The file is incomplete', 'Download it again, or open another file.'],
  PLUMB_ERROR_MAGIC: ['This is not a valid model file', 'Open a GGUF file; its name usually ends in .gguf.'],
  PLUMB_ERROR_CONTEXT: ['This is too long for the context',
    'Shorten the message, or set a longer context in the settings.'],
  PLUMB_ERROR_TEMPLATE: ['The model’s chat template failed',
    'It rejected this chat, or was stopped because it exceeded a limit; '
    + 'the reason is below. Start a new chat, or choose another model.'],
  PLUMB_ERROR_STATE: ['The engine stopped', 'Load the model again.'],
};
/** What has the same explanation as another. @type {Record<string, string>} */
const SAME = { 403: '401', 410: '404' };
for (const kind of ['VERSION', 'METADATA', 'TENSOR', 'TOKENIZER']) SAME[`PLUMB_ERROR_${kind}`] = 'PLUMB_ERROR_MAGIC';

/** @param {unknown} error @returns {{title: string, advice: string}} */
function titleAndAdvice(error) {
  if (error instanceof ExplainedError) return error.explanation;
  if (error instanceof DOMException && error.name === 'AbortError') {
    return { title: 'Loading was cancelled', advice: 'Try again, or choose another model.' };
  }
  const kinds = error instanceof PlumbError ? [String(error.details.status), error.code] : [];
  const [title, advice] = kinds.map(kind => EXPLANATIONS[SAME[kind] ?? kind]).find(Boolean)
    ?? ['Something went wrong', 'Reload the page. If it happens again, report the line below.'];
  return { title, advice };
}
