/* What is added to the system message of a prompt. */
import { jsonText } from './constraint.js';

/** @typedef {import('./messages.js').Message} Message */

/** Adds a text to the end of the system message, or a system message with it if there is none.
 * @param {Message[]} messages @param {string} text @returns {Message[]} */
function withSystemText(messages, text) {
  const [first, ...rest] = messages;
  if (first?.role !== 'system' && first?.role !== 'developer') return [{ role: 'system', content: text }, ...messages];
  const { content } = first;
  return [{ ...first, content: Array.isArray(content) ? [...content, { type: 'text', text }]
    : [content, text].filter(Boolean).join('\n\n') }, ...rest];
}

/** Tells the model at the end of the system message, or of a new one, which JSON it is to answer with, if an answer has
 * a schema.  The grammar forbids other tokens, but the model chooses better ones if it knows why.
 * @param {string} where @param {Message[]} messages
 * @param {import('./constraint.js').Constraint} options  checked by the caller, with a JSON
 *   Schema and not one of a library @returns {Message[]} */
export function withSchemaShown(where, messages, { schema, json }) {
  if (schema === undefined && !json) return messages;
  const text = schema === undefined ? 'Answer only with a JSON object.'
    : `Answer only with JSON that is valid by this JSON Schema:\n${jsonText(where, schema)}`;
  return withSystemText(messages, text);
}
