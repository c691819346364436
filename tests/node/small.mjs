/** A model with the tokenizer and the chat template of the default model, and random weights: 2 layers of width 64,
 * 7 MB, some thirty times as fast.  For tests of what is around a model, in which what it says does not matter. */
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { aligned, string, u32, u64 } from './gguf.mjs';
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
  const file = Buffer.alloc(4e6), next = random(1), descriptor = openSync(realPath);   // its keys have 2 MB
  readSync(descriptor, file);
  closeSync(descriptor);
  const keys = Buffer.from(file.subarray(24, file.indexOf(`${TENSORS[0][0]}.weight`) - 8));
  for (const [name, value] of Object.entries(KEYS)) {
    const key = string(`llama.${name}`);
    keys.writeUInt32LE(value, keys.indexOf(key) + key.length + 4);
  }
  const infos = [], data = [];
  let offset = 0;
  for (const [name, width, height] of TENSORS) {
    const shape = height ? [width, height] : [width];
    infos.push(Buffer.concat([string(`${name}.weight`), u32(shape.length), ...shape.map(u64),
      u32(height ? Q8_0 : F32), u64(offset)]));
    const bytes = aligned(height ? matrix(width * height, next) : norm(width));
    data.push(bytes);
    offset += bytes.length;
  }
  const head = Buffer.concat([file.subarray(0, 8), u64(TENSORS.length), file.subarray(16, 24), keys, ...infos]);
  return Buffer.concat([aligned(head), ...data]);
}

const folder = mkdtempSync(join(tmpdir(), 'plumb-small-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
export const smallPath = join(folder, 'small.gguf');
writeFileSync(smallPath, smallModel());
