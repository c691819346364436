/* Answers that obey a JSON Schema: the reader writes one, and a small model, which is loaded for the first answer,
 * fills it in. */
import { JsonTree } from '../../chat/conversation/json-tree.js';
import { announce, dotted, element, make } from '../../chat/dom.js';
import { explain } from '../../chat/explain.js';
import { OFFERED } from '../../chat/models/offered.js';
import { SecondModel } from '../../chat/models/second-model.js';
import { isolate, keepPage } from '../../chat/offline.js';
import { problemsOf } from '../../chat/schema-check.js';
import { SAMPLES } from './samples.js';

/** The models that can answer. */
const MODELS = OFFERED.slice(0, 2);
/** Milliseconds after the last key until the schema is checked, and the most tokens of an answer. */
const DEBOUNCE = 300, LONGEST = 600;

const schema = element('schema', 'textarea'), prompt = element('prompt', 'textarea'), ask = element('ask', 'button');
const select = element('answer-model', 'select'), stop = element('stop', 'button'), box = element('answer-json', 'div');
const figures = element('answer-figures', 'p'), problem = element('schema-problem', 'p');

/** @type {AbortController | undefined} */
let running;
let checking = new AbortController();
const second = new SecondModel();

/** Says what is wrong with the schema. */
async function check() {
  checking.abort();
  const { signal } = checking = new AbortController();
  const problems = await problemsOf(schema.value, signal).catch(error => signal.aborted ? [] : [explain(error).title]);
  if (signal.aborted) return;
  problem.textContent = problems.join('\n');
  ask.disabled = problems.length > 0;
}

async function answer() {
  running?.abort();
  const controller = running = new AbortController(), { signal } = controller;
  box.replaceChildren();
  figures.textContent = '';
  stop.hidden = false;
  try {
    const wanted = MODELS.find(({ url }) => url === select.value) ?? MODELS[0];
    const model = await second.load(wanted, { anchor: box, signal });
    const chat = model.chat(), tree = new JsonTree(box);
    let text = '';
    figures.textContent = 'Reading the schema';
    for await (const piece of chat.send(prompt.value, { schema: JSON.parse(schema.value), showSchema: true,
      temperature: 0, maxTokens: LONGEST, signal })) {
      text += piece;
      tree.show(text);
      figures.textContent = '';
    }
    if (controller !== running) return;
    const { tokens = 0, forcedTokens = 0, decodeRate = 0, finishReason } = chat.lastStats ?? {};
    figures.textContent = dotted([finishReason === 'length' ? `Cut off after ${LONGEST} tokens`
      : finishReason === 'abort' ? 'Stopped' : 'It fits the schema',
    `${tokens} tokens, ${forcedTokens} of which the schema left no choice`, `${decodeRate.toFixed(1)} tokens/s`]);
    announce(finishReason === 'abort' ? 'Stopped' : 'The answer is complete');
  } catch (error) {
    if (controller !== running) return;
    second.failed(error);
    const { title, advice, detail } = explain(error);
    figures.textContent = signal.aborted ? 'Stopped' : dotted([`${title}. ${advice}`, detail]);
  }
  if (controller === running) stop.hidden = true;
}

/** @param {import('./samples.js').Sample} sample */
function choose(sample) {
  schema.value = JSON.stringify(sample.schema, undefined, 2);
  prompt.value = sample.prompt;
  for (const [i, button] of element('samples', 'ul').querySelectorAll('button').entries()) {
    button.setAttribute('aria-pressed', String(SAMPLES[i] === sample));
  }
  void check();
}

element('samples', 'ul').replaceChildren(...SAMPLES.map(sample => make('li', {}, make('button', { type: 'button',
  onclick: () => choose(sample) }, sample.name, make('span', { className: 'figures' }, sample.about)))));
select.replaceChildren(...MODELS.map(({ url, name, size }) =>
  make('option', { value: url }, `${name}, ${size} MB`)));
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
schema.addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(check, DEBOUNCE);
});
element('ask-form', 'form').addEventListener('submit', event => {
  event.preventDefault();
  void answer();
});
stop.addEventListener('click', () => running?.abort());
choose(SAMPLES[0]);
await isolate().catch(() => {});
element('scroll', 'main').inert = false;
void keepPage();
