/* How models write reasoning and calls of tools: one entry for each format.  A chat template shows its format by texts
 * that it contains.  answer.js reads answers by these entries.
 *
 * A pattern describes one call.  It is text with fields:
 *
 *   {name}      the name of a tool
 *   {function}  the call's id, functions.NAME:INDEX
 *   {id:TEXT}   the call's id, if TEXT comes next
 *   {json}      its arguments, as a JSON object
 *   {call}      a JSON object with the name and the arguments, or a list of them
 *   {python}    a list of calls as Python writes them, [f(a=1), g()]
 *   {gemma}     arguments as Gemma 4 writes them, {a:<|"|>text<|"|>,b:[1]}
 *   {nested}    arguments as MiniMax M3 writes them, a tag for each, also for the parts of their values
 *   {args}      arguments one by one, each by the pattern `arg`, with the fields {key}, {value}, and {type}: whether
 * the
 *               value is a text ("true" or "string"), or JSON
 *
 * White space between the parts of a pattern may differ, and there may be any where a pattern has a line break, but not
 * around {value}. */

/** @typedef {object} Format
 * @property {(source: string) => boolean} is  whether a template has this format
 * @property {{start: string, ends: string[], again?: boolean}} [think]  the tags of reasoning.  An end that begins a
 *   call is not skipped.  again: there may be reasoning behind a text, too
 * @property {[string, string]} [section]  what surrounds all calls of an answer
 * @property {string} [call]  the pattern of a call
 * @property {string[]} [opens]  texts with which a call may begin, if they are not those of section and call
 * @property {string} [arg]  the pattern of an argument
 * @property {boolean} [cdata]  a value may stand between <![CDATA[ and ]]>
 * @property {boolean} [keyed]  {call} is an object whose only key is the name
 * @property {boolean} [first]  calls come at the start of an answer, not behind a text
 * @property {string[]} [marks]  texts that surround the answer, which are not part of it
 * @property {string[]} [prompts]  texts of a prompt's end that are part of the answer's format, besides think.start
 * @property {{user: string, self: string, tool: string}} [channels]  an answer is a sequence of messages with headers
 * @property {{text: string[], calls: string[]}} [headers]  how the headers of such messages are written, of reasoning
 *   first, and then of other texts and of calls
 * @property {(calls: any[]) => string} [write]  for templates that support tools, but not messages with calls */

/** The fields of a pattern. */
export const PLACEHOLDER = /\{(name|function|id:[^}]*|json|call|python|gemma|nested|args|key|value|type)\}/;

const has = (/** @type {string[]} */ ...texts) => (/** @type {string} */ source) =>
  texts.every(text => source.includes(text));
const THINK = { start: '<think>', ends: ['</think>'] };
/** Some models end their reasoning only by a call. @param {string} open */
const thinkOr = open => ({ start: '<think>', ends: ['</think>', open] });
/** A JSON list behind a mark. @param {string} mark */
const listBehind = mark => (/** @type {any[]} */ calls) => `${mark}${JSON.stringify(calls)}`;

/** The XML of Qwen3-Coder. */
const XML = { call: '<function={name}>{args}</function>', arg: '<parameter={key}>\n{value}\n</parameter>' };
/** The tags of GLM. */
const GLM = {
  call: '<tool_call>{name}{args}</tool_call>',
  arg: '<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>',
};

/** Hermes, Qwen2.5 and 3, SmolLM3, Granite 4, and what a template without tools gets. @type {Format} */
const HERMES = {
  is: has('<tool_call>'), think: THINK, call: '<tool_call>{call}</tool_call>', marks: ['<response>', '</response>'],
  write: calls => calls.map(call => `<tool_call>\n${JSON.stringify(call)}\n</tool_call>`).join('\n'),
};
/** What a call of Kimi K2 begins with. */
const KIMI = ['<|tool_calls_section_begin|>', '<|tool_call_begin|>'];

/** How many tokens of a prompt's end show what it begins of the answer. */
export const PROMPT_END = 24;

/** A template's format is the first one that fits. @type {Format[]} */
const FORMATS = [
  {   // Ministral 3, Devstral, Magistral
    is: source => has('[TOOL_CALLS]', '[ARGS]')(source),
    think: { start: '[THINK]', ends: ['[/THINK]'] }, call: '[TOOL_CALLS]{name}{id:[CALL_ID]}[ARGS]{json}',
  },
  {   // gpt-oss
    is: has('<|channel|>'), think: { start: '<|channel|>analysis<|message|>', ends: ['<|end|>'] },
    call: '{json}', channels: { user: 'final', self: 'analysis', tool: 'functions.' },
    headers: {
      text: ['<|channel|>analysis', '<|channel|>commentary', '<|channel|>final'],
      calls: ['<|channel|>commentary to=functions.{name}', '<|channel|>analysis to=functions.{name}',
        ' to=functions.{name}<|channel|>commentary', ' to=functions.{name}<|channel|>analysis'],
    },
    marks: ['<|start|>', '<|constrain|>', '<|call|>', '<|return|>'], prompts: ['<|start|>assistant'],
  },
  {   // Muse Glimmer
    is: has('<atem:function_calls>', '<|eom|>'), section: ['<atem:function_calls>', '</atem:function_calls>'],
    call: '<atem:invoke name="{name}">{args}</atem:invoke>',
    arg: '<atem:parameter name="{key}">{value}</atem:parameter>',
    channels: { user: 'user', self: 'self', tool: '' },
    headers: { text: [' to=self', ' to=user'], calls: [' to={name}'] },
    marks: ['<|start|>', '<|message|>', '<|eom|>', '<|eot|>'],
    prompts: ['<|start|>assistant'],
  },
  {   // Functionary 3.2
    is: has('>>>all', '>>>${recipient}'), call: '>>>{name}\n{json}', marks: ['>>>all\n'], prompts: ['>>>'],
  },
  {   // Kimi K2
    is: has('<|tool_calls_section_begin|>', '<|tool_call_begin|>'), opens: KIMI,
    think: { start: '<think>', ends: ['</think>', ...KIMI] },
    section: ['<|tool_calls_section_begin|>', '<|tool_calls_section_end|>'],
    call: '<|tool_call_begin|>{function}<|tool_call_argument_begin|>{json}<|tool_call_end|>',
  },
  {   // Kimi K3
    is: has('<|open|>', '<|close|>', '<|end_of_msg|>'),
    think: {
      start: '<|open|>think<|sep|>',
      ends: ['<|close|>think<|sep|>', '<|open|>response<|sep|>', '<|open|>tools<|sep|>'],
    },
    section: ['<|open|>tools<|sep|>', '<|close|>tools<|sep|>'],
    call: '<|open|>call tool="{name}"{id: index="}"<|sep|>{args}<|close|>call<|sep|>',
    arg: '<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>',
    marks: ['<|open|>response<|sep|>', '<|close|>response<|sep|>', '<|close|>message<|sep|>'],
  },
  {   // Ling 3
    is: has('<role>ASSISTANT</role>', '<arg_key>'), think: thinkOr('<tool_call>'), ...GLM, marks: ['<|role_end|>'],
  },
  {   // Command R7B, Command A, North Code
    is: has('<|START_ACTION|>'), think: { start: '<|START_THINKING|>', ends: ['<|END_THINKING|>'] },
    section: ['<|START_ACTION|>', '<|END_ACTION|>'], call: '{call}',
    marks: ['<|START_RESPONSE|>', '<|END_RESPONSE|>', '<|START_TEXT|>', '<|END_TEXT|>'],
  },
  {   // LFM2, LFM2.5
    is: source => has('<|tool_list_start|>')(source) || has('List of tools: [')(source), think: THINK,
    section: ['<|tool_call_start|>', '<|tool_call_end|>'], call: '{python}',
  },
  { is: has('<|function_call|>'), call: '<|function_call|>{call}' },   // GigaChat 3.1
  {   // GigaChat 3
    is: has('<|role_sep|>', '<|message_sep|>'), call: '<|message_sep|>\n\nfunction call<|role_sep|>\n{call}',
    opens: ['<|message_sep|>'],
  },
  {   // MiniMax M3
    is: has(']<]minimax[>[', '<tool_call>', '<invoke name='), think: { start: '<mm:think>', ends: ['</mm:think>'] },
    section: [']<]minimax[>[<tool_call>', ']<]minimax[>[</tool_call>'],
    call: ']<]minimax[>[<invoke name="{name}">{nested}]<]minimax[>[</invoke>',
  },
  {   // MiniMax M2
    is: has('minimax:tool_call'), think: THINK, section: ['<minimax:tool_call>', '</minimax:tool_call>'],
    call: '<invoke name="{name}">{args}</invoke>', arg: '<parameter name="{key}">{value}</parameter>',
  },
  ...['function_calls', 'tool_calls'].map(block => ({   // DeepSeek V3.2, and V4
    is: has('dsml_token', 'DSML', block), think: thinkOr(`<｜DSML｜${block}>`),
    section: /** @type {[string, string]} */ ([`<｜DSML｜${block}>`, `</｜DSML｜${block}>`]),
    call: '<｜DSML｜invoke name="{name}">{args}</｜DSML｜invoke>',
    arg: '<｜DSML｜parameter name="{key}" string="{type}">{value}</｜DSML｜parameter>',
  })),
  {   // DeepSeek R1, V3
    is: source => has('<｜tool▁calls▁begin｜>', '```json')(source), think: THINK,
    section: ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>'],
    call: '<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json}```<｜tool▁call▁end｜>',
  },
  {   // DeepSeek V3.1
    is: has('<｜tool▁calls▁begin｜>'), think: THINK, section: ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>'],
    call: '<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜>',
  },
  {   // Gemma 4
    is: has("'<|tool_call>call:'"), think: { start: '<|channel>thought', ends: ['<channel|>'], again: true },
    call: '<|tool_call>call:{name}{gemma}<tool_call|>', marks: ['<|channel>', '<channel|>'],
  },
  {   // MiniCPM5
    is: has('<function name="', '<param name="'), think: THINK,
    call: '<function name="{name}">{args}</function>', cdata: true,
    arg: '<param name="{key}">{value}</param>',
  },
  {   // Seed-OSS
    is: has('<seed:tool_call>'), think: { start: '<seed:think>', ends: ['</seed:think>'] },
    section: ['<seed:tool_call>', '</seed:tool_call>'], ...XML, arg: '<parameter={key}>{value}</parameter>',
  },
  {   // Qwen3-Coder, Qwen3.5, Nemotron 3, StepFun 3.5
    is: has('<tool_call>', '<function=', '<parameter='), think: thinkOr('<tool_call>'),
    section: ['<tool_call>', '</tool_call>'], opens: ['<tool_call>', '<function='], ...XML,
  },
  { is: has('<arg_key>'), think: THINK, ...GLM },   // GLM 4.5 and later
  { is: has('<function='), call: '<function={name}>{json}</function>' },   // Functionary 3.1
  {   // Apertus
    is: has('<|tools_prefix|>'), section: ['<|tools_prefix|>', '<|tools_suffix|>'], call: '{call}', keyed: true,
    think: { start: '<|inner_prefix|>', ends: ['<|inner_suffix|>'] },
  },
  { is: has('<TOOLCALL>'), think: THINK, section: ['<TOOLCALL>', '</TOOLCALL>'], call: '{call}' },   // Nemotron Nano 2
  {   // Apriel
    is: has('<tool_calls>'), section: ['<tool_calls>', '</tool_calls>'], call: '{call}',
    think: { start: 'Here are my reasoning steps:\n', ends: ['[BEGIN FINAL RESPONSE]'] },
  },
  { is: has('functools['), call: 'functools{call}' },   // Firefunction, Phi-4-mini's older template
  { is: has('Action:', '```json'), section: ['Action:\n```json', '```'], call: '{call}',
    marks: ['<|CHATBOT_TOKEN|>', '<|END_OF_TURN_TOKEN|>'] },   // Command R+
  HERMES,
  {   // Granite 3, Phi-4-mini
    is: has('<|tool_call|>'), think: THINK, call: '<|tool_call|>{call}', opens: ['<|tool_call|>', '['], first: true,
    marks: ['<|/tool_call|>', '<response>', '</response>'], write: listBehind('<|tool_call|>'),
  },
  {   // Mistral Nemo and others
    is: has('[TOOL_CALLS]'), think: { start: '[THINK]', ends: ['[/THINK]'] }, call: '[TOOL_CALLS]{call}',
    opens: ['[TOOL_CALLS]', '['], first: true, write: listBehind('[TOOL_CALLS]'),
  },
  {   // Llama 3.1 and later
    is: has('<|python_tag|>'), call: '<|python_tag|>{call}', opens: ['<|python_tag|>', '{', '['], first: true,
  },
];
/** What a template with tools, but without any of these, has: calls in JSON. @type {Format} */
const PLAIN = {
  is: () => true, think: THINK, call: '{call}', opens: ['{', '['], first: true, marks: ['<response>', '</response>'],
};

/** Whether a chat template describes tools to the model. @param {string | undefined} source */
export const supportsTools = source => /\btools\b/.test(source ?? '');

/** What formatOf found last: an answer asks for it several times. @type {{source?: string, format: Format}} */
let last = { format: HERMES };

/** @param {string} [source]  of a chat template @returns {Format} */
export function formatOf(source = '') {
  if (source !== last.source) {
    const found = FORMATS.find(format => format.is(source));
    last = { source, format: found ?? (supportsTools(source) ? PLAIN : HERMES) };
  }
  return last.format;
}

/** The texts with which a call may begin. @param {Format} format */
export const opensOf = ({ opens, section, call = '' }) =>
  (opens ?? [section?.[0] ?? call.split('{')[0]]).filter(text => text !== '');

/** The text with which a prompt begins the answer: think.start, or one of prompts; undefined if with none.
 * @param {Format} format @param {string} prompt  its end */
export const begunIn = ({ think, prompts = [] }, prompt) =>
  [think?.start ?? '', ...prompts].find(text => text !== '' && prompt.trimEnd().endsWith(text.trimEnd()));

/** A call as a template's models write it, to show it to a model. @param {string} source */
export function exampleOf(source) {
  const { section = ['', ''], call = '', arg = '' } = formatOf(source);
  const fill = (/** @type {string} */ pattern) => pattern
    .replace('{call}', '\n{"name": <function-name>, "arguments": <args-json-object>}\n')
    .replace('{name}', '<function-name>').replace('{json}', '<args-json-object>').replace(/\{id:[^}]*\}/, '')
    .replace('{key}', '<argument-name>')
    .replace('{value}', '<argument-value>').replace('{args}', () => fill(arg));
  return [section[0], fill(call), section[1]].filter(Boolean).join('\n');
}

/** The texts of a format that may be control tokens, which an answer must show. @param {Format} format */
export const textsOf = ({ think, section = ['', ''], call = '', arg = '', marks = [], opens = [], prompts = [],
  channels }) =>
  [think?.start, ...think?.ends ?? [], ...section, ...marks, ...opens, ...prompts,
    ...channels ? ['<|channel|>', '<|message|>', '<|start|>', '<|end|>'] : [],
    ...[call, arg].flatMap(pattern => pattern.split(/\{(?:id:)?|\}/)), '<|"|>']
    .flatMap(text => text || []);
