/* What a chat template gets of a conversation: messages, tools and variables in the form that it expects.  This is what
 * llama.cpp's server gives to it (common/chat.cpp, common/parsers), and follows from the template's capabilities and
 * from texts in its source.  llama.cpp knows some models by such texts, and so does this file. */
import { formatTime } from './clock.js';
import { messagesFor } from './toolcalls.js';

/** @typedef {object} Capabilities
 * @property {boolean} string  contents may be texts
 * @property {boolean} typed  contents may be lists of parts
 * @property {boolean} system  there may be a system message
 * @property {boolean} tools  tools are described to the model
 * @property {boolean} calls  earlier calls are shown to the model
 * @property {boolean} parallel  ...several in one message
 * @property {boolean} objects  the arguments of a call are an object, not JSON text
 * @property {boolean} reasoning  earlier reasoning can be kept
 * @property {boolean} effort  there is a variable for the effort of reasoning */
/** @typedef {import('./messages.js').Message} Message
 * @typedef {Record<string, any>} Row  a message as a template gets it */
/** @typedef {object} Prepared
 * @property {Record<string, any>} input  what the caller gave, which is not trusted
 * @property {Record<string, any>} variables  the other variables of the template
 * @property {(text: string) => string} finish  makes the prompt of the rendered text */
/** @typedef {object} Family  templates that need something of their own
 * @property {(source: string) => boolean} is
 * @property {(messages: Row[], source: string) => Row[]} [adjust]  changes the messages
 * @property {(prompt: string, opensTurn: boolean) => string} [finish]  changes the prompt
 * @property {string[]} [stops]  texts that end an answer, besides the tokens that do */

const has = (/** @type {string[]} */ ...texts) => (/** @type {string} */ source) =>
  texts.every(text => source.includes(text));
const isText = (/** @type {unknown} */ value) => typeof value === 'string';
const callsOf = (/** @type {Row} */ message) => Array.isArray(message.tool_calls) ? message.tool_calls : [];

/** Copies the reasoning to the name that the template looks for. @param {Row[]} messages */
const reasoningAsThinking = messages => messages.map(message =>
  isText(message.reasoning_content) ? { ...message, thinking: message.reasoning_content } : message);

/** The first one that fits is a template's family. @type {Family[]} */
const FAMILIES = [
  {   // Ministral 3: reasoning is a part of the content
    is: source => has('[SYSTEM_PROMPT]', '[TOOL_CALLS]', '[ARGS]')(source) && !source.includes('[CALL_ID]'),
    adjust: messages => messages.map(message => {
      if (message.role !== 'system' && message.role !== 'assistant') return message;
      const { reasoning_content: thinking, content, ...rest } = message;
      return {
        ...rest, content: [...isText(thinking) ? [{ type: 'thinking', thinking }] : [],
          ...isText(content) ? [{ type: 'text', text: content }] : content ?? []],
      };
    }),
  },
  {   // gpt-oss: a turn in the middle ends with another token than the last one
    is: has('<|channel|>'),
    adjust: messages => reasoningAsThinking(messages).map(message => {
      if (!isText(message.thinking) || callsOf(message).length === 0) return message;
      const { content: _, ...rest } = message;
      return rest;
    }),
    finish(prompt, opensTurn) {
      const at = prompt.lastIndexOf('<|return|>');
      return opensTurn || at < 0 ? prompt : `${prompt.slice(0, at)}<|end|>${prompt.slice(at + '<|return|>'.length)}`;
    },
  },
  { is: has('<atem:function_calls>', '<|eom|>') },
  { is: has('>>>all', '>>>${recipient}') },
  { is: has('<|tool_calls_section_begin|>', '<|tool_call_begin|>') },
  { is: has('<|open|>', '<|close|>', '<|end_of_msg|>') },
  { is: has('<role>ASSISTANT</role>', '<arg_key>'), stops: ['<|role_end|>'] },   // Ling 3
  { is: has('<|START_TEXT|>', '<|START_ACTION|>') },
  { is: has('<|tool_list_start|>', '<|tool_list_end|>'), adjust: reasoningAsThinking },   // LFM2
  { is: has('List of tools: ['), adjust: reasoningAsThinking },   // LFM2.5
  {
    is: source => has('<|role_sep|>', '<|message_sep|>')(source) && !source.includes('<|function_call|>'),
  },
  { is: has(']<]minimax[>[', '<tool_call>', '<invoke name=') },
  {   // DeepSeek V3.2 and V4
    is: source => has('dsml_token', 'DSML')(source) && /function_calls|tool_calls/.test(source),
    adjust: (messages, source) => source.includes('function_calls') ? messages : inOrderOfCalls(messages),
  },
  {   // Gemma 4: the first published template knows no role `tool`
    is: has("'<|tool_call>call:'"),
    adjust: (messages, source) => source.includes('{#- OpenAI Chat Completions:') ? messages : withResponses(messages),
    finish: (prompt, opensTurn) => opensTurn && prompt.endsWith('<turn|>\n') ? `${prompt}<|turn>model\n` : prompt,
  },
  { is: has('laguna_glm_thinking'), stops: ['</assistant>'] },
];

/** Sorts the results of calls that follow each other by the order of the calls. @param {Row[]} messages */
function inOrderOfCalls(messages) {
  const sorted = [...messages];
  /** @type {Map<unknown, number>} */
  let order = new Map();
  for (let i = 0; i < sorted.length; i++) {
    const { role } = sorted[i], calls = callsOf(sorted[i]);
    if (role === 'assistant' && calls.length > 0) order = new Map(calls.map((call, place) => [call?.id, place]));
    if (role !== 'user' && role !== 'tool') continue;
    /** @type {number[]} */
    const places = [];
    for (; i < sorted.length && (sorted[i].role === 'user' || sorted[i].role === 'tool'); i++) {
      if (sorted[i].role === 'tool') places.push(i);
    }
    i--;
    const placeOf = (/** @type {Row} */ result) => order.get(result.tool_call_id) ?? 0;
    const results = places.map(place => sorted[place]).sort((a, b) => placeOf(a) - placeOf(b));
    for (const [k, place] of places.entries()) sorted[place] = results[k];
  }
  return sorted;
}

/** Moves the results of calls, and the answer behind them, into the message with the calls. @param {Row[]} messages */
function withResponses(messages) {
  /** @type {Row[]} */
  const all = [];
  for (let i = 0; i < messages.length; i++) {
    const { role, reasoning_content: reasoning } = messages[i], calls = callsOf(messages[i]);
    if (role !== 'assistant' || calls.length === 0) {
      all.push(messages[i]);
      continue;
    }
    /** @type {Row[]} */
    const responses = [];
    for (; messages[i + 1]?.role === 'tool'; i++) {
      const { content, tool_call_id: id } = messages[i + 1];
      responses.push({ name: calls[responses.length]?.function?.name || id || '', response: jsonOrText(content) });
    }
    const next = messages[i + 1];
    const isAnswer = next?.role === 'assistant' && callsOf(next).length === 0 && next.content?.length > 0;
    if (isAnswer) i++;
    all.push({
      role, tool_calls: calls, ...responses.length > 0 && { tool_responses: responses },
      ...isAnswer && { content: next.content }, ...isText(reasoning) && { reasoning_content: reasoning },
    });
  }
  return all;
}

/** The value of a JSON text, or the text itself. @param {unknown} text @returns {unknown} */
function jsonOrText(text) {
  try {
    return isText(text) ? JSON.parse(/** @type {string} */ (text)) : text;
  } catch {
    return text;
  }
}

/** A message with its properties in the order in which llama.cpp has them.  Templates may print a message as JSON.
 * @param {Message} message @returns {Row} */
function ordered({ role, content, reasoning_content: reasoning, name, tool_call_id: id, tool_calls: calls, ...more }) {
  return {
    role, content: content ?? '', ...reasoning && { reasoning_content: reasoning }, ...name && { name },
    ...id && { tool_call_id: id },
    ...Array.isArray(calls) ? calls.length > 0 && { tool_calls: calls.map(orderedCall) }
      : calls && { tool_calls: calls },
    ...more,
  };
}

/** @param {any} call */
function orderedCall(call) {
  if (!call?.function) return call;   // the template may refuse it
  const { type = 'function', function: { name, arguments: args, ...rest }, id, ...more } = call;
  return { type, function: { name, arguments: args, ...rest }, ...id && { id }, ...more };
}

/** @param {any} tool */
const orderedTool = tool => tool?.type === 'function' && tool.function ? {
  type: 'function',
  function: {
    name: tool.function.name, description: tool.function.description ?? '', parameters: tool.function.parameters ?? {},
  },
} : tool;

const isTextPart = (/** @type {any} */ part) => part?.type === 'text' && isText(part.text);

/** @param {Row} message @param {(text: string) => string} change */
const withText = (message, change) => isText(message.content) ? { ...message, content: change(message.content) }
  : Array.isArray(message.content) ? {
    ...message, content: message.content.map(part => isTextPart(part) ? { ...part, text: change(part.text) } : part),
  } : message;

/** Joins parts of text to one text, or makes one part of a text, if the template needs it.
 * @param {Row} message @param {Capabilities} can @returns {Row} */
function withFittingContent(message, can) {
  const { content } = message;
  if (can.string && !can.typed && Array.isArray(content) && content.every(isTextPart)) {
    return { ...message, content: content.map(({ text }) => text).join('\n') };
  }
  if (!can.string && can.typed && isText(content)) return { ...message, content: [{ type: 'text', text: content }] };
  return message;
}

/** Prepends a system message to the message behind it. @param {Row[]} messages */
function withoutSystem([first, second, ...rest]) {
  if (first?.role !== 'system') return first ? second ? [first, second, ...rest] : [first] : [];
  if (!second) return [];
  const joined = isText(first.content) && isText(second.content) ? `${first.content}\n${second.content}`
    : [first, second].flatMap(({ content }) => isText(content) ? [{ type: 'text', text: content }] : content);
  return [{ ...second, content: joined }, ...rest];
}

/** @param {string} source  of a template @returns {Family} */
const familyOf = source => FAMILIES.find(family => family.is(source)) ?? { is: () => true };

/** Texts that end an answer of a model with this template, besides the tokens that do. @param {string} [source] */
export const stopsOf = (source = '') => familyOf(source).stops ?? [];

/** The variables by which templates keep earlier reasoning. @param {boolean} kept */
export const keptReasoning = kept => ({
  preserve_thinking: kept, clear_thinking: !kept, truncate_history_thinking: !kept, drop_thinking: !kept,
});

/** Checks in templates that refuse what is valid, as llama.cpp removes them. */
const CHECKS = [
  '{%- if "<|channel|>analysis<|message|>" in message.content or "<|channel|>final<|message|>" in message.content %}',
  "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and "
    + "(message['tool_calls'] is not defined or message['tool_calls'] is none or message['tool_calls']|length == 0) %}",
];

/** The template as it is rendered. @param {string} source */
export const patched = source => CHECKS.reduce((text, check) => text.replaceAll(check, '{%- if false %}'), source);

/** Prepares a conversation for a template.
 * @param {string} source @param {Capabilities} can  of this template
 * @param {Message[]} messages
 * @param {{addGenerationPrompt?: boolean, tools?: any[], [variable: string]: any}} options
 * @returns {Prepared} */
export function prepare(source, can, messages, { addGenerationPrompt = true, tools, ...more }) {
  const { enable_thinking: thinking = null, ...rest } = more;   // without it the template decides
  const family = familyOf(source), now = new Date();
  let rows = messages.map(ordered);
  if (source.includes('You have access to the following functions in JSONSchema format')) {   // StepFun
    rows = rows.map(row => withText(isText(row.reasoning_content)
      ? { ...row, reasoning_content: row.reasoning_content.trim() } : row, text => text.trim()));
  }
  rows = rows.map(row => withFittingContent(row, can));
  if (!source.includes('<|channel|>')) {
    rows = rows.map(row => row.role === 'developer' ? { ...row, role: 'system' } : row);
  }
  if (!can.system) rows = withoutSystem(rows);
  rows = messagesFor(source, rows, can);
  if (family.adjust) rows = family.adjust(rows, source);
  return {
    input: { ...rest, ...thinking !== null && { enable_thinking: thinking }, messages: rows,
      ...tools && tools.length > 0 && { tools: tools.map(orderedTool) } },
    variables: {
      datetime: formatTime('%b %d %Y', now), date_string: formatTime('%d %b %Y', now),
      ...typeof more.preserve_reasoning === 'boolean' && keptReasoning(more.preserve_reasoning),
      ...isText(more.reasoning_effort) && { reasoning_strength: more.reasoning_effort },
      ...addGenerationPrompt && { add_generation_prompt: true },
    },
    finish: prompt => family.finish ? family.finish(prompt, addGenerationPrompt) : prompt,
  };
}
