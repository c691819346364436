/** Parts of GGUF files, and headers of models of any size, without the weights that follow; also an endless header. */
import { once } from 'node:events';

const STRING = 8, ARRAY = 9, UINT32 = 4, FLOAT32 = 6, INT32 = 5;
/** By name: [number, elements in a block, bytes of one]. */
const TYPES = { F32: [0, 1, 4], F16: [1, 1, 2], Q4_0: [2, 32, 18], Q8_0: [8, 32, 34], Q4_K: [12, 256, 144] };

export const u32 = n => { const b = Buffer.alloc(4); b.writeUInt32LE(n); return b; };
export const u64 = n => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(n)); return b; };
const f32 = x => { const b = Buffer.alloc(4); b.writeFloatLE(x); return b; };
export const string = text => Buffer.concat([u64(Buffer.byteLength(text)), Buffer.from(text)]);
/** Bytes up to the next multiple of 32. @param {Buffer} bytes */
export const aligned = bytes => Buffer.concat([bytes, Buffer.alloc(-bytes.length & 31)]);
/** What is before the weights. @param {Buffer[]} keys @param {Buffer[]} tensors */
export const headOf = (keys, tensors) =>
  aligned(Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(keys.length), ...keys, ...tensors]));

/** A header of the llama architecture with `vocabulary` made-up tokens, and the size of its file.
 * @param {object} shape
 * @param {number} shape.layers @param {number} shape.embedding @param {number} shape.feedForward
 * @param {number} shape.heads
 * @param {number} [shape.vocabulary] @param {keyof typeof TYPES} [shape.type]  of all matrices
 * @param {string} [shape.architecture] */
export function ggufHeader({ layers, embedding, feedForward, heads, vocabulary = 300, type = 'Q4_0',
  architecture = 'llama' }) {
  const keys = [];
  const key = (name, kind, ...value) => keys.push(Buffer.concat([string(name), u32(kind), ...value]));
  const count = (name, n) => key(`${architecture}.${name}`, UINT32, u32(n));
  key('general.architecture', STRING, string(architecture));
  count('block_count', layers);
  count('embedding_length', embedding);
  count('feed_forward_length', feedForward);
  count('context_length', 4096);
  count('attention.head_count', heads);
  key(`${architecture}.attention.layer_norm_rms_epsilon`, FLOAT32, f32(1e-5));
  key('tokenizer.ggml.model', STRING, string('llama'));
  const tokens = Array.from({ length: vocabulary }, (_, i) => i < 3 ? ['<unk>', '<s>', '</s>'][i]
    : i < 259 ? `<0x${(i - 3).toString(16).padStart(2, '0').toUpperCase()}>` : `t${i}`);
  key('tokenizer.ggml.tokens', ARRAY, u32(STRING), u64(vocabulary), ...tokens.map(string));
  key('tokenizer.ggml.scores', ARRAY, u32(FLOAT32), u64(vocabulary), ...tokens.map((_, i) => f32(-i)));
  key('tokenizer.ggml.token_type', ARRAY, u32(INT32), u64(vocabulary),
    ...tokens.map((_, i) => u32(i < 3 ? 3 : i < 259 ? 6 : 1)));

  const tensors = [];
  let offset = 0;
  const tensor = (name, shape, of = type) => {
    const [number, elements, bytes] = TYPES[of];
    tensors.push(Buffer.concat([string(name), u32(shape.length), ...shape.map(u64), u32(number), u64(offset)]));
    offset += Math.ceil(shape.reduce((a, b) => a * b) / elements * bytes / 32) * 32;
  };
  tensor('token_embd.weight', [embedding, vocabulary]);
  tensor('output_norm.weight', [embedding], 'F32');
  for (let i = 0; i < layers; i++) {
    for (const name of ['attn_norm', 'ffn_norm']) tensor(`blk.${i}.${name}.weight`, [embedding], 'F32');
    for (const name of ['attn_q', 'attn_k', 'attn_v', 'attn_output']) {
      tensor(`blk.${i}.${name}.weight`, [embedding, embedding]);
    }
    for (const name of ['ffn_gate', 'ffn_up']) tensor(`blk.${i}.${name}.weight`, [embedding, feedForward]);
    tensor(`blk.${i}.ffn_down.weight`, [feedForward, embedding]);
  }
  const header = headOf(keys, tensors);
  return { header: new Uint8Array(header), size: header.length + offset };
}

/** Strings of 3 bytes as an array of a header: numbers; merges have a space in the middle.
 * @param {number} count @param {boolean} merges */
function shortStrings(count, merges) {
  const bytes = Buffer.alloc(12 + count * 11), digit = (/** @type {number} */ i) => 33 + i % 128;
  bytes.writeUInt32LE(STRING, 0);
  bytes.writeBigUInt64LE(BigInt(count), 4);
  for (let i = 0, at = 12; i < count; i++, at += 11) {
    bytes.writeUInt32LE(3, at);
    bytes.set([digit(i), merges ? 32 : digit(i >> 7), digit(i >> 14)], at + 8);
  }
  return bytes;
}

/** A header that takes much more memory than it has bytes: a BPE vocabulary, and tensors of 32 bytes each.
 * @param {{ tokens: number, type?: number, merges?: number, tensors?: number }} counts  type: of all tokens */
export function greedyHeader({ tokens, type = 1, merges = 1, tensors = 0 }) {
  const types = Buffer.alloc(12 + 4 * tokens);
  types.writeUInt32LE(INT32, 0);
  types.writeBigUInt64LE(BigInt(tokens), 4);
  for (let i = 0; i < tokens; i++) types.writeUInt32LE(type, 12 + 4 * i);
  const key = (/** @type {string} */ name, /** @type {number} */ kind, /** @type {Buffer} */ value) =>
    Buffer.concat([string(name), u32(kind), value]);
  const keys = [key('tokenizer.ggml.model', STRING, string('gpt2')), key('tokenizer.ggml.pre', STRING, string('gpt-2')),
    key('tokenizer.ggml.tokens', ARRAY, shortStrings(tokens, false)),
    key('tokenizer.ggml.merges', ARRAY, shortStrings(merges, true))];
  if (type !== 1) keys.push(key('tokenizer.ggml.token_type', ARRAY, types));
  const directory = Array.from({ length: tensors }, (_, i) =>
    Buffer.concat([string(i.toString(36)), u32(1), u64(8), u32(0), u64(32 * i)]));
  return Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors), u64(keys.length), ...keys, ...directory]);
}

/** Keys of 1 MiB each, without end. */
function* endless() {
  const head = new DataView(new ArrayBuffer(24));
  head.setUint32(0, 0x46554747, true);
  head.setUint32(4, 3, true);
  head.setUint32(16, 4096, true);
  yield new Uint8Array(head.buffer);
  const key = new Uint8Array(8 + 8 + 4 + 8 + (1 << 20)).fill(97), view = new DataView(key.buffer);
  for (let i = 0; ; i++) {
    view.setBigUint64(0, 8n, true);
    key.set(new TextEncoder().encode(`key${String(i).padStart(5, '0')}`), 8);
    view.setUint32(16, 8, true);
    view.setBigUint64(20, 1n << 20n, true);
    yield key;
  }
}

/** Sends an endless header while anyone reads; yields the number of bytes sent after each key.
 * @param {import('node:http').ServerResponse} response */
export async function* sendEndlessHeader(response) {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  let sent = 0;
  for (const piece of endless()) {
    if (response.destroyed) return;
    if (!response.write(piece)) await once(response, 'drain', { signal: gone.signal }).catch(() => {});
    yield sent += piece.length;
  }
}
