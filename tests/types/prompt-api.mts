/* A model is one of the browsers' Prompt API, but for the deprecated names. */
/// <reference types="dom-chromium-ai" />
import { createLanguageModel } from '../../web/prompt-api.js';
const Ours = createLanguageModel('x');
declare const options: LanguageModelCreateOptions, prompt: LanguageModelPrompt, more: LanguageModelPromptOptions;
type Old = 'inputUsage' | 'inputQuota' | 'measureInputUsage' | 'onquotaoverflow' | 'topK' | 'temperature'
  | 'addEventListener' | 'removeEventListener' | 'clone' | 'append' | 'destroy' | 'oncontextoverflow';
const session = await Ours.create(options), same: Omit<LanguageModel, Old> = session;
const text: string = await session.prompt(prompt, more), state: Availability = await Ours.availability(options);
await session.append(prompt);
const copy: Omit<LanguageModel, Old> = await session.clone();
session.destroy();
export { same, text, state, copy };
