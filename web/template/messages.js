/* Types of conversations: messages, the tools that a model may call, the options of an answer, and what chat.js and
 * completions.js ask of a model. */

/** @typedef {'system' | 'developer' | 'user' | 'assistant' | 'tool'} Role  developer: the same as system; tool: what a
 *   tool gave
 * @typedef {{type: string, text?: string, [more: string]: any}} ContentPart  {type: 'text', text}, or what the template
 *   of the model knows
 * @typedef {string | ContentPart[] | null} MessageContent  null: none, beside tool_calls
 * @typedef {{role: Role, content?: MessageContent, tool_calls?: ToolCall[], tool_call_id?: string,
 *   [more: string]: any}} Message */
/** @typedef {object} ToolCall  in OpenAI's shape
 * @property {string} id
 * @property {'function'} type
 * @property {{name: string, arguments: string}} function  arguments: an object, as JSON */
/** @typedef {object} Tool  a function that the model may call, in OpenAI's shape
 * @property {'function'} type
 * @property {{name: string, description?: string, parameters?: object, [more: string]: any}} function  parameters: a
 *   JSON schema */
/** @typedef {{addGenerationPrompt?: boolean, tools?: any[], [variable: string]: any}} TemplateOptions
 *   addGenerationPrompt: open the assistant's turn (default true); all others are variables of the template */
/** @typedef {object} OwnGenerateOptions
 * @property {number} [maxTokens]  default: until the context is full
 * @property {string | string[]} [stop]  the text ends before the first of these
 * @property {AbortSignal} [signal]  ends the text; no error, finishReason is 'abort'
 * @property {number} [logprobs]  how many of the likeliest tokens onToken is told beside each token, 0 to 20; default 0
 * @property {(token: import('../engine/engine.js').GeneratedToken) => void} [onToken]  hears of each token with its
 *   log-probability before its text is given; of the one that ends the turn too
 * @property {boolean} [parseSpecial]  of a string prompt: text of special tokens becomes those tokens (default true)
 * @property {TemplateOptions} [template]  of a chat
 * @typedef {OwnGenerateOptions & import('../engine/engine.js').Sampling} GenerateOptions */
/** @typedef {object} ChatModel  what answers: a Model
 * @property {Record<string, import('../engine/engine.js').MetadataValue>} metadata
 * @property {import('../engine/host.js').Stats} [lastStats]  of its last answer
 * @property {() => Promise<{contextLength: number, module: string}>} info
 * @property {(messages: Message[], options?: TemplateOptions) => Promise<Int32Array>} tokenizeChat
 * @property {(prompt: Int32Array, options?: GenerateOptions) =>
 *   AsyncGenerator<string, import('../engine/host.js').Stats, void>} generate */

export {};
