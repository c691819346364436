/* Tool calls: how models write them, and how chat templates expect past calls.  The public form is OpenAI's:
 * {id, type: 'function', function: {name, arguments}}, with the arguments as JSON text.
 *
 * The model's output is not trusted.  A call stays text if it is not JSON, if its arguments are not an object, or if it
 * names a tool that was not given. */
import { randomHex } from '../base/hex.js';

/** @typedef {import('./messages.js').Tool} Tool
 * @typedef {import('./messages.js').ToolCall} ToolCall */
/** @typedef {object} Format
 * @property {string} mention  text that identifies a template of this format
 * @property {string[]} opens  texts with which a call begins
 * @property {boolean} anywhere  whether a call may begin anywhere in an answer, or only at its start
 * @property {(text: string) => {calls: any[], rest: string}} parse  parses text that begins with one of `opens`; throws
 *   if it is not JSON
 * @property {(calls: any[]) => string} [write]  for templates that support tools, but not messages with calls */

/** Parses the JSON of one call or of a list of calls. @param {string} text */
const parseJson = text => ({ calls: [JSON.parse(text)].flat(), rest: '' });

/** A format that is only a list of calls after a mark.  The mark is a control token, which does not show in an answer.
 * @param {string} mark @returns {Format} */
const listBehind = mark => ({
  mention: mark,
  opens: [mark, '['],
  anywhere: false,
  parse: text => parseJson(text.replace(mark, '')),
  write: calls => `${mark}${JSON.stringify(calls)}`,
});

/** A call in Hermes' format.  A closing tag inside a string of the JSON does not end the call. */
const TAGGED = /<tool_call>((?:"(?:[^"\\]|\\.)*"|[^"<]|<(?!\/?tool_call>))*)(?:<\/tool_call>|(?=<tool_call>)|$)/gs;

/** A template's format is the first one whose `mention` it contains. @type {Format[]} */
const FORMATS = [
  {   // Hermes, Qwen2.5 and later
    mention: '<tool_call>',
    opens: ['<tool_call>'],
    anywhere: true,
    parse(text) {
      const rest = text.replaceAll(TAGGED, '').trimEnd();
      if (rest.includes('<tool_call>')) throw new Error('a string does not end');
      return { calls: Array.from(text.matchAll(TAGGED), ([, call]) => JSON.parse(call)), rest };
    },
    write: calls => calls.map(call => `<tool_call>\n${JSON.stringify(call)}\n</tool_call>`).join('\n'),
  },
  listBehind('<|tool_call|>'),   // Granite 3
  listBehind('[TOOL_CALLS]'),    // Mistral
  {   // Llama 3.1 and later: only {"name": ..., "parameters": ...}
    mention: '',
    opens: ['{', '['],
    anywhere: false,
    parse: parseJson,
  },
];

/** @param {string} source  of a chat template */
const formatOf = source => /** @type {Format} */ (FORMATS.find(({ mention }) => source.includes(mention)));

/** Whether a chat template supports tools. @param {string | undefined} source */
export const supportsTools = source => /\btools\b/.test(source ?? '');

/** Separates the text of an answer from the calls in it, piece by piece.  It holds back text that may become a call. */
export class CallFilter {
  #format;
  #names;
  #held = '';
  /** 'text': there may be calls; 'call': a call has begun; 'plain': there cannot be any more calls. */
  #state = /** @type {'text' | 'call' | 'plain'} */ ('plain');
  /** The calls of the answer, after end(). @type {ToolCall[]} */
  calls = [];

  /** @param {unknown} source  the chat template's source
   * @param {Tool[]} [tools]  the tools that the model was given; with none, all is text */
  constructor(source, tools = []) {
    this.#format = formatOf(String(source));
    this.#names = new Set(tools.map(tool => tool.function.name));
    if (tools.length > 0) this.#state = 'text';
  }

  /** Adds a piece, and returns the text that is certain not to be a call. @param {string} piece @returns {string} */
  push(piece) {
    this.#held += piece;
    if (this.#state === 'call') return '';
    return this.#release(this.#state === 'plain' ? this.#held.length : this.#certain());
  }

  /** Ends the answer and parses its calls. @returns {string}  the held text that is not a call */
  end() {
    const held = this.#release(this.#held.length);
    if (this.#state !== 'call') return held;
    this.#state = 'plain';
    try {
      const { calls, rest } = this.#format.parse(held.trim());
      this.calls = calls.map(call => this.#call(call));
      return calls.length > 0 ? rest : held;
    } catch {
      return held;
    }
  }

  /** The number of held characters that cannot belong to a call, nor to the white space before one. */
  #certain() {
    const { opens, anywhere } = this.#format, held = this.#held;
    const first = anywhere ? 0 : held.length - held.trimStart().length;
    for (let at = first; at < (anywhere ? held.length : first + 1); at++) {
      const rest = held.slice(at);
      const opened = opens.some(open => rest.startsWith(open));
      if (opened) this.#state = 'call';
      if (opened || opens.some(open => open.startsWith(rest))) return held.slice(0, at).trimEnd().length;
    }
    if (anywhere) return held.trimEnd().length;
    this.#state = 'plain';
    return held.length;
  }

  /** @param {number} n  characters */
  #release(n) {
    const text = this.#held.slice(0, n);
    this.#held = this.#held.slice(n);
    return text;
  }

  /** Converts and checks a call as the model wrote it. @param {any} call @returns {ToolCall} */
  #call(call) {
    const given = call.arguments ?? call.parameters ?? {};
    if (!this.#names.has(call.name) || typeof given !== 'object' || Array.isArray(given)) throw new Error('not a call');
    return {
      id: `call_${randomHex(12)}`,
      type: 'function',
      function: { name: call.name, arguments: JSON.stringify(given) },
    };
  }
}

/** Converts messages with calls to the form that a template expects.  The arguments of calls become objects if it takes
 * objects.  Ids become nine letters and digits if the template refuses others (Mistral).  If the template
 * has its own roles for calls and results (Granite 3.0), or does not support calls at all, a call becomes a message in
 * the model's own format.
 * @param {string | undefined} source  of the template
 * @param {Record<string, any>[]} messages
 * @param {{objects: boolean}} can  the template's capabilities @returns {Record<string, any>[]} */
export function messagesFor(source = '', messages, { objects } = { objects: true }) {
  const has = (/** @type {string} */ role) => source.includes(`'${role}'`) || source.includes(`"${role}"`);
  const wantsNine = /\blength\s*!=\s*9\b/.test(source);
  const nine = (/** @type {unknown} */ id) => String(id).replace(/[^a-z0-9]/gi, '').slice(-9).padStart(9, '0');
  return messages.map(message => {
    if (message.role === 'tool' && has('assistant_tool_call')) return { ...message, role: 'tool_response' };
    if (message.role === 'tool' && wantsNine) return { ...message, tool_call_id: nine(message.tool_call_id) };
    if (!Array.isArray(message.tool_calls)) return message;
    const { tool_calls: given, ...rest } = message;
    const content = message.content ?? '';
    if (given.length === 0) return { ...rest, content };
    const calls = given.map(call => call?.function ? {   // the template may refuse any other call
      ...call, ...wantsNine && { id: nine(call.id) },
      function: { ...call.function, arguments: objects ? parsed(call.function.arguments) : call.function.arguments },
    } : call);
    const written = calls.map(call => ({ name: call?.function?.name, arguments: parsed(call?.function?.arguments) }));
    if (has('assistant_tool_call')) {
      return { ...rest, role: 'assistant_tool_call', content: JSON.stringify(written) };
    }
    const { write } = formatOf(source);
    return !write || source.includes('tool_calls') ? { ...rest, content, tool_calls: calls }
      : { ...rest, content: content + write(written) };
  });
}

/** @param {unknown} text  JSON @returns {unknown}  its value, or text itself if it is not JSON */
function parsed(text) {
  try {
    return typeof text === 'string' ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}
