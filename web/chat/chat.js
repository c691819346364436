/* The chat page: a user of the package like any other.  One model, one conversation, plain text.
 *
 *   ?model=URL   another model than the default one */
import { Plumb, PlumbError } from '../index.js';

const DEFAULT_MODEL = '../../models/SmolLM2-135M-Instruct.Q4_1.gguf';
/** What the makers of SmolLM2 advise for it; a model this small wanders off at higher temperatures. */
const SAMPLING = { temperature: 0.2, topP: 0.9 };
const MAX_TOKENS = 1024;

/** @template {keyof HTMLElementTagNameMap} T @param {string} id @param {T} _tag @returns {HTMLElementTagNameMap[T]} */
const element = (id, _tag) => /** @type {any} */ (document.getElementById(id));
const page = {
  loading: element('loading', 'section'), bar: element('bar', 'progress'), loadingText: element('loading-text', 'p'),
  failure: element('failure', 'section'), welcome: element('welcome', 'section'), log: element('log', 'ol'),
  scroll: element('scroll', 'main'), prompt: element('prompt', 'textarea'), send: element('send', 'button'),
  stop: element('stop', 'button'), status: element('status', 'p'), model: element('model', 'p'),
  fresh: element('fresh', 'button'), file: element('file', 'input'), composer: element('composer', 'form'),
};

/** @type {import('../plumb.js').Model | undefined} */
let model;
/** @type {import('../plumb.js').Message[]} */
let messages = [];
/** Ends the load or the answer that is under way. @type {AbortController | undefined} */
let running;
/** @type {import('../loader/source.js').Source} */
let source = new URLSearchParams(location.search).get('model') ?? DEFAULT_MODEL;

// ---- loading ----

async function load() {
  running?.abort();
  const mine = running = new AbortController();
  const before = model;
  model = undefined;
  startOver();
  show('loading');
  page.model.textContent = '';
  page.bar.removeAttribute('value');
  page.loadingText.textContent = 'Connecting';
  await before?.close();
  try {
    const loaded = await Plumb.load(source, { signal: mine.signal, onProgress: showProgress });
    if (mine.signal.aborted) return void loaded.close();
    model = loaded;
    running = undefined;
    page.model.textContent = nameOf(loaded.metadata);
    element('name', 'span').textContent = page.model.textContent || 'The model';
    show('ready');
    page.prompt.focus();
  } catch (error) {
    if (running === mine) showFailure(error);
  }
}

/** @param {import('../loader/progress.js').Progress} progress */
function showProgress({ phase, bytes, total, rate, secondsLeft }) {
  if (phase !== 'load') {
    page.bar.removeAttribute('value');
    page.loadingText.textContent = `${megabytes(bytes)} MB loaded, getting ready`;
    return;
  }
  if (total) page.bar.value = bytes / total;
  const parts = [
    total ? `${megabytes(bytes)} of ${megabytes(total)} MB` : `${megabytes(bytes)} MB`,
    `${megabytes(rate)} MB/s`,
    secondsLeft === undefined ? '' : `${duration(secondsLeft)} left`,
  ];
  page.loadingText.textContent = parts.filter(Boolean).join('  ·  ');
}

/** @param {unknown} error */
function showFailure(error) {
  running = undefined;
  const { title, advice } = explain(error);
  element('failure-title', 'h2').textContent = title;
  element('failure-advice', 'p').textContent = advice;
  element('failure-detail', 'p').textContent = error instanceof PlumbError ? `${error.message} (${error.code})` : '';
  show('failed');
  element('retry', 'button').focus();
}

/** What happened, and what to do. @param {unknown} error @returns {{title: string, advice: string}} */
function explain(error) {
  if (error instanceof DOMException && error.name === 'AbortError') {
    return { title: 'Loading was cancelled', advice: 'Try again, or open a GGUF file of your own.' };
  }
  const code = error instanceof PlumbError ? error.code : '';
  const status = error instanceof PlumbError ? error.details.status : undefined;
  if (status === 404) {
    return { title: 'The model is not there', advice: 'Check its address, or open a GGUF file from your computer.' };
  }
  if (code === 'PLUMB_ERROR_IO') {
    return { title: 'The model did not arrive', advice: 'Check the connection and the server, then try again.' };
  }
  if (code === 'PLUMB_ERROR_MEMORY') {
    return { title: 'There is not enough memory', advice: 'Close other tabs, or open a smaller model.' };
  }
  if (code === 'PLUMB_ERROR_UNSUPPORTED') {
    return { title: 'This model cannot run yet', advice: 'Open a model of a supported kind; the reason is below.' };
  }
  if (code === 'PLUMB_ERROR_TRUNCATED') {
    return { title: 'The file is incomplete', advice: 'Download it again, or open another file.' };
  }
  if (/^PLUMB_ERROR_(MAGIC|VERSION|METADATA|TENSOR|TOKENIZER)$/.test(code)) {
    return { title: 'This is not a readable model', advice: 'Open a GGUF file; its name usually ends in .gguf.' };
  }
  if (code === 'PLUMB_ERROR_CONTEXT') {
    return { title: 'The conversation has become too long', advice: 'Start a new chat.' };
  }
  if (code === 'PLUMB_ERROR_TEMPLATE') {
    return { title: 'This model cannot chat', advice: 'Open an instruction-tuned model, one with a chat template.' };
  }
  return { title: 'Something broke', advice: 'Reload the page. If it happens again, report the line below.' };
}

// ---- conversation ----

/** @param {string} text */
async function ask(text) {
  if (!model || running || !text.trim()) return;
  const mine = running = new AbortController();
  const chat = messages;   // "New chat" may put another in its place meanwhile
  chat.push({ role: 'user', content: text });
  addTurn('user', text);
  const turn = addTurn('assistant', '');
  turn.item.setAttribute('aria-busy', 'true');
  page.prompt.value = '';
  show('answering');
  // The button that was clicked is gone; on a phone the keyboard would cover the answer.
  if (matchMedia('(pointer: fine)').matches) page.prompt.focus();
  page.status.textContent = 'Reading';
  let pieces = 0, first = 0, said = 0, answer = '';
  try {
    for await (const piece of model.generate(chat, { ...SAMPLING, maxTokens: MAX_TOKENS, signal: mine.signal })) {
      const now = performance.now();
      first ||= now;
      pieces++;
      answer += piece;
      follow(() => turn.text.appendData(piece));
      if (now - said > 500 && pieces > 1) {
        page.status.textContent = `${((pieces - 1) * 1000 / (now - first)).toFixed(1)} tokens/s`;
        said = now;
      }
    }
    chat.push({ role: 'assistant', content: answer });
    const stats = model.lastStats;
    if (stats) follow(() => turn.item.append(note(summary(stats))));
  } catch (error) {
    // The question stays in view, but not in the conversation: what failed once would fail again.
    chat.pop();
    const { title, advice } = explain(error);
    turn.item.classList.add('problem');
    follow(() => turn.text.appendData(`${answer && '\n\n'}${title}. ${advice}`));
    if (error instanceof Error) follow(() => turn.item.append(note(error.message)));
  }
  turn.item.removeAttribute('aria-busy');
  if (running !== mine) return;
  running = undefined;
  show('ready');
}

/** @param {import('../plumb.js').Stats} stats */
function summary({ tokens, decodeRate, finishReason }) {
  const how = { stop: '', length: 'cut: no room for more', abort: 'stopped' }[finishReason];
  const count = `${tokens} ${tokens === 1 ? 'token' : 'tokens'}`;
  return [count, `${decodeRate.toFixed(1)} tokens/s`, how].filter(Boolean).join('  ·  ');
}

/** @param {'user' | 'assistant'} role @param {string} words */
function addTurn(role, words) {
  const item = document.createElement('li');
  item.className = role;
  const paragraph = document.createElement('div');
  paragraph.className = 'text';
  const text = document.createTextNode(words);
  const who = document.createElement('span');
  who.className = 'hidden';
  who.textContent = role === 'user' ? 'You:' : 'Answer:';
  paragraph.append(text);
  item.append(who, paragraph);
  page.log.append(item);
  page.scroll.scrollTop = page.scroll.scrollHeight;
  return { item, text };
}

/** @param {string} text */
function note(text) {
  const line = document.createElement('p');
  line.className = 'figures';
  line.textContent = text;
  return line;
}

/** Keeps the end in view while change makes the text longer, unless the reader has scrolled away from it.
 * @param {() => void} change */
function follow(change) {
  const { scroll } = page;
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
  change();
  if (atEnd) scroll.scrollTop = scroll.scrollHeight;
}

function startOver() {
  messages = [];
  page.log.replaceChildren();
}

// ---- the page's states ----

/** @param {'loading' | 'failed' | 'ready' | 'answering'} state */
function show(state) {
  document.body.dataset.state = state;
  page.loading.hidden = state !== 'loading';
  page.failure.hidden = state !== 'failed';
  page.welcome.hidden = state !== 'ready' || page.log.childElementCount > 0;
  page.stop.hidden = state !== 'answering';
  page.send.hidden = state === 'answering';
  page.fresh.disabled = !model || page.log.childElementCount === 0;
  if (state !== 'answering') page.status.textContent = '\u00a0';
  canSend();
}

function canSend() {
  page.send.disabled = !model || !page.prompt.value.trim();
}

page.prompt.addEventListener('input', canSend);
page.prompt.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void ask(page.prompt.value);
});
page.composer.addEventListener('submit', event => {
  event.preventDefault();
  void ask(page.prompt.value);
});
page.stop.addEventListener('click', () => {
  running?.abort();
  page.prompt.focus();
});
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && document.body.dataset.state === 'answering') running?.abort();
});
page.fresh.addEventListener('click', () => {
  running?.abort();
  running = undefined;
  startOver();
  show('ready');
  page.prompt.focus();
});
element('ideas', 'ul').addEventListener('click', event => {
  if (event.target instanceof HTMLButtonElement) void ask(event.target.textContent ?? '');
});
element('cancel', 'button').addEventListener('click', () => running?.abort());
element('retry', 'button').addEventListener('click', () => void load());
element('open', 'button').addEventListener('click', () => page.file.click());
page.file.addEventListener('change', () => {
  const files = [...page.file.files ?? []].sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  if (files.length === 0) return;
  source = files;
  page.file.value = '';
  void load();
});

/** @param {Record<string, unknown>} metadata */
function nameOf(metadata) {
  const base = metadata['general.basename'] ?? metadata['general.name'] ?? metadata['general.architecture'];
  return [base, metadata['general.size_label']].filter(Boolean).join(' ');
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0);
}

/** @param {number} seconds */
function duration(seconds) {
  const s = Math.ceil(seconds);
  return s < 90 ? `${s} s` : `${Math.round(s / 60)} min`;
}

void load();
