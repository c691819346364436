/* The text of a file that is no PDF: which encoding it has, and whether it is a text at all.  Nothing in it is
 * interpreted: HTML, Markdown and code stay the characters that they are. */

/** Upper bounds: of the bytes of a file, of the characters of a document, and of the pages of a PDF that are read. */
export const MAX_BYTES = 5e7, MAX_TEXT = 2e7, MAX_PAGES = 3000;

/** Why a file cannot be attached, as a sentence for the reader. */
export class Refusal extends Error {}

/** Byte order marks, and the encodings that they announce. @type {[number[], string][]} */
const MARKS = [[[0xef, 0xbb, 0xbf], 'utf-8'], [[0xff, 0xfe], 'utf-16le'], [[0xfe, 0xff], 'utf-16be']];
/** How binary files begin, and what they are. @type {[string, string][]} */
const BINARY = [['PK\x03\x04', 'a ZIP archive or an Office document'], ['\x89PNG', 'a picture'],
  ['GIF8', 'a picture'], ['\xff\xd8\xff', 'a picture'], ['RIFF', 'a picture, a sound or a film'],
  ['\x1f\x8b', 'a compressed file'], ['\x7fELF', 'a program'], ['MZ', 'a program'], ['GGUF', 'a model'],
  ['\xd0\xcf\x11\xe0', 'an old Office document'], ['{\\rtf', 'a rich text document'], ['SQLite format', 'a database']];
/** Bytes that are looked at to tell a text from binary data, and the share of control characters that a text may
 * have. */
const SAMPLE = 65536, CONTROLS = 0.02;

/** Whether a file is a PDF.  Viewers accept some bytes before the mark. @param {Uint8Array} bytes */
export const isPdf = bytes => latin(bytes.subarray(0, 1024)).includes('%PDF-');

/** The characters of a text file, with line feeds at the ends of lines.  Throws a Refusal.
 * @param {Uint8Array} bytes @returns {string} */
export function textOf(bytes) {
  const start = latin(bytes.subarray(0, 16)), kind = BINARY.find(([mark]) => start.startsWith(mark))?.[1];
  const [mark, encoding] = MARKS.find(([mark]) => mark.every((byte, i) => bytes[i] === byte)) ?? [[], ''];
  if (kind && isBinary(bytes)) throw new Refusal(`It is ${kind}, which cannot be read as text`);
  if (encoding === '' && isBinary(bytes)) throw new Refusal('It is not a text');
  const text = decoded(bytes.subarray(mark.length), encoding).replace(/\r\n?/g, '\n').replaceAll('\0', '\ufffd');
  if (text.length > MAX_TEXT) throw new Refusal(`It has more than ${MAX_TEXT / 1e6} million characters`);
  if (text.trim() === '') throw new Refusal('It has no text');
  return text;
}

/** @param {Uint8Array} bytes  without the mark @param {string} encoding  empty: not announced */
function decoded(bytes, encoding) {
  if (encoding !== '') return new TextDecoder(encoding, { ignoreBOM: true }).decode(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return new TextDecoder('windows-1252').decode(bytes);   // it accepts every byte
  }
}

/** Whether bytes without a byte order mark are no text: they have a zero, or many control characters.
 * @param {Uint8Array} bytes */
function isBinary(bytes) {
  const sample = bytes.subarray(0, SAMPLE);
  let controls = 0;
  for (const byte of sample) {
    if (byte === 0) return true;
    if (byte < 32 && ![7, 8, 9, 10, 12, 13, 27].includes(byte) || byte === 127) controls++;
  }
  return controls > CONTROLS * sample.length;
}

/** Each byte as the character of that number. @param {Uint8Array} bytes */
const latin = bytes => String.fromCharCode(...bytes);
