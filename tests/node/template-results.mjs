/** What plumb makes of the 70 chat templates and 12 conversations of tests/vectors/templates, and what llama.cpp v0.5.0
 * makes of them.  The clock must stand at 25 July 2026, 12:00, and the time zone must be UTC. */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { PlumbError } from '../../web/base/errors.js';
import { capabilitiesOf } from '../../web/template/capabilities.js';
import { patched, prepare } from '../../web/template/inputs.js';
import { renderBounded } from '../../web/template/jinja.js';

const folder = new URL('../vectors/templates/', import.meta.url);
/** @param {string} name  of a file of the vectors */
export const read = name => readFileSync(new URL(name, folder), 'utf8');
/** llama.cpp's texts by LENGTH:HASH. @type {Record<string, string>} */
export const texts = JSON.parse(gunzipSync(readFileSync(new URL('texts.json.gz', folder))).toString());
const contexts = JSON.parse(read('contexts.json')), conversations = JSON.parse(read('conversations.json'));

/** Chats for which llama.cpp makes changes of a family of models. */
const forFamilies = JSON.parse(read('families.json'));
/** name, conversation, prompt. */
export const familyRows = read('families.tsv').trimEnd().split('\n').map(line => line.split('\t'));

export const NOW = Date.UTC(2026, 6, 25, 12);

/** text, prompt: LENGTH:HASH, or the message of llama.cpp's exception in JSON
 * @typedef {{name: string, conversation: string, context: number, text: string, prompt: string}} Row
 * @typedef {{text?: string, error?: string}} Outcome */
/** @type {Row[]} */
export const rows = read('expected.tsv').trimEnd().split('\n').map(line => {
  const [name, conversation, context, text, prompt] = line.split('\t');
  return { name, conversation, context: Number(context), text, prompt: prompt === '=' ? text : prompt };
});
export const names = [...new Set(rows.map(({ name }) => name))];

/** The template's source, as it is in the file. @param {string} name */
export const sourceOf = name => read(`sources/${name}.jinja`);

/** Where plumb does as jinja2 does, because llama.cpp's engine has a defect: [template, conversation, the defect]. */
export const DEFECTS = [
  ['GigaChat3-10B-A1.8B', 'parallel tool calls', 'llama.cpp fails at `in` between two lists'],
  ['GigaChat3.1-10B-A1.8B', 'parallel tool calls', 'llama.cpp fails at `in` between two lists'],
  ['openbmb-MiniCPM5-1B', 'parallel tool calls', 'llama.cpp prints a list of objects as nothing'],
  ['google-gemma-4-31B-it', 'parallel tool calls', 'llama.cpp prints none as nothing, Python as None'],
  ['google-gemma-4-31B-it-interleaved', 'parallel tool calls', 'llama.cpp prints none as nothing, Python as None'],
];
/** Where only the engine in C does something else: it renders what llama.cpp and jinja2 refuse for other reasons. */
export const RENDERED = ['tools', 'a tool call and its result', 'parallel tool calls'].map(conversation => [
  'CohereForAI-c4ai-command-r-plus-tool_use', conversation,
  'llama.cpp refuses a member of the method `items`, which jinja2 takes as undefined']);
/** Where the prompt has more than llama.cpp's: [template, conversation, what it has]. */
export const MORE = ['a tool call and its result', 'parallel tool calls', 'reasoning beside tool calls'].map(
  conversation => ['ibm-granite-granite-3.3-2B-Instruct', conversation,
    'the template leaves out earlier calls; plumb writes them as the model did']);

/** @param {() => string} render @returns {Outcome} */
function outcome(render) {
  try {
    return { text: render() };
  } catch (error) {
    if (error instanceof PlumbError && error.code === 'PLUMB_ERROR_TEMPLATE') return { error: error.message };
    throw error;
  }
}

/** What the engine makes of the variables that llama.cpp gives to the template. @param {Row} row */
export const textOf = ({ name, context }) => outcome(() => renderBounded(patched(sourceOf(name)), contexts[context]));

/** What plumb makes of the conversation. @param {{name: string, conversation: string}} row */
export function promptOf({ name, conversation }) {
  const { name: _, messages, add_generation_prompt: addGenerationPrompt, variables, ...rest } =
    [...conversations, ...forFamilies].find((/** @type {any} */ one) => one.name === conversation);
  const raw = sourceOf(name), source = patched(raw);
  return outcome(() => {
    const { input, variables: ours, finish } = prepare(raw, capabilitiesOf(source), messages,
      { addGenerationPrompt, enable_thinking: true, ...rest, ...variables });   // as llama.cpp's server
    return finish(renderBounded(source, { bos_token: '<s>', eos_token: '</s>', ...ours, ...input }));
  });
}

/** How rows name a text: its length in bytes, and its 64-bit FNV-1a hash. @param {string} text */
export function named(text) {
  const bytes = new TextEncoder().encode(text);
  const hash = bytes.reduce((sum, byte) => BigInt.asUintN(64, (sum ^ BigInt(byte)) * 0x100000001b3n),
    0xcbf29ce484222325n);
  return `${bytes.length}:${hash.toString(16).padStart(16, '0')}`;
}

/** Whether llama.cpp fails. @param {string} wanted  text or prompt of a row */
export const fails = wanted => wanted.startsWith('"');

/** Whether plumb does what llama.cpp does.  If a template raises an exception, its message must be the same.
 * @param {Outcome} outcome @param {string} wanted  text or prompt of a row */
export function equals({ text, error }, wanted) {
  if (!fails(wanted)) return text === texts[wanted];
  const raised = JSON.parse(wanted).split('Jinja Exception: ')[1];
  return error !== undefined && (!raised || error === `tokenizer.chat_template: ${raised}`);
}
