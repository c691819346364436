/* The text of a PDF in reading order, by pdf.js, which runs in the thread that calls this.  Call it only in a worker
 * that may be ended: a hostile file can keep pdf.js busy for any time.  Nothing of the file is run or fetched: pdf.js
 * gets no function that evaluates text, no address of fonts or of other files, and no page is rendered. */
import { linesOf, textOfPage } from './page-layout.js';
import { MAX_PAGES, MAX_TEXT, Refusal } from './text.js';

/** The largest buffer that pdf.js may make, in bytes: a small stream can be unpacked to any size.  And the most pieces
 * of text on a page. */
const MAX_BUFFER = 2 ** 26, MAX_PIECES = 2e5;
/** Milliseconds after which no further page is read. */
const ENOUGH_TIME = 30000;
const FOLDER = new URL('../../dist/vendor/pdfjs/', import.meta.url).href;

/** @typedef {{text: string, pages: number[], total: number}} PdfText
 *   pages: where each page starts in the text; total: how many pages the file has */

/** Loads pdf.js once. @type {Promise<any> | undefined} */
let library;

/** @param {string} folder */
async function load(folder) {
  limitBuffers();
  // With its other half in this thread, pdf.js starts no further worker.
  /** @type {any} */ (globalThis).pdfjsWorker = await import(`${folder}pdf.worker.min.mjs`);
  return import(`${folder}pdf.min.mjs`);
}

/** Makes `new Uint8Array(size)` fail for sizes that no page of text needs. */
function limitBuffers() {
  const Bytes = globalThis.Uint8Array;
  /** @type {any} */
  const limited = new Proxy(Bytes, {
    construct(target, args, made) {
      if (typeof args[0] === 'number' && args[0] > MAX_BUFFER) throw new RangeError('A stream of the PDF is too large');
      return Reflect.construct(target, args, made === limited ? target : made);
    },
  });
  globalThis.Uint8Array = limited;
}

/** Reads a PDF.  Throws a Refusal.
 * @param {Uint8Array} bytes @param {{onPage?: (page: number, total: number) => void, folder?: string}} [how]
 * @returns {Promise<PdfText>} */
export async function readPdf(bytes, { onPage, folder = FOLDER } = {}) {
  const { getDocument, VerbosityLevel } = await (library ??= load(folder));
  const task = getDocument({ data: bytes, isEvalSupported: false, useSystemFonts: false, disableFontFace: true,
    enableXfa: false, useWorkerFetch: false, useWasm: false, isOffscreenCanvasSupported: false,
    isImageDecoderSupported: false, stopAtErrors: false, maxImageSize: 1, verbosity: VerbosityLevel.ERRORS });
  try {
    return await read(await task.promise, onPage);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const { name = '', message = '' } = /** @type {Error} */ (error) ?? {};
    throw new Refusal(name === 'PasswordException' ? 'The PDF is protected by a password'
      : `The PDF is damaged: ${message.slice(0, 200).replace(/\.$/, '')}`);
  } finally {
    await task.destroy().catch(() => {});
  }
}

/** @param {any} file @param {((page: number, total: number) => void) | undefined} onPage */
async function read(file, onPage) {
  const total = file.numPages, count = Math.min(total, MAX_PAGES);
  const pages = [], end = performance.now() + ENOUGH_TIME;
  let text = '', broken = 0;
  for (let number = 1; number <= count && text.length < MAX_TEXT && performance.now() < end; number++) {
    const next = await pageOf(file, number, MAX_TEXT - text.length).catch(() => {
      broken++;   // the others may be whole
      return '';
    });
    // A sentence may go on across the end of a page.
    const goesOn = /[\p{L},]$/u.test(text) && /^\p{Ll}/u.test(next);
    if (text !== '' && next !== '') text += goesOn ? ' ' : '\n\n';
    pages.push(text.length);
    text += next;
    onPage?.(number, total);
  }
  if (text.trim() === '') {
    throw new Refusal(broken > 0 ? 'The PDF is damaged: none of its pages could be read'
      : 'The PDF has no text. Perhaps its pages are pictures');
  }
  return { text: text.slice(0, MAX_TEXT), pages, total };
}

/** The text of one page. @param {any} file @param {number} number  from 1 @param {number} most  characters */
async function pageOf(file, number, most) {
  const page = await file.getPage(number), { transform } = page.getViewport({ scale: 1 });
  const reader = page.streamTextContent({ disableNormalization: false }).getReader(), items = [];
  let length = 0;
  for (let part; !(part = await reader.read()).done;) {
    for (const item of part.value.items) {
      length += item.str?.length ?? 0;
      items.push(item);
    }
    if (length > most || items.length > MAX_PIECES) {
      reader.cancel(new Error('enough')).catch(() => {});
      break;
    }
  }
  page.cleanup();
  return textOfPage(linesOf(items, transform));
}
