/* `await using`, in a project whose TypeScript has its types; contents.test.mjs compiles it. */
import { Plumb } from 'plumb-llm';
import OpenAI from 'plumb-llm/openai';

export async function ask(text: string): Promise<string> {
  await using model = await Plumb.load('model.gguf');
  await using session = await model.session();
  await using client = new OpenAI({ models: { small: 'model.gguf' } });
  const messages = [{ role: 'user' as const, content: text }];
  const { choices } = await client.chat.completions.create({ model: 'small', messages });
  return `${await session.generate(text)}${choices[0]?.message.content}`;
}
