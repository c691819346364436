/**
 * `node tests/bench/serving.mjs [--llama PROGRAM] [--node-llama-cpp] [--model MODEL] [--streams 1,2,4,8,16]`: plumb
 * serve beside llama.cpp's llama-server and node-llama-cpp, each with one thread, in one interleaved run.
 * node-llama-cpp has no server: its streams are sequences of one context in this process.
 *
 * Streams: so many requests at once, with prompts of about 200 tokens that differ and answers of 48 tokens; tokens per
 * second of all answers, from the first request to the last token, and from the last first token on.  llama-server has
 * its fastest setting on one thread: K and V in f32, without flash attention.  Cached: the time
 * to the first token of a chat whose system message of about 1,000 tokens was computed for another chat, beside that of
 * one that was not.  Restored: a session of 2,000 tokens from bytes, beside computing it.
 *
 * PROGRAM is llama-server: `make bench-serving` builds it with build-llama.sh, installs node-llama-cpp, and runs this.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Plumb } from '../../web/node/index.js';
import { median } from './median.mjs';

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const { values: { llama, model = path('models/SmolLM2-135M-Instruct.Q4_1.gguf'), streams = '1,2,4,8,16', ...others } } =
  parseArgs({ options: { llama: { type: 'string' }, model: { type: 'string' }, streams: { type: 'string' },
    'node-llama-cpp': { type: 'boolean' } } });
const counts = streams.split(',').map(Number), ROUNDS = 3, ANSWER = 48, CONTEXT = 2048;
const text = readFileSync('/usr/share/common-licenses/GPL-3', 'utf8').replace(/\s+/g, ' ');
const ms = (/** @type {number} */ start) => performance.now() - start;

/** Starts a server, and waits until it answers. @param {string} name @param {string} program @param {string[]} args
 * @param {number} port @param {object} extra  parameters of its requests */
async function start(name, program, args, port, extra) {
  const child = spawn(program, args, { stdio: 'ignore' }), url = `http://127.0.0.1:${port}/v1`;
  for (let isUp = false; !isUp;) {
    const ended = child.exitCode ?? child.signalCode;
    if (ended !== null) throw new Error(`${name} has ended with ${ended}`);
    isUp = await fetch(`http://127.0.0.1:${port}/health`).then(({ ok }) => ok, () => false);
    if (!isUp) await new Promise(resolve => { setTimeout(resolve, 100); });
  }
  const server = { name, url, extra, stop: async () => { child.kill('SIGTERM'); await once(child, 'exit'); } };
  return { ...server, complete: (/** @type {string} */ text) =>
    ask(server, 'completions', { prompt: text, max_tokens: ANSWER }) };
}
/** @typedef {{name: string, complete: (text: string) => ReturnType<typeof ask>, stop: () => Promise<void>}} Peer
 * @typedef {{url: string, extra: object}} Server */

/** Reads a stream, and returns when its first piece came, when it ended, and how many pieces it had.
 * @param {Server} server @param {string} route @param {object} body */
async function ask({ url, extra }, route, body) {
  const begun = performance.now();
  const response = await fetch(`${url}/${route}`, { method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: 'm', temperature: 0, stream: true, stream_options: { include_usage: true },
      ...extra, ...body }) });
  if (!response.ok) throw new Error(await response.text());
  let first = 0, tokens = 0, rest = '';
  const decoder = new TextDecoder();
  for await (const chunk of /** @type {any} */ (response.body)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines.filter(line => line.startsWith('data: {'))) {
      const { choices: [choice], usage } = JSON.parse(line.slice('data: '.length));
      if (first === 0 && (choice?.text || choice?.delta?.content)) first = performance.now();
      tokens = usage?.completion_tokens ?? tokens;
    }
  }
  return { first: first - begun, firstAt: first, end: performance.now(), tokens };
}

/** node-llama-cpp with so many sequences in this process. @param {number} sequences @returns {Promise<Peer>} */
async function startNodeLlama(sequences) {
  const { getLlama, LlamaLogLevel } = await import('node-llama-cpp');
  const engine = await getLlama({ gpu: false, build: 'never', maxThreads: 1, logLevel: LlamaLogLevel.error });
  const loaded = await engine.loadModel({ modelPath: model });
  const context = await loaded.createContext({ sequences, contextSize: CONTEXT, threads: 1 });
  return {
    name: 'node-llama-cpp',
    async complete(text) {
      const begun = performance.now(), sequence = context.getSequence();
      let firstAt = 0, tokens = 0;
      const answer = sequence.evaluate(loaded.tokenize(text), { temperature: 0, yieldEogToken: true });
      for await (const _ of answer) {
        if (++tokens === 1) firstAt = performance.now();
        if (tokens === ANSWER) break;
      }
      await sequence.dispose();
      return { first: firstAt - begun, firstAt, end: performance.now(), tokens };
    },
    stop: () => engine.dispose(),
  };
}

/** Another prompt each time, so that nothing is cached. */
let next = 0;
const prompt = () => text.slice(next += 37).slice(0, 850);

/** @param {Peer} peer @param {number} n */
async function together(peer, n) {
  const start = performance.now();
  const all = await Promise.all(Array.from({ length: n }, () => peer.complete(prompt())));
  const end = Math.max(...all.map(one => one.end)), last = Math.max(...all.map(({ firstAt }) => firstAt));
  const tokens = all.reduce((sum, one) => sum + one.tokens, 0);
  if (tokens !== n * ANSWER) throw new Error(`${peer.name}: ${tokens} tokens`);
  return { whole: 1000 * tokens / (end - start), decode: 1000 * n * (ANSWER - 1) / (end - last) };
}

/** Milliseconds to the first token with a new system message, and with a known one. @param {Server} server */
async function cached(server) {
  const system = prompt() + prompt() + prompt() + prompt() + prompt();
  const chat = (/** @type {string} */ question) => ask(server, 'chat/completions', {
    messages: [{ role: 'system', content: system }, { role: 'user', content: question }], max_tokens: 4,
  });
  const anew = await chat('What is free software?'), again = await chat('Who may copy this?');
  return { anew: anew.first, again: again.first };
}

const most = Math.max(...counts), servers = [
  await start('plumb serve', process.execPath, [path('web/cli/main.mjs'), 'serve', `m=${model}`, '--port', '18100',
    '--threads', '1', '--parallel', String(Math.min(most, 16)), '--ctx', String(CONTEXT), '--log', 'none'], 18100,
  { logit_bias: { 0: -100, 2: -100 } }),
  ...llama ? [await start('llama-server', llama, ['-m', model, '--port', '18101', '-t', '1', '-tb', '1', '-np',
    String(most), '-c', String(CONTEXT * most), '-fa', 'off', '-ctk', 'f32', '-ctv', 'f32',
    '--no-webui'], 18101, { ignore_eos: true })] : [],
];
/** @type {Peer[]} */
const peers = [...servers, ...others['node-llama-cpp'] ? [await startNodeLlama(most)] : []];
for (const peer of peers) await together(peer, 1);
console.log('| streams | peer | tokens/s | after the prompts |\n| ---: | --- | ---: | ---: |');
for (const n of counts) {
  /** @type {Map<Peer, {whole: number, decode: number}[]>} */
  const results = new Map(peers.map(peer => [peer, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const peer of peers) results.get(peer)?.push(await together(peer, n));
  }
  for (const [{ name }, all] of results) {
    console.log(`| ${n} | ${name} | ${median(all.map(one => one.whole)).toFixed(1)} | ${
      median(all.map(one => one.decode)).toFixed(1)} |`);
  }
}
console.log('\n| time to the first token, ms | new system message | known | share |\n| --- | ---: | ---: | ---: |');
for (const server of servers) {
  const all = [];
  for (let round = 0; round < 5; round++) all.push(await cached(server));
  const [anew, again] = [median(all.map(one => one.anew)), median(all.map(one => one.again))];
  console.log(`| ${server.name} | ${anew.toFixed(0)} | ${again.toFixed(0)} | ${(again / anew).toFixed(3)} |`);
}
const metrics = await (await fetch('http://127.0.0.1:18100/metrics')).text();
console.log(`\nthe event loop of plumb serve, in seconds:\n${metrics.split('\n')
  .filter(line => line.startsWith('plumb_event_loop_delay_seconds{')).join('\n')}`);
for (const peer of peers) await peer.stop();

const one = await Plumb.load(model, { threads: 1, contextLength: CONTEXT }), session = await one.session();
const ids = (await one.tokenize(text)).subarray(0, 2000), computed = [], restored = [];
for (let round = 0; round < 3; round++) {
  await session.rewind();
  let start = performance.now();
  await session.feed(ids);
  computed.push(ms(start));
  const saved = await session.save();
  await session.rewind();
  start = performance.now();
  await session.restore(saved);
  restored.push(ms(start));
}
console.log(`\n2,000 tokens: computed in ${median(computed).toFixed(0)} ms, restored in ${
  median(restored).toFixed(1)} ms, ${(median(computed) / median(restored)).toFixed(0)} times as fast`);
await one.close();
