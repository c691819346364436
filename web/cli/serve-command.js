/* The command serve: models on this machine behind a port, with the APIs of OpenAI's service and of Ollama. */
import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { basename, dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { reasonOf } from '../base/errors.js';
import { isRemote } from '../loader/resolve.js';
import { splitOf } from '../loader/split.js';
import { createHandler } from '../node/fetch.js';
import { places } from '../node/places.js';
import { startServer } from '../node/server.js';
import { isPageFile } from '../site/page-files.mjs';
import { createSite } from '../site/serve.mjs';
import { CommandError, loadOptions } from './arguments.js';
import { templateOf } from './input.js';
import { kept } from './model-commands.js';
import { jsonLine, printError, shown } from './terminal.js';

export const HELP = `usage: plumb serve [[NAME=]MODEL...] [options]

Answers requests on a port as OpenAI's service and Ollama do, and serves the
chat page. A model is loaded when a request first names it: by NAME, or by the
name of its file without .gguf. MODEL is as in plumb run; default: the models
that are on this machine, as plumb list names them.

  --host NAME           the address to listen on; default 127.0.0.1, which only
                        this machine reaches; 0.0.0.0: every machine
  --port N              default 11434, Ollama's; 0: any free one
  --api-key KEY         requests must send "Authorization: Bearer KEY"; default:
                        $PLUMB_API_KEY, or none
  --parallel N          requests that are answered at the same time, 1 to 16;
                        default 4
  --queue N             requests that wait; more are refused with status 429;
                        default 64
  --memory SIZE         what all loaded models may take together, such as 6G;
                        default: half of this machine's memory
  --idle SECONDS        closes a model that nobody used for so long; default:
                        never
  --embeddings          answers only requests for embeddings, reranking, tokens
  --pull                lets clients download models of the hub (/api/pull)
  --cors ORIGIN         lets pages of another site use the server; * means all
  --name NAME           a host name that requests may use, such as a proxy's
  --log text|json|none  one line for each request, on standard error
  --grace SECONDS       how long Ctrl-C waits for answers; default 10; a second
                        Ctrl-C ends at once
  --ctx, --threads, --precision, --kv-type, --snapshots, --speculate,
  --model-draft, --draft-max, --draft-min, --chat-template,
  --chat-template-file, --model   as in plumb run

Paths: /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings,
/v1/decisions, /v1/systemone, /v1/models, /rerank, /tokenize, /detokenize,
/health, /metrics (Prometheus); of Ollama /api/chat, /api/generate, /api/embed,
/api/tags, /api/show, /api/ps, /api/pull.
`;

const PORT = 11434, GRACE = 10;

/** The models by name. @param {string[]} words */
async function modelsOf(words) {
  /** @type {Record<string, string>} */
  const models = words.length > 0 ? Object.create(null) : await kept();
  if (words.length === 0 && Object.keys(models).length === 0) {
    throw new CommandError('serve: MODEL is needed, or a model on this machine: plumb pull NAME downloads one');
  }
  for (const word of words) {
    const [, given, source] = /^([\w.:-]+)=(.+)$/s.exec(word) ?? [];
    const isFile = /^https?:/i.test(word) || !isRemote(word, places);
    if (!isRemote(source ?? word, places) && !existsSync(source ?? word)) {
      throw new CommandError(`serve: ${source ?? word}: there is no such file`);
    }
    const name = given ?? (isFile ? splitOf(basename(word)).stem : word);
    if (name in models) throw new CommandError(`serve: two models have the name ${name}; give one as NAME=MODEL`);
    models[name] = source ?? word;
  }
  return models;
}

/** Answers requests for the chat page, and for the files of models that it loads: the page opens with the first.
 * @param {Record<string, string>} models @param {string[]} names  of this host
 * @returns {Promise<import('node:http').RequestListener>} */
async function pageOf(models, names) {
  const paths = Object.values(models).filter(source => !/^[a-z][\w+.-]+:/i.test(source));
  /** @type {Map<string, import('node:http').RequestListener>} */
  const files = new Map(await Promise.all(paths.map(async path => /** @type {const} */ ([
    `/models/${encodeURIComponent(basename(path))}`,
    await createSite({ root: dirname(resolve(path)), names, serves: name => name === basename(path),
      linked: [dirname(await realpath(path).catch(() => path))] }),   // a link may lead to it
  ]))));
  const [first] = files.keys(), page = await createSite({
    root: fileURLToPath(new URL('..', import.meta.url)), base: '/web', serves: isPageFile, names,
    home: `/chat/${first ? `?model=${encodeURIComponent(first)}` : ''}`,
  });
  return (request, response) => {
    const { url = '' } = request, file = files.get(url);
    request.url = file ? url.slice('/models'.length) : url === '/' ? url : /^\/web(\/.*)$/s.exec(url)?.[1] ?? '/-';
    (file ?? page)(request, response);
  };
}

/** @param {string[]} words @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function serve(words, values) {
  const { host = '127.0.0.1', port = PORT, names = [], grace = GRACE, log = 'text' } = values;
  const models = await modelsOf(words);
  const handler = createHandler({
    models, load: { ...loadOptions('serve', values), chatTemplate: await templateOf('serve', values) },
    memory: values.memory ?? Math.floor(totalmem() / 2), idle: values.idle, pull: values.pull,
    parallel: values.parallel, queue: values.queue, only: values.embeddings ? 'embeddings' : undefined,
  });
  const apiKey = values.apiKey ?? (process.env.PLUMB_API_KEY || undefined);
  const page = await pageOf(models, [host, ...names]);
  const server = await startServer(handler, {
    host, port, names, apiKey, origins: values.origins, page, log: line => write(log, line),
  }).catch(error => {
    const isTaken = error?.code === 'EADDRINUSE';
    throw new CommandError(`serve: ${host}:${port}: ${isTaken ? 'another program uses this port (Ollama?); --port N '
      + 'chooses another one' : reasonOf(error)}`, 1);
  });
  process.stdout.write(`plumb serves ${Object.keys(models).join(', ')} at ${server.url} (Ctrl-C stops it)\n`);
  if (host !== '127.0.0.1' && host !== 'localhost' && host !== '::1' && apiKey === undefined) {
    printError(`every machine that reaches ${server.url} can use it; --api-key KEY asks for a key`);
  }
  await new Promise(resolve => {
    let isStopping = false;
    for (const signal of ['SIGINT', 'SIGTERM']) {
      process.on(signal, () => {
        if (isStopping) process.exit(130);
        isStopping = true;
        printError(`${signal}: answers that are running have ${grace} s to end`);
        server.close(grace).then(resolve);
      });
    }
  });
  return 0;
}

/** Asks a server which models are loaded.
 * @param {string[]} words @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export async function ps(words, { host = '127.0.0.1', port = PORT, apiKey = process.env.PLUMB_API_KEY, json }) {
  if (words.length > 0) throw new CommandError('ps: expected no words; see plumb ps --help');
  const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}/api/ps`;
  const headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : undefined;
  const response = await fetch(url, { headers }).catch(error => {
    throw new CommandError(`ps: ${url}: ${reasonOf(error)}; is plumb serve running?`, 1);
  });
  if (!response.ok) throw new CommandError(`ps: ${url}: the server answered ${response.status}`, 1);
  const { models } = /** @type {{models: {name: string, size: number, context_length: number}[]}} */ (
    await response.json());
  for (const model of models) {
    process.stdout.write(json ? jsonLine(model) : shown(process.stdout,
      `${(model.size / 1e6).toFixed(1).padStart(9)} MB  ${model.context_length} tokens  ${model.name}\n`));
  }
  if (models.length === 0 && !json) printError(`ps: no model is loaded at ${url}`);
  return 0;
}

/** @param {'text' | 'json' | 'none'} kind @param {import('../node/server.js').LogLine} line */
function write(kind, line) {
  if (kind === 'json') process.stderr.write(jsonLine(line));
  if (kind !== 'text') return;
  const { time, method, path, status, seconds, error } = line;
  const text = `${time.slice(11, 19)} ${method} ${path} ${status} ${seconds} s${error ? ` ${error}` : ''}`;
  process.stderr.write(`${shown(process.stderr, text).replaceAll('\n', ' ')}\n`);
}
