/* The commands run and bench on the package's own engine: with the fastest module, all threads, and URLs.  The flags
 * and the output are those of src/cli/main.c. */
import { Plumb } from '../node/index.js';
import { CommandError, loadOptions, pick, SAMPLING } from './arguments.js';
import { failure, fileText, templateOf } from './input.js';
import { jsonLine, printError, ProgressLine, report, shown, watchOutput } from './terminal.js';

const INTERRUPTED = 130;
/** The default of -n, as in src/cli/main.c. */
const DEFAULT_MAX_TOKENS = 256;

/** Loads a model and shows the progress.
 * @param {string} command @param {string[]} files @param {Record<string, any>} values
 * @param {AbortSignal} [signal] */
export async function load(command, files, values, signal) {
  if (files.length === 0) throw new CommandError(`${command}: MODEL is needed; see plumb ${command} --help`);
  const { given = [], changedLayers: layers } = values;
  if (layers && !given.some((/** @type {any} */ { kind }) => kind === 'control')) {
    throw new CommandError(`${command}: --control-vector-layer-range needs --control-vector; see plumb ${command} `
      + '--help');
  }
  const progress = new ProgressLine();
  const start = performance.now();
  try {
    const chatTemplate = await templateOf(command, values);
    const model = await Plumb.load(files, {
      ...loadOptions(command, values), reserve: command !== 'chat', chatTemplate, onProgress: progress.show, signal,
    });
    const uses = [];
    for (const { source, scale, kind } of given) {
      const loaded = await model.loadAdapter(source, { onProgress: progress.show, signal });
      if (loaded.kind !== kind) {
        const [is, option] = loaded.kind === 'lora' ? ['LoRA', '--lora'] : ['control vector', '--control-vector'];
        throw new CommandError(`${source}: it is a ${is}: use ${option}`, 1);
      }
      uses.push({ adapter: loaded, scale, ...kind === 'control' && layers && { layers } });
    }
    if (uses.length > 0) await model.setAdapters(uses);
    return { model, seconds: (performance.now() - start) / 1000 };
  } finally {
    progress.end();
  }
}

/** The first Ctrl-C aborts; the second ends the process. */
export function interruptible() {
  const stop = new AbortController();
  process.on('SIGINT', () => {
    if (stop.signal.aborted) process.exit(INTERRUPTED);
    stop.abort();
  });
  return stop;
}

/** Runs a command, which Ctrl-C and a closed output stop, and reports what it throws.
 * @param {string} input  what a message about too many tokens names
 * @param {{files: string[], json?: boolean}} about @param {(signal: AbortSignal) => Promise<void>} action
 * @returns {Promise<number>} the exit code */
async function running(input, { files, json }, action) {
  const stop = interruptible();
  const failedOutput = watchOutput(() => stop.abort());
  try {
    await action(stop.signal);
    return failedOutput() ?? (stop.signal.aborted ? INTERRUPTED : 0);
  } catch (error) {
    if (stop.signal.aborted) return failedOutput() ?? INTERRUPTED;
    const isContext = error instanceof Error && 'code' in error && error.code === 'PLUMB_ERROR_CONTEXT';
    return report(error, isContext ? input : files.at(-1) ?? '', json);
  }
}

/** @param {string[]} files @param {Record<string, any>} values  with the whole prompt
 * @returns {Promise<number>} the exit code */
export const run = (files, values) => running('prompt', { files, json: values.json }, async signal => {
  const { raw, system, parseSpecial = false, json, prompt } = values;
  const { tools, constraint } = await inputsOf(values);
  const { model, seconds } = await load('run', files, values, signal);
  if (!raw) noteTemplate(model, files[0], '; use --raw to continue the prompt without a template');
  /** @type {import('../api/plumb.js').Message[]} */
  const messages = [...system === undefined ? [] : [{ role: /** @type {const} */ ('system'), content: system }],
    { role: 'user', content: prompt }];
  const ids = raw ? await model.tokenize(prompt, { parseSpecial }) : undefined;
  if (ids?.length === 0) throw new CommandError('run: the prompt has no tokens', 1);
  let text = '';
  const maxTokens = values.maxTokens ?? DEFAULT_MAX_TOKENS;
  for await (const piece of model.generate(ids ?? messages, {
    ...pick(values, SAMPLING), maxTokens, sinks: values.sinks, signal, ...constraint,
    ...tools && { template: { tools } },
  })) {
    text += piece;
    if (!json) process.stdout.write(shown(process.stdout, piece));
  }
  const stats = /** @type {import('../api/plumb.js').Stats} */ (model.lastStats);
  const { module, threads, contextLength } = await model.info();
  await model.close();
  for (const warning of stats.warnings ?? []) printError(`--json-schema: ${warning}`);
  if (json) {
    const { finishReason, seed, ...numbers } = stats;
    process.stdout.write(jsonLine({
      text, finishReason, stats: { loadSeconds: seconds, ...numbers }, module, threads, seed,
    }));
  } else printStats(stats, { seconds, contextLength, maxTokens }, values);
});

/** Says that a file has no chat template. @param {import('../api/plumb.js').Model} model @param {string} file
 * @param {string} [advice] */
export function noteTemplate(model, file, advice = '') {
  if (model.chatTemplate !== '') return;
  printError(`${file}: the file has no chat template: ChatML is used, as in llama.cpp${advice}`);
  model.chatTemplate = 'chatml';   // or the package would say it again
}

/** What the model is given besides the prompt. @param {Record<string, any>} values */
async function inputsOf(values) {
  const constraint = await constraintOf(values);
  const tools = values.tools === undefined ? undefined : await toolsIn(values.tools);
  return { tools, constraint };
}

/** Ends the answer's line, and prints why it ended and how fast it was.
 * @param {import('../api/plumb.js').Stats} stats
 * @param {{seconds: number, contextLength: number, maxTokens: number}} run  seconds: of the load
 * @param {Record<string, any>} values */
function printStats(stats, { seconds, contextLength, maxTokens }, values) {
  process.stdout.write('\n');
  if (stats.finishReason === 'length' && stats.tokens < maxTokens) {
    printError(`the context of ${contextLength} tokens is full; use --ctx to enlarge it`);
  } else if (stats.finishReason === 'length' && values.maxTokens === undefined) {
    printError(`stopped after ${maxTokens} tokens, the default limit; use -n to raise it`);
  }
  const seed = values.temperature === 0 ? '' : `, seed ${stats.seed}`;
  const steps = Math.round(stats.decodeRate * stats.decodeSeconds);
  const fed = Math.min(stats.tokens, steps + stats.forcedTokens), rate = fed / stats.decodeSeconds || 0;
  const drafts = stats.draftedTokens > 0
    ? `, ${stats.acceptedTokens} of ${stats.draftedTokens} drafted tokens accepted` : '';
  process.stderr.write(`load ${seconds.toFixed(2)} s, prefill ${stats.promptTokens} tokens at ${
    stats.prefillRate.toFixed(1)} tokens/s, decode ${fed} tokens at ${rate.toFixed(1)} tokens/s${drafts}${seed}\n`);
}

/** What the answer must be, as options of generate.
 * @param {Record<string, any>} values @returns {Promise<import('../api/plumb.js').GenerateOptions>} */
async function constraintOf({ grammarFile, gbnf, jsonSchema, regex, noStrict, anyOrder, whitespace }) {
  if ([grammarFile, gbnf, jsonSchema, regex].filter(given => given !== undefined).length > 1) {
    throw new CommandError(
      'run: --grammar, --gbnf, --json-schema and --regex exclude each other; see plumb run --help');
  }
  if (jsonSchema === undefined && (noStrict || anyOrder || whitespace && whitespace !== 'compact')) {
    throw new CommandError('run: --no-strict, --any-order and --whitespace need --json-schema; see plumb run --help');
  }
  if (grammarFile !== undefined) {
    return { grammar: grammarFile.includes('::=') ? grammarFile : await fileText(grammarFile) };
  }
  if (jsonSchema === undefined) return { grammar: gbnf, regex };
  /** @type {import('../answers/constraint.js').SchemaOptions} */
  const schemaOptions = { strict: !noStrict, order: anyOrder ? 'any' : 'schema', whitespace };
  const isText = /^[ \t\r\n]*\{/.test(jsonSchema);
  const text = isText ? jsonSchema : await fileText(jsonSchema);
  return { schema: parseJson(isText ? '--json-schema' : jsonSchema, text), schemaOptions };
}

/** @param {string} where @param {string} text */
function parseJson(where, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw failure(where, 'PLUMB_ERROR_ARGUMENT', error);
  }
}

/** Reads the tools of --tools. @param {string} path */
async function toolsIn(path) {
  const tools = parseJson(path, await fileText(path));
  if (Array.isArray(tools)) return tools;
  throw failure(path, 'PLUMB_ERROR_ARGUMENT', 'expected a JSON array of tools');
}

/** @param {string[]} files @param {Record<string, any>} values @returns {Promise<number>} the exit code */
export const bench = (files, values) => running('bench', { files, json: values.json }, async signal => {
  const { promptTokens = 128, decodeTokens = 64, repetitions = 3, json } = values;
  const { model, seconds } = await load('bench', files, values, signal);
  const info = await model.info();
  const ids = Int32Array.from({ length: Math.max(promptTokens, decodeTokens) },
    (_, i) => (Math.imul(i, 2654435761) >>> 0) % info.vocabulary);   // arbitrary tokens
  /** Returns tokens per second for n tokens fed to an empty context, step tokens at a time.
   * @param {number} n @param {number} step */
  const measure = async (n, step) => {
    await model.rewind();
    const start = performance.now();
    for (let at = 0; at < n; at += step) await model.feed(ids.subarray(at, Math.min(at + step, n)), { signal });
    return n / (performance.now() - start) * 1000;
  };
  /** @type {{prefill: number[], decode: number[]}} */
  const speeds = { prefill: [], decode: [] };
  for (let i = 0; i <= repetitions; i++) {   // the first one is a warm-up and is not reported
    const prefill = await measure(promptTokens, promptTokens), decode = await measure(decodeTokens, 1);
    if (i === 0) continue;
    speeds.prefill.push(prefill);
    speeds.decode.push(decode);
  }
  await model.close();
  const { architecture, parameters, weightBytes, sessionBytes, kernels, precision, threads, contextLength } = info;
  const { batch, module } = info;
  if (json) {
    const rounded = (/** @type {number} */ n) => Number(n.toFixed(3));
    process.stdout.write(jsonLine({
      architecture, parameters, weight_bytes: weightBytes, session_bytes: sessionBytes, kernels, precision, threads,
      context: contextLength, batch, module, load_seconds: rounded(seconds), prefill_tokens: promptTokens,
      decode_tokens: decodeTokens, prefill: speeds.prefill.map(rounded), decode: speeds.decode.map(rounded),
    }));
    return;
  }
  const mb = (/** @type {number} */ n) => (n / 1e6).toFixed(1);
  process.stdout.write(`${architecture}, ${mb(parameters)} M parameters, ${mb(weightBytes)} MB of weights, ${
    mb(sessionBytes)} MB for the session\n`
    + `kernels ${kernels}, ${precision}, context ${contextLength}, batch ${batch}, ${
      threads} thread${threads === 1 ? '' : 's'}, loaded in ${seconds.toFixed(2)} s\n`);
  printSpeed('prefill', promptTokens, speeds.prefill);
  printSpeed('decode', decodeTokens, speeds.decode);
});

/** @param {string} name @param {number} n  tokens @param {number[]} speeds */
function printSpeed(name, n, speeds) {
  const sorted = speeds.toSorted((a, b) => a - b), count = sorted.length;
  const median = (sorted[(count - 1) >> 1] + sorted[count >> 1]) / 2;
  const [low, middle, high] = [sorted[0], median, sorted[count - 1]].map(speed => speed.toFixed(2).padStart(8));
  process.stdout.write(`${name.padEnd(8)} ${String(n).padStart(5)} tokens  min ${low}  median ${middle}  max ${
    high} tokens/s\n`);
}
