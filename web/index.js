/* plumb in a browser: the engine runs in a module worker. */
import { baseUrl, platform, start } from './platform.js';
import { createPlumb, Model } from './plumb.js';
import { giveThreads } from './relay.js';

export { PlumbError } from './errors.js';
export { Model };

/* The types that users name; the same in Node. */
/** @typedef {import('./loader/source.js').Source} Source
 * @typedef {import('./loader/source.js').OneSource} OneSource
 * @typedef {import('./loader/load-options.js').LoadOptions} LoadOptions
 * @typedef {import('./loader/store.js').Cached} Cached
 * @typedef {import('./loader/download.js').CacheMode} CacheMode
 * @typedef {import('./loader/progress.js').Progress} Progress
 * @typedef {import('./plumb.js').PreflightOptions} PreflightOptions
 * @typedef {import('./preflight.js').Preflight} Preflight
 * @typedef {import('./preflight.js').MemoryPlan} MemoryPlan
 * @typedef {import('./messages.js').GenerateOptions} GenerateOptions
 * @typedef {import('./engine.js').GeneratedToken} GeneratedToken
 * @typedef {import('./engine.js').Candidate} Candidate
 * @typedef {import('./messages.js').TemplateOptions} TemplateOptions
 * @typedef {import('./plumb.js').TraceOptions} TraceOptions
 * @typedef {import('./chat.js').Chat} Chat
 * @typedef {import('./chat.js').ChatOptions} ChatOptions
 * @typedef {import('./messages.js').Tool} Tool
 * @typedef {import('./messages.js').ToolCall} ToolCall
 * @typedef {import('./messages.js').Message} Message
 * @typedef {import('./messages.js').MessageContent} MessageContent
 * @typedef {import('./messages.js').ContentPart} ContentPart
 * @typedef {import('./messages.js').Role} Role
 * @typedef {import('./errors.js').ErrorCode} ErrorCode
 * @typedef {import('./plumb.js').Library} Plumb
 * @typedef {import('./host.js').Stats} Stats
 * @typedef {import('./command.js').CommandOptions} CommandOptions
 * @typedef {import('./command.js').CommandResult} CommandResult
 * @typedef {import('./plumb.js').ModelInfo} ModelInfo
 * @typedef {import('./engine.js').Scalar} Scalar
 * @typedef {import('./engine.js').MetadataValue} MetadataValue
 * @typedef {import('./engine.js').TapRecord} TapRecord
 * @typedef {import('./engine.js').TraceDocument} TraceDocument */

/** Whether the browser was asked to keep what is stored; some ask the user. */
let asked = false;

/** Loads models. */
export const Plumb = createPlumb({
  ...platform,
  worker: true,
  postsBlobs: true,
  startWorker(workerUrl) {
    const create = () => new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
    return giveThreads(start('worker.js', create, workerUrl), () => platform.startThread(workerUrl));
  },
  startTool(files, workerUrl) {
    const create = () => new Worker(new URL('./tool.js', import.meta.url), { type: 'module' });
    return { worker: start('tool.js', create, workerUrl), files };
  },
  locate(source) {
    const url = new URL(source, baseUrl());
    url.hash = '';
    return { kind: 'url', name: url.href, url: url.href };
  },
  persist() {
    if (asked) return;
    asked = true;
    navigator.storage?.persist?.().catch(() => {});
  },
});
