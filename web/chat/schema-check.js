/* Says what is wrong with a JSON Schema in the settings.  The command line's compiler of schemas decides. */
import { Plumb } from '../index.js';

/** The name of the file that the command reads. */
const NAME = 'schema.json';

/** @param {string} text @param {AbortSignal} signal
 * @returns {Promise<string[]>}  a sentence for each keyword that cannot be kept, with its JSON pointer, or for the
 *   place at which the text is not JSON; none if answers can keep the schema */
export async function problemsOf(text, signal) {
  const { err } = await Plumb.command(['grammar', 'check', '--no-strict', '--json-schema', NAME],
    { files: { [NAME]: text }, signal });
  return err.split('\n').filter(Boolean).map(line =>
    withPlace(line.replace(new RegExp(`^plumb: (${NAME}: )?(PLUMB_ERROR_[A-Z]+: )?`), ''), text));
}

/** Replaces the byte of a message about a text by its line and column. @param {string} message @param {string} text */
function withPlace(message, text) {
  const [found, , byte] = /^JSON(, byte| ends after) (\d+)(?: bytes)?: /.exec(message) ?? [];
  if (found === undefined) return message;
  const before = new TextDecoder().decode(new TextEncoder().encode(text).subarray(0, Number(byte)));
  const lines = before.split('\n'), column = [...lines[lines.length - 1]].length + 1;
  return `Line ${lines.length}, column ${column}: ${message.slice(found.length)}`;
}
