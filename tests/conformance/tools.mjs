/**
 * `node tests/conformance/tools.mjs [--out FILE] [--model FILE] [--known FILE]` after `make wasm`: 50 prompts with 1
 * to 8 tools, each with tool_choice auto and required, answered by Qwen2.5-Coder-1.5B-Instruct (python3 models/fetch.py
 * by its name), a model that knows tools, but writes many calls without their tags.  40 prompts ask for something that
 * a tool does, and 10 for something that no tool does.  Three things are checked of every call: it parses, names a tool
 * of the prompt, and its arguments fit the tool's JSON Schema (by ajv).  Answers are sampled at the temperature below,
 * with the seeds 1 to 50, and have at most 80 tokens, so that a call can be cut off; such an answer is counted apart.
 * --known: a file with lines of an interrupted run (its standard error); their answers are not made again.
 *
 * `node tests/conformance/tools.mjs --llama build/conformance/logits` compares with llama.cpp instead (the program is
 * made by build.sh): the first tokens of its most likely answer to each of the 10, and of plumb's without a grammar.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { Plumb } from '../../web/node/index.js';

const { values } = parseArgs({ options: {
  out: { type: 'string', default: 'bench/results/tools.json' },
  model: { type: 'string', default: 'models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf' },
  known: { type: 'string' },
  llama: { type: 'string' },
} });
const TEMPERATURE = 0.8, MAX_TOKENS = 80, N_GREEDY = 24;

const text = { type: 'string' }, whole = { type: 'integer' };
const tool = (name, description, properties, required = Object.keys(properties)) => ({
  type: 'function', function: { name, description, parameters: { type: 'object', properties, required } },
});
const TOOLS = [
  tool('get_weather', 'Get the current weather of a city', { city: text,
    unit: { enum: ['celsius', 'fahrenheit'] } }, ['city']),
  tool('add_event', 'Add an event to the calendar', { title: { type: 'string', minLength: 1, maxLength: 40 },
    date: { type: 'string', format: 'date' }, minutes: { type: 'integer', minimum: 5, maximum: 480 } },
  ['title', 'date']),
  tool('convert', 'Convert an amount of money', { amount: { type: 'number', minimum: 0 },
    from: { type: 'string', pattern: '^[A-Z]{3}$' }, to: { type: 'string', pattern: '^[A-Z]{3}$' } }),
  tool('send_email', 'Send an email', { to: { type: 'array', items: { type: 'string', format: 'email' }, minItems: 1,
    maxItems: 3 }, subject: text, urgent: { type: 'boolean' } }, ['to', 'subject']),
  tool('set_light', 'Switch a light or change it', { room: { enum: ['kitchen', 'bedroom', 'office', 'hall'] },
    on: { type: 'boolean' }, brightness: { type: 'integer', minimum: 0, maximum: 100 } }, ['room', 'on']),
  tool('order', 'Order things from the shop', { items: { type: 'array', minItems: 1, maxItems: 4, items: {
    type: 'object', properties: { name: text, count: { type: 'integer', minimum: 1, maximum: 99 } },
    required: ['name', 'count'], additionalProperties: false } } }),
  tool('play_music', 'Play music', { artist: text, song: { type: ['string', 'null'] }, volume: { type: 'integer',
    minimum: 0, maximum: 11 } }, ['artist']),
  tool('now', 'Get the current time', {}),
];
/** The name of the tool that fits, or undefined, and the question. */
const PROMPTS = /** @type {[string | undefined, string][]} */ ([
  ['get_weather', 'What is the weather in Paris, in celsius?'],
  ['get_weather', 'Is it raining in Tokyo right now?'],
  ['get_weather', 'How warm is it in Nairobi? Use fahrenheit.'],
  ['get_weather', 'Do I need a coat in Oslo today?'],
  ['get_weather', 'Check the weather for São Paulo.'],
  ['add_event', 'Put "Dentist" into my calendar for 2026-03-14.'],
  ['add_event', 'Schedule a meeting with Ada on 2027-01-05, for 45 minutes.'],
  ['add_event', 'Remind me of the concert on 2026-12-24.'],
  ['add_event', 'Block two hours for writing on 2026-06-01.'],
  ['add_event', 'Add my flight to Lisbon on 2026-08-19 to the calendar.'],
  ['convert', 'How much is 100 US dollars in euros?'],
  ['convert', 'Convert 2500 yen to Swiss francs.'],
  ['convert', 'I have 19.99 GBP. What is that in USD?'],
  ['convert', 'Change 1,000,000 Indian rupees to dollars.'],
  ['convert', 'What are 7.5 EUR worth in JPY?'],
  ['send_email', 'Write an email to bob@example.com with the subject "Lunch".'],
  ['send_email', 'Send an urgent email to ops@example.org: the server is down.'],
  ['send_email', 'Mail grace@example.com and alan@example.com that the paper is ready.'],
  ['send_email', 'Email carol@example.net the subject "Invoice 42". It is not urgent.'],
  ['send_email', 'Tell dan@example.com by email that I am late.'],
  ['set_light', 'Turn on the light in the kitchen.'],
  ['set_light', 'Switch off the bedroom light.'],
  ['set_light', 'Make the office light half as bright as it can be.'],
  ['set_light', 'Lights on in the hall, at 20 percent.'],
  ['set_light', 'It is too dark in the kitchen.'],
  ['order', 'Order three pens and one notebook.'],
  ['order', 'Buy 12 eggs and 2 bottles of milk.'],
  ['order', 'I need a new keyboard. Please order one.'],
  ['order', 'Get me 5 "AA" batteries, 1 lamp and 2 bulbs.'],
  ['order', 'Please order ten apples.'],
  ['play_music', 'Play something by Nina Simone.'],
  ['play_music', 'Play "Heroes" by David Bowie, loud.'],
  ['play_music', 'Put on Björk, quietly.'],
  ['play_music', 'I want to hear Miles Davis.'],
  ['play_music', 'Play "Imagine" by John Lennon at volume 3.'],
  ['now', 'What time is it?'],
  ['now', 'Tell me the current time.'],
  ['now', 'How late is it now?'],
  ['get_weather', 'Compare the weather in Rome and in Athens.'],
  ['set_light', 'Switch off the lights in the kitchen and in the hall.'],
  [undefined, 'Hello! How are you?'],
  [undefined, 'What is 2 + 2?'],
  [undefined, 'Write a haiku about autumn.'],
  [undefined, 'Who wrote "Faust"?'],
  [undefined, 'Translate "good morning" to French.'],
  [undefined, 'What does the word "recursion" mean?'],
  [undefined, 'Write a Python function that reverses a string.'],
  [undefined, 'Which is larger, the sun or the moon?'],
  [undefined, 'Thank you, that was all.'],
  [undefined, 'Name three prime numbers.'],
]);

/** 1 to 8 tools, among them the one that fits. */
function toolsFor(fits, i) {
  const all = fits === undefined ? TOOLS.filter(one => one.function.name !== 'now') : TOOLS;
  const rotated = all.map((_, k) => all[(k + 3 * i) % all.length]);
  const first = rotated.filter(one => one.function.name === fits);
  return [...first, ...rotated.filter(one => one.function.name !== fits)].slice(0, 1 + i % 8)
    .sort((a, b) => rotated.indexOf(a) - rotated.indexOf(b));
}

/** The most likely answer of llama.cpp. @param {string} program  logits.c @param {Int32Array} ids  the prompt */
function llamaAnswer(program, ids) {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-tools-')), [prompt, out] = ['ids', 'out'].map(f => join(folder, f));
  writeFileSync(prompt, ids.join(' '));
  execFileSync(program, ['-i', prompt, '-g', String(N_GREEDY), '-s', '0', '-t', '1', values.model, '-', out],
    { stdio: 'ignore' });
  const bytes = readFileSync(out), word = (/** @type {number} */ i) => bytes.readUInt32LE(8 + 4 * i);
  rmSync(folder, { recursive: true });
  // Behind six words and the tokens: for each choice the logsumexp, its id and its logit.
  return Int32Array.from({ length: N_GREEDY }, (_, i) => word(6 + word(1) + 3 * i + 1));
}

/** @param {string} program */
async function compareWithLlama(program) {
  let n = 0, nSame = 0;
  for (const [i, [fits, question]] of PROMPTS.entries()) {
    if (fits !== undefined) continue;
    const ids = await model.tokenizeChat([{ role: 'user', content: question }], { tools: toolsFor(fits, i) });
    const theirs = (await model.detokenize(llamaAnswer(program, ids), { special: true })).split('<|im_end|>')[0];
    let ours = '';
    for await (const piece of model.generate(ids, { temperature: 0, maxTokens: N_GREEDY })) ours += piece;
    n++;
    nSame += Number(ours === theirs);
    console.log(JSON.stringify({ question, same: ours === theirs, llama: theirs, ...ours !== theirs && { ours } }));
  }
  console.log(`${nSame} of ${n} answers are llama.cpp's`);
}

const ajv = /** @type {any} */ (addFormats)(new Ajv({ strict: false }));
const model = await Plumb.load(values.model, { contextLength: 2048 });
if (values.llama) {
  await compareWithLlama(values.llama);
  await model.close();
  process.exit();
}
const known = values.known ? readFileSync(values.known, 'utf8').trim().split('\n').map(line => JSON.parse(line)) : [];
const answers = [];
for (const [i, [fits, question]] of PROMPTS.entries()) {
  const tools = toolsFor(fits, i);
  for (const tool_choice of /** @type {const} */ (['auto', 'required'])) {
    const made = known.find(one => one.question === question && one.tool_choice === tool_choice);
    if (made) {
      answers.push(made);
      continue;
    }
    const { choices: [{ message, finish_reason }], usage } = await model.chat.completions.create({
      messages: [{ role: 'user', content: question }], tools, tool_choice, seed: i + 1, temperature: TEMPERATURE,
      max_tokens: MAX_TOKENS,
    });
    const calls = (message.tool_calls ?? []).map(({ function: { name, arguments: given } }) => {
      const found = tools.find(one => one.function.name === name);
      let problem = found ? undefined : 'no such tool';
      try {
        const value = JSON.parse(given);
        if (found && !ajv.validate(found.function.parameters, value)) problem = ajv.errorsText();
      } catch (error) {
        problem = String(error);
      }
      return { name, arguments: given, ...problem !== undefined && { problem } };
    });
    const answer = { question, fits: fits ?? null, tools: tools.length, tool_choice, finish_reason, calls,
      content: message.content, tokens: usage.completion_tokens };
    answers.push(answer);
    console.error(JSON.stringify(answer));
  }
}
await model.close();

const count = (/** @type {(answer: typeof answers[0]) => boolean} */ is, choice) =>
  answers.filter(answer => answer.tool_choice === choice && is(answer)).length;
const calls = answers.flatMap(answer => answer.calls);
const counts = {
  answers: answers.length, calls: calls.length, bad_calls: calls.filter(({ problem }) => problem !== undefined).length,
  ...Object.fromEntries(['auto', 'required'].map(choice => [choice, {
    with_calls: count(answer => answer.calls.length > 0, choice),
    with_the_fitting_tool: count(({ fits, calls: all }) => all.some(({ name }) => name === fits), choice),
    where_a_tool_fits: count(({ fits }) => fits !== null, choice),
    text_where_none_fits: count(({ fits, calls: all }) => fits === null && all.length === 0, choice),
    where_none_fits: count(({ fits }) => fits === null, choice),
    cut_off: count(({ finish_reason }) => finish_reason === 'length', choice),
    cut_off_in_a_call: count(({ finish_reason, calls: all, content }) => finish_reason === 'length'
      && all.length === 0 && (content ?? '').includes('"name"'), choice),
  }])),
};
const { version } = JSON.parse(readFileSync(new URL('../../web/package.json', import.meta.url), 'utf8'));
writeFileSync(values.out, `${JSON.stringify({
  command: 'node tests/conformance/tools.mjs', version, date: new Date().toISOString().slice(0, 10),
  model: values.model.split('/').at(-1), temperature: TEMPERATURE, max_tokens: MAX_TOKENS, counts, answers,
}, null, 1)}\n`);
console.log(JSON.stringify(counts, null, 1));
process.exitCode = counts.bad_calls > 0 ? 1 : 0;
