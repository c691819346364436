/* What a TypeScript project writes; contents.test.mjs compiles it against the installed package.  The lines of
 * refused() must be errors. */
import { Model, Plumb, PlumbError } from 'plumb-llm';
import type {
  ErrorCode, MessageContent, Plumb as Library, Role,
} from 'plumb-llm';
import type {
  Cached, Chat, ChatOptions, CommandResult, GeneratedToken, GenerateOptions, LoadOptions, Message, MetadataValue,
  ModelInfo, Preflight, Progress, Source, Stats, TapRecord, Tool, TraceDocument,
} from 'plumb-llm';
import { createHandler } from 'plumb-llm/fetch';
import OpenAI from 'plumb-llm/openai';
import type { ChatCompletion, ChatCompletionChunk } from 'plumb-llm/openai';

export async function answer(source: Source, question: string, signal?: AbortSignal): Promise<string> {
  const options: LoadOptions = { contextLength: 1024, threads: 'auto', precision: 'exact16', kvType: 'q8_0' };
  const model: Model = await Plumb.load(source, {
    ...options,
    ...signal && { signal },
    onProgress: ({ phase, bytes, total, secondsLeft }: Progress) => {
      const done: number = total === undefined ? bytes : bytes / total;
      console.log(phase, done, secondsLeft?.toFixed());
    },
  });
  const messages: Message[] = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: question }];
  const sampling: GenerateOptions = {
    temperature: 0.7, topK: 40, seed: 1n, stop: ['\n\n'], logitBias: { 3: -Infinity },
  };
  let text = '';
  for await (const piece of model.generate(messages, sampling)) text += piece;

  const pieces = model.generate('Once upon a time', { maxTokens: 1 });
  const { done, value } = await pieces.next();
  const stats: Stats | undefined = done ? value : model.lastStats;
  const reason: 'stop' | 'length' | 'abort' | undefined = stats?.finishReason;

  const ids: Int32Array = await model.tokenize(text, { addSpecial: false });
  const logits: Float32Array = await model.feed(ids);
  const again: Float32Array = await model.step(ids[0]!);
  const trace: TraceDocument = await model.trace(ids, { taps: 'l_out-*', onTap: (tap: TapRecord) => tap.rms });
  const vector: Float32Array = await model.embed(text, { pooling: 'mean', dimensions: 8 });
  const vectors: Float32Array[] = await model.embed([text, ids], { prefix: 'query: ', normalize: false });
  const [best] = await model.rank('Why?', [text], { queryPrefix: 'query: ', truncate: true });
  const score: number | undefined = best && best.score + best.index + vector.length + vectors.length;
  const key: MetadataValue | undefined = model.metadata['general.name'];
  const { threads, memoryBytes }: { threads: number, memoryBytes: number } = await model.info();
  await model.rewind();
  await model.close();
  return [text, reason, score, logits.length + again.length, trace.taps.length, key, threads, memoryBytes].join();
}

export async function talk(model: Model, tools: Tool[]): Promise<Message | undefined> {
  const options: ChatOptions = { system: 'Be brief.', contextEnd: 'trim', tools };
  const chat: Chat = model.chat(options);
  const logprobs: number[] = [];
  const onToken = ({ logprob, top }: GeneratedToken) => logprobs.push(logprob, ...top.map(one => one.logprob));
  for await (const piece of chat.send('Hello', { logprobs: 2, onToken })) console.log(piece.length);
  const info: ModelInfo = await model.info();
  return info.threads > 1 ? chat.messages.at(-1) : undefined;
}

export async function likeOpenAI(messages: { role: 'user', content: string }[]): Promise<string | null | undefined> {
  const client = new OpenAI({ models: { small: 'model.gguf' }, load: { threads: 2 } });
  const whole: ChatCompletion = await client.chat.completions.create({ model: 'small', messages, max_tokens: 5 });
  for await (const chunk of await client.chat.completions.create({ model: 'small', messages, stream: true })) {
    const one: ChatCompletionChunk = chunk;
    console.log(one.choices[0]?.delta.content);
  }
  return whole.choices[0]?.message.content;
}

export async function keep(): Promise<number> {
  const { fits, memory }: Preflight = await Plumb.preflight('a.gguf', { measure: false });
  if (fits) console.log(memory?.total);
  const copies: Cached[] = await Plumb.listCached();
  const { code, files }: CommandResult = await Plumb.command(['inspect', 'a.gguf'],
    { files: { 'a.gguf': 'no model' } });
  return copies.reduce((sum, { bytes }) => sum + bytes, code) + Object.keys(files).length;
}

export function why(error: unknown): string {
  if (!(error instanceof PlumbError)) throw error;
  const code: ErrorCode = error.code;
  // @ts-expect-error: a code that does not exist
  if (error.code === 'PLUMB_ERROR_BANANA' || code === 'PLUMB_ERROR') throw error;
  return `${error.code}: ${error.message} ${error.details.url ?? ''}`;
}

export async function named(library: Library, role: Role, content: MessageContent): Promise<number> {
  const model = await library.load('model.gguf');
  const ids = await model.tokenizeChat([{ role, content }, { role: 'user', content: [{ type: 'text', text: 'x' }] }]);
  return ids.length;
}

export async function refused(model: Model) {
  // @ts-expect-error: a role that does not exist
  await model.tokenizeChat([{ role: 'banana', content: 'Hi' }]);
  // @ts-expect-error: an option that does not exist
  await Plumb.load('model.gguf', { contextSize: 1024 });
  // @ts-expect-error: a precision that does not exist
  await Plumb.load('model.gguf', { precision: 'fast4' });
  // @ts-expect-error: a number is no source
  await Plumb.load(7);
  // @ts-expect-error: messages have roles
  model.generate([{ content: 'Hello' }]);
  // @ts-expect-error: a misspelt option
  model.generate('Hello', { max_tokens: 3 });
  // @ts-expect-error: pieces are strings
  for await (const piece of model.generate('Hello')) piece.text;
  // @ts-expect-error: ids, not text
  await model.feed('Hello');
  // @ts-expect-error: what happens at the end of the context has three names
  model.chat({ contextEnd: 'slide' });
  // @ts-expect-error: no server, so no key
  new OpenAI({ apiKey: '' });
  // @ts-expect-error: one token
  await model.step([1, 2]);
  // @ts-expect-error: awaited it is a text, not an array
  (await model.generate('Hello')).push('!');
  // @ts-expect-error: not awaited it is neither
  model.generate('Hello').length;
}

/** The handler can stand where a fetch is expected. */
export const like: typeof fetch = createHandler({ models: { small: 'model.gguf' } });
