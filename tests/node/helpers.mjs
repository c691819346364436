/** What the JavaScript tests share: models, servers that misbehave, the check of an error. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PlumbError } from '../../web/node/index.js';
import { platform } from '../../web/node/platform.js';
import { createPlumb } from '../../web/api/plumb.js';

/** These tests have their own folder of copies. */
if (!process.env.PLUMB_CACHE) {
  const copies = process.env.PLUMB_CACHE = mkdtempSync(join(tmpdir(), 'plumb-copies-'));
  process.on('exit', () => rmSync(copies, { recursive: true, force: true }));
}

export const root = fileURLToPath(new URL('../../', import.meta.url));
/** 88 kB, random weights, 260 tokens, context 512; tests/vectors/README.md says how it was made. */
export const tinyPath = `${root}tests/vectors/synth/f32.gguf`;
export const tiny = new Uint8Array(readFileSync(tinyPath));
/** A header that announces one tensor of `bytes` bytes, which never arrive. @param {number} bytes */
export function promise(bytes) {
  const file = Buffer.from(tiny), name = 'token_embd.weight';
  const u64 = (/** @type {number} */ n) => Buffer.from(new BigUint64Array([BigInt(n)]).buffer);
  const u32 = (/** @type {number} */ n) => Buffer.from(new Uint32Array([n]).buffer);
  return Buffer.concat([
    file.subarray(0, 8), u64(1), file.subarray(16, file.indexOf(name) - 8),   // one tensor, all keys
    u64(name.length), Buffer.from(name), u32(2), u64(32), u64(Math.floor(bytes / 128)), u32(0), u64(0),
    Buffer.alloc(5000),
  ]);
}
export const realPath = `${root}models/SmolLM2-135M-Instruct.Q4_1.gguf`;
/** Real models, with llama.cpp's greedy answers to prompts, and its activations by layer; see
 * tests/vectors/README.md. */
export const models = [
  { name: 'SmolLM2', file: 'models/SmolLM2-135M-Instruct.Q4_1.gguf', vectors: 'llama/', layers: 'smollm2' },
  { name: 'Gemma 3', file: 'models/gemma-3-270m.Q4_K_M.gguf', vectors: 'llama/gemma3/', layers: 'gemma3' },
].map(({ name, file, vectors, layers }) => ({
  name, file, vectors: `${root}tests/vectors/${vectors}`,
  prompts: JSON.parse(readFileSync(`${root}tests/vectors/${vectors}prompts.json`, 'utf8')).prompts,
  layers: JSON.parse(readFileSync(`${root}tests/vectors/layers/${layers}.json`, 'utf8')),
}));
/** Those of the default model. */
export const [{ prompts }] = models;

/** The package in this thread on another platform, on which a string source is a URL.
 * @param {Partial<import('../../web/api/plumb.js').ClientPlatform>} other  what differs from Node's */
export const plumbOn = other => createPlumb({
  ...platform,
  worker: false,
  postsBlobs: false,
  startWorker: () => assert.fail('no worker was asked for'),
  locate: source => ({ kind: 'url', name: String(source), url: String(source) }),
  ...other,
});

/** Waits for the failure and checks its code and message.
 * @param {Promise<unknown> | (() => Promise<unknown>)} action @param {string} code @param {RegExp} message */
export async function fails(action, code, message) {
  await assert.rejects(action, error => {
    assert.ok(error instanceof PlumbError, `${error} is no PlumbError`);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
}

/** A server on this machine, closed after the test.
 * @param {import('node:test').TestContext} t
 * @param {(request: import('node:http').IncomingMessage, response: import('node:http').ServerResponse) => void} answer
 * @returns {Promise<string>} its URL, which ends in a slash */
export async function server(t, answer) {
  const http = createServer(answer);
  await new Promise(resolve => http.listen(0, '127.0.0.1', () => resolve(undefined)));
  t.after(() => {
    http.close();
    http.closeAllConnections();
  });
  return `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (http.address()).port}/`;
}

/** @param {AsyncIterable<string>} pieces */
export async function textOf(pieces) {
  let text = '';
  for await (const piece of pieces) text += piece;
  return text;
}

/** @param {Float32Array} logits */
export const argmax = logits => logits.reduce((best, value, i) => value > logits[best] ? i : best, 0);

/** Whether to make the i-th of the proofs in a test that differ in their data only.  `make test` makes all, and
 * `make check` every third. @param {number} i */
export const repeats = i => !process.env.SAMPLE || i % 3 === 0;

/** A small generator that gives the same numbers in every run. @param {number} seed */
export function random(seed) {
  return (/** @type {number} */ n) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor(seed / 2 ** 32 * n);
  };
}

/** The GGUF file with a chat template, as its first key. @param {Uint8Array} file @param {string} template */
export function withTemplate(file, template) {
  const header = Buffer.from(file.slice(0, 24));
  header.writeBigUInt64LE(header.readBigUInt64LE(16) + 1n, 16);
  const name = 'tokenizer.chat_template', sizes = 8 + name.length + 4 + 8;
  // As long as keeps the tensors aligned.
  const padded = template + '{# #}'.replace(' ', ' '.repeat(64 - (sizes + template.length + 5) % 32));
  const rest = (sizes + padded.length) % 32;
  const text = rest ? padded.replace('{#', `{#${' '.repeat(32 - rest)}`) : padded;
  const size = (/** @type {number} */ n) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(n));
    return bytes;
  };
  return Buffer.concat([header, size(name.length), Buffer.from(name), Buffer.from([8, 0, 0, 0]), size(text.length),
    Buffer.from(text), file.slice(24)]);
}

/** The default model with another template, which must be as long as its own at most. @param {string} template */
export function realWithTemplate(template) {
  const file = readFileSync(realPath);
  const at = file.indexOf('{% for message', file.indexOf('tokenizer.chat_template'));
  const length = Number(file.readBigUInt64LE(at - 8));
  assert.ok(template.length <= length, `${template.length} of ${length} bytes`);
  file.write(template.padEnd(length), at);
  return file;
}
