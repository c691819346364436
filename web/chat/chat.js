/* The chat page: a user of the package like any other.  Joins the model, the conversation and the panels around it.
 *
 *   ?model=URL   another model than the default one, or the one chosen last */
import { PlumbError } from '../index.js';
import { createChats } from './chats.js';
import { announce, count, dotted, element, recall, remember, toPrompt, toast, whole } from './dom.js';
import { explain } from './explain.js';
import { createLoader } from './loading.js';
import { createModels } from './models.js';
import { isolate, keepPage } from './offline.js';
import { createDialog, createPanel } from './panels.js';
import { createSettings } from './settings.js';
import { newConversation, openStore } from './store.js';

const DEFAULT_MODEL = new URL('../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url).href;
/** Milliseconds between two savings of an answer that grows, and between two looks at its speed. */
const SAVE = 200, GLANCE = 500;
/** Likely tokens that the inspector shows beside the one that was taken. */
const ALTERNATIVES = 5;
const UNSAVED = 'Not saved: this browser has no room for it. Export what you want to keep.';
/** Errors after which a model answers nothing any more: its engine broke down, or its worker is gone. */
const DEAD = ['PLUMB_ERROR', 'PLUMB_ERROR_STATE'];

const page = {
  welcome: element('welcome', 'section'), log: element('log', 'ol'), prompt: element('prompt', 'textarea'),
  send: element('send', 'button'), stop: element('stop', 'button'), status: element('status', 'p'),
  room: element('room', 'p'), fresh: element('fresh', 'button'),
};

/** Ends the answer that is under way. @type {AbortController | undefined} */
let running;
/** @type {'loading' | 'failed' | 'ready'} */
let modelState = 'loading';
/** Whether the last message waits for a model. */
let waiting = false;
let conversation = newConversation();
/** Takes away the way back from the last replacement. */
let forget = () => {};
/** The tokens of answers, with their probabilities, for the inspector.
 * @type {WeakMap<import('./store.js').Message, import('./inspect.js').Token[]>} */
const tokens = new WeakMap();

for (const id of ['models', 'settings']) createDialog(id);
const settings = createSettings(changed => {
  if (changed && modelState !== 'failed' && loader.source) void loader.load(loader.source);
  else void showRoom();
});
const loader = createLoader(settings.loading, state => {
  modelState = state;
  if (state === 'loading') stop();
  show();
  lookInside();
  if (state === 'failed' && idle()) element('retry', 'button').focus();
  else if (state === 'ready') void ready();
});
const models = createModels({ loader, defaultModel: DEFAULT_MODEL, options: settings.loading });
const side = createPanel('side', 'menu');
/** @type {Promise<typeof import('./inspect.js')> | undefined} */
let inspector;
createPanel('inspect', 'open-inspect', open => {
  if (!open) return;
  inspector ??= import('./inspect.js');
  inspector.then(lookInside, () => toast('The inspector does not load: reload the page'));
});

const loading = isolate().catch(() => {}).then(() => models.start());
// Markdown's library takes 20 ms to start, and the page more: the model is on its way meanwhile.
const { createLog } = await import('./log.js');
const log = createLog({ edit, regenerate, busy: () => running !== undefined });
const store = await openStore(what => {
  element('chats-note', 'p').textContent = what === 'unsaved' ? UNSAVED : '';
  if (what === 'unsaved') toast(UNSAVED, 'Export all', () => element('export-json', 'button').click());
  if (what !== 'parted') return;
  toast('Another tab has changed this conversation: both are kept');
  if (store.get(conversation.id)) remember('chat', conversation.id);
  chats.show();
});
const chats = createChats(store, { current: () => conversation, choose, leave: side.leave });
choose(store.get(recall('chat')));
void loading.then(keepPage);

// ---- the model ----

/** Whether the reader is at nothing else, so that the focus may move. */
function idle() {
  return !document.activeElement?.closest('body *') || document.activeElement.closest('#loading, #failure') !== null;
}

async function ready() {
  const { model } = loader;
  if (!model) return;
  models.loaded();
  if (idle()) toPrompt();
  if (waiting) void answer();
  else void showRoom();
}

/** How much of the context the conversation takes. */
async function showRoom() {
  const { model } = loader;
  if (!model || running) return;
  const asked = conversation;
  try {
    const { contextLength } = await model.info();
    const said = prompt(conversation.messages);
    const used = said.length === 0 ? 0 : (await model.tokenizeChat(said, { addGenerationPrompt: false })).length;
    if (asked === conversation && model === loader.model) room(used, contextLength);
  } catch {
    page.room.textContent = '';   // no chat template, for instance: asking says so
  }
}

/** @param {number} used @param {number} contextLength */
function room(used, contextLength) {
  page.room.textContent = `${whole(used)} of ${count(contextLength, 'token')}`;
}

// ---- the conversation ----

/** What the model is given: without answers that failed and, but for the last one, their questions.
 * @param {import('./store.js').Message[]} messages @returns {import('../plumb.js').Message[]} */
function prompt(messages) {
  const system = settings.system();
  const kept = messages.filter(({ problem }, i) => !problem && !messages[i + 1]?.problem);
  return [...system ? [{ role: 'system', content: system }] : [],
    ...kept.map(({ role, content }) => ({ role, content }))];
}

/** @param {import('./store.js').Conversation} [chosen]  none: a new one */
function choose(chosen) {
  stop();
  forget();
  conversation = chosen ?? newConversation();
  waiting = conversation.messages.at(-1)?.role === 'user';   // asked before there was a model, and then left
  remember('chat', chosen?.id);
  log.show(conversation.messages);
  chats.show();
  show();
  lookInside();
  if (waiting) void answer();
  else void showRoom();
}

/** Asks what is in the message box. */
function send() {
  const text = page.prompt.value;
  if (running || waiting || !text.trim()) return;
  page.prompt.value = '';
  forget();   // it would take this question back, too
  ask(text);
}

/** @param {string} text */
function ask(text) {
  conversation.messages.push({ role: 'user', content: text });
  log.add(conversation.messages[conversation.messages.length - 1], conversation.messages.length - 1);
  remember('chat', conversation.id);
  keep();
  chats.show();
  toPrompt();   // the button that was clicked is gone
  void answer();
}

/** @param {number} index @param {string} text */
function edit(index, text) {
  if (running) return;
  cut(index);
  ask(text);
}

/** @param {number} index */
function regenerate(index) {
  if (running) return;
  cut(index);
  toPrompt();
  void answer();
}

/** @param {number} index  of the first message that is forgotten */
function cut(index) {
  waiting = false;
  const chat = conversation, before = [...chat.messages];
  chat.messages.length = index;
  log.cut(index);
  if (before.at(-1)?.problem && index === before.length - 1) return;   // nothing that anybody wants back
  forget = toast('The answers from here on were replaced', 'Undo', () => {
    stop();
    chat.messages = before;
    void store.put(chat);
    choose(chat);
  });
}

function keep() {
  conversation.updated = Date.now();
  void store.put(conversation);
}

/** Keeps what an answer has become, unless its conversation was deleted meanwhile.
 * @param {import('./store.js').Conversation} chat */
function save(chat) {
  if (store.get(chat.id) === chat) void store.put(chat);
}

/** Answers the last message. */
async function answer() {
  const { model } = loader;
  waiting = !model;
  show();
  if (!model) return;
  const mine = running = new AbortController();
  const chat = conversation;
  /** @type {import('./store.js').Message} */
  const message = { role: 'assistant', content: '', figures: 'stopped' };   // what a reload would find
  const said = prompt(chat.messages), sampling = settings.sampling();
  const index = chat.messages.push(message) - 1;
  const turn = log.begin(message, index);
  save(chat);
  /** @type {import('./inspect.js').Token[]} */
  const seen = [];
  tokens.set(message, seen);
  show();
  lookInside();
  announce('Answering');
  page.status.textContent = 'Reading';
  page.room.textContent = '';
  let first = 0, looked = 0, saved = performance.now();
  try {
    const question = said.pop();
    const talk = model.chat({ messages: said, contextEnd: 'trim' });
    for await (const piece of talk.send(question?.content, { ...sampling, logprobs: ALTERNATIVES,
      onToken: token => seen.push(token), signal: mine.signal })) {
      const now = performance.now();
      first ||= now;
      message.content += piece;
      turn.push(piece);
      if (running === mine && now - looked > GLANCE && now > first) {
        page.status.textContent = `${((seen.length - 1) * 1000 / (now - first)).toFixed(1)} tokens/s`;
        looked = now;
      }
      if (now - saved > SAVE) {
        saved = now;
        save(chat);
      }
    }
    const stats = talk.lastStats;
    if (stats) {
      message.figures = summary(stats, talk.trimmed, sampling.maxTokens);
      if (running === mine) room(stats.promptTokens + stats.tokens, (await model.info()).contextLength);
    }
  } catch (error) {
    // A model that was closed for another one ends its answer with an error: it was stopped all the same.
    if (!mine.signal.aborted) {
      message.problem = explain(error);
      delete message.figures;
      if (error instanceof PlumbError && DEAD.includes(error.code)) void loader.load(loader.source);
    }
  }
  turn.end();
  chat.updated = Date.now();
  save(chat);
  if (running !== mine) return;
  running = undefined;
  show();
  chats.show();
  lookInside();
}

/** @param {import('../plumb.js').Stats} stats @param {number} trimmed @param {number} [most]  tokens of an answer */
function summary({ tokens, decodeRate, promptTokens, reusedTokens, prefillRate, finishReason }, trimmed, most) {
  const cut = tokens === most ? 'cut: the longest answer' : 'cut: the context is full';
  const how = { stop: '', length: cut, abort: 'stopped' }[finishReason];
  const read = promptTokens - reusedTokens;
  return dotted([count(tokens, 'token'), `${decodeRate.toFixed(1)} tokens/s`,
    `${read} read at ${prefillRate.toFixed(0)}/s`,
    trimmed > 0 && `without the first ${count(trimmed, 'message')}`, how]);
}

function stop() {
  running?.abort();
  running = undefined;
}

/** Shows the inspector, if it was opened, what there is now. */
function lookInside() {
  void inspector?.then(({ inspect }) => inspect(subject()));
}

/** What the inspector looks at: the last answer and what was said before it. */
function subject() {
  const index = conversation.messages.findLastIndex(({ role, content }) => role === 'assistant' && content !== '');
  const message = conversation.messages[index];
  if (!loader.model || running) return undefined;
  return { model: loader.model, source: loader.source,
    said: message ? prompt(conversation.messages.slice(0, index + 1)) : [], tokens: message && tokens.get(message) };
}

// ---- the page's states ----

function show() {
  document.body.dataset.state = running ? 'answering' : modelState;
  page.welcome.hidden = page.log.childElementCount > 0;
  page.stop.hidden = !running;
  page.send.hidden = Boolean(running);
  page.fresh.disabled = page.log.childElementCount === 0;
  if (!running) page.status.textContent = waiting ? 'Waiting for the model' : '\u00a0';
  canSend();
}

function canSend() {
  page.send.disabled = waiting || !page.prompt.value.trim();
}

page.prompt.addEventListener('input', canSend);
page.prompt.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
element('composer', 'form').addEventListener('submit', event => {
  event.preventDefault();
  send();
});
page.stop.addEventListener('click', () => {
  running?.abort();
  toPrompt();
});
document.addEventListener('keydown', event => {
  if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented) return;
  if (over > 0) hover(-over);
  else if (!document.querySelector('dialog[open]')) running?.abort();
});
page.fresh.addEventListener('click', () => {
  choose(undefined);
  side.leave();
  page.prompt.focus();
});
element('ideas', 'ul').addEventListener('click', event => {
  if (event.target instanceof HTMLButtonElement) ask(event.target.textContent ?? '');
});
addEventListener('pagehide', () => {
  if (running) save(conversation);
});

// ---- files that are dropped ----

let over = 0;
/** @param {DragEvent} event */
const hasFiles = event => event.dataTransfer?.types.includes('Files') ?? false;
/** @param {number} change */
const hover = change => {
  over = Math.max(0, over + change);
  element('drop', 'div').hidden = over === 0;
};
addEventListener('dragenter', event => hasFiles(event) && hover(1));
addEventListener('dragleave', event => hasFiles(event) && hover(-1));
element('drop', 'div').addEventListener('click', () => hover(-over));   // a dragleave that never came
addEventListener('dragover', event => hasFiles(event) && event.preventDefault());
addEventListener('drop', event => {
  if (!hasFiles(event)) return;
  hover(-over);
  if (event.defaultPrevented) return;   // the inspector took it
  event.preventDefault();
  const files = [...event.dataTransfer?.files ?? []];
  if (files.length > 0 && files.every(({ name }) => name.endsWith('.json'))) void chats.importFiles(files);
  else if (files.length > 0) models.openFiles(files);
});
