/** A model that answers as it is told: a GGUF file whose tokens are whole texts, and whose weights make each token
 * choose the next one.  Its chat template ends the prompt with a token that stands for what the last message says, so
 * the answer depends on the conversation as that of any model, and comes from the engine, its sampler and its
 * grammars. */
import { headOf, string, u32, u64 } from './gguf.mjs';

const STRING = 8, ARRAY = 9, UINT32 = 4, FLOAT32 = 6, INT32 = 5, BOOL = 7;
/** Kinds of tokens. */
const NORMAL = 1, CONTROL = 3, BYTE = 6;

const floats = values => Buffer.from(Float32Array.from(values).buffer);

/** @param {{when: string, says: string[], tools?: true}[]} script  the answer to a message that contains a text, as
 *   tokens; the first that fits is given, and the last one must fit always, with ''; tools: it fits only if the model
 *   is told about tools
 * @returns {Buffer} the file */
export function scriptedModel(script) {
  /** @type {{text: string, kind: number, next: number}[]} */
  const tokens = [{ text: '<unk>', kind: CONTROL, next: 2 }, { text: '<s>', kind: CONTROL, next: 2 },
    { text: '</s>', kind: CONTROL, next: 2 }];
  for (let i = 0; i < 256; i++) {
    tokens.push({ text: `<0x${i.toString(16).padStart(2, '0').toUpperCase()}>`, kind: BYTE, next: 2 });
  }
  for (const [i, { says }] of script.entries()) {
    tokens.push({ text: `<|answer${i}|>`, kind: CONTROL, next: tokens.length + 1 });
    // A token occurs once, so that it has one successor; what the grammar forbids is not there.
    for (const text of says) tokens.push({ text, kind: NORMAL, next: tokens.length + 1 });
    tokens[tokens.length - 1].next = 2;
  }
  const n = tokens.length, width = Math.ceil(n / 32) * 32;
  const quoted = text => `'${text.replace(/['\\]/g, '\\$&')}'`;
  const template = '{%- for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}'
    + '<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}'
    + '{%- if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}'
    + '{%- if add_generation_prompt %}{% set last = messages[-1].content %}'
    + script.map(({ when, tools }, i) => `{% ${i === 0 ? 'if' : 'elif'} ${quoted(when)} in last`
      + `${tools ? ' and tools' : ''} %}<|answer${i}|>`).join('')
    + '{% endif %}{% endif %}';

  const keys = [];
  const key = (name, kind, ...value) => keys.push(Buffer.concat([string(name), u32(kind), ...value]));
  key('general.architecture', STRING, string('llama'));
  key('general.name', STRING, string('Script'));
  const counts = { block_count: 1, context_length: 4096, embedding_length: width, feed_forward_length: 32,
    'attention.head_count': width / 32 };
  for (const [name, value] of Object.entries(counts)) key(`llama.${name}`, UINT32, u32(value));
  key('llama.attention.layer_norm_rms_epsilon', FLOAT32, floats([1e-5]));
  key('tokenizer.ggml.model', STRING, string('llama'));
  key('tokenizer.ggml.tokens', ARRAY, u32(STRING), u64(n), ...tokens.map(({ text }) => string(text)));
  key('tokenizer.ggml.scores', ARRAY, u32(FLOAT32), u64(n), floats(tokens.map((_, i) => -i)));
  key('tokenizer.ggml.token_type', ARRAY, u32(INT32), u64(n), ...tokens.map(({ kind }) => u32(kind)));
  key('tokenizer.ggml.eos_token_id', UINT32, u32(2));
  key('tokenizer.ggml.add_bos_token', BOOL, Buffer.of(0));
  key('tokenizer.chat_template', STRING, string(template));

  const tensors = [], data = [];
  let offset = 0;
  const tensor = (name, shape, value = (/** @type {number} */ _) => 0) => {
    const size = shape.reduce((a, b) => a * b);
    tensors.push(Buffer.concat([string(name), u32(shape.length), ...shape.map(u64), u32(0), u64(offset)]));
    data.push(floats(Array.from({ length: size }, (_, i) => value(i))));
    offset += 4 * size;
  };
  // A token is a unit vector; the row of a token in the output is the sum of the vectors of those before it.
  tensor('token_embd.weight', [width, n], i => Number(i % width === Math.floor(i / width)));
  tensor('output.weight', [width, n], i => tokens[i % width]?.next === Math.floor(i / width) ? 10 : 0);
  tensor('output_norm.weight', [width], () => 1);
  for (const name of ['attn_norm', 'ffn_norm']) tensor(`blk.0.${name}.weight`, [width], () => 1);
  for (const name of ['attn_q', 'attn_k', 'attn_v', 'attn_output']) tensor(`blk.0.${name}.weight`, [width, width]);
  for (const name of ['ffn_gate', 'ffn_up']) tensor(`blk.0.${name}.weight`, [width, 32]);
  tensor('blk.0.ffn_down.weight', [32, width]);
  return Buffer.concat([headOf(keys, tensors), ...data]);
}

/** A call as such a model writes it. @param {string} name @param {object} given */
export const callText = (name, given) => `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;
