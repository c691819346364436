/**
 * `node tests/bench/speculation.mjs [--model MODEL] [--threads 1,2] [--kinds edit,copy,chat] [--rounds N] [--tokens N]
 * [--temperature T] [--cpu]`: how much faster answers are decoded when tokens are computed ahead (`speculate`).
 *
 * Three kinds of answers: a file with a change, which repeats most of its prompt; a text that is copied; and chat,
 * whose answers repeat little.  Each answer is decoded without and with speculation in turn, and must have the same
 * text.  Its time is the median of its rounds.  A ratio is the time without speculation by the time with it, of all
 * answers of a kind together; the table also has the worst and the best ratio of one answer, and what became of the
 * drafts.  --cpu counts the time of the processor instead of that of the clock, of one thread, for a machine on which
 * other programs run.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Plumb } from '../../web/node/index.js';
import { median } from './median.mjs';

const { values } = parseArgs({ options: {
  model: { type: 'string', default: fileURLToPath(new URL('../../models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf',
    import.meta.url)) },
  threads: { type: 'string', default: '1,2' }, kinds: { type: 'string', default: 'edit,copy,chat' },
  rounds: { type: 'string', default: '3' }, tokens: { type: 'string', default: '200' },
  temperature: { type: 'string', default: '0' }, cpu: { type: 'boolean', default: false },
} });

const file = (/** @type {string} */ path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const code = (/** @type {string} */ request, /** @type {string} */ path) =>
  `${request} Answer with the whole file in a code block, and nothing else.\n\n\`\`\`js\n${file(path)}\`\`\``;
const licence = file('LICENSE');

/** @type {Record<string, string[]>} */
const PROMPTS = {
  edit: [
    code('Rename the function median to middle.', 'tests/bench/median.mjs'),
    code('Rename the class StopFilter to EndFilter.', 'web/engine/stop.js'),
    code('Add a constant MOST = 4 at the top, and use it where 4 is written.', 'web/base/distance.js'),
    code('Rename the parameter "platform" to "host" everywhere.', 'web/node/places.js'),
  ],
  copy: [
    `Repeat this text word for word:\n\n${licence}`,
    `Which conditions does this licence have? Quote them word for word.\n\n${licence}`,
    `Write these lines again, each with its number in front of it:\n\n${licence.split('\n').slice(4, 13).join('\n')}`,
  ],
  chat: [
    'Why is the sky blue?',
    'Write a short story about a lighthouse keeper and a whale.',
    'How do I boil an egg? List the steps.',
    'What is the difference between a process and a thread?',
  ],
};

const rounds = Number(values.rounds);
console.log('| threads | answers | tokens | speculation, times as fast | worst | best | drafted | accepted |\n'
  + '| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |');
for (const threads of values.threads.split(',').map(Number)) {
  const model = await Plumb.load(values.model, { threads, contextLength: 4096, worker: !values.cpu });
  /** @param {string} prompt @param {'lookup' | false} speculate */
  const answer = async (prompt, speculate) => {
    let used = process.cpuUsage(), isFirst = true;
    const text = await model.generate([{ role: 'user', content: prompt }], {
      speculate, temperature: Number(values.temperature), seed: 1, maxTokens: Number(values.tokens),
      onToken() {
        if (isFirst) used = process.cpuUsage();
        isFirst = false;
      },
    });
    const stats = /** @type {import('../../web/index.js').Stats} */ (model.lastStats);
    return { text, ...stats, seconds: values.cpu ? process.cpuUsage(used).user * 1e-6 : stats.decodeSeconds };
  };
  await answer('Count to thirty.', false);   // the module's fast code
  for (const kind of values.kinds.split(',')) {
    /** The seconds of each answer in each round. @type {{plain: number[], ahead: number[]}[]} */
    const times = PROMPTS[kind].map(() => ({ plain: [], ahead: [] }));
    let tokens = 0, drafted = 0, accepted = 0;
    for (let round = 0; round < rounds; round++) {
      for (const [i, prompt] of PROMPTS[kind].entries()) {
        const isFirst = (round + i) % 2 === 0;
        const one = await answer(prompt, isFirst ? false : 'lookup');
        const other = await answer(prompt, isFirst ? 'lookup' : false);
        const [plain, ahead] = isFirst ? [one, other] : [other, one];
        if (plain.text !== ahead.text) throw new Error(`other text:\n${plain.text}\n----\n${ahead.text}`);
        times[i].plain.push(plain.seconds);
        times[i].ahead.push(ahead.seconds);
        tokens += plain.tokens;
        drafted += ahead.draftedTokens;
        accepted += ahead.acceptedTokens;
        if (process.env.VERBOSE) {
          console.log(kind, i, plain.tokens, (plain.seconds / ahead.seconds).toFixed(2), ahead.draftedTokens,
            ahead.acceptedTokens, (1000 * plain.seconds / plain.tokens).toFixed(1));
        }
      }
    }
    const [plain, ahead] = [times.map(one => median(one.plain)), times.map(one => median(one.ahead))];
    const sum = (/** @type {number[]} */ all) => all.reduce((a, b) => a + b, 0), ratio = sum(plain) / sum(ahead);
    const ratios = plain.map((t, i) => t / ahead[i]);
    console.log(`| ${[threads, kind, tokens / rounds, ratio.toFixed(2), Math.min(...ratios).toFixed(2),
      Math.max(...ratios).toFixed(2), Math.round(drafted / rounds), Math.round(accepted / rounds)].join(' | ')} |`);
  }
  await model.close();
}
