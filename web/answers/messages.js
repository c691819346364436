/* The types of conversations: messages, the tools that a model may call, the options of an answer, and the interface
 * that chat.js and completions.js need from a model. */

/** @typedef {'system' | 'developer' | 'user' | 'assistant' | 'tool'} Role  developer: the same as system; tool: the
 *   result of a tool
 * @typedef {{type: string, text?: string, [more: string]: any}} ContentPart  {type: 'text', text}, or another type that
 *   the model's template knows, such as {type: 'thinking', thinking}; images, sounds, videos and files are refused
 * @typedef {string | ContentPart[] | null} MessageContent  null: no content, beside tool_calls
 * @typedef {{role: Role, content?: MessageContent, tool_calls?: ToolCall[], tool_call_id?: string,
 *   reasoning_content?: string,
 *   [more: string]: any}} Message */
/** @typedef {object} ToolCall  in OpenAI's shape
 * @property {string} id
 * @property {'function'} type
 * @property {{name: string, arguments: string}} function  arguments: an object, encoded as JSON */
/** @typedef {object} Tool  a function that the model may call, in OpenAI's shape
 * @property {'function'} type
 * @property {{name: string, description?: string, parameters?: object, [more: string]: any}} function  parameters: a
 *   JSON Schema, or a schema of Zod or another library that gives its JSON Schema */
/** @typedef {{addGenerationPrompt?: boolean, continueFinalMessage?: boolean | 'content' | 'reasoning_content',
 *   tools?: any[], [variable: string]: any}} TemplateOptions
 *   addGenerationPrompt: open the assistant's turn (default true); continueFinalMessage: the prompt ends with the text
 *   of the last message, so that the answer goes on with it, as in transformers: with its content, or with its
 *   reasoning if it has no content.  It is the default if the last message is the assistant's, without calls, and
 *   addGenerationPrompt is not given, as in llama.cpp's server. All others are variables of the template. Many
 *   templates know enable_thinking (by default they decide themselves) and reasoning_effort ('low', 'medium', 'high');
 *   preserve_reasoning keeps the reasoning of earlier answers under whatever name the template has for it */
/** @typedef {object} OwnGenerateOptions
 * @property {number} [maxTokens]  default: generate until the context is full or, with sinks, as many tokens as it
 *   holds
 * @property {number} [sinks]  a full context is no end: so many of its first tokens stay, at most half of it, the older
 *   half of the others is dropped, and the rest moves up, which takes no time.  It still knows of what was dropped
 *   ("attention sinks": Xiao et al. 2024).  Prompts may also be longer than the context then.  PLUMB_ERROR_UNSUPPORTED:
 *   tokens of this model cannot move, as their positions are learned or their keys normalized
 * @property {string | string[]} [stop]  the text ends before the first of these strings
 * @property {AbortSignal} [signal]  ends the text without an error; finishReason is 'abort'
 * @property {number} [logprobs]  how many of the likeliest tokens onToken receives beside each token, 0 to 20;
 *   default 0
 * @property {(token: import('../engine/engine.js').GeneratedToken) => void} [onToken]  receives each token with its
 *   log-probability before its text is yielded, including the token that ends the turn
 * @property {(progress: import('../engine/generation.js').PromptProgress) => void} [onPromptProgress]  is called while
 *   the prompt is computed, after each batch of its tokens
 * @property {boolean} [parseSpecial]  for a string prompt: turn the text of special tokens into those tokens (default
 *   true)
 * @property {TemplateOptions} [template]  for a chat prompt
 * @property {number} [reasoningBudget]  for a chat prompt: how many tokens of reasoning there may be.  After so many,
 *   the tag that ends the reasoning is fed, and the answer goes on; 0: none; default: any number.  generate does not
 *   take it beside a grammar or schema, but a chat does
 * @property {import('../loader/load-options.js').LoadOptions['speculate']} [speculate]  as in Plumb.load, for this text
 * @property {string[]} [special]  texts that are shown although control tokens in them do not show otherwise
 * @typedef {OwnGenerateOptions & import('../engine/engine.js').Sampling
 *   & import('./constraint.js').Constraint} GenerateOptions */
/** @typedef {typeof import('./formats.js').FORMAT} FormatKey
 * @typedef {typeof import('./formats.js').POOL} PoolKey
 * @typedef {AnsweringModel & import('./formats.js').Continuing
 *   & Record<FormatKey, () => Promise<import('./formats.js').Format>>
 *   & Record<PoolKey, Pool>} ChatModel  the model that answers */
/** @typedef {object} Keeping  what a session of a model has, too
 * @property {(ids: ArrayLike<number>) => Promise<Float32Array>} feed
 * @property {(position?: number) => Promise<void>} rewind
 * @property {() => Promise<Uint8Array<ArrayBuffer>>} save
 * @property {(bytes: Uint8Array | ArrayBuffer) => Promise<void>} restore
 * @typedef {ChatModel & Keeping} ChatSession */
/** @typedef {object} Pool  the sessions that answer prompts
 * @property {(prompt: Int32Array, n?: number, signal?: AbortSignal) => Promise<ChatSession[]>} take  n of them, for
 *   answers to a prompt
 * @property {(session: any, prompt: Int32Array) => void} give  gives one back, which answered a prompt
 * @property {(prompt: Int32Array) => ChatSession | undefined} find  the one that answered a prompt last
 * @property {() => Promise<ChatSession>} open  one that is no part of the pool */
/** @typedef {object} AnsweringModel  what a ChatModel has besides its format
 * @property {string} chatTemplate  the source of its chat template
 * @property {Record<string, import('../engine/engine.js').MetadataValue>} metadata
 * @property {import('../engine/generation.js').Stats} [lastStats]  of its last answer
 * @property {() => Promise<{contextLength: number, module: string, position?: number}>} info
 * @property {(messages: Message[], options?: TemplateOptions) => Promise<Int32Array>} tokenizeChat
 * @property {(text: string, options?: {addSpecial?: boolean, parseSpecial?: boolean}) => Promise<Int32Array>} tokenize
 * @property {(ids: ArrayLike<number>, options?: {special?: boolean}) => Promise<string>} detokenize
 * @property {(prompt: Int32Array, options?: GenerateOptions) =>
 *   AsyncIterator<string, import('../engine/generation.js').Stats, void>} generate */

export {};
