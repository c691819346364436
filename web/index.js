/* The package's entry in a browser, which users import.  In Node it is node/index.js, with the same names. */
import { library } from './browser/library.js';
// library.js imports this module.  Importing it here lets the browser fetch both at the same time.
import './browser/platform.js';

export { fitCalibration } from './answers/calibration.js';
export { PlumbError } from './base/errors.js';
export { Adapter, Model } from './api/plumb.js';
export { Session } from './api/session.js';

/** Loads models. */
export const Plumb = library;

/* Types for users.  Node's entry exports the same ones. */
/** @typedef {import('./loader/source.js').Source} Source
 * @typedef {import('./loader/source.js').OneSource} OneSource
 * @typedef {import('./loader/load-options.js').LoadOptions} LoadOptions
 * @typedef {import('./loader/load-options.js').AdapterOptions} AdapterOptions
 * @typedef {import('./loader/load-options.js').LoadedAdapter} LoadedAdapter
 * @typedef {import('./api/plumb.js').AdapterUse} AdapterUse
 * @typedef {import('./loader/copy-store.js').Cached} Cached
 * @typedef {import('./loader/download.js').CacheMode} CacheMode
 * @typedef {import('./loader/progress.js').Progress} Progress
 * @typedef {import('./api/plumb.js').PreflightOptions} PreflightOptions
 * @typedef {import('./api/plumb.js').PullOptions} PullOptions
 * @typedef {import('./engine/preflight.js').Preflight} Preflight
 * @typedef {import('./engine/preflight.js').MemoryPlan} MemoryPlan
 * @typedef {import('./answers/messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('./engine/embed.js').EmbedOptions} EmbedOptions
 * @typedef {import('./engine/embed.js').RankOptions} RankOptions
 * @typedef {import('./engine/embed.js').EmbedProgress} EmbedProgress
 * @typedef {import('./api/decide.js').DecideOptions} DecideOptions
 * @typedef {import('./engine/decide.js').DecideStats} DecideStats
 * @typedef {import('./answers/decisions.js').DecisionQuestion} DecisionQuestion
 * @typedef {import('./answers/decisions.js').BooleanQuestion} BooleanQuestion
 * @typedef {import('./answers/decisions.js').ChoiceQuestion} ChoiceQuestion
 * @typedef {import('./answers/decisions.js').ScoreQuestion} ScoreQuestion
 * @typedef {import('./answers/decisions.js').BooleanAnswer} BooleanAnswer
 * @typedef {import('./answers/decisions.js').ChoiceAnswer} ChoiceAnswer
 * @typedef {import('./answers/decisions.js').ScoreAnswer} ScoreAnswer
 * @typedef {import('./answers/decisions.js').Calibration} Calibration
 * @typedef {import('./answers/decisions.js').DecisionAnswer} DecisionAnswer
 * @typedef {import('./answers/calibration.js').DecisionExample} DecisionExample
 * @typedef {import('./engine/session.js').GeneratedToken} GeneratedToken
 * @typedef {import('./engine/session.js').Candidate} Candidate
 * @typedef {import('./answers/messages.js').TemplateOptions} TemplateOptions
 * @typedef {import('./api/plumb.js').TraceOptions} TraceOptions
 * @typedef {import('./api/chat.js').Chat} Chat
 * @typedef {import('./api/chat.js').ChatOptions} ChatOptions
 * @typedef {import('./api/chat.js').SendOptions} SendOptions
 * @typedef {import('./answers/answer.js').AnswerDelta} AnswerDelta
 * @typedef {import('./api/run.js').Callables} Callables
 * @typedef {import('./api/run.js').Callable} Callable
 * @typedef {import('./api/run.js').RunEvent} RunEvent
 * @typedef {import('./api/run.js').CallResult} CallResult
 * @typedef {import('./answers/tool-choice.js').ToolChoice} ToolChoice
 * @typedef {import('./answers/constraint.js').SchemaOptions} SchemaOptions
 * @typedef {import('./answers/messages.js').Tool} Tool
 * @typedef {import('./answers/messages.js').ToolCall} ToolCall
 * @typedef {import('./answers/messages.js').Message} Message
 * @typedef {import('./answers/messages.js').MessageContent} MessageContent
 * @typedef {import('./answers/messages.js').ContentPart} ContentPart
 * @typedef {import('./answers/messages.js').Role} Role
 * @typedef {import('./base/errors.js').ErrorCode} ErrorCode
 * @typedef {import('./api/plumb.js').Library} Plumb
 * @typedef {import('./engine/generation.js').PromptProgress} PromptProgress
 * @typedef {import('./engine/generation.js').Stats} Stats
 * @typedef {import('./command/command.js').CommandOptions} CommandOptions
 * @typedef {import('./command/command.js').CommandResult} CommandResult
 * @typedef {import('./api/plumb.js').ModelInfo} ModelInfo
 * @typedef {import('./engine/engine.js').Scalar} Scalar
 * @typedef {import('./engine/engine.js').MetadataValue} MetadataValue
 * @typedef {import('./engine/traces.js').TapRecord} TapRecord
 * @typedef {import('./engine/traces.js').TraceDocument} TraceDocument */
/** @template T @typedef {import('./api/object.js').ObjectAnswer<T>} ObjectAnswer */
/** @template Q @typedef {import('./api/decide.js').DecideResult<Q>} DecideResult */
/** @template Q @typedef {import('./answers/decisions.js').AnswerTo<Q>} AnswerTo */
/** @template P, R @typedef {import('./api/text-answer.js').TextAnswer<P, R>} TextAnswer */
/** @template S @typedef {import('./api/infer.js').FromSchema<S>} FromSchema */
/** @template T @typedef {import('./api/infer.js').DeepPartial<T>} DeepPartial */
