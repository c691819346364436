/** A model with the tokenizer and the chat template of the default model, and random weights: 2 layers of width 64,
 * 7 MB, some thirty times as fast.  For tests of what is around a model, in which what it says does not matter. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { random, realPath } from './helpers.mjs';

/** What differs from the keys of the default model. */
const KEYS = { block_count: 2, embedding_length: 64, feed_forward_length: 128, 'attention.head_count': 2,
  'attention.head_count_kv': 1, 'rope.dimension_count': 32 };
const VOCABULARY = 49152, F32 = 0, Q8_0 = 8;
/** Width and height of each matrix. @type {[string, number, number][]} */
const LAYER = [['attn_q', 64, 64], ['attn_k', 64, 32], ['attn_v', 64, 32], ['attn_output', 64, 64],
  ['ffn_gate', 64, 128], ['ffn_up', 64, 128], ['ffn_down', 128, 64]];
/** @type {[string, number, number][]} */
const TENSORS = [['token_embd', 64, VOCABULARY], ['output', 64, VOCABULARY], ['output_norm', 64, 0],
  ...[0, 1].flatMap(layer => [...LAYER, ['attn_norm', 64, 0], ['ffn_norm', 64, 0]].map(([name, ...size]) =>
    /** @type {[string, number, number]} */ ([`blk.${layer}.${name}`, ...size])))];

/** The keys of a GGUF file as they are stored, without what precedes them. @param {Buffer} file */
function keysOf(file) {
  const sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];   // of a value, by its type; 8: text, 9: list
  let at = 24;
  const count = () => Number(file.readBigUInt64LE(at));
  const skip = (/** @type {number} */ type) => {
    if (type === 8) at += 8 + count();
    else if (type !== 9) at += sizes[type];
    else {
      const of = file.readUInt32LE(at);
      at += 4;
      const n = count();
      at += 8;
      if (sizes[of]) at += n * sizes[of];
      else for (let i = 0; i < n; i++) skip(of);
    }
  };
  for (let left = file.readBigUInt64LE(16); left > 0n; left--) {
    skip(8);
    at += 4;
    skip(file.readUInt32LE(at - 4));
  }
  return Buffer.from(file.subarray(24, at));
}

const u64 = (/** @type {number} */ n) => Buffer.from(new BigUint64Array([BigInt(n)]).buffer);
const u32 = (/** @type {number[]} */ ...n) => Buffer.from(new Uint32Array(n).buffer);

/** One norm, all of whose weights are 1. @param {number} width */
const norm = width => Buffer.from(new Float32Array(width).fill(1).buffer);

/** Blocks of 32 random weights with the scale 2⁻¹⁰. @param {number} weights @param {(n: number) => number} next */
function matrix(weights, next) {
  const bytes = Buffer.allocUnsafe(weights / 32 * 34);
  for (let at = 0; at < bytes.length; at += 34) {
    bytes.writeUInt16LE(0x1400, at);
    for (let i = 0; i < 32; i++) bytes[at + 2 + i] = next(256);
  }
  return bytes;
}

function smallModel() {
  const file = readFileSync(realPath), keys = keysOf(file), next = random(1);
  for (const [name, value] of Object.entries(KEYS)) {
    const key = `llama.${name}`;
    keys.writeUInt32LE(value, keys.indexOf(Buffer.concat([u64(key.length), Buffer.from(key)])) + 8 + key.length + 4);
  }
  const infos = [], data = [];
  let offset = 0;
  for (const [start, width, height] of TENSORS) {
    const name = `${start}.weight`, bytes = height ? matrix(width * height, next) : norm(width);
    infos.push(u64(name.length), Buffer.from(name), u32(height ? 2 : 1), u64(width), ...height ? [u64(height)] : [],
      u32(height ? Q8_0 : F32), u64(offset));
    data.push(bytes, Buffer.alloc(-bytes.length & 31));
    offset += bytes.length + (-bytes.length & 31);
  }
  const header = Buffer.concat([file.subarray(0, 8), u64(TENSORS.length), file.subarray(16, 24), keys, ...infos]);
  return Buffer.concat([header, Buffer.alloc(-header.length & 31), ...data]);
}

const folder = mkdtempSync(join(tmpdir(), 'plumb-small-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
export const smallPath = join(folder, 'small.gguf');
writeFileSync(smallPath, smallModel());
