/* What a project without the types of a browser or of Node writes; contents.test.mjs compiles it. */
import { Plumb, PlumbError, type Message, type Model } from 'plumb-llm';
import { createHandler } from 'plumb-llm/fetch';
import OpenAI from 'plumb-llm/openai';

export async function answer(messages: Message[]): Promise<string> {
  const model: Model = await Plumb.load('model.gguf', { threads: 1 });
  let text = '';
  for await (const piece of model.generate(messages, { maxTokens: 5 })) text += piece;
  // @ts-expect-error: an option that does not exist
  await Plumb.load('model.gguf', { contextSize: 1024 });
  const client = new OpenAI({ models: { small: new Uint8Array(4) } });
  const asked = [{ role: 'user' as const, content: text }];
  const { choices } = await client.chat.completions.create({ model: 'small', messages: asked });
  return choices[0]?.message.content ?? '';
}

export const why = (error: unknown) => error instanceof PlumbError ? error.code : 'PLUMB_ERROR';

const handler = createHandler({ models: { small: 'model.gguf' }, parallel: 2 });
// @ts-expect-error: an option that does not exist
createHandler({ port: 80 });
export const closed: Promise<void> = handler.close();
